"""JSON lines: numbers as features, and a sentence for everything that cannot be one."""

import contextlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.model.hashing import TextHasher
from folklearn.streams.jsonlines import parse, scan
from folklearn.streams.table import classes


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "data.jsonl"
        path.write_text(content)
        return path

    return write


def test_columns_classes_and_rows(write):
    table = scan(write('{"a": 1, "y": "p", "b": true}\n\n{"b": 2.5, "a": -1e3, "y": "q"}\n'), "y")
    assert (table.columns, table.n_rows) == (("a", "b"), 2)
    assert table.first_lines == {"p": 1, "q": 3}
    ((X, y, weight),) = table.blocks(("b", "a"), ("q", "p"), [10])
    np.testing.assert_array_equal(X, [[1, 1], [2.5, -1000]])
    np.testing.assert_array_equal(y, [1, 0])
    assert weight is None


def test_labels_of_every_kind(write):
    labels = ["день", 3, 2.5, True, " p "]
    table = scan(write("".join(json.dumps({"a": 1, "y": y}) + "\n" for y in labels)), "y")
    assert set(classes(table)) == {"день", "3", "2.5", "true", "p"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "data.jsonl is empty; expected one JSON object per line"),
        ('{"a": 1}\n', "data.jsonl has no column 'y'; its columns are: a"),
        ('{"y": 1}\n', "data.jsonl has no column beside the target 'y'"),
        ('{"a": 1, "y": 1}\n{"a": 1,\n', "line 2 of data.jsonl: it is not JSON: "),
        ("[1, 2]\n", "line 1 of data.jsonl: it is JSON, but not an object"),
        ('{"a": 1, "a": 2, "y": 1}\n', "line 1 of data.jsonl: the key 'a' occurs twice"),
        ('{"": 1, "y": 1}\n', "line 1 of data.jsonl: it has a key without a name"),
        ('{"\\ud800": 1, "y": 1}\n', "line 1 of data.jsonl: '\\ud800' is not Unicode text"),
        ('{"a": 1, "y": "\\ud800"}\n', "line 1 of data.jsonl: '\\ud800' is not Unicode text"),
        (
            '{"a": 1, "y": 1}\n{"a": 1, "b": 1, "y": 1}\n',
            "line 2 of data.jsonl: it has the key 'b', which the first line has not",
        ),
        (
            '{"a": 1, "y": 1}\n{"a": "1", "y": 1}\n',
            "line 2 of data.jsonl: the value of 'a' is text, not a number; if the column holds tex",
        ),
        (
            '{"a": "x", "y": 1}\n{"a": [1], "y": 1}\n',
            "line 2 of data.jsonl: the value of 'a' is nested",
        ),
        ('{"a": {"b": 1}, "y": 1}\n', "line 1 of data.jsonl: the value of 'a' is nested"),
        ('{"a": [1], "y": 1}\n', "line 1 of data.jsonl: the value of 'a' is nested"),
        ('{"a": -Infinity, "y": 1}\n', "line 1 of data.jsonl: -Infinity is not finite"),
        ('{"a": 1e999, "y": 1}\n', "line 1 of data.jsonl: the value of 'a' is too large"),
        ('{"a": 9e14, "b": 9e14, "y": 1}\n', "line 1 of data.jsonl: its values are too large"),
        ('{"a": 1, "y": null}\n', "line 1 of data.jsonl: the label 'y' is missing"),
        ('{"a": 1, "y": 1}\n{"a": 1}\n', "line 2 of data.jsonl: the label 'y' is missing"),
        ('{"a": 1, "y": [1]}\n', "line 1 of data.jsonl: the value of 'y' is nested"),
        ('{"a": ' + "[" * 100_000 + "\n", "line 1 of data.jsonl: it is not JSON"),
        ('{"a": ' + "9" * 5000 + ', "y": 1}\n', "line 1 of data.jsonl: it is not JSON that can"),
    ],
)
def test_every_fault_is_named_with_its_place(write, content, sentence):
    with pytest.raises(InvalidInputError) as caught:
        scan(write(content), "y", "data.jsonl")
    assert str(caught.value).startswith(sentence)


def test_gaps_and_text(write):
    content = (
        '{"a": null, "b": "red", "c": NaN, "y": 1}\n{"b": 2.5, "c": true, "y": 2}\n'
        '{"a": 3, "b": null, "c": 1, "y": 1}\n'
    )
    table = scan(write(content), "y")
    assert (table.text, table.missing) == (("b",), {"a": 2, "b": 1, "c": 1})
    ((X, _, _),) = table.blocks(table.columns, ("1", "2"), [9])
    np.testing.assert_array_equal(X[:, :2], [[np.nan, np.nan], [np.nan, 1], [3, 1]])
    np.testing.assert_array_equal(X[:, 2:], TextHasher().columns({"b": ["red", "2.5", None]}))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(
    st.lists(
        st.text(alphabet='{}[]":,01eE.-naNultr\\ud8', max_size=30)
        | st.dictionaries(st.sampled_from("aby"), VALUES).map(json.dumps),
        max_size=4,
    )
)
def test_nothing_else_is_ever_raised(tmp_path_factory, texts):
    for text in texts:
        with contextlib.suppress(FolklearnError):
            assert isinstance(parse(text), dict)
    path = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    path.write_text("\n".join(texts))
    try:
        table = scan(path, "y")
    except FolklearnError:
        return
    blocks = table.blocks(table.columns, tuple(table.first_lines), itertools.repeat(2))
    assert not any(np.isinf(block.X).any() for block in blocks)
