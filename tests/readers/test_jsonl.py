"""JSON lines: typed values, late keys, and a sentence for everything that cannot be read."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.readers import BadRow
from folklearn.readers.records import JsonReader, parse_object
from folklearn.readers.source import ByteSource
from tests.readers.conftest import Rows


def opened(path):
    return JsonReader(ByteSource(path, "data.jsonl"))


def test_kinds_and_lines(write, read):
    content = (
        '{"a": 1, "y": "p", "b": true, "d": "2024-05-01"}\n\n{"b": 2.5, "a": -1e3, "y": " q "}\r\n'
        '{"b": false, "a": NaN, "y": null, "d": "NA"}'
    )
    reader = opened(write(content))
    assert reader.names == ("a", "y", "b", "d")
    head = reader.head()
    assert head.columns["a"].tolist()[:2] == [1.0, -1000.0]
    assert head.columns["d"].to_list() == ["2024-05-01", None, "NA"]
    rows = read(reader, {"a": "number", "b": "number", "y": "text", "d": "date"})
    assert (rows["a"], rows["b"]) == ([1.0, -1000.0, None], [1.0, 2.5, 0.0])
    assert (rows["y"], rows.lines) == (["p", "q", None], [1, 3, 4])
    assert rows["d"] == ["2024-05-01T00:00:00.000000", None, None]


def test_numbers_as_text_are_written_as_they_are(write, read):
    labels = ["день", 3, 2.5, True, " p ", 12345678901234567, 10**25]
    for first in (labels, labels[1:]):
        content = "".join(json.dumps({"a": 1, "y": y}) + "\n" for y in first)
        expected = ["день", "3", "2.5", "true", "p", "12345678901234567", str(10**25)]
        assert read(opened(write(content)), {"y": "text"})["y"] == expected[-len(first) :]
    content = "".join(f'{{"y": {i % 3}}}\n' for i in range(1000))
    assert read(opened(write(content)), {"y": "text"})["y"] == [str(i % 3) for i in range(1000)]


def test_keys_that_come_late(write, read, monkeypatch):
    monkeypatch.setattr("folklearn.readers.source._FIRST_READ_BYTES", 1000)
    monkeypatch.setattr("folklearn.readers.source._READ_BYTES", 1000)
    early = '{"a": 1, "b": "x"}\n' * 2000
    reader = opened(write(early + '{"a": 2, "new": 7, "word": "w"}\n{"c": [1]}\n'))
    assert reader.names == ("a", "b")
    rows = read(reader, {"a": "number", "gone": "number"}, skip=True)
    assert rows.names == ["a", "gone", "new", "word"]
    assert rows["a"] == [1.0] * 2000 + [2.0, None]
    assert rows["new"] == [None] * 2000 + [7.0, None]
    assert rows["word"] == [None] * 2000 + ["w", None]
    assert rows["gone"] == [None] * 2002


def test_nested_columns_are_left_out(write, read):
    reader = opened(write('{"a": 1, "tags": ["x"]}\n{"a": 2, "tags": null}\n{"a": 3}\n'))
    assert reader.names == ("a",)
    assert reader.left_out == {"tags": "nested values"}
    rows = read(reader, {"a": "number"})
    assert (rows.names, rows["a"]) == (["a"], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match="column 'tags' of data.jsonl cannot be read"):
        reader.read({"tags": "text"})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "data.jsonl is empty; expected one JSON object per line"),
        ('[{"a": 1},\n', "data.jsonl is a JSON array; write one object per line"),
    ],
)
def test_files_that_are_refused(write, content, sentence):
    with pytest.raises(InvalidInputError) as caught:
        opened(write(content))
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"a": 1,', "line 2 of data.jsonl: it is not JSON: "),
        ('{"a": 1} {"a": 2}', "line 2 of data.jsonl: it is not JSON: Extra data"),
        ("[1, 2]", "line 2 of data.jsonl: it is JSON, but not an object"),
        ('{"a": 1, "a": 2}', "line 2 of data.jsonl: the key 'a' occurs twice"),
        ('{"": 1}', "line 2 of data.jsonl: it has a key without a name"),
        ('{"\\ud800": 1}', "line 2 of data.jsonl: it cannot be read as JSON: 'utf-8' codec can't"),
        ('{"a": 1, "y": "\\ud800"}', "line 2 of data.jsonl: it cannot be read as JSON: 'utf-8' "),
        ('{"a": "x"}', "line 2 of data.jsonl, column 'a': 'x' is not a number; for a column of"),
        ('{"a": [1]}', "line 2 of data.jsonl, column 'a': the value is nested"),
        ('{"a": -Infinity}', "line 2 of data.jsonl, column 'a': -inf is not finite"),
        ('{"a": 9e14}', "line 2 of data.jsonl, column 'a': 900000000000000.0 is too large"),
        ('{"a": 1' + "0" * 400 + "}", "line 2 of data.jsonl, column 'a': 1000000"),
        ('{"y": [1]}', "line 2 of data.jsonl, column 'y': the value is nested"),
        ('{"a": ' + "[" * 100_000, "line 2 of data.jsonl: it cannot be read as JSON: maximum"),
        ('{"a": ' + "9" * 5000 + "}", "line 2 of data.jsonl: it cannot be read as JSON: Exceeds"),
        (b'{"a": 1, "y": "\xff"}', "line 2 of data.jsonl: it has bytes that are not UTF-8"),
    ],
    ids=range(16),
)
def test_bad_rows_are_named_with_their_place(write, read, line, sentence):
    line = line if isinstance(line, bytes) else line.encode()
    rows = read(
        opened(write(b'{"a": 1, "y": "p"}\n' + line + b'\n{"a": "2"}\n')),
        {"a": "number", "y": "text"}, skip=True,
    )  # fmt: skip
    assert (rows["a"], rows.lines) == ([1.0, 2.0], [1, 3])
    (bad,) = rows.bad
    assert isinstance(bad, BadRow)
    assert str(bad).startswith(sentence)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(
    texts=st.lists(
        st.text(alphabet='{}[]":,01eE.-naNultr\\ud8', max_size=30)
        | st.dictionaries(st.sampled_from("aby"), VALUES).map(json.dumps),
        max_size=6,
    ),
    kinds=st.dictionaries(st.sampled_from("aby"), st.sampled_from(["number", "text", "date"])),
)
def test_nothing_else_is_ever_raised(tmp_path_factory, texts, kinds):
    good = 0
    for text in texts:
        with contextlib.suppress(FolklearnError):
            good += isinstance(parse_object(text), dict)
    path = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    path.write_text("\n".join(texts), encoding="utf-8", errors="surrogatepass")
    with contextlib.suppress(FolklearnError):
        rows = Rows(opened(path), kinds, skip=True)
        assert len(rows.lines) <= good
        assert len(rows.lines) + len(rows.bad) <= len(texts)
