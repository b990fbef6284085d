"""Columns keep their places, whatever their numbers, and a search for them is short."""

import numpy as np
import pytest

from folklearn.kernels.hash_index import Columns, _search


@pytest.mark.parametrize(
    "numbers",
    [
        np.arange(3000),
        1024 * np.arange(3000),
        2**40 * np.arange(3000),
        np.random.default_rng(0).integers(2**62, size=3000),
        2**31 - 1 - np.arange(3000),
    ],
    ids=["in order", "strides", "long strides", "random", "from above"],
)
def test_places(numbers):
    numbers = np.unique(numbers)
    columns = Columns()
    order = np.random.default_rng(1).permutation(numbers)
    assert (columns.find(numbers) == -1).all()
    for part in np.array_split(order, 7):
        columns.enter(np.concatenate([part, part[:3]]))
    assert columns.n == len(numbers)
    assert (columns.columns == order).all()
    assert (columns.find(order) == np.arange(len(order))).all()
    assert columns.find(np.array([numbers.max() + 1]))[0] == -1
    assert (Columns.of(columns.columns).find(order) == np.arange(len(order))).all()
    # Searches are short: no place is where many begin.
    no_keys = np.zeros(8192, np.int64)
    firsts = [int(_search(no_keys, number)) for number in numbers[:2000]]
    assert np.bincount(firsts).max() <= 12
