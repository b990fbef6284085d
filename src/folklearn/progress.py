"""Progress of long computations: an estimate of the time left, and a bar on request.

A long computation calls a `Report` with the number done so far. Without a bar, and if half a
second of work shows that more than a few seconds are left, one line says so. One more line is
logged by a process that has compiled kernels for a second; compilation is in no estimate.

Both go to the logger "folklearn", which by default writes to standard error, in a notebook too:
`logging.getLogger("folklearn").setLevel(logging.ERROR)` silences it. It logs durations only;
problems of data are a `folklearn.DataWarning`.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from folklearn.utils import import_optional

LOGGER = logging.getLogger("folklearn")
_SECONDS_TO_ESTIMATE = 0.5
_MIN_SECONDS_LEFT = 5.0  # to be logged
_SECONDS_TO_COMPILE_SILENTLY = 1.0

Report = Callable[[int], None]  # takes the number done so far
Progress = bool | Report  # True for a bar, or a function of one's own


class Compilation:
    """Measure the seconds in which kernels are compiled, and log once that they are.

    Kernels that are loaded from disk do not count. A kernel may be compiled within another.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._past, self._started, self._depth = 0.0, 0.0, 0
        self._is_announced = False

    @property
    def seconds(self) -> float:
        return self._past + (self._clock() - self._started if self._depth else 0.0)

    def begin(self) -> None:
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
        seconds = self.seconds
        self._depth -= 1
        if not self._depth:
            self._past = seconds


COMPILATION = Compilation()  # in this process


def working_time() -> float:
    """Return a time in seconds that stands still while kernels are compiled."""
    now = COMPILATION._started if COMPILATION._depth else time.monotonic()
    return now - COMPILATION._past


class DurationNotice:
    def __init__(
        self, total: int, what: str, clock: Callable[[], float] = working_time, *, of: str = "rows"
    ) -> None:
        self._total, self._what, self._clock, self._of = total, what, clock, of
        self._first: tuple[float, int] | None = None
        self._is_over = False

    def __call__(self, done: int) -> None:
        now = self._clock()
        self._first = self._first or (now, done)  # what came before may have been preparation
        spent, n_done = now - self._first[0], done - self._first[1]
        if self._is_over or spent < _SECONDS_TO_ESTIMATE or n_done <= 0:
            return
        self._is_over = True
        left = spent * (self._total - done) / n_done
        if left > _MIN_SECONDS_LEFT:
            LOGGER.warning(
                "%s %d %s: %d done, about %s left; Ctrl+C stops it",
                self._what, self._total, self._of, done, format_duration(left),
            )  # fmt: skip


def format_duration(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.0f} seconds"
    if seconds < 5400.0:
        return f"{seconds / 60.0:.0f} minutes"
    return f"{seconds / 3600.0:.1f} hours"


@contextmanager
def report_progress(
    progress: Progress, total: int, what: str, *, of: str = "rows"
) -> Iterator[Report]:
    """Yield a report: a bar, the caller's function, or a notice of the time left."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield DurationNotice(total, what, of=of)
        return
    rich = import_optional("rich.progress", "progress=True needs")
    console = import_optional("rich.console", "progress=True needs").Console(stderr=True)
    with rich.Progress(console=console, get_time=working_time) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
