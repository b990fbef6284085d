"""SMP by refitting equals a generic minimiser; from the Laplace state it is close."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import folklearn
from folklearn.baselines import SMP
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.evaluate.best_linear import best_in_class
from folklearn.serialization import Record
from tests.reference import streams
from tests.reference.smp import ridge_minimiser, smp, smp_parts

each_method = pytest.mark.parametrize("method", ["laplace", "refit"])


def sample(seed, T, d, K):
    X, y = streams.stochastic(seed, T, d, K)
    return X, y, streams.contexts(np.random.default_rng([*np.atleast_1d(seed), 1]), 10, d, 1.0)


def fitted(X, y, K, **parameters):
    return SMP(n_features=X.shape[1], n_classes=K, **parameters).fit(X, y)


@pytest.mark.parametrize(
    ("K", "d", "T", "lam"), [(2, 2, 15, 0.5), (3, 2, 20, 0.02), (4, 3, 30, 0.3)]
)
def test_refit_equals_the_reference(K, d, T, lam, seed):
    X, y, new = sample(seed, T, d, K)
    model = fitted(X, y, K, lam=lam, method="refit")
    assert model.converged
    np.testing.assert_allclose(model.coef(), ridge_minimiser(X, y, K, lam), atol=1e-7)
    expected = np.array([smp(X, y, x, K, lam) for x in new[:4]])
    np.testing.assert_allclose(model.predict(new[:4]), expected, rtol=0.0, atol=1e-7)


def test_soft_labels_equal_the_reference(seed):
    X, y, new = sample(seed, 15, 2, 3)
    soft = streams.soft_labels(seed, y, 3)
    model = fitted(X, soft, 3, lam=0.2, method="refit")
    np.testing.assert_allclose(model.predict(new[0]), smp(X, soft, new[0], 3, 0.2), atol=1e-7)


@each_method
def test_soft_corners_are_hard_labels(method, seed):
    X, y, new = sample(seed, 15, 2, 3)
    hard, soft = (fitted(X, label, 3, method=method) for label in (y, np.eye(3)[y]))
    np.testing.assert_array_equal(hard.predict(new), soft.predict(new))


# Mean error of the probabilities over 10 samples of 4 new points, d = 3. Measured for K = 2
# and 3, mean over 25 seeds (worst): .0012 (.0018), .0006 (.0008) at T = 20, lam = .5;
# .0110 (.0158), .0070 (.0089) at lam = .1; .079 (.111), .059 (.083) at lam = .01, where the
# sample is nearly separable; .0005 (.0006), .0004 (.0005) at T = 200, lam = .01.
@pytest.mark.parametrize(
    ("T", "lam", "most"), [(20, 0.5, 0.004), (20, 0.1, 0.03), (20, 0.01, 0.2), (200, 0.01, 0.002)]
)
@pytest.mark.parametrize("K", [2, 3])
def test_laplace_is_close(K, T, lam, most, seed):
    errors, plain = [], []
    for number in range(10):
        X, y, new = sample([seed, number], T, 3, K)
        exact = fitted(X, y, K, lam=lam, method="refit").predict(new[:4])
        model = fitted(X, y, K, lam=lam, method="laplace")
        errors.append(np.abs(model.predict(new[:4]) - exact).mean())
        Z = np.exp(new[:4] @ model.coef().T)
        plain.append(np.abs(Z / Z.sum(axis=1, keepdims=True) - exact).mean())
    assert np.mean(errors) < most
    if lam > 0.01 or T > 20:  # far better than to ignore the virtual labels
        assert np.mean(errors) < 0.5 * np.mean(plain)


def test_the_ridge_is_that_of_scikit_learn(seed):
    for K, lam in ((2, lambda C: 1 / C), (3, lambda C: 1 / (2 * C))):
        X, y, _ = sample(seed, 60, 3, K)
        C = 1.7
        other = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
        W = fitted(X, y, K, lam=lam(C)).coef()
        logits = other.coef_ if K > 2 else np.vstack([np.zeros(3), other.coef_[0]])
        expected = logits - logits.mean(axis=0)
        np.testing.assert_allclose(W, expected, atol=1e-5)


def test_the_guarantee_is_the_ridge_and_the_normaliser(seed):
    X, y, new = sample(seed, 20, 2, 3)
    model = fitted(X, y, 3, lam=0.1, method="refit")
    normaliser = np.log([smp_parts(X, y, x, 3, 0.1).sum() for x in new[:3]])
    assert normaliser.min() > 0.0
    expected = 0.1 * 3 * 4.0 / 21 + normaliser.mean()
    assert model.guarantee(new[:3], B=2.0) == pytest.approx(expected, abs=1e-7)
    assert fitted(X, y, 3, lam=0.1, method="laplace").guarantee(new, B=2.0) is None


def test_the_excess_risk_is_below_the_guarantee():
    """20 independent samples, exact conditional risk. The bound is an expectation and far away:
    lam K B^2/(T + 1) alone is .15, the excess about .05 with a standard error near .01."""
    K, d, T, B, lam = 3, 2, 30, 4.0, 0.1
    excess, bounds = [], []
    for number in range(20):
        rng = np.random.default_rng([7, number])
        W = streams.predictor(rng, K, d, B)
        X = streams.contexts(rng, T + 8, d, 1.0)
        P = np.exp(X @ W.T)
        P /= P.sum(axis=1, keepdims=True)
        y = np.array([rng.choice(K, p=p) for p in P[:T]])
        model = fitted(X[:T], y, K, lam=lam, method="refit")
        predicted = model.predict(X[T:])
        excess.append((P[T:] * np.log(P[T:] / predicted)).sum(axis=1).mean())
        bounds.append(model.guarantee(X[T:], B=B))
    assert 0.0 < np.mean(excess) < np.mean(bounds) - 5.0 * np.std(excess) / np.sqrt(20)


@each_method
def test_probabilities_and_zero(method, seed):
    X, y, new = sample(seed, 25, 3, 4)
    model = fitted(X, y, 4, method=method)
    P = model.predict(new)
    assert P.shape == (10, 4)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-14)
    assert P.min() > 0.0
    np.testing.assert_allclose(model.predict(np.zeros(3)), 0.25, atol=1e-15)
    np.testing.assert_allclose(model.predict(new[3]), P[3], atol=1e-13)
    assert model.predict(np.empty((0, 3))).shape == (0, 4)


def test_one_class_alone_is_not_certain():
    """Refitted with one of 21 labels different, a model without a ridge would say 1/21."""
    X, y = np.ones((20, 1)), np.zeros(20, dtype=int)
    model = fitted(X, y, 3, lam=1e-6)
    W = model.coef()
    assert 1.0 / np.exp(W - W[0]).sum() > 1.0 - 1e-5  # the plain minimiser is certain
    np.testing.assert_allclose(model.predict([1.0]), np.array([21, 1, 1]) / 23, atol=1e-4)
    # Where the minimiser is certain its curvature vanishes, and a quadratic knows nothing.
    np.testing.assert_allclose(fitted(X, y, 3, lam=1e-6, method="laplace").predict([1.0]), 1 / 3,
                               atol=1e-3)  # fmt: skip


@each_method
@pytest.mark.parametrize("scale", [1e-9, 1e4, 1e9, 1e15])
def test_extreme_features(method, scale, seed):
    X, y, new = sample(seed, 20, 2, 3)
    X, new = 0.5 * scale * X, 0.5 * scale * new[:3]
    model = fitted(X, y, 3, lam=0.5, method=method)
    try:
        P = model.predict(new)
    except FolklearnError as error:  # a Hessian of condition 1e30 has no digits left
        assert (method, scale) == ("refit", 1e15)
        assert "did not converge: scale the features" in str(error)  # noqa: PT017
        return
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("lam", [1e-15, 1e-8, 1e15])
def test_extreme_ridges(lam, seed):
    X, _, new = sample(seed, 20, 2, 3)
    y = np.argmax(X @ np.eye(2, 3), axis=1)  # separable
    P = fitted(X, y, 3, lam=lam, method="laplace").predict(new)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    if lam == 1e15:
        np.testing.assert_allclose(P, 1 / 3, atol=1e-10)


@each_method
def test_a_saved_predictor_predicts_the_same(method, tmp_path, seed):
    X, y, new = sample(seed, 12, 2, 3)
    model = fitted(X, y, 3, method=method)
    model.save(tmp_path / "smp")
    again = folklearn.load(tmp_path / "smp")
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    assert (repr(again), again.n_rows, again.converged) == (repr(model), 12, True)
    record = model.to_record()
    with pytest.raises(StateFileError, match="needs float64 root"):
        SMP.from_record(Record("SMP", record.config, record.arrays | {"root": np.zeros(3)}))
    with pytest.raises(StateFileError, match="needs n_features"):
        SMP.from_record(Record("SMP", {"lam": 1.0}, record.arrays))


def test_fit_starts_again_and_keeps_its_own_copy(seed):
    X, y, new = sample(seed, 12, 2, 3)
    once = fitted(X, y, 3, method="refit").predict(new[:2])
    model = fitted(X[::-1][:7], y[::-1][:7], 3, method="refit")
    mine = X.copy()
    model.fit(mine, y)
    mine[:] = 0.0
    np.testing.assert_array_equal(model.predict(new[:2]), once)


def test_bad_input():
    with pytest.raises(InvalidInputError, match="method must be one of 'refit', 'laplace'"):
        SMP(n_features=1, n_classes=2, method="newton")
    with pytest.raises(InvalidInputError, match="lam must be a positive number"):
        SMP(n_features=1, n_classes=2, lam=0.0)
    model = SMP(n_features=2, n_classes=3)
    with pytest.raises(FolklearnError, match="call fit"):
        model.predict([0.0, 1.0])
    with pytest.raises(InvalidInputError, match="no rows"):
        model.fit(np.empty((0, 2)), [])
    with pytest.raises(InvalidInputError, match="label y\\[1\\] is 3"):
        model.fit(np.zeros((2, 2)), [0, 3])
    model.fit(np.eye(2), [0, 1])
    with pytest.raises(InvalidInputError, match="x has shape"):
        model.predict([1.0])
    with pytest.raises(InvalidInputError, match="no rows"):
        model.guarantee(np.empty((0, 2)), B=1.0)


def test_the_risk_of_the_minimiser_is_that_of_hindsight(seed):
    """A tiny ridge and a class large enough: two solvers, one minimiser."""
    X, y, _ = sample(seed, 300, 2, 2)
    W = fitted(X, y, 2, lam=1e-9).coef()
    best = best_in_class(X, y, B=100.0, n_classes=2)
    np.testing.assert_allclose(W, best.W - best.W.mean(axis=0), atol=1e-2)
