"""Second-order learners on the state of Folklore, with other prediction rules."""

import math

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evidence import bounds
from folklearn.kernels.curvature import gamma_star_below
from folklearn.learners.folklore import SecondOrderLearner

_MAX_POINTS = 2**20
_MAX_EXPONENT = 700.0  # beyond it exp overflows


class Aioli(SecondOrderLearner):
    r"""AIOLI, the binary ancestor of FOLKLORE, on the same state.

    Use it to compare with FOLKLORE on two classes; for anything else use `Folklore`.

    For the logit difference :math:`m = (W_1 - W_0) x` it predicts the root of

    .. math:: m = \mu_0 - \tfrac12\, x^\top A^{-1} x \tanh(m/2),

    the fixed point of FOLKLORE with pull 1 instead of 1/2. Time O(d^2) and memory 8 d^2 bytes.

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, itself at most `regret_bound`.

    Parameters
    ----------
    n_features, n_classes : number of features d; the classes must be 2.
    B : largest row norm of W; the paper's bound on :math:`\theta = W_1 - W_0` is 2B.
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
    regression".
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
        self._gamma = None if self.improved else 1.0 / (2.0 + 4.0 * self.B * self.R)
        self._start(gamma=self._gamma, pull=1.0)

    @property
    def can_grow(self) -> bool:
        """False: `grown` takes more features, but no third class."""
        return False

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


class GaussianLearner(SecondOrderLearner):
    """Base of learners that predict by a Gaussian over reduced logits, at points or its mean."""

    def _start_gaussian(
        self, gamma: float | None, mu: float, n_points: int | None, seed: int
    ) -> None:
        self._gamma = gamma
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
    wanted with a certificate.

    .. math:: p_t = (1 - \mu)\, E_{z \sim N(-q/2,\, C/2)} \mathrm{softmax}(Qz) + \mu/K

    by quasi-Monte Carlo in K - 1 dimensions. The loss is expanded at the minimiser of the
    state plus the observed loss. The certificate is valid for any number of points, also for none,
    which predicts the softmax at the mean model. Time O(d^2 K^3 + n_points K^2) and memory
    8 ((K-1) d)^2 bytes per round.

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``; in closed form, `exact_regret_bound` for exact integrals.

    Parameters
    ----------
    n_features, n_classes, B, R, lam : as for `Folklore`; the ridge is 2R/B by default.
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

    def exact_regret_bound(self, n_rounds: int) -> float:
        r"""Return a bound on the regret for exact integrals, weights of 1 and :math:`|x| \le R`.

        .. math:: \lambda K B^2 + \frac{\psi}{4}
            \left(\frac{1}{\gamma_{\min}} + \frac{R^2}{4\lambda}\right) (K-1) d
            \ln\left(1 + \frac{\gamma_{\max} T R^2}{\lambda K d}\right) - T \ln(1 - \mu)

        with :math:`\psi = (e^a - 1)/a, a = R^2/(2\lambda)`. At the default lam, a = BR/4: the
        bound is polynomial in BR only for lam of order R^2. The live certificate has no such
        factor. Derived in docs/theory/baselines.md.
        """
        T = validation.count("n_rounds", n_rounds, 0)
        d, K, B, R, lam = self.n_features, self.n_classes, self.B, self.R, self.lam
        a = R**2 / (2.0 * lam)
        if a > _MAX_EXPONENT:
            return math.inf
        ridge = lam * K * B**2
        of_folklore = bounds.folklore(
            T, n_features=d, n_classes=K, B=B, R=R, lam=lam, gamma=self._gamma
        )
        return ridge + math.expm1(a) / a * (of_folklore - ridge) - T * math.log1p(-self.mu)

    def regret_bound(self, n_rounds: int) -> float:
        r"""Return a bound on the regret of what is computed, weights 1 and :math:`|x| \le R`.

        For two classes every point set costs at most a constant more a round (`midpoint_cost`);
        for more classes nothing is known but that every class gets mass mu/K, so that a round
        loses at most ln(K/mu): both are linear in T. Infinite without points.
        """
        T = validation.count("n_rounds", n_rounds, 0)
        if self.n_points is None:
            return math.inf
        most = T * math.log(self.n_classes / self.mu) if self.mu > 0.0 else math.inf
        if self.n_classes > 2:
            return most
        cost = midpoint_cost(self.n_points, self.R / math.sqrt(self.lam))
        return min(most, self.exact_regret_bound(T) + T * cost)


class Laplace(GaussianLearner):
    r"""Online Laplace approximation: often the lowest loss on benign data, no guarantee.

    Use it when the stream is benign and no certificate is needed. Prefer `Folklore` when
    labels may be adversarial or a proof is wanted.

    It is GAF with the true curvature :math:`\gamma = 1/2` in place of a valid lower bound and
    the prior :math:`W \sim N(0, B^2 I)`, that is :math:`\lambda = 1/(2B^2)`. It predicts at the
    mode: on all seven real streams of more than two classes that had a lower loss than the mean
    over the posterior (``n_points``), by up to two thirds. Time and memory are those of `Gaf`.

    Guarantee: none. The expansion is not a lower bound of the loss: the state certifies nothing.

    Parameters
    ----------
    n_features, n_classes, mu, seed : as for `Gaf`.
    B : standard deviation of the prior of every weight.
    lam : ridge, by default 1/(2 B^2).
    n_points : predict by the posterior mean, with this number of points; by default, by the mode.

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


def midpoint_cost(n_points: int, deviation: float) -> float:
    r"""Return how many nats the midpoint rule of `Gaf` may lose in a round of two classes.

    .. math:: \ln \sup_m \frac{E\, \sigma(m + s Z)}{\frac1N \sum_j \sigma(m + s Z_j)}
        \le \ln \frac{\sum_j \rho_j X_j}{\sum_j X_j}, \qquad X_j = e^{s Z_j}

    for a standard Gaussian Z, its N equally likely cells with medians :math:`Z_j`, and a logit
    of standard deviation at most s; :math:`\rho_j \ge 1` is the largest ratio of mean to median
    of :math:`e^{sZ}` in the cells up to j. Derived in docs/theory/baselines.md.
    """
    from scipy.special import log_ndtr, ndtri  # slow to import

    cells = 2 * ((n_points + 1) // 2)
    edges = ndtri(np.arange(cells + 1) / cells)
    medians = deviation * ndtri((np.arange(cells) + 0.5) / cells)
    # The mean of exp(s Z) in a cell is N exp(s^2/2) times the mass of the cell moved by -s.
    low, high = edges[:-1] - deviation, edges[1:] - deviation
    low, high = np.where(low > 0.0, -high, low), np.where(low > 0.0, -low, high)
    near, far = log_ndtr(high), np.maximum(log_ndtr(low), -1e300)
    means = near + np.log1p(-np.exp(np.minimum(far - near, 0.0))) + 0.5 * deviation**2
    ratios = np.maximum.accumulate(np.maximum(means + math.log(cells) - medians, 0.0))
    weights = np.exp(medians - medians.max())
    return math.log((weights * np.exp(ratios)).sum() / weights.sum()) + 1e-9
