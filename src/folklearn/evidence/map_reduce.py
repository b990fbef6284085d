"""Sums over rows in an order that does not depend on the number of threads.

Rows are cut into chunks, every chunk is summed by itself, and the sums of chunks are added up in
one binary tree. The cuts depend on the sizes of the problem alone, so that on one machine and build
the result has the same bits for any number of threads.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from folklearn import validation
from folklearn.errors import InvalidInputError
from folklearn.kernels.blas import THREADED_N, OneThread, device_named
from folklearn.kernels.evidence import n_pairs, n_products
from folklearn.kernels.on_torch.device import Device
from folklearn.validation import Rows

_CHUNK_FLOPS = 1 << 27  # multiply-adds: about ten milliseconds
_ROW_FLOPS = 1 << 12  # multiply-adds of a row besides its products of features
_MIN_CHUNK_ROWS = 2048  # to add two sums up takes as long as about thirty rows


class SupportsAdd(Protocol):
    """A sum that can be added to another one; neither is changed."""

    def __add__(self, other: Any, /) -> Any: ...


S = TypeVar("S", bound=SupportsAdd)


class RowChunk(NamedTuple):
    """Consecutive rows that one thread sums.

    first : number of the first of these rows among all, from 0.
    batches : the rows, in order, to be iterated over once.
    """

    first: int
    batches: Iterable[Rows]


def chunk_rows(n_features: int, n_classes: int, n_sums: int = 1) -> int | None:
    """Return the number of rows of a chunk of sums over all pairs of classes.

    None for problems so large that BLAS uses all cores for the products themselves.
    """
    if n_features * n_classes >= THREADED_N:
        return None
    products = n_sums * int(n_pairs(n_classes)) * int(n_products(n_features))
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
    subtotals: list[tuple[int, S]] = []  # (level, total of 2^level sums), levels decreasing
    for subtotal in sums:
        level = 0
        while subtotals and subtotals[-1][0] == level:
            subtotal = subtotals.pop()[1] + subtotal
            level += 1
        subtotals.append((level, subtotal))
    total = subtotals.pop()[1]
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
        return cls(_n_cores() if n_threads == -1 else n_threads, device_named(device))

    def total(
        self,
        batches: Iterable[Rows],
        size: int | None,
        sum_chunk: Callable[[RowChunk], S],
        first: int = 0,
    ) -> S:
        """Return the sum over all rows, `sum_chunk` of chunks of `size` rows added up.

        Without a size all rows are one chunk, and BLAS uses as many threads as it likes. This
        thread reads the rows: with one job it holds a batch at a time, with several a chunk for
        each and one or two that wait. An exception in a chunk ends all.
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


def _n_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
