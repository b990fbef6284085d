"""Roles are found by the first rows, of which a few may be wrong."""

import re

import pytest

from folklearn import DataWarning
from folklearn.model.roles import infer_roles, of_first_values, of_value
from folklearn.readers.convert import is_gap
from folklearn.readers.table import Table, TextColumn, table_from_records


def role_of(values):
    column = TextColumn.of(values)
    return infer_roles(Table({"x": column}, range(len(values))))["x"]


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
        (["$5,643.83", "$12.00", "€3", "0.5 €"] * 9, "category"),
        (["$5,643.83", "$12.00", "7"] * 9, "number"),
        (["€12,50", "3,20 €"] * 9, "number"),
        (["12%", "7.5%"] * 9, "number"),
        (["12%", "7.5"] * 9, "category"),
        (["2024/01/31", "30.05.2024"], "date"),
        (["01/31/2024", "02/03/2024"], "month/day"),
        (["31-01-2024 10:30", "02-03-2024 9:15"], "day/month"),
        (["01/02/2024", "02/03/2024"], "category"),
        ([f"r{i}" for i in range(60)], "id"),
        ([str(i) for i in range(60)], "id"),
    ],
)
@pytest.mark.filterwarnings("ignore:column 'x' looks like")
def test_one_mistake_does_not_change_what_a_column_is(values, role):
    assert role_of(values) == role


def test_values_of_other_rows_do_not_count():
    rows = TextColumn.of(["red", "blue", None])[2:]
    assert infer_roles(Table({"x": rows}, range(1)))["x"] == "number"


@pytest.mark.parametrize(
    ("values", "role"),
    [
        (["007", "010", "12"], "category"),  # a code
        (["0", "0.5", "-0.25"], "number"),
        (["TRUE", "false", "-"], "number"),
        (["yes", "no"], "category"),
        (["3", "?", "?", "NULL", "?"], "number"),
        (["2024-05-01", "n.a.", "None"], "date"),
        (["$3", "-", "$4"], "number"),
        (["NA", "null"], "number"),  # nothing is known
        (["None", "-"], "category"),  # may be values
        (["None", "brick"], "category"),
    ],
)
def test_what_is_missing_says_nothing_about_a_column(values, role):
    assert role_of(values) == role
    gap = next((value for value in values if is_gap(value)), None)
    if gap is not None:
        assert of_first_values(table_from_records([{"x": gap}], [1])) == {}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["01/02/2024", "02/03/2024"], "looks like dates but is taken for text: dates are read"),
        (["31 Jan 2024", "2 Mar 2024"], "looks like dates but is taken for text: dates are read"),
        (["May 3, 2024", "June 30 2024"], "looks like dates but is taken for text: dates are read"),
        (["$5", "€5"], "looks like amounts of several units but is taken for text"),
        (
            [*map(str, range(40)), "-", "n. k.", "n. k.", "u.", "-"],
            "looks like numbers but is taken for text: some are none: 'n. k.', u.; if they "
            "are missing, missing='n. k.'; for text, roles={'x': 'category'}",
        ),
    ],
)
def test_what_looks_like_something_else_is_said(values, sentence):
    with pytest.warns(DataWarning, match=re.escape(sentence)):
        role_of(values)


@pytest.mark.parametrize(
    "values", [["red", "blue"], ["sold 3 times", "maybe 12 more"], ["3", "4"], ["0", "1", "3+"]]
)
def test_what_is_plain_is_not_doubted(values):
    role_of(values)  # a warning would be an error


def test_one_value_of_a_stream_decides():
    values = ("01/31/2024", "31/01/2024", "01/02/2024", "31.01.2024", "$5")
    roles = ["month/day", "day/month", "category", "date", "category"]
    assert [of_value(value) for value in values] == roles
