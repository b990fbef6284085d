"""The learner for wide and sparse rows: gradients, a rate for each column, several at once."""

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.kernels import sparse_sgd
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, ROUNDS, WEIGHT
from folklearn.kernels.hash_index import Columns, in_order
from folklearn.learners.base import Learner, WarmStart
from folklearn.progress import Report
from folklearn.serialization import Record, state_file_errors
from folklearn.sparse import (
    Context,
    Contexts,
    SparseRow,
    SparseRows,
    check_columns,
    index_type,
    sparse_row,
)
from folklearn.validation import Rows

_FIRST_REVIEW = 1024  # rounds; then at every doubling
_HOPELESS = 20.0  # nats lost more than the best since the last review, and
_MUCH_WORSE = 1.1  # times as much as the best
_CHUNK = 1e8  # numbers that are met between two chances to report or to be interrupted
_WIDEST = 2**62
_GENEROUS = 8  # times the room there was


class _Expert(NamedTuple):
    """What an expert does, for rows of norm about 1; see `kernels.sparse_sgd`."""

    kind: int
    rate: float
    offset: float = 0.0

    def scaled(self, R: float) -> tuple[float, ...]:
        """Return kind, rate and offset for rows of norm about R."""
        power = {sparse_sgd.WHOLE: 0, sparse_sgd.CONSTANT: 2}.get(self.kind, 1)
        return self.kind, self.rate / R**power, self.offset * R**2


# The first two stay for ever: the evidence is that of the first, the second follows a drift.
_EXPERTS = (
    _Expert(sparse_sgd.DUAL, 1.5, 1.0),
    _Expert(sparse_sgd.CONSTANT, 1.0),
    _Expert(sparse_sgd.ROOT, 1.0, 0.1),
    _Expert(sparse_sgd.ROOT, 2.0, 0.1),
    _Expert(sparse_sgd.ROOT, 4.0, 0.1),
    _Expert(sparse_sgd.ROOT, 8.0, 0.1),
    _Expert(sparse_sgd.WHOLE, 8.0, 1.0),
    _Expert(sparse_sgd.WHOLE, 16.0, 1.0),
)
_KEPT = 2


class SparseSgd(Learner):
    r"""First-order learner for wide, sparse rows and many classes; no learning rate.

    Use it for words, hashed features, crosses: whatever is too wide for `Leader` and `Folklore`,
    whose states grow with (K d)^2. `auto` takes it by itself.

    Eight softmax models learn side by side in one pass over the values of a row that are not 0,
    mixed by fixed share as in `Mixture`. Of the rows that had a value v in column j it keeps
    :math:`h_j = \sum w v^2 |p - y|^2`, one number for all classes, and moves

    .. math:: W_j \leftarrow W_j - \eta\, v\, w\, (p - y) \,/\, (\epsilon + h_j)^{a}

    with a = 1/2 (AdaGrad; four rates), a = 1 (about a Newton step; two) and a = 0 (a constant
    rate, for streams that drift), and one by dual averaging,
    :math:`W_j = -\eta G_j / (\epsilon + h_j)^{1/2}`, whose sum of gradients G is the evidence of
    the certificate (`LinearEvidence`). One rate for a column, instead of one for each of its K
    weights, needs a root instead of K and had the lower loss on every stream that was tried. At
    1024, 2048, ... rounds models retire that lost 20 nats and a tenth more than the best since
    the last time; the last two kinds stay.

    Time O(E K) a value that is not 0, E = 8 at first, mostly 4 or 5 later. Memory 8 E (K + 1)
    bytes for every column that occurred; d itself costs nothing, and may be 2^62.

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, for any B. It is of first order (`LinearEvidence`), looser than
    that of `Leader` where both fit. A bound known in advance is not claimed. The loss is at most
    that of the best model that has not retired plus :math:`w_{\max} (\ln 8 + \ln T)`; against one
    that has, this holds up to its retirement, and with ``retire=False`` nobody retires.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    R : typical norm of x.
    B : row norm of the models that `certificate` speaks of if it is not told.
    retire : stop experts that are hopeless.
    max_weight : largest sample weight that will occur; a row of that weight counts as 1.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import SparseSgd
    >>> model = SparseSgd(n_features=2**40, n_classes=3)
    >>> for t in range(300):
    ...     loss = model.update(([t % 3, 2**39 + t], [0.8, 0.6]), t % 3)  # indices, values
    >>> model.predict(([1], [1.0])).argmax(), model.certificate().valid, model.n_columns
    (np.int64(1), True, 303)

    References
    ----------
    Duchi, Hazan and Singer (2011), "Adaptive Subgradient Methods". Xiao (2010), "Dual Averaging
    Methods". Herbster and Warmuth (1998), "Tracking the best expert".
    See docs/theory/large-problems.md.
    """

    PARAMS = ("n_features", "n_classes", "R", "B", "retire", "max_weight")
    COUNTERS = ("_first_classes",)
    UNBOUNDED = ("limit",)
    takes_sparse = True

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        R: float = 1.0,
        B: float = 10.0,
        retire: bool = True,
        max_weight: float = 1.0,
    ) -> None:
        self._size(n_features, n_classes)
        if self.n_features > _WIDEST:
            raise InvalidInputError(f"n_features is {n_features}; expected at most 2^62")
        self.R = validation.positive("R", R)
        self.B = validation.positive("B", B)
        self.retire = bool(retire)
        self.max_weight = validation.positive("max_weight", max_weight)
        self._first_classes = self.n_classes
        self._index_type = index_type(self.n_features)
        self._experts: Array = np.array([expert.scaled(self.R) for expert in _EXPERTS])
        E = len(self._experts)
        self._standing: Array = np.zeros((3, E))
        self._standing[sparse_sgd.WEIGHTS] = 1.0 / E
        self._mixture: Array = np.zeros(2)
        self._totals: Array = np.zeros(N_TOTALS)
        self._limit: Array = np.array([math.inf])  # B that the evidence holds for
        self._columns = Columns()
        self._table: Array = np.zeros((self._columns.room, E, self.n_classes + 1))

    def _begin(self, start: WarmStart) -> None:
        """Take over, having learned nothing: every column was there, whatever its weights."""
        columns = np.arange(self.n_features)
        self._columns = Columns.of(columns)
        past = start.past
        entries = np.zeros((self.n_features, len(self._experts), self.n_classes + 1))
        entries[:, :, -1] = np.einsum("kjj->j", start.curvature)[:, None] / self.max_weight
        entries[:, :, :-1] = start.W.T[:, None]
        entries[past.columns, 0, :-1] = past.G / self.max_weight
        self._table = _with_room(entries, self._columns.room)
        self._totals[:] = past._totals
        self._totals[[CONSTANT, WEIGHT, REACH]] /= self.max_weight
        self._totals[DEPTH] += 2.0
        self._limit[:] = past.largest_B
        self._mixture[:] = start.loss / self.max_weight, start.n_rounds
        self._totals[ROUNDS], self._first_classes = start.n_rounds, past._first_classes

    @property
    def n_rounds(self) -> int:
        """The number of rounds learned so far, those of weight 0 included."""
        return int(self._totals[ROUNDS])

    def covers(self, B: float) -> bool:
        """Whether `certificate` can speak of a class: of any, unless it took over."""
        return bool(self._limit[0] * (1.0 + 1e-9) >= B)

    @property
    def n_columns(self) -> int:
        """The number of columns that occurred."""
        return self._columns.n

    def has_occurred(self, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell of columns (n,) whether they occurred."""
        return self._columns.find(columns) >= 0

    def n_columns_with(self, indices: NDArray[np.int64]) -> int:
        """Return how many columns will have occurred with these."""
        return self._columns.n_with(indices)

    @property
    def loss(self) -> float:
        """The total (weighted) loss so far."""
        return float(self._mixture[sparse_sgd.LOSS] * self.max_weight)

    def _own_context(self, x: Any) -> Any:
        # The usual case, without the words that `problem` has for all others.
        if type(x) is tuple and len(x) == 2:
            indices, values = x
            if (
                type(indices) is type(values) is np.ndarray
                and indices.dtype == self._index_type
                and values.dtype == np.float64
                and indices.ndim == 1
                and indices.shape == values.shape
                and indices.flags.carray
                and values.flags.carray
                and in_order(indices, values, self.n_features)
            ):
                return SparseRow(indices, values)
        return super()._own_context(x)

    def _predict(self, x: Context) -> Array:
        own = x if isinstance(x, SparseRow) else sparse_row(x)
        p = np.empty(self.n_classes)
        keys, places, _, _ = self._columns.table
        if not sparse_sgd.predict(
            keys, places, self._table, self._experts, self._standing, *own, validation.MAX_NORM, p
        ):
            validation.check_context(x)
        return p

    def _predict_rows(self, X: Contexts, norms: Array) -> Array:
        own = SparseRows.of_any(X)
        P = np.empty((len(own), self.n_classes))
        keys, places, _, _ = self._columns.table
        sparse_sgd.predict_rows(
            keys, places, self._table, self._experts, self._standing,
            own.indptr, own.indices, own.values, P,
        )  # fmt: skip
        return P

    def _expert_names(self) -> list[str]:
        kinds = {
            sparse_sgd.ROOT: "AdaGrad",
            sparse_sgd.WHOLE: "1/t",
            sparse_sgd.CONSTANT: "constant",
        }
        return [
            f"{kinds.get(int(kind), 'dual averaging')}, rate {rate:g}, offset {offset:g}"
            for kind, rate, offset in self._experts
        ]

    def _expert_predictions(self, X: Contexts, norms: Array) -> Array:
        own = SparseRows.of_any(X)
        P = np.empty((len(self._experts), len(own), self.n_classes))
        keys, places, _, _ = self._columns.table
        sparse_sgd.predict_each(
            keys, places, self._table, self._experts, own.indptr, own.indices, own.values, P
        )
        return P

    def _learn(self, x: Context, label: int, soft: Array, weight: float) -> float:
        indices, values = x if isinstance(x, SparseRow) else sparse_row(x)
        if self._columns.n + len(indices) > self._columns.room:
            self._make_room(len(indices))
        loss: float = sparse_sgd.learn(
            *self._columns.table, self._table, self._experts,
            self._standing, self._mixture, self._totals,
            indices, values, label, soft, weight / self.max_weight, validation.MAX_NORM,
            np.empty(self.n_classes),
        )  # fmt: skip
        if loss == loss and self.retire and self._is_due():
            self._review()
        return loss

    def _run(self, rows: Rows, report: Report | None) -> Array:
        rows = rows._replace(X=SparseRows.of_any(rows.X))
        T = len(rows.X)
        P = np.empty((T, self.n_classes))
        met = len(self._experts) * self.n_classes * (rows.X.nnz / max(T, 1) + 2.0)
        chunk = max(1, int(_CHUNK / met))
        for start in range(0, T, chunk):
            stop = min(start + chunk, T)
            self._learn_rows(rows.part(start, stop), P[start:stop])
            if report is not None:
                report(stop)
        return P

    def _learn_rows(self, rows: Rows, P: Array) -> None:
        """Predict sparse rows into P, then learn them."""
        start = 0
        while start < len(P):
            stop = min(start + self._rows_to_review(), len(P))
            X, _, labels, soft, weights = rows.part(start, stop)
            done = sparse_sgd.run(
                *self._columns.table, self._table, self._experts,
                self._standing, self._mixture, self._totals,
                X.indptr, X.indices, X.values, labels, soft, weights / self.max_weight,
                P[start:stop],
            )  # fmt: skip
            start += done
            if start < stop:
                self._make_room(int(rows.X.indptr[start + 1] - rows.X.indptr[start]))
            elif self.retire and self._is_due():
                self._review()

    def _make_room(self, n_more: int) -> None:
        """Make room for more columns."""
        # Pages that were never touched are not there: to be generous saves copies, not memory.
        n = self._columns.n
        columns = self._columns.with_room(max(_GENEROUS * self._columns.room, n + n_more))
        self._table = _with_room(self._table[:n], columns.room)
        self._columns = columns  # after the table, which may well have more room than they

    def _is_due(self) -> bool:
        return self.n_rounds >= _FIRST_REVIEW and self.n_rounds.bit_count() == 1

    def _rows_to_review(self) -> int:
        """Rows until experts are reviewed, so that `run` and the loop retire alike."""
        review = _FIRST_REVIEW
        while review <= self.n_rounds:
            review *= 2
        return review - self.n_rounds

    def _review(self) -> None:
        """Retire experts that were far behind since the last review."""
        recent = self._standing[sparse_sgd.LOSSES] - self._standing[sparse_sgd.REVIEWED]
        best = recent.min()
        stays = (recent <= best + _HOPELESS) | (recent <= _MUCH_WORSE * best)
        stays[:_KEPT] = True
        stays |= self._worth_keeping(~stays, self._standing[sparse_sgd.WEIGHTS])
        standing = np.ascontiguousarray(self._standing[:, stays])
        standing[sparse_sgd.REVIEWED] = standing[sparse_sgd.LOSSES]
        standing[sparse_sgd.WEIGHTS] /= standing[sparse_sgd.WEIGHTS].sum()
        if stays.all():
            self._standing = standing
            return
        experts = np.ascontiguousarray(self._experts[stays])
        table = _with_room(self._table[: self._columns.n, stays], self._columns.room)
        # All at once: an interrupt must not leave experts without their entries.
        self._experts, self._standing, self._table = experts, standing, table

    def evidence(self, *, B: float | None = None) -> LinearEvidence:
        """Return the evidence of all rounds so far, to be merged or sent, for any B."""
        n, unit = self._columns.n, self.max_weight
        totals = self._totals.copy()
        totals[[CONSTANT, WEIGHT, REACH]] *= unit
        totals[DEPTH] += 1.0
        return LinearEvidence.of(
            self._columns.columns,
            unit * self._table[:n, 0, : self.n_classes],
            totals,
            n_features=self.n_features,
            B=self.B if B is None else validation.positive("B", B),
            first_classes=self._first_classes,
            limit=float(self._limit[0]),
        )

    def expanded(self, rows: Rows) -> LinearEvidence:
        """Return the evidence of checked rows, expanded at what is predicted now."""
        own = LinearEvidence(n_features=self.n_features, n_classes=self.n_classes, B=self.B)
        own._add_planes(rows, self._predict_rows(rows.X, rows.norms))
        return own

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the certificate for a class, of any B, or for one W (K, d)."""
        return self.evidence().certificate_or_invalid(self.loss, W, B)

    def coef(self) -> Array:
        """Return the weights (K, d) of the expert with the least loss so far."""
        W = np.zeros((self.n_classes, self.n_features))
        columns, weights = self.column_weights()
        W[:, columns] = weights.T
        return W

    def column_weights(self) -> tuple[NDArray[np.int64], Array]:
        """Return the columns (n,) that occurred, and their weights (n, K) as in `coef`."""
        best = int(np.argmin(self._standing[sparse_sgd.LOSSES]))
        entries = self._table[: self._columns.n, best]
        weights = entries[:, : self.n_classes].copy()
        if best == 0:
            _, rate, offset = self._experts[0]
            weights *= -rate / np.sqrt(offset + entries[:, self.n_classes :])
        return self._columns.columns.copy(), weights

    @property
    def n_bytes(self) -> int:
        """The memory of the state."""
        own: int = self._table[: self._columns.n].nbytes + self._columns.n_bytes
        return own

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return the memory to begin with: what will occur is not known in advance."""
        return 8 * Columns().room * len(_EXPERTS) * (n_classes + 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the columns that occurred, and not the room for more, whose pages would be written.

        Copies are mostly kept to predict: of a learner that has just made room, an eighth.
        """
        own = self._shallow()
        own._columns = Columns.of(self._columns.columns)
        own._table = _with_room(self._table[: self._columns.n], own._columns.room)
        for part in ("experts", "standing", "mixture", "totals", "limit"):
            setattr(own, f"_{part}", getattr(self, f"_{part}").copy())
        return own

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return a learner with room for more features and classes; this one is unchanged.

        New features come last and are as if they had been 0 so far. New classes come last, with
        weights of 0.
        """
        larger = self._larger(n_features, n_classes)
        larger._columns = Columns.of(self._columns.columns)
        n, K = self._columns.n, self.n_classes
        larger._table = np.zeros((larger._columns.room, len(self._experts), larger.n_classes + 1))
        larger._table[:n, :, :K] = self._table[:n, :, :K]
        larger._table[:n, :, -1] = self._table[:n, :, -1]
        for part in ("experts", "standing", "mixture", "totals", "limit"):
            setattr(larger, f"_{part}", getattr(self, f"_{part}").copy())
        larger._first_classes = self._first_classes if self.n_rounds else larger.n_classes
        return larger

    def _parts(self) -> dict[str, NDArray[Any]]:
        return {
            "columns": self._columns.columns,
            "table": self._table[: self._columns.n],
            "experts": self._experts,
            "standing": self._standing,
            "mixture": self._mixture,
            "totals": self._totals,
            "limit": self._limit,
        }

    def _restore(self, record: Record) -> None:
        experts = record.part("experts", (None, 3))
        known = {tuple(expert) for expert in self._experts.tolist()}
        first = self._experts[:_KEPT].tolist()
        if experts[:_KEPT].tolist() != first or not {tuple(e) for e in experts.tolist()} <= known:
            raise StateFileError("a SparseSgd state has experts that are not its own")
        columns = record.part("columns", (None,), np.int64)
        with state_file_errors(record.kind):
            check_columns(columns, self.n_features)
        E = len(experts)
        self._experts, self._standing = experts.copy(), np.empty((3, E))
        self._columns = Columns.of(columns)
        self._table = np.zeros((self._columns.room, E, self.n_classes + 1))
        super()._restore(record)
        weights = self._standing[sparse_sgd.WEIGHTS]
        if not ((weights >= 0.0).all() and 0.5 <= weights.sum() <= 2.0):
            raise StateFileError("a SparseSgd state has weights of experts that are none")
        if not 2 <= self._first_classes <= self.n_classes:
            raise StateFileError("a SparseSgd state has a bad number of first classes")


def _with_room(entries: Array, room: int) -> Array:
    """Return a table that begins with these entries."""
    table = np.zeros((room, *entries.shape[1:]))
    table[: len(entries)] = entries
    return table
