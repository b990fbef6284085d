"""What a model remembers of its life: exact, however rows come, and the same in its file."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    precision_score,
    recall_score,
    roc_auc_score,
)

import folklearn
from folklearn import Model
from folklearn.errors import StateFileError
from folklearn.metrics.accumulator import EvidenceSpan, Metrics, add_to_ladder, join_suffixes
from folklearn.metrics.predictions import PredictionBatch, log_loss, probability_of_label
from folklearn.model.encoder import TableEncoder
from folklearn.model.run import Score
from folklearn.readers.table import table_from_records
from folklearn.serialization import read, write
from tests.reference import metrics as reference


def bytes_of(metrics):
    record = metrics.to_record()
    return record.config, {name: array.tobytes() for name, array in record.arrays.items()}


def life(rng, T, K=4):
    """Predictions of classes that come one after the other, and rows with gaps and outliers."""
    found = []
    for t in range(T):
        known = min(K, t // 9)
        p, unseen = rng.dirichlet(np.ones(known)) if known else np.empty(0), 1.0 / (t + 1.0)
        label = known if known < K and t % 9 == 8 else int(rng.integers(max(1, known)))
        row = rng.normal(size=3) * [1.0, 1e-3, 1e5]
        row[0] = math.nan if t % 5 == 0 else row[0]
        row[2] *= 40.0 if t % 97 == 96 else 1.0
        found.append((p, label, unseen, float(rng.integers(1, 4)), t / 7.0, row))
    return found


ABSENT = np.full(3, math.nan)


def learned(rows):
    K = max(max(len(p), label + 1) for p, label, *_ in rows)
    P = np.array([np.pad(p, (0, K - len(p))) for p, *_ in rows])
    own = zip(*(row[1:] for row in rows), strict=True)
    labels, unseen, weights, frozen, X = map(np.array, own)
    known = np.array([len(p) for p, *_ in rows])
    return PredictionBatch.of(P, unseen, labels, known, weights, frozen, X, ABSENT)


def one_by_one(rows):
    metrics = Metrics()
    for row in rows:
        metrics.add_one(*row, ABSENT)
    return metrics


@pytest.mark.parametrize("T", [1, 31, 32, 700, 2048, 2049, 2500])
def test_it_is_what_counting_all_rows_at_once_gives(T, rng):
    rows = life(rng, T)
    metrics = one_by_one(rows)
    scaled = [
        (p * (1.0 - u), p[y] * (1.0 - u) if y < len(p) else u, y, weight, frozen)
        for p, y, u, weight, frozen, _ in rows
    ]
    found = [
        (
            one.start,
            one.stop,
            pytest.approx(one.loss),
            one.n_errors,
            one.weight,
            one.holdout_loss,
        )
        for one in metrics.segments
    ]
    assert reference.segments(scaled) == found
    classes = metrics.by_class()
    K = len(classes)
    np.testing.assert_array_equal(metrics.confusion, reference.confusion(scaled, K))
    np.testing.assert_allclose(metrics.calibration, reference.calibration(scaled, K), rtol=1e-12)
    table = metrics.confusion
    y, weights = np.array([row[1] for row in rows]), np.array([row[3] for row in rows])
    best = np.array([row[0].argmax() if len(row[0]) else -1 for row in rows])
    for k, one in enumerate(classes):
        assert one.n_rows == sum(row[1] == k for row in rows)
        assert one.n_right == table[k, k]
        assert one.n_predicted == table[:, k].sum()
        own, guessed, right = (
            weights @ is_of for is_of in (y == k, best == k, (y == k) & (best == k))
        )
        assert one.recall == pytest.approx(right / own if own else math.nan, nan_ok=True)
        precision = right / guessed if guessed else math.nan
        assert one.precision == pytest.approx(precision, nan_ok=True)
        assert one.auc == pytest.approx(reference.auc(scaled, k), nan_ok=True)
        if T <= 700:
            expected = reference.average_precision(scaled, k)
            assert one.average_precision == pytest.approx(expected, nan_ok=True)
    columns = TableEncoder(dict.fromkeys("abc", "number"))
    columns.admit(columns.encode(table_from_records([dict.fromkeys("abc", 1.0)], [1])).keys)
    for j, one in enumerate(metrics.by_column(columns)):
        values = [row[-1][j] for row in rows]
        assert one.n_missing == sum(map(math.isnan, values))
        assert one.n_outliers == reference.outliers(values)
        assert one.first == (
            None if math.isnan(values[0]) and T == 1 else int(math.isnan(values[0]))
        )


@settings(deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 400), max_size=12))
def test_the_same_rows_in_any_parts_are_the_same_bytes(seed, sizes):
    """Some parts one by one, the others as blocks; and whoever looks changes nothing."""
    rows = life(np.random.default_rng(seed), 700)
    metrics, start = Metrics(), 0
    for i, size in enumerate([*sizes, len(rows)]):
        part = rows[start : start + size]
        start += size
        if i % 2:
            for row in part:
                metrics.add_one(*row, ABSENT)
        elif part:
            metrics.add(learned(part))
        metrics.by_class()
    assert bytes_of(metrics) == bytes_of(one_by_one(rows))
    assert metrics.loss == pytest.approx(sum(one.loss for one in metrics.segments), rel=1e-12)


def stream(rng, T=600):
    """Classes come late, columns do not: how a learner grows may depend on what comes with it."""
    rows = [
        {"a": float(v), "b": None if t % 7 == 3 else float(rng.normal())}
        for t, v in enumerate(rng.normal(size=T))
    ]
    labels = [
        ("low" if x["a"] < 0 else "high") if t < 300 else "xyz"[t % 3] for t, x in enumerate(rows)
    ]
    return rows, labels


@pytest.mark.parametrize("name", ["auto", "folklore", "ogd"])
def test_a_model_one_by_one_in_blocks_and_resumed(name, rng, tmp_path):
    rows, labels = stream(rng)
    # With terms one by one and in blocks agree to rounding: tests/model/test_terms.py.
    one, many, resumed = (Model(name, terms="none") for _ in range(3))
    for i, (x, y) in enumerate(zip(rows, labels, strict=True)):
        one.learn_one(x, y)
        if i in (100, 299, 500):
            resumed.save(tmp_path / "model")
            resumed = folklearn.load(tmp_path / "model")
        resumed.learn_one(x, y)
    for start in range(0, 600, 77):
        many.learn_many(rows[start : start + 77], labels[start : start + 77])
    assert bytes_of(one.metrics) == bytes_of(resumed.metrics)
    assert bytes_of(one.metrics) == bytes_of(many.metrics)
    assert one.metrics.n_rows == one.n_rounds == 600


@pytest.mark.filterwarnings("ignore:the saved model will do worse")  # the stream turns
def test_a_run_has_a_history_of_its_own(rng):
    rows, labels = stream(rng)
    frame = [{**x, "y": y} for x, y in zip(rows, labels, strict=True)]
    model = Model()
    first = model.run(frame[:300], "y")
    second = model.run(frame[300:], "y")
    assert (first.n_rows, second.n_rows, model.metrics.n_rows) == (300, 300, 600)
    assert first.loss + second.loss == pytest.approx(2.0 * model.metrics.average_loss)
    model.fit(frame, "y")
    assert model.metrics.n_rows == 600  # however often they are gone over


def test_what_is_told_counts_as_it_was_asked(rng):
    rows, labels = stream(rng, T=40)
    model = Model("folklore")
    for x, y in zip(rows, labels, strict=True):
        model.learn_one(x, y)
    before = model.metrics.loss
    p, number = model.ask(rows[0])
    unseen = model.unseen_probability
    for x, y in zip(rows, labels, strict=True):
        model.learn_one(x, y)
    between = model.metrics.loss
    model.tell(number, "low")
    assert between > before
    assert model.metrics.loss - between == pytest.approx(-math.log(p["low"] * (1.0 - unseen)))


def test_columns_that_come_late_and_what_they_bring(rng):
    model = Model("ogd")
    for t in range(200):
        x = {"n": 1e9 if t == 150 else float(rng.normal()), "c": "new" if t > 180 else "ab"[t % 2]}
        if t >= 100:
            x["late"] = float(t) if t % 2 else None
        model.learn_one(x, "yz"[t % 2])
    n, c, late = sorted(
        model.metrics.by_column(model.encoder), key=lambda one: "ncl".index(one.name[0])
    )
    assert (n.name, n.role, n.first, n.n_missing, n.n_outliers) == ("n", "number", 0, 0, 1)
    assert (c.n_categories, c.new_categories, c.n_missing) == (3, ("new",), 0)
    assert (late.first, late.n_missing) == (101, 150)


def test_words_and_matrices_have_columns_too(rng):
    words = Model(roles={"note": "words"})
    for t in range(60):
        words.learn_one({"note": "" if t % 3 == 0 else f"so many words {t}", "n": float(t)}, t % 2)
    found = {one.name: one for one in words.metrics.by_column(words.encoder)}
    assert words.pipeline.sparse
    assert (found["note"].n_missing, found["n"].n_missing) == (20, 0)
    X = rng.normal(size=(80, 3))
    X[::4, 1] = math.nan
    X.flags.writeable = False
    matrix = Model("folklore")
    matrix.learn_many(X, rng.integers(0, 2, 80))
    assert [one.n_missing for one in matrix.metrics.by_column(matrix.encoder)] == [0, 20, 0]


def test_soft_labels_count_with_their_loss_and_most_likely_class():
    model = Model("folklore", classes=["a", "b"])
    soft = [{"a": 0.9, "b": 0.1}, "b", {"a": 0.2, "b": 0.8}]
    step = model.learn_many([{"n": 1.0}, {"n": 2.0}, {"n": 0.0}], soft)
    assert model.metrics.loss == pytest.approx(step.losses.sum())
    p = step.P[2]
    assert step.losses[2] == pytest.approx(-0.2 * math.log(p[0]) - 0.8 * math.log(p[1]))
    assert [one.n_rows for one in model.metrics.by_class()] == [1, 2]


def test_many_classes_have_no_tables_but_precision_and_recall(rng):
    model = Model("ogd", B=1.0)
    for t in range(120):
        model.learn_one({"a": float(t % 60), "b": 1.0}, t % 60 if t > 59 else t % 50)
    assert model.metrics.confusion.shape == (0, 0)
    assert model.metrics.calibration.shape == (3, 0, 10)
    assert np.isfinite(model.metrics.by_class()[0].recall)
    assert math.isnan(model.metrics.by_class()[0].auc)


def test_lower_bounds_are_noted_when_a_segment_has_ended(rng, tmp_path):
    model = Model("folklore", windows=True, classes=["p", "q"])
    X = rng.normal(size=(700, 2))
    labels = ["pq"[int(v > 0)] for v in X[:, 0] + 2.0 * rng.normal(size=700)]
    model.learn_many(X[:640], labels[:640])
    for x, y in zip(X[640:], labels[640:], strict=True):
        model.learn_many(x[None], [y])
    model.save(tmp_path / "model")
    *ended, last = folklearn.load(tmp_path / "model").metrics.segments
    assert all(0.0 < segment.lower_bound < math.log(2.0) for segment in ended)
    assert math.isnan(last.lower_bound)


def test_a_damaged_state_is_refused(rng, tmp_path):
    rows, labels = stream(rng, T=50)
    model = Model("folklore")
    model.learn_many(rows, labels)
    model.save(tmp_path / "model")
    record = read(tmp_path / "model")
    record.config["metrics"]["config"]["n_rows"] = 10**6
    write(tmp_path / "broken", record)
    with pytest.raises(StateFileError, match="more rows than its segments hold"):
        folklearn.load(tmp_path / "broken")


@pytest.mark.parametrize("T", [0, 1, 63, 64, 65, 192, 640, 1000])
def test_windows_are_sums_over_the_last_rows(T, rng):
    """The same windows as those of a ladder, of which each covers the next power of 2."""
    rows = life(rng, T)
    metrics, ladder, whole = one_by_one(rows), [], T // 64 * 64
    for start in range(0, whole, 64):
        add_to_ladder(ladder, EvidenceSpan(start, start + 64, 0))
    newest = [EvidenceSpan(whole, T, 0)] if whole < T else []
    expected, wanted = [], 64
    for window in join_suffixes([*ladder, *newest]):
        if window.n_rounds >= wanted or window.start == 0:
            expected.append((window.start, window.stop))
            while wanted <= window.n_rounds:
                wanted *= 2
    losses = np.array([log_loss(probability_of_label(p, y, u)) for p, y, u, *_ in rows])
    wrong = [not (len(p) and p.argmax() == y) for p, y, *_ in rows]
    weights = np.array([row[3] for row in rows])
    assert [(one.start, one.stop) for one in metrics.windows()] == expected
    for one in metrics.windows():
        inside = slice(one.start, one.stop)
        assert one.loss == pytest.approx(weights[inside] @ losses[inside])
        assert (one.n_errors, one.weight) == (sum(wrong[inside]), weights[inside].sum())


def test_rates_of_a_rare_class_are_those_of_scikit_learn(rng):
    """Of probabilities at bins exactly; of any to the resolution; weights count."""
    T = 6000
    weights, logits = rng.integers(1, 5, T).astype(float), 2.5 * rng.normal(size=T) - 6.0
    p = 1.0 / (1.0 + np.exp(-logits))
    y = (logits + 2.0 * rng.logistic(size=T) > 0.0).astype(int)
    P = np.array([1.0 - p, p]).T
    scores = Score(Model(classes=("ok", "fraud")))
    best = P.argmax(axis=1)
    scores.metrics.add(PredictionBatch.of_predictions(P, np.zeros(T), y, weights, best))
    one, in_bins = scores.classes["fraud"], [reference.place(value) for value in p]
    assert list(scores.rare) == ["fraud"]
    for found, function in [
        (one.auc, roc_auc_score),
        (one.average_precision, average_precision_score),
    ]:
        assert found == pytest.approx(function(y, in_bins, sample_weight=weights), rel=1e-12)
        assert found == pytest.approx(function(y, p, sample_weight=weights), abs=0.01)
    brier = brier_score_loss(y, p, sample_weight=weights)
    assert scores.brier == pytest.approx(2.0 * brier, rel=1e-12)
    guessed = p > 0.5
    assert one.recall == pytest.approx(recall_score(y, guessed, sample_weight=weights))
    assert one.precision == pytest.approx(precision_score(y, guessed, sample_weight=weights))
    assert scores.rare_in_words == [
        f"fraud: {y.sum()} of 6000 rows; AUC {one.auc:.3f}, average precision "
        f"{one.average_precision:.3f}, recall {one.recall:.1%}, precision {one.precision:.1%}."
    ]


def test_brier_of_soft_labels_and_new_classes():
    model = Model("folklore", classes=["a", "b"])
    soft = [{"a": 0.9, "b": 0.1}, "b", {"a": 0.2, "b": 0.5, "c": 0.3}, "d"]
    step = model.learn_many([{"n": float(t)} for t in range(4)], soft)
    Y = np.array([[0.9, 0.1, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.2, 0.5, 0.3, 0.0], [0, 0, 0, 1]])
    is_known = np.arange(4) < step.known[:, None]
    P = np.pad(step.P, ((0, 0), (0, 4 - step.P.shape[1])))
    new = np.where(is_known, 0.0, Y).sum(axis=1)
    expected = (np.where(is_known, P - Y, 0.0) ** 2).sum(axis=1) + (step.unseen - new) ** 2
    assert model.metrics.brier == pytest.approx(expected.mean())


def test_weights_of_classes_are_in_the_loss_and_not_in_the_rates(rng):
    X, y = rng.normal(size=(400, 2)), rng.random(400) < 0.1
    weights = rng.integers(1, 4, 400).astype(float)
    model = Model("ogd", class_weight={True: 4.0}, B=1.0)
    P = model.learn_many(X, y, weight=weights).P
    record = model.metrics.by_class()[model.labels.index(True)]
    p = P[:, model.labels.index(True)]
    assert model.metrics.weight == pytest.approx(weights @ np.where(y, 4.0, 1.0))
    expected = average_precision_score(y[9:], p[9:], sample_weight=weights[9:])
    assert record.average_precision == pytest.approx(expected, rel=0.1)
    assert record.n_rows == y.sum()
