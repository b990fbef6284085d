"""Features of any scale, made comparable as they arrive."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.errors import StateFileError
from folklearn.persist import Record

Array = NDArray[np.float64]

LARGEST_SCORE = 5.0  # standard deviations; one absurd value must not dominate a context


class OnlineScaler:
    """Standardise features on line, append a constant, and bring the norm to about 1.

    Each feature is centred by its mean and divided by its standard deviation over the
    examples so far, clipped to ±5, followed by a constant 1, and everything is divided by
    sqrt(d + 1). A feature that has not varied yet gives 0.

    An example is included in the mean and the deviation that scale it: features are known
    before the prediction, and this way no score exceeds sqrt(t - 1). Labels are never seen.

    Parameters
    ----------
    n_features : number of raw features d, at least 1; the output has d + 1 columns.

    Examples
    --------
    >>> scaler = OnlineScaler(n_features=1)
    >>> scaler.learn_transform([[10.0], [30.0], [20.0]]).round(2)
    array([[0.  , 0.71],
           [0.71, 0.71],
           [0.  , 0.71]])
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = problem.count("n_features", n_features, 1)
        self._count = 0
        self._mean: Array = np.zeros(self.n_features)
        self._squares: Array = np.zeros(self.n_features)  # squared deviations from the mean

    def transform(self, x: ArrayLike) -> Array:
        """Scale x (d,) or every row of (T, d) as if it came next; nothing is remembered."""
        x = problem.numbers("x", x)
        if x.ndim == 2:
            return self._scale(x, learn=False)
        return self._scale(x[None, ...], learn=False).ravel()

    def learn_transform(self, X: ArrayLike) -> Array:
        """Take in the rows of X (T, d) one after the other, and return them scaled.

        Exactly equal to one call per row.
        """
        scaled = self._scale(X, learn=True)
        self._count += len(scaled)
        return scaled

    def _scale(self, X: ArrayLike, learn: bool) -> Array:
        X, _ = problem.contexts(X, self.n_features)
        out = np.empty((len(X), self.n_features + 1))
        _scale_rows(X, self._count, self._mean, self._squares, learn, out)
        return out

    def to_record(self) -> Record:
        """Return the full state as a record."""
        arrays: dict[str, NDArray[Any]] = {
            "count": np.array([self._count], dtype=np.int64),
            "mean": self._mean.copy(),
            "squares": self._squares.copy(),
        }
        return Record("OnlineScaler", {"n_features": self.n_features}, arrays)

    @classmethod
    def from_record(cls, record: Record) -> "OnlineScaler":
        """Rebuild a scaler that goes on exactly where the recorded one stopped."""
        scaler = cls(**record.config)
        d = scaler.n_features
        expected = {"count": ((1,), np.int64), "mean": ((d,), float), "squares": ((d,), float)}
        for name, (shape, dtype) in expected.items():
            array = record.arrays.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                raise StateFileError(f"an OnlineScaler state needs {name} of shape {shape}")
        scaler._count = int(record.arrays["count"][0])
        scaler._mean[:] = record.arrays["mean"]
        scaler._squares[:] = record.arrays["squares"]
        return scaler


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _scale_rows(X: Array, count: int, mean: Array, squares: Array, learn: bool, out: Array) -> None:
    """Welford's recursion: no sum of squares, so a large offset costs no accuracy."""
    T, d = X.shape
    unit = 1.0 / np.sqrt(d + 1.0)
    for t in range(T):
        n = count + 1
        if learn:
            count = n
        for j in range(d):
            from_old = X[t, j] - mean[j]
            centre = mean[j] + from_old / n
            from_new = X[t, j] - centre
            spread = squares[j] + from_old * from_new
            if learn:
                mean[j] = centre
                squares[j] = spread
            score = from_new / np.sqrt(spread / n) if spread > 0.0 else 0.0
            out[t, j] = unit * min(max(score, -LARGEST_SCORE), LARGEST_SCORE)
        out[t, d] = unit
