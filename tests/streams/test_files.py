"""Every format: found out, learned alike, in constant memory, and never anything but a sentence."""

import contextlib
import csv
import gzip
import itertools
import json
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.streams.files import FORMATS, format_of, has_target, open_file
from folklearn.streams.model import StreamModel
from folklearn.streams.table import classes

COLUMNS = ("1", "2", "3")


def write_csv(X, y, path):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(
            [[*COLUMNS, "kind"], *([*x, k] for x, k in zip(X, y, strict=True))]
        )


def write_svmlight(X, y, path):
    dump_svmlight_file(np.array(X), np.array(y), str(path), zero_based=False)


def write_vw(X, y, path):
    rows = zip(X, y, strict=True)
    words = (" ".join(f"{c}:{v!r}" for c, v in zip(COLUMNS, x, strict=True) if v) for x in X)
    path.write_text("".join(f"{k} | {text}\n" for (_, k), text in zip(rows, words, strict=True)))


def write_jsonl(X, y, path):
    rows = (dict(zip((*COLUMNS, "kind"), (*x, k), strict=True)) for x, k in zip(X, y, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def arrow_table(X, y):
    pa = pytest.importorskip("pyarrow")
    return pa.table({**dict(zip(COLUMNS, zip(*X, strict=True), strict=True)), "kind": y})


def write_parquet(X, y, path):
    pytest.importorskip("pyarrow.parquet").write_table(arrow_table(X, y), path, row_group_size=50)


def write_arrow(X, y, path):
    table = arrow_table(X, y)
    with pytest.importorskip("pyarrow.ipc").new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=50)


WRITERS = {
    "csv": write_csv,
    "svmlight": write_svmlight,
    "vw": write_vw,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "jsonl": write_jsonl,
}
TEXT = ("csv", "svmlight", "vw", "jsonl")


def rows(rng, n):
    X = rng.normal(size=(n, 3)) * [1.0, 1e3, 1e-3] * (rng.random((n, 3)) < 0.7)
    X[0] = [1.0, 1.0, 1.0]  # every column occurs, and in order
    return X.round(4).tolist(), rng.integers(3, size=n).tolist()


def opened(path, format=None):
    kind = format or format_of(path)
    return open_file(path, "kind" if has_target(kind) else None, None, format)


def learn(table):
    labels = classes(table)
    model = StreamModel("folklore", columns=table.columns, target=table.target, labels=labels)
    blocks = table.blocks(table.columns, labels, itertools.repeat(16))
    return np.concatenate([model.run_block(X, y, weight=w)[1] for X, y, w in blocks])


def test_all_formats_can_be_written_here():
    assert tuple(WRITERS) == FORMATS


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_learned_does_not_depend_on_the_format(rng, tmp_path, format):
    X, y = rows(rng, 120)
    write_csv(X, y, tmp_path / "data.csv")
    expected = opened(tmp_path / "data.csv")
    path = tmp_path / "data"  # no ending: the content must do
    WRITERS[format](X, y, path)
    assert format_of(path) == format
    table = opened(path)
    assert (table.columns, table.n_rows) == (expected.columns, expected.n_rows)
    assert classes(table) == classes(expected)
    np.testing.assert_allclose(learn(table), learn(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("format", TEXT)
def test_text_may_be_gzipped_whatever_it_is_called(rng, tmp_path, format):
    X, y = rows(rng, 20)
    WRITERS[format](X, y, tmp_path / "plain")
    (tmp_path / "packed").write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
    assert format_of(tmp_path / "packed") == format
    np.testing.assert_array_equal(
        learn(opened(tmp_path / "packed")), learn(opened(tmp_path / "plain"))
    )


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.csv", "", "csv"),
        ("a.TSV.gz", "", "csv"),
        ("a.libsvm", "", "svmlight"),
        ("a.vw.gz", "", "vw"),
        ("a.ndjson", "", "jsonl"),
        ("a.parquet", "", "parquet"),
        ("a.feather", "", "arrow"),
        ("a.txt", "", "csv"),
        ("a.txt", "a,y\n1,2\n", "csv"),
        ("a.txt", "a|b|y\n1|2|p\n", "csv"),
        ("a.txt", "\n  1 2.0 'tag |ns a b:2\n", "vw"),
        ("a.txt", "1 'tag|ns a b:2\n", "vw"),
        ("a.txt", "| a b:2\n", "vw"),
        ("a.txt", "# made by hand\n+1 qid:3 1:2 3:4 # end\n", "svmlight"),
        ("a.txt", '{"a": 1}\n', "jsonl"),
        ("a.csv", "PAR1", "parquet"),
    ],
)
def test_the_format_is_found_out(tmp_path, name, content, format):
    (tmp_path / name).write_text(content)
    assert format_of(tmp_path / name) == format


@pytest.mark.parametrize("format", FORMATS)
def test_the_rest_of_the_columns_and_the_labels_can_be_left_out(rng, tmp_path, format):
    X, y = rows(rng, 30)
    WRITERS[format](X, y, tmp_path / "data")
    table = open_file(tmp_path / "data", None, columns=("3", "1"), labelled=False)
    ((found, numbers, weight),) = table.blocks(table.columns, (), [100])
    np.testing.assert_array_equal(found, np.array(X)[:, [2, 0]])
    np.testing.assert_array_equal(numbers, -np.ones(30))
    assert weight is None
    assert set(table.unused) - {"kind"} == {"2"}
    assert table.first_lines == {}


@pytest.mark.parametrize("format", FORMATS)
def test_columns_that_are_missing(rng, tmp_path, format):
    WRITERS[format](*rows(rng, 10), tmp_path / "data")
    with pytest.raises(
        InvalidInputError, match=r"lacks 2 columns|names no feature of those needed"
    ):
        open_file(tmp_path / "data", None, "data", columns=("u", "v"), labelled=False)


def test_targets_where_they_belong(tmp_path):
    (tmp_path / "a.vw").write_text("1 |a b\n2 |a\n")
    with pytest.raises(InvalidInputError, match="read as vw, where every line starts with its"):
        open_file(tmp_path / "a.vw", "kind")
    (tmp_path / "a.csv").write_text("a,kind\n1,p\n")
    with pytest.raises(InvalidInputError, match=r"holds the class; its columns are: a, kind"):
        open_file(tmp_path / "a.csv", None)
    with pytest.raises(FolklearnError, match="there is no format 'xls'; choose one of: csv, svm"):
        open_file(tmp_path / "a.csv", "kind", format="xls")


def peak(path):
    """The most memory that Python held while the file was checked and read."""
    tracemalloc.start()
    try:
        table = opened(path)
        for _ in table.blocks(table.columns, classes(table), itertools.repeat(32)):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("format", FORMATS)
def test_memory_does_not_grow_with_the_rows(rng, tmp_path, format, monkeypatch):
    monkeypatch.setattr("folklearn.streams.arrow._BATCH", 50)
    WRITERS[format](*rows(rng, 200), tmp_path / "few")
    WRITERS[format](*rows(rng, 2400), tmp_path / "many")
    peak(tmp_path / "few")  # what is loaded once
    few, many = peak(tmp_path / "few"), peak(tmp_path / "many")
    assert many < 1.2 * few + 50_000  # the buffers of files; all rows at once take 750,000


@given(content=st.binary(max_size=60), format=st.sampled_from([None, *FORMATS]))
def test_bytes_of_any_kind_give_a_table_or_a_sentence(content, format):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.write_bytes(content)
        with contextlib.suppress(FolklearnError):
            opened(path, format)
