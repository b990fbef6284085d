"""Progress of long computations: a bar on request, and a line when kernels are compiled.

A long computation calls a `Report` with the number done so far. One line is logged by a process
that has compiled kernels for a second, by the logger "folklearn", which by default writes to
standard error: `logging.getLogger("folklearn").setLevel(logging.ERROR)` silences it. Problems of
data are a `folklearn.DataWarning`.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from folklearn.utils import import_optional

LOGGER = logging.getLogger("folklearn")
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


def report_progress(progress: Progress, total: int, what: str) -> AbstractContextManager[Report]:
    """Return a context of a report: a bar, the caller's function, or nothing that is seen."""
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext(lambda done: None)
    console = import_optional("rich.console", "progress=True needs").Console(stderr=True)
    return show_bar(console, what, total)


@contextmanager
def show_bar(console: Any, what: str, total: int | None) -> Iterator[Report]:
    """Yield a report that draws a bar on a terminal; without a total it has no remaining time."""
    rich = import_optional("rich.progress", "progress=True needs")
    columns = *rich.Progress.get_default_columns(), rich.MofNCompleteColumn()
    is_hidden = console.quiet or not (console.is_terminal or console.is_jupyter)
    look = {"transient": True, "get_time": working_time, "disable": is_hidden}
    with rich.Progress(*columns, console=console, **look) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
