"""Agents of rewards: regressions of the reward, played by the gaps of their predictions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import MAX_PENDING, Agent, Decision
from folklearn.bandits.exploration import RULES, THEORY
from folklearn.errors import InvalidInputError
from folklearn.kernels.gaps import most_regret
from folklearn.learners.auto import auto as auto_learner
from folklearn.learners.base import Learner, check_is_learner
from folklearn.scaler import OnlineScaler
from folklearn.serialization import Record, put_inside
from folklearn.utils import count_of


@dataclass(frozen=True)
class RegretCertificate:
    r"""A bound on the expected regret of all decisions so far, and what it rests on.

    The regret of a decision is the expected reward of the best action minus that of the action
    that was played. Its expectation over the draws of the agent and the rewards is at most

    .. math:: E\Big[\sum_t c_t + \eta \sum_a C_a\Big]

    and `bound` is what stands in the brackets, measured: :math:`c_t` is the most that round t
    could cost beyond :math:`\eta_t` times its excess log loss (known before it is played),
    :math:`\eta` the largest :math:`\eta_t`, and :math:`C_a` the certified log-loss regret of the
    regressions. The proof is in docs/theory/reductions.md.

    Attributes
    ----------
    n_rounds : decisions whose reward was learned.
    explored : the sum of :math:`c_t`.
    eta : the price of a nat, :math:`\eta`.
    regression : the sum of :math:`C_a`, in nats.
    B : row norm of the linear models that the regressions compete with; the logit of a reward,
        the difference of two rows, has weights of norm at most 2 B.
    features : what the regressions are linear in.
    reason : why nothing is proven, or an empty string.
    """

    n_rounds: int
    explored: float
    eta: float
    regression: float
    B: float
    features: str = "its features"
    reason: str = ""

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
            "the number of decisions does not depend on the rewards",
        )

    def in_words(self) -> str:
        """Return what is proven, with its hypotheses, in plain sentences."""
        if self.reason:
            return f"Nothing is proven about the regret: {self.reason}."
        if not self.n_rounds:
            return "Nothing is proven about the regret: there was no decision yet."
        share = self.bound / self.n_rounds
        worth = "" if share < 1.0 else " This says nothing yet: no regret is above 1 a decision."
        return (
            f"In expectation the rewards of {count_of(self.n_rounds, 'decision')} fall short of "
            f"those of the best actions by at most the mean of a bound that is {self.bound:.4g} "
            f"here, {share:.2g} a decision: "
            f"{self.explored:.4g} for exploring, and {self.regression:.4g} nats of regret of the "
            f"regressions at {self.eta:.3g} each.{worth} It holds if {'; '.join(self.hypotheses)}."
        )


DEFAULT_STRENGTH = 5.0
_EXPLORED, _ETA = range(2)


class RegressionAgent(Agent):
    """Base of agents of rewards: how they play, expire decisions, and bound their regret.

    A subclass implements `_regressions`, `_losses_of` and `_teach`, and calls `_begin`. Seen are
    the expected loss of every action, which unlike a reward near 1 keeps its digits, and gamma.

    Attributes
    ----------
    n_actions : K, or the usual number of actions where it varies; it sets gamma.
    """

    PARAMS: ClassVar[tuple[str, ...]] = ("exploration", "strength", "default_reward", "wait")
    COUNTERS = (*Agent.COUNTERS, "n_expired", "n_late")
    ARRAYS = ("totals",)
    N_SEEN_BEYOND_ACTIONS = 1
    n_actions: int

    def _begin(
        self,
        exploration: str,
        strength: float | str,
        default_reward: float | None,
        wait: int | None,
        seed: int | np.random.Generator,
        max_pending: int,
    ) -> None:
        if exploration not in RULES:
            raise InvalidInputError(
                f"exploration must be one of {', '.join(RULES)}, got {exploration!r}"
            )
        self.exploration = exploration
        self._rule = RULES[exploration]
        self.strength = (
            strength if strength == THEORY else validation.positive("strength", strength)
        )
        self.n_late = 0
        self._totals: Array = np.zeros(2)
        self._start(seed, max_pending, default_reward, wait)
        self.default_reward = self._default
        self._gamma(1)

    def _regressions(self) -> Sequence[Learner]:
        raise NotImplementedError

    def _losses_of(self, x: Array) -> Array:
        """Return 1 minus the expected rewards, (K,), of a checked context."""
        raise NotImplementedError

    def _teach(self, decision: Decision, soft: Array) -> None:
        """Let a regression learn the soft label (1 - reward, reward) of a decision."""
        raise NotImplementedError

    def _gamma(self, t: int) -> float:
        """Return gamma of decision t, counted from 1: a function of t alone, as the proof needs."""
        K = self.n_actions
        if self.strength != THEORY:
            return float(self.strength) * math.sqrt(K * t)
        # Where rewards are realizable a regression of d weights costs about d/2 ln t nats.
        n = len(self._regressions())
        return self._rule.best_gamma(t, K, 0.5 * n * self.n_features * math.log1p(t / n))

    def _outcome(self, value: Any) -> float:
        is_real = isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
        if is_real and 0 <= value <= 1:
            return float(value)
        raise InvalidInputError(f"reward must be a number from 0 to 1, got {value!r}")

    def _see(self, x: Array) -> Array:
        losses = self._losses_of(x)
        seen = np.empty(len(losses) + 1)
        seen[:-1] = losses
        seen[-1] = self._gamma(self.n_decisions + 1)
        return seen

    def _play(self, seen: Array) -> Array:
        return self._rule.play(seen[:-1], float(seen[-1]))

    def _absorb(self, decision: Decision, seen: Array, outcome: Any) -> None:
        self._teach(decision, np.array([1.0 - outcome, outcome]))
        if decision.id < 0:  # of a log: it teaches, and is no regret of this agent
            self.n_late += len(self._pending)  # played by what was predicted before
            return
        eta = self._rule.price * float(seen[-1])
        self._totals[_EXPLORED] += most_regret(self._play(seen), seen[:-1], eta)
        self._totals[_ETA] = max(self._totals[_ETA], eta)
        self.n_late += decision.id < self.n_decisions - 1

    def regret_certificate(self, *, B: float | None = None) -> RegretCertificate:
        """Return what is proven about the expected regret so far.

        B may be smaller than that of the regressions: a smaller class, and a smaller bound.
        """
        certificates = [learner.certificate(B=B) for learner in self._regressions()]
        return RegretCertificate(
            n_rounds=self.n_outcomes,
            explored=float(self._totals[_EXPLORED]),
            eta=float(self._totals[_ETA]),
            regression=sum(max(of_action.regret_bound, 0.0) for of_action in certificates),
            B=min(of_action.B for of_action in certificates),
            features=self._features(),
            reason=self._why_unproven()
            or next((of_action.reason for of_action in certificates if of_action.reason), ""),
        )

    def _features(self) -> str:
        return "its features"

    def _why_unproven(self) -> str:
        overdue = len(self._pending) - (self.n_decisions - 1 in self._pending)
        missing = self.n_dropped + self.n_expired + overdue
        if missing:
            return f"{count_of(missing, 'decision')} had no reward of their own"
        if self.n_late:
            return f"{count_of(self.n_late, 'reward')} came after a later decision, or after a log"
        return ""


class RewardAgent(RegressionAgent):
    r"""Play one of K fixed actions for a reward in [0, 1], by a regression for each of them.

    Use it when an action brings a click, a price or a grade and not a class; `auto` makes one
    that needs nothing to be set. Where actions have features of their own, or come and go, use
    `ListAgent`.

    Regression a predicts the reward of action a by log loss: a reward r is the soft label
    (1 - r, r). With the expected losses :math:`f_a = 1 - E[r \mid x, a]`, the best action b and
    :math:`\gamma_t = \text{strength} \sqrt{K t}`, the action is drawn from

    ============  =================================================================
    exploration   P_a for a other than b; b has the rest
    ============  =================================================================
    "fastcb"      :math:`f_b / (K f_b + \gamma_t (f_a - f_b))`
    "squarecb"    :math:`1 / (K + \gamma_t (f_a - f_b))`
    "epsilon"     :math:`1 / (K + \gamma_t)`
    "softmax"     proportional to :math:`\exp(-\gamma_t (f_a - f_b) / K)`, b too
    ============  =================================================================

    No horizon and no rate. Only the regression of the action that was played learns, without
    weights; a late reward is learned with the state that it finds.

    Time of a decision: K predictions and one update of a regression.

    Guarantee: if the rewards are realizable (E[r | x, a] is the sigmoid of a linear function in
    the class of the regressions), whatever the contexts and with rewards at once, expected regret
    is at most E ``regret_certificate().bound``, under every exploration. In advance: for
    :math:`C_T` nats of regret of all regressions together, "fastcb" has at most :math:`\sum_t 2 K
    f_b / \gamma_t + \gamma_T C_T` if :math:`\gamma_1 \ge 2 K` and "squarecb" at most :math:`\sum_t
    2 (K - 1) / \gamma_t + \gamma_T C_T / 8`. The default
    strength is for reward: its bound is true, and below 1 a decision only after millions of rounds.
    ``strength="theory"`` explores more and makes it least where :math:`C_T` is what realizable
    rewards cost, :math:`\frac d2 \ln t` nats a regression. Without realizability nothing is
    proven.

    Parameters
    ----------
    regressions : a learner of two classes for each action, of equal n_features; used, not copied.
    scale : standardise contexts as their rewards come, and append a constant (`OnlineScaler`):
        the regressions then have one feature more than a context.
    exploration : how the expected rewards are played.
    strength : of :math:`\gamma_t`, positive; or "theory", for "fastcb" and "squarecb".
    default_reward : what a decision gets that expires (`expire`); by default it is dropped.
    wait : decisions after which one without a reward expires, at least 1; by default never.
    seed : an integer, or a NumPy Generator, which is then used and advanced.
    max_pending : decisions that may wait for a reward, at least 1; beyond, the oldest expires.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import bandits
    >>> rng = np.random.default_rng(0)
    >>> agent = bandits.auto(n_features=3, n_actions=4)
    >>> for t in range(1000):
    ...     x = rng.normal(size=3) / 2
    ...     decision = agent.act(x)
    ...     agent.learn(decision, 0.9 if decision.action == np.argmax([*x, 0.2]) else 0.1)
    >>> agent.expected_rewards([1.0, 0.0, 0.0]).argmax()
    np.int64(0)

    References
    ----------
    Foster and Rakhlin (2020), "Beyond UCB", for SquareCB; Foster and Krishnamurthy (2021),
    "Efficient First-Order Contextual Bandits", for FastCB. Constants: docs/theory/reductions.md.
    """

    PARAMS = (*RegressionAgent.PARAMS, "scale")
    CHILDREN = ("regressions",)

    def __init__(
        self,
        regressions: Sequence[Learner],
        *,
        scale: bool = False,
        exploration: str = "fastcb",
        strength: float | str = DEFAULT_STRENGTH,
        default_reward: float | None = None,
        wait: int | None = None,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self.regressions = list(regressions)
        self.n_actions = self.n_classes = len(self.regressions)
        if self.n_actions < 2:
            raise InvalidInputError("an agent needs at least two actions, a regression for each")
        for learner in self.regressions:
            check_is_regression(learner)
        n_columns = self.regressions[0].n_features
        if {learner.n_features for learner in self.regressions} != {n_columns}:
            raise InvalidInputError("the regressions take different numbers of features")
        self.scale = bool(scale)
        self.n_features = n_columns - self.scale
        self._scaler = OnlineScaler(n_features=self.n_features) if self.scale else None
        if len({id(learner) for learner in self.regressions}) < self.n_actions:
            raise InvalidInputError("one learner stands for two actions: give each its own")
        self._begin(exploration, strength, default_reward, wait, seed, max_pending)

    def _regressions(self) -> Sequence[Learner]:
        return self.regressions

    def _scale_context(self, x: Array, learn: bool) -> Array:
        return x if self._scaler is None else self._scaler.one(x, learn)

    def _losses_of(self, x: Array) -> Array:
        z = self._scale_context(x, False)
        return np.array([float(learner._predict(z)[0]) for learner in self.regressions])

    def _teach(self, decision: Decision, soft: Array) -> None:
        # A copy: kernels would be compiled once more for an array that is read-only.
        z = self._scale_context(decision.x.copy(), True)
        self.regressions[decision.action]._learn(z, -1, soft, 1.0)

    def _features(self) -> str:
        return "the scaled features" if self.scale else super()._features()

    def expected_rewards(self, x: ArrayLike) -> Array:
        """Return the expected reward of every action: (d,) in, (K,) out; (T, d) in, (T, K) out."""
        x = validation.numbers("x", x)
        if x.ndim == 2:
            rows = validation.contexts(x, self.n_features)
            if self._scaler is not None:
                Z = self._scaler.transform(rows[0])
                rows = Z, validation.norms(Z)
            predictions = [learner._predict_rows(*rows) for learner in self.regressions]
            return np.stack([P[:, 1] for P in predictions], axis=1)
        return 1.0 - self._losses_of(validation.usable_context(x, self.n_features))

    def to_record(self) -> Record:
        """Return the full state as a record."""
        record = super().to_record()
        if self._scaler is not None:
            put_inside(record, "scaler", self._scaler)
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        if self._scaler is not None:
            self._scaler = record.inner("scaler", OnlineScaler)


def check_is_regression(learner: Any) -> None:
    """Raise if something cannot learn rewards."""
    check_is_learner("a regression", learner)
    if learner.n_classes != 2:
        raise InvalidInputError(
            f"a regression of rewards has two classes, no reward and all of it; {learner!r} has "
            f"{learner.n_classes}"
        )


def auto(
    *,
    n_features: int,
    n_actions: int,
    scale: bool = True,
    default_reward: float | None = None,
    wait: int | None = None,
    seed: int | np.random.Generator = 0,
    max_pending: int = MAX_PENDING,
) -> RewardAgent:
    """Return the agent to use by default: no horizon, no rate, no exploration to set.

    FastCB over `folklearn.auto` for each action: see `RewardAgent` for what it does and what is
    proven. Contexts are numbers of any scale.

    A decision and its reward take K predictions and one update: at 20 features and 10 actions 0.7
    of Vowpal Wabbit's time (benchmarks/results/decisions.md).

    Parameters
    ----------
    n_features, n_actions : sizes of the problem, n_actions at least 2.
    scale : False for contexts that have norms of about 1 and hold a constant already.
    default_reward, wait, seed, max_pending : as `RewardAgent` has them.

    Examples
    --------
    >>> from folklearn import bandits
    >>> agent = bandits.auto(n_features=3, n_actions=2)
    >>> decision = agent.act([31.0, 1250.0, 0.0])
    >>> agent.learn(decision, 0.8)
    >>> bool(agent.expected_rewards([31.0, 1250.0, 0.0])[decision.action] > 0.5)
    True
    """
    K = validation.count("n_actions", n_actions, 2)
    # K of them predict for every decision, and Folklore would be a third of that.
    regressions = [
        auto_learner(n_features=n_features + bool(scale), n_classes=2, worst_case=False)
        for _ in range(K)
    ]
    return RewardAgent(
        regressions,
        scale=scale,
        default_reward=default_reward,
        wait=wait,
        seed=seed,
        max_pending=max_pending,
    )
