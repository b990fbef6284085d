"""The learner for wide and sparse rows: gradients, a rate for each column, several at once."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from folklearn import sparse, validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels import sparse_sgd
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, WEIGHT
from folklearn.kernels.hash_index import Columns, in_order
from folklearn.learners import base
from folklearn.learners.base import FirstOrderCertified, LeadingModel, WarmStart
from folklearn.serialization import Record
from folklearn.sparse import Context, Contexts, SparseRow, SparseRows, check_columns, sparse_row
from folklearn.validation import Rows

_FIRST_REVIEW = 1024  # rounds; then at every doubling
_HOPELESS = 20.0  # nats lost more than the best since the last review, and
_MUCH_WORSE = 1.1  # times as much as the best
_CHUNK_NUMBERS = 1e8  # weights met between two chances to report or to be interrupted
_MAX_FEATURES = 2**62
_ROOM_RATIO = 8  # to the room there was

# Kind, rate and offset for rows of norm about 1, see `kernels.sparse_sgd`. The first two never
# retire: the evidence is that of the first, the second follows a drift.
_EXPERTS = (
    (sparse_sgd.DUAL, 1.5, 1.0),
    (sparse_sgd.CONSTANT, 1.0, 0.0),
    (sparse_sgd.ROOT, 1.0, 0.1),
    (sparse_sgd.ROOT, 2.0, 0.1),
    (sparse_sgd.ROOT, 4.0, 0.1),
    (sparse_sgd.ROOT, 8.0, 0.1),
    (sparse_sgd.WHOLE, 8.0, 1.0),
    (sparse_sgd.WHOLE, 16.0, 1.0),
)
_N_KEPT = 2
_RATE_POWERS = {sparse_sgd.WHOLE: 0, sparse_sgd.CONSTANT: 2, sparse_sgd.ROOT: 1, sparse_sgd.DUAL: 1}


class SparseSgd(FirstOrderCertified):
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
    the certificate (`LinearEvidence`). At 1024, 2048, ... rounds models retire that lost 20 nats
    and a tenth more than the best since the last time; the last two kinds stay.

    Time O(E K) a value that is not 0, E = 8 at first, mostly 4 or 5 later. Memory 8 E (K + 1)
    bytes for every column that occurred; d itself costs nothing, and may be 2^62.

    Guarantee: regret against every W, its penalty counted, is at most
    ``certificate().regret_bound``, of first order (`LinearEvidence`). The loss is at most that of
    the best model that has not retired plus :math:`w_{\max} (\ln 8 + \ln T)`; against one that has,
    this holds up to its retirement.

    Parameters
    ----------
    R : typical norm of x.
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

    PARAMS = ("n_features", "n_classes", "R", "retire", "max_weight")
    ARRAYS = ("experts", "standing", "mixture", "totals")
    takes_sparse = True
    _made_of: ClassVar[Sequence[tuple[float, ...]]] = _EXPERTS
    _n_kept = _N_KEPT

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        R: float = 1.0,
        retire: bool = True,
        max_weight: float = 1.0,
    ) -> None:
        self._size(n_features, n_classes, R=R, max_weight=max_weight)
        if self.n_features > _MAX_FEATURES:
            raise InvalidInputError(f"n_features is {n_features}; expected at most 2^62")
        self.retire = bool(retire)
        self._totals: Array = np.zeros(N_TOTALS)
        self._index_type = sparse.index_type(self.n_features)
        unit = self.R
        self._experts: Array = np.array(
            [
                (k, rate / unit ** _RATE_POWERS[int(k)], offset * unit**2, *view)
                for k, rate, offset, *view in self._made_of
            ]
        )
        E = len(self._experts)
        self._standing: Array = np.zeros((3, E))
        self._standing[sparse_sgd.WEIGHTS] = 1.0 / E
        self._mixture: Array = np.zeros(2)
        self._columns = Columns()
        self._table: Array = np.zeros((self._columns.room, E, self.n_classes + 1))

    def _begin(self, start: WarmStart) -> None:
        """Take over, having learned nothing: every column was there, whatever its weights."""
        self._columns = Columns.of(np.arange(self.n_features))
        entries = np.zeros((self.n_features, len(self._experts), self.n_classes + 1))
        entries[:, :, -1] = np.einsum("kjj->j", start.curvature)[:, None] / self.max_weight
        entries[:, :, :-1] = start.W.T[:, None]
        entries[start.past.columns, 0, :-1] = start.past.G / self.max_weight
        self._table = _with_room(entries, self._columns.room)
        self._mixture[:] = start.loss / self.max_weight, start.n_rounds
        self._begin_evidence(start)
        self._totals[[CONSTANT, WEIGHT, REACH]] /= self.max_weight
        self._totals[DEPTH] += 2.0

    @property
    def n_columns(self) -> int:
        """The number of columns that occurred."""
        return self._columns.n

    def n_columns_with(self, indices: sparse.Indices) -> int:
        """Return how many columns will have occurred with these."""
        return self._columns.n_with(indices)

    @property
    def loss(self) -> float:
        return float(self._mixture[sparse_sgd.LOSS] * self.max_weight)

    def _own_context(self, x: Any) -> Any:
        # The usual case, without the error messages that `validation` has for all others.
        if type(x) is tuple and len(x) == 2:
            indices, values = x
            if (
                type(indices) is np.ndarray
                and indices.dtype == self._index_type
                and indices.ndim == 1
                and indices.flags.carray
                and validation.is_context(values, indices.shape)
                and in_order(indices, values, self.n_features)
            ):
                return SparseRow(indices, values)
        return super()._own_context(x)

    @property
    def _weights(self) -> Array:
        return self._standing[sparse_sgd.WEIGHTS]

    def _predict(self, x: Context) -> Array:
        row = x if isinstance(x, SparseRow) else sparse_row(x)
        p = np.empty(self.n_classes)
        keys, places, _, _ = self._columns.table
        if not sparse_sgd.predict(
            keys, places, self._table, self._experts, self._weights, *row, validation.MAX_NORM, p
        ):
            validation.check_context(x)
        return p

    def _predict_batch(self, X: Contexts) -> Array:
        return self._mix(X, self._weights[None])[0]

    def _expert_predictions(self, X: Contexts) -> Array:
        return self._mix(X, np.eye(len(self._experts)))

    def _mix(self, X: Contexts, mixtures: Array) -> Array:  # (n, T, K), by weights (n, E)
        rows = SparseRows.of(X)
        P = np.empty((len(mixtures), len(rows), self.n_classes))
        keys, places, _, _ = self._columns.table
        sparse_sgd.predict_rows(
            keys, places, self._table, self._experts, mixtures,
            rows.indptr, rows.indices, rows.values, rows.words, rows.bases, P,
        )  # fmt: skip
        return P

    def _expert_names(self) -> list[str]:
        kinds = ("AdaGrad", "1/t", "constant", "dual averaging")  # as in `kernels.sparse_sgd`
        settings = self._experts[:, :3].tolist()
        return [f"{kinds[int(k)]}, rate {rate:g}, offset {off:g}" for k, rate, off in settings]

    def _learn(self, x: Context, label: int, soft: Array, weight: float) -> float:
        indices, values = x if isinstance(x, SparseRow) else sparse_row(x)
        if self._columns.n + len(indices) > self._columns.room:
            self._make_room(len(indices))
        loss: float = sparse_sgd.learn(
            *self._columns.table, self._table, self._experts,
            self._standing, self._mixture, self._totals,
            indices, values, validation.NO_SOFT, validation.NO_SOFT, label, soft,
            weight / self.max_weight, validation.MAX_NORM, np.empty(self.n_classes),
        )  # fmt: skip
        if loss == loss:
            self._review()
        return loss

    def _rows_at_once(self, rows: Rows) -> int:
        """Return the rows up to the next review, so that `run` and the loop retire alike."""
        n_values = rows.X.nnz if isinstance(rows.X, SparseRows) else rows.X.size
        per_row = len(self._experts) * self.n_classes * (n_values / len(rows.X) + 2.0)
        chunk = max(1, int(_CHUNK_NUMBERS / per_row))
        return min(base.rows_to_review(self.n_rounds, _FIRST_REVIEW), chunk)

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        rows, start = rows._replace(X=SparseRows.of(rows.X)), 0
        while start < len(P):
            X, labels, soft, weights = rows.part(start, len(P))
            start += sparse_sgd.run(
                *self._columns.table, self._table, self._experts,
                self._standing, self._mixture, self._totals,
                X.indptr, X.indices, X.values, X.words, X.bases,
                labels, soft, weights / self.max_weight, P[start:],
            )  # fmt: skip
            if start < len(P):
                self._make_room(int(rows.X.indptr[start + 1] - rows.X.indptr[start]))
        self._review()

    def _make_room(self, n_more: int) -> None:
        # Pages that were never touched are not there: to be generous saves copies, not memory.
        n = self._columns.n
        columns = self._columns.with_room(max(_ROOM_RATIO * self._columns.room, n + n_more))
        self._table = _with_room(self._table[:n], columns.room)
        self._columns = columns  # after the table, which may well have more room than they

    def _review(self) -> None:
        """Retire experts that were far behind since the last review, if one is due."""
        n_rounds = self.n_rounds
        if not self.retire or n_rounds < _FIRST_REVIEW or n_rounds & (n_rounds - 1):
            return
        recent = self._standing[sparse_sgd.LOSSES] - self._standing[sparse_sgd.REVIEWED]
        best = recent.min()
        stays = (recent <= best + _HOPELESS) | (recent <= _MUCH_WORSE * best)
        stays[: self._n_kept] = True
        stays |= self._worth_keeping(~stays, self._weights)
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

    def _planes(self) -> tuple[NDArray[np.int64], Array, Array]:
        n, unit = self._columns.n, self.max_weight
        totals = self._totals.copy()
        totals[[CONSTANT, WEIGHT, REACH]] *= unit
        return self._columns.columns, unit * self._table[:n, 0, : self.n_classes], totals

    def coef(self) -> Array:
        """Return the weights (K, d) of the expert with the least loss so far."""
        W = np.zeros((self.n_classes, self.n_features))
        columns, weights = self.column_weights()
        W[:, columns] = weights.T
        return W

    def column_weights(self) -> tuple[NDArray[np.int64], Array]:
        """Return the columns (n,) that occurred, and their weights (n, K) as in `coef`."""
        best = int(np.argmin(self._standing[sparse_sgd.LOSSES]))
        return self._columns.columns.copy(), self._weights_of(best)

    def _weights_of(self, e: int, places: Any = None) -> Array:
        """Return the weights (n, K) of an expert in the columns that occurred, or in some."""
        entries = self._table[slice(self._columns.n) if places is None else places, e]
        weights: Array = entries[:, : self.n_classes].copy()
        kind, rate, offset = self._experts[e, :3]
        if kind == sparse_sgd.DUAL:
            weights *= -rate / np.sqrt(offset + entries[:, self.n_classes :])
        return weights

    def _leading_model(self, x: Any, weights: Array | None = None) -> LeadingModel:
        weights = self._weights if weights is None else weights
        best = int(np.argmax(weights))
        columns, values = x if isinstance(x, SparseRow) else sparse_row(x)
        places, W = self._columns.find(columns), np.zeros((len(columns), self.n_classes))
        W[places >= 0] = self._weights_of(best, places[places >= 0])
        name, no_bias = self._expert_names()[best], np.zeros(self.n_classes)
        return LeadingModel(name, float(weights[best]), columns, values, W.T, no_bias)

    def _mixed_models(self, weights: Array | None = None) -> list[tuple[float, Any]]:
        shares = self._weights if weights is None else weights
        models = np.zeros((len(shares), self.n_classes, self.n_features + 1))
        for e, W in enumerate(models):
            W[:, self._columns.columns] = self._weights_of(e).T
        return list(zip(shares.tolist(), models, strict=True))

    @property
    def n_bytes(self) -> int:
        entries: int = self._table[: self._columns.n].nbytes
        return entries + self._columns.n_bytes

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        # To begin with: what will occur is not known in advance.
        return 8 * Columns().room * len(_EXPERTS) * (n_classes + 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Only the columns that occurred: copies are mostly kept to predict, and need no room.
        return self._onto(self._shallow())

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        return self._onto(self._larger(n_features, n_classes))

    def _onto(self, copied: Self) -> Self:
        """Put a copy of this state into another learner, which may have more classes."""
        columns, n, K = Columns.of(self._columns.columns), self._columns.n, self.n_classes
        table = np.zeros((columns.room, len(self._experts), copied.n_classes + 1))
        table[:n, :, :K], table[:n, :, -1] = self._table[:n, :, :K], self._table[:n, :, -1]
        copied._columns, copied._table = columns, table
        for name in self.ARRAYS:
            setattr(copied, f"_{name}", getattr(self, f"_{name}").copy())
        return copied

    def _parts(self) -> dict[str, NDArray[Any]]:
        occurred = {"columns": self._columns.columns, "table": self._table[: self._columns.n]}
        return occurred | super()._parts()

    def _restore(self, record: Record) -> None:
        experts = record.part("experts", (None, self._experts.shape[1]))
        all_experts = {tuple(expert) for expert in self._experts.tolist()}
        first = self._experts[: self._n_kept].tolist()
        are_known = {tuple(expert) for expert in experts.tolist()} <= all_experts
        if experts[: self._n_kept].tolist() != first or not are_known:
            raise record.error("has experts that are not its own")
        columns = record.part("columns", (None,), np.int64)
        check_columns(columns, self.n_features)
        E = len(experts)
        self._experts, self._standing = experts.copy(), np.empty((3, E))
        self._columns = Columns.of(columns)
        self._table = np.zeros((self._columns.room, E, self.n_classes + 1))
        super()._restore(record)
        base.check_weights("SparseSgd", self._weights)


_STACKED = (
    *((*expert, sparse_sgd.ALL) for expert in _EXPERTS[:_N_KEPT]),
    (sparse_sgd.CONSTANT, 0.0, 0.0, sparse_sgd.ON_TOP),  # what never moves is the other model
    *((*expert, sparse_sgd.ALL) for expert in _EXPERTS[_N_KEPT:]),
    (sparse_sgd.DUAL, 1.5, 1.0, sparse_sgd.WORDS),
    (sparse_sgd.CONSTANT, 1.0, 0.0, sparse_sgd.WORDS),
    (sparse_sgd.ROOT, 2.0, 0.1, sparse_sgd.WORDS),
    (sparse_sgd.ROOT, 8.0, 0.1, sparse_sgd.WORDS),
    (sparse_sgd.WHOLE, 16.0, 1.0, sparse_sgd.WORDS),
    (sparse_sgd.DUAL, 1.5, 1.0, sparse_sgd.ON_TOP),
    (sparse_sgd.CONSTANT, 0.25, 0.0, sparse_sgd.ON_TOP),
    (sparse_sgd.CONSTANT, 1.0, 0.0, sparse_sgd.ON_TOP),
    (sparse_sgd.ROOT, 1.0, 0.1, sparse_sgd.ON_TOP),
    (sparse_sgd.ROOT, 4.0, 0.1, sparse_sgd.ON_TOP),
    (sparse_sgd.WHOLE, 32.0, 1.0, sparse_sgd.ON_TOP),
)
WITHOUT_WORDS = "columns without words"  # the expert that is the other model


class StackedSgd(SparseSgd):
    r"""A `SparseSgd` of words that come with what another model says of the other columns.

    Rows are `StackedRows`, whose logits z are those of a model that sees the other columns alone
    and learns by itself. The experts of `SparseSgd` are joined by it, and by models of the words,
    alone and on top of it:

    .. math:: p = \mathrm{softmax}(W x), \quad \mathrm{softmax}(z), \quad
        \mathrm{softmax}(V v), \quad \mathrm{softmax}(z + U v)

    All are in one fixed share, so that a table with a text loses at most
    :math:`w_{\max} (\ln 20 + \ln T)` more than the other columns do without it: the other model
    never retires. The certificate is that of `SparseSgd`, about linear models of all columns.

    `folklearn.Model` makes it where a table has words and other columns. Time and memory are
    those of `SparseSgd`, with 20 experts at first, mostly 5 to 8 later.
    """

    _made_of = _STACKED
    _n_kept = _N_KEPT + 1

    def _expert_names(self) -> list[str]:
        views = ("", ", words alone", ", words on top")  # as in `kernels.sparse_sgd`
        names = [
            name + views[int(view)]
            for name, view in zip(super()._expert_names(), self._experts[:, 3], strict=True)
        ]
        names[_N_KEPT] = WITHOUT_WORDS
        return names

    def _leading_model(self, x: Any, weights: Array | None = None) -> LeadingModel:
        weights, used = self._weights if weights is None else weights, slice(*x.indptr.tolist())
        view = self._experts[int(np.argmax(weights)), sparse_sgd.VIEW]
        values = x.values if view == sparse_sgd.ALL else x.words
        leading = super()._leading_model(SparseRow(x.indices[used], values[used]), weights)
        return leading._replace(is_on_top=view == sparse_sgd.ON_TOP)

    def column_weights(self) -> tuple[NDArray[np.int64], Array]:
        """Return the columns that occurred, and the weights of the best expert of words."""
        losses, views = self._standing[sparse_sgd.LOSSES], self._experts[:, sparse_sgd.VIEW]
        can_say = (views == sparse_sgd.ON_TOP) & (self._experts[:, sparse_sgd.RATE] > 0.0)
        if not can_say.any():
            return super().column_weights()
        best = int(np.where(can_say, losses, np.inf).argmin())
        return self._columns.columns.copy(), self._weights_of(best)


def _with_room(entries: Array, room: int) -> Array:
    table = np.zeros((room, *entries.shape[1:]))
    table[: len(entries)] = entries
    return table
