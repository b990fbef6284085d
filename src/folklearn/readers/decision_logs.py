"""Logs of decisions in VW's text, ``action:cost:probability | features``, as tables of numbers.

For actions that are known by number (`--cb`, `--cb_explore`) every line is a decision, and actions
are counted from 1. For actions with features (`--cb_adf`, `--cb_explore_adf`) a decision is several
lines and a blank one: perhaps ``shared | features`` of the decision, then a line for every action,
of which the one that was played has the label, whose first number says nothing. A tag names the
action.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, dropwhile, groupby, islice
from typing import Any, NamedTuple

import numpy as np

from folklearn import validation
from folklearn.errors import InvalidInputError, spell_argument
from folklearn.evaluate.interactions import Interactions
from folklearn.readers.convert import parse_number
from folklearn.readers.open import open_source
from folklearn.readers.reader import BadRow, OnBad, decode_line
from folklearn.readers.source import ByteSource
from folklearn.readers.sparse_text import split_vw_line
from folklearn.utils import count_of

Features = Mapping[str, float]

_REWARDS, _COSTS = (0.0, 1.0), (-1.0, 0.0)  # ranges of rewards
_ROUNDING = 1e-6  # of numbers that were stored with 4 bytes
_MAX_TABLE_NUMBERS = 2**27  # 1 GB
_SHARED = "shared"


class Option(NamedTuple):
    """An action that could be played: its name, "" if it has only a number, and its features."""

    name: str
    features: Features


class LoggedDecision(NamedTuple):
    """One decision of a log."""

    context: Features
    options: tuple[Option, ...]  # that could be played; empty if they are known by number only
    action: int  # that was played, from 0
    propensity: float  # with which it was
    reward: float  # the negative cost; from 0 to 1 once it is scaled


def read_log(
    file: Any,
    *,
    reward_range: tuple[float, float] | None = None,
    n_actions: int | None = None,
    on_bad: OnBad = None,
) -> Interactions:
    """Read a log of decisions in VW's text (`--cb`, `--cb_explore_adf`).

    Parameters
    ----------
    file : path, "-" for standard input, or an object open for reading bytes; it may be packed with
        gzip or zstd.
    reward_range : the range of rewards, which is scaled to 0 to 1. VW has costs, which are negative
        rewards. By default rewards are from 0 to 1, or, if the first that is not 0 is negative,
        costs are: a cost of 1 is then a reward of 0.
    n_actions : number of actions in a text for `--cb`, which does not say; by default the largest
        number in it.
    on_bad : takes every decision that cannot be read (`BadRow`), which is then left out. If None,
        the first is raised.

    Examples
    --------
    >>> import io
    >>> log = read_log(io.BytesIO(b"1:-1:0.5 | age:30\\n3:0:0.25 | age:40 new\\n"))
    >>> log.actions.tolist(), log.rewards.tolist(), log.n_actions, log.feature_names
    ([0, 2], [1.0, 0.0], 3, ('age', 'new'))
    """
    return as_interactions(read_decisions(open_source(file), reward_range, on_bad), n_actions)


def read_decisions(
    source: ByteSource, reward_range: tuple[float, float] | None, on_bad: OnBad
) -> list[LoggedDecision]:
    range_used = None if reward_range is None else check_reward_range(reward_range)
    decisions: list[LoggedDecision] = []
    lines = dropwhile(_is_blank, chain.from_iterable(chunk.lines() for chunk in source.chunks()))
    start = list(islice(lines, 2))
    parse = _choose_parser([data.decode(errors="replace") for _, data in start])
    n_lines = None if parse is parse_cb_lines else 1  # of a decision; None for a whole group
    for is_blank, group in groupby(chain(start, lines), _is_blank):
        while not is_blank and (numbered := list(islice(group, n_lines))):
            first = numbered[0][0]
            text, fault = decode_line(b"\n".join(data for _, data in numbered), source.encoding)
            try:
                if fault:
                    raise InvalidInputError(fault)
                decision = parse(text)
                likely_range = range_used or (_COSTS if decision.reward < 0.0 else _REWARDS)
                _scale_reward(decision, likely_range)  # raises
                decisions.append(decision)
                if abs(decision.reward) > _ROUNDING:
                    range_used = likely_range
            except InvalidInputError as error:
                message = f"line {first} of {source.name}: {error}"
                bad = BadRow(message, line=first, text=text, reason=str(error))
                if on_bad is None:
                    raise bad from None
                on_bad(bad)
    return [_scale_reward(decision, range_used or _REWARDS) for decision in decisions]


def check_reward_range(reward_range: Sequence[float]) -> tuple[float, float]:
    low, high = map(float, reward_range)
    if not (low < high and math.isfinite(high - low)):
        raise InvalidInputError(
            f"rewards must lie between two numbers, the lower one first; got {low} and {high}"
        )
    return low, high


def _is_blank(line: tuple[int, bytes]) -> bool:
    return not line[1].strip()


def _choose_parser(start: Sequence[str]) -> Callable[[str], LoggedDecision]:
    first, second = (*start, "", "")[:2]
    label, second_label = first.partition("|")[0], second.partition("|")[0]
    is_unlabelled = ":" not in label or ("|" in second and ":" not in second_label)
    return parse_cb_lines if is_unlabelled or label.split(" ")[0] == _SHARED else parse_cb_line


def _scale_reward(decision: LoggedDecision, range_used: tuple[float, float]) -> LoggedDecision:
    propensity, reward, (low, high) = decision.propensity, decision.reward, range_used
    if not 0.0 < propensity <= 1.0 + _ROUNDING:
        raise InvalidInputError(
            f"the probability is {propensity:g}; that of an action that was played is above 0 and "
            "at most 1"
        )
    scaled = (reward - low) / (high - low)
    if not -_ROUNDING <= scaled <= 1.0 + _ROUNDING:
        raise InvalidInputError(
            f"the cost is {0.0 - reward:g}, a reward of {reward:g}, which is not between {low:g} "
            f"and {high:g}; say what rewards lie between: "
            f"{spell_argument('reward_range=(low, high)')}"
        )
    return decision._replace(propensity=min(propensity, 1.0), reward=min(max(scaled, 0.0), 1.0))


def parse_cb_line(text: str) -> LoggedDecision:
    words, _, features = split_vw_line(text)
    if len(words) != 1:
        raise InvalidInputError(
            f"there are {len(words)} words before the bar; expected one: action:cost:probability"
        )
    action, cost, probability = _parse_cb_label(words[0])
    if action < 1:
        raise InvalidInputError(f"the action is {action}; they are counted from 1")
    return LoggedDecision(features, (), action - 1, probability, 0.0 - cost)


def parse_cb_lines(text: str) -> LoggedDecision:
    context: Features = {}
    options: list[Option] = []
    labels: dict[int, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            words, tag, features = split_vw_line(line.rstrip("\r"))
        except InvalidInputError as error:
            raise InvalidInputError(f"line {number} of this decision: {error}") from None
        if words == [_SHARED] and number == 1:
            context = features
        elif len(words) > 1 or words == [_SHARED]:
            raise InvalidInputError(
                f"line {number} of this decision has {' '.join(words)!r} before the bar; "
                "expected action:cost:probability where the action was played, and else nothing"
            )
        else:
            if words:
                labels[len(options)] = words[0]
            options.append(Option(tag or "", features))
    if len(labels) != 1:
        raise InvalidInputError(
            f"{len(labels)} of {len(options)} actions have a label; expected one, "
            "0:cost:probability at the action that was played"
        )
    ((action, label),) = labels.items()
    _, cost, probability = _parse_cb_label(label)
    return LoggedDecision(context, tuple(options), action, probability, 0.0 - cost)


def _parse_cb_label(word: str) -> tuple[int, float, float]:
    texts = word.split(":")
    numbers = [number for number in map(parse_number, texts) if number is not None]
    if len(texts) != 3 or len(numbers) != 3:
        raise InvalidInputError(f"the label is {word!r}; expected action:cost:probability")
    action, cost, probability = numbers
    if not action.is_integer():
        raise InvalidInputError(f"the action is {texts[0]!r}; expected a whole number")
    return int(action), cost, probability


def as_interactions(decisions: Sequence[LoggedDecision], n_actions: int | None) -> Interactions:
    """Return decisions as a table, of contexts if all offer the same actions, else of actions."""
    if not decisions:
        raise InvalidInputError("there is no decision in this log that can be read")
    menu = decisions[0].options
    outcomes = [(decision.action, decision.propensity, decision.reward) for decision in decisions]
    played, propensities, rewards = map(np.array, zip(*outcomes, strict=True))
    if len(menu) == 1 or any(decision.options != menu for decision in decisions):
        rows = [{**d.context, **option.features} for d in decisions for option in d.options]
        X, names = _feature_matrix(rows)
        menus: Any = np.split(X, np.cumsum([len(d.options) for d in decisions])[:-1])
        return Interactions(menus, played, propensities, rewards, feature_names=names)
    X, names = _feature_matrix([decision.context for decision in decisions])
    n_known = max(2, int(played.max()) + 1) if n_actions is None else n_actions
    K = len(menu) or validation.count("n_actions", n_known, 2)
    if len(decisions) * K > _MAX_TABLE_NUMBERS:
        raise InvalidInputError(
            f"{count_of(len(decisions), 'decision')} among {K:,} actions are too many for a table: "
            "number the actions 1, 2, 3, ... without gaps"
        )
    action_names = tuple(option.name or str(k) for k, option in enumerate(menu, start=1))
    return Interactions(X, played, propensities, rewards, K, names, action_names)


def _feature_matrix(rows: Sequence[Features]) -> tuple[Any, tuple[str, ...]]:
    from sklearn.feature_extraction import DictVectorizer

    vectorizer = DictVectorizer(sort=False).fit(rows)
    names = tuple(vectorizer.feature_names_)
    if not names:
        return np.ones((len(rows), 1)), ("constant",)
    if len(rows) * len(names) > _MAX_TABLE_NUMBERS:
        raise InvalidInputError(
            f"{len(rows)} rows with {len(names)} different features are too many for a table: "
            "leave features out that hardly ever come again, such as ids"
        )
    return vectorizer.transform(rows).toarray(), names
