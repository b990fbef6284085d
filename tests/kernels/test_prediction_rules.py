"""What a round adds to the totals: every count that can void a certificate."""

import numpy as np
import pytest

from folklearn.kernels import prediction_rules
from folklearn.kernels.prediction_rules import (
    BRACKET,
    IMPRECISE,
    LOSS,
    N_TOTALS,
    OVERCURVED,
    ROUNDS,
)

NO_SOFT = np.empty(0)


def learned(
    *, q=(0.3,), C=((0.5,),), B=1.0, gamma=0.0, rule=prediction_rules.EXPLICIT, mu=0.0, **last
):
    """The totals of one round from C and q, with the arguments of `learn` in `last`."""
    k = len(q)
    constants = np.array([B, gamma, 0.5, mu, 1e15, 1.0, rule])
    squares, vectors = prediction_rules.small_arrays(k)
    squares[prediction_rules.C_AT] = C
    vectors[prediction_rules.Q_AT, :k] = q
    prediction_rules.predict_from_state(constants, np.array([[0.5], [-0.5]]), squares, vectors)
    totals = np.zeros(N_TOTALS)
    given = {"label": 0, "soft": NO_SOFT, "weight": 1.0, "length": 1.0, "mean": 0.0} | last
    loss = prediction_rules.learn(constants, squares, vectors, *given.values(), totals)
    return totals, loss, vectors[prediction_rules.PREDICTED].copy()


@pytest.mark.parametrize("rule", [prediction_rules.EXPLICIT, prediction_rules.IMPLICIT])
def test_rounds_and_losses_are_counted(rule):
    totals, loss, p = learned(rule=rule, weight=3.0)
    assert loss == pytest.approx(-np.log(p[0]), rel=1e-12)
    assert totals[LOSS] == pytest.approx(3.0 * loss, rel=1e-15)
    assert totals[ROUNDS] == 1.0
    assert totals[OVERCURVED] == totals[IMPRECISE] == 0.0


def test_a_curvature_above_the_valid_one_is_counted():
    assert learned(gamma=0.1, B=10.0)[0][OVERCURVED] == 1.0
    assert learned(gamma=0.01, B=10.0)[0][OVERCURVED] == 0.0
    assert learned(gamma=0.1, B=10.0, weight=0.0)[0][OVERCURVED] == 0.0


def test_a_round_that_costs_digits_is_counted():
    assert learned(C=((1e12,),), gamma=0.3)[0][IMPRECISE] == 1.0
    assert learned(C=((-1.0,),), gamma=0.3)[0][IMPRECISE] == 1.0


def test_what_an_implicit_rule_predicts_worse_is_in_the_bracket():
    """The state does not see the prediction, so a worse one costs the bracket what it loses."""
    plain, loss, _ = learned(rule=prediction_rules.IMPLICIT)
    worse, more, _ = learned(rule=prediction_rules.IMPLICIT, mu=0.5)
    assert abs(more - loss) > 0.01
    assert worse[BRACKET] - plain[BRACKET] == pytest.approx(more - loss, rel=1e-9)


def test_what_is_not_known_of_s_and_theta_is_in_the_bracket():
    """16 roundings of |x|^2/lam and of |x||theta|; the slopes of this round are near 1."""
    plain = learned(weight=1e6)[0][BRACKET]
    assert learned(weight=1e6, mean=1e12)[0][BRACKET] - plain > 1e-3
    # The norm of x also enters gamma, so that it is fixed here.
    short = learned(weight=1e3, gamma=1e-9, B=1e-9)[0][BRACKET]
    long = learned(weight=1e3, gamma=1e-9, B=1e-9, length=1e6)[0][BRACKET]
    assert long - short > 1e-4
