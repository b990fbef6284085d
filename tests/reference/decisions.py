"""Worlds of decisions where the value of every policy is known: to see whether intervals hold.

A world is a finite population of contexts, from which rounds are drawn with replacement, so that
the value of a policy is its mean over the population, exactly.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from folklearn.evaluate.interactions import Interactions
from folklearn.evaluate.off_policy import Estimate, LearnedPolicy, off_policy

Draw = Callable[[np.random.Generator, Any], Any]
SIZE, d, K = 100, 3, 4


def binary(rng: np.random.Generator, mean: Any) -> Any:
    return (rng.random(np.shape(mean)) < mean).astype(float)


def graded(rng: np.random.Generator, mean: Any) -> Any:
    return rng.beta(2.0 * mean, 2.0 * (1.0 - mean))


class World(NamedTuple):
    """Contexts (d,), or a row per action, with the mean rewards and two policies for each."""

    contexts: list[Any]
    means: list[Any]
    logging: list[Any]
    target: list[Any]
    n_actions: int | None

    def log(self, rng: np.random.Generator, T: int, draw: Draw) -> tuple[Interactions, list[Any]]:
        """Return a log of the logging policy, and what the target would have played."""
        rows = rng.integers(len(self.contexts), size=T)
        actions = [int(rng.choice(len(self.logging[i]), p=self.logging[i])) for i in rows]
        log = Interactions(
            [self.contexts[i] for i in rows],
            actions,
            [self.logging[i][a] for i, a in zip(rows, actions, strict=True)],
            draw(rng, np.array([self.means[i][a] for i, a in zip(rows, actions, strict=True)])),
            self.n_actions,
        )
        return log, [self.target[i] for i in rows]

    def value(self, policy: Any) -> float:
        """Return the mean reward of a policy: probabilities, or what makes them of contexts."""
        if callable(policy):
            if self.n_actions is None:
                policy = [policy(rows) for rows in self.contexts]
            else:
                policy = policy(np.array(self.contexts))
        return float(np.mean([p @ mean for p, mean in zip(policy, self.means, strict=True)]))


def world(rng: np.random.Generator, *, features: bool, least: float = 0.4) -> World:
    """Return a world; `least` is the share of decisions that the logging policy makes at random."""
    sizes = rng.integers(2, 7, size=SIZE) if features else np.full(SIZE, K)
    W = 2.0 * rng.normal(size=(K, d))
    contexts, means, logging, target = [], [], [], []
    for m in sizes:
        x = rng.normal(size=(m, d) if features else d)
        z = x @ W[0] if features else W @ x
        contexts.append(x)
        means.append(0.02 + 0.96 / (1.0 + np.exp(-z)))
        target.append(_softmax(z + rng.normal(size=m)))
        logging.append(least / m + (1.0 - least) * _softmax(rng.normal(size=m)))
    return World(contexts, means, logging, target, None if features else K)


def _softmax(z: Any) -> Any:
    p = np.exp(z - z.max())
    return p / p.sum()


def judged(
    rng: np.random.Generator, own: World, T: int, draw: Draw, without_model: bool = False
) -> tuple[Estimate, float]:
    """Return the estimate of the target policy by a new log, and the truth."""
    log, P = own.log(rng, T, draw)
    policy: Any = P if own.n_actions is None else np.array(P)
    shape = len(log.X) if own.n_actions is None else (T, own.n_actions)
    rewards = np.zeros(shape) if without_model else None
    return off_policy(log, policy, rewards=rewards), own.value(own.target)


def best_constant(log: Interactions) -> Callable[[Any], Any]:
    """Return the policy of the action that earned most in a log, by inverse propensities."""
    assert log.n_actions is not None
    weights, earned = np.full(log.n_actions, 1e-300), np.zeros(log.n_actions)
    for action, p, reward in zip(log.actions, log.propensities, log.rewards, strict=True):
        weights[action] += 1.0 / p
        earned[action] += reward / p
    one_hot = np.eye(log.n_actions)[np.argmax(earned / weights)]
    return lambda X: np.tile(one_hot, (len(X), 1))


def judged_learned(
    rng: np.random.Generator, own: World, T: int, draw: Draw, learn: Callable[[Interactions], Any]
) -> tuple[Estimate, float]:
    """Return the estimate of a policy learned from a new log, and what it earns in truth."""
    log, _ = own.log(rng, T, draw)
    values = []

    def noted(past: Interactions) -> Any:
        policy = learn(past)
        values.append(own.value(policy))
        return policy

    estimate = off_policy(log, LearnedPolicy(noted))
    sizes = [stop - start for start, stop in log.blocks(LearnedPolicy(noted).n_blocks)][1:]
    return estimate, float(np.average(values, weights=sizes))
