"""Columns of the data: their roles, and what a column says in its role."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, warn_of_data
from folklearn.readers import convert
from folklearn.readers.convert import DATE_KINDS, Kind, format_role, parse_amount, parse_date
from folklearn.readers.table import (
    Column,
    Table,
    TextColumn,
    as_text_column,
    decode_column,
    is_missing,
)
from folklearn.sparse import SparseRows
from folklearn.utils import join_names

NUMBER, CATEGORY, WORDS, DATE = "number", "category", "words", "date"
ID, WEIGHT, TARGET, IGNORED = "id", "weight", "target", "ignored"
DATES: tuple[str, ...] = DATE_KINDS  # plain ones, and those of which the role tells the order
LEARNED = (NUMBER, CATEGORY, WORDS, *DATES)
ROLES = (*LEARNED, ID, WEIGHT, TARGET, IGNORED)

HASHED = 2**30  # places of words and of categories of wide models
CYCLES = ("hour (sin)", "hour (cos)", "year (sin)", "year (cos)")
DATE_PARTS = (
    "trend", *CYCLES,
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
)  # fmt: skip
DAY_SECONDS, YEAR_SECONDS = 86_400.0, 365.2425 * 86_400.0
FIRST_WEEKDAY = 3  # of 1970: a Thursday
PAIR_MARK = " & "  # between the categories of a cross

_SENTENCE = 3  # words from which on a text is words, not a category
_ENOUGH = 50  # rows before an id is recognised, and texts that are a category
_FEW_TEXTS, _OFTEN = 30, 10  # different sentences, each in this many rows, are a category
MANY_NUMBERS = 30  # different ones, which are probably quantities and no names
_LEADING_ZERO = re.compile(r"0\d+", re.ASCII)  # of a code, such as 007
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


def check_known(role: str, name: str) -> None:
    if role not in ROLES:
        roles = ", ".join(ROLES)
        raise InvalidInputError(
            f"column {name!r} cannot have the role {role!r}; roles are: {roles}"
        )


def of_value(value: Any) -> str:
    """Return the role of a column by one value, as a stream brings it.

    >>> [of_value(value) for value in (3, "PE", "2026-11-15", "late again and again", None)]
    ['number', 'category', 'date', 'words', 'number']
    """
    if isinstance(value, str):
        is_sentence = len(value.split()) >= _SENTENCE
        return _infer_dates(TextColumn.of([value])) or (WORDS if is_sentence else CATEGORY)
    return DATE if isinstance(value, date | datetime | np.datetime64) else NUMBER


def of_first_values(table: Table, skip: Container[str] = ()) -> dict[str, str]:
    """Return the roles of columns by their first values, in their order, those of a row by name."""
    roles = {}
    for row, name in _find_first_values(table):
        if name not in skip:
            column: Any = table.columns[name]
            is_text = isinstance(column, TextColumn)
            roles[name] = of_value(column.values[column.codes[row]] if is_text else column[row])
    return roles


def of_rows(table: Table, asked: Mapping[str, str]) -> dict[str, str]:
    """Return the roles of columns that have a value; a text that says a number is a category."""
    roles = {}
    for _, name in _find_first_values(table):
        column = table.columns[name]
        roles[name] = asked.get(name) or _infer_role(name, column)
        if roles[name] == NUMBER and isinstance(column, TextColumn) and name not in asked:
            roles[name] = CATEGORY
    return roles


def _find_first_values(table: Table) -> list[tuple[int, str]]:
    gaps = {  # what may be missing says nothing about a column
        name: is_missing(
            column.without(convert.is_gap) if isinstance(column, TextColumn) else column
        )
        for name, column in table.columns.items()
    }
    return sorted((int(g.argmin()), name) for name, g in gaps.items() if not g.all())


def infer_roles(head: Table, *, skip: Iterable[str] = ()) -> dict[str, str]:
    """Return the roles of the columns of the first rows, in order, but for some."""
    skipped = set(skip)
    columns = head.columns.items()
    return {name: _infer_role(name, column) for name, column in columns if name not in skipped}


def _infer_role(name: str, column: Column) -> str:
    if not isinstance(column, TextColumn):
        is_id = column.dtype.kind == "f" and _counts_rows(name, column)
        return DATE if column.dtype.kind == "M" else ID if is_id else NUMBER
    has_text = any(text.lower() in convert.WARNED_GAPS for text in column.values)
    column = column.without(convert.is_gap)
    n_texts = int(np.count_nonzero(column.codes >= 0))
    values = [value for value in column.values if value]
    if not values or not n_texts:  # the values may be those of other rows
        return CATEGORY if has_text else NUMBER
    if all(value.lower() in convert.TRUTH_VALUES for value in values):
        return NUMBER
    is_code = any(map(_LEADING_ZERO.fullmatch, values))
    amounts = [parse_amount(value) for value in column.values]
    commas = [parse_amount(value, ",") for value in column.values]  # the reader knows what to do
    numbers = np.array(amounts, np.float64)
    numbers = np.where(np.isnan(numbers), np.array(commas, np.float64), numbers)
    are_numbers = ~np.isnan(numbers)
    if _share(column, are_numbers) >= _NEARLY_ALL and not is_code:
        units = {convert.find_unit(value) for value in values}
        if len(units - {""}) < 2 and units != {"", "%"}:
            is_id = _counts_rows(name, np.append(numbers, np.nan)[column.codes])
            return ID if is_id else NUMBER
        _warn_of_text(name, "amounts of several units", "let all of them have the same")
    elif are_numbers.sum() > MANY_NUMBERS and _share(column, are_numbers) > 0.5 and not is_code:
        texts = [column.values[i] for i in np.flatnonzero(~are_numbers)]
        missing = convert.format_missing(texts[0])
        remedy = f"if they are missing, {missing}; for text, {format_role(name, CATEGORY)}"
        _warn_of_text(name, "numbers", f"some are none: {join_names(texts)}; {remedy}")
    if dates := _infer_dates(column):
        return dates
    if _share(column, [bool(_LIKE_DATE.fullmatch(v)) for v in column.values]) >= _NEARLY_ALL:
        remedy = (
            "dates are read that look like 2024-05-31 or 31.05.2024; where the day or the month "
            f"comes first, say which: {format_role(name, 'day/month')} or "
            f"{format_role(name, 'month/day')}"
        )
        _warn_of_text(name, "dates", remedy)
    if are_sentences(values):
        n_values = len(np.unique(column.codes[column.codes >= 0]))
        if n_values > _FEW_TEXTS or n_texts < max(_ENOUGH, _OFTEN * n_values):
            return WORDS
        warn_of_data(
            f"column {name!r} has {n_values} different texts in {n_texts:,} rows: each is taken "
            f"for a category; to learn their words: {format_role(name, WORDS)}"
        )
        return CATEGORY
    is_id = n_texts >= _ENOUGH and len(values) >= _NEARLY_ALL * n_texts
    return ID if is_id else CATEGORY


def are_sentences(values: Sequence[str]) -> bool:
    """Tell whether texts have three words or more on average."""
    return sum(len(value.split()) for value in values) >= _SENTENCE * len(values)


def warn_of_sentences(name: str) -> None:
    """Warn of a column whose first value was none, and that was taken for a category by it."""
    warn_of_data(
        f"column {name!r} was taken for a category by its first value, and its texts turn out to "
        f"be sentences: to learn their words: {format_role(name, WORDS)}"
    )


def _warn_of_text(name: str, what: str, remedy: str) -> None:
    warn_of_data(f"column {name!r} looks like {what} but is taken for text: {remedy}")


def _infer_dates(column: TextColumn) -> str | None:
    orders = [
        role
        for role in DATE_KINDS
        if _share(column, [parse_date(v, role) is not None for v in column.values]) >= _NEARLY_ALL
    ]
    # What plain dates say is read as such in every order.
    return orders[0] if orders and (orders[0] == DATE or len(orders) == 1) else None


def _share(column: TextColumn, are: Any) -> float:
    return float(np.mean(np.array(are)[column.codes[column.codes >= 0]]))


def _counts_rows(name: str, numbers: Any) -> bool:
    """Tell whether numbers count the rows; an unnamed column needs fewer of them."""
    if len(numbers) < (2 if name == "" else _ENOUGH):
        return name == ""
    return bool(np.all(np.diff(numbers) == 1.0))


def describe_roles(roles: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return roles and the columns that have them, for people to read."""
    columns = {role: [n or "(unnamed)" for n, r in roles.items() if r == role] for role in ROLES}
    return [(role, names) for role, names in columns.items() if names]


class EncodedColumn(NamedTuple):
    """What a column, or a cross of two, says in every row: `numbers`, a category, or `words`."""

    parts: Sequence[str] = ("",)  # "" for a number, those of a date, or the categories
    numbers: Array | None = None  # (parts, T), NaN where missing
    codes: NDArray[np.integer[Any]] | None = None  # (T,) of the categories, -1 for none
    factors: Array | float = 1.0  # (T,) the values of the categories
    words: SparseRows | None = None  # any number of places for every row, by hash

    def hash_parts(self) -> SparseRows:
        """Return the words, or one hashed place for every row that has a category."""
        if self.words is not None:
            return self.words
        assert self.codes is not None
        places = np.array([*map(place_of, self.parts), 0])
        is_present = self.codes >= 0
        factors = np.broadcast_to(np.asarray(self.factors, np.float64), len(is_present))
        indptr = np.concatenate([[0], np.cumsum(is_present)])
        indices = places[self.codes[is_present]].astype(np.int32)
        return SparseRows(indptr, indices, np.ascontiguousarray(factors[is_present]), HASHED)


def encode_column(name: str, role: str, column: Column) -> EncodedColumn:
    if role == NUMBER:
        is_ready = isinstance(column, np.ndarray) and column.dtype.kind == "f"
        numbers = column if is_ready else _convert_column(name, role, column)
        numbers = np.asarray(numbers, np.float64)[None]
        if not np.fmax.reduce(np.abs(numbers), axis=None, initial=0.0) <= convert.MAX_ABS_VALUE:
            raise _size_error(name, numbers)
        return EncodedColumn(numbers=numbers)
    if role in DATES:
        seconds = _convert_column(name, role, column)
        day = 2.0 * np.pi * np.mod(seconds, DAY_SECONDS) / DAY_SECONDS
        year = 2.0 * np.pi * np.mod(seconds, YEAR_SECONDS) / YEAR_SECONDS
        weekday = np.mod(np.floor(seconds / DAY_SECONDS) + FIRST_WEEKDAY, 7.0)
        weekdays = np.where(np.isnan(seconds), np.nan, weekday == np.arange(7.0)[:, None])
        angles = [np.sin(day), np.cos(day), np.sin(year), np.cos(year)]
        return EncodedColumn(DATE_PARTS, np.concatenate([[seconds, *angles], weekdays]))
    texts = column if isinstance(column, TextColumn) else as_text_column(column)
    if role == CATEGORY:
        return EncodedColumn(texts.values, codes=texts.codes)
    counts = SparseRows.of(vectorizer().transform([*texts.values, ""]))
    words = counts[np.where(texts.codes < 0, len(texts.values), texts.codes)]
    return EncodedColumn(words=words)


def cross_columns(a: str, first: EncodedColumn, b: str, second: EncodedColumn) -> EncodedColumn:
    """Return the products of what two columns say: of numbers and categories, not of words."""
    for name, column in ((a, first), (b, second)):
        if column.parts is DATE_PARTS:
            raise InvalidInputError(f"{a}:{b} cannot be crossed: dates cannot")
        if column.words is not None:
            raise InvalidInputError(
                f"{a}:{b} cannot be crossed: words cannot; for a column of few words: "
                f"{format_role(name, 'category')}"
            )
    if first.codes is not None and second.codes is not None:
        n = len(second.parts)
        is_present = (first.codes >= 0) & (second.codes >= 0)
        pairs = np.where(is_present, first.codes * np.int64(n) + second.codes, -1)
        distinct, codes = np.unique(pairs, return_inverse=True)
        present = distinct[distinct >= 0].tolist()
        parts = [f"{first.parts[pair // n]}{PAIR_MARK}{second.parts[pair % n]}" for pair in present]
        return EncodedColumn(parts, codes=(codes - (len(distinct) - len(parts))).astype(np.int32))
    if first.codes is not None:
        first, second = second, first
    assert first.numbers is not None
    if second.codes is not None:
        numbers = first.numbers[0]
        codes = np.where(np.isnan(numbers), np.int32(-1), second.codes)
        return EncodedColumn(second.parts, codes=codes, factors=np.nan_to_num(numbers))
    assert second.numbers is not None
    products = first.numbers * second.numbers
    if not np.fmax.reduce(np.abs(products), axis=None, initial=0.0) <= convert.MAX_ABS_VALUE:
        raise _size_error(f"{a}:{b}", products)
    return EncodedColumn(numbers=products)


def _size_error(name: str, numbers: Array) -> InvalidInputError:
    bad = numbers.flat[np.nanargmax(np.abs(numbers))]
    problem = "is not finite" if np.isinf(bad) else "is too large to compute with"
    return InvalidInputError(
        f"column {name!r} has {bad:g}, which {problem}; leave such values out, scale them, or give "
        "the column the role category"
    )


def _convert_column(name: str, role: str, column: Column) -> Array:
    """Return a column as numbers (T,), dates as seconds since 1970."""
    if isinstance(column, TextColumn):
        codes = column.codes.astype(np.int64)
        column, faults = decode_column(codes, column.values, kind_of(role))
        for fault in faults.values():
            raise InvalidInputError(f"column {name!r}: {convert.add_remedy(fault, name)}")
    assert isinstance(column, np.ndarray)
    has_dates = column.dtype.kind == "M"
    if has_dates != (role in DATES):
        if is_missing(column).all():  # nothing is of no kind
            return np.full(len(column), np.nan)
        held = "dates" if has_dates else "numbers"
        raise InvalidInputError(f"column {name!r} holds {held}, and its role is {role}")
    if not has_dates:
        return np.asarray(column, np.float64)
    exact = column.astype("datetime64[us]")
    return np.where(np.isnat(exact), np.nan, exact.astype(np.int64) / 1e6)


def place_of(text: str) -> int:
    from sklearn.utils import murmurhash3_32

    return int(murmurhash3_32(text.encode("utf-8", "surrogatepass"), positive=True)) % HASHED


@lru_cache(maxsize=1)
def vectorizer() -> Any:
    """Return what turns a text into counts of its words and pairs of words, by hash."""
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(ngram_range=(1, 2), n_features=HASHED, norm=None, alternate_sign=False)
