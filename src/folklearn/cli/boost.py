"""`folklearn boost`: learn a stream by boosting weak learners, predicting each example first."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from folklearn.boosting.booster import Booster
from folklearn.cli import boosters, report
from folklearn.cli import plot as plots
from folklearn.cli.inputs import open_table, refuse_weights
from folklearn.cli.learning import bar
from folklearn.cli.moments import block_sizes, is_doubling
from folklearn.cli.options import Drop, File, Format, Quiet, Target, Text, new_console
from folklearn.cli.outputs import Outputs
from folklearn.cli.warmup import announced
from folklearn.model.scaler import OnlineScaler
from folklearn.streams.table import Table, classes
from folklearn.words import counted

_WIDTHS = (10, 12, 12, 12, 12, 12)
_TITLES = (
    ("", "loss since", "average", "error of", "error of", ""),
    ("rounds", "last row", "log loss", "mixture", "label", "examples/s"),
)


def boost(
    file: File = None,
    target: Target = None,
    format: Format = None,
    text: Text = None,
    drop: Drop = None,
    n_learners: Annotated[
        int, typer.Option("--n-learners", metavar="N", help="Number of weak learners.")
    ] = 20,
    booster: Annotated[
        str,
        typer.Option(
            "--booster",
            metavar="NAME",
            help=f"One of {', '.join(boosters.NAMES)}; ol is for two classes.",
        ),
    ] = boosters.DEFAULT,
    weak: Annotated[
        str,
        typer.Option(
            "--weak",
            metavar="NAME",
            help=f"Kind of the weak learners, one of {', '.join(boosters.WEAK_NAMES)}. Trees are "
            "River's and by far the slowest.",
        ),
    ] = boosters.DEFAULT_WEAK,
    regression: Annotated[
        str | None,
        typer.Option(
            "--regression",
            metavar="|".join(boosters.REGRESSIONS),
            help="How olm++ learns whom to trust. Default: folklore.",
        ),
    ] = None,
    edge: Annotated[
        float | None,
        typer.Option(
            "--edge",
            help="For mbbm: how much better than guessing every weak learner is, between 0 "
            "and 1. Default: 0.1.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is random.")] = 0,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot",
            metavar="OUT.png",
            help="Draw the error rates over the rounds, and those of the first 1, 2, 3, ... "
            "weak learners at the end.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Boost weak learners on line, predicting each example before its label is seen.

    The mixture weighs the votes of the first 1, 2, ..., N weak learners by
    their log losses and gives probabilities; the label follows one of these
    votes, chosen by their mistakes.

    The file is read twice: once to check every value, once to learn.
    Standard input is copied to a temporary file first.
    Results go to standard error.
    """
    settings = boosters.Settings(booster, weak, n_learners, regression, edge, seed)
    console = new_console(quiet)
    if plot is not None:
        plots.refuse_unless_drawable(plot)
    with Outputs() as outputs:
        outputs.protect(file)
        plot_path = outputs.promise("--plot", plot)
        with open_table(file, target, format, text, drop) as table:
            refuse_weights(table, "folklearn boost")
            labels = classes(table)
            model = boosters.make(settings, table.n_inputs + 1, len(labels))
            about = ("booster", boosters.described(model, settings))
            console.print(report.about(table, labels, about))
            with announced(console):
                boosters.use_every_kernel(settings)
            started = time.perf_counter()
            moments = _learn(model, table, labels, console)
            seconds = time.perf_counter() - started
        if plot_path is not None and plot is not None:
            title = f"folklearn boost: {booster} on {Path(table.name).name}"
            _draw(moments, settings, title, plot_path, Path(plot).suffix)
        outputs.commit()
    console.print(_summary(moments[-1], settings, seconds))
    if plot is not None:
        console.print(f"Wrote the plot to {plot}.")


@dataclass(frozen=True, eq=False)
class _Moment:
    """Where a booster stands after some rounds; everything counts from the first one."""

    n_rounds: int
    loss: float
    n_mistakes: int  # of the mixture
    n_wrong_labels: int
    prefixes: NDArray[np.float64]  # mistakes of the first 1, 2, ..., N weak learners

    @property
    def prefix_errors(self) -> NDArray[np.float64]:
        errors: NDArray[np.float64] = self.prefixes / self.n_rounds
        return errors


def _learn(
    booster: Booster, table: Table, labels: tuple[str, ...], console: Console
) -> list[_Moment]:
    """Learn every row; return where the booster stood at each stop."""
    scaler = OnlineScaler(n_features=table.n_inputs, gaps=True)
    moments: list[_Moment] = []
    now = last_shown = _Moment(0, 0.0, 0, 0, booster.n_mistakes)
    console.print("\n".join(report.line(titles, _WIDTHS) for titles in _TITLES), style="bold")
    started = time.perf_counter()
    with bar(console) as progress:
        task = progress.add_task("learning", total=table.n_rows)
        for X, y, _ in table.blocks(table.columns, labels, block_sizes(0)):
            loss, n_mistakes, n_wrong_labels = now.loss, now.n_mistakes, now.n_wrong_labels
            for x, label in zip(scaler.learn_transform(X), y.tolist(), strict=True):
                n_mistakes += int(booster.predict(x).argmax()) != label
                n_wrong_labels += booster.predict_label(x) != label
                loss += booster.update(x, label)
                progress.advance(task)
            n_rounds = now.n_rounds + len(y)
            now = _Moment(n_rounds, loss, n_mistakes, n_wrong_labels, booster.n_mistakes)
            moments.append(now)
            if is_doubling(n_rounds) or n_rounds == table.n_rows:
                speed = n_rounds / (time.perf_counter() - started)
                console.print(_row(last_shown, now, speed))
                last_shown = now
    return moments


def _row(last_shown: _Moment, now: _Moment, speed: float) -> str:
    since = (now.loss - last_shown.loss) / (now.n_rounds - last_shown.n_rounds)
    cells = (
        f"{now.n_rounds}",
        f"{since:.4f}",
        f"{now.loss / now.n_rounds:.4f}",
        f"{now.n_mistakes / now.n_rounds:.2%}",
        f"{now.n_wrong_labels / now.n_rounds:.2%}",
        f"{speed:.0f}",
    )
    return report.line(cells, _WIDTHS)


def _draw(
    moments: list[_Moment], settings: boosters.Settings, title: str, path: Path, suffix: str
) -> None:
    curves = {
        "most probable class of the mixture": [now.n_mistakes / now.n_rounds for now in moments],
        settings.label: [now.n_wrong_labels / now.n_rounds for now in moments],
        "first weak learner alone": [float(now.prefix_errors[0]) for now in moments],
    }
    rounds = [now.n_rounds for now in moments]
    plots.draw_boosting(rounds, curves, moments[-1].prefix_errors.tolist(), title, path, suffix)


def _summary(end: _Moment, settings: boosters.Settings, seconds: float) -> str:
    n, errors = end.n_rounds, end.prefix_errors
    best = int(errors.argmin())
    lines = [
        f"Learned {counted(n, 'example')} in {seconds:.2f} s: average log loss "
        f"{end.loss / n:.4f} nats of the mixture; error rate {end.n_mistakes / n:.2%} by its most "
        f"probable class, {end.n_wrong_labels / n:.2%} by {settings.label}.",
        f"The first weak learner alone: error rate {errors[0]:.2%}; best, the first "
        f"{best + 1} of {settings.n_learners}: {errors[best]:.2%}.",
    ]
    return "\n".join(lines)
