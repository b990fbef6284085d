"""The way of a row: what a row of a CSV file passes is what docs/guide/the-way-of-a-row.md lists.

`python -m tests.test_way_of_a_row` writes the list into the page.
"""

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import folklearn
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "guide" / "the-way-of-a-row.md"
PACKAGE = os.path.dirname(folklearn.__file__) + os.sep
FENCE = re.compile(r"(?<=^```\n)feed:.*?(?=^```$)", flags=re.M | re.S)
N_ROWS, PASSES = 24, 2  # rows: no window and no stripe of the frozen record ends on the way
BEGINS, ENDS = "model.dataset.Feed.rows", "model.run.Run.ended"

_opened: list[str] = []
_watched: str | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Note who opens the file that is watched; a hook of this kind can never be taken away."""
    if event == "open" and _watched is not None and arguments[0] == _watched:
        _opened.append(_watched)


sys.addaudithook(_hear)


def written(folder: Path) -> Path:
    path = folder / "rows.csv"
    rows = [f"{i % 7},{'ab'[i % 2]},{'xy'[i % 3 == 0]}" for i in range(N_ROWS)]
    path.write_text("\n".join(["size,kind,label", *rows, ""]))
    return path


def calls_of(work: Callable[[], object]) -> list[str]:
    """Return every call of a Python function of the library, in order, by module and name."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py")
            calls.append(f"{module.replace(os.sep, '.')}.{code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def way(path: Path) -> list[str]:
    """Return the functions that the rows of a block pass while they are learned, as first called.

    Without kernels and what holds their arrays (`kernels`), parts of functions, and `__len__` and
    its like.
    """

    model = folklearn.Model()
    model.run(path, target="label")  # so that nothing is made, or imported, for the first time
    calls = calls_of(lambda: model.run(path, target="label"))
    while_learning = calls[calls.index(BEGINS) : calls.index(ENDS)]
    return [
        name
        for name in dict.fromkeys(while_learning)
        if not re.search(r"^numerics\.|<|\.__\w+__$", name)
    ]


def listed(names: list[str]) -> str:
    """Return the list of the page: a line for each stay in a module."""
    lines: list[tuple[str, list[str]]] = []
    for name in names:
        module, function = re.fullmatch(r"([a-z_.0-9]+)\.(\w+(?:\.\w+)*)", name).groups()
        module = module.split(".")[-1]
        if not lines or lines[-1][0] != module:
            lines.append((module, []))
        lines[-1][1].append(function)
    return "".join(f"{module}: {', '.join(names)}\n" for module, names in lines)


def test_the_page_lists_the_way_of_a_row(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    names = way(written(tmp_path))
    on_page = FENCE.search(page)[0]
    remedy = "python -m tests.test_way_of_a_row writes it anew"
    assert on_page == listed(names), f"the list of {PAGE.name} is not what happens; {remedy}"
    assert f"{len(names)} functions" in page, f"{len(names)} functions; {remedy}"


def test_a_file_is_opened_at_most_twice_a_pass(tmp_path):
    global _watched
    path = written(tmp_path)
    _opened.clear()
    _watched = str(path)
    try:
        folklearn.Model().run(str(path), target="label")
    finally:
        _watched = None
    assert 1 <= len(_opened) <= 2 * PASSES


def test_rows_are_checked_once_a_block(tmp_path):
    model, path = folklearn.Model(), written(tmp_path)
    calls = Counter(calls_of(lambda: model.run(path, target="label", exact=False)))
    n_blocks = calls["model.pipeline.Core.run"]
    assert n_blocks == 1
    assert calls["validation.contexts"] == n_blocks
    assert calls["model.encoder.Columns.encode"] == n_blocks + 1  # once to open the columns


def write() -> None:
    """Write the list, and how long it is, into the page."""
    with tempfile.TemporaryDirectory() as folder:
        names = way(written(Path(folder)))
    page = FENCE.sub(lambda _: listed(names), PAGE.read_text(encoding="utf-8"))
    page = re.sub(r"\d+ functions", f"{len(names)} functions", page)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write()
