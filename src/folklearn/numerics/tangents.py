"""Evidence of first order: planes that lie below the losses, added up, in any order.

For every distribution p over the classes (Fenchel's inequality for the logarithm of a sum of
exponentials), whoever made it,

    loss of W at (x, y)  >=  H(p) + <W x, p - y>,

so a sum of rows with weights w is a constant, sum of w H(p), and a matrix G, sum of
w (p - y) x'. Over all W of row norm at most B it is least at constant - B sum_i |G_i|, for
every B. This is `evidence` with gamma = 0: it needs no pairs and touches only the columns of x.
"""

import math

import numpy as np

from folklearn.arrays import Array
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


def value(totals: Array, G: Array, W: Array) -> float:
    """Return what the total loss of one model W (K, d) is not below: the planes at W, rounded.

    Rounding: as in `floor`, of which this is the case of W's longest row, and of K d products.
    """
    terms = G * W
    pulls, lengths = np.sqrt((G * G).sum(axis=1)), np.sqrt((W * W).sum(axis=1))
    kappa, rounding = _rounding(totals, *G.shape)
    pull = kappa * _slack(totals, pulls) * float(lengths.max())
    product = 1.01 * 2.0**-53 * (G.size + 2.0) * float(np.abs(terms).sum())
    rounding = (rounding + pull + product) * (1.0 + 1e-14 * G.size)
    return max(0.0, float(totals[CONSTANT]) + float(terms.sum()) - rounding)


def floor(totals: Array, pulls: Array, n_columns: int, B: float) -> float:
    """Return what no model of row norm at most B goes below, given the norms (K,) of G's rows.

    Rounding: every term of the constant and of G went through at most DEPTH additions, p may be
    off by K + 20 units in the last place, and a norm adds up `n_columns` squares.
    """
    K = len(pulls)
    kappa, rounding = _rounding(totals, K, n_columns)
    pull = float(pulls.sum()) + kappa * _slack(totals, pulls)
    below = float(totals[CONSTANT]) - rounding
    return max(0.0, below - B * pull * (1.0 + 1e-15 * K))


def _rounding(totals: Array, K: int, n_columns: int) -> tuple[float, float]:
    """Return the relative rounding of every sum, and what it makes of the constant."""
    kappa = 1.01 * 2.0**-53 * (float(totals[DEPTH]) + K * K + n_columns + 60.0)
    size = (1.0 + math.log(K)) ** 2 * float(totals[WEIGHT]) + abs(float(totals[CONSTANT]))
    return kappa, kappa * size


def _slack(totals: Array, pulls: Array) -> float:
    """Return what the norms of G's rows can be off by in all, per unit of relative rounding."""
    K = len(pulls)
    return float(pulls.sum()) + K * (2.0 + 3.0 * math.log(K)) * float(totals[REACH])
