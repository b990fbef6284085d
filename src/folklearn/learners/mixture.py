"""Mixtures of learners: as good as the best of them, or as the best sequence of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import utils, validation
from folklearn.arrays import TINY, Array, log_losses, softmax
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.lower_bound import round_loss_up
from folklearn.kernels.experts import weigh_rounds
from folklearn.learners import base
from folklearn.learners.base import LeadingModel, Learner, WarmStart
from folklearn.serialization import Record
from folklearn.validation import Rows

_FIRST_LOOK = 512  # rounds; losses since then count in
_FIRST_REVIEW = 1024  # which is followed by one at every doubling
_HOPELESS, _HOPELESS_LATER, _SETTLED_ROUNDS = 50.0, 20.0, 4096  # nats behind the best expert
_CATCHES_UP = 0.5  # of what it fell behind in a quarter of the rounds, or less, in the next one
_MIN_CREDIT = math.log(2.0)  # nats that it brought in a stretch, with which an expert stays
_MAX_MEMORY_SHARE = 0.25  # that all experts may take together when they grow
_MAX_CHUNK_ROWS = 4096  # that all experts learn before the next rows

_LOSS, _N_WEIGHED, _N_TOTALS = range(3)  # the loss of the mixture; rounds of positive weight


class Mixture(Learner):
    r"""Mixture of learners: as good as the best of them, up to ln N nats in total.

    Use it when the right B, ridge or even algorithm is not known; `auto` builds a good one.
    With ``share`` it follows the best expert of the moment, on streams that change.

    .. math:: p_t = \sum_i \pi_i p_t^{(i)}, \qquad
        \pi_i \leftarrow (1 - a_t)\, \frac{\pi_i\, e^{-w_t \ell_t^{(i)} / w_{\max}}}{\sum_j
        \pi_j\, e^{-w_t \ell_t^{(j)} / w_{\max}}} + \frac{a_t}{N}

    from :math:`\pi_i = 1/N`, with :math:`a_t = 0` (Bayes' rule), or with ``share``
    :math:`a_t = 1/(t+1)` after round t, counted from 1; rounds of weight 0 are not counted.
    Probabilities below 1e-300 count as 1e-300. Time and memory are the sums of the experts'.

    Guarantee, because the log loss is 1-mixable: on every stream, soft labels included,
    loss :math:`\le \min_i L^{(i)} + w_{\max} \ln N`, :math:`L^{(i)}` the weighted loss of
    expert i. With ``share``, :math:`\min_i L^{(i)} + w_{\max} (\ln N + \ln T)`, and at most
    :math:`w_{\max} ((m+1) \ln N + \sum_i \ln t_i + \ln T)` more than every sequence of experts
    with m switches, :math:`t_i` the last round of the old expert. Against an expert that has
    retired, or that `grown` left behind for want of memory, this holds up to then.

    Parameters
    ----------
    experts : learners of equal sizes that have learned nothing, each listed once.
    share : let every round give each expert a share of all weights.
    retire : at rounds 1024, 2048, ..., stop experts that are more than 50 nats (20 from round 4096
        on) behind the best, lost more than it in the last half of the rounds, are not catching
        up there, and brought nothing: in no stretch of it would the mixture without them have
        lost ln 2 more. The expert with the best certificate is always kept.
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
    Vovk (1998), "A game of prediction with expert advice". Herbster and Warmuth (1998),
    "Tracking the best expert", for ``share``.
    """

    PARAMS: ClassVar[tuple[str, ...]] = ("share", "retire", "max_weight")
    CHILDREN = ("experts",)
    COUNTERS = ("_n_rounds",)
    ARRAYS = ("weights", "losses", "reviewed", "midway", "stretch", "credit", "totals")
    UNBOUNDED = ("losses",)

    def __init__(
        self,
        experts: Sequence[Learner],
        *,
        share: bool = False,
        retire: bool = True,
        max_weight: float = 1.0,
    ) -> None:
        self._start(experts, share, retire, max_weight)
        for i, expert in enumerate(self.experts):
            # What an expert proves must be about the rounds of the mixture, each learned once.
            if any(expert is earlier for earlier in self.experts[:i]):
                raise InvalidInputError(f"expert {i}, {expert!r}, is listed twice")
            if expert.n_rounds:
                raise InvalidInputError(
                    f"expert {i}, {expert!r}, has learned {expert.n_rounds} rounds before, of "
                    "which the mixture knows nothing: give it experts that have learned nothing"
                )

    def _start(
        self, experts: Sequence[Learner], share: bool, retire: bool, max_weight: float
    ) -> None:
        self.experts = list(experts)
        if not self.experts:
            raise InvalidInputError("a mixture needs at least one expert")
        for i, expert in enumerate(self.experts):
            base.check_is_learner(f"expert {i}", expert)
        sizes = {(e.n_features - self._n_terms_of(e), e.n_classes) for e in self.experts}
        if len(sizes) > 1:
            raise InvalidInputError(
                f"the experts of a mixture must have equal n_features and n_classes, got {sizes}"
            )
        self._size(*sizes.pop(), max_weight=max_weight)
        self.share = bool(share)
        self.retire = bool(retire)
        n = len(self.experts)
        self._weights: Array = np.full(n, 1.0 / n)
        self._losses: Array = np.zeros(n)  # weighted; infinite for a retired expert
        self._reviewed: Array = np.zeros(n)  # the losses half the rounds ago
        self._midway: Array = np.zeros(n)  # and a quarter of the rounds ago
        # How much more the mixture would have lost without an expert: in the stretch up to now
        # in which that is most, and in the stretch of the last half in which it was most.
        self._stretch, self._credit = np.zeros(n), np.zeros(n)
        self._totals: Array = np.zeros(_N_TOTALS)
        self._find_survivors()

    def _n_terms_of(self, expert: Learner) -> int:
        """Return how many terms an expert sees in front of the columns, see `TermMixture`."""
        return 0

    def _views(self, X: Any) -> Iterator[tuple[Learner, Any]]:
        """Yield survivors with what each sees of contexts (T, d), or of one (d,)."""
        for expert in self._survivors:
            yield expert, X

    def _begin(self, start: WarmStart) -> None:
        for expert in self.experts:
            expert._begin(start)
        self._totals[:] = start.loss, start.n_rounds
        self._n_rounds = start.n_rounds

    def _find_survivors(self) -> None:
        self._alive = np.flatnonzero(self._losses < np.inf)
        self._survivors = [self.experts[i] for i in self._alive]
        self.takes_sparse = all(expert.takes_sparse for expert in self._survivors)

    def _normalise_weights(self) -> None:
        if self.share:  # which keeps all of them positive
            shares = np.where(self._losses < np.inf, self._weights, 0.0)
            self._weights = shares / shares.sum()
        else:
            self._weights = softmax(-self._losses / self.max_weight)

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        """Construct with experts that may have learned: they come from a record, or grew."""
        mixture = cls.__new__(cls)
        mixture._start(**words)
        return mixture

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self._find_survivors()
        base.check_weights("Mixture", self._weights[self._alive])

    @property
    def weights(self) -> Array:
        """The weights of the experts; 0 for a retired one."""
        return self._weights.copy()

    def _predict(self, x: Array) -> Array:
        P = np.array([expert._predict(x) for expert, x in self._views(x)])
        return self._weights[self._alive] @ np.maximum(P, TINY, out=P)

    def _predict_batch(self, X: Any) -> Array:
        P = [expert._predict_rows(seen) for expert, seen in self._views(X)]
        return _mix(np.array(P), self._weights[self._alive, None])

    def _names_of(self, expert: Learner) -> list[str]:
        return [f"{self.experts.index(expert)}: {type(expert).__name__}"]

    def _expert_names(self) -> list[str]:
        return [name for expert in self._survivors for name in self._names_of(expert)]

    def _expert_predictions(self, X: Any) -> Array:
        return np.array([expert._predict_rows(seen) for expert, seen in self._views(X)])

    def _mixed_models(self, weights: Array | None = None) -> list[tuple[float, Any]]:
        return [
            (share * share_within, model)
            for expert, share, within in self._shares(weights)
            for share_within, model in expert._mixed_models(within)
        ]

    def _shares(self, weights: Array | None) -> Iterator[tuple[Learner, float, Array | None]]:
        """Yield survivors with their shares, or 1 and those within them, by weights of all names.

        By default the shares are the weights of this mixture.
        """
        names = [1 if weights is None else len(self._names_of(e)) for e in self._survivors]
        weights = self._weights[self._alive] if weights is None else weights
        for expert, n in zip(self._survivors, names, strict=True):
            yield (expert, 1.0, weights[:n]) if n > 1 else (expert, float(weights[0]), None)
            weights = weights[n:]

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        views = list(self._views(x))
        P = np.array([expert._predict(seen) for expert, seen in views])[:, None, :]
        for expert, seen in views:
            expert._learn(seen, label, soft, weight)
        softs = soft[None, :] if label < 0 else soft
        return float(self._count(P, np.array([label]), softs, np.array([weight]))[1][0])

    def _rows_at_once(self, rows: Rows) -> int:
        looks = _FIRST_LOOK, _FIRST_LOOK * 3 // 2
        return min(*(base.rows_to_review(self._n_rounds, look) for look in looks), _MAX_CHUNK_ROWS)

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        views = self._views(rows.X)
        expert_P = np.array([expert._run(rows._replace(X=X), None) for expert, X in views])
        P[:] = self._count(expert_P, rows.labels, rows.soft, rows.weights)[0]

    def _count(
        self, expert_P: Array, labels: Any, soft: Array, weights: Array
    ) -> tuple[Array, Array]:
        """Count rounds that the experts (N, T, K) have learned, with no review but at the end.

        Returns the mixtures (T, K), each with the weights before its round, and their losses.
        """
        losses = weights * log_losses(expert_P, labels, soft, TINY)
        before = np.empty_like(losses)
        alive, scale = self._alive, 1.0 / self.max_weight
        counts = self._weights, self._losses, self._stretch, self._credit
        of_alive = [count[alive] for count in counts]
        self._totals[_N_WEIGHED] = weigh_rounds(
            *of_alive, losses, weights > 0.0, self.share, self._totals[_N_WEIGHED], scale, before
        )
        for count, values in zip(counts, of_alive, strict=True):
            count[alive] = values
        P = _mix(expert_P, before)
        mixture_losses = log_losses(P, labels, soft)
        rounds = np.append(self._totals[_LOSS], weights * mixture_losses)
        self._totals[_LOSS] = np.add.accumulate(rounds)[-1]  # one by one, in whatever portions
        self._n_rounds += len(P)
        n = self._n_rounds
        if self.retire and n >= _FIRST_LOOK and n.bit_count() == 1:
            if n >= _FIRST_REVIEW:
                self._review()
            self._reviewed[self._alive] = self._losses[self._alive]
            self._stretch[:] = self._credit[:] = 0.0
        elif n % 3 == 0 and (n // 3).bit_count() == 1:  # half way to the next review
            self._midway[self._alive] = self._losses[self._alive]
        return P, mixture_losses

    def _review(self) -> None:
        """Retire experts that are far behind, still lose ground, and brought nothing lately."""
        alive = self._alive
        best = alive[self._losses[alive].argmin()]
        behind, at_review, midway = (
            (losses - losses[best])[alive]
            for losses in (self._losses, self._reviewed, self._midway)
        )
        limit = _HOPELESS if self._n_rounds < _SETTLED_ROUNDS else _HOPELESS_LATER
        hopeless = (behind > limit * self.max_weight) & (behind > at_review)
        hopeless &= behind - midway > _CATCHES_UP * (midway - at_review)
        hopeless &= self._credit[alive] < _MIN_CREDIT
        hopeless &= ~self._worth_keeping(hopeless, self._weights[alive])
        if (best := self._best_offer()) is not None:
            hopeless[best[0]] = False
        self._losses[alive[hopeless]] = np.inf
        self._normalise_weights()
        self._find_survivors()

    def _best_offer(self, W: ArrayLike | None = None) -> tuple[int, Certificate] | None:
        """Return which survivor proves most about all linear models, or about W, and what."""
        longest = 0.0
        if W is not None:
            W = validation.model("W", W, self.n_classes, self.n_features)
            longest = validation.longest_row(W) / (1.0 + 1e-9)
        experts = [(i, expert) for i, expert in enumerate(self._survivors) if longest <= expert.B]
        offers = [(i, expert.certificate(W)) for i, expert in experts]
        valid = [offer for offer in offers if offer[1].valid]
        return max(valid, key=lambda offer: _rank(offer[1], W is None), default=None)

    def certificate(self, W: ArrayLike | None = None) -> Certificate:
        """Return the best certificate of the survivors: it holds for the mixture too.

        It is about every linear model, or those of the largest B if none is, or about one W.
        """
        best, loss = self._best_offer(W), float(self._totals[_LOSS])
        if best is None:
            reason = "no surviving expert has a certificate"
            return Certificate(loss, np.inf, self._n_rounds, valid=False, reason=reason)
        floor = round_loss_up(loss, self._n_rounds) - best[1].best_linear_at_least
        proven = replace(best[1], loss=loss, regret_bound=floor, n_rounds=self._n_rounds)
        return proven if W is None else replace(proven, B=None)

    def coef(self) -> Array:
        best = int(np.argmin(self._losses[self._alive]))
        return self._survivors[best].coef()

    def _leading_model(self, x: Any, weights: Array | None = None) -> LeadingModel:
        leading = []
        for (expert, seen), shares in zip(self._views(x), self._shares(weights), strict=True):
            _, share, within = shares
            model = expert._leading_model(seen, within)
            columns = model.columns + (len(x) - len(seen))  # behind the terms, if it sees none
            leading.append(model._replace(share=share * model.share, columns=columns))
        return max(leading, key=lambda model: model.share)

    @property
    def n_bytes(self) -> int:
        return super().n_bytes + sum(expert.n_bytes for expert in self.experts)

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        sizes = {"n_features": n_features, "n_classes": n_classes}
        return sum(e.expected_bytes(**self._sizes_of(e, **sizes)) for e in self.experts)

    @property
    def can_grow(self) -> bool:
        return all(expert.can_grow for expert in self.experts)

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        sizes = self._larger_sizes(n_features, n_classes)
        words = {word: self._word(word) for word in self.PARAMS}
        room = _MAX_MEMORY_SHARE * utils.bytes_present() / len(self.experts)
        sized = [(expert, self._sizes_of(expert, **sizes)) for expert in self.experts]
        fit = [i for i, (expert, size) in enumerate(sized) if expert.expected_bytes(**size) <= room]
        fit = fit or list(range(len(sized)))  # those that would not fit are left behind
        experts = [expert.grown(**size) for expert, size in (sized[i] for i in fit)]
        larger = self._construct(experts=experts, **words)
        for name, array in larger._parts().items():
            array[:] = self._parts()[name] if name == "totals" else self._parts()[name][fit]
        if not (larger._losses < np.inf).any():  # those that fit had retired: they begin anew
            larger._losses[:], larger._weights[:] = 0.0, 1.0
        larger._n_rounds = self._n_rounds
        larger._normalise_weights()
        larger._find_survivors()
        return larger

    def _begin_classes(self, first: int, constant: int, weight: float) -> None:
        for expert in self.experts:
            expert._begin_classes(first, constant, weight)

    def _release_rows(self) -> None:
        for expert in self.experts:
            expert._release_rows()

    def _sizes_of(self, expert: Learner, n_features: int, n_classes: int) -> dict[str, int]:
        return {"n_features": self._n_terms_of(expert) + n_features, "n_classes": n_classes}


def _rank(proven: Certificate, is_about_all: bool) -> tuple[bool, float, float]:
    # A bound for every model, with its penalty, goes before one for a norm, and that for the
    # largest norm before others: only bounds of one kind are compared.
    B = (proven.B or 0.0) if is_about_all else 0.0
    return proven.C is not None, B, proven.best_linear_at_least


def _mix(expert_P: Array, weights: Array) -> Array:
    """Return the average of P (N, T, K) under weights (N, T) or (N, 1); P may be changed."""
    return np.einsum("itk,it->tk", np.maximum(expert_P, TINY, out=expert_P), weights)
