"""Convert single values to numbers, dates and text: one rule for every format."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np

from folklearn.errors import spell_argument

# "object": values as they are, which only sources in memory have.
Kind = Literal["number", "text", "date", "day/month", "month/day", "object"]
Kinds = Mapping[str, Kind]  # how columns are read, by name

DATE_KINDS: tuple[Kind, ...] = ("date", "day/month", "month/day")
IS_NESTED = "the value is nested; only numbers, text and dates can be read"
MAX_ABS_VALUE = 1e13  # of a number: rows of ten thousand of them can still be computed with
_TEXT_GAPS = ("", "nan", "NaN")  # missing values of any column
_PLAIN_GAPS = frozenset(("", "nan", "na", "n/a", "null"))  # of numbers and dates, in any case
# Likewise, with a warning: such a text may be a value of its own.
WARNED_GAPS = frozenset(("none", "n.a.", "#n/a", "?", "-"))
_USUAL_GAPS = _PLAIN_GAPS | WARNED_GAPS
_MAX_GAP_LENGTH = max(map(len, _USUAL_GAPS))
TRUTH_VALUES = {"true": 1.0, "false": 0.0}
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})([ T]\d.*)?", re.ASCII)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})([ T]\d.*)?", re.ASCII)
_SHORT_HOUR = re.compile(r"(?<=^.)(?=\d:)")
_MONEY = "$€£¥"
_GROUPED = {".": r"\d{1,3}(?:[,'\xa0\u202f]\d{3})+", ",": r"\d{1,3}(?:[.'\xa0\u202f]\d{3})+"}
_AMOUNT = {
    decimal: re.compile(
        rf"([+-]?)[{_MONEY}]? ?([+-]?)({grouped}|\d*)([{decimal}]\d+)? ?[{_MONEY}%]?", re.ASCII
    )
    for decimal, grouped in _GROUPED.items()
}
_WRONG_KIND = ("is not a number", "is not a date")
_AMBIGUOUS_ORDER = "its role must say which"
_QUOTED_TEXT = re.compile(r"'([^'\\]{1,56})'(?:, unlike \S+,)? is not a ")
_MAX_EXACT_INTEGER = 2.0**53  # floats below it hold every whole number


def parse_number(text: str, decimal: str = ".") -> float | None:
    if "_" in text:  # part of a number for Python only
        return None
    if decimal != ".":
        if "." in text:
            return None
        text = text.replace(decimal, ".", 1)
    try:
        return float(text)
    except ValueError:
        return None


def parse_amount(text: str, decimal: str = ".") -> float | None:
    """Return the number that a text says, perhaps in groups, with a currency or in percent."""
    number = parse_number(text, decimal)
    match = _AMOUNT[decimal].fullmatch(text) if number is None else None
    if match is None:
        return number
    before, within, whole, rest = match.groups("")
    digits = "".join(filter(str.isdigit, whole))
    number = parse_number(f"{before}{within}{digits}{rest}", decimal)
    return number / 100.0 if number is not None and text.endswith("%") else number


def find_unit(text: str) -> str:
    return next((sign for sign in f"{_MONEY}%" if sign in text), "")


def parse_date(text: str, kind: Kind = "date") -> datetime | None:
    """Return the date that a text says, in UTC if it has a zone, or None.

    The year comes first, or last, as in 31.01.2024; after other marks than points the kind decides.
    """
    if match := _YEAR_FIRST.fullmatch(text):
        year, _, month, day, time = match.groups("")
    elif match := _YEAR_LAST.fullmatch(text):
        day, mark, month, year, time = match.groups("")
        if mark != "." and kind == "date":
            return None
        if mark != "." and kind == "month/day":
            day, month = month, day
    else:
        return None
    try:
        moment = f"{year}-{month:0>2}-{day:0>2}{_SHORT_HOUR.sub('0', time)}"
        return _drop_zone(datetime.fromisoformat(moment))
    except (ValueError, OverflowError):
        return None


def _drop_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def format_cell(value: Any) -> str | None:
    """Return a value as text, None if it is missing: None, NaN, or a text that is empty."""
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        return None if text in _TEXT_GAPS else text
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return None
        whole = abs(number) < _MAX_EXACT_INTEGER and number.is_integer()
        return str(int(number)) if whole else repr(number)
    if isinstance(value, (date, np.datetime64)):
        moment, _ = to_date(value)
        is_day = not isinstance(value, (datetime, np.datetime64))
        return None if moment is None else (moment.date() if is_day else moment).isoformat()
    return None if is_null(value) else str(value)


def is_null(value: Any) -> bool:
    """Tell whether a value is None, differs from itself, as NaN, or is NA of pandas."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ArithmeticError):  # NA and a signalling NaN of Decimal do not compare
        return True


def is_gap(text: str) -> bool:
    """Tell whether a text without outer spaces is how people write a missing number or date."""
    return len(text) <= _MAX_GAP_LENGTH and text.lower() in _USUAL_GAPS


def to_number(value: Any, decimal: str = ".") -> tuple[float, str]:
    """Return a number (seconds of a duration), NaN if it is missing, and what is wrong, or ""."""
    if value is None:
        return math.nan, ""
    if isinstance(value, str):
        text = value.strip()
        if is_gap(text):
            return math.nan, ""
        number = TRUTH_VALUES.get(text.lower(), parse_amount(text, decimal))
        if number is None:
            other = "," if decimal == "." else "."
            is_other = parse_amount(text, other) is not None
            way_out = spell_argument("decimal={!r}", other)
            remedy = f"; decimals have {decimal!r} here, not {other!r}: {way_out}"
            return math.nan, f"{_quote(text)} is not a number" + (remedy if is_other else "")
    elif isinstance(value, (bytes, bytearray, np.complexfloating)):  # which `float` would take
        return math.nan, f"{_quote(value)} is not a number"
    else:
        if isinstance(value, timedelta | np.timedelta64):
            value = value / np.timedelta64(1, "s")
        try:
            number = float(value)
        except (TypeError, ValueError):
            return math.nan, "" if is_null(value) else f"{_quote(value)} is not a number"
        except OverflowError:
            number = math.inf
    if not abs(number) <= MAX_ABS_VALUE:  # also for NaN, which is no fault
        fault = "too large to compute with; scale the column"
        if not isinstance(value, int) and math.isinf(number):
            fault = "not finite; leave missing values empty"
        return number, "" if math.isnan(number) else f"{_quote(value)} is {fault}"
    return number, ""


def to_date(value: Any, kind: Kind = "date") -> tuple[datetime | None, str]:
    """Return a date, None if it is missing, and what is wrong with it, or ""."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime):  # pandas' NaT is one that differs from itself
        return (_drop_zone(value) if value == value else None), ""
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day), ""
    text = format_cell(value)
    if text is None or is_gap(text):
        return None, ""
    moment = parse_date(text, kind) if isinstance(value, str) else None
    if moment is None and kind == "date" and _YEAR_LAST.fullmatch(text):
        return None, f"{_quote(text)} may begin with the day or the month, and {_AMBIGUOUS_ORDER}"
    return moment, "" if moment else f"{_quote(text)}, unlike 2024-05-01T10:30, is not a date"


def add_remedy(fault: str, column: str) -> str:
    """Return what is wrong with a cell of a column, and what to do if the column is to blame."""
    if fault.endswith(_AMBIGUOUS_ORDER):
        return f"{fault}: {format_role(column, 'day/month')} or {format_role(column, 'month/day')}"
    if fault == IS_NESTED:
        return f"{fault}; to leave the column out: {format_role(column, 'ignored')}"
    if fault.endswith(_WRONG_KIND):
        fault = f"{fault}; for a column of text: {format_role(column, 'category')}"
        value = _QUOTED_TEXT.match(fault)
        return f"{fault}; if it is missing: {format_missing(value[1])}" if value else fault
    return fault


def format_missing(text: str) -> str:
    return spell_argument("missing={!r}", text)


def format_role(column: str, role: str) -> str:
    return spell_argument("roles={{{!r}: {!r}}}", column, role)


def _quote(value: Any) -> str:
    text = repr(value.strip() if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."
