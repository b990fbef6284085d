"""Second-order learners on the state of Folklore, with other prediction rules."""

import math

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.baselines import bounds
from folklearn.errors import InvalidInputError
from folklearn.learners.second_order import SecondOrderLearner

_MAX_POINTS = 2**20


def gaussian_nodes(n_points: int, k: int, seed: int) -> Array:
    """Return n_points (rounded up to even) points in k dimensions, symmetric about 0.

    One dimension: the midpoints of equally likely intervals. More: scrambled Sobol points
    and their mirror images, so that odd functions integrate exactly.
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


class Aioli(SecondOrderLearner):
    r"""AIOLI, the binary ancestor of FOLKLORE, on the same state.

    Use it to compare with FOLKLORE on two classes; for anything else use `Folklore`.

    AIOLI regularises with :math:`\phi_t = \ell(\cdot, 0) + \ell(\cdot, 1)`. For the logit
    difference :math:`m = (W_1 - W_0) x`, in its own coordinates
    :math:`\theta = W_1 - W_0, \|\theta\| \le B_\theta = 2B`, it predicts the root of

    .. math:: m = \mu_0 - \tfrac12\, x^\top A^{-1} x \tanh(m/2),

    which in the reduced coordinates of this library is the fixed point of FOLKLORE with
    pull 1 instead of 1/2: FOLKLORE for K = 2 is AIOLI with :math:`\phi_t` halved, lam
    halved and the same gamma.

    Time O(d^2) and memory 8 d^2 bytes per round.

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, itself at most `folklearn.baselines.bounds.aioli`.

    Parameters
    ----------
    n_features : number of features d.
    n_classes : must be 2.
    B : largest row norm of W; the paper's bound on :math:`\theta` is 2B.
    R : bound on the norm of x; it sets the default ``lam`` and AIOLI's own gamma.
    lam : ridge on W, by default 2R/B, which is the paper's default on :math:`\theta`.
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
    regression", COLT.
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "lam", "improved")

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
        self._size(n_features, n_classes)
        if self.n_classes != 2:
            raise InvalidInputError(
                f"Aioli is for two classes, got n_classes={self.n_classes}: use Folklore, "
                "which generalises it"
            )
        self.B = validation.positive("B", B)
        self.R = validation.positive("R", R)
        self.lam = validation.positive("lam", 2.0 * self.R / self.B if lam is None else lam)
        self.improved = bool(improved)
        gamma = None if self.improved else 1.0 / (2.0 + 4.0 * self.B * self.R)
        self._start(gamma=gamma, pull=1.0)

    @property
    def can_grow(self) -> bool:
        """False: `grown` takes more features, but no third class."""
        return False

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds` with contexts of norm at most R."""
        return bounds.aioli(
            n_rounds,
            n_features=self.n_features,
            B=self.B,
            R=self.R,
            lam=self.lam,
            improved=self.improved,
        )


class GaussianLearner(SecondOrderLearner):
    """Base of learners that predict by a Gaussian over reduced logits, at points or its mean."""

    def _start_gaussian(
        self, gamma: float | None, mu: float, n_points: int | None, seed: int
    ) -> None:
        self.mu = validation.fraction("mu", mu)
        self.seed = validation.count("seed", seed, 0)
        self.n_points = n_points
        k = self.n_classes - 1
        nodes = np.zeros((0, k))  # the softmax at the mean
        if n_points is not None:
            self.n_points = validation.count("n_points", n_points, 2, _MAX_POINTS)
            nodes = gaussian_nodes(self.n_points, k, self.seed)
        self._start(gamma=gamma, mu=self.mu, nodes=nodes)


class Gaf(GaussianLearner):
    r"""GAF, which averages predictions over a Gaussian instead of regularising.

    Use it to compare with FOLKLORE, or where the mean prediction of a Gaussian posterior is
    wanted with a certificate; it costs ``n_points`` softmaxes per prediction more.

    With the state's mean :math:`-q/2` and inverse curvature C in reduced logits,

    .. math:: p_t = (1 - \mu)\, E_{z \sim N(-q/2,\, C/2)} \mathrm{softmax}(Qz) + \mu/K,

    by quasi-Monte Carlo in K - 1 dimensions. The loss is expanded at the minimiser of the
    state plus the observed loss, not at the prediction.

    Time O(d^2 K^3 + n_points K^2) and memory 8 ((K-1) d)^2 bytes per round. The paper draws
    a number of samples that grows with T; here it is a parameter, and the
    certificate is valid for any: also for no points at all, which predicts the softmax at the
    mean model. Then, with ``improved``, certificates have been tighter than
    those of `Folklore`.

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``; in closed form, for the mean, `folklearn.baselines.bounds.gaf`.

    Parameters
    ----------
    n_features, n_classes, B, R : as for `Folklore`.
    lam : ridge, by default 2R/B.
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
        mu: float = 1e-9,
        n_points: int | None = 256,
        seed: int = 0,
        improved: bool = False,
    ) -> None:
        self._size(n_features, n_classes)
        self.B = validation.positive("B", B)
        self.R = validation.positive("R", R)
        self.lam = validation.positive("lam", 2.0 * self.R / self.B if lam is None else lam)
        self.improved = bool(improved)
        gamma = 1.0 / (2.0 * self.B * self.R + math.log(self.n_classes) + 2.0)
        self._start_gaussian(None if self.improved else gamma, mu, n_points, seed)

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds` with contexts of norm at most R.

        It counts what a finite number of points may cost, which is linear in T, and is infinite
        without points: nothing is known of that in advance.
        """
        if self.n_points is None:
            return math.inf
        return bounds.gaf(
            n_rounds,
            n_features=self.n_features,
            n_classes=self.n_classes,
            B=self.B,
            R=self.R,
            lam=self.lam,
            mu=self.mu,
            improved=self.improved,
            n_points=self.n_points,
        )


class Laplace(GaussianLearner):
    r"""Online Laplace approximation: often the lowest loss on benign data, no guarantee.

    Use it when the stream is benign and no certificate is needed. Prefer `Folklore` when
    labels may be adversarial or a proof is wanted.

    It is GAF with the true curvature :math:`\gamma = 1/2` in place of a valid lower bound and
    the prior :math:`W \sim N(0, B^2 I)`, that is :math:`\lambda = 1/(2B^2)`: each loss is
    replaced by its second-order expansion at the new posterior mode. The prediction is the
    softmax at the mode; ``n_points`` asks for the mean of the softmax over the posterior, as
    `Gaf` predicts. The mean is the better one if the prior is right, which it is not: on all
    seven real streams of more than two classes the mode had the lower loss, by up to two
    thirds, and on the three of two classes the mean, by .004 at most.

    Time O(d^2 K^3), with ``n_points`` O(d^2 K^3 + n_points K^2), and memory 8 ((K-1) d)^2
    bytes per round.

    Guarantee: none. The expansion is not a lower bound of the loss, so the state certifies
    nothing, and regret above what it would "certify" is easily observed on stochastic streams.

    Parameters
    ----------
    n_features, n_classes : as for `Folklore`.
    B : standard deviation of the prior of every weight.
    lam : ridge, by default 1/(2 B^2).
    mu : as for `Gaf`.
    n_points : predict by the posterior mean, with this number of points; by default, by the mode.
    seed : as for `Gaf`.

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

    PARAMS = ("n_features", "n_classes", "B", "lam", "mu", "n_points", "seed")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        lam: float | None = None,
        mu: float = 1e-9,
        n_points: int | None = None,
        seed: int = 0,
    ) -> None:
        self._size(n_features, n_classes)
        self.B = validation.positive("B", B)
        self.lam = validation.positive("lam", 0.5 / self.B**2 if lam is None else lam)
        self._start_gaussian(0.5, mu, n_points, seed)

    def _why_invalid(self) -> str:
        return "Laplace expands the losses, and an expansion is no lower bound of a loss"
