"""Rounds of `SparseSgd`: several softmax models by gradients, a rate for each column, in one pass.

Every column that occurred has an entry (E, K + 1) in the table: for each of E experts its
weights (K,), and the sum h of w v^2 |p - y|^2 over the rows that had a value v there. Its steps
are those of `SparseSgd`: ROOT has a = 1/2, WHOLE a = 1, CONSTANT a = 0, and the entry of DUAL is G,
which is at the same time the evidence of first order: its planes touch the losses where that
expert predicted. The experts are mixed by fixed share.

Rows may come with a second value of every column, `words`, and with a `base`: logits (K,) of
another model. Then experts have a view: ALL values alone, those of the WORDS alone, or the words
ON_TOP of the base. Without them both are empty.
"""

import math

import numpy as np

from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.evidence import count_row
from folklearn.kernels.experts import loss_of, mix, share_weights, target
from folklearn.kernels.hash_index import enter, find
from folklearn.kernels.second_order import norm
from folklearn.kernels.simplex import softmax_each

ROOT, WHOLE, CONSTANT, DUAL = range(4)
KIND, RATE, OFFSET, VIEW = range(4)  # columns of what is said of an expert; few have a view
ALL, WORDS, ON_TOP = range(3)  # views
WEIGHTS, LOSSES, REVIEWED = range(3)  # rows of how the experts stand
LOSS, WEIGHED = range(2)  # of the mixture: its loss, and its rounds of positive weight


@fast_kernel
def _logits(table, entries, values, words, base, experts, Z):
    E, K = Z.shape
    has_views = base.shape[0] > 0
    for e in range(E):
        is_on_top = has_views and experts[e, VIEW] == ON_TOP
        for k in range(K):
            Z[e, k] = base[k] if is_on_top else 0.0
    for a in range(values.shape[0]):
        entry = entries[a]
        if entry < 0:
            continue
        for e in range(E):
            factor = words[a] if has_views and experts[e, VIEW] != ALL else values[a]
            if experts[e, KIND] == DUAL:
                factor *= -experts[e, RATE] / math.sqrt(experts[e, OFFSET] + table[entry, e, K])
            for k in range(K):
                Z[e, k] += factor * table[entry, e, k]


@kernel
def predict(keys, places, table, experts, weights, indices, values, max_norm, p):
    """Predict one row into p; return False, p untouched, if its norm is unusable."""
    if not norm(values) <= max_norm:
        return False
    E, K = table.shape[1], table.shape[2] - 1
    entries = np.empty(indices.shape[0], np.int64)
    Z, P = np.empty((E, K)), np.empty((E, K))
    find(keys, places, indices, entries)
    nothing = np.empty(0)
    _predict_each(table, entries, values, nothing, nothing, experts, Z, P)
    mix(weights, P, p)
    return True


@kernel
def _predict_each(table, entries, values, words, base, experts, Z, P):
    """Write the predictions (E, K) of every expert and their logits, of which the largest is 0."""
    _logits(table, entries, values, words, base, experts, Z)
    n = Z.size
    softmax_each(Z.reshape(n), Z.shape[1], P.reshape(n), np.empty(n, np.int64))


@kernel
def predict_rows(
    keys, places, table, experts, mixtures, indptr, indices, values, words, bases, P
):  # fmt: skip
    """Predict every row into P (n, T, K), all from the same state, by mixtures (n, E)."""
    E, K = table.shape[1], table.shape[2] - 1
    Z, Q, nothing = np.empty((E, K)), np.empty((E, K)), np.empty(0)
    for t in range(P.shape[1]):
        row = slice(indptr[t], indptr[t + 1])
        entries = np.empty(indptr[t + 1] - indptr[t], np.int64)
        find(keys, places, indices[row], entries)
        in_words, base = (words[row], bases[t]) if bases.shape[0] else (nothing, nothing)
        _predict_each(table, entries, values[row], in_words, base, experts, Z, Q)
        for i in range(P.shape[0]):
            mix(mixtures[i], Q, P[i, t])


@fast_kernel
def _descend(table, entries, values, words, experts, residuals, squares):
    E, K = residuals.shape
    has_views = words.shape[0] > 0
    for a in range(values.shape[0]):
        entry = entries[a]
        for e in range(E):
            kind = experts[e, KIND]
            v = words[a] if has_views and experts[e, VIEW] != ALL else values[a]
            table[entry, e, K] += v * v * squares[e]
            factor = v
            if kind != DUAL:
                divisor = 1.0
                if kind != CONSTANT:
                    divisor = experts[e, OFFSET] + table[entry, e, K]
                if kind == ROOT:
                    divisor = math.sqrt(divisor)
                factor *= -experts[e, RATE] / divisor
            for k in range(K):
                table[entry, e, k] += factor * residuals[e, k]


@kernel
def learn(
    keys, places, columns, count, table, experts, standing, mixture, totals,
    indices, values, words, base, label, soft, weight, max_norm, p,
):  # fmt: skip
    """Predict one row into p and learn it; return its loss, NaN if the norm of the row is unusable.

    There must be room for its columns. The weight is at most 1, unless only evidence is wanted.
    """
    size = norm(values)
    if not size <= max_norm:
        return math.nan
    E, K = table.shape[1], table.shape[2] - 1
    entries = np.empty(indices.shape[0], np.int64)
    enter(keys, places, columns, count, indices, entries)
    Z, Q = np.empty((E, K)), np.empty((E, K))
    _predict_each(table, entries, values, words, base, experts, Z, Q)
    mix(standing[WEIGHTS], Q, p)
    loss = loss_of(p, label, soft)
    if weight == 0.0:
        count_row(totals, 0.0, 0.0, 0.0)
        return loss
    mixture[LOSS] += weight * loss
    lost, squares = np.empty(E), np.empty(E)
    for e in range(E):
        log_total = -math.log(Q[e].max())
        lost[e] = log_total
        squares[e] = 0.0
        mean = 0.0
        for k in range(K):
            y = target(label, soft, k)
            lost[e] -= y * Z[e, k]
            mean += Q[e, k] * Z[e, k]
            Q[e, k] = weight * (Q[e, k] - y)
            squares[e] += Q[e, k] * Q[e, k]
        if e == 0:  # the dual one of all values: the evidence
            count_row(totals, log_total - mean, weight, size)
        squares[e] /= weight
        lost[e] *= weight
        standing[LOSSES, e] += lost[e]
    _descend(table, entries, values, words, experts, Q, squares)
    mixture[WEIGHED] += 1.0
    share_weights(standing[WEIGHTS], lost, 1.0 / (mixture[WEIGHED] + 1.0))
    return loss


@kernel
def run(
    keys, places, columns, count, table, experts, standing, mixture, totals,
    indptr, indices, values, words, bases, labels, soft, weights, P,
):  # fmt: skip
    """Predict every row into P and learn it; return how many had room for their columns."""
    nothing = np.empty(0)
    for t in range(P.shape[0]):
        row = slice(indptr[t], indptr[t + 1])
        if count[0] + indptr[t + 1] - indptr[t] > columns.shape[0]:
            return t
        in_words, base = (words[row], bases[t]) if bases.shape[0] else (nothing, nothing)
        learn(
            keys, places, columns, count, table, experts, standing, mixture, totals,
            indices[row], values[row], in_words, base,
            labels[t], soft[t] if labels[t] < 0 else nothing, weights[t], np.inf, P[t],
        )  # fmt: skip
    return P.shape[0]
