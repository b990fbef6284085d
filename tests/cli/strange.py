"""Small files of every kind, whole and damaged, and what the command line must make of them."""

import contextlib
import csv
import gzip
import io
import os
import re
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from folklearn import load
from folklearn.cli.app import main

_CELLS = st.sampled_from(
    ["1", "2", "-3.5", "1e3", "1,5", "", "NA", "nan", "inf", "1e300", "x", "red", "a b c d", "0x1",
     "2024-05-01", "2024-13-01", "true", '"', '""', "'", "é", "\0", "1_0", " 7 ", "#", "p:x", "|"]
)  # fmt: skip
_PLAIN = st.sampled_from(["1", "2", "3.5", "-7", "red", "blue", ""])
_NAMES = st.sampled_from(["b", "row", "label", "p:x", "a b", "é", "weight", "1"])
_LABELS = st.sampled_from(["x", "y", "x", "y", "z", "", "é", "a,b"])


@st.composite
def _tables(draw):
    """CSV, of rows that mostly fit the header."""
    first = draw(st.sampled_from(["a", "a", "a", ""]))  # pandas has an index without a name
    names = [first, *draw(st.lists(_NAMES, max_size=3, unique=draw(st.integers(0, 9)) > 0))]
    width = len(names)
    mark = draw(st.sampled_from(",,;\t|"))
    columns = [draw(st.sampled_from([_NUMBERS, _NUMBERS, _PLAIN, _CELLS])) for _ in names]
    rows = draw(st.lists(st.tuples(st.tuples(*columns), _LABELS), max_size=12))
    rows += [(["1"] * width, "x"), (["2"] * width, "y")] * draw(st.integers(0, 40))
    lines = [mark.join([*names, "kind"])]
    lines += [mark.join([*row, f'"{label}"' if mark in label else label]) for row, label in rows]
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    return (end.join(lines) + draw(st.sampled_from(["", end]))).encode("utf-8")


_NUMBERS = st.sampled_from(["1", "2", "-3.5", "1e3", "", "NA", "0.25"])
_JSON = st.lists(
    st.sampled_from(
        ['{"a": 1, "kind": "x"}', '{"a": 2.5, "kind": "y"}', '{"a": null, "kind": "x"}',
         '{"b": "red", "kind": "y"}', '{"a": [1], "kind": "x"}', '{"kind": 3}', "{}", "[1]", "{",
         '{"a": "one two three four", "kind": "z"}', '{"a": 1e400, "kind": "x"}', "", "null"]
    )
)  # fmt: skip
_GOOD_JSON = st.lists(
    st.sampled_from(
        ['{"a": 1, "kind": "x"}', '{"a": 2.5, "kind": "y"}', '{"b": "red", "kind": "y"}',
         '{"a": -1, "b": "blue", "kind": "x"}', '{"a": 3}', '{"kind": "z", "new": 3}']
    ),
    min_size=2,
)  # fmt: skip
_SPARSE = st.lists(
    st.sampled_from(
        ["x 1:2 3:4", "y 2:1", "x", "1 1:1 1:1", "2 5:x", "y 0:1", "# no row", "", "+1 3:1e300",
         "x |a b:2 c", "y 2 |a c", "x 1 'tag | d", "|a b", "y -1 |a b", "x |", "| a:nan", "1,2 1:1"]
    )
)  # fmt: skip
_SVMLIGHT = st.lists(
    st.sampled_from(["x 1:2 3:4", "y 2:1", "x 7:1 9:-2", "y 3:1 # last"]), min_size=2
)
_VW = st.lists(
    st.sampled_from(["x |a b:2 c", "y |a c", "x 'tag |a d", "y |b e:3 |c d", "|a b"]), min_size=2
)


_MANY = 100_001  # one more column than can be read


def _hostile(what):
    """A file of a shape that nobody writes who wants it to be learned, and the end of its name."""
    if what == "wide csv":
        return ",".join([*map(str, range(_MANY)), "kind"]).encode() + b"\n", ".csv"
    if what == "one long line":
        return b"x" * (2**24 + 2**20), ".csv"
    if what == "open quote":
        return b'a,kind\n1,"' + b"x\n" * 2**14, ".csv"
    if what == "far column":
        return b"x 4611686018427387904:1\ny 1:1\n", ".svm"
    if what == "many features":
        return b"x |" + b"n a" * 10**5 + b"\ny |n b\n", ".vw"
    good = b'{"a": 1, "kind": "x"}\n{"a": 2, "kind": "y"}\n'
    if what == "many keys":
        return good + b"".join(b'{"k%d": 1, "kind": "x"}\n' % i for i in range(300)), ".jsonl"
    if what == "wide line":
        return b"{" + b",".join(b'"k%d":1' % i for i in range(_MANY)) + b"}\n" + good, ".jsonl"
    depth = 10**5
    deep = b'{"kind": "x", "a": ' + b"[" * depth + b"1" + b"]" * depth + b"}\n"
    return (good * 500 + deep if what == "deep, later" else deep + good), ".jsonl"


_HOSTILE = (
    "wide csv", "one long line", "open quote", "far column", "many features", "many keys",
    "wide line", "deep", "deep, later",
)  # fmt: skip


def _lines(of_lines):
    return of_lines.map("\n".join).map(str.encode)


_FILES = st.one_of(
    st.tuples(_tables(), st.sampled_from([".csv", "", ".tsv"])),
    st.tuples(_tables(), st.just(".csv")),
    st.tuples(_lines(_GOOD_JSON), st.just(".jsonl")),
    st.tuples(_lines(st.one_of(_JSON, _GOOD_JSON)), st.sampled_from([".jsonl", ""])),
    st.tuples(_lines(_SVMLIGHT), st.just(".svm")),
    st.tuples(_lines(_VW), st.just(".vw")),
    st.tuples(_lines(_SPARSE), st.sampled_from([".svm", ".vw", ""])),
    st.tuples(st.binary(max_size=60), st.sampled_from(["", ".csv", ".parquet"])),
    st.sampled_from(_HOSTILE).map(_hostile),
)


@st.composite
def files(draw):
    """Return the bytes of a file, as written, damaged or packed, and the end of its name."""
    content, ending = draw(_FILES)
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2]))):
        at = draw(st.integers(0, len(content)))
        new = draw(st.sampled_from([b"", b"\0", b"\n", b'"', b",", b"\xff", b"\xef\xbb\xbf", b"1"]))
        content = content[:at] + new + content[at + draw(st.integers(0, 3)) :]
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.sampled_from([0, 0, 1, 12]))
        content = gzip.compress(content)
        content = content[: len(content) - cut]
    return content, ending


@st.composite
def arguments(draw, ending):
    """Return options that make sense for a file of some name, most of the time."""
    target = ending in ("", ".csv", ".tsv", ".jsonl") and draw(st.integers(0, 19)) > 0
    general = ["--one-pass", "--on-bad-row=skip", "--shuffle", "--windows"]
    of_tables = ["--role=a=category", "--role=a=words", "--drop=a", "--cross=a:b"]
    of_tables += ["--weight=weight", "--decimal=,", "--encoding=latin-1"]
    chosen = draw(st.lists(st.sampled_from(general), max_size=2, unique=True))
    if target and draw(st.integers(0, 3)) == 0:
        chosen.append(draw(st.sampled_from(of_tables)))
    learner = draw(st.sampled_from(["ogd", "ogd", "folklore", "auto"]))
    return [*["--target", "kind"] * target, *chosen, "--learner", learner]


cases = files().flatmap(
    lambda file: st.tuples(st.just(file[0]), st.just(file[1]), arguments(file[1]))
)


def check(case):
    """Learn a file: a result or one sentence, and nothing that is half written."""
    content, ending, chosen = case
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path, model, predictions = (Path(folder, name) for name in (f"t{ending}", "m", "p.csv"))
        path.write_bytes(content)
        outputs = ["-f", str(model), "-p", str(predictions), "--quiet"]
        with (
            contextlib.redirect_stderr(said),
            np.errstate(all="ignore"),
        ):
            code = main(["run", str(path), *chosen, *outputs])
        written = {*os.listdir(folder)} - {path.name}
        assert code in (0, 2)
        if code == 2:
            assert re.fullmatch(r"folklearn: [^\n]+\n", said.getvalue()), said.getvalue()
            assert written == ({"m", "p.csv"} if "was saved to" in said.getvalue() else set())
        else:
            assert written == {"m", "p.csv"}
            assert said.getvalue() == ""
        if written:
            n_rows = load(model).n_rounds
            with open(predictions, encoding="utf-8", newline="") as file:
                header, *rows = csv.reader(file)
            assert len(rows) >= n_rows > 0
            assert {len(row) for row in rows} == {len(header)}
