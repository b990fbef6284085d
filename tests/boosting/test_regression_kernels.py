"""Each part of the bound of a boosting regression is needed."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from folklearn.kernels import boosting as kernels
from tests.reference import boosting as reference
from tests.reference.boosting_regression import BoostingRegression


@pytest.mark.parametrize("regression", ["folklore", "aioli"])
def test_what_clipping_costs_is_in_the_bound(regression):
    """With horizon 1 the scores are clipped to 0, and alpha = 2 is all that is left of them."""
    T = 50
    model = BoostingRegression(n_classes=2, regression=regression, horizon=1)
    for _ in range(T):
        model.update([5.0, 0.0], label=0, y=0)
    best = T * math.log1p(math.exp(-7.0))
    clipped = T * math.log1p(math.exp(-2.0))
    assert model.certificate(2.0).best_linear_at_least <= best < 0.1 * clipped


def test_the_rounding_of_sums_is_known_exactly():
    row = np.array([1e16])
    assert kernels._add(row, 0, 3.0) == 1.0
    assert row[0] == 1e16 + 4.0
    row = np.array([3.0])
    assert kernels._add(row, 0, 1e16) == 1.0


@pytest.mark.parametrize("place", [0, 1, 2])  # of the true class, from the lowest score
@pytest.mark.parametrize("said", [0, 2])
def test_rounding_is_in_the_bound(said, place, rng):
    """At alpha = 0 there is no ridge: brackets and their allowances are all there is."""
    weight = 1.23456789e14
    for _ in range(40):
        s = rng.normal(size=3) * 10.0 ** rng.uniform(0.0, 2.4)
        order = np.argsort(s)
        label, y = int(order[said]), int(order[place])
        model = BoostingRegression(n_classes=3, regression="offset")
        for _ in range(3):
            model.update(s, label=label, y=y, weight=weight)
        exact = reference.exact_loss([s] * 3, [label] * 3, [y] * 3, [weight] * 3, 0.0)
        assert Decimal(model.certificate(0.0).best_linear_at_least) <= exact


def exact_bracket(s, A, weight, gamma, m):
    """Of the offset A alpha^2, two classes, class 0 said and seen, and the margin m played."""
    with localcontext() as context:
        context.prec = 50
        gap = Decimal(s[0]) - Decimal(s[1]) - Decimal(m)
        tail, weight = (-Decimal(m)).exp(), Decimal(weight)
        p = 1 / (1 + tail)
        slope, curvature = weight * (p - 1), weight * Decimal(gamma) * p * tail / (1 + tail)
        # The least of A alpha^2 + slope (gap + alpha) + curvature (gap + alpha)^2.
        quadratic, linear = Decimal(A) + curvature, slope + 2 * curvature * gap
        return linear**2 / (4 * quadratic) - slope * gap - curvature * gap**2


def test_the_rounding_of_margins_is_in_the_bracket(rng):
    """Where c e^2 is small beside e, the rounding of far margins is most of what rounding does."""
    for _ in range(100):
        A, o = 10.0 ** rng.uniform(1.0, 4.0), rng.uniform(25.0, 34.0)
        weight = A * math.exp(o) * 10.0 ** rng.uniform(-2.0, 0.0)
        s = np.array([o, 0.0]) + rng.uniform(-o, 0.0)
        row = BoostingRegression(n_classes=2, regression="offset").row
        row[kernels.A11] = A
        margin = kernels._predict_margin(row, kernels.OFFSET, 0.0, s[0] - s[1])[4]
        gamma = kernels.gamma_star_below(abs(s[0] - s[1]) + kernels.REACH)
        kernels.learn_regression(row, kernels.OFFSET, 0.0, s, 0, 0, weight)
        exact = exact_bracket(s, A, weight, gamma, margin)
        assert Decimal(float(row[kernels.BRACKET])) >= exact


def test_the_rest_keeps_a_tiny_class():
    top, rest = kernels._rest(np.array([7.0, 0.0, -50.0]), 0)
    assert (top, rest) == (0.0, pytest.approx(math.exp(-50.0), rel=1e-12, abs=0.0))
