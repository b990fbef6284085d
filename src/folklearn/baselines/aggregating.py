"""The aggregating algorithm: the exact Bayesian mixture of all linear models, by particles."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.baselines import bounds
from folklearn.baselines.kernels import log_mixture
from folklearn.baselines.posterior import ParticlePosterior, effective_size
from folklearn.errors import InvalidInputError
from folklearn.learners.base import Learner
from folklearn.progress import Report
from folklearn.serialization import Record, generator_from, generator_state
from folklearn.validation import Rows

_MAX_PARTICLES, _MAX_MOVES = 10**6, 10**4


class Aggregating(Learner):
    r"""The Bayesian mixture of all linear models: the least regret known, at the highest cost.

    Use it as a reference on small problems, K d up to about 20: no learner of this library has
    a better guarantee. Use `Folklore` for everything else.

    Vovk's aggregating algorithm on the log loss plays the posterior mean of the probabilities:

    .. math::
        p_t = (1-\mu)\, E_{W \sim P_t} \mathrm{softmax}(W x_t) + \mu/K, \qquad
        P_t(W) \propto \mathrm{prior}(W) \exp\Big(-\sum_{s<t} \frac{w_s}{w_{\max}} \ell_s(W)\Big)

    The integral is a sum over weighted particles. Each round multiplies the weights; once
    the effective sample size falls below half, systematic resampling is followed by
    ``n_moves`` Metropolis moves of every particle over the whole history (`ParticlePosterior`).

    Differs from Foster et al. in the integral (particles instead of a projected Langevin
    chain, whose proven running time is a polynomial of high degree) and in leaving
    :math:`\mu` at 0 by default, which the bound on the log loss does not need.

    A round costs O(n_particles K d), and O(n_particles n_moves t K d) when the particles
    move; memory 8 (d + K + 1) t bytes for the history. Moves become rarer as 1/t on steady
    streams, but the longest round, and every surprise, costs a pass over all that was seen.

    Guarantee, for the exact integral, every stream, hard or soft labels and weights at most
    ``max_weight``: `baselines.bounds.aggregating_uniform` (against row norms at most B) and
    `baselines.bounds.aggregating_gaussian`, times ``max_weight``. The Monte Carlo error comes
    on top; it is not bounded here, falls like 1/sqrt(n_particles), and needs n_particles
    well above K d. There is no certificate.

    Parameters
    ----------
    n_features : number of features d, at least 1.
    n_classes : number of classes K, at least 2.
    B : largest row norm of the linear models to compete with, positive.
    R : bound on the norm of x, positive; it enters the guarantee only.
    prior : "uniform" on the W of row norms at most B, or "gaussian", N(0, nu^2 I).
    nu : standard deviation :math:`\nu` of the Gaussian prior, positive; by default B.
    mu : share :math:`\mu` of the uniform distribution in every prediction, from 0 to 1/2; it
        bounds every loss by ln(K/mu).
    n_particles : number of particles, at least 2; rounded up to a multiple of K, so that the
        first prediction is exactly uniform.
    n_moves : Metropolis moves after each resampling, at least 1.
    seed : an integer, or a NumPy Generator, which is then used and advanced.
    max_weight : largest sample weight :math:`w_{\max}`, positive; a larger one is refused.

    Examples
    --------
    >>> from folklearn import Aggregating, synthetic
    >>> X, y = synthetic.separable(0, 100, d=2, K=2)
    >>> P = Aggregating(n_features=2, n_classes=2).run(X, y)
    >>> bool((P.argmax(axis=1) == y).mean() > 0.8)
    True

    References
    ----------
    Vovk (1998), "A Game of Prediction with Expert Advice". Kakade and Ng (2005), "Online
    Bounds for Bayesian Algorithms", Theorem 2.2. Foster, Kale, Luo, Mohri and Sridharan
    (2018), "Logistic Regression: The Importance of Being Improper", Theorem 3. Chopin (2002),
    "A sequential particle filter method for static models" (resample-move). Rudolf and
    Sprungk (2018), "On a Generalization of the Preconditioned Crank-Nicolson Metropolis
    Algorithm" (the autoregressive step).
    """

    PARAMS = (
        "n_features", "n_classes", "B", "R", "prior", "nu", "mu", "n_particles", "n_moves",
        "max_weight",
    )  # fmt: skip
    COUNTERS = ("_n_rounds",)
    UNBOUNDED = ("log_weights",)

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return validation.count("n_particles", words["n_particles"], 2) * (K - 1) * d

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        prior: str = "uniform",
        nu: float | None = None,
        mu: float = 0.0,
        n_particles: int = 512,
        n_moves: int = 10,
        seed: int | np.random.Generator = 0,
        max_weight: float = 1.0,
    ) -> None:
        self._size(n_features, n_classes)
        K = self.n_classes
        self.B = validation.positive("B", B)
        self.R = validation.positive("R", R)
        if prior not in ("uniform", "gaussian"):
            raise InvalidInputError(f"prior must be 'uniform' or 'gaussian', got {prior!r}")
        if nu is not None and prior == "uniform":
            raise InvalidInputError("nu belongs to prior='gaussian'; the uniform prior has only B")
        self.prior = prior
        self.nu = None
        if prior == "gaussian":
            self.nu = self.B if nu is None else validation.positive("nu", nu)
        self.mu = validation.fraction("mu", mu)
        wanted = validation.count("n_particles", n_particles, 2, _MAX_PARTICLES)
        self.n_particles = -(-wanted // K) * K
        self.n_moves = validation.count("n_moves", n_moves, 1, _MAX_MOVES)
        self.max_weight = validation.positive("max_weight", max_weight)
        rng = validation.generator(seed)
        self._posterior = ParticlePosterior(
            self.n_features,
            K,
            B=self.B,
            nu=self.nu,
            n_particles=self.n_particles,
            n_moves=self.n_moves,
            rng=rng,
        )

    def _predict(self, x: Array) -> Array:
        return np.exp(self._log_p(x))

    def _log_p(self, x: Array) -> Array:
        log_p = np.empty(self.n_classes)
        terms = np.empty((self.n_particles, self.n_classes))
        models = (self._posterior.W, self._posterior.log_weights)
        if not log_mixture(*models, self.mu, x, validation.MAX_NORM, terms, log_p):
            validation.check_context(x)
        return log_p

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        target = soft if label < 0 else np.eye(self.n_classes)[label]
        return float(-(target @ self._learn_round(x, target, weight)))

    def _run(self, rows: Rows, report: Report | None) -> Array:
        targets = rows.soft if len(rows.soft) else np.eye(self.n_classes)[rows.labels]
        P = np.empty((len(rows.X), self.n_classes))
        for t, x in enumerate(rows.X):
            P[t] = np.exp(self._learn_round(x, targets[t], rows.weights[t]))
            if report is not None:
                report(t + 1)
        return P

    def _learn_round(self, x: Array, target: Array, weight: float) -> Array:
        log_p = self._log_p(x)
        if weight > 0.0:
            self._posterior.learn(x, target, weight / self.max_weight)
        self._n_rounds += 1
        return log_p

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret of the exact integral, for |x| <= R and unit weights."""
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        if self.nu is None:
            return bounds.aggregating_uniform(n_rounds, **sizes, B=self.B, R=self.R, mu=self.mu)
        return bounds.aggregating_gaussian(
            n_rounds, **sizes, B=self.B, R=self.R, nu=self.nu, mu=self.mu
        )

    @property
    def effective_size(self) -> float:
        """Effective number of particles, between half of them and all of them."""
        return effective_size(self._posterior.log_weights)

    def coef(self) -> Array:
        """Return the posterior mean (K, d) of the weights."""
        return self._posterior.mean()

    @property
    def n_bytes(self) -> int:
        """The bytes of the particles and of the history, which grows with every round."""
        return sum(array.nbytes for array in self._posterior.parts())

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the particles of such a learner take at other sizes."""
        return 8 * self.n_particles * n_classes * n_features

    def to_record(self) -> Record:
        """Return the full state as a record, the generator's state included."""
        record = super().to_record()
        record.config["generator"] = generator_state(self._posterior.rng)
        return record

    def _parts(self) -> dict[str, NDArray[Any]]:
        return dict(zip(ParticlePosterior.ARRAYS, self._posterior.parts(), strict=True))

    def _restore(self, record: Record) -> None:
        self._n_rounds = record.count("n_rounds")
        t = np.size(record.arrays.get("w", ()))
        shapes = {name: array.shape for name, array in self._parts().items()}
        shapes |= {"X": (t, self.n_features), "Y": (t, self.n_classes), "w": (t,)}
        self._posterior.rng = generator_from(record.word("generator"))
        arrays = [self._read_array(record, *shape).copy() for shape in shapes.items()]
        self._posterior.restore(*arrays)
