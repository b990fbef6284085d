"""The Bayesian mixture of all linear models by particles: Aggregating, and Obama for bandits.

Each round multiplies the weights of the particles, kept as logs. Before the effective sample size
falls below half, they are resampled and moved by Metropolis steps (`Aggregating._move`) that leave
the posterior of the whole history unchanged. See docs/theory/baselines.md.
"""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky

from folklearn import validation
from folklearn.arrays import Array
from folklearn.bandits.reduction import CORRECT, BanditReduction
from folklearn.baselines.kernels import history_losses
from folklearn.learners.base import Learner
from folklearn.serialization import Record, generator_from, generator_state

_MAX_PARTICLES, _MAX_MOVES = 10**6, 10**4
_TARGET_ACCEPTANCE = 0.3
_MAX_STAGES = 100  # in which one round may enter the posterior
_BISECTIONS = 30  # of the step of a stage
_AUTOREGRESSION, _RANDOM_WALK = range(2)
_LONGEST_STEPS = (1.0, 3.0)  # of the two moves, in standard deviations
_JITTER = 1e-10  # of the mean variance, added to a covariance


class Aggregating(Learner):
    r"""The Bayesian mixture of all linear models: the least regret known, at the highest cost.

    Use it as a reference on small problems, K d up to about 20, and `Folklore` for all others.

    .. math::
        p_t = (1-\mu)\, E_{W \sim P_t} \mathrm{softmax}(W x_t) + \mu/K, \qquad
        P_t(W) \propto \exp\Big(-\sum_{s<t} \frac{w_s}{w_{\max}} \ell_s(W)\Big), \ |W_k| \le B

    Time O(n_particles K d) a round, n_moves t times that when the particles move, which on steady
    streams becomes rarer as 1/t; memory 8 (d + K + 1) t bytes for the history.

    Guarantee, for the exact integral, :math:`|x| \le R`, every stream, hard or soft labels: with
    unit weights regret is at most `regret_bound`; with weights at most ``max_weight``, that many
    times its value at T = total weight / ``max_weight``. The Monte Carlo error, which falls like
    1/sqrt(n_particles), comes on top.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem, d at least 1 and K at least 2.
    B, R : largest row norm of the models to compete with, and norm of x for the guarantee only.
    mu : share of the uniform distribution, from 0 to 1/2; it bounds every loss by ln(K/mu).
    n_particles : at least 2; rounded up to a multiple of K: the first prediction is uniform.
    n_moves : Metropolis moves after each resampling, at least 1.
    seed : an integer, or a NumPy Generator, which is then used and advanced.
    max_weight : largest sample weight :math:`w_{\max}`, positive.

    Examples
    --------
    >>> from folklearn import Aggregating, synthetic
    >>> X, y = synthetic.separable(0, 100, d=2, K=2)
    >>> P = Aggregating(n_features=2, n_classes=2).run(X, y)
    >>> bool((P.argmax(axis=1) == y).mean() > 0.8)
    True

    References
    ----------
    Vovk (1998), "A Game of Prediction with Expert Advice". Foster, Kale, Luo, Mohri and Sridharan
    (2018), "Logistic Regression: The Importance of Being Improper". Chopin (2002), "A sequential
    particle filter method for static models". Rudolf and Sprungk (2018), "On a Generalization of
    the Preconditioned Crank-Nicolson Metropolis Algorithm", for the autoregressive step.
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "mu", "n_particles", "n_moves", "max_weight")
    COUNTERS = ("_n_rounds",)
    UNBOUNDED = ("log_weights",)

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return validation.count("n_particles", words["n_particles"], 2) * K * d

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        mu: float = 0.0,
        n_particles: int = 512,
        n_moves: int = 10,
        seed: int | np.random.Generator = 0,
        max_weight: float = 1.0,
    ) -> None:
        self._size(n_features, n_classes, B=B, R=R, max_weight=max_weight)
        d, K = self.n_features, self.n_classes
        self.mu = validation.fraction("mu", mu)
        wanted = validation.count("n_particles", n_particles, 2, _MAX_PARTICLES)
        self.n_particles = -(-wanted // K) * K
        self.n_moves = validation.count("n_moves", n_moves, 1, _MAX_MOVES)
        self._rng = validation.generator(seed)
        self._particles = self._draw_prior()  # (N, K, d)
        self._log_weights: Array = np.full(self.n_particles, -math.log(self.n_particles))
        self._steps: Array = np.array([1.0, 2.4 / math.sqrt(K * d)])
        self._rounds: list[tuple[Array, Array, float]] = []  # contexts, labels (K,), weights

    def _draw_prior(self) -> Array:
        """Return particles of which the K cyclic shifts of the classes are there too."""
        d, K, rng = self.n_features, self.n_classes, self._rng
        W = rng.standard_normal((self.n_particles // K, K, d))
        # Just inside, so that rounding cannot put a row outside.
        radii = self.B * (1.0 - 1e-12) * rng.random((len(W), K, 1)) ** (1.0 / d)
        W *= radii / np.sqrt((W**2).sum(axis=2, keepdims=True))
        return np.concatenate([np.roll(W, shift, axis=1) for shift in range(K)])

    def _predict(self, x: Array) -> Array:
        return np.exp(self._log_p(x))

    def _log_p(self, x: Array) -> Array:
        terms: Array = self._particles @ validation.usable(x)  # (N, K)
        terms -= terms.max(axis=1, keepdims=True)
        terms += (self._log_weights - np.log(np.exp(terms).sum(axis=1)))[:, None]
        top = terms.max(axis=0)
        log_p: Array = np.minimum(top + np.log(np.exp(terms - top).sum(axis=0)), 0.0)  # rounding
        if self.mu > 0.0:
            log_p = np.log((1.0 - self.mu) * np.exp(log_p) + self.mu / self.n_classes)
        return log_p

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        target = soft if label < 0 else np.eye(self.n_classes)[label]
        loss = -float(target @ self._log_p(x))
        if weight > 0.0:
            self._add_round(x, target, weight / self.max_weight)
        self._n_rounds += 1
        return loss

    def _add_round(self, x: Array, y: Array, weight: float) -> None:
        """Add a round to the posterior: in stages, if at once would leave too few particles."""
        x, entered = x.copy(), 0.0
        for stage in range(_MAX_STAGES):
            losses = self._sum_losses(self._particles, (x[None], y[None], np.ones(1)))
            left = weight - entered
            if self._keeps_enough(losses, left):
                self._log_weights = _normalise(self._log_weights - left * losses)
                break
            step = left if stage == _MAX_STAGES - 1 else self._longest_step(losses, left)
            self._log_weights = _normalise(self._log_weights - step * losses)
            entered += step
            self._move([*self._rounds, (x, y, entered)])
        self._rounds.append((x, y, weight))

    def _keeps_enough(self, losses: Array, step: float) -> bool:
        weights = np.exp(_normalise(self._log_weights - step * losses))
        return bool(1.0 / (weights**2).sum() >= 0.5 * self.n_particles)  # the effective size

    def _longest_step(self, losses: Array, left: float) -> float:
        low, high = 0.0, left
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._keeps_enough(losses, middle) else (low, middle)
        return high

    def _stack(self, rounds: list[tuple[Array, Array, float]]) -> tuple[Array, Array, Array]:
        X = np.array([x for x, _, _ in rounds]).reshape(-1, self.n_features)
        Y = np.array([y for _, y, _ in rounds]).reshape(-1, self.n_classes)
        return X, Y, np.array([weight for _, _, weight in rounds], np.float64)

    def _move(self, rounds: list[tuple[Array, Array, float]]) -> None:
        """Resample, then move every particle `n_moves` times over the whole history.

        In coordinates e whitened by the particles the moves alternate between sqrt(1 - b^2) e + b
        xi, reversible for the fitted Gaussian, and the random walk e + b xi.
        """
        weights, N, rng = np.exp(self._log_weights), self.n_particles, self._rng
        flat = self._particles.reshape(N, -1)
        mean = weights @ flat
        L = covariance_factor((flat - mean).T * weights @ (flat - mean), self.B)
        flat = flat[resample(weights, rng)]
        # Not a triangular solve, which BLAS splits across threads at a loss.
        E = (flat - mean) @ np.linalg.inv(L).T
        history = self._stack(rounds)
        losses = self._sum_losses(flat, history)
        for move in range(self.n_moves):
            kind = move % 2
            b = float(self._steps[kind])
            shrink = math.sqrt(1.0 - b**2) if kind == _AUTOREGRESSION else 1.0
            new_E = shrink * E + b * rng.standard_normal(E.shape)
            new = mean + new_E @ L.T
            # Accepted if the loss grows by at most this; -ln u is exponential.
            slack = rng.standard_exponential(N)
            rows = new.reshape(self._particles.shape) / self.B
            slack[~((rows**2).sum(axis=2).max(axis=1) <= 1.0)] = -np.inf
            if kind == _AUTOREGRESSION:
                slack += 0.5 * ((new_E**2).sum(axis=1) - (E**2).sum(axis=1))
            new_losses = self._sum_losses(new, history, losses + slack)
            accepted = new_losses < np.inf
            for old, proposed in ((flat, new), (E, new_E), (losses, new_losses)):
                old[accepted] = proposed[accepted]
            b *= math.exp(float(accepted.mean()) - _TARGET_ACCEPTANCE)
            self._steps[kind] = min(b, _LONGEST_STEPS[kind])
        self._particles = flat.reshape(self._particles.shape)
        self._log_weights = np.full(N, -math.log(N))

    def _sum_losses(
        self, particles: Array, history: tuple[Array, Array, Array], limits: Array | None = None
    ) -> Array:
        losses = np.empty(self.n_particles)
        limits = np.full(self.n_particles, np.inf) if limits is None else limits
        W = particles.reshape(self._particles.shape)
        history_losses(W, *history, limits, np.empty(self.n_classes), losses)
        return losses

    def regret_bound(self, n_rounds: int) -> float:
        r"""Return a bound on the regret against row norms at most B, for |x| <= R and unit weights.

        With :math:`c = \min(4BR,\; 2BR + \ln K)` and :math:`\varepsilon = \min(1, Kd / (cT))`,

        .. math:: K d \ln\frac1\varepsilon + \varepsilon c T + 2 \mu T

        for the exact integral. Derived in docs/theory/baselines.md.
        """
        T = validation.count("n_rounds", n_rounds, 0)
        n, BR = self.n_classes * self.n_features, self.B * self.R
        c = min(4.0 * BR, 2.0 * BR + math.log(self.n_classes))
        eps = n / max(n, c * T)
        return -n * math.log(eps) + eps * c * T + 2.0 * self.mu * T

    def coef(self) -> Array:
        """Return the posterior mean (K, d) of the weights."""
        return np.tensordot(np.exp(self._log_weights), self._particles, axes=1)

    def _parts(self) -> dict[str, NDArray[Any]]:
        particles = {"particles": self._particles, "log_weights": self._log_weights}
        history = dict(zip(("X", "Y", "w"), self._stack(self._rounds), strict=True))
        return particles | {"steps": self._steps} | history

    def to_record(self) -> Record:
        """Return the full state as a record, the generator's state included."""
        record = super().to_record()
        record.config["generator"] = generator_state(self._rng)
        return record

    def _restore(self, record: Record) -> None:
        X = record.part("X", (None, self.n_features))
        Y, w = record.part("Y", (len(X), self.n_classes)), record.part("w", (len(X),))
        self._rounds = list(zip(X, Y, w.tolist(), strict=True))
        super()._restore(record)
        self._rng = generator_from(record.word("generator"))


def _normalise(log_weights: Array) -> Array:
    shifted: Array = log_weights - log_weights.max()
    return shifted - math.log(np.exp(shifted).sum())


def resample(weights: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return N indices by systematic resampling."""
    N = len(weights)
    points = (np.arange(N) + rng.random()) / N
    return np.minimum(np.searchsorted(np.cumsum(weights), points), N - 1)


def covariance_factor(covariance: Array, scale: float) -> Array:
    """Return the lower Cholesky factor of a sample covariance, with as much jitter as it needs.

    A covariance of zero, all particles being one, is replaced by scale^2 I.
    """
    n, trace = len(covariance), float(np.trace(covariance))
    if not trace > 0.0:
        return scale * np.eye(n)
    ridge = _JITTER * trace / n
    while True:
        try:
            return cholesky(covariance + ridge * np.eye(n), lower=True)
        except LinAlgError:
            ridge *= 10.0


class Obama(BanditReduction):
    r"""The aggregating algorithm on importance-weighted losses, for bandit feedback.

    Use it as a reference on small problems, K d up to about 20, and `BanditReduction` over
    `folklearn.Folklore` for all others.

    .. math:: p = E_{W \sim P_t} \mathrm{softmax}(W x), \qquad \tilde y \sim P = (1-\mu) p +
        \frac\mu K, \qquad P_t(W) \propto \mathrm{prior}(W) \exp\Big(-\frac\mu K \sum_s
        \frac{1\{\tilde y_s = y_s\}}{P_s(y_s)} \ell_s(W)\Big)

    with a uniform prior on row norms at most B and :math:`\mu` the exploration: the reduction
    with ``updates="correct"``, over an `Aggregating` whose largest weight is K.

    Guarantee, for the exact integral, contexts of norm at most R and outcomes without delay:
    for every W of row norms at most B, expected mistakes are at most :math:`\sum_t \ell_t(W)
    + \mu T + K R(T) / \mu`, with R(T) = ``Aggregating.regret_bound(T)``.

    Parameters
    ----------
    n_features, n_classes, B, R, n_particles, n_moves : as for `Aggregating`.
    exploration : :math:`\mu`, above 0 and at most 1; by default 0.1.
    horizon : number of rounds T, which sets :math:`\mu = \min(1, \sqrt{K R(T) / T})`.
    seed : an integer, or a NumPy Generator; it feeds the actions, its first number the particles.

    Examples
    --------
    >>> from folklearn import interact, synthetic
    >>> from folklearn.baselines import Obama
    >>> agent = Obama(n_features=2, n_classes=3, n_particles=120)
    >>> bool(interact(agent, *synthetic.separable(0, 500, d=2, K=3)).rewards.mean() > 0.6)
    True

    References
    ----------
    Foster, Kale, Luo, Mohri and Sridharan (2018), section on bandit multiclass learning (OBAMA).
    """

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        exploration: float | None = None,
        horizon: int | None = None,
        seed: int | np.random.Generator = 0,
        **parameters: Any,
    ) -> None:
        rng = validation.generator(seed)
        own_rng = np.random.default_rng(rng.integers(2**63))  # its state is in the learner's record
        learner = Aggregating(
            n_features=n_features, n_classes=n_classes, seed=own_rng,
            max_weight=n_classes,  # so that losses count mu / (K P), at most 1
            **parameters,
        )  # fmt: skip
        super().__init__(
            learner, exploration=exploration, horizon=horizon, updates=CORRECT, seed=rng
        )

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        agent = cls.__new__(cls)
        BanditReduction.__init__(agent, **words)
        return agent
