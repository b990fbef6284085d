"""Ctrl-C ends a stream that has no end of its own: what was learned until then is kept."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(BaseException):
    """A stream was ended by Ctrl-C, and everything that it brought was kept and told."""


class CtrlC:
    """Within this, Ctrl-C ends the wait for more and never cuts a block that is being learned.

    A second one while a block is learned interrupts all the same.

    Attributes
    ----------
    pressed : whether the stream was ended that way.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._waiting = False
        self._before: Any = None

    def wait_for(self, more: Callable[[], T | None]) -> T | None:
        """Return what comes next, None once Ctrl-C was pressed."""
        if self.pressed:
            return None
        try:
            self._waiting = True
            found = more()
            self._waiting = False
        except KeyboardInterrupt:
            self._waiting = False
            self.pressed = True
            return None
        return found

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._waiting or self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __enter__(self) -> "CtrlC":
        # Only the main thread may set handlers, and whoever ignores the signal has a reason.
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
