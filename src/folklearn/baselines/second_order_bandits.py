"""Second-order bandits: Soba and Newtron, with a full matrix or its diagonal."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.linalg.blas import dsymv, dsyr

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import MAX_PENDING, Decision
from folklearn.bandits.exploration import choose_exploration, explore
from folklearn.baselines.first_order_bandits import LinearAgent
from folklearn.errors import FolklearnError
from folklearn.kernels.blas import OneThread
from folklearn.kernels.simplex import helmert, softmax

_INVERSE_ROUNDING = 1e-14  # relative rounding of A^-1, beyond which a direction is lost


class Soba(LinearAgent):
    r"""A second-order perceptron with uniform exploration, which learns from correct rounds.

    Use it when the classes are nearly separable and labels noisy, or features differ in
    scale: it has no step size. Use `Banditron` if even the diagonal is too expensive, or where
    there is no noise at all.

    Plays as `LinearAgent` does. A correct outcome, :math:`\tilde y = y`, with :math:`\bar y` the
    best of the other classes when the decision was made, gives

    .. math:: g = \frac1{P(y)} (e_{\bar y} - e_y) \otimes x, \qquad \zeta = \sqrt{P(y)}\, g,
        \qquad m = \frac{\langle W, \zeta\rangle^2 + 2\langle W, g\rangle}
        {1 + \zeta^\top A^{-1} \zeta}

    and, if the sum of all m so far, this one included, is at least 0,

    .. math:: A \leftarrow A + \zeta\zeta^\top, \qquad \theta \leftarrow \theta - g, \qquad
        W = A^{-1}\theta

    from A = I and :math:`\theta = 0`; otherwise nothing changes, the sum included. A and W
    of a delayed outcome are those that it finds, because m is about this step.

    Differs from the paper in fixing its a, the scale of the first A, at 1, and in what is
    kept: not A and :math:`\theta` but :math:`S = A^{-1}` and W, by the formula of Sherman and
    Morrison, :math:`W \leftarrow W - S\zeta\,(\langle W,\zeta\rangle + P(y)^{-1/2}) / (1 +
    \zeta^\top S\zeta)`. ``diagonal=True``, the paper's own shortcut for large problems, keeps
    the diagonal of A only and has no theorem.

    Time O((K d)^2) for a round that learns, O(K d) for others, and memory 8 (K d)^2 bytes;
    diagonal, O(K d) both. An outcome is refused where the inverse has no digits left for its
    context, once :math:`|x| / \sqrt{P(y)}` is above about 1e7: scale the features.

    Guarantee (full matrix, outcomes without delay): for contexts of norm at most R and every
    U, expected mistakes are at most :math:`\sum_t (1 - M_t)^2`, with :math:`M_t` the margin
    of U for y over :math:`\bar y`, plus :math:`\|U\|_F^2 + \varepsilon T + \frac K\varepsilon
    K d \ln(1 + \frac{2TR^2}{Kd})`. That is the theorem at :math:`\eta = 1`; smaller
    :math:`\eta` go towards the hinge loss.

    Parameters
    ----------
    n_features, n_classes, seed, max_pending : as `LinearAgent` has them.
    exploration : :math:`\varepsilon`, from 0 to 1; by default 1/16: twice and half of
        it do about as well, with and without noise, once there are ten thousand rounds.
    horizon : number of rounds T, which sets
        :math:`\varepsilon = \min(1, K\sqrt{d \ln(1 + 2TR^2 / (Kd)) / T})`: it makes
        the last two terms equal, and is cautious.
    diagonal : keep the diagonal of A only.
    R : norm of the contexts, for the horizon only.

    Examples
    --------
    >>> from folklearn import interact, synthetic
    >>> from folklearn.baselines import Soba
    >>> X, y = synthetic.separable(0, 2000, d=3, K=3)
    >>> log = interact(Soba(n_features=3, n_classes=3), X, y)
    >>> bool(log.rewards.mean() > 0.7)
    True

    References
    ----------
    Beygelzimer, Orabona and Zhang (2017), "Efficient Online Bandit Multiclass Learning with
    :math:`\tilde O(\sqrt T)` Regret", Algorithm 1 and Theorem 1.
    """

    PARAMS = ("n_features", "n_classes", "exploration", "diagonal", "R")
    ARRAYS = ("W", "S", "total")
    R: float

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return K * d if words["diagonal"] else (K * d) ** 2

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        exploration: float | str | None = None,
        horizon: int | None = None,
        diagonal: bool = False,
        R: float = 1.0,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._configure(n_features, n_classes, R=R)
        self.diagonal = bool(diagonal)
        self.exploration = choose_exploration(exploration, horizon, 1.0 / 16.0, self._theory)
        # A^-1: its diagonal (K, d), or its lower triangle, class-major (K d, K d).
        self._S: Array = np.ones_like(self._W) if self.diagonal else np.eye(self._W.size)
        self._total: Array = np.zeros(1)
        self._start(seed, max_pending)

    def _theory(self, T: int) -> float:
        d, K = self.n_features, self.n_classes
        return K * math.sqrt(d * math.log1p(2.0 * T * self.R**2 / (K * d)) / T)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        if not correct:
            return
        y, weight = decision.action, 1.0 / math.sqrt(decision.propensity)
        scores = seen.copy()
        scores[y] = -np.inf
        rival = int(np.argmax(scores))
        zeta = weight * decision.x  # in the row of the rival; minus it in that of y; else 0
        margin = float((self._W[rival] - self._W[y]) @ zeta)
        if self.diagonal:
            self._learn_diagonal([rival, y], np.array([zeta, -zeta]), margin, weight)
        else:
            rows = np.zeros_like(self._W)
            rows[rival], rows[y] = zeta, -zeta
            with OneThread():  # several threads on products this small wait for each other
                self._learn_full(rows.ravel(), margin, weight)

    def _new_total(self, margin: float, weight: float, spread: float) -> float:
        return float(self._total[0]) + margin * (margin + 2.0 * weight) / (1.0 + spread)

    def _learn_diagonal(self, rows: list[int], zeta: Array, margin: float, weight: float) -> None:
        S = self._S[rows]
        growth = 1.0 + S * zeta**2
        total = self._new_total(margin, weight, float((S * zeta**2).sum()))
        if total >= 0.0:
            self._W[rows] = (self._W[rows] - S * zeta * weight) / growth
            self._S[rows] = S / growth
            self._total[0] = total

    def _learn_full(self, zeta: Array, margin: float, weight: float) -> None:
        # BLAS counts by columns: the upper triangle of the transpose is the lower one of S.
        v: Array = dsymv(1.0, self._S.T, zeta)
        spread = float(zeta @ v)
        if 1.0 + spread < _INVERSE_ROUNDING * float(zeta @ zeta):
            raise FolklearnError(
                f"a context weighted to norm {np.linalg.norm(zeta):.2g} is too long to be learned "
                "again: the inverse matrix has no digits left for it; scale the features to "
                "norms of about 1"
            )
        total = self._new_total(margin, weight, spread)
        if total >= 0.0:
            self._W -= v.reshape(self._W.shape) * ((margin + weight) / (1.0 + spread))
            dsyr(-1.0 / (1.0 + spread), v, a=self._S.T, overwrite_a=True)
            self._total[0] = total


_NORM_TOLERANCE = 1e-12  # of D, on the norm of W
_MAX_NEWTON_STEPS = 100
_MIN_GRADIENT_NORM = 1e-100  # a gradient so small that squares of it underflow


class Newtron(LinearAgent):
    r"""Follow the leader of quadratic expansions of the log loss, within a ball.

    Use it on small problems, (K-1) d up to a few hundred, when wrong outcomes should teach
    too; with ``diagonal=True`` it takes large ones. `Soba` has no step size to choose, and
    `BanditReduction` over `folklearn.Folklore` a mistake bound with explicit constants.

    With :math:`p = \mathrm{softmax}(\alpha W x)` play :math:`\tilde y \sim P = (1-\varepsilon)
    p + \varepsilon/K`. The outcome of the round that was played with :math:`W_s` gives

    .. math:: \Delta = \begin{cases}
        \frac{1 - p_{\tilde y}}{P(\tilde y)} (\frac1K \mathbf 1 - e_{\tilde y}) \otimes x,
        & \kappa = P(\tilde y), \quad \text{if correct} \\
        \frac{p_{\tilde y}}{P(\tilde y)} (e_{\tilde y} - \frac1K \mathbf 1) \otimes x,
        & \kappa = 1, \quad \text{if wrong} \end{cases}

    whose mean over the draw is the gradient of :math:`-\frac1\alpha \ln p_y`. Then

    .. math:: W = \arg\min_{\|W\|_F \le D} \frac{\|W\|_F^2}{2D} + \sum_s
        \langle \Delta_s, W - W_s\rangle + \frac{\kappa_s\beta}2\langle \Delta_s, W - W_s\rangle^2
        = -(H + \mu I)^{-1} b

    with :math:`H = I/D + \beta \sum \kappa\Delta\Delta^\top`, :math:`b = \sum (1 - \kappa\beta
    \langle\Delta, W_s\rangle) \Delta` and the least :math:`\mu \ge 0` that keeps W in the ball,
    to 1e-12 of D.

    Differs from the paper in three ways. The columns of :math:`\Delta` sum to 0, so H is kept
    in the (K-1) d dimensions of the Helmert basis, which changes nothing. W is solved for
    when it is next needed, so that outcomes that arrive together share one solution. With
    ``diagonal=True`` only the diagonal of H counts, in all K d coordinates, and the same
    diagonal stands in b: :math:`b = \sum \Delta - \beta\kappa\Delta^2 \circ W`, with the W at
    which the outcome arrives. No theorem covers the diagonal.

    Time O(n^3) for a new W, two to five Cholesky factors of n = (K-1) d, and memory 8 n^2
    bytes; diagonal, O(K d) both.

    Guarantee (full matrix, outcomes without delay, the theorem's :math:`\beta` and
    :math:`\varepsilon`): the regret of the expected log loss :math:`-\frac1\alpha \ln p_y`
    against every W of the ball is :math:`O(\ln T)`, with a constant exponential in
    :math:`\alpha R D`, and :math:`O(T^{2/3})` whatever :math:`\alpha` is. The defaults for
    :math:`\alpha` and :math:`\beta` are those of the experiments, not of the theorem.

    Parameters
    ----------
    n_features, n_classes, seed, max_pending : as `LinearAgent` has them.
    exploration : :math:`\varepsilon`, from 0 to 1; by default 0.01, the paper's, and the best of
        0.01 to 0.3 on separable streams, since :math:`p` itself explores.
    horizon : number of rounds T, which sets
        :math:`\varepsilon = \min(1, \sqrt{\alpha K n \ln(1 + 2 \beta D R^2 T / n) /
        (2 \beta T)})`, n = (K-1) d: it balances the leading terms of
        a bound on mistakes (docs/theory/reductions.md). It is far more cautious than the default.
    alpha : :math:`\alpha`, sharpness of the probabilities, positive.
    beta : :math:`\beta`, curvature of the expansions, positive.
    D : radius of the ball, in the Frobenius norm, positive. Logits are at most
        :math:`\alpha D |x|`: where that is small for the number of features, raise D.
    R : norm of the contexts, for the horizon only.
    diagonal : keep the diagonal of H only.

    Examples
    --------
    >>> from folklearn import interact, synthetic
    >>> from folklearn.baselines import Newtron
    >>> X, y = synthetic.separable(0, 2000, d=3, K=3)
    >>> log = interact(Newtron(n_features=3, n_classes=3), X, y)
    >>> bool(log.rewards.mean() > 0.75)
    True

    References
    ----------
    Hazan and Kale (2011), "Newtron: an Efficient Bandit Algorithm for Online Multiclass
    Prediction", Algorithm 1 and Theorem 1. Moré and Sorensen (1983), "Computing a Trust Region
    Step", for the search of :math:`\mu`.
    """

    PARAMS = ("n_features", "n_classes", "exploration", "alpha", "beta", "D", "R", "diagonal")
    ARRAYS = ("H", "b")

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return K * d if words["diagonal"] else ((K - 1) * d) ** 2

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        exploration: float | str | None = None,
        horizon: int | None = None,
        alpha: float = 10.0,
        beta: float = 0.01,
        D: float = 1.0,
        R: float = 1.0,
        diagonal: bool = False,
        seed: int | np.random.Generator = 0,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self.n_features = d = validation.count("n_features", n_features, 1)
        self.n_classes = K = validation.count("n_classes", n_classes, 2)
        self.alpha = validation.positive("alpha", alpha)
        self.beta = validation.positive("beta", beta)
        self.D = D = validation.positive("D", D)
        self.R = validation.positive("R", R)
        self.diagonal = bool(diagonal)
        n = (K - 1) * d
        self.exploration = choose_exploration(exploration, horizon, 0.01, self._theory)
        self._Q = helmert(K)
        self._H: Array = np.full(K * d, 1.0 / D) if self.diagonal else np.eye(n) / D
        self._b: Array = np.zeros(len(self._H))
        self._leader: Array | None = None  # W, until an outcome changes H and b
        self._start(seed, max_pending)

    def _theory(self, T: int) -> float:
        n = (self.n_classes - 1) * self.n_features
        growth = math.log1p(2.0 * self.beta * self.D * self.R**2 * T / n)
        return math.sqrt(self.alpha * self.n_classes * n * growth / (2.0 * self.beta * T))

    @property
    def _W(self) -> Array:  # type: ignore[override]
        if self._leader is None:
            with OneThread():  # several threads on factors this small wait for each other
                self._leader = self._solve()
        return self._leader

    def _solve(self) -> Array:
        if self.diagonal:
            w = _constrain(_solve_diagonal(self._H, self._b), self._H * self._b, self._b, self.D)
            return w.reshape(self.n_classes, self.n_features)
        try:
            w = _constrain(_solve_dense(self._H, self._b), self._H @ self._b, self._b, self.D)
        except LinAlgError:
            # The eigenvalues span more than the digits of a float; none is below 1/D.
            values, V = eigh(self._H)
            values, b = np.maximum(values, 1.0 / self.D), V.T @ self._b
            w = V @ _constrain(_solve_diagonal(values, b), values * b, b, self.D)
        W: Array = self._Q @ w.reshape(self.n_classes - 1, self.n_features)
        return W

    def _probabilities(self, seen: Array) -> Array:
        p = np.empty(self.n_classes)
        softmax(self.alpha * seen, p)
        return p

    def _play(self, seen: Array) -> Array:
        return explore(self._probabilities(seen), self.exploration)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        k, propensity = decision.action, decision.propensity
        p = float(self._probabilities(seen)[k])
        # Delta = size (e_k - 1/K) (x) x.
        size, kappa = ((p - 1.0) / propensity, propensity) if correct else (p / propensity, 1.0)
        if self.diagonal:
            Delta = np.kron(size * (np.eye(self.n_classes)[k] - 1.0 / self.n_classes), decision.x)
            H = kappa * self.beta * Delta**2
            b = Delta - H * self._W.ravel()
        else:
            Delta = np.kron(size * self._Q[k], decision.x)  # Q'1 = 0
            along = size * float(seen[k] - seen.mean())
            H = kappa * self.beta * np.outer(Delta, Delta)
            b = (1.0 - kappa * self.beta * along) * Delta
        self._H += H
        self._b += b
        self._leader = None


Solution = tuple[Array, float]  # of mu: w = -(H + mu)^-1 b, and w'(H + mu)^-1 w


def _solve_diagonal(H: Array, b: Array) -> Callable[[float], Solution]:
    def solution(mu: float) -> Solution:
        w = -b / (H + mu)
        return w, float(w @ (w / (H + mu)))

    return solution


def _solve_dense(H: Array, b: Array) -> Callable[[float], Solution]:
    def solution(mu: float) -> Solution:
        M = H.copy()
        M.flat[:: len(b) + 1] += mu
        factor = cho_factor(M, lower=True, overwrite_a=True, check_finite=False)
        w: Array = -cho_solve(factor, b, check_finite=False)
        return w, float(w @ cho_solve(factor, w, check_finite=False))

    return solution


def _constrain(solution: Callable[[float], Solution], Hb: Array, b: Array, D: float) -> Array:
    """Return w(mu) with the least mu >= 0 for which |w(mu)| <= D.

    Newton's method on 1/|w(mu)| - 1/D, which is concave and increasing: from below the root
    it climbs and never passes it. It starts from below, as |w(mu)| >= |b| / (mu + b'Hb/|b|^2)
    by Jensen's inequality; |w(mu)| <= |b| / (mu + 1/D) bounds the root from above, which
    only rounding makes necessary.
    """
    length = float(np.linalg.norm(b))
    if length < _MIN_GRADIENT_NORM:
        return np.zeros_like(b)
    mu = max(0.0, length / D - float(b @ Hb) / length**2)
    most = (length - 1.0) / D
    w, slope = solution(mu)
    for _ in range(_MAX_NEWTON_STEPS):
        norm = float(np.linalg.norm(w))
        climbed = min(most, mu + norm**2 / slope * (norm / D - 1.0))
        if norm <= D * (1.0 + _NORM_TOLERANCE) or climbed <= mu:
            break
        mu = climbed
        w, slope = solution(mu)
    return w * min(1.0, D / float(np.linalg.norm(w)))
