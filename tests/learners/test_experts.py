"""What learners mix: the parts make the whole, and who is needed elsewhere does not retire."""

import numpy as np
import pytest

from folklearn import Folklore, Mixture, SparseSgd, auto, synthetic
from folklearn.learners.catalogue import BLOCKS

SIZES = {"n_features": 3, "n_classes": 3}
MADE = {
    "auto": lambda: auto(**SIZES),
    "auto in blocks": lambda: auto(**SIZES, backend=BLOCKS),
    "wide": lambda: SparseSgd(**SIZES),
    "folklore": lambda: Folklore(**SIZES),
    "mixture": lambda: Mixture([Folklore(**SIZES, B=b) for b in (1.0, 5.0)]),
}


def weights_of(learner):
    if isinstance(learner, Mixture):
        return learner.weights[learner._alive]
    if isinstance(learner, SparseSgd):
        return learner._standing[0]
    return learner._state["weights"] if hasattr(learner, "experts") else np.ones(1)


@pytest.mark.parametrize("name", MADE)
def test_the_mixture_is_made_of_its_experts(name):
    X, y = synthetic.stochastic(0, 700, d=3, K=3)
    learner = MADE[name]()
    learner.run(X, y)
    norms = np.linalg.norm(X[:50], axis=1)
    P = learner._expert_predictions(X[:50], norms)
    assert P.shape == (len(learner._expert_names()), 50, 3)
    assert len(set(learner._expert_names())) == len(P)
    np.testing.assert_allclose(P.sum(axis=2), 1.0)
    mixed = np.tensordot(weights_of(learner), P, 1)
    np.testing.assert_allclose(mixed, learner.predict(X[:50]), atol=1e-12)


def survivors(standing):
    X, y = synthetic.stochastic(1, 4200, d=3, K=3)
    learner = auto(**SIZES)
    learner.standing = standing
    learner.run(X, y)
    return set(learner._expert_names())


def test_who_leads_elsewhere_does_not_retire():
    everybody = set(auto(**SIZES)._expert_names())
    usual = survivors({})
    gone = everybody - usual
    assert gone
    needed = min(gone)
    standing = dict.fromkeys(everybody, 2.0) | {needed: 1.0}
    assert needed in survivors(standing)


def test_where_both_games_have_one_winner_experts_retire_as_ever():
    everybody = set(auto(**SIZES)._expert_names())
    assert survivors(dict.fromkeys(everybody, 1.0)) == survivors({})
