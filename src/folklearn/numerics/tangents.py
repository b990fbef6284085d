"""Evidence of first order: planes that lie below the losses, added up, in any order.

For every distribution p over the classes (Fenchel's inequality for the logarithm of a sum of
exponentials), whoever made it,

    loss of W at (x, y)  >=  H(p) + <W x, p - y>,

so a sum of rows with weights w is a constant, sum of w H(p), and a matrix G, sum of
w (p - y) x'. Over all W of row norm at most B it is least at constant - B sum_i |G_i|, for
every B. This is `evidence` with gamma = 0: it needs no pairs and touches only the columns of x.
"""

import math

from folklearn.numerics.compile import kernel
from folklearn.numerics.evidence import CONSTANT, DEPTH, REACH, ROUNDS, WEIGHT


@kernel
def entropy(p):
    """Return -sum p ln p, where 0 ln 0 is 0."""
    total = 0.0
    for i in range(p.shape[0]):
        if p[i] > 0.0:
            total -= p[i] * math.log(p[i])
    return total


@kernel
def add_tangent(p, label, soft, weight, length, residual, totals):
    """Count a row of norm `length` whose plane touches at p (K,): write w (p - y) into residual.

    The caller adds residual x' to G. p sums to 1 up to rounding, which the floor allows for.
    """
    for i in range(p.shape[0]):
        given = soft[i] if label < 0 else (1.0 if i == label else 0.0)
        residual[i] = weight * (p[i] - given)
    totals[CONSTANT] += weight * entropy(p)
    totals[WEIGHT] += weight
    totals[REACH] += weight * length
    totals[DEPTH] += 1.0
    totals[ROUNDS] += 1.0


def floor(totals, pulls, n_columns, B):
    """Return what no model of row norm at most B goes below, given the norms (K,) of G's rows.

    Rounding: every term of the constant and of G went through at most DEPTH additions, p may be
    off by K + 20 units in the last place, and a norm adds up `n_columns` squares.
    """
    K = pulls.shape[0]
    kappa = 1.01 * 2.0**-53 * (totals[DEPTH] + K * K + n_columns + 60.0)
    log_K = math.log(K)
    rounding = kappa * ((1.0 + log_K) ** 2 * totals[WEIGHT] + abs(totals[CONSTANT]))
    total = float(pulls.sum())
    pull = total + kappa * (total + K * (2.0 + 3.0 * log_K) * totals[REACH])
    return max(0.0, float(totals[CONSTANT]) - rounding - B * pull * (1.0 + 1e-15 * K))
