"""Files of examples in any format: told by the first bytes, by the name, or by the first line."""

import os
import re
from collections.abc import Callable, Sequence

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.streams import arrow, scanned, sparse, svmlight, text, vw
from folklearn.streams.arrow import ArrowSource
from folklearn.streams.csv import CsvSource
from folklearn.streams.jsonlines import JsonSource
from folklearn.streams.scanned import FileTable, NamedSource
from folklearn.streams.table import listed
from folklearn.streams.text import Path

CSV, SVMLIGHT, VW, PARQUET, ARROW, JSONL = "csv", "svmlight", "vw", "parquet", "arrow", "jsonl"
FORMATS = (CSV, SVMLIGHT, VW, PARQUET, ARROW, JSONL)

_NAMED: dict[str, Callable[[Path, str], NamedSource]] = {
    CSV: CsvSource,
    PARQUET: ArrowSource,
    ARROW: ArrowSource,
    JSONL: JsonSource,
}
_FIRST_BYTES = {
    arrow.PARQUET: PARQUET,
    arrow.FILE: ARROW,
    arrow.STREAM: ARROW,
    arrow.OLD_FEATHER: ARROW,
}
_ENDINGS = {
    CSV: ("csv", "tsv", "tab"),
    SVMLIGHT: ("svm", "svmlight", "libsvm"),
    VW: ("vw",),
    PARQUET: ("parquet", "pq"),
    ARROW: ("arrow", "feather", "ipc", "arrows"),
    JSONL: ("jsonl", "ndjson", "json"),
}
_BY_ENDING = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings}
# A label and a weight at most, then a bar after a space or a tag.
_LIKE_VW = re.compile(r" *([^\s|,;]+ +){0,2}('[^\s|]*)? *\|")
_LIKE_SVMLIGHT = re.compile(r"\s*[^\s:,;|#]+(\s+qid:\d+)?(\s+\d+:[^\s:,;]+)+\s*(#.*)?", re.ASCII)


def open_file(
    path: Path,
    target: str | None,
    name: str | None = None,
    format: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    labelled: bool = True,
) -> FileTable:
    """Read a whole file once: find its columns and labels, and check every value.

    Parameters
    ----------
    path : the file; text may be gzipped.
    target : the column of the labels; None for svmlight and VW, which have no such column.
    name : what messages call the file.
    format : one of `FORMATS`, or None to find out.
    columns : the features to read; all of them if None.
    labelled : whether to read the labels, and to refuse an example without.
    """
    name = name or os.fspath(path)
    kind = format_of(path, name) if format is None else _known(format)
    if kind in _NAMED:
        if target is None and labelled:
            raise InvalidInputError(
                f"name the column of {name} that holds the class; its columns are: "
                f"{listed(_NAMED[kind](path, name).header())}"
            )
        return scanned.scan(_NAMED[kind](path, name), target, columns=columns, labelled=labelled)
    if target is not None:
        raise InvalidInputError(
            f"{name} is read as {kind}, where every line starts with its label: there is no "
            f"column {target!r} to name as the target"
        )
    if kind == VW:
        return sparse.scan(vw.source(path, name), columns=columns, labelled=labelled)
    source = svmlight.source(path, name)
    return sparse.scan(source, columns=columns, labelled=labelled, sort_key=int)


def has_target(format: str) -> bool:
    """Tell whether the labels of a format are in a column with a name."""
    return _known(format) in _NAMED


def header(path: Path, name: str, format: str) -> tuple[str, ...]:
    """Return the names of all columns, the target included, of a format that has them."""
    return _NAMED[format](path, name).header()


def format_of(path: Path, name: str | None = None) -> str:
    """Return the format of a file: by its first bytes, its ending, or its first line.

    A file of which nothing is known is CSV.
    """
    name = name or os.fspath(path)
    with open(path, "rb") as file:
        start = file.read(max(map(len, _FIRST_BYTES)))
    for magic, kind in _FIRST_BYTES.items():
        if start.startswith(magic):
            return kind
    ending = os.fspath(name).lower().removesuffix(".gz").rpartition(".")[2]
    return _BY_ENDING.get(ending) or _guess(path, name)


def _guess(path: Path, name: str) -> str:
    with text.opened(path, name, errors="replace") as file:
        lines = (line.strip() for line in file)
        first = next((line for line in lines if line and not line.startswith("#")), "")
    if first.startswith("{"):
        return JSONL
    if _LIKE_VW.match(first):
        return VW
    return SVMLIGHT if _LIKE_SVMLIGHT.fullmatch(first) else CSV


def _known(format: str) -> str:
    if format not in FORMATS:
        raise FolklearnError(f"there is no format {format!r}; choose one of: {', '.join(FORMATS)}")
    return format
