"""Evidence of first order: sums of planes that lie below the losses.

For every distribution p over the classes (Fenchel's inequality for the logarithm of a sum of
exponentials)

    loss of W at (x, y)  >=  H(p) + <W x, p - y>,

so a sum of rows with weights w is a constant, sum of w H(p), and a matrix G, sum of
w (p - y) x'. Over all W of row norm at most B it is least at constant - B sum_i |G_i|, for
every B. This is `evidence` with gamma = 0: it needs no pairs and touches only the columns of x.
"""

import math

import numpy as np

from folklearn.arrays import Array
from folklearn.kernels.compile import kernel
from folklearn.kernels.evidence import (
    CONSTANT,
    DEPTH,
    MIN_TOTAL_WEIGHT,
    REACH,
    ROUNDS,
    WEIGHT,
)


@kernel
def entropy(p):
    """Return -sum p ln p, where 0 ln 0 is 0."""
    total = 0.0
    for i in range(p.shape[0]):
        if p[i] > 0.0:
            total -= p[i] * math.log(p[i])
    return total


@kernel
def count_plane(totals, uncertainty, weight, length):
    """Count a row of norm `length` whose plane touches where the entropy is `uncertainty`."""
    totals[CONSTANT] += weight * uncertainty
    totals[WEIGHT] += weight
    totals[REACH] += weight * length
    totals[DEPTH] += 1.0
    totals[ROUNDS] += 1.0


@kernel
def add_tangent(p, label, soft, weight, length, residual, totals):
    """Count a row of norm `length` whose plane touches at p (K,): write w (p - y) into residual.

    The caller adds residual x' to G. p sums to 1 up to rounding, which the lower bound allows for.
    """
    for i in range(p.shape[0]):
        y = soft[i] if label < 0 else (1.0 if i == label else 0.0)
        residual[i] = weight * (p[i] - y)
    count_plane(totals, entropy(p), weight, length)


@kernel
def add_rows(G, totals, P, indptr, places, values, labels, soft, weights, norms):
    """Add rows whose planes touch at P (m, K); G (columns, K) is met at `places`."""
    K = P.shape[1]
    residual = np.empty(K)
    no_label = np.empty(0)
    for t in range(P.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        add_tangent(P[t], labels[t], y, weights[t], norms[t], residual, totals)
        for a in range(indptr[t], indptr[t + 1]):
            row = G[places[a]]
            for k in range(K):
                row[k] += values[a] * residual[k]


def _kappa(totals: Array, K: int, n_columns: int) -> float:
    """Return the relative rounding of what was added up.

    Every term of the constant and of G went through at most DEPTH additions, p may be off by
    K + 20 units in the last place, and a norm or a product adds up `n_columns` terms.
    """
    return float(1.01 * 2.0**-53 * (totals[DEPTH] + K * K + n_columns + 60.0))


def _constant(totals: Array, K: int, kappa: float) -> float:
    """Return the constant, rounded down."""
    room = (1.0 + math.log(K)) ** 2 * totals[WEIGHT] + abs(totals[CONSTANT])
    return float(totals[CONSTANT] - kappa * room)


def lower_bound(totals: Array, pulls: Array, n_columns: int, B: float) -> float:
    """Return a lower bound for all models of row norm at most B; `pulls` (K,) are norms of G."""
    if not totals[WEIGHT] >= MIN_TOTAL_WEIGHT:
        return 0.0
    K = len(pulls)
    kappa = _kappa(totals, K, n_columns)
    reach = K * (2.0 + 3.0 * math.log(K)) * float(totals[REACH])
    pull = float(pulls.sum()) * (1.0 + kappa) + kappa * reach
    return max(0.0, _constant(totals, K, kappa) - B * pull * (1.0 + 1e-15 * K))


def penalised_lower_bound(totals: Array, G: Array, tau: Array) -> float:
    """Return a lower bound on loss plus penalty of every model, of any norm.

    The penalty is 1/2 sum tau_j W_ij^2; G is (columns, K), tau (columns,) and positive.
    """
    if not totals[WEIGHT] >= MIN_TOTAL_WEIGHT:
        return 0.0
    n_columns, K = G.shape
    kappa = _kappa(totals, K, n_columns * K)
    rounding = kappa * (2.0 + 3.0 * math.log(K)) * float(totals[REACH])
    bent = 0.5 * float((((np.abs(G) + rounding) ** 2).sum(axis=1) / tau).sum()) * (1.0 + kappa)
    return max(0.0, _constant(totals, K, kappa) - bent)


def value(totals: Array, G: Array, W: Array, longest: float) -> float:
    """Return a lower bound on the loss of one model; G and W are (columns, K)."""
    if not totals[WEIGHT] >= MIN_TOTAL_WEIGHT:
        return 0.0
    n_columns, K = len(G), int(G.shape[1])
    kappa = _kappa(totals, K, n_columns * K)
    products = G * W
    reach = K * (2.0 + 3.0 * math.log(K)) * float(totals[REACH])
    room = kappa * (float(np.abs(products).sum()) + reach * longest) * (1.0 + 1e-15 * K)
    return max(0.0, _constant(totals, K, kappa) + float(products.sum()) - room)
