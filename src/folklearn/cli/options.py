"""Options that commands share, and the objects that they describe: rows, roles, models."""

import csv
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

from rich.console import Console
from typer import Argument, Option

from folklearn import serialization
from folklearn.errors import FolklearnError
from folklearn.learners import catalogue
from folklearn.model.dataset import ModelDataset
from folklearn.model.labels import BALANCED
from folklearn.model.model import Model
from folklearn.model.roles import IGNORED
from folklearn.model.roles import check_known as check_role
from folklearn.progress import show_bar
from folklearn.readers.open import FORMATS, open_reader, open_source
from folklearn.readers.reader import BadRow, Reader
from folklearn.readers.records import RowsReader
from folklearn.synthetic import DIGITS_NAME, DIGITS_TARGET, digits
from folklearn.utils import join_names

STDIN = STDOUT = "-"
LEARNERS = tuple(catalogue.CATALOGUE)
_HEADER_LENGTH = 8  # bytes of a safetensors file before its header, which is JSON
_SECONDS_OF_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Text = str | None
Texts = list[str] | None

# Options that several commands have; those of one command are the defaults of its parameters.
OnBadRow = Annotated[
    str, Option(metavar="stop|skip", help="At a row that cannot be read: stop, or skip and count.")
]
Device = Annotated[
    str, Option(metavar="cpu|cuda|cuda:N", help="A GPU pays from 1000 columns times classes on.")
]
ModelFile = Annotated[
    str, Argument(metavar="MODEL", help="A model that `folklearn run --save` wrote.")
]
Quiet = Annotated[bool, Option("--quiet", help="Print errors only.")]


@dataclass(frozen=True)
class Source:
    """Where rows come from; file is "-" for standard input, None for the digits.

    A command with a parameter of this type has these options, as of any other dataclass.
    """

    file: Text = Argument(
        None,
        metavar="FILE",
        show_default=False,
        help="Rows, see --format; - reads standard input. Default: scikit-learn's digits.",
    )
    target: Text = Option(None, metavar="COLUMN", help="Column of the class; not for svmlight, VW.")
    format: Text = Option(None, metavar="|".join(FORMATS), help="File format. Default: detected.")
    delimiter: Text = Option(None, metavar="CHARACTER", help="Cell separator. Default: detected.")
    encoding: Text = Option(None, metavar="NAME", help="Such as cp1252. Default: UTF-8, or marked.")
    decimal: Text = Option(None, metavar=".|,", help="Decimal separator. Default: detected.")
    missing: Texts = Option(
        None, metavar="TEXT", help="What stands for a missing value, such as -999; repeatable."
    )

    def open(self, *, buffered: bool = False) -> tuple[Reader, str | None]:
        """Return the rows, a pipe `buffered` in memory if asked for, and their target."""
        names = "format", "delimiter", "encoding", "decimal", "missing"
        options = {name: getattr(self, name) for name in names}
        if self.file is None:
            target = None if self.target == DIGITS_TARGET else self.target
            for name, value in {**options, "target": target}.items():
                if value is not None:
                    raise FolklearnError(f"--{name} is about a file, but no file was given")
            reader = RowsReader(digits())
            reader.name, reader.format = DIGITS_NAME, "frame"  # no row may lack columns
            return reader, DIGITS_TARGET
        if self.file == STDIN and sys.stdin is None:  # the calling process closed it
            raise FolklearnError("standard input is closed: give a file, or something to read")
        stored = open_source(self.file, self.encoding)
        return open_reader(stored.buffer() if buffered else stored, **options), self.target


@dataclass(frozen=True)
class LearnedSource(Source):
    """Rows that are learned, so that the roles of their columns count."""

    role: Texts = Option(
        None,
        metavar="COLUMN=ROLE",
        help="number, category, words, date, day/month or month/day (dates such as 5/1/2024), id, "
        "weight, target or ignored; repeatable. Default: inferred from the first values.",
    )
    drop: Texts = Option(None, metavar="COLUMN", help="Column to leave out; repeatable.")

    @property
    def roles(self) -> dict[str, str]:
        by_column: dict[str, str] = {}
        for text in self.role or ():
            column, equals, role = text.rpartition("=")
            if not equals:
                raise FolklearnError(f"--role {text!r} must be a column and its role: COLUMN=ROLE")
            check_role(role, column)
            by_column[column] = role
        return by_column | dict.fromkeys(self.drop or (), IGNORED)


def parse_seconds(option: str, text: Text) -> float:
    if text is None:
        return math.inf
    try:
        seconds = float(text[:-1]) * _SECONDS_OF_UNIT[text[-1:]]
    except (ValueError, KeyError):
        seconds = -1.0
    if not seconds >= 0.0:
        raise FolklearnError(f"{option} {text!r} must be a time such as 60s, 5m, 1h or 90d")
    return seconds


def check_classes(option: str, names: Iterable[str], labels: Sequence[Any]) -> None:
    classes = list(map(str, labels))
    for name in names:
        if name not in classes:
            raise FolklearnError(
                f"{option} {name!r}: there is no such class; the classes are: {join_names(classes)}"
            )


def check_rows(dataset: ModelDataset, console: Console) -> None:
    """Read all rows once, with a bar; raise unless they have two classes."""
    with show_bar(console, "checking", dataset.reader.n_rows) as report:
        dataset.begin(report)
    labels = dataset.model.labels
    if len(labels) < 2:
        only = f"only the label {labels[0]!r}" if labels else "no label"
        column = f"column {dataset.target!r} of {dataset.reader.name}"
        raise FolklearnError(f"{column} has {only}; learning needs at least two classes")


def parse_numbers(option: str, texts: Texts, what: str = "label") -> dict[str, float]:
    """Return numbers by name from texts NAME=N."""
    numbers: dict[str, float] = {}
    for text in texts or ():
        name, _, number = text.rpartition("=")
        try:
            numbers[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise FolklearnError(
                f"{option} {text!r} must be a {what} and a number: {what.upper()}=N"
            )
    return numbers


def parse_class_weight(texts: Texts) -> dict[str, float] | str | None:
    return BALANCED if texts == [BALANCED] else parse_numbers("--class-weight", texts) or None


def parse_costs(texts: Texts, labels: Sequence[Any]) -> dict[Any, float] | None:
    """Return costs by label, or by pair of labels."""
    by_name, costs = {str(label): label for label in labels}, dict[Any, float]()
    for name, cost in parse_numbers("--costs", texts).items():
        pairs = _split_pair(name, by_name)
        if name not in by_name and pairs:
            costs[by_name[pairs[0][0]], by_name[pairs[0][1]]] = cost
        else:
            check_classes("--costs", [name], labels)
            costs[by_name[name]] = cost
    return costs or None


def parse_crosses(crosses: Texts, reader: Reader) -> list[tuple[str, str]]:
    pairs = []
    for text in crosses or ():
        candidates = _split_pair(text, reader.names)
        if not candidates:
            names = join_names(reader.names)
            raise FolklearnError(f"--cross {text!r} must be A:B, of the columns: {names}")
        pairs.append(candidates[0])
    return pairs


def _split_pair(text: str, names: Collection[str]) -> list[tuple[str, str]]:
    """Return the pairs of names that A:B may say: names may contain colons, too."""
    cuts = [i for i, character in enumerate(text) if character == ":"]
    pairs = [(text[:i], text[i + 1 :]) for i in cuts]
    return [pair for pair in pairs if {*pair} <= {*names}]


def read_classes(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8-sig") as file:
            labels = [line.strip() for line in file if line.strip()]
    except UnicodeDecodeError:
        raise FolklearnError(f"--classes {path} is not UTF-8 text") from None
    if not labels:
        raise FolklearnError(f"--classes {path} is empty; expected one label a line")
    return labels


def may_be_saved(path: str) -> bool:
    """Return whether a file begins like a saved model; True for a file that does not exist."""
    if not os.path.isfile(path):
        return True
    with open(path, "rb") as file:
        start = file.read(_HEADER_LENGTH + 1)
    return start[_HEADER_LENGTH:] == b"{"


def load_model(path: str, what: str = "--load") -> Model:
    model = serialization.load(path) if may_be_saved(path) else None
    if not isinstance(model, Model):
        kind = "is no folklearn model" if model is None else f"holds a {type(model).__name__}"
        raise FolklearnError(f"{path} {kind}; {what} takes what `folklearn run --save` wrote")
    return model


class BadRows:
    """Count and write the rows that cannot be read; `take` is None if the first is to be raised."""

    def __init__(self, on_bad_row: str, file: TextIO) -> None:
        if on_bad_row not in ("stop", "skip"):
            raise FolklearnError(f"--on-bad-row must be stop or skip, got {on_bad_row!r}")
        self.n_rows, self._writer = 0, csv.writer(file, lineterminator="\n")
        self._writer.writerow(["line", "column", "reason", "text"])
        self.take = self._write if on_bad_row == "skip" else None

    def _write(self, bad: BadRow) -> None:
        self.n_rows += 1
        self._writer.writerow([bad.line, bad.column, bad.reason, bad.text])


@contextmanager
def open_bad_rows(on_bad_row: str, path: Path | None = None) -> Iterator[BadRows]:
    with open(path or os.devnull, "w", encoding="utf-8", newline="") as file:
        yield BadRows(on_bad_row, file)
