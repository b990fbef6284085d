"""Rows that evidence keeps as they are, and the points at which the others are expanded.

The proofs are in docs/theory/evidence.md; (n) is an equation there.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from folklearn.arrays import Array, logit_losses, softmax
from folklearn.evidence.lower_bound import UNIT
from folklearn.kernels.on_torch import Device, back, put
from folklearn.kernels.quadratic import Quadratic, factorise_near, matrix, pairs, triangular_factors

_SHRUNK = 1.0 - 1e-8  # of curvatures: pays for their own rounding
_MAX_HALVINGS = 30
_SLOW = 0.5  # of what is left to gain: more than this after a step is slow


@dataclass(frozen=True, eq=False)
class ExpansionPoint:
    """A model at which rows were expanded, and the steps from it that their curvature pays for.

    These are the D (K, d) for which some c has a sum over classes of |L_k' (D_k - c)|^2 of at
    most radius^2. L (K, d, d) is lower triangular.
    """

    W: Array
    L: Array
    radius: float

    @classmethod
    def at(
        cls, W: Array, curvatures: Any, radius: float, device: Device | None = None
    ) -> tuple["ExpansionPoint", Any]:
        """Return a point whose metric is near curvatures (K, d, d), and inverses R (K, d, d).

        The metric is *defined* by the inverses: a row x has the length |R_k x| for class k, and
        |R_k^-T D| <= |L_k' D| / (1 - |1 - R_k L_k|), which L is divided by (8). Curvatures and
        inverses are on the device, if there is one.
        """
        d = W.shape[1]
        L, R, eye = 1.0 * curvatures, 1.0 * curvatures, put(device, np.eye(d))
        for k, A in enumerate(curvatures):
            # In units of the columns, which change neither |R x| nor |L' D|.
            scale, nudge, error = A.diagonal().clip(1e-300) ** 0.5, 1e-13, 1.0
            near = A / scale / scale[:, None]
            while not error < 0.5:
                factors = triangular_factors(near + nudge * eye, device)
                if factors is not None:
                    lower, inverse = factors
                    rounding = d * UNIT * _norm(inverse) * _norm(lower)
                    L[k], R[k] = scale[:, None] * lower, inverse / scale
                    error = float(_norm(eye - R[k] @ L[k]) + rounding)
                nudge *= 100.0
            L[k] *= (1.0 + 1e-12) / (1.0 - error)
        return cls(W.copy(), back(L), radius), R

    def step_to(self, W: Array) -> float:
        """Return the length of the step to a model, rounded up (9)."""
        d = W.shape[1]
        transposed, step = self.L.transpose(0, 2, 1), W - self.W
        pulled = (self.L @ (transposed @ step[:, :, None])).sum(axis=0)[:, 0]
        shift = lu_solve(self._all_classes, pulled, check_finite=False)
        away = transposed @ (step - shift)[:, :, None]
        sizes = np.abs(W) + np.abs(self.W) + np.abs(shift)
        rounding = np.abs(transposed) @ sizes[:, :, None]
        lengths = np.linalg.norm(away) + 4.0 * (d + 4.0) * UNIT * np.linalg.norm(rounding)
        return float(lengths * (1.0 + 1e-12)) if lengths >= 0.0 else math.inf  # not NaN

    @cached_property
    def _all_classes(self) -> Any:
        """The factors of the sum of L_k L_k', by which the best c is found: any would be sound."""
        d = self.W.shape[1]
        beside = self.L.transpose(1, 0, 2).reshape(d, -1)
        total = beside @ beside.T
        sizes = total.diagonal()
        total.reshape(-1)[:: d + 1] = np.where(sizes > 0.0, (1.0 + 1e-12) * sizes, 1.0)
        return lu_factor(total, check_finite=False)

    def join(self, other: "ExpansionPoint") -> "ExpansionPoint":
        """Return a point within whose radius a model is within both of theirs.

        The metric is at least either one, and the radius pays for the steps to both (10).
        """
        both = self.L @ self.L.transpose(0, 2, 1) + other.L @ other.L.transpose(0, 2, 1)
        d = both.shape[1]
        both[:, range(d), range(d)] *= 1.0 + 4.0 * d * (d + 4.0) * UNIT  # of sums and the factor
        radius = min(self.radius - self.step_to(other.W), other.radius)
        return ExpansionPoint.at(other.W, both, max(0.0, radius))[0]


def _norm(A: Any) -> Any:
    return (A**2).sum() ** 0.5


def entropies(P: Array) -> Array:
    """Return the entropies (m,) of distributions P (m, K)."""
    logarithms = np.log(P, out=np.zeros_like(P), where=P > 0.0)
    return -(P * logarithms).sum(axis=1)


def curvature_constant(reach: Array) -> Array:
    """Return c(rho), of the quadratic that holds where no logit falls by more than rho (4)."""
    inside = 0.5 + reach / 6.0 + reach * reach / 24.0
    return np.where(reach >= 2.0, 0.5 * reach, inside)


def choose_curvatures(P: Array, distances: Array, radius: float, off: Array) -> Array:
    """Return r (m, K) of rows predicted as P, which hold for all steps within a radius (6, 7).

    With weights q of sum 1, a logit falls below their mean by at most radius times sum_k q_k (D_i +
    D_k) over the others, D the distances (m, K), and `off` (m,). r = a q for the largest such a.
    """

    def constants(q: Array) -> Array:
        mean = (q * distances).sum(axis=1, keepdims=True)
        near = (1.0 - q) * distances + (mean - q * distances)
        near += (4.0 * len(q.T) * UNIT) * (distances + mean)  # what cancels above
        return curvature_constant(radius * near + off[:, None])

    q = P
    for _ in range(2):
        q = P / constants(q)
        q /= q.sum(axis=1, keepdims=True)
    limits = P / constants(q)
    a = np.divide(limits, q, out=np.full_like(q, np.inf), where=q > 0.0).min(axis=1, keepdims=True)
    return _SHRUNK * a * q


class IncomingRows:
    """Rows that come a few at a time, until they are worth a sum: X, Y, weights."""

    def __init__(self, most: int, d: int, K: int) -> None:
        self.X, self.Y, self.weights = np.empty((most, d)), np.zeros((most, K)), np.empty(most)
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.count == len(self.X)

    def append(self, x: Array, label: int, soft: Array, weight: float) -> bool:
        """Add a row; return whether there is no room for another."""
        n = self.count
        self.X[n], self.weights[n] = x, weight
        if label < 0:
            self.Y[n] = soft
        else:
            self.Y[n, label] = 1.0
        self.count = n + 1
        return self.is_full

    def extend(self, X: Array, Y: Array, weights: Array) -> int:
        """Add the first of some rows, as many as there is room for; return how many."""
        n, m = self.count, min(len(X), len(self.X) - self.count)
        self.X[n : n + m], self.Y[n : n + m], self.weights[n : n + m] = X[:m], Y[:m], weights[:m]
        self.count = n + m
        return m

    def take(self) -> list[Array]:
        """Return all rows, and forget them."""
        rows = [each[: self.count].copy() for each in (self.X, self.Y, self.weights)]
        self.Y[: self.count] = 0.0
        self.count = 0
        return rows


class WaitingRows:
    """Rows X (n, d), targets Y (n, K), weights (n,), distances (m, K) of those measured."""

    def __init__(self, d: int, K: int) -> None:
        self.X, self.Y, self.weights = np.empty((0, d)), np.empty((0, K)), np.empty(0)
        self.distances = np.empty((0, K))  # to the newest point

    def extend(self, X: Array, Y: Array, weights: Array) -> None:
        """Add rows behind the others."""
        self.X, self.Y = np.concatenate([self.X, X]), np.concatenate([self.Y, Y])
        self.weights = np.concatenate([self.weights, weights])

    def keep(self, which: Any) -> None:
        """Drop all other rows, all of which are measured."""
        for name, array in vars(self).items():
            setattr(self, name, array.compress(which, axis=0))


@dataclass(frozen=True)
class PenalisedSum:
    """Loss of rows + <planes, W> + share times a quadratic + 1/2 sum of tau_j W_ij^2."""

    rows: WaitingRows
    planes: Array  # (K, d)
    tau: Array  # (d,)
    curved: Quadratic | None
    share: float
    device: Device | None

    def evaluate(self, W: Array) -> tuple[float, Array, Array]:
        """Return the sum at W (K, d), its gradient (K, d), and predictions (n, K) of the rows."""
        rows, tau = self.rows, self.tau
        Z = compute_logits(rows.X, W)
        P = softmax(Z)
        loss = rows.weights @ logit_losses(Z, np.empty(0, np.int64), rows.Y)
        gradient = (rows.weights[:, None] * (P - rows.Y)).T @ rows.X + self.planes + tau * W
        value = loss + (self.planes * W).sum() + 0.5 * (tau * W**2).sum()
        if self.curved is not None:
            slope = self.curved.gradient(W)
            value += 0.5 * self.share * ((slope + back(self.curved.G)) * W).sum()
            gradient += self.share * slope
        return float(value), gradient, P

    def hessian(self, P: Array) -> Any:
        """Return second derivatives (K d, K d) where the rows are predicted as P."""
        K = len(self.planes)
        i, j = pairs(None, K)
        waiting = Quadratic.zeros(*self.planes.shape, device=self.device)
        weighted = (0.5 * self.rows.weights[:, None]) * P
        waiting.add(weighted[:, i] * P[:, j], None, self.rows.X)
        blocks = waiting.blocks()
        if self.curved is not None:
            blocks = blocks + self.share * self.curved.blocks()
        H = 2.0 * matrix(blocks, K, self.device)
        H.reshape(-1)[:: len(H) + 1] += put(self.device, np.tile(self.tau, K))
        return H

    def minimise(self, W: Array, most_steps: int, tolerance: float) -> tuple[Array, Any]:
        """Return a model near the least, by steps from W, and `hessian` near it."""
        device = self.device
        value, gradient, P = self.evaluate(W)
        H, before = self.hessian(P), math.inf
        solve = factorise_near(H, device)
        for _ in range(most_steps):
            left = 0.5 * float((gradient**2 / self.tau).sum())
            if left <= tolerance * abs(value):
                break
            is_new = before == math.inf
            if left > _SLOW * before:  # second derivatives cost far more than a step
                H, is_new = self.hessian(P), True
                solve = factorise_near(H, device)
            before = left
            step = -back(solve(put(device, gradient.reshape(-1, 1)))).reshape(W.shape)
            slope, length = float((gradient * step).sum()), 1.0
            tried = self.evaluate(W + step)
            for _ in range(_MAX_HALVINGS):
                if tried[0] <= value + 1e-4 * length * slope:
                    break
                length *= 0.5
                tried = self.evaluate(W + length * step)
            else:
                if is_new:
                    break  # what is left is rounding
                before = 0.0
                continue
            W = W + length * step
            value, gradient, P = tried
        return W, H


def compute_logits(X: Array, W: Array) -> Array:
    """Return logits (m, K), classes first in memory: sums over a short last axis are slow."""
    return (W @ X.T).T
