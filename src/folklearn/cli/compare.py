"""`folklearn compare`: several learners on the same rows, and the best in hindsight."""

from pathlib import Path

import numpy as np
import typer

from folklearn import plots
from folklearn.arrays import Array
from folklearn.cli import learners as known
from folklearn.cli.display import Table, bar, new_console, warnings_shown
from folklearn.cli.inputs import check_settings
from folklearn.cli.options import Columns, Source, explained
from folklearn.cli.outputs import Outputs
from folklearn.cli.warmup import warm_up
from folklearn.cli.whole import Whole
from folklearn.errors import FolklearnError
from folklearn.evaluate.best_linear import Exact
from folklearn.evidence.map_reduce import MapReduce
from folklearn.learners import catalogue
from folklearn.metrics.scores import linear_losses
from folklearn.scale.comparison import Compared, Comparison
from folklearn.scale.comparison import compare as compared

_TABLE = Table(
    [
        ("", "average", "error", "regret", "microseconds"),
        ("learner", "log loss", "rate", "in total", "a row"),
    ],
    width=14,
    left=10,
)


@explained(
    f"""
--learners A,B,C  Names, of these: {", ".join(known.NAMES)}.
--B  Largest norm of the weights of a class, per standard deviation, of the linear models to compare
    with; learners that take a B are made for it. Default: 10 over the norm of a row.
--jobs N  Learners that run at once, in processes of their own; -1 for every core.
--quiet  Say nothing but the table.
"""
)
def compare(
    source: Source,
    columns: Columns,
    learners: str = "auto,folklore,ogd",
    B: float | None = None,
    jobs: int = 1,
    plot: str | None = None,
    quiet: bool = False,
) -> None:
    """Compare learners on the same rows, and with the best linear model in hindsight.

    Regret is a learner's total loss beyond that of the best linear model,
    found afterwards from all the rows: the data must fit in memory.
    The table goes to standard output.
    """
    check_settings({} if B is None else {"B": B})
    MapReduce.from_options(jobs)  # check before anything is read
    names, console = _names(learners), new_console(quiet)
    with Outputs(source.file) as outputs, warnings_shown(console):
        plot_path = outputs.promise_plot(plot)
        whole = Whole(console, "compare", source, columns.roles())
        K = len(whole.labels)
        _check_too_large(whole)
        norm = whole.norm(B)
        settings = {
            name: {"B": norm} if "B" in catalogue.settings_of(name) else {} for name in names
        }
        for name in names:
            known.check_size(name, whole.n_inputs, K)
            # Made to hear what it refuses before anything is learned.
            catalogue.make(name, 1, K, settings[name])
        text = f"{', '.join(names)}; all rows are in memory, standardised once"
        console.print(whole.about(("learners", text)))
        Xs, ys = zip(*whole.blocks(), strict=True)
        X, y = np.concatenate(Xs), np.concatenate(ys)
        for name in names:
            warm_up(name)
        with bar(console) as progress:
            task = progress.add_task("learning", total=len(y) * len(names))
            found = compared(
                settings, X, y, n_classes=K, B=norm, n_jobs=jobs,
                progress=lambda n_done: progress.update(task, completed=n_done * len(y)),
            )  # fmt: skip
        typer.echo("\n".join([_TABLE.header, *(_TABLE.line(_cells(row)) for row in found.rows)]))
        if plot_path is not None:
            title = f"folklearn compare: {Path(whole.name).name}"
            outputs.draw(_drawn(found, linear_losses(X, y, found.best.W), title), plot_path)
        console.print(_about(found.best, len(y), whole.models(norm * whole.scaler.unit)))
        if jobs != 1:
            console.print("Times were measured while learners ran at once: alone they take less.")
        outputs.commit(console)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for place, name in enumerate(names):
        known.check_known(name)
        if name in names[:place]:
            raise FolklearnError(f"--learners names {name} twice")
    return names


def _check_too_large(whole: Whole) -> None:
    """Raise if the rows, and the Hessian that finds the best model, cannot fit in memory."""
    d, K = whole.n_inputs + 1, len(whole.labels)
    needed = 8 * (2 * (K * d) ** 2 + whole.n_rows * (2 * d + 2 * K))
    what_for = f"to find the best linear model of {whole.n_rows} rows"
    known.check_present(needed, what_for, whole.n_inputs, K)


def _cells(row: Compared) -> list[str]:
    scores = row.scores
    losses = f"{scores.log_loss:.4f}", f"{scores.error_rate:.2%}", f"{row.regret:.2f}"
    return [row.learner, *losses, f"{1e6 * row.seconds / scores.n_rounds:.1f}"]


def _about(best: Exact, n_rounds: int, models: str) -> str:
    text = (
        f"The best {models} has, in hindsight, an average log loss of {best.loss / n_rounds:.4f}; "
        f"every regret is exact up to {best.gap:.1e} nats."
    )
    if not best.converged:
        text += " The search for it stopped early: regrets may be that much larger."
    return text


def _drawn(found: Comparison, beside: Array, title: str) -> object:
    at = plots.places(len(beside))
    lines = {row.learner: row.scores.loss_curve[at - 1] / at for row in found.rows}
    lines["best linear model of the class"] = np.cumsum(beside)[at - 1] / at
    return plots.curves(at, lines, title=title, y="average log loss (nats)")
