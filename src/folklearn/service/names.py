"""The words of the service: names of tenants and models, and what a key may do."""

import re
from typing import Literal, get_args

from folklearn.errors import InvalidInputError

Scope = Literal["predict", "learn", "read", "admin"]

SCOPES: tuple[Scope, ...] = get_args(Scope)
USUAL: tuple[Scope, ...] = ("predict", "learn", "read")  # of a key, unless it is told otherwise

PATTERN = "^[a-z0-9][a-z0-9_-]{0,62}$"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_name(what: str, name: str) -> None:
    """Raise unless a tenant or a model may have this name.

    >>> check_name("model", "churn-2026")
    >>> check_name("model", "../etc")
    Traceback (most recent call last):
    folklearn.errors.InvalidInputError: model '../etc' must be 1 to 63 of a-z, 0-9, _ and -, ...
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{what} {name!r} must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or a "
            "digit"
        )
