"""Decisions for rows: their twin, what waits for a reward, and what is proven."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import folklearn
from folklearn import DecisionModel
from folklearn.errors import InvalidInputError, StateFileError
from tests.reference.rewards import PlainDecisions

TEAS = {"green": {"price": 2.0}, "black": {"price": 1.0}, "mate": {"price": 3.0}}


def draw_row(rng):
    row = {"age": float(rng.normal(40, 9)), "country": ["DE", "PE", "FR"][rng.integers(3)]}
    if rng.random() < 0.2:
        del row["age"]
    return row | ({"late": float(rng.normal())} if rng.random() < 0.1 else {})


def draw_reward(rng, t):
    return float(rng.random()) if t % 3 == 0 else float(rng.random() < 0.4)


def played(model, rng, T=90, menu=None, delay=2):
    """Let a model decide and learn; the last decisions wait."""
    waiting = []
    for t in range(T):
        waiting.append(model.decide(draw_row(rng), menu))
        if len(waiting) > delay:
            model.reward(waiting.pop(int(rng.integers(len(waiting)))).id, draw_reward(rng, t))
    return model


@pytest.mark.parametrize("has_features", [False, True])
@pytest.mark.parametrize("delay", [0, 3])
def test_equals_models_of_the_rewards(has_features, delay, rng):
    """Of numbers: a model of one action learns of a category when its own rows have it."""
    menu = TEAS if has_features else [*TEAS]
    model = DecisionModel(menu, strength=0.3, roles={"action": "ignored"})
    twin = PlainDecisions(0.3, (lambda row, action: "all") if has_features else lambda row, a: a)
    waiting = []
    for t in range(150):
        row = {"age": float(rng.normal(40, 9)), "hour": int(rng.integers(24))}
        if t > 40 and t % 5 == 0:
            row["age"] = None
        rows = {a: {**row, **TEAS[a], "action": a} if has_features else row for a in TEAS}
        P = twin.probabilities(rows)
        np.testing.assert_allclose([*model.policy(row).values()], P, rtol=0, atol=1e-6)
        expected = [*model.expected_rewards(row).values()]
        np.testing.assert_allclose(expected, 1 - twin.losses(rows), rtol=0, atol=1e-6)
        before = model.policy(row)
        decision = model.decide(row)
        assert decision.propensity == before[decision.action]
        twin.t += 1
        waiting.append((decision, rows[decision.action]))
        while len(waiting) > delay:
            decision, row = waiting.pop(int(rng.integers(len(waiting))))
            reward = draw_reward(rng, t)
            model.reward(decision, reward)
            twin.learn(row, decision.action, reward)


def test_a_declared_context_has_the_columns_of_features(rng):
    """With all columns declared the model is the same as if they had come by themselves."""
    columns = {"age": "number", "price": "number", "action": [*TEAS]}
    declared, free = DecisionModel(TEAS, context=columns), DecisionModel(TEAS)
    for t in range(60):
        row, reward = {"age": float(rng.normal())}, draw_reward(rng, t)
        chosen = [model.decide(row) for model in (declared, free)]
        assert chosen[0].action == chosen[1].action
        for model, decision in zip((declared, free), chosen, strict=True):
            model.reward(decision, reward)
    unnamed = DecisionModel(TEAS, context={"age": "number", "price": "number"})
    twins = {"one": {"price": 2.0}, "two": {"price": 2.0}}
    unnamed.reward(unnamed.decide({"age": 1.0}), 1.0)
    expected = unnamed.expected_rewards({"age": 1.0}, twins)
    assert expected["one"] == expected["two"]
    with pytest.raises(InvalidInputError, match="colour is not in the context"):
        declared.decide({"age": 1.0}, {"a": {"colour": 1.0}})


def test_actions_that_were_not_offered_for_long_are_forgotten(rng):
    model = DecisionModel(max_actions=3)
    for t in range(9):
        model.reward(model.decide({"x": 1.0}, ["always", f"offer {t}"], id=t), 1.0)
    assert model.actions == ("offer 7", "always", "offer 8")
    assert model.regressions.keys() <= {*model.actions}
    assert (
        model.n_forgotten
        == 9 - sum(name != "always" for name in model.regressions) - (model.rewards["always"][0])
    )
    assert "forgotten" in model.regret_certificate().reason
    assert model.expected_rewards({"x": 1.0}, ["offer 0"]) == {"offer 0": 0.5}
    with pytest.raises(InvalidInputError, match="4 actions are more than max_actions, 3"):
        model.decide({"x": 1.0}, ["a", "b", "c", "d"])
    late = model.decide({"x": 1.0}, ["gone"])
    for t in range(3):
        model.decide({"x": 1.0}, [f"new {t}"])
    model.reward(late, 1.0)  # learned, and the next decision forgets it again
    assert DecisionModel.from_record(model.to_record()).to_bytes() == model.to_bytes()


@pytest.mark.parametrize("menu", [None, [*TEAS], TEAS])
def test_goes_on_from_a_file_as_if_there_were_none(menu, rng, tmp_path):
    model = DecisionModel(["green", "black"] if menu is None else menu, wait=40, default_reward=0)
    played(model, rng)
    model.decide({"age": np.float64(3.0), "day": pd.Timestamp("2024-05-31")}, id="mine")
    model.save(tmp_path / "decisions.folk")
    again = folklearn.load(tmp_path / "decisions.folk")
    for each in (model, again):
        played(each, np.random.default_rng(5), 30)
        each.reward("mine", 1.0)
    assert again.to_bytes() == model.to_bytes()
    assert repr(again) == repr(model)


def test_words_are_learned(tmp_path):
    model = DecisionModel(["sport", "news"])
    texts = ["the match ended in a draw", "parliament votes on the budget"]
    for t in range(60):
        decision = model.decide({"text": texts[t % 2], "hour": t % 5})
        model.reward(decision.id, (decision.action == "sport") == (t % 2 == 0))
    assert model.policy({"text": "a match ended"})["sport"] > 0.8
    assert folklearn.load(model.to_bytes()).to_bytes() == model.to_bytes()


def test_curves_and_products_are_found():
    """A line cannot tell the sign of a product."""
    rng, earned = np.random.default_rng(0), []
    model = DecisionModel(["same", "other"])
    for _ in range(700):
        x, y = rng.normal(size=2)
        decision = model.decide({"x": x, "y": y})
        earned.append(decision.action == ("same" if x * y > 0 else "other"))
        model.reward(decision, earned[-1])
    assert np.mean(earned[-300:]) > 0.85


def test_features_tell_of_an_action_that_was_never_played(rng):
    model = DecisionModel()
    for _ in range(200):
        menu = {f"offer {n}": {"price": float(rng.uniform(0, 10))} for n in range(3)}
        decision = model.decide({}, menu)
        model.reward(decision, menu[decision.action]["price"] < 4)
    expected = model.expected_rewards({}, {"cheap": {"price": 1.0}, "dear": {"price": 9.0}})
    assert expected["cheap"] > expected["dear"] + 0.5


def test_actions_come_and_go(rng):
    model = DecisionModel(["a", "b"], reward_range=(-1, 3))
    played(model, rng, 40, delay=0)
    assert set(model.policy({}, ["b", "new"])) == {"b", "new"}
    assert model.expected_rewards({}, ["new"]) == {"new": 1.0}  # the middle, until one came
    decision = model.decide({}, ["new"])
    assert (decision.action, decision.propensity) == ("new", 1.0)
    model.reward(decision, -1)
    assert model.actions == ("a", "b", "new")
    assert model.rewards["new"] == (1, -1.0)
    assert model.expected_rewards({}, ["new"])["new"] < 1.0


def test_a_range_of_rewards_is_scaled(rng):
    """Rewards from -2 to 6 are played like their shares of that range."""
    model, shares = DecisionModel([*TEAS], reward_range=(-2, 6)), DecisionModel([*TEAS])
    for t in range(60):
        row, reward = draw_row(rng), draw_reward(rng, t)
        first, second = model.decide(row), shares.decide(row)
        assert (first.action, first.propensity) == (second.action, second.propensity)
        model.reward(first, 8 * reward - 2)
        shares.reward(second, reward)
    assert model.mean_reward == pytest.approx(8 * shares.mean_reward - 2)
    assert model.rewards[first.action][1] == pytest.approx(8 * shares.rewards[first.action][1] - 2)


def test_a_log_is_learned_like_decisions(rng):
    """But the draw: a log has its own actions."""
    model, logged = DecisionModel([*TEAS]), DecisionModel([*TEAS])
    for t in range(40):
        row, reward = draw_row(rng), draw_reward(rng, t)
        decision = model.decide(row)
        model.reward(decision, reward)
        logged.learn_logged(row, decision.action, reward)
    row = draw_row(rng)
    assert logged.expected_rewards(row) == model.expected_rewards(row)
    assert logged.n_decisions == 0
    shop = DecisionModel()
    shop.learn_logged({"age": 3}, "green", 1.0, features={"price": 1.0})
    assert shop.expected_rewards({"age": 3}, TEAS)["black"] > 0.5


# --- What waits ---------------------------------------------------------------------------------


def test_decisions_expire(rng):
    model = DecisionModel(["a", "b"], default_reward=0.25, wait=2)
    ids = [model.decide({"x": 1.0}, id=f"event {n}").id for n in range(4)]
    assert [decision.id for decision in model.pending] == ids[1:]
    assert (model.n_expired, model.n_rewards, model.n_dropped) == (1, 1, 0)
    model.expire(ids[1])
    model.drop(ids[2])
    model.reward(ids[3], True)
    assert (model.n_expired, model.n_rewards, model.n_dropped) == (2, 3, 1)
    assert model.mean_reward == 1.0  # of those that came
    few = DecisionModel(["a", "b"], max_pending=2)
    for _ in range(5):
        few.decide({})
    assert (len(few.pending), few.n_dropped, few.n_rewards) == (2, 3, 0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.decide([1.0]), "must be a dictionary of columns"),
        (lambda m: m.decide({"age": "old"}), "age"),
        (lambda m: m.decide({"age": 1e300}), "age|norm|too large"),
        (lambda m: m.decide({}, ["a", "a"]), "two actions have the same name"),
        (lambda m: m.decide({}, []), "no action to choose from"),
        (lambda m: m.decide({}, "ab"), "list of names"),
        (lambda m: m.decide({}, [0.5]), "string or an integer"),
        (lambda m: m.decide({}, TEAS), "are only names: give a list"),
        (lambda m: m.decide({"new": 1.0}, id=m.pending[0].id), "give another id"),
        (lambda m: m.reward(m.pending[0], 1.5), "reward must be a number from 0 to 1, got 1.5"),
        (lambda m: m.reward(m.pending[0], math.nan), "from 0 to 1, got nan"),
        (lambda m: m.reward(m.pending[0], "1"), "from 0 to 1"),
        (lambda m: m.reward(0, 1.0), "no decision waits under the id 0"),
        (lambda m: m.reward("x", 1.0), "no decision waits under the id 'x'"),
        (lambda m: m.reward([0], 1.0), "the id of a decision must be a string or an integer"),
        (lambda m: m.expire(0), "no decision waits"),
        (lambda m: m.learn_logged({"age": "old"}, "a", 1.0), "age"),
        (lambda m: m.learn_logged({"new": 1.0}, "a", 2.0), "from 0 to 1"),
    ],
)
def test_what_is_refused_changes_nothing(call, said, rng):
    model = played(DecisionModel(["a", "b"]), rng, 30)
    before = model.to_bytes()
    with pytest.raises(InvalidInputError, match=said):
        call(model)
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"actions": {"a": 1}}, "must be a dictionary"),
        ({"max_actions": 0}, "max_actions must be"),
        ({"context": {"x": "words"}}, 'is "number", or the list'),
        ({"reward_range": (1, 0)}, "lower one first"),
        ({"reward_range": (0, 0)}, "lower one first"),
        ({"reward_range": (0, float("inf"))}, "lower one first"),
        ({"reward_range": (-1e308, 1e308)}, "lower one first"),
        ({"default_reward": 2}, "default_reward must be a number from 0 to 1"),
        ({"roles": {"x": "what"}}, "cannot have the role"),
        ({"exploration": "none"}, "exploration must be one of"),
        ({"strength": 0}, "strength must be a positive number"),
    ],
)
def test_parameters_are_checked(words, said):
    with pytest.raises(InvalidInputError, match=said):
        DecisionModel(**words)


def test_columns_in_common_are_refused():
    model = DecisionModel(TEAS)
    for row in ({"price": 1.0}, {"action": "x"}):
        with pytest.raises(InvalidInputError, match="a column in common, or one that is called"):
            model.decide(row)


def test_a_declared_context_is_closed(rng):
    model = DecisionModel(["a", "b"], context={"x": "number", "land": ["DE", "PE"]})
    for _ in range(20):
        decision = model.decide(
            {"x": float(rng.normal()), "land": ["DE", "PE", "FR"][rng.integers(3)]}
        )
        model.reward(decision, 0.5)
    assert len(model.encoder) == 3
    assert model.policy({"land": "FR"}) == model.policy({})
    with pytest.raises(
        InvalidInputError, match="sky is not in the context of this model, which is: x, land"
    ):
        model.decide({"sky": 1})
    again = folklearn.load(model.to_bytes())
    with pytest.raises(InvalidInputError, match="sky"):
        again.check_row({"sky": 1})


def test_a_state_whose_regressions_do_not_fit_is_refused(rng):
    record = played(DecisionModel(["a", "b"]), rng, 30).to_record()
    record.config["encoder"]["config"]["keys"] = record.config["encoder"]["config"]["keys"][:1]
    with pytest.raises(StateFileError, match="does not fit its columns"):
        DecisionModel.from_record(record)


# --- What is proven -----------------------------------------------------------------------------


def test_the_certificate_covers_the_regret_in_its_world():
    """Rewards are sigmoids of lines: the bound holds, and its parts are what they should be."""
    rng, truth = np.random.default_rng(3), {"a": (1.0, 0.5), "b": (-1.0, 0.2)}
    model, regret, losses, best = DecisionModel(["a", "b"], strength=0.5), 0.0, {}, {}
    for _ in range(600):
        x = float(rng.normal())
        means = {a: expit(w * x + c) for a, (w, c) in truth.items()}
        policy, expected = model.policy({"x": x}), model.expected_rewards({"x": x})
        regret += max(means.values()) - sum(policy[a] * means[a] for a in means)
        decision = model.decide({"x": x})
        a, reward = decision.action, float(rng.random() < means[decision.action])
        model.reward(decision, reward)
        losses[a] = losses.get(a, 0.0) - math.log(expected[a] if reward else 1 - expected[a])
        best[a] = best.get(a, 0.0) - math.log(means[a] if reward else 1 - means[a])
    proven = model.regret_certificate(B=1.5)  # the logit has half the difference of two rows
    assert proven.valid
    assert proven.n_rounds == 600
    excess = sum(max(0.0, losses[a] - best[a]) for a in truth)
    assert proven.regression >= excess
    assert regret <= proven.bound
    assert proven.bound == proven.explored + proven.eta * proven.regression
    assert proven.eta == pytest.approx(0.5 * math.sqrt(2 * 600))  # price 1 of FastCB
    smaller = model.regret_certificate(B=0.5)
    assert smaller.regression < proven.regression
    assert "numbers standardised by the first rewards of each action" in proven.in_words()
    assert "of actions to choose from do not depend on the rewards" in proven.in_words()


def test_nothing_is_proven_about_late_or_lost_rewards(rng):
    def reason(use):
        model = played(DecisionModel(["a", "b"]), rng, 20, delay=0)
        assert model.regret_certificate().valid
        use(model)
        return model.regret_certificate().reason

    def late(model):
        first, second = model.decide({}), model.decide({})
        model.reward(second, 1)
        model.reward(first, 1)

    assert reason(late) == "1 reward came after a later decision, or after a log"
    assert reason(lambda m: m.decide({})) == ""  # the last one may wait
    assert reason(lambda m: [m.decide({}), m.decide({})]) == "1 decision had no reward of their own"
    assert reason(lambda m: m.drop(m.decide({}))) == "1 decision had no reward of their own"

    def log(model):
        decision = model.decide({})
        model.learn_logged({}, "a", 1.0)
        model.reward(decision, 1.0)

    assert reason(log).startswith("1 reward came after")
