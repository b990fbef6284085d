"""JSON lines of decisions as VW's `--dsjson` and Azure Personalizer have them.

One object a line. `c` holds the features of the decision, and in `_multi` those of its actions;
`_labelIndex` is the action that was played, counted from 0, and `_label_Action` the same from 1;
`a` are actions from 1 as they were ranked, the played one first, and `p` their probabilities;
`_label_cost` is the negative reward and `_label_probability` the probability of what was played,
for those who cannot do without; `o` are the outcomes as they came; `EventId` names the decision and
`_tag` an action. Lines with `_skipLearn` say that nobody saw the action, and are left out.

Of features, an object within is a namespace, a list of objects is all of them, a list of numbers is
numbered, a text in a list is there or not, and so is every word of a `_text`. Other keys that begin
with an underscore are no features.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import MAX_ABS_VALUE
from folklearn.readers.decisions import Features, LoggedDecision, Option
from folklearn.readers.jsonl import parse as parse_object
from folklearn.readers.outcomes import RewardRange, played

_MULTI, _TAG, _TEXT = "_multi", "_tag", "_text"


def parse(text: str, rewards: RewardRange) -> LoggedDecision | None:
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
    if not isinstance(menu, list) or not menu or not all(isinstance(one, dict) for one in menu):
        raise InvalidInputError(f"its 'c' has no list {_MULTI!r} of actions, one object each")
    options = tuple(Option(_text(own, _TAG), features_of(own)) for own in menu)
    action = _action(line, len(options))
    return LoggedDecision(
        features_of(context),
        options,
        action,
        played(_probability(line, action)),
        rewards.of_cost(_cost(line)),
    )


def written(decisions: Iterable[LoggedDecision]) -> Iterator[str]:
    """Yield the line of every decision."""
    for number, decision in enumerate(decisions):
        context = _nested(decision.context)
        context[_MULTI] = [
            _menu_entry(option, place) for place, option in enumerate(decision.options, start=1)
        ]
        line = {
            "_label_cost": 0.0 - decision.reward,
            "_label_probability": decision.propensity,
            "_label_Action": decision.action + 1,
            "_labelIndex": decision.action,
            "o": [{"v": decision.reward, "EventId": str(number), "ActionTaken": False}],
            "Version": "1",
            "EventId": str(number),
            "a": [decision.action + 1],
            "c": context,
            "p": [decision.propensity],
        }
        yield json.dumps(line, ensure_ascii=False) + "\n"


def features_of(own: dict[str, Any]) -> dict[str, float | str]:
    """Return features by name, those of a namespace as ``namespace^name``.

    >>> features_of({"age": 30, "user": {"city": "Rome", "new": True}, "_tag": "a", "z": [1, 2]})
    {'age': 30.0, 'user^city': 'Rome', 'user^new': 1.0, 'z^0': 1.0, 'z^1': 2.0}
    """
    found: dict[str, float | str] = {}
    try:
        _collect(own, "", found)
    except RecursionError:  # some versions of Python read deeper than they call
        raise InvalidInputError("its features are nested too deep") from None
    return found


def _collect(value: Any, name: str, found: dict[str, float | str]) -> None:
    if isinstance(value, dict):
        for key, own in value.items():
            if key == _TEXT and isinstance(own, str):
                for word in own.split():
                    _add(f"{name}^{word}" if name else word, 1.0, found)
            elif not key.startswith("_"):
                _collect(own, f"{name}^{key}" if name else key, found)
    elif isinstance(value, list):
        for place, own in enumerate(value):
            if isinstance(own, str):
                _add(f"{name}={own}", 1.0, found)
            else:
                _collect(own, name if isinstance(own, dict) else f"{name}^{place}", found)
    elif isinstance(value, str):
        found[name] = value
    elif value is not None:
        _add(name, _number(value, f"feature {name!r}"), found)


def _add(name: str, value: float, found: dict[str, float | str]) -> None:
    before = found.get(name, 0.0)
    if isinstance(before, str):
        raise InvalidInputError(f"feature {name!r} is a text and a number")
    found[name] = before + value


def _number(value: Any, what: str) -> float:
    if not isinstance(value, bool | int | float):
        raise InvalidInputError(f"{what} is {value!r}; expected a number")
    if not abs(value) <= MAX_ABS_VALUE:
        raise InvalidInputError(f"{what} is {value}; expected a number that can be computed with")
    return float(value)


def _text(line: dict[str, Any], key: str) -> str:
    value = line.get(key, "")
    return value if isinstance(value, str) else str(value)


def _action(line: dict[str, Any], n_actions: int) -> int:
    """Return which action was played, from 0; the ways to say it must agree."""
    ways = (("_labelIndex", 0), ("_label_Action", 1))
    said = [(key, line[key], first) for key, first in ways if key in line]
    if not said and isinstance(line.get("a"), list) and line["a"]:
        said = [("the first of a", line["a"][0], 1)]
    if not said:
        raise InvalidInputError("it does not say which action was played: it has no '_labelIndex'")
    found = set()
    for key, value, first in said:
        if type(value) is not int or not first <= value < n_actions + first:
            raise InvalidInputError(
                f"{key} is {value!r}; expected {first} to {n_actions + first - 1}, one of its "
                f"{n_actions} actions"
            )
        found.add(value - first)
    if len(found) > 1:
        raise InvalidInputError("_labelIndex and _label_Action name different actions")
    return found.pop()


def _probability(line: dict[str, Any], action: int) -> float:
    """Return the probability of what was played: of `p`, for the other may hold more factors."""
    actions, probabilities = line.get("a"), line.get("p")
    if isinstance(actions, list) and isinstance(probabilities, list):
        if len(actions) != len(probabilities):
            raise InvalidInputError(
                f"it has {len(actions)} actions in 'a', and {len(probabilities)} numbers in 'p'"
            )
        if action + 1 in actions:
            return _number(probabilities[actions.index(action + 1)], "its probability in 'p'")
    if "_label_probability" not in line:
        raise InvalidInputError("it does not say how likely the action was: it has no 'p'")
    return _number(line["_label_probability"], "_label_probability")


def _cost(line: dict[str, Any]) -> float:
    """Return the cost, or what a single outcome makes it."""
    if "_label_cost" in line:
        return _number(line["_label_cost"], "_label_cost")
    outcomes = line.get("o")
    known = outcomes if isinstance(outcomes, list) else []
    values = [own["v"] for own in known if isinstance(own, dict) and "v" in own]
    if len(values) != 1:
        raise InvalidInputError(
            f"it has no '_label_cost', and {len(values)} outcomes in 'o', so that nobody knows "
            "what the action earned"
        )
    return 0.0 - _number(values[0], "its outcome")


def _menu_entry(option: Option, place: int) -> dict[str, Any]:
    name = option.name or str(place)
    # An action without any feature would be none at all: it has its name for one.
    own = _nested(option.features) or {"i": {"constant": 1, "id": name}}
    return {_TAG: name, **own}


def _nested(features: Features) -> dict[str, Any]:
    """Return features with an object for every namespace."""
    nested: dict[str, Any] = {}
    for name, value in features.items():
        if name.startswith("_"):
            raise InvalidInputError(
                f"feature {name!r} begins with an underscore, and this format would not read it: "
                "call it something else"
            )
        space, caret, own = name.partition("^")
        if caret and space and own:
            nested.setdefault(space, {})[own] = value
        else:
            nested[name] = value
    return nested
