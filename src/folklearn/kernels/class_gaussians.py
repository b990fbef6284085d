"""The rounds of `ClassGaussians`, one Gaussian per class: what one label teaches, in O(K d^2).

Classes come last in every array, W (d, K) and P (d(d+1)/2, K), lower triangles by rows: all
loops run over contiguous classes, and no sum is reordered, so that rounds are the same bytes
wherever they are compiled into.
"""

import math

import numpy as np

from folklearn.kernels.compile import kernel
from folklearn.kernels.evidence import N_TOTALS, add_tangent
from folklearn.kernels.experts import target
from folklearn.kernels.linear_models import length
from folklearn.kernels.prediction_rules import log_loss
from folklearn.kernels.simplex import softmax

LOSS, N_BLOCK_TOTALS = N_TOTALS, N_TOTALS + 1  # behind the totals of the evidence

MOST_STEPS = 1000  # of the solution of one round, which takes three or four
N_VECTORS = 9  # of K numbers, which a round needs for itself
_SLICE = 256  # classes at once: their P x stays in the nearest cache
_SMALL_STEP = 1e-8  # of the logarithm of the total; what is left is its square
_LOGIT_ROUNDING = 1e-15  # of a logit
_MAX_SERIES = 0.02  # argument of Lambert's function
_C2, _C3, _C4, _C5 = -1.0, 3 / 2, -8 / 3, 125 / 24
_C6, _C7, _C8, _C9 = -54 / 5, 16807 / 720, -16384 / 315, 531441 / 4480
_C10, _C11, _C12 = -156250 / 567, 2357947691 / 3628800, -2985984 / 1925
_C13 = 1792160394037 / 479001600
_REBASE = 20.0  # logits
_OVERFLOW = 700.0  # logits
NOISE = 1e-15  # of a variance, relative to the sizes of what it is the sum of
_NEGLIGIBLE = 1e-24  # of a logit, and of a variance, relative


@kernel
def _deviation(kappa, beta):
    """Solve t + kappa (e^t - 1) = beta for t, with all digits of a small t: Lambert's function.

    Newton's steps come down to the root: the left side is convex, and the start not left of it.
    """
    if beta <= 0.0:
        t = beta / (1.0 + kappa)
    else:
        t = min(beta, math.log1p(beta / kappa)) if kappa > 0.0 else beta
    for _ in range(100):
        grown = math.expm1(t)
        step = (t + kappa * grown - beta) / (1.0 + kappa * (1.0 + grown))
        t -= step
        if not abs(step) > 1e-9 * abs(t):
            break
    return t


@kernel
def _write_series(v, free, p):
    """Write the p with p e^(v p) = free, up to v free = _MAX_SERIES: Lambert's series.

    Its coefficients are (-n)^(n-1)/n!.
    """
    for i in range(v.shape[0]):
        E = v[i] * free[i]
        E = E if E < _MAX_SERIES else _MAX_SERIES
        high = _C10 + E * (_C11 + E * (_C12 + E * _C13))
        middle = _C6 + E * (_C7 + E * (_C8 + E * (_C9 + E * high)))
        low = _C2 + E * (_C3 + E * (_C4 + E * (_C5 + E * middle)))
        p[i] = free[i] * (1.0 + E * low)


@kernel
def _solve_each(z, v, label, soft, here, free, logs, p, residual):
    """Solve every class at the logsumexp `here`; p holds the series where y_i is 0.

    Return the sums of the positive and of the negative p'_i - y_i, and how fast both would shrink.
    """
    above, below, fall, rise = 0.0, 0.0, 0.0, 0.0
    for i in range(z.shape[0]):
        y = target(label, soft, i)
        if y > 0.0:
            t = _deviation(v[i] * y, z[i] - here - logs[i])
            p[i] = y * math.exp(t)
            residual[i] = y * math.expm1(t)
        else:
            E = v[i] * free[i]
            if _MAX_SERIES <= E < 1.0:
                p[i] = free[i] * math.exp(_deviation(E, -E))
            elif not E < 1.0:  # where free may have overflowed
                log_v = math.log(v[i])
                p[i] = math.exp(_deviation(1.0, z[i] - here + log_v - 1.0) - log_v)
            residual[i] = p[i]
        slope = p[i] / (1.0 + v[i] * p[i])
        if residual[i] < 0.0:
            below -= residual[i]
            rise += slope
        else:
            above += residual[i]
            fall += slope
    return above, below, fall, rise


@kernel
def solve(z, log_total, v, label, soft, p, residual, scratch):
    """Solve z'_i = z_i - v_i (p'_i - y_i): write p' = softmax(z') into p, p' - y into residual.

    The largest of z is 0, log_total its logsumexp, and p its softmax. With l the logsumexp of z',
    every class has an equation of its own, p'_i e^(v_i p'_i) = e^(z_i + v_i y_i - l); what remains
    is one in l: that p' - y sums to 0. Where y_i > 0 the unknown is ln(p'_i/y_i), whose digits a
    residual needs. scratch is (3, K). Return the steps taken: after MOST_STEPS p' is only near.
    """
    K = z.shape[0]
    base, free, logs = scratch[0], scratch[1], scratch[2]
    low, high = -math.inf, math.inf
    for i in range(K):
        y = target(label, soft, i)
        logs[i] = math.log(y) if y > 0.0 else 0.0
        base[i] = p[i]
        low = max(low, z[i] - v[i] * (1.0 - y))  # here at the least p'_i would be 1
    based = log_total
    here = max(low, log_total)
    for step in range(MOST_STEPS):
        if abs(here - based) > _REBASE:
            based = here
            for i in range(K):
                base[i] = math.exp(min(z[i] - based, _OVERFLOW))
        scale = math.exp(based - here)
        for i in range(K):
            free[i] = base[i] * scale
        _write_series(v, free, p)
        above, below, fall, rise = _solve_each(z, v, label, soft, here, free, logs, p, residual)
        if above == below:
            return step
        if above > below:
            low = here
        else:
            high = here
        # Newton's method for ln(above) = ln(below): each is nearly linear, or slow, in l, and
        # neither is the difference of large numbers.
        move = (above - below) / (fall + rise)
        apart = 0.0 if abs(move) <= _LOGIT_ROUNDING * (1.0 + abs(here)) else math.inf
        if above > 0.0 and below > 0.0 and apart > 0.0:
            apart = math.log(above / below)
            move = apart / (fall / above + rise / below)
        if max(abs(move), abs(apart)) <= _SMALL_STEP:
            for i in range(K):
                change = p[i] * (move / (1.0 + v[i] * p[i]))
                residual[i] -= change
                p[i] -= change
            return step + 1
        here += move
        if not low < here < high:
            here = 0.5 * (low + high) if high < math.inf else low + 2.0 * abs(move)
            if not low < here < high or high - low <= 0.01 * _LOGIT_ROUNDING:
                return step + 1  # no room left
    return MOST_STEPS


@kernel
def logits(W, x, z):
    """Write W'x into z (K,)."""
    d, K = W.shape
    for i in range(K):
        z[i] = 0.0
    for a in range(d):
        row, factor = W[a], x[a]
        if factor != 0.0:
            for i in range(K):
                z[i] += factor * row[i]


@kernel
def spread(P, x, u, s, noise):
    """Write P_i x into the columns of u (d, K), and x'P_i x, 0 where it is noise, into s (K,)."""
    d, K = u.shape
    for start in range(0, K, _SLICE):
        stop = min(start + _SLICE, K)
        m = stop - start
        total, size = s[start:stop], noise[start:stop]
        for i in range(m):
            total[i] = 0.0
            size[i] = 0.0
        for a in range(d):
            u_a = u[a, start:stop]
            for i in range(m):
                u_a[i] = 0.0
        at = 0
        for a in range(d):
            u_a, x_a = u[a, start:stop], x[a]
            for b in range(a):
                x_b = x[b]
                if x_a == 0.0 and x_b == 0.0:
                    continue
                row, u_b = P[at + b, start:stop], u[b, start:stop]
                for i in range(m):
                    u_a[i] += row[i] * x_b
                    u_b[i] += row[i] * x_a
            at += a + 1
            if x_a != 0.0:
                row = P[at - 1, start:stop]
                for i in range(m):
                    u_a[i] += row[i] * x_a
                    size[i] += row[i] * (x_a * x_a)
        for a in range(d):
            u_a, x_a = u[a, start:stop], x[a]
            if x_a != 0.0:
                for i in range(m):
                    total[i] += x_a * u_a[i]
        for i in range(m):
            total[i] = total[i] if total[i] > NOISE * d * size[i] else 0.0


@kernel
def _shrinkage(P, u, s, curvature, factor):
    """Write c/(1 + c s) into factor, less where rounding would make a diagonal entry negative."""
    d, K = u.shape
    for i in range(K):
        factor[i] = curvature[i] / (1.0 + curvature[i] * s[i])
    at = 0
    for a in range(d):
        row, u_a = P[at + a], u[a]
        n_broken = 0
        for i in range(K):
            n_broken += factor[i] * (u_a[i] * u_a[i]) > row[i]
        if n_broken > 0:
            for i in range(K):
                if factor[i] * (u_a[i] * u_a[i]) > row[i]:
                    factor[i] = max(row[i], 0.0) / (u_a[i] * u_a[i])
        at += a + 1


@kernel
def _absorb(W, P, u, s, pull, factor, scaled):
    """W_i -= pull_i u_i and P_i -= factor_i u_i u_i', where digits of a slice would change."""
    d, K = u.shape
    for start in range(0, K, _SLICE):
        stop = min(start + _SLICE, K)
        m = stop - start
        shrink, moved, product = factor[start:stop], pull[start:stop], scaled[start:stop]
        largest = 0.0
        for i in range(m):
            largest = max(largest, max(abs(moved[i]), shrink[i]) * s[start + i])
        if largest <= _NEGLIGIBLE:
            continue
        at = 0
        for a in range(d):
            u_a, mean = u[a, start:stop], W[a, start:stop]
            for i in range(m):
                mean[i] -= moved[i] * u_a[i]
                product[i] = shrink[i] * u_a[i]
            for b in range(a + 1):
                row, u_b = P[at + b, start:stop], u[b, start:stop]
                for i in range(m):
                    row[i] -= product[i] * u_b[i]
            diagonal = P[at + a, start:stop]
            for i in range(m):
                diagonal[i] = max(diagonal[i], 0.0)  # rounding alone can bring it below
            at += a + 1


@kernel
def predict_blocks(W, x, max_norm, p):
    """Write softmax(W'x) into p (K,); return False, all untouched, if |x| is unusable."""
    if not length(x) <= max_norm:
        return False
    logits(W, x, p)
    softmax(p, p)
    return True


@kernel
def predict_blocks_rows(W, X, out):
    """Write softmax(W'x) into the rows of out, for every row x of X."""
    for t in range(X.shape[0]):
        predict_blocks(W, X[t], np.inf, out[t])


@kernel
def block_round(W, P, G, totals, u, vectors, x, label, soft, weight, max_norm):
    """Learn one example and return its loss; NaN, all untouched, if |x| is unusable.

    u is (d, K) and vectors (N_VECTORS, K) scratch.
    """
    size = length(x)
    if not size <= max_norm:
        return math.nan
    d, K = W.shape
    z, p, pull, s = vectors[0], vectors[1], vectors[2], vectors[3]
    v, factor, scratch = vectors[4], vectors[5], vectors[6:]
    logits(W, x, z)
    log_total = softmax(z, p)
    loss = log_loss(z, log_total, label, soft)
    totals[LOSS] += weight * loss
    add_tangent(p, label, soft, weight, size, pull, totals)
    if weight == 0.0 or size == 0.0:
        return loss
    for a in range(d):
        row, x_a = G[a], x[a]
        if x_a != 0.0:
            for i in range(K):
                row[i] += x_a * pull[i]
    spread(P, x, u, s, v)
    for i in range(K):
        v[i] = weight * s[i]
    solve(z, log_total, v, label, soft, p, pull, scratch)
    for i in range(K):
        varies = s[i] > 0.0
        pull[i] = weight * pull[i] if varies else 0.0
        v[i] = weight * max(0.0, p[i] * (1.0 - p[i])) if varies else 0.0
    _shrinkage(P, u, s, v, factor)
    _absorb(W, P, u, s, pull, factor, scratch[0])
    return loss


@kernel
def block_rounds(W, P, G, totals, u, vectors, X, labels, soft, weights, out):
    """Predict every row of X into out and learn it."""
    no_label = np.empty(0)
    for t in range(X.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        predict_blocks(W, X[t], np.inf, out[t])
        block_round(W, P, G, totals, u, vectors, X[t], labels[t], y, weights[t], np.inf)
