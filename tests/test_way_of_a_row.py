"""How many functions of the package a row of a CSV file passes, and how often it is read."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import folklearn

PACKAGE = os.path.dirname(folklearn.__file__) + os.sep
N_ROWS, PASSES = 24, 2  # rows: no window and no stripe of the frozen record ends on the way
MOST_FUNCTIONS = 44
MOST_FUNCTIONS_OF_A_SINGLE_ROW = 14
BEGINS, ENDS = "model.dataset.ModelDataset.rows", "model.run.Run.finish"

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

    warm, model = folklearn.Model(), folklearn.Model()
    for each in (warm, warm, model):  # so that nothing is made, loaded or imported on the way
        each.run(path, target="label")
    calls = calls_of(lambda: model.run(path, target="label"))
    while_learning = calls[calls.index(BEGINS) : calls.index(ENDS)]
    return [
        name
        for name in dict.fromkeys(while_learning)
        if not re.search(r"^kernels\.|<|\.__\w+__$", name)
    ]


def test_a_row_of_a_file_passes_few_functions(tmp_path):
    names = way(written(tmp_path))
    assert len(names) <= MOST_FUNCTIONS, names


def test_a_row_of_known_columns_passes_few_functions():
    model = folklearn.Model()
    for t in range(40):
        model.learn_one({"size": float(t % 7), "age": float(t % 3)}, "xy"[t % 2])
    calls = calls_of(lambda: model.learn_one({"size": 3.0, "age": 2.0}, "x"))
    names = [name for name in dict.fromkeys(calls) if not name.startswith("kernels.")]
    assert len(names) <= MOST_FUNCTIONS_OF_A_SINGLE_ROW, names


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
    n_blocks = calls["model.pipeline.OnlinePipeline.run_checked"]
    assert n_blocks == 1
    assert calls["validation.check_contexts"] == n_blocks
    assert calls["model.encoder.TableEncoder.encode"] == n_blocks
