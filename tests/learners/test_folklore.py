"""Folklore against its slow twin, its certificate, and the edges of what it accepts."""

import math

import numpy as np
import pytest

from folklearn import Folklore
from folklearn.errors import InvalidInputError
from folklearn.kernels.curvature import valid_curvature
from folklearn.kernels.simplex import helmert
from tests.reference import streams
from tests.reference.dense_folklore import DenseFolklore
from tests.reference.hindsight import best_in_class


def chosen_curvature(z, x_norm, B):
    """The library's own choice of gamma, which test_curvature checks against brute force."""
    return valid_curvature(z, 2.0 * B * x_norm)


def full_inverse(model):
    lower = np.tril(model._S)
    return lower + np.tril(lower, -1).T


def dense_reduced_inverse(twin, d, K):
    """A of the twin, restricted to the complement of the all-ones direction, inverted."""
    Q = np.kron(helmert(K), np.eye(d))
    return np.linalg.inv(Q.T @ twin.A @ Q)


def stream_with_changing_norms(rng, T, d, K):
    X = rng.normal(size=(T, d)) / math.sqrt(d)
    X *= rng.choice([0.0, 0.1, 1.0, 3.0], size=T, p=[0.05, 0.2, 0.6, 0.15])[:, None]
    return X, rng.integers(0, K, T)


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("labels", ["hard", "soft", "weighted"])
def test_equals_the_dense_twin(K, labels, rng):
    d, T, B = 3, 120, 5.0
    X, y = stream_with_changing_norms(rng, T, d, K)
    targets = rng.dirichlet(np.full(K, 0.3), size=T) if labels == "soft" else y
    weights = rng.exponential(2.0, size=T) if labels == "weighted" else np.ones(T)
    weights[rng.random(T) < 0.1] *= 0.0 if labels == "weighted" else 1.0
    model = Folklore(n_features=d, n_classes=K, B=B)
    twin = DenseFolklore(d, K, B, model.lam, gamma=chosen_curvature)
    for x, target, weight in zip(X, targets, weights, strict=True):
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        loss = model.update(x, target, weight=weight)
        assert loss == pytest.approx(twin.update(x, target, weight=weight), abs=1e-9)
    certificate = model.certificate()
    assert certificate.loss == pytest.approx(twin.loss, rel=1e-10)
    quarter = certificate.regret_bound - model.lam * K * B**2
    assert quarter == pytest.approx(twin.certificate_sum, rel=1e-8)
    assert quarter == pytest.approx(twin.bracket_sum, rel=1e-8)
    inverse = dense_reduced_inverse(twin, d, K)
    assert np.linalg.norm(full_inverse(model) - inverse) <= 1e-9 * np.linalg.norm(inverse)
    np.testing.assert_allclose(model.coef(), twin.coef(), atol=1e-8)


@pytest.mark.parametrize("K", [2, 4])
def test_equals_the_dense_twin_at_a_fixed_gamma(K, rng):
    X, y = stream_with_changing_norms(rng, 120, 3, K)
    model = Folklore(n_features=3, n_classes=K, B=5.0, lam=0.7, gamma=0.04)
    twin = DenseFolklore(3, K, 5.0, 0.7, gamma=0.04)
    for x, label in zip(X, y, strict=True):
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        model.update(x, label)
        twin.update(x, label)


def test_dropping_the_curvature_correction_gives_linear_regret():
    """Erratum 1: without -2 gamma M u in the update, regret per round does not vanish.

    One fixed stream: how soon the linear term shows depends on the stream.
    """
    T, d, K, B = 1000, 2, 2, 3.0
    X, y = streams.stochastic(0, T, d, K, B=B)
    model = Folklore(n_features=d, n_classes=K, B=B)
    model.run(X, y)
    printed = DenseFolklore(d, K, B, model.lam, gamma=chosen_curvature, drop_correction=True)
    losses = [printed.update(x, label) for x, label in zip(X, y, strict=True)]
    W, best, _ = best_in_class(X, y, B, K)
    ours = model.certificate().loss - best
    theirs = sum(losses) - best
    assert theirs > 2.0 * ours
    assert ours <= model.certificate(W).regret_bound < theirs


def test_the_inverse_does_not_drift_in_a_hundred_thousand_rounds(rng):
    """The dense A is summed from the same rounds; the recursion never sees it."""
    d, K, T, B = 5, 3, 100_000, 10.0
    X = rng.normal(size=(T, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    W = rng.normal(size=(K, d))
    y = np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)
    model = Folklore(n_features=d, n_classes=K, B=B)
    P = model.run(X, y)
    Z = np.log(P)  # logits up to a constant, which the curvature does not see
    reaches = 2.0 * B * np.linalg.norm(X, axis=1)
    gammas = np.array([valid_curvature(z, reach) for z, reach in zip(Z, reaches, strict=True)])
    Q = helmert(K)
    reduced = P @ Q
    M = np.einsum("tk,ka,kb->tab", P, Q, Q) - np.einsum("ta,tb->tab", reduced, reduced)
    A = np.einsum("t,tab,ti,tj->aibj", gammas, M, X, X, optimize=True)
    A = A.reshape((K - 1) * d, -1) + model.lam * np.eye((K - 1) * d)
    inverse = np.linalg.inv(A)
    error = np.linalg.norm(full_inverse(model) - inverse) / np.linalg.norm(inverse)
    assert error <= 1e-8
    assert model.certificate().valid


STREAMS = {
    "stochastic": streams.stochastic,
    "separable": streams.separable,
    "pure noise": streams.pure_noise,
    "drifting": streams.drifting,
}


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("name", [*STREAMS, "adversarial"])
def test_regret_is_below_the_certificate(name, K, seed):
    T, d, B = 400, 3, 4.0
    model = Folklore(n_features=d, n_classes=K, B=B)
    if name == "adversarial":
        X = streams.pure_noise(seed, T, d, K)[0]
        y = streams.play_adversarial(model, X)
    else:
        X, y = STREAMS[name](seed, T, d, K)
        model.run(X, y)
    W, best, gap = best_in_class(X, y, B, K)
    assert gap <= 1e-6 * (1.0 + best)
    certificate = model.certificate()
    regret = certificate.loss - (best - gap)
    assert certificate.n_rounds == T
    assert regret <= certificate.regret_bound
    assert regret <= model.certificate(W).regret_bound <= certificate.regret_bound
    assert best >= certificate.best_linear_at_least
    norms = np.linalg.norm(X, axis=1)
    closed = Folklore(n_features=d, n_classes=K, B=B, R=max(1.0, norms.max())).regret_bound(T)
    assert regret <= closed
    if name == "adversarial":
        assert regret >= 0.7 * model.certificate(W).regret_bound  # tight where it matters


def test_the_certificate_is_weighted(rng):
    X, y = stream_with_changing_norms(rng, 60, 3, 3)
    weights = rng.integers(0, 4, size=60)
    weighted = Folklore(n_features=3, n_classes=3)
    losses = [weighted.update(x, c, weight=w) for x, c, w in zip(X, y, weights, strict=True)]
    assert weighted.certificate().loss == pytest.approx(np.dot(weights, losses))
    best = best_in_class(X, y, 10.0, 3, weight=weights.astype(float))[1]
    assert weighted.certificate().best_linear_at_least <= best


def test_a_gamma_that_is_too_large_voids_the_certificate(rng):
    X, y = stream_with_changing_norms(rng, 50, 3, 3)
    model = Folklore(n_features=3, n_classes=3, B=10.0, gamma=0.4)
    assert model.certificate().valid
    model.update(np.zeros(3), 0)  # says nothing about any model
    assert model.certificate().valid
    model.run(X, y)
    certificate = model.certificate()
    assert not certificate.valid
    assert certificate.best_linear_at_least == -math.inf
    assert "gamma=0.4" in certificate.reason
    small = Folklore(n_features=3, n_classes=3, B=10.0, gamma=0.001)
    small.run(X, y)
    assert small.certificate().valid


def test_the_certificate_of_one_model_and_its_class(rng):
    model = Folklore(n_features=2, n_classes=3, B=2.0)
    model.update([0.5, 0.5], 1)
    W = np.zeros((3, 2))
    assert model.certificate(W).regret_bound == pytest.approx(
        model.certificate().regret_bound - model.lam * 3 * 4.0
    )
    W[1] = [2.0, 0.0]
    assert model.certificate(W).valid
    W[1] = [2.0, 0.1]
    with pytest.raises(InvalidInputError, match="row norm of 2.0025.*at most B=2"):
        model.certificate(W)
    with pytest.raises(InvalidInputError, match=r"shape \(2, 3\)"):
        model.certificate(np.zeros((2, 3)))
    with pytest.raises(InvalidInputError, match="finite"):
        model.certificate(np.full((3, 2), np.nan))


def test_update_returns_the_loss_of_the_prediction(rng):
    model = Folklore(n_features=3, n_classes=4)
    for _ in range(20):
        x, label = rng.normal(size=3), int(rng.integers(4))
        p = model.predict(x)
        assert model.update(x, label) == pytest.approx(-math.log(p[label]), rel=1e-12)


def test_update_reuses_a_prediction_only_for_the_same_x_and_state(rng):
    X, y = stream_with_changing_norms(rng, 40, 3, 3)
    fresh = Folklore(n_features=3, n_classes=3)
    used = Folklore(n_features=3, n_classes=3)
    buffer = np.empty(3)
    for x, label in zip(X, y, strict=True):
        expected = fresh.update(x, label)
        used.predict(x)
        used.predict(x + 1.0)  # predict a, predict b, update a
        buffer[:] = x + 2.0
        used.predict(buffer)
        buffer[:] = x  # x changed in place after it was predicted
        assert used.update(buffer, label) == expected
    used.predict(X[0])
    used.update(X[1], 0)
    fresh.update(X[1], 0)
    np.testing.assert_array_equal(used.predict(X[0]), fresh.predict(X[0]))
    used.predict(X[2])
    used.run(X[:9], y[:9])
    fresh.run(X[:9], y[:9])
    assert used.update(X[2], 1) == fresh.update(X[2], 1)


def test_predictions_are_fresh_arrays(rng):
    model = Folklore(n_features=2, n_classes=2)
    first = model.predict([1.0, 0.0])
    first[:] = 7.0
    np.testing.assert_array_equal(model.predict([1.0, 0.0]), [0.5, 0.5])


def test_predicting_rows_equals_predicting_one_by_one(rng):
    for d, K in [(4, 3), (30, 6)]:
        model = Folklore(n_features=d, n_classes=K)
        X = rng.normal(size=(45, d)) / math.sqrt(d)
        model.run(X, rng.integers(0, K, 45))
        rows = np.array([model.predict(x) for x in X])
        np.testing.assert_allclose(model.predict(X), rows, atol=1e-12)
    assert model.predict(np.empty((0, 30))).shape == (0, 6)


@pytest.mark.parametrize(
    "x",
    [
        [0.1, 0.2, 0.3],
        np.array([0.1, 0.2, 0.3], dtype=np.float32).astype(float).tolist(),
        np.array([0.1, 9.0, 0.2, 9.0, 0.3])[::2],
        (0.1, 0.2, 0.3),
    ],
)
def test_contexts_of_many_kinds(x):
    model = Folklore(n_features=3, n_classes=2)
    model.update(np.array([0.1, 0.2, 0.3]), 1)
    np.testing.assert_allclose(model.predict(x), model.predict([0.1, 0.2, 0.3]), atol=1e-7)


def test_unusual_types_do_not_trigger_another_compilation():
    from folklearn.kernels.second_order import predict_round, update_round

    model = Folklore(n_features=2, n_classes=2)
    model.predict(np.ones(2))
    compiled = len(predict_round.signatures)
    x = np.ones(2)
    x.setflags(write=False)
    model.predict(x)
    model.predict(np.asfortranarray(np.ones((2, 2)))[0])
    assert len(predict_round.signatures) == compiled
    model.update(x, 1)
    updates = len(update_round.signatures)
    for weight in (1, True, np.float32(1), np.array(1.0), 2, np.int8(0)):
        model.update(x, 1, weight=weight)
    assert len(update_round.signatures) == updates


def test_sizes_and_labels_of_any_integer_kind():
    model = Folklore(n_features=np.int32(2), n_classes=np.uint8(3))
    for label in (1, np.int8(1), np.uint64(1), True, np.bool_(True)):
        assert model.update([1.0, 0.0], label) > 0.0
    model.run(np.ones((2, 2)), np.array([True, False]))
    model.run(np.ones((2, 2)), [2, 1])
    model.run(np.ones((2, 2)), np.array([1, 2], dtype=object))


def state_bytes(model):
    return b"".join(array.tobytes() for array in model._parts().values())


BAD_UPDATES = [
    ({"x": [1.0, math.nan], "y": 0}, "x has nan at feature 1"),
    ({"x": [1.0, math.inf], "y": 0}, "x has inf at feature 1"),
    ({"x": [1e200, 0.0], "y": 0}, "norm above"),
    ({"x": [1.0], "y": 0}, r"shape \(1,\)"),
    ({"x": [[1.0, 2.0]], "y": 0}, r"shape \(1, 2\)"),
    ({"x": "ab", "y": 0}, "real numbers"),
    ({"x": [1j, 0], "y": 0}, "real numbers"),
    ({"x": [None, 1.0], "y": 0}, "x"),
    ({"x": [1.0, 2.0], "y": 3}, "label y is 3; expected 0 to 2"),
    ({"x": [1.0, 2.0], "y": -1}, "label y is -1"),
    ({"x": [1.0, 2.0], "y": 1.0}, "integer class"),
    ({"x": [1.0, 2.0], "y": "cat"}, "integer class"),
    ({"x": [1.0, 2.0], "y": None}, "integer class"),
    ({"x": [1.0, 2.0], "y": [0.5, 0.5]}, r"shape \(2,\)"),
    ({"x": [1.0, 2.0], "y": [0.5, 0.6, 0.0]}, "sum to 1"),
    ({"x": [1.0, 2.0], "y": [1.5, -0.5, 0.0]}, "non-negative"),
    ({"x": [1.0, 2.0], "y": [math.nan, 1.0, 0.0]}, "non-negative"),
    ({"x": [1.0, 2.0], "y": 0, "weight": -1.0}, "weight is -1.0"),
    ({"x": [1.0, 2.0], "y": 0, "weight": math.nan}, "weight is nan"),
    ({"x": [1.0, 2.0], "y": 0, "weight": math.inf}, "weight is inf"),
    ({"x": [10**400, 2.0], "y": 0}, "x must hold real numbers"),
    ({"x": [1.0, 2.0], "y": 0, "weight": "heavy"}, "weight is 'heavy'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_UPDATES)
def test_bad_input_names_what_was_wrong_and_changes_nothing(arguments, message):
    model = Folklore(n_features=2, n_classes=3)
    model.update([0.3, 0.4], 1)
    before = state_bytes(model)
    with pytest.raises(ValueError, match=message):
        model.update(arguments.pop("x"), arguments.pop("y"), **arguments)
    assert state_bytes(model) == before


BAD_RUNS = [
    ({"y": [0, 1]}, r"y has shape \(2,\)"),
    ({"y": [0, 1, 5]}, r"label y\[2\] is 5"),
    ({"y": [0.0, 1.0, 2.0]}, "must be integers"),
    ({"y": ["a", "b", "c"]}, "must be integers"),
    ({"y": np.full((3, 3), 0.4)}, "row 0 of y"),
    ({"y": np.full((3, 2), 0.5)}, r"shape \(3, 2\)"),
    ({"X": [[0, 1], [2, math.nan], [0, 0]]}, "row 1 of X has nan at feature 1"),
    ({"X": [[0, 1]] * 2}, "y has shape"),
    ({"X": [[0, 1, 2]] * 3}, r"shape \(3, 3\)"),
    ({"X": [0, 1, 2]}, r"shape \(3,\)"),
    ({"weight": [1.0, 1.0]}, "weight has shape"),
    ({"weight": [1.0, -1.0, 1.0]}, r"weight\[1\] is -1;"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_RUNS)
def test_run_is_all_or_nothing(arguments, message):
    model = Folklore(n_features=2, n_classes=3)
    before = state_bytes(model)
    X = arguments.pop("X", np.ones((3, 2)))
    y = arguments.pop("y", [0, 1, 2])
    with pytest.raises(ValueError, match=message):
        model.run(X, y, **arguments)
    assert state_bytes(model) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"n_features": 2.0}, "n_features must be an integer"),
        ({"n_classes": True}, "n_classes must be an integer"),
        ({"B": 0.0}, "B must be a positive number"),
        ({"B": math.inf}, "B must be"),
        ({"R": -1}, "R must be"),
        ({"lam": 0}, "lam must be"),
        ({"gamma": "big"}, "gamma must be"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Folklore(**{"n_features": 2, "n_classes": 2, **arguments})


def test_positional_construction_is_refused():
    with pytest.raises(TypeError):
        Folklore(2, 2)


def test_empty_run_and_progress_callback(rng):
    model = Folklore(n_features=2, n_classes=3)
    assert model.run(np.empty((0, 2)), []).shape == (0, 3)
    done = []
    model.run(rng.normal(size=(10, 2)), rng.integers(0, 3, 10), progress=done.append)
    assert done[-1] == 10
    assert model.certificate().n_rounds == 10
