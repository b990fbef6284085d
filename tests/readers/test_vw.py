"""VW text: Vowpal Wabbit itself is the oracle; compiled code and Python read the same rows."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.readers.source import ByteSource
from folklearn.readers.sparse_text import VwReader, hash_features, parse_vw

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
OTHER_LINES = [
    "1 | 3:0.5 17 403:2e-3",
    "spam |words cheap offer:3 cheap |size width:40.25 7:1",
    "ham 2.5 'mail7|words:2 cheap offer:3 |size :40 :41",
    "-1 |a x:-1.5 x:1.5 y",
    "no_features |",
    "many   |  a\tb:2\tc  ",
    "x | 0.1:0.1 1e5:1234567890123 é:0.30000000000000004",
    "y | big:1e13 small:-1e-300 nine:9999999999999",
    "z |ns 12 12:3 |ns 12",
    "nan 'tag |a b",
    "a 1.25 'x|a:-2 b:3 |c:1e1 d",
]


def opened(path):
    return VwReader(ByteSource(path, "data.vw"))


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
    row = parse_vw(text)
    label = NO_LABEL if row.label is None else int(row.label)
    assert example.get_multiclass_label() == label
    weight = 1.0 if row.weight is None else row.weight
    assert example.get_multiclass_weight() == pytest.approx(weight)
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


def check(rows, lines):
    """The rows are those that Python reads, line by line."""
    assert rows.lines == list(range(1, len(lines) + 1))
    for place, line in enumerate(lines):
        expected = parse_vw(line)
        label = None if expected.label == "nan" else expected.label
        assert (rows["label"][place], rows["weight"][place]) == (label, expected.weight)
        assert rows["tag"][place] == expected.tag
        X = hash_features([expected.features])
        assert list(rows.features[place]) == X.indices.tolist()
        assert list(rows.features[place].values()) == pytest.approx(X.values, rel=1e-14, abs=1e-14)


def test_compiled_code_reads_what_python_reads(write, read):
    lines = LINES + OTHER_LINES
    check(read(opened(write("\n".join(lines)))), lines)
    check(read(opened(write("\r\n".join(lines) + "\r\n"))), lines)


def test_many_lines(rng, write, read):
    numbers = ["1", "0.5", "-2.25", "3e2", "1e-7", "+.5", "7.", "123456.789012345", "1e12", "0"]
    lines = []
    for _ in range(300):
        text = str(rng.choice(["0 ", "1 ", "", "2 0.5 ", "3 'tag ", "4 1 'tag", "'tag"]))
        for space in rng.choice(["", "a", "bc", "a:2", "bc:-.5"], size=rng.integers(1, 4)):
            words = [
                f"w{rng.integers(30)}" + (f":{rng.choice(numbers)}" if rng.random() < 0.5 else "")
                for _ in range(rng.integers(0, 8))
            ]
            text += f"|{space} " + " ".join(words) + " "
        lines.append(text)
    check(read(opened(write("\n".join(lines)))), lines)


def test_weights_and_tags_only_where_there_are_any(write, read):
    rows = read(opened(write("a |x\nb |y\n")))
    assert (rows.names, rows["label"]) == (["label"], ["a", "b"])
    rows = read(opened(write("a |x\nb 0.5 |y\n\nc 't|z\n")))
    assert rows.names == ["label", "weight", "tag"]
    assert (rows["weight"], rows["tag"], rows.lines) == (
        [None, 0.5, None], [None, None, "t"], [1, 2, 4],
    )  # fmt: skip
    assert read(opened(write("a 2 |x\n")), {"label": "text"}).names == ["label"]


def test_features_are_called_by_their_names(write, read, monkeypatch):
    content = "1 |a x y |größe ü:2\n2 | 17 17:2 z |s :5\n"
    reader = opened(write(content))
    rows = read(reader)
    indices = [index for row in rows.features for index in row]
    assert set(reader.feature_names(indices)) == {"a^x", "a^y", "größe^ü", "17", "z", "s^0"}
    assert reader.feature_names([99]) == ["99"]
    monkeypatch.setattr("folklearn.readers.sparse_text._MAX_NAMES", 2)
    few = opened(write(content))
    read(few)
    named = [name for name in few.feature_names(indices) if not name.isdigit()]
    assert len(named) == 2


def test_a_label_that_is_a_tag_is_spoken_of(write, read):
    reader = opened(write("1|a b\n2|a c\n"))
    assert read(reader)["label"] == [None, None]
    assert reader.notes == [
        "'1' touches the bar, which makes it a tag and no label; put a space between them"
    ]


def test_a_file_without_rows(write):
    with pytest.raises(InvalidInputError, match="data.vw has no rows; expected lines like"):
        opened(write("\n"))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("1 a b", "it has no bar '|'"),
        ("1 2 3 |a b", "'1 2 3' before the bar is not a label and"),
        ("1 x |a b", "'1 x' before the bar is not a label and perhaps a weight from 0"),
        ("1 -2 |a b", "'1 -2' before the bar"),
        ("1 nan |a b", "'1 nan' before the bar"),
        ("1:2:0.5 |a b", "'1:2:0.5' is not a class"),
        ("1,2 |a b", "'1,2' is not a class"),
        ("1\t|a b", "there is a tab before the bar"),
        ("1 |a b:x", "feature 'a^b': 'x' is not a number"),
        ("1 |a b:", "feature 'a^b': there is no value after the colon"),
        ("1 |a b:1:2", "feature 'a^b': '1:2' is not a number"),
        ("1 |a b:nan", "feature 'a^b': 'nan' is not a number"),
        ("1 |a b:inf", "feature 'a^b': 'inf' is not finite"),
        ("1 |a b:9e14", "feature 'a^b': '9e14' is too large"),
        ("1 |a:x b", "the scale of namespace 'a': 'x' is not a number"),
        ("1 |:2 b", "the namespace ':2' has no name"),
        ("1 |a:1e9 b:1e9", "its values are too large to compute with"),
        (b"1 |a \xff", "it has bytes that are not UTF-8"),
    ],
)
def test_bad_rows_are_named_with_their_place(write, read, line, sentence):
    line = line if isinstance(line, bytes) else line.encode()
    rows = read(opened(write(b"1 |a b\n" + line + b"\n2 |a c\n")), skip=True)
    assert (rows["label"], rows.lines) == (["1", "2"], [1, 3])
    assert [str(bad).startswith(f"line 2 of data.vw: {sentence}") for bad in rows.bad] == [True]


@given(st.text(alphabet="01|: 'ab.e-+\t^,") | st.text())
def test_nothing_else_is_ever_raised(text):
    try:
        row = parse_vw(text)
    except FolklearnError:
        return
    assert row.weight is None or row.weight >= 0.0


@given(st.lists(st.text(alphabet="01|: 'ab.e-+\t,", max_size=20), min_size=1, max_size=5))
def test_any_lines_are_read_alike(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "fuzz.vw"
    path.write_text("\n".join(["first |", *texts]))
    found = {}
    bad = []
    for block in opened(path).read({"label": "text"}, on_bad=bad.append):
        labels = block.columns["label"].to_list()
        for line, label, row in zip(block.lines.tolist(), labels, block.features, strict=True):
            found[line] = label, row.indices.tolist(), row.values.tolist()
    bad_lines = {row.line for row in bad}
    for line, text in enumerate(texts, 2):
        if not text.strip(" "):
            continue
        if line in bad_lines:
            with contextlib.suppress(FolklearnError):
                assert np.abs(hash_features([parse_vw(text).features]).values).max() > 1e14
            continue
        X = hash_features([parse_vw(text).features])
        assert found[line][1:] == (X.indices.tolist(), pytest.approx(X.values, rel=1e-14))
