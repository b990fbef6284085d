"""Streams whose classes and features come late."""

import copy
import math
import pickle

import numpy as np
import pytest

import folklearn
from folklearn import Folklore, Model, utils
from folklearn.arrays import softmax
from folklearn.errors import InvalidInputError
from folklearn.evaluate.regression import logistic_regression
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.refit import refit
from folklearn.scaler import OnlineScaler


def arriving(rng, T, d, K):
    """Rows of K classes that appear one by one, numbered as they come."""
    X = rng.normal(size=(T, d))
    W = rng.normal(size=(K, d)) * 2
    y = np.empty(T, np.int64)
    for t in range(T):
        known = min(K, 1 + t * K // T)
        y[t] = np.argmax(W[:known] @ X[t] + rng.gumbel(size=known))
    order = {label: number for number, label in enumerate(dict.fromkeys(y.tolist()))}
    return X, np.array([order[label] for label in y.tolist()])


def frozen_of(model):
    """The frozen record, and what a stripe under way holds."""
    record = model.holdout.to_record()
    held = {part: array for part, array in record.arrays.items() if part.startswith("held")}
    return record.config.get("names"), record.arrays["losses"], record.arrays["totals"], held


def strict_losses(P, u, y):
    losses, seen = [], 0
    for t, label in enumerate(y):
        losses.append(-math.log(u[t] if label == seen else (1.0 - u[t]) * P[t, label]))
        seen = max(seen, label + 1)
    return np.array(losses)


def test_it_is_the_definition(rng):
    """A loop with a learner that grows by hand."""
    X, y = arriving(rng, 120, 3, 5)
    P, u = OnlinePipeline("folklore", n_features=3).run(X, y)
    Z = OnlineScaler(n_features=3).learn_transform(X)
    learner, known = None, 0
    for t, label in enumerate(y):
        assert u[t] == pytest.approx((known + 0.5) / (t + 1) if known else 1.0)
        if learner is not None:
            np.testing.assert_allclose(P[t, :known], learner.predict(Z[t]), atol=1e-9)
        elif known == 1:
            assert P[t, 0] == 1.0
        np.testing.assert_array_equal(P[t, known:], 0.0)
        if label == known:
            known += 1
            if learner is not None:
                learner = learner.grown(n_classes=known)
            elif known == 2:
                learner = Folklore(n_features=4, n_classes=2)
        if learner is not None:
            learner.update(Z[t], label)


@pytest.mark.parametrize("name", ["auto", "folklore", "ogd"])
def test_strict_loss_is_finite_and_probabilities_add_up(name, rng):
    X, y = arriving(rng, 200, 3, 8)
    model = OnlinePipeline(name, n_features=3)
    P, u = model.run(X, y)
    assert np.isfinite(strict_losses(P, u, y)).all()
    assert (u > 0.0).all()
    totals = P.sum(axis=1)
    np.testing.assert_allclose(totals[1:], 1.0, atol=1e-12)
    assert model.n_classes == model.n_new == y.max() + 1
    np.testing.assert_allclose(model.predict(X).sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("cuts", [[1, 2, 50], list(range(1, 120))])
def test_blocks_are_their_rows(cuts, rng):
    X, y = arriving(rng, 120, 2, 4)
    whole, parts = (
        OnlinePipeline("folklore", n_features=2),
        OnlinePipeline("folklore", n_features=2),
    )
    P, u = whole.run(X, y)
    done = [parts.run(*pair) for pair in zip(np.split(X, cuts), np.split(y, cuts), strict=True)]
    np.testing.assert_allclose(np.concatenate([part[1] for part in done]), u)
    padded = np.vstack([np.pad(p, ((0, 0), (0, 4 - p.shape[1]))) for p, _ in done])
    np.testing.assert_allclose(padded, P, atol=1e-9)


def state(model):
    """All that the future depends on; equal for equal states, unlike the bytes of a pickle."""
    record = model.to_record()
    return record.config, {part: array.tobytes() for part, array in record.arrays.items()}


def with_gaps(rng, X):
    return np.where(rng.random(X.shape) < 0.1, np.nan, X)


@pytest.mark.parametrize("name", ["auto", "folklore", "gaf", "ogd"])
@pytest.mark.parametrize("words", [{}, {"scale": False, "intercept": False}])
def test_one_by_one_is_the_run(name, words, rng):
    X, y = arriving(rng, 120, 3, 5)
    X = with_gaps(rng, X)
    weights = rng.uniform(size=120)
    block, single = (OnlinePipeline(name, n_features=3, **words) for _ in range(2))
    P, u = block.run(X, y, weight=weights)
    for t, label in enumerate(y.tolist()):
        assert single.unseen_probability == u[t]
        p = single.predict_row(X[t])
        np.testing.assert_array_equal(single.predict_row(X[t]), p)
        np.testing.assert_allclose(p, P[t, : single.n_classes], rtol=1e-8, atol=1e-9)
        single.learn_row(X[t], label, weight=weights[t])
    counts = ("n_classes", "n_rounds", "n_new", "unseen_probability")
    assert [getattr(single, c) for c in counts] == [getattr(block, c) for c in counts]
    expected, arrays = block.scaler.to_record(), single.scaler.to_record().arrays
    assert single.scaler.to_record().config == expected.config
    for part, array in arrays.items():
        np.testing.assert_array_equal(array, expected.arrays[part])


def test_one_by_one_is_exactly_runs_of_one_row(rng):
    """Runs of one row may take the other way through the kernels; gradient descent has one."""
    X, y = arriving(rng, 60, 3, 4)
    X = with_gaps(rng, X)
    rows, single = OnlinePipeline("ogd", n_features=3), OnlinePipeline("ogd", n_features=3)
    for t, label in enumerate(y.tolist()):
        p = single.predict_row(X[t])
        P, _ = rows.run(X[t : t + 1], [label])
        np.testing.assert_array_equal(p, P[0, : len(p)])
        single.learn_row(X[t], label)
        np.testing.assert_array_equal(single.predict(X), rows.predict(X))


def test_predicting_changes_nothing(rng):
    X, y = arriving(rng, 60, 3, 3)
    asked, silent = OnlinePipeline("auto", n_features=3), OnlinePipeline("auto", n_features=3)
    for x, label in zip(X, y.tolist(), strict=True):
        asked.predict_row(x)
        asked.predict_row(x[::-1].copy())
        asked.learn_row(x, label)
        silent.learn_row(x, label)
        asked.predict_row(x)
    assert state(asked) == state(silent)


@pytest.mark.parametrize("name", ["auto", "folklore"])
def test_wider_rows_bring_features(name, rng):
    X, y = arriving(rng, 60, 3, 4)
    told, wide, single = (OnlinePipeline(name, n_features=1) for _ in range(3))
    for model in (told, wide, single):
        model.run(X[:20, :1], y[:20])
    told.grow(n_features=3)
    expected, _ = told.run(X[20:], y[20:])
    np.testing.assert_array_equal(wide.run(X[20:], y[20:])[0], expected)
    for x, label in zip(X[20:], y[20:].tolist(), strict=True):
        single.learn_row(x, label)
    np.testing.assert_allclose(single.predict(X), told.predict(X), atol=1e-8)


def test_no_memory_to_grow_changes_nothing(rng, monkeypatch):
    """The last expert fails after everything else has grown."""
    X, y = arriving(rng, 60, 3, 3)
    model = OnlinePipeline("auto", n_features=3)
    model.run(X, y)
    before = pickle.dumps(model)

    def no_memory(self, **sizes):
        raise MemoryError

    monkeypatch.setattr(Folklore, "grown", no_memory)
    with pytest.raises(MemoryError):
        model.learn_row(np.ones(5), 3)
    with pytest.raises(MemoryError):
        model.run(np.ones((1, 5)), [0])
    with pytest.raises(MemoryError):
        model.grow(n_features=4, n_classes=5)
    assert pickle.dumps(model) == before


def test_copies_are_equal_and_independent(rng):
    X, y = arriving(rng, 60, 3, 3)
    model = OnlinePipeline("auto", n_features=3)
    model.run(X, y)
    before = pickle.dumps(model)
    for other in (copy.deepcopy(model), pickle.loads(before)):
        assert state(other) == state(model)
        other.learn_row(X[0], 3)
        assert state(other) != state(model)
    assert pickle.dumps(model) == before


def test_declared_classes_are_not_new(rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(0, 3, 50)
    model = OnlinePipeline("folklore", n_features=2, n_classes=3)
    P, u = model.run(X, y)
    np.testing.assert_allclose(P[0], 1 / 3)
    np.testing.assert_allclose(u, 0.5 / (np.arange(50) + 1))
    expected = Folklore(n_features=3, n_classes=3).run(
        OnlineScaler(n_features=2).learn_transform(X), y
    )
    np.testing.assert_allclose(P, expected, atol=1e-9)
    model.run(X[:1], [3])
    assert (model.n_classes, model.n_new) == (4, 1)


def test_a_late_feature_changes_nothing_before_it_speaks(rng):
    X, y = arriving(rng, 80, 3, 3)
    X[:40, 2] = 0.0
    told, late = OnlinePipeline("folklore", n_features=3), OnlinePipeline("folklore", n_features=2)
    told.scaler._first = 2  # the same unit and order of columns
    expected, _ = told.run(X, y)
    first, _ = late.run(X[:40, :2], y[:40])
    late.grow(n_features=3)
    rest, _ = late.run(X[40:], y[40:])
    np.testing.assert_allclose(rest, expected[40:], atol=1e-9)
    np.testing.assert_allclose(first, expected[:40, : first.shape[1]], atol=1e-9)


@pytest.mark.parametrize("cut", [0, 1, 10, 60])
def test_resuming_equals_never_stopping(cut, rng, tmp_path):
    X, y = arriving(rng, 100, 3, 5)
    X[rng.random((100, 3)) < 0.1] = np.nan
    straight, stopped = OnlinePipeline("auto", n_features=3), OnlinePipeline("auto", n_features=3)
    for model in (straight, stopped):
        model.run(X[:cut], y[:cut])
    stopped.save(tmp_path / "model")
    resumed = folklearn.load(tmp_path / "model")
    P, u = straight.run(X[cut:], y[cut:])
    again, u_again = resumed.run(X[cut:], y[cut:])
    np.testing.assert_array_equal(again, P)
    np.testing.assert_array_equal(u_again, u)


def test_the_certificate_is_about_models_of_all_classes(rng):
    model = OnlinePipeline("folklore", n_features=2)
    assert model.certificate(0.0) is None
    X, y = arriving(rng, 100, 2, 4)
    model.run(X, y)
    found = model.certificate(0.0)
    Z = np.hstack([np.ones((100, 1)), (X - X.mean(axis=0)) / X.std(axis=0)])
    best = logistic_regression(Z, y, n_classes=4, constant=0)
    assert found.best_linear_at_least == pytest.approx(best.at_least, rel=1e-4)
    assert found.best_linear_at_least <= best.loss + best.penalty
    assert not found.scope


@pytest.mark.parametrize(
    ("X", "y", "words", "sentence"),
    [
        ([[1.0, 2.0]], [1], {}, r"y\[0\] is 1, but only 0 classes were known"),
        ([[1.0, 2.0]] * 2, [0, 2], {}, r"a new class has the next number, 1"),
        ([[1.0, np.inf]], [0], {}, "has inf at feature 1"),
        ([[1.0]], [0], {}, "X has shape"),
        ([[1.0, 2.0]], [0], {"weight": [2.0]}, "above max_weight=1"),
        ([[1.0, 2.0]], [[1.0]], {}, "soft labels"),
    ],
)
def test_bad_rows_change_nothing(X, y, words, sentence):
    model = OnlinePipeline("auto", n_features=2)
    before = model.to_record()
    with pytest.raises(InvalidInputError, match=sentence):
        model.run(X, y, **words)
    after = model.to_record()
    assert after.config == before.config
    assert all(np.array_equal(after.arrays[part], before.arrays[part]) for part in before.arrays)


@pytest.mark.parametrize(
    ("x", "y", "words", "sentence"),
    [
        ([1.0, 2.0], 2, {}, r"y\[0\] is 2, but only 1 classes were known"),
        ([1.0, 2.0], -1, {}, "expected 0"),
        ([1.0, 2.0], 0.5, {}, "must be integers"),
        ([1.0, np.inf], 0, {}, "has inf at feature 1"),
        ([1.0, 2.0, -np.inf], 1, {}, "has -inf at feature 2"),
        ([1.0, 1e200], 1, {}, "norm above"),
        ([1e15, np.nan], 0, {}, "norm above"),
        ([1.0, 2.0], 0, {"weight": 2.0}, "above max_weight=1"),
        ([1.0, 2.0], 1, {"weight": np.nan}, "weight is nan"),
    ],
)
def test_a_bad_row_changes_nothing(x, y, words, sentence):
    model = OnlinePipeline("auto", n_features=2)
    model.learn_row(np.array([1.0, np.nan]), 0)
    before = pickle.dumps(model)
    with pytest.raises(InvalidInputError, match=sentence):
        model.learn_row(np.array(x), y, **words)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("aioli",), "no learner that takes classes as they come"),
        (("nonsense",), "no learner that takes"),
        (("folklore", {"memory": 0}), "memory must be"),
        (("folklore", {"B": -1.0}), "B must be"),
        (("folklore", {"colour": 1}), "does not take the setting 'colour'"),
    ],
)
def test_bad_learners_are_refused_at_once(arguments, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        OnlinePipeline(*arguments, n_features=2)


def test_soft_labels_are_learned_as_by_the_learner(rng):
    X, Y = rng.normal(size=(60, 2)), rng.dirichlet(np.ones(3), size=60)
    model, single = (OnlinePipeline("folklore", n_features=2, n_classes=3) for _ in range(2))
    P, u = model.run(X, Y)
    learner = Folklore(n_features=3, n_classes=3)
    expected = learner.run(OnlineScaler(n_features=2, gaps=True).learn_transform(X), Y)
    np.testing.assert_allclose(P, expected, rtol=1e-12)
    np.testing.assert_allclose(u, 0.5 / (1 + np.arange(60)))
    for x, y in zip(X, Y, strict=True):
        single.learn_row(x, y)
    np.testing.assert_allclose(single.predict(X), model.predict(X), rtol=1e-9)
    single.learn_row(X[0], 3)  # a class that nobody declared, after soft labels
    assert single.n_classes == 4


@pytest.mark.parametrize(
    ("y", "sentence"), [([0.5, 0.4], "sum"), ([1.0], "shape"), ([[0.5, 0.5]], "labels|shape")]
)
def test_bad_soft_labels_change_nothing(y, sentence):
    model = OnlinePipeline("folklore", n_features=1, n_classes=2)
    before = pickle.dumps(model)
    with pytest.raises(InvalidInputError, match=sentence):
        model.learn_row(np.ones(1), y)
    assert pickle.dumps(model) == before
    with pytest.raises(InvalidInputError, match="need two known classes"):
        OnlinePipeline("folklore", n_features=1).learn_row(np.ones(1), [1.0])


def test_a_learner_that_cannot_grow_takes_what_was_declared(rng):
    X, y = rng.normal(size=(20, 2)), rng.integers(3, size=20)
    model = OnlinePipeline("ons", n_features=2, n_classes=3)
    P, _ = model.run(X, y)
    assert P.shape == (20, 3)
    before = pickle.dumps(model)
    for bad in (lambda: model.run(X[:2], [0, 3]), lambda: model.learn_row(X[0], 3),
                lambda: model.grow(n_features=3)):  # fmt: skip
        with pytest.raises(InvalidInputError, match="'ons' is no learner that takes"):
            bad()
    assert pickle.dumps(model) == before


# The frozen record: rows ahead, judged by the model as it stood.


def loop(model, X, Y, weights):
    for x, y, w in zip(X, Y, weights, strict=True):
        model.learn_row(x, int(y) if np.ndim(y) == 0 else y, w)


def drawn(rng, T=500, kind="hard"):
    X, y = arriving(rng, T, 3, 4)
    if kind == "hard":
        return X, y, rng.uniform(size=T)
    Y = 0.7 * np.eye(4)[y] + 0.3 * rng.dirichlet(np.ones(4), size=T)
    return X, Y, rng.uniform(size=T)


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("stop", [64, 70, 80, 128, 470, 500])
def test_a_run_is_the_loop_byte_for_byte(kind, stop, rng):
    """Of gradient descent, whose kernels are the same for one row and for many; in any pieces."""
    X, Y, weights = drawn(rng, kind=kind)
    run, single, pieces = (OnlinePipeline("ogd", n_features=3, n_classes=4) for _ in range(3))
    run.run(X[:stop], Y[:stop], weight=weights[:stop])
    loop(single, X[:stop], Y[:stop], weights[:stop])
    for start in range(0, stop, 37):
        part = slice(start, min(start + 37, stop))
        pieces.run(X[part], Y[part], weight=weights[part])
    assert state(run) == state(single) == state(pieces)
    assert math.isfinite(run.holdout.loss) == (stop >= 80)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_stripes_are_those_of_the_loop_for_a_mixture(kind, rng):
    X, Y, weights = drawn(rng, kind=kind)
    run, single = (OnlinePipeline("auto", n_features=3, n_classes=4) for _ in range(2))
    run.run(X, Y, weight=weights)
    loop(single, X, Y, weights)
    for one, other in zip(frozen_of(run)[1:3], frozen_of(single)[1:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert frozen_of(run)[0] == frozen_of(single)[0]
    assert run.learner.standing.keys() == single.learner.standing.keys()
    np.testing.assert_allclose(run.predict(X), single.predict(X), atol=1e-6)


@pytest.mark.parametrize("name", ["auto", "ogd"])
@pytest.mark.parametrize("cut", [66, 75, 140, 300])
def test_resuming_within_a_stripe_equals_never_stopping(name, cut, rng, tmp_path):
    X, y, weights = drawn(rng)
    straight = OnlinePipeline(name, n_features=3)
    straight.run(X[:cut], y[:cut], weight=weights[:cut])
    straight.save(tmp_path / "model")
    resumed = folklearn.load(tmp_path / "model")
    assert state(resumed) == state(straight)
    for model in (straight, resumed):
        model.run(X[cut:], y[cut:], weight=weights[cut:])
    assert state(resumed) == state(straight)


@pytest.mark.parametrize("name", ["auto", "ogd"])
def test_growth_within_a_stripe(name, rng):
    """Rows of later classes do not count, and later columns are not seen, by either way."""
    X, y = rng.normal(size=(100, 4)), rng.integers(0, 2, 100)
    y[70], y[73:] = 2, rng.integers(0, 3, 27)
    y[:2] = 0, 1
    run, single = OnlinePipeline(name, n_features=3), OnlinePipeline(name, n_features=3)
    for model in (run, single):
        model.run(X[:64, :3], y[:64])
    run.run(X[64:72, :3], y[64:72])
    run.run(X[72:], y[72:])
    for t in range(64, 100):
        single.learn_row(X[t, : 3 if t < 72 else 4].copy(), int(y[t]))
    assert run.n_classes == 3
    assert run.n_features == 4
    assert math.isfinite(run.holdout.loss)
    np.testing.assert_allclose(run.holdout.loss, single.holdout.loss, rtol=1e-9)
    if name == "ogd":
        assert state(run) == state(single)


def test_nobodys_array_is_held(rng):
    X, y, _ = drawn(rng, T=70)
    model = OnlinePipeline("ogd", n_features=3, n_classes=4)
    own = X.copy()
    model.run(own, y)
    before = state(model)
    own[:] = 1e9
    assert state(model) == before


def test_hard_and_soft_labels_in_one_stripe(rng):
    X, y, _ = drawn(rng)
    Y = np.eye(4)[y]
    mixed, soft = (OnlinePipeline("ogd", n_features=3, n_classes=4) for _ in range(2))
    soft.run(X, Y)
    mixed.run(X[:70], y[:70])
    mixed.run(X[70:], Y[70:])
    np.testing.assert_allclose(mixed.holdout.loss, soft.holdout.loss, rtol=1e-9)


def test_the_linear_model_in_units_of_the_rows(rng):
    X, y, _ = drawn(rng)
    X = 50.0 + 9.0 * X
    model = OnlinePipeline("auto", n_features=3, n_classes=4)
    model.run(X, y)
    refit(model, lambda: [(X, y, np.ones(500))])
    W, constants = model.linear()
    logits = X @ W.T + constants
    logits -= np.log(model.predict(X))
    logits -= logits.mean(axis=1, keepdims=True)
    assert np.abs(logits).max() < 0.2  # a row is part of the deviation that it is scaled by
    assert np.abs(logits).mean() < 0.01


def test_rows_that_do_not_fit_in_memory_are_scaled_in_every_pass(rng, monkeypatch):
    X, y, _ = drawn(rng)
    found, passes = [], []
    for present in (np.inf, 1):
        model, n_read = OnlinePipeline("auto", n_features=3, n_classes=4), 0

        def blocks():
            nonlocal n_read
            n_read += 1
            return [(X, y, np.ones(500))]

        model.run(X, y)
        monkeypatch.setattr(utils, "bytes_present", lambda present=present: present)
        refit(model, blocks)
        found.append(model.predict(X))
        passes.append(n_read)
    np.testing.assert_array_equal(*found)
    assert passes[0] == 1 < passes[1]


@pytest.mark.parametrize("terms", ["none", "auto"])
@pytest.mark.parametrize("learner", ["auto", "leader"])
def test_a_label_that_came_once_is_rare(learner, terms, rng):
    """A misspelled label costs a model that learned 2,000 rows little, in what is saved too."""
    W, X = rng.normal(size=(3, 5)), rng.normal(size=(2600, 5))
    p = softmax(X @ W.T)
    y = (p.cumsum(axis=1) > rng.random((len(X), 1))).argmax(axis=1)
    model = Model(learner=learner, terms=terms)
    model.learn_many(X[:2000], y[:2000])
    before = model.predict_proba(X[2000:])
    model.learn_many(X[:1], ["misspelled"])
    after = model.predict_proba(X[2000:])
    assert after[:, -1].mean() < 0.06  # a quarter, if a new class began at a score of 0
    rest = after[:, :-1] / after[:, :-1].sum(axis=1, keepdims=True)
    assert np.abs(rest - before).max() < 0.12
