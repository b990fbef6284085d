"""Totals of predictions and of column values, and thresholds of sets, row by row.

Rows are added one after the other, also in batches, so that no sum depends on how they came.
"""

import math

from folklearn.arrays import TINY
from folklearn.kernels.compile import inner_kernel, kernel

N_SEGMENTS = 64
LOSS, ERRORS, WEIGHT, LOWER_BOUND, HOLDOUT = range(5)  # of a segment; a window has the first three
NEW_CLASSES = 1  # of the totals, between LOSS and WEIGHT: loss due to classes that were unknown
BRIER = 3  # of the totals, the last one
WINDOW_ROWS = 64  # rows of the shortest window
N_WINDOW_LEVELS = 48  # lengths of windows: 64 rows times powers of 2
N_ROWS, N_PREDICTED, N_RIGHT = range(3)  # of a class, also by weight
N_BINS = 10  # of calibration
_BINS_OF_HALF = 6  # per halving of a probability below .1, or of 1 - p above .9
_N_TAIL = 16 * _BINS_OF_HALF  # down to .1 / 2^16
_BINS_OF_TENTH = 10  # between, of equal width
N_SCORES = 2 * _N_TAIL + (N_BINS - 2) * _BINS_OF_TENTH  # bins of a probability
# The first of the bins that make up each bin of calibration.
FIRST_SCORES = [0, *range(_N_TAIL, N_SCORES - _N_TAIL + 1, _BINS_OF_TENTH)]
PRESENT, GAPS, FIRST, OUTLIERS = range(4)  # of a place in a row
MEAN, SQUARES = range(2)
N_EDGES = 7  # between the bins of the values in a place
NO_VALUE, N_VALUE_BINS = 0, N_EDGES + 2
ROWS, MISSES, THRESHOLD, LOWEST, HIGHEST = range(5)  # of a coverage, for a group of rows

OUTLIER_DEVIATIONS = 5.0  # an outlier is further from the mean, and moves it no more than that
_MIN_VALUES_FOR_OUTLIERS = 32


@kernel
def _join_pairs(segments):
    """Join every two segments, in the first half of the places."""
    half = segments.shape[1] // 2
    for i in range(half):
        for kind in range(LOWER_BOUND):
            segments[kind, i] = segments[kind, 2 * i] + segments[kind, 2 * i + 1]
        for kind in range(LOWER_BOUND, segments.shape[0]):  # the later one's
            segments[kind, i] = segments[kind, 2 * i + 1]
    segments[:LOWER_BOUND, half:] = 0.0
    segments[LOWER_BOUND:, half:] = math.nan


@kernel
def _close_window(windows, n_closed):
    """Add windows[0], 64 rows that are complete, to the ladder of the n_closed before.

    A level holds one or two windows; a third one moves the sum of the older two a level up.
    """
    level, n_here = 0, n_closed
    moving = windows[0].copy()
    windows[0] = 0.0
    while n_here > 0 and n_here % 2 == 0:  # two windows here
        older, newer = windows[1 + 2 * level], windows[2 + 2 * level]
        for kind in range(older.shape[0]):
            older[kind], moving[kind] = moving[kind], older[kind] + newer[kind]
            newer[kind] = 0.0
        level, n_here = level + 1, (n_here - 2) // 2
    last = windows[1 + 2 * level + (1 if n_here > 0 else 0)]
    for kind in range(last.shape[0]):
        last[kind] = moving[kind]


@kernel
def _place_in_tail(p):
    """Return the bin of a probability below .1: a bin ends an eighth above where it begins."""
    smallest = 0.5**16 / N_BINS
    if not p > smallest:  # or NaN
        return 0
    return max(0, min(int(_BINS_OF_HALF * math.log2(p / smallest)), _N_TAIL - 1))


@kernel
def _count_scores(p, n_known, label, weight, scores, probability_sums):
    """Count the probability of every class known, of rows of the class and of others."""
    for k in range(min(n_known, scores.shape[0])):
        # A damaged state may predict NaN: every index must be inside.
        tenth = max(0, min(int(p[k] * N_BINS), N_BINS - 1))
        if tenth == 0:
            score_bin = _place_in_tail(p[k])
        elif tenth == N_BINS - 1:
            score_bin = N_SCORES - 1 - _place_in_tail(1.0 - p[k])
        else:
            score_bin = _N_TAIL + int((p[k] * N_BINS - 1.0) * _BINS_OF_TENTH)
        scores[k, 1 if k == label else 0, score_bin] += weight
        probability_sums[k, tenth] += weight * p[k]


@kernel
def _measure_distance(p, n_known, label, soft, t, unseen, new_mass):
    """Return the squared distance of a prediction from the label, of new classes as if one."""
    distance = (unseen - new_mass) ** 2
    for k in range(n_known):
        y = soft[t, k] if soft.shape[0] > 0 else 1.0 * (k == label)
        distance += (p[k] - y) ** 2
    return distance


@kernel
def count_predictions(
    P, p_label, unseen, new_mass, labels, soft, best, known, weights, row_weights, holdout,
    n_before, size, totals, segments, windows, classes, class_weights, confusion, scores,
    probability_sums,
):  # fmt: skip
    """Add rows that come after n_before others; return the rows of a segment then.

    `weights` are of losses; `row_weights`, without those of classes, of what is counted by class.
    """
    for t in range(P.shape[0]):
        n = n_before + t
        if n == N_SEGMENTS * size:
            _join_pairs(segments)
            size *= 2
        at = n // size
        wrong = best[t] != labels[t]
        loss = -weights[t] * math.log(max(p_label[t], TINY))
        totals[LOSS] += loss
        if unseen[t] < 1.0:
            totals[NEW_CLASSES] -= weights[t] * (1.0 - new_mass[t]) * math.log1p(-unseen[t])
        if new_mass[t] > 0.0:
            totals[NEW_CLASSES] -= weights[t] * new_mass[t] * math.log(max(unseen[t], TINY))
        totals[WEIGHT] += weights[t]
        totals[BRIER] += weights[t] * _measure_distance(
            P[t], known[t], labels[t], soft, t, unseen[t], new_mass[t]
        )
        segments[LOSS, at] += loss
        segments[ERRORS, at] += wrong
        segments[WEIGHT, at] += weights[t]
        segments[HOLDOUT, at] = holdout[t]
        windows[0, LOSS] += loss
        windows[0, ERRORS] += wrong
        windows[0, WEIGHT] += weights[t]
        if (n + 1) % WINDOW_ROWS == 0:
            _close_window(windows, n // WINDOW_ROWS)
        classes[N_ROWS, labels[t]] += 1
        classes[N_RIGHT, labels[t]] += not wrong
        class_weights[N_ROWS, labels[t]] += row_weights[t]
        class_weights[N_RIGHT, labels[t]] += 0.0 if wrong else row_weights[t]
        if best[t] >= 0:
            classes[N_PREDICTED, best[t]] += 1
            class_weights[N_PREDICTED, best[t]] += row_weights[t]
            if confusion.shape[0] > 0:
                confusion[labels[t], best[t]] += 1
        _count_scores(P[t], known[t], labels[t], row_weights[t], scores, probability_sums)
    return size


@kernel
def count_values(X, is_number, n_before, counts, moments):
    """Count the values in every place; 0 is no value in what is no number, and NaN a gap."""
    for t in range(X.shape[0]):
        for j in range(X.shape[1]):
            value = X[t, j]
            if math.isnan(value):
                counts[GAPS, j] += not is_number[j]
                continue
            if value == 0.0 and not is_number[j]:
                continue
            n = counts[PRESENT, j]
            if n == 0:
                counts[FIRST, j] = n_before + t
            step = value - moments[MEAN, j]
            if n >= _MIN_VALUES_FOR_OUTLIERS:
                limit = OUTLIER_DEVIATIONS * math.sqrt(moments[SQUARES, j] / n)
                if 0.0 < limit < abs(step):
                    counts[OUTLIERS, j] += 1
                    step = math.copysign(limit, step)
            counts[PRESENT, j] = n + 1
            # Welford's recursion: no sum of squares, so a large offset costs no accuracy.
            moments[MEAN, j] += step / (n + 1)
            moments[SQUARES, j] += step * step * (n / (n + 1))


@kernel
def count_bins(X, is_number, edges, labels, bins, by_class):
    """Count the bin of each value of rows X (T, d): no value, or how many edges (d, 7) it is above.

    bins (d, 9) are of all rows, by_class (K, d, 9) of those of a class, unless it is empty.
    """
    for t in range(X.shape[0]):
        for j in range(X.shape[1]):
            value, at = X[t, j], NO_VALUE
            if not math.isnan(value) and (is_number[j] or value != 0.0):
                at = 1
                for i in range(N_EDGES):
                    at += value > edges[j, i]
            bins[j, at] += 1
            if by_class.shape[0] > 0:
                by_class[labels[t], j, at] += 1


@inner_kernel
def step_of_threshold(n):
    """Return the step after row n of a group: eta of docs/theory/sets.md."""
    return 0.01 if n > 678.0 else 0.5 * n**-0.6  # the larger of the two


@kernel
def follow_labels(p_label, groups, issued, miss_rates, thresholds):
    """Move the thresholds (5, C, G) by which sets, `issued` or of now, missed their label."""
    for t in range(p_label.size):
        score = min(max(1.0 - p_label[t], 0.0), 1.0)
        group = thresholds[:, :, groups[t]]
        for c in range(miss_rates.size):
            limit = issued[t, c] if issued.shape[0] > 0 else group[THRESHOLD, c]
            missed = 0.0 if score <= limit else 1.0
            group[ROWS, c] += 1.0
            group[MISSES, c] += missed
            step = step_of_threshold(group[ROWS, c])
            group[THRESHOLD, c] += step * (missed - miss_rates[c])
            group[LOWEST, c] = min(group[LOWEST, c], group[THRESHOLD, c])
            group[HIGHEST, c] = max(group[HIGHEST, c], group[THRESHOLD, c])
