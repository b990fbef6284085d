"""Compiled copies of two peers, so that their rates can be tuned on every stream.

They follow the sources operation by operation (River 0.26 `SoftmaxRegression` with all classes
registered, scikit-learn 1.9 `SGDClassifier.partial_fit` one row at a time) and agree with them
up to rounding, which `run.py` measures and records. Reported losses come from the libraries.
"""

import math

import numpy as np
from numba import njit

SGD, ADAM, ADAGRAD = 0, 1, 2
CONSTANT, OPTIMAL, INVSCALING = 0, 1, 2

_CLAMP = 1e-15  # River's, inside its gradient
_BETA_1, _BETA_2, _EPS = 0.9, 0.999, 1e-8  # River's defaults
_SMALLEST_SCALE = 1e-9  # scikit-learn's


@njit(cache=True, nogil=True)
def softmax_regression(X, y, K, optimizer, rate):  # type: ignore[no-untyped-def]
    """River's SoftmaxRegression: the probability given to each label before learning it."""
    T, d = X.shape
    W, m, v = np.zeros((d, K)), np.zeros((d, K)), np.zeros((d, K))
    p, g = np.empty(K), np.empty(K)
    given = np.empty(T)
    for t in range(T):
        p[:] = 0.0
        for j in range(d):
            for k in range(K):
                p[k] += W[j, k] * X[t, j]
        top = p.max()
        total = 0.0
        for k in range(K):
            p[k] = math.exp(p[k] - top)
            total += p[k]
        for k in range(K):
            p[k] /= total
            g[k] = min(max(p[k], _CLAMP), 1.0 - _CLAMP) - (1.0 if y[t] == k else 0.0)
        given[t] = p[y[t]]
        if optimizer == SGD:
            for j in range(d):
                for k in range(K):
                    W[j, k] -= rate * (X[t, j] * g[k])
        elif optimizer == ADAM:
            step = rate * (1.0 - _BETA_2 ** (t + 1)) ** 0.5
            step /= 1.0 - _BETA_1 ** (t + 1)
            for j in range(d):
                for k in range(K):
                    slope = X[t, j] * g[k]
                    m[j, k] = _BETA_1 * m[j, k] + (1.0 - _BETA_1) * slope
                    v[j, k] = _BETA_2 * v[j, k] + (1.0 - _BETA_2) * (slope * slope)
                    W[j, k] -= step * m[j, k] / (math.sqrt(v[j, k]) + _EPS)
        else:
            for j in range(d):
                for k in range(K):
                    slope = X[t, j] * g[k]
                    v[j, k] += slope * slope
                    W[j, k] -= rate / math.sqrt(v[j, k] + _EPS) * slope
    return given


@njit(cache=True, nogil=True)
def one_vs_all(  # type: ignore[no-untyped-def]
    X, y, K, schedule, eta0, alpha, power_t, intercept
):
    """scikit-learn's SGDClassifier(loss='log_loss'), the same way; alpha = 0 is penalty=None."""
    T, d = X.shape
    n = 1 if K == 2 else K  # two classes share one weight vector, for class 1
    W, b = np.zeros((d, n)), np.zeros(n)
    raw, p = np.empty(n), np.empty(K)
    given = np.empty(T)
    typical = math.sqrt(1.0 / math.sqrt(alpha)) if alpha > 0.0 else 1.0
    # The gradient at label 1 is negative, so scikit-learn's max(1, gradient) is always 1.
    start = 1.0 / (typical * alpha) if alpha > 0.0 else 0.0
    eta = eta0
    for t in range(T):
        raw[:] = 0.0
        for j in range(d):
            for k in range(n):
                raw[k] += W[j, k] * X[t, j]
        for k in range(n):
            raw[k] += b[k]
        _normalised(raw, p)
        given[t] = p[y[t]]
        if schedule == OPTIMAL:
            eta = 1.0 / (alpha * (start + t))
        elif schedule == INVSCALING:
            eta = eta0 / (t + 1.0) ** power_t
        scale = max(0.0, 1.0 - eta * alpha)
        if scale < _SMALLEST_SCALE:
            W *= scale
            scale = 1.0
        for k in range(n):
            label = 1.0 if y[t] == (1 if n == 1 else k) else 0.0
            step = -eta * _slope(label, raw[k])
            if intercept:
                b[k] += step
            step /= scale
            for j in range(d):
                W[j, k] = (W[j, k] + X[t, j] * step) * scale
    return given


@njit(cache=True, nogil=True)
def _slope(label, raw):  # type: ignore[no-untyped-def]
    """The derivative of the log loss, as scikit-learn computes it."""
    if raw > -37.0:
        power = math.exp(-raw)
        return ((1.0 - label) - label * power) / (1.0 + power)
    return math.exp(raw) - label


@njit(cache=True, nogil=True)
def _normalised(raw, p):  # type: ignore[no-untyped-def]
    """Sigmoids divided by their sum; uniform if all of them are zero."""
    for k in range(len(raw)):
        p[k] = 1.0 / (1.0 + math.exp(-raw[k])) if raw[k] > -700.0 else math.exp(raw[k])
    if len(raw) == 1:
        p[1] = p[0]
        p[0] = 1.0 - p[1]
        return
    total = p.sum()
    if total == 0.0:
        p[:] = 1.0 / len(p)
    else:
        p /= total
