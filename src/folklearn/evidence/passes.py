"""Passes over all rows: their loss at a model, and their quadratics there, as sums.

The best model in hindsight and a penalised fit take Newton steps, with one pass for each: the step
comes from the sums, and the next pass shows whether the loss has fallen. A new way to go over rows
is a class with one method, `Passes.total`.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn.arrays import Array, logit_losses
from folklearn.errors import InvalidInputError
from folklearn.evidence.map_reduce import ONE_THREAD, MapReduce, RowChunk, S, chunk_rows
from folklearn.kernels.evidence import (
    add_products,
    add_residuals,
    expand_rows,
    n_pairs,
    rows_at_once,
    scratch_for,
)
from folklearn.kernels.lower_bound import loss_at_most
from folklearn.kernels.on_torch.device import Device
from folklearn.kernels.on_torch.expand import DeviceRows, add_expanded
from folklearn.kernels.quadratic import Quadratic
from folklearn.validation import Rows

Batches = Callable[[], Iterable[Rows]]  # checked rows, the same ones in every call

_MAX_UNPACKED_PAIRS = 4  # up to which it is not worth while to pack the products of features
_UNPACKED_BATCH_ROWS = 1024
_COUNTED_CHUNK_ROWS = 1 << 16
_MIN_BACKTRACK, _MAX_BACKTRACK = 0.1, 0.5  # of the step before


class Passes(ABC):
    """All rows of a problem, read as often as needed."""

    @abstractmethod
    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        """Return the sum over all rows, `sum_chunk` of chunks of about `size` rows added up.

        Without a size one chunk is best. `sum_chunk` and its sums can be pickled.
        """

    @property
    def device(self) -> Device | None:
        """Where sums over pairs of classes are made; None for this library's own code."""
        return None

    def on_device(self, n_classes: int) -> Iterable[tuple[int, DeviceRows]]:
        """Return all rows on the device, in batches with the number of their first row."""
        raise NotImplementedError("only passes with a device bring rows to it")

    def expand(self, W: Array, classes: Sequence[float] = ()) -> "Expansion":
        """Return the expansion of all rows at a model W (K, d), with a proof for every class B."""
        K, d = W.shape
        if self.device is not None:
            expansion = Expansion(W, classes, self.device)
            for _, rows in self.on_device(K):
                expansion.add_on_device(rows)
            return expansion
        size = chunk_rows(d, K, 1 + len(classes))
        return self.total(size, lambda chunk: Expansion.of(chunk, W, classes))

    @property
    def n_rows(self) -> int:
        """The number of rows; it takes a pass."""
        return self.total(
            _COUNTED_CHUNK_ROWS, lambda chunk: sum(len(rows.X) for rows in chunk.batches)
        )


class LocalPasses(Passes):
    """Rows that this process can read, summed by its threads or on a device.

    Parameters
    ----------
    batches : called for every pass, returns the same checked rows each time.
    engine : threads and device.
    """

    def __init__(self, batches: Batches, engine: MapReduce = ONE_THREAD) -> None:
        self._batches, self._engine = batches, engine
        self._on_device: list[tuple[int, DeviceRows]] | None = None

    @property
    def device(self) -> Device | None:
        """Where sums over pairs of classes are made."""
        return self._engine.device

    def on_device(self, n_classes: int) -> Iterator[tuple[int, DeviceRows]]:
        """Yield all rows on the device; they stay there for the next pass if they fit."""
        device = self._engine.device
        if device is None or self._on_device is not None:
            yield from self._on_device or ()
            return
        kept: list[tuple[int, DeviceRows]] = []
        room, first = device.bytes_free() / 2, 0
        for rows in self._batches():
            for _, dense in rows.dense_parts():
                for batch in DeviceRows.batches_of(device, n_classes, *dense):
                    room -= batch.n_bytes
                    if room >= 0.0:
                        kept.append((first, batch))
                    else:
                        kept.clear()
                    yield first, batch
                    first += len(batch.X)
        self._on_device = kept if room >= 0.0 else None

    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        """Return the sum over all rows."""
        return self._engine.total(self._batches(), size, sum_chunk)


def passes_over(
    X: Any,
    y: ArrayLike | None,
    weight: ArrayLike | None,
    *,
    n_features: int,
    n_classes: int,
    n_jobs: int = 1,
    device: str | None = None,
) -> Passes:
    """Return passes over rows that are checked here.

    X, y, weight are arrays, X perhaps a sparse one; or X is a function that returns batches
    (X, y) or (X, y, weight) anew for every pass, and y and weight are None. `n_jobs` threads
    share every pass, on one machine with the same results to the last bit; -1 is all cores.
    ``device`` is where sums over pairs of classes are made: "cpu", the default, or a device of
    PyTorch such as "cuda". Rows stay there between two passes if they fit in half of its memory.
    """
    engine = MapReduce.from_options(n_jobs, device)
    sizes = {"n_features": n_features, "n_classes": n_classes}
    if not callable(X):
        rows = Rows.checked(X, [] if y is None else y, weight, **sizes)
        return LocalPasses(lambda: [rows], engine)
    if y is not None or weight is not None:
        raise InvalidInputError("a function that returns blocks brings labels and weights itself")
    source = X

    def check_batches() -> Iterable[Rows]:
        for X, y, *weights in source():
            rows = Rows.checked(X, y, weights[0] if weights else None, **sizes)
            yield copy.deepcopy(rows)  # the source may fill its arrays anew for the next batch

    return LocalPasses(check_batches, engine)


class Expansion:
    """The loss of a model W (K, d) on rows, and sums of their quadratics at W.

    The first sum has gamma = 1/2: it is the loss to second order. Every class B that is named
    has one more, which lies below the loss of all its models. Products of features are packed
    once for all sums.
    """

    def __init__(
        self, W: Array, classes: Sequence[float] = (), device: Device | None = None
    ) -> None:
        self.W, self.loss = W, 0.0
        self._classes = (0.0, *classes)
        self._sums = Quadratic.zeros(*W.shape, device=device, stacked=(len(self._classes),))

    @classmethod
    def of(cls, chunk: RowChunk, W: Array, classes: Sequence[float] = ()) -> Self:
        """Return the expansion of the rows of a chunk."""
        expansion = cls(W, classes)
        for rows in chunk.batches:
            for _, dense in rows.dense_parts():
                expansion._add(dense)
        return expansion

    def __add__(self, other: "Expansion") -> "Expansion":
        """Return the expansion of both sets of rows at the same model."""
        if self._classes != other._classes or not np.array_equal(self.W, other.W):
            raise InvalidInputError("sums are added up only for the same model and classes")
        both = copy.copy(self)
        both.loss, both._sums = self.loss + other.loss, self._sums + other._sums
        return both

    def _add(self, rows: Rows) -> None:
        n, K, d = self._sums.G.shape
        P = n_pairs(K)
        S = self._sums.S.reshape(n * P, -1)
        is_unpacked = n * P <= _MAX_UNPACKED_PAIRS
        size = _UNPACKED_BATCH_ROWS if is_unpacked else rows_at_once(n * P, d)
        scratch = scratch_for(d, len(rows.X))
        for start in range(0, len(rows.X), size):
            X, norms, labels, soft, weights = rows.part(start, start + size)
            Z = X @ self.W.T
            self.loss += float(weights @ logit_losses(Z, labels, soft))
            coefficients, of_class = np.empty((len(X), n * P)), np.empty((len(X), P))
            residuals = np.empty((len(X), K))
            for s, (B, (_, G, totals)) in enumerate(zip(self._classes, self.sums, strict=True)):
                expand_rows(Z.copy(), labels, soft, weights, norms, B, of_class, residuals, totals)
                coefficients[:, s * P : (s + 1) * P] = of_class
                add_residuals(G, residuals, X)
            if is_unpacked:
                _add_unpacked_products(S, coefficients, X)
            else:
                add_products(S, coefficients, X, scratch)

    def add_on_device(self, rows: DeviceRows) -> None:
        """Add rows that are on the device of the sums."""
        device = self._sums.device
        assert device is not None
        self.loss += add_expanded(device, self.sums, rows, device.put(self.W), self._classes)

    @property
    def sums(self) -> list[Quadratic]:
        """The sums: the loss to second order, and one for each class."""
        return [self._sums[s] for s in range(len(self._classes))]

    @property
    def loss_at_most(self) -> float:
        """The loss of W, rounded up: its true loss is not above."""
        return loss_at_most(self.loss, self.sums[0].totals, self.W)

    def gradient(self) -> Array:
        """Return the gradient (K, d) of the loss at W."""
        return self.sums[0].gradient(self.W)


def _add_unpacked_products(S: Array, coefficients: Array, X: Array) -> None:
    """S (P, D) += coefficients' (products of features), one product of matrices for each pair."""
    lower = np.tril_indices(X.shape[1])
    for pair, c in zip(S, coefficients.T, strict=True):
        pair += ((X * c[:, None]).T @ X)[lower]


def backtrack_factor(slope: float, rise: float) -> float:
    """Return by how much to shorten a step that led up, from a parabola through both ends.

    `slope` is that of the whole step at its beginning, `rise` what it led up by.
    """
    lowest = -slope / (2.0 * (rise - slope)) if rise > slope else _MAX_BACKTRACK
    return min(max(lowest, _MIN_BACKTRACK), _MAX_BACKTRACK)
