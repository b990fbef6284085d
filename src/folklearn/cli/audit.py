"""`folklearn audit`: certify the predictions of any model."""

import math
import os
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NoReturn

import numpy as np
import typer
from rich.console import Console

from folklearn.arrays import Array, Labels
from folklearn.certificate import Certificate
from folklearn.cli import report
from folklearn.cli.inputs import check_options, open_table, refuse_weights
from folklearn.cli.learning import learn, rows_of
from folklearn.cli.moments import block_sizes, is_doubling
from folklearn.cli.options import Drop, File, Format, Quiet, Target, Text, new_console
from folklearn.cli.predictions import UNSEEN
from folklearn.cli.warmup import warm_up
from folklearn.errors import FolklearnError
from folklearn.evaluate.certify import Certifier, PredictionCertificate
from folklearn.evaluate.exact import Pass
from folklearn.evaluate.probabilities import ROW_SUM_TOLERANCE
from folklearn.evaluate.progressive import FLOOR, score
from folklearn.model.scaler import OnlineScaler
from folklearn.streams import csv
from folklearn.streams.table import Table, classes, in_order
from folklearn.words import listed

_TOLERANCE = 1e-6  # of --exact, relative
_LARGEST_ROUNDING = 0.01  # of a row's sum: probabilities in text have few digits
_OWN_COLUMNS = ("label", "predicted")  # what `folklearn run --predictions` writes first


def audit(
    file: File = None,
    target: Target = None,
    format: Format = None,
    text: Text = None,
    drop: Drop = None,
    predictions: Annotated[
        str,
        typer.Option(
            "--predictions",
            "-p",
            metavar="PREDS.csv",
            help="What a model predicted: a header of labels, plain or as p(label), then one "
            "row of probabilities per example, in order.",
        ),
    ] = "",
    B: Annotated[
        float, typer.Option("--B", help="Largest row norm of the linear models to compare with.")
    ] = 10.0,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Read the file again, a few times, until the best linear model is known to "
            f"{_TOLERANCE:g} of its loss.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Certify predictions that any model made: how much better could a linear model do?

    Each prediction must have been made before its label was seen; this cannot be checked.
    """
    check_options({"B": B})
    if not predictions:
        raise FolklearnError("--predictions is needed: the file that holds what was predicted")
    if exact and file is not None and not os.path.isfile(file) and not os.path.isdir(file):
        _refuse_pipe(file)
    console = new_console(quiet)
    with open_table(file, target, format, text, drop) as table:
        refuse_weights(table, "folklearn audit")
        given = _read(predictions, table)
        certifier = Certifier(n_features=table.n_inputs + 1, n_classes=len(given.labels), B=B)
        audited = _Audited(certifier, given, table)
        console.print(_options(audited, table))
        warm_up(console, "auto", table.text)
        started = time.perf_counter()
        learn(audited, rows_of(table, audited), console, total=table.n_rows)
        refined = _refined(audited, table, console) if exact else None
        seconds = time.perf_counter() - started
    console.print(_summary(audited, refined or certifier.certificate(), seconds))


def _refuse_pipe(file: str) -> None:
    if file == "-" or os.path.exists(file):
        raise FolklearnError(
            "--exact reads the examples several times, and a pipe can be read once: write them "
            "to a file first"
        )


def _refined(audited: "_Audited", table: Table, console: Console) -> PredictionCertificate:
    """Read the table again until the certificate is exact; say after each pass how far it is."""
    n = audited.n_rounds
    console.print("Reading the examples again:")

    def show(done: Pass) -> None:
        console.print(
            f"  pass {done.number}: a linear model with an average log loss of "
            f"{done.loss / n:.6f}; none below {done.at_least / n:.6f}; gap {done.gap / n:.1e}"
        )

    return audited.learner.exact(lambda: audited.again(table), tol=_TOLERANCE, report=show)


@dataclass(frozen=True)
class _Given:
    """The predictions of a file: P (T, K), its classes, and what had to be done to them."""

    name: str
    labels: tuple[str, ...]
    P: Array
    true: Labels  # what the file itself says of the labels, or empty
    n_rounded: int
    unseen: bool = False  # whether it had a column of classes never seen


class _Audited:
    """What `learn` needs of a model, where the predictions come from a file."""

    def __init__(self, certifier: Certifier, given: _Given, table: Table) -> None:
        self.learner = certifier
        self.given = given
        self.columns = table.columns
        self.n_inputs = table.n_inputs
        self.labels = given.labels
        self.target = table.target
        self.n_mistakes = 0
        # A probability of 0 is counted as the floor; the sums stay within the tolerance.
        self.P: Array = np.maximum(given.P, FLOOR)
        self.y = np.empty(len(given.P), dtype=np.int64)
        self._scaler = OnlineScaler(n_features=table.n_inputs, gaps=True)

    @property
    def n_rounds(self) -> int:
        """The number of predictions certified so far."""
        return self.learner.n_rounds

    @property
    def loss(self) -> float:
        """Their total log loss."""
        return self.learner.loss

    def certificate(self) -> Certificate | None:
        """Return what is proven about them, if it is going to be shown: it takes a while."""
        if not is_doubling(self.n_rounds) and self.n_rounds < len(self.P):
            return None
        return self.learner.certificate()

    @property
    def total_weight(self) -> float:
        """Every prediction counts 1."""
        return float(self.n_rounds)

    def run_block(self, X: Array, y: Labels, *, weight: Array | None = None) -> tuple[Array, Array]:
        """Certify the next rows, X raw."""
        start = self.learner.n_rounds
        rows = slice(start, start + len(y))
        self._refuse_other_labels(y, start)
        P = self.P[rows]
        X = self._scaler.learn_transform(X)
        losses = self.learner.observe_many(X, y, P, weight)
        self.y[rows] = y
        self.n_mistakes += int((P.argmax(axis=1) != y).sum())
        return P, losses

    def again(self, table: Table) -> Iterator[tuple[Array, Labels]]:
        """Yield all rows, scaled as they were when they came."""
        scaler = OnlineScaler(n_features=self.n_inputs, gaps=True)
        for X, y, _ in table.blocks(self.columns, self.labels, block_sizes(0)):
            yield scaler.learn_transform(X), y

    def _refuse_other_labels(self, y: Labels, start: int) -> None:
        true = self.given.true[start : start + len(y)]
        wrong = np.flatnonzero(true != y[: len(true)])
        if wrong.size:
            raise FolklearnError(
                f"example {start + wrong[0] + 1} has the label {self.labels[y[wrong[0]]]!r}, but "
                f"{self.given.name} says {self.labels[true[wrong[0]]]!r}: its rows are not those "
                "of this table, in order"
            )


def _read(path: str, table: Table) -> _Given:
    """Read a whole file of predictions; refuse it unless it fits the table."""
    if os.path.isdir(path):
        raise FolklearnError(f"{path} is a folder, not a CSV file")
    names = csv.header(path)
    columns = _columns(path, names, table)
    labels = in_order(columns)
    places = [columns[label] for label in labels]
    numbers = {label: number for number, label in enumerate(labels)}
    own = names[:2] == _OWN_COLUMNS and "label" not in columns
    unseen = _has_unseen(names, table)
    read = [*places, len(names) - 1] if unseen else places
    values, true = array("d"), array("q")
    n_rounded = n_rows = 0
    records = csv.records(path, path)
    next(records)
    for line, cells in records:
        if len(cells) != len(names):
            raise FolklearnError(
                f"line {line} of {path} has {len(cells)} cells where the header has {len(names)}"
            )
        row = _probabilities(line, path, [names[j] for j in read], [cells[j] for j in read])
        if unseen:
            row = _of_known(line, path, row)
        total = math.fsum(row)
        # Half of what is tolerated later: another order of summing must not decide.
        if abs(total - 1.0) > 0.5 * ROW_SUM_TOLERANCE:
            n_rounded += 1
            row = [value / total for value in row]
        values.extend(row)
        if own:
            label = cells[0].strip()
            if label not in numbers:
                raise FolklearnError(f"line {line} of {path}: no column p({label}) for its label")
            true.append(numbers[label])
        n_rows += 1
    if n_rows != table.n_rows:
        raise FolklearnError(
            f"{path} has {n_rows} rows of predictions, and {table.name} has {table.n_rows} "
            "examples; expected one row per example, in the same order"
        )
    P = np.frombuffer(values).reshape(n_rows, len(labels))
    return _Given(path, labels, P, np.array(true, dtype=np.int64), n_rounded, unseen)


def _columns(path: str, names: Sequence[str], table: Table) -> dict[str, int]:
    """Return the place of every class: p(label) if there is such a column, else plain labels.

    A class that p(label) names but that never occurs is a class like any other.
    """
    known = classes(table)
    wrapped = {
        name[2:-1].strip(): place
        for place, name in enumerate(names)
        if name.startswith("p(") and name.endswith(")")
    }
    if _has_unseen(names, table):
        del wrapped["unseen"]
    columns = wrapped or {name: place for place, name in enumerate(names)}
    missing = [label for label in known if label not in columns]
    if missing:
        raise FolklearnError(
            f"{path} has no column for the label {missing[0]!r} of column {table.target!r} "
            f"({table.unit} {table.first_lines[missing[0]]} of {table.name}); name it "
            f"{missing[0]!r} or {f'p({missing[0]})'!r}; its columns are: {listed(names)}"
        )
    extra = [name for name in columns if name not in known]
    if extra and not wrapped:
        raise FolklearnError(
            f"{path} has the column {extra[0]!r}, which is no label of column {table.target!r} "
            f"of {table.name}; if there are other columns than probabilities, name those "
            "p(label)"
        )
    return columns


def _has_unseen(names: Sequence[str], table: Table) -> bool:
    """Tell whether the last column is what `folklearn predict` writes of a class never seen."""
    return names[-1] == UNSEEN and "unseen" not in table.first_lines


def _of_known(line: int, path: str, row: Sequence[float]) -> list[float]:
    """Return the probabilities if the class is a known one; the last is that it is not."""
    known = math.fsum(row[:-1])
    if not known > 0.0:
        raise FolklearnError(f"line {line} of {path}: no class but an unseen one has a probability")
    return [value / known for value in row[:-1]]


def _probabilities(line: int, path: str, names: Sequence[str], cells: Sequence[str]) -> list[float]:
    try:
        row = [float(cell) for cell in cells]
    except ValueError:
        _refuse(line, path, names, cells)
    if not (min(row) >= 0.0 and max(row) <= 1.0 + _LARGEST_ROUNDING) or "_" in "".join(cells):
        _refuse(line, path, names, cells)
    total = math.fsum(row)
    if not abs(total - 1.0) <= _LARGEST_ROUNDING:  # true for NaN
        if math.isnan(total):
            _refuse(line, path, names, cells)
        raise FolklearnError(
            f"line {line} of {path}: the probabilities sum to {total:.6g}; expected 1, up to "
            f"rounding of {_LARGEST_ROUNDING:g}"
        )
    return row


def _refuse(line: int, path: str, names: Sequence[str], cells: Sequence[str]) -> NoReturn:
    """Raise for the first cell that is not a probability."""
    for name, cell in zip(names, cells, strict=True):
        text = cell.strip()
        try:
            value = float(text) if "_" not in text else math.nan
        except ValueError:
            value = math.nan
        if not 0.0 <= value <= 1.0 + _LARGEST_ROUNDING:
            problem = f"{text!r} is not a number from 0 to 1" if text else "the cell is empty"
            raise FolklearnError(f"line {line} of {path}, column {name!r}: {problem}")
    raise AssertionError("a refused row has a bad cell")


def _options(audited: _Audited, table: Table) -> str:
    models = f"linear in the scaled features, row norms at most {audited.learner.B:g}"
    return report.about(table, audited.labels, ("audited", audited.given.name), ("models", models))


def _summary(audited: _Audited, certificate: PredictionCertificate, seconds: float) -> str:
    """Return the result and what is proven about it."""
    n = certificate.n_rounds
    scores = score(audited.P, audited.y)
    lines = [
        f"Audited {n} predictions in {seconds:.2f} s: average log loss {scores.log_loss:.4f} "
        f"nats, error rate {scores.error_rate:.2%}, Brier score {scores.brier:.4f}, "
        f"expected calibration error {scores.calibration_error:.4f}.",
        report.certificate_in_words(certificate, audited.n_inputs),
    ]
    if certificate.valid and certificate.regret_bound < 0.0:
        lines.append("So these predictions had a lower loss than every such linear model.")
    lines.append(
        "The linear model that learned the same examples beside them, on line, had an average log "
        f"loss of {audited.learner.leader_loss / n:.4f}."
    )
    low = np.flatnonzero(audited.given.P[np.arange(n), audited.y] < FLOOR)
    if low.size:
        lines.append(
            f"In {low.size} rounds, first in example {low[0] + 1}, the label was given less than "
            f"{FLOOR:g}, which was counted as {FLOOR:g}; given 0, the log loss is infinite."
        )
    if audited.given.unseen:
        lines.append(
            f"The column {UNSEEN} was left out, the other probabilities divided by their sum: the "
            "price of not knowing a class is not in these numbers."
        )
    if audited.given.n_rounded:
        lines.append(
            f"{audited.given.n_rounded} rows did not sum to 1 within {ROW_SUM_TOLERANCE:g} and "
            "were divided by their sum."
        )
    return "\n".join(lines)
