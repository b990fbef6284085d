"""The compiled reader of VW's text reads what the slow one reads."""

import numpy as np
import pytest

from folklearn.errors import InvalidInputError
from folklearn.streams import vw
from folklearn.streams.vw_rows import _hashed, vw_rows


def slow(line, d):
    parsed = vw.parse(line)
    return parsed.label, parsed.weight, *_hashed(parsed.features, d)


LINES = [
    "1 | 3:0.5 17 403:2e-3",
    "spam |words cheap offer:3 cheap |size width:40.25 7:1",
    "ham 2.5 'mail7|words:2 cheap offer:3 |size :40 :41",
    "-1 |a x:-1.5 x:1.5 y",
    "no_features |",
    "many   |  a\tb:2\tc  ",
    "x | 0.1:0.1 1e5:12345678901234567890 é:0.30000000000000004",
    "y | big:1e300 small:-1e-300 nine:999999999999999",
    "z |ns 12 12:3 |ns 12",
]


def test_every_kind_of_line(tmp_path):
    file = tmp_path / "a.vw"
    file.write_text("\n".join(LINES) + "\r\n\n   \n1 | a b c", encoding="utf-8")
    for d in (7, 1000, 2**18, 2**32):
        for piece in (1, 64, 10**6):
            blocks = list(vw_rows(file, d, piece=piece))
            labels = [label for block in blocks for label in block.labels]
            weights = np.concatenate([block.weights for block in blocks])
            rows = [row for block in blocks for row in block.X]
            assert len(labels) == len(LINES) + 1
            for line, label, weight, row in zip(LINES, labels, weights, rows, strict=False):
                expected = slow(line, d)
                assert (label, weight) == expected[:2]
                assert row.indices.tolist() == expected[2].tolist()
                assert row.values == pytest.approx(expected[3], rel=1e-15)


def test_many_lines(tmp_path):
    rng = np.random.default_rng(0)
    numbers = ["1", "0.5", "-2.25", "3e2", "1e-7", "+.5", "7.", "123456.789012345", "1e22", "0"]
    lines = []
    for _ in range(400):
        spaces = rng.choice(["", "a", "bc"], size=rng.integers(1, 4))
        text = f"{rng.integers(5)} "
        for space in spaces:
            words = [
                f"w{rng.integers(30)}" + (f":{rng.choice(numbers)}" if rng.random() < 0.5 else "")
                for _ in range(rng.integers(0, 8))
            ]
            text += f"|{space} " + " ".join(words) + " "
        lines.append(text)
    file = tmp_path / "many.vw"
    file.write_text("\n".join(lines))
    (block,) = vw_rows(file, 64)
    assert len(block.labels) == 400
    for line, label, row in zip(lines, block.labels, block.X, strict=True):
        expected = slow(line, 64)
        assert label == expected[0]
        assert row.indices.tolist() == expected[2].tolist()
        assert row.values == pytest.approx(expected[3], rel=1e-12, abs=1e-12)
        assert (np.diff(row.indices) > 0).all()


def test_a_number_is_its_own_column(tmp_path):
    file = tmp_path / "n.vw"
    file.write_text("1 | 5 1005:2\n")
    row = next(vw_rows(file, 1000)).X.row(0)
    assert (row.indices.tolist(), row.values.tolist()) == ([5], [3.0])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1 a b c", "line 2 of .*no bar"),
        ("1 | a:x", "line 2 of .*'x' is not a number"),
        ("1 | a:1:2", "line 2 of .*'1:2' is not a number"),
        ("tag| a", "line 2 of .*touches the bar"),
        ("1:0.5 | a", "line 2 of .*is not a class"),
        ("| a", "line 2 of .*no label"),
        ("1 | a:inf", "line 2 of .*not finite"),
        ("nan | a", "line 2 of .*label is missing"),
    ],
)
def test_complaints(line, complaint, tmp_path):
    file = tmp_path / "bad.vw"
    file.write_text(f"1 | a\n{line}\n1 | a\n")
    with pytest.raises(InvalidInputError, match=complaint):
        list(vw_rows(file, 100))


def test_other_complaints(tmp_path):
    with pytest.raises(InvalidInputError, match="2\\^32 at most"):
        next(vw_rows(tmp_path / "x", 2**33))
