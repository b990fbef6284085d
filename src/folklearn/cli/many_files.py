"""`folklearn audit` of several files: each in a process of its own, their evidence added up."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from typing import NamedTuple

from rich.console import Console

from folklearn.arrays import Array, Labels
from folklearn.cli import report
from folklearn.cli.display import Table, bar, new_console, warnings_shown
from folklearn.cli.given import classes_in, read
from folklearn.cli.inputs import STDIN
from folklearn.cli.options import Source
from folklearn.cli.warmup import warm_up
from folklearn.cli.whole import Whole
from folklearn.errors import FolklearnError
from folklearn.model.encoder import Key
from folklearn.model.roles import LEARNED
from folklearn.scale.files import AuditedFile, FilesAudit, audit_files, averages
from folklearn.scale.parallel import map_in_parallel
from folklearn.scaler import Moments
from folklearn.utils import listed

_NARROWEST, _WIDEST = 10, 40  # of the column of files


class Pair(NamedTuple):
    """Rows, and what was predicted for them."""

    source: Source
    predictions: str

    def __str__(self) -> str:
        return str(self.source.file)


class _Found(NamedTuple):
    """What one file holds: roles of the columns that count, what these are, classes, rows."""

    roles: dict[str, str]
    keys: tuple[Key, ...]
    labels: tuple[str, ...]
    n_rows: int


def audit_together(
    console: Console,
    pairs: Sequence[Pair],
    roles: Mapping[str, str],
    B: float | None,
    jobs: int,
) -> None:
    """Certify the predictions of several files, file by file and all together."""
    if any(pair.source.file in (None, STDIN) for pair in pairs):
        raise FolklearnError("of several files, none can be standard input")
    started = time.perf_counter()
    found = map_in_parallel(partial(_found, roles, console.quiet), pairs, n_jobs=jobs)
    keys = _common(pairs, found)
    labels, n_rows = found[0].labels, sum(one.n_rows for one in found)
    moments = reduce(
        Moments.merged, map_in_parallel(partial(_moments, roles, keys), pairs, n_jobs=jobs)
    )
    whole = _shared(roles, keys, moments, pairs[0])
    norm = whole.norm(B)
    console.print(
        report.named(
            ("data", f"{len(pairs)} files, {n_rows} rows with a label"),
            ("predicted", report.classes(list(labels))),
            ("models", whole.models(norm * whole.scaler.unit, "the rows of all files")),
        )
    )
    warm_up("auto")
    with bar(console) as progress:
        task = progress.add_task("reading", total=len(pairs))
        audited = audit_files(
            pairs, partial(_blocks, roles, keys, moments), n_features=whole.scaler.n_columns,
            n_classes=len(labels), B=norm, n_jobs=jobs,
            progress=lambda n_done: progress.update(task, completed=n_done),
        )  # fmt: skip
    console.print(_summary(audited, whole, time.perf_counter() - started))


def _found(roles: Mapping[str, str], quiet: bool, pair: Pair) -> _Found:
    console = new_console(quiet)
    with warnings_shown(console):
        whole = Whole(console, "audit", pair.source, roles)
    own = {name: role for name, role in whole.feed.roles.items() if role in LEARNED}
    return _Found(own, whole.keys, classes_in(pair.predictions, whole), whole.n_rows)


def _common(pairs: Sequence[Pair], found: Sequence[_Found]) -> tuple[Key, ...]:
    """Return what the columns of all files are; raise if they do not mean the same in each."""
    first = found[0]
    for pair, other in zip(pairs, found, strict=True):
        if other.labels != first.labels:
            raise FolklearnError(
                f"{pairs[0].predictions} is about the classes {listed(first.labels)}, and "
                f"{pair.predictions} about {listed(other.labels)}: files that are audited together "
                "need the same, a column p:label for each"
            )
        for name in {**first.roles, **other.roles}:
            one, two = first.roles.get(name, "not there"), other.roles.get(name, "not there")
            if one != two:
                raise FolklearnError(
                    f"column {name!r} is {one} in {pairs[0]} and {two} in {pair}: files that are "
                    "audited together need the same columns; name its role (--role) or leave it "
                    "out (--drop)"
                )
        shared = [name for name, part in other.keys if part.startswith("#")]
        if shared:
            raise FolklearnError(
                f"column {shared[0]!r} of {pair} has too many categories for a place of each, and "
                "which of them share one differs from file to file: leave it out (--drop), or "
                "audit one file at a time"
            )
    return tuple(dict.fromkeys(chain.from_iterable(one.keys for one in found)))


def _shared(
    roles: Mapping[str, str], keys: Sequence[Key], moments: Moments | None, pair: Pair
) -> Whole:
    console = new_console(quiet=True)  # what there is to say of a file was said before
    with warnings_shown(console):
        whole = Whole(console, "audit", pair.source, roles)
    whole.share(keys, moments)
    return whole


def _moments(roles: Mapping[str, str], keys: Sequence[Key], pair: Pair) -> Moments:
    return _shared(roles, keys, None, pair).moments()


def _blocks(
    roles: Mapping[str, str], keys: Sequence[Key], moments: Moments, pair: Pair
) -> Iterator[tuple[Array, Labels, Array]]:
    whole = _shared(roles, keys, moments, pair)
    given = read(pair.predictions, whole)
    P, start = given.clipped, 0
    for X, y in whole.blocks(given.labels):
        given.check_same_rows(start, y)
        yield X, y, P[start : start + len(y)]
        start += len(y)


def _summary(audited: FilesAudit, whole: Whole, seconds: float) -> str:
    rows = [*audited.files, AuditedFile("all", audited.certificate)]
    names = [str(row.file)[-_WIDEST:] for row in rows]
    table = Table(
        [
            ("", "", "average", "lower", "regret bound"),
            ("file", "rows", "log loss", "bound", "a row"),
        ],
        width=14,
        left=max(_NARROWEST, *map(len, names)),
    )
    lines = [table.header]
    for name, row in zip(names, rows, strict=True):
        n, *numbers = averages(row.certificate)
        lines.append(table.line([name, f"{n}", *map(report.number, numbers)]))
    lines.append(f"Audited {audited.certificate.n_rounds} predictions in {seconds:.2f} s.")
    lines.append(whole.named(audited.certificate, "the rows of all files").in_full())
    return "\n".join(lines)
