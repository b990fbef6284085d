"""Where the examples come from, and the model that meets them."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from folklearn import problem, registry
from folklearn.cli import learners
from folklearn.errors import FolklearnError
from folklearn.streams import files
from folklearn.streams.digits import Digits
from folklearn.streams.model import StreamModel
from folklearn.streams.table import Table, classes, listed


@contextmanager
def open_table(
    file: str | None, target: str | None, format: str | None, usual_target: str | None = None
) -> Iterator[Table]:
    """Yield the examples, checked: of a file, `-` for standard input, None for the digits.

    If no target is given and the format needs one, it is the usual one.
    """
    if file is None:
        _refuse_options_of_files(target, format)
        yield Digits()
        return
    with _readable_twice(file) as (path, name):
        kind = format or files.format_of(path, name)
        if files.has_target(kind):
            target = target or usual_target
            if target is None:
                raise FolklearnError(
                    "--target is needed with a file: name the column that holds the class; "
                    f"the columns of {name} are: {listed(files.header(path, name, kind))}"
                )
        yield files.open_file(path, target, name, kind)


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
        columns = model.columns
        yield files.open_file(path, target, name, kind, columns=columns, labelled=labelled)


def refuse_weights(table: Table, command: str) -> None:
    """Raise if the examples of a table have weights, for a command that takes none."""
    if table.weights is not None:
        raise FolklearnError(
            f"{table.unit} {table.weights.first_line} of {table.name} has a weight, and "
            f"{command} takes none: leave the weights out; folklearn run learns with them"
        )


def _refuse_options_of_files(target: str | None, format: str | None) -> None:
    if target not in (None, Digits.target):
        raise FolklearnError(f"--target {target!r} names a column of a file, but no file was given")
    if format is not None:
        raise FolklearnError(f"--format {format} is that of a file, but no file was given")


@contextmanager
def _readable_twice(file: str) -> Iterator[tuple[str, str]]:
    """Yield (path, name for messages); what can be read only once is copied first."""
    if file != "-" and not os.path.exists(file):
        raise FolklearnError(f"there is no file {file}")
    if os.path.isdir(file):
        raise FolklearnError(f"{file} is a folder, not a file of examples")
    if file != "-" and os.path.isfile(file):
        yield file, file
        return
    with tempfile.TemporaryDirectory(prefix="folklearn-") as folder:
        path = os.path.join(folder, "input")
        with open(path, "wb") as copy:
            if file == "-":
                shutil.copyfileobj(sys.stdin.buffer, copy)
            else:
                with open(file, "rb") as source:
                    shutil.copyfileobj(source, copy)
        yield path, "standard input" if file == "-" else file


def load_model(path: str, what: str = "--load") -> StreamModel:
    """Load a model that an earlier run saved."""
    model = registry.load(path)
    if not isinstance(model, StreamModel):
        raise FolklearnError(
            f"{path} holds a {type(model).__name__}; {what} takes what `folklearn run --save` wrote"
        )
    return model


def check_options(given: dict[str, float]) -> None:
    """Refuse a parameter of the learner that cannot be used, before anything is read."""
    for name, value in given.items():
        problem.positive(f"--{name}", value)


def new_model(table: Table, learner: str, given: dict[str, float]) -> StreamModel:
    """Return a model that has learned nothing, made for a table."""
    labels = classes(table)
    learners.refuse_too_large(learner, table, len(labels))
    given = given | learners.for_weights(learner, table)
    made = learners.make(learner, len(table.columns) + 1, len(labels), given)
    return StreamModel(made, columns=table.columns, target=table.target, labels=labels)
