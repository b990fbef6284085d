"""The certificate of anybody's predictions: what could a linear model have gained on them?"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.arrays import log_losses
from folklearn.certificate import Certificate
from folklearn.evaluate.probabilities import checked_row, checked_rows
from folklearn.learners.base import Progress
from folklearn.learners.folklore import Folklore
from folklearn.persist import Record, Saved

Array = NDArray[np.float64]

_PREFIX = "surrogate."
_LOSS, _N_IMPOSSIBLE, _FIRST_IMPOSSIBLE, _N_TOTALS = range(4)


@dataclass(frozen=True)
class PredictionCertificate(Certificate):
    """A certificate whose loss is that of the predictions that were observed.

    If a label was given probability 0, the loss and the regret bound are infinite; that is
    the truth, so the certificate is valid, and `reason` says which round it was.
    `best_linear_at_least` is a property of the stream and stays finite.

    Attributes
    ----------
    linear_at_least : what `best_linear_at_least` returns.
    """

    linear_at_least: float = -math.inf

    def _is_finite(self) -> bool:
        return math.isfinite(self.linear_at_least) and not math.isnan(self.loss)

    @property
    def best_linear_at_least(self) -> float:
        """A lower bound on the total loss of the best model of the class in hindsight."""
        return self.linear_at_least


class Certifier(Saved):
    r"""Certify the predictions of any model: River, VW, a neural network, a person.

    Show it every context, label and prediction; it says how much better any linear model of
    row norm at most B could have done in hindsight. A negative bound proves that the
    predictions beat every such model.

    A `Folklore` learns the same stream beside them. Its surrogate losses lie below the losses
    of every linear model, whoever predicts, so with
    :math:`\hat L_t = \lambda\|\cdot\|^2 + \sum_{s \le t} \hat\ell_s`, for *any* predictions,

    .. math::
        \mathrm{Regret}(W) \le \lambda \|W\|_F^2
        + \sum_t \left[-\ln p_t(y_t) - (\min \hat L_t - \min \hat L_{t-1})\right]

    Summed up: their loss, less what Folklore's own certificate leaves for the best model.

    Time and memory per round are those of `Folklore`; `observe_many` is far faster than
    single rounds.

    Parameters
    ----------
    n_features, n_classes, B, R, lam : as in `Folklore`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3)) / 2
    >>> y = (X[:, 0] + 0.3 * rng.logistic(size=1000) > 0).astype(int)
    >>> certifier = Certifier(n_features=3, n_classes=2)
    >>> losses = certifier.observe_many(X, y, np.full((1000, 2), 0.5))  # a constant predictor
    >>> certificate = certifier.certificate()
    >>> round(certificate.loss / 1000, 4), certificate.best_linear_at_least > 300
    (0.6931, True)
    """

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        lam: float | None = None,
    ) -> None:
        surrogate = Folklore(n_features=n_features, n_classes=n_classes, B=B, R=R, lam=lam)
        self.n_features = surrogate.n_features
        self.n_classes = surrogate.n_classes
        self.B = surrogate.B
        self.R = surrogate.R
        self.lam = surrogate.lam
        self._surrogate = surrogate
        self._totals: Array = np.zeros(_N_TOTALS)

    def observe(self, x: ArrayLike, y: Any, p: ArrayLike, weight: float = 1.0) -> float:
        """Take in one round; return the log loss -ln p[y] of the prediction, unweighted.

        y is a class or a soft label, p (K,) the prediction. Everything is checked before
        anything changes.
        """
        p = checked_row(p, self.n_classes)
        label, soft = problem.label(y, self.n_classes)
        weight = problem.weight(weight)
        rows = soft[None, :] if soft.size else np.empty((0, self.n_classes))
        losses = log_losses(p[None, :], np.array([label]), rows)
        before = self.n_rounds
        self._surrogate.update(x, y, weight=weight)
        self._count(losses, np.array([weight]), before)
        return float(losses[0])

    def observe_many(
        self,
        X: ArrayLike,
        y: ArrayLike,
        P: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        progress: Progress = False,
    ) -> Array:
        """Take in rounds X (T, d), y (T,) or (T, K), P (T, K); return their losses (T,).

        Equal to the loop over `observe`. Every row is checked before the first round.
        """
        X, _ = problem.contexts(X, self.n_features)
        labels, soft = problem.labels(y, len(X), self.n_classes)
        P = checked_rows(P, len(X), self.n_classes)
        weights = problem.weights(weight, len(X))
        losses = log_losses(P, labels, soft)
        before = self.n_rounds
        self._surrogate.run(X, soft if len(soft) else labels, weight=weights, progress=progress)
        self._count(losses, weights, before)
        return losses

    def _count(self, losses: Array, weights: Array, before: int) -> None:
        counted = weights > 0.0  # 0 times infinity is 0 here: the round does not count
        impossible = np.flatnonzero(np.isinf(losses) & counted)
        if impossible.size and not self._totals[_N_IMPOSSIBLE]:
            self._totals[_FIRST_IMPOSSIBLE] = before + impossible[0]
        self._totals[_N_IMPOSSIBLE] += impossible.size
        self._totals[_LOSS] += weights[counted] @ losses[counted]

    @property
    def n_rounds(self) -> int:
        """The number of rounds so far."""
        return self._surrogate.n_rounds

    @property
    def surrogate(self) -> Certificate:
        """The certificate of the Folklore that learns beside: what it would have achieved."""
        return self._surrogate.certificate()

    def certificate(
        self, W: ArrayLike | None = None, *, B: float | None = None
    ) -> PredictionCertificate:
        """Return the certificate for the class, for one W (K, d) of it, or for a smaller B.

        One state serves every smaller B, and the bound falls by lam K (B^2 - b^2).
        """
        beside = self._surrogate.certificate(W, B=B)
        linear = beside.best_linear_at_least
        loss = float(self._totals[_LOSS])
        return PredictionCertificate(
            loss=loss,
            regret_bound=loss - linear,
            B=beside.B,
            n_rounds=beside.n_rounds,
            valid=beside.valid,
            reason=beside.reason or self._why_infinite(),
            linear_at_least=linear,
        )

    def _why_infinite(self) -> str:
        n = int(self._totals[_N_IMPOSSIBLE])
        if not n:
            return ""
        return (
            f"the prediction gave its label the probability 0 in {n} of {self.n_rounds} rounds, "
            f"first in round {int(self._totals[_FIRST_IMPOSSIBLE])} (counted from 0): its log "
            "loss is infinite"
        )

    def to_record(self) -> Record:
        """Return the full state as a record; the surrogate's lies inside."""
        surrogate = self._surrogate.to_record()
        arrays = {_PREFIX + name: array for name, array in surrogate.arrays.items()}
        return Record("Certifier", surrogate.config, arrays | {"totals": self._totals.copy()})

    @classmethod
    def from_record(cls, record: Record) -> "Certifier":
        """Rebuild a certifier that goes on exactly where the recorded one stopped."""
        totals = record.part("totals", (_N_TOTALS,))
        arrays = {
            name.removeprefix(_PREFIX): array
            for name, array in record.arrays.items()
            if name.startswith(_PREFIX)
        }
        surrogate = Folklore.from_record(Record("Folklore", record.config, arrays))
        certifier = cls(
            n_features=surrogate.n_features,
            n_classes=surrogate.n_classes,
            B=surrogate.B,
            R=surrogate.R,
            lam=surrogate.lam,
        )
        certifier._surrogate = surrogate
        certifier._totals[:] = totals
        return certifier

    def __repr__(self) -> str:
        return (
            f"Certifier(n_features={self.n_features}, n_classes={self.n_classes}, "
            f"B={self.B:g}, R={self.R:g}, lam={self.lam:g})"
        )
