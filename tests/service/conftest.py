"""Folders in memory: what a service writes it syncs, and no test here needs the disk for that."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import lives


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with lives.scratch() as place:
        yield Path(place)
