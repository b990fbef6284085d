"""svmlight files: read as scikit-learn reads them, labels as text, faults with their lines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.readers.source import ByteSource
from folklearn.readers.sparse_text import SvmlightReader, parse_svmlight


def opened(path):
    return SvmlightReader(ByteSource(path, "data.svm"))


@pytest.mark.parametrize("labels", [[-1, 0, 1], [1.5, 2.5, 3.5]])
def test_the_same_as_scikit_learn(rng, tmp_path, read, labels):
    X = rng.normal(size=(40, 6)) * (rng.random((40, 6)) < 0.4)
    y = rng.choice(labels, size=40)
    path = tmp_path / "data.svm"
    dump_svmlight_file(X, y, str(path), zero_based=False, comment="three classes")
    expected, numbers = load_svmlight_file(str(path))
    reader = opened(path)
    rows = read(reader)
    assert (reader.names, reader.feature_names([3, 7])) == (("label",), ["3", "7"])
    dense = [[row.get(column, 0.0) for column in range(1, 7)] for row in rows.features]
    np.testing.assert_array_equal(dense, expected.toarray())
    np.testing.assert_array_equal([float(label) for label in rows["label"]], numbers)
    assert rows.blocks[0].features.shape == (40, 2**32)


@pytest.mark.parametrize("label", ["+1", "spam"])  # by scikit-learn, or by Python
def test_labels_stay_as_they_are_written(write, read, label):
    content = f"{label} 2:5 10:1 # a\n\n# nothing\n-1 qid:3 007:2 8:0\r\n{label}\n1:4\n"
    rows = read(opened(write(content)))
    assert rows["label"] == [label, "-1", label, None]
    assert rows.lines == [1, 4, 5, 6]
    assert rows.features == [{2: 5.0, 10: 1.0}, {7: 2.0}, {}, {1: 4.0}]


def test_unsorted_columns_are_sorted(write, read):
    rows = read(opened(write("1 10:1 2:5\n1 3:1\n")))
    assert rows.features == [{2: 5.0, 10: 1.0}, {3: 1.0}]
    assert rows.blocks[0].features.indices.tolist() == [2, 10, 3]


@pytest.mark.parametrize("content", ["", "\n", "# only a comment\n"])
def test_files_without_rows(write, content):
    with pytest.raises(InvalidInputError, match="data.svm has no rows; expected lines like"):
        opened(write(content))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("1,2 1:3", "'1,2' is several labels"),
        ("1 1:2 1:3", "column 1 occurs twice"),
        ("1 1:2 b:3", "'b:3' is not a column number below 4294967296, a colon"),
        ("1 2", "'2' is not a column number"),
        ("1 -2:1", "'-2:1' is not a column number"),
        ("1 1:x", "column 1: 'x' is not a number"),
        ("1 1:1_0", "column 1: '1_0' is not a number"),
        ("1 1:", "column 1: there is no value after the colon"),
        ("1 1:nan", "column 1: 'nan' is not a number"),
        ("1 1:inf", "column 1: 'inf' is not finite"),
        ("1 1:9e14", "column 1: '9e14' is too large to compute with"),
        ("1 5000000000:1", "'5000000000:1' is not a column number below 4294967296"),
    ],
)
def test_bad_rows_are_named_with_their_place(write, read, line, sentence):
    rows = read(opened(write(f"1 1:2\n{line}\n2 1:3\n")), skip=True)
    assert (rows["label"], rows.lines) == (["1", "2"], [1, 3])
    assert [str(bad).startswith(f"line 2 of data.svm: {sentence}") for bad in rows.bad] == [True]
    assert rows.bad[0].text == line


@given(st.text(alphabet="01:# qid,.e-+x\t") | st.text())
def test_nothing_else_is_ever_raised(text):
    try:
        row = parse_svmlight(text)
    except FolklearnError:
        return
    assert row is None or np.isfinite([*row.features.values()]).all()
