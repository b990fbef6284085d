"""The tree in which sums of leaves are added, by its definition."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def cut(n_rows: int, size: int) -> list[range]:
    """The rows of every leaf; no rows are one leaf of none."""
    leaves = [range(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
    return leaves or [range(0)]


def tree(parts: Sequence[T]) -> T:
    """The largest power of two of the parts that leaves some, by themselves; and the rest."""
    if len(parts) == 1:
        return parts[0]
    half = 1
    while 2 * half < len(parts):
        half *= 2
    return tree(parts[:half]) + tree(parts[half:])  # type: ignore[operator]


def depth(leaves: Sequence[range]) -> int:
    """Additions that an entry has been through: one for a row, and one for every merge."""
    if len(leaves) == 1:
        return len(leaves[0])
    half = 1
    while 2 * half < len(leaves):
        half *= 2
    return max(depth(leaves[:half]), depth(leaves[half:])) + 1
