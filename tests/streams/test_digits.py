"""The embedded stream."""

import itertools

import numpy as np
from sklearn.datasets import load_digits

from folklearn.streams.digits import Digits
from folklearn.streams.table import classes


def blocks_of(table, columns, size):
    blocks = list(table.blocks(columns, classes(table), itertools.repeat(size)))
    return np.vstack([X for X, _, _ in blocks]), np.concatenate([y for _, y, _ in blocks])


def test_every_digit_occurs_once_in_the_same_order_each_time():
    X, y = blocks_of(Digits(), Digits().columns, 1000)
    pixels, digits = load_digits(return_X_y=True)
    np.testing.assert_array_equal(np.bincount(y), np.bincount(digits))
    np.testing.assert_array_equal(np.sort(X @ np.arange(64)), np.sort(pixels @ np.arange(64)))
    again = blocks_of(Digits(), Digits().columns, 7)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])


def test_columns_in_any_order():
    digits = Digits()
    X, _ = blocks_of(digits, digits.columns, 2000)
    reversed_X, _ = blocks_of(digits, digits.columns[::-1], 2000)
    np.testing.assert_array_equal(reversed_X, X[:, ::-1])


def test_first_lines_point_at_the_first_of_each():
    digits = Digits()
    _, y = blocks_of(digits, digits.columns, 2000)
    assert digits.first_lines == {str(k): list(y).index(k) + 1 for k in range(10)}
