"""Features of any scale, made comparable as they arrive."""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.errors import StateFileError
from folklearn.persist import Record

Array = NDArray[np.float64]

LARGEST_SCORE = 5.0  # standard deviations; one absurd value must not dominate a context
# A hair below the limit: the constant that is appended must not lift a context above it.
_MAX_NORM = problem.MAX_NORM * (1.0 - 1e-12)


class OnlineScaler:
    """Standardise features on line, append a constant, and bring the norm to about 1.

    Each feature is centred by its mean and divided by its standard deviation over the
    examples so far, clipped to ±5, followed by a constant 1, and everything is divided by
    sqrt(d + 1). A feature that has not varied yet gives 0.

    An example is included in the mean and the deviation that scale it: features are known
    before the prediction, and this way no score exceeds sqrt(t - 1). Labels are never seen.

    Parameters
    ----------
    n_features : number of raw features d, at least 1.
    scale : False leaves the values as they are.
    intercept : append the constant; the output then has d + 1 columns.
    gaps : take NaN for a missing value: it becomes the mean so far, that is 0 after scaling
        (or 0 without), and does not move mean and deviation. Otherwise NaN is refused.

    Examples
    --------
    >>> scaler = OnlineScaler(n_features=1)
    >>> scaler.learn_transform([[10.0], [30.0], [20.0]]).round(2)
    array([[0.  , 0.71],
           [0.71, 0.71],
           [0.  , 0.71]])
    """

    def __init__(
        self, n_features: int, *, scale: bool = True, intercept: bool = True, gaps: bool = False
    ) -> None:
        self.n_features = problem.count("n_features", n_features, 1)
        self.scale, self.intercept, self.gaps = bool(scale), bool(intercept), bool(gaps)
        # A feature that appears later must move nothing: it gets a column behind the constant,
        # and the unit stays that of the first features.
        self._first = self.n_features
        self._count = 0
        self._counts: NDArray[np.int64] = np.zeros(self.n_features, np.int64)  # without gaps
        self._mean: Array = np.zeros(self.n_features)
        self._squares: Array = np.zeros(self.n_features)  # squared deviations from the mean

    @property
    def n_columns(self) -> int:
        """The number of columns of the output."""
        return self.n_features + int(self.intercept)

    def transform(self, x: ArrayLike) -> Array:
        """Scale x (d,) or every row of (T, d) as if it came next; nothing is remembered."""
        x = problem.numbers("x", x)
        if x.ndim == 2:
            return self._scaled(x, learn=False)
        return self._scaled(x[None, ...], learn=False).ravel()

    def learn_transform(self, X: ArrayLike) -> Array:
        """Take in the rows of X (T, d) one after the other, and return them scaled.

        Exactly equal to one call per row.
        """
        scaled = self._scaled(X, learn=True)
        self._count += len(scaled)
        return scaled

    def one(self, x: Array, learn: bool) -> Array:
        """Return the row x (d,) scaled, after taking it in if `learn`; refuse it untouched.

        The short way for a single row, which may have gaps: x is checked by its norm alone.
        """
        out = np.empty(self.n_features + self.intercept)
        if not _scale_row(
            x, self._counts, self._mean, self._squares,
            learn, self.scale, self.intercept, self._first, out,
        ):  # fmt: skip
            self.refuse_unusable(x)
        self._count += learn
        return out

    @staticmethod
    def refuse_unusable(x: Array) -> None:
        """Raise for a row whose norm, missing values being 0, leaves no room for a constant."""
        if not _norm(x) <= _MAX_NORM:
            problem.refuse_context(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf))

    @property
    def _unit(self) -> float:
        return 1.0 / math.sqrt(self._first + int(self.intercept)) if self.scale else 1.0

    def _scaled(self, X: ArrayLike, learn: bool) -> Array:
        X, _ = problem.contexts(X, self.n_features, gaps=self.gaps)
        out = np.empty((len(X), self.n_columns))
        moments = (self._counts, self._mean, self._squares)
        place = self._first if self.intercept else -1
        _scale_rows(X, *moments, learn, self.scale, place, self._unit, out)
        return out

    def grow(self, n_features: int) -> None:
        """Make room for features that were 0 in every example so far.

        Their columns come last in the output, behind the constant.
        """
        more = problem.count("n_features", n_features, self.n_features) - self.n_features
        self.n_features += more
        self._counts = np.concatenate([self._counts, np.full(more, self._count)])
        self._mean = np.concatenate([self._mean, np.zeros(more)])
        self._squares = np.concatenate([self._squares, np.zeros(more)])

    def to_record(self) -> Record:
        """Return the full state as a record."""
        config = {
            "n_features": self.n_features,
            "scale": self.scale,
            "intercept": self.intercept,
            "gaps": self.gaps,
            "first": self._first,
            "count": self._count,
        }
        arrays: dict[str, NDArray[Any]] = {
            "counts": self._counts.copy(),
            "mean": self._mean.copy(),
            "squares": self._squares.copy(),
        }
        return Record("OnlineScaler", config, arrays)

    @classmethod
    def from_record(cls, record: Record) -> "OnlineScaler":
        """Rebuild a scaler that goes on exactly where the recorded one stopped."""
        words = dict(record.config)
        try:
            first = problem.count("first", words.pop("first"), 1)
            count = problem.count("count", words.pop("count"), 0)
            scaler = cls(**words)
        except (KeyError, TypeError, ValueError) as error:
            raise StateFileError(
                f"an OnlineScaler state has a bad configuration: {error}"
            ) from None
        moments = {
            "counts": scaler._counts,
            "mean": scaler._mean,
            "squares": scaler._squares,
        }
        for name, own in moments.items():
            array = record.arrays.get(name)
            if array is None or array.shape != own.shape or array.dtype != own.dtype:
                raise StateFileError(f"an OnlineScaler state needs {name} of shape {own.shape}")
            own[:] = array
        scaler._first, scaler._count = first, count
        return scaler


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _scale_rows(
    X: Array,
    counts: NDArray[np.int64],
    mean: Array,
    squares: Array,
    learn: bool,
    scale: bool,
    constant: int,
    unit: float,
    out: Array,
) -> None:
    """Welford's recursion: no sum of squares, so a large offset costs no accuracy.

    The constant is in the column of that number; -1 is none.
    """
    T, d = X.shape
    for t in range(T):
        if constant >= 0:
            out[t, constant] = unit
        for j in range(d):
            value = X[t, j]
            place = j + 1 if 0 <= constant <= j else j
            if np.isnan(value):
                out[t, place] = 0.0
                continue
            n = counts[j] + 1
            from_old = value - mean[j]
            centre = mean[j] + from_old / n
            from_new = value - centre
            spread = squares[j] + from_old * from_new
            if learn:
                counts[j] = n
                mean[j] = centre
                squares[j] = spread
            if scale:
                score = from_new / np.sqrt(spread / n) if spread > 0.0 else 0.0
                out[t, place] = unit * min(max(score, -LARGEST_SCORE), LARGEST_SCORE)
            else:
                out[t, place] = value


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _norm(x: Array) -> float:
    """Return |x|, missing values (NaN) being 0; infinity passes through."""
    total = 0.0
    for value in x:
        if not math.isnan(value):
            total += value * value
    return math.sqrt(total)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _scale_row(
    x: Array,
    counts: NDArray[np.int64],
    mean: Array,
    squares: Array,
    learn: bool,
    scale: bool,
    intercept: bool,
    first: int,
    out: Array,
) -> bool:
    """Scale one row; return False, all untouched, if its norm is unusable."""
    if not _norm(x) <= _MAX_NORM:
        return False
    _scale_rows(
        x.reshape(1, x.size), counts, mean, squares, learn, scale,
        first if intercept else -1, 1.0 / math.sqrt(first + intercept) if scale else 1.0,
        out.reshape(1, out.size),
    )  # fmt: skip
    return True
