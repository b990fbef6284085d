"""`folklearn audit`: certify the predictions of any model."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from folklearn.arrays import Array, Labels
from folklearn.cli import report
from folklearn.cli.display import Table, follow, new_console, warnings_shown
from folklearn.cli.inputs import STDIN, check_settings
from folklearn.cli.options import Columns, Source, explained
from folklearn.cli.predictions import LABEL, OF_CLASS, UNSEEN
from folklearn.cli.warmup import warm_up
from folklearn.cli.whole import Whole, in_order
from folklearn.engine import Engine
from folklearn.errors import FolklearnError
from folklearn.evaluate.certify import Certifier, PredictionCertificate
from folklearn.evaluate.exact import Pass
from folklearn.evaluate.probabilities import ROW_SUM_TOLERANCE
from folklearn.evaluate.progressive import FLOOR, score
from folklearn.numerics.backend import OWN
from folklearn.readers.block import Texts
from folklearn.readers.cells import Kind
from folklearn.readers.opening import open_reader
from folklearn.readers.reader import BadRow, Reader
from folklearn.words import listed

_TOLERANCE = 1e-6  # of --exact, relative
_LARGEST_ROUNDING = 0.01  # of a row's sum: probabilities in text have few digits
_TABLE = Table(
    [
        ("", "loss since", "average", "error", "regret bound", ""),
        ("rows", "last line", "log loss", "rate", "a row", "rows/s"),
    ],
    width=13,
)


@explained(
    f"""
--predictions -p PREDS.csv  What a model predicted: a line of probabilities for every row, in order,
    under a header of labels, plain or as p:label; what run and predict write will do.
--B  Largest row norm of the linear models to compare with.
--exact  Read the file again, a few times, until the best linear model is known to {_TOLERANCE:g} of
    its loss.
--jobs N  With --exact: threads that share the rows, -1 for as many as there are cores. What comes
    out is the same.
"""
)
def audit(
    source: Source,
    columns: Columns,
    predictions: str = "",
    B: float = 10.0,
    exact: bool = False,
    jobs: int = 1,
    device: str = OWN,
    quiet: bool = False,
) -> None:
    """Certify predictions that any model made: how much better could a linear model do?

    Each prediction must have been made before its label was seen; this cannot be checked.
    """
    if not predictions:
        raise FolklearnError("--predictions is needed: the file that holds what was predicted")
    Engine.chosen(jobs, device)  # hears what is wrong before anything is read
    console = new_console(quiet)
    with warnings_shown(console):
        started = time.perf_counter()
        audited = certified(console, "audit", source, columns, predictions, B, device)
        certifier = audited.certifier
        certificate = _refined(audited, console, jobs) if exact else certifier.certificate()
        seconds = time.perf_counter() - started
    console.print(_summary(audited, certificate, seconds))


def certified(
    console: Console,
    command: str,
    source: Source,
    columns: Columns,
    predictions: str,
    B: float,
    device: str = OWN,
) -> "Audited":
    """Read rows and predictions of them, and certify these, showing how it goes."""
    check_settings({"B": B})
    whole = Whole(console, command, source, columns.roles())
    given = _read(predictions, whole)
    sizes = {"n_features": whole.n_inputs + 1, "n_classes": len(given.labels)}
    certifier = Certifier(**sizes, B=B, device=device)
    models = f"linear in the scaled columns, row norms at most {B:g}"
    more = ("audited", given.name), ("models", models)
    console.print(whole.about(*more, labels=given.labels))
    warm_up(console, "auto")
    audited = Audited(certifier, given, whole)
    follow(console, _TABLE, audited.certified(), audited.cells, what="reading", total=whole.n_rows)
    return audited


def _refined(audited: "Audited", console: Console, jobs: int) -> PredictionCertificate:
    """Read the rows again until the certificate is exact; say after each pass how far it is."""
    n = audited.certifier.n_rounds
    console.print("Reading the rows again:")

    def show(done: Pass) -> None:
        console.print(
            f"  pass {done.number}: a linear model with an average log loss of "
            f"{done.loss / n:.6f}; none below {done.at_least / n:.6f}; gap {done.gap / n:.1e}"
        )

    return audited.certifier.exact(audited.again, tol=_TOLERANCE, report=show, n_jobs=jobs)


@dataclass(frozen=True)
class Given:
    """The predictions of a file: P (T, K), its classes, and what had to be done to them."""

    name: str
    labels: tuple[str, ...]
    P: Array
    true: Sequence[str | None]  # what the file itself says of the labels, or empty
    n_rounded: int
    unseen: bool  # whether it had a column of classes never seen

    @property
    def clipped(self) -> Array:
        """The same, a probability of 0 counted as the floor: sums stay within the tolerance."""
        return np.maximum(self.P, FLOOR)

    def notes(self, y: Labels) -> Iterator[str]:
        """Yield what had to be done to the predictions of labels y (T,)."""
        low = np.flatnonzero(self.P[np.arange(len(y)), y] < FLOOR)
        if low.size:
            yield (
                f"In {low.size} rounds, first in row {low[0] + 1}, the label was given less than "
                f"{FLOOR:g}, which was counted as {FLOOR:g}; given 0, the log loss is infinite."
            )
        if self.unseen:
            yield (
                f"The column {UNSEEN} was left out, the other probabilities divided by their sum: "
                "the price of not knowing a class is not in these numbers."
            )
        if self.n_rounded:
            yield (
                f"{self.n_rounded} rows did not sum to 1 within {ROW_SUM_TOLERANCE:g} and were "
                "divided by their sum."
            )


class Audited:
    """Predictions of a file beside the rows that they are about."""

    def __init__(self, certifier: Certifier, given: Given, whole: Whole) -> None:
        self.certifier, self.given, self.whole = certifier, given, whole
        self.P = given.clipped
        self.y = np.empty(len(given.P), dtype=np.int64)
        self._n_wrong = 0
        self._shown = 0, 0.0  # rows and loss by the last line

    def certified(self) -> Iterator[int]:
        """Certify all rows; yield how many, also at every power of two."""
        for X, y in self.again():
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
        for place, true in enumerate(self.given.true[rows]):
            label = self.given.labels[y[place]]
            if true != label:
                raise FolklearnError(
                    f"row {start + place + 1} has the label {label!r}, but {self.given.name} says "
                    f"{true!r}: its rows are not those of this table, in order"
                )
        self.certifier.observe_many(X, y, self.P[rows])
        self.y[rows] = y
        self._n_wrong += int((self.P[rows].argmax(axis=1) != y).sum())

    def again(self) -> Iterator[tuple[Array, Labels]]:
        """Yield all rows, scaled as they were when they came."""
        return self.whole.blocks(self.given.labels)

    def cells(self, speed: float) -> list[str]:
        """Return a line of the table."""
        (shown, before), n = self._shown, self.certifier.n_rounds
        loss = self.certifier.loss
        self._shown = n, loss
        bound = self.certifier.certificate().regret_bound
        losses = report.number((loss - before) / (n - shown)), report.number(loss / n)
        return [
            f"{n}", *losses, f"{self._n_wrong / n:.2%}", report.number(bound / n), f"{speed:.0f}"
        ]  # fmt: skip


def _read(path: str, whole: Whole) -> Given:
    """Read a whole file of predictions; refuse it unless it fits the rows."""
    reader = _opened(path)
    columns = _columns(path, reader.names, whole)
    P, true = _cells(path, reader, columns)
    if len(P) == whole.n_rows + whole.n_unlabelled and whole.n_unlabelled:
        there = whole.has_label()
        P, true = P[there], [label for label, known in zip(true, there, strict=False) if known]
    if len(P) != whole.n_rows:
        raise FolklearnError(
            f"{path} has {len(P)} rows of predictions, and {whole.name} has {whole.n_rows} with a "
            "label; expected one for every row, in the same order"
        )
    return _given(path, columns, P, true)


def are_predictions(path: str) -> bool:
    """Tell whether a file holds labels beside what was predicted, as `folklearn run` writes it."""
    names = _opened(path).names if path.endswith(".csv") else []
    return LABEL in names and any(name.startswith(OF_CLASS) for name in names)


def read_alone(path: str) -> tuple[Given, Labels]:
    """Read predictions that have their labels beside them; rows without a label are left out."""
    reader = _opened(path)
    columns = _of_classes(reader.names)
    P, true = _cells(path, reader, columns)
    numbers = {label: k for k, label in enumerate(in_order(columns))}
    new = [label for label in true if label is not None and label not in numbers]
    if new:
        raise FolklearnError(f"{path} has the label {new[0]!r}, and no column of its probability")
    there = [label is not None for label in true]
    known = [label for label in true if label is not None]
    y = np.array([numbers[label] for label in known], np.int64)
    if not len(y):
        raise FolklearnError(f"{path} has no row with a label")
    return _given(path, columns, P[there], known), y


def _opened(path: str) -> Reader:
    if os.path.isdir(path):
        raise FolklearnError(f"{path} is a folder, not a CSV file")
    if path == STDIN:
        raise FolklearnError("--predictions must be a file, not standard input")
    return open_reader(path, format="csv")


def _has_unseen(names: Sequence[str], columns: Mapping[str, str]) -> bool:
    return UNSEEN in names and UNSEEN not in columns.values()


def _cells(path: str, reader: Reader, columns: Mapping[str, str]) -> tuple[Array, list[str | None]]:
    """Return probabilities of the classes, and of one never seen if it is there; and labels."""
    names = [columns[label] for label in in_order(columns)]
    names += [UNSEEN] * _has_unseen(reader.names, columns)
    kinds: dict[str, Kind] = dict.fromkeys(names, "number")
    if LABEL in reader.names and LABEL not in names:
        kinds[LABEL] = "text"
    rows: list[Array] = []
    true: list[str | None] = []
    try:
        for block in reader.blocks(kinds):
            cells: Mapping[str, Array] = block.columns  # type: ignore[assignment]
            rows.append(np.column_stack([cells[name] for name in names]))
            _refuse_unless_probabilities(rows[-1], block.lines, names, path)
            given = block.columns.get(LABEL)
            true += given.texts() if isinstance(given, Texts) else []
    except BadRow as bad:
        where = f", column {bad.column!r}" if bad.column else ""
        raise FolklearnError(f"line {bad.line} of {path}{where}: {bad.reason}") from None
    return np.concatenate([np.empty((0, len(names))), *rows]), true


def _given(path: str, columns: Mapping[str, str], P: Array, true: Sequence[str | None]) -> Given:
    """Return probabilities of the classes that sum to 1."""
    unseen = P.shape[1] > len(columns)
    if unseen:
        P, unseen = P[:, :-1], bool(P[:, -1].any())
        if not (P.sum(axis=1) > 0.0).all():
            place = int(np.argmin(P.sum(axis=1) > 0.0))
            raise FolklearnError(
                f"{path}, row {place + 1}: no class but an unseen one has a probability"
            )
        P = P / P.sum(axis=1, keepdims=True)
    totals = P.sum(axis=1, keepdims=True)
    # Half of what is tolerated later: another order of summing must not decide.
    far = np.abs(totals - 1.0) > 0.5 * ROW_SUM_TOLERANCE
    P = np.where(far, P / totals, P)
    return Given(path, in_order(columns), P, true, int(far.sum()), unseen)


def _of_classes(names: Sequence[str]) -> dict[str, str]:
    """Return the columns that are named p:label, by label."""
    return {name.removeprefix(OF_CLASS): name for name in names if name.startswith(OF_CLASS)}


def _columns(path: str, names: Sequence[str], whole: Whole) -> dict[str, str]:
    """Return the column of every class: p:label or p(label) if there is one, else plain labels.

    A class that has such a column but never occurs is a class like any other.
    """
    columns = _of_classes(names) or {
        name[2:-1].strip(): name for name in names if name.startswith("p(") and name.endswith(")")
    }
    wrapped = bool(columns)
    columns = columns or {name: name for name in names if name}  # pandas leaves its index unnamed
    missing = [label for label in whole.labels if label not in columns]
    if missing:
        raise FolklearnError(
            f"{path} has no column for the label {missing[0]!r} of column {whole.target!r} "
            f"({whole.unit} {whole.first_lines[missing[0]]} of {whole.name}); name it "
            f"{missing[0]!r} or {f'{OF_CLASS}{missing[0]}'!r}; its columns are: {listed(names)}"
        )
    extra = [name for name in columns if name not in whole.labels]
    if extra and not wrapped:
        raise FolklearnError(
            f"{path} has the column {extra[0]!r}, which is no label of column {whole.target!r} "
            f"of {whole.name}; if there are other columns than probabilities, name those "
            f"{OF_CLASS}label"
        )
    return columns


def _refuse_unless_probabilities(P: Array, lines: Labels, names: Sequence[str], path: str) -> None:
    """Raise for the first cell that is not a probability, or the first row of another sum."""
    bad = np.argwhere(~((P >= 0.0) & (P <= 1.0 + _LARGEST_ROUNDING)))
    if len(bad):
        row, column = bad[0].tolist()
        value = P[row, column]
        what = "there is no value" if np.isnan(value) else f"{value:g} is not from 0 to 1"
        raise FolklearnError(f"line {lines[row]} of {path}, column {names[column]!r}: {what}")
    totals = P.sum(axis=1)
    far = np.flatnonzero(np.abs(totals - 1.0) > _LARGEST_ROUNDING)
    if far.size:
        raise FolklearnError(
            f"line {lines[far[0]]} of {path}: the probabilities sum to {totals[far[0]]:.6g}; "
            f"expected 1, up to rounding of {_LARGEST_ROUNDING:g}"
        )


def _summary(audited: Audited, certificate: PredictionCertificate, seconds: float) -> str:
    """Return the result and what is proven about it."""
    n = certificate.n_rounds
    scores = score(audited.P, audited.y)
    lines = [
        f"Audited {n} predictions in {seconds:.2f} s: average log loss {scores.log_loss:.4f} "
        f"nats, error rate {scores.error_rate:.2%}, Brier score {scores.brier:.4f}, "
        f"expected calibration error {scores.calibration_error:.4f}.",
        certificate.in_full(audited.whole.n_inputs),
    ]
    if certificate.valid and certificate.regret_bound < 0.0:
        lines.append("So these predictions had a lower loss than every such linear model.")
    lines.append(
        "The linear model that learned the same rows beside them, on line, had an average log "
        f"loss of {audited.certifier.leader_loss / n:.4f}."
    )
    lines += audited.given.notes(audited.y)
    return "\n".join(lines)
