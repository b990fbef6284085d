"""The best model in hindsight: proven, and the same as the slow solvers'."""

import mpmath as mp
import numpy as np
import pytest

from folklearn.arrays import logit_losses
from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import LossAndGradient, TotalLoss, best_in_class
from folklearn.evidence.passes import passes_over
from folklearn.synthetic import OBLIVIOUS, separable
from folklearn.validation import Rows
from tests.reference import fifty_digits
from tests.reference import hindsight as reference
from tests.reference.fifty_digits import total_loss as true_loss
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
        assert np.linalg.norm(best.W, axis=1).max() <= B * (1.0 + 1e-12)
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
    ("scale", "B", "labels", "converges"),
    [
        (1.0, 1e4, "separable", False),  # the loss is 0 for all purposes
        (1e3, 10.0, "separable", False),
        (1e-6, 10.0, "separable", True),
        (1.0, 10.0, "one class", True),
        (np.array([1e-3, 1.0, 1e3]), 10.0, "separable", False),
        (0.0, 10.0, "separable", True),
    ],
)
def test_extremes(scale, B, labels, converges, seed):
    X, y = separable(seed, 200, d=3, K=3)
    if labels == "one class":
        y = np.ones_like(y)
    best = best_in_class(X * scale, y, B=B, n_classes=3, most_passes=300)
    assert best.converged or not converges
    assert 0.0 <= best.at_least <= best.loss
    assert 0.0 <= best.loss <= 200 * np.log(3) + 1e-9


def test_the_gap_is_true_wherever_the_solver_stops(seed):
    X, y = separable(seed, 200, d=3, K=3)
    exact = best_in_class(X, y, B=3.0, n_classes=3, tol=1e-12)
    assert exact.gap <= 1e-9
    for n_passes in (1, 2, 3):
        best = best_in_class(X, y, B=3.0, n_classes=3, most_passes=n_passes)
        assert not best.converged
        assert exact.at_least <= best.loss <= exact.loss + best.gap
        assert best.at_least <= exact.loss


def test_a_small_loss_has_all_its_digits():
    for away in (1.0, 30.0, 50.0, 400.0):
        Z = np.array([[0.0, -away], [-away, 0.0]])
        expected = [np.log1p(np.exp(-away)), away + np.log1p(np.exp(-away))]
        hard = logit_losses(Z, np.zeros(2, int), np.empty((0, 2)))
        soft = logit_losses(Z, np.full(2, -1), np.array([[1.0, 0.0], [1.0, 0.0]]))
        np.testing.assert_allclose([hard, soft], [expected, expected], rtol=1e-15)


def test_a_huge_weight_does_not_lift_the_bound_above_the_loss():
    """logsumexp(z) - z_y is off by 1e-16 a unit of weight: here by a tenth of the loss."""
    X, y, weight = np.ones((1, 1)), np.array([5]), np.array([8.04e12])
    best = best_in_class(X, y, B=18.1357, n_classes=8, weight=weight)
    assert best.at_least <= true_loss(best.W, X, y, weight) <= best.loss
    assert best.loss <= 0.2
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(39, 2)), rng.integers(4, size=39)
        weight = 10.0 ** rng.uniform(-2.0, 13.3, size=39)
        best = best_in_class(X, y, B=5.0, n_classes=4, weight=weight)
        assert best.at_least <= true_loss(best.W, X, y, weight) <= best.loss
        assert best.gap <= 1e-2 * best.loss


@pytest.mark.parametrize("scale", [1e8, 1e9, 1e10, 1e14])
def test_long_rows_have_an_answer_and_the_gap_is_true(scale):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = scale * rng.normal(size=(66, 1))
        y = rng.integers(2, size=66) if seed % 2 else (X[:, 0] > 0.0).astype(int)
        best = best_in_class(X, y, B=1.75, n_classes=2)
        assert np.linalg.norm(best.W, axis=1).max() <= 1.75 * (1 + 1e-12)
        assert 0.0 <= best.at_least <= true_loss(best.W, X, y, np.ones(66)) <= best.loss
        assert best.loss <= 66 * np.log(2) * (1 + 1e-12)


def test_a_sum_of_losses_is_rounded_up():
    """Rows of 0 lose ln K whatever W is: nothing but the sum is rounded."""
    for seed in range(20):
        weight = np.random.default_rng(seed).random(100)
        rows = np.zeros((100, 1)), np.zeros(100, int)
        best = best_in_class(*rows, B=1.0, n_classes=3, weight=weight)
        with mp.workdps(fifty_digits.DIGITS):
            assert mp.fsum(fifty_digits.exact(weight)) * mp.log(3) <= best.loss


def test_the_rounding_of_logits_is_part_of_a_loss():
    """Logits of 1 that are differences of 1e8: they are off by 1e-8, and so is the loss."""
    W = np.array([[1e8, -1e8], [0.0, 0.0]])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.random(20)
        X, y = np.stack([x, x + 1e-8 * rng.normal(size=20)], axis=1), rng.integers(2, size=20)
        sizes = {"n_features": 2, "n_classes": 2}
        at = TotalLoss(passes_over(X, y, None, **sizes), **sizes).at(W)
        assert true_loss(W, X, y, np.ones(20)) <= at.loss_at_most <= at.loss + 1e-5


def test_many_classes_that_are_next_to_nothing_are_added_up_without_the_largest():
    """Each of 999 equal terms would be rounded in the same direction where it is added to 1."""
    K = 1000
    for size in (1.3e-6, 2.7e-6, 5.1e-6, 1.7e-5):
        down = (np.round(size * 2.0**52) + 0.45) * 2.0**-52  # 1 + this is rounded down
        W = np.full((K, 1), np.log(down))
        W[0] = 0.0
        rows = Rows.checked(np.ones((2, 1)), [0, 0], None, n_features=1, n_classes=K)
        with mp.workdps(fifty_digits.DIGITS):
            e = mp.exp(mp.mpf(float(W[1, 0])))
            loss = 2 * mp.log1p(999 * e)
        found = LossAndGradient.of(rows, W)
        assert loss <= mp.mpf(found.loss_at_most)
        assert found.loss == pytest.approx(float(loss), rel=1e-14)


def test_nothing_and_one_row():
    best = best_in_class(np.empty((0, 2)), [], B=1.0, n_classes=2)
    assert (best.loss, best.gap, best.converged) == (0.0, 0.0, True)
    best = best_in_class([[1.0, 0.0]], [1], B=1.0, n_classes=2)
    assert best.loss == pytest.approx(np.log1p(np.exp(-2.0)), abs=1e-7)


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
