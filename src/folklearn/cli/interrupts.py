"""Signals end a stream that has no end of its own: what was learned until then is kept."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Terminated(BaseException):
    """SIGTERM arrived; raised so that everything under way is cleaned up."""


class Ended(BaseException):
    """A stream was ended by a signal, and everything that it brought was kept and told."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Signals:
    """Within this, SIGINT and SIGTERM end the wait for more, and cut no block that is learned.

    A second one while a block is learned interrupts all the same.

    Attributes
    ----------
    heard : the signal that ended the stream, or None.
    """

    def __init__(self) -> None:
        self.heard: signal.Signals | None = None
        self._waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def next_of(self, rows: Iterator[T]) -> T | None:
        """Return what comes next; None at the end, and once a signal was heard."""
        found: T | None = None
        if self.heard is None:
            try:
                self._waiting = True
                found = next(rows, None)
            except (KeyboardInterrupt, Terminated):
                if self.heard is None:  # it came from elsewhere
                    raise
            finally:
                self._waiting = False
        return found

    def _hear(self, number: int, frame: FrameType | None) -> None:
        is_second, self.heard = self.heard is not None, signal.Signals(number)
        if self._waiting or is_second:
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def __enter__(self) -> "Signals":
        # Only the main thread may set handlers, and whoever ignores a signal has a reason.
        if threading.current_thread() is threading.main_thread():
            for number in EXIT_CODES:
                if callable(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
