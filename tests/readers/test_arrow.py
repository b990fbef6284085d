"""Parquet and Arrow files: batch by batch, types checked, faults with their rows."""

import datetime
import decimal
import sys

import pytest

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.readers import open_reader

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
def store(tmp_path):
    def store(columns, format="parquet"):
        path = tmp_path / "data.file"
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        WRITERS[format](table, path)
        return path

    return store


@pytest.mark.parametrize("format", WRITERS)
def test_columns_and_rows(store, read, format, monkeypatch):
    monkeypatch.setattr("folklearn.readers.columnar._BATCH_ROWS", 2)
    columns = {"a": range(7), "y": list("pqppqpq"), "b": [x / 2 for x in range(7)]}
    reader = open_reader(store(columns, format))
    assert (reader.names, reader.unit, reader.can_reread) == (("a", "y", "b"), "row", True)
    assert reader.n_rows == (7 if format == "parquet" else None)
    assert len(reader.head(3)) == 3
    for _ in range(2):
        rows = read(reader, {"b": "number", "y": "text"}, max_rows=3)
        assert (rows["b"], rows["y"]) == (columns["b"], columns["y"])
        assert rows.lines == list(range(1, 8))
        assert [len(block) for block in rows.blocks] == [3, 3, 1]


NUMBERS = [
    pa.array([1, 2], pa.uint8()),
    pa.array([1, 2], pa.float32()),
    pa.array([decimal.Decimal("1.0"), decimal.Decimal("2.0")]),
    pa.array([1, 10**12 + 1], pa.int64()),
    pa.array([True, False]),
    pa.array(["1", "2.5"]),
    pa.array(["1", "2.5"]).dictionary_encode(),
]


@pytest.mark.parametrize("numbers", NUMBERS, ids=lambda array: str(array.type))
def test_numbers_of_every_kind(store, read, numbers):
    rows = read(open_reader(store({"a": numbers})), {"a": "number"})
    assert rows["a"] == [float(cell) for cell in numbers.to_pylist()]


TEXTS = [
    (pa.array([10, 9]), ["10", "9"]),
    (pa.array([10**17 + 1, None]), [str(10**17 + 1), None]),
    (pa.array([True, False]), ["true", "false"]),
    (pa.array([" x", " "], pa.large_string()), ["x", None]),
    (pa.array(["x", None]).dictionary_encode(), ["x", None]),
    (pa.array([1.5, float("nan")]), ["1.5", None]),
    (pa.array([3, 4], pa.uint8()).dictionary_encode(), ["3", "4"]),
    (pa.array([datetime.date(2024, 5, 1), None]), ["2024-05-01", None]),
]


@pytest.mark.parametrize(("values", "texts"), TEXTS, ids=[str(array.type) for array, _ in TEXTS])
def test_texts_of_every_kind(store, read, values, texts):
    assert read(open_reader(store({"y": values})), {"y": "text"})["y"] == texts


DAY = datetime.datetime(2024, 5, 1, 8)
ZONE = datetime.timezone(datetime.timedelta(hours=2))
DATES = [
    pa.array([DAY, None], pa.timestamp("ms")),
    pa.array([DAY, None], pa.timestamp("ns")),
    pa.array([DAY.replace(hour=10, tzinfo=ZONE), None], pa.timestamp("us", "Europe/Berlin")),
    pa.array(["2024-05-01T10:00+02:00", ""]),
]


@pytest.mark.parametrize("dates", DATES, ids=lambda array: str(array.type))
def test_dates_of_every_kind(store, read, dates):
    rows = read(open_reader(store({"d": dates})), {"d": "date"})
    assert rows["d"] == ["2024-05-01T08:00:00.000000", None]


def test_the_head_has_every_column_as_it_is(store, read):
    columns = {
        "n": [1, None], "t": ["x", None], "c": pa.array(["u", "u"]).dictionary_encode(),
        "d": [datetime.date(2024, 5, 1), None], "none": pa.nulls(2), "id": [10**18, 1],
        "list": [[1], [2]],
    }  # fmt: skip
    reader = open_reader(store(columns))
    kinds = {name: type(column).__name__ for name, column in reader.head().columns.items()}
    assert kinds == {
        "n": "ndarray", "t": "TextColumn", "c": "TextColumn", "d": "ndarray", "none": "ndarray",
        "id": "ndarray",
    }  # fmt: skip
    assert reader.head().columns["d"].dtype == "datetime64[us]"
    assert reader.left_out["list"] == "list<element: int64>"
    with pytest.raises(InvalidInputError, match="column 'list' of .* cannot be read"):
        reader.read({"list": "text"})


def test_frames_of_pandas_and_polars(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "y": ["p", "q"]}, index=["r", "s"])
    frame.to_parquet(tmp_path / "pandas")
    assert open_reader(tmp_path / "pandas").names == ("a", "y")
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": [1.0, 2.0], "y": ["p", "q"]}).write_ipc(tmp_path / "polars")
    assert open_reader(tmp_path / "polars").names == ("a", "y")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]), "has two columns 'a'"),
        (pa.Table.from_arrays([pa.array([1])] * 2, names=["a", ""]), "column 2 of .* has no name"),
    ],
)
def test_files_that_are_refused(store, columns, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        open_reader(store(columns))


@pytest.mark.parametrize(
    ("values", "kind", "sentence"),
    [
        ([1.0, float("inf"), 2.0], "number", "column 'a': inf is not finite"),
        ([1.0, 1e300, 2.0], "number", "column 'a': 1e+300 is too large"),
        (["1", "two", "2"], "number", "column 'a': 'two' is not a number; for a column of text"),
        (["2024-05-01", "2", ""], "date", "column 'a': '2', unlike 2024-05-01T10:30, is not a"),
    ],
)
def test_bad_rows_are_named_with_their_place(store, read, values, kind, sentence):
    path = store({"a": values})
    rows = read(open_reader(path), {"a": kind})
    assert str(rows.error).startswith(f"row 2 of {path}, {sentence}")
    assert rows.lines == [1]
    assert read(open_reader(path), {"a": kind}, skip=True).lines == [1, 3]


@pytest.mark.parametrize("format", WRITERS)
def test_damaged_files(store, read, format):
    path = store({"a": range(100), "y": ["p", "q"] * 50}, format)
    content = path.read_bytes()
    for end in range(8, len(content) - 8, 97):
        path.write_bytes(content[:end])
        with pytest.raises(FolklearnError):
            for _ in open_reader(path).read({"a": "number"}):
                pass


def test_the_extra_is_named(store, write, monkeypatch):
    path = store({"a": [1], "y": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FolklearnError, match=r"need pyarrow.*pip install 'folklearn\[cli\]'"):
        open_reader(path)
    with pytest.raises(FolklearnError, match=r"^CSV files need pyarrow: pip install"):
        open_reader(write("a,y\n"))
