"""`folklearn audit`: certify the predictions of any model; `compare`: several learners on rows."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import typer
from rich.console import Console
from typer import Option

from folklearn import utils
from folklearn.cli import display, options
from folklearn.cli.display import (
    TextTable,
    format_loss,
    new_console,
    progress_bar,
    warnings_shown,
)
from folklearn.cli.labelled_file import LabelledFile, PredictionsFile
from folklearn.errors import FolklearnError
from folklearn.evaluate.auditing import Certifier, PredictionCertificate
from folklearn.evaluate.best_linear import Pass
from folklearn.evidence.passes import MapReduce
from folklearn.kernels.blas import OWN
from folklearn.learners import catalogue
from folklearn.metrics.scores import score
from folklearn.scale.parallel import compare as compare_learners
from folklearn.utils import count_of

_TOLERANCE = 1e-6  # of --exact, relative
_NORM = 10.0  # of the class that some compared learners keep to, for rows of norm 1
_TABLE = TextTable(
    [
        ("", "loss since", "average", "error", "regret bound", ""),
        ("rows", "last line", "log loss", "rate", "a row", "rows/s"),
    ],
    width=13,
)
_LEARNERS = TextTable(
    [
        ("", "average", "error", "regret", "microseconds"),
        ("learner", "log loss", "rate", "in total", "a row"),
    ],
    width=14,
    left=10,
)


def audit(
    source: options.LearnedSource,
    predictions: str = Option(
        ...,
        "-p",
        "--predictions",
        metavar="PREDS.csv",
        help="Probabilities of a model: a line for every row, in order, under a header of labels, "
        "plain or as p:label.",
    ),
    exact: bool = Option(
        False, "--exact", help="Read the file again until the best of all linear models is known."
    ),
    jobs: options.Jobs = 1,
    device: options.Device = OWN,
    quiet: options.Quiet = False,
) -> None:
    """Certify predictions that any model made: how much better could a linear model do?

    Each prediction must have been made before its label was seen; this cannot be checked.
    """
    options.check_jobs(jobs)
    MapReduce.from_options(jobs, device)  # raises before anything is read
    console, started = new_console(quiet), time.perf_counter()
    with warnings_shown(console):
        audited = FileAudit(console, "audit", source, predictions, device)
        certificate = audited.certificate(jobs if exact else None)
        hindsight = audited.file.regression()
    seconds, scores = time.perf_counter() - started, score(audited.P, audited.y)
    console.print(
        f"Audited {certificate.n_rounds} predictions in {seconds:.2f} s: average log loss "
        f"{scores.log_loss:.4f} nats, error rate {scores.error_rate:.2%}, Brier score "
        f"{scores.brier:.4f}, expected calibration error {scores.calibration_error:.4f}."
    )
    console.print(certificate.in_words())
    if certificate.valid and certificate.regret_bound < 0.0:
        console.print(
            "So these predictions had a lower loss than every such linear model with its penalty."
        )
    if hindsight is not None:
        console.print(hindsight.in_words())
    for note in audited.predictions.notes(audited.y):
        console.print(note)


class FileAudit:
    """Read rows and predictions of them, and certify these, with a table of the progress."""

    def __init__(
        self,
        console: Console,
        command: str,
        source: options.LearnedSource,
        predictions: str,
        device: str = OWN,
    ) -> None:
        self._console = console
        self.file = file = LabelledFile(console, command, source)
        self.predictions = PredictionsFile(predictions, file).read()
        sizes = {"n_features": file.n_inputs + 1, "n_classes": len(file.labels)}
        self.certifier = Certifier(**sizes, constant=0, device=device)
        models = f"linear in {file.describe_columns()}"
        console.print(file.describe(audited=predictions, models=models))
        self.P, self.y = self.predictions.P, np.empty(file.n_rows, np.int64)
        self._shown = 0, 0.0  # rows and loss by the last line
        display.run_with_table(
            console, _TABLE, self._certify(), self._cells, what="reading", total=file.n_rows
        )

    def _certify(self) -> Iterator[int]:
        for X, y, P in self.predictions.batches():
            n_before = self.certifier.n_rounds
            self.certifier.observe_many(X, y, P)
            self.y[n_before : self.certifier.n_rounds] = y
            yield self.certifier.n_rounds

    def _cells(self, speed: float) -> list[str]:
        (n_before, loss_before), n = self._shown, self.certifier.n_rounds
        loss = self.certifier.loss
        self._shown = n, loss
        n_wrong = int((self.P[:n].argmax(axis=1) != self.y[:n]).sum())
        losses = map(format_loss, ((loss - loss_before) / (n - n_before), loss / n))
        bound = format_loss(self.certifier.certificate().regret_bound / n)
        return [f"{n}", *losses, f"{n_wrong / n:.2%}", bound, f"{speed:.0f}"]

    def certificate(self, jobs: int | None = None) -> PredictionCertificate:
        """Return the certificate; with a number of threads the exact one, from further passes."""
        models, n = self.file.describe_columns(), self.certifier.n_rounds
        if jobs is None:
            return replace(self.certifier.certificate(), models=models)

        def show(done: Pass) -> None:
            self._console.print(
                f"  pass {done.number}: a linear model with an average loss and penalty of "
                f"{done.loss / n:.6f}; none below {done.at_least / n:.6f}; gap {done.gap / n:.1e}"
            )

        self._console.print("Reading the rows again:")
        exact = self.certifier.exact(self.file.batches, tol=_TOLERANCE, report=show, n_jobs=jobs)
        return replace(exact, models=models)


def compare(
    source: options.LearnedSource,
    learners: str = Option(
        "auto,folklore,ogd",
        metavar="A,B,C",
        help=f"Names, of these: {', '.join(options.LEARNERS)}.",
    ),
    jobs: options.Jobs = 1,
    quiet: bool = Option(False, "--quiet", help="Print the table only."),
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
        rows = LabelledFile(console, "compare", source)
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
        typer.echo(_LEARNERS.header)
        for learner, scores, regret, seconds in comparison.rows:
            cells = f"{scores.log_loss:.4f}", f"{scores.error_rate:.2%}", f"{regret:.2f}"
            typer.echo(_LEARNERS.line([learner, *cells, f"{1e6 * seconds / len(y):.1f}"]))
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
