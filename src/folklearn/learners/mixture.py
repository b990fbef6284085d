"""The Bayes mixture of learners (Vovk 1998): as good as the best, up to ln N nats."""

import math
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem, registry
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.learners.contract import (
    Certificate,
    Learner,
    Progress,
    grown_sizes,
    refuse_unless_learner,
)
from folklearn.persist import Record
from folklearn.progress import reporter

Array = NDArray[np.float64]

DEFAULT_B = 10.0  # the class that `certificate()` speaks of when none is named
_FLOOR = 1e-300  # no class is ever given less, so that the loss is finite
_FIRST_LOOK = 512  # rounds; losses since then count in
_FIRST_REVIEW = 1024  # which is followed by one at every doubling
_HOPELESS = 50.0  # nats behind the best expert, until
_SETTLED = 4096  # rounds; from then on
_HOPELESS_LATER = 20.0
_CHUNK = 4096  # rows that all experts learn before the next rows


class Mixture:
    r"""Bayes mixture of learners: as good as the best of them, up to ln N nats in total.

    Use it when the right B, ridge or even algorithm is not known; `auto` builds a good one.

    .. math:: p_t = \sum_i \pi_i p_t^{(i)}, \qquad \pi_i \propto \exp(-L_{t-1}^{(i)}/w_{\max})

    with :math:`L^{(i)}` the weighted loss of expert i. Time and memory are the sums of the
    experts'.

    Guarantee, because the log loss is 1-mixable: on every stream, soft labels included,
    loss :math:`\le \min_i L^{(i)} + w_{\max} \ln N`. With ``retire``, the minimum is over the
    survivors, and for a retired expert it holds up to its retirement.

    Parameters
    ----------
    experts : learners with equal n_features and n_classes; the mixture takes them over.
    retire : stop experts that are more than 50 nats (20 from round 4096 on) behind the best
        and lost more than it in the last half of the rounds, at rounds 1024, 2048, ...; the
        expert with the best certificate for B = 10 is always kept.
    max_weight : largest sample weight that will occur, :math:`w_{\max}`.

    Examples
    --------
    >>> from folklearn import Folklore, Mixture
    >>> experts = [Folklore(n_features=2, n_classes=3, B=b) for b in (1.0, 10.0, 100.0)]
    >>> model = Mixture(experts)
    >>> losses = [model.update([0.6, 0.8], 1) for _ in range(50)]
    >>> bool(model.predict([0.6, 0.8])[1] > 0.9), model.weights.shape
    (True, (3,))

    References
    ----------
    Vovk (1998), "A game of prediction with expert advice".
    """

    def __init__(
        self, experts: Sequence[Learner], *, retire: bool = True, max_weight: float = 1.0
    ) -> None:
        self.experts = list(experts)
        if not self.experts:
            raise InvalidInputError("a mixture needs at least one expert")
        for i, expert in enumerate(self.experts):
            refuse_unless_learner(f"expert {i}", expert)
        sizes = {(expert.n_features, expert.n_classes) for expert in self.experts}
        if len(sizes) > 1:
            raise InvalidInputError(
                f"the experts of a mixture must have equal n_features and n_classes, got {sizes}"
            )
        ((self.n_features, self.n_classes),) = sizes
        self.retire = bool(retire)
        self.max_weight = problem.positive("max_weight", max_weight)
        n = len(self.experts)
        self._losses: Array = np.zeros(n)  # weighted, up to retirement
        self._reviewed: Array = np.zeros(n)  # the losses half the rounds ago
        self._alive: NDArray[np.bool_] = np.ones(n, dtype=bool)
        self._loss = 0.0
        self._n_rounds = 0

    @property
    def weights(self) -> Array:
        """The posterior weights of the experts; 0 for a retired one."""
        logs = np.where(self._alive, -self._losses / self.max_weight, -np.inf)
        weights: Array = np.exp(logs - logs.max())
        weights /= weights.sum()
        return weights

    @property
    def survivors(self) -> list[Learner]:
        """The experts that still learn."""
        return [self.experts[i] for i in np.flatnonzero(self._alive)]

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out."""
        weights = self.weights
        return _mixed(
            np.array([self.experts[i].predict(x) for i in np.flatnonzero(self._alive)]),
            weights[self._alive],
        )

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example; return its log loss, predicted before learning."""
        x = problem.context(x, self.n_features)
        label, soft = problem.label(y, self.n_classes)
        target = np.eye(1, self.n_classes, label)[0] if label >= 0 else soft
        P = self._learn(x[None, :], target[None, :], [y], np.array([self._weight(weight)]))
        return float(_log_losses(P, target[None, :])[0])

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
    ) -> Array:
        """Predict, then learn, row by row; return the predictions (T, K)."""
        X, _ = problem.contexts(X, self.n_features)
        labels, soft = problem.labels(y, len(X), self.n_classes)
        weights = problem.weights(weight, len(X))
        for w in weights[weights > self.max_weight][:1]:
            self._weight(w)
        targets = soft if len(soft) else np.eye(self.n_classes)[labels]
        given = soft if len(soft) else labels
        P = np.empty((len(X), self.n_classes))
        with reporter(progress, len(X), "learning") as report:
            start = 0
            while start < len(X):
                rows = slice(start, min(start + self._rows_to_review(), len(X)))
                P[rows] = self._learn(X[rows], targets[rows], given[rows], weights[rows])
                start = rows.stop
                if report is not None:
                    report(start)
        return P

    def grow(self, *, n_features: int | None = None, n_classes: int | None = None) -> None:
        """Make room for more features and classes in every expert; see `Folklore.grow`."""
        sizes = grown_sizes(self, n_features, n_classes)
        for i, expert in enumerate(self.experts):
            if not callable(getattr(expert, "grow", None)):
                raise InvalidInputError(f"expert {i}, {expert!r}, cannot grow")
        for expert in self.experts:
            grower: Any = expert
            grower.grow(**sizes)
        self.n_features, self.n_classes = sizes["n_features"], sizes["n_classes"]

    def _weight(self, weight: float) -> float:
        weight = problem.weight(weight)
        if weight > self.max_weight:
            raise InvalidInputError(
                f"weight {weight:g} is above max_weight={self.max_weight:g}, for which the "
                "mixture was made: construct it with the largest weight that will occur"
            )
        return weight

    def _rows_to_review(self) -> int:
        """Rows until experts are reviewed, so that `run` and the loop retire alike."""
        review = _FIRST_LOOK
        while review <= self._n_rounds:
            review *= 2
        return min(review - self._n_rounds, _CHUNK)

    def _learn(self, X: Array, targets: Array, given: Any, weights: Array) -> Array:
        """Predict and learn rows that contain no review but at their end."""
        alive = np.flatnonzero(self._alive)
        expert_P = np.empty((len(alive), len(X), self.n_classes))
        for slot, i in enumerate(alive):
            expert = self.experts[i]
            if len(X) == 1:
                expert_P[slot, 0] = expert.predict(X[0])
                expert.update(X[0], given[0], weight=float(weights[0]))
            else:
                expert_P[slot] = expert.run(X, given, weight=weights)
        losses = weights * np.array([_log_losses(P, targets) for P in expert_P])
        before = self._losses[alive, None] + np.cumsum(losses, axis=1) - losses
        logs = -before / self.max_weight
        posterior = np.exp(logs - logs.max(axis=0))
        P = _mixed(expert_P, posterior / posterior.sum(axis=0))
        self._losses[alive] += losses.sum(axis=1)
        self._loss += float(weights @ _log_losses(P, targets))
        self._n_rounds += len(X)
        if self.retire and self._n_rounds >= _FIRST_LOOK and self._n_rounds.bit_count() == 1:
            if self._n_rounds >= _FIRST_REVIEW:
                self._review()
            self._reviewed[:] = self._losses
        return P

    def _review(self) -> None:
        """Retire experts that are far behind and were still losing ground."""
        behind = self._losses - self._losses[self._alive].min()
        recent = self._losses - self._reviewed
        best = np.flatnonzero(self._alive)[np.argmin(self._losses[self._alive])]
        limit = _HOPELESS if self._n_rounds < _SETTLED else _HOPELESS_LATER
        hopeless = (behind > limit * self.max_weight) & (recent > recent[best])
        floors = {
            i: self._offer(i, None, DEFAULT_B) for i in self._certified(DEFAULT_B) if self._alive[i]
        }
        if floors:
            hopeless[max(floors, key=lambda i: floors[i])] = False
        self._alive &= ~hopeless

    def _certified(self, B: float) -> list[int]:
        return [
            i
            for i, expert in enumerate(self.experts)
            if hasattr(expert, "certificate")
            and getattr(expert, "B", 0.0) >= B
            and expert.certificate().valid
        ]

    def _offer(self, i: int, W: ArrayLike | None, B: float) -> float:
        """What expert i proves about the total loss of W, or of every model of the class."""
        expert: Any = self.experts[i]
        certificate = expert.certificate(B=B) if W is None else expert.certificate(W)
        return float(certificate.best_linear_at_least)

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the best certificate of the surviving certified experts, for the mixture.

        An expert's certificate bounds what any model could reach, so it holds for the
        mixture's loss too: the bound is the mixture's loss minus the largest
        ``best_linear_at_least``, at most the least expert bound plus w_max ln N. The class
        is all W of row norm at most ``B``, 10 by default; for one W it is W.
        """
        if W is not None:
            if B is not None:
                raise InvalidInputError("give W or B, not both: W has its own norm")
            rows = problem.numbers("W", W)
            covered = float(np.sqrt((rows**2).sum(axis=-1)).max()) if rows.size else 0.0
        else:
            covered = DEFAULT_B if B is None else problem.positive("B", B)
        able = [i for i in self._certified(covered / (1.0 + 1e-9)) if self._alive[i]]
        floors = [self._offer(i, W, covered) for i in able]
        scopes = {self.experts[i].certificate().scope for i in able}  # type: ignore[attr-defined]
        return Certificate(
            loss=self._loss,
            regret_bound=self._loss - max(floors, default=-math.inf),
            B=covered,
            n_rounds=self._n_rounds,
            valid=bool(floors),
            reason="" if floors else f"no surviving expert certifies B={covered:g}",
            scope="; ".join(sorted(scopes - {""})),
        )

    def to_record(self) -> Record:
        """Return the full state as a record; every expert must be able to save itself."""
        records = []
        for i, expert in enumerate(self.experts):
            if not callable(getattr(expert, "to_record", None)):
                raise FolklearnError(f"expert {i}, {expert!r}, cannot save itself")
            records.append(expert.to_record())
        arrays: dict[str, NDArray[Any]] = {
            "losses": self._losses.copy(),
            "reviewed": self._reviewed.copy(),
            "alive": self._alive.astype(np.uint8),
        }
        entries = []
        for i, record in enumerate(records):
            entry, own = persist.nest(f"expert{i}", record)
            entries.append(entry)
            arrays |= own
        config = {
            "retire": self.retire,
            "max_weight": self.max_weight,
            "loss": self._loss.hex(),
            "n_rounds": self._n_rounds,
            "experts": entries,
        }
        return Record("Mixture", config, arrays)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a mixture from its record."""
        try:
            experts = [
                registry.revive(persist.unnest(f"expert{i}", entry, record.arrays))
                for i, entry in enumerate(record.config["experts"])
            ]
            mixture = cls(
                experts, retire=record.config["retire"], max_weight=record.config["max_weight"]
            )
            mixture._loss = float.fromhex(record.config["loss"])
            mixture._n_rounds = int(record.config["n_rounds"])
            for part, own in (
                ("losses", mixture._losses),
                ("reviewed", mixture._reviewed),
                ("alive", mixture._alive.view(np.uint8)),
            ):
                array = record.arrays[part]
                if array.shape != own.shape or array.dtype != own.dtype:
                    raise ValueError(f"{part} must be {own.dtype} of shape {own.shape}")
                own[:] = array
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, StateFileError):
                raise
            raise StateFileError(f"a Mixture state is incomplete: {error}") from None
        return mixture

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file; `folklearn.load` resumes exactly."""
        persist.write(path, self.to_record())

    def __repr__(self) -> str:
        return f"Mixture({self.experts!r}, retire={self.retire}, max_weight={self.max_weight:g})"


def _mixed(expert_P: Array, weights: Array) -> Array:
    """Return the average of P (N, ..., K) under weights (N,) or (N, T)."""
    P: Array = np.einsum("i...k,i...->...k", expert_P, weights)
    return np.maximum(P, _FLOOR, out=P)


def _log_losses(P: Array, targets: Array) -> Array:
    """Return -<y, ln p> of every row; classes without mass in y cost nothing."""
    logs = np.log(np.maximum(P, _FLOOR))
    losses: Array = -(targets * logs).sum(axis=1)
    return losses
