"""Rows that evidence keeps as they are, and the model that is best for them and all others.

What the others prove is planes and a quadratic; the best model is found by Newton's method.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from folklearn.arrays import Array, logit_losses, softmax
from folklearn.kernels.on_torch import Device, back, put
from folklearn.kernels.quadratic import Quadratic, factorise_near, matrix, pairs

_MAX_HALVINGS = 30
_SLOW = 0.5  # of what is left to gain: more than this after a step is slow


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


class IncomingRows:
    """Few rows at a time, until there are `size` or they are asked for: sums take many at once."""

    def __init__(self, size: int) -> None:
        self._size, self._n = size, 0
        self._batches: list[tuple[Array, Array, Array]] = []

    def __len__(self) -> int:
        return self._n

    def extend(self, X: Array, Y: Array, weights: Array) -> bool:
        """Add rows, which must not change any more; return whether there are enough."""
        self._batches.append((X, Y, weights))
        self._n += len(X)
        return self._n >= self._size

    def drain(self) -> tuple[Array, Array, Array] | None:
        """Return all rows in order, and have none."""
        batches, self._batches, self._n = self._batches, [], 0
        if not batches:
            return None
        X, Y, weights = map(np.concatenate, zip(*batches, strict=True))
        return X, Y, weights


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

    def minimise(self, W: Array, most_steps: int, tolerance: float) -> tuple[Array, Array]:
        """Return a model near the least, by steps from W, and second derivatives near it."""
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
        return W, back(H)


def compute_logits(X: Array, W: Array) -> Array:
    """Return logits (m, K), classes first in memory: sums over a short last axis are slow."""
    return (W @ X.T).T
