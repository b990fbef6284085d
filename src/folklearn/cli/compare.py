"""`folklearn compare`: several learners on the same examples, and the best in hindsight."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from folklearn.cli import learners as known
from folklearn.cli import plot as plots
from folklearn.cli import report
from folklearn.cli.inputs import check_options, open_table, refuse_weights
from folklearn.cli.learning import bar
from folklearn.cli.moments import next_stop
from folklearn.cli.options import Drop, File, Format, Target, Text, new_console
from folklearn.cli.outputs import Outputs
from folklearn.cli.warmup import warm_up
from folklearn.errors import FolklearnError
from folklearn.evaluate.hindsight import Hindsight, best_in_class, linear_losses
from folklearn.evaluate.progressive import Scores, progressive
from folklearn.model.scaler import OnlineScaler
from folklearn.streams.table import Table, classes
from folklearn.words import counted

_WIDTHS = (10, 12, 11, 14, 14)
_TITLES = (
    ("", "average", "error", "regret", "microseconds"),
    ("learner", "log loss", "rate", "in total", "per example"),
)


def compare(
    file: File = None,
    target: Target = None,
    format: Format = None,
    text: Text = None,
    drop: Drop = None,
    learners: Annotated[
        str,
        typer.Option(
            "--learners", metavar="A,B,C", help=f"Names, of these: {', '.join(known.NAMES)}."
        ),
    ] = "auto,folklore,ogd",
    B: Annotated[
        float,
        typer.Option(
            "--B",
            help="Largest row norm of the linear models to compare with; also the B of the "
            "learners that take one.",
        ),
    ] = 10.0,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="OUT.png", help="Draw the average losses.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but the table.")] = False,
) -> None:
    """Compare learners on the same examples, and with the best linear model in hindsight.

    Regret is a learner's total loss beyond that of the best linear model,
    found afterwards from all the examples: the data must fit in memory.
    The table goes to standard output.
    """
    check_options({"B": B})
    names = _names(learners)
    console = new_console(quiet)
    if plot is not None:
        plots.refuse_unless_drawable(plot)
    with Outputs() as outputs:
        outputs.protect(file)
        plot_path = outputs.promise("--plot", plot)
        with open_table(file, target, format, text, drop) as table:
            refuse_weights(table, "folklearn compare")
            labels = classes(table)
            _refuse_too_large(table, len(labels))
            for name in names:
                known.refuse_too_large(name, table, len(labels))
                # Made to hear what it refuses before anything is learned.
                known.make(name, 1, len(labels), known.taken(name, {"B": B}))
            console.print(_options(table, labels, names, B))
            data = _in_memory(table, labels)
        best = best_in_class(data.X, data.y, B=B, n_classes=len(labels))
        beside = linear_losses(data.X, data.y, best.W)
        typer.echo("\n".join(map(_line, _TITLES)))
        scores = {}
        for name in names:
            scores[name], seconds = _measure(name, data, best, console)
            typer.echo(_row(name, scores[name], best, seconds))
        if plot_path is not None and plot is not None:
            title = f"folklearn compare: {Path(table.name).name}"
            _draw(scores, beside, B, title, plot_path, Path(plot).suffix)
        outputs.commit()
    console.print(_about(best, len(data.y), table.n_inputs))
    if plot is not None:
        console.print(f"Wrote the plot to {plot}.")


@dataclass(frozen=True)
class _Data:
    """All the examples: X (T, d + 1) scaled, y (T,) of K classes."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    n_classes: int


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for place, name in enumerate(names):
        known.refuse_unknown(name)
        if name in names[:place]:
            raise FolklearnError(f"--learners names {name} twice")
    return names


def _refuse_too_large(table: Table, K: int) -> None:
    """Raise if the rows, and the Hessian that finds the best model, cannot fit in memory."""
    d = table.n_inputs + 1
    needed = 8 * (2 * (K * d) ** 2 + table.n_rows * (2 * d + 2 * K))
    what_for = f"to find the best linear model of {table.n_rows} examples"
    known.refuse_unless_present(needed, what_for, table, K)


def _in_memory(table: Table, labels: tuple[str, ...]) -> _Data:
    ((X, y, _),) = table.blocks(table.columns, labels, [table.n_rows])
    return _Data(
        OnlineScaler(n_features=table.n_inputs, gaps=True).learn_transform(X), y, len(labels)
    )


def _measure(name: str, data: _Data, best: Hindsight, console: Console) -> tuple[Scores, float]:
    """Run one learner over everything; return its scores and the seconds it took."""
    warm_up(console, name)
    given = known.taken(name, {"B": best.B})
    learner = known.make(name, data.X.shape[1], data.n_classes, given)
    with bar(console) as progress:
        task = progress.add_task(name, total=len(data.y))
        started = time.perf_counter()
        scores = progressive(
            learner, data.X, data.y, progress=lambda rows: progress.update(task, completed=rows)
        )
        return scores, time.perf_counter() - started


def _options(table: Table, labels: tuple[str, ...], names: list[str], B: float) -> str:
    text = f"{', '.join(names)}; B={B:g} for those that take it"
    return report.about(table, labels, ("learners", text), where=", all in memory")


def _line(cells: tuple[str, ...]) -> str:
    name, *numbers = cells
    rest = (cell.rjust(width) for cell, width in zip(numbers, _WIDTHS[1:], strict=True))
    return name.ljust(_WIDTHS[0]) + "".join(rest)


def _row(name: str, scores: Scores, best: Hindsight, seconds: float) -> str:
    return _line(
        (
            name,
            f"{scores.log_loss:.4f}",
            f"{scores.error_rate:.2%}",
            f"{scores.loss - best.loss:.2f}",
            f"{1e6 * seconds / scores.n_rounds:.1f}",
        )
    )


def _about(best: Hindsight, n_rounds: int, n_inputs: int) -> str:
    text = (
        f"The best linear model of these {counted(n_inputs, 'scaled feature')} and a constant "
        f"with row norms at most {best.B:g} has, in hindsight, an average log loss of "
        f"{best.loss / n_rounds:.4f}; every regret is exact up to {best.gap:.1e} nats."
    )
    if not best.converged:
        text += " The search for it stopped early: regrets may be that much larger."
    return text


def _draw(
    scores: dict[str, Scores],
    beside: NDArray[np.float64],
    B: float,
    title: str,
    path: Path,
    suffix: str,
) -> None:
    n_rounds = len(beside)
    stops = [1]
    while stops[-1] < n_rounds:
        stops.append(min(next_stop(stops[-1]), n_rounds))
    places = np.array(stops)

    def averages(totals: NDArray[np.float64]) -> list[float]:
        return [float(value) for value in totals[places - 1] / places]

    curves = {name: averages(score.loss_curve) for name, score in scores.items()}
    plots.draw_losses(stops, curves, averages(np.cumsum(beside)), B, title, path, suffix)
