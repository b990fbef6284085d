"""The fit to wide rows is the minimiser, and its penalty one that predicts well."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from folklearn.arrays import logit_losses, softmax
from folklearn.batch import sparse_fit as module
from folklearn.batch.sparse_fit import ColumnModel, fit_sparse
from folklearn.kernels import linear_models
from folklearn.sparse import SparseRows
from folklearn.validation import Rows
from tests.reference.streams import soft_labels, words

K = 3


def rows_of(X, y, weight=None, n_classes=K):
    return Rows.checked(csr_array(X), y, weight, n_features=X.shape[1], n_classes=n_classes)


def sparse_problem(rng, T=80, d=6):
    X = rng.normal(size=(T, d)) * 10.0 ** -np.arange(d)
    X[rng.random((T, d)) < 0.4] = 0.0
    X[:, -1] = 0.3
    y = (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(T, K))).argmax(axis=1)
    return X, y


def slow_twin(X, Y, weight, penalties):
    """Minimise sum penalties_j |W_j|^2 + sum w loss by a method for smooth functions."""

    def objective(flat):
        W = flat.reshape(X.shape[1], K)
        Z = X @ W
        losses = logsumexp(Z, axis=1) - (Y * Z).sum(axis=1)
        slope = X.T @ (weight[:, None] * (softmax(Z) - Y)) + 2.0 * penalties[:, None] * W
        return weight @ losses + penalties @ (W**2).sum(axis=1), slope.ravel()

    start = np.zeros(X.shape[1] * K)
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(X.shape[1], K)


@pytest.mark.parametrize("power", [0.0, 0.125, 0.25])
@pytest.mark.parametrize("soft", [False, True])
def test_it_is_the_minimiser(power, soft, seed, rng, monkeypatch):
    X, y = sparse_problem(rng)
    d = X.shape[1]
    Y = soft_labels(seed, y, K) if soft else np.eye(K)[y]
    weight = 0.1 + 2.0 * rng.random(len(y))
    monkeypatch.setattr(module, "POWERS", (power,))
    monkeypatch.setattr(module, "_FINAL_TOLERANCE", 1e-13)
    rows = rows_of(X, Y if soft else y, weight)
    fit = fit_sparse(rows, K, constant=d - 1, most_passes=5000, seed=seed)
    mass = weight @ X**2
    scales = mass**-power
    scales[-1] = 0.0
    scales /= np.sqrt(scales**2 @ mass / weight.sum())
    scales[-1] = 1.0  # the constant is 0.3 already
    expected = slow_twin(X, Y, weight, fit.ridge / scales**2)
    # What is small in X has large weights: what counts is what they make of it.
    np.testing.assert_allclose(X[:, fit.columns] @ fit.weights, X @ expected, atol=1e-4)
    np.testing.assert_array_equal(fit.columns, np.arange(d))


def test_the_gap_is_what_is_missing(rng):
    X, y = sparse_problem(rng)
    Y, weight, ridge = np.eye(K)[y], rng.random(len(y)), 0.1
    bases = rng.normal(size=(len(y), K))  # what another model says of the rows
    own = SparseRows.of(X)
    parts = own.indptr, own.indices, own.values
    Q, W = softmax(rng.normal(size=(len(y), K))), np.empty((X.shape[1], K))
    linear_models.weights_of(*parts, Y, weight, Q, ridge, W)
    np.testing.assert_allclose(W, X.T @ (weight[:, None] * (Y - Q)) / (2.0 * ridge))

    def missing():
        entropy = -(Q * np.log(np.maximum(Q, 1e-300))).sum(axis=1)
        losses = logit_losses(X @ W + bases, y, np.empty((0, K)))
        of_bases = ((Q - Y) * bases).sum(axis=1)
        return weight @ (losses - entropy - of_bases) + 2.0 * ridge * (W**2).sum()

    gaps = []
    for _ in range(20):
        gaps.append(missing())
        _, gap = linear_models.ascend(
            *parts, own.norms() ** 2, bases, Y, weight, rng.permutation(len(y)), Q, W, ridge
        )
    still = np.arange(len(y))
    before = missing()
    for t in still:  # each alone, from the same state
        one = weight * (still == t)
        _, gap = linear_models.ascend(
            *parts, own.norms() ** 2, bases, Y, one, np.array([t]), Q.copy(), W.copy(), ridge
        )
        before -= gap
    assert before == pytest.approx(0.0, abs=1e-9)
    assert gaps[-1] < 1e-3 * gaps[0]


def test_it_predicts_as_well_as_a_tuned_fit(seed):
    X, y = words(seed, 2000, d=3000, K=4)
    X, y, X_new, y_new = X[:1200], y[:1200], X[1200:], y[1200:]
    none = np.empty((0, 4))
    tuned = min(
        logit_losses(
            LogisticRegression(C=C, max_iter=300).fit(X, y).decision_function(X_new), y_new, none
        ).mean()
        for C in (1.0, 10.0, 100.0)
    )
    fit = fit_sparse(rows_of(X, y, None, 4), 4, seed=seed)
    P = ColumnModel(fit.columns, fit.weights).predict(SparseRows.of(X_new))
    loss = -np.log(P[np.arange(len(y_new)), y_new]).mean()
    assert tuned < 0.9 * np.log(4)  # there is something to learn
    assert loss < 1.05 * tuned
    assert fit.held_out == pytest.approx(loss, rel=0.35)


def test_the_seed_decides_everything(rng):
    X, y = sparse_problem(rng)
    one, same, other = (fit_sparse(rows_of(X, y), K, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.weights, same.weights)
    assert one.held_out == same.held_out != other.held_out


def test_rows_without_weight_are_not_there(rng):
    X, y = sparse_problem(rng)
    weight = (np.arange(len(y)) % 3 > 0).astype(float)
    some = fit_sparse(rows_of(X, y, weight), K)
    alone = fit_sparse(rows_of(X[weight > 0], y[weight > 0]), K)
    np.testing.assert_array_equal(some.weights, alone.weights)


@pytest.mark.parametrize("T", [0, 1, 5, 11, 12])
def test_very_few_rows(T, rng):
    X, y = sparse_problem(rng, T=20)
    fit = fit_sparse(rows_of(X[:T], y[:T]), K, constant=5)
    assert np.isfinite(fit.weights).all()
    assert np.isnan(fit.held_out) == (T < 12)
    assert fit.weights.shape == (len(fit.columns), K)


def test_zeros_and_rows_of_absurd_size(rng):
    X, y = sparse_problem(rng)
    for rows in (np.zeros((80, 6)), 1e12 * X, 1e-12 * X):
        fit = fit_sparse(rows_of(rows, y), K)
        P = ColumnModel(fit.columns, fit.weights).predict(SparseRows.of(rows))
        assert np.isfinite(P).all()
    explicit = csr_array((np.zeros(80), (np.arange(80), np.arange(80) % 6)), shape=(80, 6))
    assert np.isfinite(fit_sparse(rows_of(explicit, y), K).weights).all()


def test_a_model_of_columns_is_the_same_for_sparse_and_dense_rows(rng):
    X = rng.normal(size=(9, 30)) * (rng.random((9, 30)) < 0.3)
    columns = np.array([3, 7, 8, 21])
    weights = rng.normal(size=(4, K))
    model = ColumnModel(columns, weights)
    expected = softmax(X[:, columns] @ weights)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-14)
    np.testing.assert_allclose(model.predict(SparseRows.of(X)), expected, atol=1e-14)
    part = SparseRows.of(X)[4:7]
    np.testing.assert_allclose(model.predict(part), expected[4:7], atol=1e-14)
    nothing = ColumnModel(np.empty(0, np.int64), np.empty((0, K)))
    np.testing.assert_allclose(nothing.predict(SparseRows.of(X)), 1.0 / K)
