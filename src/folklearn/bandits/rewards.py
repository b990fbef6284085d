"""Agents of rewards: regressions of the reward, played by the gaps of their predictions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import Agent, Decision
from folklearn.errors import InvalidInputError
from folklearn.kernels import exploration
from folklearn.learners.auto import auto as auto_learner
from folklearn.learners.base import Learner, check_is_learner
from folklearn.learners.folklore import certificate_at_norm
from folklearn.scaler import OnlineScaler
from folklearn.utils import count_of


@dataclass(frozen=True)
class RegretCertificate:
    r"""A bound on the expected regret of all decisions so far, and what it rests on.

    The regret of a decision is the expected reward of the best action minus that of the action
    that was played. Its expectation is at most :math:`E[\sum_t c_t + \eta \sum_a C_a]`, and `bound`
    is what stands in the brackets: :math:`c_t` is the most that round t could cost beyond
    :math:`\eta_t` times its excess log loss, :math:`\eta` the largest of these, and :math:`C_a` the
    certified log-loss regret of the regressions (docs/theory/reductions.md).
    """

    n_rounds: int  #: decisions whose reward was learned
    explored: float  #: the sum of c_t
    eta: float
    regression: float  #: the sum of C_a, in nats
    B: float  #: row norm of the linear models; a logit, the difference of two rows, has at most 2 B
    features: str  #: what the regressions are linear in
    reason: str  #: why nothing is proven, or empty

    @property
    def valid(self) -> bool:
        """Whether the proof applies to what happened; the hypotheses remain the caller's."""
        return not self.reason

    @property
    def bound(self) -> float:
        """The bound on the expected regret; infinite if nothing is proven."""
        return math.inf if self.reason else self.explored + self.eta * self.regression

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What must be true of contexts and rewards for the bound to hold."""
        return (
            "the expected reward of an action is the sigmoid of a linear function of "
            f"{self.features}, with weights of norm at most {2.0 * self.B:g} that never change",
            "contexts may depend on all that happened before, but not on the draw to come",
            "every reward arrives before the next decision, and none twice, those of logs included",
            "the numbers of decisions and of actions to choose from do not depend on the rewards",
        )

    def in_words(self) -> str:
        """Return what is proven, with its hypotheses, in plain sentences."""
        if self.reason or not self.n_rounds:
            reason = self.reason or "there was no decision yet"
            return f"Nothing is proven about the regret: {reason}."
        share = self.bound / self.n_rounds
        worth = "" if share < 1.0 else " This says nothing yet: no regret is above 1 a decision."
        return (
            f"In expectation the rewards of {count_of(self.n_rounds, 'decision')} fall short of "
            f"those of the best actions by at most the mean of a bound that is {self.bound:.4g} "
            f"here, {share:.2g} a decision: "
            f"{self.explored:.4g} for exploring, and {self.regression:.4g} nats of regret of the "
            f"regressions at {self.eta:.3g} each.{worth} It holds if {'; '.join(self.hypotheses)}."
        )


def why_unproven(n_missing: int, n_late: int) -> str:
    """Say why nothing is proven, from decisions without a reward of their own, and late rewards."""
    if n_missing:
        return f"{count_of(n_missing, 'decision')} had no reward of their own"
    if n_late:
        return f"{count_of(n_late, 'reward')} came after a later decision, or after a log"
    return ""


class Rule(NamedTuple):
    """A way to play by expected losses (K,) in [0, 1] and a strength gamma that grows."""

    play: Callable[[Array, float], Array]  # probabilities (K,), of losses and gamma
    price: float  # eta / gamma, for the certificate: what a nat of excess log loss counts there


RULES = {
    "fastcb": Rule(exploration.fastcb, price=1.0),
    "squarecb": Rule(exploration.squarecb, price=1.0 / 8.0),
}
_MAX_COST = 2.0  # with these prices a round costs at most 2 K / gamma
_THEORY = "theory"  # in place of a strength: what the proof asks for
_EXPLORED, _ETA = range(2)


class RewardAgent(Agent):
    r"""Play one of K fixed actions for a reward in [0, 1], by a regression for each of them.

    Use it when an action brings a click, a price or a grade; `auto` makes one that needs nothing to
    be set. Where actions have features, or come and go, use `folklearn.DecisionModel`.

    Regression a predicts the reward of action a by log loss: a reward r is the soft label
    (1 - r, r). With the expected losses :math:`f_a = 1 - E[r \mid x, a]`, the best action b and
    :math:`\gamma_t = \text{strength} \sqrt{K t}`, the action is drawn from

    ============  =================================================================
    exploration   P_a for a other than b; b has the rest
    ============  =================================================================
    "fastcb"      :math:`f_b / (K f_b + \gamma_t (f_a - f_b))`
    "squarecb"    :math:`1 / (K + \gamma_t (f_a - f_b))`
    ============  =================================================================

    Only the regression of the action that was played learns. Time: K predictions and one update.

    Guarantee: if the rewards are realizable (E[r | x, a] is the sigmoid of a linear function in
    the class of the regressions), whatever the contexts and with rewards at once, expected regret
    is at most E ``regret_certificate().bound``, under both explorations. This says something of the
    default strength only after millions of rounds; ``strength="theory"`` explores more and makes it
    least where a regression has a regret of :math:`\frac d2 \ln t` nats.

    Parameters
    ----------
    regressions : a learner of two classes for each action, of equal n_features; used, not copied.
    scale : standardise contexts as their rewards come, and append a constant (`OnlineScaler`):
        the regressions then have one feature more than a context.
    exploration : how the expected rewards are played.
    strength : of :math:`\gamma_t`, positive; or "theory".
    default_reward : what a decision gets that expires (`expire`); by default it is dropped.
    wait : decisions after which one without a reward expires, at least 1; by default never.
    seed : as for `BanditReduction`.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import bandits
    >>> agent = bandits.auto(n_features=3, n_actions=4)
    >>> for x in np.random.default_rng(0).normal(size=(1000, 3)) / 2:
    ...     decision = agent.act(x)
    ...     agent.learn(decision, 0.9 if decision.action == np.argmax([*x, 0.2]) else 0.1)
    >>> agent.expected_rewards([1.0, 0.0, 0.0]).argmax()
    np.int64(0)

    References
    ----------
    Foster and Rakhlin (2020), "Beyond UCB", for SquareCB; Foster and Krishnamurthy (2021),
    "Efficient First-Order Contextual Bandits", for FastCB. Constants: docs/theory/reductions.md.
    """

    PARAMS = ("exploration", "strength", "default_reward", "wait", "scale")
    CHILDREN = ("regressions",)
    COUNTERS = (*Agent.COUNTERS, "n_expired", "n_late")
    ARRAYS = ("totals",)
    STATE: ClassVar = {"_scaler": OnlineScaler}
    # Seen are the expected loss of every action, which unlike a reward near 1 keeps its digits,
    # and gamma.
    N_SEEN_BEYOND_ACTIONS = 1

    def __init__(
        self,
        regressions: Sequence[Learner],
        *,
        scale: bool = False,
        exploration: str = "fastcb",
        strength: float | str = 5.0,
        default_reward: float | None = None,
        wait: int | None = None,
        seed: int | np.random.Generator = 0,
    ) -> None:
        self.regressions = list(regressions)
        _check_regressions(self.regressions)
        self.scale = bool(scale)
        self.n_features = self.regressions[0].n_features - self.scale
        self.n_classes = len(self.regressions)
        self._scaler = OnlineScaler(n_features=self.n_features) if self.scale else None
        self.exploration = validation.choice("exploration", exploration, tuple(RULES))
        self._rule = RULES[exploration]
        self.strength: float | str = _THEORY
        if strength != _THEORY:
            self.strength = validation.positive("strength", strength)
        self.n_late = 0
        self._totals: Array = np.zeros(2)
        self._start(seed, default_reward, wait)
        self.default_reward = self._default

    def _gamma(self, t: int) -> float:
        """Return gamma of decision t, counted from 1: a function of t alone, as the proof needs."""
        K = self.n_classes
        if self.strength != _THEORY:
            return float(self.strength) * math.sqrt(K * t)
        # Where rewards are realizable a regression of d weights costs about d/2 ln t nats; this is
        # the gamma with the least bound after t rounds, if all had gamma ~ sqrt(t).
        regret = 0.5 * K * self.n_features * math.log1p(t / K)
        return math.sqrt(2.0 * _MAX_COST * K * t / (self._rule.price * regret))

    def _outcome(self, value: Any) -> float:
        numbers = bool | int | float | np.bool_ | np.integer | np.floating
        if isinstance(value, numbers) and 0 <= value <= 1:
            return float(value)
        raise InvalidInputError(f"reward must be a number from 0 to 1, got {value!r}")

    def _see(self, x: Array) -> Array:
        return np.append(self._losses_of(x), self._gamma(self.n_decisions + 1))

    def _play(self, seen: Array) -> Array:
        return self._rule.play(seen[:-1], float(seen[-1]))

    def _absorb(self, decision: Decision, seen: Array, outcome: Any) -> None:
        self._teach(decision, np.array([1.0 - outcome, outcome]))
        if decision.id < 0:  # of a log: it teaches, and is no regret of this agent
            self.n_late += len(self._pending)  # played by what was predicted before
            return
        eta = self._rule.price * float(seen[-1])
        self._totals[_EXPLORED] += exploration.most_regret(self._play(seen), seen[:-1], eta)
        self._totals[_ETA] = max(self._totals[_ETA], eta)
        self.n_late += decision.id < self.n_decisions - 1

    def regret_certificate(self, *, B: float | None = None) -> RegretCertificate:
        """Return what is proven about the expected regret so far.

        B may be smaller than that of the regressions, which is 10 for those that know none.
        """
        certificates = [certificate_at_norm(learner, B) for learner in self.regressions]
        overdue = len(self._pending) - (self.n_decisions - 1 in self._pending)
        n_missing = self.n_dropped + self.n_expired + overdue
        reasons = [why_unproven(n_missing, self.n_late)]
        reasons += [of_action.reason for of_action in certificates]
        return RegretCertificate(
            self.n_outcomes,
            float(self._totals[_EXPLORED]),
            float(self._totals[_ETA]),
            sum(max(of_action.regret_bound, 0.0) for of_action in certificates),
            min(of_action.B or 0.0 for of_action in certificates),
            "the scaled features" if self.scale else "its features",
            next(filter(None, reasons), ""),
        )

    def _losses_of(self, x: Array) -> Array:
        z = x if self._scaler is None else self._scaler.scale_row(x, False)
        return np.array([float(learner._predict(z)[0]) for learner in self.regressions])

    def _teach(self, decision: Decision, soft: Array) -> None:
        # A copy: kernels would be compiled once more for an array that is read-only.
        x = decision.x.copy()
        z = x if self._scaler is None else self._scaler.scale_row(x, True)
        self.regressions[decision.action]._learn(z, -1, soft, 1.0)

    def expected_rewards(self, x: ArrayLike) -> Array:
        """Return the expected reward (K,) of every action, for a context (d,)."""
        return 1.0 - self._losses_of(validation.usable_context(x, self.n_features))


def _check_regressions(learners: Sequence[Any]) -> None:
    if len(learners) < 2:
        raise InvalidInputError("an agent needs at least two actions, a regression for each")
    for learner in learners:
        check_is_learner("a regression", learner)
        if learner.n_classes != 2:
            raise InvalidInputError(
                f"a regression of rewards has two classes, no reward and all of it; {learner!r} "
                f"has {learner.n_classes}"
            )
    if len({learner.n_features for learner in learners}) > 1:
        raise InvalidInputError("the regressions take different numbers of features")
    if len(set(map(id, learners))) < len(learners):
        raise InvalidInputError("one learner stands for two actions: give each its own")


def auto(*, n_features: int, n_actions: int, scale: bool = True, **options: Any) -> RewardAgent:
    """Return the agent to use by default: no horizon, no rate, no exploration to set.

    FastCB over `folklearn.auto` for each action: see `RewardAgent`, which has the `options`.
    Contexts are numbers of any scale; `scale` is False for those that have norms of about 1 and
    hold a constant already.
    """
    n_columns = validation.count("n_features", n_features, 1) + bool(scale)
    # K of them predict for every decision, and Folklore would be a third of that.
    regressions = [
        auto_learner(n_features=n_columns, n_classes=2, worst_case=False)
        for _ in range(validation.count("n_actions", n_actions, 2))
    ]
    return RewardAgent(regressions, scale=scale, **options)
