"""Evidence of second order: what labelled rows prove about the losses of all linear models.

The proofs are in docs/theory/evidence.md; (n) is an equation there.
"""

import copy
import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError

from folklearn import validation
from folklearn.arrays import Array, softmax
from folklearn.errors import InvalidInputError
from folklearn.evidence.lower_bound import UNIT, LowerBound, Tangent
from folklearn.evidence.points import (
    ExpansionPoint,
    IncomingRows,
    PenalisedSum,
    WaitingRows,
    choose_curvatures,
    compute_logits,
    entropies,
)
from folklearn.kernels import evidence as kernels
from folklearn.kernels.blas import OWN, device_named, threads_for
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, REACH, ROUNDS, WEIGHT
from folklearn.kernels.on_torch import back, put
from folklearn.kernels.quadratic import Quadratic, merge_totals, pairs_among
from folklearn.serialization import Record
from folklearn.validation import Rows

KEPT_ROWS = 4096  # that wait as rows, those that are least known
SETTLED_ROWS = 2048  # that enter the sums at a time
_GROWTH, _WIDE_GROWTH = 1.2, 2.0  # of the number of rows between two points of expansion,
_WIDE_POINT = 1 << 17  # for points of this many numbers
_MAX_POINTS = 24
_RADIUS, _MIN_RATIO = 16.0, 4.0  # of a point: over the root of the weights, over the steps so far
_MAX_REFRESH_STEPS, _MAX_STEPS = 12, 40  # of Newton's method
_TOLERANCE = 1e-7  # nats per nat, that a bound may lie below the best one of these sums,
_REFRESH_TOLERANCE = 1e-4  # and that of a model to expand at
_MAX_SHRINKINGS = 12  # of the way to the minimiser, where curvatures end before it


class Evidence(LowerBound):
    r"""What rows prove about every linear model, whatever its weights.

    Use it to prove a lower bound for linear models on rows of several machines, files or keys:
    evidence is added up, in any order. Learners carry their own; `Certifier` keeps it for any
    other model.

    The 4,096 rows that are least known wait as they are. The others are expanded at models
    near the best one, a plane and a quadratic each (docs/theory/evidence.md):

    .. math::
        \sum_t w_t \ell_t(W) + \tfrac12 \|W\|^2_\tau \;\ge\; h(\hat W) - \tfrac12 \sum_{kj}
        (\nabla h(\hat W))^2_{kj} / \tau_j \quad\text{for every } W

    h is the penalty and the tangents at :math:`\hat W` of convex functions below the losses.

    Time (K d)^2 / 2 + 2 K d^2 flops a row, and a few systems of K d equations whenever the rows
    have grown by a fifth; memory 2 (K d)^2 bytes, 4,096 rows, and 8 K d^2 bytes for each of at most
    24 points of expansion. `lower_bound` takes a few Newton steps over the rows that wait.

    Guarantee: `lower_bound` is at most the total loss plus penalty of every model W (K, d), in
    floating point too.

    Parameters
    ----------
    C : inverse of the penalty, as in scikit-learn: half the squares of the weights over C.
    constant : a column that is constant, whose weights are hardly penalised.
    device : where sums are made: "cpu", the default, or a device of PyTorch such as "cuda" (extra
        ``gpu``). It is not saved: what is loaded is on the CPU.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Evidence
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3)) / 2
    >>> y = (X[:, 0] + 0.3 * rng.logistic(size=400) > 0).astype(int)
    >>> monday, tuesday = (Evidence(n_features=3, n_classes=2) for _ in range(2))
    >>> monday.add(X[:200], y[:200])
    >>> tuesday.add(X[200:], y[200:])
    >>> both = monday + tuesday
    >>> both.n_rounds, bool(0.0 < both.lower_bound() < 400 * np.log(2))
    (400, True)
    """

    COUNTERS = ("_n_settled", "_next_point")
    FEWEST_NUMBERS = staticmethod(lambda d, K: 2 * K * d)

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        C: float = 1.0,
        constant: int | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__(n_features=n_features, n_classes=n_classes, C=C, constant=constant)
        d, K = self.n_features, self.n_classes
        self._totals: Array = np.zeros(N_TOTALS)  # CONSTANT that of the planes
        self._planes: Array = np.zeros((K, d))
        self._device = device_named(device)
        # Of the rows that wait no longer: below their losses, and these to second order.
        self._quadratics: Quadratic | None = None
        self._rows = WaitingRows(d, K)
        self._incoming: IncomingRows | None = None  # that are not inserted yet
        self._points: list[ExpansionPoint] = []
        self._inverses: Any = None  # of the newest point's metric, (K, d, d), where the sums are
        self._W: Array = np.zeros((K, d))  # the newest minimiser
        self._n_settled = 0  # rows in the sums
        self._next_point = 0  # rows at which there is a new point
        self._minimum: tuple[float, Array] | None = None  # until rows are added

    @property
    def device(self) -> str:
        """Where the sums are made: "cpu", or the name of a device of PyTorch."""
        return OWN if self._device is None else self._device.name

    def to(self, device: str) -> Self:
        """Return the same evidence on another device, or on the "cpu"."""
        moved = self._copy()
        moved._device = device_named(device)
        if self._quadratics is not None:
            moved._quadratics = self._quadratics.to(moved._device)
        if self._inverses is not None:
            moved._inverses = put(moved._device, back(self._inverses))
        return moved

    def _sums(self) -> Quadratic:
        shape = self._W.shape
        return self._quadratics or Quadratic.zeros(*shape, device=self._device, stacked=(2,))

    @property
    def n_rounds(self) -> int:
        return int(self._totals[ROUNDS]) + (self._incoming.count if self._incoming else 0)

    @property
    def total_weight(self) -> float:
        return float(self._all_totals()[WEIGHT])

    def _copy(self) -> Self:
        self._flush()
        copied = self._shallow()
        copied._rows = copy.copy(self._rows)
        copied._incoming = None
        copied._points = list(self._points)
        copied._totals, copied._planes = self._totals.copy(), self._planes.copy()
        copied._quadratics = None if self._quadratics is None else self._quadratics.copy()
        copied._minimum = None
        return copied

    # Rows that come.

    def _append(self, x: Array, label: int, soft: Array, weight: float) -> None:
        if self._room().append(x, label, soft, weight):
            self._flush()

    def _add(self, rows: Rows) -> None:
        for X, labels, soft, weights in rows.dense_parts():
            Y, start = soft if len(soft) else np.eye(self.n_classes)[labels], 0
            if len(X) >= SETTLED_ROWS:
                self._flush()
                self._insert(X, Y, weights)
                start = len(X)
            while start < len(X):  # few rows come together until they are worth a sum
                start += self._room().extend(X[start:], Y[start:], weights[start:])
                if self._room().is_full:
                    self._flush()

    def _room(self) -> IncomingRows:
        if self._incoming is None:
            self._incoming = IncomingRows(SETTLED_ROWS, self.n_features, self.n_classes)
        return self._incoming

    def _flush(self) -> None:
        if self._incoming is not None and self._incoming.count:
            self._insert(*self._incoming.take())

    def _insert(self, X: Array, Y: Array, weights: Array) -> None:
        self._totals[ROUNDS] += len(X)
        counted = np.flatnonzero(weights > 0.0)
        if len(counted) < len(X):
            X, Y, weights = X[counted], Y[counted], weights[counted]
        self._minimum = None
        self._wait(X, Y, weights)

    def _wait(self, X: Array, Y: Array, weights: Array) -> None:
        """Put rows to those that wait; those that are best known enter the sums if too many do."""
        start = 0
        while start < len(X):
            stop = start + KEPT_ROWS + SETTLED_ROWS - len(self._rows.X)
            self._rows.extend(X[start:stop], Y[start:stop], weights[start:stop])
            start = stop
            if len(self._rows.X) == KEPT_ROWS + SETTLED_ROWS:
                with threads_for(self._W.size, everywhere=True):
                    if self._is_point_due():
                        self._add_point(self._move())
                    self._enter(SETTLED_ROWS)

    def _release_rows(self) -> None:
        """Let all rows that wait enter the sums where the bound is reached: it stays what it is."""
        self._flush()
        if len(self._rows.X):
            self._W = self.minimise()[1]
            with threads_for(self._W.size, everywhere=True):
                if self._is_point_due():
                    self._add_point(self._minimise(0, 1.0, 0)[1])
                self._enter(len(self._rows.X))
        self._minimum = None

    def _is_point_due(self) -> bool:
        n_rows = self._n_settled + len(self._rows.X)
        return n_rows >= self._next_point or self._inverses is None

    @property
    def is_large(self) -> bool:
        """Whether points are so large that there should be few of them."""
        return self._planes.size * self.n_features > _WIDE_POINT

    def _enter(self, n_ready: int) -> None:
        """Let the rows that are best known enter the sums: `n_ready` of those that wait."""
        self._n_settled += n_ready
        self._measure()
        rows = self._rows
        P = softmax(compute_logits(rows.X, self._W))
        # What is new to the metric has little curvature: it waits until its like has come.
        spread = np.einsum("tk,tk,tk->t", P, 1.0 - P, rows.distances)
        is_ready = np.zeros(len(P), bool)
        is_ready[np.argpartition(spread, n_ready - 1)[:n_ready]] = True
        self._expand(*(each.compress(is_ready, axis=0) for each in vars(rows).values()))
        rows.keep(~is_ready)

    def _move(self) -> Any:
        """Move to the minimiser of what is known; return second derivatives (K d, K d) there."""
        # Where the bound would be taken it gains most; if that is far, where the losses are least
        # to second order; if that is far too, where the last point was.
        W, H = self._minimise(0, 1.0, _MAX_REFRESH_STEPS, _REFRESH_TOLERANCE)
        for n_steps in (_MAX_REFRESH_STEPS, 0):
            if self._share(W) == 1.0:
                break
            W, H = self._minimise(1, 1.0, n_steps, _REFRESH_TOLERANCE)
        self._W = W
        return H

    def _add_point(self, H: Any) -> None:
        """Measure steps from here, where the second derivatives are H."""
        n_rows, (K, d) = self._n_settled + len(self._rows.X), self._W.shape
        self._next_point = int((_WIDE_GROWTH if self.is_large else _GROWTH) * n_rows)
        blocks = H.reshape(K, d, K, d)[np.arange(K), :, np.arange(K)]
        steps = [point.step_to(self._W) for point in self._points]
        radius = max(_RADIUS * math.sqrt(K * d), _MIN_RATIO * max(steps, default=0.0))
        point, self._inverses = ExpansionPoint.at(self._W, blocks, radius, self._device)
        self._rows.distances = np.empty((0, K))
        self._points.append(point)
        self._join_points()

    def _join_points(self) -> None:
        while len(self._points) > _MAX_POINTS:
            self._points[:2] = [self._points[0].join(self._points[1])]

    def _measure(self) -> None:
        """Measure the rows that came since the newest point: |R_k x| for every class."""
        rows, inverses, device = self._rows, self._inverses, self._device
        X = rows.X[len(rows.distances) :]
        on_device = put(device, X)
        lengths = np.empty((len(X), self.n_classes))
        for k, R in enumerate(inverses):
            lengths[:, k] = back(((R @ on_device.T) ** 2).sum(0))
        norms = validation.norms(X)
        sizes = np.sqrt(back((inverses**2).sum((1, 2))))
        np.sqrt(lengths, out=lengths)
        lengths += (2.0 * self.n_features * UNIT) * norms[:, None] * sizes
        rows.distances = np.concatenate([rows.distances, lengths])

    def _expand(self, X: Array, Y: Array, weights: Array, distances: Array) -> None:
        """Add the planes and quadratics of rows at the newest point."""
        W, self._quadratics = self._W, self._sums()
        Z, distances = compute_logits(X, W), np.asfortranarray(distances)
        Z -= Z.max(axis=1, keepdims=True)
        P = np.exp(Z)
        P /= P.sum(axis=1, keepdims=True)
        norms = validation.norms(X)
        # Logits are rounded: the steps from them are longer than those from the model by this.
        off = (self.n_features + 4.0) * UNIT * norms * validation.longest_row(W)
        point = self._points[-1]
        radius = point.radius
        if not np.array_equal(W, point.W):
            radius += point.step_to(W)  # what is within the point's radius is within this of W
        r = choose_curvatures(P, distances, radius, 4.0 * off)
        self._planes += (weights[:, None] * (P - Y)).T @ X
        counted = [float(weights @ entropies(P)), weights.sum(), weights @ norms, len(X)]
        self._totals[[CONSTANT, WEIGHT, REACH, DEPTH]] += np.array(counted)
        sent = put(self._device, X)
        self._quadratics[0].add_expanded(r, Z, sent, weights)
        self._quadratics[1].add_expanded(2.0 * P, Z, sent, weights)

    # What is proven.

    def _minimise(
        self, which: int, s: float, most_steps: int, tolerance: float = _TOLERANCE
    ) -> tuple[Array, Any]:
        """Return a model near the least of waiting rows, planes, penalty and s times a quadratic.

        That is below the losses (0), or their second order (1). With second derivatives.
        """
        curved = None if self._quadratics is None else self._quadratics[which]
        rows, device = self._rows, self._device
        total = PenalisedSum(rows, self._planes, self.penalties, curved, s, device)
        try:
            return total.minimise(self._W, most_steps, tolerance)
        except LinAlgError as error:
            raise InvalidInputError(f"this evidence has no minimum: {error}") from None

    def _all_totals(self) -> Array:
        self._flush()
        rows, totals = self._rows, self._totals.copy()
        reach = float(rows.weights @ validation.norms(rows.X))
        totals[[WEIGHT, REACH, DEPTH]] += rows.weights.sum(), reach, len(rows.X)
        return totals

    def _share(self, W: Array) -> float:
        """Return how far on the way to W the tangents may lie: to where all curvatures hold."""
        ratios = (  # within a radius of 0 there is nothing, not even the point itself
            point.step_to(W) / point.radius if point.radius > 0.0 else math.inf
            for point in self._points
        )
        return 1.0 / max(1.0, max(ratios, default=0.0) * (1.0 + 1e-12))

    def _tangent(self, W: Array, s: float) -> Tangent:
        """Return the tangent that touches at W, for rows in the sums at s of the way (5)."""
        K, d = W.shape
        rows, quadratic = self._rows, self._sums()[0]
        P = softmax(compute_logits(rows.X, W))
        planes = self._planes + (rows.weights[:, None] * (P - rows.Y)).T @ rows.X
        c = self._totals[CONSTANT] + rows.weights @ entropies(P)
        i, j = np.triu_indices(K, 1)
        apart = W[i] - W[j]
        along, traces = quadratic.along(apart)
        curved = back(quadratic.G).copy()
        bent = quadratic.totals[CONSTANT] + (curved * W).sum() + (apart * along).sum()
        np.add.at(curved, i, 2.0 * along)
        np.subtract.at(curved, j, 2.0 * along)
        value = c + (planes * W).sum() + (2.0 * s - s * s) * bent
        # Rounding: what was added up, what is evaluated here, and p that sums to 1 only nearly.
        lengths = np.sqrt((W**2).sum(axis=1))
        lengths_apart = np.sqrt((apart**2).sum(axis=1))
        log_K, totals = math.log(K), self._all_totals()
        size = np.zeros(K)
        np.add.at(size, i, 2.0 * traces * lengths_apart)
        np.add.at(size, j, 2.0 * traces * lengths_apart)
        kappa = kernels.relative_rounding(totals[DEPTH], K, K * d)
        slopes = (2.0 + 3.0 * log_K) * totals[REACH]
        constants = (1.0 + log_K) ** 2 * totals[WEIGHT] + abs(c) + quadratic.totals[CONSTANT]
        allowance = constants + 2.0 * K * slopes * lengths.max()
        allowance += (traces * lengths_apart**2).sum()
        rounding = kappa * (2.0 * slopes + size)
        return Tangent(W, float(value - kappa * allowance), planes + s * curved, rounding)

    def minimise(self) -> tuple[float, Array]:
        """Return `lower_bound`, and the model W (K, d) near which it is reached."""
        if not self.total_weight >= kernels.MIN_TOTAL_WEIGHT:
            return 0.0, np.zeros_like(self._W)
        if self._minimum is None:
            with threads_for(self._W.size, everywhere=True):
                self._minimum = self._find_minimum()
        return self._minimum

    def _find_minimum(self) -> tuple[float, Array]:
        s = 1.0
        for _ in range(_MAX_SHRINKINGS):
            W, _ = self._minimise(0, s, _MAX_STEPS)
            share = self._share(W)
            if share >= s:
                bound = self._tangent(W, s).least(self.penalties)
                if bound > 0.0:
                    return bound, W
                break
            s = min(0.9 * s, share)
        W = self._W  # nothing is proven there mostly, but it is a model near the best one
        return max(0.0, self._tangent(W, self._share(W)).least(self.penalties)), W

    def lower_bound(self) -> float:
        return self.minimise()[0]

    def value(self, W: ArrayLike) -> float:
        W = validation.model("W", W, self.n_classes, self.n_features)
        if not self.total_weight >= kernels.MIN_TOTAL_WEIGHT:
            return 0.0  # no loss is negative
        return max(0.0, self._tangent(W, self._share(W)).value)

    # Sums of evidence.

    def _sum(self, other: Self) -> Self:
        both = self._copy()
        other._flush()
        if other._quadratics is not None:
            both._quadratics = self._sums() + other._quadratics.to(self._device)
        both._totals = merge_totals(self._totals, other._totals)
        both._planes = self._planes + other._planes
        both._n_settled = self._n_settled + other._n_settled
        both._points = [*self._points, *other._points]
        both._join_points()
        both._rows.distances = np.empty((0, self.n_classes))
        both._inverses = None  # rows of the other are not measured by it
        rows = other._rows
        both._W = self._W if self.total_weight >= other.total_weight else other._W
        both._wait(rows.X, rows.Y, rows.weights)
        return both

    def __mul__(self, factor: float) -> Self:
        factor = validation.fraction("factor", factor, 1.0)
        scaled = self._copy()
        scaled._rows.weights = factor * self._rows.weights
        scaled._planes *= factor
        scaled._totals[[CONSTANT, WEIGHT, REACH]] *= factor
        scaled._totals[DEPTH] += 1.0
        if self._quadratics is not None:
            S, G, totals = (factor * each for each in self._quadratics)
            scaled._quadratics = Quadratic(S, G, totals, self._device)
        return scaled

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        self._flush()
        larger = self._empty(n_features, n_classes)
        K, d = self._W.shape
        shape = larger._W.shape
        larger._totals[:] = self._totals
        larger._planes, larger._W = (_pad(each, shape) for each in (self._planes, self._W))
        larger._device = self._device
        if self._quadratics is not None:
            S, G, totals = self._quadratics.to(None)
            wide = Quadratic.zeros(*shape, stacked=(2,))
            wide.S[:, pairs_among(K, shape[0]), : S.shape[-1]] = S
            wide.G[:, :K, :d], wide.totals[:] = G, totals
            larger._quadratics = wide.to(self._device)
        metric = (*shape, shape[1])
        larger._points = [
            ExpansionPoint(_pad(point.W, shape), _pad(point.L, metric), point.radius)
            for point in self._points
        ]
        rows = self._rows
        X, Y = _pad(rows.X, (len(rows.X), shape[1])), _pad(rows.Y, (len(rows.Y), shape[0]))
        larger._rows.extend(X, Y, rows.weights)
        larger._n_settled = self._n_settled
        return larger

    # State.

    def to_record(self) -> Record:
        self._flush()  # before its counters are read
        return super().to_record()

    def _parts(self) -> dict[str, NDArray[Any]]:
        self._flush()
        arrays = {"planes": self._planes, "totals": self._totals, "W": self._W}
        arrays |= {f"rows.{name}": array for name, array in vars(self._rows).items()}
        if self._quadratics is not None:
            sums = self._quadratics if self._device is None else self._quadratics.to(None)
            arrays |= dict(zip(("S", "G", "quadratic_totals"), sums, strict=True))
        if self._points:
            for name in ("W", "L", "radius"):
                arrays[f"points.{name}"] = np.array([getattr(one, name) for one in self._points])
        return arrays if self._inverses is None else arrays | {"inverses": back(self._inverses)}

    def _restore(self, record: Record) -> None:
        K, d = self._W.shape
        for count in self.COUNTERS:
            setattr(self, count, record.count(count.lstrip("_")))
        self._totals[:] = record.part("totals", (N_TOTALS,))
        for name, array in (("planes", self._planes), ("W", self._W)):
            array[:] = record.part(name, (K, d))
        rows = self._rows
        rows.X = record.part("rows.X", (None, d))
        rows.Y = record.part("rows.Y", (len(rows.X), K), least=0.0, most=1.0)
        rows.weights = record.part("rows.weights", (len(rows.X),), least=0.0)
        rows.distances = record.part("rows.distances", (None, K), least=0.0)
        if len(rows.X) >= KEPT_ROWS + SETTLED_ROWS or len(rows.distances) > len(rows.X):
            raise record.error("has more rows that wait than there can be")
        if "S" in record.arrays:
            S, G, totals = self._quadratics = Quadratic.zeros(K, d, stacked=(2,))
            S[:], G[:] = record.part("S", S.shape), record.part("G", G.shape)
            totals[:] = record.part("quadratic_totals", totals.shape)
        if "points.W" in record.arrays:
            W = record.part("points.W", (None, K, d))
            L = record.part("points.L", (len(W), K, d, d))
            radius = record.part("points.radius", (len(W),), least=0.0)
            self._points = list(map(ExpansionPoint, W, L, radius.tolist()))
        if "inverses" in record.arrays:
            self._inverses = record.part("inverses", (K, d, d))


def _pad(array: Array, shape: tuple[int, ...]) -> Array:
    """Return a larger array that is 0 behind the ends of this one."""
    return np.pad(array, [(0, n - m) for n, m in zip(shape, array.shape, strict=True)])
