"""Error types and warnings. Errors are ValueErrors: the message says what to do."""

import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar


class FolklearnError(ValueError):
    """Base of every error that this library raises on purpose."""


class InvalidInputError(FolklearnError):
    """A parameter, context, label, weight or comparator that cannot be used."""


class StateFileError(FolklearnError):
    """A file that does not hold a state this version can read."""


class DataWarning(UserWarning):
    """Rows were used, but perhaps not as was meant: columns left out, values never learned, ...

    ``warnings.simplefilter("ignore", folklearn.DataWarning)`` silences it.
    """


def warn_of_data(message: str) -> None:
    """Issue a DataWarning at the line that called the library, however deep this is within it."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("folklearn."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level)


# How messages name what a user sets; the command line, in a context of its own, has options.
spelling: ContextVar[Callable[..., str]] = ContextVar("spelling", default=str.format)


def spell_argument(template: str, *values: str) -> str:
    """Return how a user sets an argument, for messages: in Python, or as the caller has set."""
    return spelling.get()(template, *values)
