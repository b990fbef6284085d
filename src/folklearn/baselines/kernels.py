"""Kernels of the baselines: particles, the online Newton step, and cost matrices of boosters.

Particles are N linear models W (N, K, d); a label is always a point of the simplex (K,), hard
ones a corner. A loss is written <y, max z - z> + ln sum exp(z - max z): both terms are
non-negative and neither cancels, however large the logits.
"""

import math

import numpy as np

from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.linear_models import (
    length,
    linear_residual,
    multiply,
    predict_linear,
    project_rows,
)
from folklearn.kernels.simplex import sigmoid

# Totals of the rounds of ONS, by position: weighted loss; rounds; the sum of gradient' A_t^-1
# gradient; 2 beta times what projections and the rounding of W add to the regret; the trace of
# (beta D)^2 A_t - I. The last four count rounds: with a weight above 1, with a context longer
# than R, with an unsolved projection, lost to rounding.
N_ONS_TOTALS = 9
LOSS, ROUNDS, NEWTON, SLACK, TRACE, HEAVY, FAR, UNSOLVED, LOST = range(N_ONS_TOTALS)

PROJECTION_GAP = 1e-10  # nats that one projection may add to the regret
_MAX_NORM_RATIO = 1.0 + 1e-9  # rounding of |x| against R; the proof has more room than that
_MAX_SQUARE = 1e12  # of a scaled gradient, at most 1/64 in a guaranteed round
_WEIGHT_ROUNDING = 4e-16  # of W, relative
_GAP_ROUNDING = 1e-14  # of an optimality gap, relative to its largest terms
_MIN_MOVE = 2e-15  # of B; a smaller step moves nothing but rounding
_STEPS_WITHOUT_MOVE = 3
_MAX_PROJECTION_STEPS = 20_000


@kernel
def _loss(W, x, y, z):
    multiply(W, x, z)
    best = np.argmax(z)
    top, behind, others = z[best], 0.0, 0.0
    for k in range(z.shape[0]):
        if k != best:
            lag = top - z[k]
            behind += y[k] * lag
            others += math.exp(-lag)
    return behind + math.log1p(others)


@kernel
def history_losses(W, X, Y, w, limits, z, losses):
    """Write the total weighted loss of every model into losses (N,), infinity above its limit."""
    for i in range(W.shape[0]):
        total = 0.0
        s = 0
        while s < X.shape[0] and total <= limits[i]:
            total += w[s] * _loss(W[i], X[s], Y[s], z)
            s += 1
        losses[i] = total if total <= limits[i] else math.inf


@kernel
def optimality_gap(W, gradient, B):
    """Return <g, W> + B sum_k |g_k|, at least f(W) - min f over the class for convex f.

    It is the largest <g, W - U> over the class: what an inexact projection adds to the regret.
    """
    gap = (gradient * W).sum()
    for k in range(W.shape[0]):
        gap += B * length(gradient[k])
    return gap


@kernel
def _gradient(W, origin, step, A, away, g):
    """Write A(W - V) into g, V = origin - step; away (K, d) is scratch."""
    for k in range(W.shape[0]):
        for j in range(W.shape[1]):
            away[k, j] = (W[k, j] - origin[k, j]) + step[k, j]
    multiply(A, away.reshape(W.size), g.reshape(W.size))


@kernel
def project(origin, step, A, largest, B, tolerance, W):
    """Write the member of the class that is nearest to V = origin - step in the norm of A.

    A is (K d, K d), symmetric, with eigenvalues from 1 to at most `largest`. V is never rounded to
    one number: with a tiny step, origin - step has lost the digits that say how far W may be.

    Gradient descent with constant momentum, until W has stopped moving and the gap of f(W) =
    |W - V|^2_A / 2 is at most `tolerance`, or what rounding leaves of it. Return (gap, solved); the
    gap is true even if not solved.
    """
    K, d = W.shape
    W[:] = origin - step
    if project_rows(W, B) == 0:
        return 0.0, True
    # The sum of absolute values of a row is at least the largest eigenvalue.
    largest = min(largest, np.abs(A).sum(axis=1).max())
    root = math.sqrt(largest)
    momentum = (root - 1.0) / (root + 1.0)
    tolerance = max(tolerance, _GAP_ROUNDING * largest * K * B * B)
    ahead, previous = W.copy(), W.copy()
    g, away = np.empty_like(W), np.empty_like(W)
    still = 0
    for _ in range(min(_MAX_PROJECTION_STEPS, 100 + int(80.0 * root))):
        _gradient(ahead, origin, step, A, away, g)
        previous[:] = W
        for k in range(K):
            for j in range(d):
                W[k, j] = ahead[k, j] - g[k, j] / largest
        project_rows(W, B)
        move = 0.0
        for k in range(K):
            for j in range(d):
                change = W[k, j] - previous[k, j]
                ahead[k, j] = W[k, j] + momentum * change
                move = max(move, abs(change))
        still = still + 1 if move <= _MIN_MOVE * B else 0
        if still == _STEPS_WITHOUT_MOVE:
            _gradient(W, origin, step, A, away, g)
            if optimality_gap(W, g, B) <= tolerance:
                break
            still = 0
    _gradient(W, origin, step, A, away, g)
    gap = optimality_gap(W, g, B)
    return max(gap, 0.0), gap <= tolerance


@fast_kernel
def add_direction(A, S, v, u):
    """A += vv', and S = A^-1 with it (Sherman and Morrison); leave S v in u.

    Return v'S v, with the new S, which is below 1; NaN, all untouched, where rounding has
    left nothing to learn from.
    """
    n = v.shape[0]
    multiply(S, v, u)
    square, before, size = 0.0, 0.0, 0.0
    for i in range(n):
        square += v[i] * v[i]
        before += v[i] * u[i]
        size += abs(u[i])
    if not (square <= _MAX_SQUARE and before >= 0.0 and size < 1e100):
        return math.nan
    u /= math.sqrt(1.0 + before)
    for i in range(n):
        down, up = u[i], v[i]
        for j in range(n):
            S[i, j] -= down * u[j]
            A[i, j] += up * v[j]
    u /= math.sqrt(1.0 + before)
    return before / (1.0 + before)


@kernel
def ons_round(W, matrices, totals, x, label, soft, weight, B, R, D, beta, max_norm):
    """Learn one example and return its loss.

    matrices (2, n, n) holds (beta D)^2 A, which starts as the identity, and its inverse;
    n = K d. In this scale the step A^-1 gradient / beta is D times S v, v = beta D gradient.
    """
    size = length(x)
    if not size <= max_norm:
        return math.nan
    z, residual = np.empty(W.shape[0]), np.empty(W.shape[0])
    loss = linear_residual(W, x, label, soft, z, residual)
    totals[LOSS] += weight * loss
    totals[ROUNDS] += 1.0
    if weight == 0.0 or size == 0.0:
        return loss
    totals[HEAVY] += weight > 1.0
    totals[FAR] += size > R * _MAX_NORM_RATIO
    v, step = np.outer(weight * (beta * D) * residual, x).reshape(W.size), np.empty(W.size)
    gain = add_direction(matrices[0], matrices[1], v, step)
    if not gain >= 0.0:
        totals[LOST] += 1.0
        return loss
    totals[NEWTON] += gain
    totals[TRACE] += (v * v).sum()
    step *= D
    largest, tolerance = 1.0 + totals[TRACE], PROJECTION_GAP * (beta * D * D)
    gap, solved = project(W.copy(), step.reshape(W.shape), matrices[0], largest, B, tolerance, W)
    totals[UNSOLVED] += not solved
    totals[SLACK] += (
        2.0 / (D * D) * (gap + _WEIGHT_ROUNDING * largest * D * length(W.reshape(W.size)))
    )
    return loss


@kernel
def ons_rounds(W, matrices, totals, X, labels, soft, weights, B, R, D, beta, P):
    """Predict every row of X into P and learn it."""
    no_label = np.empty(0)
    for t in range(X.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        predict_linear(W, X[t], np.inf, P[t])
        ons_round(W, matrices, totals, X[t], labels[t], y, weights[t], B, R, D, beta, np.inf)


@kernel
def pairwise_costs(s):
    """Return the cost matrix (K, K) of AdaBoost.OLM; a row has an L1 norm of at most K (K-1)."""
    K = s.shape[0]
    C = np.empty((K, K))
    for y in range(K):
        for k in range(K):
            C[y, k] = sigmoid(s[k] - s[y]) if k != y else 0.0
        C[y] += C[y].sum()
        C[y, y] = 0.0
    return C
