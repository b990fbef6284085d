"""Error types and warnings. Errors are ValueErrors: the message says what to do."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Spelling = Callable[..., str]


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


_spelling: Spelling = str.format


def spell_argument(template: str, *values: str) -> str:
    """Return how a user sets an argument, for messages: in Python, or as the caller has set."""
    return _spelling(template, *values)


@contextmanager
def arguments_spelled_by(spelling: Spelling) -> Iterator[None]:
    """Let messages of this process spell arguments otherwise, such as by command-line options."""
    global _spelling
    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before
