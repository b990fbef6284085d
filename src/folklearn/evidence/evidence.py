"""Evidence: what a set of labelled rows proves about every linear model, as a sum."""

import math
import os
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError

from folklearn import serialization, validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.certificate import Certificate, scope_of_growth
from folklearn.evidence.map_reduce import ONE_THREAD, MapReduce, RowChunk, chunk_rows
from folklearn.kernels import lower_bound as floors
from folklearn.kernels.blas import OWN, device_named, threads_for
from folklearn.kernels.evidence import (
    DEPTH,
    N_TOTALS,
    ROUNDS,
    WEIGHT,
    add_rows,
    n_pairs,
    n_products,
    rows_at_once,
    scratch_for,
)
from folklearn.kernels.lower_bound import AnyQuadratic
from folklearn.kernels.on_torch.quadratic import DeviceQuadratic
from folklearn.kernels.on_torch.rows import DeviceRows
from folklearn.kernels.quadratic import Quadratic
from folklearn.serialization import Record, Serializable
from folklearn.validation import Rows

_ROUNDING_UP = 2.0**-52  # relative, for every term of a sum of losses


class LowerBound(Serializable, ABC):
    """A sum over rows; a kind of evidence brings where it is kept, and its least value."""

    PARAMS = ("n_features", "n_classes", "B")
    COUNTERS = ("_first_classes",)

    def __init__(self, *, n_features: int, n_classes: int, B: float = 10.0) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self.B = validation.positive("B", B)
        self._first_classes = self.n_classes
        self._totals: Array = np.zeros(N_TOTALS)

    def add(
        self,
        X: Any,
        y: ArrayLike,
        *,
        at: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        n_jobs: int = 1,
    ) -> None:
        """Add rows X (T, d) with labels (T,) or soft labels (T, K), expanded at model ``at``.

        X may be a sparse array of SciPy; ``at`` is W (K, d), by default 0. Many rows at once are
        shared by `n_jobs` threads, -1 for as many as there are cores, with the same sums to the
        last bit on one machine and build (`LinearEvidence` takes one:
        to merge columns would take longer). All rows are checked, then all are added, or none.
        """
        engine = MapReduce.from_options(n_jobs)
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        rows = Rows.checked(X, y, weight, **sizes)
        W = None if at is None else validation.model("at", at, self.n_classes, self.n_features)
        self._add(rows, W, engine)

    @abstractmethod
    def _add(self, rows: Rows, W: Array | None, engine: MapReduce) -> None:
        """Add checked rows, expanded at W, or at 0; all of them or none."""

    @abstractmethod
    def least(self, *, B: float | None = None) -> tuple[float, Array]:
        """Return the floor, and the model (K, d) of the class at which it is nearly reached."""

    @abstractmethod
    def value(self, W: ArrayLike) -> float:
        """Return a lower bound on the total loss of one model W (K, d) of the class."""

    @abstractmethod
    def _sum(self, other: Self) -> Self:
        """Return a new sum of both, but for totals."""

    def __add__(self, other: Self) -> Self:
        """Return the evidence of both sets of rows."""
        if type(other) is not type(self):
            return NotImplemented
        sizes = (self.n_features, self.n_classes, self.B)
        theirs = (other.n_features, other.n_classes, other.B)
        if sizes != theirs:
            raise InvalidInputError(
                "evidence is added up only for the same problem and class: "
                f"(n_features, n_classes, B) is {sizes} and {theirs}; see `grown`"
            )
        both = self._sum(other)
        both._first_classes = self._first_classes if self.n_rounds else other._first_classes
        if other.n_rounds:
            both._first_classes = min(both._first_classes, other._first_classes)
        both._totals = merged(self._totals, other._totals)
        return both

    @abstractmethod
    def _scaled(self, factor: float) -> Self:
        """Return a new sum with everything multiplied, but for totals."""

    def __mul__(self, factor: float) -> Self:
        """Return the evidence with all weights multiplied by a factor from 0 to 1."""
        factor = validation.fraction("factor", factor, 1.0)
        scaled = self._scaled(factor)
        scaled._first_classes = self._first_classes
        scaled._totals = factor * self._totals
        scaled._totals[DEPTH] = self._totals[DEPTH] + 1.0
        scaled._totals[ROUNDS] = self._totals[ROUNDS]
        return scaled

    __rmul__ = __mul__

    def _like(self) -> Self:
        """Return a sum of no rows for the same problem."""
        return type(self)(n_features=self.n_features, n_classes=self.n_classes, B=self.B)

    def _larger(self, n_features: int | None, n_classes: int | None) -> Self:
        """Return a sum for a larger problem that holds nothing but totals."""
        larger = type(self)(
            n_features=validation.count(
                "n_features", n_features or self.n_features, self.n_features
            ),
            n_classes=validation.count("n_classes", n_classes or self.n_classes, self.n_classes),
            B=self.B,
        )
        larger._first_classes = self._first_classes
        larger._totals[:] = self._totals
        return larger

    @property
    def n_rounds(self) -> int:
        """The number of rows."""
        return int(self._totals[ROUNDS])

    @property
    def total_weight(self) -> float:
        """The sum of the rows' weights."""
        return float(self._totals[WEIGHT])

    @property
    def n_bytes(self) -> int:
        """The memory that the sums take."""
        return sum(part.nbytes for part in self._parts().values())

    def floor(self, *, B: float | None = None) -> float:
        """Return a number that no model of row norm at most B has a total loss below."""
        return self.least(B=B)[0]

    def certificate(
        self, loss: float, W: ArrayLike | None = None, *, B: float | None = None
    ) -> Certificate:
        """Return what this evidence says about predictions whose total loss on its rows is `loss`.

        For every model of row norm at most B, by default the largest that this evidence
        covers; or for one W (K, d), which is never looser.
        """
        covered, _ = self._covered(W, B)
        least = self.floor(B=covered) if W is None else self.value(W)
        return Certificate(
            loss=loss,
            regret_bound=round_loss_up(loss, self.n_rounds) - least,
            B=covered,
            n_rounds=self.n_rounds,
            scope=scope_of_growth(self._first_classes, self.n_classes),
        )

    @property
    def largest_B(self) -> float:
        """The largest row norm of models that this evidence covers."""
        return self.B

    def _covered(self, W: ArrayLike | None, B: float | None) -> tuple[float, float]:
        """Return the B of the class that is asked about, or that W belongs to, and W's square."""
        asked = self.B if W is None and B is None else B
        sizes = self.n_classes, self.n_features
        covered, square = validation.comparators(W, asked, self.largest_B, *sizes)
        if math.isinf(covered) and W is not None:
            covered = max(self.B, validation.longest_row(W))
        return covered, square

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        if not 2 <= self._first_classes <= self.n_classes:
            raise StateFileError(f"a state of {record.kind} has a bad number of first classes")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        found = serialization.load(path)
        if not isinstance(found, cls):
            raise StateFileError(
                f"{os.fspath(path)} holds a {type(found).__name__}: see folklearn.load"
            )
        return found

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_features={self.n_features}, n_classes={self.n_classes}, "
            f"B={self.B:g}; {self.n_rounds} rounds)"
        )


def merged(one: Array, other: Array) -> Array:
    """Return the totals (..., N_TOTALS) of two sets of rows whose sums were added."""
    both = one + other
    both[..., DEPTH] = np.maximum(one[..., DEPTH], other[..., DEPTH]) + 1.0
    return both


def round_loss_up(loss: float, n_rounds: int) -> float:
    """Return a total loss that the sum of so many, each rounded, is certainly not above."""
    return loss + abs(loss) * _ROUNDING_UP * (n_rounds + 2)


_NEWTON_STEPS = 4
_ROUGHLY = 1e-6  # nats per unit of weight: where rows are expanded need not be exact
_NEAR = 1e-4  # of B


class Evidence(LowerBound):
    r"""A sum of quadratics, each below the loss of its row for every model of the class.

    Use it to prove what no linear model could have beaten, on rows that may lie on several
    machines, in several files, or under several keys: evidence is added up, in any order. The
    learners of this library carry their own; `Certifier` keeps one beside anybody's model.

    .. math::
        \hat E(W) = c + \langle G, W\rangle + \sum_{i<j} (w_i - w_j)^\top S_{ij} (w_i - w_j)
        \;\le\; \sum_t w_t\, \ell(W x_t, y_t) \quad\text{if every } \|w_i\| \le B

    A row is expanded at a model ``at``. Any model is sound; one near the best of the class is
    tight, and at the best one the floor is its loss.

    Time (K d)^2 / 2 flops a row and memory 2 (K d)^2 bytes; `floor` solves some ten systems of
    K d equations.

    Guarantee: `floor` is at most the total loss of every model of row norm at most B, in
    floating point too (docs/theory/evidence.md).

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    B : largest row norm of the models that are spoken of, positive.
    device : where the sums are: "cpu", the default, or a device of PyTorch such as "cuda" (extra
        ``gpu``). It is not saved: what is loaded is on the CPU.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Evidence
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3)) / 2
    >>> y = (X[:, 0] + 0.3 * rng.logistic(size=400) > 0).astype(int)
    >>> monday, tuesday = (Evidence(n_features=3, n_classes=2) for _ in range(2))
    >>> W = np.array([[-3.0, 0.0, 0.0], [3.0, 0.0, 0.0]])  # a guess at a good model
    >>> monday.add(X[:200], y[:200], at=W)
    >>> tuesday.add(X[200:], y[200:], at=W)
    >>> both = monday + tuesday
    >>> both.n_rounds, bool(0.0 < both.floor() < 400 * np.log(2))
    (400, True)
    """

    ARRAYS = ("S", "G", "totals")

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return K * (K - 1) // 2 * (d * (d + 1) // 2)  # where compiled code would overflow

    def __init__(
        self, *, n_features: int, n_classes: int, B: float = 10.0, device: str | None = None
    ) -> None:
        super().__init__(n_features=n_features, n_classes=n_classes, B=B)
        self._device = device_named(device)
        K, d = self.n_classes, self.n_features
        pairs, products = n_pairs(K), n_products(d)
        self._known: dict[float, floors.Floor] = {}  # until rows are added
        # On a device these are tensors, and the matrices of S are full.
        self._S: Any = np.zeros((pairs, products))
        self._G: Any = np.zeros((K, d))
        if self._device is not None:
            self._S, self._G = self._device.zeros(pairs, d, d), self._device.zeros(K, d)

    @property
    def device(self) -> str:
        """Where the sums are: "cpu", or the name of a device of PyTorch.

        A sum of evidence on two devices is where the first is.
        """
        return OWN if self._device is None else self._device.name

    def to(self, device: str) -> "Evidence":
        """Return the same evidence on another device, or on the "cpu"."""
        place = device_named(device)
        quadratic = self._here()
        moved = quadratic if place is None else DeviceQuadratic.of(place, quadratic)
        return Evidence.of(moved, B=self.B, first_classes=self._first_classes)

    def _here(self) -> Quadratic:
        """Return the sums in arrays of this machine."""
        quadratic = self._quadratic
        return quadratic if isinstance(quadratic, Quadratic) else quadratic.here()

    def _add(self, rows: Rows, W: Array | None, engine: MapReduce = ONE_THREAD) -> None:
        """Add checked rows, expanded at W, or at 0; all of them or none."""
        at = np.zeros((self.n_classes, self.n_features)) if W is None else W
        size = chunk_rows(self.n_features, self.n_classes)
        if self._device is None and size is not None and len(rows.X) > size:
            more = engine.total([rows], size, lambda chunk: self._of_chunk(chunk, at))
            sums = (self + more)._quadratic
        else:
            in_one_go = len(rows.X) <= rows_at_once(len(self._S), self.n_features)
            sums = self._quadratic if in_one_go else self._quadratic.copy()
            with threads_for(self.n_classes * self.n_features):
                _add_rows(sums, rows, at, self.B)
        self._known.clear()
        self._S, self._G, self._totals = sums

    def _of_chunk(self, chunk: RowChunk, W: Array) -> "Evidence":
        own = self._like()
        for rows in chunk.batches:
            _add_rows(own._quadratic, rows, W, self.B)
        return own

    def _with(self, rows: Rows, W: Array, *, B: float) -> "Evidence":
        """Return this evidence and that of checked rows, expanded where they prove most.

        That is where this evidence and the true loss of the rows together are least: Newton
        steps from W, in the class of B. If they lead nowhere better, the rows stay at W.
        """
        start, near, below = W, None, -np.inf
        enough = _ROUGHLY * (self.total_weight + float(rows.weights.sum()))
        known = self.total_weight > float(rows.weights.sum())  # nearly where the least is
        for _ in range(_NEWTON_STEPS):
            curved = self._quadratic.copy()
            before, below_before = W, below
            with threads_for(self.n_classes * self.n_features):
                if not known:
                    _add_rows(curved, rows, W, 0.0)
                below, W, near = floors.floor(curved, B, _ROUGHLY, near)
            settled = abs(below - below_before) <= enough
            if not known and (settled or np.abs(W - before).max() <= _NEAR * B):
                break
            known = False
        there = self + self._of_rows(rows, W)
        floored = there.floored(near, B=B).below
        here = self + self._of_rows(rows, start)
        # No floor is above the value at a model of the class: mostly that settles it.
        return there if floored >= here.value(W) or floored >= here.floor(B=B) else here

    def _of_rows(self, rows: Rows, W: Array) -> "Evidence":
        own = self._like()
        own._add(rows, W)
        return own

    def _sum(self, other: "Evidence") -> "Evidence":
        both = self._like()
        theirs = other if other._device == self._device else other.to(self.device)
        both._S, both._G = self._S + theirs._S, self._G + theirs._G
        return both

    def _scaled(self, factor: float) -> "Evidence":
        scaled = self._like()
        scaled._S, scaled._G = factor * self._S, factor * self._G
        return scaled

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> "Evidence":
        """Return the same evidence about models of more features and classes.

        New features come last and are as if they had been 0 so far. New classes come last and
        were not there: the rows so far remain rows among fewer classes.
        """
        larger = self._larger(n_features, n_classes)
        S, G, _ = self._here()
        larger._G[: self.n_classes, : self.n_features] = G
        larger._S[pairs_among(self.n_classes, larger.n_classes), : S.shape[1]] = S
        return larger.to(self.device)

    def _like(self) -> Self:
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        return type(self)(**sizes, B=self.B, device=self.device)

    @property
    def n_bytes(self) -> int:
        """The memory that the sums take, wherever they are."""
        return sum(part.nbytes for part in self._quadratic)

    def _parts(self) -> dict[str, NDArray[Any]]:
        return dict(zip(self.ARRAYS, self._here(), strict=True))

    @property
    def _quadratic(self) -> AnyQuadratic:
        if self._device is None:
            return Quadratic(self._S, self._G, self._totals)
        return DeviceQuadratic(self._device, self._S, self._G, self._totals)

    def value(self, W: ArrayLike) -> float:
        """Return a lower bound on the total loss of one model W (K, d) of the class."""
        self._covered(W, None)
        return floors.value(self._quadratic, validation.numbers("W", W))

    def least(self, *, B: float | None = None) -> tuple[float, Array]:
        """Return the floor, and the model (K, d) of the class at which it is nearly reached."""
        return self.floored(B=B)[:2]

    def floored(self, near: Array | None = None, *, B: float | None = None) -> floors.Floor:
        """Return the floor, a model near it, and its multipliers (K,).

        It is found sooner from multipliers that are `near`, those of similar evidence.
        """
        covered, _ = self._covered(None, B)
        if covered not in self._known:
            try:
                with threads_for(self.n_classes * self.n_features):
                    self._known[covered] = floors.floor(self._quadratic, covered, near=near)
            except LinAlgError:  # which no sum over rows is
                raise InvalidInputError(
                    "this evidence curves downwards, and no rows do: add the rows up again"
                ) from None
        return self._known[covered]

    @classmethod
    def of(cls, quadratic: AnyQuadratic, *, B: float, first_classes: int) -> "Evidence":
        """Return evidence that holds a copy of a sum which lies below the losses for B."""
        K, d = quadratic.shape
        evidence = cls(n_features=d, n_classes=K, B=B)
        evidence._first_classes = first_classes
        evidence._device = None if isinstance(quadratic, Quadratic) else quadratic.device
        evidence._S, evidence._G, evidence._totals = quadratic.copy()
        return evidence


def _add_rows(quadratic: AnyQuadratic, rows: Rows, W: Array, B: float) -> None:
    """Add rows to a sum in blocks; B = 0 takes their true curvature, which proves nothing."""
    if not isinstance(quadratic, Quadratic):
        device = quadratic.device
        for _, dense in rows.dense_parts():
            for part in DeviceRows.parts_of(device, len(W), *dense):
                quadratic.add(part, device.put(W), B)
        return
    S, G, totals = quadratic
    d = G.shape[1]
    size = rows_at_once(len(S), d)
    scratch = scratch_for(d, len(rows.X))
    for _, dense in rows.dense_parts():
        for start in range(0, len(dense.X), size):
            X, norms, labels, soft, weights = dense.part(start, start + size)
            add_rows(S, G, totals, X @ W.T, X, labels, soft, weights, norms, B, scratch)


def pairs_among(K: int, larger: int) -> NDArray[np.int64]:
    """Return where the pairs of the first K classes stand among the pairs of `larger` classes."""
    i, j = np.triu_indices(K, 1)
    places: NDArray[np.int64] = i * larger - i * (i + 1) // 2 + (j - i - 1)
    return places
