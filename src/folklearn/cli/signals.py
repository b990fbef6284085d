"""SIGINT and SIGTERM end a stream: rows learned until then are kept."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Terminated(BaseException):
    """SIGTERM arrived; raised so that temporary files are removed."""


class Ended(BaseException):
    """A signal ended a stream, and all results were written: exit with its code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Signals:
    """Context in which SIGINT and SIGTERM end the wait for rows, but no batch being learned.

    A second signal while a batch is learned interrupts it.

    Attributes
    ----------
    received : the signal that ended the stream, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def next_of(self, rows: Iterator[T]) -> T | None:
        """Return the next item; None at the end, and once a signal was received."""
        item: T | None = None
        if self.received is None:
            try:
                self._waiting = True
                item = next(rows, None)
            except (KeyboardInterrupt, Terminated):
                if self.received is None:  # it came from elsewhere
                    raise
            finally:
                self._waiting = False
        return item

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_second, self.received = self.received is not None, signal.Signals(number)
        if self._waiting or is_second:
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def __enter__(self) -> "Signals":
        # Only the main thread may set handlers; a signal that the caller ignores stays ignored.
        if threading.current_thread() is threading.main_thread():
            for number in EXIT_CODES:
                if callable(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
