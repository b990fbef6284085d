"""One linear model, softmax(W x): online gradient descent, and dual ascent on a ridge's fit.

A round of gradient descent predicts, then moves W (K, d), and projects it onto the class, the
product over classes of balls of radius B. Its kernels return NaN, all untouched, where the norm
of x is unusable.

Dual coordinate ascent fits sparse rows, one pass a call. The fit of all rows,
argmin ridge |W|^2 + sum w loss(W x, y), has a dual with one point q of the simplex for every row:
W is the sum of w (y - q) x' over 2 ridge, and at the optimum q is what W predicts, p. For any q

    objective(W) - dual = sum w KL(q, p),

so that a pass knows how far it is from the end. A step moves one q towards p, by a length that
cannot lower the dual (entropy is 1-strongly concave in the 1-norm), and W with it, in the columns
of the row only: nothing else decays, however strong the ridge.
"""

import math

import numpy as np

from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.experts import target
from folklearn.kernels.prediction_rules import log_loss
from folklearn.kernels.simplex import exp_all, softmax

# What the rounds of gradient descent add up to, by position in the totals array.
N_OGD_TOTALS = 1
SQUARES = 0  # sum of the squared weights

_SETTLED = 1e-14  # distance of q from p below which there is nothing to do


@fast_kernel
def length(v):
    """Return |v|, also where the squares overflow; NaN if v is not finite."""
    total = 0.0
    for j in range(v.shape[0]):
        total += v[j] * v[j]
    if total < math.inf:
        return math.sqrt(total)
    top = 0.0
    for j in range(v.shape[0]):
        top = max(top, abs(v[j]))
    total = 0.0
    for j in range(v.shape[0]):
        total += (v[j] / top) ** 2
    return top * math.sqrt(total)


@kernel
def project_rows(W, B):
    """Shorten every row of W (K, d) to norm at most B; return how many were longer."""
    n_outside = 0
    for k in range(W.shape[0]):
        row = W[k]
        size = length(row)
        if size > B:
            n_outside += 1
            factor = B / size
            for j in range(row.shape[0]):
                row[j] *= factor
    return n_outside


@fast_kernel
def multiply(A, v, out):
    """Write A v into out."""
    for i in range(A.shape[0]):
        row = A[i]
        total = 0.0
        for j in range(v.shape[0]):
            total += row[j] * v[j]
        out[i] = total


@kernel
def predict_linear(W, x, max_norm, p):
    """Write softmax(W x) into p; return False, all untouched, if |x| is unusable."""
    if not length(x) <= max_norm:
        return False
    multiply(W, x, p)
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
    multiply(W, x, z)
    log_total = softmax(z, p)
    loss = log_loss(z, log_total, label, soft)
    for k in range(p.shape[0]):
        p[k] -= target(label, soft, k)
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
def ogd_rounds(W, totals, work, X, labels, soft, weights, B, rate, decay, P):
    """Predict every row of X into P and learn it."""
    no_label = np.empty(0)
    for t in range(X.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        predict_linear(W, X[t], np.inf, P[t])
        ogd_round(W, totals, work, X[t], labels[t], y, weights[t], B, rate, decay, np.inf)


@fast_kernel
def _add_row(W, indices, values, r):
    for a in range(indices.shape[0]):
        j, v = indices[a], values[a]
        for k in range(r.shape[0]):
            W[j, k] += v * r[k]


@fast_kernel
def _sparse_logits(W, indices, values, z):
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
        for k in range(r.shape[0]):
            r[k] = weights[t] * (Y[t, k] - Q[t, k]) / (2.0 * ridge)
        row = slice(indptr[t], indptr[t + 1])
        _add_row(W, indices[row], values[row], r)


@kernel
def ascend(indptr, indices, values, squares, bases, Y, weights, order, Q, W, ridge):
    """Move the points Q (T, K) of the rows of `order`, one after the other, and W (n, K).

    `bases` (T, K) are added to the logits, `squares` are squared norms. Return the losses and the
    gaps w KL(q, p) before.
    """
    K = W.shape[1]
    z, p, powers = np.empty(K), np.empty(K), np.empty(K, np.int64)
    losses, gaps = 0.0, 0.0
    for i in range(order.shape[0]):
        t = order[i]
        row = slice(indptr[t], indptr[t + 1])
        weight, q = weights[t], Q[t]
        _sparse_logits(W, indices[row], values[row], z)
        if bases.shape[0]:
            z += bases[t]
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
        _add_row(W, indices[row], values[row], p)
    return losses, gaps


@kernel
def logits_of(indptr, indices, values, which, W, Z):
    """Write the logits (n, K) of the rows `which` (n,)."""
    for i in range(which.shape[0]):
        row = slice(indptr[which[i]], indptr[which[i] + 1])
        _sparse_logits(W, indices[row], values[row], Z[i])
