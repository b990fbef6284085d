"""Best linear predictor in hindsight: min of sum_t w_t l(W x_t, y_t) over row norms <= B."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from .loss import Array, as_distribution


def _labels(y: ArrayLike, n_classes: int) -> Array:
    rows = [as_distribution(label, n_classes) for label in np.asarray(y)]
    return np.array(rows).reshape(-1, n_classes)


def total_loss(W: Array, X: Array, Y: Array, weight: Array) -> float:
    """f(W), Y of shape (T, K)."""
    Z = X @ W.T
    return float(weight @ (np.logaddexp.reduce(Z, axis=1) - np.sum(Y * Z, axis=1)))


def gradient(W: Array, X: Array, Y: Array, weight: Array) -> Array:
    """The gradient of f, (K, d)."""
    return (weight[:, None] * (softmax(X @ W.T, axis=1) - Y)).T @ X


def hessian(W: Array, X: Array, weight: Array) -> Array:
    """The Hessian of f in the coordinates W.ravel(): block (a, b) is d x d."""
    P = softmax(X @ W.T, axis=1)
    K, d = W.shape
    H = np.empty((K, d, K, d))
    for a in range(K):
        for b in range(K):
            H[a, :, b, :] = (X.T * (weight * P[:, a] * ((a == b) - P[:, b]))) @ X
    return H.reshape(K * d, K * d)


def optimality_gap(W: Array, grad: Array, B: float) -> float:
    """<grad f, W> + B sum_k ||grad f_k|| >= f(W) - f*, whatever solver made W.

    By convexity f(W) - f(V) <= <grad f, W - V>; the right side is largest at V_k opposite to
    grad f_k on the sphere of radius B.
    """
    return float(np.sum(grad * W) + B * np.linalg.norm(grad, axis=1).sum())


def best_in_class(
    X: Array,
    y: ArrayLike,
    B: float,
    n_classes: int,
    weight: Array | None = None,
    tol: float = 1e-9,
    max_steps: int = 1000,
) -> tuple[Array, float, float]:
    """(W, f(W), gap) with f(W) - gap <= f* <= f(W) and gap <= tol (1 + |f(W)|).

    Newton on the barrier f(W) - mu sum_k log(B^2 - ||W_k||^2) with mu going to 0: on the central
    path the gap is at most K mu. If max_steps runs out the gap returned is still valid.
    """
    X, Y = np.asarray(X, dtype=float), _labels(y, n_classes)
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    K, d = n_classes, X.shape[1]
    W = np.zeros((K, d))

    def barrier(V: Array, mu: float) -> float:
        slack = B**2 - np.sum(V**2, axis=1)
        if np.any(slack <= 0):
            return np.inf
        return total_loss(V, X, Y, weight) - mu * float(np.log(slack).sum())

    mu = max(total_loss(W, X, Y, weight), 1e-300) / K
    for _ in range(max_steps):
        grad, f = gradient(W, X, Y, weight), total_loss(W, X, Y, weight)
        if optimality_gap(W, grad, B) <= tol * (1 + abs(f)):
            break
        slack = B**2 - np.sum(W**2, axis=1)
        full = (grad + 2 * mu * W / slack[:, None]).ravel()
        H = hessian(W, X, weight)
        for k in range(K):
            block = slice(k * d, (k + 1) * d)
            H[block, block] += 2 * mu / slack[k] * np.eye(d)
            H[block, block] += 4 * mu / slack[k] ** 2 * np.outer(W[k], W[k])
        step = -np.linalg.solve(H, full).reshape(K, d)
        decrease = -float(full @ step.ravel())
        t, now = 1.0, barrier(W, mu)
        # The slack lets the last steps through, whose decrease is below rounding.
        rounding = 1e-13 * (1 + abs(now))
        while barrier(W + t * step, mu) > now - 1e-4 * t * decrease + rounding:
            t /= 2
        W = W + t * step
        if decrease <= 0.1 * mu:
            mu = max(mu / 5, tol * (1 + abs(f)) / (2 * K))
    gap = optimality_gap(W, gradient(W, X, Y, weight), B)
    return W, total_loss(W, X, Y, weight), gap


def best_in_class_cvxpy(
    X: Array, y: ArrayLike, B: float, n_classes: int, weight: Array | None = None
) -> tuple[Array, float, float]:
    """The same three numbers from CVXPY with Clarabel, for small problems."""
    import cvxpy as cp  # optional: only this cross-check needs it

    X, Y = np.asarray(X, dtype=float), _labels(y, n_classes)
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    V = cp.Variable((n_classes, X.shape[1]))
    Z = X @ V.T
    losses = cp.log_sum_exp(Z, axis=1) - cp.sum(cp.multiply(Y, Z), axis=1)
    problem = cp.Problem(cp.Minimize(weight @ losses), [cp.norm(V, 2, axis=1) <= B])
    problem.solve(solver=cp.CLARABEL)
    W = np.asarray(V.value)
    # The solver may leave the balls by its own tolerance.
    W = W / np.maximum(1.0, np.linalg.norm(W, axis=1, keepdims=True) / B)
    gap = optimality_gap(W, gradient(W, X, Y, weight), B)
    return W, total_loss(W, X, Y, weight), gap
