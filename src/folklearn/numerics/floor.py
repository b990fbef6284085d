"""The floor of a sum of evidence: what no model of the class can go below, rounding included.

With a multiplier l_i > 0 for every row of W, and M the matrix of the quadratic plus
diag(l) (x) I,

    F(l) = min over all W of  E(W) + sum_i l_i (|w_i|^2 - B^2)  <=  min over the class of E(W),

one linear solve, W = -M^-1 G / 2. F is concave, its gradient is |w_i|^2 - B^2 and its Hessian
-2 w_i'[M^-1]_ij w_j, so a few primal-dual steps find the best l. Every l is sound, and so is
every W: for any W, min q >= q(W) - sum_i |grad_i q(W)|^2 / (4 l_i). Only q and its gradient at
one point are evaluated, and the rounding of that is bounded; the solver is not trusted.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from folklearn.arrays import Array
from folklearn.numerics.evidence import CONSTANT, DEPTH, REACH, WEIGHT

_UNIT = 1.01 * 2.0**-53  # with room for terms of second order
_MOST_STEPS = 60
_TOLERANCE = 1e-10  # nats per unit of weight
_TO_ZERO = 0.9  # of the way that a step may take to where a multiplier or a slack is 0
_CENTRING = 0.1
_LIGHTEST = 1e-100  # total weight; far below, rounding is not relative any more


class Quadratic(NamedTuple):
    """A sum of evidence as it is stored: pairs S (P, D) packed, G (K, d), totals."""

    S: Array
    G: Array
    totals: Array

    @property
    def shape(self) -> tuple[int, int]:
        """K and d."""
        return self.G.shape[0], self.G.shape[1]

    def blocks(self) -> Array:
        """Return S_ij as full matrices, (P, d, d)."""
        d = self.shape[1]
        rows, columns = np.tril_indices(d)
        full = np.empty((len(self.S), d, d))
        full[:, rows, columns] = self.S
        full[:, columns, rows] = self.S
        return full


def matrix(quadratic: Quadratic) -> Array:
    """Return the matrix (Kd, Kd), class-major, of sum (w_i - w_j)' S_ij (w_i - w_j)."""
    K, d = quadratic.shape
    M = np.zeros((K, d, K, d))
    for (i, j), block in zip(_pairs(K), quadratic.blocks(), strict=True):
        M[i, :, i] += block
        M[j, :, j] += block
        M[i, :, j] = -block
        M[j, :, i] = -block
    return M.reshape(K * d, K * d)


def value(quadratic: Quadratic, W: Array) -> float:
    """Return a number that the total loss of W is not below: E(W), rounded down."""
    if not quadratic.totals[WEIGHT] >= _LIGHTEST:
        return 0.0  # no loss is negative
    return max(0.0, _Evaluated(quadratic, W, np.zeros(len(W)), 0.0).below)


def floor(quadratic: Quadratic, B: float, tolerance: float = _TOLERANCE) -> tuple[float, Array]:
    """Return a number that no model of row norm at most B goes below, and a model near it.

    The multipliers are sought until F is within `tolerance`, in nats per unit of weight, of
    the least of the quadratic; the number holds wherever the search ends.
    """
    K, d = quadratic.shape
    if not quadratic.totals[WEIGHT] >= _LIGHTEST:
        return 0.0, np.zeros((K, d))
    M = matrix(quadratic)
    multipliers = _multipliers(quadratic, M, B, tolerance)
    # Rows with hardly any pull would divide rounding by next to nothing.
    first = _Evaluated(quadratic, _solved(quadratic, M, multipliers)[0], multipliers, B)
    multipliers = np.maximum(multipliers, first.rounding / (2.0 * B))
    W = _solved(quadratic, M, multipliers)[0]
    # No loss is negative. What is not a number comes last, where max passes over it.
    below = max(0.0, _Evaluated(quadratic, W, multipliers, B).below, first.below)
    return below, into_class(W, B)


def plane(quadratic: Quadratic, W: Array, B: float) -> tuple[float, Array]:
    """Return (c, G) with c + <G, V> below the quadratic for all V of row norm at most B.

    The quadratic is convex, so that it lies above its plane at W, which is in the class; the
    rounding of the gradient is paid for by the longest way from W, 2 B for every row.
    """
    here = _Evaluated(quadratic, W, np.zeros(len(W)), 0.0)
    away = 2.0 * (1.0 + 1e-8) * B * float(here.rounding.sum())
    product = float((here.gradient * W).sum())
    size = float(np.abs(here.gradient * W).sum()) + abs(here.below)
    return here.below - product - away - _UNIT * (W.size + 8.0) * size, here.gradient


def into_class(W: Array, B: float) -> Array:
    """Return W with rows longer than B shortened to B."""
    lengths = np.sqrt((W**2).sum(axis=1, keepdims=True))
    inside: Array = W * (B / np.maximum(lengths, B))
    return inside


class _Evaluated:
    """q(W) = E(W) + sum_i l_i (|w_i|^2 - B^2) and its gradient at W, with their rounding."""

    def __init__(self, quadratic: Quadratic, W: Array, multipliers: Array, B: float) -> None:
        K, d = quadratic.shape
        blocks, G, totals = quadratic.blocks(), quadratic.G, quadratic.totals
        dual, weight, reach = multipliers, totals[WEIGHT], totals[REACH]
        kappa = _UNIT * (totals[DEPTH] + K * K + K * d + 60.0)
        squares = (W**2).sum(axis=1)
        total = totals[CONSTANT] + (G * W).sum() + (dual * (squares - B * B)).sum()
        gradient = G + 2.0 * dual[:, None] * W
        size = np.zeros(K)
        curved = 0.0
        for (i, j), block in zip(_pairs(K), blocks, strict=True):
            apart = W[i] - W[j]
            pull = block @ apart
            total += apart @ pull
            gradient[i] += 2.0 * pull
            gradient[j] -= 2.0 * pull
            trace, length = block.trace(), math.sqrt(apart @ apart)
            curved += trace * length**2
            size[[i, j]] += 2.0 * trace * length
        self.gradient: Array = gradient
        log_K = math.log(K)
        lengths = np.sqrt(squares)
        slopes = (2.0 + 3.0 * log_K) * reach
        self.rounding: Array = kappa * (slopes + size + 2.0 * dual * lengths)
        allowance = kappa * (
            (1.0 + log_K) ** 2 * weight
            + abs(totals[CONSTANT])
            + slopes * lengths.max()
            + curved
            + (dual * (squares + B * B)).sum()
        )
        pull = np.sqrt((gradient**2).sum(axis=1)) + self.rounding
        with np.errstate(over="ignore"):  # next to no multiplier: a bound of minus infinity
            bent = (pull[dual > 0.0] ** 2 / (4.0 * dual[dual > 0.0])).sum()
        self.below = float(total - allowance - bent * (1.0 + 4.0 * _UNIT * (K + d)))


def _solved(quadratic: Quadratic, M: Array, multipliers: Array) -> tuple[Array, tuple[Array, bool]]:
    """Return the minimiser of q, and the factor of its matrix."""
    K, d = quadratic.shape
    n = K * d
    G = quadratic.G - quadratic.G.mean(axis=0)  # rounding; what moves all classes moves nothing
    shifted = M.copy()
    shifted.flat[:: n + 1] += np.repeat(multipliers, d)
    nudge = 1e-15 * n * max(float(M.diagonal().max()), 1e-300)
    for _ in range(40):
        try:
            factor = cho_factor(shifted, lower=True, check_finite=False)
            break
        except LinAlgError:
            shifted.flat[:: n + 1] += nudge
            nudge *= 4.0
    else:
        raise LinAlgError("a sum of evidence is not a number any more")
    W = cho_solve(factor, -0.5 * G.ravel(), check_finite=False).reshape(K, d)
    return W, factor


def _multipliers(quadratic: Quadratic, M: Array, B: float, tolerance: float) -> Array:
    """Return the multipliers with the largest F found by primal-dual steps."""
    K, d = quadratic.shape
    G, totals = quadratic.G, quadratic.totals
    least = 1e-15 * K * d * max(float(M.diagonal().max()), 1e-300)
    dual = np.sqrt((G**2).sum(axis=1)) / (2.0 * B)
    dual = np.maximum(dual, max(0.1 * dual.max(), least))
    best, s = -math.inf, None
    best_dual: Array = dual
    for _ in range(_MOST_STEPS):
        dual = np.maximum(dual, least)
        W, factor = _solved(quadratic, M, dual)
        squares = (W**2).sum(axis=1)
        F = totals[CONSTANT] + 0.5 * (G * W).sum() - B * B * dual.sum()
        if best < F:
            best, best_dual = F, dual
        inside = into_class(W, B).ravel()
        above = totals[CONSTANT] + G.ravel() @ inside + inside @ (M @ inside)
        if above - best <= tolerance * totals[WEIGHT]:
            break
        g = squares - B * B
        if s is None:
            s = np.maximum(-g, 0.1 * B * B)
        spread = np.zeros((K * d, K))
        for i in range(K):
            spread[i * d : (i + 1) * d, i] = W[i]
        hessian = -2.0 * spread.T @ cho_solve(factor, spread, check_finite=False)
        mu = _CENTRING * (dual * s).mean()
        dl = np.linalg.solve(np.diag(s / dual) - hessian, mu / dual + g)
        ds = (mu - dual * s - s * dl) / dual
        dual, s = dual + _step(dual, dl) * dl, s + _step(s, ds) * ds
    return best_dual


def _step(here: Array, direction: Array) -> float:
    """Return how far to go along a direction so that all stays positive, at most 1."""
    towards = direction < 0.0
    if not towards.any():
        return 1.0
    return float(min(1.0, _TO_ZERO * (here[towards] / -direction[towards]).min()))


def _pairs(K: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(K) for j in range(i + 1, K)]
