"""Files of events that a policy removed from the journal: sealed before, readable for ever.

A file is gzip of JSON lines: a header, the events of one model in order, and last how many lines
these are, with their SHA-256. The first number of its name is that of the model, the second the
event up to which it was written.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from folklearn.errors import StateFileError
from folklearn.service.events import AnyEvent
from folklearn.service.journal import replace_file

FOLDER = "archive"
_FORMAT = 1


class ArchivedEvent(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event as the journal had it, with its number and milliseconds since 1970."""

    seq: int
    time: int
    event: AnyEvent
    id: UUID | None = None
    key: str | None = None
    skipped: str | None = None  # why it was left out of every replay


_decode_event = msgspec.json.Decoder(ArchivedEvent).decode


class Archive:
    """Events that a service removed from its journal: a file of the folder ``archive``.

    Iterate over it for the events, in order; `StateFileError` says that the file is damaged.

    Attributes
    ----------
    header : tenant, name and number of the model, and the event up to which the file was written.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        lines = self._lines()
        with suppress(msgspec.MsgspecError):
            self.header = msgspec.json.decode(next(lines, b"{}"), type=dict[str, Any])
        lines.close()
        if getattr(self, "header", {}).get("format") != _FORMAT:
            raise StateFileError(f"{self.path} is no archive of format {_FORMAT}")

    def __iter__(self) -> Iterator[ArchivedEvent]:
        lines = self._lines()
        next(lines)
        for line in lines:
            try:
                yield _decode_event(line)
            except msgspec.MsgspecError as error:
                raise StateFileError(f"{self.path} is damaged: {error}") from None

    def _lines(self) -> Any:
        """Yield all lines but the last; raise at the end if they are not those that it tells of."""
        checksum, n, last = hashlib.sha256(), 0, b""
        try:
            with gzip.open(self.path) as file:
                for line in file:
                    if last:
                        checksum.update(last)
                        n += 1
                        yield last
                    last = line
        except (OSError, EOFError, zlib.error) as error:
            raise StateFileError(f"{self.path} cannot be read: {error}") from None
        if last != _last_line(n, checksum.hexdigest()):
            raise StateFileError(f"{self.path} is damaged: restore it from a backup")


def _last_line(n: int, checksum: str) -> bytes:
    return msgspec.json.encode({"lines": n, "sha256": checksum}) + b"\n"


def write_archive(path: Path, header: dict[str, Any], entries: Iterable[ArchivedEvent]) -> None:
    """Write a file durably, and read it back; without events there is none."""
    content, checksum, n = io.BytesIO(), hashlib.sha256(), 0
    with gzip.GzipFile(filename="", fileobj=content, mode="wb", mtime=0) as file:
        for one in ({"format": _FORMAT} | header, *entries):
            line = msgspec.json.encode(one) + b"\n"
            checksum.update(line)
            file.write(line)
            n += 1
        file.write(_last_line(n, checksum.hexdigest()))
    if n == 1:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_file(path, content.getvalue())
    for _ in Archive(path):
        pass


def list_archives(folder: Path, model: int) -> list[tuple[int, Path]]:
    """Return the files of a model with the event up to which each was written, in order."""
    paths = (folder / FOLDER).glob(f"{model}-*.jsonl.gz")
    return sorted((int(path.name.split("-")[1].split(".")[0]), path) for path in paths)
