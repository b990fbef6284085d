"""Options that commands share, and the objects that they describe: rows, roles, models."""

import csv
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TextIO

from typer import Argument, Option

from folklearn import serialization, validation
from folklearn.errors import FolklearnError
from folklearn.learners import catalogue
from folklearn.model.labels import BALANCED
from folklearn.model.model import Model
from folklearn.model.roles import IGNORED
from folklearn.model.roles import check_known as check_role
from folklearn.readers.open import FORMATS, open_reader, open_source
from folklearn.readers.reader import BadRow, Reader
from folklearn.readers.records import RowsReader
from folklearn.synthetic import DIGITS_NAME, DIGITS_TARGET, digits
from folklearn.utils import join_names

STDIN = STDOUT = "-"
LEARNERS = tuple(catalogue.CATALOGUE)
_HEADER_LENGTH = 8  # bytes of a safetensors file before its header, which is JSON
_SECONDS_OF_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OPTION_OF_ARGUMENT = {
    "n_jobs": "--jobs 1",
    "on_bad": "--on-bad-row skip",
    "reward_range": "--reward-range LOW HIGH",
    "shuffle": "--shuffle",
}

Text = str | None
File = Annotated[
    Text,
    Argument(
        metavar="FILE",
        show_default=False,
        help="Rows: CSV with a header, JSON lines, svmlight, VW text (also compressed with gzip or "
        "zstd), Parquet or Arrow; - reads standard input. Default: scikit-learn's digits.",
    ),
]
Target = Annotated[
    Text, Option(metavar="COLUMN", help="Column of the class; not for svmlight and VW text.")
]
Format = Annotated[
    Text, Option(metavar="|".join(FORMATS), help="Format of the file. Default: detected.")
]
Delimiter = Annotated[
    Text, Option(metavar="CHARACTER", help="Separator of CSV cells. Default: detected.")
]
Encoding = Annotated[
    Text,
    Option(metavar="NAME", help="Encoding, such as cp1252. Default: UTF-8, or as the file says."),
]
Decimal = Annotated[Text, Option(metavar=".|,", help="Decimal separator. Default: detected.")]
Missing = Annotated[
    list[str] | None,
    Option(
        metavar="TEXT",
        help="What stands for a missing value, such as -999 or unknown; repeatable. Empty cells "
        "always do, and NA, N/A, null, None, ?, - where numbers or dates are expected.",
    ),
]
Roles = Annotated[
    list[str] | None,
    Option(
        metavar="COLUMN=ROLE",
        help="Role of a column: number, category, words, date, day/month or month/day (dates such "
        "as 5/1/2024), id, weight, target or ignored; repeatable. Default: inferred from the first "
        "values.",
    ),
]
Dropped = Annotated[
    list[str] | None,
    Option(metavar="COLUMN", help="Column to leave out, like --role COLUMN=ignored; repeatable."),
]
Jobs = Annotated[
    int, Option(metavar="N", help="Processes or threads at once, -1 for all cores; same result.")
]
OnBadRow = Annotated[
    str, Option(metavar="stop|skip", help="At a row that cannot be read: stop, or skip and count.")
]
Device = Annotated[
    str,
    Option(
        metavar="cpu|cuda|cuda:N",
        help="Where sums over pairs of classes are computed: on the CPU, or on a GPU (extra gpu), "
        "which pays from about a thousand columns times classes.",
    ),
]
Costs = Annotated[
    list[str] | None,
    Option(
        metavar="LABEL=N",
        help="Predict the class of least expected cost: N for a row of LABEL that is predicted as "
        "another class, or LABEL:PREDICTED=N as that one; 1 for any other mistake; repeatable.",
    ),
]
Quiet = Annotated[bool, Option("--quiet", help="Print errors only.")]


@dataclass(frozen=True)
class Source:
    """Where rows come from; file is "-" for standard input, None for the digits.

    A command with a parameter of this type has these options: see `expand_source`.
    """

    file: File = None
    target: Target = None
    format: Format = None
    delimiter: Delimiter = None
    encoding: Encoding = None
    decimal: Decimal = None
    missing: Missing = None

    def open(self, *, buffered: bool = False) -> tuple[Reader, str | None]:
        """Return the rows, a pipe `buffered` in memory if asked for, and their target."""
        options = asdict(self)
        file, target = options.pop("file"), options.pop("target")
        if file is None:
            options_set = [f"--{name}" for name, value in options.items() if value is not None]
            if target not in (None, DIGITS_TARGET):
                options_set.append(f"--target {target!r}")
            if options_set:
                raise FolklearnError(f"{options_set[0]} is about a file, but no file was given")
            reader = RowsReader(digits())
            reader.name, reader.format = DIGITS_NAME, "frame"  # no row may lack columns
            return reader, DIGITS_TARGET
        if file == STDIN and sys.stdin is None:  # the calling process closed it
            raise FolklearnError("standard input is closed: give a file, or something to read")
        if os.path.isdir(file):
            raise FolklearnError(f"{file} is a folder, not a file of rows")
        stored = open_source(file, self.encoding)
        return open_reader(stored.buffer() if buffered else stored, **options), target


def expand_source(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of `Source` in place of its parameter `source`."""
    fields, parameters = signature(Source).parameters, signature(command).parameters
    if "source" not in parameters:
        return command

    @wraps(command)
    def call_with_source(**values: Any) -> None:
        command(source=Source(**{name: values.pop(name) for name in fields}), **values)

    expanded: dict[str, Parameter] = {}
    for name, parameter in parameters.items():
        expanded |= fields if name == "source" else {name: parameter}
    keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in expanded.values()]
    call_with_source.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
    call_with_source.__annotations__ = {name: p.annotation for name, p in expanded.items()}
    return call_with_source


def spell_option(template: str, *values: str) -> str:
    """Return an argument of Python as the option of the command line that sets it.

    >>> spell_option("encoding={!r}", "cp1252"), spell_option("roles={{{!r}: {!r}}}", "a b", "id")
    ('--encoding cp1252', "--role 'a b=id'")
    """
    name = template.partition("=")[0]
    if name == "roles":
        return f"--role {shlex.quote('='.join(values))}"
    return _OPTION_OF_ARGUMENT.get(name) or f"--{name} {shlex.quote(*values)}"


def parse_seconds(option: str, text: str) -> float:
    number, unit = text[:-1], text[-1:]
    try:
        seconds = float(number) * _SECONDS_OF_UNIT[unit]
    except (ValueError, KeyError):
        seconds = -1.0
    if not seconds >= 0.0:
        raise FolklearnError(f"{option} {text!r} must be a time such as 60s, 5m, 1h or 90d")
    return seconds


def parse_roles(roles: Sequence[str] | None, dropped: Sequence[str] | None) -> dict[str, str]:
    by_column: dict[str, str] = {}
    for text in roles or ():
        column, equals, role = text.rpartition("=")
        if not equals:
            raise FolklearnError(f"--role {text!r} must be a column and its role: COLUMN=ROLE")
        check_role(role, column)
        by_column[column] = role
    return by_column | dict.fromkeys(dropped or (), IGNORED)


def check_classes(option: str, names: Iterable[str], labels: Sequence[Any]) -> None:
    classes = list(map(str, labels))
    for name in names:
        if name not in classes:
            raise FolklearnError(
                f"{option} {name!r}: there is no such class; the classes are: {join_names(classes)}"
            )


def _parse_numbers(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Return numbers by name from texts NAME=N."""
    numbers: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            numbers[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise FolklearnError(f"{option} {text!r} must be a label and a number: LABEL=N")
    return numbers


def parse_class_weight(texts: Sequence[str] | None) -> dict[str, float] | str | None:
    return (
        BALANCED if texts == [BALANCED] else _parse_numbers("--class-weight", texts or ()) or None
    )


def parse_costs(texts: Sequence[str] | None, labels: Sequence[Any]) -> dict[Any, float] | None:
    """Return costs by label, or by pair of labels; labels may contain colons."""
    by_name, costs = {str(label): label for label in labels}, dict[Any, float]()
    for name, cost in _parse_numbers("--costs", texts or ()).items():
        cuts = [i for i, character in enumerate(name) if character == ":"]
        pairs = [(name[:i], name[i + 1 :]) for i in cuts if {name[:i], name[i + 1 :]} <= {*by_name}]
        if name not in by_name and pairs:
            costs[by_name[pairs[0][0]], by_name[pairs[0][1]]] = cost
        else:
            check_classes("--costs", [name], labels)
            costs[by_name[name]] = cost
    return costs or None


def parse_crosses(crosses: Sequence[str] | None, reader: Reader) -> list[tuple[str, str]]:
    """Return pairs of columns from texts A:B; column names may contain colons."""
    pairs = []
    for text in crosses or ():
        cuts = [i for i, character in enumerate(text) if character == ":"]
        candidates = [(text[:i], text[i + 1 :]) for i in cuts]
        candidates = [pair for pair in candidates if {*pair} <= {*reader.names}]
        if not candidates:
            raise FolklearnError(
                f"--cross {text!r} must be two columns A:B of {reader.name}; its columns are: "
                f"{join_names(reader.names)}"
            )
        pairs.append(candidates[0])
    return pairs


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
    return len(start) > _HEADER_LENGTH and start.endswith(b"{")


def load_model(path: str, what: str = "--load") -> Model:
    model = serialization.load(path) if may_be_saved(path) else None
    if not isinstance(model, Model):
        kind = "is no folklearn model" if model is None else f"holds a {type(model).__name__}"
        raise FolklearnError(f"{path} {kind}; {what} takes what `folklearn run --save` wrote")
    return model


def check_settings(**settings: Any) -> dict[str, Any]:
    """Return the settings of a learner that are set; raise for values that cannot be used."""
    chosen = {name: value for name, value in settings.items() if value is not None}
    for name, value in chosen.items():
        if name == "memory":
            validation.count("--memory", value, 1)
        else:
            validation.positive(f"--{name}", value)
    return chosen


def check_jobs(jobs: int) -> None:
    if jobs < -1 or jobs == 0:
        raise FolklearnError(
            f"--jobs must be a number of threads, or -1 for as many as there are cores, got {jobs}"
        )


class BadRowSink:
    def __init__(self, file: TextIO) -> None:
        self.n_rows, self._writer = 0, csv.writer(file, lineterminator="\n")
        self._writer.writerow(["line", "column", "reason", "text"])

    def __call__(self, bad: BadRow) -> None:
        self.n_rows += 1
        self._writer.writerow([bad.line, bad.column, bad.reason, bad.text])


@contextmanager
def open_bad_row_sink(on_bad_row: str, path: Path | None = None) -> Iterator[BadRowSink | None]:
    """Yield what takes bad rows; None if the first one is to be raised."""
    if on_bad_row not in ("stop", "skip"):
        raise FolklearnError(f"--on-bad-row must be stop or skip, got {on_bad_row!r}")
    if on_bad_row == "stop":
        yield None
        return
    with open(path or os.devnull, "w", encoding="utf-8", newline="") as file:
        yield BadRowSink(file)
