"""Rows that are in memory already: data frames and mappings; blocks put together."""

import datetime
import subprocess
import sys

import numpy as np
import pytest

from folklearn import Model
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.readers import Table, TextColumn, open_reader, table_from_records
from folklearn.sparse import SparseRows

DAY = datetime.datetime(2024, 5, 1, 8)
DATE = "2024-05-01T08:00:00.000000"


def frames():
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    columns = {
        "n": [1, 2, 3],
        "f": [0.5, None, 2.0],
        "t": ["x", None, " y"],
        "b": [True, False, True],
    }
    columns["d"] = [DAY, None, DAY]
    frame = pandas.DataFrame(columns)
    frame["c"] = pandas.Categorical(["u", "v", "u"])
    shown = polars.DataFrame(columns).with_columns(
        polars.Series("c", ["u", "v", "u"], dtype=polars.Enum(["v", "u"]))
    )
    return frame, shown, pa.table({**columns, "c": pa.array(["u", "v", "u"]).dictionary_encode()})


@pytest.mark.parametrize("which", [0, 1, 2], ids=["pandas", "polars", "Arrow"])
def test_frames(read, which):
    frame = frames()[which]
    reader = open_reader(frame)
    assert (reader.format, reader.unit, reader.n_rows) == ("frame", "row", 3)
    assert reader.names == ("n", "f", "t", "b", "d", "c")
    kinds = dict.fromkeys("nfb", "number") | dict.fromkeys("tc", "text") | {"d": "date"}
    for _ in range(2):
        rows = read(reader, kinds, max_rows=2)
        assert (rows["n"], rows["f"], rows["b"]) == ([1, 2, 3], [0.5, None, 2], [1, 0, 1])
        assert (rows["t"], rows["c"]) == (["x", None, "y"], ["u", "v", "u"])
        assert (rows["d"], rows.lines) == ([DATE, None, DATE], [1, 2, 3])
    head = reader.head(2)
    assert (len(head), isinstance(head.columns["c"], TextColumn)) == (2, True)
    assert read(reader, {"n": "text", "f": "text", "b": "text"}).table[0] == {
        "n": ["1", "2", "3"], "f": ["0.5", None, "2"], "b": ["true", "false", "true"],
    }  # fmt: skip


def test_frames_of_other_things(read):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({0: [1, 2], "mixed": [1, "x"], "list": [[1], [2]]})
    frame["long"] = np.array([1, 2], "timedelta64[us]")
    reader = open_reader(frame)
    assert reader.names == ("0", "mixed", "long")
    assert reader.left_out == {"list": "Object"}
    assert read(reader, {"0": "text", "mixed": "text"}).table[0] == {
        "0": ["1", "2"], "mixed": ["1", "x"],
    }  # fmt: skip
    assert read(reader, {"long": "number"})["long"] == [1e-6, 2e-6]
    rows = read(reader, {"mixed": "number"})
    assert str(rows.error).startswith(
        "row 2 of the data frame, column 'mixed': 'x' is not a number"
    )
    with pytest.raises(
        InvalidInputError, match="the data frame has no column 'y'; its columns are"
    ):
        reader.read({"y": "text"})
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(InvalidInputError, match="the data frame"):
        open_reader(twice)


ROWS = [
    {"a": 1, "b": "x", "d": DAY},
    {"a": np.float32(2.5), "late": True},
    {"a": None, "b": " nan", "d": datetime.date(2024, 5, 1)},
]


@pytest.mark.parametrize("kind", [list, iter])
def test_mappings(read, kind):
    reader = open_reader(kind(ROWS))
    assert (reader.format, reader.can_reread) == ("rows", kind is list)
    assert reader.names == ("a", "b", "d", "late")
    assert reader.n_rows == (3 if kind is list else None)
    rows = read(reader, {"a": "number", "b": "text", "d": "date"})
    assert rows.table[0] == {
        "a": [1, 2.5, None], "b": ["x", None, None],
        "d": [DATE, None, "2024-05-01T00:00:00.000000"],
    }  # fmt: skip


def test_bad_mappings(read):
    rows = [{"a": 1}, {"a": np.inf}, 3, {"a": [1]}, {"a": object()}, {"a": "4"}, {5: 1}]
    found = read(open_reader(rows), {"a": "number"}, skip=True)
    assert (found["a"], [bad.line for bad in found.bad]) == ([1.0, 4.0, None], [2, 3, 4, 5])
    assert str(found.bad[1]).startswith("row 3 of the rows: it is not a mapping of column names")
    assert open_reader(rows).names == ("a", "5")


def test_many_rows_of_an_iterator(read):
    reader = open_reader({"a": i} for i in range(3000))
    assert len(reader.head(7)) == 7
    rows = read(reader, {"a": "number"}, max_rows=1024)
    assert rows["a"] == list(range(3000))
    assert [len(block) for block in rows.blocks] == [1024, 1024, 952]


def test_a_block_of_records():
    block = table_from_records([{"a": 1, "b": 1}, {"b": "x"}], [7, 9])
    assert (block.lines.tolist(), block.columns["b"].to_list()) == ([7, 9], ["1", "x"])
    assert len(table_from_records([], [])) == 0
    with pytest.raises(FolklearnError, match="row 2, column 'a': the value is nested"):
        table_from_records([{}, {"a": {}}], [1, 2])


def test_blocks_with_and_without_features_are_joined():
    X = np.arange(4.0).reshape(2, 2)
    plain = Table({}, np.array([3]))
    dense = Table.concat(
        [plain, Table({}, np.array([1, 2]), X), Table({}, np.array([4]), X[:1, :1])]
    )
    np.testing.assert_array_equal(
        dense.features, [[np.nan, np.nan], [0.0, 1.0], [2.0, 3.0], [0.0, np.nan]]
    )
    sparse = Table.concat([plain, Table({}, np.array([1, 2]), SparseRows.of(X))])
    np.testing.assert_array_equal(sparse.features.dense(), [[0.0, 0.0], [0.0, 1.0], [2.0, 3.0]])


def test_blocks_are_joined():
    first = table_from_records(
        [{"a": 1, "t": "x", "d": DAY}, {"a": 2, "t": None, "m": 3.5}], [1, 2]
    )
    second = table_from_records([{"t": "y", "m": "w"}, {"t": "x"}], [3, 4])
    both = Table.concat([first, second])
    assert (len(both), both.lines.tolist()) == (4, [1, 2, 3, 4])
    np.testing.assert_array_equal(both.columns["a"], [1, 2, np.nan, np.nan])
    assert both.columns["t"].to_list() == ["x", None, "y", "x"]
    assert both.columns["t"].values == ("x", "y")
    assert both.columns["m"].to_list() == [None, "3.5", "w", None]
    assert np.isnat(both.columns["d"]).tolist() == [False, True, True, True]
    some = both.take(np.array([3, 0]))
    assert (some.lines.tolist(), some.columns["t"].to_list()) == ([4, 1], ["x", "x"])
    assert len(Table.concat([])) == 0


def test_mappings_and_json_lines_need_no_further_package(write):
    path = write('{"a": 1}\n' * 5000, "a.jsonl")
    code = (
        "import sys; sys.modules |= {'pyarrow': None, 'narwhals': None}; import folklearn.readers\n"
        "from folklearn.readers import open_reader\n"
        f"for source in ([{{'a': 1}}], {str(path)!r}):\n"
        "    print(sum(map(len, open_reader(source).read({'a': 'number'}))))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["1", "5000"]


def test_a_frame_with_columns_of_one_name():
    frame = pytest.importorskip("pandas").DataFrame([[1, 2, "a"]], columns=["x", "x", "y"])
    for read in (open_reader, lambda frame: Model().run(frame, "y")):
        with pytest.raises(FolklearnError, match="the data frame cannot be read: .* 'x' 2 times"):
            read(frame)
