"""Rounds of online gradient descent: predict softmax(W x), W (K, d), then move W.

A kernel returns NaN, all untouched, where the norm of x is unusable.
"""

import math

import numpy as np

from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.projections import length, project_rows
from folklearn.kernels.simplex import softmax
from folklearn.kernels.surrogate import log_loss

# What the rounds add up to, by position in the totals array.
N_OGD_TOTALS = 1
SQUARES = 0  # sum of the squared weights


@fast_kernel
def logits(W, x, z):
    """Write W x into z."""
    for k in range(W.shape[0]):
        row = W[k]
        total = 0.0
        for j in range(x.shape[0]):
            total += row[j] * x[j]
        z[k] = total


@kernel
def predict_linear(W, x, max_norm, p):
    """Write softmax(W x) into p; return False, all untouched, if |x| is unusable."""
    if not length(x) <= max_norm:
        return False
    logits(W, x, p)
    softmax(p, p)
    return True


@kernel
def predict_linear_rows(W, X, P):
    """Write softmax(W x) into the rows of P, for every row x of X."""
    for t in range(X.shape[0]):
        predict_linear(W, X[t], np.inf, P[t])


@kernel
def linear_residual(W, x, label, soft, z, p):
    """Predict; return the loss, with p - y, the gradient in the logits, left in p."""
    logits(W, x, z)
    log_total = softmax(z, p)
    loss = log_loss(z, log_total, label, soft)
    if label >= 0:
        p[label] -= 1.0
    else:
        for k in range(p.shape[0]):
            p[k] -= soft[k]
    return loss


@kernel
def ogd_round(W, totals, work, x, label, soft, weight, B, rate, decay, max_norm):
    """Learn one example and return its loss; rate is D/G, work is (2, K) scratch."""
    if not length(x) <= max_norm:
        return math.nan
    residual = work[1]
    loss = linear_residual(W, x, label, soft, work[0], residual)
    totals[SQUARES] += weight * weight
    if totals[SQUARES] > 0.0:
        step = rate * (weight / math.sqrt(totals[SQUARES]) if decay else weight)
        for k in range(W.shape[0]):
            factor = step * residual[k]
            for j in range(x.shape[0]):
                W[k, j] -= factor * x[j]
        project_rows(W, B)
    return loss


@kernel
def ogd_rounds(W, totals, work, X, labels, soft, weights, B, rate, decay, P, losses):
    """Predict every row of X into P and learn it."""
    no_label = np.empty(0)
    for t in range(X.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        predict_linear(W, X[t], np.inf, P[t])
        losses[t] = ogd_round(
            W, totals, work, X[t], labels[t], y, weights[t], B, rate, decay, np.inf
        )  # fmt: skip
