"""The posterior over linear models as weighted particles, by resample-move.

Each round multiplies the weights, kept as logs. Before the effective sample size falls below
half, the particles are resampled in proportion to their weights and moved by Metropolis steps
that leave the posterior of the whole history unchanged. Moves alternate between a Gaussian
fitted to the particles (an autoregressive step, nearly independent draws once the posterior is
nearly Gaussian) and a random walk with their covariance (for its tails and the boundary of the
class), each with its own adapted step. See docs/theory/baselines.md.
"""

import math

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.baselines.kernels import history_losses, round_losses
from folklearn.kernels.simplex import helmert

TARGET_ACCEPTANCE = 0.3
MAX_STAGES = 100  # in which one round may enter the posterior
AUTOREGRESSION, RANDOM_WALK = 0, 1
MAX_STEPS = (1.0, 3.0)  # of the two moves, in standard deviations
_JITTER = 1e-10  # of the mean variance, added to a covariance


class ParticlePosterior:
    """Particles of prior times exp(-sum w l), with the history that the moves need.

    Arguments are validated by the caller. The prior is N(0, nu^2 I), particles then being
    (N, K-1, d) in the Helmert basis, or with nu = None uniform on row norms at most B,
    particles being (N, K, d). N is a multiple of K: the first particles are the K cyclic
    shifts of the classes of each draw, which makes the first prediction uniform.
    """

    ARRAYS = ("particles", "log_weights", "steps", "X", "Y", "w")

    def __init__(
        self,
        d: int,
        K: int,
        *,
        B: float,
        nu: float | None,
        n_particles: int,
        n_moves: int,
        rng: np.random.Generator,
    ) -> None:
        self.B, self.nu, self.N, self.n_moves, self.rng = B, nu, n_particles, n_moves, rng
        self.Q = helmert(K)
        self._z = np.empty(K)
        W = rng.standard_normal((n_particles // K, K, d))
        if nu is None:
            # Just inside, so that rounding cannot put a row outside.
            radii = B * (1.0 - 1e-12) * rng.random((len(W), K, 1)) ** (1.0 / d)
            W *= radii / np.sqrt((W**2).sum(axis=2, keepdims=True))
        else:
            W *= nu
        W = np.concatenate([np.roll(W, shift, axis=1) for shift in range(K)])
        particles = W if nu is None else self.Q.T @ W
        steps = np.array([1.0, 2.4 / math.sqrt(particles[0].size)])
        log_weights = np.full(n_particles, -math.log(n_particles))
        self.restore(particles, log_weights, steps, np.empty((0, d)), np.empty((0, K)), np.empty(0))

    def restore(
        self, particles: Array, log_weights: Array, steps: Array, X: Array, Y: Array, w: Array
    ) -> None:
        """Continue from these arrays, which are copied where they will change."""
        self.particles, self.log_weights, self.steps = particles, log_weights, steps.copy()
        self.W = self._models(particles)
        self.n_rounds = len(w)
        self._X, self._Y, self._w = X, Y, w  # room for more rounds doubles when it is used up

    def parts(self) -> tuple[Array, ...]:
        """Return copies of what `restore` takes, in the order of ARRAYS."""
        arrays = (self.particles, self.log_weights, self.steps, *self._history())
        return tuple(array.copy() for array in arrays)

    def _history(self) -> tuple[Array, Array, Array]:
        t = self.n_rounds
        return self._X[:t], self._Y[:t], self._w[:t]

    def _models(self, particles: Array) -> Array:
        return particles if self.nu is None else self.Q @ particles

    def mean(self) -> Array:
        """Return the posterior mean (K, d)."""
        mean: Array = np.tensordot(np.exp(self.log_weights), self.W, axes=1)
        return mean

    def learn(self, x: Array, y: Array, weight: float) -> None:
        """Add a round to the posterior: in stages, if at once would leave too few particles."""
        self._remember(x, y)
        losses = np.empty(self.N)
        done = 0.0
        for stage in range(MAX_STAGES):
            round_losses(self.W, x, y, self._z, losses)
            left = weight - done
            if self._keeps_enough(losses, left):
                self.log_weights = normalise(self.log_weights - left * losses)
                break
            step = left if stage == MAX_STAGES - 1 else self._longest_step(losses, left)
            done += step
            self.log_weights = normalise(self.log_weights - step * losses)
            self._w[self.n_rounds - 1] = done
            self._move()
        self._w[self.n_rounds - 1] = weight

    def _remember(self, x: Array, y: Array) -> None:
        t = self.n_rounds
        if t == len(self._w):
            room = max(16, t)
            self._X = np.concatenate([self._X, np.zeros((room, len(x)))])
            self._Y = np.concatenate([self._Y, np.zeros((room, len(y)))])
            self._w = np.concatenate([self._w, np.zeros(room)])
        self._X[t], self._Y[t] = x, y
        self.n_rounds = t + 1

    def _keeps_enough(self, losses: Array, step: float) -> bool:
        return effective_size(normalise(self.log_weights - step * losses)) >= 0.5 * self.N

    def _longest_step(self, losses: Array, left: float) -> float:
        low, high = 0.0, left
        for _ in range(30):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._keeps_enough(losses, middle) else (low, middle)
        return high

    def _move(self) -> None:
        """Resample, then move every particle `n_moves` times over the whole history.

        In coordinates e whitened by the particles' mean and covariance the moves alternate
        between sqrt(1 - b^2) e + b xi, which is reversible for the fitted Gaussian, so that
        its density enters the acceptance, and the random walk e + b xi.
        """
        weights = np.exp(self.log_weights)
        flat = self.particles.reshape(self.N, -1)
        mean = weights @ flat
        L = covariance_factor((flat - mean).T * weights @ (flat - mean), self.nu or self.B)
        kept = resample(weights, self.rng)
        flat, W = flat[kept], self.W[kept]
        # Not a triangular solve, which BLAS splits across threads at a loss.
        E = (flat - mean) @ np.linalg.inv(L).T
        losses, new_losses = np.empty(self.N), np.empty(self.N)
        history_losses(W, *self._history(), np.full(self.N, np.inf), self._z, losses)
        for move in range(self.n_moves):
            kind = move % 2
            b = float(self.steps[kind])
            shrink = math.sqrt(1.0 - b**2) if kind == AUTOREGRESSION else 1.0
            new_E = shrink * E + b * self.rng.standard_normal(E.shape)
            new = mean + new_E @ L.T
            # Accepted if the loss grows by at most this; -ln u is exponential.
            slack = self.rng.standard_exponential(self.N)
            slack += self._log_prior(new) - self._log_prior(flat)
            if kind == AUTOREGRESSION:
                slack += 0.5 * ((new_E**2).sum(axis=1) - (E**2).sum(axis=1))
            new_W = self._models(new.reshape(self.particles.shape))
            history_losses(new_W, *self._history(), losses + slack, self._z, new_losses)
            accepted = new_losses < np.inf
            for old, proposed in ((flat, new), (E, new_E), (W, new_W), (losses, new_losses)):
                old[accepted] = proposed[accepted]
            b *= math.exp(float(accepted.mean()) - TARGET_ACCEPTANCE)
            self.steps[kind] = min(b, MAX_STEPS[kind])
        self.particles = flat.reshape(self.particles.shape)
        self.W = self._models(self.particles)
        self.log_weights = np.full(self.N, -math.log(self.N))

    def _log_prior(self, flat: Array) -> Array:
        if self.nu is not None:
            density: Array = -0.5 * ((flat / self.nu) ** 2).sum(axis=1)
            return density
        rows = flat.reshape(self.N, *self.particles.shape[1:])
        inside = ((rows / self.B) ** 2).sum(axis=2).max(axis=1) <= 1.0
        return np.where(inside, 0.0, -np.inf)


def normalise(log_weights: Array) -> Array:
    """Return log weights whose exponentials sum to 1."""
    shifted: Array = log_weights - log_weights.max()
    return shifted - math.log(np.exp(shifted).sum())


def effective_size(log_weights: Array) -> float:
    """Return 1 / sum of squared weights, for normalised log weights."""
    return float(1.0 / np.exp(2.0 * log_weights).sum())


def resample(weights: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return N indices by systematic resampling: equally spaced points on the total weight."""
    N = len(weights)
    points = (np.arange(N) + rng.random()) / N
    return np.minimum(np.searchsorted(np.cumsum(weights), points), N - 1)


def covariance_factor(covariance: Array, scale: float) -> Array:
    """Return the lower Cholesky factor of a sample covariance, with as much jitter as it needs.

    A covariance of zero, all particles being one, is replaced by scale^2 I.
    """
    n = len(covariance)
    size = float(np.trace(covariance)) / n
    if not size > 0.0:
        return scale * np.eye(n)
    jitter = _JITTER
    while True:
        try:
            factor = np.linalg.cholesky(covariance + jitter * size * np.eye(n))
        except np.linalg.LinAlgError:
            jitter *= 100.0
        else:
            return factor.astype(np.float64, copy=False)
