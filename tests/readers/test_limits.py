"""Shapes that would take all memory, or end the process, end with a sentence instead."""

import gzip
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from folklearn.errors import InvalidInputError
from folklearn.readers import open_reader

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

MOST_BYTES = 3 * 2**30  # of addresses; what is loaded before a file is opened takes a third

READ = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MOST_BYTES}, {MOST_BYTES}))
from folklearn.errors import InvalidInputError
from folklearn.readers import open_reader
for path in sys.argv[1:]:
    try:
        reader = open_reader(path)
        n_rows = sum(map(len, reader.read(dict.fromkeys(reader.names, "text"))))
        print(n_rows, "rows")
    except InvalidInputError as error:
        print(error)
"""


def deep(n):
    return b'{"y": "a", "x": ' + b'{"x": ' * n + b"1" + b"}" * n + b"}\n"


def test_files_of_hostile_shapes_end_with_a_sentence_in_little_memory(tmp_path):
    million = 10**6
    good = b'{"y": "a", "x": 1}\n' * 1000
    files = {
        "wide.csv": b",".join(b"%d" % i for i in range(million)) + b",y\n",
        "wide.jsonl": b"{" + b",".join(b'"%d":1' % i for i in range(200_000)) + b"}\n",
        "many.jsonl": good * 20 + b"".join(b'{"%d":1}\n' % i for i in range(12_000)),
        "deep.jsonl": deep(100_000),
        "deep later.jsonl": good + deep(100_000),
        "bomb.csv.gz": gzip.compress(b"x" * 2**28, 1),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    run = subprocess.run(
        [sys.executable, "-c", READ, *files], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.stderr == ""
    too_many = "and at most 100,000"
    too_deep = "it cannot be read as JSON: maximum recursion depth exceeded"
    beginnings = [
        f"wide.csv has 1,000,001 columns, {too_many} can be read: leave some out, or write only",
        f"line 1 of wide.jsonl: it has 200,000 keys, {too_many} columns",
        "32000 rows",  # of 12,002 columns
        f"line 1 of deep.jsonl: {too_deep}",
        f"line 1001 of deep later.jsonl: {too_deep}",
        "line 1 of bomb.csv.gz is too long; is it text?",
    ]
    for line, beginning in zip(run.stdout.splitlines(), beginnings, strict=True):
        assert line.startswith(beginning)


@pytest.fixture
def narrow(monkeypatch):
    """Readers that take 5 columns."""
    for module in ("reader", "records"):
        monkeypatch.setattr(f"folklearn.readers.{module}.MAX_COLUMNS", 5)


def in_arrow(names):
    sink = io.BytesIO()
    table = pa.table({name: [1.0] for name in names})
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return sink.getvalue()


def in_parquet(names):
    sink = io.BytesIO()
    pq.write_table(pa.table({name: [1.0] for name in names}), sink)
    return sink.getvalue()


FORMATS = {
    "csv": lambda names: f"{','.join(names)}\n{','.join('1' for _ in names)}\n".encode(),
    "jsonl": lambda names: json.dumps(dict.fromkeys(names, 1)).encode() + b"\n",
    "a key a line": lambda names: b"".join(b'{"%s": 1}\n' % name.encode() for name in names),
    "arrow": in_arrow,
    "parquet": in_parquet,
}


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_columns_are_counted_before_they_are_read(write):
    names = [f"c{i}" for i in range(6)]
    assert open_reader(io.BytesIO(write(names[:5]))).names == tuple(names[:5])
    with pytest.raises(InvalidInputError, match="at most 5 "):
        open_reader(io.BytesIO(write(names)))


@pytest.mark.usefixtures("narrow")
def test_columns_of_frames_and_rows_are_counted_too():
    six = {f"c{i}": [1.0] for i in range(6)}
    with pytest.raises(InvalidInputError, match="the data frame has 6 columns"):
        open_reader(pa.table(six))
    with pytest.raises(InvalidInputError, match="the rows has 6 columns"):
        open_reader([dict.fromkeys(six, 1.0)])


@pytest.mark.usefixtures("narrow")
def test_columns_that_come_late_are_counted(write, read, monkeypatch):
    monkeypatch.setattr("folklearn.readers.source._FIRST_READ_BYTES", 20)
    monkeypatch.setattr("folklearn.readers.source._READ_BYTES", 20)
    lines = [json.dumps({"a": 1.0, f"k{i}": 1.0}) for i in range(1500)]
    early = ['{"a": 1.0}'] * 1200
    reader = open_reader(write("\n".join([*early, *lines[:4], ""]), "four.jsonl"))
    assert len(read(reader, {"a": "number"}).lines) == 1204
    rows = read(open_reader(write("\n".join([*early, *lines, ""]), "more.jsonl")), {"a": "number"})
    assert str(rows.error).startswith(f"{rows.error}".split(" has ")[0] + " has 6 columns")
    assert len(rows.lines) == 1204


@pytest.mark.parametrize("format", ["csv", "jsonl", "arrow", "parquet"])
def test_blocks_of_wide_rows_are_shorter(write, monkeypatch, format):
    for module in ("reader", "records"):
        monkeypatch.setattr(f"folklearn.readers.{module}.MAX_CELLS", 40)
    X = np.arange(90.0).reshape(30, 3)
    table = pa.table({f"c{j}": X[:, j] for j in range(3)})
    path = write(b"", f"t.{format}")
    if format == "csv":
        np.savetxt(path, X, delimiter=",", header="c0,c1,c2", comments="")
    elif format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif format == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    blocks = list(open_reader(path).read(dict.fromkeys(table.column_names, "number")))
    assert [len(block) for block in blocks] == [13, 13, 4]
    assert np.concatenate([block.columns["c1"] for block in blocks]).tolist() == X[:, 1].tolist()


def test_a_stream_without_a_row_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr("folklearn.readers.source._MAX_PEEKED_BYTES", 2**20)
    blank = gzip.compress(b"\n" * 2**24)
    with pytest.raises(InvalidInputError, match="the stream begins without a row"):
        open_reader(io.BytesIO(blank))


@pytest.mark.parametrize(
    ("name", "line", "sentence"),
    [
        ("far.svm", "a 4611686018427387904:1", "is not a column number"),
        ("far.svm", "a 4294967296:1", "is not a column number below 4294967296"),
        ("far.svm", "a -1:1", "is not a column number"),
        ("large.vw", "a |n:1e300 b:1e300", "too large to compute with"),
    ],
)
def test_features_out_of_range(write, read, name, line, sentence):
    rows = read(open_reader(write(f"{line}\nb |n c\n" if ".vw" in name else line, name)))
    assert sentence in str(rows.error)


def test_a_namespace_may_have_many_features(write, read):
    n = 200_000
    line = "a |n " + " ".join(f"f{i}" for i in range(n))
    rows = read(open_reader(write(f"{line}\nb |n f1\n", "many.vw")))
    assert rows.lines == [1, 2]
    assert n - 200 <= len(rows.features[0]) <= n  # hashes of some may be equal
