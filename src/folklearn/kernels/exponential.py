"""exp of many numbers at once, none of them positive: several times faster than one by one.

exp x = 2^k exp r with k = round(x / ln 2) and |r| <= ln(2)/2. Every loop is plain arithmetic on
contiguous arrays, so that it becomes vector instructions. Within 2 units in the last place;
below -700 the result is exp(-700). What a proof rests on calls `math.exp` instead (`evidence`).
"""

import numpy as np
from numba import carray

from folklearn.kernels.blas import address
from folklearn.kernels.compile import shared_kernel

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_MAGIC = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer in the last bits
_LEAST = -700.0
# 1/n! for n = 13 ... 2: the series is exact to 1e-17 for |r| <= ln(2)/2.
_C13, _C12, _C11, _C10 = 1 / 6227020800, 1 / 479001600, 1 / 39916800, 1 / 3628800
_C9, _C8, _C7, _C6, _C5 = 1 / 362880, 1 / 40320, 1 / 5040, 1 / 720, 1 / 120
_C4, _C3, _C2 = 1 / 24, 1 / 6, 1 / 2


@shared_kernel("void(vector, vector, integers)")
def exp_all(x, out, powers):
    """Write exp(x) into out, for x at most 0; out may be x. powers is int64 scratch."""
    n = x.shape[0]
    scales = carray(address(powers, 0), (n,), np.float64)  # `view` is slow to compile
    for i in range(n):
        here = x[i] if x[i] > _LEAST else _LEAST
        scales[i] = here * _LOG2_E + _MAGIC
    for i in range(n):
        here = x[i] if x[i] > _LEAST else _LEAST
        k = scales[i] - _MAGIC
        r = (here - k * _LN2_HIGH) - k * _LN2_LOW
        high = ((_C13 * r + _C12) * r + _C11) * r + _C10
        middle = (((high * r + _C9) * r + _C8) * r + _C7) * r + _C6
        low = (((middle * r + _C5) * r + _C4) * r + _C3) * r + _C2
        out[i] = 1.0 + (r + r * r * low)
    for i in range(n):
        powers[i] = (powers[i] + 1023) << 52
    for i in range(n):
        out[i] *= scales[i]
