"""Gaussian naive Bayes on weighted running moments, O(K d) a round."""

import math

from folklearn.kernels.compile import kernel
from folklearn.kernels.simplex import softmax

# Of the variance of a feature: a class in which the feature has not varied yet would else be
# the more certain of it the more examples it has, and every constant feature would vote for
# the most frequent class.
_LEAST_SHARE = 0.1


@kernel
def add_moments(mass, mean, spread, x, y, weight):
    """Add one example to the mass (K,), mean (K, d) and sum of squares around it (K, d)."""
    mass[y] += weight
    share = weight / mass[y]
    for j in range(x.shape[0]):
        away = x[j] - mean[y, j]
        mean[y, j] += share * away
        spread[y, j] += weight * away * (x[j] - mean[y, j])


@kernel
def class_probabilities(mass, mean, spread, x, p):
    """Write the posterior of the classes into p (K,).

    All classes together start from one imagined example of mean 0 and variance 1, and every
    class from one imagined example with the moments of all classes together.
    """
    K, d = mean.shape
    n = mass.sum()
    for k in range(K):
        p[k] = math.log((mass[k] + 1.0) / (n + K))
    for j in range(d):
        centre = 0.0
        for k in range(K):
            centre += mass[k] * mean[k, j]
        centre /= n + 1.0
        variance = 1.0 + centre * centre
        for k in range(K):
            variance += spread[k, j] + mass[k] * (mean[k, j] - centre) ** 2
        variance /= n + 1.0
        for k in range(K):
            share = mass[k] / (mass[k] + 1.0)
            away = mean[k, j] - centre
            own = (variance + spread[k, j]) / (mass[k] + 1.0) + share * away * away / (
                mass[k] + 1.0
            )
            own = max(own, _LEAST_SHARE * variance)
            gap = x[j] - centre - share * away
            p[k] -= 0.5 * (math.log(own) + gap * gap / own)
    softmax(p, p)
