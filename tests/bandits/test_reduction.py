"""The reduction against Algorithm 2 over the dense FOLKLORE, and how it sets exploration."""

import math

import numpy as np
import pytest

from folklearn import Aggregating, Folklore, Laplace, Learner, Ogd, Ons, auto
from folklearn.bandits import BanditReduction
from folklearn.bandits.reduction import DECODING_COST
from folklearn.errors import FolklearnError, InvalidInputError
from tests.bandits.forced import act_as, documented_exploration, easy_stream, learned, play
from tests.reference.bandits import DenseReduction, decoded, mistake_bound

DECODINGS = {"sample": 1.0, "randomised": DECODING_COST}
each_decoding = pytest.mark.parametrize("decoding", DECODINGS)


@each_decoding
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("updates", ["explored", "correct"])
def test_equals_the_dense_twin(updates, K, decoding, rng):
    d, B, gamma, exploration = 2, 2.0, 0.05, 0.2
    learner = Folklore(n_features=d, n_classes=K, B=B, gamma=gamma)
    options = {"decoding": decoding, "updates": updates}
    agent = BanditReduction(learner, exploration=exploration, **options)
    twin = DenseReduction(d, K, B, exploration, gamma=gamma, **options)
    for x in rng.normal(size=(40, d)) / 2:
        P = twin.probabilities(x)
        np.testing.assert_allclose(agent.policy(x), P, rtol=0.0, atol=1e-9)
        explored, correct = bool(rng.random() < 0.7), bool(rng.random() < 0.6)
        decision = act_as(agent, x, int(rng.choice(K, p=P)), explored=explored)
        assert decision.propensity == pytest.approx(P[decision.action], abs=1e-9)
        agent.learn(decision, correct)
        twin.learn(x, decision.action, decision.propensity, explored, correct)
    assert learner.certificate().valid
    assert learner.certificate().n_rounds > 5


@pytest.mark.parametrize("learner", [None, 3, Folklore, "folklore"])
def test_what_is_no_learner_is_refused(learner):
    with pytest.raises(InvalidInputError, match="not a learner"):
        BanditReduction(learner, exploration=0.1)


@pytest.mark.parametrize("explored", [True, False])
@pytest.mark.parametrize("correct", [True, False])
def test_only_correct_explorations_teach(explored, correct):
    agent = BanditReduction(Ogd(n_features=2, n_classes=3), exploration=0.5)
    twin = Ogd(n_features=2, n_classes=3)
    before = learned(agent)
    x = np.array([0.6, -0.8])
    agent.learn(act_as(agent, x, 2, explored=explored), correct)
    assert (learned(agent) != before) == (explored and correct)
    if explored and correct:
        twin.update(x, 2)
    np.testing.assert_array_equal(agent.learner.predict(x), twin.predict(x))


class Recorder(Learner):
    """Predicts always the same, and remembers what it is taught."""

    def __init__(self, p, max_weight=math.inf):
        self._size(1, len(p))
        self.p = np.array(p)
        self.lessons = []
        self.max_weight = max_weight

    def _predict(self, x):
        return self.p.copy()

    def _learn(self, x, label, soft, weight):
        self.lessons.append((label, weight))
        return 0.0


@pytest.mark.parametrize("explored", [True, False])
def test_every_correct_action_teaches_by_its_propensity(explored):
    agent = BanditReduction(Recorder([0.2, 0.7, 0.1]), exploration=0.3, updates="correct")
    for action in (0, 1, 2):
        agent.learn(act_as(agent, np.array([1.0]), action, explored=explored), True)
        agent.learn(act_as(agent, np.array([1.0]), action, explored=explored), False)
    expected = [(0, 0.3 / 0.24), (1, 0.3 / 0.59), (2, 0.3 / 0.17)]
    np.testing.assert_allclose(agent.learner.lessons, expected, rtol=1e-12)


def test_no_weight_exceeds_the_number_of_classes():
    agent = BanditReduction(Recorder([0.0, 1.0, 0.0]), exploration=0.1, updates="correct")
    agent.learn(act_as(agent, np.array([1.0]), 2), True)
    ((_, weight),) = agent.learner.lessons
    assert weight <= 3.0
    assert weight == pytest.approx(3.0, rel=1e-12)


def test_a_learner_of_lighter_weights_is_refused():
    with pytest.raises(InvalidInputError, match="takes weights up to 2 only.*=3"):
        BanditReduction(Recorder([0.2, 0.3, 0.5], 2.0), exploration=0.5, updates="correct")
    BanditReduction(Recorder([0.2, 0.3, 0.5], 3.0), exploration=0.5, updates="correct")
    sizes = {"n_features": 2, "n_classes": 3}
    with pytest.raises(InvalidInputError, match="construct it with max_weight=3"):
        BanditReduction(auto(**sizes), exploration=0.5, updates="correct")


@each_decoding
@pytest.mark.parametrize("K", [2, 3, 6])
def test_decoding(decoding, K, rng):
    agent = BanditReduction(Recorder(np.ones(K)), exploration=0.25, decoding=decoding)
    for concentration in (0.1, 0.5, 2.0):
        for p in rng.dirichlet(np.full(K, concentration), size=50):
            agent.learner.p = p
            expected = 0.75 * decoded(p, decoding) + 0.25 / K
            np.testing.assert_allclose(agent.policy([1.0]), expected, atol=1e-12)


def test_ties_go_to_the_lowest_class():
    agent = BanditReduction(Recorder([0.1, 0.45, 0.45]), exploration=0.3, decoding="randomised")
    np.testing.assert_allclose(agent.policy([1.0]), [0.17, 0.415, 0.415], atol=1e-12)
    agent.learner.p = np.array([0.0, 0.5, 0.5])  # the first that is ever preferred
    np.testing.assert_allclose(agent.policy([1.0]), [0.1, 0.45, 0.45], atol=1e-12)
    agent.learner.p = np.array([0.5 + 2e-16, 0.5 - 2e-16, 0.0])
    assert np.argmax(agent.policy([1.0])) == 0


def test_the_default_learns_and_a_horizon_explores_by_the_theory():
    def agent(**words):
        return BanditReduction(Folklore(n_features=2, n_classes=3, B=0.5), **words)

    assert agent().exploration == documented_exploration(BanditReduction) == 0.1
    assert 0.0 < agent(horizon=10**6).exploration < 1.0


def test_certainty_leaves_only_exploration():
    for decoding in DECODINGS:
        agent = BanditReduction(Recorder([0.0, 1.0, 0.0]), exploration=0.3, decoding=decoding)
        np.testing.assert_allclose(agent.policy([0.0]), [0.1, 0.8, 0.1], atol=1e-15)


@each_decoding
@pytest.mark.parametrize("make", [Folklore, Ogd, Ons, Aggregating])
def test_a_horizon_sets_exploration_by_the_regret_bound(make, decoding):
    parameters = {"n_features": 2, "n_classes": 3, "B": 0.5}
    T, cost = 10**6, DECODINGS[decoding]
    agent = BanditReduction(make(**parameters), horizon=T, decoding=decoding)
    expected = math.sqrt(cost * 3 * make(**parameters).regret_bound(T) / T)
    assert expected < 1.0
    assert agent.exploration == pytest.approx(expected, rel=1e-12)
    assert BanditReduction(make(**parameters), horizon=1, decoding=decoding).exploration == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"decoding": "argmax"}, "decoding must be one of 'sample', 'randomised'"),
        ({"updates": "wrong"}, "updates must be one of 'explored', 'correct'"),
        ({"exploration": 0.0}, "exploration must be above 0"),
        ({"exploration": 1.5}, "exploration must be a number from 0 to 1"),
        ({"exploration": math.nan}, "exploration must be a number from 0 to 1"),
        ({"exploration": 0.1, "horizon": 10}, "not both"),
        ({"exploration": "much"}, "exploration must be a number from 0 to 1"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 2.5}, "horizon must be an integer"),
        ({"exploration": 0.1, "seed": -3}, "seed must be at least 0"),
    ],
)
def test_constructor_checks(arguments, message):
    with pytest.raises(FolklearnError, match=message):
        BanditReduction(Folklore(n_features=2, n_classes=2), **arguments)


def test_learners_without_a_bound_need_exploration():
    sizes = {"n_features": 2, "n_classes": 2}
    for learner in (auto(**sizes), Laplace(**sizes), Ogd(**sizes, rate=0.1)):
        with pytest.raises(InvalidInputError, match="has none: give exploration"):
            BanditReduction(learner, horizon=1000)


def test_a_learner_that_cannot_save_itself_is_named(tmp_path):
    with pytest.raises(FolklearnError, match="Recorder.*cannot save itself"):
        BanditReduction(Recorder([0.5, 0.5]), exploration=0.5).save(tmp_path / "agent")


@each_decoding
@pytest.mark.parametrize("updates", ["explored", "correct"])
def test_learns_an_easy_stream(updates, decoding, rng):
    """Chance errs 0.75, exploration alone 0.075; this 0.08 to 0.09 +- 0.006 over seeds."""
    X, y = easy_stream(rng, 3000, 4)
    learner = Folklore(n_features=4, n_classes=4, B=30.0)
    options = {"decoding": decoding, "updates": updates}
    mistakes = play(BanditReduction(learner, exploration=0.1, seed=rng, **options), X, y)
    assert mistakes[1500:].mean() < 0.3


@each_decoding
def test_mistakes_stay_below_the_bound(decoding, seed):
    """The bound is on the mean: far above one run (MATH: half of it), so any seed passes."""
    rng = np.random.default_rng(seed)
    T, d, K, B = 4000, 2, 3, 1.0
    X = rng.normal(size=(T, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    W = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]]) * B
    Z = X @ W.T
    y = np.argmax(Z + rng.gumbel(size=(T, K)), axis=1)
    learner = Folklore(n_features=d, n_classes=K, B=B)
    agent = BanditReduction(learner, horizon=T, decoding=decoding, seed=rng)
    mistakes = play(agent, X, y).sum()
    loss = (np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(T), y]).sum()
    assert agent.exploration < 1.0
    assert mistakes <= mistake_bound(
        T, K, regret=learner.regret_bound(T), loss=loss,
        exploration=agent.exploration, cost=DECODINGS[decoding],
    )  # fmt: skip
