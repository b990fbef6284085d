"""What must survive growth, saving and rounding."""

import numpy as np
import pytest

from folklearn import Folklore, load
from folklearn.kernels.prediction_rules import IMPRECISE, ROUNDS
from folklearn.kernels.second_order import update_round

NO_SOFT = np.empty(0)


def voided(reason):
    """A learner whose certificate is void for a reason that only its totals know."""
    model = Folklore(n_features=2, n_classes=2, gamma=0.45 if reason == "gamma" else None)
    model.update([3.0, 4.0], 0)
    if reason == "digits":
        model._totals[IMPRECISE] += 1.0
    assert reason in model.certificate().reason
    return model


@pytest.mark.parametrize("reason", ["gamma", "digits"])
def test_a_void_certificate_stays_void_when_the_learner_grows(reason):
    model = voided(reason)
    model = model.grown(n_features=3, n_classes=4)
    assert reason in model.certificate().reason


@pytest.mark.parametrize("reason", ["gamma", "digits"])
def test_a_void_certificate_stays_void_in_a_file(reason, tmp_path):
    voided(reason).save(tmp_path / "model")
    assert reason in load(tmp_path / "model").certificate().reason


def indefinite(n_features):
    """A learner whose S has a negative direction that contexts of norm 1 do not show."""
    model = Folklore(n_features=n_features, n_classes=2, gamma=0.4, lam=1.0)
    model._S[1, 1] = -1e-3
    return model


@pytest.mark.parametrize("n_features", [2, 120])  # without BLAS, and in blocks
def test_an_update_that_would_spoil_the_state_is_counted_and_not_made(n_features):
    model = indefinite(n_features)
    S, theta = model._S.copy(), model._theta.copy()
    x = np.zeros(n_features)
    x[:2] = 1.0, 25.0
    update_round(model._S, model._memo, x, 0, NO_SOFT, 1e4)
    assert model._totals[IMPRECISE] == 1.0
    np.testing.assert_array_equal(np.tril(model._S), np.tril(S))
    np.testing.assert_array_equal(model._theta, theta)

    model = indefinite(n_features)
    model.run(np.tile(x, (8, 1)), np.zeros(8, int), weight=np.full(8, 1e4))
    assert model._totals[IMPRECISE] == model._totals[ROUNDS] == 8.0
    np.testing.assert_array_equal(np.tril(model._S), np.tril(S))


def test_forgetting_survives_a_state_that_rounding_has_spoiled():
    model = Folklore(n_features=2, n_classes=2, memory=10)
    model._S[1, 1] = -1e-9
    model._discount(0.9)
    S = np.tril(model._S)
    assert np.linalg.eigvalsh(S + np.tril(S, -1).T).min() > 0.0
