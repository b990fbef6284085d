"""`folklearn audit`: certify the predictions of any model."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np
from rich.console import Console
from typer import Option

from folklearn.cli import display, options
from folklearn.cli.display import TextTable, format_loss, new_console, warnings_shown
from folklearn.cli.labelled_file import LabelledFile, PredictionsFile
from folklearn.evaluate.auditing import Certifier, PredictionCertificate
from folklearn.evaluate.best_linear import Pass
from folklearn.evidence.passes import MapReduce
from folklearn.kernels.blas import OWN
from folklearn.metrics.scores import score

_TOLERANCE = 1e-6  # of --exact, relative
_TABLE = TextTable(
    [
        ("", "loss since", "average", "error", "regret bound", ""),
        ("rows", "last line", "log loss", "rate", "a row", "rows/s"),
    ],
    width=13,
)


def audit(
    source: options.Source,
    predictions: Annotated[
        str,
        Option(
            "-p",
            "--predictions",
            metavar="PREDS.csv",
            help="Probabilities of a model: a line for every row, in order, under a header of "
            "labels, plain or as p:label.",
        ),
    ],
    role: options.Roles = None,
    drop: options.Dropped = None,
    exact: Annotated[
        bool,
        Option("--exact", help="Read the file again until the best of all linear models is known."),
    ] = False,
    jobs: options.Jobs = 1,
    device: options.Device = OWN,
    quiet: options.Quiet = False,
) -> None:
    """Certify predictions that any model made: how much better could a linear model do?

    Each prediction must have been made before its label was seen; this cannot be checked.
    """
    options.check_jobs(jobs)
    MapReduce.from_options(jobs, device)  # raises before anything is read
    roles = options.parse_roles(role, drop)
    console, started = new_console(quiet), time.perf_counter()
    with warnings_shown(console):
        audited = FileAudit(console, "audit", source, roles, predictions, device)
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
        source: options.Source,
        roles: Mapping[str, str],
        predictions: str,
        device: str = OWN,
    ) -> None:
        self._console = console
        self.file = file = LabelledFile(console, command, source, roles)
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
