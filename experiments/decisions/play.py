"""Our agents on a game, and what they prove of themselves beside what happened."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from folklearn import Folklore, bandits
from folklearn.arrays import Array
from folklearn.bandits import BanditReduction, RewardAgent
from folklearn.learners.auto import auto

from .arenas import Arena, Game, game

_POOL = 32  # contexts from which an adversary picks
EXPLORATIONS = ("squarecb",)  # beside FastCB, which `bandits.auto` has


def reduction(d: int, K: int, n_rounds: int, seed: int) -> BanditReduction:
    """Return the paper's agent, for right and wrong only: all right actions teach it."""
    return BanditReduction(
        auto(n_features=d, n_classes=K, max_weight=K), updates="correct", decoding="randomised",
        exploration=min(1.0, (K / n_rounds) ** 0.5), seed=seed,
    )  # fmt: skip


def agent_of(name: str, d: int, K: int, n_rounds: int, seed: int) -> Any:
    """Return an agent that has learned nothing."""
    if name == "auto":
        return bandits.auto(n_features=d, n_actions=K, scale=False, seed=seed)
    if name == "reduction":
        return reduction(d, K, n_rounds, seed)
    regressions = [auto(n_features=d, n_classes=2) for _ in range(K)]
    return RewardAgent(regressions, exploration=name, seed=seed)


def play(arena: Arena, seed: int, name: str) -> tuple[float, float]:
    """Return mean reward and seconds of one of our agents."""
    own = game(arena, seed)
    T, d = own.X.shape
    agent = agent_of(name, d, own.R.shape[1], T, seed)
    total, start = 0.0, perf_counter()
    for x, r in zip(own.X, own.R, strict=True):
        decision = agent.act(x)
        reward = float(r[decision.action])
        agent.learn(decision, reward)
        total += reward
    return total / T, perf_counter() - start


def _next_in_order(own: Game) -> Callable[[Any, int], int]:
    return lambda agent, t: t


def _most_doubtful(own: Game) -> Callable[[Any, int], int]:
    """Return an adversary: of a few contexts, that for which the two best actions look alike."""

    def pick(agent: Any, t: int) -> int:
        first = t * _POOL % (len(own.X) - _POOL)
        pool = own.X[first : first + _POOL]
        best = np.sort([agent.expected_rewards(x) for x in pool], axis=1)
        return first + int(np.argmin(best[:, -1] - best[:, -2]))

    return pick


CONTEXTS = {"as drawn": _next_in_order, "adversarial": _most_doubtful}


def bound(
    arena: Arena, seed: int, rule: str, strength: float | str, contexts: str
) -> dict[str, Array | float]:
    """Return the regret against the best action of every round, and what was proven of it.

    Regressions are `Folklore`, for which ``strength="theory"`` knows how to explore.
    """
    own = game(arena, seed)
    T, d = own.X.shape
    K = own.R.shape[1]
    B = 10.0
    regressions = [Folklore(n_features=d, n_classes=2, B=B) for _ in range(K)]
    agent = RewardAgent(regressions, exploration=rule, strength=strength, seed=seed)
    pick, regret = CONTEXTS[contexts](own), 0.0
    for t in range(T):
        row = pick(agent, t)
        decision = agent.act(own.X[row])
        agent.learn(decision, own.R[row, decision.action])
        regret += float(own.means[row].max() - own.means[row, decision.action])
    certificate = agent.regret_certificate()
    return {
        "regret": regret,
        "bound": certificate.bound,
        "explored": certificate.explored,
        "nats": certificate.regression,
    }
