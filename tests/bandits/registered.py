"""Every agent that the laws of bandits are tested on; a new one joins by one line in AGENTS."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from folklearn import Aggregating, Folklore, Ogd, auto
from folklearn.bandits import Agent, BanditReduction, RewardAgent
from folklearn.baselines import Banditron, Newtron, Obama, Soba


@dataclass(frozen=True)
class Case:
    """An agent to test.

    `weighs` says that a correct outcome enters with a weight made of its propensity; `rewards`
    that outcomes are rewards, and that exploration changes with the number of decisions.
    """

    make: Callable[..., Agent]
    weighs: bool = False
    rewards: bool = False

    def __call__(self, d: int, K: int, **keywords: Any) -> Agent:
        return self.make(d, K, **keywords)

    def trained(self, d: int, K: int, n_rounds: int = 40, **keywords: Any) -> Agent:
        """An agent that has learned a little, the same for the same arguments."""
        agent = self(d, K, **keywords)
        rng = np.random.default_rng(n_rounds)
        for x in contexts(rng, n_rounds, d):
            decision = agent.act(x)
            agent.learn(decision, bool(rng.random() < 0.5))
        return agent


def contexts(rng: np.random.Generator, T: int, d: int) -> NDArray[np.float64]:
    """Rows of norm at most 1."""
    X = rng.normal(size=(T, d))
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]


def sizes(make: Callable[..., Agent], **parameters: Any) -> Callable[..., Agent]:
    return lambda d, K, **keywords: make(n_features=d, n_classes=K, **parameters, **keywords)


def over(learner: Callable[..., Any], parameters: dict[str, Any], **of_agent: Any) -> Any:
    return lambda d, K, **keywords: BanditReduction(
        learner(n_features=d, n_classes=K, **parameters), **of_agent, **keywords
    )


def by_rewards(learner: Callable[..., Any], parameters: dict[str, Any], **of_agent: Any) -> Case:
    """An agent of rewards, weak enough to play every action now and then."""

    def make(d: int, K: int, **keywords: Any) -> Agent:
        n_columns = d + of_agent.get("scale", False)
        regressions = [learner(n_features=n_columns, n_classes=2, **parameters) for _ in range(K)]
        return RewardAgent(regressions, **{"strength": 0.1} | of_agent | keywords)

    return Case(make, rewards=True)


B3 = {"B": 3.0}
PARTICLES = {"B": 3.0, "n_particles": 60, "n_moves": 3}
HALF = {"exploration": 0.5}

AGENTS = {
    "banditron": Case(sizes(Banditron, exploration=0.4), weighs=True),
    "newtron": Case(sizes(Newtron, exploration=0.4, beta=0.1), weighs=True),
    "soba": Case(sizes(Soba, exploration=0.4), weighs=True),
    "obama": Case(sizes(Obama, exploration=0.5, **PARTICLES), weighs=True),
    "reduction, folklore": Case(over(Folklore, B3, **HALF)),
    "reduction, folklore, horizon": Case(over(Folklore, B3, horizon=30_000)),
    "reduction, folklore, randomised": Case(over(Folklore, B3, **HALF, decoding="randomised")),
    "reduction, ogd": Case(over(Ogd, B3, **HALF)),
    "reduction, ogd, randomised": Case(over(Ogd, B3, **HALF, decoding="randomised")),
    "reduction, folklore, all correct": Case(
        over(Folklore, B3, **HALF, updates="correct"), weighs=True
    ),
    "reduction, auto": Case(over(auto, {}, **HALF)),
    "reduction, auto, randomised": Case(over(auto, {}, **HALF, decoding="randomised")),
    "reduction, auto, all correct": Case(
        over(auto, {"max_weight": 6.0}, **HALF, updates="correct"), weighs=True
    ),
    "reduction, aggregating": Case(over(Aggregating, PARTICLES, **HALF)),
    "reduction, aggregating, randomised": Case(
        over(Aggregating, PARTICLES, **HALF, decoding="randomised")
    ),
    "rewards, auto": by_rewards(auto, {}),
    "rewards, folklore, scaled": by_rewards(Folklore, B3, scale=True),
    "rewards, folklore, theory": by_rewards(Folklore, B3, strength="theory"),
    "rewards, folklore, squarecb": by_rewards(Folklore, B3, exploration="squarecb"),
    "rewards, ogd": by_rewards(Ogd, B3),
}
WEIGHING = {name: case for name, case in AGENTS.items() if case.weighs}

every_agent = pytest.mark.parametrize("make", AGENTS.values(), ids=AGENTS)
every_weighing_agent = pytest.mark.parametrize("make", WEIGHING.values(), ids=WEIGHING)
