"""Formats of logged decisions: VW's text (`--cb`, `--cb_adf`) and JSON lines (`--dsjson`).

VW's text is ``action:cost:probability | features``. For actions that are known by number (`--cb`,
`--cb_explore`) every line is a decision, and actions are counted from 1. For actions with features
(`--cb_adf`, `--cb_explore_adf`) a decision is several lines and a blank one: perhaps ``shared |
features`` of the decision, then a line for every action, of which the one that was played has the
label, whose first number says nothing. A tag names the action.

JSON lines are those of VW and Azure Personalizer, one object a line. `c` holds the features of the
decision, and in `_multi` those of its actions; `_labelIndex` is the action that was played, counted
from 0, and `_label_Action` the same from 1; `a` are actions from 1 as they were ranked, the played
one first, and `p` their probabilities; `_label_cost` is the negative reward and
`_label_probability` the probability of the played action, where `p` is absent; `o` are the
outcomes; `EventId` names the decision and `_tag` an action. Lines with `_skipLearn` were never
activated, and are left out. Of features, an object within is a namespace, a list of objects is all
of them, a list of numbers is numbered, a text in a list is an indicator, and so is every word of a
`_text`. Other keys that begin with an underscore are no features.
"""

import json
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from folklearn.errors import InvalidInputError, spell_argument
from folklearn.readers.convert import MAX_ABS_VALUE, parse_number
from folklearn.readers.jsonl import parse_object
from folklearn.readers.sparse_text import split_vw_line

Features = Mapping[str, float | str]

_ROUNDING = 1e-6  # of numbers that were stored with 4 bytes
_MULTI, _TAG, _TEXT = "_multi", "_tag", "_text"
_SHARED = "shared"
_SPECIAL = re.compile(r"[\s|:%']")


class Option(NamedTuple):
    """An action that could be played: its name, "" if it has only a number, and its features."""

    name: str
    features: Features


class LoggedDecision(NamedTuple):
    """One decision of a log.

    Attributes
    ----------
    context : features of the decision, numbers and text, by name.
    options : the actions that could be played; empty if they are known by number only.
    action : number of the one that was played, from 0.
    propensity : the probability with which it was.
    reward : what it earned, from 0 to 1.
    """

    context: Features
    options: tuple[Option, ...]
    action: int
    propensity: float
    reward: float


@dataclass(frozen=True)
class RewardRange:
    """What rewards lie between; they become 0 to 1. A cost is a negative reward."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidInputError(
                f"rewards must lie between two numbers, the lower one first; got {self.low} and "
                f"{self.high}"
            )

    def of_cost(self, cost: float) -> float:
        """Return a reward from 0 to 1.

        >>> RewardRange().of_cost(-0.25), RewardRange(-1, 0).of_cost(0.25)
        (0.25, 0.75)
        """
        reward = 0.0 - cost
        scaled = (reward - self.low) / (self.high - self.low)
        if not -_ROUNDING <= scaled <= 1.0 + _ROUNDING:
            raise InvalidInputError(
                f"the cost is {cost:g}, a reward of {reward:g}, which is not between {self.low:g} "
                f"and {self.high:g}; say what rewards lie between: "
                f"{spell_argument('reward_range=(low, high)')}"
            )
        return min(max(scaled, 0.0), 1.0)


def _check_propensity(probability: float) -> float:
    if not 0.0 < probability <= 1.0 + _ROUNDING:
        raise InvalidInputError(
            f"the probability is {probability:g}; that of an action that was played is above 0 and "
            "at most 1"
        )
    return min(probability, 1.0)


def has_action_lines(first: str, second: str) -> bool:
    """Return whether a decision has a line for every action, by the first two lines."""
    if _is_shared(first) or not _has_label(first):
        return True
    return "|" in second and not _has_label(second)


def parse_cb_line(text: str, rewards: RewardRange) -> LoggedDecision:
    """Return the decision of one line.

    >>> decision = parse_cb_line("2:-0.5:0.25 | age:30 new", RewardRange())
    >>> decision.action, decision.reward, decision.propensity, decision.context
    (1, 0.5, 0.25, {'age': 30.0, 'new': 1.0})
    """
    words, _, features = split_vw_line(text)
    if len(words) != 1:
        raise InvalidInputError(
            f"there are {len(words)} words before the bar; expected one: action:cost:probability"
        )
    action, cost, probability = _parse_cb_label(words[0])
    if action < 1:
        raise InvalidInputError(f"the action is {action}; they are counted from 1")
    return LoggedDecision(
        features, (), action - 1, _check_propensity(probability), rewards.of_cost(cost)
    )


def parse_cb_lines(texts: Sequence[str], rewards: RewardRange) -> LoggedDecision:
    """Return the decision that has a line for every action.

    >>> lines = ["shared | age:30", "| red", "0:-1:0.5 | blue"]
    >>> decision = parse_cb_lines(lines, RewardRange())
    >>> decision.action, [dict(option.features) for option in decision.options]
    (1, [{'red': 1.0}, {'blue': 1.0}])
    """
    context: Features = {}
    options: list[Option] = []
    labels: dict[int, str] = {}
    for number, text in enumerate(texts, start=1):
        try:
            words, tag, features = split_vw_line(text)
        except InvalidInputError as error:
            raise InvalidInputError(f"line {number} of this decision: {error}") from None
        if words[:1] == [_SHARED] and len(words) == 1 and number == 1:
            context = features
            continue
        if len(words) > 1 or words[:1] == [_SHARED]:
            raise InvalidInputError(
                f"line {number} of this decision has {' '.join(words)!r} before the bar; "
                "expected action:cost:probability where the action was played, and else nothing"
            )
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
    return LoggedDecision(
        context, tuple(options), action, _check_propensity(probability), rewards.of_cost(cost)
    )


def write_cb(decisions: Iterable[LoggedDecision]) -> Iterator[str]:
    """Yield the text of every decision, for `--cb` where its actions have no features."""
    for decision in decisions:
        label = f"{0.0 - decision.reward!r}:{decision.propensity!r}"
        context = _format_features(decision.context)
        if not any(option.features for option in decision.options):
            yield f"{decision.action + 1}:{label} {context}\n"
            continue
        lines = [f"{_SHARED} {context}"] if decision.context else []
        for action, option in enumerate(decision.options):
            played = f"0:{label} " if action == decision.action else ""
            tag = f"'{_escape(option.name)} " if option.name else ""
            lines.append(played + tag + _format_features(option.features))
        yield "\n".join([*lines, "", ""])


def _has_label(text: str) -> bool:
    return ":" in text.partition("|")[0]


def _is_shared(text: str) -> bool:
    return text.split("|")[0].split(" ")[0] == _SHARED


def _parse_cb_label(word: str) -> tuple[int, float, float]:
    parts = word.split(":")
    numbers = [parse_number(part) for part in parts]
    action, cost, probability = (*numbers, None, None, None)[:3]
    if len(parts) != 3 or action is None or cost is None or probability is None:
        raise InvalidInputError(f"the label is {word!r}; expected action:cost:probability")
    if not action.is_integer():
        raise InvalidInputError(f"the action is {parts[0]!r}; expected a whole number")
    return int(action), cost, probability


def _format_features(features: Features) -> str:
    """Return features as VW writes them: by namespace, a text as an indicator."""
    words = []
    for name, value in features.items():
        space, caret, inner = name.partition("^")
        if not caret or not space:
            space, inner = "", name
        word = (
            _escape(f"{inner}={value}") if isinstance(value, str) else f"{_escape(inner)}:{value!r}"
        )
        words.append((_escape(space), word))
    namespaces = [
        f"|{space} {' '.join(word for _, word in group)}"
        for space, group in groupby(words, operator.itemgetter(0))
    ]
    return " ".join(namespaces) or "|"


def _escape(name: str) -> str:
    """Percent-encode what separates names in this format."""
    return _SPECIAL.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), name)


def parse_dsjson(text: str, rewards: RewardRange) -> LoggedDecision | None:
    """Return the decision of one line, None if it was never activated."""
    line = parse_object(text)
    if "_slots" in line or "_outcomes" in line:
        raise InvalidInputError("it has several slots; only decisions of one action can be read")
    if line.get("_skipLearn") is True:
        return None
    context = line.get("c")
    if not isinstance(context, dict):
        raise InvalidInputError("it has no object 'c' of features")
    menu = context.get(_MULTI)
    if not isinstance(menu, list) or not menu or not all(isinstance(entry, dict) for entry in menu):
        raise InvalidInputError(f"its 'c' has no list {_MULTI!r} of actions, one object each")
    options = tuple(Option(_get_text(entry, _TAG), flatten_features(entry)) for entry in menu)
    action = _find_action(line, len(options))
    return LoggedDecision(
        flatten_features(context),
        options,
        action,
        _check_propensity(_find_propensity(line, action)),
        rewards.of_cost(_find_cost(line)),
    )


def write_dsjson(decisions: Iterable[LoggedDecision]) -> Iterator[str]:
    """Yield the line of every decision."""
    for event, decision in enumerate(decisions):
        context = _nest_features(decision.context)
        context[_MULTI] = [
            _menu_entry(option, number) for number, option in enumerate(decision.options, start=1)
        ]
        line = {
            "_label_cost": 0.0 - decision.reward,
            "_label_probability": decision.propensity,
            "_label_Action": decision.action + 1,
            "_labelIndex": decision.action,
            "o": [{"v": decision.reward, "EventId": str(event), "ActionTaken": False}],
            "Version": "1",
            "EventId": str(event),
            "a": [decision.action + 1],
            "c": context,
            "p": [decision.propensity],
        }
        yield json.dumps(line, ensure_ascii=False) + "\n"


def flatten_features(nested: dict[str, Any]) -> dict[str, float | str]:
    """Return features by name, those of a namespace as ``namespace^name``.

    >>> nested = {"age": 30, "user": {"city": "Rome", "new": True}, "_tag": "a", "z": [1, 2]}
    >>> flatten_features(nested)
    {'age': 30.0, 'user^city': 'Rome', 'user^new': 1.0, 'z^0': 1.0, 'z^1': 2.0}
    """
    features: dict[str, float | str] = {}
    try:
        _collect(nested, "", features)
    except RecursionError:  # some versions of Python read deeper than they call
        raise InvalidInputError("its features are nested too deep") from None
    return features


def _collect(value: Any, name: str, features: dict[str, float | str]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == _TEXT and isinstance(inner, str):
                for word in inner.split():
                    _add_feature(f"{name}^{word}" if name else word, 1.0, features)
            elif not key.startswith("_"):
                _collect(inner, f"{name}^{key}" if name else key, features)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            if isinstance(inner, str):
                _add_feature(f"{name}={inner}", 1.0, features)
            else:
                _collect(inner, name if isinstance(inner, dict) else f"{name}^{position}", features)
    elif isinstance(value, str):
        features[name] = value
    elif value is not None:
        _add_feature(name, _check_number(value, f"feature {name!r}"), features)


def _add_feature(name: str, value: float, features: dict[str, float | str]) -> None:
    before = features.get(name, 0.0)
    if isinstance(before, str):
        raise InvalidInputError(f"feature {name!r} is a text and a number")
    features[name] = before + value


def _check_number(value: Any, what: str) -> float:
    if not isinstance(value, bool | int | float):
        raise InvalidInputError(f"{what} is {value!r}; expected a number")
    if not abs(value) <= MAX_ABS_VALUE:
        raise InvalidInputError(f"{what} is {value}; expected a number that can be computed with")
    return float(value)


def _get_text(line: dict[str, Any], key: str) -> str:
    value = line.get(key, "")
    return value if isinstance(value, str) else str(value)


def _find_action(line: dict[str, Any], n_actions: int) -> int:
    """Return which action was played, from 0; the ways to say it must agree."""
    ways = (("_labelIndex", 0), ("_label_Action", 1))
    said = [(key, line[key], first) for key, first in ways if key in line]
    if not said and isinstance(line.get("a"), list) and line["a"]:
        said = [("the first of a", line["a"][0], 1)]
    if not said:
        raise InvalidInputError("it does not say which action was played: it has no '_labelIndex'")
    actions = set()
    for key, value, first in said:
        if type(value) is not int or not first <= value < n_actions + first:
            raise InvalidInputError(
                f"{key} is {value!r}; expected {first} to {n_actions + first - 1}, one of its "
                f"{n_actions} actions"
            )
        actions.add(value - first)
    if len(actions) > 1:
        raise InvalidInputError("_labelIndex and _label_Action name different actions")
    return actions.pop()


def _find_propensity(line: dict[str, Any], action: int) -> float:
    """Return the probability of what was played: of `p`, for the other may hold more factors."""
    actions, probabilities = line.get("a"), line.get("p")
    if isinstance(actions, list) and isinstance(probabilities, list):
        if len(actions) != len(probabilities):
            raise InvalidInputError(
                f"it has {len(actions)} actions in 'a', and {len(probabilities)} numbers in 'p'"
            )
        if action + 1 in actions:
            return _check_number(probabilities[actions.index(action + 1)], "its probability in 'p'")
    if "_label_probability" not in line:
        raise InvalidInputError("it does not say how likely the action was: it has no 'p'")
    return _check_number(line["_label_probability"], "_label_probability")


def _find_cost(line: dict[str, Any]) -> float:
    """Return the cost, or what a single outcome makes it."""
    if "_label_cost" in line:
        return _check_number(line["_label_cost"], "_label_cost")
    outcomes = line.get("o")
    known = outcomes if isinstance(outcomes, list) else []
    values = [entry["v"] for entry in known if isinstance(entry, dict) and "v" in entry]
    if len(values) != 1:
        raise InvalidInputError(
            f"it has no '_label_cost', and {len(values)} outcomes in 'o', so that its reward is "
            "unknown"
        )
    return 0.0 - _check_number(values[0], "its outcome")


def _menu_entry(option: Option, number: int) -> dict[str, Any]:
    name = option.name or str(number)
    # An action without any feature would be none at all: it has its name for one.
    features = _nest_features(option.features) or {"i": {"constant": 1, "id": name}}
    return {_TAG: name, **features}


def _nest_features(features: Features) -> dict[str, Any]:
    """Return features with an object for every namespace."""
    nested: dict[str, Any] = {}
    for name, value in features.items():
        if name.startswith("_"):
            raise InvalidInputError(
                f"feature {name!r} begins with an underscore, and this format would not read it: "
                "call it something else"
            )
        space, caret, inner = name.partition("^")
        if caret and space and inner:
            nested.setdefault(space, {})[inner] = value
        else:
            nested[name] = value
    return nested
