"""A copy of a folder that is being served, read back in full before it is called good."""

import shutil
from contextlib import closing, suppress
from pathlib import Path

import apsw

from folklearn import serialization
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.service import archive, journal
from folklearn.service.events import decode_event
from folklearn.service.keys import KEY_FILE, Keys


def backup(folder: Path, target: Path) -> int:
    """Copy journal, archives and keys into a new folder while in use; return how many events.

    Not the snapshots, which are a cache. Every page and row of the copy was read back; otherwise
    nothing is left of it, and the error names the file that is to blame.
    """
    if not (folder / journal.NAME).exists():
        raise InvalidInputError(f"{folder} is no folder of a service: there is no {journal.NAME}")
    is_new = not target.exists()
    if not is_new and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInputError(f"{target} is not empty, or is a file: name a new folder")
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _copy(folder, target)
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if not is_new:
            target.mkdir(mode=0o700)
        if isinstance(error, apsw.Error | OSError | FolklearnError):
            raise StateFileError(_blame(folder, target, error)) from None
        raise


def _copy(folder: Path, target: Path) -> int:
    committed = journal.last_committed(folder)  # before the copy, which may hold more
    if (folder / KEY_FILE).exists():
        journal.replace_file(target / KEY_FILE, (folder / KEY_FILE).read_bytes())
    (target / journal.NAME).touch(mode=0o600)
    with (  # page by page: a plain copy would miss the WAL
        closing(journal.open_database(folder / journal.NAME, read_only=True)) as old,
        closing(journal.open_database(target / journal.NAME)) as new,
    ):
        # Before the first page: pages that SQLite writes early, because its cache is full, would
        # else keep the checksums that they had in the source's WAL.
        journal.reserve_checksums(new)
        new.execute("PRAGMA user_version=1")
        with new.backup("main", old, "main") as pages:
            pages.step()
    with closing(journal.Journal(target)) as copy:
        n_events: int = copy.last
    # After the journal: what was removed from that since is in both, and a start finds out.
    for path in sorted((folder / archive.FOLDER).glob("[0-9]*")):
        (target / archive.FOLDER).mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):  # it was not taken, or all of it was erased
            journal.replace_file(target / archive.FOLDER / path.name, path.read_bytes())
            for _ in archive.Archive(target / archive.FOLDER / path.name):
                pass
    journal.sync_folder(target)
    read_pages(target / journal.NAME)
    read_rows(target / journal.NAME)
    Keys(target).all()
    if n_events < committed:
        raise StateFileError(f"it ends with event {n_events}, but event {committed} was committed")
    return n_events


def read_pages(path: Path) -> None:
    """Check the checksum of every page of a journal that is not being written."""
    with closing(journal.open_database(path, read_only=True)) as db, open(path, "rb") as file:
        size = db.pragma("page_size")
        for number, page in enumerate(iter(lambda: file.read(size), b""), 1):
            if db.execute("SELECT verify_checksum(?)", (page,)).fetchone() != (1,):
                raise StateFileError(f"the checksum of page {number} is wrong")


def read_rows(path: Path) -> None:
    """Read every page, index and event of a journal, which may be in use; raise if one is bad."""
    with closing(journal.open_database(path, read_only=True)) as db:
        problems = db.execute("PRAGMA integrity_check(1)").fetchall()
        if problems != [("ok",)]:
            raise StateFileError(str(problems[0][0]))
        for (body,) in db.execute("SELECT body FROM event"):
            decode_event(body)
        for (record,) in db.execute("SELECT record FROM base"):
            serialization.of_bytes(record)


def _blame(folder: Path, target: Path, error: BaseException) -> str:
    """Say which file is bad: one of the folder if it cannot be read in full, else the copy."""
    name = journal.NAME
    try:
        journal.Journal(folder, read_only=True).close()  # knows where it must end
        read_rows(folder / name)
        for path in (folder / archive.FOLDER).glob("[0-9]*"):
            name = f"{archive.FOLDER}/{path.name}"
            for _ in archive.Archive(path):
                pass
        name = KEY_FILE
        Keys(folder).all()
    except (apsw.Error, FolklearnError) as reason:
        return (
            f"{folder / name} cannot be copied, because it cannot be read in full: {reason}. "
            "If the disk is well it is damaged: restore it from an earlier backup"
        )
    return (
        f"the copy in {target} was not good and is removed: {error}. {folder} can be read in full: "
        "look for room and faults on the disk of the copy, and try again"
    )
