"""Text as numbers: every pair of a column and a text has a place among a few columns."""

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn import problem

DEFAULT_BUCKETS = 128
_REMEMBERED = 2**16  # texts whose place is not computed again
_SHORT = 200  # characters; longer texts hardly come again, and would fill the memory


class TextHasher:
    """Columns of text, hashed together into a few columns of numbers (the hashing trick).

    Use it for categories: names, codes, words. The text "red" of the column "colour" adds 1
    or -1, as the hash of "colour=red" says, in one of ``n_buckets`` columns. Nothing has to be
    known in advance or remembered: a text that was never seen has its place too, and the same
    one on every machine. Texts that share a place are confused, so that more buckets mean
    lower loss and, for second-order learners, quadratically more memory and time. A hundred
    categories in 128 buckets lose little against a column each.

    The hash is that of scikit-learn's ``FeatureHasher`` (Weinberger et al. 2009).

    Parameters
    ----------
    n_buckets : number of columns, at least 1.

    Examples
    --------
    >>> hasher = TextHasher(4)
    >>> hasher.columns({"colour": ["red", "blue", None], "size": ["S", "S", "L"]})
    array([[ 0.,  1., -1.,  0.],
           [-1.,  0., -1.,  0.],
           [ 1.,  0.,  0.,  0.]])
    """

    def __init__(self, n_buckets: int = DEFAULT_BUCKETS) -> None:
        self.n_buckets = problem.count("n_buckets", n_buckets, 1)

    def place(self, column: Hashable, text: str) -> tuple[int, float]:
        """Return in which bucket a text is counted, and its sign."""
        token = f"{column}={text}"
        remembered = _place if len(token) <= _SHORT else _place.__wrapped__
        return remembered(self.n_buckets, token)

    def columns(self, texts: dict[Any, Iterable[str | None]]) -> NDArray[np.float64]:
        """Return the buckets (T, n_buckets) of T texts from each column; None is missing, 0."""
        lists = {column: list(values) for column, values in texts.items()}
        n_rows = max(map(len, lists.values()), default=0)
        out = np.zeros((n_rows, self.n_buckets))
        for column, values in lists.items():
            for row, text in enumerate(values):
                if text is not None:
                    bucket, sign = self.place(column, text)
                    out[row, bucket] += sign
        return out


@lru_cache(maxsize=_REMEMBERED)
def _place(n_buckets: int, token: str) -> tuple[int, float]:
    # As bytes, because text may hold half a character, which has no encoding.
    hashed = _feature_hasher(n_buckets).transform([[token.encode("utf-8", "surrogatepass")]])
    return int(hashed.indices[0]), float(hashed.data[0])


@lru_cache(maxsize=8)
def _feature_hasher(n_buckets: int) -> Any:
    from sklearn.feature_extraction import FeatureHasher  # takes time to import

    return FeatureHasher(n_features=n_buckets, input_type="string")
