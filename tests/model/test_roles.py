"""Roles are found by the first rows, of which a few may be wrong."""

import pytest

from folklearn.model.roles import inferred
from folklearn.readers.block import Block, Texts


def role_of(values):
    column = Texts.of(values)
    return inferred(Block({"x": column}, range(len(values))))["x"]


@pytest.mark.parametrize(
    ("values", "role"),
    [
        ([str(i % 7) for i in range(40)], "number"),
        ([*(str(i % 7) for i in range(39)), "seven"], "number"),
        ([*(str(i % 7) for i in range(37)), "x", "y", "z"], "category"),
        ([*(f"{i}.5" for i in range(300)), "x"], "number"),
        (["1", "two"], "category"),
        (["2024-05-01"] * 39 + ["soon"], "date"),
        (["2024-05-01"] * 9 + ["soon"], "category"),
        ([None, None], "number"),
        ([f"r{i}" for i in range(60)], "id"),
        ([str(i) for i in range(60)], "id"),
    ],
)
def test_one_mistake_does_not_change_what_a_column_is(values, role):
    assert role_of(values) == role


def test_values_of_other_rows_do_not_count():
    rows = Texts.of(["red", "blue", None])[2:]
    assert inferred(Block({"x": rows}, range(1)))["x"] == "number"
