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
from folklearn.streams import csv
from folklearn.streams.digits import Digits
from folklearn.streams.model import StreamModel
from folklearn.streams.table import Table, classes, listed


@contextmanager
def open_table(file: str | None, target: str | None) -> Iterator[Table]:
    """Yield the examples, checked: a CSV file, `-` for standard input, None for the digits."""
    if file is None:
        if target not in (None, Digits.target):
            raise FolklearnError(
                f"--target {target!r} names a column of a CSV file, but no file was given"
            )
        yield Digits()
        return
    with _readable_twice(file) as (path, name):
        if target is None:
            raise FolklearnError(
                "--target is needed with a file: name the column that holds the class; "
                f"the columns of {name} are: {listed(csv.header(path, name))}"
            )
        yield csv.scan(path, target, name)


@contextmanager
def _readable_twice(file: str) -> Iterator[tuple[str, str]]:
    """Yield (path, name for messages); what can be read only once is copied first."""
    if file != "-" and not os.path.exists(file):
        raise FolklearnError(f"there is no file {file}")
    if os.path.isdir(file):
        raise FolklearnError(f"{file} is a folder, not a CSV file")
    if file != "-" and os.path.isfile(file):
        yield file, file
        return
    with tempfile.TemporaryDirectory(prefix="folklearn-") as folder:
        path = os.path.join(folder, "input.csv")
        with open(path, "wb") as copy:
            if file == "-":
                shutil.copyfileobj(sys.stdin.buffer, copy)
            else:
                with open(file, "rb") as source:
                    shutil.copyfileobj(source, copy)
        yield path, "standard input" if file == "-" else file


def load_model(path: str) -> StreamModel:
    """Load a model that an earlier run saved."""
    model = registry.load(path)
    if not isinstance(model, StreamModel):
        raise FolklearnError(
            f"{path} holds a {type(model).__name__}; --load takes what `folklearn run --save` wrote"
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
    made = learners.make(learner, len(table.columns) + 1, len(labels), given)
    return StreamModel(made, columns=table.columns, target=table.target, labels=labels)
