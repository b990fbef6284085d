"""The sections of a report, from plain tables; what is not known is left out with a sentence.

A *piece* is a mapping with `start`, `stop`, `loss` and, if known, `floor`, `frozen` and
`error_rate`, averages a row, as `plots.losses` takes them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn.report import html, plots
from folklearn.report.html import Markup
from folklearn.utils import counted

Segment = Mapping[str, Any]

_RECENT, _HALF = 7 / 8, 1 / 2  # of a life: what is recent, and what it is compared with
_FEWEST = 4  # segments on either side of a comparison
_SURE = 3.0  # standard errors
_LEAST_RECALL, _LEAST_ROWS = 0.5, 30  # below which a class needs attention, if it has so many rows
_LARGE_CALIBRATION_ERROR = 0.05
_MANY_MISSING, _MANY_OUTLIERS = 0.1, 0.01  # shares of rows
_MOST_COLUMNS = 50  # of a table


def number(value: float) -> str:
    """Return a loss as it is read: three digits behind the point, more of a small one."""
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0.0 else f"{value:.2g}"


def down(floor: float) -> float:
    """Return a floor with four digits behind the point, none of them too high."""
    return math.floor(1e4 * floor) / 1e4 if math.isfinite(floor) else math.nan


def up(gain: float) -> float:
    """Return what can be gained at most with four digits behind the point, none too low."""
    return -down(-gain)


def percent(share: float) -> str:
    """Return a share as it is read."""
    return f"{100.0 * share:.3g} %"


def how_good(
    n_rows: int, counts: Sequence[int], loss: float, error: float, *, when: str = ""
) -> str:
    """Return in words how good predictions are; `counts` are the rows of the classes.

    `when` they were made is known of our own, and not of somebody's.
    """
    shares = np.array([n for n in counts if n > 0], float) / max(1, sum(counts))
    guess = float(-(shares * np.log(shares)).sum()) if len(shares) else math.nan
    words = (
        f"Of {n_rows:,} rows {percent(1.0 - error)} were predicted right{when}. The average loss "
        f"was {number(loss)} nats"
    )
    if not guess > 0.0:
        return f"{words}."
    return f"{words}; always saying how frequent each class is would have lost {number(guess)}."


def drift(segments: Sequence[Segment]) -> str:
    """Return in words whether the last eighth of the rows went otherwise than those before."""
    ended = segments[-1]["stop"] if segments else 0
    recent = [one for one in segments if one["start"] >= _RECENT * ended]
    before = [one for one in segments if _HALF * ended <= one["start"] < _RECENT * ended]
    if min(len(recent), len(before)) < _FEWEST:
        return "Whether it drifts cannot be told yet: there are too few rows."
    late, early = (np.array([one["loss"] for one in some], float) for some in (recent, before))
    change = float(late.mean() - early.mean())
    error = math.sqrt(late.var(ddof=1) / len(late) + early.var(ddof=1) / len(early))
    n_recent = recent[-1]["stop"] - recent[0]["start"]
    where = (
        f"In the last {n_recent:,} rows the average loss was {number(float(late.mean()))}, in the "
        f"{before[-1]['stop'] - before[0]['start']:,} before {number(float(early.mean()))}"
    )
    if not abs(change) > _SURE * error:
        return f"No drift is seen. {where}: no more apart than such stretches usually are."
    if change > 0.0:
        return f"It has become worse of late. {where}. What it learned may be out of date."
    return f"It has become better of late. {where}."


def attention(
    labels: Sequence[object],
    classes: Sequence[Any],
    columns: Sequence[Any] = (),
    n_rows: int = 0,
    more: Iterable[str] = (),
) -> list[str]:
    """Return in words what needs attention: classes, then columns, then more of it."""
    found = []
    for label, one in zip(labels, classes, strict=False):
        if one.n_rows >= _LEAST_ROWS and one.recall < _LEAST_RECALL:
            found.append(
                f"Of {one.n_rows:,} rows of class {label} only {percent(one.recall)} were found."
            )
        if one.calibration_error > _LARGE_CALIBRATION_ERROR:
            found.append(
                f"Probabilities of class {label} are off by {percent(one.calibration_error)} on "
                "average."
            )
    for one in columns:
        since = n_rows - (one.first or 0)
        if one.first is None:
            found.append(f"Column {one.name} never had a value.")
            continue
        late = one.n_missing - (one.first or 0)
        if late > _MANY_MISSING * since:
            found.append(f"Column {one.name} is empty in {percent(late / since)} of the rows.")
        if one.n_outliers > _MANY_OUTLIERS * since:
            found.append(
                f"Column {one.name} has {counted(one.n_outliers, 'number')} far from all others."
            )
        if one.new_categories:
            found.append(
                f"Column {one.name} had {counted(len(one.new_categories), 'value')} that came late."
            )
    return [*found, *more] or ["Nothing stands out."]


def summary(lines: Iterable[str], needs: Iterable[str]) -> Markup:
    """Return the first section: what matters, in words, and what needs attention."""
    parts = [html.bullets(lines), "What needs attention:", html.bullets(needs)]
    return html.section("In short", *parts)


def course(
    segments: Sequence[Segment],
    *,
    when: str = "",
    without_floor: str = "",
    bound: str = plots.BOUND,
    models: str = "",
) -> Markup:
    """Return loss, lower bound and error of every piece, or what to say where there is no bound.

    `when` is a sentence about when predictions were made, `models` are those of the bound.
    """
    if not segments:
        return html.section("Loss, piece by piece", "No rows were recorded.")
    has_floor = any(math.isfinite(one.get("floor", math.nan)) for one in segments)
    proof = (
        "Hatched is a proven lower bound on the average loss, over the last rows up to there (see "
        f"its name), of every fixed {models}."
    )
    what = proof if has_floor else without_floor
    first, last = segments[0], segments[-1]
    label = (
        f"Average loss from row {first['start']:,} to {last['stop']:,}: {number(first['loss'])} in "
        f"the first piece, {number(last['loss'])} in the last"
    )
    rows = [
        [f"{one['start']:,} to {one['stop']:,}", one["loss"], down(one.get("floor", math.nan)),
         one.get("frozen", math.nan), one.get("error_rate", math.nan)]
        for one in segments
    ]  # fmt: skip
    head = ["rows", "loss", " ".join(bound.split()), "frozen model", "error rate"]
    return html.section(
        "Loss, piece by piece",
        f"{when} {what}".strip(),
        html.picture(plots.losses(segments, title="Loss", bound=bound), label=label),
        html.folded("The same as a table", html.table(head, rows)),
    )


def proven(sentences: Iterable[str], facts: Iterable[tuple[str, object]] = ()) -> Markup:
    """Return what could still be gained, proven: sentences, and names with numbers."""
    rows = list(facts)
    return html.section(
        "What could still be gained",
        *sentences,
        *([html.table(["", "nats a row"], rows)] if rows else []),
    )


def changed(segments: Sequence[Segment]) -> Markup:
    """Return whether it drifts."""
    return html.section("Drift", drift(segments))


def classes(labels: Sequence[object], records: Sequence[Any]) -> Markup:
    """Return a table by class; records have n_rows, precision, recall, auc, calibration_error."""
    if not records:
        return html.section("Classes", "Nothing was recorded by class.")
    rows = [
        [str(label), one.n_rows, one.precision, one.recall, one.auc, one.calibration_error]
        for label, one in zip(labels, records, strict=False)
    ]
    return html.section(
        "Classes",
        "Precision: of the rows taken for a class, the share that was of it. Recall: of the rows "
        "of a class, the share that was found. AUC: how often a row of the class was given more "
        "than a row of another. Calibration error: how far probabilities are from what came true.",
        html.table(["class", "rows", "precision", "recall", "AUC", "calibration error"], rows),
    )


def confusion(labels: Sequence[object], counts: ArrayLike) -> Markup:
    """Return which class was taken for which."""
    table = np.asarray(counts)
    if not table.any():
        return html.section(
            "Confusion", "Which class was taken for which was not recorded: there are too many."
        )
    wrong = table - np.diag(np.diag(table))
    truth, taken = divmod(int(wrong.argmax()), len(table))
    worst = "no row was taken for another class"
    if wrong.any():
        worst = (
            f"most often {labels[truth]} was taken for {labels[taken]}, {int(wrong.max()):,} times"
        )
    names = [str(label) for label in labels][: len(table)]
    return html.section(
        "Confusion",
        f"Rows by their class, and by what was most likely: {worst}.",
        html.picture(plots.confusion(table, names), label=f"Confusion of classes; {worst}"),
    )


def calibration(labels: Sequence[object], tables: Sequence[Mapping[str, Any]]) -> Markup:
    """Return how often what was predicted came true; a table by class as `plots` takes it."""
    if not any(len(table["count"]) for table in tables):
        return html.section("Calibration", "How often predictions came true was not recorded.")
    names = [str(label) for label in labels][: len(tables)]
    return html.section(
        "Calibration",
        "Of all rows that were given a probability of 30 %, three in ten should come true: lines "
        "should follow the diagonal.",
        html.picture(
            plots.calibration(tables, names),
            label="How often each class came true against the probability that it was given",
        ),
    )


def weights(
    names: Sequence[str],
    labels: Sequence[object],
    W: ArrayLike,
    importance: Mapping[str, float],
    n_recent: int,
) -> Markup:
    """Return weights W (n, K) by column and class, and what columns are worth."""
    V = np.asarray(W, float)
    parts: list[object] = []
    if V.size:
        label = "Weights of the columns that matter most, for and against every class"
        figure = plots.weights(list(names), [str(label) for label in labels], V.T)
        parts.append(html.picture(figure, label=label))
    worth = sorted(importance.items(), key=lambda item: -item[1])[:_MOST_COLUMNS]
    if worth:
        parts += [
            f"Importance: how many nats a row the loss of the last {n_recent:,} rows rises if the "
            "values of a column are shuffled among them.",
            html.table(["column", "importance"], worth),
        ]
    return html.section("Columns and their weights", *(parts or ["There are no weights yet."]))


def quality(records: Sequence[Any], n_rows: int) -> Markup:
    """Return what the columns held; records as `Metrics.by_column` returns them."""
    if not records:
        return html.section("The data", "What the columns held was not recorded.")
    worst = sorted(records, key=lambda one: -one.n_missing)[:_MOST_COLUMNS]
    shown = [one for one in records if one in worst]
    rest = "" if len(shown) == len(records) else f" {len(shown)} of {len(records)} columns."
    rows = [
        [one.name, one.role, None if one.first is None else one.first + 1, one.n_missing,
         one.n_missing / max(1, n_rows), one.n_outliers if one.role == "number" else None,
         one.n_categories or None, ", ".join(one.new_categories) or None]
        for one in shown
    ]  # fmt: skip
    head = ["column", "role", "first in row", "missing", "share", "outliers", "values", "came late"]
    return html.section(
        "The data",
        "An outlier is a number more than five standard deviations from the mean of those before "
        f"it; a value came late if it was not seen in the first piece.{rest}",
        html.table(head, rows),
    )


def speed(n_rows: int, seconds: float) -> Markup:
    """Return how fast it was."""
    return html.section(
        "Speed",
        f"{n_rows:,} rows in {seconds:.1f} s: {n_rows / max(seconds, 1e-9):,.0f} rows a second, "
        "reading included.",
    )
