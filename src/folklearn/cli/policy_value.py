"""`folklearn policy-value`: estimate the value of a policy from a log of decisions."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import typer
from typer import Argument, Option

from folklearn import serialization
from folklearn.bandits.agent import Agent
from folklearn.cli import options
from folklearn.cli.display import format_cells, format_fields, new_console, warnings_shown
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.evaluate.off_policy import (
    Estimate,
    LearnedPolicy,
    best_constant,
    greedy,
    logged_value,
    off_policy,
    reward_model,
    uniform,
)
from folklearn.model.decisions import DecisionModel
from folklearn.readers.decision_logs import LoggedDecision, as_interactions, read_decisions
from folklearn.readers.decision_logs import Option as LoggedOption
from folklearn.readers.open import open_source
from folklearn.utils import count_of, join_names

_TABLE = "policy", "value", "from", "to", "effective n"
_NAME_WIDTH = 24
_MIN_EFFECTIVE_ROUNDS = 30  # for an interval to be trusted


def policy_value(
    log: str = Argument(
        ...,
        metavar="LOG",
        show_default=False,
        help="Decisions with their rewards: VW text (action:cost:probability | features, or a "
        "line for every action); - reads standard input.",
    ),
    policy: str | None = Option(
        None,
        metavar="MODEL",
        help="A saved DecisionModel, or an agent of arrays, which takes the features in the order "
        "of the log.",
    ),
    reward_range: tuple[float, float] | None = Option(
        None, metavar="LOW HIGH", help="Range of rewards. Default: 0 1, or -1 0 of costs."
    ),
    actions: int | None = Option(None, metavar="K", help="Number of actions. Default: largest."),
    confidence: float = Option(0.95, metavar="SHARE", help="Confidence of the intervals."),
    on_bad_row: options.OnBadRow = "stop",
) -> None:
    """Estimate what a policy would have earned in the decisions of a log.

    For comparison: the policy of the log, random actions, the best constant
    action, and a policy learned from this log. The last two are learned
    from earlier decisions than those that they are evaluated on. A policy
    that has learned from this very log is flattered by it.
    """
    saved = None if policy is None else serialization.load(policy)
    source = open_source(log)
    with options.open_bad_rows(on_bad_row) as bad_rows:
        decisions = read_decisions(source, reward_range, bad_rows.take)
        data = as_interactions(decisions, actions)
    lines = [_describe_log(source.name, data, bad_rows.n_rows), format_cells(_TABLE, _NAME_WIDTH)]
    logged = logged_value(data, confidence=confidence)
    lines.append(_format_line("the log's own", logged))
    policies: dict[str, Any] = {"uniform": uniform(data)}
    if data.n_actions is not None:
        policies["best constant action"] = LearnedPolicy(best_constant)
    policies["learned from this log"] = LearnedPolicy(greedy)
    estimate = partial(off_policy, data, rewards=reward_model(data), confidence=confidence)
    for name, reference in policies.items():
        try:
            lines.append(_format_line(name, estimate(reference)))
        except InvalidInputError:  # none of its actions was played
            lines.append(format_cells([name, *"----"], _NAME_WIDTH))
    if policy is not None:
        with warnings_shown(new_console(quiet=False)):
            played = _make_policy(saved, policy, data, decisions)
        value = estimate(played)
        lines += [_format_line(policy, value), _compare(policy, value, logged)]
    typer.echo("\n".join(lines))


def _describe_log(name: str, log: Interactions, n_bad: int) -> str:
    skipped = f"; {count_of(n_bad, 'bad one')} skipped" if n_bad else ""
    sizes = np.diff(log.offsets)
    offered = f"{sizes.min()} to {sizes.max()} in a decision, with features"
    if log.n_actions is not None:
        names = f": {join_names(log.action_names)}" if log.action_names else ""
        offered = f"{log.n_actions}{names}"
    decisions = f"{name}: {count_of(log.n_rounds, 'decision')}{skipped}"
    features = join_names(log.feature_names)
    return format_fields({"log": decisions, "actions": offered, "features": features})


def _format_line(name: str, estimate: Estimate) -> str:
    numbers = [f"{number:.4f}" for number in (_clip(estimate), estimate.low, estimate.high)]
    size, missing = f"{estimate.effective_size:.0f}", _name_missing(estimate)
    cells = [name, *("---" if missing else numbers), size]
    return format_cells(cells, _NAME_WIDTH) + f"  {missing}".rstrip()


def _clip(estimate: Estimate) -> float:
    return min(max(estimate.value, estimate.low), estimate.high)  # no reward is above 1


def _name_missing(estimate: Estimate) -> str:
    """Say that an estimate cannot be used, and what it takes; nothing if it can."""
    n, digits = estimate.n_missing, 10 ** max(0, len(str(estimate.n_missing)) - 2)
    return f"too little data: about {-(-n // digits) * digits:,} decisions more" if n else ""


def _compare(name: str, estimate: Estimate, logged: Estimate) -> str:
    if missing := _name_missing(estimate):
        return f"What {name} would have earned this log cannot tell, {missing}."
    compared = "this log cannot tell whether that is more than what its own policy earned"
    if estimate.low > logged.high:
        compared = "more than what the policy of the log earned"
    elif estimate.high < logged.low:
        compared = "less than what the policy of the log earned"
    sentence = (
        f"{name} would have earned {_clip(estimate):.4f} a decision, between {estimate.low:.4f} "
        f"and {estimate.high:.4f} with {estimate.confidence:.0%} confidence: {compared}, "
        f"{logged.value:.4f}.\n"
        f"For it the log is worth {estimate.effective_size:.0f} of {estimate.n_rounds} decisions."
    )
    if estimate.effective_size < _MIN_EFFECTIVE_ROUNDS:
        sentence += " That is very little: a few rewards decide, and the interval may be too short."
    return sentence


def _make_policy(
    saved: Any, name: str, log: Interactions, decisions: Sequence[LoggedDecision]
) -> Any:
    """Return an agent, or the probabilities of the actions of every decision, by their names."""
    if isinstance(saved, Agent):
        return saved
    if not isinstance(saved, DecisionModel):
        raise FolklearnError(
            f"{name} holds a {type(saved).__name__}; --policy takes a DecisionModel or an agent"
        )
    played = []
    for decision in decisions:
        options = decision.options or [LoggedOption("", {})] * (log.n_actions or 0)
        menu = {option.name or str(k): option.features for k, option in enumerate(options, start=1)}
        unknown = [action for action in menu if action not in saved.actions]
        if unknown and not saved.has_features:
            raise FolklearnError(
                f"{name} has never met the action {unknown[0]!r} of the log; its actions are: "
                f"{join_names([*map(str, saved.actions)])}"
            )
        p = saved.policy(decision.context, menu if saved.has_features else [*menu])
        played.append([*p.values()])
    return played
