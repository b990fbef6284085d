"""GAF: the Gaussian aggregating forecaster (Jézéquel, Gaillard and Rudi 2021)."""

import math

from folklearn import validation
from folklearn.evidence import bounds
from folklearn.kernels.quadrature import MOST_POINTS, prediction_nodes
from folklearn.learners.second_order import SecondOrderLearner


class Gaf(SecondOrderLearner):
    r"""GAF, which averages predictions over a Gaussian instead of regularising.

    Use it to compare with FOLKLORE, or where the mean prediction of a Gaussian posterior is
    wanted with a certificate; it costs ``n_points`` softmaxes per prediction more.

    With the state's mean :math:`-q/2` and inverse curvature C in reduced logits,

    .. math:: p_t = (1 - \mu)\, E_{z \sim N(-q/2,\, C/2)} \mathrm{softmax}(Qz) + \mu/K,

    by quasi-Monte Carlo in K - 1 dimensions. The loss is expanded at the minimiser of the
    state plus the observed loss, not at the prediction.

    Time O(d^2 K^3 + n_points K^2) and memory 8 ((K-1) d)^2 bytes per round. The paper draws
    a number of samples that grows with T; here it is the caller's choice, and the
    certificate accounts for whatever was predicted: also for no points at all, which predicts
    the softmax at the mean model. Then, with ``improved``, certificates have been tighter than
    those of `Folklore`.

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``; in closed form, for the mean, `folklearn.evidence.bounds.gaf`.

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
        self.mu = validation.fraction("mu", mu)
        self.n_points = (
            None if n_points is None else validation.count("n_points", n_points, 2, MOST_POINTS)
        )
        self.seed = validation.count("seed", seed, 0)
        self.improved = bool(improved)
        own = 1.0 / (2.0 * self.B * self.R + math.log(self.n_classes) + 2.0)
        self._start(
            gamma=None if self.improved else own,
            mu=self.mu,
            nodes=prediction_nodes(self.n_points, self.n_classes - 1, self.seed),
        )

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
