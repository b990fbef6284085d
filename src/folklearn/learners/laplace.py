"""Online Laplace: Bayesian logistic regression with a Gaussian posterior, one step at a time."""

from folklearn import validation
from folklearn.evidence import bounds
from folklearn.kernels.quadrature import MOST_POINTS, prediction_nodes
from folklearn.learners.second_order import SecondOrderLearner


class Laplace(SecondOrderLearner):
    r"""Online Laplace approximation: often the lowest loss on benign data, no guarantee.

    Use it when the stream is benign and no certificate is needed. Prefer `Folklore` when
    labels may be adversarial or a proof is wanted.

    It is GAF with the true curvature :math:`\gamma = 1/2` in place of a valid lower bound and
    the prior :math:`W \sim N(0, B^2 I)`, that is :math:`\lambda = 1/(2B^2)`: each loss is
    replaced by its second-order expansion at the new posterior mode. The prediction is the
    softmax at the mode; ``n_points`` asks for the mean of the softmax over the posterior, as
    `Gaf` predicts. The mean is the better one if the prior is right, which it is not: on all
    seven real streams of more than two classes that were tried the mode had the lower loss,
    by up to two thirds, and on the three of two classes the mean, by .004 at most.

    Time O(d^2 K^3), with ``n_points`` O(d^2 K^3 + n_points K^2), and memory 8 ((K-1) d)^2
    bytes per round.

    Guarantee: none. The expansion is not a lower bound of the loss, so the state certifies
    nothing (`folklearn.evidence.bounds.laplace` says so).

    Parameters
    ----------
    n_features, n_classes : as for `Folklore`.
    B : standard deviation of the prior of every weight.
    lam : ridge, by default 1/(2 B^2).
    mu : as for `Gaf`.
    n_points : predict by the posterior mean, with so many points; by default, by the mode.
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
        self.mu = validation.fraction("mu", mu)
        self.n_points = (
            None if n_points is None else validation.count("n_points", n_points, 2, MOST_POINTS)
        )
        self.seed = validation.count("seed", seed, 0)
        nodes = prediction_nodes(self.n_points, self.n_classes - 1, self.seed)
        self._start(gamma=0.5, mu=self.mu, nodes=nodes)

    def _why_invalid(self) -> str:
        return "Laplace expands the losses, and an expansion is no lower bound of a loss"

    def regret_bound(self, n_rounds: int) -> float:
        """Return infinity: this learner has no guarantee."""
        return bounds.laplace(n_rounds)
