"""How a command ends: signals that end a stream or the command, and outputs that are whole."""

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from folklearn.errors import FolklearnError

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[[int, FrameType | None], None])

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Terminated(BaseException):
    """SIGTERM arrived; raised so that temporary files are removed."""


def raise_signal(number: int, frame: FrameType | None = None) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def handle_signals(
    handler: Handler, numbers: Iterable[signal.Signals] = EXIT_CODES
) -> Iterator[Handler]:
    """Let a function, which is yielded, handle signals, but for those that the caller ignores."""
    before, unset = {}, (signal.SIG_IGN, None)
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        handled = [number for number in numbers if signal.getsignal(number) not in unset]
        before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield handler
    finally:
        for number, former in before.items():
            signal.signal(number, former)


class StreamSignals:
    """A handler of signals that end the wait for rows, but no batch that is being learned.

    A second signal interrupts a batch; before the first batch a signal ends the command.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None  # what ended the stream
        self._is_waiting = True

    def next_of(self, rows: Iterator[T]) -> T | None:
        """Return the next item; None at the end, and once a signal was received."""
        item: T | None = None  # kept if a signal comes between its arrival and the return
        if self.received is None:
            try:
                self._is_waiting = True
                item = next(rows, None)
            except (KeyboardInterrupt, Terminated):
                if self.received is None:  # it came from elsewhere
                    raise
            finally:
                self._is_waiting = False
        return item

    def raise_ended(self) -> None:
        """Exit with the code of the signal that ended the stream, if one did."""
        if self.received is not None:
            raise SystemExit(EXIT_CODES[self.received])

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_second, self.received = self.received is not None, signal.Signals(number)
        if self._is_waiting or is_second:
            raise_signal(number)


class AtomicOutputs(ExitStack):
    """Output files: reserved at once, written to temporary files, renamed by `commit`.

    None of them may replace one of the `inputs`, of which None is ignored.
    """

    def __init__(self, *inputs: str | None) -> None:
        super().__init__()
        self._temporary: dict[Path, Path] = {}
        self._names: dict[str, str] = {}  # as the user wrote them, by what they hold
        self._protected: set[Path] = set()
        self.protect(*inputs)

    def protect(self, *inputs: str | None) -> None:
        """Let no output reserved from now on replace these files."""
        self._protected |= {Path(os.path.realpath(name)) for name in inputs if name is not None}

    def reserve(self, what: str, name: str | None, *, as_file: bool = False) -> Path | None:
        """Return the temporary path to write to; raise if the file could not be written.

        None gives None. Devices and pipes are written to directly, unless `as_file`.
        """
        if name is None:
            return None
        path = Path(os.path.realpath(name))  # links must survive, and hide no input
        # The suffix is the format of a plot, and that of a link need not be that of its file.
        suffix = Path(name).suffix
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp{suffix}"
        try:
            if not as_file and (path.is_char_device() or path.is_fifo()):
                self._names[what] = name
                return Path(name)
            problem = "it cannot go to standard output" if name == "-" else self._problem(path)
            if not problem:
                temporary.touch(exist_ok=False)
        except OSError as error:
            problem = str(error.strerror)
        if problem:
            raise FolklearnError(f"cannot write the {what} to {name}: {problem}")
        self.callback(temporary.unlink, missing_ok=True)
        self._temporary[path], self._names[what] = temporary, name
        return temporary

    def _problem(self, path: Path) -> str:
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}"
        if path.exists() and not path.is_file():
            return "it exists and is not a file"
        if path in self._protected:
            return "it would replace the input"
        if path in self._temporary:
            return "two outputs cannot share one file"
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            return "permission denied"
        return ""

    def publish(self, *written: Path | None) -> None:
        """Rename temporary files now; they may be written again later."""
        for path, temporary in self._temporary.items():
            if temporary in written:
                os.replace(temporary, path)

    def commit(self, console: Any) -> None:
        self.publish(*self._temporary.values())
        for what, name in self._names.items():
            console.print(f"Wrote the {what} to {name}.")
