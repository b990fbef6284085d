"""Which numbers of two results files differ by more than noise.

A number is compared unless a word of its path says where or when it was measured. Times, rates and
bytes change with the machine: all of a benchmark but its losses, elsewhere what has such a unit.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_LEFT_OUT = re.compile("provenance|origin|machine|versions|commit|date|load_before|wall_s|seed")
_LOSS = re.compile("loss|error")
_TIME = re.compile(
    r"(^|_)(us|ms|mb|(micro|milli)?seconds|times?|bytes|memory|megabytes)(_|$)"
    r"|a_second|river_over|late_ratio|^(split|exponent)$"
)
MOST_CHANGE, MOST_CHANGE_OF_TIMES = 1e-3, 0.5  # relative; more is more than noise
MOST_SHOWN = 20  # kinds of changes of one file

Numbers = dict[tuple[str, ...], float]


@dataclass(frozen=True)
class Change:
    """A number that differs by more than noise; None where there is none."""

    path: tuple[str, ...]
    old: float | None
    new: float | None

    @property
    def relative(self) -> float:
        """Return the change over the larger of both, infinity if one is missing or not finite."""
        if self.old == self.new or str(self.old) == str(self.new) == "nan":
            return 0.0
        if self.old is None or self.new is None or not math.isfinite(self.new - self.old):
            return math.inf
        return abs(self.new - self.old) / max(abs(self.old), abs(self.new))


def numbers(content: Any, path: tuple[str, ...] = ()) -> Numbers:
    """Return the numbers of a results file by their paths."""
    if isinstance(content, bool) or (path and _LEFT_OUT.fullmatch(path[-1])):
        return {}
    if isinstance(content, int | float):
        return {path: float(content)}
    inner: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(content, dict | list):
        inner = iter(content.items() if isinstance(content, dict) else enumerate(content))
    return {key: x for word, one in inner for key, x in numbers(one, (*path, str(word))).items()}


def compare(old: Any, new: Any, *, of_times: bool = False) -> list[Change]:
    """Return what differs by more than noise between two contents, the largest change first.

    `of_times`: whether the file is one of times, so that only its losses must be the same.
    """
    before, after = numbers(old), numbers(new)
    changes = []
    for path in before | after:
        change = Change(path, before.get(path), after.get(path))
        wide = any(map(_TIME.search, path)) or (of_times and not any(map(_LOSS.search, path)))
        if change.relative > (MOST_CHANGE_OF_TIMES if wide else MOST_CHANGE):
            changes.append(change)
    return sorted(changes, key=lambda change: -change.relative)


def table_of_changes(file: str, changes: Sequence[Change]) -> str:
    """Return the changes of a file in Markdown, of each list the largest alone."""
    both = [one for one in changes if one.old is not None and one.new is not None]
    n_new = sum(one.old is None for one in changes)
    lines = [
        f"\n{file}: {len(both)} numbers changed by more than noise, {n_new} are new, "
        f"{len(changes) - len(both) - n_new} are gone"
    ]
    kinds: dict[tuple[str, ...], list[Change]] = {}
    for one in both:
        kinds.setdefault(tuple("…" if w.isdigit() else w for w in one.path), []).append(one)
    if both:
        lines += ["", "| largest change of | changed | old | new | by |", "|---|---|---|---|---|"]
    for alike in list(kinds.values())[:MOST_SHOWN]:
        one, where = alike[0], " / ".join(alike[0].path)
        percent = f"{one.relative:.1%}" if math.isfinite(one.relative) else "–"
        lines.append(f"| {where} | {len(alike)} | {one.old:.5g} | {one.new:.5g} | {percent} |")
    if len(kinds) > MOST_SHOWN:
        lines.append(f"and {len(kinds) - MOST_SHOWN} more kinds")
    return "\n".join(lines)
