"""Scores and calibration: strict, and the same as scikit-learn's where both are defined."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss, mean_squared_error

from folklearn import Folklore
from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import best_in_class
from folklearn.metrics.scores import MIN_PROBABILITY, progressive, score
from folklearn.synthetic import stochastic
from tests.reference.streams import soft_labels

T, K = 400, 3


@pytest.fixture
def predictions(rng):
    P = softmax(2 * rng.normal(size=(T, K)), axis=1)
    return P, rng.integers(K, size=T), rng.random(T)


def test_against_scikit_learn(predictions):
    P, y, weight = predictions
    scores = score(P, y, weight=weight)
    options = {"labels": range(K), "sample_weight": weight}
    assert scores.log_loss == pytest.approx(log_loss(y, P, **options), rel=1e-12)
    assert scores.brier == pytest.approx(
        mean_squared_error(np.eye(K)[y], P, sample_weight=weight) * K, rel=1e-12
    )
    assert scores.error_rate == pytest.approx(weight @ (P.argmax(axis=1) != y) / weight.sum())
    assert scores.loss == pytest.approx(scores.log_loss * weight.sum(), rel=1e-12)


def test_hard_labels_are_soft_labels(predictions):
    P, y, weight = predictions
    hard, soft = score(P, y, weight=weight), score(P, np.eye(K)[y], weight=weight)
    np.testing.assert_allclose(hard.losses, soft.losses, rtol=1e-14)
    for name in ("loss", "log_loss", "error_rate", "brier", "calibration_error"):
        assert getattr(hard, name) == pytest.approx(getattr(soft, name), rel=1e-12)


def test_nothing_is_skipped():
    P = [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [1e-20, 1.0]]
    scores = score(P, [0, 0, 0, 0])
    np.testing.assert_allclose(
        scores.losses,
        [-np.log(MIN_PROBABILITY), 0.0, np.log(2.0), -np.log(MIN_PROBABILITY)],
        rtol=1e-12,
    )


def test_regret(seed):
    X, y = stochastic(seed, T, d=3, K=K)
    best = best_in_class(X, y, B=10.0, n_classes=K)
    scores = progressive(Folklore(n_features=3, n_classes=K), X, y)
    learner = Folklore(n_features=3, n_classes=K)
    losses = [learner.update(x, int(label)) for x, label in zip(X, y, strict=True)]
    assert scores.loss == pytest.approx(sum(losses), rel=1e-9)
    assert scores.loss - best.loss <= learner.certificate(best.W).regret_bound


def test_weights_reach_the_learner_and_the_scores(seed, rng):
    X, y = stochastic(seed, T, d=3, K=K)
    weight = rng.random(T) * 3
    learner = Folklore(n_features=3, n_classes=K)
    scores = progressive(learner, X, soft_labels(seed, y, K), weight=weight)
    assert scores.loss == pytest.approx(learner.certificate().loss, rel=1e-9)


def test_calibration_by_hand():
    P = [[0.92, 0.08], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [1.0, 0.0]]
    scores = score(P, [0, 1, 1, 1, 0])
    curve = scores.calibration()
    np.testing.assert_allclose(curve.predicted, [0.7, 0.8, 0.91, 1.0])
    np.testing.assert_allclose(curve.observed, [1.0, 1.0, 0.5, 1.0])
    np.testing.assert_allclose(curve.count, [1, 1, 2, 1])
    assert curve.error == pytest.approx(0.2 * 0.3 + 0.2 * 0.2 + 0.4 * 0.41)


def test_true_probabilities_are_calibrated_and_overconfident_ones_are_not(rng):
    P = softmax(2 * rng.normal(size=(20_000, K)), axis=1)
    y = (P.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
    # 15 bins of standard deviation about 0.014 or less each: the mean stays below 0.03.
    assert score(P, y).calibration_error < 0.03
    bold = P**3 / (P**3).sum(axis=1, keepdims=True)
    assert score(bold, y).calibration_error > 0.08


def test_a_weight_counts_like_repetition(predictions):
    P, y, _ = predictions
    weight = np.arange(T) % 3
    repeated = np.repeat(np.arange(T), weight)
    once, often = score(P, y, weight=weight), score(P[repeated], y[repeated])
    for name in ("loss", "log_loss", "error_rate", "brier", "calibration_error"):
        assert getattr(once, name) == pytest.approx(getattr(often, name), rel=1e-12)


@pytest.mark.parametrize(
    ("P", "sentence"),
    [
        ([[0.5, 0.5], [0.5, 0.6]], "row 1 of P sums to 1.1; probabilities must sum to 1"),
        ([[0.5, 0.5], [-0.5, 1.5]], "row 1 of P gives class 0 the probability -0.5"),
        ([[0.5, np.nan], [0.5, 0.5]], "row 0 of P gives class 1 the probability nan"),
        ([[0.5, np.inf], [0.5, 0.5]], "row 0 of P gives class 1 the probability inf"),
        ([0.5, 0.5], "P has shape"),
        ([["a", "b"], ["c", "d"]], "P must hold real numbers"),
    ],
)
def test_rows_that_are_no_distributions(P, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        score(P, [0, 1])


def test_other_refusals():
    P = [[0.5, 0.5]]
    with pytest.raises(InvalidInputError, match="nothing to score"):
        _ = score(P, [0], weight=[0.0]).log_loss
    with pytest.raises(InvalidInputError, match="nothing to score"):
        score(np.empty((0, 2)), []).calibration()
