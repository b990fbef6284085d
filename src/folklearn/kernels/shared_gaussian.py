"""The rounds of `SharedGaussian`, one covariance for all classes, in O(d^2 + K d).

With h = w sum_k p'_k (1 - p'_k) / (2K)^.5, the curvature of all classes, a row x takes kappa u u'
from P, where u = Px and kappa = h / (1 + h x'u).

Rounds come in blocks of `BLOCK`, by the number of the round. P itself changes at the end of a block
only, by one product of matrices; within it u is P x less what the vectors u of the block take away.
So P x of many rows is one product too, always of BLOCK rows, with zeros where rows are not known
yet: the bits do not depend on how rows are portioned.

P is symmetric; its lower triangle by rows is what is kept. The diagonal is kept up to date apart.
"""

import math

import numpy as np

from folklearn.kernels.blas import PLAIN, symm, symv, syrk
from folklearn.kernels.class_gaussians import NOISE, solve
from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.linear_models import length, multiply
from folklearn.kernels.prediction_rules import log_loss
from folklearn.kernels.simplex import softmax

BLOCK = 32  # rounds
N_SHARED_TOTALS = 2
LOSS, ROUNDS = range(N_SHARED_TOTALS)
N_SHARED_VECTORS = 7  # of K numbers, which a round needs for itself


@fast_kernel
def _dot(a, b):
    total = 0.0
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@fast_kernel
def _subtract(a, factor, b):
    for j in range(a.shape[0]):
        a[j] -= factor * b[j]


@fast_kernel
def _weigh_squares(weights, x):
    total = 0.0
    for j in range(x.shape[0]):
        total += weights[j] * (x[j] * x[j])
    return total


@kernel
def _bound_shrinkage(diagonal, u, kappa):
    """Return kappa, less where P has lost too many digits: its diagonal would become negative."""
    for j in range(u.shape[0]):
        square = u[j] * u[j]
        if kappa * square > diagonal[j]:
            kappa = max(diagonal[j], 0.0) / square
    return kappa


@kernel
def _learn_row(W, U, kappas, diagonal, totals, vectors, u, x, label, soft, weight, predicted):
    """Learn a row whose P x is in u, as P was when the block began; return its loss."""
    K, position = W.shape[0], int(totals[ROUNDS]) % BLOCK
    z, p, pull, s = vectors[0], vectors[1], vectors[2], vectors[3]
    multiply(W, x, z)
    log_total = softmax(z, p)
    for k in range(K):
        predicted[k] = p[k]
    loss = log_loss(z, log_total, label, soft)
    totals[LOSS] += weight * loss
    totals[ROUNDS] += 1.0
    kappas[position] = 0.0
    if weight == 0.0:
        return loss
    for earlier in range(position):
        if kappas[earlier] > 0.0:
            _subtract(u, kappas[earlier] * _dot(U[earlier], x), U[earlier])
    variance = _dot(u, x)
    if not variance > NOISE * x.shape[0] * _weigh_squares(diagonal, x):
        return loss
    for k in range(K):
        s[k] = weight * variance
    solve(z, log_total, s, label, soft, p, pull, vectors[4:])
    curvature = 0.0
    for k in range(K):
        curvature += max(0.0, p[k] * (1.0 - p[k]))
        _subtract(W[k], weight * pull[k], u)
    curvature *= weight / math.sqrt(2.0 * K)
    kappa = _bound_shrinkage(diagonal, u, curvature / (1.0 + curvature * variance))
    for j in range(u.shape[0]):
        U[position, j] = u[j]
        diagonal[j] -= kappa * (u[j] * u[j])
    kappas[position] = kappa
    return loss


@kernel
def _end_block(P, U, kappas, diagonal, prior, keep):
    """Take what the rows of a block have taught out of P, and let it return to its prior a bit."""
    d = P.shape[0]
    for t in range(BLOCK):
        root = math.sqrt(kappas[t])
        for j in range(d):
            U[t, j] = root * U[t, j] if root > 0.0 else 0.0
        kappas[t] = 0.0
    syrk(PLAIN, d, BLOCK, -1.0, U, 0, d, P, 0, d)
    for i in range(d):
        if keep < 1.0:
            for j in range(i + 1):
                P[i, j] *= keep
            P[i, i] += (1.0 - keep) * prior
        P[i, i] = max(P[i, i], 0.0)
        diagonal[i] = P[i, i]


@kernel
def learn_shared(
    W, P, U, kappas, diagonal, totals, prior, keep, vectors, x, label, soft, weight, max_norm
):
    """Learn one example and return its loss; NaN, all untouched, if |x| is unusable."""
    if not length(x) <= max_norm:
        return math.nan
    d = P.shape[0]
    u, predicted = np.empty(d), np.empty(W.shape[0])
    symv(d, P, 0, d, x, 0, 1, u, 0, 1)
    loss = _learn_row(W, U, kappas, diagonal, totals, vectors, u, x, label, soft, weight, predicted)
    if int(totals[ROUNDS]) % BLOCK == 0:
        _end_block(P, U, kappas, diagonal, prior, keep)
    return loss


@kernel
def run_shared(
    W, P, U, kappas, diagonal, totals, prior, keep, vectors, X, labels, soft, weights, out
):
    """Predict every row of X into out and learn it."""
    T, d = X.shape
    known, V = np.empty((BLOCK, d)), np.empty((BLOCK, d))
    no_label = np.empty(0)
    start = 0
    while start < T:
        first = int(totals[ROUNDS]) % BLOCK
        stop = min(start + BLOCK - first, T)
        if stop - start == BLOCK:
            symm(d, BLOCK, P, 0, d, X, start * d, d, V, 0, d)
        else:
            for t in range(BLOCK):
                for j in range(d):
                    is_known = first <= t < first + stop - start
                    known[t, j] = X[start + t - first, j] if is_known else 0.0
            symm(d, BLOCK, P, 0, d, known, 0, d, V, 0, d)
        for t in range(start, stop):
            y, u = soft[t] if labels[t] < 0 else no_label, V[first + t - start]
            _learn_row(
                W, U, kappas, diagonal, totals, vectors,
                u, X[t], labels[t], y, weights[t], out[t],
            )  # fmt: skip
        if int(totals[ROUNDS]) % BLOCK == 0:
            _end_block(P, U, kappas, diagonal, prior, keep)
        start = stop
