"""What one column of the data says, row by row: the terms that a matrix is made of."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.model.roles import CATEGORY, DATES, NUMBER, WORDS, kind_of
from folklearn.readers.convert import add_remedy, format_role
from folklearn.readers.table import Column, Dates, TextColumn, as_text_column, decode_column
from folklearn.sparse import SparseRows

HASHED = 2**30  # places of words and of categories of wide models
DATE_PARTS = (
    "trend", "hour (sin)", "hour (cos)", "year (sin)", "year (cos)",
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
)  # fmt: skip
_DAY, _YEAR = 86_400.0, 365.2425 * 86_400.0  # seconds
_MONDAY = 3  # the first of January 1970 was a Thursday


class NumericColumn(NamedTuple):
    """A number for every row, NaN where it is missing."""

    part: str
    values: Array


class CategoricalColumn(NamedTuple):
    """One of several parts for every row, -1 for none, and the value it has there."""

    parts: Sequence[str]
    codes: NDArray[np.int32]
    values: Array | float = 1.0


class HashedColumn(NamedTuple):
    """Any number of places for every row: words, by their hash."""

    rows: SparseRows


Term = NumericColumn | CategoricalColumn | HashedColumn


def terms_of(name: str, role: str, column: Column) -> list[Term]:
    """Return what a column says in a role."""
    if role == NUMBER:
        return [NumericColumn("", numbers(name, column))]
    if role in DATES:
        return list(map(NumericColumn, DATE_PARTS, _date_parts(name, role, column)))
    texts = as_text_column(column)
    if role == CATEGORY:
        return [CategoricalColumn(texts.values, texts.codes)]
    assert role == WORDS
    return [HashedColumn(_words(texts))]


def crossed(a: str, first: Sequence[Term], b: str, second: Sequence[Term]) -> list[Term]:
    """Return the products of what two columns say: of numbers and categories, not of words."""
    if len(first) != 1 or len(second) != 1:
        raise InvalidInputError(f"{a}:{b} cannot be crossed: dates cannot")
    one, other = first[0], second[0]
    if isinstance(one, HashedColumn) or isinstance(other, HashedColumn):
        raise InvalidInputError(
            f"{a}:{b} cannot be crossed: words cannot; for a column of few words: "
            f"{format_role(a if isinstance(one, HashedColumn) else b, 'category')}"
        )
    if isinstance(one, CategoricalColumn) and isinstance(other, CategoricalColumn):
        there = (one.codes >= 0) & (other.codes >= 0)
        pairs = np.where(there, one.codes * np.int64(len(other.parts)) + other.codes, -1)
        found, codes = np.unique(pairs, return_inverse=True)
        parts = [
            f"{one.parts[pair // len(other.parts)]} & {other.parts[pair % len(other.parts)]}"
            for pair in found.tolist()
            if pair >= 0
        ]
        return [CategoricalColumn(parts, (codes - (len(found) - len(parts))).astype(np.int32))]
    if isinstance(one, CategoricalColumn):
        one, other = other, one
    assert isinstance(one, NumericColumn)
    if isinstance(other, CategoricalColumn):
        own = other.codes.copy()
        own[np.isnan(one.values)] = -1
        return [CategoricalColumn(other.parts, own, np.nan_to_num(one.values))]
    return [NumericColumn("", one.values * other.values)]


def numbers(name: str, column: Column) -> Array:
    """Return a column as numbers."""
    if not isinstance(column, TextColumn):
        if column.dtype.kind != "M":
            return np.asarray(column, np.float64)
        if np.isnat(column).all():
            return np.full(len(column), np.nan)
        raise InvalidInputError(f"column {name!r} holds dates, and its role is number")
    return np.asarray(_read(name, NUMBER, column), np.float64)


def _date_parts(name: str, role: str, column: Column) -> Array:
    """Return (parts, T): seconds since 1970, time of day and of year as angles, weekdays."""
    seconds = _seconds(name, role, column)
    day = 2.0 * np.pi * np.mod(seconds, _DAY) / _DAY
    year = 2.0 * np.pi * np.mod(seconds, _YEAR) / _YEAR
    weekday = np.mod(np.floor(seconds / _DAY) + _MONDAY, 7.0)
    weekdays = np.where(np.isnan(seconds), np.nan, weekday == np.arange(7.0)[:, None])
    rows: Array = np.array([seconds, np.sin(day), np.cos(day), np.sin(year), np.cos(year)])
    return np.concatenate([rows, weekdays])


def _seconds(name: str, role: str, column: Column) -> Array:
    column = _read(name, role, column) if isinstance(column, TextColumn) else column
    if column.dtype.kind != "M":
        if np.isnan(column).all():  # nothing is of no kind
            return np.full(len(column), np.nan)
        raise InvalidInputError(f"column {name!r} holds numbers, and its role is {role}")
    exact = column.astype("datetime64[us]")
    return np.where(np.isnat(exact), np.nan, exact.astype(np.int64) / 1e6)


def _read(name: str, role: str, column: TextColumn) -> Array | Dates:
    """Return a column of text as what its role says that it holds."""
    found, faults = decode_column(column.codes.astype(np.int64), column.values, kind_of(role))
    for fault in faults.values():
        raise InvalidInputError(f"column {name!r}: {add_remedy(fault, name)}")
    assert not isinstance(found, TextColumn)
    return found


def place_of(text: str) -> int:
    """Return the place of a category in a wide model."""
    from sklearn.utils import murmurhash3_32

    return int(murmurhash3_32(text.encode("utf-8", "surrogatepass"), positive=True)) % HASHED


@lru_cache(maxsize=1)
def vectorizer() -> Any:
    """Return what turns a text into counts of its words and pairs of words, by hash."""
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(ngram_range=(1, 2), n_features=HASHED, norm=None, alternate_sign=False)


def _words(texts: TextColumn) -> SparseRows:
    counts = SparseRows.of(vectorizer().transform([*texts.values, ""]))
    return counts[np.where(texts.codes < 0, len(texts.values), texts.codes)]
