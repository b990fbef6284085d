"""Cost matrices, true label first: their shape, their meaning, their sign."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from folklearn.baselines import AdaBoostOLM
from folklearn.baselines.kernels import pairwise_costs
from folklearn.boosting import AdaBoostOLMpp
from folklearn.kernels.boosting import logistic_costs
from tests.reference import boosting as slow
from tests.reference.loss import log_loss
from tests.reference.weak_learners import AlwaysRight, AlwaysWrong, rounds

scores = st.lists(st.floats(-50.0, 50.0), min_size=2, max_size=7).map(np.array)
EXTREME = [
    [700.0, -700.0, 0.0],
    [-700.0, -701.0, -702.0],
    [1e300, -1e300, 0.0, 1.0],
    [1e300, 1e300, 1.0],
    [5e-324, 0.0],
    [745.2, 0.0],
]


@given(s=scores)
def test_the_logistic_costs_equal_their_twin(s):
    np.testing.assert_allclose(logistic_costs(s), slow.logistic_costs(s), rtol=1e-12, atol=1e-300)


@given(s=scores)
def test_the_pairwise_costs_equal_their_twin(s):
    np.testing.assert_allclose(pairwise_costs(s), slow.pairwise_costs(s), rtol=1e-12, atol=1e-300)


@given(s=scores)
def test_rows_are_non_negative_zero_at_the_label_and_sum_to_one_minus_its_probability(s):
    K = len(s)
    C, sigma = logistic_costs(s), softmax(s)
    assert (C >= 0.0).all()
    assert (np.diag(C) == 0.0).all()
    for y in range(K):
        others = sigma[np.arange(K) != y].sum()  # 1 - sigma_y without cancellation
        assert C[y].sum() == pytest.approx(others, rel=1e-12, abs=1e-300)


@given(s=scores)
def test_pairwise_rows_are_non_negative_zero_at_the_label_and_bounded(s):
    C = pairwise_costs(s)
    K = len(s)
    assert (C.sum(axis=1) <= K * (K - 1) * (1.0 + 1e-12)).all()
    assert (C >= 0.0).all()
    assert (np.diag(C) == 0.0).all()


@given(s=st.lists(st.floats(-8.0, 8.0), min_size=2, max_size=6).map(np.array))
def test_the_costs_are_the_gradient_of_minus_log_probability_shifted(s):
    """K C(y, k) = d/ds_k - d/ds_y of -log sigma_y; central differences err by about 1e-10."""
    K, h = len(s), 1e-4
    C = logistic_costs(s)
    for y in range(K):
        slope = [(log_loss(s + h * e, y) - log_loss(s - h * e, y)) / (2 * h) for e in np.eye(K)]
        np.testing.assert_allclose(K * C[y], np.array(slope) - slope[y], atol=1e-7)


@given(s=st.lists(st.floats(-8.0, 8.0), min_size=2, max_size=6).map(np.array))
def test_the_pairwise_costs_are_the_gradient_of_the_pairwise_loss_shifted(s):
    """The loss of label y is the sum over k != y of log(1 + e^(s_k - s_y))."""
    K, h = len(s), 1e-4

    def loss(v, y):
        return np.logaddexp(0.0, np.delete(v, y) - v[y]).sum()

    C = pairwise_costs(s)
    for y in range(K):
        slope = [(loss(s + h * e, y) - loss(s - h * e, y)) / (2 * h) for e in np.eye(K)]
        np.testing.assert_allclose(C[y], np.array(slope) - slope[y], atol=1e-7)


@given(s=scores, shift=st.floats(-100.0, 100.0))
def test_a_common_shift_of_the_scores_changes_no_cost(s, shift):
    np.testing.assert_allclose(logistic_costs(s + shift), logistic_costs(s), atol=1e-12)
    np.testing.assert_allclose(pairwise_costs(s + shift), pairwise_costs(s), atol=1e-11)


@pytest.mark.parametrize("s", EXTREME)
@pytest.mark.parametrize("costs", [logistic_costs, pairwise_costs])
def test_extreme_scores_stay_finite(s, costs):
    s = np.array(s)
    C = costs(s)
    assert np.isfinite(C).all()
    assert (C >= 0.0).all()
    assert (np.diag(C) == 0.0).all()
    most = 1.0 if costs is logistic_costs else len(s) * (len(s) - 1.0)
    assert (C.sum(axis=1) <= most + 1e-12).all()


every_sign = pytest.mark.parametrize(
    ("kind", "K"),
    [
        (AdaBoostOLMpp, 2),
        (AdaBoostOLMpp, 4),
        (AdaBoostOLM, 2),
        (AdaBoostOLM, 4),
    ],
)


@every_sign
def test_a_learner_that_is_always_right_pushes_the_right_score_up(rng, kind, K):
    T = 40
    y = rng.integers(0, K, T)
    booster = kind(
        n_features=1, n_classes=K, n_learners=3, weak_learner=[AlwaysRight(y) for _ in range(3)]
    )
    P = booster.run(rounds(T, 1), y)
    p = P[np.arange(T), y]
    assert (p[1:] > 1 / K).all()
    assert p[-1] > 0.8


@every_sign
def test_a_learner_that_is_always_wrong_pushes_its_label_down(rng, kind, K):
    T = 40
    y = rng.integers(0, K, T)
    booster = kind(
        n_features=1, n_classes=K, n_learners=3, weak_learner=[AlwaysWrong(y, K) for _ in range(3)]
    )
    P = booster.run(rounds(T, 1), y)
    said = P[np.arange(T), (y + 1) % K]
    # AdaBoost.OLM++ starts from even odds of right and wrong, not from 1/K.
    assert (np.diff(said) < 0).all()
    assert (said[10:] < 1 / K).all()
    assert said[-1] < 0.2 / (K - 1)
