"""VW's text of logged decisions: ``action:cost:probability | features``.

For actions that are known by number (`--cb`, `--cb_explore`) every line is a decision, and actions
are counted from 1. For actions with features (`--cb_adf`, `--cb_explore_adf`) a decision is several
lines and a blank one: perhaps ``shared | features`` of the decision, then a line for every action,
of which the one that was played has the label, whose first number says nothing. A tag names the
action.
"""

import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from folklearn.errors import InvalidInputError
from folklearn.readers.convert import parse_number
from folklearn.readers.decisions import Features, LoggedDecision, Option
from folklearn.readers.outcomes import RewardRange, played
from folklearn.readers.vw import taken_apart

_SHARED = "shared"
_SPECIAL = re.compile(r"[\s|:%']")


def has_menus(first: str, second: str) -> bool:
    """Tell by the first two lines whether a decision has a line for every action."""
    if _is_shared(first) or not _has_label(first):
        return True
    return "|" in second and not _has_label(second)


def parse_line(text: str, rewards: RewardRange) -> LoggedDecision:
    """Return the decision of one line.

    >>> decision = parse_line("2:-0.5:0.25 | age:30 new", RewardRange())
    >>> decision.action, decision.reward, decision.propensity, decision.context
    (1, 0.5, 0.25, {'age': 30.0, 'new': 1.0})
    """
    words, _, features = taken_apart(text)
    if len(words) != 1:
        raise InvalidInputError(
            f"there are {len(words)} words before the bar; expected one: action:cost:probability"
        )
    action, cost, probability = _label(words[0])
    if action < 1:
        raise InvalidInputError(f"the action is {action}; they are counted from 1")
    return LoggedDecision(features, (), action - 1, played(probability), rewards.of_cost(cost))


def parse_lines(texts: Sequence[str], rewards: RewardRange) -> LoggedDecision:
    """Return the decision that has a line for every action.

    >>> lines = ["shared | age:30", "| red", "0:-1:0.5 | blue"]
    >>> decision = parse_lines(lines, RewardRange())
    >>> decision.action, [dict(option.features) for option in decision.options]
    (1, [{'red': 1.0}, {'blue': 1.0}])
    """
    context: Features = {}
    options: list[Option] = []
    labels: dict[int, str] = {}
    for place, text in enumerate(texts):
        try:
            words, tag, features = taken_apart(text)
        except InvalidInputError as error:
            raise InvalidInputError(f"line {place + 1} of this decision: {error}") from None
        if words[:1] == [_SHARED] and len(words) == 1 and not place:
            context = features
            continue
        if len(words) > 1 or words[:1] == [_SHARED]:
            raise InvalidInputError(
                f"line {place + 1} of this decision has {' '.join(words)!r} before the bar; "
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
    _, cost, probability = _label(label)
    return LoggedDecision(
        context, tuple(options), action, played(probability), rewards.of_cost(cost)
    )


def written(decisions: Iterable[LoggedDecision]) -> Iterator[str]:
    """Yield the text of every decision, for `--cb` where its actions have no features."""
    for decision in decisions:
        label = f"{0.0 - decision.reward!r}:{decision.propensity!r}"
        context = _features(decision.context)
        if not any(option.features for option in decision.options):
            yield f"{decision.action + 1}:{label} {context}\n"
            continue
        lines = [f"{_SHARED} {context}"] if decision.context else []
        for place, option in enumerate(decision.options):
            own = f"0:{label} " if place == decision.action else ""
            named = f"'{_plain(option.name)} " if option.name else ""
            lines.append(own + named + _features(option.features))
        yield "\n".join([*lines, "", ""])


def _has_label(text: str) -> bool:
    return ":" in text.partition("|")[0]


def _is_shared(text: str) -> bool:
    return text.split("|")[0].split(" ")[0] == _SHARED


def _label(word: str) -> tuple[int, float, float]:
    parts = word.split(":")
    numbers = [parse_number(part) for part in parts]
    action, cost, probability = (*numbers, None, None, None)[:3]
    if len(parts) != 3 or action is None or cost is None or probability is None:
        raise InvalidInputError(f"the label is {word!r}; expected action:cost:probability")
    if not action.is_integer():
        raise InvalidInputError(f"the action is {parts[0]!r}; expected a whole number")
    return int(action), cost, probability


def _features(features: Features) -> str:
    """Return features as VW has them: by namespace, and a text as a feature that is there."""
    words = []
    for name, value in features.items():
        space, caret, own = name.partition("^")
        if not caret or not space:
            space, own = "", name
        word = _plain(f"{own}={value}") if isinstance(value, str) else f"{_plain(own)}:{value!r}"
        words.append((_plain(space), word))
    parts = [
        f"|{space} {' '.join(word for _, word in some)}"
        for space, some in groupby(words, operator.itemgetter(0))
    ]
    return " ".join(parts) or "|"


def _plain(name: str) -> str:
    """Return a name without what separates names in this format, written as in addresses."""
    return _SPECIAL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)
