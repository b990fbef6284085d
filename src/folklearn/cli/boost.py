"""`folklearn boost`: learn rows by boosting weak learners, predicting each row first."""

import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from folklearn import plots
from folklearn.arrays import Array
from folklearn.boosting import catalogue as boosters
from folklearn.boosting.booster import Booster
from folklearn.cli.display import Table, follow, new_console, warnings_shown
from folklearn.cli.options import Columns, Source, explained
from folklearn.cli.outputs import Outputs
from folklearn.cli.whole import Whole
from folklearn.report import canvas
from folklearn.words import counted

_TABLE = Table(
    [
        ("", "loss since", "average", "error of", "error of", ""),
        ("rows", "last line", "log loss", "mixture", "label", "rows/s"),
    ]
)


@explained(
    f"""
--n-learners N  Number of weak learners.
--booster NAME  One of {", ".join(boosters.NAMES)}; ol is for two classes.
--weak NAME  Kind of the weak learners, one of {", ".join(boosters.WEAK_NAMES)}. Trees are River's
    and by far the slowest.
--regression {"|".join(boosters.REGRESSIONS)}  How olm++ learns whom to trust. Default: folklore.
--edge  For mbbm: how much better than guessing every weak learner is, between 0 and 1.
    Default: 0.1.
"""
)
def boost(
    source: Source,
    columns: Columns,
    n_learners: int = 20,
    booster: str = boosters.DEFAULT,
    weak: str = boosters.DEFAULT_WEAK,
    regression: str | None = None,
    edge: float | None = None,
    seed: int = 0,
    plot: str | None = None,
    quiet: bool = False,
) -> None:
    """Boost weak learners on line, predicting each row before its label is seen.

    The mixture weighs the votes of the first 1, 2, ..., N weak learners by
    their log losses and gives probabilities; the label follows one of these
    votes, chosen by their mistakes.

    The file is read twice: once to check every value, once to learn.
    Standard input is stored first. Results go to standard error.
    """
    settings = boosters.Settings(booster, weak, n_learners, regression, edge, seed)
    console = new_console(quiet)
    with Outputs(source.file) as outputs, warnings_shown(console):
        plot_path = outputs.promise_plot(plot)
        whole = Whole(console, "boost", source, columns.roles())
        model = boosters.make(settings, whole.n_inputs + 1, len(whole.labels))
        console.print(whole.about(("booster", boosters.described(model, settings))))
        boosters.use_every_kernel(settings)
        started = time.perf_counter()
        course = _Course(model)
        follow(
            console, _TABLE, course.learned(whole), course.cells, what="learning",
            total=whole.n_rows,
        )  # fmt: skip
        seconds = time.perf_counter() - started
        if plot_path is not None:
            title = f"folklearn boost: {booster} on {Path(whole.name).name}"
            outputs.draw(course.drawn(title, settings.label), plot_path)
        console.print(course.summary(settings, seconds))
        outputs.commit(console)


class _Course:
    """What a booster did in every round."""

    def __init__(self, booster: Booster) -> None:
        self._booster = booster
        self.losses = array("d")
        self.wrong, self.wrong_labels = array("b"), array("b")  # of the mixture, and of the label
        self.first = array("q")  # mistakes of the first weak learner by then
        self._shown = 0  # rounds by the last line

    def learned(self, whole: Whole) -> Iterator[int]:
        """Learn every row; yield how many were learned."""
        booster = self._booster
        for X, y in whole.blocks():
            for x, label in zip(X, y.tolist(), strict=True):
                self.wrong.append(int(booster.predict(x).argmax()) != label)
                self.wrong_labels.append(booster.predict_label(x) != label)
                self.losses.append(booster.update(x, label))
                self.first.append(int(booster.n_mistakes[0]))
                yield len(self.losses)

    def cells(self, speed: float) -> list[str]:
        """Return a line of the table."""
        n, since = len(self.losses), self.losses[self._shown :]
        self._shown = n
        losses = f"{sum(since) / len(since):.4f}", f"{sum(self.losses) / n:.4f}"
        errors = f"{sum(self.wrong) / n:.2%}", f"{sum(self.wrong_labels) / n:.2%}"
        return [f"{n}", *losses, *errors, f"{speed:.0f}"]

    @property
    def prefix_errors(self) -> Array:
        """The error rates of the first 1, 2, ... weak learners."""
        errors: Array = self._booster.n_mistakes / len(self.losses)
        return errors

    def drawn(self, title: str, label: str) -> object:
        """Return error rates over the rounds, and at the end those of 1, 2, ... learners."""
        at = plots.places(len(self.losses))
        lines = {
            "mixture": np.cumsum(self.wrong)[at - 1] / at,
            label: np.cumsum(self.wrong_labels)[at - 1] / at,
            "first weak learner": np.array(self.first)[at - 1] / at,
        }
        page = canvas.figure(7.5, 6.5)
        top, bottom = page.subplots(2, 1, height_ratios=[3, 2])
        plots.curves(at, lines, title=title, y="error rate so far", shares=True, ax=top)
        errors = self.prefix_errors
        plots.curves(
            np.arange(1, len(errors) + 1), {"at the end": errors}, x="number of weak learners",
            y="error rate", shares=True, ax=bottom,
        )  # fmt: skip
        return page

    def summary(self, settings: boosters.Settings, seconds: float) -> str:
        """Return the result."""
        n, errors = len(self.losses), self.prefix_errors
        best = int(errors.argmin())
        return (
            f"Learned {counted(n, 'row')} in {seconds:.2f} s: average log loss "
            f"{sum(self.losses) / n:.4f} nats of the mixture; error rate "
            f"{sum(self.wrong) / n:.2%} by its most probable class, "
            f"{sum(self.wrong_labels) / n:.2%} by {settings.label}.\n"
            f"The first weak learner alone: error rate {errors[0]:.2%}; best, the first "
            f"{best + 1} of {settings.n_learners}: {errors[best]:.2%}."
        )
