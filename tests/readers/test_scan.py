"""The first pass: labels, their order, weights, gaps, and what text columns hold."""

import numpy as np
import pytest

from folklearn.errors import InvalidInputError
from folklearn.readers import open_reader
from folklearn.readers.reader import scan

KINDS = {"a": "number", "t": "text", "w": "number", "y": "text"}


def test_everything_is_counted():
    rows = [
        {"a": 1, "t": "x", "w": 2, "y": "p"},
        {"a": None, "t": "z", "w": 5, "y": "q"},
        {"a": "bad", "t": "q", "w": 9, "y": "p"},
        {"a": 3, "w": 1, "y": None},
        {"a": 3, "t": "x", "y": "p"},
    ]
    bad, seen = [], []
    found = scan(
        open_reader(rows), KINDS, target="y", weight="w", on_bad=bad.append, progress=seen.append
    )
    assert (found.n_rows, found.n_bad, len(bad), seen) == (4, 1, 1, [4])
    assert found.labels == {"p": 2, "q": 1}
    assert (found.n_unlabelled, found.largest_weight) == (1, 5.0)
    assert found.missing == {"a": 1, "t": 1, "w": 1, "y": 1}
    assert found.values == {"t": ("x", "z"), "y": ("p", "q")}
    with pytest.raises(InvalidInputError, match="row 3 of the rows, column 'a'"):
        scan(open_reader(rows), KINDS, target="y")


def test_many_values_and_no_target(write):
    path = write("t\n" + "".join(f"v{i // 2}\n" for i in range(400)))
    found = scan(open_reader(path), {"t": "text"}, target=None)
    assert found.values["t"] == tuple(f"v{i}" for i in range(101))
    assert (found.labels, found.largest_weight) == ({}, None)
    with pytest.raises(InvalidInputError, match="has no rows"):
        scan(open_reader(write("t\n")), {"t": "text"}, target=None)


def test_features_are_counted(write):
    path = write("1 1:1 2:1\n2 3:1\n1 2:5\n", "a.svm")
    found = scan(open_reader(path), {"label": "text"}, target="label")
    assert (len(found.features), found.labels) == (3, {"1": 2, "2": 1})


@pytest.mark.parametrize(
    ("shares", "shuffled", "is_sorted"),
    [
        ([0.5, 0.5], True, False),
        ([0.5, 0.5], False, True),
        ([0.998, 0.002], True, False),
        ([0.9, 0.1], False, True),
        ([1.0], False, False),
        ([0.01] * 100, False, True),
    ],
)
def test_sorted_rows_are_noticed(rng, shares, shuffled, is_sorted):
    labels = np.sort(rng.choice(len(shares), p=np.array(shares) / sum(shares), size=20_000))
    if shuffled:
        rng.shuffle(labels)
    rows = [{"y": str(label)} for label in labels]
    assert scan(open_reader(rows), {"y": "text"}, target="y").sorted == is_sorted
