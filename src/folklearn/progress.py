"""Long work announces itself: an estimate as soon as there is one, and a bar for those who ask.

What takes long calls `report` with what is done so far. If nobody asked for a bar, and half a
second of work says that more than a few seconds are left, one line says so, by the logger
"folklearn": `logging.getLogger("folklearn").setLevel(logging.ERROR)` silences it.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from folklearn.errors import FolklearnError

LOGGER = logging.getLogger("folklearn")
_SOON = 0.5  # seconds after which there is an estimate
_LONG = 5.0  # seconds left that are worth a word

Report = Callable[[int], None]


class Announcer:
    """A report that says once how long it will take, if that is long."""

    def __init__(
        self,
        total: int,
        what: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        of: str = "rows",
    ) -> None:
        self._total, self._what, self._clock, self._of = total, what, clock, of
        self._first: tuple[float, int] | None = None
        self._is_over = False

    def __call__(self, done: int) -> None:
        if self._is_over:
            return
        if self._first is None:  # what came before may have been compilation
            self._first = self._clock(), done
            return
        started, before = self._first
        spent = self._clock() - started
        if spent < _SOON or done <= before:
            return
        self._is_over = True
        left = spent * (self._total - done) / (done - before)
        if left > _LONG:
            LOGGER.warning(
                "%s %d %s: %d done, about %s left; Ctrl+C stops it",
                self._what, self._total, self._of, done, duration(left),
            )  # fmt: skip


def duration(seconds: float) -> str:
    """Return a time in words, of about two digits."""
    if seconds < 90.0:
        return f"{seconds:.0f} seconds"
    if seconds < 5400.0:
        return f"{seconds / 60.0:.0f} minutes"
    return f"{seconds / 3600.0:.1f} hours"


@contextmanager
def reporter(
    progress: bool | Report, total: int, what: str, *, of: str = "rows"
) -> Iterator[Report]:
    """Yield a function that takes how many are done: a bar, the caller's, or a notice."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield Announcer(total, what, of=of)
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        raise FolklearnError(
            "progress=True needs rich, which comes with the extra: pip install 'folklearn[cli]'"
        ) from None
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
