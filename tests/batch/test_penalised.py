"""The penalised fit is the minimiser, and its ridge one that predicts well."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from folklearn.batch import penalised
from folklearn.batch.penalised import (
    N_FOLDS,
    assign_folds,
    fit_penalised,
    fit_preconditioned,
    minimise_penalised,
)
from folklearn.evidence.passes import LocalPasses
from folklearn.synthetic import separable, stochastic
from folklearn.validation import Rows
from tests.reference import leader as slow
from tests.reference.evidence import Quadratic
from tests.reference.streams import soft_labels

D, K = 3, 3


def rows_of(X, y, weight=None):
    return Rows.checked(X, y, weight, n_features=D, n_classes=K)


def over(*blocks):
    return LocalPasses(lambda: blocks)


@pytest.mark.parametrize("ridge", [1e-4, 0.1, 10.0])
def test_the_mode_is_that_of_the_slow_twin(ridge, seed, rng):
    X, y = stochastic(seed, 120, d=D, K=K)
    Y, weight = soft_labels(seed, y, K), 2.0 * rng.random(120)
    nothing = Quadratic(np.zeros((K * D, K * D)), np.zeros(K * D), 0.0, K)
    expected = slow.mode(ridge, slow.Kept(X, Y, weight), nothing)
    rows = rows_of(X, Y, weight)
    for start in (np.zeros((K, D)), 5.0 * rng.normal(size=(K, D))):
        start -= start.mean(axis=0)
        found = minimise_penalised(
            over(rows.part(0, 50), rows.part(50, 120)), start, ridge, 50, 1e-10
        )
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_ridge_is_the_best_of_a_grid_on_the_same_folds(seed):
    X, y = stochastic(seed, 300, d=D, K=K)
    rows = rows_of(X, y)
    fit = fit_penalised(over(rows), np.zeros((K, D)), ridge=0.1, seed=seed)
    fold = assign_folds(seed, 0, 300)

    def held_out(ridge):
        total = 0.0
        for f in range(N_FOLDS):
            train, new = rows.of(fold != f), rows.of(fold == f)
            W = minimise_penalised(over(train), np.zeros((K, D)), ridge, 50, 1e-8)
            Z = new.X @ W.T
            total += (np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(len(Z)), new.labels]).sum()
        return total / 300

    assert fit.held_out == pytest.approx(held_out(fit.ridge), rel=1e-4)
    assert fit.held_out <= min(held_out(ridge) for ridge in 10.0 ** np.arange(-5.0, 2.0)) + 1e-4
    expected = minimise_penalised(over(rows), np.zeros((K, D)), fit.ridge, 50, 1e-10)
    np.testing.assert_allclose(fit.W, expected, atol=1e-4)


def test_separable_and_very_few_rows(seed):
    X, y = separable(seed, 200, d=D, K=K)
    rows = rows_of(X, y)
    fit = fit_penalised(over(rows), np.zeros((K, D)))
    assert np.isfinite(fit.W).all()
    assert fit.held_out < 0.2
    few = rows.part(0, 5)
    fit = fit_penalised(over(few), np.zeros((K, D)), ridge=0.5)
    assert fit.ridge == 0.5
    assert np.isnan(fit.held_out)


def objective(W, X, Y, weight, ridge, freedom):
    """The penalised loss of W, and its gradient, from the definition."""
    Z = X @ W.T
    loss = weight @ (logsumexp(Z, axis=1) - (Y * Z).sum(axis=1))
    gradient = (weight[:, None] * (softmax(Z, axis=1) - Y)).T @ X + 2.0 * ridge * W / freedom
    return float(loss + ridge * (W**2 / freedom).sum()), gradient


def least(X, Y, weight, ridge, freedom):
    def flat(w):
        value, gradient = objective(w.reshape(Y.shape[1], -1), X, Y, weight, ridge, freedom)
        return value, gradient.ravel()

    options = {"gtol": 1e-9, "maxiter": 2000}
    start = np.zeros(Y.shape[1] * X.shape[1])
    found = minimize(flat, start, jac=True, method="BFGS", options=options).x
    return found.reshape(Y.shape[1], -1)


def wide_rows(rng, T, d, K, kind):
    """Columns that depend on each other, of very different sizes."""
    X = rng.normal(size=(T, d)) @ (np.eye(d) + 0.5 * rng.normal(size=(d, d)) / np.sqrt(d))
    X *= 10.0 ** rng.uniform(-1.0, 0.5, d) / np.sqrt(d)
    W = 4.0 * rng.normal(size=(K, d))
    y = np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)
    Y = 0.8 * np.eye(K)[y] + 0.2 * rng.dirichlet(np.ones(K), T) if kind == "soft" else np.eye(K)[y]
    weight = rng.choice([0.1, 1.0, 5.0], T) if kind == "weighted" else np.ones(T)
    rows = Rows.checked(X, Y if kind == "soft" else y, weight, n_features=d, n_classes=K)
    return rows, Y


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
@pytest.mark.parametrize(("tolerance", "apart"), [(1e-6, 1e-2), (1e-10, 1e-5)])
def test_the_preconditioned_fit_is_the_minimiser(K, kind, tolerance, apart, rng, monkeypatch):
    """A step that gains little is the last one, and not always near the least value."""
    monkeypatch.setattr(penalised, "_PASSES_TOLERANCE", tolerance)
    T, d = 240, 6
    rows, Y = wide_rows(rng, T, d, K, kind)
    freedom = np.array([1.0, 1.0, 100.0, 1.0, 0.1, 1.0])
    curvature = (rows.X.T * rows.weights) @ rows.X * (K - 1) / K**2
    for P in (np.linalg.inv(curvature + 0.02 * np.eye(d)), np.eye(d)):
        for start in (np.zeros((K, d)), rng.normal(size=(K, d))):
            words = {"ridge": 0.1, "freedom": freedom, "most_passes": 500}
            fit = fit_preconditioned(over(rows), start, P, **words)
            asked = rows.X, Y, rows.weights, fit.ridge, freedom
            best = objective(least(*asked), *asked)[0]
            assert best * (1.0 - 1e-9) <= objective(fit.W, *asked)[0] <= best * (1.0 + apart)


def test_a_free_column_is_hardly_penalised(rng, monkeypatch):
    """Of two equal columns the weights are as what their penalties are divided by."""
    monkeypatch.setattr(penalised, "MIN_RIDGE", 0.3)
    monkeypatch.setattr(penalised, "_PASSES_TOLERANCE", 1e-14)
    X = rng.normal(size=(240, 4))
    y = np.argmax(X[:, :3] + rng.gumbel(size=(240, 3)), axis=1)
    rows = Rows.checked(np.column_stack([X, X[:, 0]]), y, None, n_features=5, n_classes=3)
    freedom = np.array([1.0, 1.0, 1.0, 1.0, 25.0])
    words = {"ridge": 1.0, "freedom": freedom, "most_passes": 500}
    fit = fit_preconditioned(over(rows), np.zeros((3, 5)), np.eye(5), **words)
    size = np.abs(fit.W[:, 4]).max()
    np.testing.assert_allclose(fit.W[:, 0] * 25.0, fit.W[:, 4], atol=0.02 * size)
    best = least(rows.X, np.eye(3)[y], rows.weights, fit.ridge, freedom)
    np.testing.assert_allclose(fit.W, best, atol=0.02 * size)


def test_the_ridge_of_a_preconditioned_fit_predicts_the_fold_that_was_held_out(
    seed, rng, monkeypatch
):
    monkeypatch.setattr(penalised, "_SEARCH_TOLERANCE", 1e-10)
    rows, Y = wide_rows(rng, 300, 8, 3, "hard")
    fit = fit_preconditioned(
        over(rows), np.zeros((3, 8)), np.eye(8), ridge=0.1, freedom=np.ones(8), seed=seed
    )
    new = assign_folds(seed, 0, 300) == 0

    def held_out(ridge):
        W = least(rows.X[~new], Y[~new], np.ones((~new).sum()), ridge, np.ones(8))
        return objective(W, rows.X[new], Y[new], np.ones(new.sum()), 0.0, 1.0)[0] / new.sum()

    assert fit.held_out == pytest.approx(held_out(fit.ridge), rel=0.03)
    assert fit.held_out <= held_out(0.1) * 1.03


def test_a_preconditioned_fit_of_very_few_rows(rng):
    rows, _ = wide_rows(rng, 12, 4, 3, "hard")
    for n in (1, 2, 3, 12):
        fit = fit_preconditioned(
            over(rows.part(0, n)), np.zeros((3, 4)), np.eye(4), ridge=0.1, freedom=np.ones(4)
        )
        assert np.isfinite(fit.W).all()


def test_a_covariance_that_is_singular_serves_too(rng):
    rows, Y = wide_rows(rng, 200, 5, 3, "hard")
    v = rng.normal(size=5)
    P = np.eye(5) - np.outer(v, v) / (v @ v)
    fit = fit_preconditioned(over(rows), np.zeros((3, 5)), P, ridge=0.1, freedom=np.ones(5))
    assert np.isfinite(fit.W).all()
    asked = rows.X, Y, rows.weights, fit.ridge, np.ones(5)
    assert objective(fit.W, *asked)[0] < objective(np.zeros((3, 5)), *asked)[0]
