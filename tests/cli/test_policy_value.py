"""`folklearn policy-value`: what it prints is what the library estimates."""

from functools import partial

import numpy as np
import pytest

from folklearn import DecisionModel, Folklore, interact, off_policy, synthetic
from folklearn.baselines import Banditron
from folklearn.evaluate.off_policy import (
    LearnedPolicy,
    best_constant,
    greedy,
    logged_value,
    uniform,
)
from folklearn.readers.decision_logs import read_log

TARGET = ["--target", "kind"]


@pytest.fixture
def refused(refusal):
    return partial(refusal, "policy-value")


@pytest.fixture(scope="module")
def log():
    X, y = synthetic.stochastic(0, 400, d=3, K=3, B=8.0)
    return interact(Banditron(n_features=3, n_classes=3, exploration=0.5), X, y)


@pytest.fixture
def path(log, tmp_path):
    write_log(log, tmp_path / "decisions.vw")
    return tmp_path / "decisions.vw"


def write_log(log, path, features=("x0", "x1", "x2"), actions=("1", "2", "3"), X=None):
    """Write the decisions of a log as VW's text, with a line for every action."""
    lines = []
    for t, x in enumerate((log.X if X is None else X).tolist()):
        numbers = [f"{name}:{value}" for name, value in zip(features, x, strict=True)]
        lines.append(f"shared | {' '.join(numbers)}")
        for k, action in enumerate(actions):
            label = f"0:{-log.rewards[t]}:{log.propensities[t]} " if k == log.actions[t] else ""
            lines.append(f"{label}'{action} |")
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")


def line_of(name, estimate):
    value = np.clip(estimate.value, estimate.low, estimate.high)
    cells = [f"{number:.4f}" for number in (value, estimate.low, estimate.high)]
    return [*name.split(), *cells, f"{estimate.effective_size:.0f}"]


def table(stdout):
    return [line.split() for line in stdout.splitlines()]


def test_what_is_printed_is_what_the_library_estimates(folklearn, log, path):
    outcome = folklearn("policy-value", path, "--confidence", "0.8")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert f"log       {path}: 400 decisions\nactions   3: 1, 2, 3\n" in outcome.stdout
    assert "features  x0, x1, x2\n" in outcome.stdout
    lines = table(outcome.stdout)
    assert line_of("the log's own", logged_value(log, confidence=0.8)) in lines
    for name, policy in {
        "uniform": uniform(log),
        "best constant action": LearnedPolicy(best_constant),
        "learned from this log": LearnedPolicy(greedy),
    }.items():
        assert line_of(name, off_policy(log, policy, confidence=0.8)) in lines


def test_an_agent_is_judged_by_its_policy(folklearn, log, path, tmp_path):
    agent = Banditron(n_features=3, n_classes=3, exploration=0.1)
    interact(agent, *synthetic.stochastic(1, 2000, d=3, K=3, B=8.0))
    agent.save(tmp_path / "agent.folk")
    said = folklearn("policy-value", path, "--policy", tmp_path / "agent.folk").stdout
    estimate = off_policy(log, agent)
    assert line_of(str(tmp_path / "agent.folk"), estimate) in table(said)
    sentence = f"agent.folk would have earned {estimate.value:.4f} a decision, between "
    assert sentence + f"{estimate.low:.4f} and {estimate.high:.4f} with 95% confidence: " in said
    worth = f"{estimate.effective_size:.0f} of 400 decisions."
    assert said.endswith(f"For it the log is worth {worth}\n")


def test_actions_with_features(folklearn, tmp_path, rng):
    blocks = []
    for _ in range(60):
        first, second = rng.normal(size=2)
        reward = float(first > second)
        blocks.append(f"shared | s\n0:{-reward}:0.5 | a:{first:.3f}\n| a:{second:.3f}\n\n")
    path = tmp_path / "log.vw"
    path.write_text("".join(blocks))
    said = folklearn("policy-value", path).stdout
    assert "actions   2 to 2 in a decision, with features" in said
    assert "best constant action" not in said
    assert line_of("uniform", off_policy(read_log(path), uniform(read_log(path)))) in table(said)


def test_bad_decisions_and_the_range_of_rewards(folklearn, refused, tmp_path):
    path = tmp_path / "log.vw"
    path.write_text("1:1:0.5 | a\n" * 5 + "2 | a\n" + "2:0:0.5 | a\n" * 5)
    words = ["--reward-range", "0", "1"]
    assert refused(path, *words).startswith(
        f"line 1 of {path}: the cost is 1, a reward of -1, which is not"
    )
    assert "--reward-range LOW HIGH" in refused(path, *words)
    assert refused(path).startswith(f"line 6 of {path}: the label is '2'; expected")  # costs
    said = folklearn("policy-value", path, "--on-bad-row", "skip", "--actions", "4").stdout
    assert f"{path}: 10 decisions; 1 bad one skipped\nactions   4\n" in said
    assert line_of("uniform", off_policy(read_log(path, reward_range=(-1, 0), n_actions=4,
                   on_bad=lambda bad: None), np.full((10, 4), 0.25))) in table(said)  # fmt: skip


def test_a_policy_beside_that_plays_nothing_of_the_log(folklearn, tmp_path):
    """The best action of the past is never played again."""
    path = tmp_path / "log.vw"
    path.write_text("1:-1:0.5 | a\n" + "2:0:0.5 | a\n" * 9)
    said = table(folklearn("policy-value", path).stdout)
    assert ["best", "constant", "action", "-", "-", "-", "-"] in said


def test_an_estimate_outside_its_interval_is_not_printed(folklearn, tmp_path):
    path = tmp_path / "log.vw"
    path.write_text("1:-1:0.9 | x:1\n" * 30 + "2:0:0.02 | x:1\n" * 3)
    log = read_log(path)
    estimate = off_policy(log, uniform(log))
    assert not estimate.low <= estimate.value <= estimate.high
    said = folklearn("policy-value", path).stdout
    digits = 10 ** (len(str(estimate.n_missing)) - 2)
    n = -(-estimate.n_missing // digits) * digits
    expected = ["uniform", "-", "-", "-", f"{estimate.effective_size:.0f}"]
    assert [*expected, *f"too little data: about {n:,} decisions more".split()] in table(said)
    model = folklearn_decisions(["1", "2"], tmp_path)
    said = folklearn("policy-value", path, "--policy", model).stdout
    assert f"What {model} would have earned this log cannot tell, too little data: about" in said


def folklearn_decisions(actions, folder):
    """Save decisions that play every action with the same probability."""
    DecisionModel(actions).save(folder / "decisions.folk")
    return folder / "decisions.folk"


def test_decisions_are_judged_by_the_names_of_their_actions(
    folklearn, refused, log, path, tmp_path
):
    model = DecisionModel(["3", "1", "2"])
    for t in range(300):
        row = dict(zip(["x2", "x0", "x1"], log.X[t][[2, 0, 1]].tolist(), strict=True))
        model.learn_logged(row, str(log.actions[t] + 1), float(log.rewards[t]))
    model.save(tmp_path / "decisions.folk")
    said = folklearn("policy-value", path, "--policy", tmp_path / "decisions.folk").stdout
    rows = [{f"x{j}": float(value) for j, value in enumerate(x)} for x in log.X]
    P = [[*model.policy(row, ["1", "2", "3"]).values()] for row in rows]
    assert line_of(str(tmp_path / "decisions.folk"), off_policy(log, P)) in table(said)
    other = folklearn_decisions(["1", "2"], tmp_path)
    assert "has never met the action '3' of the log" in refused(path, "--policy", other)
    shop = DecisionModel({"a": {"price": 1.0}})
    shop.save(other)
    menus = [f"shared | age:3\n|\n0:1:0.5 | price:{n}\n\n" for n in range(1, 9)]
    (tmp_path / "menus.vw").write_text("".join(menus))
    said = folklearn("policy-value", tmp_path / "menus.vw", "--policy", other).stdout
    assert "features  age, price" in said


def test_refusals(refused, path, tmp_path):
    assert refused(tmp_path / "no.vw").endswith("cannot be read: no such file or directory")
    assert "confidence must be a number above 0 and below 1" in refused(path, "--confidence", "2")
    assert "the lower one first" in refused(path, "--reward-range", "1", "0")
    Folklore(n_features=3, n_classes=3).save(tmp_path / "learner.folk")
    assert refused(path, "--policy", tmp_path / "learner.folk").endswith(
        "holds a Folklore; --policy takes a DecisionModel or an agent"
    )
