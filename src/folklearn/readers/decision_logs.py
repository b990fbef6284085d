"""Logs of decisions: read and written as files, and as tables of numbers."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, dropwhile, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from folklearn import validation
from folklearn.errors import InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.readers.decision_formats import (
    Features,
    LoggedDecision,
    Option,
    RewardRange,
    has_action_lines,
    parse_cb_line,
    parse_cb_lines,
    parse_dsjson,
    write_cb,
    write_dsjson,
)
from folklearn.readers.open import open_source
from folklearn.readers.reader import BadRow, decode_line
from folklearn.readers.source import ByteSource
from folklearn.utils import count_of

VW, DSJSON = "vw", "dsjson"
FORMATS = {".vw": VW, ".dsjson": DSJSON}  # by the ending of a name
_WRITERS = {VW: write_cb, DSJSON: write_dsjson}
_MAX_TABLE_NUMBERS = 2**27  # 1 GB

OnBad = Callable[[BadRow], None] | None
Line = tuple[int, str, str]  # its number, text, and what is wrong with it
Parse = Callable[[list[str], RewardRange], LoggedDecision | None]


def read_log(
    file: Any,
    *,
    reward_range: tuple[float, float] = (0.0, 1.0),
    n_actions: int | None = None,
    on_bad: OnBad = None,
) -> Interactions:
    """Read a log of decisions: VW's text (`--cb`, `--cb_explore_adf`) or JSON lines (`--dsjson`).

    Parameters
    ----------
    file : path, "-" for standard input, or an object open for reading bytes; it may be packed with
        gzip or zstd. One that begins with a brace is JSON.
    reward_range : the range of rewards, which is scaled to 0 to 1. VW has costs, which are negative
        rewards: costs from 0 to 1 have the range (-1, 0).
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
    rewards = RewardRange(*reward_range)
    return as_interactions(list(read_decisions(open_source(file), rewards, on_bad)), n_actions)


def write_log(log: Interactions, path: str | os.PathLike[str]) -> None:
    """Write a log as VW's text (.vw) or JSON lines (.dsjson), by the name of the file.

    The cost of VW is the negative reward. In VW's text actions have numbers and no names.
    """
    format = FORMATS.get(Path(path).suffix.lower())
    if format is None:
        raise InvalidInputError(
            f"the log {os.fspath(path)} must be called .vw for VW's text or .dsjson for JSON lines"
        )
    texts = list(
        write_decisions(format, as_decisions(log))
    )  # a name that is refused spoils no file
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(texts)


def write_decisions(format: str, decisions: Iterable[LoggedDecision]) -> Iterator[str]:
    """Yield decisions as text of a format."""
    return _WRITERS[format](decisions)


def read_decisions(
    source: ByteSource, rewards: RewardRange, on_bad: OnBad
) -> Iterator[LoggedDecision]:
    """Yield the decisions of a file in order."""
    for line, texts, fault, parse in _group_lines(source):
        decision: LoggedDecision | None = None
        try:
            if fault:
                raise InvalidInputError(fault)
            decision = parse(texts, rewards)
        except InvalidInputError as error:
            message = f"line {line} of {source.name}: {error}"
            bad = BadRow(message, line=line, text="\n".join(texts), reason=str(error))
            if on_bad is None:
                raise bad from None
            on_bad(bad)
        if decision is not None:
            yield decision


def _group_lines(source: ByteSource) -> Iterator[tuple[int, list[str], str, Parse]]:
    """Yield of every decision its first line, its texts, their fault and its parser."""
    lines: Iterator[Line] = dropwhile(_is_blank, _lines(source))
    first = list(islice(lines, 2))
    texts = [text for _, text, _ in first] + ["", ""]
    lines = chain(first, lines)
    if not texts[0].lstrip().startswith("{") and has_action_lines(*texts[:2]):
        for group in _split_at_blanks(lines):
            fault = next((fault for _, _, fault in group if fault), "")
            yield group[0][0], [text for _, text, _ in group], fault, parse_cb_lines
        return
    parse = parse_dsjson if texts[0].lstrip().startswith("{") else parse_cb_line
    for line, text, fault in lines:
        if not _is_blank((line, text, fault)):
            yield line, [text], fault, lambda texts, rewards: parse(texts[0], rewards)


def _split_at_blanks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    for is_blank, group in groupby(lines, _is_blank):
        if not is_blank:
            yield list(group)


def _is_blank(line: Line) -> bool:
    _, text, fault = line
    return not text.strip() and not fault


def _lines(source: ByteSource) -> Iterator[Line]:
    for chunk in source.chunks():
        for line, data in chunk.lines():
            yield line, *decode_line(data, source.encoding)


def as_numbers(features: Features) -> dict[str, float]:
    """Return features as numbers, a text as an indicator.

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
    fixed = len(menu) != 1 and all(decision.options == menu for decision in decisions)
    if fixed:
        rows: list[Features] = [decision.context for decision in decisions]
    else:
        rows = [
            {**decision.context, **option.features}
            for decision in decisions
            for option in decision.options
        ]
    X, names = _feature_matrix(rows)
    played = [decision.action for decision in decisions]
    propensities = [decision.propensity for decision in decisions]
    columns = (played, propensities, [decision.reward for decision in decisions])
    if not fixed:
        stops = np.cumsum([len(decision.options) for decision in decisions])
        menus: Any = np.split(X, stops[:-1])
        return Interactions(menus, *columns, feature_names=names)  # type: ignore[arg-type]
    if n_actions is None:
        n_actions = max(2, max(played) + 1)
    K = len(menu) or validation.count("n_actions", n_actions, 2)
    if len(decisions) * K > _MAX_TABLE_NUMBERS:
        raise InvalidInputError(
            f"{count_of(len(decisions), 'decision')} among {K:,} actions are too many for a table: "
            "number the actions 1, 2, 3, ... without gaps"
        )
    action_names = tuple(option.name or str(k) for k, option in enumerate(menu, start=1))
    return Interactions(X, *columns, K, names, action_names)  # type: ignore[arg-type]


def _feature_matrix(rows: Sequence[Features]) -> tuple[Any, tuple[str, ...]]:
    """Return rows of features by name as a matrix, and the names of its columns."""
    index_of: dict[str, int] = {}
    cells = []
    for t, row in enumerate(rows):
        for column, x in as_numbers(row).items():
            cells.append((t, index_of.setdefault(column, len(index_of)), x))
    if not index_of:
        return np.ones((len(rows), 1)), ("constant",)
    if len(rows) * len(index_of) > _MAX_TABLE_NUMBERS:
        raise InvalidInputError(
            f"{len(rows)} rows with {len(index_of)} different features are too many for a table: "
            "leave features out whose texts hardly ever come again, such as ids"
        )
    X = np.zeros((len(rows), len(index_of)))
    at, columns, values = zip(*cells, strict=True)
    X[np.array(at), np.array(columns)] = values
    return X, tuple(index_of)


def as_decisions(log: Interactions) -> Iterator[LoggedDecision]:
    """Yield the decisions of a log by name; features without one are called x0, x1, ..."""
    names = log.feature_names or tuple(f"x{i}" for i in range(log.X.shape[1]))
    action_names = log.action_names or tuple(str(k + 1) for k in range(log.n_actions or 0))
    fixed = tuple(Option(name, {}) for name in action_names)
    for t in range(log.n_rounds):
        rows: Iterable[Any] = np.atleast_2d(log.offered(t)).tolist()
        named = [dict(zip(names, row, strict=True)) for row in rows]
        options = fixed or tuple(Option("", features) for features in named)
        context: Features = named[0] if fixed else {}
        played = int(log.actions[t]), float(log.propensities[t]), float(log.rewards[t])
        yield LoggedDecision(context, options, *played)
