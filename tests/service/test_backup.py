"""A backup is good when it is called good; one that is not leaves nothing, and says whose fault."""

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from folklearn.errors import InvalidInputError, StateFileError
from folklearn.service import journal
from folklearn.service.backup import backup
from folklearn.service.keys import Keys
from tests.service.backups import begin, copy_and_read, grow

PAGE_CACHE = 2_000_000  # bytes of SQLite's own, above which it writes pages early


def test_copies_of_a_large_journal_with_a_wal_can_be_read_in_full(
    tmp_path: Path, seed: int
) -> None:
    """Without room for checksums in the empty copy half of them are unreadable."""
    own, random = begin(tmp_path / "folder"), Random(seed)
    Keys(tmp_path / "folder").create(scopes=["admin"])
    grow(own, random, 4_000)
    own.checkpoint()
    for _ in range(20):
        grow(own, random, random.randint(1, 200))
        assert copy_and_read(tmp_path / "folder", tmp_path / "copy") == own.last
    assert (tmp_path / "folder" / journal.NAME).stat().st_size > PAGE_CACHE
    assert (tmp_path / "folder" / f"{journal.NAME}-wal").stat().st_size > 0
    own.close()


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


Break = Callable[[Path], Any]


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (journal.NAME, lambda path: _flip(path, path.stat().st_size - 50)),
        (journal.NAME, lambda path: _flip(path, path.stat().st_size // 2)),
        ("keys.json", lambda path: _flip(path, path.stat().st_size // 2)),
    ],
)
def test_a_damaged_folder_is_named_and_nothing_is_left(
    name: str, damage: Break, is_there: bool, tmp_path: Path
) -> None:
    folder, target = tmp_path / "folder", tmp_path / "copy"
    own = begin(folder)
    Keys(folder).create(scopes=["admin"])
    grow(own, Random(0), 300)
    own.checkpoint()
    own.close()
    damage(folder / name)
    if is_there:
        target.mkdir()
    with pytest.raises(StateFileError, match=f"{folder / name} cannot be copied"):
        backup(folder, target)
    assert target.exists() == is_there
    assert not is_there or not any(target.iterdir())


def test_a_folder_whose_end_is_lost_is_named(tmp_path: Path) -> None:
    folder, target = tmp_path / "folder", tmp_path / "copy"
    own = begin(folder)
    grow(own, Random(0), 50)
    own.close()
    wal = folder / f"{journal.NAME}-wal"
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])
    with pytest.raises(
        StateFileError, match=f"{folder / journal.NAME} cannot be copied.*committed"
    ):
        backup(folder, target)
    assert not target.exists()


@pytest.mark.parametrize(
    "fault",
    [
        lambda path: _flip(path, path.stat().st_size - 50),
        lambda path: path.write_bytes(path.read_bytes()[:-4096]),
        lambda path: _raise(OSError(errno.ENOSPC, "No space left on device")),
        lambda path: _raise(apsw.FullError("database or disk is full")),
    ],
    ids=["a bit of a page", "a page is missing", "disk full", "database full"],
)
def test_a_copy_that_is_bad_is_named_and_removed(
    fault: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = tmp_path / "folder", tmp_path / "deep" / "copy"
    own = begin(folder)
    grow(own, Random(0), 300)

    def sync_and_break(path: Path) -> None:  # as a bad disk would, after all is written
        fault(path / journal.NAME)

    monkeypatch.setattr(journal, "sync_folder", sync_and_break)
    with pytest.raises(StateFileError, match=f"the copy in {target} was not good and is removed"):
        backup(folder, target)
    assert not target.exists()
    monkeypatch.undo()
    assert backup(folder, target) == own.last  # the same name can be used
    own.close()


def _raise(error: Exception) -> None:
    raise error


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    begin(tmp_path / "folder").close()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InvalidInputError, match="is not empty"):
        backup(tmp_path / "folder", tmp_path)
    with pytest.raises(InvalidInputError, match="is a file"):
        backup(tmp_path / "folder", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"
