"""Types of arrays, softmax and log losses in NumPy."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]  # class numbers

TINY = 1e-300  # the least probability whose logarithm is taken: every loss is finite


def softmax(Z: Array) -> Array:
    """Return softmax of the last axis; a common shift of the logits changes nothing."""
    P: Array = np.exp(Z - Z.max(axis=-1, keepdims=True))
    P /= P.sum(axis=-1, keepdims=True)
    return P


def log_losses(P: Array, labels: Labels, soft: Array, min_probability: float = 0.0) -> Array:
    """Return -ln of what the rows P (..., T, K) gave their labels, (..., T).

    Labels are classes (T,), or soft (T, K) where it has rows. A smaller
    probability counts as `min_probability`; if that is 0, a label of probability 0 costs infinity.
    For a soft label y it is -sum y_k ln p_k, where 0 ln 0 is 0.
    """
    with np.errstate(divide="ignore"):
        if not len(soft):
            label_P = P[..., np.arange(P.shape[-2]), labels]
            return -np.log(np.maximum(label_P, min_probability))
        costs = -np.log(np.maximum(P, min_probability))
    terms = np.multiply(soft, costs, out=np.zeros_like(costs), where=soft > 0.0)
    return terms.sum(axis=-1)


def logit_losses(Z: Array, labels: Labels, soft: Array) -> Array:
    """Return logsumexp(z) - <y, z> of the rows of logits Z (T, K), labels as in `log_losses`.

    The largest logit is taken out, and what is left are two terms that are not negative: a loss of
    1e-20 has all its digits, which it needs where weights are large.
    """
    shifted = Z - Z.max(axis=1, keepdims=True)  # the loss ignores a shift, rounding does not
    each = np.arange(len(Z))
    if len(soft):
        label_logits: Array = np.einsum("tk,tk->t", soft, shifted)
    else:
        label_logits = shifted[each, labels]
    others = np.exp(shifted)
    others[each, shifted.argmax(axis=1)] = 0.0
    return np.log1p(others.sum(axis=1)) - label_logits
