"""Every format: found out, the same rows from a file and from a pipe, bad rows left out."""

import csv
import gzip
import io
import json
import os
import threading
import warnings

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.readers import open_reader

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS = ("1", "2", "3")
KINDS = {**dict.fromkeys(COLUMNS, "number"), "kind": "text"}


def write_csv(X, y, path):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(
            [[*COLUMNS, "kind"], *([*x, k] for x, k in zip(X, y, strict=True))]
        )


def write_svmlight(X, y, path):
    dump_svmlight_file(np.array(X), np.array(y), str(path), zero_based=False)


def write_vw(X, y, path):
    lines = []
    for x, k in zip(X, y, strict=True):
        words = " ".join(f"{c}:{v!r}" for c, v in zip(COLUMNS, x, strict=True) if v)
        lines.append(f"{k} | {words}\n")
    path.write_text("".join(lines))


def write_jsonlines(X, y, path):
    rows = (dict(zip((*COLUMNS, "kind"), (*x, k), strict=True)) for x, k in zip(X, y, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def table(X, y):
    return pa.table({**dict(zip(COLUMNS, zip(*X, strict=True), strict=True)), "kind": y})


def write_parquet(X, y, path):
    pq.write_table(table(X, y), path, row_group_size=50)


def write_arrow(X, y, path, new=pa.ipc.new_file):
    with new(str(path), table(X, y).schema) as writer:
        writer.write_table(table(X, y), max_chunksize=50)


def write_stream(X, y, path):
    write_arrow(X, y, path, pa.ipc.new_stream)


WRITERS = {
    "csv": write_csv,
    "jsonlines": write_jsonlines,
    "svmlight": write_svmlight,
    "vw": write_vw,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "stream": write_stream,
}
TEXT = ("csv", "jsonlines", "svmlight", "vw")


def some_rows(rng, n):
    X = rng.normal(size=(n, 3)) * [1.0, 1e3, 1e-3] * (rng.random((n, 3)) < 0.7)
    return X.round(4).tolist(), rng.integers(3, size=n).tolist()


def numbers(rows):
    """The matrix and the labels, whatever the format."""
    if rows.blocks[0].features is None:
        return [list(row) for row in zip(*map(rows.__getitem__, COLUMNS), strict=True)], rows[
            "kind"
        ]
    wide = [[row.get(int(column), 0.0) for column in COLUMNS] for row in rows.features]
    return wide, rows["label"]


def kinds_for(reader):
    return {"label": "text"} if "label" in reader.names else KINDS


@pytest.mark.parametrize("format", WRITERS)
def test_the_rows_do_not_depend_on_the_format_nor_on_the_way(rng, tmp_path, read, piped, format):
    X, y = some_rows(rng, 400)
    path = tmp_path / "data"  # no ending: the content must do
    WRITERS[format](X, y, path)
    content = path.read_bytes()
    ends = np.sort(rng.integers(len(content), size=30)).tolist()
    pieces = [content[a:b] for a, b in zip([0, *ends], [*ends, len(content)], strict=True)]
    for source in (path, io.BytesIO(content), piped(pieces)):
        reader = open_reader(source)
        assert reader.format == ("arrow" if format == "stream" else format)
        rows = read(reader, kinds_for(reader), max_rows=100)
        assert rows.error is None
        assert numbers(rows) == (X, [str(k) for k in y])
        assert rows.lines == list(range(1 + (format == "csv"), len(X) + 1 + (format == "csv")))
        if source is path:
            assert [len(block) for block in rows.blocks] == [100] * 4


@pytest.mark.parametrize("format", TEXT)
@pytest.mark.parametrize("pack", [gzip.compress, lambda data: pa.compress(data, "zstd", True)])
def test_text_may_be_packed_whatever_it_is_called(rng, tmp_path, read, piped, format, pack):
    X, y = some_rows(rng, 60)
    WRITERS[format](X, y, tmp_path / "plain")
    packed = pack((tmp_path / "plain").read_bytes())
    (tmp_path / "packed").write_bytes(packed)
    half = len(packed) // 2
    for source in (tmp_path / "packed", piped([packed[:1], packed[1:half], packed[half:]])):
        reader = open_reader(source)
        assert reader.format == format
        assert numbers(read(reader, kinds_for(reader))) == (X, [str(k) for k in y])


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.csv", "x", "csv"),
        ("a.TSV.gz", "x", "csv"),
        ("a.libsvm", "1", "svmlight"),
        ("a.vw.zst", "1 |", "vw"),
        ("a.ndjson", "{}", "jsonlines"),
        ("a.txt", "a", "csv"),
        ("a.txt", "a,y\n1,2\n", "csv"),
        ("a.txt", "a|b|y\n1|2|p\n", "csv"),
        ("a.txt", "\n  1 2.0 'tag |ns a b:2\n", "vw"),
        ("a.txt", "1 'tag|ns a b:2\n", "vw"),
        ("a.txt", "| a b:2\n", "vw"),
        ("a.txt", "# made by hand\n+1 qid:3 1:2 3:4 # end\n", "svmlight"),
        ("a.txt", '{"a": 1}\n', "jsonlines"),
    ],
)
def test_the_format_is_found_out(write, name, content, format):
    assert open_reader(write(content, name)).format == format


_NO_ROWS = "rows come from a file, a data frame or a list of dictionaries, not from"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("/no/such/file.csv", "/no/such/file.csv cannot be read: no such file or directory"),
        (os.curdir, ". cannot be read: is a directory"),
        (7, f"{_NO_ROWS} int"),
        ({"a": 1}, f"{_NO_ROWS} dict"),
        (np.eye(2), f"{_NO_ROWS} ndarray"),
    ],
)
def test_what_holds_no_rows(source, sentence):
    with pytest.raises(InvalidInputError) as caught:
        open_reader(source)
    assert str(caught.value).partition("; one row is [row]")[0] == sentence


def test_a_column_or_a_lazy_frame_is_told_what_makes_it_a_frame():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    lazy = pl.LazyFrame({"a": [1.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # polars warns whoever reads `columns` of a lazy frame
        columns = [(kind([1.0]), "to_frame") for kind in (pd.Series, pl.Series)]
        for source, how in [*columns, (lazy, "collect")]:
            with pytest.raises(InvalidInputError, match=rf"\.{how}\(\)"):
                open_reader(source)


def test_formats_by_name(write):
    path = write("1 |a b\n", "data.csv")
    reader = open_reader(path, format="vw")
    assert (reader.format, open_reader(reader)) == ("vw", reader)
    assert open_reader(write('{"a": 1}\n', "a.log"), format="jsonl").format == "jsonlines"
    with pytest.raises(FolklearnError, match="there is no format 'xls', only: csv, jsonl"):
        open_reader(path, format="xls")
    for name, sentence in (("a.parquet", "neither a Parquet"), ("a.feather", "neither a Parquet")):
        with pytest.raises(InvalidInputError, match=sentence):
            open_reader(write("abc", name))


def test_standard_input_and_named_pipes(piped, read, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(piped([b"a,y\n1,p\n2"])))
    reader = open_reader("-")
    assert (reader.name, reader.is_live) == ("standard input", True)
    assert str(read(reader).error).startswith("line 3 of standard input: it has 1 cells, the")
    os.mkfifo(tmp_path / "fifo")
    thread = threading.Thread(target=(tmp_path / "fifo").write_bytes, args=[b"a,y\n1,p\n"])
    thread.start()
    reader = open_reader(tmp_path / "fifo")
    assert (read(reader)["y"], reader.can_reread) == (["p"], False)
    thread.join()


def test_a_pipe_is_read_once(piped, read):
    reader = open_reader(piped([b"a,y\n1,p\n"]))
    assert (reader.can_reread, reader.is_live) == (False, True)
    assert read(reader)["a"] == ["1"]
    assert reader.head().columns["a"].to_list() == ["1"]
    with pytest.raises(InvalidInputError, match="can be read only once; store it in a file"):
        reader.read({"a": "text"})


@pytest.mark.parametrize(
    ("head", "lines", "label"),
    [
        (b"a,kind\n", [b"1,p\n", b"2,q\n", b"3,p\n"], "kind"),
        (b"a,kind\n", [b'1,"p"\n', b'2,"q"\n', b'3,"p"\n'], "kind"),
        (b"", [b"p | a:1\n", b"q | a:2\n", b"p |\n"], "label"),
        (b"", [b"p 3:1\n", b"q 3:2\n", b"p 7:1\n"], "label"),
        (b"", [b'{"a": 1, "kind": "p"}\n', b'{"a": 2, "kind": "q"}\n', b'{"kind": "p"}\n'], "kind"),
    ],
    ids=["csv", "quotes", "vw", "svmlight", "jsonlines"],
)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_rows_of_a_pipe_come_as_they_are_written(head, lines, label, packed, end):
    """Written and read in turns: to wait for a line that was not written would never end."""
    if packed:
        gz = io.BytesIO()
        file = gzip.GzipFile(fileobj=gz, mode="wb")

    def send(data):
        data = data.replace(b"\n", end)
        if packed:
            file.write(data)
            file.flush()
            data, _ = gz.getvalue(), gz.truncate(0)
            gz.seek(0)
        os.write(sink, data)

    source, sink = os.pipe()
    guard = threading.Timer(120.0, os.close, [sink])  # then the stream ends, and the test fails
    guard.start()
    with open(source, "rb") as stream:
        send(head + lines[0])
        reader = open_reader(stream)
        assert len(reader.head()) == 1
        blocks = reader.read({label: "text"}, max_rows=3)

        def labels():
            return next(blocks).columns[label].to_list()

        assert labels() == ["p"]
        send(lines[1] + lines[2][:2])
        assert labels() == ["q"]
        send(lines[2][2:] + lines[0] * 3 + b"\n")
        assert labels() == ["p"] * 3
        assert labels() == ["p"]
        guard.cancel()
        if packed:
            file.close()
            os.write(sink, gz.getvalue())
        os.close(sink)
        assert next(blocks, None) is None


@pytest.mark.parametrize(
    ("format", "head", "good", "bad"),
    [
        ("csv", "a,label\n", "1,p\n", ["x,p\n", "1\n", '1,"p"q\n', "1,p,3\n", "1,\udcff\n"]),
        (
            "jsonlines", "", '{"a": 1, "label": "p"}\n',
            ['{"a": "x", "label": 1}\n', "{\n", "3\n", '{"a": [1]}\n', '{"a": "\udcff"}\n'],
        ),
        ("svmlight", "", "p 1:1\n", ["p 1\n", "p 1:x\n", "1,2 3:4\n", "p 1:1 1:2\n", "p \udcff\n"]),
        ("vw", "", "p | a:1\n", ["p a\n", "p | a:x\n", "1 2 3 |\n", "p -1 | a\n", "p | \udcff\n"]),
    ],
)  # fmt: skip
def test_bad_rows_are_left_out_exactly(
    rng, write, read, piped, monkeypatch, format, head, good, bad
):
    monkeypatch.setattr("folklearn.readers.source._FIRST_READ_BYTES", 200)
    monkeypatch.setattr("folklearn.readers.source._READ_BYTES", 200)
    kinds = {"label": "text"} if format in ("vw", "svmlight") else {"a": "number", "label": "text"}
    is_bad = rng.random(300) < 0.1
    is_bad[0] = False
    texts = [bad[rng.integers(len(bad))] if wrong else good for wrong in is_bad]
    content = (head + "".join(texts)).encode("utf-8", "surrogateescape")
    first = 1 + bool(head)
    bad_lines = (np.flatnonzero(is_bad) + first).tolist()
    good_lines = (np.flatnonzero(~is_bad) + first).tolist()
    path = write(content, "data")
    for source in (path, piped([content[:500], content[500:]])):
        rows = read(open_reader(source, format=format), kinds, skip=True)
        assert (rows.lines, [row.line for row in rows.bad]) == (good_lines, bad_lines)
        assert rows["label"] == ["p"] * len(good_lines)
        written = [
            texts[line - first].rstrip("\n").replace("\udcff", "\ufffd") for line in bad_lines
        ]
        assert [row.text for row in rows.bad] == written
    stopped = read(open_reader(path, format=format), kinds, max_rows=7)
    assert stopped.error.line == bad_lines[0]
    assert stopped.lines == [line for line in good_lines if line < bad_lines[0]]


def test_one_rule_for_what_is_missing(write, read):
    texts = ["NA", "n/a", "NULL", "null", "N.A.", "None", "#N/A", "?", " -"]  # of categories
    gaps = ["", "nan", " ", *texts]
    paths = [write("t,a\nred,1\n" + "".join(f"{gap},{gap}\n" for gap in gaps))]
    lines = [{"t": "red", "a": 1}, *({"t": gap, "a": gap} for gap in gaps)]
    paths.append(write("".join(json.dumps(line) + "\n" for line in lines), "t.jsonl"))
    columns = {"t": ["red", *gaps], "a": ["1", *gaps]}
    pq.write_table(pa.table(columns), paths[0].parent / "t.parquet")
    for source in (*paths, paths[0].parent / "t.parquet", lines, pa.table(columns)):
        reader = open_reader(source)
        rows = read(reader, {"t": "text", "a": "number"})
        assert rows["t"] == ["red", *[None] * 3, *(text.strip() for text in texts)]
        assert rows["a"] == [1.0, *[None] * 12]
        assert reader.missing.taken["a"] == {"N.A.", "None", "#N/A", "?", "-"}
