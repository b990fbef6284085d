"""Hashed text against scikit-learn's FeatureHasher on whole rows."""

import numpy as np
import pytest
from sklearn.feature_extraction import FeatureHasher

from folklearn.errors import InvalidInputError
from folklearn.model.hashing import TextHasher, _place


@pytest.mark.parametrize("n_buckets", [1, 7, 128])
def test_it_is_the_feature_hasher(rng, n_buckets):
    texts = {
        "colour": [None if value == 0 else f"c{value}" for value in rng.integers(9, size=50)],
        "größe": [f"g{value}" for value in rng.integers(30, size=50)],
        3: [f"{value}" for value in rng.integers(3, size=50)],
    }
    rows = [
        [f"{column}={values[row]}" for column, values in texts.items() if values[row] is not None]
        for row in range(50)
    ]
    expected = FeatureHasher(n_features=n_buckets, input_type="string").transform(rows).toarray()
    np.testing.assert_array_equal(TextHasher(n_buckets).columns(texts), expected)


def test_the_same_text_of_another_column_is_another():
    hasher = TextHasher(2**20)
    assert hasher.place("a", "x") != hasher.place("b", "x")
    assert hasher.place("a", "x") == TextHasher(2**20).place("a", "x")


def test_any_text_has_a_place():
    hasher = TextHasher(16)
    for text in ("", " ", "=", "\ud800", "\x00", "a" * 10_000):
        bucket, sign = hasher.place("column", text)
        assert 0 <= bucket < 16
        assert sign in (-1.0, 1.0)


def test_no_buckets_are_refused():
    with pytest.raises(InvalidInputError, match="n_buckets must be"):
        TextHasher(0)


def test_long_texts_are_not_remembered():
    before = _place.cache_info().currsize
    hasher = TextHasher(8)
    places = [hasher.place("text", f"{number}" * 1000) for number in range(20)]
    assert places == [hasher.place("text", f"{number}" * 1000) for number in range(20)]
    assert _place.cache_info().currsize == before
