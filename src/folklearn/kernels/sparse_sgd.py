"""Rounds of `SparseSgd`: several softmax models by gradients, a rate for each column, in one pass.

Every column that occurred has an entry (E, K + 1) in the table: for each of E experts its
weights (K,), and the sum h of w v^2 |p - y|^2 over the rows that had a value v there. With
r = w (p - y), the gradient in the logits,

    ROOT      weights -= rate v r / sqrt(offset + h)      (AdaGrad, one rate for all classes)
    WHOLE     weights -= rate v r / (offset + h)          (about a Newton step for the column)
    CONSTANT  weights -= rate v r
    DUAL      weights  = -rate G / sqrt(offset + h), where the entry is G, the sum of v r

G of the dual expert is at the same time the evidence of first order (`tangents`): its planes
touch the losses where that expert predicted. The experts are mixed by fixed share.
"""

import math

import numpy as np

from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.hash_index import enter, find
from folklearn.kernels.linear_evidence import count_plane
from folklearn.kernels.simplex import exp_all

ROOT, WHOLE, CONSTANT, DUAL = range(4)
KIND, RATE, OFFSET = range(3)  # columns of what is said of an expert
WEIGHTS, LOSSES, REVIEWED = range(3)  # rows of how the experts stand
LOSS, WEIGHED = range(2)  # of the mixture: its loss, and its rounds of positive weight

_TINY = 1e-300


@fast_kernel
def _logits(table, found, values, experts, Z):
    """Write the logits (E, K) of every expert."""
    E, K = Z.shape
    for e in range(E):
        for k in range(K):
            Z[e, k] = 0.0
    for a in range(values.shape[0]):
        place, v = found[a], values[a]
        if place < 0:
            continue
        for e in range(E):
            factor = v
            if experts[e, KIND] == DUAL:
                factor *= -experts[e, RATE] / math.sqrt(experts[e, OFFSET] + table[place, e, K])
            for k in range(K):
                Z[e, k] += factor * table[place, e, k]


@kernel
def _predictions(Z, P, totals, powers):
    """Write softmax of every row of Z, shifted so that its largest is 0, and its log of sums."""
    E, K = Z.shape
    for e in range(E):
        z = Z[e]
        top = z[0]
        for k in range(1, K):
            top = max(top, z[k])
        for k in range(K):
            z[k] -= top
    exp_all(Z.reshape(E * K), P.reshape(E * K), powers)
    for e in range(E):
        total = 0.0
        for k in range(K):
            total += P[e, k]
        totals[e] = math.log(total)
        for k in range(K):
            P[e, k] /= total


@kernel
def _mix(P, weights, p):
    """Write the mixture (K,) of predictions (E, K)."""
    E, K = P.shape
    for k in range(K):
        p[k] = 0.0
    for e in range(E):
        for k in range(K):
            p[k] += weights[e] * max(P[e, k], _TINY)


@kernel
def _squared(values):
    total = 0.0
    for a in range(values.shape[0]):
        total += values[a] * values[a]
    return total


@kernel
def predict(keys, places, table, experts, standing, indices, values, max_norm, p):
    """Predict one row into p; return False, p untouched, if its norm is unusable."""
    if not _squared(values) <= max_norm * max_norm:
        return False
    E, K = table.shape[1], table.shape[2] - 1
    found = np.empty(indices.shape[0], np.int64)
    Z, P, sums = np.empty((E, K)), np.empty((E, K)), np.empty(E)
    find(keys, places, indices, found)
    _logits(table, found, values, experts, Z)
    _predictions(Z, P, sums, np.empty(E * K, np.int64))
    _mix(P, standing[WEIGHTS], p)
    return True


@kernel
def predict_rows(keys, places, table, experts, standing, indptr, indices, values, P):
    """Predict every row into P, all from the same state."""
    for t in range(P.shape[0]):
        own = slice(indptr[t], indptr[t + 1])
        predict(
            keys, places, table, experts, standing, indices[own], values[own], np.inf, P[t]
        )  # fmt: skip


@kernel
def predict_each(keys, places, table, experts, indptr, indices, values, P):
    """Write what every expert predicts for every row, P (E, T, K)."""
    E, T, K = P.shape
    Z, Q, sums, powers = np.empty((E, K)), np.empty((E, K)), np.empty(E), np.empty(E * K, np.int64)
    for t in range(T):
        own = slice(indptr[t], indptr[t + 1])
        found = np.empty(indptr[t + 1] - indptr[t], np.int64)
        find(keys, places, indices[own], found)
        _logits(table, found, values[own], experts, Z)
        _predictions(Z, Q, sums, powers)
        for e in range(E):
            for k in range(K):
                P[e, t, k] = Q[e, k]


@fast_kernel
def _descend(table, found, values, experts, residuals, squares):
    """Move the weights of every expert in the columns of a row."""
    E, K = residuals.shape
    for a in range(values.shape[0]):
        place, v = found[a], values[a]
        for e in range(E):
            kind = experts[e, KIND]
            table[place, e, K] += v * v * squares[e]
            factor = v
            if kind != DUAL:
                divisor = 1.0
                if kind != CONSTANT:
                    divisor = experts[e, OFFSET] + table[place, e, K]
                if kind == ROOT:
                    divisor = math.sqrt(divisor)
                factor *= -experts[e, RATE] / divisor
            for k in range(K):
                table[place, e, k] += factor * residuals[e, k]


@kernel
def _share(standing, losses, mixture):
    """Weigh the experts by what they lost, and give every one a share."""
    E = losses.shape[0]
    least = losses[0]
    for e in range(1, E):
        least = min(least, losses[e])
    total = 0.0
    for e in range(E):
        standing[WEIGHTS, e] *= math.exp(least - losses[e])
        total += standing[WEIGHTS, e]
    mixture[WEIGHED] += 1.0
    shared = 1.0 / (mixture[WEIGHED] + 1.0)
    for e in range(E):
        standing[WEIGHTS, e] = (1.0 - shared) * standing[WEIGHTS, e] / total + shared / E


@kernel
def learn(
    keys, places, columns, count, table, experts, standing, mixture, totals,
    indices, values, label, soft, weight, max_norm, p,
):  # fmt: skip
    """Predict one row into p and learn it; return its loss.

    NaN, all untouched, if the norm of the row is unusable; there must be room for its columns.
    The weight is at most 1, but beside anybody's predictions, where it may be any.
    """
    square = _squared(values)
    if not square <= max_norm * max_norm:
        return math.nan
    E, K = table.shape[1], table.shape[2] - 1
    found = np.empty(indices.shape[0], np.int64)
    enter(keys, places, columns, count, indices, found)
    Z, Q, sums = np.empty((E, K)), np.empty((E, K)), np.empty(E)
    _logits(table, found, values, experts, Z)
    _predictions(Z, Q, sums, np.empty(E * K, np.int64))
    _mix(Q, standing[WEIGHTS], p)
    loss = 0.0
    for k in range(K):
        given = soft[k] if label < 0 else (1.0 if k == label else 0.0)
        if given > 0.0:
            loss -= given * math.log(p[k])
    if weight == 0.0:
        count_plane(totals, 0.0, 0.0, 0.0)
        return loss
    mixture[LOSS] += weight * loss
    lost, squares = np.empty(E), np.empty(E)
    for e in range(E):
        lost[e] = sums[e]
        squares[e] = 0.0
        mean = 0.0
        for k in range(K):
            given = soft[k] if label < 0 else (1.0 if k == label else 0.0)
            lost[e] -= given * Z[e, k]
            mean += Q[e, k] * Z[e, k]
            Q[e, k] = weight * (Q[e, k] - given)
            squares[e] += Q[e, k] * Q[e, k]
        if experts[e, KIND] == DUAL:
            count_plane(totals, sums[e] - mean, weight, math.sqrt(square))
        squares[e] /= weight
        lost[e] *= weight
        standing[LOSSES, e] += lost[e]
    _descend(table, found, values, experts, Q, squares)
    _share(standing, lost, mixture)
    return loss


@kernel
def run(
    keys, places, columns, count, table, experts, standing, mixture, totals,
    indptr, indices, values, labels, soft, weights, P,
):  # fmt: skip
    """Predict every row into P and learn it; return how many.

    It ends early where a row might bring more columns than there is room for.
    """
    no_label = np.empty(0)
    for t in range(P.shape[0]):
        own = slice(indptr[t], indptr[t + 1])
        if count[0] + indptr[t + 1] - indptr[t] > columns.shape[0]:
            return t
        learn(
            keys, places, columns, count, table, experts, standing, mixture, totals,
            indices[own], values[own], labels[t], soft[t] if labels[t] < 0 else no_label,
            weights[t], np.inf, P[t],
        )  # fmt: skip
    return P.shape[0]
