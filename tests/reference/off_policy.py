"""Off-policy estimates by loops over the rounds, straight from the definitions.

Lists in, numbers out: P[t][k] the policy, a[t] the action, p[t] its propensity, r[t] from 0 to 1.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from folklearn import Folklore

Rows = Sequence[Sequence[float]]
Numbers = Sequence[float]


def weights(P: Rows, a: Sequence[int], p: Numbers) -> list[float]:
    return [P[t][a[t]] / p[t] for t in range(len(a))]


def ips_terms(P: Rows, a: Sequence[int], p: Numbers, r: Numbers) -> list[float]:
    return [w * r[t] for t, w in enumerate(weights(P, a, p))]


def dr_terms(P: Rows, a: Sequence[int], p: Numbers, r: Numbers, q: Rows) -> list[float]:
    terms = []
    for t, w in enumerate(weights(P, a, p)):
        modelled = sum(P[t][k] * q[t][k] for k in range(len(P[t])))
        terms.append(modelled + w * (r[t] - q[t][a[t]]))
    return terms


def mean(terms: Numbers) -> float:
    return sum(terms) / len(terms)


def sample_variance(terms: Numbers) -> float:
    """1 / (2 n (n - 1)) times the sum of (v_i - v_j)^2 over all i, j."""
    n = len(terms)
    return sum((u - v) ** 2 for u in terms for v in terms) / (2 * n * (n - 1))


def std_error(terms: Numbers) -> float:
    return sqrt(sample_variance(terms) / len(terms))


def effective_size(P: Rows, a: Sequence[int], p: Numbers) -> float:
    w = weights(P, a, p)
    return sum(w) ** 2 / sum(one**2 for one in w)


def reward_model(
    X: Rows, a: Sequence[int], r: Numbers, n_actions: int, n_blocks: int
) -> list[list[float]]:
    """Round by round: learn everything from the blocks before that of the round, anew."""
    T = len(a)
    edges = [T * block // n_blocks for block in range(n_blocks + 1)]
    Z = (np.array(X) - np.mean(X, axis=0)) / np.std(X, axis=0)
    q = []
    for t in range(T):
        known = max(edge for edge in edges if edge <= t)
        row = []
        for k in range(n_actions):
            rounds = [s for s in range(known) if a[s] == k]
            model = Folklore(n_features=len(X[t]) + 1, n_classes=2)
            for s in rounds:
                model.update([*Z[s], 1.0], [1.0 - r[s], r[s]])
            others = mean(r[:known]) if known else 0.5
            row.append(model.predict([*Z[t], 1.0])[1] if rounds else others)
        q.append(row)
    return q
