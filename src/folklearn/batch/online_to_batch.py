"""Online to batch: from any online learner to one predictor, with a bound on its excess risk."""

import copy
import math
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.learners.base import Learner, check_is_learner
from folklearn.learners.folklore import certificate_at_norm
from folklearn.serialization import Record, Serializable

_NORM_SLACK = 1.0 + 1e-9  # a norm of R may round above R
_WHY_HEURISTIC = (
    "the learner had learned before: its regret bound counts rounds from which no state was drawn"
)


class OnlineToBatch(Serializable):
    r"""Fit a fixed predictor to a sample by running an online learner over it once.

    Use it when a certified learner's regret bound should become a bound on the risk at new points.
    Prefer the learner itself, after the last row, when only the accuracy counts.

    Run the learner over the T rows and keep the states :math:`h_{\tau_i}` before rounds
    :math:`\tau_1, \dots, \tau_m`, drawn uniformly from 1..T before the first row is seen:

    .. math:: p(x) = \frac1m \sum_{i \le m} h_{\tau_i}(x), \qquad \tau_i \sim U\{1..T\}

    Time is that of the learner's `run`; a prediction costs one of the learner's, and memory a full
    copy of it, per state kept.

    Guarantee, for rows drawn independently from one distribution and a learner that had learned
    nothing before: for every W of the class
    :math:`E[\text{risk}] - \text{risk}(W) \le E[\text{Regret}(W)]/T \le E[G]`, G what
    `guarantee` returns. The expectations are over rows and draws: a single G is one draw of the
    bound, and a single predictor may be worse. Risk is the expected log loss; with weights, of
    :math:`w\,\ell` for independent rows (x, y, w); where the class is all linear models, W has its
    penalty / T counted too. Derived in docs/theory/sample.md.

    Parameters
    ----------
    learner : a learner that has learned nothing; it is taken over, not copied. One that has learned
        already goes on from there (so does a second `fit`), without a guarantee.
    n_checkpoints : number m of states that are drawn, at least 1; those drawn twice count twice.
    seed : of the draws, an integer.

    Examples
    --------
    >>> from folklearn import Folklore, synthetic
    >>> from folklearn.batch import OnlineToBatch
    >>> X, y = synthetic.stochastic(0, 1000, d=3, K=3)
    >>> model = OnlineToBatch(Folklore(n_features=3, n_classes=3, B=5.0)).fit(X, y)
    >>> model.predict(X[:4]).shape, bool(0.0 < model.guarantee() < 0.2)
    ((4, 3), True)

    References
    ----------
    Cesa-Bianchi, Conconi and Gentile (2004), "On the generalization ability of on-line learning
    algorithms". Agarwal, Kale and Zimmert (2021) for FOLKLORE's regret.
    """

    PARAMS = ("n_checkpoints", "seed")
    CHILDREN = ("learner",)
    COUNTERS = ("n_rounds",)
    STATE: ClassVar = {
        "_states": list[Learner],
        "rounds": list,
        "_closed_form": bool,
        "_heuristic": str,
    }

    def __init__(self, learner: Learner, *, n_checkpoints: int = 10, seed: int = 0) -> None:
        check_is_learner("the learner", learner)
        self.learner = learner
        self.n_features, self.n_classes = learner.n_features, learner.n_classes
        self.n_checkpoints = validation.count("n_checkpoints", n_checkpoints, 1)
        self.seed = validation.count("seed", seed, 0)
        self.n_rounds = 0
        self._heuristic = "the predictor is not fitted yet"
        self.rounds: list[int] = []  # the states that predict are those before these, in order
        self._states: list[Learner] = []
        self._closed_form = False  # whether the rows satisfy the hypotheses of `regret_bound`

    def fit(self, X: ArrayLike, y: ArrayLike, *, weight: ArrayLike | None = None) -> Self:
        """Run the learner over the rows, keep the states that predict, return self.

        Labels and weights are those of `Learner.run`.
        """
        rows = self.learner._check_rows(X, y, weight)
        T = len(rows.X)
        if T == 0:
            raise InvalidInputError("X has no rows: a predictor needs at least one")
        has_learned = self.learner.n_rounds > 0
        draws = np.random.default_rng(self.seed).integers(1, T + 1, size=self.n_checkpoints)
        rounds: list[int] = sorted(draws.tolist())
        states: list[Learner] = []
        for start, stop in pairwise([0, *sorted({t - 1 for t in rounds}), T]):
            self.learner._run(rows.part(start, stop), None)
            if stop < T:
                states.append(copy.deepcopy(self.learner))
        self.rounds, self._states, self.n_rounds = rounds, states, T
        is_within = bool(validation.norms(rows.X).max() <= self.learner.R * _NORM_SLACK)
        self._closed_form = weight is None and is_within
        self._heuristic = _WHY_HEURISTIC if has_learned else ""
        return self

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out."""
        if self.n_rounds == 0:
            raise FolklearnError("the predictor is not fitted yet: call fit(X, y) first")
        _, counts = np.unique(self.rounds, return_counts=True)
        weighted = zip(counts, self._states, strict=True)
        total: Array = sum(count * state.predict(x) for count, state in weighted)
        return total / len(self.rounds)

    def guarantee(self, *, B: float | None = None) -> float | None:
        """Return the bound on the expected excess risk, in nats, or None without one (`reason`).

        It is the regret bound of the learner's certificate divided by T, or, for a learner
        without a certificate, that of its `regret_bound`, if weights are 1 and contexts of norm at
        most R. The excess is over the best model of the certificate's class, or of row norm at
        most ``B``. A class of all models counts their penalty: the excess is then over risk plus
        penalty / T, and with ``B`` over the risk alone.
        """
        bound, why = self._regret(B)
        return None if why else bound / self.n_rounds

    @property
    def reason(self) -> str:
        """Why `guarantee` returns None, or an empty string."""
        return self._regret(None)[1]

    def _regret(self, B: float | None) -> tuple[float, str]:
        if self._heuristic:
            return math.inf, self._heuristic
        learner = self.learner
        certificate = learner.certificate() if B is None else certificate_at_norm(learner, B)
        if certificate.valid:
            return certificate.regret_bound, ""
        bound = learner.regret_bound(self.n_rounds)
        if not math.isfinite(bound) or B is not None or math.isfinite(certificate.loss):
            return math.inf, certificate.reason
        if not self._closed_form:
            name = type(learner).__name__
            return math.inf, f"the bound of {name} is for weights of 1 and contexts of norm R"
        return bound, ""

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        for t in self.rounds:
            validation.count("a round", t, 1)
        n_states = len({*self.rounds})
        if len(self._states) != n_states or (n_states > 0) != (self.n_rounds > 0):
            raise StateFileError("states and rounds must be equally many")
