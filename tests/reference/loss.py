"""The logistic loss and its two derivatives in the logits, as every reference file uses them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def as_distribution(y: ArrayLike, n_classes: int) -> Array:
    """A hard label k becomes e_k; a soft label (K,) is returned as it is."""
    y = np.asarray(y)
    if y.ndim == 0:
        return np.eye(n_classes)[int(y)]
    return y.astype(float)


def log_loss(z: Array, y: ArrayLike) -> float:
    """l(z, y) = logsumexp(z) - <y, z>, in nats."""
    z = np.asarray(z, dtype=float)
    # Centred first: the loss ignores a common shift, floating point does not.
    z = z - z.max()
    return float(np.logaddexp.reduce(z) - as_distribution(y, z.size) @ z)


def linear_losses(X, y: ArrayLike, W: Array) -> Array:
    """The loss (T,) of a linear model W (K, d) on every row of X, dense or sparse."""
    return np.array([log_loss(z, label) for z, label in zip(X @ W.T, np.asarray(y), strict=True)])


def covariance(p: Array) -> Array:
    """Hessian of the loss in the logits: diag p - p p^T.

    Row k of it sums to zero, so its diagonal is p_k times the sum of the others; written so
    because p_k - p_k^2 loses every digit once p_k rounds to 1.
    """
    off_diagonal = np.outer(p, p)
    np.fill_diagonal(off_diagonal, 0.0)
    return np.diag(off_diagonal.sum(axis=1)) - off_diagonal
