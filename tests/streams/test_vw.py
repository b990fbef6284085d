"""VW text: Vowpal Wabbit itself is the oracle; faults have their lines."""

import gzip
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.streams.table import Weights, classes
from folklearn.streams.vw import parse, scan

BITS, STRIDE = 24, 3  # one against all of five classes has weights in groups of 2^3
NO_LABEL = 2**32 - 1

LINES = [
    "1 2.5 'tag|words:2 cheap offer:3 |size :40 :7",
    "3 |a x x:2 y:0.5 | plain z:1e-3",
    "1|a x",
    "'t |a x",
    "2 0 |a 17:3 18",
    "| a",
    "|a x",
    "2 |a x |a y\tz",
    "2 1 tag|a x",
    "  2   |a   x ",
    "2 |a x:0 y:-1",
    "1 2 'q |a x",
    "4 |a:0.5 x:2 |b:-1 x",
    "5 |größe ü:2 犬",
    "1 |",
    "1 ||a x|",
    "2 |a x:1e2 y:+.5 z:-3.",
]


@pytest.fixture(scope="module")
def vw():
    vowpalwabbit = pytest.importorskip("vowpalwabbit")
    workspace = vowpalwabbit.Workspace(f"--quiet --oaa 5 --noconstant -b {BITS}")
    yield workspace
    workspace.finish()


@pytest.mark.parametrize("text", LINES)
def test_read_as_vowpal_wabbit_reads_it(vw, text):
    from vowpalwabbit import LabelType

    example = vw.parse(text, LabelType.MULTICLASS)
    (example,) = example if isinstance(example, list) else [example]
    row = parse(text)
    label = NO_LABEL if row.label is None else int(row.label)
    assert example.get_multiclass_label() == label
    assert example.get_multiclass_weight() == pytest.approx(row.weight)
    mask, expected, found = (1 << BITS) - 1, {}, {}
    for index, value in example.iter_features():
        expected[index & mask] = expected.get(index & mask, 0.0) + value
    for name, value in row.features.items():
        space, _, feature = name.rpartition("^")
        index = vw.hash_feature(feature, vw.hash_space(space or " ")) << STRIDE & mask
        if value:
            found[index] = value
    vw.finish_example(example)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "data.vw"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


TEXT = "spam 2 |w a b:3\n\nham |w c 'x\nspam 0.5 't|w a:2\n"


@pytest.mark.parametrize(
    "content", [TEXT, TEXT.replace("\n", "\r\n"), gzip.compress(TEXT.encode(), mtime=0)]
)
def test_features_labels_and_weights(write, content):
    table = scan(write(content))
    assert table.columns == ("w^a", "w^b", "w^c", "w^'x")
    assert table.first_lines == {"spam": 1, "ham": 3}
    assert table.weights == Weights(3.5, 2.0, 1)
    ((X, y, weight),) = table.blocks(("w^c", "w^a", "new"), ("ham", "spam"), [10])
    np.testing.assert_array_equal(X, [[0, 1, 0], [1, 0, 0], [0, 2, 0]])
    np.testing.assert_array_equal(y, [1, 0, 1])
    np.testing.assert_array_equal(weight, [2, 1, 0.5])


def test_weights_of_1_are_none(write):
    table = scan(write("a 1.0 |x\na |x y\n"))
    assert table.weights is None
    assert [block.weight for block in table.blocks(("x",), ("a",), itertools.repeat(1))] == [
        None
    ] * 2
    with pytest.raises(InvalidInputError, match="column 'label' of .* has only the label 'a'"):
        classes(table)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "data.vw has no examples"),
        ("1 |\n2 |a\n", "data.vw names no feature"),
        ("1 |a b\n1 a b\n", "line 2 of data.vw: it has no bar '|'"),
        ("1 |a b\n\n|a b\n", "line 3 of data.vw: it has no label to learn from"),
        ("1|a b\n", "line 1 of data.vw: it has no label to learn from: '1' touches the bar"),
        ("1 2 3 |a b\n", "line 1 of data.vw: there are 3 words before the bar"),
        ("1 x |a b\n", "line 1 of data.vw: the weight is 'x'; expected a number from 0"),
        ("1 -2 |a b\n", "line 1 of data.vw: the weight is '-2'"),
        ("1 nan |a b\n", "line 1 of data.vw: the weight is 'nan'"),
        ("1 0 |a b\n2 0 |a b\n", "every example of data.vw has the weight 0"),
        ("1:2:0.5 |a b\n", "line 1 of data.vw: '1:2:0.5' is not a class"),
        ("1,2 |a b\n", "line 1 of data.vw: '1,2' is not a class"),
        ("nan |a b\n", "line 1 of data.vw: the label is missing"),
        ("1\t|a b\n", "line 1 of data.vw: there is a tab before the bar"),
        ("1 |a b:x\n", "line 1 of data.vw: feature 'a^b': 'x' is not a number"),
        ("1 |a b:\n", "line 1 of data.vw: feature 'a^b': there is no value after the colon"),
        ("1 |a b:1:2\n", "line 1 of data.vw: feature 'a^b': '1:2' is not a number"),
        ("1 |a b:nan\n", "line 1 of data.vw: feature 'a^b': 'nan' is not finite"),
        ("1 |a:x b\n", "line 1 of data.vw: the scale of namespace 'a': 'x' is not a number"),
        ("1 |:2 b\n", "line 1 of data.vw: the namespace ':2' has no name"),
        ("1 |a:1e200 b:1e200\n", "line 1 of data.vw: its values are too large to compute with"),
        (b"1 |a b\n1 |a \xff\n", "data.vw is not UTF-8 text near line"),
    ],
)
def test_every_fault_is_named_with_its_place(write, content, sentence):
    with pytest.raises(InvalidInputError) as caught:
        scan(write(content), "data.vw")
    assert str(caught.value).startswith(sentence)


@given(st.text(alphabet="01|: 'ab.e-+\t^,") | st.text())
def test_nothing_else_is_ever_raised(text):
    try:
        row = parse(text)
    except FolklearnError:
        return
    assert row.weight >= 0.0
