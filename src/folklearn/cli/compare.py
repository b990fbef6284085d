"""`folklearn compare`: several learners on the same rows, and the best in hindsight."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from typer import Option

from folklearn import plots
from folklearn.arrays import Array
from folklearn.cli import options
from folklearn.cli.atomic_files import AtomicOutputs
from folklearn.cli.display import TextTable, new_console, progress_bar, warnings_shown
from folklearn.cli.labelled_file import LabelledFile
from folklearn.errors import FolklearnError
from folklearn.evaluate.best_linear import BestLinearModel
from folklearn.learners import catalogue
from folklearn.metrics.scores import linear_losses
from folklearn.scale.parallel import Compared, Comparison
from folklearn.scale.parallel import compare as compare_learners

_TABLE = TextTable(
    [
        ("", "average", "error", "regret", "microseconds"),
        ("learner", "log loss", "rate", "in total", "a row"),
    ],
    width=14,
    left=10,
)


def compare(
    file: options.File = None,
    target: options.Target = None,
    format: options.Format = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    role: options.Roles = None,
    drop: options.Dropped = None,
    learners: Annotated[
        str, Option(metavar="A,B,C", help=f"Names, of these: {', '.join(options.LEARNERS)}.")
    ] = "auto,folklore,ogd",
    B: options.Norm = None,
    jobs: options.Jobs = 1,
    plot: options.Plot = None,
    quiet: Annotated[bool, Option("--quiet", help="Print the table only.")] = False,
) -> None:
    """Compare learners on the same rows, and with the best linear model in hindsight.

    Regret is a learner's total loss beyond that of the best linear model,
    found afterwards from all the rows: the data must fit in memory.
    The table goes to standard output.
    """
    options.check_settings(B=B)
    options.check_jobs(jobs)
    names, console = _parse_names(learners), new_console(quiet)
    with AtomicOutputs(file) as outputs, warnings_shown(console):
        plot_path = outputs.reserve_plot(plot)
        source = options.Source(file, target, format, delimiter, encoding, decimal)
        rows = LabelledFile(console, "compare", source, options.parse_roles(role, drop))
        _check_size(rows, names)
        norm = rows.scale_norm(B)
        settings = {
            name: {"B": norm} if "B" in catalogue.settings_of(name) else {} for name in names
        }
        for name in names:  # raises for settings that cannot be used
            catalogue.make(name, 1, len(rows.labels), settings[name])
        about = f"{', '.join(names)}; all rows are in memory, standardised once"
        console.print(rows.describe(("learners", about)))
        X, y = rows.matrix(rows.labels)
        with progress_bar(console, "learning", len(y) * len(names)) as report:
            comparison = compare_learners(
                settings, X, y, n_classes=len(rows.labels), B=norm, n_jobs=jobs,
                progress=lambda n_done: report(n_done * len(y)),
            )  # fmt: skip
        lines = [_TABLE.line(_cells(row)) for row in comparison.rows]
        typer.echo("\n".join([_TABLE.header, *lines]))
        if plot_path is not None:
            title = f"folklearn compare: {Path(rows.name).name}"
            best_losses = linear_losses(X, y, comparison.best.W)
            outputs.draw(_draw(comparison, best_losses, title), plot_path)
        models = rows.describe_models(norm * rows.scaler.unit)
        console.print(_describe_best(comparison.best, len(y), models))
        if jobs != 1:
            console.print("Times were measured while learners ran at once: alone they take less.")
        outputs.commit(console)


def _parse_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for i, name in enumerate(names):
        catalogue.settings_of(name)  # raises for an unknown name
        if name in names[:i]:
            raise FolklearnError(f"--learners names {name} twice")
    return names


def _check_size(rows: LabelledFile, names: list[str]) -> None:
    """Raise if rows, learners, and the Hessian of the best model cannot fit in memory."""
    d, K = rows.n_inputs + 1, len(rows.labels)
    n_bytes = 8 * (2 * (K * d) ** 2 + rows.n_rows * (2 * d + 2 * K))
    what_for = f"to find the best linear model of {rows.n_rows} rows"
    options.check_memory(n_bytes, what_for, rows.n_inputs, K)
    for name in names:
        n_bytes = catalogue.n_bytes(name, d, K)
        options.check_memory(n_bytes, f"for {name}", rows.n_inputs, K, "; ogd needs next to none")


def _cells(row: Compared) -> list[str]:
    scores = row.scores
    losses = f"{scores.log_loss:.4f}", f"{scores.error_rate:.2%}", f"{row.regret:.2f}"
    return [row.learner, *losses, f"{1e6 * row.seconds / scores.n_rounds:.1f}"]


def _describe_best(best: BestLinearModel, n_rounds: int, models: str) -> str:
    text = (
        f"The best {models} has, in hindsight, an average log loss of {best.loss / n_rounds:.4f}; "
        f"every regret is exact up to {best.gap:.1e} nats."
    )
    if not best.converged:
        text += " The search for it stopped early: regrets may be that much larger."
    return text


def _draw(comparison: Comparison, best_losses: Array, title: str) -> object:
    at = plots.curve_rounds(len(best_losses))
    lines = {row.learner: row.scores.loss_curve[at - 1] / at for row in comparison.rows}
    lines["best linear model of the class"] = np.cumsum(best_losses)[at - 1] / at
    return plots.curves(at, lines, title=title, y="average log loss (nats)")
