"""What a single value means: missing, a number, a date or text. One rule for every format."""

import math
import re
import shlex
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any, Literal

import numpy as np

Kind = Literal["number", "text", "date"]

LARGEST = 1e14  # numbers above it cannot be computed with
_MISSING = frozenset(("", "nan", "na", "n/a", "null"))
_TRUTH = {"true": 1.0, "false": 0.0}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d.*)?", re.ASCII)
_OTHER_KIND = ("is not a number", "is not a date")
_EXACT = 2.0**53  # whole numbers below it are told apart


def is_missing(text: str) -> bool:
    """Tell whether a text without outer spaces says that there is no value.

    >>> [cell for cell in ("", "NaN", "n/a", "0", "none") if is_missing(cell)]
    ['', 'NaN', 'n/a']
    """
    return len(text) < 5 and text.lower() in _MISSING


def number_in(text: str, decimal: str = ".") -> float | None:
    """Return the number that a text says, or None; underscores are part of one for Python only.

    >>> number_in("1e3"), number_in("1,5", ","), number_in("1.5", ","), number_in("1_000")
    (1000.0, 1.5, None, None)
    """
    if "_" in text:
        return None
    if decimal != ".":
        if "." in text:
            return None
        text = text.replace(decimal, ".", 1)
    try:
        return float(text)
    except ValueError:
        return None


def date_in(text: str) -> datetime | None:
    """Return the date that a text says as ISO 8601 has it, in UTC if it has a zone, or None.

    >>> date_in("2024-05-01"), date_in("2024-05-01T10:00+02:00"), date_in("20240501")
    (datetime.datetime(2024, 5, 1, 0, 0), datetime.datetime(2024, 5, 1, 8, 0), None)
    """
    if not _DATE.fullmatch(text):
        return None
    try:
        return without_zone(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def without_zone(moment: datetime) -> datetime:
    """Return the same moment in UTC if it has a zone."""
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def kind_of(texts: Iterable[str], decimal: str = ".") -> Kind | None:
    """Return the kind that all texts have which are not missing; None if all are missing.

    >>> kind_of(["3", "NA", "-2.5"]), kind_of(["2024-05-01"]), kind_of(["3", "x"])
    ('number', 'date', 'text')
    """
    present = [text for text in texts if not is_missing(text)]
    if not present:
        return None
    if all(number_in(text, decimal) is not None for text in present):
        return "number"
    return "date" if all(date_in(text) is not None for text in present) else "text"


def written(value: Any) -> str | None:
    """Return a value as text, None if it is missing.

    >>> written(" red "), written(True), written(3.0), written(2.5), written("NA")
    ('red', 'true', '3', '2.5', None)
    """
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        return None if is_missing(text) else text
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return None
        whole = abs(number) < _EXACT and number.is_integer()
        return str(int(number)) if whole else repr(number)
    if isinstance(value, datetime):
        return without_zone(value).isoformat()
    return value.isoformat() if isinstance(value, date) else str(value)


def as_number(value: Any, decimal: str = ".") -> tuple[float, str]:
    """Return a number, NaN if it is missing, and what is wrong with it, or nothing."""
    if value is None:
        return math.nan, ""
    if isinstance(value, str):
        text = value.strip()
        if is_missing(text):
            return math.nan, ""
        found = _TRUTH.get(text.lower(), number_in(text, decimal))
        if found is None:
            other = "," if decimal == "." else "."
            is_other = number_in(text, other) is not None
            remedy = f"; decimals have {decimal!r} here, not {other!r}: --decimal {other}"
            return math.nan, f"{_shown(text)} is not a number" + (remedy if is_other else "")
    elif isinstance(value, (bytes, bytearray, np.complexfloating)):  # which `float` would take
        return math.nan, f"{_shown(value)} is not a number"
    else:
        try:
            found = float(value)
        except (TypeError, ValueError):
            return math.nan, f"{_shown(value)} is not a number"
        except OverflowError:
            found = math.inf
    if not abs(found) <= LARGEST:  # also for NaN, which is no fault
        fault = "too large to compute with; scale the column"
        if not isinstance(value, int) and math.isinf(found):
            fault = "not finite; leave missing values empty"
        return found, "" if math.isnan(found) else f"{_shown(value)} is {fault}"
    return found, ""


def as_date(value: Any) -> tuple[datetime | None, str]:
    """Return a date, None if it is missing, and what is wrong with it, or nothing."""
    if isinstance(value, datetime):  # pandas' NaT is one that differs from itself
        return (without_zone(value) if value == value else None), ""
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day), ""
    text = written(value)
    if text is None:
        return None, ""
    found = date_in(text) if isinstance(value, str) else None
    return found, "" if found else f"{_shown(text)}, unlike 2024-05-01T10:30, is not a date"


def with_remedy(fault: str, column: str) -> str:
    """Return what is wrong with a cell of a column, and what to do if the column is to blame.

    >>> with_remedy("'x' is not a number", "zip code")
    "'x' is not a number; for a column of text: --role 'zip code=category'"
    """
    if not fault.endswith(_OTHER_KIND):
        return fault
    return f"{fault}; for a column of text: --role {shlex.quote(f'{column}=category')}"


def _shown(value: Any) -> str:
    text = repr(value.strip() if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."
