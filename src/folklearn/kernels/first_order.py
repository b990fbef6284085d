"""Rounds of proper learners: a matrix W (K, d) is played, softmax(W x), and then moved.

Online gradient descent and the online Newton step share the prediction and differ in how
they move W. A kernel returns NaN, all untouched, where the norm of x is unusable.
"""

import math

import numpy as np

from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.projections import length, multiply, project, project_rows
from folklearn.kernels.simplex import softmax
from folklearn.kernels.surrogate import log_loss

# What the rounds add up to, by position in the totals array.
N_OGD_TOTALS = 1
SQUARES = 0  # sum of the squared weights

# For ONS: the sum of gradient' A_t^-1 gradient; 2 beta times what projections and the rounding
# of W add to the regret; the trace of (beta D)^2 A_t - I. The last four count rounds: with a
# weight above 1, with a context longer than R, with an unsolved projection, lost to rounding.
N_ONS_TOTALS = 9
LOSS, ROUNDS, NEWTON, SLACK, TRACE, HEAVY, FAR, UNSOLVED, LOST = range(N_ONS_TOTALS)

GAP = 1e-10  # nats that one projection may add to the regret
_LONGER = 1.0 + 1e-9  # rounding of |x| against R; the proof has more room than that
_MAX_SQUARE = 1e12  # of a scaled gradient, at most 1/64 in a guaranteed round
_ROUNDING = 4e-16  # of W, relative


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
def _play(W, x, label, soft, z, p):
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
    loss = _play(W, x, label, soft, work[0], residual)
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


@fast_kernel
def add_direction(A, S, v, u):
    """A += vv', and S = A^-1 with it (Sherman and Morrison); leave S v in u.

    Return v'S v, with the new S, which is below 1; NaN, all untouched, where rounding has
    left nothing to learn from.
    """
    n = v.shape[0]
    square = 0.0
    for i in range(n):
        square += v[i] * v[i]
    if not square <= _MAX_SQUARE:
        return math.nan
    multiply(S, v, u)
    before = 0.0
    size = 0.0
    for i in range(n):
        before += v[i] * u[i]
        size += abs(u[i])
    if not (before >= 0.0 and size < 1e100):
        return math.nan
    root = math.sqrt(1.0 + before)
    for i in range(n):
        u[i] /= root
    for i in range(n):
        row, down = S[i], u[i]
        for j in range(n):
            row[j] -= down * u[j]
        row, up = A[i], v[i]
        for j in range(n):
            row[j] += up * v[j]
    for i in range(n):
        u[i] /= root
    return before / (1.0 + before)


@kernel
def ons_round(W, matrices, totals, work, x, label, soft, weight, B, R, D, beta, max_norm):
    """Learn one example and return its loss.

    matrices (2, n, n) holds (beta D)^2 A, which starts as the identity, and its inverse;
    n = K d. In this scale the step A^-1 gradient / beta is D times S v, v = beta D gradient.
    work is (6, K, d) scratch, preceded by two vectors of K numbers.
    """
    size = length(x)
    if not size <= max_norm:
        return math.nan
    K, d = W.shape
    n = K * d
    residual = work[K : 2 * K]
    loss = _play(W, x, label, soft, work[:K], residual)
    totals[LOSS] += weight * loss
    totals[ROUNDS] += 1.0
    if weight == 0.0 or size == 0.0:
        return loss
    totals[HEAVY] += weight > 1.0
    totals[FAR] += size > R * _LONGER
    space = work[2 * K :].reshape(6, K, d)
    v, step, scratch = space[0], space[1], space[2:]
    for k in range(K):
        factor = weight * (beta * D) * residual[k]
        for j in range(d):
            v[k, j] = factor * x[j]
    gain = add_direction(matrices[0], matrices[1], v.reshape(n), step.reshape(n))
    if not gain >= 0.0:
        totals[LOST] += 1.0
        return loss
    totals[NEWTON] += gain
    for k in range(K):
        for j in range(d):
            totals[TRACE] += v[k, j] * v[k, j]
            v[k, j] = W[k, j]
            step[k, j] *= D
    largest = 1.0 + totals[TRACE]
    gap, solved = project(
        v, step, matrices[0], largest, B, GAP * (beta * D * D), W, scratch
    )  # fmt: skip
    totals[UNSOLVED] += not solved
    totals[SLACK] += 2.0 / (D * D) * (gap + _ROUNDING * largest * D * length(W.reshape(n)))
    return loss


@kernel
def ons_rounds(
    W, matrices, totals, work, X, labels, soft, weights, B, R, D, beta, P, losses
):  # fmt: skip
    """Predict every row of X into P and learn it."""
    no_label = np.empty(0)
    for t in range(X.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        predict_linear(W, X[t], np.inf, P[t])
        losses[t] = ons_round(
            W, matrices, totals, work, X[t], labels[t], y, weights[t], B, R, D, beta, np.inf
        )
