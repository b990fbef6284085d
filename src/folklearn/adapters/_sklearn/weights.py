"""Weights of rows: sample weight times class weight."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from folklearn import problem
from folklearn.adapters._sklearn.labels import Labels, Target
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError


def weighted(
    target: Target, known: Labels, sample_weight: Any, class_weight: Any
) -> tuple[Target, Array]:
    r"""Return the target to learn, and the weight of every row.

    The weighted loss of a soft label y is what is expected of its hard ones,

    .. math:: \sum_k y_k w_k (-\ln p_k) = w \sum_k y'_k (-\ln p_k), \qquad w = \sum_k y_k w_k,

    that is the loss of the soft label :math:`y'_k = y_k w_k / w` with the weight w.
    """
    if np.isscalar(sample_weight):
        sample_weight = np.full(len(target), sample_weight)
    weights = problem.weights(sample_weight, len(target))
    if class_weight is None:
        return target, weights
    factors = _factors(target, known, weights, class_weight)
    if target.ndim == 1:
        return target, problem.weights(weights * factors[target], len(target))
    shares = target * factors
    totals = shares.sum(axis=1, keepdims=True)
    shares = np.divide(shares, totals, out=target.copy(), where=totals > 0.0)
    return shares, problem.weights(weights * totals[:, 0], len(target))


def _factors(target: Target, known: Labels, weights: Array, class_weight: Any) -> Array:
    """Return the weight of every class, by number."""
    K = len(known)
    if isinstance(class_weight, Mapping):
        return np.array([problem.weight(class_weight.get(label, 1)) for label in known.tolist()])
    if not isinstance(class_weight, str) or class_weight != "balanced":
        raise InvalidInputError(
            f'class_weight must be None, a dict or "balanced", got {class_weight!r}'
        )
    totals = np.bincount(target, weights, K) if target.ndim == 1 else weights @ target
    factors = np.zeros(K)
    np.divide(totals.sum() / K, totals, out=factors, where=totals > 0.0)
    return factors


def refuse_unknown_names(class_weight: Any, known: Labels) -> None:
    """Raise if class_weight leaves out a label and names one that is not there: a slip."""
    if isinstance(class_weight, Mapping):
        labels = set(known.tolist())
        strangers = [label for label in class_weight if label not in labels]
        if strangers and not labels <= set(class_weight):
            raise InvalidInputError(f"class_weight names {strangers}, which y does not hold")
