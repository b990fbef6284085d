"""Evidence: sums over labelled rows that bound the losses of linear models from below."""

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
from folklearn.evidence.passes import ONE_THREAD, MapReduce, RowChunk, chunk_rows
from folklearn.kernels import lower_bound
from folklearn.kernels.blas import OWN, device_named, threads_for
from folklearn.kernels.evidence import (
    DEPTH,
    ROUNDS,
    WEIGHT,
    add_rows,
    rows_at_once,
)
from folklearn.kernels.lower_bound import Minimum
from folklearn.kernels.on_torch.expand import DeviceRows, add_expanded
from folklearn.kernels.quadratic import Quadratic, pairs_among
from folklearn.serialization import Record, Serializable
from folklearn.validation import Rows

_ROUNDING_UP = 2.0**-52  # relative, for every term of a sum of losses
_NEWTON_STEPS = 4
_EXPANSION_TOLERANCE = 1e-6  # nats per unit of weight: the expansion point need not be exact
_NEGLIGIBLE_MOVE = 1e-4  # of B


class LowerBound(Serializable, ABC):
    """A sum over rows that is below the total loss of every model of a class.

    `Evidence` and `LinearEvidence` differ in what they sum: quadratics or planes.
    """

    PARAMS = ("n_features", "n_classes", "B")
    COUNTERS = ("_first_classes",)
    _totals: Array

    def __init__(self, *, n_features: int, n_classes: int, B: float = 10.0) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self.B = validation.positive("B", B)
        self._first_classes = self.n_classes

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
        shared by `n_jobs` threads, -1 for all cores, with the same sums to the last bit on one
        machine and build (`LinearEvidence` takes one). All rows are checked before any is added.
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
    def minimise(self, *, B: float | None = None) -> Minimum:
        """Return `lower_bound`, and the model (K, d) of the class at which it is nearly reached."""

    @abstractmethod
    def value(self, W: ArrayLike) -> float:
        """Return a lower bound on the total loss of one model W (K, d) of the class."""

    @abstractmethod
    def _sum(self, other: Self) -> Self:
        """Return the sum of both, of the same sizes."""

    def __add__(self, other: Self) -> Self:
        """Return the evidence of both sets of rows."""
        if type(other) is not type(self):
            return NotImplemented
        sizes = (self.n_features, self.n_classes, self.B)
        other_sizes = (other.n_features, other.n_classes, other.B)
        if sizes != other_sizes:
            raise InvalidInputError(
                "evidence is added up only for the same problem and class: "
                f"(n_features, n_classes, B) is {sizes} and {other_sizes}; see `grown`"
            )
        both = self._sum(other)
        both._first_classes = self._first_classes if self.n_rounds else other._first_classes
        if other.n_rounds:
            both._first_classes = min(both._first_classes, other._first_classes)
        return both

    @abstractmethod
    def _multiply(self, factor: float) -> Self:
        """Return the sum with everything but the totals multiplied by a factor."""

    def __mul__(self, factor: float) -> Self:
        """Return the evidence with all weights multiplied by a factor from 0 to 1."""
        factor = validation.fraction("factor", factor, 1.0)
        scaled = self._multiply(factor)
        scaled._totals[:] = factor * self._totals
        scaled._totals[DEPTH] = self._totals[DEPTH] + 1.0
        scaled._totals[ROUNDS] = self._totals[ROUNDS]
        return scaled

    __rmul__ = __mul__

    def _empty(self, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return a sum of no rows, of the same or of larger sizes."""
        d, K = self.n_features, self.n_classes
        empty = type(self)(
            n_features=validation.count("n_features", n_features or d, d),
            n_classes=validation.count("n_classes", n_classes or K, K),
            B=self.B,
        )
        empty._first_classes = self._first_classes
        return empty

    @abstractmethod
    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return the same evidence about models of more features and classes.

        New features come last and are as if they had been 0 so far. New classes come last and
        were not there: the rows so far remain rows among fewer classes.
        """

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
        return sum(array.nbytes for array in self._parts().values())

    def lower_bound(self, *, B: float | None = None) -> float:
        """Return a lower bound on the total loss of every model of row norm at most B."""
        return self.minimise(B=B).lower_bound

    def certificate(
        self, loss: float, W: ArrayLike | None = None, *, B: float | None = None
    ) -> Certificate:
        """Return what this evidence says about predictions whose total loss on its rows is `loss`.

        For every model of row norm at most B, by default the largest that this evidence
        covers; or for one W (K, d), which is never looser.
        """
        covered, _ = self._covered_class(W, B)
        least = self.lower_bound(B=covered) if W is None else self.value(W)
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

    def _covered_class(self, W: ArrayLike | None, B: float | None) -> tuple[float, float]:
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
        loaded = serialization.load(path)
        if not isinstance(loaded, cls):
            raise StateFileError(
                f"{os.fspath(path)} holds a {type(loaded).__name__}: see folklearn.load"
            )
        return loaded

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_features={self.n_features}, n_classes={self.n_classes}, "
            f"B={self.B:g}; {self.n_rounds} rounds)"
        )


def round_loss_up(loss: float, n_rounds: int) -> float:
    """Return an upper bound on a total loss that was computed as a sum of `n_rounds` terms."""
    return loss + abs(loss) * _ROUNDING_UP * (n_rounds + 2)


class Evidence(LowerBound):
    r"""A sum of quadratics, each below the loss of its row for every model of the class.

    Use it to prove a lower bound for linear models on rows of several machines, files or keys:
    evidence is added up, in any order. The learners of this library carry their own; `Certifier`
    keeps one for any other model.

    .. math::
        \hat E(W) = c + \langle G, W\rangle + \sum_{i<j} (w_i - w_j)^\top S_{ij} (w_i - w_j)
        \;\le\; \sum_t w_t\, \ell(W x_t, y_t) \quad\text{if every } \|w_i\| \le B

    A row is expanded at a model ``at``. Any model is sound; one near the best of the class is
    tight, and at the best one the bound is its loss.

    Time (K d)^2 / 2 flops a row and memory 2 (K d)^2 bytes; `lower_bound` solves some ten systems
    of K d equations.

    Guarantee: `lower_bound` is at most the total loss of every model of row norm at most B, in
    floating point too (docs/theory/evidence.md).

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    B : largest row norm of the models of the class, positive.
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
    >>> both.n_rounds, bool(0.0 < both.lower_bound() < 400 * np.log(2))
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
        self._sums = Quadratic.zeros(self.n_classes, self.n_features, device=device_named(device))
        self._minima: dict[float, Minimum] = {}  # by B, until rows are added

    @property
    def _totals(self) -> Array:  # type: ignore[override]
        return self._sums.totals

    @property
    def device(self) -> str:
        """Where the sums are: "cpu", or the name of a device of PyTorch.

        A sum of evidence on two devices is where the first is.
        """
        return OWN if self._sums.device is None else self._sums.device.name

    def to(self, device: str) -> Self:
        """Return the same evidence on another device, or on the "cpu"."""
        return self._of_sums(self._sums.to(device_named(device)))

    def _add(self, rows: Rows, W: Array | None, engine: MapReduce = ONE_THREAD) -> None:
        at = np.zeros((self.n_classes, self.n_features)) if W is None else W
        size = chunk_rows(self.n_features, self.n_classes)
        if self._sums.device is None and size is not None and len(rows.X) > size:
            sums = self._sums + engine.total([rows], size, lambda chunk: self._sum_chunk(chunk, at))
        else:
            fits_one_call = len(rows.X) <= rows_at_once(len(self._sums.S), self.n_features)
            sums = self._sums if fits_one_call else self._sums.copy()
            with threads_for(self.n_classes * self.n_features):
                _add_rows(sums, rows, at, self.B)
        self._minima.clear()
        self._sums = sums

    def _sum_chunk(self, chunk: RowChunk, W: Array) -> Quadratic:
        sums = Quadratic.zeros(self.n_classes, self.n_features)
        for rows in chunk.batches:
            _add_rows(sums, rows, W, self.B)
        return sums

    def _with(self, rows: Rows, W: Array, *, B: float) -> "Evidence":
        """Return this evidence and that of checked rows, expanded where they prove most.

        That is where this evidence and the true loss of the rows together are least: Newton
        steps from W, in the class of B. If they lead nowhere better, the rows stay at W.
        """
        start, near, below = W, None, -np.inf
        enough = _EXPANSION_TOLERANCE * (self.total_weight + float(rows.weights.sum()))
        skip_rows = self.total_weight > float(rows.weights.sum())  # nearly at the minimum
        for _ in range(_NEWTON_STEPS):
            curved = self._sums.copy()
            before, below_before = W, below
            with threads_for(self.n_classes * self.n_features):
                if not skip_rows:
                    _add_rows(curved, rows, W, 0.0)
                below, W, near = lower_bound.minimise(curved, B, _EXPANSION_TOLERANCE, near)
            settled = abs(below - below_before) <= enough
            if not skip_rows and (settled or np.abs(W - before).max() <= _NEGLIGIBLE_MOVE * B):
                break
            skip_rows = False
        at_end = self + self._of_rows(rows, W)
        bound = at_end.minimise(near, B=B).lower_bound
        at_start = self + self._of_rows(rows, start)
        # No lower bound is above the value at a model of the class: mostly that settles it.
        is_better = bound >= at_start.value(W) or bound >= at_start.lower_bound(B=B)
        return at_end if is_better else at_start

    def _of_rows(self, rows: Rows, W: Array) -> Self:
        evidence = self._of_sums(Quadratic.zeros(*self._sums.shape, device=self._sums.device))
        evidence._add(rows, W)
        return evidence

    def _of_sums(self, sums: Quadratic) -> Self:
        evidence = self._empty()
        evidence._sums = sums
        return evidence

    def _sum(self, other: Self) -> Self:
        device = self._sums.device
        added = other._sums if other._sums.device == device else other._sums.to(device)
        return self._of_sums(self._sums + added)

    def _multiply(self, factor: float) -> Self:
        S, G, totals = self._sums
        return self._of_sums(Quadratic(factor * S, factor * G, totals.copy(), self._sums.device))

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return the same evidence about models of more features and classes, which come last."""
        larger = self._empty(n_features, n_classes)
        S, G, larger._totals[:] = self._sums.to(None)
        larger._sums.G[: self.n_classes, : self.n_features] = G
        larger._sums.S[pairs_among(self.n_classes, larger.n_classes), : S.shape[1]] = S
        return larger.to(self.device)

    @property
    def n_bytes(self) -> int:
        """The memory that the sums take, wherever they are."""
        return sum(array.nbytes for array in self._sums)

    def _parts(self) -> dict[str, NDArray[Any]]:
        sums = self._sums if self._sums.device is None else self._sums.to(None)
        return dict(zip(self.ARRAYS, sums, strict=True))

    def value(self, W: ArrayLike) -> float:
        """Return a lower bound on the total loss of one model W (K, d) of the class."""
        self._covered_class(W, None)
        return lower_bound.value(self._sums, validation.numbers("W", W))

    def minimise(self, near: Array | None = None, *, B: float | None = None) -> Minimum:
        """Return `lower_bound`, a model of the class near it, and the multipliers (K,) there.

        It takes fewer steps from multipliers that are `near`, those of similar evidence.
        """
        covered, _ = self._covered_class(None, B)
        if covered not in self._minima:
            try:
                with threads_for(self.n_classes * self.n_features):
                    self._minima[covered] = lower_bound.minimise(self._sums, covered, near=near)
            except LinAlgError:  # which no sum over rows is
                raise InvalidInputError(
                    "this evidence curves downwards, and no rows do: add the rows up again"
                ) from None
        return self._minima[covered]

    @classmethod
    def of(cls, sums: Quadratic, *, B: float, first_classes: int) -> "Evidence":
        """Return evidence that holds a copy of a sum which lies below the losses for B."""
        K, d = sums.shape
        evidence = cls(n_features=d, n_classes=K, B=B)
        evidence._sums, evidence._first_classes = sums.copy(), first_classes
        return evidence


def _add_rows(sums: Quadratic, rows: Rows, W: Array, B: float) -> None:
    """Add rows expanded at W in batches; B = 0 takes their true curvature, which proves nothing."""
    device = sums.device
    if device is not None:
        for _, dense in rows.dense_parts():
            for batch in DeviceRows.batches_of(device, len(W), *dense):
                add_expanded(device, (sums,), batch, device.put(W), (B,))
        return
    S, G, totals = sums
    d = G.shape[1]
    size = rows_at_once(len(S), d)
    for _, dense in rows.dense_parts():
        for start in range(0, len(dense.X), size):
            X, norms, labels, soft, weights = dense.part(start, start + size)
            add_rows(S, G, totals, X @ W.T, X, labels, soft, weights, norms, B)
