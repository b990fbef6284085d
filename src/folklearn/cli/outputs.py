"""Output files that appear whole and together at the end, or not at all."""

import os
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

from folklearn import plots
from folklearn.errors import FolklearnError
from folklearn.report.canvas import check_format, require_matplotlib


class Outputs:
    """Promises files: checked at once, written aside, put in place by `commit`.

    Parameters
    ----------
    inputs : files that no output may replace, None for those that were not given.
    """

    def __init__(self, *inputs: str | None) -> None:
        self._aside: dict[Path, Path] = {}
        self._names: dict[str, str] = {}  # as they were given, by what they are
        self._protected: set[Path] = set()
        self.protect(*inputs)

    def protect(self, *inputs: str | None) -> None:
        """Let no output promised from now on replace these."""
        self._protected |= {_real(name) for name in inputs if name is not None}

    def promise(self, what: str, name: str | None, *, as_file: bool = False) -> Path | None:
        """Return the path to write to for now; refuse a place that cannot be written.

        None, for what was not asked for, gives None. Devices and pipes, such as /dev/null, are
        written to as they are, unless it must be a file.
        """
        if name is None:
            return None
        if not as_file and _is_device(name):
            self._names[what] = name
            return Path(name)
        path = _real(name)
        aside = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            problem = "it cannot go to standard output" if name == "-" else ""
            problem = problem or self._problem(path)
            if not problem:
                aside.touch(exist_ok=False)
        except OSError as error:
            problem = str(error.strerror)
        if problem:
            raise FolklearnError(f"cannot write the {what} to {name}: {problem}")
        self._aside[path], self._names[what] = aside, name
        return aside

    def _problem(self, path: Path) -> str:
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}"
        if path.exists() and not path.is_file():
            return "it exists and is not a file"
        if path in self._protected:
            return "it would replace the input"
        if path in self._aside:
            return "two outputs cannot share one file"
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            return "permission denied"
        return ""

    def promise_plot(self, name: str | None) -> Path | None:
        """Promise a picture; refuse one that could not be drawn."""
        if name is not None:
            check_format(name)
            require_matplotlib()
        return self.promise("plot", name)

    def draw(self, figure: Any, path: Path) -> None:
        """Write a picture that was promised."""
        plots.save(figure, path, suffix=Path(self._names["plot"]).suffix)

    def put(self, written: Path) -> None:
        """Put one file that is written in its place now; it may be written again later."""
        for path, aside in self._aside.items():
            if aside == written:
                os.replace(aside, path)

    def commit(self, console: Console) -> None:
        """Put every promised file in its place, and say so."""
        for path, aside in self._aside.items():
            os.replace(aside, path)
        self._aside.clear()
        for what, name in self._names.items():
            console.print(f"Wrote the {what} to {name}.")

    def __enter__(self) -> "Outputs":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for aside in self._aside.values():
            aside.unlink(missing_ok=True)


def _real(name: str) -> Path:
    return Path(os.path.realpath(name))  # links must survive, and hide no input


def _is_device(name: str) -> bool:
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)
