"""`folklearn boost`: what is learned is what the library learns, told as it is."""

import importlib.util
import sys
from functools import partial

import numpy as np
import pytest

from folklearn import Folklore
from folklearn.boosting import (
    AdaBoostOL,
    AdaBoostOLM,
    AdaBoostOLMpp,
    NaiveBayes,
    OnlineMBBM,
    Probabilistic,
    random_subspaces,
)
from tests.cli.conftest import standardise

TARGET = ["--target", "kind"]
FAST = ["--weak", "naive-bayes", "--n-learners", "5"]


def naive_bayes(n_classes):
    return lambda index, rng: Probabilistic(NaiveBayes(n_features=4, n_classes=n_classes))


def course(booster, X, y):
    """Log losses, and whether mixture and label were wrong, each before learning."""
    losses, wrong, wrong_label = [], [], []
    for x, label in zip(standardise(X), y, strict=True):
        wrong.append(booster.predict(x).argmax() != label)
        wrong_label.append(booster.predict_label(x) != label)
        losses.append(booster.update(x, label))
    return np.array(losses), np.array(wrong), np.array(wrong_label)


def table_rows(stderr):
    lines = [line.split() for line in stderr.splitlines()]
    return [cells for cells in lines if len(cells) == 6 and cells[0].isdecimal()]


@pytest.fixture
def refused(refusal):
    return partial(refusal, "boost")


def test_the_table_and_the_summary(folklearn, pets, as_arrays):
    X, y, _ = as_arrays
    outcome = folklearn("boost", pets, *TARGET, *FAST)
    assert (outcome.code, outcome.stdout) == (0, "")
    booster = AdaBoostOLMpp(n_features=4, n_classes=3, n_learners=5, weak_learner=naive_bayes(3))
    losses, wrong, wrong_label = course(booster, X, y)
    rows = table_rows(outcome.stderr)
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    last = 0
    for row in rows:
        n = int(row[0])
        assert float(row[1]) == pytest.approx(losses[last:n].mean(), abs=6e-5)
        assert float(row[2]) == pytest.approx(losses[:n].mean(), abs=6e-5)
        assert row[3:5] == [f"{wrong[:n].mean():.2%}", f"{wrong_label[:n].mean():.2%}"]
        last = n
    said = outcome.stderr
    assert "olm++, 5 weak learners of kind naive-bayes, regression folklore, seed 0" in said
    assert f"average log loss {losses.mean():.4f} nats of the mixture; error rate" in said
    assert f"{wrong_label.mean():.2%} by the label that Hedge follows." in said
    errors = booster.n_mistakes / 300
    assert f"The first weak learner alone: error rate {errors[0]:.2%}; best, the first" in said
    assert f"{errors.argmin() + 1} of 5: {errors.min():.2%}." in said


@pytest.mark.parametrize(
    ("arguments", "make"),
    [
        (
            ["--weak", "naive-bayes", "--regression", "offset"],
            lambda: AdaBoostOLMpp(
                n_features=4,
                n_classes=3,
                n_learners=3,
                weak_learner=naive_bayes(3),
                regression="offset",
            ),
        ),
        (
            ["--booster", "olm", "--weak", "folklore-subspace", "--seed", "3"],
            lambda: AdaBoostOLM(
                n_features=4,
                n_classes=3,
                n_learners=3,
                weak_learner=random_subspaces(
                    lambda d: Folklore(n_features=d, n_classes=3), n_features=4
                ),
                seed=3,
            ),
        ),
        (
            ["--booster", "mbbm", "--weak", "naive-bayes", "--edge", "0.2"],
            lambda: OnlineMBBM(
                n_features=4, n_classes=3, n_learners=3, weak_learner=naive_bayes(3), edge=0.2
            ),
        ),
        (["--booster", "olm++"], lambda: AdaBoostOLMpp(n_features=4, n_classes=3, n_learners=3)),
    ],
)
def test_boosters_and_weak_learners(folklearn, write_csv, rows, as_arrays, arguments, make):
    X, y, _ = as_arrays
    path = write_csv("short.csv", rows[:100])
    outcome = folklearn("boost", path, *TARGET, "--n-learners", "3", *arguments)
    losses, wrong, wrong_label = course(make(), X[:100], y[:100])
    last = table_rows(outcome.stderr)[-1]
    assert float(last[2]) == pytest.approx(losses.mean(), abs=6e-5)
    assert last[3:5] == [f"{wrong.mean():.2%}", f"{wrong_label.mean():.2%}"]


def test_two_classes_with_the_ancestor(folklearn, write_csv, rows):
    two = [[*row[:-1], str(float(row[0]) > 5.0)] for row in rows]
    outcome = folklearn("boost", write_csv("two.csv", two), *TARGET, *FAST, "--booster", "ol")
    scaled = np.array([[float(cell) for cell in row[:-1]] for row in rows])
    booster = AdaBoostOL(n_features=4, n_learners=5, weak_learner=naive_bayes(2))
    losses, _, _ = course(booster, scaled, scaled[:, 0] > 5.0)
    assert f"average log loss {losses.mean():.4f} nats" in outcome.stderr


def test_mbbm_takes_the_majority(folklearn, pets):
    said = folklearn("boost", pets, *TARGET, *FAST, "--booster", "mbbm").stderr
    assert "mbbm, 5 weak learners of kind naive-bayes, edge 0.1, seed 0" in said
    assert " by the majority of votes." in said


def test_the_digits_need_no_file_and_the_plot_is_drawn(folklearn, tmp_path):
    plot = tmp_path / "out.png"
    outcome = folklearn("boost", *FAST, "--plot", plot)
    assert "scikit-learn's digits: 1797 rows" in outcome.stderr
    assert float(table_rows(outcome.stderr)[-1][3].rstrip("%")) < 20.0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert outcome.stderr.endswith(f"Wrote the plot to {plot}.\n")


def test_what_the_plot_draws(folklearn, pets, as_arrays, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    folklearn("boost", pets, *TARGET, *FAST, "--plot", tmp_path / "o.png")
    booster = AdaBoostOLMpp(n_features=4, n_classes=3, n_learners=5, weak_learner=naive_bayes(3))
    _, wrong, wrong_label = course(booster, *as_arrays[:2])
    top, bottom = drawn[0].axes
    ends = [line.get_ydata()[-1] for line in top.lines]
    assert ends == [wrong.mean(), wrong_label.mean(), booster.n_mistakes[0] / 300]
    assert bottom.lines[0].get_xdata().tolist() == [1, 2, 3, 4, 5]
    assert bottom.lines[0].get_ydata().tolist() == (booster.n_mistakes / 300).tolist()


def test_quiet_and_standard_input(folklearn, pets, monkeypatch):
    outcome = folklearn("boost", pets, *TARGET, *FAST, "--quiet")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "")
    with open(pets, encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        outcome = folklearn("boost", "-", *TARGET, *FAST)
    assert "standard input: 300 rows" in outcome.stderr


def test_seeds(folklearn, pets):
    def last_row(seed):
        arguments = ["--weak", "folklore-subspace", "--n-learners", "3", "--seed", seed]
        return table_rows(folklearn("boost", pets, *TARGET, *arguments).stderr)[-1][:5]

    assert last_row("1") == last_row("1")
    assert last_row("1") != last_row("2")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--booster", "xgb"],
            "there is no booster 'xgb'; choose one of: olm++, olm, mbbm, ol",
        ),
        (
            ["--weak", "stump"],
            "there is no weak learner 'stump'; choose one of: tree, naive-bayes, folklore-subspace",
        ),
        (["--n-learners", "0"], "n_learners must be at least 1, got 0"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (
            ["--booster", "olm", "--regression", "aioli"],
            "olm takes no regression; only olm++ does",
        ),
        (["--edge", "0.2"], "olm++ takes no edge; only mbbm does"),
        (
            ["--regression", "ridge"],
            "regression must be folklore, aioli or offset, got 'ridge'",
        ),
        (
            ["--booster", "mbbm", "--edge", "1"],
            "edge must be a number between 0 and 1, got 1.0: how much better than guessing "
            "every weak learner is",
        ),
        (["--plot", "o.txt"], "cannot draw o.txt: its name must end in .png, .svg, .pdf"),
    ],
)
def test_refusals_before_anything_is_read(refused, arguments, sentence):
    assert refused("no.csv", *TARGET, *arguments) == sentence


def test_ol_is_for_two_classes(refused, pets):
    assert refused(pets, *TARGET, *FAST, "--booster", "ol") == (
        "ol is for two classes, and there are 3; choose olm++, which is for any number"
    )


def test_trees_without_river(refused, pets, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "river" else find(name)
    )
    assert refused(pets, *TARGET) == (
        "trees need River, which comes with the extra: pip install 'folklearn[river]'; or choose "
        "naive-bayes"
    )


def test_a_failure_while_learning_leaves_nothing(refused, pets, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("no")

    monkeypatch.setattr("folklearn.boosting.weak.naive_bayes.NaiveBayes.update", fail)
    monkeypatch.setattr("folklearn.boosting.catalogue.use_every_kernel", lambda _: None)
    said = refused(pets, *TARGET, *FAST, "--quiet", "--plot", tmp_path / "o.png")
    weak = "Probabilistic(NaiveBayes(n_features=4, n_classes=3))"
    assert said.startswith(f"weak learner 0, {weak}, failed to learn")


def test_the_plot_does_not_replace_the_data(refused, pets):
    picture = pets.rename(pets.with_suffix(".png"))
    assert "it would replace the input" in refused(picture, *TARGET, *FAST, "--plot", picture)
