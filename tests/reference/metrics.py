"""The life of a model, counted from all of its rows at once, and slowly."""

import math
from bisect import bisect

import numpy as np

FIRST_SIZE, N_PIECES, N_BINS = 32, 64, 10
FAR, FEW = 5.0, 32


def segments(rows):
    """Rows are (p of known classes with the rest of 1 unseen, chance, label, weight, frozen)."""
    size = FIRST_SIZE
    while len(rows) > N_PIECES * size:
        size *= 2
    found = []
    for start in range(0, len(rows), size):
        own = rows[start : start + size]
        loss = math.fsum(-weight * math.log(chance) for _, chance, _, weight, _ in own)
        n_errors = sum(not right(p, label) for p, _, label, *_ in own)
        found.append(
            (start, start + len(own), loss, n_errors, math.fsum(row[3] for row in own), own[-1][4])
        )
    return found


def right(p, label):
    return len(p) > 0 and max(range(len(p)), key=lambda k: (p[k], -k)) == label


def confusion(rows, K):
    table = np.zeros((K, K), int)
    for p, _, label, *_ in rows:
        if len(p):
            table[label, int(np.argmax(p))] += 1
    return table


def calibration(rows, K):
    table = np.zeros((3, K, N_BINS))
    for p, _, label, weight, *_ in rows:
        for k, given in enumerate(p):
            at = min(int(given * N_BINS), N_BINS - 1)
            table[:, k, at] += weight * np.array([1.0, given, k == label])
    return table


_TAIL = [0.1 / 2.0 ** (16.0 - i / 6.0) for i in range(1, 96)]  # six bins for each half
_EDGES = [*_TAIL, *(i / 100.0 for i in range(10, 91)), *(1.0 - edge for edge in reversed(_TAIL))]


def place(p):
    """The bin of a probability; within one they are taken as equal."""
    return bisect(_EDGES, p)


def auc(rows, k):
    """Over all pairs of a row of the class and one of another, that were given k's probability."""
    scores = [(place(p[k]), label == k, w) for p, _, label, w, *_ in rows if k < len(p)]
    own = [(score, w) for score, is_own, w in scores if is_own]
    others = [(score, w) for score, is_own, w in scores if not is_own]
    wins = sum(v * w * ((a > b) + 0.5 * (a == b)) for a, v in own for b, w in others)
    pairs = sum(w for _, w in own) * sum(w for _, w in others)
    return wins / pairs if own and others else math.nan


def average_precision(rows, k):
    """Precision at every threshold, weighted by the recall that is added there."""
    scores = [(place(p[k]), label == k, w) for p, _, label, w, *_ in rows if k < len(p)]
    total, average = sum(w for _, is_own, w in scores if is_own), 0.0
    if not total or total == sum(w for *_, w in scores):
        return math.nan
    for at in {score for score, *_ in scores}:
        above = sum(w for score, _, w in scores if score >= at)
        own = sum(w for score, is_own, w in scores if is_own and score >= at)
        added = sum(w for score, is_own, w in scores if is_own and score == at)
        average += own / above * added / total
    return average


def outliers(values):
    """Count numbers far from those before; one that is counts as if it lay at the limit."""
    seen, n_far = [], 0
    for value in values:
        if not math.isnan(value):
            mean, deviation = (np.mean(seen), np.std(seen)) if seen else (0.0, 0.0)
            limit = FAR * deviation
            if len(seen) >= FEW and 0.0 < limit < abs(value - mean):
                n_far += 1
                value = mean + math.copysign(limit, value - mean)
            seen.append(value)
    return n_far
