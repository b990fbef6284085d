"""The best model in hindsight: proven, and the same as the slow solvers'."""

import numpy as np
import pytest

from folklearn.errors import InvalidInputError
from folklearn.evaluate.hindsight import best_in_class, linear_losses
from folklearn.synthetic import OBLIVIOUS, separable
from tests.reference import hindsight as reference
from tests.reference.loss import log_loss
from tests.reference.streams import soft_labels


def total(W, X, Y, weight):
    return float(weight @ [log_loss(W @ x, y) for x, y in zip(X, Y, strict=True)])


@pytest.mark.parametrize("B", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("name", OBLIVIOUS)
def test_equals_the_reference(name, B, seed, rng):
    X, y = OBLIVIOUS[name](seed, 300, d=3, K=3)
    weight = rng.random(300) * 3 * (rng.random(300) < 0.7)
    for labels in (y, soft_labels(seed, y, 3)):
        best = best_in_class(X, labels, B=B, n_classes=3, weight=weight, tol=1e-9)
        _, loss, gap = reference.best_in_class(X, labels, B, 3, weight)
        assert best.converged
        assert best.gap <= 1e-9 * (1 + best.loss)
        assert np.linalg.norm(best.W, axis=1).max() <= B
        assert best.loss == pytest.approx(total(best.W, X, labels, weight), rel=1e-10)
        # Two intervals that both hold the truth.
        assert best.at_least <= loss + 1e-12 * loss
        assert loss - gap <= best.loss + 1e-12 * loss


@pytest.mark.parametrize("B", [1.0, 10.0])
def test_equals_cvxpy(B, seed):
    pytest.importorskip("cvxpy", reason="CVXPY is not installed")
    pytest.importorskip("clarabel", reason="Clarabel is not installed")
    X, y = separable(seed, 40, d=2, K=3)
    best = best_in_class(X, y, B=B, n_classes=3)
    _, loss, gap = reference.best_in_class_cvxpy(X, y, B, 3)
    assert best.loss - loss <= best.gap + 1e-12
    assert loss - best.loss <= gap + 1e-12


@pytest.mark.parametrize(
    ("scale", "B", "labels"),
    [
        (1.0, 1e4, "separable"),  # the loss is 0 for all purposes
        (1e3, 10.0, "separable"),
        (1e-6, 10.0, "separable"),
        (1.0, 10.0, "one class"),
        (np.array([1e-3, 1.0, 1e3]), 10.0, "separable"),
        (0.0, 10.0, "separable"),
    ],
)
def test_extremes(scale, B, labels, seed):
    X, y = separable(seed, 200, d=3, K=3)
    if labels == "one class":
        y = np.ones_like(y)
    best = best_in_class(X * scale, y, B=B, n_classes=3)
    assert best.converged
    assert 0.0 <= best.loss <= 200 * np.log(3) + 1e-9


def test_the_gap_is_true_wherever_the_solver_stops(seed, monkeypatch):
    X, y = separable(seed, 200, d=3, K=3)
    exact = best_in_class(X, y, B=3.0, n_classes=3, tol=1e-12)
    assert exact.gap <= 1e-10
    for n_steps in (1, 2, 4, 8):
        monkeypatch.setattr("folklearn.evaluate.hindsight._MOST_STEPS", n_steps)
        best = best_in_class(X, y, B=3.0, n_classes=3)
        assert not best.converged
        assert exact.loss - 1e-10 <= best.loss <= exact.loss + best.gap
        assert best.at_least <= exact.loss


def test_nothing_and_one_row():
    best = best_in_class(np.empty((0, 2)), [], B=1.0, n_classes=2)
    assert (best.loss, best.gap, best.converged) == (0.0, 0.0, True)
    best = best_in_class([[1.0, 0.0]], [1], B=1.0, n_classes=2)
    assert best.loss == pytest.approx(np.log1p(np.exp(-2.0)), abs=1e-7)


def test_a_linear_model_is_scored_from_its_logits(rng):
    X, W = rng.normal(size=(50, 3)), 1e4 * rng.normal(size=(4, 3))
    y = rng.integers(4, size=50)
    expected = [log_loss(W @ x, label) for x, label in zip(X, y, strict=True)]
    np.testing.assert_allclose(linear_losses(X, y, W), expected, rtol=1e-12, atol=1e-9)
    soft = soft_labels(0, y, 4)
    expected = [log_loss(W @ x, label) for x, label in zip(X, soft, strict=True)]
    np.testing.assert_allclose(linear_losses(X, soft, W), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"B": 0.0}, "B must be a positive number"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"tol": -1.0}, "tol must be a positive number"),
        ({"X": [1.0, 2.0]}, "X has shape"),
        ({"X": [[1.0], [np.nan]]}, "row 1 of X has nan"),
        ({"y": [0, 2]}, r"label y\[1\] is 2"),
        ({"weight": [1.0]}, "weight has shape"),
    ],
)
def test_refusals(change, sentence):
    arguments = {"X": [[1.0], [2.0]], "y": [0, 1], "B": 1.0, "n_classes": 2} | change
    with pytest.raises(InvalidInputError, match=sentence):
        best_in_class(arguments.pop("X"), arguments.pop("y"), **arguments)
    with pytest.raises(InvalidInputError, match="W has shape"):
        linear_losses([[1.0]], [0], [1.0, 2.0])
