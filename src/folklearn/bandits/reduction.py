"""The paper's bandit algorithm: any learner of probabilities, with uniform exploration."""

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import MAX_PENDING, THEORY, Agent, Decision, choose_exploration
from folklearn.errors import InvalidInputError
from folklearn.evidence import bounds
from folklearn.kernels.exploration import draw_action
from folklearn.learners.base import Learner, check_is_learner
from folklearn.learners.leader import ExpertLearner
from folklearn.learners.mixture import Mixture

SAMPLE, RANDOMISED = "sample", "randomised"
EXPLORED, CORRECT = "explored", "correct"
_REGRET, _NEXT_REFRESH = range(2)
_ROUNDS_PER_REFRESH = 20  # a certificate is made again after a twentieth more rounds


class BanditReduction(Agent):
    r"""Turn any online learner into a bandit agent with a mistake bound.

    Use it with a strong learner (`folklearn.Folklore`, `folklearn.auto`) when outcomes are more
    expensive than arithmetic; where they are scarce, ``updates="correct"`` learns far more from
    them (experiments/bandit).

    With probability :math:`\varepsilon` play uniformly and, if that was correct, update the
    learner with the action as label; otherwise exploit the learner's probabilities p:
    ``"sample"`` plays a class drawn from p (the paper); ``"randomised"`` plays the most
    probable class with probability :math:`1 - \min(1, 2(1 - \max p))` and a draw from p
    otherwise, which makes fewer mistakes. Differs from the paper in clipping
    :math:`\varepsilon` at 1, and in ``updates="correct"``: *every* correct action updates, with
    weight :math:`\varepsilon / P(\text{action})`. Time of a round: `predict` of the learner, and
    its `update` in the rounds that learn, in the paper's form about :math:`\varepsilon/K` of them.

    Guarantee, for a constant :math:`\varepsilon`, outcomes without delay and a learner with
    regret at most R(T) against the W of its class: expected mistakes are at most :math:`c
    \sum_t \ell_t(W) + \varepsilon T + c K R(T) / \varepsilon` for every such W, with c = 1 for
    ``"sample"`` and c = 0.7468 for ``"randomised"``; the horizon's choice
    :math:`\varepsilon = \min(1, \sqrt{c K R(T)/T})` makes the last two terms
    :math:`2\sqrt{c K T R(T)}` (`folklearn.evidence.bounds.bandit_mistakes`). For
    ``updates="correct"`` they are :math:`\varepsilon T + c E[C] / \varepsilon`, where C is the
    regret bound of the learner's certificate after all updates, if it covers weighted examples.
    With ``exploration="theory"`` and no horizon, :math:`\varepsilon_t = \min(1, \sqrt{c K R_t /
    t})`, where :math:`R_t` is the regret bound of the certificate so far, at least 1 nat. With
    ``updates="explored"`` that is a heuristic; with ``updates="correct"`` the weights are
    1/P(action), and the bound is :math:`c \sum_t \ell_t(W) + E[\sum_t \varepsilon_t + c\, C]`.

    Parameters
    ----------
    learner : any learner of this library; it is used, not copied.
    horizon : number of rounds T, for :math:`\varepsilon` from the learner's `regret_bound`.
    exploration : :math:`\varepsilon`, above 0 and at most 1, constant; by default 0.1. Or
        "theory", which is cautious: it explores always for the first ten thousands of rounds.
    decoding : ``"sample"`` or ``"randomised"``.
    updates : ``"explored"`` (the paper) or ``"correct"``, with weights up to K, or up to
        :math:`K/\varepsilon_t` where exploration follows the certificate.
    seed : an integer, or a NumPy Generator, which is then used and advanced; not one that
        the learner draws from as well, or a saved agent resumes differently.
    max_pending : decisions that may wait for an outcome, at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Folklore
    >>> from folklearn.bandits import BanditReduction
    >>> agent = BanditReduction(Folklore(n_features=3, n_classes=3), exploration=0.1)
    >>> for x in np.random.default_rng(0).normal(size=(2000, 3)) / 2:
    ...     decision = agent.act(x)
    ...     agent.learn(decision, decision.action == np.argmax(x))
    >>> bool(agent.policy([1.0, 0.0, 0.0]).argmax() == 0)
    True

    References
    ----------
    Agarwal, Kale and Zimmert (2021), Algorithm 2 and Theorem 3. Shibukawa et al. (2025) for
    randomised decoding.
    """

    PARAMS = ("exploration", "decoding", "updates")
    ARRAYS = ("live",)
    CHILDREN = ("learner",)
    # Seen are the learner's probabilities, the exploration, and, once chosen, whether the
    # decision explored.
    N_SEEN_BEYOND_ACTIONS = 2

    def __init__(
        self,
        learner: Learner,
        *,
        horizon: int | None = None,
        exploration: float | str | None = None,
        decoding: str = SAMPLE,
        updates: str = EXPLORED,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        check_is_learner("the learner", learner)
        self.learner = learner
        self.n_features, self.n_classes = learner.n_features, learner.n_classes
        self.decoding = validation.choice("decoding", decoding, (SAMPLE, RANDOMISED))
        self.updates = validation.choice("updates", updates, (EXPLORED, CORRECT))
        self._cost = bounds.DECODING_COST if decoding == RANDOMISED else 1.0
        self.exploration: float | str = THEORY  # that of the live certificate
        # A constant factor of all weights keeps those of a constant exploration at most K.
        self._scale, self._heaviest = 1.0, math.inf
        if exploration == THEORY and horizon is None:
            self._check_certificate()
        else:
            self.exploration = self._scale = choose_exploration(
                exploration, horizon, 0.1, self._theory, positive=True
            )
            self._heaviest = float(self.n_classes)
        self._check_max_weight()
        self._warned = False
        self._live: Array = np.zeros(2)  # regret at the last refresh, and rounds at the next
        self._start(seed, max_pending)

    def _theory(self, horizon: int) -> float:
        regret = self.learner.regret_bound(horizon)
        if not math.isfinite(regret):
            raise InvalidInputError(
                f"a horizon sets exploration by the learner's regret bound, and "
                f"{type(self.learner).__name__} has none: give exploration instead"
            )
        return self._exploration_for(horizon, regret)

    def _exploration_for(self, t: int, regret: float) -> float:
        return bounds.bandit_exploration(
            t, n_classes=self.n_classes, regret=float(regret), cost=self._cost
        )

    def _check_certificate(self) -> None:
        learner, certificate = self.learner, self.learner.certificate()
        is_mixture = isinstance(learner, Mixture | ExpertLearner)
        stays_valid = is_mixture or math.isfinite(learner.regret_bound(1))
        if not (certificate.valid and stays_valid):
            raise InvalidInputError(
                f"{type(learner).__name__} has no live certificate to set exploration by, or "
                f"none that will stay valid ({certificate.reason or repr(learner)}): give "
                "exploration, a number above 0 and at most 1, or horizon if the learner has a "
                "regret bound"
            )

    def _check_max_weight(self) -> None:
        heaviest = self._heaviest if self.updates == CORRECT else 1.0
        limit = self.learner.max_weight
        if self.exploration == THEORY:  # it lives on the certificate
            limit = min(limit, self.learner.max_certified_weight)
        if heaviest > limit:
            advice = "give exploration, which bounds the weights by the number of classes"
            if math.isfinite(heaviest):
                advice = f"construct it with max_weight={heaviest:g}"
            raise InvalidInputError(
                f"updates={self.updates!r} weights examples, and {type(self.learner).__name__} "
                f"takes weights up to {limit:g} only: {advice}"
            )

    def next_exploration(self) -> float:
        """Return the probability with which the next decision explores."""
        if not isinstance(self.exploration, str):
            return self.exploration
        n = self.learner.n_rounds
        if n >= self._live[_NEXT_REFRESH]:
            certificate = self.learner.certificate()
            if not certificate.valid:
                if not self._warned:
                    warnings.warn(
                        f"the learner's certificate has become void ({certificate.reason}), so "
                        "every decision explores from now on: construct the agent with "
                        "exploration=",
                        RuntimeWarning,
                        stacklevel=3,
                    )
                self._warned = True
                return 1.0
            # A mixture may have a regret below 0, and an agent that never explores never learns.
            self._live[:] = max(certificate.regret_bound, 1.0), n + max(1, n // _ROUNDS_PER_REFRESH)
        return self._exploration_for(self.n_decisions + 1, self._live[_REGRET])

    def _see(self, x: Array) -> Array:
        return np.concatenate([self.learner._predict(x), [self.next_exploration(), 0.0]])

    def _exploit(self, p: Array) -> Array:
        if self.decoding == SAMPLE:
            return p
        best = int(np.argmax(p))
        follow = min(1.0, 2.0 * (1.0 - float(p[best])))
        P = follow * p
        P[best] += 1.0 - follow
        return P

    def _play(self, seen: Array) -> Array:
        exploration = float(seen[-2])
        return (1.0 - exploration) * self._exploit(seen[:-2]) + exploration / self.n_classes

    def _choose(self, seen: Array) -> tuple[int, float]:
        if self._rng.random() < seen[-2]:
            seen[-1] = 1.0
            action = int(self._rng.integers(self.n_classes))
        else:
            action = int(draw_action(self._exploit(seen[:-2]), self._rng.random()))
        return action, float(self._play(seen)[action])

    def learn_logged(self, x: ArrayLike, action: int, propensity: float, outcome: Any) -> None:
        """Learn one interaction of another policy; only with ``updates="correct"``.

        With a constant exploration no weight is above K, as among own decisions: actions that
        were less likely than exploration / K count for less than their share.
        """
        if self.updates == EXPLORED:
            raise InvalidInputError(
                f"with updates={EXPLORED!r} only this agent's own explorations teach: construct "
                f"it with updates={CORRECT!r} to learn from a log"
            )
        super().learn_logged(x, action, propensity, outcome)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        if not correct:
            return
        if self.updates == CORRECT:
            weight = validation.weight(min(self._scale / decision.propensity, self._heaviest))
        elif seen[-1] == 1.0:  # it explored
            weight = 1.0
        else:
            return
        self.learner._learn(decision.x.copy(), decision.action, validation.NO_SOFT, weight)
