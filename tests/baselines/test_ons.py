"""Ons against its slow twin, its inverse, its certificate and its bound."""

import math

import numpy as np
import pytest

from folklearn.baselines import kernels
from folklearn.baselines.ons import Ons
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.serialization import Record, read
from tests.reference import streams
from tests.reference.hindsight import best_in_class
from tests.reference.ons import DenseOns

STREAMS = {
    "stochastic": streams.stochastic,
    "separable": streams.separable,
    "pure noise": streams.pure_noise,
    "drifting": streams.drifting,
}


def make_stream(rng, T, d, K, labels):
    X = streams.contexts(rng, T, d, 1.0) * (rng.random((T, 1)) > 0.05)
    y = np.argmax(X @ rng.normal(size=(K, d)).T, axis=1)
    weights = np.ones(T)
    if labels == "soft":
        y = 0.7 * np.eye(K)[y] + 0.3 * rng.dirichlet(np.full(K, 0.3), size=T)
    elif labels == "weighted":
        weights = rng.random(T) * (rng.random(T) > 0.1)
    elif labels == "heavy":
        weights = rng.exponential(2.0, size=T)
    return X, y, weights


@pytest.mark.parametrize("K", [2, 3, 6])
@pytest.mark.parametrize("labels", ["hard", "soft", "weighted", "heavy"])
@pytest.mark.parametrize("B", [0.3, 2.0])
def test_equals_the_dense_twin(K, labels, B, rng):
    d, T = 3, 250
    X, y, weights = make_stream(rng, T, d, K, labels)
    model, twin = Ons(n_features=d, n_classes=K, B=B), DenseOns(d, K, B, 1.0)
    longest = 0.0
    for x, target, weight in zip(X, y, weights, strict=True):
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        loss = model.update(x, target, weight=weight)
        assert loss == pytest.approx(twin.update(x, target, weight), abs=1e-9)
        longest = max(longest, np.linalg.norm(model.coef(), axis=1).max())
    np.testing.assert_allclose(model.coef(), twin.W, atol=1e-9)
    if labels == "hard" and B < 1.0:  # projections are part of the test
        assert longest == pytest.approx(B)
    assert model._totals[kernels.UNSOLVED] == 0
    certificate = model.certificate()
    assert certificate.loss == pytest.approx(twin.loss, rel=1e-12)
    if labels == "heavy":
        assert not certificate.valid
        return
    W = model.coef()
    expected = twin.certificate(W)
    # 1e-9 for the projections: the library counts their gaps, the twin does not.
    assert expected <= model.certificate(W).regret_bound * (1.0 + 1e-12)
    assert model.certificate(W).regret_bound == pytest.approx(expected, rel=1e-9, abs=1e-7)


@pytest.mark.parametrize("B", [5.0, 10.0])
def test_equals_the_dense_twin_where_steps_are_tiny(B, rng):
    X, y, _ = make_stream(rng, 200, 3, 3, "hard")
    model, twin = Ons(n_features=3, n_classes=3, B=B), DenseOns(3, 3, B, 1.0)
    for x, label in zip(X, y, strict=True):
        model.update(x, label)
        twin.update(x, label)
    np.testing.assert_allclose(model.coef(), twin.W, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("labels", ["hard", "soft", "heavy"])
def test_the_inverse_is_the_inverse_of_the_summed_gradients(labels, rng):
    """A is summed here from the played W; the recursion of the inverse never sees it."""
    d, K, B, T = 3, 3, 0.3, 10_000
    X, y, weights = make_stream(rng, T, d, K, labels)
    model = Ons(n_features=d, n_classes=K, B=B)
    D = 2.0 * B * math.sqrt(K)
    beta = 0.5 * min(1.0 / (4.0 * math.sqrt(2.0) * D), math.exp(-2.0 * B) / (K - 1))
    P = model.run(X, y, weight=weights)
    Y = y if labels == "soft" else np.eye(K)[y]
    gradients = (weights[:, None, None] * (P - Y)[:, :, None] * X[:, None, :]).reshape(T, K * d)
    A = np.eye(K * d) / (beta * D) ** 2 + gradients.T @ gradients
    kept, inverse = model.to_record().arrays["matrices"]
    np.testing.assert_allclose(kept / (beta * D) ** 2, A, rtol=1e-10, atol=1e-8)
    expected = np.linalg.inv(A)
    assert np.abs((beta * D) ** 2 * inverse - expected).max() <= 1e-10 * np.abs(expected).max()
    assert np.linalg.cond(A) > 2.0  # no longer the multiple of I that it started from
    np.testing.assert_array_equal(inverse, inverse.T)
    np.testing.assert_array_equal(kept, kept.T)


@pytest.mark.parametrize("labels", ["hard", "soft", "weighted"])
def test_run_equals_the_loop(labels, rng):
    X, y, weights = make_stream(rng, 200, 5, 4, labels)
    together, alone = (Ons(n_features=5, n_classes=4, B=1.0) for _ in range(2))
    P = together.run(X, y, weight=weights)
    for t, x in enumerate(X):
        np.testing.assert_allclose(P[t], alone.predict(x), atol=1e-11)
        alone.update(x, y[t], weight=weights[t])
    one, other = together.certificate(), alone.certificate()
    assert one.loss == pytest.approx(other.loss, rel=1e-12)
    assert one.regret_bound == pytest.approx(other.regret_bound, rel=1e-9)
    assert one.n_rounds == other.n_rounds == 200


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("name", [*STREAMS, "adversarial", "soft"])
@pytest.mark.parametrize("B", [0.5, 1.0, 4.0])
def test_regret_is_below_the_certificate_and_the_bound(name, K, B, seed):
    T, d = 400, 3
    model = Ons(n_features=d, n_classes=K, B=B)
    if name == "adversarial":
        X = streams.pure_noise(seed, T, d, K)[0]
        y = streams.play_adversarial(model, X)
    else:
        X, y = STREAMS.get(name, streams.stochastic)(seed, T, d, K)
        if name == "soft":
            y = streams.soft_labels(seed, y, K)
        model.run(X, y)
    W, best, gap = best_in_class(X, y, B, K)
    certificate = model.certificate()
    regret = certificate.loss - (best - gap)
    assert certificate.valid
    assert certificate.n_rounds == T
    assert regret <= model.certificate(W).regret_bound <= certificate.regret_bound
    closed = model.regret_bound(T)
    assert certificate.regret_bound <= closed * (1.0 + 1e-9)
    assert best >= certificate.best_linear_at_least


def test_weights_up_to_one_are_certified(seed):
    T, d, K, B = 300, 3, 3, 1.0
    X, y = streams.drifting(seed, T, d, K)
    weights = np.random.default_rng(seed).random(T)
    model = Ons(n_features=d, n_classes=K, B=B)
    model.run(X, y, weight=weights)
    W, best, gap = best_in_class(X, y, B, K, weight=weights)
    certificate = model.certificate(W)
    assert certificate.valid
    assert certificate.loss - (best - gap) <= certificate.regret_bound


def test_the_bound_in_numbers():
    """GD = 2 sqrt 2 B sqrt K R; below the paper's 5 (1/alpha + GD) K d ln T from T = 2 on."""
    for K, B, R, d in [(2, 0.1, 1.0, 1), (3, 1.0, 1.0, 4), (5, 2.0, 2.0, 3), (2, 20.0, 1.0, 1)]:
        GD = 2.0 * math.sqrt(2.0 * K) * B * R
        alpha = math.exp(-2.0 * B * R) / (K - 1)
        beta = 0.5 * min(1.0 / (4.0 * GD), alpha)
        n = (K - 1) * d
        for T in (0, 2, 100, 10**6):
            value = Ons(n_features=d, n_classes=K, B=B, R=R).regret_bound(T)
            expected = (n * math.log1p((beta * GD) ** 2 * T / n) + 0.25) / (2.0 * beta)
            assert value == pytest.approx(expected, rel=1e-12)
            if T >= 2:
                assert value <= 5.0 * (1.0 / alpha + GD) * K * d * math.log(T)


def test_the_exp_concavity_constant_is_exact():
    """1/max of sum (y - p)^2/p over the class and the labels is e^(-2BR)/(K - 1)."""
    for K, BR in [(2, 0.3), (4, 1.0), (6, 3.0)]:
        z = np.full(K, BR)
        z[0] = -BR
        p = np.exp(z) / np.exp(z).sum()
        least = 1.0 / (((np.eye(K) - p) ** 2 / p).sum(axis=1).max())
        assert least == pytest.approx(math.exp(-2.0 * BR) / (K - 1), rel=1e-12)


def test_what_voids_the_certificate():
    far, heavy, fine = (Ons(n_features=2, n_classes=3, B=1.0) for _ in range(3))
    far.update([3.0, 4.0], 0, weight=0.0)  # says nothing
    assert far.certificate().valid
    far.update([3.0, 4.0], 0)
    assert not far.certificate().valid
    assert far.certificate().reason == "x was longer than R=1 in 1 of 2 rounds"
    assert far.certificate().best_linear_at_least == -math.inf
    heavy.update([0.6, 0.8], 0, weight=2.0)
    assert "the weight was above 1 in 1 of 1 rounds" in heavy.certificate().reason
    fine.update([0.6, 0.8 + 1e-16], 0)  # on the sphere, up to rounding
    fine.update([0.0, 0.0], 0, weight=9.0)
    assert fine.certificate().valid


def test_the_certificate_of_one_model_and_its_class():
    model = Ons(n_features=2, n_classes=3, B=2.0)
    model.update([0.5, 0.5], 1)
    scale = 2.0 * model._beta * 4.0 * 3 * 2.0**2
    whole = model.certificate()
    W = np.zeros((3, 2))
    spread = whole.regret_bound - model.certificate(W).regret_bound
    assert spread == pytest.approx(3 * 4.0 / scale)
    smaller = model.certificate(B=1.0)
    assert whole.regret_bound - smaller.regret_bound == pytest.approx(3 * 3.0 / scale)
    assert (smaller.B, whole.B) == (1.0, 2.0)
    W[1] = [2.0, 0.0]
    assert model.certificate(W).valid
    with pytest.raises(InvalidInputError, match="norm of 3 is outside"):
        model.certificate(B=3.0)
    with pytest.raises(InvalidInputError, match="not both"):
        model.certificate(W, B=1.0)
    W[1] = [2.0, 0.1]
    with pytest.raises(InvalidInputError, match="row norm of 2.0025.*at most B=2"):
        model.certificate(W)
    with pytest.raises(InvalidInputError, match=r"shape \(2, 3\)"):
        model.certificate(np.zeros((2, 3)))
    with pytest.raises(InvalidInputError, match="finite"):
        model.certificate(np.full((3, 2), np.nan))


@pytest.mark.parametrize("size", [1e-300, 1e-8, 1e3, 1e8, 1e14])
@pytest.mark.parametrize("K", [2, 4])
def test_contexts_and_weights_of_every_size_keep_everything_finite(size, K, rng):
    X, y = size * rng.normal(size=(60, 3)) / 3.0, rng.integers(0, K, 60)
    model = Ons(n_features=3, n_classes=K, B=1.0)
    P = model.run(X, y)
    P = np.vstack([P, model.run(X, y, weight=rng.choice([0.0, 1e-9, 1.0, 1e15], size=60))])
    P = np.vstack([P, model.predict(rng.normal(size=(5, 3)))])
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    assert np.linalg.norm(model.coef(), axis=1).max() <= 1.0 + 1e-12
    assert model.certificate().best_linear_at_least <= model.certificate().loss


def test_large_B_is_slow_but_sound_and_absurd_B_is_refused(rng):
    X, y, _ = make_stream(rng, 50, 3, 3, "hard")
    model = Ons(n_features=3, n_classes=3, B=300.0)
    assert np.isfinite(model.run(X, y)).all()
    assert model.certificate().valid
    assert math.isfinite(model.certificate().regret_bound)
    with pytest.raises(InvalidInputError, match=r"B R = 1000 is too large.*smaller B"):
        Ons(n_features=3, n_classes=3, B=1000.0)


def test_predicting_rows_equals_predicting_one_by_one(rng):
    model = Ons(n_features=4, n_classes=3, B=1.0)
    X = rng.normal(size=(20, 4)) / 4.0
    model.run(X, rng.integers(0, 3, 20))
    np.testing.assert_allclose(model.predict(X), [model.predict(x) for x in X], atol=1e-15)
    assert model.predict(np.empty((0, 4))).shape == (0, 3)


def test_saving_and_resuming_is_exact(rng, tmp_path):
    X, y, weights = make_stream(rng, 60, 3, 4, "weighted")
    straight, stopped = (Ons(n_features=3, n_classes=4, B=1.0, R=1.5) for _ in range(2))
    for t in range(60):
        straight.update(X[t], y[t], weight=weights[t])
        stopped.update(X[t], y[t], weight=weights[t])
        if t == 30:
            stopped.save(tmp_path / "model")
            stopped = Ons.from_record(read(tmp_path / "model"))
    np.testing.assert_array_equal(straight.coef(), stopped.coef())
    assert straight.certificate() == stopped.certificate()
    assert repr(stopped) == "Ons(n_features=3, n_classes=4, B=1.0, R=1.5)"


def test_records_that_cannot_be_used():
    record = Ons(n_features=2, n_classes=3).to_record()
    with pytest.raises(StateFileError, match="bad configuration: B R = 4000"):
        Ons.from_record(Record("Ons", {**record.config, "B": 4000.0}, record.arrays))
    small = {**record.arrays, "matrices": np.zeros((2, 2, 2))}
    with pytest.raises(StateFileError, match=r"needs float64 matrices of shape \(2, 6, 6\)"):
        Ons.from_record(Record("Ons", record.config, small))


BAD_UPDATES = [
    ({"x": [1.0, math.nan], "y": 0}, "x has nan at feature 1"),
    ({"x": [1e200, 0.0], "y": 0}, "norm above"),
    ({"x": [1.0], "y": 0}, r"shape \(1,\)"),
    ({"x": [1.0, 2.0], "y": 3}, "label y is 3; expected 0 to 2"),
    ({"x": [1.0, 2.0], "y": [0.5, 0.6, 0.0]}, "sum to 1"),
    ({"x": [1.0, 2.0], "y": 0, "weight": math.nan}, "weight is nan"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_UPDATES)
def test_bad_input_names_what_was_wrong_and_changes_nothing(arguments, message):
    model = Ons(n_features=2, n_classes=3, B=1.0)
    model.update([0.3, 0.4], 1)
    before = {name: array.tobytes() for name, array in model.to_record().arrays.items()}
    with pytest.raises(InvalidInputError, match=message):
        model.update(**arguments)
    with pytest.raises(InvalidInputError, match=r"label y\[1\] is 7"):
        model.run(np.ones((2, 2)), [0, 7])
    assert {name: a.tobytes() for name, a in model.to_record().arrays.items()} == before


def test_constructor_checks():
    with pytest.raises(InvalidInputError, match="n_classes must be at least 2"):
        Ons(n_features=2, n_classes=1)
    with pytest.raises(InvalidInputError, match="B must be a positive number"):
        Ons(n_features=2, n_classes=2, B=0.0)
    with pytest.raises(TypeError):
        Ons(2, 2)


def test_empty_run_and_progress_callback(rng):
    model = Ons(n_features=2, n_classes=3)
    assert model.run(np.empty((0, 2)), []).shape == (0, 3)
    done = []
    model.run(rng.normal(size=(10, 2)), rng.integers(0, 3, 10), progress=done.append)
    assert done[-1] == 10
    assert model.certificate().n_rounds == 10
