"""Equal-weight points for expectations over a standard Gaussian in few dimensions."""

import numpy as np

from folklearn.arrays import Array

MOST_POINTS = 2**20


def prediction_nodes(n_points: int | None, k: int, seed: int) -> Array:
    """Return the nodes of an implicit rule; none at all for None, the softmax at the mean."""
    return np.zeros((0, k)) if n_points is None else gaussian_nodes(n_points, k, seed)


def gaussian_nodes(n_points: int, k: int, seed: int) -> Array:
    """Return n_points (rounded up to even) points in k dimensions, symmetric about 0.

    One dimension: the midpoints of equally likely intervals. More: scrambled Sobol points
    and their mirror images, so that odd functions integrate exactly.
    """
    from scipy.special import ndtri  # slow to import, and so is `scipy.stats`

    half = (n_points + 1) // 2
    if k == 1:
        positive = ndtri(0.5 + (np.arange(half) + 0.5) / (2 * half))[:, None]
    else:
        from scipy.stats import qmc

        sampler = qmc.Sobol(k, scramble=True, rng=np.random.default_rng(seed))
        power = max(half - 1, 1).bit_length()  # Sobol points are balanced in powers of two
        positive = ndtri(np.clip(sampler.random_base2(power)[:half], 1e-12, 1 - 1e-12))
    return np.concatenate([positive, -positive])
