"""Prediction sets straight from docs/theory/sets.md: one coverage, all rows, sums are loops."""


def step(t):
    return max(0.5 * t**-0.6, 0.01)


def follow(scores, alpha, issued=None):
    """Return thresholds q_1, ..., q_{T+1} and the misses of scores (T,) of labels, in order.

    `issued` has for every label the number of labels that had come when its set was made; without
    it each label comes at once.
    """
    q, misses = [1.0], []
    for t, score in enumerate(scores):
        limit = q[t if issued is None else issued[t]]
        misses.append(0 if score <= limit else 1)
        q.append(q[-1] + step(t + 1) * (misses[-1] - alpha))
    return q, misses


def bound(T, D=0):
    """How far the miss rate of T labels is from alpha at most, if up to D others wait."""
    return (1.0 + (D + 1) * step(1)) / (step(T) * T)
