"""`folklearn audit`: certify the predictions of any model, in one file, of rows in another."""

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import compress
from operator import add

import numpy as np
from rich.console import Console
from typer import Option

from folklearn.arrays import Array, Labels
from folklearn.cli import display, options
from folklearn.cli.display import TextTable, format_loss, new_console, warnings_shown
from folklearn.cli.options import check_two_classes
from folklearn.cli.predict import CLASS_PREFIX, LABEL, UNSEEN
from folklearn.errors import FolklearnError
from folklearn.evaluate.auditing import Certifier, PredictionCertificate
from folklearn.evaluate.best_linear import Pass
from folklearn.evaluate.regression import Regression, logistic_regression
from folklearn.evidence.passes import MapReduce
from folklearn.kernels.blas import OWN
from folklearn.metrics.scores import MIN_PROBABILITY, ROW_SUM_TOLERANCE, score
from folklearn.model.batch import MOST_OWN
from folklearn.model.dataset import ModelDataset
from folklearn.model.model import Model
from folklearn.model.refit import is_regression_affordable
from folklearn.model.roles import CATEGORY, WORDS
from folklearn.readers.convert import Kind
from folklearn.readers.open import open_reader
from folklearn.readers.reader import BadRow
from folklearn.readers.table import TextColumn
from folklearn.scaler import FixedScaler, Moments
from folklearn.utils import count_of, join_names

_MAX_ROUNDING = 0.01  # of a row's sum: probabilities in text have few digits
_TOLERANCE = 1e-6  # of --exact, relative
_TABLE = TextTable(
    [
        ("", "loss since", "average", "error", "regret bound", ""),
        ("rows", "last line", "log loss", "rate", "a row", "rows/s"),
    ],
    width=13,
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
    jobs: int = Option(1, metavar="N", help="Threads of --exact, -1 for all cores; same result."),
    device: options.Device = OWN,
    quiet: options.Quiet = False,
) -> None:
    """Certify predictions that any model made: how much better could a linear model do?

    Each prediction must have been made before its label was seen; this cannot be checked.
    """
    MapReduce.from_options(jobs, device)  # raises before anything is read
    console, started = new_console(quiet), time.perf_counter()
    with warnings_shown(console):
        audited = FileAudit(console, source, predictions, device)
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
        source: options.LearnedSource,
        predictions: str,
        device: str = OWN,
    ) -> None:
        self._console = console
        self.file = file = LabelledFile(console, source)
        self.predictions = PredictionsFile(predictions, file)
        sizes = {"n_features": file.n_features, "n_classes": len(file.labels)}
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


class LabelledFile:
    """Rows of a file with their labels, encoded as by a model; those without one are left out.

    A source that can be read once is held in memory. The classes, `labels`, are in the order of
    their numbers, and may be set to others that include them.
    """

    def __init__(self, console: Console, source: options.LearnedSource) -> None:
        roles = source.roles
        reader, target = source.open(buffered=True)
        try:
            self.dataset = ModelDataset(Model(roles=roles), reader, target, dense=True)
            _check_words(self.dataset)
            with display.progress_bar(console, "checking", reader.n_rows) as report:
                self.dataset.begin(report)
        except BadRow as bad:  # these commands have no option to skip it
            raise FolklearnError(bad.sentence) from None
        scan, encoder = self.dataset.scan, self.dataset.model.encoder
        assert scan is not None
        assert encoder is not None
        self.name, self.unit, self.target = reader.name, reader.unit, self.dataset.target or ""
        self.first_lines, self.labels = scan.first_lines, tuple(sorted(scan.labels))
        check_two_classes(self.labels, self.dataset)
        self.n_rows, self.n_unlabelled = scan.n_rows - scan.n_unlabelled, scan.n_unlabelled
        if scan.largest_weight is not None:
            raise FolklearnError(
                f"{self.name} has weights, and an audit takes none: leave them out; folklearn run "
                "learns with them"
            )
        self.encoder = encoder
        many = [name for name, values in scan.values.items() if len(values) > MOST_OWN]
        if any(encoder.roles.get(name) == CATEGORY for name in many):
            for rows in self.dataset.rows():  # columns that rare categories share
                batch = encoder.encode(rows.table)
                encoder.admit(batch.keys, batch.roles)
        self.n_features = 1 + max(1, len(encoder.keys))  # with the constant

    @cached_property
    def scaler(self) -> FixedScaler:
        tables = (rows.table.take(rows.has_label) for rows in self.dataset.rows())
        moments = reduce(add, (Moments.of(self.encoder.encode_known(table)) for table in tables))
        return FixedScaler().opened(moments, self.encoder.are_numbers(self.encoder.keys) or [True])

    def describe_columns(self) -> str:
        """Return in words what linear models of these rows are linear in."""
        return f"the columns ({self.encoder.in_words.format(by='all rows')})"

    def regression(self) -> Regression | None:
        K, d = len(self.labels), self.n_features
        if not is_regression_affordable(K * d, 8 * self.n_rows * (d - 1)):
            return None
        X, y = (np.concatenate(arrays) for arrays in zip(*self.batches(), strict=True))
        fitted = logistic_regression(X, y, n_classes=K, constant=0)
        return replace(fitted, features=self.describe_columns())

    def batches(self) -> Iterator[tuple[Array, Labels]]:
        """Yield rows X (T, 1 + d), a constant and standardised columns, and class numbers y.

        A batch ends where the number of rows doubles.
        """
        model = self.dataset.model
        order = np.array([self.labels.index(label) for label in model.labels])
        for rows in self.dataset.rows(0):
            y = order[model.label_encoder.find_known(rows.labels)]
            X = self.encoder.encode_known(rows.table.take(rows.has_label))
            yield self.scaler.transform(X), y

    def describe(self, **lines: str) -> str:
        fields = display.describe_run(self.dataset)
        fields["predicted"] = f"{self.target}, {display.describe_classes(self.labels)}"
        if self.n_unlabelled:
            fields["no label"] = f"{count_of(self.n_unlabelled, 'row')}, which are left out"
        return display.format_fields(fields | lines)


def _check_words(dataset: ModelDataset) -> None:
    for name, role in dataset.roles.items():
        if role == WORDS:
            raise FolklearnError(
                f"column {name!r} holds words, and an audit takes none: leave it out (--drop "
                f"{shlex.quote(name)}), or take every text as one category (--role "
                f"{shlex.quote(f'{name}=category')}); folklearn run learns words"
            )


class PredictionsFile:
    """A CSV file of predictions, one for every row of a labelled file.

    A class that has a column but never occurs is a class like any other. The classes of `file`
    become those of the predictions.

    Attributes
    ----------
    labels : the classes, sorted.
    P : (T, K), of rows with a label, clipped below, so that no loss is infinite.
    """

    def __init__(self, path: str, file: LabelledFile) -> None:
        if os.path.isdir(path):
            raise FolklearnError(f"{path} is a folder, not a CSV file")
        if path == options.STDIN:
            raise FolklearnError("--predictions must be a file, not standard input")
        self.name, self._file, self._reader = path, file, open_reader(path, format="csv")
        self._columns = _find_columns(path, self._reader.names, file)
        self.labels = file.labels = tuple(sorted(self._columns))
        P, true = self._read_cells()
        is_kept = [True] * len(P)
        if len(P) == file.n_rows + file.n_unlabelled:
            is_kept = np.concatenate([rows.has_label for rows in file.dataset.rows()]).tolist()
        P, self._true = P[is_kept], list(compress(true, is_kept))
        if len(P) != file.n_rows:
            raise FolklearnError(
                f"{path} has {len(P)} rows of predictions, and {file.name} has {file.n_rows} with "
                "a label; expected one for every row, in the same order"
            )
        P, unseen = np.split(P, [len(self.labels)], axis=1)
        totals = P.sum(axis=1, keepdims=True)
        if not (totals > 0.0).all():
            raise FolklearnError(
                f"{path}, row {int(np.argmin(totals > 0.0)) + 1}: no class but an unseen one has a "
                "probability"
            )
        # Half of what is tolerated later: another order of summing must not decide.
        is_far = np.abs(totals - 1.0) > 0.5 * ROW_SUM_TOLERANCE
        self._given = np.where(is_far | bool(unseen.size), P / totals, P)
        self._n_rounded = 0 if unseen.size else int(is_far.sum())
        self._has_unseen = bool(unseen.any())
        self.P = np.maximum(self._given, MIN_PROBABILITY)  # sums stay within the tolerance

    def _read_cells(self) -> tuple[Array, list[str | None]]:
        """Return probabilities of the classes, and of unseen ones if there are any; and labels."""
        names = [self._columns[label] for label in self.labels]
        names += [name for name in self._reader.names if name == UNSEEN and name not in names]
        kinds: dict[str, Kind] = dict.fromkeys(names, "number")
        if LABEL in self._reader.names:
            kinds.setdefault(LABEL, "text")
        tables: list[Array] = [np.empty((0, len(names)))]
        true: list[str | None] = []
        try:
            for table in self._reader.read(kinds):
                cells: Mapping[str, Array] = table.columns  # type: ignore[assignment]
                tables.append(np.column_stack([cells[name] for name in names]))
                _check_probabilities(tables[-1], table.lines, names, self.name)
                labels = table.columns.get(LABEL)
                true += labels.to_list() if isinstance(labels, TextColumn) else []
        except BadRow as bad:
            where = f", column {bad.column!r}" if bad.column else ""
            raise FolklearnError(f"line {bad.line} of {self.name}{where}: {bad.reason}") from None
        return np.concatenate(tables), true

    def batches(self) -> Iterator[tuple[Array, Labels, Array]]:
        """Yield the rows of the labelled file: X, y and P; raise if labels here are others."""
        start = 0
        for X, y in self._file.batches():
            for i, true in enumerate(self._true[start : start + len(y)]):
                label = self.labels[y[i]]
                if true != label:
                    raise FolklearnError(
                        f"row {start + i + 1} has the label {label!r}, but {self.name} says "
                        f"{true!r}: its rows are not those of this table, in order"
                    )
            yield X, y, self.P[start : start + len(y)]
            start += len(y)

    def notes(self, y: Labels) -> Iterator[str]:
        low = np.flatnonzero(self._given[np.arange(len(y)), y] < MIN_PROBABILITY)
        if low.size:
            yield (
                f"In {low.size} rounds, first in row {low[0] + 1}, the label was given less than "
                f"{MIN_PROBABILITY:g}, which was counted as {MIN_PROBABILITY:g}; given 0, the log "
                "loss is infinite."
            )
        if self._has_unseen:
            yield (
                f"The column {UNSEEN} was left out, the other probabilities divided by their sum: "
                "the price of not knowing a class is not in these numbers."
            )
        if self._n_rounded:
            yield (
                f"{self._n_rounded} rows did not sum to 1 within {ROW_SUM_TOLERANCE:g} and were "
                "divided by their sum."
            )


def _find_columns(path: str, names: Sequence[str], file: LabelledFile) -> dict[str, str]:
    """Return the column of every class: p:label if there is one, else plain labels."""
    prefixed = [name for name in names if name.startswith(CLASS_PREFIX)]
    columns = {name.removeprefix(CLASS_PREFIX): name for name in prefixed}
    columns = columns or {name: name for name in names if name}  # pandas leaves its index unnamed
    missing = [label for label in file.labels if label not in columns]
    if missing:
        raise FolklearnError(
            f"{path} has no column for the label {missing[0]!r} of column {file.target!r} "
            f"({file.unit} {file.first_lines[missing[0]]} of {file.name}); name it "
            f"{missing[0]!r} or {f'{CLASS_PREFIX}{missing[0]}'!r}; "
            f"its columns are: {join_names(names)}"
        )
    extra = [name for name in columns if name not in file.labels]
    if extra and not prefixed:
        raise FolklearnError(
            f"{path} has the column {extra[0]!r}, which is no label of column {file.target!r} "
            f"of {file.name}; if there are other columns than probabilities, name those "
            f"{CLASS_PREFIX}label"
        )
    return columns


def _check_probabilities(P: Array, lines: Labels, names: Sequence[str], path: str) -> None:
    bad = np.argwhere(~((P >= 0.0) & (P <= 1.0 + _MAX_ROUNDING)))
    if len(bad):
        row, column = bad[0].tolist()
        value = P[row, column]
        what = "there is no value" if np.isnan(value) else f"{value:g} is not from 0 to 1"
        raise FolklearnError(f"line {lines[row]} of {path}, column {names[column]!r}: {what}")
    totals = P.sum(axis=1)
    far = np.flatnonzero(np.abs(totals - 1.0) > _MAX_ROUNDING)
    if far.size:
        raise FolklearnError(
            f"line {lines[far[0]]} of {path}: the probabilities sum to {totals[far[0]]:.6g}; "
            f"expected 1, up to rounding of {_MAX_ROUNDING:g}"
        )
