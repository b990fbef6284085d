"""Long work announces itself: an estimate as soon as there is one, and a bar for those who ask.

What takes long calls `report` with what is done so far. If nobody asked for a bar, and half a
second of work says that more than a few seconds are left, one line says so. So does one line of a
process that has compiled kernels for a second and goes on; what compiling takes is in no estimate.

Both are said by the logger "folklearn", which by default writes to standard error, in a notebook
too, and which a program that embeds the library sends where it likes:
`logging.getLogger("folklearn").setLevel(logging.ERROR)` silences it. The logger speaks of time
only; what is strange about data is a `folklearn.DataWarning`.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from folklearn.errors import FolklearnError

LOGGER = logging.getLogger("folklearn")
_SOON = 0.5  # seconds after which there is an estimate
_LONG = 5.0  # seconds left that are worth a word
_SECONDS_TO_COMPILE_SILENTLY = 1.0

Report = Callable[[int], None]


class Compilation:
    """The seconds in which kernels were compiled, and the notice that this is what takes so long.

    `folklearn.kernels.compile` tells when the compiler begins and ends; kernels that are loaded
    from disk are not compiled. A kernel may be compiled within another.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._past, self._started, self._depth = 0.0, 0.0, 0
        self._is_announced = False

    @property
    def seconds(self) -> float:
        """What was compiled took so long, what is being compiled so far included."""
        return self._past + (self._clock() - self._started if self._depth else 0.0)

    def begin(self) -> None:
        """Note that a kernel is compiled from now on; say so once, if this takes long."""
        if not self._depth:
            self._started = self._clock()
        self._depth += 1
        if not self._is_announced and self.seconds > _SECONDS_TO_COMPILE_SILENTLY:
            self._is_announced = True
            LOGGER.warning(
                "compiling kernels, once per machine, which takes a minute or two; `folklearn "
                "warmup` compiles all of them beforehand"
            )

    def end(self) -> None:
        """Note that the kernel which was begun last is compiled."""
        seconds = self.seconds
        self._depth -= 1
        if not self._depth:
            self._past = seconds


COMPILATION = Compilation()  # of this process


def working_time() -> float:
    """Return a time in seconds that stands still while kernels are compiled."""
    return time.monotonic() - COMPILATION.seconds


class Announcer:
    """A report that says once how long it will take, if that is long."""

    def __init__(
        self,
        total: int,
        what: str,
        clock: Callable[[], float] = working_time,
        *,
        of: str = "rows",
    ) -> None:
        self._total, self._what, self._clock, self._of = total, what, clock, of
        self._first: tuple[float, int] | None = None
        self._is_over = False

    def __call__(self, done: int) -> None:
        if self._is_over:
            return
        if self._first is None:  # what came before may have been preparation
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
    with Progress(console=Console(stderr=True), get_time=working_time) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
