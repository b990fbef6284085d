"""Output files that are written to temporary files and renamed together at the end."""

import os
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

from folklearn import plots
from folklearn.errors import FolklearnError
from folklearn.report.style import check_format, require_matplotlib


class AtomicOutputs:
    """Reserve output files: checked at once, written to temporary files, renamed by `commit`.

    Parameters
    ----------
    inputs : files that no output may replace; None is ignored.
    """

    def __init__(self, *inputs: str | None) -> None:
        self._temporary: dict[Path, Path] = {}
        self._names: dict[str, str] = {}  # as the user wrote them, by what they hold
        self._protected: set[Path] = set()
        self.protect(*inputs)

    def protect(self, *inputs: str | None) -> None:
        """Let no output reserved from now on replace these files."""
        self._protected |= {_real(name) for name in inputs if name is not None}

    def reserve(self, what: str, name: str | None, *, as_file: bool = False) -> Path | None:
        """Return the temporary path to write to; raise if the file could not be written.

        The name None gives None. Devices and pipes, such as /dev/null, are written to directly,
        unless `as_file`.
        """
        if name is None:
            return None
        if not as_file and _is_device(name):
            self._names[what] = name
            return Path(name)
        path = _real(name)
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            problem = "it cannot go to standard output" if name == "-" else ""
            problem = problem or self._problem(path)
            if not problem:
                temporary.touch(exist_ok=False)
        except OSError as error:
            problem = str(error.strerror)
        if problem:
            raise FolklearnError(f"cannot write the {what} to {name}: {problem}")
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

    def reserve_plot(self, name: str | None) -> Path | None:
        """Reserve the file of a plot; raise if the plot could not be drawn."""
        if name is not None:
            check_format(name)
            require_matplotlib()
        return self.reserve("plot", name)

    def draw(self, figure: Any, path: Path) -> None:
        """Write a plot to its reserved path."""
        plots.save(figure, path, suffix=Path(self._names["plot"]).suffix)

    def publish(self, written: Path) -> None:
        """Rename one temporary file now; it may be written again later."""
        for path, temporary in self._temporary.items():
            if temporary == written:
                os.replace(temporary, path)

    def commit(self, console: Console) -> None:
        """Rename all temporary files, and print what was written."""
        for path, temporary in self._temporary.items():
            os.replace(temporary, path)
        self._temporary.clear()
        for what, name in self._names.items():
            console.print(f"Wrote the {what} to {name}.")

    def __enter__(self) -> "AtomicOutputs":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for temporary in self._temporary.values():
            temporary.unlink(missing_ok=True)


def _real(name: str) -> Path:
    return Path(os.path.realpath(name))  # links must survive, and hide no input


def _is_device(name: str) -> bool:
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)
