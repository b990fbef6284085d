"""The life of a model, counted from all of its rows at once, and slowly."""

import math

import numpy as np

FIRST_SIZE, N_PIECES, N_BINS, N_SCORES = 32, 64, 10, 100
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
    for p, _, label, *_ in rows:
        for k, given in enumerate(p):
            at = min(int(given * N_SCORES), N_SCORES - 1) // (N_SCORES // N_BINS)
            table[:, k, at] += [1.0, given, k == label]
    return table


def auc(rows, k):
    """Over all pairs of a row of the class and one of another, that were given k's probability."""
    scores = [
        (min(int(p[k] * N_SCORES), N_SCORES - 1), label == k)
        for p, _, label, *_ in rows
        if k < len(p)
    ]
    own = [score for score, is_own in scores if is_own]
    others = [score for score, is_own in scores if not is_own]
    wins = sum((a > b) + 0.5 * (a == b) for a in own for b in others)
    return wins / (len(own) * len(others)) if own and others else math.nan


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
