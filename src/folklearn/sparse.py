"""Sparse rows as the kernels take them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError

Indices = NDArray[np.int32] | NDArray[np.int64]

_DENSE_BATCH_NUMBERS = 2**21


class SparseRow(NamedTuple):
    """One context: sorted, distinct indices of what is not 0, and the values there."""

    indices: Indices
    values: Array


class SparseRows:
    """Contexts (T, d): row t has `values` at sorted `indices`, from indptr[t] to indptr[t + 1].

    A slice shares the arrays, so that the first row need not begin at 0.
    """

    words: Array = np.empty(0)  # see `StackedRows`
    bases: Array = np.empty((0, 0))

    def __init__(
        self, indptr: NDArray[np.int64], indices: Indices, values: Array, n_features: int
    ) -> None:
        self.indptr, self.indices, self.values = indptr, indices, values
        self.shape = len(indptr) - 1, n_features

    @classmethod
    def of(cls, X: Any) -> "SparseRows":
        """Return rows as they are, or those of a dense or sparse array, its indices not checked.

        Values of an index that a row names twice are added up, and values of 0 are dropped.
        """
        if isinstance(X, SparseRows):
            return X
        from scipy.sparse import csr_array

        X = csr_array(X)
        if not X.has_canonical_format or np.count_nonzero(X.data) < X.nnz:
            X = X.copy()
            X.sum_duplicates()
            X.eliminate_zeros()
        values = np.require(X.data, np.float64, ["C", "A"])
        indices = X.indices.astype(index_type(X.shape[1]), copy=False)
        return cls(X.indptr.astype(np.int64), indices, values, X.shape[1])

    @classmethod
    def checked(cls, X: Any) -> "SparseRows":
        """Return the rows of a sparse array of SciPy that holds numbers at valid indices."""
        if isinstance(X, SparseRows):
            return X
        if X.dtype.kind not in "fiub":
            raise InvalidInputError(f"X must hold real numbers, got dtype {X.dtype}")
        if X.format == "csr" and X.nnz:  # SciPy does not check what is assigned to them
            check_indices(X.indices[: X.indptr[-1]], X.shape[1])
        return cls.of(X)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: Any) -> "SparseRows":
        """Return the rows of a slice, not copied if it has no step, or of numbers or a mask."""
        if isinstance(which, slice) and which.step in (None, 1):
            start, stop, _ = which.indices(len(self))
            indptr = self.indptr[start : max(start, stop) + 1]
            return SparseRows(indptr, self.indices, self.values, self.shape[1])
        return SparseRows.of(self.array()[which])

    def compact(self) -> "SparseRows":
        """Return the same rows with nothing before the first or behind the last; not copied."""
        used = slice(self.indptr[0], self.indptr[-1])
        if used == slice(0, len(self.values)):
            return self
        starts = self.indptr - self.indptr[0]
        return SparseRows(starts, self.indices[used], self.values[used], self.shape[1])

    def __iter__(self) -> Iterator[SparseRow]:
        return map(self.row, range(len(self)))

    def row(self, t: int) -> SparseRow:
        used = slice(self.indptr[t], self.indptr[t + 1])
        return SparseRow(self.indices[used], self.values[used])

    def array(self) -> Any:
        """Return a SciPy array of the same rows, not copied."""
        from scipy.sparse import csr_array

        rows = self.compact()
        return csr_array((rows.values, rows.indices, rows.indptr), shape=self.shape)

    def arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        rows = self.compact()
        arrays = {"indptr": rows.indptr, "indices": rows.indices, "values": rows.values}
        arrays["width"] = np.array([self.shape[1]])
        return {prefix + name: array for name, array in arrays.items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> "SparseRows":
        """Return the rows of `arrays`; ValueError if they are not valid."""
        from scipy.sparse import csr_array

        names = ("indptr", "indices", "values")
        indptr, indices, values = (arrays[prefix + name] for name in names)
        rows = cls(indptr, indices, values, int(arrays[f"{prefix}width"].item()))
        kinds = [array.dtype.str for array in (indptr, indices, values)]
        if kinds not in (["<i8", "<i4", "<f8"], ["<i8", "<i8", "<f8"]):
            raise ValueError("sparse rows are of other types")
        try:
            array = csr_array((values, indices, indptr), shape=rows.shape)
            array.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"sparse rows lead outside their arrays: {error}") from None
        is_whole = array.has_canonical_format and array.nnz == len(values)
        if not (is_whole and np.isfinite(values).all()):
            raise ValueError("sparse rows are not sorted, not whole, or not finite")
        return rows

    def __matmul__(self, M: Array) -> Array:
        return self.array() @ M

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    def norms(self) -> Array:
        with np.errstate(over="ignore"):
            lengths: Array = np.sqrt(self.array().power(2).sum(axis=1))
        return lengths

    def dense(self) -> Array:
        return self.array().toarray()

    def dense_parts(self) -> Iterator[slice]:
        """Yield slices of rows that are small enough to be made dense."""
        size = max(1, _DENSE_BATCH_NUMBERS // self.shape[1])
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))


class StackedRows(SparseRows):
    """Sparse rows with another view of them, and with what another model says of them."""

    def __init__(self, rows: SparseRows, words: Array, bases: Array) -> None:
        super().__init__(rows.indptr, rows.indices, rows.values, rows.shape[1])
        self.words = words  # the second value of every column, 0 where it is not in view
        self.bases = bases  # (T, K), logits of the rows by the other model

    def __getitem__(self, which: Any) -> "StackedRows":
        if isinstance(which, slice):
            return StackedRows(super().__getitem__(which), self.words, self.bases[which])
        places = np.arange(1.0, len(self.values) + 1.0)  # of values: words may be 0
        rows = SparseRows(self.indptr, self.indices, places, self.shape[1])[which]
        at = rows.values.astype(np.int64) - 1
        rows = SparseRows(rows.indptr, rows.indices, self.values[at], self.shape[1])
        return StackedRows(rows, self.words[at], self.bases[which])

    def on_top(self) -> SparseRows:
        """Return the words alone, which are added to the base."""
        words = SparseRows(self.indptr, self.indices, self.words, self.shape[1])
        return SparseRows.of(words.array())


Contexts = Array | SparseRows
Context = Array | SparseRow


def check_indices(indices: Any, n_features: int, name: str = "X") -> None:  # at least one
    if not 0 <= indices.min() <= indices.max() < n_features:
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise InvalidInputError(f"{name} names feature {wrong}; expected 0 to {n_features - 1}")


def check_columns(columns: Any, n_features: int) -> None:
    if len(columns):
        check_indices(columns, n_features)
    if len(np.unique(columns)) < len(columns):
        raise InvalidInputError("a column is named twice")


def concatenate(parts: Sequence[SparseRows]) -> SparseRows:
    compact = [rows.compact() for rows in parts]
    return SparseRows(
        np.concatenate([[0], *(np.diff(rows.indptr) for rows in parts)]).cumsum(),
        np.concatenate([rows.indices for rows in compact]),
        np.concatenate([rows.values for rows in compact]),
        parts[0].shape[1],
    )


def index_type(n_features: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if n_features <= 2**31 else np.int64


def is_sparse(X: Any) -> bool:
    if isinstance(X, SparseRows):
        return True
    scipy_sparse = sys.modules.get("scipy.sparse")  # without it there is no such X
    return scipy_sparse is not None and scipy_sparse.issparse(X)


def dense_row(x: SparseRow, n_features: int) -> Array:
    full = np.zeros(n_features)
    full[x.indices] = x.values
    return full


def sparse_row(x: Array) -> SparseRow:
    indices: Any = np.flatnonzero(x).astype(index_type(x.size))
    return SparseRow(indices, x[indices])
