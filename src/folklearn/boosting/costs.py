"""Cost matrices: C[y, k] is what saying k costs if y is true; the true label comes first.

They are gradients, shifted to zero on the diagonal, which makes them non-negative. The weak
learning condition asks for rows of an L1 norm of at most 1; boosters divide where it is more.
"""

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels import boosting as kernels


def logistic_costs(s: ArrayLike) -> Array:
    r"""Return the costs (K, K) of AdaBoost.OLM++ for scores s (K,).

    The gradient of :math:`-\ln \sigma_y` at s, shifted to zero at y and divided by K:

    .. math:: C(y, k) = (\sigma_k + 1 - \sigma_y) / K \quad (k \ne y), \qquad C(y, y) = 0

    Row y has the L1 norm :math:`1 - \sigma_y` exactly.

    Examples
    --------
    >>> logistic_costs([0.0, 0.0])
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    C: Array = kernels.logistic_costs(_scores(s))
    return C


def pairwise_costs(s: ArrayLike) -> Array:
    r"""Return the costs (K, K) of AdaBoost.OLM for scores s (K,).

    The gradient of :math:`\sum_{k \ne y} \ln(1 + e^{s_k - s_y})`, shifted to zero at y:

    .. math:: C(y, k) = c_k + \sum_{j \ne y} c_j, \qquad
        c_k = 1 / (1 + e^{s_y - s_k}) \quad (k \ne y), \qquad C(y, y) = 0

    Row y has the L1 norm :math:`K \sum_{j \ne y} c_j`, at most K (K-1).

    Examples
    --------
    >>> pairwise_costs([0.0, 0.0])
    array([[0., 1.],
           [1., 0.]])
    """
    C: Array = kernels.pairwise_costs(_scores(s))
    return C


def _scores(s: ArrayLike) -> Array:
    s = validation.numbers("s", s)
    if s.ndim != 1 or len(s) < 2 or not np.isfinite(s).all():
        raise InvalidInputError(f"s must hold at least two finite scores, got {s!r}")
    return s
