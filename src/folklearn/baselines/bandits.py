"""Bandits with linear scores: Banditron, and Soba and Newtron of second order."""

import math
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.linalg.blas import dsymv, dsyr

from folklearn import validation
from folklearn.arrays import Array, softmax
from folklearn.bandits.agent import Agent, Decision, choose_exploration
from folklearn.errors import FolklearnError
from folklearn.kernels.blas import OneThread
from folklearn.kernels.simplex import helmert

_INVERSE_ROUNDING = 1e-14  # relative rounding of A^-1, beyond which a direction is lost
_NORM_TOLERANCE = 1e-12  # of D, on the norm of W
_MAX_NEWTON_STEPS = 100
_MIN_GRADIENT_NORM = 1e-100  # a gradient so small that squares of it underflow


class LinearAgent(Agent):
    r"""Base of the bandit baselines: play the best score of W x, and explore uniformly.

    With :math:`\hat y = \arg\max_k (Wx)_k` (ties to the lowest class) and exploration
    :math:`\varepsilon`, the action is :math:`\tilde y \sim P = (1-\varepsilon) e_{\hat y} +
    \varepsilon/K`. Guarantees are for outcomes without delay, and contexts of norm at most R.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem, d at least 1 and K at least 2.
    exploration : :math:`\varepsilon`, from 0 to 1.
    horizon : number of rounds T; it sets :math:`\varepsilon` by the theory of the algorithm.
    D, R : norms of the comparator and the contexts, positive, where theory asks for them.
    seed : an integer, or a NumPy Generator, which is then used and advanced.

    Examples
    --------
    >>> from folklearn import interact, synthetic
    >>> from folklearn.baselines import Banditron, Newtron, Soba
    >>> X, y = synthetic.separable(0, 2000, d=3, K=3)
    >>> agents = [kind(n_features=3, n_classes=3) for kind in (Banditron, Newtron, Soba)]
    >>> [bool(interact(agent, X, y).rewards.mean() > 0.7) for agent in agents]
    [True, True, True]
    """

    PARAMS: ClassVar[tuple[str, ...]] = ("n_features", "n_classes", "exploration", "D", "R")
    ARRAYS: ClassVar[tuple[str, ...]] = ("W",)
    DEFAULT_EXPLORATION: ClassVar[float]
    FEWEST_NUMBERS = staticmethod(lambda d, K: K * d)

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        exploration: float | None = None,
        horizon: int | None = None,
        D: float = 1.0,
        R: float = 1.0,
        seed: int | np.random.Generator = 0,
    ) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self.D = validation.positive("D", D)
        self.R = validation.positive("R", R)
        self.exploration = choose_exploration(
            exploration, horizon, self.DEFAULT_EXPLORATION, self._theory
        )
        self._W: Array = np.zeros((self.n_classes, self.n_features))
        self._start(seed)

    def _theory(self, T: int) -> float:
        raise NotImplementedError

    def _see(self, x: Array) -> Array:
        return self._W @ x

    def _play(self, seen: Array) -> Array:
        P = np.full(len(seen), self.exploration / len(seen))
        P[np.argmax(seen)] += 1.0 - self.exploration
        return P


class Banditron(LinearAgent):
    r"""The multiclass perceptron, with uniform exploration and importance-weighted steps.

    Use it when a round must cost next to nothing, O(K d), and the classes are nearly separable.

    .. math:: W \leftarrow W + \Big(\frac{1\{\tilde y = y\}}{P(\tilde y)} e_{\tilde y}
        - e_{\hat y}\Big) x^\top

    Guarantee, for the horizon's :math:`\varepsilon = \min(1, (K D^2 R^2 / (2T))^{1/3})`: expected
    mistakes are at most the multiclass hinge loss of any W of Frobenius norm at most D, plus
    :math:`O(T^{2/3})`.

    Parameters
    ----------
    exploration : :math:`\varepsilon`, by default 1/32, near the best with and without noise.
    n_features, n_classes, horizon, D, R, seed : as for `LinearAgent`.

    References
    ----------
    Kakade, Shalev-Shwartz and Tewari (2008), "Efficient Bandit Algorithms for Online Multiclass
    Prediction", Algorithm 1, Theorem 2.
    """

    DEFAULT_EXPLORATION = 1.0 / 32.0

    def _theory(self, T: int) -> float:
        return float((self.n_classes * (self.D * self.R) ** 2 / (2.0 * T)) ** (1.0 / 3.0))

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        self._W[np.argmax(seen)] -= decision.x
        if correct:
            self._W[decision.action] += decision.x / decision.propensity


class Soba(LinearAgent):
    r"""A second-order perceptron with uniform exploration, which learns from correct rounds.

    Use it when classes are nearly separable and labels noisy, or features differ in scale.

    A correct outcome, with :math:`\bar y` the best other class when the decision was made, gives

    .. math:: g = \frac1{P(y)} (e_{\bar y} - e_y) \otimes x, \qquad \zeta = \sqrt{P(y)}\, g,
        \qquad m = \frac{\langle W, \zeta\rangle^2 + 2\langle W, g\rangle}
        {1 + \zeta^\top A^{-1} \zeta}

    and, if the sum of all m, this one included, is at least 0, :math:`A \leftarrow A +
    \zeta\zeta^\top`, :math:`\theta \leftarrow \theta - g` and :math:`W = A^{-1}\theta`, from A = I
    and :math:`\theta = 0`; otherwise nothing changes, the sum included. Time O((K d)^2) for a round
    that learns, memory 8 (K d)^2 bytes. An outcome is refused where the inverse has no
    digits left, at :math:`|x| / \sqrt{P(y)}` above about 1e7.

    Guarantee, for every U: expected mistakes are at most :math:`\sum_t (1 -
    M_t)^2`, with :math:`M_t` the margin of U for y over :math:`\bar y`, plus :math:`\|U\|_F^2 +
    \varepsilon T + \frac K\varepsilon K d \ln(1 + \frac{2TR^2}{Kd})`, of which the horizon's
    :math:`\varepsilon = \min(1, K\sqrt{d \ln(1 + 2TR^2 / (Kd)) / T})` makes the last terms equal.

    Parameters
    ----------
    exploration : :math:`\varepsilon`, by default 1/16: twice and half of it do about as well.
    n_features, n_classes, horizon, D, R, seed : as for `LinearAgent`.

    References
    ----------
    Beygelzimer, Orabona and Zhang (2017), "Efficient Online Bandit Multiclass Learning with
    :math:`\tilde O(\sqrt T)` Regret", Algorithm 1 and Theorem 1 at :math:`\eta = 1`.
    """

    ARRAYS = ("W", "S", "total")
    DEFAULT_EXPLORATION = 1.0 / 16.0
    FEWEST_NUMBERS = staticmethod(lambda d, K: ((K - 1) * d) ** 2)

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._S: Array = np.eye(self._W.size)  # A^-1: its lower triangle, class-major
        self._total: Array = np.zeros(1)

    def _theory(self, T: int) -> float:
        d, K = self.n_features, self.n_classes
        return K * math.sqrt(d * math.log1p(2.0 * T * self.R**2 / (K * d)) / T)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        if not correct:
            return
        y, weight = decision.action, 1.0 / math.sqrt(decision.propensity)
        scores = seen.copy()
        scores[y] = -np.inf
        zeta = np.zeros_like(self._W)
        zeta[np.argmax(scores)] = weight * decision.x
        zeta[y] = -weight * decision.x
        margin = float((self._W * zeta).sum())
        with OneThread():  # several threads on products this small wait for each other
            # BLAS counts by columns: the upper triangle of the transpose is the lower one.
            v = dsymv(1.0, self._S.T, zeta.ravel()).reshape(zeta.shape)
        spread = float((v * zeta).sum())
        if 1.0 + spread < _INVERSE_ROUNDING * float((zeta**2).sum()):
            raise FolklearnError(
                f"a context weighted to norm {np.linalg.norm(zeta):.2g} is too long to be learned "
                "again: the inverse matrix has no digits left for it; scale the features to "
                "norms of about 1"
            )
        total = float(self._total[0]) + margin * (margin + 2.0 * weight) / (1.0 + spread)
        if total < 0.0:
            return
        self._total[0] = total
        self._W -= v * ((margin + weight) / (1.0 + spread))
        with OneThread():
            dsyr(-1.0 / (1.0 + spread), v.ravel(), a=self._S.T, overwrite_a=True)


class Newtron(LinearAgent):
    r"""Follow the leader of quadratic expansions of the log loss, within a ball.

    Use it on small problems, (K-1) d up to a few hundred, when wrong outcomes should teach too.

    With :math:`p = \mathrm{softmax}(\alpha W x)` play :math:`\tilde y \sim P = (1-\varepsilon)
    p + \varepsilon/K`. The outcome of the round that was played with :math:`W_s` gives
    :math:`\Delta = \delta (e_{\tilde y} - \frac1K \mathbf 1) \otimes x` with

    .. math:: \delta = \frac{p_{\tilde y} - 1}{P(\tilde y)},\ \kappa = P(\tilde y)
        \ \text{(correct)}, \qquad
        \delta = \frac{p_{\tilde y}}{P(\tilde y)},\ \kappa = 1 \ \text{(wrong)},

    .. math:: W = \arg\min_{\|W\|_F \le D} \frac{\|W\|_F^2}{2D} + \sum_s
        \langle \Delta_s, W - W_s\rangle + \frac{\kappa_s\beta}2\langle \Delta_s, W - W_s\rangle^2

    that is :math:`-(H + \mu I)^{-1} b` with the least :math:`\mu \ge 0` that keeps W in the ball.
    Time O(n^3) for an outcome, n = (K-1) d, and memory 8 n^2 bytes.

    Guarantee (the theorem's :math:`\beta` and :math:`\varepsilon`): the regret of
    the expected log loss :math:`-\frac1\alpha \ln p_y` against every W of the ball is
    :math:`O(\ln T)`, with a constant exponential in :math:`\alpha R D`, and :math:`O(T^{2/3})`
    whatever :math:`\alpha` is.

    Parameters
    ----------
    alpha, beta : sharpness of the probabilities and curvature of the expansions, positive; by
        default those of the paper's experiments.
    D : radius of the ball, positive. Logits are at most :math:`\alpha D |x|`.
    exploration : :math:`\varepsilon`, from 0 to 1; by default 0.01, since p itself explores.
    horizon : T, which sets :math:`\varepsilon = \min(1, \sqrt{\alpha K n \ln(1 + 2 \beta D R^2
        T / n) / (2 \beta T)})` (docs/theory/reductions.md), far more cautious.
    n_features, n_classes, R, seed : as for `LinearAgent`.

    References
    ----------
    Hazan and Kale (2011), "Newtron: an Efficient Bandit Algorithm for Online Multiclass
    Prediction". Moré and Sorensen (1983), "Computing a Trust Region Step", for :math:`\mu`.
    """

    PARAMS = (*LinearAgent.PARAMS, "alpha", "beta")
    ARRAYS = ("W", "H", "b")
    DEFAULT_EXPLORATION = 0.01
    FEWEST_NUMBERS = staticmethod(lambda d, K: ((K - 1) * d) ** 2)

    def __init__(self, *, alpha: float = 10.0, beta: float = 0.01, **parameters: Any) -> None:
        self.alpha = validation.positive("alpha", alpha)
        self.beta = validation.positive("beta", beta)
        super().__init__(**parameters)
        n = (self.n_classes - 1) * self.n_features
        self._Q = helmert(self.n_classes)
        self._H: Array = np.eye(n) / self.D
        self._b: Array = np.zeros(n)

    def _theory(self, T: int) -> float:
        n = (self.n_classes - 1) * self.n_features
        growth = math.log1p(2.0 * self.beta * self.D * self.R**2 * T / n)
        return math.sqrt(self.alpha * self.n_classes * n * growth / (2.0 * self.beta * T))

    def _play(self, seen: Array) -> Array:
        p = softmax(self.alpha * seen)
        return (1.0 - self.exploration) * p + self.exploration / self.n_classes

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        k, propensity = decision.action, decision.propensity
        p = float(softmax(self.alpha * seen)[k])
        # Delta = size (e_k - 1/K) (x) x.
        size, kappa = ((p - 1.0) / propensity, propensity) if correct else (p / propensity, 1.0)
        Delta = np.kron(size * self._Q[k], decision.x)  # Q'1 = 0
        along = size * float(seen[k] - seen.mean())
        self._H += kappa * self.beta * np.outer(Delta, Delta)
        self._b += (1.0 - kappa * self.beta * along) * Delta
        with OneThread():  # several threads on factors this small wait for each other
            w = minimise_in_ball(self._H, self._b, self.D)
        self._W[:] = self._Q @ w.reshape(-1, self.n_features)


def _solve(H: Array, b: Array, mu: float) -> tuple[Array, float]:
    """Return w = -(H + mu)^-1 b and w'(H + mu)^-1 w, for H (n, n) or its diagonal (n,)."""
    if H.ndim == 1:
        w = -b / (H + mu)
        return w, float(w @ (w / (H + mu)))
    factor = cho_factor(H + mu * np.eye(len(b)), lower=True, overwrite_a=True, check_finite=False)
    w = -cho_solve(factor, b, check_finite=False)
    return w, float(w @ cho_solve(factor, w, check_finite=False))


def minimise_in_ball(H: Array, b: Array, D: float) -> Array:
    """Return w(mu) = -(H + mu)^-1 b with the least mu >= 0 for which |w(mu)| <= D; H is >= 1/D.

    Newton's method on 1/|w(mu)| - 1/D, which climbs to the root from below and never passes it
    (docs/theory/reductions.md, section 3); only rounding makes a bound from above necessary.
    """
    length = float(np.linalg.norm(b))
    if length < _MIN_GRADIENT_NORM:
        return np.zeros_like(b)
    Hb = H * b if H.ndim == 1 else H @ b
    mu = max(0.0, length / D - float(b @ Hb) / length**2)
    most = (length - 1.0) / D
    try:
        w, slope = _solve(H, b, mu)
        for _ in range(_MAX_NEWTON_STEPS):
            norm = float(np.linalg.norm(w))
            climbed = min(most, mu + norm**2 / slope * (norm / D - 1.0))
            if norm <= D * (1.0 + _NORM_TOLERANCE) or climbed <= mu:
                break
            mu = climbed
            w, slope = _solve(H, b, mu)
    except LinAlgError:
        # The eigenvalues span more than the digits of a float; none is below 1/D.
        values, V = eigh(H)
        return V @ minimise_in_ball(np.maximum(values, 1.0 / D), V.T @ b, D)
    return w * min(1.0, D / float(np.linalg.norm(w)))
