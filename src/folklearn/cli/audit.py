"""`folklearn audit`: certify the predictions of any model, in one file or several."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from typing import Annotated, NamedTuple

import numpy as np
from rich.console import Console
from typer import Argument, Option

from folklearn.arrays import Array, Labels
from folklearn.cli import options, text
from folklearn.cli.display import (
    TextTable,
    new_console,
    progress_bar,
    run_with_table,
    warnings_shown,
)
from folklearn.cli.labelled_file import LabelledFile
from folklearn.cli.predictions_file import (
    PredictionsFile,
    read_classes_of_predictions,
    read_predictions,
)
from folklearn.errors import FolklearnError
from folklearn.evaluate.auditing import Certifier, PredictionCertificate
from folklearn.evaluate.best_linear import Pass
from folklearn.evaluate.regression import Regression
from folklearn.evidence.map_reduce import MapReduce
from folklearn.kernels.blas import OWN
from folklearn.metrics.scores import score
from folklearn.model.encoder import Key
from folklearn.model.roles import LEARNED
from folklearn.scale.parallel import (
    AuditedFile,
    FilesAudit,
    audit_files,
    average_certificate,
    map_in_parallel,
)
from folklearn.scaler import Moments
from folklearn.utils import count_of, join_names

_TOLERANCE = 1e-6  # of --exact, relative
_MIN_FILE_WIDTH, _MAX_FILE_WIDTH = 10, 40  # characters
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
            help="Predictions of a model: a line of probabilities for every row, in order, under a "
            "header of labels, plain or as p:label, such as run and predict write. For several "
            "files repeat it, in their order.",
        ),
    ] = None,
    B: options.Norm = None,
    exact: Annotated[
        bool,
        Option(
            "--exact",
            help="Read the file again, a few times, until the best of these models is known to "
            f"{_TOLERANCE:g} of its loss.",
        ),
    ] = False,
    jobs: options.Jobs = 1,
    device: options.Device = OWN,
    quiet: options.Quiet = False,
) -> None:
    """Certify predictions that any model made: how much better could a linear model do?

    Each prediction must have been made before its label was seen; this cannot be checked.
    """
    if not any(predictions or ()):
        raise FolklearnError("--predictions is needed: the file that holds what was predicted")
    options.check_jobs(jobs)
    MapReduce.from_options(jobs, device)  # raises before anything is read
    options.check_settings(B=B)
    roles = options.parse_roles(role, drop)
    sources = [
        options.Source(name, target, format, delimiter, encoding, decimal)
        for name in (file, *(more or ()))
    ]
    if len(predictions or ()) != len(sources):
        raise FolklearnError(
            f"{count_of(len(sources), 'file')} of rows, and "
            f"{count_of(len(predictions or ()), 'file')} of predictions; expected --predictions "
            "once for each, in the same order"
        )
    pairs = [_FilePair(*pair) for pair in zip(sources, predictions or (), strict=True)]
    console = new_console(quiet)
    with warnings_shown(console):
        if more:
            if exact or device != OWN:
                option = "--exact" if exact else "--device"
                raise FolklearnError(
                    f"{option} is for one file: leave it out, or audit one at a time"
                )
            _audit_together(console, pairs, roles, B, jobs)
            return
        started = time.perf_counter()
        audited = audit_file(console, "audit", *pairs[0], roles, B, device)
        certifier = audited.certifier
        certificate = _refine(audited, console, jobs) if exact else certifier.certificate()
        certificate = audited.file.describe_certificate(certificate)
        hindsight = audited.file.regression(audited.predictions.labels)
        seconds = time.perf_counter() - started
    console.print(_summarise(audited, certificate, hindsight, seconds))


def audit_file(
    console: Console,
    command: str,
    source: options.Source,
    predictions: str,
    roles: Mapping[str, str],
    B: float | None,
    device: str = OWN,
) -> "FileAudit":
    """Read rows and predictions of them, and certify these, with a table of the progress."""
    options.check_settings(B=B)
    file = LabelledFile(console, command, source, roles)
    predicted = read_predictions(predictions, file)
    certifier = Certifier(
        n_features=file.n_inputs + 1,
        n_classes=len(predicted.labels),
        B=file.scale_norm(B),
        device=device,
    )
    models = file.describe_models(certifier.B * file.scaler.unit)
    lines = ("audited", predicted.name), ("models", models)
    console.print(file.describe(*lines, labels=predicted.labels))
    audited = FileAudit(certifier, predicted, file)
    run_with_table(
        console, _TABLE, audited.certify(), audited.cells, what="reading", total=file.n_rows
    )
    return audited


def _refine(audited: "FileAudit", console: Console, jobs: int) -> PredictionCertificate:
    """Read the rows again until the certificate is exact; print the gap after each pass."""
    n = audited.certifier.n_rounds
    console.print("Reading the rows again:")

    def show(done: Pass) -> None:
        console.print(
            f"  pass {done.number}: a linear model with an average log loss of "
            f"{done.loss / n:.6f}; none below {done.at_least / n:.6f}; gap {done.gap / n:.1e}"
        )

    return audited.certifier.exact(audited.batches, tol=_TOLERANCE, report=show, n_jobs=jobs)


class FileAudit:
    """A certifier of the predictions in a file, with the rows that they are about."""

    def __init__(
        self, certifier: Certifier, predictions: PredictionsFile, file: LabelledFile
    ) -> None:
        self.certifier, self.predictions, self.file = certifier, predictions, file
        self.P = predictions.clipped
        self.y = np.empty(len(predictions.P), dtype=np.int64)
        self._n_wrong = 0
        self._shown = 0, 0.0  # rows and loss by the last line

    def certify(self) -> Iterator[int]:
        """Certify all rows; yield their number so far, also at every power of two."""
        for X, y in self.batches():
            start = 0
            while start < len(y):
                n = self.certifier.n_rounds
                stop = min(len(y), start + (1 << n.bit_length()) - n)
                self._certify(X[start:stop], y[start:stop])
                start = stop
                yield self.certifier.n_rounds

    def _certify(self, X: Array, y: Labels) -> None:
        start = self.certifier.n_rounds
        rows = slice(start, start + len(y))
        self.predictions.check_same_rows(start, y)
        self.certifier.observe_many(X, y, self.P[rows])
        self.y[rows] = y
        self._n_wrong += int((self.P[rows].argmax(axis=1) != y).sum())

    def batches(self) -> Iterator[tuple[Array, Labels]]:
        """Yield all rows, standardised, and their class numbers."""
        return self.file.batches(self.predictions.labels)

    def cells(self, speed: float) -> list[str]:
        """Return a line of the table."""
        (n_before, loss_before), n = self._shown, self.certifier.n_rounds
        loss = self.certifier.loss
        self._shown = n, loss
        bound = self.certifier.certificate().regret_bound
        losses = (loss - loss_before) / (n - n_before), loss / n
        cells = [f"{n}", *map(text.format_loss, losses), f"{self._n_wrong / n:.2%}"]
        return [*cells, text.format_loss(bound / n), f"{speed:.0f}"]


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
        certificate.in_full(),
    ]
    if certificate.valid and certificate.regret_bound < 0.0:
        lines.append("So these predictions had a lower loss than every such linear model.")
    if hindsight is not None:
        lines.append(hindsight.in_words())
    lines.append(
        "The reference model, a linear one that learned the same rows online, had an average log "
        f"loss of {audited.certifier.leader_loss / n:.4f}."
    )
    lines += audited.predictions.notes(audited.y)
    return "\n".join(lines)


class _FilePair(NamedTuple):
    """A file of rows and a file of their predictions."""

    source: options.Source
    predictions: str

    def __str__(self) -> str:
        return str(self.source.file)


class _FileContents(NamedTuple):
    """Roles of the learned columns, encoded columns, classes and number of rows of a file."""

    roles: dict[str, str]
    keys: tuple[Key, ...]
    labels: tuple[str, ...]
    n_rows: int


def _audit_together(
    console: Console,
    pairs: Sequence[_FilePair],
    roles: Mapping[str, str],
    B: float | None,
    jobs: int,
) -> None:
    """Certify the predictions of several files, file by file and all together."""
    if any(pair.source.file in (None, options.STDIN) for pair in pairs):
        raise FolklearnError("of several files, none can be standard input")
    started = time.perf_counter()
    contents = map_in_parallel(partial(_read_contents, roles, console.quiet), pairs, n_jobs=jobs)
    keys = _merge_columns(pairs, contents)
    labels, n_rows = contents[0].labels, sum(file.n_rows for file in contents)
    moments = reduce(
        Moments.merged, map_in_parallel(partial(_find_moments, roles, keys), pairs, n_jobs=jobs)
    )
    file = _open_file(roles, keys, moments, pairs[0])
    norm = file.scale_norm(B)
    models = file.describe_models(norm * file.scaler.unit, "the rows of all files")
    console.print(
        text.format_fields(
            ("data", f"{len(pairs)} files, {n_rows} rows with a label"),
            ("predicted", text.describe_classes(labels)),
            ("models", models),
        )
    )
    with progress_bar(console, "reading", len(pairs)) as report:
        audited = audit_files(
            pairs, partial(_read_batches, roles, keys, moments), n_features=file.scaler.n_columns,
            n_classes=len(labels), B=norm, n_jobs=jobs, progress=report,
        )  # fmt: skip
    console.print(_summarise_files(audited, file, time.perf_counter() - started))


def _read_contents(roles: Mapping[str, str], quiet: bool, pair: _FilePair) -> _FileContents:
    console = new_console(quiet)
    with warnings_shown(console):
        file = LabelledFile(console, "audit", pair.source, roles)
    learned = {name: role for name, role in file.feed.roles.items() if role in LEARNED}
    labels = read_classes_of_predictions(pair.predictions, file)
    return _FileContents(learned, file.keys, labels, file.n_rows)


def _merge_columns(
    pairs: Sequence[_FilePair], contents: Sequence[_FileContents]
) -> tuple[Key, ...]:
    """Return the columns of all files; raise if they do not mean the same in each."""
    first = contents[0]
    for pair, file in zip(pairs, contents, strict=True):
        if file.labels != first.labels:
            raise FolklearnError(
                f"{pairs[0].predictions} is about the classes {join_names(first.labels)}, and "
                f"{pair.predictions} about {join_names(file.labels)}: files "
                "that are audited together "
                "need the same, a column p:label for each"
            )
        for name in {**first.roles, **file.roles}:
            roles = [side.roles.get(name, "not there") for side in (first, file)]
            if roles[0] != roles[1]:
                raise FolklearnError(
                    f"column {name!r} is {roles[0]} in {pairs[0]} and {roles[1]} in {pair}: files "
                    "that are audited together need the same columns; name its role (--role) or "
                    "leave it out (--drop)"
                )
        shared = [name for name, value in file.keys if value.startswith("#")]
        if shared:
            raise FolklearnError(
                f"column {shared[0]!r} of {pair} has too many categories for a column of each, and "
                "which of them share one differs from file to file: leave it out (--drop), or "
                "audit one file at a time"
            )
    return tuple(dict.fromkeys(chain.from_iterable(file.keys for file in contents)))


def _open_file(
    roles: Mapping[str, str], keys: Sequence[Key], moments: Moments | None, pair: _FilePair
) -> LabelledFile:
    console = new_console(quiet=True)  # warnings were shown by `_read_contents`
    with warnings_shown(console):
        file = LabelledFile(console, "audit", pair.source, roles)
    file.set_columns(keys, moments)
    return file


def _find_moments(roles: Mapping[str, str], keys: Sequence[Key], pair: _FilePair) -> Moments:
    return _open_file(roles, keys, None, pair).moments()


def _read_batches(
    roles: Mapping[str, str], keys: Sequence[Key], moments: Moments, pair: _FilePair
) -> Iterator[tuple[Array, Labels, Array]]:
    file = _open_file(roles, keys, moments, pair)
    predictions = read_predictions(pair.predictions, file)
    P, start = predictions.clipped, 0
    for X, y in file.batches(predictions.labels):
        predictions.check_same_rows(start, y)
        yield X, y, P[start : start + len(y)]
        start += len(y)


def _summarise_files(audited: FilesAudit, file: LabelledFile, seconds: float) -> str:
    rows = [*audited.files, AuditedFile("all", audited.certificate)]
    names = [str(row.file)[-_MAX_FILE_WIDTH:] for row in rows]
    table = TextTable(
        [
            ("", "", "average", "lower", "regret bound"),
            ("file", "rows", "log loss", "bound", "a row"),
        ],
        width=14,
        left=max(_MIN_FILE_WIDTH, *map(len, names)),
    )
    lines = [table.header]
    for name, row in zip(names, rows, strict=True):
        n, *numbers = average_certificate(row.certificate)
        lines.append(table.line([name, f"{n}", *map(text.format_loss, numbers)]))
    lines.append(f"Audited {audited.certificate.n_rounds} predictions in {seconds:.2f} s.")
    by = "the rows of all files"
    lines.append(file.describe_certificate(audited.certificate, by).in_full())
    return "\n".join(lines)
