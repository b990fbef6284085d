"""The paper's bandit algorithm: any learner of probabilities, with uniform exploration."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import Agent, Decision, choose_exploration
from folklearn.errors import InvalidInputError
from folklearn.kernels.exploration import draw_action
from folklearn.learners.base import Learner, check_is_learner

SAMPLE, RANDOMISED = "sample", "randomised"
EXPLORED, CORRECT = "explored", "correct"
DECODING_COST = 0.7468  # sup over p of (chance of a mistake by randomised decoding) / (-ln p_y)


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
    weight :math:`\varepsilon / P(\text{action})`. Time that of the learner, which is updated in the
    rounds that teach, in the paper's form about :math:`\varepsilon/K` of them.

    Guarantee, for outcomes without delay and a learner with regret at most R(T) against the W of
    its class: expected mistakes are at most :math:`c \sum_t \ell_t(W) + \varepsilon T + c K R(T) /
    \varepsilon` for every such W, with c = 1 for ``"sample"`` and c = 0.7468 for ``"randomised"``;
    the horizon's choice :math:`\varepsilon = \min(1, \sqrt{c K R(T)/T})` makes the last two terms
    :math:`2\sqrt{c K T R(T)}`. For ``updates="correct"`` they are :math:`\varepsilon T + c E[C] /
    \varepsilon`, where C is the regret bound of the learner's certificate after all updates, if it
    covers weighted examples.

    Parameters
    ----------
    learner : any learner of this library; it is used, not copied.
    horizon : number of rounds T, for :math:`\varepsilon` from the learner's `regret_bound`: 1 up
        to some ten thousands.
    exploration : :math:`\varepsilon`, above 0 and at most 1; by default 0.1.
    decoding : ``"sample"`` or ``"randomised"``.
    updates : ``"explored"`` (the paper) or ``"correct"``, with weights up to K.
    seed : an integer, or a NumPy Generator, which is then used and advanced; not one that
        the learner draws from as well, or a saved agent resumes differently.

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
    CHILDREN = ("learner",)
    # Seen are the learner's probabilities and, once chosen, whether the decision explored.
    N_SEEN_BEYOND_ACTIONS = 1

    def __init__(
        self,
        learner: Learner,
        *,
        horizon: int | None = None,
        exploration: float | None = None,
        decoding: str = SAMPLE,
        updates: str = EXPLORED,
        seed: int | np.random.Generator = 0,
    ) -> None:
        check_is_learner("the learner", learner)
        self.learner = learner
        self.n_features, self.n_classes = learner.n_features, learner.n_classes
        self.decoding = validation.choice("decoding", decoding, (SAMPLE, RANDOMISED))
        self.updates = validation.choice("updates", updates, (EXPLORED, CORRECT))
        self._cost = DECODING_COST if decoding == RANDOMISED else 1.0
        self.exploration = choose_exploration(exploration, horizon, 0.1, self._theory)
        if self.exploration == 0.0:
            raise InvalidInputError("exploration must be above 0: without it nothing is learned")
        heaviest = self.n_classes if self.updates == CORRECT else 1
        if heaviest > learner.max_weight:
            raise InvalidInputError(
                f"updates={updates!r} weights examples, and {type(learner).__name__} takes "
                f"weights up to {learner.max_weight:g} only: construct it with "
                f"max_weight={heaviest}"
            )
        self._start(seed)

    def _theory(self, horizon: int) -> float:
        regret = self.learner.regret_bound(horizon)
        if not math.isfinite(regret):
            raise InvalidInputError(
                f"a horizon sets exploration by the learner's regret bound, and "
                f"{type(self.learner).__name__} has none: give exploration instead"
            )
        return math.sqrt(min(1.0, self._cost * self.n_classes * regret / horizon))

    def _see(self, x: Array) -> Array:
        return np.append(self.learner._predict(x), 0.0)

    def _exploit(self, p: Array) -> Array:
        if self.decoding == SAMPLE:
            return p
        best = int(np.argmax(p))
        follow = min(1.0, 2.0 * (1.0 - float(p[best])))
        P = follow * p
        P[best] += 1.0 - follow
        return P

    def _play(self, seen: Array) -> Array:
        exploited = (1.0 - self.exploration) * self._exploit(seen[:-1])
        return exploited + self.exploration / self.n_classes

    def _choose(self, seen: Array) -> tuple[int, float]:
        if self._rng.random() < self.exploration:
            seen[-1] = 1.0
            action = int(self._rng.integers(self.n_classes))
        else:
            action = int(draw_action(self._exploit(seen[:-1]), self._rng.random()))
        return action, float(self._play(seen)[action])

    def learn_logged(self, x: ArrayLike, action: int, propensity: float, outcome: Any) -> None:
        """Learn one interaction of another policy; only with ``updates="correct"``.

        No weight is above K, as among own decisions.
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
        weight = float(seen[-1])  # 1 if it explored
        if self.updates == CORRECT:
            weight = min(self.exploration / decision.propensity, float(self.n_classes))
        if weight > 0.0:
            self.learner._learn(decision.x.copy(), decision.action, validation.NO_SOFT, weight)
