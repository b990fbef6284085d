"""`folklearn compare`: several learners on the same rows, and a regression in hindsight."""

import math
from dataclasses import replace
from typing import Annotated

import typer
from typer import Option

from folklearn import utils
from folklearn.cli import options
from folklearn.cli.display import TextTable, new_console, progress_bar, warnings_shown
from folklearn.cli.labelled_file import LabelledFile
from folklearn.errors import FolklearnError
from folklearn.learners import catalogue
from folklearn.scale.parallel import compare as compare_learners
from folklearn.utils import count_of

_NORM = 10.0  # of the class that some learners keep to, for rows of norm 1
_TABLE = TextTable(
    [
        ("", "average", "error", "regret", "microseconds"),
        ("learner", "log loss", "rate", "in total", "a row"),
    ],
    width=14,
    left=10,
)


def compare(
    source: options.Source,
    role: options.Roles = None,
    drop: options.Dropped = None,
    learners: Annotated[
        str, Option(metavar="A,B,C", help=f"Names, of these: {', '.join(options.LEARNERS)}.")
    ] = "auto,folklore,ogd",
    jobs: options.Jobs = 1,
    quiet: Annotated[bool, Option("--quiet", help="Print the table only.")] = False,
) -> None:
    """Compare learners on the same rows, and with a logistic regression in hindsight.

    Regret is a learner's total loss beyond loss and penalty of a logistic regression
    that is fitted afterwards to all the rows: the data must fit in memory.
    The table goes to standard output.
    """
    options.check_jobs(jobs)
    names = list(dict.fromkeys(name.strip() for name in learners.split(",")))
    taken, console = [catalogue.settings_of(name) for name in names], new_console(quiet)
    with warnings_shown(console):
        rows = LabelledFile(console, "compare", source, options.parse_roles(role, drop))
        _check_memory(rows, names)
        (X, y), K = rows.matrix(), len(rows.labels)
        R = math.sqrt((X**2).sum() / len(X))  # a learner as it is for rows of norm 1
        settings = {
            name: {word: value for word, value in (("R", R), ("B", _NORM / R)) if word in takes}
            for name, takes in zip(names, taken, strict=True)
        }
        for name in names:  # raises for settings that cannot be used
            catalogue.make(name, 1, K, settings[name])
        about = f"{', '.join(names)}; all rows are in memory, standardised once"
        console.print(rows.describe(learners=about))
        with progress_bar(console, "learning", len(y) * len(names)) as report:
            comparison = compare_learners(
                settings, X, y, n_classes=K, constant=0, n_jobs=jobs,
                progress=lambda n_done: report(n_done * len(y)),
            )  # fmt: skip
        typer.echo(_TABLE.header)
        for learner, scores, regret, seconds in comparison.rows:
            cells = f"{scores.log_loss:.4f}", f"{scores.error_rate:.2%}", f"{regret:.2f}"
            typer.echo(_TABLE.line([learner, *cells, f"{1e6 * seconds / len(y):.1f}"]))
        best = replace(comparison.best, features=rows.describe_columns())
        console.print(
            f"{best.in_words()} Regret is the total loss beyond loss and penalty of that "
            "regression."
        )
        if jobs != 1:
            console.print("Times were measured while learners ran at once: alone they take less.")


def _check_memory(rows: LabelledFile, names: list[str]) -> None:
    d, K, present = rows.n_inputs + 1, len(rows.labels), utils.bytes_present()
    search = f"to fit a logistic regression to {rows.n_rows} rows"
    n_bytes = {search: 8 * (2 * d**2 + 64 * K * d + rows.n_rows * (2 * d + 2 * K))}
    n_bytes |= {f"for {name}": catalogue.n_bytes(name, d, K) for name in names}
    for what, needed in n_bytes.items():
        if needed > present:
            raise FolklearnError(
                f"{K} classes and {count_of(rows.n_inputs, 'feature')} and a constant need "
                f"{needed / 1e9:.1f} GB of memory {what}, and this machine has "
                f"{present / 1e9:.1f} GB{'' if what == search else '; ogd needs next to none'}"
            )
