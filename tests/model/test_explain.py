"""Explanations say what columns do, in nats."""

import re

import numpy as np
import pytest
from scipy.sparse import csr_array

from folklearn import DataWarning, Model, load
from folklearn.errors import InvalidInputError
from folklearn.kernels.scaling import CROSS, HINGE, PRODUCT, STEP
from folklearn.readers.open import as_table
from folklearn.readers.table import table_from_records


def test_a_category_weighs_what_its_being_there_changes(rng):
    """However rare it is: the log odds of a fit, not those of one deviation."""
    rare = rng.random(8000) < 0.1
    odds = np.where(rare, 2.0, -1.0)
    label = np.where(odds + rng.logistic(size=8000) > 0.0, "yes", "no")
    rows = [{"kind": "rare" if one else "plain"} for one in rare.tolist()]
    labelled = [row | {"label": k} for row, k in zip(rows, label, strict=True)]
    model = Model(terms="none").fit(labelled, "label")  # with terms, lines are not all of it
    explained = model.explain(importance=False)
    weight = dict(zip(explained.names, explained.weights.tolist(), strict=True))
    yes = explained.labels.index("yes")
    between = 2.0 * (weight["kind = rare"][yes] - weight["kind = plain"][yes])
    P = model.predict_proba([{"kind": "rare"}, {"kind": "plain"}])
    logits = np.log(P[:, yes] / P[:, 1 - yes])
    assert np.isclose(between, logits[0] - logits[1], rtol=1e-2)  # rows move the mean
    assert abs(between - 3.0) < 0.6  # five deviations of what is left to chance
    shape = explained.shapes["kind"]
    odds = shape.contributions[[shape.values.index(one) for one in ("rare", "plain")]] @ [1, -1]
    assert np.isclose(abs(odds[0] - odds[1]), abs(logits[0] - logits[1]), rtol=1e-9)


def test_words_that_nobody_wrote_have_no_weights():
    model = Model(roles={"text": "words"})
    for label in "ab":
        model.learn_one({"text": None}, label)
    found = model.explain()
    assert (found.names, found.weights.shape) == ((), (0, 2))


def learn(rng, n=1500, **options):
    """Return a model of two numbers with gaps, a category and three classes, and its rows."""
    x, z = rng.normal(size=(2, n)).round(3)
    kind = rng.choice(["a", "b", "c"], n)
    score = np.stack([x * x - 1.0, z + (kind == "b"), np.zeros(n)], axis=1)
    label = (score + rng.gumbel(size=(n, 3))).argmax(axis=1)
    rows = [{"x": a, "z": b, "kind": k} for a, b, k in zip(x, z, kind, strict=True)]
    for i in range(0, n, 11):
        rows[i] = {"x": rows[i]["x"], "z": None, "kind": None if i % 2 else "a"}
    model = Model(**options)
    model.learn_many(rows, label.tolist())
    return model, rows


def slow_scores(model, X, W, is_kept):
    """Return the scores of raw rows (T, d) by the columns and plain terms that are kept.

    Straight from the definitions: every value is standardised with the row itself taken in.
    """
    scaler = model.pipeline.scaler
    counts, means, squares = scaler._moments[:3]
    terms = scaler.terms if W.shape[1] > scaler.n_columns else None
    scores = []
    for x in X:
        z = np.array([slow_scale(v, *m) for v, *m in zip(x, counts, means, squares, strict=True)])
        contexts = []
        for n in range(0 if terms is None else len(terms.kinds)):
            (i, j), (q, r) = terms.columns[n], terms.numbers[n]
            value = {
                HINGE: max((x[i] - q) * r, 0.0), STEP: float(x[i] > q), PRODUCT: z[i] * z[j],
                CROSS: float(x[i] > q and x[j] > r),
            }[int(terms.kinds[n])]  # fmt: skip
            if np.isnan([x[i], x[j]]).any():
                value = np.nan
            share = scaler._factors[n] * slow_scale(value, *scaler._term_moments[:3, n])
            contexts.append(share if is_kept({i, j}) else 0.0)
        contexts += [0.0] * (0 if terms is None else len(terms.phases))
        of_columns = np.zeros(scaler.n_columns)
        kept = [j for j in range(len(x)) if is_kept({j})]
        of_columns[model.pipeline.feature_columns[kept]] = z[kept] * scaler.unit
        scores.append(W @ np.concatenate([contexts, of_columns]))
    return np.array(scores)


def slow_scale(value, count, mean, square):
    if np.isnan(value):
        return 0.0
    count, away = count + 1.0, value - mean
    mean += away / count
    square += away * (value - mean)
    score = (value - mean) / np.sqrt(square / count) if square > 0.0 else 0.0
    return float(np.clip(score, -5.0, 5.0))


def weights_of(model):
    fit = model.pipeline.batch_fit
    learner = model.pipeline.learner
    if fit is not None:
        return fit
    if not hasattr(learner, "gaussians"):
        return learner.coef()
    weights = model.pipeline.holdout.weights(learner)
    shares = dict(zip(learner._expert_names(), weights, strict=True))
    return max(learner.gaussians, key=lambda each: shares[learner.name_of(each)]).coef()


@pytest.mark.parametrize("options", [{}, {"terms": "all"}, {"terms": "none"}])
def test_a_shape_is_how_scores_differ_if_only_its_column_changes(rng, options):
    model, _ = learn(rng, **options)
    explained, places = model.explain(importance=False), model.encoder.places
    W = weights_of(model)
    assert (W.shape[1] > model.pipeline.scaler.n_columns) == (options != {"terms": "none"})
    recent = model.encoder.encode_known(model.recent.rows()[0])
    for name in ("x", "z"):
        shape, j = explained.shapes[name], places[name, ""]
        X = np.tile(recent[0], (len(shape.values) + 1, 1))
        X[:, j] = [*shape.values, np.nan]
        scores = slow_scores(model, X, W, lambda columns, j=j: columns == {j})
        scores -= scores.mean(axis=1, keepdims=True)
        of_rows = slow_scores(model, recent, W, lambda columns, j=j: columns == {j})
        of_rows -= of_rows.mean(axis=1, keepdims=True)
        drawn = np.vstack([shape.contributions, shape.missing])
        np.testing.assert_allclose(drawn, scores - of_rows.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(shape.strength, of_rows.std(axis=0).max(), rtol=1e-9)
        assert (np.diff(shape.values) > 0.0).all()
        assert len(shape.values) <= 80
        np.testing.assert_array_equal(shape.recent, recent[:, j])
    # A category, with the products of its own values.
    shape = explained.shapes["kind"]
    mine = {places["kind", value] for value in shape.values}
    X = np.tile(recent[0], (len(mine) + 1, 1))
    X[:, sorted(mine)] = np.eye(len(mine) + 1, len(mine))
    scores = slow_scores(model, X, W, lambda columns: columns <= mine)
    of_rows = slow_scores(model, recent, W, lambda columns: columns <= mine)
    scores = scores - of_rows.mean(axis=0)
    drawn = np.vstack([shape.contributions, shape.missing])
    np.testing.assert_allclose(drawn, scores - scores.mean(axis=1, keepdims=True), atol=1e-9)
    assert set(shape.values) == {"a", "b", "c"}
    named = ["abc".find(shape.values[int(v)]) if v == v else -1 for v in shape.recent]
    table = model.recent.rows()[0].columns["kind"].to_list()
    assert named == ["abc".find(value) if value else -1 for value in table]


def test_shapes_pairs_and_waves_are_all_of_the_scores(rng):
    """The log odds of a fit are its shapes, its pairs, its waves and a constant."""
    model, _ = learn(rng)
    explained = model.explain(importance=False)
    assert {name for *pair, _ in explained.pairs for name in pair} == {"x", "z", "kind"}
    strengths = [strength for *_, strength in explained.pairs]
    assert strengths == sorted(strengths, reverse=True)
    pipeline, W = model.pipeline, weights_of(model)
    W = W - W.mean(axis=0)
    X = model.encoder.encode_known(model.recent.rows()[0])
    Z = pipeline.scale(X)
    kinds, columns = pipeline.scaler.terms.kinds, pipeline.scaler.terms.columns
    x, z = model.encoder.places["x", ""], model.encoder.places["z", ""]
    mixed = [n for n in range(len(kinds)) if set(columns[n].tolist()) == {x, z}]
    pairs = {frozenset(pair): strength for *pair, strength in explained.pairs}
    strength = (Z[:, mixed] @ W[:, mixed].T).std(axis=0).max()
    np.testing.assert_allclose(pairs[frozenset("xz")], strength, rtol=1e-9)
    waves = slice(len(kinds), len(pipeline.scaler.terms))
    share = np.sqrt((Z[:, waves] @ W[:, waves].T).var(axis=0).sum() / (Z @ W.T).var(axis=0).sum())
    np.testing.assert_allclose(explained.wave_share, share, rtol=1e-9)
    assert 0.0 < share < 1.5


def test_a_known_curve_is_found(rng):
    """Of x^2 - 1 for the first class, in nats; the fits are of 6,000 rows."""
    model, _ = learn(rng, 6000)
    shape, first = model.explain().shapes["x"], model.labels.index(0)
    inside = np.abs(shape.values) < 1.8
    found = shape.contributions[inside, first]
    known = 2.0 / 3.0 * shape.values[inside] ** 2  # less the mean over three classes
    assert np.corrcoef(found, known)[0, 1] > 0.97
    slope = np.polyfit(known, found, 1)[0]
    assert 0.6 < slope < 1.4
    linear = learn(rng, 6000, terms="none")[0].explain().shapes["x"]
    np.testing.assert_allclose(
        np.diff(linear.contributions, axis=0)[:, 0] / np.diff(linear.values),
        (linear.contributions[-1] - linear.contributions[0])[0] / np.ptp(linear.values),
        rtol=0.05, atol=2e-3,
    )  # fmt: skip


def test_shapes_say_of_which_model_they_are(rng):
    model, _ = learn(rng)
    of = model.explain(importance=False).shapes_of
    gaussian = model.pipeline.learner.best_gaussian()
    assert of.startswith(f"the learner of terms with ridge {gaussian.ridge:g}")
    weights = model.pipeline.holdout.weights(model.pipeline.learner)
    names = model.pipeline.learner._expert_names()
    share = weights[names.index(f"terms, ridge {gaussian.ridge:g}, leak {gaussian.leak:g}")]
    assert f"{100 * share:.0f} % of the weight of the hold-out mixture" in of or share < 0.01
    linear, _ = learn(rng, terms="none")
    explained = linear.explain(importance=False)
    assert explained.shapes_of == "the linear model that predictions lean on most"
    assert (explained.pairs, explained.wave_share) == ((), 0.0)


@pytest.mark.parametrize("terms", ["auto", "none"])
def test_after_fit_shapes_are_those_of_the_fit(rng, tmp_path, terms):
    _, rows = learn(rng)
    y = [int(row["x"] ** 2 > 1.0) for row in rows]
    model = Model(terms=terms).fit([r | {"y": k} for r, k in zip(rows, y, strict=True)], "y")
    explained = model.explain()
    has_terms = model.pipeline.batch_fit.shape[1] > model.pipeline.scaler.n_columns
    assert has_terms == (terms == "auto")
    kind = "lines and terms" if has_terms else "lines"
    assert explained.shapes_of == f"the fit of {kind} to all rows"
    shape = explained.shapes["x"]
    if has_terms:
        odds = 2.0 * shape.contributions[:, model.labels.index(1)]
        assert odds[np.argmin(np.abs(shape.values))] < min(odds[0], odds[-1]) - 3.0
    model.save(tmp_path / "m.folk")
    again = load(tmp_path / "m.folk").explain()
    assert list(again.shapes) == list(explained.shapes)
    assert (again.pairs, again.wave_share) == (explained.pairs, explained.wave_share)
    for name, shape in explained.shapes.items():
        np.testing.assert_array_equal(again.shapes[name].contributions, shape.contributions)


def test_shapes_of_dates_of_crosses_and_of_matrices(rng):
    n = 400
    rows = [
        {"when": f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}", "a": float(i % 7), "b": float(i % 5)}
        for i in range(n)
    ]
    model = Model(crosses=[("a", "b")], terms="none")
    y = [int(row["a"] * row["b"] > 6.0) for row in rows]
    model.learn_many(rows, y)
    explained = model.explain()
    assert {"a", "b", "when: trend", "when: Monday"} <= explained.shapes.keys()
    assert "a:b" not in explained.shapes
    assert [pair[:2] for pair in explained.pairs] == [("a", "b")]
    assert explained.shapes["when: trend"].is_time
    assert not explained.shapes["when: Monday"].is_time
    matrix = Model()
    matrix.learn_many(rng.normal(size=(n, 2)), y)
    shapes = matrix.explain().shapes
    assert sorted(shapes) == ["0", "1"]
    strengths = [shape.strength for shape in shapes.values()]
    assert strengths == sorted(strengths, reverse=True)
    constant = Model()
    constant.learn_many([{"c": 1.0}] * n, y)
    assert not constant.explain().shapes["c"].contributions.any()


def test_shapes_are_drawn_by_importance_in_raw_units(rng, tmp_path):
    pytest.importorskip("matplotlib")
    model, _ = learn(rng)
    explained = model.explain()
    figure = explained.plot_shapes(tmp_path / "shapes.png")
    assert (tmp_path / "shapes.png").stat().st_size > 1000
    names = [name for name, _ in explained.top_columns()]
    assert [ax.get_title(loc="left") for ax in figure.axes] == names == list(explained.shapes)
    shape, ax = explained.shapes["x"], figure.axes[names.index("x")]
    curves = [line for line in ax.lines if len(line.get_xdata()) == len(shape.values)]
    assert len(curves) == 3
    np.testing.assert_array_equal(curves[0].get_xdata(), shape.values)
    np.testing.assert_array_equal(curves[0].get_ydata(), shape.contributions[:, 0])
    limits = {ax.get_ylim() for name, ax in zip(names, figure.axes, strict=True) if name != "kind"}
    assert len(limits) == 1
    assert explained.shapes_of in " ".join(figure.get_supxlabel().split())
    bars = figure.axes[names.index("kind")]
    assert {tick.get_text() for tick in bars.get_yticklabels()} >= {"a", "b", "c"}
    assert len(explained.plot_shapes(columns=["z"]).axes) == 1
    with pytest.raises(InvalidInputError, match="no shape of w to draw"):
        explained.plot_shapes(columns=["w"])


def test_of_two_classes_the_log_odds_of_the_second_are_drawn(rng):
    pytest.importorskip("matplotlib")
    x = rng.normal(size=600)
    model = Model(classes=["no", "yes"])
    model.learn_many([{"x": v} for v in x], np.where(x > 0.3, "yes", "no").tolist())
    explained = model.explain()
    (ax,) = explained.plot_shapes().axes
    drawn = next(line for line in ax.lines if len(line.get_xdata()) > 2)
    odds = explained.shapes["x"].contributions @ [-1.0, 1.0]
    np.testing.assert_allclose(drawn.get_ydata(), odds)
    assert ax.get_ylabel() == "log odds of yes"
    assert "shapes" in model.report().casefold()


def test_columns_beside_words_have_shapes_and_words_have_none():
    model = Model(roles={"text": "words"})
    for i in range(40):
        model.learn_one({"text": "late again and again" if i % 2 else "it is fine", "n": i}, i % 2)
    explained = model.explain()
    assert (list(explained.shapes), explained.pairs) == (["n"], ())
    assert {"n", "text: late", "text: fine"} <= set(explained.names)
    model = Model()
    model.learn_many([{"text": "late again and again"}, {"text": "it is quite fine"}], ["a", "b"])
    explained = model.explain()
    assert (explained.shapes, explained.pairs) == ({}, ())
    with pytest.raises(InvalidInputError, match="no shape of any column to draw"):
        explained.plot_shapes()


# One row.


def expert_odds(pipeline, X, pair, name):
    """Return the log odds of two classes by the expert of a name, or the fit, for one row."""
    name, _, on_top = name.partition("; ")
    if pipeline.batch_fit is not None:
        P = pipeline.predict(X)
    elif pipeline.dense is not None and name not in pipeline.learner._expert_names():
        P = expert_predictions(pipeline, X, on_top or "columns without words")
    else:
        P = expert_predictions(pipeline, X, name)
    odds = float(np.subtract(*np.log(P[0][pair])))
    if pipeline.dense is None or (name in pipeline.learner._expert_names() and not on_top):
        return odds
    # In place of what the other columns say in all, what their expert says.
    mixture = float(np.subtract(*np.log(pipeline.dense.predict(X.dense)[0][pair])))
    return odds - mixture + expert_odds(pipeline.dense, X.dense, pair, name)


def expert_predictions(pipeline, X, name):
    Z = pipeline.scale(X, by_holdout=True)
    at = pipeline.learner._expert_names().index(name)
    return pipeline.learner._expert_predictions(Z)[at]


def check_adds_up(model, row):
    explained = model.explain(row)
    P = model.predict_proba([row] if isinstance(row, dict) else row)
    p = dict(zip(model.labels, P[0], strict=True))
    first, second = sorted(p, key=p.__getitem__)[:-3:-1]
    assert {explained.label, explained.against} == {first, second}
    assert explained.probabilities == pytest.approx(sorted(p.values())[:-3:-1], rel=1e-12)
    pair = [model.labels.index(explained.label), model.labels.index(explained.against)]
    table = table_from_records([row], [1]) if isinstance(row, dict) else as_table(row)
    X = model.encoder.encode_known(table)
    odds = expert_odds(model.pipeline, X, pair, explained.explained_by)
    of_both = np.log(np.divide(*explained.model_probabilities))
    np.testing.assert_allclose(of_both, odds, atol=1e-9)
    np.testing.assert_allclose(sum(nats for *_, nats in explained.table), odds, atol=1e-9)
    np.testing.assert_allclose(sum(explained.by_column().values()), odds, atol=1e-9)
    np.testing.assert_allclose(sum(line.nats for line in explained.top(2)), odds, atol=1e-9)
    assert f"{explained.label} (" in repr(explained)
    return explained


def rows_of_many_kinds(rng, n):
    """Return rows with a number, a code, a day and a note, some missing, and their classes."""
    rows, labels = [], []
    notes = ("late and lost", "all fine thanks", "very late again", "thanks a lot")
    for i, x in enumerate(rng.normal(size=n).round(2).tolist()):
        row = {"x": x, "z": float(i % 7), "code": "abc"[i % 3], "note": notes[i % 4]}
        row["when"] = f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}"
        for name in ("x", "code", "note", "when") * (i % 5 == 0):
            row[name] = row[name] if rng.random() < 0.5 else None
        rows.append(row)
        labels.append(
            "no" if x + (i % 3 == 1) + rng.logistic() < 0.0 else ["yes", "perhaps"][i % 2]
        )
    return rows, labels


@pytest.mark.parametrize(
    ("options", "n_classes", "without"),
    [
        ({}, 3, ["note"]),
        ({}, 2, ["note", "when"]),
        ({"terms": "all"}, 2, ["note"]),
        ({"terms": "none"}, 3, ["note"]),
        ({"roles": {"note": "words"}}, 3, []),
        ({"roles": {"note": "words"}}, 3, ["x", "z", "code", "when"]),  # wide
        ({"roles": {"note": "words"}, "crosses": [("code", "z")]}, 2, ["when"]),
        ({"crosses": [("x", "z"), ("code", "x")]}, 2, ["note"]),
        ({"scale": False, "intercept": False}, 3, ["note", "when"]),
        ({"learner": "ogd"}, 2, ["note"]),
        ({"terms": "none", "backend": "blocks"}, 3, ["note"]),
    ],
)
def test_contributions_add_up_to_the_log_odds_of_the_model_that_is_named(
    rng, options, n_classes, without
):
    rows, labels = rows_of_many_kinds(rng, 400)
    rows = [{k: v for k, v in row.items() if k not in without} for row in rows]
    labels = [label if n_classes == 3 or label == "no" else "yes" for label in labels]
    model = Model(**options)
    for row, label in zip(rows[:9], labels, strict=False):  # columns and classes that come late
        model.learn_one({k: v for k, v in row.items() if k != "z"}, label)
    model.learn_many(rows[9:], labels[9:])
    before = model.to_bytes()
    unusual = [{"x": 40.0, "code": "a"}, {"x": None}] * ("x" not in without)
    for row in rows[:6] + unusual:
        if model.pipeline.learner._expert_names()[0].startswith("0: "):  # of a nested mixture
            explained = model.explain(row)
            odds = np.log(np.divide(*explained.model_probabilities))
            np.testing.assert_allclose(explained.log_odds, odds, atol=1e-9)
        else:
            explained = check_adds_up(model, row)
        assert 0.0 < explained.share <= 1.0
        missing = {line.name for line in explained.contributions if line.value is None}
        assert missing <= {name for name in rows[0] if row.get(name) is None}
    assert model.to_bytes() == before


@pytest.mark.parametrize("without", ["note", ""])
def test_whichever_expert_leads_it_adds_up(rng, without):
    rows, labels = rows_of_many_kinds(rng, 400)
    rows = [{k: v for k, v in row.items() if k != without} for row in rows]
    model = Model() if without else Model(roles={"note": "words"})
    model.learn_one(rows[1], labels[1])
    model.learn_many(rows, labels)
    losses, learner = model.pipeline.holdout.losses, model.pipeline.learner
    for name in [name for name in learner._expert_names() if name != "folklore"]:
        before, losses[name] = losses[name], -10.0
        explained = check_adds_up(model, rows[3])
        assert explained.explained_by.endswith(name) or name == "columns without words"
        losses[name] = before


@pytest.mark.parametrize(("terms", "without"), [("auto", "note"), ("none", "note"), ("auto", "")])
def test_after_fit_a_row_is_explained_by_the_fit(rng, tmp_path, terms, without):
    rows, labels = rows_of_many_kinds(rng, 250)
    rows = [{k: v for k, v in row.items() if k != without} for row in rows]
    labelled = [row | {"y": y} for row, y in zip(rows, labels, strict=True)]
    roles = {} if without else {"note": "words"}
    model = Model(terms=terms, roles=roles).fit(labelled, "y")
    for row in rows[:4]:
        explained = check_adds_up(model, row)
        kinds = "the fit of lines( and terms)? to all rows(; words on top)?"
        assert re.fullmatch(kinds, explained.explained_by)
        assert explained.share == 1.0
        assert explained.probabilities == pytest.approx(explained.model_probabilities, rel=1e-9)
    model.save(tmp_path / "m.folk")
    assert load(tmp_path / "m.folk").explain(rows[0]) == model.explain(rows[0])


def test_a_column_has_all_its_terms_and_pairs_have_lines_of_their_own(rng):
    """Straight from the definitions of terms: of the columns alone, of pairs, and of waves."""
    model, rows = learn(rng)
    row = rows[1]
    explained = model.explain(row)
    assert explained.explained_by.startswith("terms, ")
    W, places = weights_of(model), model.encoder.places
    own = {"x": {places["x", ""]}, "z": {places["z", ""]}}
    own["kind"] = {place for (source, _), place in places.items() if source == "kind"}
    owner = {place: name for name, mine in own.items() for place in mine}
    X = model.encoder.encode_known(table_from_records([row], [1]))
    pair = [model.labels.index(explained.label), model.labels.index(explained.against)]

    def slow(names):
        kept = slow_scores(model, X, W, lambda columns: {owner[j] for j in columns} == names)
        return float(np.subtract(*kept[0][pair]))

    sums = {line.columns: line.nats for line in explained.contributions if line.columns}
    assert len(sums) == 6
    for columns, nats in sums.items():
        np.testing.assert_allclose(nats, slow(set(columns)), atol=1e-9)
    by_column = explained.by_column()
    half = 0.5 * sum(nats for columns, nats in sums.items() if "x" in columns and len(columns) > 1)
    np.testing.assert_allclose(by_column["x"], sums["x",] + half, atol=1e-9)
    values = {name: value for name, value, _ in explained.table}
    assert {name: values[name] for name in own} == row
    assert (values["constant"], values["kind × x"]) == ("", "")
    assert values["waves of all columns"] == ""


def test_a_missing_number_counts_as_its_mean(rng):
    model, _ = learn(rng)
    explained = model.explain({"x": None, "z": 1.0, "kind": "c"})
    lines = {line.name: line for line in explained.contributions}
    assert (lines["x"].value, lines["x"].nats) == (None, 0.0)
    assert "x (missing)" in repr(explained)
    assert "kind = c" in repr(explained)


def test_spellings_of_missing_are_missing_in_explanations_too():
    model = Model(missing=["unknown"])
    for i in range(100):
        model.learn_one({"x": i % 9, "k": "ab"[i % 3 == 0]}, int(i % 9 > 4))
    explained = model.explain({"x": "-", "k": "unknown"})
    assert {
        line.name: line.value for line in explained.contributions if line.columns == (line.name,)
    } == {"x": None, "k": None}


def test_words_stand_below_their_column():
    model = Model(roles={"note": "words"})
    for i in range(100):
        model.learn_one({"note": ["my card was stolen", "slow app crashes"][i % 2]}, i % 2)
    explained = check_adds_up(model, {"note": "my slow card and my nephew"})
    names = {line.name for line in explained.contributions}
    assert {"note: my", "note: slow", "note: card"} < names
    assert "note: nephew" not in names  # never learned
    text = repr(explained).splitlines()
    at = next(i for i, line in enumerate(text) if line.endswith("note:"))
    assert {line.split()[-1] for line in text[at + 1 : at + 4]} == {"my", "slow", "card"}
    assert set(explained.by_column()) == {"note", "constant"}
    sum_of_note = next(float(line.split()[0]) for line in text if line.endswith("note:"))
    np.testing.assert_allclose(explained.by_column()["note"], sum_of_note, atol=0.01)


@pytest.mark.parametrize("wide", [False, True])
def test_rows_without_names_are_explained_by_number(rng, wide):
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 2, 300)
    X[::7, 1] = 0.0 if wide else np.nan
    given = csr_array(X) if wide else X
    model = Model()
    model.learn_many(given, y)
    explained = check_adds_up(model, given[[0]])
    values = {
        line.name: line.value for line in explained.contributions if line.columns == (line.name,)
    }
    assert (
        values == {"0": X[0, 0], "1": None, "2": X[0, 2]} if not wide else {"0", "2"} <= set(values)
    )
    with pytest.raises(InvalidInputError, match="one row is explained at a time, got 2 rows"):
        model.explain(given[:2])


def test_nothing_is_explained_before_two_classes():
    model = Model()
    with pytest.raises(InvalidInputError, match="learned nothing yet"):
        model.explain({"x": 1.0})
    model.learn_one({"x": 1.0}, "a")
    with pytest.raises(InvalidInputError, match="before two classes"):
        model.explain({"x": 1.0})
    model.learn_one({"x": 2.0, "k": "a"}, "b")
    with pytest.warns(DataWarning, match="never learned"):
        explained = model.explain({"x": 1.0, "k": "new", "unknown": [1, 2]})
    assert {"x", "k"} <= set(explained.by_column()) <= {"x", "k", "constant"}


def test_importance_is_what_shuffling_a_column_costs(rng):
    x, z = rng.normal(size=(2, 600))
    labels = np.where(x + 0.3 * rng.normal(size=600) > 0.0, "yes", "no")
    rows = [{"x": float(a), "z": float(b)} for a, b in zip(x, z, strict=True)]
    model = Model()
    model.learn_many(rows, labels)
    found = model.explain().importance

    def loss(shuffled):
        P = model.predict_proba(shuffled)
        places = [model.labels.index(label) for label in labels]
        return -np.log(P[np.arange(600), places]).mean()

    for name in ("x", "z"):
        others = [
            {**row, name: rows[i][name]} for row, i in zip(rows, rng.permutation(600), strict=True)
        ]
        assert abs(found[name] - (loss(others) - loss(rows))) < 0.3 * found["x"]
    assert found["x"] > 10.0 * abs(found["z"])
