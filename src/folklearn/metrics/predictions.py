"""`PredictionBatch`: what was predicted for rows before their labels were known."""

import math
from typing import Any, NamedTuple, Self

import numpy as np

from folklearn.arrays import TINY, Array, log_losses
from folklearn.arrays import Labels as Numbers
from folklearn.utils import count_of


class PredictionBatch(NamedTuple):
    """Rows with what was predicted for them before their labels were known."""

    P: Array  #: (T, K) probabilities of the classes known then, which share 1 - unseen
    unseen: Array  #: (T,) probability of a class that was never seen; 0 if all are declared
    labels: Numbers  #: (T,) the most likely class of a soft label; -1 without a known label
    p_label: Array  #: (T,) probability of the label; of a soft label exp(-loss), NaN without one
    weights: Array  #: (T,)
    predicted: Numbers  #: (T,) the most likely class, or what costs decide for; -1 without one
    # Of rows that were learned also:
    targets: Any = None  #: (T,) class numbers, or soft labels (T, K)
    new_mass: Any = None  #: (T,) share of the label that is of classes not known
    known: Any = None  #: (T,) number of classes known
    holdout: Any = None  #: (T,) hold-out loss of the model by then, NaN if not measured
    values: Any = None  #: (T, d) encoded values, place by place
    absent: Any = None  #: (d,) an encoded row without values: NaN for numbers with a name
    encoded: Any = None  #: the rows as the encoder gives them
    row_weights: Any = None  #: (T,) the weights without those of classes

    @classmethod
    def of_predictions(
        cls, P: Array, unseen: Array, labels: Numbers, weights: Array, predicted: Numbers
    ) -> Self:
        """Make a batch of rows that are not learned; P (T, K) are outright, K is a new class."""
        (n, K), nothing = P.shape, np.zeros((len(P), 0))
        p_label = np.column_stack([P, unseen])[np.arange(n), labels]
        return cls(
            P, unseen, labels, p_label, weights, predicted, labels, 1.0 * (labels == K),
            np.full(n, K), np.full(n, math.nan), nothing, np.zeros(0), None, weights,
        )  # fmt: skip

    @classmethod
    def of(
        cls,
        P: Array,
        unseen: Array,
        targets: Any,
        known: Numbers,
        weights: Array,
        holdout: Array,
        values: Any,
        absent: Array,
    ) -> Self:
        """Make a batch of P (T, K), the probabilities given that the class is known."""
        P_outright = P * (1.0 - unseen)[:, None]
        if targets.ndim == 2:
            labels, soft = targets.argmax(axis=1), targets[:, : P.shape[1]]
            is_known = np.arange(P.shape[1]) < known[:, None]
            new_mass = np.where(is_known, 0.0, soft).sum(axis=1)
            cost_of_new = -np.log(np.maximum(unseen, TINY))
            cost_of_known = -np.log1p(-np.where(unseen >= 1.0, 0.0, unseen))
            losses = new_mass * cost_of_new + (1.0 - new_mass) * cost_of_known
            losses += log_losses(P, labels, np.where(is_known, soft, 0.0), TINY)
            p_label = np.exp(-losses)
        else:
            labels, is_old = targets, targets < known
            p_label, new_mass = unseen.copy(), (~is_old).astype(np.float64)
            p_label[is_old] = P_outright[is_old, labels[is_old]]
        predicted = np.where(known > 0, P.argmax(axis=1) if P.shape[1] else -1, -1)
        return cls(
            P_outright, unseen, labels, p_label, weights, predicted, targets, new_mass, known,
            holdout, np.require(values, np.float64, ["C", "W"]),  # as the kernel is compiled for
            absent, row_weights=weights,
        )  # fmt: skip

    @property
    def losses(self) -> Array:
        """The unweighted log losses (T,), NaN of rows without a label."""
        return -np.log(np.maximum(self.p_label, TINY))

    def __repr__(self) -> str:
        is_labelled = self.labels >= 0
        n, n_labelled = len(self.P), np.count_nonzero(is_labelled)
        if not n_labelled:
            return f"PredictionBatch of {count_of(n, 'row')}"
        loss = float(self.losses[is_labelled].mean())
        error = np.mean((self.predicted != self.labels)[is_labelled])
        return f"PredictionBatch of {count_of(n, 'row')}: loss {loss:.4f}, error {error:.1%}"


def probability_of_label(p: Array, label: int, unseen: float) -> float:
    """Return what p (K,) gave a label; the classes known share 1 - unseen."""
    return unseen if label >= p.size else float(p[label]) * (1.0 - unseen)


def log_loss(p_label: float) -> float:
    """Return the loss in nats of a prediction that gave the label this probability."""
    return -math.log(max(p_label, TINY))
