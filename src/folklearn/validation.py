"""The vocabulary, and the one place where input is validated.

Vocabulary (one meaning each, everywhere in code and documentation):

    d, K, T    features, classes, rounds          k = K - 1,  n = k d
    x  (d,)    context                            X  (T, d)
    W  (K, d)  linear predictor; the comparator class bounds every row norm by B
    z  (K,)    logits, modulo constants           p = softmax(z)
    y          label: an int in 0..K-1, or a point of the simplex (K,), a soft label
    w          sample weight, at least 0          R  bound on |x|, for defaults only
    lam, gamma ridge lam |W|_F^2; curvature of the quadratic surrogate
    Q  (K, k)  Helmert basis of the complement of the all-ones vector
    S  (n, n), theta (n,)    A^-1 and A^-1 g of the surrogate state, class-major
    P, C, q    S(I (x) x), (I (x) x)'P, (I (x) x)'theta: the state seen through x

Every check raises InvalidInputError with what was wrong and where, before any state is
touched.
"""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from folklearn import sparse
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError
from folklearn.sparse import Context, Contexts, SparseRow, SparseRows

# Within these, no product of the kernels overflows: w^2 |x|^2 / lam stays far below 1e300.
MAX_NORM = 1e15
MAX_WEIGHT = 1e15
MAX_PARAMETER = 1e15
SOFT_LABEL_TOLERANCE = 1e-6
NO_SOFT: Array = np.empty(0)  # the soft label of a hard one
NO_SOFT_ROWS: Array = np.empty((0, 0))
_FLOAT64 = np.dtype(np.float64)
_POSITIVE = f"a positive number between {1.0 / MAX_PARAMETER:g} and {MAX_PARAMETER:g}"


def count(name: str, value: Any, least: int, most: float = math.inf) -> int:
    """Return a size as int: integers of any kind are accepted, floats and bools are not."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidInputError(f"{name} must be an integer, got {value!r}")
    if not least <= number <= most:
        limit = f"at least {least}" if number < least else f"at most {most:,}"
        raise InvalidInputError(f"{name} must be {limit}, got {number}")
    return number


def sizes(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return n_features and n_classes of parameters that are not checked yet."""
    d = count("n_features", params["n_features"], 1)
    return d, count("n_classes", params["n_classes"], 2)


def number(name: str, value: Any, low: float, high: float, expected: str = "") -> float:
    """Return a float from `low` to `high`; the message says what was `expected`."""
    converted = _as_float(value)
    if not low <= converted <= high:
        expected = expected or f"a number from {low:g} to {high:g}"
        raise InvalidInputError(f"{name} must be {expected}, got {value!r}")
    return converted


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def positive(name: str, value: Any) -> float:
    return number(name, value, 1.0 / MAX_PARAMETER, MAX_PARAMETER, _POSITIVE)


def fraction(name: str, value: Any, most: float = 0.5) -> float:
    return number(name, value, 0.0, most)


def probability(name: str, value: Any, *, certain: bool = False) -> float:
    """Return a number above 0 and below 1, or at most 1 if it may be `certain`."""
    high, limit = (1.0, "at most") if certain else (math.nextafter(1.0, 0.0), "below")
    return number(name, value, math.nextafter(0.0, 1.0), high, f"a number above 0 and {limit} 1")


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        words = ", ".join(map(repr, choices))
        raise InvalidInputError(f"{name} must be one of {words}, got {value!r}")
    return value


def generator(seed: Any) -> np.random.Generator:
    """Return a generator for a seed; a generator is taken as it is, and then advanced."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(count("seed", seed, 0))


def numbers(name: str, value: ArrayLike) -> Array:
    """Return real numbers as a C-ordered, writeable float64 array."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiubO":  # text would be parsed, complex truncated
            raise TypeError(f"got dtype {array.dtype}")
        return np.require(array, np.float64, ["C", "A", "W"])  # the layout the kernels know
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must hold real numbers: {error}") from None


def numbers_within(
    name: str, value: ArrayLike, shape: tuple[int, ...], low: float, high: float, expected: str = ""
) -> Array:
    """Return an array of a shape, numbers from `low` to `high`; messages say what is `expected`."""
    array, expected = numbers(name, value), expected or f"a number from {low:g} to {high:g}"
    if array.shape != shape:
        raise InvalidInputError(f"{name} has shape {array.shape}; expected {shape}: {expected}")
    outside = np.argwhere(~((array >= low) & (array <= high)))
    if len(outside):
        index = tuple(outside[0].tolist())
        raise InvalidInputError(f"{name}{list(index)} is {array[index]:.9g}; expected {expected}")
    return array


def table(X: Any) -> Any:
    if not sparse.is_sparse(X):
        X = numbers("X", X)
    if len(X.shape) != 2:
        raise InvalidInputError(f"X has shape {X.shape}; expected (rows, features)")
    return SparseRows.checked(X) if sparse.is_sparse(X) else X


def contexts(X: ArrayLike, n_features: int, *, gaps: bool = False) -> Array:
    """Return X (T, d), every row checked; with gaps, NaN counts as 0."""
    X = numbers("X", X)
    _check_width(X, n_features)
    check_contexts(X, gaps=gaps)
    return X


def rows_of_contexts(X: Any, n_features: int) -> Contexts:
    """Return contexts (T, d), dense or sparse as they came, all checked."""
    if not sparse.is_sparse(X):
        return contexts(X, n_features)
    _check_width(X, n_features)
    X = SparseRows.checked(X)
    check_contexts(X)
    return X


def _check_width(X: Any, n_features: int) -> None:
    if X.shape[1:] != (n_features,):
        raise InvalidInputError(f"X has shape {X.shape}; expected (T, n_features={n_features})")


def check_contexts(X: Any, *, gaps: bool = False) -> None:
    """Raise for the first row of numbers that cannot be used; with gaps, NaN counts as 0."""
    if gaps:
        X = np.nan_to_num(X, nan=0.0, posinf=np.inf, neginf=-np.inf)
    bad = np.flatnonzero(~(norms(X) <= MAX_NORM))
    if bad.size:
        row = X.row(bad[0]) if isinstance(X, SparseRows) else X[bad[0]]
        check_context(row, f"row {bad[0]} of X")


def norms(X: Contexts) -> Array:
    return X.norms() if isinstance(X, SparseRows) else np.sqrt(np.einsum("ij,ij->i", X, X))


def is_context(x: Any, shape: tuple[int, ...]) -> TypeGuard[Array]:
    """Return whether x is already as kernels take it."""
    return type(x) is np.ndarray and x.dtype is _FLOAT64 and x.shape == shape and x.flags.carray


def context(x: ArrayLike, n_features: int) -> Array:
    """Return x (d,) by shape and type; compiled code checks its norm (see `check_context`)."""
    x = numbers("x", x)
    if x.shape != (n_features,):
        raise InvalidInputError(f"x has shape {x.shape}; expected (n_features={n_features},)")
    return x


def is_sparse_context(x: Any) -> bool:
    """Return whether x is a pair (indices, values); a list of two rows is a matrix."""
    return isinstance(x, tuple) and len(x) == 2 and hasattr(x[0], "__len__")


def sparse_context(x: Any, n_features: int) -> SparseRow:
    """Return one row given as (indices, values), sorted, checked but for its norm."""
    indices, values = x
    try:
        indices = np.asarray(indices)
    except ValueError:  # lists of several lengths
        indices = np.empty((0, 0))
    if not is_context(values, indices.shape):
        values = numbers("the values of x", values)
    is_whole = indices.dtype.kind in "iu" or not indices.size
    if indices.shape != values.shape or indices.ndim != 1 or not is_whole:
        raise InvalidInputError(
            "x is a pair and therefore read as (indices, values): expected whole numbers and one "
            "value for each index; give dense rows as an array or a list"
        )
    if not (indices[1:] > indices[:-1]).all():
        order = np.argsort(indices, kind="stable")
        indices, values = indices[order], values[order]
        twice = np.flatnonzero(indices[1:] == indices[:-1])
        if twice.size:
            raise InvalidInputError(f"x names feature {indices[twice[0]]} twice; add its values up")
    if indices.size and not (indices[0] >= 0 and indices[-1] < n_features):
        sparse.check_indices(indices, n_features, "x")
    if np.count_nonzero(values) < values.size:
        indices, values = indices[values != 0.0], values[values != 0.0]
    return SparseRow(np.require(indices, sparse.index_type(n_features), ["C", "A"]), values)


def usable_context(x: ArrayLike, n_features: int) -> Array:
    """Return x (d,), its norm checked too: for what is not checked by compiled code."""
    return usable(context(x, n_features))


def usable(x: Any) -> Any:
    values = x.values if isinstance(x, SparseRow) else x
    if not np.dot(values, values) <= MAX_NORM**2:
        check_context(x)
    return x


def check_context(x: Context, where: str = "x") -> NoReturn:
    """Raise for a context whose norm is not at most MAX_NORM."""
    places, values = x if isinstance(x, SparseRow) else (np.arange(len(x)), x)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InvalidInputError(
            f"{where} has {values[bad[0]]} at feature {places[bad[0]]}; every value must be "
            "finite: fill in or drop missing values first"
        )
    largest = int(np.argmax(np.abs(values)))
    raise InvalidInputError(
        f"{where} has a norm above {MAX_NORM:g}, too large for the arithmetic (feature "
        f"{places[largest]} is {values[largest]:g}): scale the features, or leave such values out"
    )


def label(y: Any, n_classes: int) -> tuple[int, Array]:
    """Return (class, empty) for a hard label and (-1, point of the simplex) for a soft one."""
    try:
        number = operator.index(y)
    except TypeError:
        if np.ndim(y) == 0:
            if isinstance(y, np.bool_):
                return label(int(y), n_classes)
            raise InvalidInputError(
                f"y must be an integer class or {n_classes} probabilities, got {y!r}"
            ) from None
        soft = numbers("y", y)
        if soft.shape != (n_classes,):
            raise InvalidInputError(
                f"soft label y has shape {soft.shape}; expected (n_classes={n_classes},)"
            ) from None
        return -1, _soft_labels(soft[None, :], "soft label y")[0]
    if not 0 <= number < n_classes:
        raise InvalidInputError(f"label y is {number}; expected 0 to {n_classes - 1}")
    return number, NO_SOFT


def labels(y: ArrayLike, n_rounds: int, n_classes: int) -> tuple[Labels, Array]:
    """Return (classes (T,), empty (0, K)) or (all -1, points of the simplex (T, K))."""
    array = np.asarray(y)
    if array.ndim == 2:
        soft = numbers("y", array)
        if soft.shape != (n_rounds, n_classes):
            raise InvalidInputError(
                f"soft labels y have shape {soft.shape}; expected {(n_rounds, n_classes)}"
            )
        return np.full(n_rounds, -1, dtype=np.int64), _soft_labels(soft, "row {} of y")
    if array.shape != (n_rounds,):
        raise InvalidInputError(
            f"y has shape {array.shape}; expected one label per row: ({n_rounds},)"
        )
    if array.dtype.kind == "O":
        array = np.array([label(value, n_classes)[0] for value in array], dtype=np.int64)
    elif array.dtype.kind not in "iub" and n_rounds:
        raise InvalidInputError(f"labels y must be integers, got dtype {array.dtype}")
    outside = np.flatnonzero((array < 0) | (array >= n_classes))
    if outside.size:
        row = outside[0]
        raise InvalidInputError(f"label y[{row}] is {array[row]}; expected 0 to {n_classes - 1}")
    return array.astype(np.int64), np.empty((0, n_classes))


def _soft_labels(soft: Array, where: str) -> Array:
    totals = soft.sum(axis=1)
    usable = (np.abs(totals - 1.0) <= SOFT_LABEL_TOLERANCE) & (soft >= 0.0).all(axis=1)
    bad = np.flatnonzero(~usable)
    if bad.size:
        raise InvalidInputError(
            f"{where.format(bad[0])} is {soft[bad[0]]}; a soft label must be non-negative "
            f"and sum to 1 within {SOFT_LABEL_TOLERANCE:g}"
        )
    return soft / totals[:, None]


def weight(w: Any) -> float:
    converted = _as_float(w)
    if not 0.0 <= converted <= MAX_WEIGHT:
        raise InvalidInputError(f"weight is {w!r}; expected a number from 0 to {MAX_WEIGHT:g}")
    return converted


def weights(w: ArrayLike | None, n_rounds: int) -> Array:
    if w is None:
        return np.ones(n_rounds)
    return numbers_within("weight", w, (n_rounds,), 0.0, MAX_WEIGHT)


def check_max_weight(w: float | Array, max_weight: float) -> None:
    """Raise if a weight, or one of several, is above the largest that a learner accepts."""
    largest = float(np.max(w, initial=0.0))
    if largest > max_weight:
        where = f"weight[{np.argmax(w)}]" if np.ndim(w) else "weight"
        raise InvalidInputError(
            f"{where} is {largest:g}, above max_weight={max_weight:g}, for which the learner was "
            "made: construct it with the largest weight that will occur, or divide the weights"
        )


class Rows(NamedTuple):
    """Checked examples: X (T, d), dense or sparse, labels and weights.

    Labels are classes (T,), or all -1 where `soft` (T, K) has rows.
    """

    X: Any  # Array, or SparseRows; `dense_parts` are dense
    labels: Labels
    soft: Array
    weights: Array

    @classmethod
    def checked(
        cls,
        X: Any,
        y: ArrayLike,
        weight: ArrayLike | None,
        *,
        n_features: int,
        n_classes: int,
        max_weight: float = math.inf,
    ) -> Self:
        X = rows_of_contexts(X, n_features)
        classes, soft = labels(y, len(X), n_classes)
        w = weights(weight, len(X))
        check_max_weight(w, max_weight)
        return cls(X, classes, soft, w)

    def part(self, start: int, stop: int) -> Self:
        return self.of(slice(start, stop))

    def dense_parts(self) -> Iterator[Self]:
        """Yield these examples with dense X: all of them, or of sparse ones a batch at a time."""
        if not isinstance(self.X, SparseRows):
            yield self
            return
        for batch in self.X.dense_parts():
            rows = self.of(batch)
            yield rows._replace(X=rows.X.dense())

    def of(self, which: Any) -> Self:
        """Return the examples of a slice, or of an array of row numbers in their order."""
        soft = self.soft[which] if len(self.soft) else self.soft
        return type(self)(self.X[which], self.labels[which], soft, self.weights[which])


def comparators(
    W: ArrayLike | None, B: Any, largest: float, n_classes: int, n_features: int
) -> tuple[float, float]:
    """Return B, `largest` by default, and the largest squared norm of models up to it, or of W."""
    if W is not None and B is not None:
        raise InvalidInputError("give W or B, not both: W has its own norm")
    covered = largest if B is None else positive("B", B)
    longest, squares = covered, n_classes * covered**2
    if W is not None:
        W = model("W", W, n_classes, n_features)
        longest, squares = longest_row(W) / (1.0 + 1e-9), float((W**2).sum())
    if longest > largest:
        raise InvalidInputError(
            f"a row norm of {longest:g} is outside the class that this certificate covers (at most "
            f"B={largest:g})"
        )
    return covered, squares


def longest_row(W: ArrayLike) -> float:
    """Return the largest norm of a row of W (K, d)."""
    return float(np.sqrt((np.asarray(W, np.float64) ** 2).sum(axis=1)).max())


def model(name: str, W: ArrayLike | None, n_classes: int, n_features: int) -> Array:
    """Return a linear model W (K, d), 0 by default."""
    if W is None:
        return np.zeros((n_classes, n_features))
    W = numbers(name, W)
    if W.shape != (n_classes, n_features) or not (np.abs(W) <= MAX_PARAMETER).all():
        raise InvalidInputError(
            f"{name} has shape {W.shape}; expected finite numbers of shape "
            f"(n_classes={n_classes}, n_features={n_features})"
        )
    return W
