"""Small files of every kind, whole and damaged, and what the command line must make of them."""

import contextlib
import csv
import gzip
import io
import os
import re
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from folklearn import load
from folklearn.cli.app import main

_CELLS = st.sampled_from(
    ["1", "2", "-3.5", "1e3", "1,5", "", "NA", "nan", "inf", "1e300", "x", "red", "a b c d", "0x1",
     "2024-05-01", "2024-13-01", "true", '"', '""', "'", "é", "\0", "1_0", " 7 ", "#", "p:x", "|"]
)  # fmt: skip
_NAMES = st.sampled_from(["a", "b", "kind", "", "row", "label", "p:x", "a b", "é", "weight", "1"])
_LABELS = st.sampled_from(["x", "y", "z", "", "1", "NA", "é", "a,b"])


@st.composite
def _tables(draw):
    """CSV, of rows that mostly fit the header."""
    width = draw(st.integers(0, 4))
    names = draw(st.lists(_NAMES, min_size=width, max_size=width, unique=draw(st.booleans())))
    mark = draw(st.sampled_from(",;\t|"))
    plain = st.sampled_from(["1", "2", "3.5", "red", "blue", ""])
    cells = draw(st.sampled_from([_CELLS, plain, plain]))
    rows = draw(st.lists(st.tuples(st.lists(cells, min_size=width, max_size=width), _LABELS)))
    lines = [mark.join([*names, "kind"])]
    lines += [mark.join([*row, f'"{label}"' if mark in label else label]) for row, label in rows]
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    return (end.join(lines) + draw(st.sampled_from(["", end]))).encode("utf-8")


_JSON = st.lists(
    st.sampled_from(
        ['{"a": 1, "kind": "x"}', '{"a": 2.5, "kind": "y"}', '{"a": null, "kind": "x"}',
         '{"b": "red", "kind": "y"}', '{"a": [1], "kind": "x"}', '{"kind": 3}', "{}", "[1]", "{",
         '{"a": "one two three four", "kind": "z"}', '{"a": 1e400, "kind": "x"}', "", "null"]
    )
)  # fmt: skip
_SPARSE = st.lists(
    st.sampled_from(
        ["x 1:2 3:4", "y 2:1", "x", "1 1:1 1:1", "2 5:x", "y 0:1", "# no row", "", "+1 3:1e300",
         "x |a b:2 c", "y 2 |a c", "x 1 'tag | d", "|a b", "y -1 |a b", "x |", "| a:nan", "1,2 1:1"]
    )
)  # fmt: skip
_TEXTS = st.one_of(
    _tables(), _JSON.map("\n".join).map(str.encode), _SPARSE.map("\n".join).map(str.encode)
)


@st.composite
def contents(draw):
    """Return the bytes of a file: as written, damaged, packed, or any at all."""
    content = draw(st.one_of(_TEXTS, _TEXTS, st.binary(max_size=60)))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(content)))
        new = draw(st.sampled_from([b"", b"\0", b"\n", b'"', b",", b"\xff", b"\xef\xbb\xbf", b"1"]))
        content = content[:at] + new + content[at + draw(st.integers(0, 3)) :]
    if draw(st.integers(0, 9)) == 0:
        content = gzip.compress(content)[: -draw(st.integers(0, 12)) or None]
    return content


endings = st.sampled_from(["", ".csv", ".jsonl", ".svm", ".vw", ".tsv", ".parquet"])
options = st.lists(
    st.sampled_from(
        ["--one-pass", "--on-bad-row=skip", "--shuffle", "--role=a=category", "--role=a=words",
         "--drop=a", "--cross=a:b", "--weight=weight", "--windows", "--decimal=,",
         "--encoding=latin-1"]
    ),
    max_size=3,
    unique=True,
)  # fmt: skip
learners = st.sampled_from(["ogd", "ogd", "folklore", "auto"])


def check(content, ending, chosen, learner, has_target):
    """Learn a file: a result or one sentence, and nothing that is half written."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path, model, predictions = (Path(folder, name) for name in (f"t{ending}", "m", "p.csv"))
        path.write_bytes(content)
        target = ["--target", "kind"] if has_target else []
        arguments = ["run", str(path), "-f", str(model), "-p", str(predictions), "--quiet"]
        with (
            contextlib.redirect_stderr(said),
            mock.patch("folklearn.cli.run.warm_up"),
            np.errstate(all="ignore"),
        ):
            code = main([*arguments, "--learner", learner, *target, *chosen])
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
