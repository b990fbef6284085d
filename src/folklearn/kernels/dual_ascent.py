"""Dual coordinate ascent for ridge-penalised softmax models, one pass over sparse rows a call.

The fit of all rows, argmin ridge |W|^2 + sum w loss(W x, y), has a dual with one point q of the
simplex for every row: W is the sum of w (y - q) x' over 2 ridge, and at the optimum q is what W
predicts, p. For any points

    objective(W) - dual = sum w KL(q, p),

so that a pass knows how far it is from the end. A step moves one q towards p, by a length that
cannot lower the dual (entropy is 1-strongly concave in the 1-norm), and W with it, in the columns
of the row only: nothing else decays, however strong the ridge.
"""

import math

import numpy as np

from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.simplex import exp_all

_SETTLED = 1e-14  # distance of q from p below which there is nothing to do


@fast_kernel
def _add(W, indices, values, r):
    """W (n, K) += x r', for one row."""
    for a in range(indices.shape[0]):
        j, v = indices[a], values[a]
        for k in range(r.shape[0]):
            W[j, k] += v * r[k]


@fast_kernel
def _logits(W, indices, values, z):
    """Write W' x."""
    for k in range(z.shape[0]):
        z[k] = 0.0
    for a in range(indices.shape[0]):
        j, v = indices[a], values[a]
        for k in range(z.shape[0]):
            z[k] += v * W[j, k]


@kernel
def weights_of(indptr, indices, values, Y, weights, Q, ridge, W):
    """Write the model (n, K) that belongs to points Q (T, K)."""
    W[:] = 0.0
    r = np.empty(W.shape[1])
    for t in range(Q.shape[0]):
        own = slice(indptr[t], indptr[t + 1])
        for k in range(r.shape[0]):
            r[k] = weights[t] * (Y[t, k] - Q[t, k]) / (2.0 * ridge)
        _add(W, indices[own], values[own], r)


@kernel
def ascend(indptr, indices, values, squares, Y, weights, order, Q, W, ridge):
    """Move the points Q (T, K) of the rows of `order`, one after the other, and W (n, K).

    Returns the losses, and the gaps w KL(q, p), that these rows had before their own step.
    `squares` are the squared norms of the rows, Y (T, K) their labels as points of the simplex.
    """
    K = W.shape[1]
    z, p, powers = np.empty(K), np.empty(K), np.empty(K, np.int64)
    losses, gaps = 0.0, 0.0
    for i in range(order.shape[0]):
        t = order[i]
        own = slice(indptr[t], indptr[t + 1])
        weight, q = weights[t], Q[t]
        _logits(W, indices[own], values[own], z)
        top = z[0]
        for k in range(1, K):
            top = max(top, z[k])
        for k in range(K):
            z[k] -= top
        exp_all(z, p, powers)
        total = 0.0
        for k in range(K):
            total += p[k]
        normaliser = math.log(total)
        loss, gap, length, square = normaliser, normaliser, 0.0, 0.0
        for k in range(K):
            loss -= Y[t, k] * z[k]
            if q[k] > 0.0:
                gap += q[k] * (math.log(q[k]) - z[k])
            p[k] = p[k] / total - q[k]
            length += abs(p[k])
            square += p[k] * p[k]
        gap = max(gap, 0.0)
        losses += weight * loss
        gaps += weight * gap
        if weight == 0.0 or length <= _SETTLED:
            continue
        length *= length
        pull = weight * squares[t] * square / (2.0 * ridge)
        step = min((gap + 0.5 * length) / (length + pull), 1.0)
        for k in range(K):
            q[k] = max(q[k] + step * p[k], 0.0)
            p[k] *= -step * weight / (2.0 * ridge)
        _add(W, indices[own], values[own], p)
    return losses, gaps


@kernel
def logits_of(indptr, indices, values, which, W, Z):
    """Write the logits (n, K) of the rows `which` (n,)."""
    for i in range(which.shape[0]):
        own = slice(indptr[which[i]], indptr[which[i] + 1])
        _logits(W, indices[own], values[own], Z[i])
