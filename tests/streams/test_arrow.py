"""Parquet and Arrow files: batch by batch, types checked, faults with their rows."""

import decimal
import itertools
import sys

import numpy as np
import pytest

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.model.hashing import TextHasher
from folklearn.streams import scanned
from folklearn.streams.arrow import ArrowSource, scan
from folklearn.streams.table import classes

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
pq = pytest.importorskip("pyarrow.parquet")


def write_ipc(table, path, new):
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


WRITERS = {
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=3),
    "arrow": lambda table, path: write_ipc(table, path, pa.ipc.new_file),
    "stream": lambda table, path: write_ipc(table, path, pa.ipc.new_stream),
    "feather": lambda table, path: feather.write_feather(table, path, compression="lz4"),
}


@pytest.fixture
def write(tmp_path):
    def write(columns, format="parquet"):
        path = tmp_path / "data.file"
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        WRITERS[format](table, path)
        return path

    return write


def read(table, size=2):
    blocks = list(table.blocks(table.columns, classes(table), itertools.repeat(size)))
    return np.vstack([X for X, _, _ in blocks]), np.concatenate([y for _, y, _ in blocks])


@pytest.mark.parametrize("format", WRITERS)
def test_columns_classes_and_rows(write, format, monkeypatch):
    monkeypatch.setattr("folklearn.streams.arrow._BATCH", 2)
    columns = {"a": range(7), "y": list("pqppqpq"), "b": [x / 2 for x in range(7)]}
    table = scan(write(columns, format), "y")
    assert (table.columns, table.n_rows, table.unit) == (("a", "b"), 7, "row")
    assert table.first_lines == {"p": 1, "q": 2}
    X, y = read(table, 3)
    np.testing.assert_array_equal(X, np.column_stack([range(7), np.arange(7) / 2]))
    np.testing.assert_array_equal(y, [0, 1, 0, 0, 1, 0, 1])


@pytest.mark.parametrize(
    "numbers",
    [
        pa.array([1, 2], pa.uint8()),
        pa.array([1, 2], pa.float32()),
        pa.array([decimal.Decimal("1.0"), decimal.Decimal("2.0")]),
        pa.array([1, 10**14 + 1], pa.int64()),
        pa.array([True, False]),
    ],
    ids=lambda array: str(array.type),
)
def test_numbers_of_every_kind(write, numbers):
    X, _ = read(scan(write({"a": numbers, "y": ["p", "q"]}), "y"))
    np.testing.assert_array_equal(X[:, 0], [float(cell) for cell in numbers.to_pylist()])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pa.array([10, 9]), ("9", "10")),
        (pa.array([True, False]), ("false", "true")),
        (pa.array(["x", "y"], pa.large_string()), ("x", "y")),
        (pa.array(["x", "y"]).dictionary_encode(), ("x", "y")),
        (pa.array([1.5, 0.5]), ("0.5", "1.5")),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_labels_of_every_kind(write, labels, expected):
    assert classes(scan(write({"a": [1, 2], "y": labels}), "y")) == expected


def test_frames_of_pandas_and_polars(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "y": ["p", "q"]}, index=["r", "s"])
    frame.to_parquet(tmp_path / "pandas")
    assert scan(tmp_path / "pandas", "y").columns == ("a",)
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": [1.0, 2.0], "y": ["p", "q"]}).write_ipc(tmp_path / "polars")
    assert classes(scan(tmp_path / "polars", "y")) == ("p", "q")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"a": [1], "b": [2]}, "data has no column 'y'; its columns are: a, b"),
        ({"a": pa.array([], pa.int8()), "y": pa.array([], pa.int8())}, "data has a header but no"),
        ({"y": [1]}, "data has no column beside the target 'y'"),
        ({"a": [[1]], "y": [1]}, "column 'a' of data holds list"),
        ({"a": [1], "y": [[1]]}, "column 'y' of data holds list"),
        ({"a": [1, 2], "y": ["p", None]}, "row 2 of data, column 'y': the label is missing"),
        ({"a": [1, 2], "y": [0.5, float("nan")]}, "row 2 of data, column 'y': the label is missi"),
        ({"a": [1.0, float("inf")], "y": [1, 2]}, "row 2 of data, column 'a': inf is not finite"),
        ({"a": [1.0, 1e300], "y": [1, 2]}, "row 2 of data, column 'a': 1e+300 is too large"),
        (
            pa.Table.from_arrays([pa.array([1])] * 3, names=["a", "a", "y"]),
            "data has two columns named 'a'",
        ),
        (pa.Table.from_arrays([pa.array([1])] * 2, names=["", "y"]), "column 1 of data has no nam"),
    ],
)
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_every_fault_is_named_with_its_place(write, columns, sentence, format, monkeypatch):
    monkeypatch.setattr("folklearn.streams.arrow._BATCH", 2)
    with pytest.raises(InvalidInputError) as caught:
        scan(write(columns, format), "y", "data")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("format", WRITERS)
def test_gaps_and_text(write, format, monkeypatch):
    monkeypatch.setattr("folklearn.streams.arrow._BATCH", 2)
    columns = {
        "a": [1, None, 3],
        "b": pa.array(["red", None, "red"]).dictionary_encode(),
        "c": [float("nan"), 2.5, None],
        "code": [7, 8, None],
        "none": pa.nulls(3),
        "y": ["p", "q", "q"],
    }
    table = scanned.scan(ArrowSource(write(columns, format)), "y", text=["code"])
    assert (table.text, table.n_inputs) == (("b", "code"), 131)
    assert table.missing == {"a": 1, "b": 1, "c": 2, "code": 1, "none": 3}
    X, _ = read(table)
    np.testing.assert_array_equal(X[:, :2], [[1, np.nan], [np.nan, 2.5], [3, np.nan]])
    texts = {"b": ["red", None, "red"], "code": ["7", "8", None]}
    np.testing.assert_array_equal(X[:, 3:], TextHasher().columns(texts))
    with pytest.raises(InvalidInputError, match="'b' of data holds dictionary.*declare it: --text"):
        scanned.scan(ArrowSource(write(columns, format), "data"), "y", numeric=["b"])
    columns["code"] = [[1], [2], [3]]
    with pytest.raises(InvalidInputError, match="holds list<.*it cannot be read as text"):
        scanned.scan(ArrowSource(write(columns, format)), "y", text=["code"])


@pytest.mark.parametrize("format", WRITERS)
def test_damaged_files(write, format):
    path = write({"a": range(100), "y": ["p", "q"] * 50}, format)
    content = path.read_bytes()
    for end in range(8, len(content) - 8, 97):
        path.write_bytes(content[:end])
        with pytest.raises(FolklearnError):
            scan(path, "y")
    path.write_bytes(b"a,y\n1,p\n")
    with pytest.raises(InvalidInputError, match="neither a Parquet nor an Arrow file"):
        scan(path, "y")
    path.write_bytes(b"FEA1....")
    with pytest.raises(InvalidInputError, match="is Feather of version 1"):
        scan(path, "y")


def test_the_extra_is_named(write, monkeypatch):
    path = write({"a": [1], "y": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FolklearnError, match=r"need pyarrow.*pip install 'folklearn\[df\]'"):
        scan(path, "y")
