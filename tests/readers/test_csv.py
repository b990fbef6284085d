"""CSV files: what is read, and the sentence for everything that cannot be."""

import gzip
import pickle

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from folklearn.errors import InvalidInputError
from folklearn.readers import BadRow, open_reader
from folklearn.readers.csv import CsvReader, split_records
from folklearn.readers.source import ByteSource, Chunk
from tests.readers.conftest import Rows

pa = pytest.importorskip("pyarrow")


def opened(path, **more):
    return CsvReader(ByteSource(path, "data.csv", more.pop("encoding", None)), **more)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfa,y\n1,p\n2,q\n",
        b"a,y\r\n1,p\r\n2,q\r\n",
        b'"a","y"\n"1","p"\n"2","q"\n',
        b'a, "y"\n 1 , p\n2, "q "\n',
        b"\na,y\n\n1,p\n  \n2,q\n\n\n",
        b"a;y\n1;p\n2;q\n",
        b"a\ty\n1\tp\n2\tq\n",
        b"a|y\n1|p\n2|q\n",
        b'"a";"y"\n1;p\n2;"q"\n',
        b"a;y\n1,0;p\n2;q\n",
        "a,y\n1,p\n2,q\n".encode("utf-16"),
        "a,y\n1,p\n2,q\n".encode("utf-16-le"),
        gzip.compress(b"a,y\n1,p\n2,q\n", mtime=0),
        gzip.compress(b"a,y\n1,", mtime=0) + gzip.compress(b"p\n2,q\n", mtime=0) + b"\0\0",
        pa.compress(b"a,y\n1,p\n2,q\n", codec="zstd", asbytes=True),
    ],
    ids=[
        "BOM", "CRLF", "quotes", "spaces", "blank lines", "semicolons", "tabs", "bars",
        "quotes and semicolons", "decimal comma", "UTF-16", "UTF-16 without mark",
        "gzip", "two gzips and padding", "zstd",
    ],
)  # fmt: skip
def test_dialects_of_the_same_table(write, read, content):
    reader = opened(write(content))
    assert reader.names == ("a", "y")
    rows = read(reader, {"a": "number", "y": "text"})
    assert (rows["a"], rows["y"], rows.error) == ([1.0, 2.0], ["p", "q"], None)


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        (b"a,y\n1,p\n", []),
        (b"a;b;y\n1;2;p\n", ["separated by semicolons"]),
        (b"a;1\tb\ty\n1\t2\tp\n", ["separated by tabs"]),
        (b"a;b;y\n1,5;2;p\n", ["separated by semicolons", "decimal comma"]),
        (b"a;b;y\n1,5;2.5;p\n", ["separated by semicolons"]),
        ("a;b;y\n1.234,5 €;2;p\n".encode(), ["separated by semicolons", "decimal comma"]),
        (b"a;b;y\n$1,234.5;2;p\n", ["separated by semicolons"]),
        ("a,y\n1,p\n".encode("utf-16"), ["encoding utf-16"]),
    ],
)
def test_what_was_found_out_is_said(write, content, notes):
    assert opened(write(content)).notes == notes


def test_what_the_caller_says_is_not_guessed(write, read):
    path = write("a,b;y\n1,5;é\n")
    assert opened(path).names == ("a", "b;y")
    assert opened(path, delimiter=";").names == ("a,b", "y")
    path = write("a;y\n1,5;é\n".encode("cp1252"))
    reader = opened(path, encoding="cp1252", decimal=",", delimiter=";")
    rows = read(reader, {"a": "number", "y": "text"})
    assert (rows["a"], rows["y"], reader.notes) == ([1.5], ["é"], [])
    rows = read(opened(path, encoding="cp1252", decimal="."), {"a": "number"})
    assert "'1,5' is not a number; decimals have '.' here, not ','" in str(rows.error)
    with pytest.raises(InvalidInputError, match="expected one character"):
        opened(path, delimiter="||")
    with pytest.raises(InvalidInputError, match="expected '.' or ','"):
        opened(path, decimal="'")
    with pytest.raises(InvalidInputError, match="there is no encoding 'klingon'"):
        opened(path, encoding="klingon")
    with pytest.raises(InvalidInputError, match="there is no encoding 'base64'"):
        opened(path, encoding="base64")


def test_texts_may_hold_anything(write, read):
    texts = ['say "hi", you', "[red]", "день", "two\nlines", 'a 5" pipe']
    quoted = ['"say ""hi"", you"', "[red]", "день", '"two\nlines"', 'a 5" pipe']
    content = "a,y\n" + "".join(f"1,{text}\n" for text in quoted)
    rows = read(opened(write(content)))
    assert rows["y"] == texts
    assert rows.lines == [2, 3, 4, 5, 7]


def test_a_header_that_looks_like_a_row_is_noted(write):
    reader = open_reader(write("5.1,3.5,setosa\n4.9,3,setosa\n"))
    assert reader.notes[0].startswith("line 1 is taken for names, and has numbers")
    assert open_reader(write("2019,2020,y\n4.9,3,a\n")).notes == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "data.csv is empty; expected a header"),
        ("\n\n", "data.csv is empty"),
        ("a,b\n1,2\n", "data.csv has no column 'y'; its columns are: a, b"),
        ("a,Year\n1,2\n", "data.csv has no column 'y'; its columns are: a, Year"),
        ("a,,y\n0,2,p\n", "column 2 of data.csv has no name, line 1"),
        ("1,2.5,3\n4,5,6\n", "line 1 of data.csv is a row of numbers; put a line with the names"),
        (b"a,\xff,y\n", "line 1 of data.csv: it has bytes that are not UTF-8; name the encoding"),
        ('a,"y\n1,2\n', "line 1 of data.csv: it cannot be read as CSV"),
        (gzip.compress(b"a,y\n1,p\n", mtime=0)[:-9], "data.csv is gzipped, and damaged or cut off"),
        (
            b"BZh91AY&SY",
            "data.csv is an archive or a workbook: unpack it, or save",
        ),
        (
            b"PK\x03\x04....",
            "data.csv is an archive or a workbook: unpack it, or save",
        ),
        (b"a,y\r1,p\r2,q", "line 1 of data.csv: it cannot be read as CSV"),
        (pickle.dumps({"a": 1}), "data.csv is binary, or text in another encoding"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "data.csv is binary, or text in another encoding"),
        (b"a,b\1\n1,2\n", "data.csv is binary, or text in another encoding, such as encoding="),
        (b'\x40\0\0\0\0\0\0\0{"a":1}', "data.csv is a saved model, or the like, and not rows"),
        (b"\x28\xb5\x2f\xfd.......", "data.csv is packed with zstd, and damaged"),
    ],
)
def test_files_that_are_refused(write, read, content, sentence):
    with pytest.raises(InvalidInputError) as caught:
        list(opened(write(content)).read({"y": "text"}))
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("1,2,p\n1,2\n", "line 3 of data.csv: it has 2 cells, the header 3"),
        ("1,2,p,4\n", "line 2 of data.csv: it has 4 cells, the header 3"),
        ("1,2,p\n1,two,q\n", "line 3 of data.csv, column 'b': 'two' is not a number; for a column"),
        ("1,2,p\n1,1_000,p\n", "line 3 of data.csv, column 'b': '1_000' is not a number"),
        ("1,2,p\n1,??,q\n", "line 3 of data.csv, column 'b': '??' is not a number"),
        (",,p\n1,inf,q\n", "line 3 of data.csv, column 'b': 'inf' is not finite"),
        (",9e99,p\n", "line 2 of data.csv, column 'b': '9e99' is too large"),
        ("-inf,2,p\n", "line 2 of data.csv, column 'a': '-inf' is not finite"),
        ('1,2,"p\nq"\n1,x,p\n', "line 4 of data.csv, column 'b': 'x' is not a number"),
        ('\n1,2,p\n1,2,"p\n', "line 4 of data.csv: it cannot be read as CSV"),
        (b"1,2,\xff\n", "line 2 of data.csv: it has bytes that are not UTF-8; name the encoding"),
        ("1,2,\0\n", "line 2 of data.csv: it has a NUL byte"),
        ("1,2\r3,4\n", "line 2 of data.csv: it cannot be read as CSV"),
        ('1,2,"p"q\n', "line 2 of data.csv: it cannot be read as CSV"),
    ],
)
def test_bad_rows_are_named_with_their_place(write, read, rows, sentence):
    content = b"a,b,y\n" + (rows if isinstance(rows, bytes) else rows.encode())
    kinds = {"a": "number", "b": "number", "y": "text"}
    found = read(opened(write(content)), kinds)
    assert isinstance(found.error, BadRow)
    assert str(found.error).startswith(sentence)
    other_encoding = b"\xff" in content or b"\0" in content  # then half the rows might be lost
    assert str(found.error).endswith("to leave bad rows out: on_bad=print") != other_encoding
    assert f"line {found.error.line} of" in sentence
    assert all(line < found.error.line for line in found.lines)
    skipped = read(opened(write(content)), kinds, skip=True)
    assert (skipped.error, [str(bad) for bad in skipped.bad]) == (None, [str(found.error)])


def test_what_a_bad_row_says(write, read):
    (bad,) = read(opened(write("zip code,y\n1,p\nx,q\n")), {"zip code": "number"}, skip=True).bad
    assert (bad.line, bad.column, bad.text) == (3, "zip code", "x,q")
    assert "for a column of text: roles={'zip code': 'category'}" in str(bad)


def test_an_open_quote_spoils_one_row(write, read):
    rows = read(opened(write('a,y\n1,p\n2,"q\n3,r\n4,s\n')), {"a": "number"}, skip=True)
    assert (rows["a"], rows.lines) == ([1.0, 3.0, 4.0], [2, 4, 5])
    assert [bad.line for bad in rows.bad] == [3]


def test_every_kind(write, read):
    content = (
        "n,t,d\n1, red ,2024-05-01\nNA,,null\n-2e3,nan,2024-05-01T10:30:00+02:00\nnan,red,\n"
        "+.5,'x',2024-05-01 10:30\ntrue,y,2024-01-01\n"
    )
    for extra in ("", '1,"quoted",2024-01-01\n', "1_,x,\n"):  # by pyarrow, or by Python
        kinds = {"n": "number", "t": "text", "d": "date"}
        rows = read(opened(write(content + extra)), kinds, skip=True)
        assert rows["n"][:6] == [1.0, None, -2000.0, None, 0.5, 1.0]
        assert rows["t"][:6] == ["red", None, None, "red", "'x'", "y"]
        assert [str(value)[:19] for value in rows["d"][:6]] == [
            "2024-05-01T00:00:00", "None", "2024-05-01T08:30:00", "None", "2024-05-01T10:30:00",
            "2024-01-01T00:00:00",
        ]  # fmt: skip
    rows = read(opened(write("d\n2024-05-01\n1.5.24\n")), {"d": "date"})
    assert "'1.5.24', unlike 2024-05-01T10:30, is not a date; for a column" in str(rows.error)


def test_dates_and_amounts_as_people_write_them(write, read):
    kinds = {"iso": "date", "eu": "date", "us": "month/day", "gb": "day/month", "price": "number"}
    rows = read(
        opened(write("iso|eu|us|gb|price\n2024/5/1|01.05.2024 9:30|5/1/2024|1-5-2024|$5,643.83\n")),
        kinds,
    )
    assert rows["eu"] == ["2024-05-01T09:30:00.000000"]
    assert rows["iso"] == rows["us"] == rows["gb"] == ["2024-05-01T00:00:00.000000"]
    assert rows["price"] == [5643.83]
    path = write("price;share\n-1.250,5 €;12,5 %\n€ 7;0%\n3;\n")
    rows = read(opened(path), dict.fromkeys(("price", "share"), "number"))
    assert (rows["price"], rows["share"]) == ([-1250.5, 7.0, 3.0], [0.125, 0.0, None])


def test_a_date_whose_day_and_month_cannot_be_told_apart(write, read):
    rows = read(opened(write("d\n5/1/2024\n")), {"d": "date"})
    assert str(rows.error).startswith(
        "line 2 of data.csv, column 'd': '5/1/2024' may begin with the day or the month, and its "
        "role must say which: roles={'d': 'day/month'} or roles={'d': 'month/day'}"
    )


def test_only_what_is_asked_for_is_read(write, read):
    rows = read(opened(write("a,b,y\n1,x,p\n2,3,q\n")), {"y": "text", "a": "number"})
    assert (rows.names, rows["a"]) == (["y", "a"], [1.0, 2.0])
    assert read(opened(write("a,b\n1,x\n2,3\n")), {}).lines == [2, 3]


def test_the_head_is_text_and_takes_nothing_away(write, read):
    reader = opened(write("a,y\n" + "1,p\n2\n3,q\n" * 800))
    head = reader.head(5)
    assert head.columns["a"].to_list() == ["1", "3", "1", "3", "1"]
    assert (head.lines.tolist(), len(reader.head()), len(reader.head(10**4))) == (
        [2, 4, 5, 7, 8], 1000, 1000,
    )  # fmt: skip
    assert len(read(reader, skip=True).lines) == 1600
    assert len(opened(write("a,y\n")).head()) == 0


def test_the_index_of_pandas(write, read):
    reader = opened(write(",a,y\n0,5,p\n1,6,q\n"))
    assert reader.names == ("", "a", "y")
    assert read(reader, {"": "number"})[""] == [0.0, 1.0]


def test_columns_of_one_name(write, read):
    reader = opened(write("a,a,a.1,a,y\n1,2,3,4,p\n"))
    assert reader.names == ("a", "a.2", "a.1", "a.3", "y")
    assert reader.notes == ["duplicate column names: the later ones were renamed a.2, a.3"]
    rows = read(reader)
    assert [rows[name] for name in reader.names] == [["1"], ["2"], ["3"], ["4"], ["p"]]


def test_a_name_that_is_nearly_right(write):
    reader = opened(write("a,y\n1,p\n"))
    with pytest.raises(InvalidInputError, match=r"no column 'Y'; did you mean 'y'\? Its columns"):
        reader.read({"Y": "text"})


def test_one_column(write, read):
    rows = read(opened(write("a\n1\n\n  \n2\n")), {"a": "number"})
    assert (rows["a"], rows.lines) == ([1.0, 2.0], [2, 5])


def test_empty_cells_between_tabs_are_a_row(write, read):
    rows = read(opened(write("a\tb\n1\t2\n\t\n3\t4\n")), {"a": "number"})
    assert (rows["a"], rows.lines) == ([1.0, None, 3.0], [2, 3, 4])


def test_blocks_are_full_across_chunks(write, read, monkeypatch):
    monkeypatch.setattr("folklearn.readers.source._FIRST_READ_BYTES", 64)
    monkeypatch.setattr("folklearn.readers.source._READ_BYTES", 100)
    content = "a,y\n" + "".join(f'{i},"c{i % 7}\n"\n' for i in range(100))
    rows = read(opened(write(content)), {"a": "number", "y": "text"}, max_rows=16)
    assert [len(block) for block in rows.blocks] == [16] * 6 + [4]
    assert rows["a"] == list(range(100))
    assert rows["y"] == [f"c{i % 7}" for i in range(100)]
    assert rows.lines == [2 + 2 * i for i in range(100)]


def test_a_file_that_changed(write, read):
    reader = opened(write("a,y\n1,p\n"))
    write("a,y\n1,p\n2,q\n")
    assert read(reader, {"a": "number"})["a"] == [1.0, 2.0]
    for content in ("b,y\n1,p\n", ""):
        write(content)
        assert str(read(reader, {"a": "number"}).error) == (
            "data.csv does not have the columns it had before"
        )


def test_long_lines_are_refused_or_cut_at_their_first_quote(write, read, monkeypatch):
    monkeypatch.setattr("folklearn.readers.source._MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("folklearn.readers.source._FIRST_READ_BYTES", 300)
    monkeypatch.setattr("folklearn.readers.source._READ_BYTES", 300)
    rows = read(opened(write("a,y\n1,p\n" + "x" * 2000)), {"a": "number"})
    assert rows["a"] == [1.0]
    assert str(rows.error).startswith("line 3 of data.csv is too long")
    rows = read(opened(write('a,y\n1,"p\n' + "2,q\n" * 500)), {"a": "number"}, skip=True)
    assert ([bad.line for bad in rows.bad], len(rows.lines)) == ([2], 500)


def test_memory_does_not_grow_with_the_rows(write):
    content = "a,b,y\n" + "1.25,-3.5,p\n" * 300_000  # 3.6 MB; all rows as numbers take 4.8
    reader = open_reader(write(content))
    kinds = {"a": "number", "b": "number", "y": "text"}
    before = pa.total_allocated_bytes()
    most = 0
    for _ in reader.read(kinds, max_rows=100):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 40_000_000
    assert sum(len(block) for block in reader.read(kinds)) == 300_000


CELLS = st.sampled_from(
    ["1", "-2.5", "+3", ".5", "1e5", "1e400", "inf", "nan", "NA", "-", " 7 ", "\t8", "", "x",
     "true", "?", "1_0", "0x1", "1,5", '"1"', '" 2"', ' "3"', '"a""b"', '"two\nlines"', '5"', '"',
     '"crlf\r\n"',
     '"x"y', "é", "\u00a01", "2024-05-01", "2024-05-01T10:30Z", "1;2", "12345678901234567",
     '"$1,234.5"', "€1.234", "-7 %", "5/1/2024", "31.1.2024 9:05"]
)  # fmt: skip


@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    delimiter=st.sampled_from(",;\t"),
    kinds=st.tuples(*[st.sampled_from(["number", "text", "date", "day/month"])] * 2),
    decimal=st.sampled_from(".,"),
)
@settings(max_examples=200)
def test_pyarrow_and_python_read_the_same(tmp_path_factory, rows, end, delimiter, kinds, decimal):
    """What a chunk gives does not depend on whether it has a fault elsewhere."""
    path = tmp_path_factory.getbasetemp() / "both.csv"
    text = end.join(delimiter.join(row) for row in [["a", "b"], *rows])
    path.write_bytes(text.encode())
    reader = opened(path, delimiter=delimiter, decimal=decimal)
    wanted = dict(zip("ab", kinds, strict=True))
    found = Rows(reader, wanted, skip=True)
    for row in found.bad:
        assert row.line not in found.lines
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CsvReader, "_parse_regular", lambda *_: None)
        slow = Rows(reader, wanted, skip=True)
    assert found.table == slow.table
    assert [str(bad) for bad in found.bad] == [str(bad) for bad in slow.bad]
    # Without its bad rows the text is read by pyarrow, and says the same.
    good = {1, *slow.lines}
    whole = dict(split_records(Chunk(text.encode() + b"\n", 1), delimiter))
    assume(good <= whole.keys())  # a quote that is never closed has the good rows after it inside
    path.write_bytes(b"".join(whole[line] for line in sorted(good)))
    fast = Rows(opened(path, delimiter=delimiter, decimal=decimal), wanted, skip=True)
    assert (fast.table[0], fast.bad) == (slow.table[0], [])
