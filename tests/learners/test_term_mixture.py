"""TermMixture: lines beside Gaussians of terms, as good as the lines up to what is promised."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import folklearn
from folklearn import Folklore, Ogd, SharedGaussian, auto
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners import term_mixture
from folklearn.learners.shared_gaussian import FixedGaussian
from folklearn.learners.term_mixture import GAUSSIANS, TermMixture, affordable_terms
from folklearn.serialization import as_bytes
from tests.reference.mixture import fixed_share

N_TERMS, D = 3, 2


def state(model):
    record = model.to_record()
    return record.config, {part: array.tobytes() for part, array in record.arrays.items()}


def experts(K, lines=Folklore, n_terms=N_TERMS, **words):
    sizes = {"n_features": n_terms + D, "n_classes": K}
    gaussians = [SharedGaussian(**sizes, ridge=ridge, leak=leak) for ridge, leak in GAUSSIANS]
    return [lines(n_features=D, n_classes=K, **words), *gaussians]


def made(K=2, n_terms=N_TERMS, lines=Folklore, **words):
    return TermMixture(experts(K, lines, n_terms), n_terms=n_terms, **words)


def rows(rng, T, K=2, n_terms=N_TERMS):
    """The label is that of the terms, and the columns know little of it."""
    X = rng.normal(size=(T, n_terms + D)) / math.sqrt(n_terms + D)
    W = 6.0 * rng.normal(size=(K, n_terms + D))
    return X, np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)


@given(
    K=st.integers(2, 4),
    T=st.integers(1, 50),
    soft=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_equals_the_slow_mixture(K, T, soft, weighted, seed):
    rng = np.random.default_rng(seed)
    X, y = rows(rng, T, K)
    targets = rng.dirichlet(np.ones(K), size=T) if soft else np.eye(K)[y]
    y = targets if soft else y
    weight = rng.choice([0.0, 0.5, 3.0], size=T) if weighted else np.ones(T)
    lines, *gaussians = experts(K)
    P = [lines.run(X[:, N_TERMS:], y, weight=weight)]
    P += [gaussian.run(X, y, weight=weight) for gaussian in gaussians]
    expected, last = fixed_share(np.stack(P, axis=1), targets, weight, 3.0)
    together, alone = (made(K, max_weight=3.0) for _ in range(2))
    np.testing.assert_allclose(together.run(X, y, weight=weight), expected, atol=1e-9)
    np.testing.assert_allclose(together.weights, last, atol=1e-9)
    for t, x in enumerate(X):
        np.testing.assert_allclose(alone.predict(x), expected[t], atol=1e-9)
        alone.update(x, y[t], weight=weight[t])
    np.testing.assert_allclose(alone.weights, last, atol=1e-9)
    np.testing.assert_allclose(alone.predict(X), together.predict(X), atol=1e-9)


def test_it_goes_on_with_lines_that_have_learned(rng):
    X, y = rows(rng, 200, 3)
    lines, twin = (auto(n_features=D, n_classes=3) for _ in range(2))
    lines.run(X[:64, N_TERMS:], y[:64])
    model = TermMixture.of_lines(lines, N_TERMS)
    assert model.lines is lines
    assert model.n_rounds == 64
    assert [g.n_rounds for g in model.gaussians] == [0] * 6
    assert (model.n_features, model.n_classes) == (D, 3)
    P = [twin.run(X[:, N_TERMS:], y)[64:]]
    P += [gaussian.run(X[64:], y[64:]) for gaussian in experts(3)[1:]]
    expected, last = fixed_share(np.stack(P, axis=1), y[64:], n_before=64)
    np.testing.assert_allclose(model.run(X[64:], y[64:]), expected, atol=1e-9)
    np.testing.assert_allclose(model.weights, last, atol=1e-9)
    assert model.n_rounds == 200


@settings(max_examples=6)
@given(
    seed=st.integers(0, 10**6), labels=st.sampled_from(["columns", "terms", "noise", "one class"])
)
def test_the_loss_is_at_most_that_of_lines_and_the_promise(seed, labels):
    rng, T = np.random.default_rng(seed), 1200
    X, y = rows(rng, T)
    if labels == "columns":
        y = (X[:, N_TERMS] + 0.2 * rng.logistic(size=T) > 0.0).astype(int)
    elif labels == "noise":
        y = rng.integers(0, 2, T)
    elif labels == "one class":
        y[:] = 1
    model = made(retire=False)
    model.run(X, y)
    lines = Folklore(n_features=D, n_classes=2)
    P = lines.run(X[:, N_TERMS:], y)
    alone = -np.log(P[np.arange(T), y]).sum()
    assert model._totals[0] <= alone + math.log(7.0) + math.log(T)
    assert len(model.experts) == 7


def test_lines_may_retire_and_what_has_retired_is_dropped(rng):
    X, y = rows(rng, 2200)
    y = (X[:, 0] > 0.0).astype(int)
    model, straight = made(lines=Ogd), made(lines=Ogd)
    P = straight.run(X, y)
    model.run(X[:1023], y[:1023])
    assert model.lines is not None
    model.run(X[1023:1024], y[1023:1024])
    assert model.lines is None
    assert model.experts == model.gaussians == model._survivors
    n = len(model.experts)
    assert n < 7
    for part in ("weights", "losses", "reviewed", "midway", "stretch", "credit"):
        assert model.to_record().arrays[part].shape == (n,)
    assert np.isfinite(model._losses).all()
    assert model.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert model.coef().shape == (2, D)
    assert model._expert_names() == [f"terms, ridge {g.ridge:g}, leak {g.leak:g}" for g in
                                     model.gaussians]  # fmt: skip
    resumed = folklearn.load(model.to_bytes())
    assert state(resumed) == state(model)
    assert resumed.lines is None
    for each in (model, resumed):
        assert each.run(X[1024:], y[1024:]).tobytes() == P[1024:].tobytes()
    larger = resumed.grown(n_features=D + 1, n_classes=3)
    assert (larger.n_features, larger.n_classes) == (D + 1, 3)
    assert larger.lines is None
    assert larger.predict(np.zeros(N_TERMS + D + 1)).shape == (3,)


def test_gaussians_retire_where_terms_are_noise(rng):
    n_terms, T = 120, 1024
    X, _ = rows(rng, T, n_terms=n_terms)
    y = rng.integers(0, 2, T)
    model = made(n_terms=n_terms)
    model.run(X, y)
    assert model.lines is model.experts[0]
    assert model.gaussians == model.experts[1:]
    assert len(model.weights) == len(model.experts) < 7


@pytest.mark.parametrize(
    ("best", "kept"), [(0, None), (1, 2), (2, 3), (3, 4), (4, None), (5, 3), (6, 3)]
)
def test_the_next_weaker_ridge_than_that_of_the_best_stays(best, kept):
    """The more rows, the weaker the best ridge; but where lines are best, none has a future."""
    model = made()
    model._losses[:] = 100.0
    model._losses[best] = 0.0
    stays = model._worth_keeping(np.arange(7) != best, model.weights)
    assert np.flatnonzero(stays).tolist() == [kept] * (kept is not None)
    assert not model._worth_keeping(np.zeros(7, bool), model.weights).any()


@pytest.mark.parametrize("cut", [0, 20, 511, 512, 1025])
def test_resuming_equals_never_stopping(cut, rng):
    X, y = rows(rng, 1100)
    straight, stopped = made(), made()
    P = straight.run(X, y)
    stopped.run(X[:cut], y[:cut])
    resumed = folklearn.load(stopped.to_bytes())
    assert repr(resumed) == repr(stopped)
    assert resumed.run(X[cut:], y[cut:]).tobytes() == P[cut:].tobytes()
    assert state(resumed) == state(straight)


def test_portions_make_no_difference_to_any_bit(rng):
    X, y = rows(rng, 1100)
    weight = rng.choice([0.0, 0.3, 1.0], 1100)
    whole = made()
    P = whole.run(X, y, weight=weight)
    for cuts in ([1, 2, 600], [511, 513, 1024], list(range(10, 1100, 10))):
        parts = made()
        done = [
            parts.run(*part[:2], weight=part[2])
            for part in zip(*(np.split(array, cuts) for array in (X, y, weight)), strict=True)
        ]
        assert np.vstack(done).tobytes() == P.tobytes()
        assert state(parts) == state(whole)


@pytest.mark.parametrize("K", [2, 3])
def test_late_columns_come_behind_and_were_0(K, rng):
    X, y = rows(rng, 80, K)
    wide = np.hstack([X, rng.normal(size=(80, 2))])
    wide[:40, -2:] = 0.0
    late = made(K)
    first = late.run(X[:40], y[:40])
    before = state(late)
    larger = late.grown(n_features=D + 2)
    assert state(late) == before
    told = TermMixture(
        [
            Folklore(n_features=D + 2, n_classes=K),
            *(g.grown(n_features=N_TERMS + D + 2) for g in experts(K)[1:]),
        ],
        n_terms=N_TERMS,
    )
    expected = told.run(wide, y)
    np.testing.assert_allclose(first, expected[:40], atol=1e-9)
    np.testing.assert_allclose(larger.run(wide[40:], y[40:]), expected[40:], atol=1e-9)
    assert larger.n_terms == N_TERMS
    more = larger.grown(n_classes=K + 1)
    assert more.run(wide, np.full(80, K)).shape == (80, K + 1)


def test_the_memory_that_is_expected_counts_the_terms():
    model = made(n_terms=200)
    assert model.n_bytes == pytest.approx(model.expected_bytes(D, 2), rel=0.05)


def test_experts_that_do_not_fit_are_left_behind(rng, monkeypatch):
    X, y = rows(rng, 40, n_terms=200)
    model = made(n_terms=200)
    model.run(X, y)
    monkeypatch.setattr("folklearn.utils.bytes_present", lambda: 10**6)
    larger = model.grown(n_features=D + 1)
    assert [type(expert) for expert in larger.experts] == [Folklore]
    assert larger.weights.tolist() == [1.0]
    assert larger.n_terms == 200


def test_a_copy_to_predict_is_small_and_does_not_follow(rng):
    X, y = rows(rng, 100, 3)
    model = made(3)
    model.run(X, y)
    copied = model.copy_to_predict()
    assert [type(g) for g in copied.gaussians] == [FixedGaussian] * 6
    expected, before = model.predict(X), state(copied)
    again = folklearn.load(copied.to_bytes())
    model.run(X, y)
    for each in (copied, again, copied.copy_to_predict()):
        assert each.predict(X).tobytes() == expected.tobytes()
    assert state(copied) == before
    with pytest.raises(InvalidInputError, match="made to predict cannot learn"):
        copied.run(X, y)
    assert copied.n_bytes < 0.5 * model.n_bytes


def test_a_context_has_the_terms_first(rng):
    model = made()
    X, y = rows(rng, 10)
    for bad in (
        lambda: model.predict(X[0, N_TERMS:]),
        lambda: model.predict(X[:, N_TERMS:]),
        lambda: model.update(X[0, N_TERMS:], 1),
        lambda: model.run(X[:, N_TERMS:], y),
    ):
        with pytest.raises(InvalidInputError, match="shape"):
            bad()
    assert model.n_rounds == 0
    indices = np.arange(N_TERMS + D)
    assert model.predict((indices, X[0])).tobytes() == model.predict(X[0]).tobytes()


def test_what_predicts_alone_is_told_apart(rng):
    X, y = rows(rng, 100)
    lines = auto(n_features=D, n_classes=2)
    model = TermMixture.of_lines(lines, N_TERMS)
    model.run(X, y)
    names = model._expert_names()
    P = model._expert_predictions(X)
    assert P.shape == (len(names), 100, 2)
    assert names[:-6] == lines._expert_names()
    assert len(set(names)) == len(names)
    for gaussian, theirs in zip(model.gaussians, P[-6:], strict=True):
        np.testing.assert_array_equal(theirs, gaussian.predict(X))
    losses = dict.fromkeys(names, 1.0) | {names[0]: 0.5}
    model._set_standing(losses)
    assert model._standings() == [0.5] + [1.0] * 6
    assert lines.standing == losses


def test_the_best_gaussian_does_not_forget_if_one_is_left(rng):
    model = made()
    model.run(*rows(rng, 50))
    model._losses[:] = [0.0, 9.0, 5.0, 7.0, 8.0, 1.0, 2.0]
    assert model.best_gaussian() is model.experts[2]
    model.experts = [model.experts[0], *model.experts[5:]]
    model._losses = np.array([0.0, 3.0, 2.0])
    assert model.best_gaussian() is model.experts[2]
    model.experts, model._losses = model.experts[:1], model._losses[:1]
    assert model.best_gaussian() is None


def test_mixtures_that_cannot_be():
    lines, *gaussians = experts(2)
    for n_terms, message in [(0, "n_terms must be at least 1"), (4, "equal n_features")]:
        with pytest.raises(InvalidInputError, match=message):
            TermMixture([lines, *gaussians], n_terms=n_terms)
    with pytest.raises(InvalidInputError, match="n_features must be at least 1"):
        TermMixture(gaussians, n_terms=N_TERMS + D)
    with pytest.raises(InvalidInputError, match="at least one expert"):
        TermMixture([], n_terms=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.config.update(n_terms=4), "equal n_features"),
        (lambda record: record.config.update(n_terms=10**9), "equal n_features|n_features must"),
        (lambda record: record.config.update(experts=[]), "at least one expert"),
        (lambda record: record.arrays.update(weights=np.ones(6)), "weights of shape"),
        (lambda record: record.arrays.update(weights=-np.ones(7)), "weights"),
        (lambda record: record.arrays.pop("credit"), "credit of shape"),
    ],
)
def test_states_that_nobody_saves_are_refused(change, message):
    record = copy.deepcopy(made().to_record())
    change(record)
    with pytest.raises(StateFileError, match=message):
        folklearn.load(as_bytes(record))


def test_more_operations_afford_more_terms(monkeypatch):
    for K in (2, 3, 10, 100):
        counts = [affordable_terms(d, K) for d in (1, 2, 10, 100, 1000, 10**6)]
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] == 0
        assert affordable_terms(1, K) - affordable_terms(11, K) == 10
    for d in (1, 50):
        counts = [affordable_terms(d, K) for K in (2, 3, 5, 10, 50, 1000)]
        assert counts == sorted(set(counts))
    few = affordable_terms(5, 3)
    assert few > 100
    monkeypatch.setattr(term_mixture, "_OPERATIONS", 1e8)
    many = affordable_terms(5, 3)
    assert many > few
    monkeypatch.setattr(term_mixture, "_OPERATIONS_PER_SQUARE", 30.0)
    assert few < affordable_terms(5, 3) < many
    n = affordable_terms(0, 2)
    assert len(GAUSSIANS) * 30.0 * n**2 <= 1e8 + 2 * term_mixture._OPERATIONS_PER_CLASS


def test_it_certifies_nothing_because_its_loss_begins_when_terms_open(rng):
    X, y = rows(rng, 40)
    lines = Folklore(n_features=D, n_classes=2)
    lines.run(X[:20, N_TERMS:], y[:20])
    model = TermMixture.of_lines(lines, N_TERMS)
    model.run(X[20:], y[20:])
    assert lines.certificate().valid
    assert not model.certificate().valid
