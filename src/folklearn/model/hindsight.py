"""The answer in hindsight to a run: an ordinary logistic regression of all of its rows."""

import math
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import memory
from folklearn.arrays import Array
from folklearn.evaluate.regression import Regression, logistic_regression
from folklearn.model.batch import BatchResult, one_hot, pad_classes, pad_features
from folklearn.model.sparse_scaler import SPACE, SparseInput, assemble
from folklearn.scaler import FixedScaler, Moments
from folklearn.sparse import SparseRows
from folklearn.validation import NO_SOFT_ROWS

if TYPE_CHECKING:
    from folklearn.model.model import Model

_MAX_WEIGHTS = 3000  # classes times columns that are fitted unasked
_MAX_SHARE_OF_MEMORY = 1.0 / 16.0  # that encoded rows may take, unasked


def is_regression_affordable(n_weights: int, n_bytes: int) -> bool:
    """Return whether a regression of rows of some bytes is computed without being asked for."""
    room = _MAX_SHARE_OF_MEMORY * (memory.bytes_present() or math.inf)
    return n_weights <= _MAX_WEIGHTS and n_bytes <= room


class EncodedRows:
    """Rows of a run as the encoder gives them, kept as long as a regression of them is wanted.

    Parameters
    ----------
    exact : True keeps them whatever it takes, False never, None while they are few enough.
    """

    def __init__(self, exact: bool | None = None) -> None:
        self._exact = exact
        self._parts: list[tuple[Any, Any, Array]] = []
        self._n_bytes = 0
        self.are_kept = exact is not False

    def add(self, model: "Model", result: BatchResult) -> None:
        """Take rows that were learned."""
        if not self.are_kept or result.X is None:
            return
        self._parts.append((result.X, result.labels, result.weights))
        self._n_bytes += _n_bytes(result.X)
        if self._exact is None:
            n_weights = len(model.labels) * _n_columns(result.X)
            if not is_regression_affordable(n_weights, self._n_bytes):
                self.are_kept, self._parts = False, []

    def regression(self, model: "Model") -> Regression | None:
        """Return the regression of all rows, None if they were not kept or have one class."""
        pipeline, columns, K = model.pipeline, model.encoder, len(model.labels)
        if not self._parts or pipeline is None or columns is None or K < 2:
            return None
        parts, self._parts = self._parts, []
        encode = self._sparse if pipeline.sparse else self._dense
        X, start, constant = encode(parts, model)
        y = _concat_labels([labels for _, labels, _ in parts], K)
        weights = np.concatenate([weights for *_, weights in parts])
        found = logistic_regression(
            X, y, n_classes=K, weight=weights, constant=constant, start=start
        )
        words = columns.in_words.format(by="these rows") if model.scale else "as they are"
        # Weights of words are too many to be kept, and the model has its own.
        kept = found.W if not pipeline.sparse else np.empty((K, 0))
        return replace(found, W=kept, features=f"the columns ({words})")

    def _dense(self, parts: list[Any], model: "Model") -> tuple[Any, Array, int | None]:
        pipeline = model.pipeline
        assert pipeline is not None
        numeric = pipeline.evidence.numeric
        d = len(numeric)
        moments = reduce(
            Moments.merged, (Moments.of(pad_features(X, d, numeric)) for X, *_ in parts)
        )
        scaler = FixedScaler(scale=model.scale, intercept=model.intercept)
        scaler = scaler.opened(moments, numeric)
        scaler.mean_square = 1.0  # in standard deviations, not divided
        Z, first = np.empty((sum(len(X) for X, *_ in parts), scaler.n_columns)), 0
        for X, *_ in parts:
            Z[first : first + len(X)] = scaler.transform(pad_features(X, d, numeric))
            first += len(X)
        start = np.nan_to_num(scaler.model(*pipeline.linear()))
        return Z, start, 0 if model.intercept else None

    def _sparse(self, parts: list[Any], model: "Model") -> tuple[Any, Array, int | None]:
        X = SparseInput.joined([X for X, *_ in parts])
        scaler = FixedScaler(scale=model.scale, intercept=False)
        scaler = scaler.opened(Moments.of(X.numbers), [True] * X.numbers.shape[1])
        scaler.mean_square = 1.0
        n_columns = (max([0, *X.slots, *X.parts]) + 1) * SPACE
        Z = assemble(
            X, scaler.transform(X.numbers), 1.0 if model.scale else None,
            1.0 if model.intercept else None, n_columns,
        ).compact()  # fmt: skip
        # Only columns that occur have a gradient: a model has 0 elsewhere.
        columns, places = np.unique(Z.indices, return_inverse=True)
        narrow = SparseRows(Z.indptr, places.astype(np.int32), Z.values, max(1, len(columns)))
        start = np.zeros((len(model.labels), narrow.shape[1]))
        return narrow.array(), start, 0 if model.intercept else None


def _concat_labels(parts: list[Any], n_classes: int) -> Any:
    """Return class numbers (T,), or soft labels (T, K) if some are."""
    if all(np.ndim(labels) == 1 for labels in parts):
        return np.concatenate(parts)
    soft = [labels if np.ndim(labels) == 2 else one_hot(labels, NO_SOFT_ROWS) for labels in parts]
    return np.concatenate([pad_classes(Y, n_classes) for Y in soft])


def _n_columns(X: Any) -> int:
    """Return the number of columns, of sparse rows at least."""
    if not isinstance(X, SparseInput):
        return int(X.shape[1]) + 1
    return (
        1 + len(X.slots) + sum(len(np.unique(rows.compact().indices)) for rows in X.parts.values())
    )


def _n_bytes(X: Any) -> int:
    if not isinstance(X, SparseInput):
        return int(X.nbytes)
    return int(X.numbers.nbytes) + sum(12 * rows.nnz for rows in X.parts.values())
