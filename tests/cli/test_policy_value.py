"""`folklearn policy-value`: what it prints is what the library estimates."""

from functools import partial

import numpy as np
import pytest

from folklearn import DecisionModel, Folklore, interact, load, off_policy, synthetic
from folklearn.baselines import Banditron
from folklearn.evaluate.off_policy import (
    LearnedPolicy,
    best_constant,
    greedy,
    logged_value,
    uniform,
)
from folklearn.readers.decision_logs import read_log
from tests.cli.conftest import standardise

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
            label = f"0:{-log.rewards[t]}:{log.propensities[t]} " * (k == log.actions[t])
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


@pytest.fixture
def model(folklearn, pets, tmp_path):
    path = tmp_path / "pets.folk"
    assert folklearn("run", pets, *TARGET, "--save", path, "--quiet").code == 0
    return path


@pytest.mark.parametrize("play", ["best", "sample"])
def test_a_model_plays_its_classes_on_the_log_of_an_agent(
    folklearn, write_csv, as_arrays, tmp_path, play
):
    X, y, _ = as_arrays
    names, labels = ("a", "b", "c"), ("cat", "dog", "fox")
    rows = [(*x, labels[k]) for x, k in zip(X.tolist(), y, strict=True)]
    table = write_csv("animals.csv", rows, columns=(*names, "kind"))
    model, path = tmp_path / "animals.folk", tmp_path / "decisions.vw"
    assert folklearn("run", table, *TARGET, "--save", model, "--quiet").code == 0
    agent = Banditron(n_features=4, n_classes=3, exploration=0.5)
    write_log(interact(agent, standardise(X), y), path, names, labels, X)
    log = read_log(path)
    loaded = load(model)
    P = loaded.predict_proba(table)
    if play == "best":
        P = np.eye(P.shape[1])[P.argmax(axis=1)]
    order = [log.action_names.index(label) for label in loaded.labels]
    full = np.zeros((log.n_rounds, log.n_actions))
    full[:, order] = P / P.sum(axis=1, keepdims=True)
    said = folklearn("policy-value", path, "--policy", model, "--play", play).stdout
    assert line_of(str(model), off_policy(log, full)) in table(said)


def test_a_model_of_vw_text_plays_a_log_of_vw_text(folklearn, tmp_path):
    X, y = synthetic.stochastic(0, 600, d=3, K=3, B=8.0)
    rows = [
        " ".join(f"{name}:{value:.4f}" for name, value in zip("abc", x, strict=True)) for x in X
    ]
    lines = [f"{k + 1} |x {row}\n" for k, row in zip(y, rows, strict=True)]
    (tmp_path / "train.vw").write_text("".join(lines[:300]))
    played = [f"{(k % 3) + 1}:{-float(k % 2)}:0.5 |x {row}\n" for k, row in enumerate(rows[300:])]
    (tmp_path / "log.vw").write_text("".join(played))
    model = tmp_path / "train.folk"
    assert folklearn("run", tmp_path / "train.vw", "--save", model, "--quiet").code == 0
    said = folklearn("policy-value", tmp_path / "log.vw", "--policy", model).stdout
    (tmp_path / "test.vw").write_text("".join(lines[300:]))
    best = load(model).predict(tmp_path / "test.vw")
    P = np.eye(3)[[int(label) - 1 for label in best]]
    estimate = off_policy(read_log(tmp_path / "log.vw"), P)
    assert line_of(str(model), estimate) in table(said)


def test_actions_with_features(folklearn, refused, tmp_path, model, rng):
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
    assert "only an agent for actions with features" in refused(path, "--policy", model)


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


def test_refusals(refused, path, model, tmp_path):
    assert refused(tmp_path / "no.vw").endswith("cannot be read: no such file or directory")
    assert refused(path, "--play", "worst") == "--play must be best or sample, got 'worst'"
    assert "knows the class" in refused(path, "--policy", model)
    assert "confidence must be a number above 0 and below 1" in refused(path, "--confidence", "2")
    assert "the lower one first" in refused(path, "--reward-range", "1", "0")
    Folklore(n_features=3, n_classes=3).save(tmp_path / "learner.folk")
    assert refused(path, "--policy", tmp_path / "learner.folk").endswith(
        "holds a Folklore; --policy takes a model or an agent"
    )
