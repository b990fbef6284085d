"""Windows equal the evidence of their rows, cover what was asked for, and see a change."""

import numpy as np
import pytest

from folklearn import Evidence, serialization
from folklearn.errors import InvalidInputError
from folklearn.evaluate.regression import logistic_regression
from folklearn.evaluate.windows import Windows

FLOOR = 1e-9  # nats a row: two searches for a floor may each end 1e-10 from it


def stream(seed, T, d=3, K=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, d)) / np.sqrt(d)
    W = 4.0 * rng.normal(size=(K, d))
    y = np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)
    return X, y, rng.dirichlet(np.ones(K), size=T)


@pytest.mark.parametrize("T", [1, 7, 8, 63, 64, 200, 333])
def test_windows_equal_the_evidence_of_their_rows(T):
    X, y, P = stream(T, T)
    windows = Windows(n_features=3, n_classes=3, C=2.0, block=8)
    losses = windows.observe_many(X, y, P)
    for window in windows.all():
        rows = slice(window.start, window.stop)
        assert window.stop == T
        own = Evidence(n_features=3, n_classes=3, C=2.0)
        own.add(X[rows], y[rows])
        assert window.lower_bound == pytest.approx(
            own.lower_bound(), abs=FLOOR * (T - window.start)
        )
        assert window.loss == pytest.approx(losses[rows].sum(), rel=1e-12)
        assert window.n_errors == (P[rows].argmax(axis=1) != y[rows]).sum()
    assert windows.all()[-1].start == 0


def test_a_window_covers_what_was_asked_for_and_less_than_twice_that():
    X, y, P = stream(0, 1000)
    windows = Windows(n_features=3, n_classes=3, block=16)
    windows.observe_many(X, y, P)
    for n in (16, 32, 100, 256, 500, 1000):
        window = windows.last(n)
        assert n <= window.n_rounds <= 2 * n + 16
    assert len(windows._ladder) <= 2 * np.log2(1000 / 16) + 2
    with pytest.raises(InvalidInputError, match="1000 rounds"):
        windows.last(1001)


def test_one_by_one_is_many_at_once():
    X, y, P = stream(1, 150)
    many, one = (Windows(n_features=3, n_classes=3, block=32) for _ in range(2))
    many.observe_many(X, y, P)
    for row in zip(X, y, P, strict=True):
        one.observe(*row)
    for a, b in zip(many.all(), one.all(), strict=True):
        assert (a.start, a.stop, a.n_errors) == (b.start, b.stop, b.n_errors)
        assert a.lower_bound == pytest.approx(b.lower_bound, abs=FLOOR * (a.stop - a.start))


def test_every_floor_is_below_the_best_model_of_its_window():
    X, y, P = stream(2, 700)
    y[400:] = (y[400:] + 1) % 3
    windows = Windows(n_features=3, n_classes=3, block=32)
    windows.observe_many(X, y, P)
    for window in windows.all():
        rows = slice(window.start, window.stop)
        best = logistic_regression(X[rows], y[rows], n_classes=3)
        total = best.loss + best.penalty
        assert total * (1.0 - 1e-5) <= window.lower_bound <= total


@pytest.mark.parametrize("d", [3, 3000])
def test_resume(d, rng):
    X = rng.normal(size=(150, d)) / np.sqrt(d)
    y, P = rng.integers(3, size=150), rng.dirichlet(np.ones(3), size=150)
    whole, part = (Windows(n_features=d, n_classes=3, constant=1, block=32) for _ in range(2))
    for rows in (slice(0, 80), slice(80, 150)):
        whole.observe_many(X[rows], y[rows], P[rows])
    part.observe_many(X[:80], y[:80], P[:80])
    resumed = serialization.load(part.to_bytes())
    resumed.observe_many(X[80:], y[80:], P[80:])
    assert resumed.all() == whole.all()
    assert all(window.lower_bound <= 150 * np.log(3) for window in whole.all())


def test_soft_labels_weights_and_impossible_predictions():
    X, _, P = stream(3, 40)
    Y = np.random.default_rng(0).dirichlet(np.ones(3), size=40)
    P[5] = (1.0, 0.0, 0.0)
    weight = np.ones(40)
    weight[5] = 0.0
    windows = Windows(n_features=3, n_classes=3, block=8)
    windows.observe_many(X, Y, P, weight=weight)
    assert np.isfinite(windows.last(40).loss)
