"""Euclidean projection onto the class: the product over classes of balls of radius B."""

import math

from folklearn.kernels.compile import fast_kernel, kernel


@fast_kernel
def length(v):
    """Return |v|, also where the squares overflow; NaN if v is not finite."""
    total = 0.0
    for j in range(v.shape[0]):
        total += v[j] * v[j]
    if total < math.inf:
        return math.sqrt(total)
    top = 0.0
    for j in range(v.shape[0]):
        top = max(top, abs(v[j]))
    total = 0.0
    for j in range(v.shape[0]):
        total += (v[j] / top) ** 2
    return top * math.sqrt(total)


@kernel
def project_rows(W, B):
    """Shorten every row of W (K, d) to norm at most B; return how many were longer."""
    n_outside = 0
    for k in range(W.shape[0]):
        row = W[k]
        size = length(row)
        if size > B:
            n_outside += 1
            factor = B / size
            for j in range(row.shape[0]):
                row[j] *= factor
    return n_outside
