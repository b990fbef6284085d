"""First-order bandits: Banditron and Gaptron, and the base of all bandit baselines."""

import math
from typing import Any, ClassVar

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import MAX_PENDING, Agent, Decision
from folklearn.bandits.exploration import choose_exploration, greedy
from folklearn.errors import InvalidInputError
from folklearn.kernels.simplex import softmax


class LinearAgent(Agent):
    r"""Base of the bandit baselines: play the best score of W x, and explore uniformly.

    With :math:`\hat y = \arg\max_k (Wx)_k` (ties to the lowest class) and exploration
    :math:`\varepsilon`, the action is :math:`\tilde y \sim P = (1-\varepsilon) e_{\hat y} +
    \varepsilon/K`. Scores and propensity of a delayed outcome are those of its own decision.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem, d at least 1 and K at least 2.
    exploration : :math:`\varepsilon`, from 0 to 1, or "theory", which needs a horizon.
    horizon : number of rounds T; it sets :math:`\varepsilon` by the theory of the algorithm.
    """

    ARRAYS: ClassVar[tuple[str, ...]] = ("W",)
    exploration: float

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return K * d

    def _configure(self, n_features: int, n_classes: int, **norms: float) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        for name, norm in norms.items():
            setattr(self, name, validation.positive(name, norm))
        self._W: Array = np.zeros((self.n_classes, self.n_features))

    def _see(self, x: Array) -> Array:
        scores: Array = self._W @ x
        return scores

    def _play(self, seen: Array) -> Array:
        return greedy(seen, self.exploration)


class Banditron(LinearAgent):
    r"""The multiclass perceptron, with uniform exploration and importance-weighted steps.

    Use it when a round must cost next to nothing and the classes are nearly separable; its
    errors with noisy labels are well above those of `Soba` or `BanditReduction`.

    Plays as `LinearAgent` does. When the outcome arrives,

    .. math:: W \leftarrow W + \Big(\frac{1\{\tilde y = y\}}{P(\tilde y)} e_{\tilde y}
        - e_{\hat y}\Big) x^\top

    whose mean over the draw is the step of the perceptron with the label known.

    Time and memory O(K d) per round.

    Guarantee, for contexts of norm at most R, outcomes without delay and the horizon's
    :math:`\varepsilon`: expected mistakes are at most the multiclass hinge loss of any W of
    Frobenius norm at most D, plus :math:`O(T^{2/3})`. If some W has no loss at all,
    :math:`\varepsilon = D R \sqrt{K/T}` makes it :math:`O(\sqrt T)`. A constant
    :math:`\varepsilon` costs :math:`\varepsilon T`.

    Parameters
    ----------
    n_features, n_classes, seed, max_pending : as `LinearAgent` has them.
    exploration : :math:`\varepsilon`, from 0 to 1; by default 1/32, near the best on streams
        with and without noise (experiments/bandit).
    horizon : number of rounds T, which sets
        :math:`\varepsilon = \min(1, (K D^2 R^2 / (2T))^{1/3})`: it minimises the sum of
        the leading terms :math:`\varepsilon T` and :math:`DR\sqrt{2KT/\varepsilon}` of the
        theorem for a hinge loss of the order of T.
    D, R : norms of the comparator and the contexts, for the horizon only.

    Examples
    --------
    >>> from folklearn import interact, synthetic
    >>> from folklearn.baselines import Banditron
    >>> X, y = synthetic.separable(0, 2000, d=3, K=3)
    >>> log = interact(Banditron(n_features=3, n_classes=3), X, y)
    >>> bool(log.rewards.mean() > 0.75)
    True

    References
    ----------
    Kakade, Shalev-Shwartz and Tewari (2008), "Efficient Bandit Algorithms for Online
    Multiclass Prediction", Algorithm 1, Theorem 2.
    """

    PARAMS = ("n_features", "n_classes", "exploration", "D", "R")
    D: float
    R: float

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        exploration: float | str | None = None,
        horizon: int | None = None,
        D: float = 1.0,
        R: float = 1.0,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._configure(n_features, n_classes, D=D, R=R)
        self.exploration = choose_exploration(exploration, horizon, 1.0 / 32.0, self._theory)
        self._start(seed, max_pending)

    def _theory(self, T: int) -> float:
        return float((self.n_classes * (self.D * self.R) ** 2 / (2.0 * T)) ** (1.0 / 3.0))

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        self._W[np.argmax(seen)] -= decision.x
        if correct:
            self._W[decision.action] += decision.x / decision.propensity


BANDIT = "bandit"
FULL = "full"
_LN2 = math.log(2.0)


class Gaptron(LinearAgent):
    r"""Gradient descent on the logistic loss, randomised by the gap of the prediction.

    Use it for a mistake bound with explicit constants at the cost of a perceptron, or, with
    ``feedback="full"``, where the true class is known and the expected number of mistakes, not
    the log loss, is to be kept low. With noisy labels and bandit feedback `Soba` makes fewer
    mistakes.

    The loss is counted in bits, :math:`-\log_2 p_y` with :math:`p = \mathrm{softmax}(Wx)`, so
    that it is at least 1 wherever another class has p at least 1/2. The logits carry no
    factor: base 2 only divides loss and gradient by ln 2. With :math:`\hat y = \arg\max p`
    (ties to the lowest class), the gap :math:`a = 1 - p_{\hat y}` if that is at most 1/2 and 1
    otherwise, and :math:`q = \max(a, \varepsilon)`, play :math:`\tilde y \sim P = (1-q) e_{\hat y}
    + q/K`. Then

    .. math:: W \leftarrow W - \eta \frac{(p - e_y) \otimes x}{\ln 2} \ \text{(full)}, \qquad
        W \leftarrow W - \eta \frac{1\{\tilde y = y\}}{P(y)} \frac{(p - e_y) \otimes x}{\ln 2}
        \ \text{(bandit)}

    Differs from the paper in that W is not projected onto a ball: the bound below does not need
    it. The bandit step is derived in docs/theory/reductions.md.

    Time and memory O(K d) per round.

    Guarantee, for contexts of norm at most R, outcomes without delay and the default steps,
    against every W: expected mistakes are at most :math:`\sum_t -\log_2
    \mathrm{softmax}(W x_t)_{y_t}` plus :math:`K R^2 \|W\|_F^2 / \ln 2` (full), or plus
    :math:`K^2 R^2 \|W\|_F^2 / (2 \varepsilon \ln 2) + \varepsilon T` (bandit).

    Parameters
    ----------
    n_features, n_classes, seed, max_pending : as `LinearAgent` has them.
    feedback : "bandit", outcomes go to `learn`; or "full", true classes go to `learn_label`.
    exploration : :math:`\varepsilon`, above 0 and at most 1, for bandit feedback only; by
        default 0.1, the best of 0.01 to 0.3 on a separable stream with K = 3.
    horizon : number of rounds T, which sets
        :math:`\varepsilon = \min(1, K R D / \sqrt{2 T \ln 2})`:
        it makes the last two terms of the bandit bound equal for a W of norm D.
    D : norm of the comparator, for the horizon only.
    R : norm of the contexts, for the default step and the horizon.
    step : :math:`\eta`, positive; by default :math:`\ln 2 / (2 K R^2)` (full) or
        :math:`\varepsilon \ln 2 / (K^2 R^2)` (bandit), which is slow for many classes.
        Another step voids the guarantee.

    Examples
    --------
    >>> from folklearn import synthetic
    >>> from folklearn.baselines import Gaptron
    >>> agent = Gaptron(n_features=3, n_classes=3, feedback="full")
    >>> for x, y in zip(*synthetic.separable(0, 2000, d=3, K=3)):
    ...     agent.learn_label(agent.act(x), y)
    >>> bool(agent.policy(x)[y] > 0.5)
    True

    References
    ----------
    van der Hoeven (2020), "Exploiting the Surrogate Gap in Online Multiclass Classification",
    Algorithm 1, Theorems 1 and 4.
    """

    PARAMS = ("n_features", "n_classes", "feedback", "exploration", "D", "R", "step")
    D: float
    R: float

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        feedback: str = BANDIT,
        exploration: float | str | None = None,
        horizon: int | None = None,
        D: float = 1.0,
        R: float = 1.0,
        step: float | None = None,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._configure(n_features, n_classes, D=D, R=R)
        if feedback not in (BANDIT, FULL):
            raise InvalidInputError(f"feedback must be {BANDIT!r} or {FULL!r}, got {feedback!r}")
        self.feedback = feedback
        self.learns_labels = feedback == FULL
        KR = self.n_classes * self.R
        if feedback == FULL:
            if exploration or horizon is not None:
                raise InvalidInputError(
                    "exploration and horizon are for bandit feedback: with feedback='full' every "
                    "round teaches, and none explores"
                )
            self.exploration = 0.0
            default_step = _LN2 / (2.0 * self.n_classes * self.R**2)
        else:
            self.exploration = choose_exploration(
                exploration, horizon, 0.1, lambda T: KR * self.D / math.sqrt(2.0 * _LN2 * T)
            )
            if self.exploration == 0.0:
                raise InvalidInputError(
                    "exploration must be above 0 with feedback='bandit': the step is "
                    "proportional to it"
                )
            default_step = self.exploration * _LN2 / KR**2
        self._fixed_step = None if step is None else validation.positive("step", step)
        self.step = default_step if self._fixed_step is None else self._fixed_step
        self._start(seed, max_pending)

    def _word(self, word: str) -> Any:
        return self._fixed_step if word == "step" else super()._word(word)

    def _see(self, x: Array) -> Array:
        p = np.empty(self.n_classes)
        softmax(self._W @ x, p)
        return p

    def _play(self, seen: Array) -> Array:
        top = float(seen.max())
        gap = 1.0 - top if top >= 0.5 else 1.0
        return greedy(seen, max(gap, self.exploration))

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        if correct:
            self._descend(decision, seen, decision.action, 1.0 / decision.propensity)

    def _descend(self, decision: Decision, p: Array, y: int, weight: float) -> None:
        slope = p.copy()
        slope[y] -= 1.0
        self._W -= np.outer(slope * (self.step * weight / _LN2), decision.x)

    def learn(self, decision: Decision | int, outcome: Any) -> None:
        """Learn whether the action of a decision was right; for bandit feedback only."""
        if self.feedback == FULL:
            raise InvalidInputError(
                "this agent has feedback='full' and learns from true classes: call "
                "learn_label(decision, y), or construct it with feedback='bandit'"
            )
        super().learn(decision, outcome)

    def learn_label(self, decision: Decision | int, y: Any) -> None:
        """Learn the true class y, 0..K-1, of a decision; for full feedback only."""
        if self.feedback == BANDIT:
            raise InvalidInputError(
                "this agent has feedback='bandit' and learns from outcomes: call "
                "learn(decision, correct), or construct it with feedback='full'"
            )
        label, _ = validation.label(y, self.n_classes)
        if label < 0:
            raise InvalidInputError("y must be one class: Gaptron does not learn soft labels")
        decision, seen = self._find(decision)
        self._descend(decision, seen, label, 1.0)
        self._settle(decision)
