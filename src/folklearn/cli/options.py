"""Options from a text that explains them, and those that commands share."""

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from folklearn.cli.inputs import open_rows, roles_of
from folklearn.errors import FolklearnError
from folklearn.readers.open import FORMATS
from folklearn.readers.reader import Reader

_ENTRY = re.compile(r"\n(?=\S)")  # an entry begins at the margin, and goes on further right
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SHARED = f"""
FILE  Rows: CSV with a header, JSON lines, svmlight, VW text (also packed with gzip or zstd),
    Parquet or Arrow; - reads standard input. Without a file, scikit-learn's digits.
MODEL  What `folklearn run --save` wrote.
--target COLUMN  The column of the class; svmlight and VW text have none to name.
--format {"|".join(FORMATS)}  Format of the file. Default: by its content and its name.
--delimiter CHARACTER  Between the cells of CSV. Default: found.
--encoding NAME  Of the text, such as cp1252. Default: UTF-8, or as the file says.
--decimal .|,  Before the decimals of CSV. Default: found.
--role COLUMN=ROLE  What a column is: number, category, words, date, day/month or month/day (dates
    such as 5/1/2024), id, weight, target or ignored; may be given several times. Default: found by
    the first values.
--drop COLUMN  A column to leave out, like --role COLUMN=ignored; may be given several times.
--on-bad-row stop|skip  At a row that cannot be read: stop, or skip it and say how many were.
--device cpu|cuda|cuda:N  Where sums over pairs of classes are made: here, by our own code, or on a
    GPU (extra gpu). Pays from about a thousand columns times classes. Default: cpu.
--plot OUT.png  Draw it, as .png, .svg or .pdf.
--seed  Of all that is random.
--quiet  Say nothing but errors.
"""


@dataclass(frozen=True)
class Source:
    """Where rows come from; file is "-" for standard input, None for the digits."""

    file: str | None = None
    target: str | None = None
    format: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None

    def open(self) -> tuple[Reader, str | None]:
        """Return the rows, and the column of the labels."""
        return open_rows(
            self.file, self.target, format=self.format, delimiter=self.delimiter,
            encoding=self.encoding, decimal=self.decimal,
        )  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """What columns are taken for."""

    role: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)

    def roles(self) -> dict[str, str]:
        """Return the roles by name."""
        return roles_of(self.role, self.drop)


def explained(text: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function: its parameters become options, which the text explains.

    An entry is ``--long -s VALUE  What it does``, with two spaces before what it does; one
    without dashes is an argument. A parameter whose type is a dataclass stands for its fields.
    """
    entries = _entries(_SHARED) | _entries(text)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function)
        groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
        parameters: list[Parameter] = []
        for parameter in signature(function).parameters.values():
            if parameter.name in groups:
                own = groups[parameter.name]
                kinds = get_type_hints(own)
                parameters += [
                    _parameter(one.name, kinds[one.name], _default(one), entries)
                    for one in fields(own)
                ]
            else:
                name, default = parameter.name, parameter.default
                parameters.append(_parameter(name, hints[name], default, entries))

        def command(**values: Any) -> None:
            for name, kind in groups.items():
                own = {one.name: values.pop(one.name) for one in fields(kind)}
                values[name] = kind(**own)
            function(**values)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def seconds_of(option: str, text: str) -> float:
    """Return the seconds of a time such as 60s, 5m, 1h or 90d."""
    number, unit = text[:-1], text[-1:]
    try:
        seconds = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        seconds = -1.0
    if not seconds >= 0.0:
        raise FolklearnError(f"{option} {text!r} must be a time such as 60s, 5m, 1h or 90d")
    return seconds


def _entries(text: str) -> dict[str, Any]:
    """Return options and arguments by the name of their parameter."""
    found: dict[str, Any] = {}
    for entry in _ENTRY.split(text):
        if not entry.strip():
            continue
        head, _, rest = " ".join(entry.split("\n")).strip().partition("  ")
        what = " ".join(rest.split())
        words = head.split()
        names = [word for word in words if word.startswith("-")]
        metavar = " ".join(word for word in words if not word.startswith("-")) or None
        if not names:
            found[head.lower()] = typer.Argument(metavar=metavar, help=what, show_default=False)
        else:
            key = names[0].removeprefix("--").replace("-", "_")
            found[key] = typer.Option(*names, metavar=metavar, help=what)
    return found


def _parameter(name: str, kind: Any, default: Any, entries: dict[str, Any]) -> Parameter:
    annotation = kind if kind is typer.Context else Annotated[kind, entries[name]]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(one: "Field[Any]") -> Any:
    return [] if one.default is MISSING else one.default
