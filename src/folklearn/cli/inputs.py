"""Where the examples come from, and the model that meets them."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from folklearn import persist, problem
from folklearn.cli import learners
from folklearn.errors import FolklearnError
from folklearn.model.hashing import DEFAULT_BUCKETS
from folklearn.streams import files
from folklearn.streams.digits import Digits
from folklearn.streams.live import Live
from folklearn.streams.model import StreamModel
from folklearn.streams.table import Table, classes
from folklearn.streams.tape import Tape
from folklearn.streams.text import Path
from folklearn.words import listed

_STDIN, _STDIN_NAME = "-", "standard input"
_HEADER_LENGTH = 8  # bytes of a safetensors file before its header, which is JSON


@contextmanager
def open_table(
    file: str | None,
    target: str | None,
    format: str | None,
    text: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    model: StreamModel | None = None,
    tape: Tape | None = None,
) -> Iterator[Table]:
    """Yield the examples, checked: of a file, `-` for standard input, None for the digits.

    A model knows which of its columns are text, and the target if none is given. The tape is
    standard input, if somebody looked at it before.
    """
    if file is None:
        _refuse_options_of_files(target, format, text, drop)
        yield Digits()
        return
    with _readable_twice(file, tape) as (path, name):
        kind = format or files.format_of(path, name)
        target = _target(path, name, kind, target, model)
        text, numeric = _kinds(text, model)
        yield files.open_file(
            path,
            target,
            name,
            kind,
            text=text,
            numeric=numeric,
            drop=drop or (),
            n_buckets=_n_buckets(model),
        )


@contextmanager
def open_examples(
    file: str | None,
    target: str | None,
    format: str | None,
    text: Sequence[str] | None,
    drop: Sequence[str] | None,
    model: StreamModel | None,
) -> Iterator[Table | Live]:
    """Yield a table, as `open_table` does, or what standard input brings as it comes."""
    learned = [column for column in drop or () if model is not None and column in model.columns]
    if learned:
        raise FolklearnError(f"--drop {learned[0]!r} names a column that the model learned from")
    tape = Tape(_stdin(), _STDIN_NAME) if file == _STDIN else None
    kind = (format or files.format_of(tape)) if tape is not None else ""
    if tape is None or files.needs_all(tape, kind):
        with open_table(file, target, format, text, drop, model, tape) as table:
            yield table
        return
    target = _target(tape, _STDIN_NAME, kind, target, model)
    columns = model.columns if model is not None else None
    text, numeric = _kinds(text, model)
    live = files.open_live(
        tape,
        target,
        kind,
        columns=columns,
        text=text,
        numeric=numeric,
        drop=drop or (),
        n_buckets=_n_buckets(model),
    )
    if live.unused:
        raise FolklearnError(
            f"the columns of {live.name} are not those of the model; the model does not know: "
            f"{listed(live.unused)}"
        )
    yield live


@contextmanager
def open_rows(
    model: StreamModel, file: str | None, target: str | None, format: str | None, labelled: bool
) -> Iterator[Table]:
    """Yield the columns that a model knows, with labels or without, as `open_table` does."""
    if file is None:
        _refuse_options_of_files(target, format)
        digits = Digits()
        model.refuse_unless_it_fits(digits)
        yield digits
        return
    with _readable_twice(file) as (path, name):
        kind = format or files.format_of(path, name)
        if target is None and files.has_target(kind):
            target = model.target
        _refuse_other_target(target, model, ())
        text, numeric = _kinds(None, model)
        yield files.open_file(
            path,
            target,
            name,
            kind,
            columns=model.columns,
            labelled=labelled,
            text=text,
            numeric=numeric,
            n_buckets=model.n_buckets,
        )


def _target(
    path: Path | Tape, name: str, kind: str, target: str | None, model: StreamModel | None
) -> str | None:
    if not files.has_target(kind):
        return target
    if target is not None and model is not None:
        _refuse_other_target(target, model, files.header(path, name, kind))
    target = target or (model.target if model is not None else None)
    if target is None:
        raise FolklearnError(
            "--target is needed with a file: name the column that holds the class; "
            f"the columns of {name} are: {listed(files.header(path, name, kind))}"
        )
    return target


def _refuse_other_target(target: str | None, model: StreamModel, names: Sequence[str]) -> None:
    """Raise if the target is a feature of the model, or stands beside the model's own."""
    if target != model.target and (target in model.columns or model.target in names):
        raise FolklearnError(
            f"--target {target!r} is not what the model predicts, which is the column "
            f"{model.target!r}: leave --target out"
        )


def _n_buckets(model: StreamModel | None) -> int:
    return DEFAULT_BUCKETS if model is None else model.n_buckets


def _kinds(
    text: Sequence[str] | None, model: StreamModel | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Return which columns are known to hold text, and which to hold numbers."""
    if model is None:
        return text or (), ()
    return model.text, [column for column in model.columns if column not in model.text]


def refuse_weights(table: Table, command: str) -> None:
    """Raise if the examples of a table have weights, for a command that takes none."""
    if table.weights is not None:
        raise FolklearnError(
            f"{table.unit} {table.weights.first_line} of {table.name} has a weight, and "
            f"{command} takes none: leave the weights out; folklearn run learns with them"
        )


def _refuse_options_of_files(
    target: str | None,
    format: str | None,
    text: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
) -> None:
    if target not in (None, Digits.target):
        raise FolklearnError(f"--target {target!r} names a column of a file, but no file was given")
    if format is not None:
        raise FolklearnError(f"--format {format} is that of a file, but no file was given")
    for option, columns in (("text", text), ("drop", drop)):
        if columns:
            raise FolklearnError(
                f"--{option} {columns[0]!r} names a column of a file, but no file was given"
            )


def _stdin() -> BinaryIO:
    if sys.stdin is None:  # whoever called closed it
        raise FolklearnError("standard input is closed: give a file, or something to read")
    return sys.stdin.buffer


@contextmanager
def _readable_twice(file: str, tape: Tape | None = None) -> Iterator[tuple[str, str]]:
    """Yield (path, name for messages); what can be read only once is copied first."""
    if file != _STDIN and not os.path.exists(file):
        raise FolklearnError(f"there is no file {file}")
    if os.path.isdir(file):
        raise FolklearnError(f"{file} is a folder, not a file of examples")
    if file != _STDIN and os.path.isfile(file):
        yield file, file
        return
    with tempfile.TemporaryDirectory(prefix="folklearn-") as folder:
        path = os.path.join(folder, "input")
        with open(path, "wb") as copy:
            if file == _STDIN:
                source: BinaryIO | Tape = _stdin() if tape is None else tape
                shutil.copyfileobj(source, copy)
            else:
                with open(file, "rb") as pipe:
                    shutil.copyfileobj(pipe, copy)
        yield path, _STDIN_NAME if file == _STDIN else file


def load_model(path: str, what: str = "--load") -> StreamModel:
    """Load a model that an earlier run saved."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            start = file.read(_HEADER_LENGTH + 1)
        if not start.endswith(b"{") or len(start) <= _HEADER_LENGTH:
            raise FolklearnError(
                f"{path} is no folklearn model; {what} takes what `folklearn run --save` wrote"
            )
    model = persist.load(path)
    if not isinstance(model, StreamModel):
        raise FolklearnError(
            f"{path} holds a {type(model).__name__}; {what} takes what `folklearn run --save` wrote"
        )
    return model


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse a parameter of the learner that cannot be used, before anything is read."""
    for name, value in given.items():
        if name == "memory":
            problem.count("--memory", value, 1)
        else:
            problem.positive(f"--{name}", value)


def new_model(table: Table | Live, learner: str, given: Mapping[str, Any]) -> StreamModel:
    """Return a model that has learned nothing, made for a table; a live one tells no labels."""
    words = dict(given)
    labels: tuple[str, ...] = ()
    if isinstance(table, Live):
        learners.refuse_unless_growing(learner)
    else:
        labels = classes(table)
        words |= learners.for_weights(learner, table)
    learners.refuse_too_large(learner, table, max(2, len(labels)))
    return StreamModel(
        learner,
        words,
        columns=table.columns,
        target=table.target,
        labels=labels,
        text=table.text,
        sparse=table.sparse,
    )
