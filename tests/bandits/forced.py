"""Agents made to play a given action, and what is compared between them."""

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.bandits import Agent, BanditReduction, Decision

Array = NDArray[np.float64]


class Script:
    """Stands in for a generator: hands out the numbers that it was given, in order."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return float(self.numbers.pop(0))

    def integers(self, _: int) -> int:
        return int(self.numbers.pop(0))


def act_as(agent: Agent, x: Array, action: int, *, explored: bool | None = None) -> Decision:
    """Let the agent act with the random numbers that make it play this action.

    A `BanditReduction` can explore (the default) or exploit on the way there. The agent's own
    generator does not move.
    """
    if isinstance(agent, BanditReduction):
        if explored is None or explored:
            numbers = [0.0, float(action)]
        else:
            numbers = [np.nextafter(1.0, 0.0), _inside(exploitation(agent, x), action)]
    else:
        numbers = [_inside(agent.policy(x), action)]
    own, agent._rng = agent._rng, Script(numbers)
    try:
        decision = agent.act(x)
        assert not agent._rng.numbers, "not every number of the script was used"
    finally:
        agent._rng = own
    assert decision.action == action
    return decision


def exploitation(agent: BanditReduction, x: Array) -> Array:
    """The probabilities with which a reduction plays when it does not explore."""
    p = agent.learner.predict(x)
    if agent.decoding == "sample":
        return p
    sampling = min(1.0, 2.0 * (1.0 - p.max()))
    return sampling * p + (1.0 - sampling) * np.eye(len(p))[np.argmax(p)]


def _inside(P: Array, action: int) -> float:
    """A uniform number for which the inverse distribution function gives this action."""
    assert P[action] > 0.0
    return float(P[:action].sum() + 0.5 * P[action])


def learned(agent: Agent) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What the agent has learned: its record without generator, counts and pending decisions."""
    record = agent.to_record()
    unlearned = {"generator", *agent.COUNTERS}
    config = {k: v for k, v in record.config.items() if k not in unlearned}
    arrays = {k: v.tobytes() for k, v in record.arrays.items() if not k.startswith("pending.")}
    return config, arrays


def state(agent: Agent) -> bytes:
    """The whole state, pending decisions and generator included, as bytes."""
    record = agent.to_record()
    parts = [record.kind.encode(), json.dumps(record.config, sort_keys=True).encode()]
    for name, array in sorted(record.arrays.items()):
        parts += [name.encode(), str((array.shape, array.dtype)).encode(), array.tobytes()]
    return b"|".join(parts)


def easy_stream(rng: np.random.Generator, T: int, K: int) -> tuple[Array, NDArray[np.int64]]:
    """One feature per class: x = e_y plus a little noise, shrunk into the unit ball."""
    y = rng.integers(0, K, T)
    X = np.eye(K)[y] + 0.1 * rng.normal(size=(T, K))
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None], y


def play(agent: Agent, X: Array, y: Sequence[int] | NDArray[np.int64]) -> Array:
    """Let the agent play a stream with every outcome told at once; return its mistakes."""
    mistakes = np.empty(len(X))
    for t, (x, label) in enumerate(zip(X, y, strict=True)):
        decision = agent.act(x)
        mistakes[t] = decision.action != label
        agent.learn(decision, decision.action == label)
    return mistakes


def documented_exploration(kind: type[Agent]) -> float:
    """The default of exploration that the docstring states."""
    found = re.search(
        r"\n *exploration :.*?by\s+default\s+([\d./]*\d)", kind.__doc__ or "", re.DOTALL
    )
    assert found, f"the docstring of {kind.__name__} states no default of exploration"
    return float(Fraction(found[1]))


def alongside(agent: Agent, twin: Any, rng: np.random.Generator, X: Array, delay: int) -> None:
    """Force agent and twin along one trajectory, the outcomes `delay` rounds late.

    Actions are drawn uniformly where the agent may play them, outcomes by a coin: nothing that
    could be learned, so that the state wanders through unlikely places.
    """
    waiting = []
    for x in X:
        P = agent.policy(x)
        np.testing.assert_allclose(P, twin.probabilities(x), rtol=0.0, atol=1e-9)
        action = int(rng.choice(np.flatnonzero(P)))
        waiting.append((act_as(agent, x, action), getattr(twin, "W", None)))
        while len(waiting) > delay:
            decision, played = waiting.pop(int(rng.integers(len(waiting))))
            correct = bool(rng.random() < 0.6)
            agent.learn(decision, correct)
            late = {"played": played} if delay else {}
            twin.learn(decision.x, decision.action, decision.propensity, correct, **late)
