"""`folklearn audit`: certify the predictions of any model, in one file, of rows in another."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import compress
from operator import add
from typing import Any

import numpy as np
from rich.console import Console
from typer import Option

from folklearn.arrays import Array, Labels
from folklearn.cli import display, options
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
from folklearn.model.roles import CATEGORY, IGNORED, WORDS
from folklearn.progress import show_bar
from folklearn.readers.convert import Kind, format_role
from folklearn.readers.open import open_reader
from folklearn.readers.reader import BadRow, Reader
from folklearn.readers.table import Table, TextColumn
from folklearn.scaler import FixedScaler, Moments
from folklearn.utils import count_of, join_names

_MAX_ROUNDING = 0.01  # of a row's sum: probabilities in text have few digits
_TOLERANCE = 1e-6  # of --exact, relative


def audit(
    source: options.LearnedSource,
    predictions: str = Option(
        ..., "-p", "--predictions", metavar="PREDS.csv", help="Probabilities by label, or p:label."
    ),
    exact: bool = Option(False, "--exact", help="Read the file until the best model is known."),
    jobs: int = Option(1, metavar="N", help="Threads of --exact, -1 for all cores; same result."),
    device: options.Device = OWN,
    quiet: options.Quiet = False,
) -> None:
    """Each prediction must have been made before its label was seen; this cannot be checked."""
    MapReduce.from_options(jobs, device)  # raises before anything is read
    started = time.perf_counter()
    with display.open_console(quiet) as console:
        audited = FileAudit(console, source, predictions, device)
        certificate = audited.certificate(jobs if exact else None)
        hindsight = audited.regression()
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
    for note in audited.notes:
        console.print(note)


class FileAudit:
    """Read rows and predictions of them, and certify these.

    Attributes
    ----------
    labels : the classes, sorted; one that has a column but never occurs is one like any other.
    y, P : (T,) and (T, K), clipped below, so that no loss is infinite.
    notes : sentences about what was done with the predictions.
    """

    def __init__(
        self, console: Console, source: options.LearnedSource, path: str, device: str = OWN
    ) -> None:
        self._console = console
        try:
            self._file = file = LabelledFile(console, source)
            self.labels, self.y, self.P, self.notes = read_predictions(path, file)
        except BadRow as bad:  # these commands have no option to skip it
            raise FolklearnError(bad.sentence) from None
        sizes = {"n_features": file.n_features, "n_classes": len(self.labels)}
        self.certifier = Certifier(**sizes, constant=0, device=device)
        fields = display.describe_run(file.dataset)
        fields["predicted"] = f"{file.dataset.target}, {display.describe_classes(self.labels)}"
        if n_unlabelled := len(file.has_label) - len(file.y):
            fields["no label"] = f"{count_of(n_unlabelled, 'row')}, which are left out"
        fields |= {"audited": path, "models": f"linear in {file.columns}"}
        console.print(display.format_fields(fields))
        with show_bar(console, "reading", len(file.y)) as report:
            for X, y in file.batches(self.y):
                start = self.certifier.n_rounds
                self.certifier.observe_many(X, y, self.P[start : start + len(X)])
                report(self.certifier.n_rounds)

    def certificate(self, jobs: int | None = None) -> PredictionCertificate:
        """Return the certificate; with a number of threads the exact one, from further passes."""
        models, n = self._file.columns, self.certifier.n_rounds
        if jobs is None:
            return replace(self.certifier.certificate(), models=models)

        def show(done: Pass) -> None:
            self._console.print(
                f"  pass {done.number}: a linear model with an average loss and penalty of "
                f"{done.loss / n:.6f}; none below {done.at_least / n:.6f}; gap {done.gap / n:.1e}"
            )

        batches = partial(self._file.batches, self.y)
        self._console.print("Reading the rows again:")
        exact = self.certifier.exact(batches, tol=_TOLERANCE, report=show, n_jobs=jobs)
        return replace(exact, models=models)

    def regression(self) -> Regression | None:
        d, K = self._file.n_features, len(self.labels)
        if not is_regression_affordable(K * d, 8 * len(self.y) * (d - 1)):
            return None
        X = np.concatenate([X for X, _ in self._file.batches(self.y)])
        fitted = logistic_regression(X, self.y, n_classes=K, constant=0)
        return replace(fitted, features=self._file.columns)


class LabelledFile:
    """Rows of a file with their labels, encoded as by a model; those without one are left out.

    A pipe is held in memory. Class numbers `y` (T,) are places in `labels`; linear models of the
    rows are linear in `columns`, in words.
    """

    def __init__(self, console: Console, source: options.LearnedSource) -> None:
        roles = source.roles
        reader, target = source.open(buffered=True)
        self.dataset = ModelDataset(Model(roles=roles), reader, target, dense=True)
        if words := [name for name, role in self.dataset.roles.items() if role == WORDS]:
            raise FolklearnError(
                f"column {words[0]!r} holds words, and an audit takes none: "
                f"{format_role(words[0], IGNORED)}, or {format_role(words[0], CATEGORY)}"
            )
        options.check_rows(self.dataset, console)
        scan, model, encoder = self.dataset.scan, self.dataset.model, self.dataset.model.encoder
        assert scan is not None
        assert encoder is not None
        if scan.largest_weight is not None:
            raise FolklearnError(f"{reader.name} has weights, and an audit takes none")
        self._encoder = encoder
        many = [name for name, values in scan.values.items() if len(values) > MOST_OWN]
        if any(encoder.roles.get(name) == CATEGORY for name in many):
            for rows in self.dataset.rows():  # columns that rare categories share
                batch = encoder.encode(rows.table)
                encoder.admit(batch.keys, batch.roles)
        moments, numbers, has_label = [], [], []
        for rows in self.dataset.rows():
            table, labels, _ = rows.take_labelled()
            moments.append(Moments.of(encoder.encode_known(table)))
            numbers.append(model.label_encoder.find_known(labels))
            has_label.append(rows.has_label)
        self.labels = model.labels
        self.y, self.has_label = np.concatenate(numbers), np.concatenate(has_label)
        self._scaler = FixedScaler().opened(
            reduce(add, moments), encoder.are_numbers(encoder.keys) or [True]
        )
        self.n_features = self._scaler.n_columns
        self.columns = f"the columns ({encoder.in_words.format(by='all rows')})"

    def batches(self, y: Labels) -> Iterator[tuple[Array, Labels]]:
        """Yield rows X (T, 1 + d), a constant and standardised columns, and their part of `y`."""
        start = 0
        for rows in self.dataset.rows():
            table, _, _ = rows.take_labelled()
            X = self._scaler.transform(self._encoder.encode_known(table))
            yield X, y[start : start + len(X)]
            start += len(X)


def read_predictions(
    path: str, file: LabelledFile
) -> tuple[tuple[str, ...], Labels, Array, list[str]]:
    """Return what a CSV file says of every row, as attributes of `FileAudit`."""
    reader = open_reader(path, format="csv")
    columns = _find_columns(path, reader.names, file)
    labels = tuple(sorted(columns))
    cells, said = _read_cells(reader, [columns[label] for label in labels])
    if len(cells) == len(file.has_label):
        cells, said = cells[file.has_label], [*compress(said, file.has_label)]
    if len(cells) != len(file.y):
        raise FolklearnError(
            f"{path} has {len(cells)} rows of predictions, and {file.dataset.reader.name} has "
            f"{len(file.y)} with a label; expected one for every row, in the same order"
        )
    y = np.array([labels.index(label) for label in file.labels])[file.y]
    for row, (label, k) in enumerate(zip(said, y, strict=False), start=1):  # it may say none
        if label != labels[k]:
            raise FolklearnError(
                f"row {row} has the label {labels[k]!r}, but {path} says {label!r}: its rows are "
                "not those of this table, in order"
            )
    P, unseen = np.split(cells, [len(labels)], axis=1)
    totals = P.sum(axis=1, keepdims=True)
    if not (totals > 0.0).all():
        raise FolklearnError(
            f"{path}, row {np.argmin(totals > 0.0) + 1}: no class but an unseen one is likely"
        )
    # Half of what is tolerated later: another order of summing must not decide.
    is_far = np.abs(totals - 1.0) > 0.5 * ROW_SUM_TOLERANCE
    P = np.where(is_far | bool(unseen.size), P / totals, P)
    notes = []
    low = np.flatnonzero(P[np.arange(len(y)), y] < MIN_PROBABILITY)
    if low.size:
        notes.append(
            f"In {low.size} rounds, first in row {low[0] + 1}, the label was given less than "
            f"{MIN_PROBABILITY:g}, which was counted as {MIN_PROBABILITY:g}; given 0, the log "
            "loss is infinite."
        )
    if unseen.any():
        notes.append(
            f"The column {UNSEEN} was left out, the other probabilities divided by their sum: "
            "the price of not knowing a class is not in these numbers."
        )
    if is_far.any() and not unseen.size:
        notes.append(
            f"{is_far.sum()} rows did not sum to 1 within {ROW_SUM_TOLERANCE:g} and were "
            "divided by their sum."
        )
    # Sums stay within the tolerance.
    return labels, y, np.maximum(P, MIN_PROBABILITY), notes


def _read_cells(reader: Reader, names: list[str]) -> tuple[Array, list[str | None]]:
    """Return probabilities of the columns, then of unseen classes if there are any; and labels."""
    names += [name for name in reader.names if name == UNSEEN and name not in names]
    kinds: dict[str, Kind] = dict.fromkeys(names, "number")
    if LABEL in reader.names:
        kinds.setdefault(LABEL, "text")
    reader.has_fixed_roles = True
    table = Table.concat([*reader.read(kinds)])
    columns: Mapping[str, Any] = table.columns
    P = np.column_stack([columns.get(name, np.empty(0)) for name in names])
    for row, k in np.argwhere(~((P >= 0.0) & (P <= 1.0 + _MAX_ROUNDING)))[:1].tolist():
        raise FolklearnError(
            f"line {table.lines[row]} of {reader.name}, column {names[k]!r}: {P[row, k]:g} is not "
            "from 0 to 1"
        )
    totals = P.sum(axis=1)
    for row in np.flatnonzero(np.abs(totals - 1.0) > _MAX_ROUNDING)[:1]:
        raise FolklearnError(
            f"line {table.lines[row]} of {reader.name}: the probabilities sum to "
            f"{totals[row]:.6g}; expected 1, up to rounding of {_MAX_ROUNDING:g}"
        )
    labels = columns.get(LABEL)
    return P, labels.to_list() if isinstance(labels, TextColumn) else []


def _find_columns(path: str, names: Sequence[str], file: LabelledFile) -> dict[str, str]:
    """Return the column of every class: p:label if there is one, else plain labels."""
    prefixed = [name for name in names if name.startswith(CLASS_PREFIX)]
    columns = {name.removeprefix(CLASS_PREFIX): name for name in prefixed}
    columns = columns or {name: name for name in names if name}  # pandas leaves its index unnamed
    missing = [label for label in sorted(file.labels) if label not in columns]
    extra = [name for name in columns if name not in file.labels and not prefixed]
    if missing or extra:
        problem = f"has the column {extra[0]!r}, which is no label" if extra else ""
        problem = f"has no column for the label {missing[0]!r}" if missing else problem
        raise FolklearnError(
            f"{path} {problem} of column {file.dataset.target!r} of {file.dataset.reader.name}; "
            f"name probabilities by their label, or, beside other columns, {CLASS_PREFIX}label; "
            f"its columns are: {join_names(names)}"
        )
    return columns
