"""SOBA: the second-order perceptron under bandit feedback (Beygelzimer, Orabona, Zhang 2017)."""

import math
from typing import Any

import numpy as np
from scipy.linalg.blas import dsymv, dsyr

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.agent import MAX_PENDING, Agent, Decision
from folklearn.bandits.exploration import chosen_exploration, greedy
from folklearn.errors import FolklearnError
from folklearn.kernels.blas import OneThread

_DIGITS = 1e-14  # relative rounding of A^-1, beyond which a direction is lost


class Soba(Agent):
    r"""A second-order perceptron with uniform exploration, which learns from correct rounds.

    Use it when the classes are nearly separable and labels noisy, or features differ in
    scale: it has no step size. Use `Banditron` if even the diagonal is too dear, or where
    there is no noise at all.

    With :math:`\hat y = \arg\max_k (Wx)_k` (ties to the lowest class) and exploration
    :math:`\varepsilon`, play :math:`\tilde y \sim P = (1-\varepsilon) e_{\hat y} +
    \varepsilon/K`. A correct outcome, :math:`\tilde y = y`, with :math:`\bar y` the best of
    the other classes when the decision was made, gives

    .. math:: g = \frac1{P(y)} (e_{\bar y} - e_y) \otimes x, \qquad \zeta = \sqrt{P(y)}\, g,
        \qquad m = \frac{\langle W, \zeta\rangle^2 + 2\langle W, g\rangle}
        {1 + \zeta^\top A^{-1} \zeta}

    and, if the sum of all m so far, this one included, is at least 0,

    .. math:: A \leftarrow A + \zeta\zeta^\top, \qquad \theta \leftarrow \theta - g, \qquad
        W = A^{-1}\theta

    from A = I and :math:`\theta = 0`; otherwise nothing changes, the sum included. Propensity
    and :math:`\bar y` of a delayed outcome are those of its own decision; A and W are those
    that the outcome finds, because m is about what this step does to them.

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
    n_features : number of features d, at least 1.
    n_classes : number of classes K, at least 2.
    exploration : :math:`\varepsilon`, from 0 to 1; by default 1/16: twice and half of
        it do about as well, with and without noise, once there are ten thousand rounds.
    horizon : number of rounds T; with it, or with ``exploration="theory"`` too, it is the theory's
        :math:`\varepsilon = \min(1, K\sqrt{d \ln(1 + 2TR^2 /
        (Kd)) / T})`, which makes the last two terms equal. It is cautious.
    diagonal : keep the diagonal of A only.
    R : norm of the contexts, for the horizon only.
    seed : an integer, or a NumPy Generator, which is then used and advanced.
    max_pending : decisions that may wait for an outcome, at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.bandits import Soba
    >>> rng = np.random.default_rng(0)
    >>> agent = Soba(n_features=3, n_classes=3)
    >>> right = 0
    >>> for t in range(2000):
    ...     x = rng.normal(size=3)
    ...     decision = agent.act(x)
    ...     correct = decision.action == np.argmax(x)
    ...     agent.learn(decision, correct)
    ...     right += correct
    >>> bool(right > 1400)
    True

    References
    ----------
    Beygelzimer, Orabona and Zhang (2017), "Efficient Online Bandit Multiclass Learning with
    :math:`\tilde O(\sqrt T)` Regret", Algorithm 1 and Theorem 1.
    """

    PARAMS = ("n_features", "n_classes", "exploration", "diagonal", "R")
    ARRAYS = ("W", "S", "total")

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
        self.n_features = d = validation.count("n_features", n_features, 1)
        self.n_classes = K = validation.count("n_classes", n_classes, 2)
        self.diagonal = bool(diagonal)
        self.R = R = validation.positive("R", R)
        self.exploration = chosen_exploration(
            exploration,
            horizon,
            1.0 / 16.0,
            lambda T: K * math.sqrt(d * math.log1p(2.0 * T * R**2 / (K * d)) / T),
        )
        self._W: Array = np.zeros((K, d))
        # A^-1: its diagonal (K, d), or its lower triangle, class-major (K d, K d).
        self._S: Array = np.ones((K, d)) if self.diagonal else np.eye(K * d)
        self._total: Array = np.zeros(1)
        self._start(seed, max_pending)

    def _see(self, x: Array) -> Array:
        scores: Array = self._W @ x
        return scores

    def _play(self, seen: Array) -> Array:
        return greedy(seen, self.exploration)

    def _absorb(self, decision: Decision, seen: Array, correct: bool) -> None:
        if not correct:
            return
        y, weight = decision.action, 1.0 / math.sqrt(decision.propensity)
        others = seen.copy()
        others[y] = -np.inf
        rival = int(np.argmax(others))
        zeta = weight * decision.x  # in the row of the rival; minus it in that of y; else 0
        margin = float((self._W[rival] - self._W[y]) @ zeta)
        if self.diagonal:
            self._learn_diagonal([rival, y], np.array([zeta, -zeta]), margin, weight)
        else:
            rows = np.zeros_like(self._W)
            rows[rival], rows[y] = zeta, -zeta
            with OneThread():  # several threads on products this small wait for each other
                self._learn_full(rows.ravel(), margin, weight)

    def _sum(self, margin: float, weight: float, spread: float) -> float:
        """Return the sum with this round's m, for margin <W, zeta> and spread zeta'S zeta."""
        return float(self._total[0]) + margin * (margin + 2.0 * weight) / (1.0 + spread)

    def _learn_diagonal(self, rows: list[int], zeta: Array, margin: float, weight: float) -> None:
        S = self._S[rows]
        growth = 1.0 + S * zeta**2
        total = self._sum(margin, weight, float((S * zeta**2).sum()))
        if total >= 0.0:
            self._W[rows] = (self._W[rows] - S * zeta * weight) / growth
            self._S[rows] = S / growth
            self._total[0] = total

    def _learn_full(self, zeta: Array, margin: float, weight: float) -> None:
        # BLAS counts by columns: the upper triangle of the transpose is the lower one of S.
        v: Array = dsymv(1.0, self._S.T, zeta)
        spread = float(zeta @ v)
        if 1.0 + spread < _DIGITS * float(zeta @ zeta):
            raise FolklearnError(
                f"a context weighted to norm {np.linalg.norm(zeta):.2g} is too long to be learned "
                "again: the inverse matrix has no digits left for it; scale the features to "
                "norms of about 1"
            )
        total = self._sum(margin, weight, spread)
        if total >= 0.0:
            self._W -= v.reshape(self._W.shape) * ((margin + weight) / (1.0 + spread))
            dsyr(-1.0 / (1.0 + spread), v, a=self._S.T, overwrite_a=True)
            self._total[0] = total
