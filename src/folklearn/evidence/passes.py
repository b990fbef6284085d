"""A pass over all rows: their loss at one model, and their quadratics there, as sums.

What is asked for several times (the best model in hindsight, a penalised fit) is found by
Newton's method with one pass for each step: the step comes from the sums, and whether it led
down is seen in the next pass.

Where the rows lie does not matter to either: an engine is a class with one method,
`Passes.total`.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn.arrays import Array, logit_losses
from folklearn.errors import InvalidInputError
from folklearn.evidence.evidence import merged
from folklearn.evidence.map_reduce import ONE_THREAD, MapReduce, RowChunk, S, chunk_rows
from folklearn.kernels.evidence import (
    N_TOTALS,
    add_products,
    add_residuals,
    expand_rows,
    n_pairs,
    n_products,
    rows_at_once,
    scratch_for,
)
from folklearn.kernels.lower_bound import AnyQuadratic, loss_at_most
from folklearn.kernels.on_torch.device import Device
from folklearn.kernels.on_torch.quadratic import DeviceQuadratic, add_expanded
from folklearn.kernels.on_torch.rows import DeviceRows
from folklearn.kernels.quadratic import Quadratic
from folklearn.validation import Rows

Blocks = Callable[[], Iterable[Rows]]  # checked rows, the same ones whenever it is called

_FEW = 4  # pairs up to which it is not worth while to pack the products of features
_MANY = 1 << 16  # rows at a time that are only counted
_MOST_ROWS = 1024  # at a time, of which the products are not packed
_SHORTEST, _LONGEST = 0.1, 0.5  # of the step before, after one that led nowhere


class Passes(ABC):
    """All rows, to be gone over as often as it takes, wherever they lie."""

    @abstractmethod
    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        """Return what all rows add up to: `sum_chunk` of chunks of about so many rows, added up.

        Without a size one chunk is best. What `sum_chunk` and its sums hold can be pickled.
        """

    @property
    def device(self) -> Device | None:
        """Where sums over pairs of classes are made; None for this library's own code."""
        return None

    def on_device(self, n_classes: int) -> Iterable[tuple[int, DeviceRows]]:
        """Return all rows on the device, each part with the number of its first row."""
        raise NotImplementedError("rows are brought to a device by who has one")

    def sums(self, W: Array, classes: Sequence[float] = ()) -> "AtModel":
        """Return all rows, expanded at a model W (K, d), with a proof for every class named."""
        K, d = W.shape
        if self.device is not None:
            return SumsOnDevice(self.device, self.on_device(K), W, classes)
        size = chunk_rows(d, K, 1 + len(classes))
        return self.total(size, lambda chunk: Sums.of(chunk, W, classes))

    @property
    def n_rows(self) -> int:
        """How many rows there are; it takes a pass."""
        return self.total(_MANY, lambda chunk: sum(len(rows.X) for rows in chunk.batches))


class PassesHere(Passes):
    """Rows that this process can read, gone over by its threads.

    Parameters
    ----------
    blocks : called for every pass, returns the same checked rows each time, in blocks.
    engine : what goes over them.
    """

    def __init__(self, blocks: Blocks, engine: MapReduce = ONE_THREAD) -> None:
        self._blocks, self._engine = blocks, engine
        self._held: list[tuple[int, DeviceRows]] | None = None

    @property
    def device(self) -> Device | None:
        """Where sums over pairs of classes are made."""
        return self._engine.device

    def on_device(self, n_classes: int) -> Iterator[tuple[int, DeviceRows]]:
        """Yield all rows on the device; they stay there for the next pass if they fit."""
        device = self._engine.device
        if device is None or self._held is not None:
            yield from self._held or ()
            return
        held: list[tuple[int, DeviceRows]] = []
        room, first = device.bytes_free() / 2, 0
        for rows in self._blocks():
            for _, dense in rows.dense_parts():
                for part in DeviceRows.parts_of(device, n_classes, *dense):
                    room -= part.n_bytes
                    if room >= 0.0:
                        held.append((first, part))
                    else:
                        held.clear()
                    yield first, part
                    first += len(part.X)
        self._held = held if room >= 0.0 else None

    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        """Return what all rows add up to."""
        return self._engine.total(self._blocks(), size, sum_chunk)


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
    """Return rows that are checked and can be gone over as often as it takes.

    X, y, weight are arrays, X perhaps a sparse one; or X is a function that returns blocks
    (X, y) or (X, y, weight) anew for every pass, and y and weight are None. `n_jobs` threads
    share every pass, on one machine with the same results to the last bit; -1 is all cores.
    ``device`` is where sums over pairs of classes are made: "cpu", the default, or a device of
    PyTorch such as "cuda". Rows stay there between two passes if they fit in half of its memory.
    """
    engine = MapReduce.from_options(n_jobs, device)
    sizes = {"n_features": n_features, "n_classes": n_classes}
    if not callable(X):
        rows = Rows.checked(X, [] if y is None else y, weight, **sizes)
        return PassesHere(lambda: [rows], engine)
    if y is not None or weight is not None:
        raise InvalidInputError("a function that returns blocks brings labels and weights itself")
    source = X

    def checked() -> Iterable[Rows]:
        for block in source():
            X, y, *more = block
            rows = Rows.checked(X, y, more[0] if more else None, **sizes)
            yield copy.deepcopy(rows)  # the source may fill its arrays anew for the next block

    return PassesHere(checked, engine)


class AtModel(ABC):
    """All rows, expanded at one model W (K, d), and the loss of W.

    The first sum has gamma = 1/2: it is the loss to second order. Every class B that is named
    has one more, which lies below the loss of all its models.
    """

    def __init__(self, W: Array) -> None:
        self.W, self.loss = W, 0.0

    @abstractmethod
    def quadratic(self, place: int = 0) -> AnyQuadratic:
        """Return one of the sums."""

    @property
    def loss_at_most(self) -> float:
        """The loss of W, rounded up: its true loss is not above."""
        return loss_at_most(self.loss, self.quadratic().totals, self.W)

    def gradient(self) -> Array:
        """Return the gradient (K, d) of the loss at W."""
        model = self.quadratic()
        slopes: Array = model.G + 2.0 * model.pulled(self.W)
        return slopes


class SumsOnDevice(AtModel):
    """The sums of rows on a device."""

    def __init__(
        self,
        device: Device,
        parts: Iterable[tuple[int, DeviceRows]],
        W: Array,
        classes: Sequence[float],
    ) -> None:
        super().__init__(W)
        K, d = W.shape
        at = device.put(W)
        self._sums = [
            DeviceQuadratic(
                device, device.zeros(n_pairs(K), d, d), device.zeros(K, d), np.zeros(N_TOTALS)
            )
            for _ in (0.0, *classes)
        ]
        for _, rows in parts:
            self.loss += add_expanded(self._sums, rows, at, (0.0, *classes))

    def quadratic(self, place: int = 0) -> DeviceQuadratic:
        """Return one of the sums."""
        return self._sums[place]


class Sums(AtModel):
    """The sums of rows here, which can be added up. Rows are packed once for all."""

    def __init__(self, W: Array, classes: Sequence[float] = ()) -> None:
        super().__init__(W)
        K, d = W.shape
        self._classes = (0.0, *classes)
        n = len(self._classes)
        self._S: Array = np.zeros((n, n_pairs(K), n_products(d)))
        self._G: Array = np.zeros((n, K, d))
        self._totals: Array = np.zeros((n, N_TOTALS))

    @classmethod
    def of(cls, chunk: RowChunk, W: Array, classes: Sequence[float] = ()) -> Self:
        """Return the sums of the rows of a chunk."""
        sums = cls(W, classes)
        for rows in chunk.batches:
            sums.add(rows)
        return sums

    def __add__(self, other: "Sums") -> "Sums":
        """Return the sums of both sets of rows, expanded at the same model."""
        if self._classes != other._classes or not np.array_equal(self.W, other.W):
            raise InvalidInputError("sums are added up only for the same model and classes")
        both = Sums(self.W, self._classes[1:])
        both.loss = self.loss + other.loss
        both._S, both._G = self._S + other._S, self._G + other._G
        both._totals = merged(self._totals, other._totals)
        return both

    def add(self, rows: Rows) -> None:
        """Add rows."""
        for _, dense in rows.dense_parts():
            self._add(dense)

    def _add(self, rows: Rows) -> None:
        n, P, D = self._S.shape
        K, d = self.W.shape
        S = self._S.reshape(n * P, D)
        few = n * P <= _FEW
        size = _MOST_ROWS if few else rows_at_once(n * P, d)
        scratch = scratch_for(d, len(rows.X))
        for start in range(0, len(rows.X), size):
            X, norms, labels, soft, weights = rows.part(start, start + size)
            Z = X @ self.W.T
            self.loss += float(weights @ logit_losses(Z, labels, soft))
            coefficients, one = np.empty((len(X), n * P)), np.empty((len(X), P))
            residuals = np.empty((len(X), K))
            for s, B in enumerate(self._classes):
                expand_rows(
                    Z.copy(), labels, soft, weights, norms, B, one, residuals, self._totals[s]
                )
                coefficients[:, s * P : (s + 1) * P] = one
                add_residuals(self._G[s], residuals, X)
            if few:
                _add_each(S, coefficients, X)
            else:
                add_products(S, coefficients, X, scratch)

    def quadratic(self, place: int = 0) -> Quadratic:
        """Return one of the sums."""
        return Quadratic(self._S[place], self._G[place], self._totals[place])


def _add_each(S: Array, coefficients: Array, X: Array) -> None:
    """S (P, D) += coefficients' (products of features), one product of matrices for each pair."""
    lower = np.tril_indices(X.shape[1])
    for pair, c in zip(S, coefficients.T, strict=True):
        pair += ((X * c[:, None]).T @ X)[lower]


def shorter(slope: float, rise: float) -> float:
    """Return by how much to shorten a step that led up, from a parabola through both ends.

    `slope` is that of the whole step at its beginning, `rise` what it led up by.
    """
    lowest = -slope / (2.0 * (rise - slope)) if rise > slope else _LONGEST
    return min(max(lowest, _SHORTEST), _LONGEST)
