"""A small table on disk, and the command line called as a function."""

import csv
import os
from dataclasses import dataclass

import numpy as np
import pytest

from folklearn.cli.app import main


@dataclass
class Outcome:
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def folklearn(capsys):
    """Call the command line; return its exit code and what it printed."""

    def call(*arguments):
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def refusal(folklearn, tmp_path):
    """Call what must be refused; check its manners; return its sentence."""

    def call(*arguments):
        before = {name: (tmp_path / name).stat().st_mtime_ns for name in os.listdir(tmp_path)}
        outcome = folklearn(*arguments)
        after = {name: (tmp_path / name).stat().st_mtime_ns for name in os.listdir(tmp_path)}
        assert outcome.code == 2
        assert outcome.stdout == ""
        assert outcome.stderr.count("\n") == 1
        assert outcome.stderr.startswith("folklearn: ")
        assert after == before
        return outcome.stderr.removeprefix("folklearn: ").rstrip("\n")

    return call


COLUMNS = ("weight (kg)", "größe [red]", "age", "kind")
KINDS = ("[bold]cat", "犬", 'a "dog", big')


@pytest.fixture
def columns():
    return COLUMNS


@pytest.fixture
def rows(rng):
    """300 rows of text cells: three features, then the kind."""
    X = rng.normal(size=(300, 3))
    kinds = X.argmax(axis=1)
    X = X * [1.0, 1e4, 1e-3] + [5.0, -1e5, 0.0]
    return [[*map(repr, x.tolist()), KINDS[kind]] for x, kind in zip(X, kinds, strict=True)]


@pytest.fixture
def write_csv(tmp_path):
    def write(name, rows, columns=COLUMNS):
        path = tmp_path / name
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([columns, *rows])
        return path

    return write


@pytest.fixture
def pets(write_csv, rows):
    return write_csv("pets.csv", rows)


@pytest.fixture
def as_arrays(rows):
    """The same rows as the library takes them, with the labels in sorted order."""
    labels = sorted(KINDS)
    X = np.array([[float(cell) for cell in row[:-1]] for row in rows])
    return X, np.array([labels.index(row[-1]) for row in rows]), labels


def standardise(X):
    """Rows as commands hand them to learners: a constant and columns of unit deviation."""
    return np.hstack([np.ones((len(X), 1)), (X - X.mean(axis=0)) / X.std(axis=0)])
