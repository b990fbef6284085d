"""Words that messages share."""

from folklearn.errors import spell_argument
from folklearn.utils import closest_name, count_of, join_names


def test_numbers_have_their_noun():
    assert [count_of(n, "column") for n in (1, 3)] == ["1 column", "3 columns"]


def test_names_are_quoted_where_they_could_be_misread():
    assert join_names(["age", "due date", ""]) == "age, 'due date', ''"
    assert join_names([f"x{i}" for i in range(14)]).endswith("x11, and 2 more")


def test_the_name_that_was_meant():
    assert closest_name("Country", ["age", "country"]) == "country"
    assert closest_name("income", ["age", "country"]) is None


def test_arguments_are_spelled_as_in_python():
    assert spell_argument("encoding={!r}", "cp1252") == "encoding='cp1252'"
