"""Mixtures of learners: as good as the best of them, or as the best sequence of them."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import memory, validation
from folklearn.arrays import TINY, Array, log_losses, softmax
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.learners.base import Learner, WarmStart, check_is_learner
from folklearn.progress import Report
from folklearn.serialization import Record
from folklearn.validation import Rows

DEFAULT_B = 10.0  # the class that `certificate()` speaks of when none is named
_FIRST_LOOK = 512  # rounds; losses since then count in
_FIRST_REVIEW = 1024  # which is followed by one at every doubling
_HOPELESS = 50.0  # nats behind the best expert, until
_SETTLED = 4096  # rounds; from then on
_HOPELESS_LATER = 20.0
_SHARE_OF_MEMORY = 0.25  # that all experts may take together when they grow
_CHUNK = 4096  # rows that all experts learn before the next rows

_LOSS, _N_WEIGHED, _N_TOTALS = range(3)  # the loss of the mixture; rounds of positive weight


class Mixture(Learner):
    r"""Mixture of learners: as good as the best of them, up to ln N nats in total.

    Use it when the right B, ridge or even algorithm is not known; `auto` builds a good one.
    With ``share`` it follows the best expert of the moment: use that on streams that change.

    .. math:: p_t = \sum_i \pi_i p_t^{(i)}, \qquad
        \pi_i \leftarrow (1 - a_t)\, \frac{\pi_i\, e^{-w_t \ell_t^{(i)} / w_{\max}}}{\sum_j
        \pi_j\, e^{-w_t \ell_t^{(j)} / w_{\max}}} + \frac{a_t}{N}

    from :math:`\pi_i = 1/N`, with :math:`a_t = 0`, which is Bayes' rule, or with ``share``
    :math:`a_t = 1/(t+1)` after round t, counted from 1; rounds of weight 0 are not counted and
    move nothing. Probabilities below 1e-300 count as 1e-300. Time and memory are the sums of
    the experts'.

    Guarantee, because the log loss is 1-mixable: on every stream, soft labels included,
    loss :math:`\le \min_i L^{(i)} + w_{\max} \ln N`, :math:`L^{(i)}` the weighted loss of
    expert i. With ``share``, :math:`\min_i L^{(i)} + w_{\max} (\ln N + \ln T)`, and at most
    :math:`w_{\max} ((m+1) \ln N + \sum_i \ln t_i + \ln T)` more than every sequence of experts
    with m switches, :math:`t_i` the last round of the old expert. With ``retire``, the default,
    this holds against the survivors, and against a retired expert up to its retirement: what it
    would have done later is not known, and may be better by any amount. An expert that `grown`
    leaves behind has retired.

    Parameters
    ----------
    experts : learners with equal n_features and n_classes that have learned nothing, each
        listed once; the mixture takes them over.
    share : let every round give each expert a share of all weights.
    retire : stop experts that are more than 50 nats (20 from round 4096 on) behind the best
        and lost more than it in the last half of the rounds, at rounds 1024, 2048, ...; the
        expert with the best certificate for `spoken_of` is always kept.
    max_weight : largest sample weight that will occur, :math:`w_{\max}`.
    spoken_of : row norm of the models that `certificate` speaks of if it is not told.

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
    Vovk (1998), "A game of prediction with expert advice". Herbster and Warmuth (1998),
    "Tracking the best expert", for ``share``.
    """

    PARAMS = ("share", "retire", "max_weight", "spoken_of")
    CHILDREN = ("experts",)
    COUNTERS = ("_n_rounds",)
    ARRAYS = ("log_weights", "losses", "reviewed", "totals")
    UNBOUNDED = ("log_weights",)

    def __init__(
        self,
        experts: Sequence[Learner],
        *,
        share: bool = False,
        retire: bool = True,
        max_weight: float = 1.0,
        spoken_of: float = DEFAULT_B,
    ) -> None:
        self._start(experts, share, retire, max_weight, spoken_of)
        for i, expert in enumerate(self.experts):
            # What an expert proves must be about the rounds of the mixture, each learned once.
            if any(expert is other for other in self.experts[:i]):
                raise InvalidInputError(f"expert {i}, {expert!r}, is listed twice")
            if expert.n_rounds:
                raise InvalidInputError(
                    f"expert {i}, {expert!r}, has learned {expert.n_rounds} rounds before, of "
                    "which the mixture knows nothing: give it experts that have learned nothing"
                )

    def _start(
        self,
        experts: Sequence[Learner],
        share: bool,
        retire: bool,
        max_weight: float,
        spoken_of: float,
    ) -> None:
        self.experts = list(experts)
        if not self.experts:
            raise InvalidInputError("a mixture needs at least one expert")
        for i, expert in enumerate(self.experts):
            check_is_learner(f"expert {i}", expert)
        sizes = {(expert.n_features, expert.n_classes) for expert in self.experts}
        if len(sizes) > 1:
            raise InvalidInputError(
                f"the experts of a mixture must have equal n_features and n_classes, got {sizes}"
            )
        self._size(*sizes.pop())
        self.share = bool(share)
        self.retire = bool(retire)
        self.max_weight = validation.positive("max_weight", max_weight)
        self.spoken_of = validation.positive("spoken_of", spoken_of)
        n = len(self.experts)
        self._log_weights: Array = np.full(n, -np.log(n))  # -inf for a retired expert
        self._losses: Array = np.zeros(n)  # weighted, up to retirement
        self._reviewed: Array = np.zeros(n)  # the losses half the rounds ago
        self._totals: Array = np.zeros(_N_TOTALS)
        self._muster()

    def _begin(self, start: WarmStart) -> None:
        """Take over from another learner, with all experts."""
        for expert in self.experts:
            expert._begin(start)
        self._totals[:] = start.loss, start.n_rounds
        self._n_rounds = start.n_rounds

    def _muster(self) -> None:
        """Remember who is alive."""
        self._alive = np.flatnonzero(self._log_weights > -np.inf)
        self._learning = [self.experts[i] for i in self._alive]
        self.takes_sparse = all(expert.takes_sparse for expert in self._learning)

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        """Construct with experts that may have learned: they come from a record, or grew."""
        mixture = cls.__new__(cls)
        mixture._start(**words)
        return mixture

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self._muster()

    @property
    def weights(self) -> Array:
        """The weights of the experts; 0 for a retired one."""
        return softmax(self._log_weights)

    @property
    def survivors(self) -> list[Learner]:
        """The experts that still learn."""
        return list(self._learning)

    def _predict(self, x: Array) -> Array:
        P = np.array([expert._predict(x) for expert in self._learning])
        p: Array = np.exp(self._log_weights[self._alive]) @ np.maximum(P, TINY, out=P)
        return p

    def _predict_rows(self, X: Array, norms: Array) -> Array:
        P = np.array([expert._predict_rows(X, norms) for expert in self._learning])
        return _mixed(P, self.weights[self._alive, None])

    def _expert_names(self) -> list[str]:
        return [f"{i}: {type(self.experts[i]).__name__}" for i in self._alive]

    def _expert_predictions(self, X: Any, norms: Array) -> Array:
        return np.array([expert._predict_all(X, norms) for expert in self._learning])

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        P = np.array([expert._predict(x) for expert in self._learning])[:, None, :]
        for expert in self._learning:
            expert._learn(x, label, soft, weight)
        softs = soft[None, :] if label < 0 else soft
        return float(self._count(P, np.array([label]), softs, np.array([weight]))[1][0])

    def _run(self, rows: Rows, report: Report | None) -> Array:
        T = len(rows.X)
        P = np.empty((T, self.n_classes))
        start = 0
        while start < T:
            stop = min(start + self._rows_to_review(), T)
            part = rows.part(start, stop)
            expert_P = np.array([expert._run(part, None) for expert in self._learning])
            P[start:stop] = self._count(expert_P, part.labels, part.soft, part.weights)[0]
            start = stop
            if report is not None:
                report(start)
        return P

    def _rows_to_review(self) -> int:
        """Rows until experts are reviewed, so that `run` and the loop retire alike."""
        review = _FIRST_LOOK
        while review <= self._n_rounds:
            review *= 2
        return min(review - self._n_rounds, _CHUNK)

    def _count(
        self, expert_P: Array, labels: Any, soft: Array, weights: Array
    ) -> tuple[Array, Array]:
        """Count rounds that the experts (N, T, K) have learned, with no review but at the end.

        Returns the mixtures (T, K), each with the weights before its round, and their losses.
        """
        losses = weights * log_losses(expert_P, labels, soft, TINY)
        P = _mixed(expert_P, self._weigh(losses / self.max_weight, weights > 0.0))
        own = log_losses(P, labels, soft)
        self._losses[self._alive] += losses.sum(axis=1)
        self._totals[_LOSS] += weights @ own
        self._n_rounds += len(P)
        if self.retire and self._n_rounds >= _FIRST_LOOK and self._n_rounds.bit_count() == 1:
            if self._n_rounds >= _FIRST_REVIEW:
                self._review()
            self._reviewed[:] = self._losses
        return P, own

    def _weigh(self, losses: Array, counts: Any) -> Array:
        """Take in scaled losses (N, T) of the survivors; return their weights before each."""
        logs = self._log_weights[self._alive]
        if not self.share:
            after = logs[:, None] - np.cumsum(losses, axis=1)
            self._log_weights[self._alive] = _normalised(after[:, -1])
            return softmax((after + losses).T).T
        before = np.empty_like(losses)
        n = len(logs)
        for t in range(losses.shape[1]):
            before[:, t] = weights = np.exp(logs)
            if not counts[t]:
                continue
            self._totals[_N_WEIGHED] += 1.0
            a = 1.0 / (self._totals[_N_WEIGHED] + 1.0)
            weights = softmax(logs - losses[:, t])
            logs = np.log((1.0 - a) * weights + a / n)
        self._log_weights[self._alive] = logs
        return before

    def _review(self) -> None:
        """Retire experts that are far behind and were still losing ground."""
        alive = self._alive
        behind = self._losses[alive] - self._losses[alive].min()
        recent = self._losses[alive] - self._reviewed[alive]
        limit = _HOPELESS if self._n_rounds < _SETTLED else _HOPELESS_LATER
        hopeless = (behind > limit * self.max_weight) & (recent > recent[behind.argmin()])
        hopeless &= ~self._worth_keeping(hopeless, self._log_weights[alive])
        offers = self._offers(None, self.spoken_of)
        if offers:
            hopeless[max(offers, key=lambda offer: offer[1].best_linear_at_least)[0]] = False
        self._log_weights[alive[hopeless]] = -np.inf
        self._log_weights = _normalised(self._log_weights)
        self._muster()

    def _offers(self, W: ArrayLike | None, B: float) -> list[tuple[int, Certificate]]:
        """What survivors, by place, prove about W, or about all of row norm at most B."""
        asked = B if W is None else None
        offers = [
            (place, expert.certificate(W, B=asked))
            for place, expert in enumerate(self._learning)
            if expert.covers(B)
        ]
        return [(place, offer) for place, offer in offers if offer.valid]

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the best certificate of the surviving certified experts, for the mixture.

        An expert's certificate bounds what any model could reach, so it holds for the
        mixture's loss too: the bound is the mixture's loss minus the largest
        ``best_linear_at_least``. The class is all W of row norm at most ``B``, `spoken_of` by
        default; for one W it is W.
        """
        if W is not None:
            if B is not None:
                raise InvalidInputError("give W or B, not both: W has its own norm")
            validation.comparators(W, B, np.inf, self.n_classes, self.n_features)
            covered = validation.longest_row(W)
        else:
            covered = self.spoken_of if B is None else validation.positive("B", B)
        offers = [offer for _, offer in self._offers(W, covered)]
        floor = max((offer.best_linear_at_least for offer in offers), default=-np.inf)
        return Certificate(
            loss=float(self._totals[_LOSS]),
            regret_bound=float(self._totals[_LOSS] - floor),
            B=covered,
            n_rounds=self._n_rounds,
            valid=bool(offers),
            reason="" if offers else f"no surviving expert certifies B={covered:g}",
            scope="; ".join(sorted({offer.scope for offer in offers} - {""})),
        )

    def coef(self) -> Array:
        """Return the weights (K, d) of the surviving expert with the least loss so far."""
        best = int(np.argmin(self._losses[self._alive]))
        return self._learning[best].coef()

    @property
    def n_bytes(self) -> int:
        """The memory of the arrays of all experts."""
        return super().n_bytes + sum(expert.n_bytes for expert in self.experts)

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory such experts take at other sizes."""
        return sum(expert.expected_bytes(n_features, n_classes) for expert in self.experts)

    @property
    def can_grow(self) -> bool:
        """Whether all experts can."""
        return all(expert.can_grow for expert in self.experts)

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return a mixture of grown experts; see `Folklore.grown`. This one is unchanged.

        Experts that would not fit in the memory of this machine are left behind, if others do.
        """
        sizes = self._larger_sizes(n_features, n_classes)
        words = {word: self._word(word) for word in self.PARAMS}
        fit = self._that_fit(**sizes)
        experts = [self.experts[i].grown(**sizes) for i in fit]
        larger = self._construct(experts=experts, **words)
        for part, own in larger._parts().items():
            own[:] = self._parts()[part] if part == "totals" else self._parts()[part][fit]
        if not (larger._log_weights > -np.inf).any():  # those that fit had retired
            larger._log_weights[:] = 0.0
        larger._log_weights = _normalised(larger._log_weights)
        larger._n_rounds = self._n_rounds
        larger._muster()
        return larger

    def _that_fit(self, n_features: int, n_classes: int) -> list[int]:
        """Return the experts whose states fit in this machine at other sizes; all, if none do."""
        room = _SHARE_OF_MEMORY * (memory.bytes_present() or np.inf)
        needed = [expert.expected_bytes(n_features, n_classes) for expert in self.experts]
        fit = [i for i, own in enumerate(needed) if own * len(needed) <= room]
        return fit or list(range(len(needed)))


def _mixed(expert_P: Array, weights: Array) -> Array:
    """Return the average of P (N, T, K) under weights (N, T) or (N, 1); P may be changed."""
    P: Array = np.einsum("itk,it->tk", np.maximum(expert_P, TINY, out=expert_P), weights)
    return P


def _normalised(logs: Array) -> Array:
    """Return log weights whose weights sum to 1."""
    shifted = logs - logs.max()
    normalised: Array = shifted - np.log(np.exp(shifted).sum())
    return normalised
