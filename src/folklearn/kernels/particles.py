"""Losses and mixtures of N linear models at once: the hot loops of Monte Carlo learners.

The models are W (N, K, d); a label is always a point of the simplex (K,), hard ones a corner.
A loss is written <y, max z - z> + ln sum exp(z - max z): both terms are non-negative and
neither cancels, however large the logits.
"""

import math

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.kernels.compile import fast_kernel, kernel

_JITTER = 1e-10  # of the mean variance


@fast_kernel
def _logits(W, x, z):
    """Write W x into z for W (K, d), and return the index of the largest."""
    best = 0
    for k in range(z.shape[0]):
        row = W[k]
        total = 0.0
        for j in range(x.shape[0]):
            total += row[j] * x[j]
        z[k] = total
        if total > z[best]:
            best = k
    return best


@kernel
def _loss(W, x, y, z):
    best = _logits(W, x, z)
    top = z[best]
    behind = 0.0
    others = 0.0
    for k in range(z.shape[0]):
        if k != best:
            lag = top - z[k]
            behind += y[k] * lag
            others += math.exp(-lag)
    return behind + math.log1p(others)


@kernel
def round_losses(W, x, y, z, losses):
    """Write the loss of every model on one round into losses (N,); z (K,) is scratch."""
    for i in range(W.shape[0]):
        losses[i] = _loss(W[i], x, y, z)


@kernel
def history_losses(W, X, Y, w, limits, z, losses):
    """Write the total weighted loss of every model into losses (N,), infinity above its limit.

    Losses are non-negative, so a model is given up exactly as soon as it passes its limit.
    """
    for i in range(W.shape[0]):
        total = 0.0
        s = 0
        while s < X.shape[0] and total <= limits[i]:
            total += w[s] * _loss(W[i], X[s], Y[s], z)
            s += 1
        losses[i] = total if total <= limits[i] else math.inf


@kernel
def log_mixture(W, log_weights, mu, x, max_norm, terms, log_p):
    """Write ln((1 - mu) sum_i weight_i softmax(W_i x) + mu/K) into log_p (K,).

    terms is scratch (N, K). Return False, before anything else, if |x| is not at most max_norm.
    """
    squared = 0.0
    for j in range(x.shape[0]):
        squared += x[j] * x[j]
    if not squared <= max_norm * max_norm:
        return False
    N, K = terms.shape
    for i in range(N):
        top = terms[i, _logits(W[i], x, terms[i])]
        total = 0.0
        for k in range(K):
            total += math.exp(terms[i, k] - top)
        shift = log_weights[i] - math.log(total)
        for k in range(K):
            terms[i, k] = (terms[i, k] - top) + shift
    for k in range(K):
        top = terms[0, k]
        for i in range(1, N):
            top = max(top, terms[i, k])
        total = 0.0
        for i in range(N):
            total += math.exp(terms[i, k] - top)
        log_p[k] = top + math.log(total)
        log_p[k] = min(log_p[k], 0.0)  # rounding
        if mu > 0.0:
            log_p[k] = math.log((1.0 - mu) * math.exp(log_p[k]) + mu / K)
    return True


def normalised(log_weights: Array) -> Array:
    """Return log weights whose exponentials sum to 1."""
    shifted: Array = log_weights - log_weights.max()
    return shifted - math.log(np.exp(shifted).sum())


def effective_size(log_weights: Array) -> float:
    """Return 1 / sum of squared weights, for normalised log weights."""
    return float(1.0 / np.exp(2.0 * log_weights).sum())


def resampled(weights: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return N indices by systematic resampling: equally spaced points on the total weight."""
    N = len(weights)
    points = (np.arange(N) + rng.random()) / N
    return np.minimum(np.searchsorted(np.cumsum(weights), points), N - 1)


def covariance_factor(covariance: Array, scale: float) -> Array:
    """Return the lower Cholesky factor of a sample covariance, with as much jitter as it needs.

    A covariance of zero, all particles being one, is replaced by scale^2 I.
    """
    n = len(covariance)
    size = float(np.trace(covariance)) / n
    if not size > 0.0:
        return scale * np.eye(n)
    jitter = _JITTER
    while True:
        try:
            factor = np.linalg.cholesky(covariance + jitter * size * np.eye(n))
        except np.linalg.LinAlgError:
            jitter *= 100.0
        else:
            return factor.astype(np.float64, copy=False)
