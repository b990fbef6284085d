"""SMP (Mourtada, Gaïffas 2022): K ridge regressions by a generic minimiser, in K d coordinates."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from .loss import Array, as_distribution


def ridge_minimiser(X: Array, y: ArrayLike, K: int, lam: float) -> Array:
    """argmin of lam ||W||_F^2 + sum of the losses, (K, d), to a gradient of about 1e-10."""
    targets = np.array([as_distribution(label, K) for label in np.asarray(y)])
    d = X.shape[1]

    def value(w: Array) -> tuple[float, Array]:
        Z = X @ w.reshape(K, d).T
        loss = -np.sum(targets * log_softmax(Z, axis=1)) + lam * w @ w
        gradient = (softmax(Z, axis=1) - targets).T @ X + 2 * lam * w.reshape(K, d)
        return float(loss), gradient.ravel()

    def hessian(w: Array) -> Array:
        P = softmax(X @ w.reshape(K, d).T, axis=1)
        H = 2 * lam * np.eye(K * d)
        for p, x in zip(P, X, strict=True):
            H += np.kron(np.diag(p) - np.outer(p, p), np.outer(x, x))
        return H

    found = minimize(value, np.zeros(K * d), jac=True, hess=hessian, method="trust-exact",
                     options={"gtol": 1e-10})  # fmt: skip
    return found.x.reshape(K, d)


def smp_parts(X: Array, y: ArrayLike, x: Array, K: int, lam: float) -> Array:
    """softmax(W^(y) x)_y for every virtual label y, not normalised."""
    parts = []
    for virtual in range(K):
        label = np.eye(K)[virtual] if np.ndim(y) == 2 else virtual
        W = ridge_minimiser(np.vstack([X, x]), np.concatenate([y, [label]]), K, lam)
        parts.append(softmax(W @ x)[virtual])
    return np.array(parts)


def smp(X: Array, y: ArrayLike, x: Array, K: int, lam: float) -> Array:
    """The prediction at x."""
    parts = smp_parts(X, y, x, K, lam)
    return parts / parts.sum()
