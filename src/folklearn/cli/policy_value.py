"""`folklearn policy-value`: what a policy would have earned in the decisions of a log."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import typer

from folklearn import serialization
from folklearn.arrays import Array
from folklearn.bandits.agent import Agent
from folklearn.cli import report
from folklearn.cli.display import Table, new_console, warnings_shown
from folklearn.cli.options import explained
from folklearn.cli.run import skipping
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.evaluate.off_policy import Estimate, logged_value, off_policy
from folklearn.evaluate.policies import LearnedPolicy, best_constant, greedy, reward_model, uniform
from folklearn.model.model import Model
from folklearn.model.roles import LEARNED
from folklearn.readers.decisions import Features, LoggedDecision, as_interactions, as_numbers
from folklearn.readers.logs import read_decisions
from folklearn.readers.open import open_source
from folklearn.readers.outcomes import RewardRange
from folklearn.readers.text import N_FEATURES
from folklearn.readers.vw import hashed
from folklearn.sparse import SparseRows
from folklearn.utils import counted, listed

BEST, SAMPLE = "best", "sample"
_OWN = "the log's own"
_TABLE = Table([("policy", "value", "from", "to", "worth")], width=10, left=26)
_FEW = 30  # effective rounds


@explained(
    f"""
LOG  Decisions with their rewards: VW's text (action:cost:probability | features, or a line for
    every action) or JSON lines (--dsjson of VW, logs of Personalizer); - reads standard input.
--policy MODEL  What `folklearn run --save` wrote, or an agent that was saved in Python, which knows
    no names: it takes the features in the order in which the log first has them.
--play {BEST}|{SAMPLE}  How the classes of a model become an action: the most likely one, or one
    drawn with its probability.
--reward-range LOW HIGH  What rewards lie between; they become 0 to 1. Costs are negative rewards:
    for costs from 0 to 1 it is -1 0.
--actions K  How many actions there are, where text has their numbers only. Default: the largest.
--confidence SHARE  Of the intervals.
--on-bad-row stop|skip  At a decision that cannot be read: stop, or skip it and say how many were.
"""
)
def policy_value(
    log: str,
    policy: str | None = None,
    play: str = BEST,
    reward_range: tuple[float, float] = (0.0, 1.0),
    actions: int | None = None,
    confidence: float = 0.95,
    on_bad_row: str = "stop",
) -> None:
    """Estimate what a policy would have earned in the decisions of a log.

    Beside it: what the policy of the log earned, playing at random, the
    best constant action, and a policy that is learned from this log. These
    two are learned from earlier decisions than they are judged by.

    A policy that has learned from this very log is flattered by it.
    """
    if play not in (BEST, SAMPLE):
        raise FolklearnError(f"--play must be {BEST} or {SAMPLE}, got {play!r}")
    saved = None if policy is None else serialization.load(policy)
    source = open_source(log)
    with skipping(on_bad_row) as skipped:
        decisions = list(read_decisions(source, RewardRange(*reward_range), skipped))
        data = as_interactions(decisions, actions)
    own = logged_value(data, confidence=confidence)
    judged = partial(off_policy, data, rewards=reward_model(data), confidence=confidence)
    n_bad = skipped.n_rows if skipped is not None else 0
    lines = [report.named(*_about(source.name, data, n_bad)), _TABLE.header]
    lines.append(_TABLE.line(_cells(_OWN, own)))
    for name, other in _beside(data):
        try:
            lines.append(_TABLE.line(_cells(name, judged(other))))
        except InvalidInputError:  # it plays nothing that was played
            lines.append(_TABLE.line([name, *"----"]))
    if policy is not None:
        with warnings_shown(new_console(quiet=False)):
            played = _playing(saved, policy, data, decisions, play)
        estimate = judged(played)
        lines += [_TABLE.line(_cells(policy, estimate)), _in_words(policy, estimate, own)]
    typer.echo("\n".join(lines))


def _beside(log: Interactions) -> Iterator[tuple[str, Any]]:
    yield "uniform", uniform(log)
    if log.n_actions is not None:
        yield "best constant action", LearnedPolicy(best_constant)
    yield "learned from this log", LearnedPolicy(greedy)


def _about(name: str, log: Interactions, n_bad: int) -> list[tuple[str, str]]:
    skipped = f"; {counted(n_bad, 'bad one')} skipped" if n_bad else ""
    sizes = np.diff(log.offsets)
    if log.n_actions is None:
        offered = f"{sizes.min()} to {sizes.max()} in a decision, with features"
    else:
        offered = f"{log.n_actions}" + (f": {listed(log.action_names)}" if log.action_names else "")
    return [
        ("log", f"{name}: {counted(log.n_rounds, 'decision')}{skipped}"),
        ("actions", offered),
        ("features", listed(log.feature_names)),
    ]


def _cells(name: str, estimate: Estimate) -> Sequence[str]:
    numbers = (estimate.value, estimate.low, estimate.high)
    return [name, *(f"{number:.4f}" for number in numbers), f"{estimate.effective_size:.0f}"]


def _in_words(name: str, estimate: Estimate, own: Estimate) -> str:
    """Return what the estimate says, and whether that is more than was earned."""
    if estimate.low > own.high:
        compared = f"more than what the policy of the log earned, {own.value:.4f}"
    elif estimate.high < own.low:
        compared = f"less than what the policy of the log earned, {own.value:.4f}"
    else:
        compared = (
            f"this log cannot tell whether that is more than what its own policy earned, "
            f"{own.value:.4f}"
        )
    sentence = (
        f"{name} would have earned {estimate.value:.4f} a decision, between {estimate.low:.4f} and "
        f"{estimate.high:.4f} with {estimate.confidence:.0%} confidence: {compared}.\n"
        f"For it the log is worth {estimate.effective_size:.0f} of {estimate.n_rounds} decisions."
    )
    if estimate.effective_size < _FEW:
        sentence += " That is very little: a few rewards decide, and the interval may be too short."
    return sentence


def _playing(
    saved: Any, name: str, log: Interactions, decisions: Sequence[LoggedDecision], play: str
) -> Any:
    """Return the policy of something that was saved, as `off_policy` takes it."""
    if isinstance(saved, Agent):
        return saved
    if not isinstance(saved, Model):
        raise FolklearnError(
            f"{name} holds a {type(saved).__name__}; --policy takes a model or an agent"
        )
    if log.n_actions is None:
        raise FolklearnError(
            f"{name} is a model of classes, and each decision of the log has actions of its own: "
            "only an agent for actions with features can play them"
        )
    called = log.action_names or tuple(str(k + 1) for k in range(log.n_actions))
    unknown = [label for label in map(str, saved.labels) if label not in called]
    if unknown:
        raise FolklearnError(
            f"{name} knows the class {unknown[0]!r}, which is no action of the log; its actions "
            f"are: {listed(called)}"
        )
    P = _predicted(saved, name, [decision.context for decision in decisions])
    if play == BEST:
        P = np.eye(P.shape[1])[P.argmax(axis=1)]
    full = np.zeros((log.n_rounds, log.n_actions))
    full[:, [called.index(str(label)) for label in saved.labels]] = P
    return full / full.sum(axis=1, keepdims=True)  # without what is kept for classes to come


def _predicted(model: Model, name: str, contexts: Sequence[Features]) -> Array:
    """Return what a model says of the contexts: by column, or by feature if it learned VW text."""
    if model.encoder is not None and model.encoder.feature_names:
        rows = [hashed(as_numbers(context)) for context in contexts]
        indptr = np.cumsum([0, *(len(indices) for indices, _ in rows)])
        indices, values = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        return model.predict_proba(SparseRows(indptr, indices, values, N_FEATURES))
    learned = [column for column, role in model.roles.items() if role in LEARNED]
    there = {column for context in contexts for column in context}
    if learned and there.isdisjoint(learned):
        raise FolklearnError(
            f"the log has no column of {name}, which has learned: {listed(learned)}"
        )
    return model.predict_proba(contexts, known_only=True)
