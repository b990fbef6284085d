"""What learners mix: the parts make the whole, and who is needed elsewhere does not retire."""

import numpy as np
import pytest

from folklearn import Folklore, Leader, Mixture, SparseSgd, auto, load, synthetic
from folklearn.arrays import softmax
from folklearn.errors import InvalidInputError
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
    P = learner._expert_predictions(X[:50])
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


@pytest.mark.parametrize("name", ["auto", "auto in blocks", "wide"])
def test_the_leading_model_is_the_linear_expert_of_largest_weight(name):
    X, y = synthetic.stochastic(0, 700, d=3, K=3)
    learner = MADE[name]()
    learner.run(X, y)
    names = learner._expert_names()
    P = learner._expert_predictions(X[:1])[:, 0]
    for i, expert in enumerate(names):
        if expert == "folklore" or "SparseSgd" in expert:  # is no linear model
            continue
        weights = np.full(len(names), 0.4 / len(names))
        weights[i] += 0.6
        leading = learner._leading_model(X[0], weights)
        assert leading.share == weights[i]
        assert leading.name == expert or expert.endswith(leading.name)
        np.testing.assert_allclose(softmax(leading.W @ leading.values + leading.bias), P[i])
    own = learner._leading_model(X[0])
    assert 0.0 < own.share <= weights_of(learner).max()


@pytest.mark.parametrize("make", [auto, Leader])
def test_a_copy_to_predict_has_the_experts_alone(make):
    X, y = synthetic.stochastic(0, 700, d=3, K=3)
    learner = make(**SIZES)
    learner.run(X, y)
    fixed = learner.copy_to_predict()
    again = load(fixed.to_bytes())
    expected, row = learner.predict(X), learner.predict(X[0])
    experts, coef, n_rounds = learner.experts, learner.coef(), learner.n_rounds
    learner.run(X, y)  # the copy does not follow
    for copied in (fixed, again, fixed.copy_to_predict()):
        assert copied.predict(X).tobytes() == expected.tobytes()
        assert copied.predict(X[0]).tobytes() == row.tobytes()
        assert copied.experts == experts
        assert copied.coef().tobytes() == coef.tobytes()
        assert copied.n_rounds == n_rounds
        assert not copied.certificate().valid
        for learn in (lambda c=copied: c.update(X[0], 1), lambda c=copied: c.run(X, y)):
            with pytest.raises(InvalidInputError, match="made to predict cannot learn"):
                learn()
        with pytest.raises(InvalidInputError, match="made to predict cannot grow"):
            copied.grown(n_classes=4)
        assert copied.predict(X).tobytes() == expected.tobytes()
    assert fixed.n_bytes < 0.1 * learner.n_bytes
