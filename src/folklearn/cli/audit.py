"""`folklearn audit`: certify the predictions of any model, in one file or several."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Annotated, NamedTuple

import numpy as np
from rich.console import Console
from typer import Argument, Option

from folklearn.arrays import Array, Labels
from folklearn.cli import display, options
from folklearn.cli.display import TextTable, format_loss, new_console, warnings_shown
from folklearn.cli.labelled_file import LabelledFile, PredictionsFile
from folklearn.errors import FolklearnError
from folklearn.evaluate.auditing import Certifier, PredictionCertificate
from folklearn.evaluate.best_linear import Pass
from folklearn.evaluate.regression import Regression
from folklearn.evidence.passes import MapReduce
from folklearn.kernels.blas import OWN
from folklearn.metrics.scores import score
from folklearn.model.encoder import Key
from folklearn.model.roles import LEARNED
from folklearn.scale import parallel
from folklearn.scaler import Moments
from folklearn.utils import count_of, join_names

_TOLERANCE = 1e-6  # of --exact, relative
_MIN_FILE_WIDTH, _MAX_FILE_WIDTH = 10, 40  # characters
_ALL_FILES = "the rows of all files"
_TABLE = TextTable(
    [
        ("", "loss since", "average", "error", "regret bound", ""),
        ("rows", "last line", "log loss", "rate", "a row", "rows/s"),
    ],
    width=13,
)


def audit(
    file: options.File = None,
    more: Annotated[
        list[str] | None,
        Argument(show_default=False, help="Further files, whose evidence is added up."),
    ] = None,
    target: options.Target = None,
    format: options.Format = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    role: options.Roles = None,
    drop: options.Dropped = None,
    predictions: Annotated[
        list[str] | None,
        Option(
            "-p",
            "--predictions",
            metavar="PREDS.csv",
            help="Probabilities of a model: a line for every row, in order, under a header of "
            "labels, plain or as p:label; one file for each file of rows, in their order.",
        ),
    ] = None,
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
    predictions = [path for path in predictions or () if path]
    if not predictions:
        raise FolklearnError("--predictions is needed: the file that holds what was predicted")
    options.check_jobs(jobs)
    MapReduce.from_options(jobs, device)  # raises before anything is read
    roles, files = options.parse_roles(role, drop), (file, *(more or ()))
    if len(predictions) != len(files):
        raise FolklearnError(
            f"{count_of(len(files), 'file')} of rows, and {count_of(len(predictions), 'file')} of "
            "predictions; expected --predictions once for each, in the same order"
        )
    pairs = [
        FilePair(options.Source(name, target, format, delimiter, encoding, decimal), path, roles)
        for name, path in zip(files, predictions, strict=True)
    ]
    console, started = new_console(quiet), time.perf_counter()
    with warnings_shown(console):
        if more:
            if exact or device != OWN:
                option = "--exact" if exact else "--device"
                raise FolklearnError(
                    f"{option} is for one file: leave it out, or audit one at a time"
                )
            summary = partial(_summarise_files, *_audit_together(console, pairs, jobs))
        else:
            audited = FileAudit(console, "audit", pairs[0], device)
            certificate = audited.certificate(jobs if exact else None)
            summary = partial(_summarise, audited, certificate, audited.file.regression())
    console.print(summary(time.perf_counter() - started))


class FilePair(NamedTuple):
    """A file of rows, a file of their predictions, and roles of columns."""

    source: options.Source
    predictions: str
    roles: Mapping[str, str]

    def __str__(self) -> str:
        return str(self.source.file)

    def read_batches(
        self, keys: Sequence[Key], moments: Moments
    ) -> Iterator[tuple[Array, Labels, Array]]:
        console = new_console(quiet=True)
        with warnings_shown(console):  # of which the first reading has told
            file = LabelledFile(console, "audit", self.source, self.roles)
        file.set_columns(keys, moments)
        return PredictionsFile(self.predictions, file).read().batches()


class FileAudit:
    """Read rows and predictions of them, and certify these, with a table of the progress."""

    def __init__(self, console: Console, command: str, pair: FilePair, device: str = OWN) -> None:
        self._console = console
        self.file = file = LabelledFile(console, command, pair.source, pair.roles)
        self.predictions = PredictionsFile(pair.predictions, file).read()
        sizes = {"n_features": file.n_inputs + 1, "n_classes": len(file.labels)}
        self.certifier = Certifier(**sizes, constant=0, device=device)
        models = f"linear in {file.describe_columns()}"
        console.print(file.describe(audited=pair.predictions, models=models))
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
        found = self.certifier.certificate() if jobs is None else self._read_again(jobs)
        return replace(found, models=self.file.describe_columns())

    def _read_again(self, jobs: int) -> PredictionCertificate:
        n = self.certifier.n_rounds
        self._console.print("Reading the rows again:")

        def show(done: Pass) -> None:
            self._console.print(
                f"  pass {done.number}: a linear model with an average loss and penalty of "
                f"{done.loss / n:.6f}; none below {done.at_least / n:.6f}; gap {done.gap / n:.1e}"
            )

        return self.certifier.exact(self.file.batches, tol=_TOLERANCE, report=show, n_jobs=jobs)


def _summarise(
    audited: FileAudit,
    certificate: PredictionCertificate,
    hindsight: Regression | None,
    seconds: float,
) -> str:
    n = certificate.n_rounds
    scores = score(audited.P, audited.y)
    lines = [
        f"Audited {n} predictions in {seconds:.2f} s: average log loss {scores.log_loss:.4f} "
        f"nats, error rate {scores.error_rate:.2%}, Brier score {scores.brier:.4f}, "
        f"expected calibration error {scores.calibration_error:.4f}.",
        certificate.in_words(),
    ]
    if certificate.valid and certificate.regret_bound < 0.0:
        lines.append(
            "So these predictions had a lower loss than every such linear model with its penalty."
        )
    if hindsight is not None:
        lines.append(hindsight.in_words())
    return "\n".join([*lines, *audited.predictions.notes(audited.y)])


def _audit_together(
    console: Console, pairs: Sequence[FilePair], jobs: int
) -> tuple[parallel.FilesAudit, LabelledFile]:
    """Return certificates of several files, and one of these, which describes the columns."""
    if any(pair.source.file in (None, options.STDIN) for pair in pairs):
        raise FolklearnError("of several files, none can be standard input")
    files = [LabelledFile(console, "audit", pair.source, pair.roles) for pair in pairs]
    for pair, file in zip(pairs, files, strict=True):
        PredictionsFile(pair.predictions, file)  # its classes become those of the file
    keys = _merge_columns(pairs, files)
    for file in files:
        file.set_columns(keys)
    file, moments = files[0], reduce(add, (file.moments() for file in files))
    file.set_columns(keys, moments)
    labels = file.labels
    n_rows = sum(file.n_rows for file in files)
    fields = {
        "data": f"{len(pairs)} files, {n_rows} rows with a label",
        "predicted": display.describe_classes(labels),
        "models": f"linear in {file.describe_columns(_ALL_FILES)}",
    }
    console.print(display.format_fields(fields))
    with display.progress_bar(console, "reading", len(pairs)) as report:
        audited = parallel.audit_files(
            pairs, partial(FilePair.read_batches, keys=keys, moments=moments), constant=0,
            n_features=file.scaler.n_columns, n_classes=len(labels), n_jobs=jobs, progress=report,
        )  # fmt: skip
    return audited, file


def _merge_columns(pairs: Sequence[FilePair], files: Sequence[LabelledFile]) -> list[Key]:
    first = files[0]
    for pair, file in zip(pairs, files, strict=True):
        if file.labels != first.labels:
            raise FolklearnError(
                f"{pairs[0].predictions} is about the classes {join_names(first.labels)}, and "
                f"{pair.predictions} about {join_names(file.labels)}: files that are audited "
                "together need the same, a column p:label for each"
            )
        sides = first.dataset.roles, file.dataset.roles
        for name in {**sides[0], **sides[1]}:
            roles = [side.get(name, "not there") for side in sides]
            if {*roles} & {*LEARNED} and roles[0] != roles[1]:
                raise FolklearnError(
                    f"column {name!r} is {roles[0]} in {pairs[0]} and {roles[1]} in {pair}: files "
                    "that are audited together need the same columns; name its role (--role) or "
                    "leave it out (--drop)"
                )
        shared = [name for name, value in file.encoder.keys if value.startswith("#")]
        if shared:
            raise FolklearnError(
                f"column {shared[0]!r} of {pair} has too many categories for a column of each, and "
                "which of them share one differs from file to file: leave it out (--drop), or "
                "audit one file at a time"
            )
    return list(dict.fromkeys(chain.from_iterable(file.encoder.keys for file in files)))


def _summarise_files(audited: parallel.FilesAudit, file: LabelledFile, seconds: float) -> str:
    rows = [*audited.files, parallel.AuditedFile("all", audited.certificate)]
    names = [str(row.file)[-_MAX_FILE_WIDTH:] for row in rows]
    titles = [
        ("", "", "average", "lower", "regret bound"),
        ("file", "rows", "log loss", "bound", "a row"),
    ]
    table = TextTable(titles, width=14, left=max(_MIN_FILE_WIDTH, *map(len, names)))
    lines = [table.header]
    for name, row in zip(names, rows, strict=True):
        n, *numbers = parallel.average_certificate(row.certificate)
        lines.append(table.line([name, f"{n}", *map(format_loss, numbers)]))
    lines.append(f"Audited {audited.certificate.n_rounds} predictions in {seconds:.2f} s.")
    lines.append(replace(audited.certificate, models=file.describe_columns(_ALL_FILES)).in_words())
    return "\n".join(lines)
