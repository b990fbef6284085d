"""A copy of a folder that is being served."""

from pathlib import Path

import apsw

from folklearn.errors import InvalidInputError, StateFileError
from folklearn.service import journal
from folklearn.service.snapshots import sync_folder


def backup(folder: Path, target: Path) -> int:
    """Copy journal and keys into a new folder, while they are in use; return how many events.

    Snapshots are left out: they are a cache, and the copy is recovered by replaying its journal.
    """
    if not (folder / journal.NAME).exists():
        raise InvalidInputError(f"{folder} is no folder of a service: there is no {journal.NAME}")
    if target.exists() and any(target.iterdir()):
        raise InvalidInputError(f"{target} is not empty: name a new folder")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        for name in (journal.NAME, "keys.db"):
            if (folder / name).exists():
                _copy(folder / name, target / name)
        sync_folder(target)
        copy = journal.Journal(target)
        copy.forget_snapshots()
    except apsw.Error as error:
        raise StateFileError(f"{folder} cannot be copied: {error}") from None
    n_events: int = copy.last
    copy.close()
    return n_events


def _copy(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    # By SQLite, page by page through the checks of pages, which a plain copy would not write.
    old, new = journal.opened(source, read_only=True), journal.opened(target)
    try:
        with new.backup("main", old, "main") as pages:
            pages.step()
    finally:
        old.close()
        new.close()
