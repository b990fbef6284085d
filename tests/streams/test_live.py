"""Streams that are read once: the same rows as of a file, in constant memory, as they come."""

import contextlib
import gzip
import io
import itertools
import json
import os
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.streams.files import format_of, has_target, needs_all, open_file, open_live
from folklearn.streams.table import classes
from folklearn.streams.tape import Tape
from tests.streams.test_files import FORMATS, TEXT, WRITERS, rows


def tape(content):
    return Tape(io.BytesIO(content), "stream")


def write_stream(X, y, path):
    ipc = pytest.importorskip("pyarrow.ipc")
    from tests.streams.test_files import arrow_table

    table = arrow_table(X, y)
    with ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


LIVE = {**{format: WRITERS[format] for format in TEXT}, "arrow": write_stream}


def opened(content, **more):
    source = content if isinstance(content, Tape) else tape(content)
    return open_live(source, "kind" if has_target(format_of(source)) else None, **more)


def read(live, size=5):
    blocks = list(iter(lambda: live.block(size), None))
    width = live.n_inputs
    X = [np.pad(block.X, ((0, 0), (0, width - block.X.shape[1]))) for block in blocks]
    return np.vstack(X), [label for block in blocks for label in block.labels]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", LIVE)
def test_the_rows_are_those_of_a_file(rng, tmp_path, format, packed):
    X, y = rows(rng, 40)
    LIVE[format](X, y, tmp_path / "data")
    content = (tmp_path / "data").read_bytes()
    if packed and format in TEXT:
        content = gzip.compress(content[:300]) + gzip.compress(content[300:])
    live = opened(content)
    found, labels = read(live)
    table = open_file(tmp_path / "data", "kind" if has_target(format) else None)
    ((expected, numbers, _),) = table.blocks(live.columns, classes(table), [100])
    np.testing.assert_array_equal(found, expected)
    assert labels == [classes(table)[k] for k in numbers]
    assert (live.n_rows, live.unit, live.name) == (40, table.unit, "stream")


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_what_cannot_be_read_once(rng, tmp_path, format):
    WRITERS[format](*rows(rng, 5), tmp_path / "data")
    source = tape((tmp_path / "data").read_bytes())
    assert needs_all(source, format_of(source))
    with pytest.raises(InvalidInputError, match=f"stream is {format}, which cannot be read as it"):
        open_live(source, "kind")
    assert source.read() == (tmp_path / "data").read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfa,kind\n1,p\n2,q\n",
        b"a,kind\r\n1,p\r\n2,q\r\n",
        b"a,kind\r1,p\r2,q",
        b"\n\na;kind\n\n1;p\n2;q",
        gzip.compress(b"\xef\xbb\xbfa,kind\n1,p\n2,q\n") + b"\0\0",
    ],
    ids=["BOM", "CRLF", "CR", "semicolons", "gzip with padding"],
)
@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_dialects_in_pieces_of_any_size(content, at_once):
    class Pieces(io.BytesIO):
        def read1(self, size=-1):
            return super().read(at_once)

    X, labels = read(opened(Tape(Pieces(content), "stream")))
    np.testing.assert_array_equal(X, [[1], [2]])
    assert labels == ["p", "q"]


def test_features_and_weights_as_they_come():
    live = opened(b"p 2 | a:1\nq | b:3 a:2\n\np | c\n")
    first = live.block(1)
    assert (live.columns, first.X.tolist(), first.weight.tolist()) == (("a",), [[1.0]], [2.0])
    rest = live.block(10)
    assert (live.columns, rest.weight, rest.lines) == (("a", "b", "c"), None, [2, 4])
    np.testing.assert_array_equal(rest.X, [[2, 3, 0], [0, 0, 1]])
    live = opened(b"p | a:1 z\n", columns=("z", "y"))
    np.testing.assert_array_equal(live.block(5).X, [[1, 0, 1]])
    assert live.columns == ("z", "y", "a")
    assert open_live(tape(b"0\n1 3:1\n"), None, "svmlight").columns == ("3",)


def test_text_and_gaps():
    live = opened(b"a,b,zip,kind\n1,red,7,p\n,,8,q\nnan,blue,9,q\n", text=["zip"])
    assert (live.text, live.n_inputs) == (("b", "zip"), 129)
    live.block(10)
    assert live.missing == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "stream is empty; expected a header"),
        (b"a,b\n1,2\n", "stream has no column 'kind'; its columns are: a, b"),
        (b"a,kind\n1,p\n2\n", "line 3 of stream has 1 cells where the header has 2"),
        (b"a,kind\n1,p\nx,q\n", "line 3 of stream, column 'a': 'x' is not a number; if the column"),
        (b"a,kind\n,p\nx,q\n", "line 3 of stream, column 'a': 'x' is not a number; missing in the"),
        (b"a,kind\n1,p\n2,\n", "line 3 of stream, column 'kind': the label is missing"),
        (b"a,kind\n1,p\n2,\xff\n", "stream is not UTF-8 text near line 3"),
        (b"1 | a\n2 | b:x\n", "line 2 of stream: feature 'b': 'x' is not a number"),
        (b"1 | a\n| b\n", "line 2 of stream: it has no label to learn from"),
        (b"1 |\n2 |\n", "stream names no feature"),
        (gzip.compress(b"a,kind\n1,p\n", mtime=0)[:-9], "stream is gzipped, and damaged or cut"),
        (gzip.compress(b"a,kind\n1,p\n", mtime=0) + b"x" * 20, "stream is gzipped, and damaged"),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00abc", "stream cannot be read: "),
    ],
)
def test_every_fault_is_named_with_its_place(content, sentence):
    with pytest.raises(InvalidInputError) as caught:
        read(opened(content))
    assert str(caught.value).startswith(sentence)


def test_a_target_that_numbers_the_rows():
    content = "a,kind\n" + "".join(f"1,{i}\n" for i in range(150))
    with pytest.raises(InvalidInputError, match="has 101 distinct labels in 101 rows; it looks"):
        read(opened(content.encode()))
    often = "a,kind\n" + "".join(f"1,{i}\n" for i in [*range(100), *range(100), *range(150)] * 2)
    assert len(set(read(opened(often.encode()))[1])) == 150


@pytest.mark.parametrize("format", LIVE)
def test_memory_does_not_grow_with_the_rows(rng, tmp_path, format, monkeypatch):
    monkeypatch.setattr("folklearn.streams.tape._CHUNK", 1024)
    LIVE[format](*rows(rng, 100), tmp_path / "few")
    LIVE[format](*rows(rng, 4000), tmp_path / "many")

    def peak(path):
        with open(path, "rb") as file:
            tracemalloc.start()
            try:
                live = opened(Tape(file, "stream"))
                while live.block(32):
                    pass
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    peak(tmp_path / "few")  # what is loaded once
    few, many = peak(tmp_path / "few"), peak(tmp_path / "many")
    assert many < few + 300_000  # free lists of the interpreter; all rows take 1,200,000


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize(
    ("head", "lines"),
    [
        (b"a,kind\n", [b"1,p\n", b"2,q\n", b"3,p\n"]),
        (b"", [b"p | a:1\n", b"q | a:2\n", b"p |\n"]),
        (b"", [b'{"a": 1, "kind": "p"}\n', b'{"a": 2, "kind": "q"}\n', b'{"kind": "p"}\n']),
    ],
    ids=["csv", "vw", "jsonl"],
)
def test_a_block_ends_when_nothing_waits(head, lines):
    """Written and read in turns: to wait for a line that was not written would never end."""
    source, sink = os.pipe()
    guard = threading.Timer(120.0, os.close, [sink])  # then the stream ends, and the test fails
    guard.start()
    with open(source, "rb") as file:
        os.write(sink, head + lines[0])
        live = opened(Tape(file, "stream"))
        assert live.block(100).labels == ["p"]
        os.write(sink, lines[1] + lines[2][:2])
        assert live.block(100).labels == ["q"]
        os.write(sink, lines[2][2:] + lines[0] * 3)
        assert live.block(3).labels == ["p", "p", "p"]
        assert live.block(3).labels == ["p"]
        guard.cancel()
        os.close(sink)
        assert live.block(3) is None


@given(
    content=st.binary(max_size=60)
    | st.lists(
        st.sampled_from([b"a,kind", b"1,p", b"x,q", b",", b"\n", b"\r", b'"', b"p |a:1", b"1 2:3",
                         b'{"a":1,"kind":2}', b"\x1f\x8b", b"PAR1", b"\xff\xff\xff\xff", b"nan"])
    ).map(b"\n".join),
    format=st.sampled_from([None, *FORMATS]),
    size=st.integers(1, 9),
)  # fmt: skip
def test_bytes_of_any_kind_give_rows_or_a_sentence(content, format, size):
    source = tape(content)
    with contextlib.suppress(FolklearnError):
        kind = format or format_of(source)
        live = open_live(source, "kind" if has_target(kind) else None, format)
        for _ in itertools.takewhile(bool, iter(lambda: live.block(size), None)):
            pass


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_ends_of_lines_within_quotes_are_those_of_a_file(tmp_path, end, at_once):
    class Pieces(io.BytesIO):
        def read1(self, size=-1):
            return super().read(at_once)

    content = end.join([b"t,kind", b'"one', b'two",p', b"", b'"three', b"", b'four",q', b""])
    (tmp_path / "t.csv").write_bytes(content)
    ((expected, _, _),) = open_file(tmp_path / "t.csv", "kind").blocks(["t"], ["p", "q"], [9])
    live = opened(Tape(Pieces(content), "stream"))
    X, labels = read(live)
    np.testing.assert_array_equal(X, expected)
    assert labels == ["p", "q"]
    assert list(Tape(Pieces(content), "stream").lines()) == list(
        io.TextIOWrapper(io.BytesIO(content), newline="")
    )


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_blank_line_holds_nothing_back(end):
    source, sink = os.pipe()
    guard = threading.Timer(120.0, os.close, [sink])  # then the stream ends, and the test fails
    guard.start()
    with open(source, "rb") as file:
        os.write(sink, b"a,kind" + end + b"1,p" + end * 3)
        live = opened(Tape(file, "stream"))
        assert live.block(100).labels == ["p"]
        os.write(sink, b"3,q" + end + b" " + end)
        assert live.block(100).labels == ["q"]
        os.write(sink, end + b"4,p" + end + end + b"5,q" + end + end)
        block = live.block(100)
        assert (block.labels, block.lines) == (["p", "q"], [8, 10])
        guard.cancel()
        os.close(sink)
        assert live.block(3) is None


def test_a_long_line_is_joined_once(monkeypatch):
    """Pieces of a line wait in a list: how much is copied does not grow with their number."""
    monkeypatch.setattr("folklearn.streams.tape._CHUNK", 1000)
    text = b"x" * 400_000
    source = tape(b"t,kind\n" + text + b",p\n")
    tracemalloc.start()
    try:
        list(source.lines())
        pieces = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pieces < 5 * len(text)
    source = tape(text)
    for _ in range(100):
        source._fill()
    assert len(source._rest) == 100
    assert max(map(len, source._rest)) == 1000


def test_one_rule_for_what_is_missing(tmp_path):
    """An empty cell and those that say so, in every format; of labels only empty and nan."""
    gaps = ["", "nan", "NA", "n/a", "NULL", " "]
    csv = "t,a,kind\nred,1,NA\n" + "".join(f"{gap},{gap},null\n" for gap in gaps)
    lines = [{"t": "red", "a": 1, "kind": "NA"}]
    lines += [{"t": gap, "a": gap, "kind": "null"} for gap in gaps]
    jsonl = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "t.csv").write_text(csv)
    (tmp_path / "t.jsonl").write_text(jsonl)
    names = ["t.csv", "t.jsonl"]
    with contextlib.suppress(ImportError):
        import pyarrow as pa
        import pyarrow.parquet as pq

        numbers = [1.0, *[None] * len(gaps)]
        kinds = ["NA", *["null"] * len(gaps)]
        pq.write_table(
            pa.table({"t": ["red", *gaps], "a": numbers, "kind": kinds}), tmp_path / "t.parquet"
        )
        names.append("t.parquet")
    for name in names:
        table = open_file(tmp_path / name, "kind")
        assert (table.text, table.missing) == (("t",), {"t": 6, "a": 6})
        assert set(table.first_lines) == {"NA", "null"}
        ((X, _, _),) = table.blocks(["t", "a"], ["NA", "null"], [9])
        assert not X[1:, 1:].any()
        assert np.isnan(X[1:, 0]).all()
    live = opened(b'{"t": "NA", "kind": "p"}\n{"t": 3, "kind": "q"}\n')
    assert live.text == ()
