"""Online multiclass boosting by plain loops, every quantity from its definition.

Costs have the true label first: C[y, k] is the price of saying k when y is right. Weak learners
have predict(x, C) -> label and update(x, C, y). Arg max breaks ties to the lowest index.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, getcontext

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, softmax

from .aioli import DenseAioli
from .curvature import gamma_star
from .dense_folklore import DenseFolklore
from .loss import Array, log_loss

Curvature = Callable[[float], float]


def logistic_costs(s: Array) -> Array:
    """(sigma_k - 1{k = y} + 1 - sigma_y) / K, with 1 - sigma_y as the sum of the others."""
    K = len(s)
    sigma = softmax(s)
    C = np.zeros((K, K))
    for y in range(K):
        others = sum(sigma[j] for j in range(K) if j != y)
        for k in range(K):
            if k != y:
                C[y, k] = (sigma[k] + others) / K
    return C


def pairwise_costs(s: Array) -> Array:
    """AdaBoost.OLM: 1/(1 + e^(s_y - s_k)), minus their sum at k = y, then shifted to 0 there."""
    K = len(s)
    C = np.zeros((K, K))
    for y in range(K):
        for k in range(K):
            if k != y:
                C[y, k] = expit(s[k] - s[y])
        C[y, y] = -sum(C[y, k] for k in range(K) if k != y)
        C[y] -= C[y, y]
    return C


def first_best(s: Array) -> int:
    """Arg max, what differs by rounding being a tie."""
    return int(np.argmax(np.round(s - np.max(s), 10)))


def best_alpha(S: Array, labels: Array, y: Array) -> tuple[float, float]:
    """The alpha in [-2, 2] with the least sum of l(s_t + alpha e_(l_t), y_t), and that sum."""
    S = np.asarray(S, dtype=float)
    rows = np.arange(len(S))

    def total(alpha: float) -> float:
        Z = S.copy()
        Z[rows, labels] += alpha
        return float((np.logaddexp.reduce(Z, axis=1) - Z[rows, y]).sum())

    inside = minimize_scalar(total, bounds=(-2.0, 2.0), method="bounded", options={"xatol": 1e-9})
    return min(((a, total(a)) for a in (-2.0, float(inside.x), 2.0)), key=lambda pair: pair[1])


class SlowRegression:
    """The paper's Algorithm 3 with its errata, a dense binary FOLKLORE or AIOLI inside.

    Parameters
    ----------
    horizon : T where it is known, which clips at ln T; None clips round t = 1, 2, ... at ln(t + 1).
    curvature : gamma_t as a function of Lambda, or anything valid just below it.
    """

    def __init__(
        self,
        n_classes: int,
        horizon: int | None = None,
        regression: str = "folklore",
        curvature: Curvature = gamma_star,
    ) -> None:
        self.n_classes, self.horizon, self.rounds = n_classes, horizon, 0
        self.curvature = curvature
        self.aioli = regression == "aioli"
        # B is only used by the gamma that is replaced in every round.
        self.model = (
            DenseAioli(2, B_theta=4.0, lam=0.5, c=0.5)
            if self.aioli
            else DenseFolklore(2, 2, B=2.0, lam=1.0)
        )

    def context(self, s: Array, label: int) -> Array:
        """x~ = (clip((s~_1 - s~_2) / 2), 1)."""
        clip = math.log(self.rounds + 2 if self.horizon is None else self.horizon)
        gap = s[label] - np.logaddexp.reduce(np.delete(s, label))
        return np.array([min(clip, max(-clip, gap / 2)), 1.0])

    def zeta(self, s: Array, label: int) -> Array:
        """The two logits of 'the label is right' and 'it is wrong', their sum being zero."""
        x = self.context(s, label)
        if self.aioli:
            u = self.model.logit(x)
            return np.array([u / 2, -u / 2])
        z = self.model.argmin(x) @ x
        return z - z.mean()

    def predict(self, s: Array, label: int) -> Array:
        s = np.asarray(s, dtype=float)
        zeta = self.zeta(s, label)
        rest = np.logaddexp.reduce(np.delete(s, label))
        s_hat = np.empty(self.n_classes)
        for k in range(self.n_classes):
            s_hat[k] = zeta[0] if k == label else s[k] + zeta[1] - rest
        return s_hat

    def update(self, s: Array, label: int, y: int, weight: float = 1.0) -> float:
        """The loss of 'right or wrong' in this round, not multiplied by the weight."""
        x = self.context(np.asarray(s, dtype=float), label)
        self.model.gamma = self.curvature(2 * abs(x[0]) + 2)
        right = y == label
        # FOLKLORE's class 0 is 'right'; DenseAioli's logit is that of class 1.
        loss = self.model.update(x, int(right) if self.aioli else int(not right), weight)
        self.rounds += 1
        return loss

    def certificate(self, alpha: float) -> float:
        """Regret against alpha is at most this, without what clipping costs."""
        return 2 + alpha**2 / 2 + self.model.certificate_sum

    def clipping(self) -> float:
        """What clipping costs any alpha in [-2, 2]: at most ln(1 + e^2 / e^(2 clip)) a round."""
        if self.horizon is None:
            return sum(math.log1p(math.e**2 / (t + 1) ** 2) for t in range(1, self.rounds + 1))
        return self.rounds * math.log1p(math.e**2 / self.horizon**2)


class SlowOffset:
    """The offset variant: FTRL on one number alpha, added to the label's score."""

    def __init__(self, n_classes: int, curvature: Curvature = gamma_star) -> None:
        self.n_classes, self.curvature = n_classes, curvature
        self.A, self.g, self.constant = 0.25, 0.0, 0.0
        self.bracket_sum = 0.0

    @property
    def surrogate_min(self) -> float:
        return self.constant - self.g**2 / (4 * self.A)

    def alpha(self, offset: float) -> float:
        centre, reach = -self.g / (2 * self.A), 1 / (4 * self.A)
        return brentq(
            lambda a: a - centre + reach * math.tanh((offset + a) / 2),
            centre - reach - 1e-6,
            centre + reach + 1e-6,
            xtol=1e-15,
            rtol=1e-15,
        )

    def predict(self, s: Array, label: int) -> Array:
        s_hat = np.array(s, dtype=float)
        s_hat[label] += self.alpha(s[label] - np.logaddexp.reduce(np.delete(s, label)))
        return s_hat

    def update(self, s: Array, label: int, y: int, weight: float = 1.0) -> float:
        offset = float(s[label] - np.logaddexp.reduce(np.delete(s, label)))
        alpha = self.alpha(offset)
        u = offset + alpha
        gradient = weight * (-expit(-u) if y == label else expit(u))
        curvature = weight * self.curvature(abs(offset) + 2) * expit(u) * expit(-u)
        loss = log_loss(np.array([u, 0.0]), 0 if y == label else 1)
        before = self.surrogate_min
        self.A += curvature
        self.g += gradient - 2 * curvature * alpha
        self.constant += weight * loss - gradient * alpha + curvature * alpha**2
        self.bracket_sum += weight * loss - (self.surrogate_min - before)
        return loss

    def certificate(self, alpha: float) -> float:
        return alpha**2 / 4 + self.bracket_sum

    def clipping(self) -> float:
        return 0.0


def slow_regression(
    n_classes: int,
    horizon: int | None,
    regression: str,
    curvature: Curvature = gamma_star,
) -> SlowRegression | SlowOffset:
    if regression == "offset":
        return SlowOffset(n_classes, curvature)
    return SlowRegression(n_classes, horizon, regression, curvature)


class Prefixes:
    """Hedge and the Bayes mixture over the N prefixes, with plain probabilities.

    Prefix i says softmax(scale s^i).
    """

    def __init__(self, n_learners: int, scale: float = 1.0) -> None:
        self.scale = scale
        self.v = np.ones(n_learners)
        self.evidence = np.ones(n_learners)

    @property
    def hedge(self) -> Array:
        return self.v / self.v.sum()

    @property
    def posterior(self) -> Array:
        return self.evidence / self.evidence.sum()

    def mixture(self, scores: Array) -> Array:
        p = np.zeros(scores.shape[1])
        for weight, s in zip(self.posterior, scores, strict=True):
            p += weight * softmax(self.scale * s)
        return p

    def update(self, scores: Array, y: int) -> None:
        for i, s in enumerate(scores):
            self.v[i] *= math.exp(-1.0) if first_best(s) != y else 1.0
            self.evidence[i] *= softmax(self.scale * s)[y]
        self.evidence /= self.evidence.max()  # no weight below one matters before 1e-300


class SlowBooster:
    """What the boosters share: one pass over the learners, then Hedge and the mixture.

    A subclass gives `costs(i, s)`, `add(i, s, label)` and `learn(i, s, label, y, after)`.
    """

    def __init__(self, n_classes: int, learners: Sequence) -> None:
        self.n_classes, self.learners = n_classes, list(learners)
        self.prefixes = Prefixes(len(self.learners))
        self.rounds = 0

    def forward(self, x: Array) -> tuple[list[Array], list[int], Array]:
        """Costs and label of every learner, and the scores s^0 ... s^N."""
        scores, costs, labels = [np.zeros(self.n_classes)], [], []
        for i, learner in enumerate(self.learners):
            costs.append(self.costs(i, scores[-1]))
            labels.append(int(learner.predict(x, costs[-1])))
            scores.append(self.add(i, scores[-1], labels[-1]))
        return costs, labels, np.array(scores)

    def scores(self, x: Array) -> Array:
        """s^1 ... s^N."""
        return self.forward(x)[2][1:]

    def predict(self, x: Array) -> Array:
        return self.prefixes.mixture(self.scores(x))

    def update(self, x: Array, y: int) -> None:
        costs, labels, scores = self.forward(x)
        self.rounds += 1
        for i, learner in enumerate(self.learners):
            learner.update(x, costs[i], y)
            self.learn(i, scores[i], labels[i], y, scores[i + 1])
        self.prefixes.update(scores[1:], y)


class SlowOLMpp(SlowBooster):
    """AdaBoost.OLM++ (the paper's Algorithm 4)."""

    def __init__(
        self,
        n_classes: int,
        learners: Sequence,
        horizon: int | None = None,
        regression: str = "folklore",
        curvature: Curvature = gamma_star,
    ) -> None:
        super().__init__(n_classes, learners)
        self.regressions = [
            slow_regression(n_classes, horizon, regression, curvature) for _ in learners
        ]

    def costs(self, i: int, s: Array) -> Array:
        return logistic_costs(s)

    def add(self, i: int, s: Array, label: int) -> Array:
        return self.regressions[i].predict(s, label)

    def learn(self, i: int, s: Array, label: int, y: int, after: Array) -> None:
        self.regressions[i].update(s, label, y)


class SlowOLM(SlowBooster):
    """AdaBoost.OLM (Jung, Goetz, Tewari 2017): pairwise logistic loss, gradient steps on alpha.

    The weak learners see the costs divided by K (K - 1), which puts rows into the unit L1 ball.
    """

    def __init__(self, n_classes: int, learners: Sequence) -> None:
        super().__init__(n_classes, learners)
        self.alpha = np.zeros(len(self.learners))

    def costs(self, i: int, s: Array) -> Array:
        return pairwise_costs(s) / (self.n_classes * (self.n_classes - 1))

    def add(self, i: int, s: Array, label: int) -> Array:
        after = s.copy()
        after[label] += self.alpha[i]
        return after

    def learn(self, i: int, s: Array, label: int, y: int, after: Array) -> None:
        alpha = self.alpha[i]
        if label == y:
            slope = -sum(expit(s[j] - s[y] - alpha) for j in range(self.n_classes) if j != y)
        else:
            slope = expit(s[label] + alpha - s[y])
        step = 2 * math.sqrt(2) / ((self.n_classes - 1) * math.sqrt(self.rounds))
        self.alpha[i] = min(2.0, max(-2.0, alpha - step * slope))


def exact_loss(S, labels, y, w, alpha):
    """Total weighted log loss of s + alpha e_l in 60 digits."""
    getcontext().prec = 60  # and of exponents as good as all
    total = Decimal(0)
    for s, label, target, weight in zip(S, labels, y, w, strict=True):
        z = [Decimal(float(entry)) for entry in s]
        z[label] += Decimal(alpha)
        rest = sum((entry - z[target]).exp() for k, entry in enumerate(z) if k != target)
        total += Decimal(float(weight)) * (rest.ln() if rest > 10**50 else _log1p(rest))
    return total


def _log1p(x):
    return x - x * x / 2 if x < Decimal("1e-30") else (1 + x).ln()
