"""Output files that appear whole and together at the end, or not at all."""

import os
import secrets
import stat
from pathlib import Path
from types import TracebackType

from folklearn.errors import FolklearnError


class Outputs:
    """Promises files: checked at once, written aside, put in place by `commit`."""

    def __init__(self) -> None:
        self._aside: dict[Path, Path] = {}
        self._protected: set[Path] = set()

    def protect(self, name: str | None) -> None:
        """Let no output promised from now on replace this input."""
        if name is not None:
            self._protected.add(_real(name))

    def promise(self, option: str, name: str | None, *, as_file: bool = False) -> Path | None:
        """Return the path to write to for now; refuse a place that cannot be written.

        None, an option that was not given, gives None. Devices and pipes, such as /dev/null, are
        written to as they are, unless it must be a file.
        """
        if name is None:
            return None
        if not as_file and _is_device(name):
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
            raise FolklearnError(f"cannot write {option} {name}: {problem}")
        self._aside[path] = aside
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

    def put(self, written: Path) -> None:
        """Put one file that is written in its place now; it may be written again later."""
        for path, aside in self._aside.items():
            if aside == written:
                os.replace(aside, path)

    def commit(self) -> None:
        """Put every promised file in its place."""
        for path, aside in self._aside.items():
            os.replace(aside, path)
        self._aside.clear()

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
