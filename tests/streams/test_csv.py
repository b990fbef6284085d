"""CSV files: what is read, and the sentence for everything that cannot be."""

import gzip
import itertools

import numpy as np
import pytest

from folklearn.errors import InvalidInputError
from folklearn.model.hashing import TextHasher
from folklearn.streams import scanned
from folklearn.streams.csv import CsvSource, header, scan
from folklearn.streams.table import classes


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "data.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def read(table, size=2):
    blocks = list(table.blocks(table.columns, classes(table), itertools.repeat(size)))
    return np.vstack([X for X, _, _ in blocks]), np.concatenate([y for _, y, _ in blocks])


def test_columns_classes_and_rows(write):
    table = scan(write("a,kind,b\n1,x,2\n3,y,4\n5,x,6\n"), "kind")
    assert (table.columns, table.target, table.n_rows) == (("a", "b"), "kind", 3)
    assert classes(table) == ("x", "y")
    assert table.first_lines == {"x": 2, "y": 3}
    X, y = read(table)
    np.testing.assert_array_equal(X, [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(y, [0, 1, 0])


def test_blocks_have_the_sizes_asked_for(write):
    table = scan(write("a,y\n" + "1,0\n2,1\n" * 5), "y")
    blocks = table.blocks(("a",), ("0", "1"), iter([1, 3, 100, 100]))
    assert [len(y) for _, y, _ in blocks] == [1, 3, 6]


def test_columns_come_in_the_order_asked_for(write):
    table = scan(write("a,b,y\n1,2,0\n3,4,1\n"), "y")
    ((X, y, _),) = table.blocks(("b", "a"), ("1", "0"), [10])
    np.testing.assert_array_equal(X, [[2, 1], [4, 3]])
    np.testing.assert_array_equal(y, [1, 0])


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfa,y\n1,p\n2,q\n",
        b"a,y\r\n1,p\r\n2,q\r\n",
        b"a,y\r1,p\r2,q",
        b'"a","y"\n"1","p"\n"2","q"\n',
        b'a, "y"\n 1 , p\n2, "q "\n',
        b"\na,y\n\n1,p\n  \n2,q\n\n\n",
        b"a;y\n1;p\n2;q\n",
        b"a\ty\n1\tp\n2\tq\n",
        b'"a";"y"\n1;p\n2;"q"\n',
        gzip.compress(b"a,y\n1,p\n2,q\n", mtime=0),
    ],
    ids=[
        "BOM",
        "CRLF",
        "CR",
        "quotes",
        "spaces",
        "blank lines",
        "semicolons",
        "tabs",
        "quotes and semicolons",
        "gzip",
    ],
)
def test_dialects_of_the_same_table(write, content):
    table = scan(write(content), "y")
    X, y = read(table)
    assert table.columns == ("a",)
    assert classes(table) == ("p", "q")
    np.testing.assert_array_equal(X, [[1], [2]])
    np.testing.assert_array_equal(y, [0, 1])


def test_labels_may_hold_anything(write):
    labels = ['say "hi", you', "[red]", "день", "two\nlines"]
    quoted = ['"say ""hi"", you"', "[red]", "день", '"two\nlines"']
    table = scan(write("a,y\n" + "".join(f"1,{label}\n" for label in quoted)), "y")
    assert set(classes(table)) == set(labels)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["10", "9", "-1"], ("-1", "9", "10")),
        (["10", "9", "b"], ("10", "9", "b")),
        (["2.5", "1e1", "2"], ("2", "2.5", "1e1")),
        (["1", "1.0"], ("1", "1.0")),
        (["inf", "2", "10"], ("10", "2", "inf")),
    ],
)
def test_labels_that_are_numbers_are_sorted_as_numbers(write, found, expected):
    content = "a,y\n" + "".join(f"1,{label}\n" for label in found)
    assert classes(scan(write(content), "y")) == expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "data.csv is empty"),
        ("\n\n", "data.csv is empty"),
        ("a,b,y\n", "data.csv has a header but no rows"),
        ("a,b\n1,2\n", "data.csv has no column 'y'; its columns are: a, b"),
        ("y\n1\n", "data.csv has no column beside the target 'y'"),
        ("a,a,y\n1,2,p\n", "data.csv has two columns named 'a'"),
        (",a,y\n0,2,p\n", "column 1 of data.csv has no name in line 1"),
        ("a,b,y\n1,2,p\n1,2\n", "line 3 of data.csv has 2 cells where the header has 3"),
        ("a,b,y\n1,2,p,4\n", "line 2 of data.csv has 4 cells where the header has 3"),
        ("a,b,y\n1,2,p\n1,two,q\n", "line 3 of data.csv, column 'b': 'two' is not a number"),
        ("a,b,y\n1,2,p\n1,1_000,p\n", "line 3 of data.csv, column 'b': '1_000' is not a number"),
        ("a,b,y\n1,2,p\n1,?,q\n", "line 3 of data.csv, column 'b': '?' is not a number; if the co"),
        ("a,b,y\n,,p\n1,inf,q\n", "line 3 of data.csv, column 'b': 'inf' is not finite"),
        ("a,b,y\n,9e99,p\n", "line 2 of data.csv, column 'b': '9e99' is too large"),
        ("a,b,y\n-inf,2,p\n", "line 2 of data.csv, column 'a': '-inf' is not finite"),
        ("a,b,y\n1,1e101,p\n", "line 2 of data.csv, column 'b': '1e101' is too large"),
        ("a,b,y\n9e99,9e99,p\n", "line 2 of data.csv, column 'a': '9e99' is too large"),
        ("a,b,y\n1,2, \n", "line 2 of data.csv, column 'y': the label is missing"),
        ("a,b,y\n1,2,nan\n", "line 2 of data.csv, column 'y': the label is missing"),
        ('a,b,y\n1,2,"p\nq"\n1,x,p\n', "line 4 of data.csv, column 'b': 'x' is not a number"),
        ('a,b,y\n\n1,2,p\n1,2,"p\n', "line 4 of data.csv cannot be read as CSV"),
        (b"a,b,y\n1,2,\xff\n", "data.csv is not UTF-8 text"),
        ("a;y\n1,5;p\n", "line 2 of data.csv, column 'a': '1,5' is not a number; decimals have"),
        ("a b y\n1 2 p\n", "data.csv has no column 'y'; its columns are: 'a b y'"),
        (gzip.compress(b"a,y\n1,p\n", mtime=0)[:-9], "data.csv is gzipped, and damaged or cut off"),
        (gzip.compress(b"a,y\n1,\xff\n", mtime=0), "data.csv is not UTF-8 text"),
    ],
)
def test_every_fault_is_named_with_its_place(write, content, sentence):
    with pytest.raises(InvalidInputError) as caught:
        scan(write(content), "y", "data.csv")
    assert str(caught.value).startswith(sentence)


def test_gaps_are_counted_and_text_is_hashed(write):
    content = "a,colour,b,code,y\n1,red,,7,p\nNA, ,n/a,8,q\nnull, red ,2,NaN,q\n"
    table = scanned.scan(CsvSource(write(content)), "y", text=["code"])
    assert (table.text, table.n_inputs) == (("colour", "code"), 130)
    assert table.missing == {"a": 2, "b": 2, "colour": 1, "code": 1}
    X, _ = read(table)
    np.testing.assert_array_equal(X[:, :2], [[1, np.nan], [np.nan, np.nan], [np.nan, 2]])
    texts = {"colour": ["red", None, "red"], "code": ["7", "8", None]}
    np.testing.assert_array_equal(X[:, 2:], TextHasher().columns(texts))
    columns = ("code", "b", "colour", "a")
    ((other, _, _),) = table.blocks(columns, ("p", "q"), [9])
    np.testing.assert_array_equal(other[:, :2], X[:, [1, 0]])


def test_the_first_value_decides(write):
    content = "a,b,c,d,y\n,,,,p\n1,x,,,p\nnan,1,,2.5e3,q\n"
    assert scan(write(content), "y").text == ("b",)
    with pytest.raises(InvalidInputError, match="line 3 of .*column 'a': 'x' is not a number"):
        scan(write("a,y\n1,p\nx,q\n"), "y")
    table = scanned.scan(CsvSource(write("a,b,y\nx,x,p\n")), "y", columns=["b"], text=["b"])
    assert (table.columns, table.text, table.unused) == (("b",), ("b",), ("a",))
    with pytest.raises(InvalidInputError, match="'x' is not a number"):
        scanned.scan(CsvSource(write("a,y\nx,p\n")), "y", numeric=["a"])


def test_fewer_than_two_classes(write):
    table = scan(write("a,y\n1,p\n2,p\n"), "y", "data.csv")
    with pytest.raises(InvalidInputError, match=r"column 'y' of data.csv has only the label 'p'"):
        classes(table)


def test_a_target_that_is_a_measurement(write, monkeypatch):
    monkeypatch.setattr("folklearn.streams.scanned._MOST_CLASSES", 5)
    path = write("a,y\n" + "".join(f"1,{i}.5\n" for i in range(6)))
    with pytest.raises(InvalidInputError, match="more than 5 different values"):
        scan(path, "y")


@pytest.mark.parametrize(("n_labels", "n_rows"), [(101, 1010), (100, 100), (101, 2000)])
def test_many_labels_are_classes_if_they_come_often(write, n_labels, n_rows):
    path = write("a,y\n" + "".join(f"1,{i % n_labels}\n" for i in range(n_rows)))
    assert len(classes(scan(path, "y"))) == n_labels


def test_a_target_that_numbers_the_rows(write):
    path = write("a,y\n" + "".join(f"1,{i % 101}\n" for i in range(1009)))
    with pytest.raises(InvalidInputError) as caught:
        scan(path, "y", "data.csv")
    assert str(caught.value).startswith(
        "column 'y' of data.csv has 101 distinct labels in 1009 rows; it looks like a number or "
        "an id"
    )


def test_many_columns_are_not_all_listed(write):
    names = [f"c{i}" for i in range(40)]
    with pytest.raises(InvalidInputError, match="c11, and 28 more"):
        scan(write(",".join(names) + "\n"), "y")


def test_a_file_that_changed_since_it_was_checked(write):
    table = scan(write("a,y\n1,p\n2,q\n"), "y", "data.csv")
    write("a,y\n1,p\n2,q\n3,p\n")
    assert len(read(table)[1]) == 2
    write("a,y\n1,p\n2,new\n")
    with pytest.raises(InvalidInputError, match="line 3 of data.csv: new label 'new'"):
        read(table)
    write("b,y\n1,p\n")
    with pytest.raises(InvalidInputError, match="does not have the columns it had before"):
        read(table)


def test_the_header_alone(write):
    assert header(write("b , a\nanything\n")) == ("b", "a")


def test_other_separators_are_spoken_of(write):
    assert scan(write("a,y\n1,p\n"), "y").note == ""
    assert scan(write("a;b;y\n1;2;p\n"), "y").note == "separated by semicolons"
    assert scan(write("a;1\tb\ty\n1\t2\tp\n"), "y").note == "separated by tabs"
