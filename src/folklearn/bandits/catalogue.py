"""The agents by name, set up for scaled rows, for those who choose one by a word."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from folklearn import bounds, problem
from folklearn.bandits.agent import Agent
from folklearn.bandits.banditron import Banditron
from folklearn.bandits.gaptron import Gaptron
from folklearn.bandits.newtron import Newtron
from folklearn.bandits.obama import Obama
from folklearn.bandits.reduction import CORRECT, EXPLORED, RANDOMISED, SAMPLE, BanditReduction
from folklearn.bandits.rewards import RewardAgent
from folklearn.bandits.rewards import auto as reward_auto
from folklearn.bandits.soba import Soba
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.learners import catalogue
from folklearn.learners.auto import auto
from folklearn.learners.folklore import Folklore
from folklearn.words import counted

DEFAULT = "auto"
DECODINGS = (SAMPLE, RANDOMISED)
UPDATES = (EXPLORED, CORRECT)

_MOST_COEFFICIENTS = 30  # of a linear model, for an integral by particles
# For scaled features, whose norm is about 1; the defaults of the library are for any.
_RADIUS = 3.0  # of Newtron's ball
_STEP = 0.1  # of Gaptron where no bound is asked for: its theory's hardly moves


def _by_rewards(n_features: int, n_classes: int, **words: Any) -> Agent:
    """Return `bandits.auto`: right is a reward of 1, wrong of 0, and it explores by itself."""
    return reward_auto(n_features=n_features, n_actions=n_classes, scale=False, **words)


def _over_auto(n_features: int, n_classes: int, **words: Any) -> Agent:
    learner = auto(n_features=n_features, n_classes=n_classes, max_weight=n_classes)
    return BanditReduction(learner, **words)


def _over_folklore(n_features: int, n_classes: int, **words: Any) -> Agent:
    return BanditReduction(Folklore(n_features=n_features, n_classes=n_classes), **words)


@dataclass(frozen=True)
class _Kind:
    make: Callable[..., Agent]
    n_matrices: int = 0  # of (K d)^2 numbers
    no_bound: str = ""  # why no theorem sets its exploration
    over: str = ""  # the learner inside
    needs_exploration: bool = False
    sets_exploration: bool = False  # by itself, so that none can be given
    only_correct: bool = False  # a wrong outcome teaches it nothing


_NO_DIAGONAL = "no theorem covers a diagonal"

_KINDS = {
    "auto": _Kind(
        _by_rewards,
        no_bound="it is made for reward, and its regret is bounded only if rewards are realizable",
        sets_exploration=True,
    ),
    "reduction": _Kind(
        _over_auto,
        over="auto",
        no_bound="a mixture has no regret bound in closed form",
        needs_exploration=True,
    ),
    "folklore": _Kind(_over_folklore, over="folklore", needs_exploration=True),
    "banditron": _Kind(Banditron),
    "newtron": _Kind(partial(Newtron, D=_RADIUS), n_matrices=3),
    "newtron-diagonal": _Kind(partial(Newtron, D=_RADIUS, diagonal=True), no_bound=_NO_DIAGONAL),
    "soba": _Kind(Soba, n_matrices=1, only_correct=True),
    "soba-diagonal": _Kind(partial(Soba, diagonal=True), no_bound=_NO_DIAGONAL, only_correct=True),
    "gaptron": _Kind(Gaptron, needs_exploration=True, only_correct=True),
    "obama": _Kind(Obama, needs_exploration=True, only_correct=True),
}

NAMES = tuple(_KINDS)
REDUCTIONS = tuple(name for name, kind in _KINDS.items() if kind.over)


@dataclass(frozen=True)
class Settings:
    """What was asked for; refused at once if it makes no sense, whatever the data are."""

    name: str
    exploration: float | None = None
    theory: bool = False
    decoding: str | None = None
    updates: str | None = None
    delay: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in _KINDS:
            raise FolklearnError(
                f"there is no agent {self.name!r}; choose one of: {', '.join(NAMES)}"
            )
        kind = _KINDS[self.name]
        problem.count("delay", self.delay, 0)
        problem.count("seed", self.seed, 0)
        if self.exploration is not None:
            if kind.sets_exploration:
                raise FolklearnError(
                    f"{self.name} explores by itself and takes no exploration; reduction does"
                )
            if self.theory:
                raise FolklearnError("exploration cannot be combined with theory, which sets it")
            value = problem.fraction("exploration", self.exploration, 1.0)
            if value == 0.0 and kind.needs_exploration:
                raise FolklearnError(
                    f"exploration must be above 0 for {self.name}, which learns nothing without"
                )
        if self.theory and kind.no_bound:
            bounded = [name for name, other in _KINDS.items() if not other.no_bound]
            raise FolklearnError(
                f"theory needs a bound on the mistakes of {self.name}, and there is none: "
                f"{kind.no_bound}; choose one of: {', '.join(bounded)}"
            )
        self._refuse_unknown("decoding", self.decoding, DECODINGS)
        self._refuse_unknown("updates", self.updates, UPDATES)

    def _refuse_unknown(self, option: str, value: str | None, known: Sequence[str]) -> None:
        if value is None:
            return
        if self.name not in REDUCTIONS:
            raise FolklearnError(
                f"{self.name} takes no {option}; it is for {' and '.join(REDUCTIONS)}"
            )
        if value not in known:
            raise FolklearnError(f"{option} must be {' or '.join(known)}, got {value!r}")


def make(settings: Settings, n_features: int, n_classes: int, n_rounds: int) -> Agent:
    """Return an agent that has learned nothing, for a stream of this length."""
    kind = _KINDS[settings.name]
    words: dict[str, Any] = {"seed": settings.seed, "max_pending": settings.delay + 1}
    if settings.theory:
        words["horizon"] = n_rounds
    elif not kind.sets_exploration:
        words["exploration"] = settings.exploration
    if kind.over:
        # The bound that sets a theory's exploration is about the updates of the paper.
        words["updates"] = settings.updates or (EXPLORED if settings.theory else CORRECT)
        words["decoding"] = settings.decoding or RANDOMISED
        if words.get("exploration", 0.0) is None:
            words["exploration"] = _exploration(n_classes, n_rounds)
    if settings.name == "gaptron" and not settings.theory:
        words["step"] = _STEP
    return kind.make(n_features=n_features, n_classes=n_classes, **words)


def _exploration(n_classes: int, n_rounds: int) -> float:
    """Return sqrt(K / T): what the theory says for a regret of one nat, not of its bound."""
    return bounds.bandit_exploration(n_rounds, n_classes=n_classes, regret=1.0)


def n_bytes(name: str, n_features: int, n_classes: int) -> int:
    """Return about how much memory an agent takes; raise if it cannot be computed at all."""
    kind, size = _KINDS[name], n_classes * n_features
    if name == "obama" and size > _MOST_COEFFICIENTS:
        raise InvalidInputError(
            f"obama takes linear models of at most {_MOST_COEFFICIENTS} coefficients, since it "
            f"averages over all of them by particles, and {n_classes} classes and "
            f"{counted(n_features, 'column')} make {size}: choose another agent, like {DEFAULT}"
        )
    if kind.sets_exploration:  # two classes for each action: it pays or not
        return n_classes * catalogue.n_bytes("auto", n_features, 2)
    if kind.over:
        return catalogue.n_bytes(kind.over, n_features, n_classes)
    return 8 * kind.n_matrices * size**2


def lighter(name: str) -> str:
    """Return an agent that takes next to no memory in place of another."""
    return f"{name}-diagonal" if _KINDS[name].n_matrices else "banditron"


def use_every_kernel(settings: Settings) -> None:
    """Play an agent of the kind for a few rounds, to compile what it uses, and drop it."""
    small = Settings(settings.name, decoding=settings.decoding, updates=settings.updates)
    agent = make(small, 3, 2, 32)
    for t in range(32):
        decision = agent.act(np.array([t % 2, 1.0 - t % 2, 1.0]))
        agent.learn(decision, decision.action == t % 2)


def described(agent: Any, settings: Settings, n_rounds: int) -> str:
    """Return an agent with its settings."""
    if isinstance(agent, RewardAgent):
        rule = f"a regression for each action, {agent.exploration}"
        return f"{settings.name}, {rule}, seed {settings.seed}"
    words = [f"{settings.name}, exploration {agent.exploration:.3g}"]
    if settings.theory:
        words[0] += f" by its theory for {counted(n_rounds, 'round')}"
    if isinstance(agent, BanditReduction):
        words += [f"decoding {agent.decoding}", f"updates {agent.updates}"]
    if isinstance(agent, Newtron):
        words.append(f"within a ball of radius {agent.D:g}")
    if isinstance(agent, Gaptron):
        words.append(f"step {agent.step:.2g}")
    return ", ".join([*words, f"seed {settings.seed}"])


def what_taught(agent: Agent, settings: Settings, n_correct: int) -> str:
    """Return how many of the outcomes an agent could learn from."""
    n = agent.n_outcomes
    if isinstance(agent, BanditReduction):
        updates = counted(agent.learner.n_rounds, "time")
        return f"Its learner was updated {updates} in {counted(n, 'outcome')}."
    if _KINDS[settings.name].only_correct:
        return f"It learns from correct actions alone: {n_correct} of {counted(n, 'outcome')}."
    return "It learned from every outcome."
