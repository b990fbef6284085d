"""Sums of quadratics, as arrays or on a device, and the linear algebra that bounds and fits need.

Functions that take a device do the same for arrays (None) as for its tensors.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from folklearn.arrays import Array
from folklearn.kernels.evidence import CONSTANT, DEPTH, N_TOTALS, add_products, n_pairs, n_products
from folklearn.kernels.on_torch import Device, back, put

Solve = Callable[[Any], Any]  # right-hand sides to solutions

_MAX_SCALED_NUMBERS = 1 << 26  # of rows that a device scales at once


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A sum of evidence: matrices S of pairs of classes, slopes G (K, d), totals (N_TOTALS,).

    S is (P, d(d+1)/2), lower triangles, and on a device (P, d, d). Sums can be stacked along a
    first axis.
    """

    S: Any
    G: Any
    totals: Array
    device: Device | None = None

    @classmethod
    def zeros(
        cls, K: int, d: int, *, device: Device | None = None, stacked: tuple[int, ...] = ()
    ) -> "Quadratic":
        """Return a sum of no rows, or several."""
        totals = np.zeros((*stacked, N_TOTALS))
        if device is None:
            S = np.zeros((*stacked, n_pairs(K), n_products(d)))
            return cls(S, np.zeros((*stacked, K, d)), totals)
        S = device.zeros(*stacked, n_pairs(K), d, d)
        return cls(S, device.zeros(*stacked, K, d), totals, device)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.S, self.G, self.totals))

    def __getitem__(self, index: int) -> "Quadratic":
        return Quadratic(self.S[index], self.G[index], self.totals[index], self.device)

    def __add__(self, other: "Quadratic") -> "Quadratic":
        totals = merge_totals(self.totals, other.totals)
        return Quadratic(self.S + other.S, self.G + other.G, totals, self.device)

    def add(self, coefficients: Array, slopes: Array | None, X: Any) -> None:
        """Add rows X (m, d) with coefficients (m, P) of pairs and slopes (m, K) per unit of x.

        X may be on the device already.
        """
        if self.device is None:
            add_products(self.S, *map(np.ascontiguousarray, (coefficients, X)))
        else:
            X = self.device.put(X)
            add_device_products(self.S, self.device.put(coefficients), X)
        if slopes is not None:
            self.G[:] += put(self.device, slopes).T @ X

    def add_expanded(self, r: Array, Z: Array, X: Any, weights: Array) -> None:
        """Add w / 4 sum_i r_i (v_i - m)^2, v the step from logits Z (m, K), m its mean by r."""
        total = np.maximum(r.sum(axis=1, keepdims=True), 1e-300)
        away = Z - (r * Z).sum(axis=1, keepdims=True) / total
        i, j = pairs(None, r.shape[1])
        coefficients = (0.25 * weights[:, None]) * r[:, i] * (r / total)[:, j]
        self.add(coefficients, -0.5 * weights[:, None] * r * away, X)
        self.totals[CONSTANT] += 0.25 * float(weights @ (r * away**2).sum(axis=1))

    def copy(self) -> "Quadratic":
        if self.device is None:
            return Quadratic(*(array.copy() for array in self))
        return Quadratic(self.S.clone(), self.G.clone(), self.totals.copy(), self.device)

    def to(self, device: Device | None) -> "Quadratic":
        """Return a copy on a device, or as arrays."""
        if device == self.device:
            return self.copy()
        if self.device is None:
            assert device is not None
            blocks, G = device.put(self.blocks()), device.put(self.G)
            return Quadratic(blocks, G, self.totals.copy(), device)
        rows, columns = (self.device.put(at) for at in np.tril_indices(self.shape[1]))
        S = back(self.S[..., rows, columns])
        arrays = Quadratic(S, back(self.G).copy(), self.totals.copy())
        return arrays if device is None else arrays.to(device)

    @property
    def shape(self) -> tuple[int, int]:
        """K and d."""
        K, d = self.G.shape[-2:]
        return K, d

    def blocks(self) -> Any:
        """Return the matrices of pairs in full, (P, d, d)."""
        if self.device is not None:
            return self.S
        d = self.shape[1]
        rows, columns = np.tril_indices(d)
        full = np.empty((*self.S.shape[:-1], d, d))
        full[..., rows, columns] = self.S
        full[..., columns, rows] = self.S
        return full

    def along(self, differences: Array) -> tuple[Array, Array]:
        """Return S_ij times a vector each, (P, d), and the traces (P,) of all S_ij."""
        blocks = self.blocks()
        along = (blocks @ put(self.device, differences)[:, :, None])[:, :, 0]
        return back(along), back(blocks.diagonal(0, 1, 2).sum(1))

    def gradient(self, W: Array) -> Array:
        """Return the gradient (K, d) at W (K, d)."""
        pulls = pull(self.blocks(), put(self.device, W)[None], self.device)[0]
        return back(self.G + 2.0 * pulls)

    def mode(self, ridge: float) -> Array | None:
        """Return the minimiser (K, d) of ridge |W|^2 + this; None if rounding leaves no factor."""
        K, _ = self.shape
        H = add_ridge(matrix(self.blocks(), K, self.device, n_rows=K - 1), ridge, K)
        solve = factorise(H, self.device)
        if solve is None:
            return None
        W = back(newton_step(solve, self.G))
        return W if np.isfinite(W).all() else np.zeros_like(W)


def add_device_products(S: Any, coefficients: Any, X: Any) -> None:
    """S (Q, d, d) += for each column of coefficients (m, Q) the sum of c xx' over rows X (m, d)."""
    Q, d, _ = S.shape
    rows = max(1, _MAX_SCALED_NUMBERS // (Q * d))
    flat = S.view(Q * d, d)
    for start in range(0, len(X), rows):
        x, c = X[start : start + rows], coefficients[start : start + rows]
        scaled = (c[:, :, None] * x[:, None, :]).view(len(x), Q * d)
        flat.addmm_(scaled.T, x)


def merge_totals(one: Array, other: Array) -> Array:
    """Return the totals (..., N_TOTALS) of two sets of rows whose sums were added."""
    both = one + other
    both[..., DEPTH] = np.maximum(one[..., DEPTH], other[..., DEPTH]) + 1.0
    return both


def pairs_among(K: int, larger: int) -> NDArray[np.int64]:
    """Return where the pairs of the first K classes stand among the pairs of `larger` classes."""
    i, j = np.triu_indices(K, 1)
    places: NDArray[np.int64] = i * larger - i * (i + 1) // 2 + (j - i - 1)
    return places


@cache
def pairs(device: Device | None, K: int) -> tuple[Any, Any]:
    """Return the classes (P,) of every pair i < j, in order."""
    i, j = np.triu_indices(K, 1)
    return put(device, i), put(device, j)


@cache
def incidence(device: Device | None, K: int) -> Any:
    """Return (K, P), 1 for the first class of every pair and -1 for the second.

    Sums over pairs are products with it: a device adds to places in an order that changes.
    """
    i, j = np.triu_indices(K, 1)
    return put(device, np.eye(K)[:, i] - np.eye(K)[:, j])


def pull(blocks: Any, W: Any, device: Device | None = None) -> Any:
    """Return, for models W (E, K, d), the sums over j of S_ij (w_i - w_j)."""
    i, j = pairs(device, W.shape[1])
    differences = (W[:, i] - W[:, j]).swapaxes(0, 1).swapaxes(1, 2)  # (P, d, E)
    along = (blocks @ differences).swapaxes(1, 2).swapaxes(0, 1)
    return incidence(device, W.shape[1]) @ along


def matrix(blocks: Any, K: int, device: Device | None = None, *, n_rows: int | None = None) -> Any:
    """Return the matrix, class-major, of the form with matrices of pairs (P, d, d).

    Of all K classes, or of the first `n_rows`, as if the others were held at 0.
    """
    k, d = n_rows or K, blocks.shape[1]
    i, j = pairs(None, K)
    pair_of = np.zeros((K, K), np.int64)
    pair_of[i, j] = pair_of[j, i] = np.arange(len(i))
    M = -blocks[put(device, pair_of[:k, :k])].swapaxes(1, 2)
    classes = put(device, np.arange(k))
    diagonal = abs(incidence(device, K)[:k]) @ blocks.reshape(len(blocks), d * d)
    M[classes, :, classes] = diagonal.reshape(k, d, d)
    return M.reshape(k * d, k * d)


def add_ridge(H: Any, ridge: float, K: int) -> Any:
    """Return H, the last class held at 0, plus the ridge of centred models, (I - 11'/K) (x) I."""
    n = len(H)
    d = n // (K - 1)
    out = H + 0.0  # a copy
    out.reshape(-1)[:: n + 1] += ridge
    at = np.arange(d)
    out.reshape(K - 1, d, K - 1, d)[:, at, :, at] -= ridge / K
    return out


def newton_step(solve: Solve, gradient: Any) -> Any:
    """Return the step (K, d) to where the gradient of the quadratic vanishes, centred."""
    K, d = gradient.shape
    step = 0.0 * gradient
    step[: K - 1] = solve(-0.5 * gradient[: K - 1].reshape(-1, 1)).reshape(K - 1, d)
    return step - step.mean(0)


def factorise(M: Any, device: Device | None = None) -> Solve | None:
    """Return the solver of a symmetric matrix, or None if it has no factor; M is not changed."""
    if device is not None:
        L, info = device.torch.linalg.cholesky_ex(M)
        # On an H200 a solve takes 7 to 30 % of the factor, from 20,000 unknowns to 1,500.
        return (lambda sides: sides.cholesky_solve(L)) if int(info) == 0 else None
    try:
        factor = cho_factor(M, lower=True, check_finite=False)
    except LinAlgError:
        return None
    return lambda sides: np.asarray(cho_solve(factor, sides, check_finite=False))


def triangular_factors(M: Any, device: Device | None) -> tuple[Any, Any] | None:
    """Return the lower factor of a symmetric matrix and its inverse; None if there is none."""
    if device is not None:
        L, info = device.torch.linalg.cholesky_ex(M)
        eye = device.torch.eye(len(M), dtype=M.dtype, device=M.device)
        is_factor = int(info) == 0
        return (L, device.torch.linalg.solve_triangular(L, eye, upper=False)) if is_factor else None
    try:
        L = np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        return None
    return L, solve_triangular(L, np.eye(len(M)), lower=True)


def factorise_near(H: Any, device: Device | None) -> Solve:
    """Return the solver of a matrix that is nudged, in place, where rounding made it indefinite."""
    nudge, is_finite = 1e-14, math.isfinite(float(abs(H).sum()))
    while not is_finite or (solve := factorise(H, device)) is None:
        if not is_finite or not nudge < 1.0:
            raise LinAlgError("its sums are no numbers any more")
        H.reshape(-1)[:: len(H) + 1] *= 1.0 + nudge
        nudge *= 10.0
    return solve
