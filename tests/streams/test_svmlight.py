"""svmlight files: read as scikit-learn reads them, labels as text, faults with their lines."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.streams.svmlight import parse, scan
from folklearn.streams.table import classes


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "data.svm"
        path.write_text(content)
        return path

    return write


def read(table, size=7):
    blocks = list(table.blocks(table.columns, classes(table), itertools.repeat(size)))
    return np.vstack([X for X, _, _ in blocks]), np.concatenate([y for _, y, _ in blocks])


def test_the_same_as_scikit_learn(rng, tmp_path):
    X = rng.normal(size=(40, 6)) * (rng.random((40, 6)) < 0.4)
    y = rng.integers(-1, 2, size=40)
    path = tmp_path / "data.svm"
    dump_svmlight_file(X, y, str(path), zero_based=False, comment="three classes")
    expected, numbers = load_svmlight_file(str(path))
    table = scan(path)
    assert (table.columns, table.n_rows) == (tuple("123456"), 40)
    assert classes(table) == ("-1", "0", "1")
    found, classes_found = read(table)
    np.testing.assert_array_equal(found, expected.toarray())
    np.testing.assert_array_equal(classes_found - 1, numbers)


def test_columns_that_never_occur_are_none(write):
    table = scan(write("+1 10:1 2:5 # a\n\n# nothing\n-1 qid:3 007:2\n+1\n"))
    assert table.columns == ("2", "7", "10")
    assert table.first_lines == {"+1": 1, "-1": 4}
    np.testing.assert_array_equal(read(table)[0], [[5, 0, 1], [0, 2, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "data.svm has no examples"),
        ("# only a comment\n", "data.svm has no examples"),
        ("1\n2\n", "data.svm names no feature"),
        ("1 1:2\n1,2 1:3\n", "line 2 of data.svm: '1,2' is several labels"),
        ("1 1:2\n\n1:3\n", "line 3 of data.svm: it has no label to learn from"),
        ("nan 1:2\n", "line 1 of data.svm: the label is missing"),
        ("1 1:2 1:3\n", "line 1 of data.svm: column 1 occurs twice"),
        ("1 1:2 b:3\n", "line 1 of data.svm: 'b:3' is not a column number, a colon and a value"),
        ("1 2\n", "line 1 of data.svm: '2' is not a column number"),
        ("1 -2:1\n", "line 1 of data.svm: '-2:1' is not a column number"),
        ("1 1:x\n", "line 1 of data.svm: column 1: 'x' is not a number"),
        ("1 1:\n", "line 1 of data.svm: column 1: the cell is empty"),
        ("1 1:inf\n", "line 1 of data.svm: column 1: 'inf' is not finite"),
        ("1 1:9e14 2:9e14\n", "line 1 of data.svm: its values are too large to compute with"),
    ],
)
def test_every_fault_is_named_with_its_place(write, content, sentence):
    with pytest.raises(InvalidInputError) as caught:
        scan(write(content), "data.svm")
    assert str(caught.value).startswith(sentence)


def test_too_many_features(write, monkeypatch):
    monkeypatch.setattr("folklearn.streams.sparse.WIDEST", 3)
    assert len(scan(write("1 1:1 2:1\n2 3:1\n")).columns) == 3
    with pytest.raises(InvalidInputError, match="more than 3 different features up to line 2"):
        scan(write("1 1:1 2:1\n2 3:1 4:1\n"))


@given(st.text(alphabet="01:# qid,.e-+x\t") | st.text())
def test_nothing_else_is_ever_raised(text):
    try:
        row = parse(text)
    except FolklearnError:
        return
    assert row is None or all(np.isfinite(value) for value in row.features.values())
