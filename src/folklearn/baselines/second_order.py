"""Second-order learners on the state of Folklore, with other prediction rules."""

import math

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels.curvature import gamma_star_below
from folklearn.learners.folklore import SecondOrderLearner

_MAX_POINTS = 2**20
_UNIFORM_SHARE = 1e-9  # mu, which keeps losses finite


class Aioli(SecondOrderLearner):
    r"""AIOLI, the binary ancestor of FOLKLORE, on the same state.

    Use it to compare on two classes. Its logit difference :math:`m = (W_1 - W_0) x` is the root of

    .. math:: m = \mu_0 - \tfrac12\, x^\top A^{-1} x \tanh(m/2),

    FOLKLORE's fixed point with pull 1 instead of 1/2. Time O(d^2) and memory 8 d^2 bytes.

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, itself at most `regret_bound`.

    Parameters
    ----------
    n_features, n_classes, B, R, lam : as for `Folklore`, of two classes. The paper's bound on
        :math:`\theta = W_1 - W_0` is 2B, and the default ridge is the paper's on it.
    improved : use the largest valid curvature of each round instead of AIOLI's own
        constant 1/(2 + 4BR), which holds as long as :math:`\|x\| \le R`.

    Examples
    --------
    >>> from folklearn import Aioli
    >>> model = Aioli(n_features=2, B=5.0)
    >>> losses = [model.update([0.6, 0.8], 1) for _ in range(20)]
    >>> bool(model.predict([0.6, 0.8])[1] > 0.8), model.certificate().valid
    (True, True)

    References
    ----------
    Jézéquel, Gaillard and Rudi (2020), "Efficient improper learning for online logistic
    regression".
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "lam", "improved")
    can_grow = False  # because of classes: `grown` takes more features

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int = 2,
        B: float = 10.0,
        R: float = 1.0,
        lam: float | None = None,
        improved: bool = False,
    ) -> None:
        self._size(n_features, n_classes, B=B, R=R)
        if self.n_classes != 2:
            raise InvalidInputError(
                f"Aioli is for two classes, got n_classes={self.n_classes}: use Folklore, "
                "which generalises it"
            )
        self.lam = validation.positive("lam", 2.0 * self.R / self.B if lam is None else lam)
        self.improved = bool(improved)
        self._gamma = None if self.improved else 1.0 / (2.0 + 4.0 * self.B * self.R)
        self._start(gamma=self._gamma, pull=1.0)

    def regret_bound(self, n_rounds: int) -> float:
        r"""Return a bound on the regret after `n_rounds` of weight 1 with :math:`|x| \le R`.

        .. math:: 2 \lambda B^2 + \frac{d}{2\gamma_{\min}}
            \ln\left(1 + \frac{\gamma_{\max} T R^2}{2 d \lambda}\right)

        with :math:`\gamma_{\min} = \gamma_{\max} = 1/(2 + 4BR)`, or, improved,
        :math:`\gamma^*(2BR)` and 1/2. Derived in docs/theory/baselines.md.
        """
        T = validation.count("n_rounds", n_rounds, 0)
        d, B, R, lam = self.n_features, self.B, self.R, self.lam
        least = self._gamma or float(gamma_star_below(2.0 * B * R))
        most = self._gamma or 0.5
        growth = math.log1p(most * T * R**2 / (2.0 * d * lam))
        return 2.0 * lam * B**2 + d / (2.0 * least) * growth


class Gaf(SecondOrderLearner):
    r"""GAF, which averages predictions over a Gaussian instead of regularising.

    .. math:: p_t = (1 - \mu)\, E_{z \sim N(-q/2,\, C/2)} \mathrm{softmax}(Qz) + \mu/K

    by quasi-Monte Carlo in K - 1 dimensions. The loss is expanded at the minimiser of the state
    plus the observed loss. Time O(d^2 K^3 + n_points K^2) and memory 8 ((K-1) d)^2 bytes.

    Guarantee, for any number of points: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``.

    Parameters
    ----------
    n_features, n_classes, B, R, lam : as for `Folklore`.
    mu : mass spread uniformly, in [0, 1/2]; it keeps the loss finite.
    n_points : number of points of the integral, at least 2, or None to predict at the mean model.
    seed : of the scrambling of the points.
    improved : use the largest valid curvature of each round instead of GAF's own constant
        1/(2BR + ln K + 2), which holds as long as :math:`\|x\| \le R`.

    Examples
    --------
    >>> from folklearn import Gaf
    >>> model = Gaf(n_features=2, n_classes=3, B=5.0)
    >>> losses = [model.update([0.5, 0.5], 2) for _ in range(20)]
    >>> bool(model.predict([0.5, 0.5])[2] > 0.7), model.certificate().valid
    (True, True)

    References
    ----------
    Jézéquel, Gaillard and Rudi (2021), "Mixability made efficient: fast online multiclass
    logistic regression".
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "lam", "mu", "n_points", "seed", "improved")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        lam: float | None = None,
        mu: float = _UNIFORM_SHARE,
        n_points: int | None = 256,
        seed: int = 0,
        improved: bool = False,
    ) -> None:
        self._size(n_features, n_classes, B=B, R=R)
        self.lam = validation.positive("lam", 2.0 * self.R / self.B if lam is None else lam)
        self.improved = bool(improved)
        gamma = 1.0 / (2.0 * self.B * self.R + math.log(self.n_classes) + 2.0)
        self.mu = validation.fraction("mu", mu)
        self.seed = validation.count("seed", seed, 0)
        self.n_points = n_points
        nodes = np.zeros((1, self.n_classes - 1))  # the softmax at the mean
        if n_points is not None:
            self.n_points = validation.count("n_points", n_points, 2, _MAX_POINTS)
            nodes = gaussian_nodes(self.n_points, self.n_classes - 1, self.seed)
        self._start(gamma=None if self.improved else gamma, mu=self.mu, nodes=nodes)

    def regret_bound(self, n_rounds: int) -> float:
        r"""Return T ln(K/mu), for weights of 1: every class has mass mu/K. Infinite without points.

        The live certificate is far below it (docs/theory/baselines.md).
        """
        T = validation.count("n_rounds", n_rounds, 0)
        if self.n_points is None or self.mu == 0.0:
            return math.inf
        return T * math.log(self.n_classes / self.mu)


class Laplace(SecondOrderLearner):
    r"""Online Laplace approximation: often the lowest loss on benign data, no guarantee.

    Use it when the stream is benign; prefer `Folklore` when labels may be adversarial.

    It is GAF with the true curvature :math:`\gamma = 1/2` in place of a valid lower bound and
    the prior :math:`W \sim N(0, B^2 I)`, that is :math:`\lambda = 1/(2B^2)`. It predicts at the
    mode, which had a lower loss than the mean on all seven real streams of more than two classes.

    Guarantee: none, since an expansion is no lower bound of the loss.

    Parameters
    ----------
    n_features, n_classes : as for `Gaf`.
    B : standard deviation of the prior of every weight.
    lam : ridge, by default 1/(2 B^2).

    Examples
    --------
    >>> from folklearn import Laplace
    >>> model = Laplace(n_features=2, n_classes=3, B=5.0)
    >>> losses = [model.update([0.5, 0.5], 2) for _ in range(20)]
    >>> bool(model.predict([0.5, 0.5])[2] > 0.8)
    True

    References
    ----------
    Spiegelhalter and Lauritzen (1990), "Sequential updating of conditional probabilities on
    directed graphical structures".
    """

    PARAMS = ("n_features", "n_classes", "B", "lam")

    def __init__(
        self, *, n_features: int, n_classes: int, B: float = 10.0, lam: float | None = None
    ) -> None:
        self._size(n_features, n_classes, B=B)
        self.lam = validation.positive("lam", 0.5 / self.B**2 if lam is None else lam)
        self._start(gamma=0.5, mu=_UNIFORM_SHARE, nodes=np.zeros((1, self.n_classes - 1)))

    def _why_invalid(self) -> str:
        return "Laplace expands the losses, and an expansion is no lower bound of a loss"


def gaussian_nodes(n_points: int, k: int, seed: int) -> Array:
    """Return n_points (rounded up to even) points in k dimensions, symmetric about 0.

    One dimension: midpoints of equally likely intervals. More: scrambled Sobol points, mirrored.
    """
    from scipy.special import ndtri  # slow to import, and so is `scipy.stats`

    half = (n_points + 1) // 2
    if k == 1:
        positive = ndtri(0.5 + (np.arange(half) + 0.5) / (2 * half))[:, None]
    else:
        from scipy.stats import qmc

        sampler = qmc.Sobol(k, scramble=True, rng=np.random.default_rng(seed))
        power = max(half - 1, 1).bit_length()  # Sobol points are balanced in powers of two
        positive = ndtri(np.clip(sampler.random_base2(power)[:half], 1e-12, 1 - 1e-12))
    return np.concatenate([positive, -positive])
