"""Logs of decisions in files: VW's text and JSON lines, read and written."""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import Any

from folklearn.errors import InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.readers import cb_text, dsjson
from folklearn.readers.decisions import LoggedDecision, as_decisions, as_interactions
from folklearn.readers.open import open_source
from folklearn.readers.outcomes import RewardRange
from folklearn.readers.reader import BadRow
from folklearn.readers.source import ByteSource
from folklearn.readers.text import text_of

VW, DSJSON = "vw", "dsjson"
FORMATS = {".vw": VW, ".dsjson": DSJSON}  # by the end of a name
_WRITTEN = {VW: cb_text.written, DSJSON: dsjson.written}

OnBad = Callable[[BadRow], None] | None
Line = tuple[int, str, str]  # its number, text, and what is wrong with it


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
    file : path, "-" for standard input, or something open for reading bytes; it may be packed with
        gzip or zstd. One that begins with a brace is JSON.
    reward_range : what rewards lie between; they become 0 to 1. VW has costs, which are negative
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
    texts = list(written(format, as_decisions(log)))  # a name that is refused spoils no file
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(texts)


def written(format: str, decisions: Iterable[LoggedDecision]) -> Iterator[str]:
    """Yield decisions as text of a format."""
    return _WRITTEN[format](decisions)


def read_decisions(
    source: ByteSource, rewards: RewardRange, on_bad: OnBad
) -> Iterator[LoggedDecision]:
    """Yield the decisions of a file in order."""
    for line, texts, fault, parse in _grouped(source):
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


Parse = Callable[[list[str], RewardRange], LoggedDecision | None]


def _grouped(source: ByteSource) -> Iterator[tuple[int, list[str], str, Parse]]:
    """Yield for every decision its first line, its texts, what is wrong with these, its parser."""
    lines: Iterator[Line] = dropwhile(_is_blank, _lines(source))
    first = list(islice(lines, 2))
    texts = [text for _, text, _ in first] + ["", ""]
    lines = chain(first, lines)
    if not texts[0].lstrip().startswith("{") and cb_text.has_menus(*texts[:2]):
        for own in _between_blanks(lines):
            fault = next((fault for _, _, fault in own if fault), "")
            yield own[0][0], [text for _, text, _ in own], fault, cb_text.parse_lines
        return
    parse = dsjson.parse if texts[0].lstrip().startswith("{") else cb_text.parse_line
    for line, text, fault in lines:
        if not _is_blank((line, text, fault)):
            yield line, [text], fault, lambda own, rewards: parse(own[0], rewards)


def _between_blanks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    own: list[Line] = []
    for line in lines:
        if not _is_blank(line):
            own.append(line)
        elif own:
            yield own
            own = []
    if own:
        yield own


def _is_blank(line: Line) -> bool:
    _, text, fault = line
    return not text.strip() and not fault


def _lines(source: ByteSource) -> Iterator[Line]:
    for chunk in source.chunks():
        for line, data in chunk.lines():
            yield line, *text_of(data, source.encoding)
