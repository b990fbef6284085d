"""Where sums over rows are made, and in which order: the same for any number of threads.

Rows are cut into leaves, every leaf is summed by itself, and the sums of leaves are added up in
one binary tree. Where the cuts are depends on the problem alone, so that on one machine and build
the result has the same bits whichever threads did the work.
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

_LEAF = 1 << 27  # multiply-adds of a leaf: about ten milliseconds
_A_ROW = 1 << 12  # what a row takes beside its products, in multiply-adds
_LEAST_ROWS = 2048  # of a leaf: to add its sums up takes as long as about thirty rows


class Summand(Protocol):
    """What can be added up; neither side changes."""

    def __add__(self, other: Any, /) -> Any:
        """Return the sum of both."""


S = TypeVar("S", bound=Summand)


class Leaf(NamedTuple):
    """Rows that are summed together, by one thread.

    first : number of the first of these rows among all, from 0.
    parts : the rows, one after the other, to be gone over once.
    """

    first: int
    parts: Iterable[Rows]


def leaf_rows(n_features: int, n_classes: int, n_sums: int = 1) -> int | None:
    """Return how many rows make a leaf of sums over all pairs of classes.

    None for problems so large that BLAS shares out the products themselves to all cores.
    """
    if n_features * n_classes >= THREADED_N:
        return None
    products = n_sums * int(n_pairs(n_classes)) * int(n_products(n_features))
    return max(_LEAST_ROWS, _LEAF // (products + _A_ROW))


def leaves(blocks: Iterable[Rows], size: int, first: int = 0) -> Iterator[Leaf]:
    """Cut rows into leaves of so many, in whatever blocks they come; at least one leaf.

    A leaf is read while its parts are gone over, which ends when the next one is asked for.
    """
    there = (rows for rows in blocks if len(rows.X))
    rest = next(there, None)

    def parts() -> Iterator[Rows]:
        nonlocal rest
        missing = size
        while missing and rest is not None:
            n = min(missing, len(rest.X))
            yield rest.part(0, n)
            rest = rest.part(n, len(rest.X)) if n < len(rest.X) else next(there, None)
            missing -= n

    while True:
        own = parts()
        yield Leaf(first, own)
        deque(own, maxlen=0)  # what nobody has looked at
        if rest is None:
            return
        first += size


def added_up(parts: Iterable[S]) -> S:
    """Return the sum of all, in a tree: the first 2^k of them, as many as there are, and the rest.

    At most log2 of their number are held at a time.
    """
    held: list[tuple[int, S]] = []  # sums of 2^level parts, the level falling
    for part in parts:
        level = 0
        while held and held[-1][0] == level:
            part = held.pop()[1] + part
            level += 1
        held.append((level, part))
    total = held.pop()[1]
    while held:
        total = held.pop()[1] + total
    return total


@dataclass(frozen=True)
class Engine:
    """Where sums are made.

    n_jobs : threads, at least 1.
    device : None for this library's own compiled code.
    """

    n_jobs: int = 1
    device: Device | None = None

    @classmethod
    def chosen(cls, n_jobs: Any = 1, device: Any = None) -> Self:
        """Return what a user asks for by ``n_jobs``, -1 for all cores, and ``device``."""
        number = validation.count("n_jobs", n_jobs, -1)
        if number == 0:
            raise InvalidInputError(
                "n_jobs must be a number of threads, or -1 for as many as there are cores, got 0"
            )
        return cls(_n_cores() if number == -1 else number, device_named(device))

    def total(
        self, blocks: Iterable[Rows], size: int | None, summed: Callable[[Leaf], S], first: int = 0
    ) -> S:
        """Return what all rows add up to, `summed` of leaves of so many rows each.

        Without a size all rows are one leaf, and BLAS takes the threads that it likes. Rows are
        read by this thread: the only one holds a block of them at a time, several hold a leaf each
        and one or two that wait. Whatever is raised, here or in a leaf, ends it all.
        """
        if size is None:
            return summed(Leaf(first, blocks))
        with (
            OneThread(everywhere=True),
            closing(self._in_order(leaves(blocks, size, first), summed)) as sums,
        ):
            return added_up(sums)

    def _in_order(self, leaves: Iterator[Leaf], summed: Callable[[Leaf], S]) -> Generator[S]:
        """Yield what leaves sum up to, one after the other."""
        if self.n_jobs == 1:
            yield from map(summed, leaves)
            return
        pool = ThreadPoolExecutor(self.n_jobs, "folklearn")
        ahead: deque[Future[S]] = deque()
        try:
            for leaf in leaves:
                ahead.append(pool.submit(summed, leaf._replace(parts=list(leaf.parts))))
                if len(ahead) > self.n_jobs:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


HERE = Engine()  # one thread, this library's own code


def _n_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
