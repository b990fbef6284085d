"""The mode of a ridge: where lam |W|^2 + a sum of evidence + the true loss of some rows is least.

The quadratics of the sum are expanded with gamma = 1/2, so the sum is a Laplace approximation
of the rows that went into it; rows that are held as rows keep their true loss, and Newton's
method needs their curvature at one point only. Steps are damped by a line search on the
objective itself: undamped ones diverge within the first hundred rounds.

Shifting all classes by the same vector changes no prediction, so the last class is held at 0
while solving: n = (K-1) d unknowns, and the ridge becomes lam (I - 11'/K) (x) I.
"""

import math

import numpy as np

from folklearn.kernels.blas import PLAIN, TRANSPOSED, gemm, potrf, potrs
from folklearn.kernels.compile import inner_kernel, shared_kernel
from folklearn.kernels.simplex import exp_all

SUFFICIENT = 1e-4  # of the decrease that the slope promises
MOST_HALVINGS = 12


@inner_kernel
def pair_at(i, j, K):
    """Return the place of the pair i < j."""
    return i * K - i * (i + 1) // 2 + (j - i - 1)


@shared_kernel("b1(matrix, f8, i8, matrix)")
def factor_ridge(S, lam, K, H):
    """Write the Cholesky factor of the curvature plus the ridge into H (n, n).

    Return whether there is one; rounding may leave none on rows of absurd size.
    """
    n = H.shape[0]
    d = n // (K - 1)
    diagonal = np.empty(S.shape[1])
    for a in range(K - 1):
        diagonal[:] = 0.0
        for j in range(K):
            if j != a:
                pair = S[pair_at(min(a, j), max(a, j), K)]
                for i in range(diagonal.shape[0]):
                    diagonal[i] += pair[i]
        at = 0
        for r in range(d):
            row = H[a * d + r]
            for c in range(r + 1):
                row[a * d + c] = diagonal[at + c]
            at += r + 1
            row[a * d + r] += lam * (1.0 - 1.0 / K)
        for b in range(a):
            pair = S[pair_at(b, a, K)]
            at = 0
            for r in range(d):
                row = H[a * d + r]
                for c in range(r + 1):
                    row[b * d + c] = -pair[at + c]
                for c in range(r):
                    H[a * d + c, b * d + r] = -pair[at + c]
                at += r + 1
            for r in range(d):
                H[a * d + r, b * d + r] -= lam / K
    return potrf(n, H, 0, n) == 0


@shared_kernel("void(matrix, matrix, matrix)", fast=True)
def pull(S, W, out):
    """Write sum over j of S_ij (w_i - w_j) into the rows of out: half the gradient of the pairs."""
    K, d = W.shape
    out[:] = 0.0
    apart, along = np.empty(d), np.empty(d)
    place = 0
    for i in range(K):
        for j in range(i + 1, K):
            pair = S[place]
            place += 1
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


@inner_kernel
def inner_product(A, B):
    total = 0.0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += A[i, j] * B[i, j]
    return total


@shared_kernel("f8(matrix, matrix, f8, matrix, vector, matrix, integers)")
def _true_loss(Z, ZD, t, Y, weights, E, powers):
    """Return the loss of rows at logits Z + t ZD; leave w(p - y) in E."""
    loss = 0.0
    m, K = Z.shape
    for s in range(m):
        row = E[s]
        top = -math.inf
        for i in range(K):
            row[i] = Z[s, i] + t * ZD[s, i]
            top = row[i] if row[i] > top else top
        score = 0.0
        for i in range(K):
            row[i] -= top
            score += Y[s, i] * row[i]
        loss -= weights[s] * score
    exp_all(E.reshape(m * K), E.reshape(m * K), powers)
    for s in range(m):
        row = E[s]
        total = 0.0
        for i in range(K):
            total += row[i]
        loss += weights[s] * math.log(total)
        scale = weights[s] / total
        for i in range(K):
            row[i] = scale * row[i] - weights[s] * Y[s, i]
    return loss


@inner_kernel
def _solve(H, gradient, step):
    """Write the step (K, d) to where the gradient of the quadratic vanishes, centred.

    Return whether it is finite.
    """
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


@inner_kernel
def linear_logits(X, W, Z):
    """Write X W' into Z (m, K)."""
    m, d = X.shape
    K = W.shape[0]
    gemm(TRANSPOSED, PLAIN, K, m, d, 1.0, W, 0, d, X, 0, d, 0.0, Z, 0, K)


@shared_kernel("void(matrix, matrix, matrix)")
def jump(G, H, W):
    """Move W to the mode of a ridge and a sum alone, whose factor H is."""
    step = np.empty_like(W)
    if _solve(H, G, step):
        for i in range(W.shape[0]):
            for j in range(W.shape[1]):
                W[i, j] = step[i, j]


@shared_kernel("void(matrix, matrix, f8, matrix, matrix, matrix, vector, i8, matrix)")
def walk(S, G, lam, H, X, Y, weights, n_steps, W):
    """Move W by damped Newton steps towards the mode of ridge, sum and true loss of rows."""
    K, d = W.shape
    m = X.shape[0]
    Z, ZD, E = np.empty((m, K)), np.zeros((m, K)), np.empty((m, K))
    pulled, pulled_step = np.empty((K, d)), np.empty((K, d))
    gradient, step = np.empty((K, d)), np.empty((K, d))
    linear_logits(X, W, Z)
    pull(S, W, pulled)
    powers = np.empty(m * K, np.int64)
    loss = _true_loss(Z, ZD, 0.0, Y, weights, E, powers)
    for _ in range(n_steps):
        for i in range(K):
            for j in range(d):
                gradient[i, j] = G[i, j] + 2.0 * (pulled[i, j] + lam * W[i, j])
        gemm(PLAIN, TRANSPOSED, d, K, m, 1.0, X, 0, d, E, 0, K, 1.0, gradient, 0, d)
        is_finite = _solve(H, gradient, step)
        slope = inner_product(gradient, step)
        if not (slope < 0.0 and is_finite):
            return
        linear_logits(X, step, ZD)
        pull(S, step, pulled_step)
        linear = inner_product(G, step) + 2.0 * (
            inner_product(pulled, step) + lam * inner_product(W, step)
        )
        square = inner_product(pulled_step, step) + lam * inner_product(step, step)
        t = 1.0
        for _ in range(MOST_HALVINGS):
            there = _true_loss(Z, ZD, t, Y, weights, E, powers)
            if there - loss + t * (linear + t * square) <= SUFFICIENT * t * slope:
                break
            t *= 0.5
        else:
            return
        loss = there
        for i in range(K):
            for j in range(d):
                W[i, j] += t * step[i, j]
                pulled[i, j] += t * pulled_step[i, j]
        for s in range(m):
            for i in range(K):
                Z[s, i] += t * ZD[s, i]
