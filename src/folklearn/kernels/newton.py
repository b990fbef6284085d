"""The mode of a ridge: where lam |W|^2 + a sum of evidence + the true loss of some rows is least.

Rows that are held as rows keep their true loss, and Newton's method needs their curvature at one
point only. Steps are damped by a line search on the objective itself: undamped ones diverge within
the first hundred rounds.

Shifting all classes by the same vector changes no prediction, so the last class is held at 0
while solving: n = (K-1) d unknowns, and the ridge becomes lam (I - 11'/K) (x) I.
"""

import math

import numpy as np

from folklearn.kernels.blas import PLAIN, TRANSPOSED, gemm, potrf, potrs
from folklearn.kernels.compile import helper_kernel, shared_kernel
from folklearn.kernels.simplex import softmax_each

SUFFICIENT = 1e-4  # of the decrease that the slope promises
MOST_HALVINGS = 12
NEGLIGIBLE = 1e-6  # decrease that a step promises, relative to the loss: it is not taken


@helper_kernel
def pair_at(i, j, K):
    """Return the place of the pair i < j."""
    return i * K - i * (i + 1) // 2 + (j - i - 1)


@helper_kernel
def new_matrix(m, n):
    """Return an empty matrix: `np.empty` is compiled anew for all options of callers."""
    return np.empty((m, n))


@shared_kernel("b1(matrix, f8, i8, matrix)")
def factor_ridge(S, lam, K, H):
    """Write the Cholesky factor of the curvature plus the ridge into H (n, n), if there is one."""
    n = H.shape[0]
    d = n // (K - 1)
    for a in range(K - 1):
        first = a * d
        for r in range(d):
            row = H[first + r]
            for c in range(r):
                row[first + c] = 0.0
            row[first + r] = lam * (1.0 - 1.0 / K)
        for j in range(K):
            if j == a:
                continue
            pair = S[pair_at(j, a, K) if j < a else pair_at(a, j, K)]
            at, second = 0, j * d
            for r in range(d):
                row = H[first + r]
                for c in range(r + 1):
                    row[first + c] += pair[at + c]
                if j < a:
                    for c in range(r):
                        row[second + c] = -pair[at + c]
                        H[first + c, second + r] = -pair[at + c]
                    row[second + r] = -pair[at + r] - lam / K
                at += r + 1
    return potrf(n, H, 0, n) == 0


@shared_kernel("void(matrix, matrix, matrix)", fast=True)
def pull(S, W, out):
    """Write sum over j of S_ij (w_i - w_j) into out: half the gradient; S may have no pairs."""
    K, d = W.shape
    out[:] = 0.0
    if S.shape[0] == 0:
        return
    apart, along = np.empty(d), np.empty(d)
    pair_number = 0
    for i in range(K):
        for j in range(i + 1, K):
            pair = S[pair_number]
            pair_number += 1
            for c in range(d):
                apart[c] = W[i, c] - W[j, c]
                along[c] = 0.0
            at = 0
            for r in range(d):
                here = apart[r]
                total = 0.0
                for c in range(r):
                    entry = pair[at + c]
                    total += entry * apart[c]
                    along[c] += entry * here
                along[r] += total + pair[at + r] * here
                at += r + 1
            for c in range(d):
                out[i, c] += along[c]
                out[j, c] -= along[c]


@shared_kernel("f8(vector, vector, f8, matrix, vector, vector, vector, integers)")
def _true_loss(Z, ZD, t, Y, weights, A, E, powers):
    """Return the loss of rows at logits Z + t ZD; leave w(p - y) in E. A is scratch."""
    for c in range(Z.shape[0]):
        A[c] = Z[c] + t * ZD[c]
    K, loss = Y.shape[1], 0.0
    softmax_each(A, K, E, powers)
    for s in range(Y.shape[0]):
        score, top, weight = 0.0, 0.0, weights[s]
        for i in range(K):
            p, y = E[s * K + i], Y[s, i]
            score += y * A[s * K + i]
            top = p if p > top else top
            E[s * K + i] = weight * (p - y)
        loss -= weight * (math.log(top) + score)
    return loss


@helper_kernel
def _solve(H, gradient, step):
    """Write the centred step (K, d) to where the gradient vanishes; return whether it is finite."""
    K, d = gradient.shape
    n = H.shape[0]
    for a in range(K - 1):
        for j in range(d):
            step[a, j] = -0.5 * gradient[a, j]
    potrs(n, 1, H, 0, n, step, 0, n)
    size = 0.0
    for j in range(d):
        mean = 0.0
        for i in range(K - 1):
            mean += step[i, j]
        mean /= K
        step[K - 1, j] = 0.0
        for i in range(K):
            step[i, j] -= mean
            size += abs(step[i, j])
    return math.isfinite(size)


@shared_kernel("void(matrix, matrix, f8, matrix, matrix, matrix, vector, i8, matrix)")
def walk(S, G, lam, H, X, Y, weights, n_steps, W):
    """Move W by damped Newton steps towards the mode of ridge, sum and true loss of rows."""
    K, d = W.shape
    m = X.shape[0]
    logits = new_matrix(4, m * K)
    Z, ZD, A, E = logits[0], logits[1], logits[2], logits[3]
    pulled, pulled_step = new_matrix(K, d), new_matrix(K, d)
    gradient, step = new_matrix(K, d), new_matrix(K, d)
    powers = np.empty(m * K, np.int64)
    gemm(TRANSPOSED, PLAIN, K, m, d, 1.0, W, 0, d, X, 0, d, 0.0, Z, 0, K)
    pull(S, W, pulled)
    loss = _true_loss(Z, Z, 0.0, Y, weights, A, E, powers)
    for _ in range(n_steps):
        for i in range(K):
            for j in range(d):
                gradient[i, j] = G[i, j] + 2.0 * (pulled[i, j] + lam * W[i, j])
        gemm(PLAIN, TRANSPOSED, d, K, m, 1.0, X, 0, d, E, 0, K, 1.0, gradient, 0, d)
        if not _solve(H, gradient, step):
            return
        slope = 0.0
        for i in range(K):
            for j in range(d):
                slope += gradient[i, j] * step[i, j]
        if not -slope > NEGLIGIBLE * loss:
            return
        gemm(TRANSPOSED, PLAIN, K, m, d, 1.0, step, 0, d, X, 0, d, 0.0, ZD, 0, K)
        pull(S, step, pulled_step)
        linear, square = 0.0, 0.0
        for i in range(K):
            for j in range(d):
                here = step[i, j]
                linear += (G[i, j] + 2.0 * (pulled[i, j] + lam * W[i, j])) * here
                square += (pulled_step[i, j] + lam * here) * here
        t, trial, n_tried = 2.0, math.inf, 0
        while not trial - loss + t * (linear + t * square) <= SUFFICIENT * t * slope:
            if n_tried == MOST_HALVINGS:
                return
            t *= 0.5
            trial = _true_loss(Z, ZD, t, Y, weights, A, E, powers)
            n_tried += 1
        loss = trial
        for i in range(K):
            for j in range(d):
                W[i, j] += t * step[i, j]
                pulled[i, j] += t * pulled_step[i, j]
        for c in range(m * K):
            Z[c] += t * ZD[c]
