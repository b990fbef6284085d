"""A pipe can be kept in memory, and is read like a file then."""

import io

import pytest

from folklearn.readers.open import open_reader, open_source

KINDS = {"size": "number", "kind": "text"}


def test_a_pipe_is_kept_and_a_file_is_not(tmp_path):
    text = b"size;kind\n1,5;a\n\n2;b\n"
    pipe = open_reader(io.BytesIO(text))
    kept = open_reader(open_source(io.BytesIO(text)).buffer())
    for _ in range(2):
        (block,) = kept.read(KINDS)
        assert block.columns["size"].tolist() == [1.5, 2.0]
        assert block.lines.tolist() == [2, 4]
    assert (kept.name, kept.unit, kept.notes) == (pipe.name, pipe.unit, pipe.notes)
    (tmp_path / "t.csv").write_bytes(text)
    file = open_source(tmp_path / "t.csv")
    assert file.buffer() is file
    assert file.path == tmp_path / "t.csv"


def test_features_keep_their_names():
    source = open_source(io.BytesIO(b"x |a b:2\ny |a c\n"))
    kept = open_reader(source.buffer(), format="vw")
    for _ in range(2):
        (block,) = kept.read({"label": "text"})
        assert sorted(kept.feature_names(block.features.indices.tolist())) == ["a^b", "a^c"]


@pytest.mark.parametrize("ending", ["parquet", "feather", "arrows"])
def test_columns_are_kept(ending):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table, out = pa.table({"size": [1.5, 2.0], "kind": ["a", "b"]}), io.BytesIO()
    if ending == "arrows":
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    else:
        (parquet.write_table if ending == "parquet" else feather.write_feather)(table, out)
    kept = open_reader(open_source(io.BytesIO(out.getvalue())).buffer())
    for _ in range(2):
        (block,) = kept.read(KINDS)
        assert block.columns["size"].tolist() == [1.5, 2.0]
