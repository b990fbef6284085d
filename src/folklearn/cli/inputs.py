"""Where the rows come from, and the model that meets them."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from folklearn import serialization, validation
from folklearn.errors import FolklearnError
from folklearn.model.model import Model
from folklearn.model.roles import IGNORED, check_known
from folklearn.readers.memory import TableReader
from folklearn.readers.open import open_reader
from folklearn.readers.reader import Reader
from folklearn.readers.table import Column, Table, TextColumn
from folklearn.synthetic import DIGITS_NAME, DIGITS_TARGET, digits
from folklearn.utils import listed

STDIN = "-"
_HEADER_LENGTH = 8  # bytes of a safetensors file before its header, which is JSON


def open_rows(
    file: str | None, target: str | None, **options: str | None
) -> tuple[Reader, str | None]:
    """Return the rows of a file, `-` for standard input, None for the digits; and the target."""
    if file is None:
        given = [name for name, value in options.items() if value is not None]
        if given or target not in (None, DIGITS_TARGET):
            what = f"--{given[0]}" if given else f"--target {target!r}"
            raise FolklearnError(f"{what} is about a file, but no file was given")
        return _digits(), DIGITS_TARGET
    if file == STDIN and sys.stdin is None:  # whoever called closed it
        raise FolklearnError("standard input is closed: give a file, or something to read")
    if os.path.isdir(file):
        raise FolklearnError(f"{file} is a folder, not a file of rows")
    return open_reader(file, **options), target


def _digits() -> Reader:
    pixels, labels = digits()
    columns: dict[str, Column] = {**pixels, DIGITS_TARGET: TextColumn.of(labels)}
    return TableReader(Table(columns, np.arange(1, len(labels) + 1)), DIGITS_NAME)


def roles_of(role: Sequence[str] | None, drop: Sequence[str] | None) -> dict[str, str]:
    """Return the roles that options give to columns."""
    roles: dict[str, str] = {}
    for text in role or ():
        name, equals, own = text.rpartition("=")
        if not equals:
            raise FolklearnError(f"--role {text!r} must be a column and its role: COLUMN=ROLE")
        check_known(own, name)
        roles[name] = own
    return roles | dict.fromkeys(drop or (), IGNORED)


def crosses_of(cross: Sequence[str] | None, reader: Reader) -> list[tuple[str, str]]:
    """Return pairs of columns that options name as A:B; names may have colons of their own."""
    pairs = []
    for text in cross or ():
        cuts = [place for place, character in enumerate(text) if character == ":"]
        found = [
            (text[:cut], text[cut + 1 :])
            for cut in cuts
            if text[:cut] in reader.names and text[cut + 1 :] in reader.names
        ]
        if not found:
            raise FolklearnError(
                f"--cross {text!r} must be two columns A:B of {reader.name}; its columns are: "
                f"{listed(reader.names)}"
            )
        pairs.append(found[0])
    return pairs


def classes_of(path: str | None) -> list[str]:
    """Return the labels that a file has, one a line."""
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
    """Tell whether a file begins like what was saved; one that is not there may be."""
    if not os.path.isfile(path):
        return True
    with open(path, "rb") as file:
        start = file.read(_HEADER_LENGTH + 1)
    return len(start) > _HEADER_LENGTH and start.endswith(b"{")


def load_model(path: str, what: str = "--load") -> Model:
    """Load a model that an earlier run saved."""
    if not may_be_saved(path):
        raise FolklearnError(
            f"{path} is no folklearn model; {what} takes what `folklearn run --save` wrote"
        )
    model = serialization.load(path)
    if not isinstance(model, Model):
        raise FolklearnError(
            f"{path} holds a {type(model).__name__}; {what} takes what `folklearn run --save` wrote"
        )
    return model


def check_settings(given: Mapping[str, Any]) -> None:
    """Refuse a parameter of the learner that cannot be used, before anything is read."""
    for name, value in given.items():
        if name == "memory":
            validation.count("--memory", value, 1)
        else:
            validation.positive(f"--{name}", value)
