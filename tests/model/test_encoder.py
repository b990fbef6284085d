"""TableEncoder: rows of any role as a matrix, the same one by one and together."""

import datetime
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.errors import InvalidInputError
from folklearn.model.batch import MOST_OWN
from folklearn.model.encoder import FEATURES, TableEncoder
from folklearn.model.roles import DATE_PARTS, place_of
from folklearn.readers.table import Table, table_from_records
from folklearn.scaler import SPACE
from folklearn.serialization import revive
from folklearn.sparse import SparseRows

ROLES = {"n": "number", "m": "number", "c": "category", "e": "category", "d": "date"}


def block(rows):
    return table_from_records(rows, range(1, len(rows) + 1))


def grown(columns, rows):
    """Read the rows one by one, places opened on the way; return the matrix, 0 before."""
    found = []
    for row in rows:
        encoded = columns.encode(block([row]))
        columns.admit(encoded.keys, encoded.roles)
        found.append(encoded.X[0])
    X = np.zeros((len(rows), max(1, len(columns))))
    for t, row in enumerate(found):
        X[t, : row.size] = row
    return X


CELLS = {
    "n": st.floats(-9, 9) | st.integers(-9, 9) | st.booleans() | st.just(math.nan),
    "m": st.floats(-9, 9),
    "c": st.sampled_from(["red", "blue", " red", "#1", "", "n/a", 3, 2.5]),
    "e": st.sampled_from(["x", "y"]),
    "d": st.sampled_from(["2026-11-15", "2026-11-15T08:30", datetime.date(2024, 2, 29)]),
}
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | one for name, one in CELLS.items()}),
    min_size=1,
    max_size=8,
)


@given(rows=ROWS, crosses=st.sampled_from([(), [("c", "e")], [("n", "m"), ("n", "c")]]))
def test_row_by_row_is_the_block(rows, crosses):
    whole, single = TableEncoder(ROLES, crosses), TableEncoder(ROLES, crosses)
    encoded = whole.encode(block(rows))
    whole.admit(encoded.keys, encoded.roles)
    X = grown(single, rows)
    assert single.keys == whole.keys
    # A number is missing, not 0, in rows before its first one: then there was no place for it.
    together = encoded.X.copy()
    for t in range(len(rows)):
        gaps = np.isnan(together[t]) & (X[t] == 0.0)
        together[t, gaps] = 0.0
    np.testing.assert_array_equal(together, X)
    assert len(single.encode(block([rows[0]])).keys) == 0
    for t, row in enumerate(rows):  # now that all places are there, exactly
        np.testing.assert_array_equal(
            whole.encode(block([row])).X[0], whole.encode(block(rows)).X[t]
        )


@given(rows=ROWS)
def test_row_by_row_is_the_block_in_a_wide_model(rows):
    columns = TableEncoder(ROLES | {"w": "words"}, [("c", "e")], sparse=True)
    texts = ["late again", "late", None, ""]
    rows = [row | {"w": texts[t % 4]} for t, row in enumerate(rows)]
    columns.admit(columns.encode(block(rows)).keys)
    X = columns.encode(block(rows)).X
    for t, row in enumerate(rows):
        one = columns.encode(block([row])).X
        np.testing.assert_array_equal(one.numbers[0], X.numbers[t])
        np.testing.assert_array_equal(one.cells.row(0).indices, X.cells.row(t).indices)
        np.testing.assert_array_equal(one.cells.row(0).values, X.cells.row(t).values)


def test_reading_changes_nothing():
    columns = TableEncoder(ROLES)
    rows = [{"n": 1.0, "c": "red", "late": 5.0}]
    before = columns.to_record()
    encoded = columns.encode(block(rows))
    assert columns.to_record() == before
    assert encoded.keys == [("n", ""), ("c", "red"), ("late", "")]
    assert encoded.roles == {"late": "number"}
    assert encoded.n_first == 3


def test_new_places_are_in_the_order_of_the_rows():
    columns = TableEncoder({"a": "category", "b": "category"})
    encoded = columns.encode(block([{"b": "x"}, {"a": "y", "b": "z"}, {"a": "w"}]))
    assert encoded.keys == [("b", "x"), ("a", "y"), ("b", "z"), ("a", "w")]
    assert encoded.n_first == 1
    np.testing.assert_array_equal(encoded.X, [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])


def test_categories_beyond_a_hundred_share_places():
    names = [f"k{i}" for i in range(300)]
    columns = TableEncoder({"c": "category"})
    encoded = columns.encode(block([{"c": name} for name in names]))
    columns.admit(encoded.keys, encoded.roles)
    assert encoded.keys[:MOST_OWN] == [("c", name) for name in names[:MOST_OWN]]
    assert len(columns) <= MOST_OWN + 28
    for i, name in enumerate(names):
        key = ("c", name if i < MOST_OWN else f"#{place_of(name) % 28}")
        assert np.flatnonzero(encoded.X[i]).tolist() == [columns.places[key]]
    unknown = columns.encode(block([{"c": "never seen"}]))
    assert unknown.X.sum() <= 1.0
    again = TableEncoder.from_record(columns.to_record())
    np.testing.assert_array_equal(
        again.encode(block([{"c": "k250"}])).X, columns.encode(block([{"c": "k250"}])).X
    )


@pytest.mark.parametrize(
    ("text", "weekday", "hour"),
    [("2026-11-15", "Sunday", 0.0), ("2024-02-29T18:00", "Thursday", 18.0)],
)
def test_dates(text, weekday, hour):
    columns = TableEncoder({"d": "date"})
    encoded = columns.encode(block([{"d": text}, {"d": None}]))
    assert encoded.keys == [("d", part) for part in DATE_PARTS]
    row = dict(zip(DATE_PARTS, encoded.X[0], strict=True))
    moment = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    assert row["trend"] == moment.timestamp()
    assert row["hour (sin)"] == pytest.approx(math.sin(math.pi * hour / 12.0))
    assert row["hour (cos)"] == pytest.approx(math.cos(math.pi * hour / 12.0))
    days = [name for name in DATE_PARTS[5:] if row[name] == 1.0]
    assert days == [weekday]
    assert np.isnan(encoded.X[1]).all()


def test_crosses_are_products():
    """Against products by hand: of numbers, of a number and a category, of categories."""
    rows = [
        {"n": 2.0, "m": 3.0, "c": "red", "e": "x"},
        {"n": -1.0, "m": 0.5, "c": "blue", "e": "x"},
        {"n": 4.0, "m": None, "c": "red", "e": None},
        {"n": 4.0, "c": None, "e": "y"},
    ]
    crosses = [("n", "m"), ("n", "c"), ("c", "e")]
    columns = TableEncoder(ROLES, crosses)
    encoded = columns.encode(block(rows))
    columns.admit(encoded.keys, encoded.roles)

    def by_hand(row):
        n, m, c, e = (row.get(name) for name in "nmce")
        found = {("n:m", ""): math.nan if n is None or m is None else n * m}
        if c is not None:
            found["n:c", c] = n
        if c is not None and e is not None:
            found["c:e", f"{c} & {e}"] = 1.0
        return found

    for t, row in enumerate(rows):
        expected = np.zeros(len(columns))
        for key, value in by_hand(row).items():
            expected[columns.places[key]] = value
        own = [columns.places[key] for key in columns.keys if ":" in key[0]]
        np.testing.assert_array_equal(encoded.X[t, own], expected[own])
    assert np.isnan(columns.encode(block([{"n": 1.0}])).X[0, columns.places["n:m", ""]])
    with pytest.raises(InvalidInputError, match="c:d cannot be crossed: dates cannot"):
        TableEncoder(ROLES, [("c", "d")]).encode(block([{"c": "x", "d": "2026-01-01"}]))


@pytest.mark.parametrize("name", ["features", "a:b", "", "#", "n"])
def test_columns_may_have_any_name(name):
    for role, values, first in (("category", ["x", "y"], "x"), ("number", [1.0, 2.0], "")):
        columns = TableEncoder({name: role, "other": "number"}, [("other", name)])
        rows = [{name: value, "other": 5.0} for value in values]
        columns.admit(columns.encode(block(rows)).keys)
        assert columns.places[name, first] < len(columns)
        again = revive(columns.to_record())
        np.testing.assert_array_equal(
            again.encode(block([rows[1]])).X, columns.encode(block([rows[1]])).X
        )
        gap = columns.encode(block([{"other": 5.0}])).X[0, columns.places[name, first]]
        assert math.isnan(gap) if role == "number" else gap == 0.0


def test_a_matrix_is_taken_as_it_is(rng):
    X = rng.normal(size=(7, 3))
    columns = TableEncoder()
    encoded = columns.encode(Table({}, np.arange(1, 8), X))
    assert encoded.keys == [(FEATURES, str(j)) for j in range(3)]
    columns.admit(encoded.keys, encoded.roles)
    assert columns.is_matrix
    assert columns.encode(Table({}, np.arange(1, 8), X)).X is X
    sparse = columns.encode(Table({}, np.arange(1, 8), SparseRows.of(X)))
    np.testing.assert_array_equal(sparse.X, X)


def test_gaps_of_wide_features_are_0():
    X = np.array([[1.0, np.nan, 0.0, 2.0]])
    columns = TableEncoder(sparse=True)
    encoded = columns.encode(Table({}, np.arange(1, 2), SparseRows.of(X)))
    assert encoded.X.cells.row(0).indices.tolist() == [0, SPACE, SPACE + 3]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"n": math.inf}, "column 'n' has inf, which is not finite"),
        ({"n": 2e15}, "column 'n' has 2e.15, which is too large"),
        ({"n": "two"}, "column 'n': 'two' is not a number; for a column of text"),
        ({"d": "soon"}, "column 'd': 'soon', unlike 2024-05-01T10:30, is not a date"),
        ({"d": 5.0}, "column 'd' holds numbers, and its role is date"),
        ({"n": [1]}, "the value is nested"),
        ({"n": 10**400}, "column 'n' has inf"),
    ],
)
def test_what_cannot_be_read_is_named(row, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        TableEncoder(ROLES).encode(block([{"n": 1.0}, row]))


def test_roles_that_are_not_learned_have_no_place():
    roles = {"id": "id", "w": "weight", "y": "target", "x": "ignored", "n": "number"}
    columns = TableEncoder(roles)
    encoded = columns.encode(block([dict.fromkeys(roles, 1.0)]))
    assert encoded.keys == [("n", "")]
    assert columns.learned == ["n"]
    with pytest.raises(InvalidInputError, match="cannot have the role 'colour'"):
        TableEncoder({"n": "colour"})
