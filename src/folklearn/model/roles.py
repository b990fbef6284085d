"""What the columns of the data are: numbers, categories, words, dates, ids, weights."""

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

import numpy as np

from folklearn.errors import InvalidInputError, warn_of_data
from folklearn.readers.convert import (
    DATE_KINDS,
    Kind,
    find_unit,
    format_role,
    parse_amount,
    parse_date,
)
from folklearn.readers.table import Column, Table, TextColumn, is_missing
from folklearn.utils import join_names

NUMBER, CATEGORY, WORDS, DATE = "number", "category", "words", "date"
ID, WEIGHT, TARGET, IGNORED = "id", "weight", "target", "ignored"
DATES: tuple[str, ...] = DATE_KINDS  # plain ones, and those of which the role tells the order
LEARNED = (NUMBER, CATEGORY, WORDS, *DATES)
ROLES = (*LEARNED, ID, WEIGHT, TARGET, IGNORED)

_SENTENCE = 3  # words from which on a text is words, not a category
_ENOUGH = 50  # rows before an id is recognised
MANY_NUMBERS = 30  # different ones, which are probably quantities and no names
_NEARLY_ALL = 0.95  # distinct texts, for an id; numbers, or dates, for a column of them
_LIKE_DATE = re.compile(
    r"(\d{1,2}|\d{4})[-/.]\d{1,2}[-/.]\d{1,4}\b.*"
    r"|.*\d\W*(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\W.*\d.*"
    r"|.*\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\W+\d{1,2}\W+\d{4}\b.*",
    re.ASCII | re.IGNORECASE,
)


def kind_of(role: str) -> Kind:
    """Return how a reader should read a column of a role."""
    if role in (NUMBER, WEIGHT):
        return "number"
    return next((kind for kind in DATE_KINDS if kind == role), "text")


def natural_kind(column: Column) -> Kind:
    """Return what a column holds by nature."""
    if isinstance(column, TextColumn):
        return "text"
    return "date" if column.dtype.kind == "M" else "number"


def check_known(role: str, name: str) -> None:
    """Raise if there is no such role."""
    if role not in ROLES:
        raise InvalidInputError(
            f"column {name!r} cannot have the role {role!r}; roles are: {', '.join(ROLES)}"
        )


def of_value(value: Any) -> str:
    """Return the role of a column by one value, as a stream brings it.

    >>> [of_value(value) for value in (3, "PE", "2026-11-15", "late again and again", None)]
    ['number', 'category', 'date', 'words', 'number']
    """
    if isinstance(value, str):
        if dates := _dates_of(TextColumn.of([value])):
            return dates
        return WORDS if len(value.split()) >= _SENTENCE else CATEGORY
    return DATE if isinstance(value, date | datetime | np.datetime64) else NUMBER


def of_rows(block: Table) -> dict[str, str]:
    """Return the roles of columns that have a value, in the order of `by_first_value`.

    As in `of_value`, and unlike in a file, a text of digits is a category.
    """
    found = {}
    for name in by_first_value(block):
        column = block.columns[name]
        role = _of_column(name, column)
        found[name] = CATEGORY if role == NUMBER and isinstance(column, TextColumn) else role
    return found


def by_first_value(block: Table) -> list[str]:
    """Return the columns that have a value: as rows bring them, those of one row by name."""
    firsts = [
        (int(there.argmax()), name)
        for name, column in block.columns.items()
        if (there := ~is_missing(column)).any()
    ]
    return [name for _, name in sorted(firsts)]


def infer_roles(head: Table, *, skip: Iterable[str] = ()) -> dict[str, str]:
    """Return the roles of the columns of the first rows, in order, but for some."""
    left_out = set(skip)
    return {
        name: _of_column(name, column)
        for name, column in head.columns.items()
        if name not in left_out
    }


def _of_column(name: str, column: Column) -> str:
    if isinstance(column, TextColumn):
        return _of_texts(name, column)
    if column.dtype.kind == "M":
        return DATE
    return ID if _is_running(name, column) else NUMBER


def _of_texts(name: str, column: TextColumn) -> str:
    values = [value for value in column.values if value]
    if not values or not (column.codes >= 0).any():  # the values may be those of other rows
        return NUMBER
    numbers = np.array([_number(value) for value in column.values])
    are_numbers = ~np.isnan(numbers)
    if _are_nearly_all(column, are_numbers):
        units = {find_unit(value) for value in values}
        if len(units - {""}) < 2 and units != {"", "%"}:
            whole = np.append(numbers, np.nan)[column.codes]
            return ID if _is_running(name, whole) else NUMBER
        _doubt(name, "amounts of several units", "let all of them have the same")
    elif are_numbers.sum() > MANY_NUMBERS and _share(column, are_numbers) > 0.5:
        others = [
            value for value, is_one in zip(column.values, are_numbers, strict=True) if not is_one
        ]
        remedy = f"leave missing values empty; for text, {format_role(name, CATEGORY)}"
        _doubt(name, "numbers", f"some are none: {join_names(others)}; {remedy}")
    dates = _dates_of(column)
    if dates is not None:
        return dates
    if _are_nearly_all(column, [bool(_LIKE_DATE.fullmatch(value)) for value in column.values]):
        remedy = "; where the day or the month comes first, say which: "
        remedy += f"{format_role(name, 'day/month')} or {format_role(name, 'month/day')}"
        _doubt(name, "dates", f"dates are read that look like 2024-05-31 or 31.05.2024{remedy}")
    if sum(len(value.split()) for value in values) >= _SENTENCE * len(values):
        return WORDS
    there = int((column.codes >= 0).sum())
    is_id = there >= _ENOUGH and len(values) >= _NEARLY_ALL * there
    return ID if is_id else CATEGORY


def _doubt(name: str, what: str, remedy: str) -> None:
    warn_of_data(f"column {name!r} looks like {what} but is taken for text: {remedy}")


def _dates_of(column: TextColumn) -> str | None:
    """Return the role of dates, if it is one only; of texts nearly all."""
    orders = [
        role
        for role in DATE_KINDS
        if _are_nearly_all(column, [parse_date(text, role) is not None for text in column.values])
    ]
    # What plain dates say is read as such in every order.
    return orders[0] if orders and (orders[0] == DATE or len(orders) == 1) else None


def _are_nearly_all(column: TextColumn, are: Any) -> bool:
    """Tell whether the texts of all rows are of a kind but a few, which are mistakes then."""
    return _share(column, are) >= _NEARLY_ALL


def _share(column: TextColumn, are: Any) -> float:
    """Return how many of the rows that have a text have one of a kind, given for each text."""
    return float(np.mean(np.array(are)[column.codes[column.codes >= 0]]))


def _is_running(name: str, numbers: Any) -> bool:
    """Tell whether numbers count the rows; an unnamed column needs fewer of them."""
    if len(numbers) < (2 if name == "" else _ENOUGH):
        return name == ""
    return bool(np.all(np.diff(numbers) == 1.0))


def _number(text: str) -> float:
    """Return a number, NaN if it is none; a decimal comma counts, the reader knows what to do."""
    found = parse_amount(text)
    found = parse_amount(text, ",") if found is None else found
    return np.nan if found is None else found


def describe_roles(roles: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return roles and the columns that have them, for people to read."""
    found: dict[str, list[str]] = {}
    for name, role in roles.items():
        found.setdefault(role, []).append(name or "(unnamed)")
    return [(role, found[role]) for role in ROLES if role in found]
