"""The best linear model in hindsight, with a proof of how good it is."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from folklearn import problem
from folklearn.arrays import Array, logit_losses, softmax
from folklearn.engine import Engine, leaf_rows
from folklearn.errors import InvalidInputError
from folklearn.evaluate.exact import refine
from folklearn.evidence import Evidence
from folklearn.learners.lanes import PAIRS, lane_of
from folklearn.numerics.backend import OneThread
from folklearn.passes import PassesHere
from folklearn.problem import Rows
from folklearn.sparse import SparseRows

_CHUNK = 1024  # rows whose Kronecker products are in memory at once
_MANY = 1000  # coordinates from which on several BLAS threads pay
_MOST_STEPS = 200
_TINY = 1e-300
_NEAR = 1e10
_RIDGE = 1e-14  # relative to the trace; the Hessian is singular along equal rows
_TO_THE_BORDER = 0.995  # how much of the way to the border of the class one step may take


@dataclass(frozen=True)
class Hindsight:
    """The best model of the class, up to a certified gap.

    Attributes
    ----------
    W : (K, d), every row norm at most B.
    loss : total (weighted) log loss of W, in nats.
    gap : the least loss in the class is between ``loss - gap`` and ``loss``. Proven whatever
        solver made W: from the gradient at W, up to the rounding of the sums, or by the floor
        of `Evidence` expanded at W, rounding included; the smaller of the two.
    B : the row norm that bounds the class.
    converged : whether the gap came below the tolerance.
    """

    W: Array
    loss: float
    gap: float
    B: float
    converged: bool

    @property
    def at_least(self) -> float:
        """A lower bound on the total loss of every model of the class."""
        return self.loss - self.gap


def best_in_class(
    X: Any,
    y: ArrayLike,
    *,
    B: float,
    n_classes: int,
    weight: ArrayLike | None = None,
    tol: float = 1e-8,
    n_jobs: int = 1,
    device: str | None = None,
) -> Hindsight:
    r"""Minimise the total log loss over linear models of row norm at most B.

    A primal-dual interior-point method: Newton's method on

    .. math:: f(W) - \mu \sum_k \log(B^2 - \|W_k\|^2), \qquad \mu \to 0,

    with one multiplier per row, so that steps stay long when models reach the border. It
    ends when the gap of the Frank-Wolfe kind, which convexity proves,

    .. math:: \langle \nabla f(W), W \rangle + B \sum_k \|\nabla f_k(W)\| \ge f(W) - f^*,

    is at most ``tol`` times (1 + loss). Then the floor of `Evidence` with all rows expanded at
    W is a second proof, mostly a sharper one: its gap is of second order in the distance from
    the best model. 10 to 30 steps of T (dK)^2 multiply-adds; memory O(T + (dK)^2). For rows
    that do not fit in memory there is `refine`, which is also what is done on a device, and for
    problems too wide for (dK)^2 numbers (`lane_of`): first order, many passes, and a gap that may
    stay above the tolerance.

    Parameters
    ----------
    X, y, weight : as in `Folklore.run`; y is (T,) classes or (T, K) soft labels.
    B : largest row norm, positive.
    n_classes : K, at least 2.
    tol : relative tolerance of the gap, positive.
    n_jobs : threads that share the sums over rows, -1 for as many as there are cores; the result
        is the same to the last bit. From 1000 coordinates d K on BLAS shares them out itself.
    device : where the sums are made: "cpu", the default, or a device of PyTorch such as "cuda"
        (extra ``gpu``).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)
    >>> best = best_in_class(X, y, B=5.0, n_classes=2)
    >>> best.converged, best.gap < 1e-5, bool(best.loss < 200 * np.log(2))
    (True, True, True)
    """
    engine = Engine.chosen(n_jobs, device)
    n_classes = problem.count("n_classes", n_classes, 2)
    B = problem.positive("B", B)
    tol = problem.positive("tol", tol)
    X = problem.table(X)
    sizes = {"n_features": X.shape[1], "n_classes": n_classes}
    rows = Rows.checked(X, y, weight, **sizes)
    if engine.device is not None or lane_of(**sizes) != PAIRS:
        found = refine(PassesHere(lambda: [rows], engine), **sizes, B=B, tol=tol)
        return Hindsight(found.W, found.loss, found.gap, B, found.converged)
    if isinstance(rows.X, SparseRows):
        rows = rows._replace(X=rows.X.dense())
    few = n_classes * X.shape[1] < _MANY
    f = _Total(rows, n_classes, leaf_rows(**sizes) if few else None, engine)
    # Small products on several threads crawl as soon as anything else runs on the machine.
    with OneThread(everywhere=True) if few else nullcontext():
        best = _solve(f, B, tol)
        evidence = Evidence(**sizes, B=B)
        evidence._add(rows, best.W, engine)
        gap = min(best.gap, max(0.0, best.loss - evidence.floor()))
    return replace(best, gap=gap, converged=gap <= tol * (1.0 + best.loss))


def linear_losses(X: Any, y: ArrayLike, W: ArrayLike) -> Array:
    """Return the log loss (T,) of the linear model W (K, d) on every row, unweighted.

    Computed from the logits, so that a probability that underflows costs what it should.
    """
    W = problem.numbers("W", W)
    if W.ndim != 2 or not np.isfinite(W).all():
        raise InvalidInputError(
            f"W has shape {W.shape}; expected finite numbers of shape (n_classes, n_features)"
        )
    X, _ = problem.rows_of_contexts(X, W.shape[1])
    labels, soft = problem.labels(y, len(X), len(W))
    return logit_losses(X @ W.T, labels, soft)


class _Total:
    """The total loss f and its derivatives, as sums over leaves of so many rows."""

    def __init__(self, rows: Rows, K: int, size: int | None, engine: Engine) -> None:
        self._rows, self._size, self._engine = rows, size, engine
        self.shape = (K, rows.X.shape[1])

    def _sum(self, summed: Callable[[Rows], Any]) -> Any:
        """Return what a function of rows adds up to."""
        return self._engine.total(
            [self._rows], self._size, lambda leaf: sum(map(summed, leaf.parts), 0.0)
        )

    def value(self, W: Array) -> float:
        def loss(rows: Rows) -> float:
            return float(rows.weights @ logit_losses(rows.X @ W.T, rows.labels, rows.soft))

        return float(self._sum(loss))

    def gradient(self, W: Array) -> Array:
        def slope(rows: Rows) -> Array:
            E = softmax(rows.X @ W.T)
            if len(rows.soft):
                E -= rows.soft
            else:
                each = np.arange(len(E))
                E[each, rows.labels] = 0.0
                E[each, rows.labels] = -E.sum(axis=1)  # p - 1 without cancellation
            E *= rows.weights[:, None]
            slopes: Array = E.T @ rows.X
            return slopes

        gradient: Array = np.zeros(self.shape) + self._sum(slope)
        return gradient

    def hessian(self, W: Array) -> Array:
        """Return the sum of w (diag p - pp') (x) xx', (Kd, Kd), class-major."""
        K, d = self.shape

        def curved(rows: Rows) -> Array:
            H = np.zeros((K * d, K * d))
            for start in range(0, len(rows.X), _CHUNK):
                x, _, _, _, w = rows.part(start, start + _CHUNK)
                p = softmax(x @ W.T)
                rank_one = (np.sqrt(w)[:, None] * p)[:, :, None] * x[:, None, :]
                rank_one = rank_one.reshape(len(x), K * d)
                H -= rank_one.T @ rank_one
                for k in range(K):
                    block = slice(k * d, (k + 1) * d)
                    scaled = np.sqrt(w * p[:, k])[:, None] * x
                    H[block, block] += scaled.T @ scaled
            return H

        hessian: Array = np.zeros((K * d, K * d)) + self._sum(curved)
        return hessian


def certified_gap(W: Array, gradient: Array, B: float) -> float:
    """Return <grad, W> + B sum_k |grad_k|, at least f(W) - f* for every convex f."""
    gap = (gradient * W).sum() + B * np.sqrt((gradient**2).sum(axis=1)).sum()
    return max(0.0, float(gap))


def _solve(f: _Total, B: float, tol: float) -> Hindsight:
    K = f.shape[0]
    W = np.zeros(f.shape)
    value = f.value(W)
    mu = max(value / K, _TINY)
    multipliers = np.full(K, mu / B**2)
    best = Hindsight(W, value, np.inf, B, False)
    for _ in range(_MOST_STEPS):
        gradient = f.gradient(W)
        gap = certified_gap(W, gradient, B)
        if gap < best.gap:
            best = Hindsight(W, value, gap, B, gap <= tol * (1.0 + value))
        if best.converged:
            break
        slack = B**2 - (W**2).sum(axis=1)
        full = gradient + 2.0 * mu * W / slack[:, None]  # of f and the barrier
        step = _newton_step(f.hessian(W), full, W, slack, multipliers)
        decrease = -float((step * full).sum())
        length, W_next, value = _search(f, W, value, step, decrease, mu, B)
        multipliers = _next_multipliers(multipliers, mu, slack, 2.0 * (W * step).sum(axis=1))
        W = W_next
        room = B**2 - (W**2).sum(axis=1)
        # Never far from mu = multiplier * slack: Waechter and Biegler (2006), eq. (16).
        multipliers = np.clip(multipliers, mu / (_NEAR * room), mu * _NEAR / room)
        if length > 0.1 and decrease <= 10.0 * K * mu:  # near enough to the central path
            mu = max(0.1 * mu, 0.2 * tol * (1.0 + value) / K)
    return best


def _newton_step(H: Array, full: Array, W: Array, slack: Array, multipliers: Array) -> Array:
    """Solve the Newton system of the barrier, its curvature taken from the multipliers.

    H is overwritten.
    """
    K, d = W.shape
    for k in range(K):
        block = slice(k * d, (k + 1) * d)
        H[block, block] += (4.0 * multipliers[k] / slack[k]) * np.outer(W[k], W[k])
    diagonal = H.diagonal() + np.repeat(2.0 * multipliers, d)
    ridge = _RIDGE * float(diagonal.sum())
    while True:
        np.fill_diagonal(H, diagonal + ridge)
        try:
            step: Array = cho_solve(cho_factor(H, lower=True), -full.ravel())
            return step.reshape(W.shape)
        except LinAlgError:
            ridge *= 10.0


def _search(
    f: _Total, W: Array, value: float, step: Array, decrease: float, mu: float, B: float
) -> tuple[float, Array, float]:
    """Return (length, W + length step, its f) after Armijo's search on f and the barrier."""
    length = _longest(W, step, B)
    now = value - mu * float(np.log(B**2 - (W**2).sum(axis=1)).sum())
    rounding = 1e-13 * (1.0 + abs(now))  # lets the last steps through, which gain less
    while length > 1e-12:
        moved = W + length * step
        room = B**2 - (moved**2).sum(axis=1)
        if room.min() > 0.0:
            moved_value = f.value(moved)
            barrier = moved_value - mu * float(np.log(room).sum())
            if barrier <= now - 1e-4 * length * decrease + rounding:
                return length, moved, moved_value
        length /= 2.0
    return 0.0, W, value


def _longest(W: Array, step: Array, B: float) -> float:
    """Return the length, at most 1, that leaves every row a little room inside the class."""
    a = (step**2).sum(axis=1)
    b = (W * step).sum(axis=1)
    c = B**2 - (W**2).sum(axis=1)
    moving = a > 0.0
    # The positive root of a s^2 + 2 b s = c.
    root = (np.sqrt(b**2 + a * c) - b)[moving] / a[moving]
    return min(1.0, _TO_THE_BORDER * float(root.min())) if root.size else 1.0


def _next_multipliers(multipliers: Array, mu: float, slack: Array, slope: Array) -> Array:
    """Return the multipliers after Newton's step for multiplier * slack = mu, kept positive."""
    change = (mu + multipliers * slope) / slack - multipliers
    ratios = -multipliers[change < 0.0] / change[change < 0.0]
    length = min(1.0, _TO_THE_BORDER * float(ratios.min())) if ratios.size else 1.0
    after: Array = multipliers + length * change
    return after
