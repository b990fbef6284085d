"""`folklearn bandit`: what is played is what the library plays, told only right or wrong."""

import csv
import io
import os
import re
import sys
from functools import partial

import numpy as np
import pytest

from folklearn import Folklore, auto, bandits
from folklearn.bandits import BanditReduction, Banditron, Gaptron, Newtron, Obama, Soba
from folklearn.evaluate.interaction import interact
from tests.cli.conftest import standardise

TARGET = ["--target", "kind"]
FAST = ["--agent", "banditron"]
NAMES = (
    "auto, reduction, folklore, banditron, newtron, newtron-diagonal, soba, soba-diagonal, "
    "gaptron, obama"
)
AGENTS = {
    "auto": lambda e: bandits.auto(n_features=4, n_actions=3, scale=False),
    "reduction": lambda e: BanditReduction(
        auto(n_features=4, n_classes=3, max_weight=3),
        exploration=e or 0.1,
        decoding="randomised",
        updates="correct",
    ),
    "folklore": lambda e: BanditReduction(
        Folklore(n_features=4, n_classes=3),
        exploration=e or 0.1,
        decoding="randomised",
        updates="correct",
    ),
    "banditron": lambda e: Banditron(n_features=4, n_classes=3, exploration=e),
    "newtron": lambda e: Newtron(n_features=4, n_classes=3, D=3.0, exploration=e),
    "newtron-diagonal": lambda e: Newtron(
        n_features=4, n_classes=3, D=3.0, exploration=e, diagonal=True
    ),
    "soba": lambda e: Soba(n_features=4, n_classes=3, exploration=e),
    "soba-diagonal": lambda e: Soba(n_features=4, n_classes=3, exploration=e, diagonal=True),
    "gaptron": lambda e: Gaptron(n_features=4, n_classes=3, step=0.1, exploration=e),
    "obama": lambda e: Obama(n_features=4, n_classes=3, exploration=e),
}


@pytest.fixture
def scaled(as_arrays):
    X, y, labels = as_arrays
    return standardise(X), y, labels


@pytest.fixture
def refused(refusal):
    return partial(refusal, "bandit")


def read_log(path):
    header, *rows = csv.reader(io.StringIO(path.read_text("utf-8")))
    assert header == ["id", "action", "propensity", "correct"]
    ids, actions, propensities, correct = zip(*rows, strict=True)
    assert list(map(int, ids)) == list(range(len(rows)))
    return list(actions), [float(cell) for cell in propensities], [cell == "1" for cell in correct]


def table_rows(stderr):
    lines = [line.split() for line in stderr.splitlines()]
    return [cells for cells in lines if len(cells) == 5 and cells[0].isdecimal()]


@pytest.mark.parametrize("name", AGENTS)
def test_the_log_is_what_the_library_plays(folklearn, pets, scaled, tmp_path, name):
    X, y, labels = scaled
    path = tmp_path / "log.csv"
    outcome = folklearn("bandit", pets, *TARGET, "--agent", name, "--log", path)
    assert (outcome.code, outcome.stdout) == (0, "")
    expected = interact(AGENTS[name](None), X, y)
    actions, propensities, correct = read_log(path)
    assert actions == [labels[k] for k in expected.actions]
    np.testing.assert_allclose(propensities, expected.propensities, rtol=1e-9)
    assert correct == (expected.rewards == 1.0).tolist()
    assert f"error rate {expected.error_rate:.2%}; at random it would be 66.67%." in outcome.stderr
    assert outcome.stderr.endswith(f"Wrote the log to {path}.\n")


def test_the_table_and_the_summary(folklearn, pets, scaled):
    outcome = folklearn("bandit", pets, *TARGET, *FAST, "--exploration", "0.3")
    log = interact(Banditron(n_features=4, n_classes=3, exploration=0.3), *scaled[:2])
    rows = table_rows(outcome.stderr)
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    last = before = 0
    for row in rows:
        n, mistakes = int(row[0]), int(log.mistakes[int(row[0]) - 1])
        since = f"{(mistakes - before) / (n - last):.2%}"
        assert row[1:4] == [since, str(mistakes), f"{mistakes / n:.2%}"]
        last, before = n, mistakes
    doubtful = int((log.propensities < 0.5).sum())
    said = outcome.stderr
    assert re.search(rf"Played 300 rounds in \S+ s: {log.mistakes[-1]} mistakes, error rate ", said)
    assert f"{doubtful} actions ({doubtful / 300:.2%}) had a probability below 1/2: expl" in said
    assert "It learned from every outcome." in said
    assert "banditron, exploration 0.3, seed 0" in said
    assert "playing" not in said  # no bar, this is not a terminal


@pytest.mark.parametrize("delay", [1, 40, 299, 1000])
def test_outcomes_that_arrive_late(folklearn, pets, scaled, tmp_path, delay):
    path = tmp_path / "log.csv"
    outcome = folklearn("bandit", pets, *TARGET, *FAST, "--delay", delay, "--log", path)
    expected = interact(Banditron(n_features=4, n_classes=3), *scaled[:2], delay=delay)
    assert read_log(path)[1] == expected.propensities.tolist()
    assert read_log(path)[2] == (expected.rewards == 1.0).tolist()
    assert f"told {delay} decision{'s' * (delay > 1)} later" in outcome.stderr


def test_seeds(folklearn, pets, tmp_path):
    texts = []
    for place, seed in enumerate(("0", "1", "1")):
        path = tmp_path / f"{place}.csv"
        folklearn("bandit", pets, *TARGET, *FAST, "--seed", seed, "--log", path)
        texts.append(path.read_text("utf-8"))
    assert texts[0] != texts[1]
    assert texts[1] == texts[2]


def test_decoding_and_updates(folklearn, pets, scaled, tmp_path):
    path = tmp_path / "log.csv"
    arguments = ["--decoding", "sample", "--updates", "explored", "--exploration", "0.4"]
    outcome = folklearn("bandit", pets, *TARGET, "--agent", "folklore", *arguments, "--log", path)
    agent = BanditReduction(Folklore(n_features=4, n_classes=3), exploration=0.4)
    log = interact(agent, *scaled[:2])
    np.testing.assert_allclose(read_log(path)[1], log.propensities, rtol=1e-9)
    updates = agent.learner.certificate().n_rounds
    assert 0 < updates < 120
    assert f"Its learner was updated {updates} times in 300 outcomes." in outcome.stderr
    assert "folklore, exploration 0.4, decoding sample, updates explored, seed 0" in outcome.stderr


def test_the_theory_sets_exploration_by_the_number_of_rows(folklearn, pets):
    said = folklearn("bandit", pets, *TARGET, *FAST, "--theory").stderr
    exploration = Banditron(n_features=4, n_classes=3, horizon=300).exploration
    assert f"banditron, exploration {exploration:.3g} by its theory for 300 rounds" in said
    said = folklearn("bandit", pets, *TARGET, "--agent", "folklore", "--theory").stderr
    assert "folklore, exploration 1 by its theory for 300 rounds, decoding randomised, upd" in said
    assert "updates explored" in said  # what the bound is about
    said = folklearn("bandit", pets, *TARGET, "--agent", "gaptron", "--theory").stderr
    assert f"step {Gaptron(n_features=4, n_classes=3, horizon=300).step:.2g}" in said


def test_the_digits_need_no_file_and_the_plot_is_drawn(folklearn, tmp_path):
    plot = tmp_path / "out.png"
    outcome = folklearn("bandit", "--agent", "newtron-diagonal", "--plot", plot)
    assert "scikit-learn's digits: 1797 rows" in outcome.stderr
    assert table_rows(outcome.stderr)[-1][0] == "1797"
    assert float(table_rows(outcome.stderr)[-1][1].rstrip("%")) < 60.0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert outcome.stderr.endswith(f"Wrote the plot to {plot}.\n")


def test_what_the_plot_draws(folklearn, pets, scaled, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    folklearn("bandit", pets, *TARGET, *FAST, "--plot", tmp_path / "o.png")
    log = interact(Banditron(n_features=4, n_classes=3), *scaled[:2])
    (axes,) = drawn[0].axes
    errors, chance, doubts = axes.lines
    assert errors.get_xdata()[[0, -1]].tolist() == [1, 300]
    assert errors.get_ydata()[-1] == log.error_rate
    assert set(chance.get_ydata()) == {1.0 - 1.0 / 3.0}
    assert chance.get_linestyle() == ":"
    assert doubts.get_ydata()[-1] == np.mean(log.propensities < 0.5)


def test_quiet_says_nothing(folklearn, pets, tmp_path):
    path = tmp_path / "log.csv"
    outcome = folklearn("bandit", pets, *TARGET, *FAST, "--quiet", "--log", path)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "")
    assert path.exists()


def test_standard_input(folklearn, pets, tmp_path, monkeypatch):
    paths = tmp_path / "a.csv", tmp_path / "b.csv"
    folklearn("bandit", pets, *TARGET, *FAST, "--log", paths[0])
    with open(pets, encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        outcome = folklearn("bandit", "-", *TARGET, *FAST, "--log", paths[1])
    assert "standard input: 300 rows" in outcome.stderr
    assert paths[0].read_text("utf-8") == paths[1].read_text("utf-8")


def test_help_names_every_option(folklearn, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = " ".join(folklearn("bandit", "--help").stdout.replace("│", " ").split())
    for option in ("agent", "exploration", "theory", "decoding", "updates", "delay", "log"):
        assert f"--{option} " in said
    assert f"One of {NAMES}." in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--agent", "exp4"], f"there is no agent 'exp4'; choose one of: {NAMES}"),
        (
            ["--exploration", "0.1"],
            "auto explores by itself and takes no exploration; reduction does",
        ),
        ([*FAST, "--exploration", "1.5"], "exploration must be a number from 0 to 1, got 1.5"),
        ([*FAST, "--exploration", "nan"], "exploration must be a number from 0 to 1, got nan"),
        (
            ["--agent", "reduction", "--exploration", "0"],
            "exploration must be above 0 for reduction, which learns nothing without",
        ),
        (
            ["--agent", "soba", "--theory", "--exploration", "0.1"],
            "exploration cannot be combined with theory, which sets it",
        ),
        (
            ["--agent", "reduction", "--theory"],
            "theory needs a bound on the mistakes of reduction, and there is none: a mixture has "
            "no regret bound in closed form; choose one of: folklore, banditron, newtron, soba, "
            "gaptron, obama",
        ),
        (
            ["--agent", "soba-diagonal", "--theory"],
            "theory needs a bound on the mistakes of soba-diagonal, and there is none: no "
            "theorem covers a diagonal; choose one of: folklore, banditron, newtron, soba, "
            "gaptron, obama",
        ),
        (
            ["--agent", "folklore", "--decoding", "greedy"],
            "decoding must be sample or randomised, got 'greedy'",
        ),
        (
            ["--agent", "folklore", "--updates", "all"],
            "updates must be explored or correct, got 'all'",
        ),
        (
            ["--agent", "soba", "--decoding", "sample"],
            "soba takes no decoding; it is for reduction and folklore",
        ),
        (
            ["--agent", "obama", "--updates", "correct"],
            "obama takes no updates; it is for reduction and folklore",
        ),
        (["--delay", "-1"], "delay must be at least 0, got -1"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (["--plot", "o.txt"], "cannot draw o.txt: its name must end in .png, .svg, .pdf"),
    ],
)
def test_refusals_before_anything_is_read(refused, arguments, sentence):
    assert refused("no.csv", *TARGET, *arguments) == sentence


def test_files_that_are_refused(refused, pets, tmp_path):
    assert refused(tmp_path / "no.csv", *TARGET).endswith(
        "cannot be read: no such file or directory"
    )
    assert refused(pets).startswith(f"which column of {pets} holds the class?")
    assert "it would replace the input" in refused(pets, *TARGET, "--log", pets)
    assert refused(pets, *TARGET, "--log", "-") == (
        "cannot write the log to -: it cannot go to standard output"
    )
    one = tmp_path / "one.png"
    assert "share one file" in refused(pets, *TARGET, "--log", one, "--plot", one)


def test_obama_is_for_small_problems(refused):
    assert refused("--agent", "obama") == (
        "obama takes linear models of at most 30 coefficients, since it averages over all of them "
        "by particles, and 10 classes and 65 columns make 650: choose another agent, like auto"
    )


def test_agents_that_do_not_fit_in_memory(refused, pets, folklearn, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 30)
    needed = "3 classes and 3 features and a constant need 0.0 GB of memory"
    for name, advice in (
        ("newtron", "newtron-diagonal"),
        ("soba", "soba-diagonal"),
        ("auto", "banditron"),
    ):
        sentence = refused(pets, *TARGET, "--agent", name)
        assert sentence.startswith(f"{needed} for {name}, and")
        assert sentence.endswith(f"; {advice} needs next to none")
    assert folklearn("bandit", pets, *TARGET, *FAST).code == 0


def test_a_failure_while_playing_leaves_nothing(refused, pets, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device", "log.csv")

    monkeypatch.setattr("folklearn.bandits.banditron.Banditron._absorb", fail)
    monkeypatch.setattr("folklearn.bandits.catalogue.use_every_kernel", lambda _: None)
    outputs = ["--log", tmp_path / "log.csv", "--plot", tmp_path / "o.png"]
    said = refused(pets, *TARGET, *FAST, "--quiet", *outputs)
    assert said == "log.csv: No space left on device"
