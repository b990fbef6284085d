"""A block is read like a file, and a pipe can be kept as one."""

import io

import numpy as np
import pytest

from folklearn.readers import BadRow, Table, TableReader, TextColumn, open_reader

KINDS = {"size": "number", "kind": "text"}


def test_columns_of_any_kind_become_what_is_asked_for():
    dates = np.array(["2024-05-01", "NaT"], "datetime64[us]")
    columns = {"size": TextColumn.of(["1.5", None]), "kind": np.array([3.0, np.nan]), "day": dates}
    reader = TableReader(Table(columns, np.array([4, 9])))
    (block,) = reader.read({**KINDS, "day": "date"})
    np.testing.assert_array_equal(block.columns["size"], [1.5, np.nan])
    assert block.columns["kind"].to_list() == ["3", None]
    assert block.columns["day"] is dates or (block.columns["day"] == dates)[0]
    assert block.lines.tolist() == [4, 9]
    assert next(reader.read({"day": "text"})).columns["day"].to_list()[1] is None


def test_bad_rows_have_their_lines():
    columns = {"size": TextColumn.of(["1", "x", "3"]), "kind": TextColumn.of("abc")}
    reader = TableReader(Table(columns, np.array([2, 3, 7])), "those")
    blocks = reader.read(KINDS)
    assert next(blocks).lines.tolist() == [2]
    with pytest.raises(BadRow, match="row 3 of those, column 'size': 'x' is not a number") as bad:
        next(blocks)
    assert bad.value.reason == "'x' is not a number"
    assert bad.value.sentence + "; to leave bad rows out: on_bad=print" == str(bad.value)


def test_a_pipe_is_kept_and_a_file_is_not(tmp_path):
    text = b"size;kind\n1,5;a\n\n2;b\n"
    pipe = open_reader(io.BytesIO(text))
    kept = TableReader.buffer(pipe)
    for _ in range(2):
        (block,) = kept.read(KINDS)
        assert block.columns["size"].tolist() == [1.5, 2.0]
        assert block.lines.tolist() == [2, 4]
    assert (kept.name, kept.unit, kept.notes) == (pipe.name, pipe.unit, pipe.notes)
    (tmp_path / "t.csv").write_bytes(text)
    file = open_reader(tmp_path / "t.csv")
    assert TableReader.buffer(file) is file


def test_features_keep_their_names():
    kept = TableReader.buffer(open_reader(io.BytesIO(b"x |a b:2\ny |a c\n"), format="vw"))
    (block,) = kept.read({"label": "text"})
    assert sorted(kept.feature_names(block.features.indices.tolist())) == ["a^b", "a^c"]
