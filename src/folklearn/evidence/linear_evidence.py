"""Evidence of first order: what labelled rows prove about linear models, however wide."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, softmax
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.evidence import Evidence, LowerBound
from folklearn.evidence.map_reduce import ONE_THREAD, MapReduce
from folklearn.kernels import linear_evidence
from folklearn.kernels import lower_bound as floors
from folklearn.kernels.evidence import CONSTANT
from folklearn.kernels.hash_index import Columns
from folklearn.serialization import Record, state_file_errors
from folklearn.sparse import SparseRows
from folklearn.validation import Rows

_BLOCK = 2**20  # logits at a time


class LinearEvidence(LowerBound):
    r"""A sum of planes, each below the loss of its row for every linear model.

    Use it where `Evidence`, which has a matrix for every pair of classes, does not fit: wide and
    sparse rows, many classes. It is added up in the same way, and every B can be asked about,
    also afterwards (up to `largest_B`, if some of it is taken from `Evidence`).

    .. math::
        c + \langle G, W\rangle \le \sum_t w_t\, \ell(W x_t, y_t), \qquad
        \min_{\|w_i\| \le B} = c - B \sum_i \|G_i\|

    with :math:`c = \sum w H(p)` and :math:`G = \sum w (p - y) x^\top`, p the prediction of the
    model ``at``. Any is sound. The floor is tight only where G is nearly 0 or the class is
    small: at the best model of the class it is its loss, and what is missing grows in
    proportion to the distance from it, where that of `Evidence` grows with its square.

    Time O(K) a row and value that is not 0; memory 8 K bytes for every column that occurred.

    Guarantee: `floor` is at most the total loss of every model of row norm at most B, in
    floating point too (docs/theory/evidence.md).

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    B : largest row norm of the models that `floor` speaks of if it is not told, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import random_array
    >>> from folklearn import LinearEvidence
    >>> X = random_array((500, 10**6), density=2e-5, format="csr", rng=np.random.default_rng(0))
    >>> y = np.arange(500) % 3
    >>> tangents = LinearEvidence(n_features=10**6, n_classes=3, B=0.1)
    >>> tangents.add(X, y)  # at the model that says 1/3, 1/3, 1/3
    >>> tangents.n_rounds, bool(0.9 < tangents.floor() / (500 * np.log(3)) < 1.0)
    (500, True)
    """

    UNBOUNDED = ("limit",)

    def __init__(self, *, n_features: int, n_classes: int, B: float = 10.0) -> None:
        super().__init__(n_features=n_features, n_classes=n_classes, B=B)
        self._columns = Columns()
        self._rows: Array = np.zeros((self._columns.room, self.n_classes))  # G, a row per column
        self._limit: Array = np.array([math.inf])  # B that all planes hold for

    @classmethod
    def of(
        cls, columns: NDArray[np.int64], G: Array, totals: Array, *, n_features: int, B: float,
        first_classes: int, limit: float = math.inf,
    ) -> Self:  # fmt: skip
        """Return a sum that is known: G (n, K) by the columns (n,) that occurred."""
        made = cls(n_features=n_features, n_classes=G.shape[1], B=B)
        made._take(columns, G)
        made._totals[:] = totals
        made._limit[:] = limit
        made._first_classes = first_classes
        return made

    @classmethod
    def under(cls, evidence: Evidence) -> Self:
        """Return the plane that touches evidence of second order near its least point.

        It lies below the same losses, for models of the class of that evidence.
        """
        W = evidence.least()[1]
        constant, G = floors.plane(evidence._quadratic, W, evidence.B)
        totals = evidence._totals.copy()
        totals[CONSTANT] = constant
        return cls.of(
            np.arange(evidence.n_features),
            np.ascontiguousarray(G.T),
            totals,
            n_features=evidence.n_features,
            B=evidence.B,
            first_classes=evidence._first_classes,
            limit=evidence.B,
        )

    @property
    def largest_B(self) -> float:
        """The largest row norm of models that this evidence covers: mostly there is none."""
        return float(self._limit[0])

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns (n,) that occurred."""
        return self._columns.columns

    @property
    def G(self) -> Array:
        """The sum G (n, K), a row for each of `columns`."""
        return self._rows[: self._columns.n]

    def _take(self, columns: NDArray[np.int64], G: Array) -> None:
        """Add G (n, K) of some columns."""
        places = self._enter(columns)
        self._rows[places, : G.shape[1]] += G

    def _enter(self, columns: Any) -> NDArray[np.int64]:
        """Return the places of columns, making room."""
        own = self._columns.with_room(self._columns.n_with(columns))
        if len(self._rows) < own.room:
            larger = np.zeros((own.room, self.n_classes))
            larger[: len(self._rows)] = self._rows
            self._rows = larger
        self._columns = own
        return own.enter(columns)

    def _parts(self) -> dict[str, NDArray[Any]]:
        return {
            "columns": self.columns,
            "G": self.G,
            "limit": self._limit,
            "totals": self._totals,
        }

    def _add(self, rows: Rows, W: Array | None, engine: MapReduce = ONE_THREAD) -> None:
        size = max(1, _BLOCK // self.n_classes)
        in_one_go = len(rows.X) <= size
        own = self if in_one_go else self._like()
        for start in range(0, len(rows.X), size):
            part = rows.part(start, start + size)
            Z = np.zeros((len(part.X), self.n_classes)) if W is None else part.X @ W.T
            own._touch(part, softmax(Z))
        if not in_one_go:
            both = self + own
            self._columns, self._rows, self._totals = both._columns, both._rows, both._totals

    def _touch(self, rows: Rows, P: Array) -> None:
        """Add checked rows whose planes touch at P (T, K), whoever predicted it."""
        X, norms, labels, soft, weights = rows
        X = SparseRows.of_any(X).compact()
        places = self._enter(X.indices)
        linear_evidence.add_rows(
            self._rows, self._totals, P, X.indptr, places, X.values, labels, soft, weights, norms
        )

    def _sum(self, other: "LinearEvidence") -> Self:
        both = self._like()
        both._take(self.columns, self.G)
        both._take(other.columns, other.G)
        both._limit = np.minimum(self._limit, other._limit)
        return both

    def _scaled(self, factor: float) -> Self:
        scaled = self._like()
        scaled._take(self.columns, factor * self.G)
        scaled._limit[:] = self._limit
        return scaled

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return the same evidence about models of more features and classes.

        New features come last and are as if they had been 0 so far. New classes come last and
        were not there: the rows so far remain rows among fewer classes.
        """
        larger = self._larger(n_features, n_classes)
        larger._take(self.columns, self.G)
        larger._limit[:] = self._limit
        return larger

    def least(self, *, B: float | None = None) -> tuple[float, Array]:
        """Return the floor, and the model (K, d) of the class at which it is reached."""
        covered, _ = self._covered(None, B)
        pulls = self._pulls()
        W = np.zeros((self.n_classes, self.n_features))
        lengths = np.maximum(pulls, np.finfo(float).tiny)
        W[:, self.columns] = -covered * (self.G / lengths).T
        return linear_evidence.floor(self._totals, pulls, self._columns.n, covered), W

    def floor(self, *, B: float | None = None) -> float:
        """Return a number that no model of row norm at most B has a total loss below."""
        covered, _ = self._covered(None, B)
        return float(linear_evidence.floor(self._totals, self._pulls(), self._columns.n, covered))

    def _pulls(self) -> Array:
        """Return the norms (K,) of the rows of G."""
        pulls: Array = np.sqrt((self.G**2).sum(axis=0))
        return pulls

    def value(self, W: ArrayLike) -> float:
        """Return a lower bound on the total loss of one model W (K, d)."""
        self._covered(W, None)
        W = validation.model("W", W, self.n_classes, self.n_features)
        own = W[:, self.columns].T
        longest = float(np.sqrt((W**2).sum(axis=1)).max())
        return float(linear_evidence.value(self._totals, self.G, own, longest))

    def offered(self, loss: float, W: ArrayLike | None, B: float | None) -> Certificate:
        """Return `certificate`; not valid, instead of an error, beyond `largest_B`."""
        validation.comparators(W, B, math.inf, self.n_classes, self.n_features)
        own = self.B if B is None else float(B)
        asked = own if W is None else validation.longest_row(W)
        if asked <= self.largest_B * (1.0 + 1e-9):
            return self.certificate(loss, W, B=B)
        return Certificate(
            loss=loss,
            regret_bound=math.inf,
            B=asked,
            n_rounds=self.n_rounds,
            valid=False,
            reason=f"the first rounds were certified up to B = {self.largest_B:g}, not {asked:g}",
        )

    def _restore(self, record: Record) -> None:
        columns = record.part("columns", (None,), np.int64)
        G = record.part("G", (len(columns), self.n_classes))
        with state_file_errors(record.kind):
            validation.check_columns(columns, self.n_features)
        self._take(columns, G)
        super()._restore(record)
