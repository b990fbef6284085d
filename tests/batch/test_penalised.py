"""The penalised fit is the minimiser, and its ridge one that predicts well."""

import numpy as np
import pytest

from folklearn.batch.penalised import N_FOLDS, assign_folds, fit_penalised, minimise_penalised
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
