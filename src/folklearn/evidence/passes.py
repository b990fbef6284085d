"""Sums over rows, by threads or on a device, and passes over all rows as such sums.

Rows are cut into chunks, every chunk is summed by itself, and the sums of chunks are added up in
one binary tree. The cuts depend on the sizes of the problem alone, so that on one machine and build
the result has the same bits for any number of threads. A new way to go over rows is a class with
one method, `Passes.total`.
"""

import copy
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, logit_losses
from folklearn.errors import InvalidInputError
from folklearn.kernels import evidence as kernels
from folklearn.kernels.blas import THREADED_N, OneThread, device_named
from folklearn.kernels.on_torch import Device
from folklearn.kernels.on_torch.expand import DeviceRows, add_expanded
from folklearn.kernels.quadratic import Quadratic
from folklearn.validation import Rows

_CHUNK_FLOPS = 1 << 27  # multiply-adds: about ten milliseconds
_ROW_FLOPS = 1 << 12  # multiply-adds of a row besides its products of features
_MIN_CHUNK_ROWS = 2048  # to add two sums up takes as long as about thirty rows
_MAX_UNPACKED_PAIRS = 4  # up to which it is not worth while to pack the products of features
_UNPACKED_BATCH_ROWS = 1024
_COUNTED_CHUNK_ROWS = 1 << 16
_MIN_BACKTRACK, _MAX_BACKTRACK = 0.1, 0.5  # of the step before


S = TypeVar("S")  # a sum: + makes another one of two, and changes neither
Batches = Callable[[], Iterable[Rows]]  # checked rows, the same ones in every call


class RowChunk(NamedTuple):
    """Consecutive rows that one thread sums."""

    first: int  # number of the first of these rows among all, from 0
    batches: Iterable[Rows]  # to be iterated over once


def chunk_rows(n_features: int, n_classes: int) -> int | None:
    """Return the number of rows of a chunk of a sum over all pairs of classes.

    None for problems so large that BLAS uses all cores for the products themselves.
    """
    if n_features * n_classes >= THREADED_N:
        return None
    products = int(kernels.n_pairs(n_classes)) * int(kernels.n_products(n_features))
    return max(_MIN_CHUNK_ROWS, _CHUNK_FLOPS // (products + _ROW_FLOPS))


def split_into_chunks(batches: Iterable[Rows], size: int, first: int = 0) -> Iterator[RowChunk]:
    """Cut batches of any sizes into chunks of `size` rows; no rows are one empty chunk.

    The rows of a chunk can be read until the next chunk is asked for.
    """
    remaining = (rows for rows in batches if len(rows.X))
    rest = next(remaining, None)

    def rows_of_chunk() -> Iterator[Rows]:
        nonlocal rest
        missing = size
        while missing and rest is not None:
            n = min(missing, len(rest.X))
            yield rest.part(0, n)
            rest = rest.part(n, len(rest.X)) if n < len(rest.X) else next(remaining, None)
            missing -= n

    while True:
        rows = rows_of_chunk()
        yield RowChunk(first, rows)
        deque(rows, maxlen=0)  # drain unread rows
        if rest is None:
            return
        first += size


def add_in_tree(sums: Iterable[S]) -> S:
    """Return the total in a binary tree: of the first 2^k sums, for the largest k, and of the rest.

    At most log2 of their number are held at a time.
    """
    subtotals: list[tuple[int, Any]] = []  # (level, total of 2^level sums), levels decreasing
    for subtotal in sums:
        level = 0
        while subtotals and subtotals[-1][0] == level:
            subtotal = subtotals.pop()[1] + subtotal
            level += 1
        subtotals.append((level, subtotal))
    total: S = subtotals.pop()[1]
    while subtotals:
        total = subtotals.pop()[1] + total
    return total


@dataclass(frozen=True)
class MapReduce:
    """Sums over chunks of rows, by threads or on a device.

    n_jobs : threads, at least 1.
    device : None for this library's own compiled code.
    """

    n_jobs: int = 1
    device: Device | None = None

    @classmethod
    def from_options(cls, n_jobs: Any = 1, device: Any = None) -> Self:
        """Check the options of a user: a number of threads, -1 for all cores, and a device name."""
        n_threads = validation.count("n_jobs", n_jobs, -1)
        if n_threads == 0:
            raise InvalidInputError(
                "n_jobs must be a number of threads, or -1 for as many as there are cores, got 0"
            )
        if n_threads == -1:
            has_affinity = hasattr(os, "sched_getaffinity")
            n_threads = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        return cls(n_threads, device_named(device))

    def total(
        self,
        batches: Iterable[Rows],
        size: int | None,
        sum_chunk: Callable[[RowChunk], S],
        first: int = 0,
    ) -> S:
        """Return the sum over all rows, `sum_chunk` of chunks of `size` rows added up.

        Without a size all rows are one chunk, and BLAS uses as many threads as it likes. This
        thread reads the rows, with several jobs a chunk for each and one or two that wait.
        """
        if size is None:
            return sum_chunk(RowChunk(first, batches))
        chunks = split_into_chunks(batches, size, first)
        with OneThread(everywhere=True), closing(self._in_order(chunks, sum_chunk)) as sums:
            return add_in_tree(sums)

    def _in_order(
        self, chunks: Iterator[RowChunk], sum_chunk: Callable[[RowChunk], S]
    ) -> Generator[S]:
        if self.n_jobs == 1:
            yield from map(sum_chunk, chunks)
            return
        pool = ThreadPoolExecutor(self.n_jobs, "folklearn")
        futures: deque[Future[S]] = deque()
        try:
            for chunk in chunks:
                futures.append(pool.submit(sum_chunk, chunk._replace(batches=list(chunk.batches))))
                if len(futures) > self.n_jobs:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


ONE_THREAD = MapReduce()  # of this library's own code


class Passes(ABC):
    """All rows of a problem, read as often as needed."""

    @abstractmethod
    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        """Return the sum over all rows, see `MapReduce.total`; `sum_chunk` can be pickled."""

    @property
    def device(self) -> Device | None:
        """Where sums over pairs of classes are made; None for this library's own code."""
        return None

    def on_device(self, n_classes: int) -> Iterable[tuple[int, DeviceRows]]:
        """Return all rows on the device, in batches with the number of their first row."""
        raise NotImplementedError("only passes with a device bring rows to it")

    def expand(self, W: Array) -> "Expansion":
        """Return the expansion of all rows at a model W (K, d)."""
        K, d = W.shape
        if self.device is not None:
            expansion, on_device = Expansion(W, self.device), self.device.put(W)
            S, G, _ = expansion.quadratic
            for _, rows in self.on_device(K):
                expansion.loss += add_expanded(self.device, S, G, rows, on_device)
            return expansion
        return self.total(chunk_rows(d, K), lambda chunk: Expansion.of(chunk, W))

    @property
    def n_rows(self) -> int:
        """The number of rows; it takes a pass."""
        return self.total(
            _COUNTED_CHUNK_ROWS, lambda chunk: sum(len(rows.X) for rows in chunk.batches)
        )


class LocalPasses(Passes):
    """Rows that this process can read, summed by its threads or on a device.

    `batches` is called for every pass, and returns the same checked rows each time.
    """

    def __init__(self, batches: Batches, engine: MapReduce = ONE_THREAD) -> None:
        self._batches, self._engine = batches, engine
        self._on_device: list[tuple[int, DeviceRows]] | None = None

    @property
    def device(self) -> Device | None:
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
            for X, *targets in rows.dense_parts():
                for batch in DeviceRows.batches_of(device, n_classes, X, *targets):
                    room -= batch.n_bytes
                    if room >= 0.0:
                        kept.append((first, batch))
                    else:
                        kept.clear()
                    yield first, batch
                    first += len(batch.X)
        self._on_device = kept if room >= 0.0 else None

    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
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
    share every pass; -1 is all cores. ``device`` is where sums over pairs of classes are made.
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
            rows = Rows.checked(X, y, *(weights or [None]), **sizes)
            yield copy.deepcopy(rows)  # the source may fill its arrays anew for the next batch

    return LocalPasses(check_batches, engine)


class Expansion:
    """The loss of a model W (K, d) on rows, and the sum of their quadratics at W.

    The sum is the loss to second order, up to a constant.
    """

    def __init__(self, W: Array, device: Device | None = None) -> None:
        self.W, self.loss = W, 0.0
        self.quadratic = Quadratic.zeros(*W.shape, device=device)

    @classmethod
    def of(cls, chunk: RowChunk, W: Array) -> Self:
        expansion = cls(W)
        for rows in chunk.batches:
            for dense in rows.dense_parts():
                expansion._add(dense)
        return expansion

    def __add__(self, other: "Expansion") -> "Expansion":
        if not np.array_equal(self.W, other.W):
            raise InvalidInputError("sums are added up only for the same model")
        both = copy.copy(self)
        both.loss = self.loss + other.loss
        both.quadratic = self.quadratic + other.quadratic
        return both

    def _add(self, rows: Rows) -> None:
        S, G, _ = self.quadratic
        K, d = G.shape
        P = len(S)
        is_unpacked = P <= _MAX_UNPACKED_PAIRS
        size = _UNPACKED_BATCH_ROWS if is_unpacked else kernels.rows_at_once(P, d)
        for start in range(0, len(rows.X), size):
            X, labels, soft, weights = rows.part(start, start + size)
            Z = X @ self.W.T
            self.loss += float(weights @ logit_losses(Z, labels, soft))
            coefficients, residuals = np.empty((len(X), P)), np.empty((len(X), K))
            kernels.expand_rows(Z, labels, soft, weights, coefficients, residuals)
            kernels.add_residuals(G, residuals, X)
            if is_unpacked:  # one product of matrices for each pair
                lower = np.tril_indices(d)
                for pair, c in zip(S, coefficients.T, strict=True):
                    pair += ((X * c[:, None]).T @ X)[lower]
            else:
                kernels.add_products(S, coefficients, X)

    def gradient(self) -> Array:
        """Return the gradient (K, d) of the loss at W."""
        return self.quadratic.gradient(self.W)


def backtrack_factor(slope: float, rise: float) -> float:
    """Return by how much to shorten a step of this slope that led up by `rise`: by a parabola."""
    lowest = -slope / (2.0 * (rise - slope)) if rise > slope else _MAX_BACKTRACK
    return min(max(lowest, _MIN_BACKTRACK), _MAX_BACKTRACK)
