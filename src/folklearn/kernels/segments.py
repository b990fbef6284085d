"""The life of a model, row by row: what came of its predictions, and what its columns held.

One row after the other, also where many come at once, so that no sum depends on how they came.
"""

import math

from folklearn.arrays import TINY
from folklearn.kernels.compile import kernel

N_PIECES = 64
LOSS, ERRORS, WEIGHT, FLOOR, FROZEN = range(5)  # of a piece
N_ROWS, N_PREDICTED, N_RIGHT = range(3)  # of a class
N_SCORES = 100  # bins of a probability
N_BINS = 10  # of calibration
THERE, GAPS, FIRST, OUTLIERS = range(4)  # of a place in a row
MEAN, SQUARES = range(2)

FAR = 5.0  # standard deviations: an outlier is further away, and moves the mean as if it were not
_FEW = 32  # values, before which none is an outlier


@kernel
def _join_pairs(pieces):
    """Make one piece of every two, in the first half of the places."""
    half = pieces.shape[1] // 2
    for i in range(half):
        for kind in range(FLOOR):
            pieces[kind, i] = pieces[kind, 2 * i] + pieces[kind, 2 * i + 1]
        for kind in range(FLOOR, pieces.shape[0]):  # the later one's
            pieces[kind, i] = pieces[kind, 2 * i + 1]
    pieces[:FLOOR, half:] = 0.0
    pieces[FLOOR:, half:] = math.nan


@kernel
def _count_scores(p, n_known, label, scores, given):
    """Count the probability of every class that was known, of rows of the class and of others."""
    for k in range(min(n_known, scores.shape[0])):
        # Also for NaN, which a state that nobody saved may predict: no place is outside.
        place = max(0, min(int(p[k] * N_SCORES), N_SCORES - 1))
        scores[k, 1 if k == label else 0, place] += 1
        given[k, place * N_BINS // N_SCORES] += p[k]


@kernel
def count_predictions(
    P, chance, labels, best, known, weights, frozen,
    n_before, size, pieces, classes, confusion, scores, given,
):  # fmt: skip
    """Count rows that come after n_before others; return the size of a piece then."""
    for t in range(P.shape[0]):
        n = n_before + t
        if n == N_PIECES * size:
            _join_pairs(pieces)
            size *= 2
        at = n // size
        wrong = best[t] != labels[t]
        pieces[LOSS, at] -= weights[t] * math.log(max(chance[t], TINY))
        pieces[ERRORS, at] += wrong
        pieces[WEIGHT, at] += weights[t]
        pieces[FROZEN, at] = frozen[t]
        classes[N_ROWS, labels[t]] += 1
        classes[N_RIGHT, labels[t]] += not wrong
        if best[t] >= 0:
            classes[N_PREDICTED, best[t]] += 1
            if confusion.shape[0] > 0:
                confusion[labels[t], best[t]] += 1
        _count_scores(P[t], known[t], labels[t], scores, given)
    return size


@kernel
def count_values(X, is_number, n_before, counts, moments):
    """Count the values in every place of rows that come after n_before others.

    A number is missing where it is NaN. Elsewhere, in a category or a feature without a name, 0 is
    nothing, and NaN a gap.
    """
    for t in range(X.shape[0]):
        for j in range(X.shape[1]):
            value = X[t, j]
            if math.isnan(value):
                counts[GAPS, j] += not is_number[j]
                continue
            if value == 0.0 and not is_number[j]:
                continue
            n = counts[THERE, j]
            if n == 0:
                counts[FIRST, j] = n_before + t
            step = value - moments[MEAN, j]
            if n >= _FEW:
                limit = FAR * math.sqrt(moments[SQUARES, j] / n)
                if 0.0 < limit < abs(step):
                    counts[OUTLIERS, j] += 1
                    step = math.copysign(limit, step)
            counts[THERE, j] = n + 1
            # Welford's recursion: no sum of squares, so a large offset costs no accuracy.
            moments[MEAN, j] += step / (n + 1)
            moments[SQUARES, j] += step * step * (n / (n + 1))
