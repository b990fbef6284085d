"""Weights of rows by their classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.model.labels import Labels

BALANCED = "balanced"

Given = Mapping[Any, float] | str | None


def check_usable(given: Any) -> None:
    """Raise unless it is None, weights by label, or "balanced"."""
    if not (given is None or isinstance(given, Mapping) or given == BALANCED):
        raise InvalidInputError(f'class_weight must be None, a dict or "balanced", got {given!r}')


def balanced(counts: Mapping[Any, int]) -> dict[Any, float]:
    """Return weights that make all classes count alike."""
    total = sum(counts.values())
    return {label: total / (len(counts) * count) for label, count in counts.items()}


def weighed(given: Given, labels: Sequence[Any], numbers: Any, weights: Array) -> tuple[Any, Array]:
    r"""Return class numbers (T,) or soft labels (T, K), and weights with those of classes in them.

    A soft label y counts as what is expected of hard ones: the soft label
    :math:`y_k w_k / w` with the weight :math:`w = \sum_k y_k w_k`.
    """
    if given is None:
        return numbers, weights
    if isinstance(given, str):
        raise InvalidInputError(
            'class_weight="balanced" needs to see all labels first: use `fit`, `run` over a '
            "file or a frame, or give the weights as a dictionary"
        )
    factors = np.array([validation.weight(given.get(label, 1.0)) for label in labels])
    if np.ndim(numbers) == 1:
        return numbers, weights * factors[numbers]
    shares = numbers * factors[: numbers.shape[1]]
    totals = shares.sum(axis=1, keepdims=True)
    shares = np.divide(shares, totals, out=np.array(numbers, float), where=totals > 0.0)
    return shares, weights * totals[:, 0]


def plain(given: Given) -> Any:
    """Return them as JSON holds them."""
    if not isinstance(given, Mapping):
        return given
    labels = Labels()
    labels.admit(given)
    return [labels.plain(), [float(weight) for weight in given.values()]]


def of_plain(plain: Any) -> Given:
    """Return what `plain` gave."""
    if not isinstance(plain, list):
        return plain  # type: ignore[no-any-return]
    keys, values = plain
    return dict(zip(Labels.of_plain(keys).kept, values, strict=True))
