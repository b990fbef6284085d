"""The regression in hindsight is scikit-learn's, and its bound holds for every model."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from folklearn.errors import InvalidInputError
from folklearn.evaluate import Regression, logistic_regression
from folklearn.evaluate.regression import regress
from folklearn.evidence.lower_bound import CONSTANT_PENALTY
from folklearn.evidence.passes import passes_over


def stream(rng, T=300, d=4, K=3, separable=False):
    X = rng.normal(size=(T, d))
    Z = X @ rng.normal(size=(d, K)) * 2.0
    y = (Z + (0.0 if separable else 1.0) * rng.gumbel(size=(T, K))).argmax(axis=1)
    y[:K] = np.arange(K)
    return np.hstack([np.ones((T, 1)), X]), y


def objective(X, Y, weights, W, C):
    """Straight from the definition, in long double; the constant is column 0."""
    Z = (X @ W.T).astype(np.longdouble)
    Z -= Z.max(axis=1, keepdims=True)
    losses = np.log(np.exp(Z).sum(axis=1)) - (Y * Z).sum(axis=1)
    tau = (2.0 if len(W) == 2 else 1.0) / C
    squares = (W[:, 1:] ** 2).sum() + CONSTANT_PENALTY * (W[:, 0] ** 2).sum()
    return float(weights @ losses) + 0.5 * tau * float(squares)


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("separable", [False, True])
def test_it_is_that_of_scikit_learn(rng, K, C, separable):
    X, y = stream(rng, K=K, separable=separable)
    weights = rng.integers(1, 4, len(y)).astype(float)
    found = logistic_regression(X, y, n_classes=K, weight=weights, C=C, constant=0)
    theirs = LogisticRegression(C=C, tol=1e-10, max_iter=20000).fit(X[:, 1:], y, weights)
    W = np.hstack([theirs.intercept_[:, None], theirs.coef_])
    W = np.vstack([-0.5 * W, 0.5 * W]) if K == 2 else W - W.mean(axis=0)
    value = objective(X, np.eye(K)[y], weights, W, C)
    assert found.loss + found.penalty == pytest.approx(value, rel=1e-5)
    assert found.at_least <= value
    assert found.gap <= 1e-4 * value + 1e-4
    np.testing.assert_allclose(found.W, W, atol=0.02 * np.abs(W).max())


@pytest.mark.parametrize("K", [2, 4])
def test_the_bound_holds_wherever_the_search_stops(rng, K):
    """At any point, for models of any norm: steps from the best one in all directions."""
    X, y = stream(rng, T=120, K=K)
    Y = 0.8 * np.eye(K)[y] + 0.2 / K
    weights = rng.random(len(y)) * 3.0
    best = logistic_regression(X, Y, n_classes=K, weight=weights, constant=0)
    for most in (1, 2, 5):
        early = logistic_regression(
            X, Y, n_classes=K, weight=weights, constant=0, most_passes=most,
            start=rng.normal(size=best.W.shape),
        )  # fmt: skip
        assert early.at_least <= best.loss + best.penalty + 1e-9
        for scale in (1e-6, 1e-3, 0.1, 1.0, 10.0):
            W = best.W + scale * rng.normal(size=best.W.shape)
            value = objective(X, Y, weights, W, 1.0)
            assert early.at_least <= value
            assert best.at_least <= value
    assert early.at_least < best.at_least
    assert (
        "The search stopped"
        in logistic_regression(
            X, Y, n_classes=K, weight=weights, constant=0, most_passes=1
        ).in_words()
    )


def test_a_constant_is_hardly_penalised():
    """One class all but once: the best constant is large, and costs next to nothing."""
    X, y = np.ones((20_000, 1)), np.zeros(20_000, int)
    y[0] = 1
    found = logistic_regression(X, y, n_classes=2, constant=0)
    b = np.log(19_999.0)
    exact = 20_000 * np.log1p(np.exp(-b)) + b + 0.5 * CONSTANT_PENALTY * b**2
    assert found.at_least <= exact
    assert found.at_least == pytest.approx(exact, abs=2e-3)
    assert found.penalty == pytest.approx(0.5 * CONSTANT_PENALTY * b**2, rel=1e-2)


def test_every_pass_is_reported(rng):
    X, y = stream(rng)
    sizes, passes = {"n_features": X.shape[1], "n_classes": 3}, []
    found = regress(passes_over(X, y, None, **sizes), **sizes, report=passes.append)
    assert [one.number for one in passes] == list(range(1, len(passes) + 1))
    assert all(one.at_least <= found.loss + found.penalty for one in passes)
    assert passes[-1].gap == pytest.approx(found.gap)
    again = regress(passes_over(X, y, None, **sizes), **sizes, start=found.W, most_passes=2)
    assert again.at_least == pytest.approx(found.at_least, rel=1e-5)


def test_sparse_rows_and_rows_without_weight(rng):
    X, y = stream(rng, K=3)
    X[np.abs(X) < 0.7] = 0.0
    X[:, 0] = 1.0
    weights = (rng.random(len(y)) < 0.5).astype(float)
    dense = logistic_regression(X, y, n_classes=3, weight=weights, constant=0)
    sparse = logistic_regression(csr_array(X), y, n_classes=3, weight=weights, constant=0)
    some = weights > 0
    fewer = logistic_regression(X[some], y[some], n_classes=3, constant=0)
    for other in (sparse, fewer):
        assert other.loss + other.penalty == pytest.approx(dense.loss + dense.penalty, rel=1e-5)
        assert other.at_least == pytest.approx(dense.at_least, rel=1e-5)
    nothing = logistic_regression(X, y, n_classes=3, weight=np.zeros(len(y)), constant=0)
    assert (nothing.loss, nothing.at_least) == (0.0, 0.0)
    assert nothing.in_words() == "In hindsight: no row has a weight."


def test_its_numbers_are_kept_and_bad_ones_refused(rng):
    X, y = stream(rng, K=2)
    found = logistic_regression(X, y, n_classes=2, constant=0)
    kept = Regression.of_numbers(found.numbers())
    assert kept.in_words() == found.in_words()
    with pytest.raises(InvalidInputError, match="lacks some of its numbers"):
        Regression.of_numbers({"loss": 1.0})
    with pytest.raises(InvalidInputError, match="C"):
        logistic_regression(X, y, n_classes=2, C=0.0)


def test_a_start_that_is_worse_than_none_is_not_taken(rng):
    X, y = stream(rng)
    best = logistic_regression(X, y, n_classes=3)
    found = logistic_regression(X, y, n_classes=3, start=1e10 * rng.normal(size=best.W.shape))
    assert found.loss + found.penalty == pytest.approx(best.loss + best.penalty, rel=1e-5)
