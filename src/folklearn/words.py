"""How messages name and count things."""

from collections.abc import Sequence

_MOST_NAMES_LISTED = 12


def counted(n: int, noun: str) -> str:
    """Return a number and its noun.

    >>> counted(1, "column"), counted(3, "column")
    ('1 column', '3 columns')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return names for a message: quoted where they could be misread, and not too many.

    >>> listed(["age", "due date"])
    "age, 'due date'"
    """
    shown = [name if _is_plain(name) else repr(name) for name in names[:_MOST_NAMES_LISTED]]
    if len(names) > _MOST_NAMES_LISTED:
        shown.append(f"and {len(names) - _MOST_NAMES_LISTED} more")
    return ", ".join(shown)


def _is_plain(name: str) -> bool:
    return name.isprintable() and not set(name) & set(" ,'\"")
