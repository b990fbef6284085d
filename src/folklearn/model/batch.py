"""Batches of rows: raw ones that are kept, and what came of rows that were learned."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from folklearn.arrays import Array, Labels
from folklearn.metrics.records import PredictionBatch
from folklearn.model.sparse_scaler import SparseInput

_NO_PREDICTIONS = np.empty((0, 0))


class RawBatch(NamedTuple):
    """Rows before scaling.

    X : (T, d), or a `SparseInput`.
    Y : (T, K) targets: soft labels, or 1 for the class.
    weights : (T,).
    P : (T, K) predictions, or (T, 0) where they are not needed.
    """

    X: Any
    Y: Array
    weights: Array
    P: Array

    @classmethod
    def of(
        cls, X: Any, labels: Labels, soft: Array, weights: Array, P: Array = _NO_PREDICTIONS
    ) -> "RawBatch":
        """Copy rows with labels (T,), or soft labels (T, K) where `soft` has rows."""
        P = P.copy() if len(P) else np.empty((len(weights), 0))
        X = X.copy() if isinstance(X, np.ndarray) else X[:]
        return cls(X, one_hot(labels, soft), weights.copy(), P)

    def take(self, rows: Any) -> "RawBatch":
        """Return some of the rows: a slice, or a mask (T,)."""
        return RawBatch(*(array[rows] for array in (self.X, self.Y, self.weights, self.P)))

    def resize(self, n_features: int, n_classes: int, numeric: Sequence[bool] = ()) -> "RawBatch":
        """Return the rows with this many raw features and classes.

        Features that came later are NaN where `numeric` (d,), or beyond it, and 0 elsewhere.
        """
        X, Y, weights, P = self
        if isinstance(X, SparseInput):
            X = X.of_slots(n_features)
        elif X.shape[1] != n_features:
            X = pad_features(X[:, :n_features], n_features, numeric)
        return RawBatch(
            X, pad_classes(Y, n_classes), weights, pad_classes(P, n_classes) if P.shape[1] else P
        )

    @classmethod
    def concat(cls, batches: Sequence["RawBatch"], numeric: Sequence[bool] = ()) -> "RawBatch":
        """Return the rows of several batches, with the features and classes of all."""
        if len(batches) == 1:
            return batches[0]
        n_classes = max(max(batch.Y.shape[1], batch.P.shape[1]) for batch in batches)
        sparse = isinstance(batches[0].X, SparseInput)
        widths = [max([0, *b.X.slots, *b.X.parts]) if sparse else b.X.shape[1] for b in batches]
        sized = [batch.resize(max(widths), n_classes, numeric) for batch in batches]
        Xs, Ys, weights, Ps = zip(*sized, strict=True)
        X = SparseInput.joined(Xs) if sparse else np.concatenate(Xs)
        return cls(X, *map(np.concatenate, (Ys, weights, Ps)))

    def arrays(self, prefix: str = "") -> dict[str, Any]:
        """Return everything as arrays by name."""
        X = self.X.arrays() if isinstance(self.X, SparseInput) else {"X": self.X}
        named = {"Y": self.Y, "weights": self.weights, "P": self.P, **X}
        return {prefix + name: array for name, array in named.items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any], prefix: str) -> "RawBatch | None":
        """Return what `arrays` gave, None if nothing has the prefix."""
        named = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        if not named:
            return None
        X = named["X"] if "X" in named else SparseInput.of_arrays(named)
        return cls(X, named["Y"], named["weights"], named["P"])

    def has_sizes(self, *, n_features: int, n_classes: int, sparse: bool) -> bool:
        """Tell whether all parts are rows of the same number, and of at most these sizes."""
        X, Y, weights, P = self
        if isinstance(X, SparseInput):
            fits = sparse and X.has_sizes(len(weights), n_features)
        else:
            fits = not sparse and X.ndim == 2 and X.shape[1] <= n_features
        return (
            fits
            and Y.ndim == P.ndim == 2
            and {len(X), len(Y), len(P)} == {len(weights)}
            and max(Y.shape[1], P.shape[1]) <= max(1, n_classes)
        )


class BatchResult(NamedTuple):
    """Rows that were predicted and, where they have a label, learned.

    P : (T, K) probabilities of the classes known by then, which share 1 - unseen.
    unseen : (T,) of a class that was never seen; 0 where all classes are declared.
    numbers : (T,) class numbers, -1 for a row without a label and for a soft label.
    losses : (T,) unweighted log losses, NaN for a row without a label.
    weights : (T,) of the rows.
    learned : the same with all that a `Metrics` counts, None for rows that were only predicted.
    X : the rows as the encoder gives them, None for rows that were only predicted.
    labels : (T,) class numbers, or soft labels (T, K), of these.
    """

    P: Array
    unseen: Array
    numbers: Labels
    losses: Array
    weights: Array
    learned: PredictionBatch | None = None
    X: Any = None
    labels: Any = None


class BatchBuffer:
    """Batches and single dense rows in the order in which they came."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._batches: list[RawBatch] = []
        self._rows: list[tuple[Array, int, Array, float]] = []  # behind the batches

    def add(self, batch: RawBatch) -> None:
        """Keep a batch, which must share nothing with arrays of the caller."""
        self._collect_rows(())
        self._batches.append(batch)
        self.n_rows += len(batch.weights)

    def add_row(self, x: Array, label: int, soft: Array, weight: float) -> None:
        """Keep a copy of one dense row (d,), with a label or a soft label."""
        self._rows.append((x.copy(), label, soft, weight))
        self.n_rows += 1

    def _collect_rows(self, numeric: Sequence[bool]) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        xs, labels, softs, weights = zip(*rows, strict=True)
        width = max(map(len, xs))
        if all(len(x) == width for x in xs):
            X = np.array(xs)
        else:
            X = np.concatenate([pad_features(x[None], width, numeric) for x in xs])
        Y = np.zeros((len(rows), max(1, *map(len, softs), max(labels) + 1)))
        for target, label, soft in zip(Y, labels, softs, strict=True):
            target[: len(soft)] = soft
            if label >= 0:
                target[label] = 1.0
        self._batches.append(RawBatch(X, Y, np.array(weights), np.empty((len(rows), 0))))

    def batch(self, numeric: Sequence[bool] = ()) -> RawBatch | None:
        """Return all rows as one batch, None if there are none; see `RawBatch.resize`."""
        self._collect_rows(numeric)
        if self._batches:
            self._batches = [RawBatch.concat(self._batches, numeric)]
            return self._batches[0]
        return None

    def clear(self) -> None:
        """Forget all rows."""
        self.n_rows, self._batches, self._rows = 0, [], []

    @property
    def n_bytes(self) -> int:
        """About how much memory the rows take."""
        kept: int = sum(a.nbytes for batch in self._batches for a in batch.arrays().values())
        return kept + sum(x.nbytes for x, *_ in self._rows)


def one_hot(labels: Labels, soft: Array) -> Array:
    """Return targets (T, K) of labels (T,), or of soft labels (T, K) where `soft` has rows."""
    if len(soft):
        return soft.copy()
    Y = np.zeros((len(labels), int(labels.max(initial=0)) + 1))
    Y[np.arange(len(labels)), labels] = 1.0
    return Y


def pad_classes(table: Array, n_classes: int) -> Array:
    """Return a table (T, k) with n_classes columns: 0 for classes that came later."""
    missing = n_classes - table.shape[1]
    if missing > 0:
        return np.pad(table, ((0, 0), (0, missing)))
    return table[:, :n_classes] if missing else table


def pad_features(X: Array, n_features: int, numeric: Sequence[bool]) -> Array:
    """Return rows X (T, d) with `n_features`: later ones NaN if numeric, or not named, else 0."""
    d = X.shape[1]
    if d >= n_features:
        return X
    late = np.full(n_features - d, np.nan)
    is_numeric = np.asarray(numeric[d:n_features], bool)
    late[: len(is_numeric)][~is_numeric] = 0.0
    return np.hstack([X, np.broadcast_to(late, (len(X), n_features - d))])
