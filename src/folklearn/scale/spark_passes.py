"""Passes over a Spark data frame: rows are made once, kept by executors, and summed in a tree."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self, cast

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evidence.passes import ONE_THREAD, Passes, RowChunk, S, add_in_tree
from folklearn.scaler import FixedScaler, Moments
from folklearn.utils import import_optional
from folklearn.validation import Rows

_MAX_ROWS_OF_MOMENTS = 1 << 16  # rows whose moments are found at a time
_FAN = 8  # sums that are added at a time
_SUM = "place bigint, content binary"


class ScoredRows(NamedTuple):
    """Checked rows, and the losses (T,) of predictions of them, if any."""

    rows: Rows
    losses: Array = np.empty(0)


BlocksOf = Callable[[Iterable[Any]], Iterable[ScoredRows]]  # of the batches of a partition


class SparkPasses(Passes):
    """Passes over rows that executors hold; a context manager, which unpersists them at the end.

    A pass sums every partition by itself, and adds the pickled sums of eight neighbours at a time
    until eight are left for the driver; the tree depends on the partitions alone.

    Parameters
    ----------
    df : of which the rows are made; it must have the same rows whenever Spark reads it.
    blocks_of : makes blocks of the Arrow batches of a partition, in executors.
    """

    def __init__(self, df: Any, blocks_of: BlocksOf) -> None:
        self._functions = import_optional("pyspark.sql.functions", "this needs", "spark")
        self._blocks = df.mapInArrow(_pickle_rows(blocks_of), "part bigint, n bigint, block binary")
        self._blocks = self._blocks.persist()
        counts = self._blocks.groupBy("part").agg({"n": "sum"}).collect()
        sizes = dict(sorted((number, n) for number, n in counts if n))
        if not sizes:
            self.__exit__()
            raise InvalidInputError("there are no rows with a label")
        firsts = list(accumulate(sizes.values(), initial=0))
        self._n_rows: int = firsts.pop()
        self._firsts: dict[int, int] = dict(zip(sizes, firsts, strict=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks.unpersist()

    @property
    def n_rows(self) -> int:
        return self._n_rows

    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        def of_rows(first: int, blocks: Iterable[ScoredRows]) -> S:
            return ONE_THREAD.total((block.rows for block in blocks), size, sum_chunk, first)

        return self.of_partitions(of_rows)

    def of_partitions(self, of: Callable[[int, Iterable[ScoredRows]], S]) -> S:
        """Return the sum of what `of` makes of every partition's first row number and blocks."""
        functions, n_sums = self._functions, len(self._firsts)
        sums = self._blocks.where("n > 0").mapInArrow(_sum_partitions(of, self._firsts), _SUM)
        while n_sums > _FAN:
            neighbours = functions.expr(f"place div {_FAN}").alias("eight")
            sums = sums.groupBy(neighbours).applyInArrow(_add_neighbours, _SUM)
            n_sums = -(n_sums // -_FAN)
        collected = sorted(sums.collect(), key=itemgetter("place"))
        return cast("S", add_in_tree(pickle.loads(row["content"]) for row in collected))


def _pickle_rows(blocks_of: BlocksOf) -> Callable[..., Iterator[Any]]:
    def keep(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        for block in blocks_of(batches):
            values = [number], [len(block.rows.X)], [pickle.dumps(block)]
            yield pa.RecordBatch.from_arrays([*map(pa.array, values)], ["part", "n", "block"])

    return keep


def _sum_partitions(
    of: Callable[[int, Iterable[ScoredRows]], Any], firsts: dict[int, int]
) -> Callable[..., Iterator[Any]]:
    places = {number: rank for rank, number in enumerate(firsts)}

    def sum_up(batches: Iterable[Any]) -> Iterator[Any]:
        pairs = (pair for batch in batches for pair in zip(batch["part"], batch["block"]))  # noqa: B905
        for number, group in groupby(pairs, key=lambda pair: pair[0].as_py()):
            blocks = (pickle.loads(content.as_buffer()) for _, content in group)
            yield _batch(places[number], of(firsts[number], blocks))

    return sum_up


def _add_neighbours(key: tuple[Any, ...], sums: Any) -> Any:
    import pyarrow as pa

    contents = sums.sort_by("place")["content"]
    total = add_in_tree(pickle.loads(content.as_buffer()) for content in contents)
    return pa.Table.from_batches([_batch(key[0].as_py(), total)])


def _batch(place: int, total: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"place": [place], "content": [pickle.dumps(total)]})


def _moments_of(chunk: RowChunk) -> Moments:
    return Moments.of(np.concatenate([rows.X for rows in chunk.batches]))


class ScaledPasses(Passes):
    """Rows standardised by means and deviations of all rows, with a constant."""

    def __init__(self, passes: Passes, n_features: int) -> None:
        moments = passes.total(_MAX_ROWS_OF_MOMENTS, _moments_of)
        self._passes, self._scaler = passes, FixedScaler().opened(moments, [True] * n_features)

    @property
    def n_rows(self) -> int:
        return self._passes.n_rows

    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        scaler = self._scaler

        def scale(batches: Iterable[Rows]) -> Iterator[Rows]:
            for rows in batches:
                Z = scaler.transform(rows.X)
                yield rows._replace(X=Z)

        return self._passes.total(
            size, lambda chunk: sum_chunk(RowChunk(chunk.first, scale(chunk.batches)))
        )
