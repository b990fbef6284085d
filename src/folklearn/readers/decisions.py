"""Logged decisions, whatever the format: by name as they are written, and as a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from folklearn import validation
from folklearn.errors import InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.utils import counted

Features = Mapping[str, float | str]

_MOST_NUMBERS = 2**27  # of a table: 1 GB


class Option(NamedTuple):
    """An action that could be played: what it is called, "" for its number, and its features."""

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


def as_numbers(features: Features) -> dict[str, float]:
    """Return features with a text as a feature of its own.

    >>> as_numbers({"age": 30.0, "city": "Rome"})
    {'age': 30.0, 'city=Rome': 1.0}
    """
    return dict(
        (f"{name}={value}", 1.0) if isinstance(value, str) else (name, value)
        for name, value in features.items()
    )


def as_interactions(
    decisions: Sequence[LoggedDecision], n_actions: int | None = None
) -> Interactions:
    """Return decisions as a table of numbers.

    A number is a column, and a text is a column ``name=text`` that is 1 where it occurs; what a
    decision does not name is 0. If all decisions offer the same, contexts are rows and actions
    are numbers; if not, a row is an action, with the features of its decision.

    Parameters
    ----------
    decisions : at least one.
    n_actions : how many actions there are, where they are known by number only; by default as
        many as the largest number that was played, and at least 2.
    """
    if not decisions:
        raise InvalidInputError("there is no decision in this log that can be read")
    menu = decisions[0].options
    fixed = len(menu) != 1 and all(one.options == menu for one in decisions)
    if fixed:
        rows: list[Features] = [one.context for one in decisions]
    else:
        rows = [{**one.context, **option.features} for one in decisions for option in one.options]
    X, names = _table(rows)
    played = [one.action for one in decisions]
    columns = (played, [one.propensity for one in decisions], [one.reward for one in decisions])
    if not fixed:
        stops = np.cumsum([len(one.options) for one in decisions])
        menus: Any = np.split(X, stops[:-1])
        return Interactions(menus, *columns, feature_names=names)  # type: ignore[arg-type]
    if n_actions is None:
        n_actions = max(2, max(played) + 1)
    K = len(menu) or validation.count("n_actions", n_actions, 2)
    if len(decisions) * K > _MOST_NUMBERS:
        raise InvalidInputError(
            f"{counted(len(decisions), 'decision')} among {K:,} actions are too many for a table: "
            "number the actions 1, 2, 3, ... without gaps"
        )
    called = tuple(option.name or str(k) for k, option in enumerate(menu, start=1))
    return Interactions(X, *columns, K, names, called)  # type: ignore[arg-type]


def _table(rows: Sequence[Features]) -> tuple[Any, tuple[str, ...]]:
    """Return rows of features by name as a matrix, and the names of its columns."""
    places: dict[str, int] = {}
    cells = []
    for t, row in enumerate(rows):
        for column, x in as_numbers(row).items():
            cells.append((t, places.setdefault(column, len(places)), x))
    if not places:
        return np.ones((len(rows), 1)), ("constant",)
    if len(rows) * len(places) > _MOST_NUMBERS:
        raise InvalidInputError(
            f"{len(rows)} rows with {len(places)} different features are too many for a table: "
            "leave features out whose texts hardly ever come again, such as ids"
        )
    X = np.zeros((len(rows), len(places)))
    at, columns, values = zip(*cells, strict=True)
    X[np.array(at), np.array(columns)] = values
    return X, tuple(places)


def as_decisions(log: Interactions) -> Iterator[LoggedDecision]:
    """Yield the decisions of a log by name; features without one are called x0, x1, ..."""
    names = log.feature_names or tuple(f"x{place}" for place in range(log.X.shape[1]))
    called = log.action_names or tuple(str(k + 1) for k in range(log.n_actions or 0))
    fixed = tuple(Option(name, {}) for name in called)
    for t in range(log.n_rounds):
        rows: Iterable[Any] = np.atleast_2d(log.offered(t)).tolist()
        named = [dict(zip(names, row, strict=True)) for row in rows]
        own = fixed or tuple(Option("", features) for features in named)
        context: Features = named[0] if fixed else {}
        played = int(log.actions[t]), float(log.propensities[t]), float(log.rewards[t])
        yield LoggedDecision(context, own, *played)
