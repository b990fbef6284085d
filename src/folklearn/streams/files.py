"""Examples in any format: told by the first bytes, by the name, or by the first line."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.model.hashing import DEFAULT_BUCKETS
from folklearn.streams import arrow, scanned, sparse, svmlight, vw
from folklearn.streams.arrow import ArrowSource
from folklearn.streams.csv import CsvSource
from folklearn.streams.jsonlines import JsonSource
from folklearn.streams.live import Live, SparseLive, first_features
from folklearn.streams.scanned import FileTable, NamedSource
from folklearn.streams.sparse import SparseSource
from folklearn.streams.tape import Tape
from folklearn.streams.text import Path, named, opened
from folklearn.words import listed

CSV, SVMLIGHT, VW, PARQUET, ARROW, JSONL = "csv", "svmlight", "vw", "parquet", "arrow", "jsonl"
FORMATS = (CSV, SVMLIGHT, VW, PARQUET, ARROW, JSONL)

_NAMED: dict[str, Callable[[Path | Tape, str], NamedSource]] = {
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
    text: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    n_buckets: int = DEFAULT_BUCKETS,
) -> FileTable:
    """Read a whole file once: find its columns and labels, and check every value.

    A column holds text if the first of its values that is not missing is no number (in Arrow
    and Parquet: as the schema says), unless `text` or `numeric` tells.

    Parameters
    ----------
    path : the file; text may be gzipped.
    target : the column of the labels; None for svmlight and VW, which have no such column.
    name : what messages call the file.
    format : one of `FORMATS`, or None to find out.
    columns : the features to read; all of them if None.
    labelled : whether to read the labels, and to refuse an example without.
    text : columns that hold text, whatever they look like.
    numeric : columns that hold numbers.
    drop : columns to leave out, such as ids.
    n_buckets : number of inputs that all text together becomes.
    """
    name = name or named(path)
    kind = format_of(path, name) if format is None else _known(format)
    _refuse_wrong_target(path, name, kind, target, labelled)
    if kind in _NAMED:
        return scanned.scan(
            _NAMED[kind](path, name),
            target,
            columns=columns,
            labelled=labelled,
            text=text,
            numeric=numeric,
            drop=drop,
            n_buckets=n_buckets,
        )
    _refuse_text(name, kind, text)
    return sparse.scan(
        _sparse(path, name, kind),
        columns=columns,
        labelled=labelled,
        sort_key=int if kind == SVMLIGHT else None,
        drop=drop,
    )


def open_live(
    tape: Tape,
    target: str | None,
    format: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    text: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    n_buckets: int = DEFAULT_BUCKETS,
) -> Live:
    """Return the examples of a stream that is read once, every value checked as it comes.

    CSV, svmlight, VW text and JSON lines, all also gzipped, and Arrow streams; not Parquet nor
    Arrow files, which end with what is needed first (see `needs_all`). Features that svmlight
    and VW text name later are further columns. A column of which nobody told holds text if
    its value in the first row is one, and numbers if that is missing.

    Parameters
    ----------
    tape : the stream.
    target, format, text, numeric, drop, n_buckets : as for `open_file`.
    columns : features that are known already, which come first; those of the stream if None.

    Examples
    --------
    >>> import io
    >>> from folklearn.streams.tape import Tape
    >>> tape = Tape(io.BytesIO(b"size,kind\\n30,cat\\n70,dog\\n"), "pets")
    >>> live = open_live(tape, "kind")
    >>> live.columns, live.block(size=10).labels, live.block(size=10)
    (('size',), ['cat', 'dog'], None)
    """
    name = tape.name
    kind = format_of(tape) if format is None else _known(format)
    _refuse_wrong_target(tape, name, kind, target, labelled=True)
    if kind not in _NAMED:
        _refuse_text(name, kind, text)
        lines = _sparse(tape, name, kind)
        first = tuple(columns or first_features(lines, drop))
        tape.play()
        return SparseLive(lines, first, sparse.TARGET, lambda: tape.ready, drop)
    if needs_all(tape, kind):
        raise InvalidInputError(f"{name} is {kind}, which cannot be read as it comes")
    source = _NAMED[kind](tape, name)
    layout, others = scanned.find_layout(
        source, target, columns, True, text, numeric, most_rows=1, drop=drop, n_buckets=n_buckets
    )
    ready = partial(_is_ready, tape, source)
    unused = tuple(column for column in others if column not in layout.columns)
    return Live(source, layout, target or "", source.examples(layout, target), ready, unused)


def _is_ready(tape: Tape, source: NamedSource) -> bool:
    if isinstance(source, ArrowSource):
        return source.n_waiting > 0 or tape.can_read
    return tape.ready


def needs_all(tape: Tape, format: str) -> bool:
    """Tell whether nothing of a stream can be understood before its end."""
    return format == PARQUET or (format == ARROW and not tape.look(4).startswith(arrow.STREAM))


def _sparse(path: Path | Tape, name: str, kind: str) -> SparseSource:
    return vw.source(path, name) if kind == VW else svmlight.source(path, name)


def _refuse_wrong_target(
    path: Path | Tape, name: str, kind: str, target: str | None, labelled: bool
) -> None:
    if kind in _NAMED and target is None and labelled:
        raise InvalidInputError(
            f"name the column of {name} that holds the class; its columns are: "
            f"{listed(header(path, name, kind))}"
        )
    if kind not in _NAMED and target is not None:
        raise InvalidInputError(
            f"{name} is read as {kind}, where every line starts with its label: there is no "
            f"column {target!r} to name as the target"
        )


def _refuse_text(name: str, kind: str, text: Sequence[str]) -> None:
    if text:
        raise InvalidInputError(
            f"{name} is read as {kind}, where every value is a number: {text[0]!r} cannot be text"
        )


def has_target(format: str) -> bool:
    """Tell whether the labels of a format are in a column with a name."""
    return _known(format) in _NAMED


def header(path: Path | Tape, name: str, format: str) -> tuple[str, ...]:
    """Return the names of all columns, the target included, of a format that has them."""
    return _NAMED[format](path, name).header()


def format_of(path: Path | Tape, name: str | None = None) -> str:
    """Return the format of a file: by its first bytes, its ending, or its first line.

    A file of which nothing is known is CSV.
    """
    name = name or named(path)
    start = _start(path, max(map(len, _FIRST_BYTES)))
    for magic, kind in _FIRST_BYTES.items():
        if start.startswith(magic):
            return kind
    ending = name.lower().removesuffix(".gz").rpartition(".")[2]
    return _BY_ENDING.get(ending) or _guess(path, name)


def _start(path: Path | Tape, n: int) -> bytes:
    if isinstance(path, Tape):
        return path.look(n)
    with open(path, "rb") as file:
        return file.read(n)


def _guess(path: Path | Tape, name: str) -> str:
    with opened(path, name, errors="replace") as file:
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
