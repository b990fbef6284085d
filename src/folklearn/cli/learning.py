"""Learn examples block by block, and show how it goes."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from folklearn.arrays import Array
from folklearn.cli import learners, report
from folklearn.cli.interrupts import CtrlC
from folklearn.cli.moments import (
    Moment,
    Watched,
    block_sizes,
    is_doubling,
    is_looked_at,
    next_stop,
)
from folklearn.errors import FolklearnError
from folklearn.streams.live import Live, LiveBlock
from folklearn.streams.model import StreamModel
from folklearn.streams.table import Table
from folklearn.words import listed

Write = Callable[[Array, Any, Array], None]  # of predictions, labels or their numbers, losses


class Rows(NamedTuple):
    """Inputs X (T, d), class numbers or labels y (T,), and weights (T,), None if all are 1."""

    X: Array
    y: Any
    weight: Array | None


def rows_of(table: Table, model: Watched) -> Iterator[Rows]:
    """Yield all rows of a table, with class numbers as the model counts."""
    for block in table.blocks(model.columns, model.labels, block_sizes(model.n_rounds)):
        yield Rows(*block)


def labelled_rows_of(table: Table, model: StreamModel) -> Iterator[Rows]:
    """Yield all rows of a table with their labels, for a model that may not know them yet."""
    labels = (*model.labels, *(label for label in table.first_lines if label not in model.labels))
    for X, y, weight in table.blocks(model.columns, labels, block_sizes(model.n_rounds)):
        yield Rows(X, [labels[number] for number in y.tolist()], weight)


def rows_as_they_come(live: Live, model: StreamModel, ctrl_c: CtrlC) -> Iterator[Rows]:
    """Yield what a stream brings until Ctrl-C, and let the model have room for new features."""

    def more() -> LiveBlock | None:
        return live.block(next_stop(model.n_rounds) - model.n_rounds)

    while block := ctrl_c.wait_for(more):
        for line, label in zip(block.lines, block.labels, strict=True):
            if not model.open and label not in model.labels:
                raise FolklearnError(
                    f"{live.unit} {line} of {live.name} has the label {label!r}, which the model "
                    f"does not know; its labels are: {listed(model.labels)}"
                )
        if block.weight is not None and block.weight.max() > model.max_weight:
            place = int(block.weight.argmax())
            raise FolklearnError(
                f"{live.unit} {block.lines[place]} of {live.name} has the weight "
                f"{block.weight[place]:g}, and this model was made for weights of at most "
                f"{model.max_weight:g}: give it a file, or choose --learner {learners.CLASSIC}"
            )
        n_classes = len({*model.labels, *block.labels})
        if n_classes > len(model.labels) or live.n_inputs > model.n_inputs:
            learners.refuse_too_large(model.name, live, max(2, n_classes))
        if live.n_inputs > model.n_inputs:
            _refuse_new_features(live, block, model)
            model.add_columns(live.columns[len(model.columns) :])
        y: Any = block.labels
        if not model.open:
            y = np.array([model.labels.index(label) for label in block.labels])
        yield Rows(block.X, y, block.weight)


def _refuse_new_features(live: Live, block: LiveBlock, model: StreamModel) -> None:
    """Raise unless the model was made from lines that name only what is not 0."""
    if model.sparse:
        return
    place = int(block.X[:, model.n_inputs :].any(axis=1).argmax())
    raise FolklearnError(
        f"{live.unit} {block.lines[place]} of {live.name} names the feature "
        f"{live.columns[model.n_inputs]!r}, which the model does not know, and only a model made "
        f"from svmlight or VW text takes new ones; its columns are: {listed(model.columns)}"
    )


def learn(
    model: Watched,
    rows: Iterable[Rows],
    console: Console,
    write: Write | None = None,
    total: int | None = None,
) -> list[Moment]:
    """Learn every row; return where the model stood before the first row and at some stops.

    `total` is the number of rows, None if nobody knows.
    """
    moments = [Moment.of(model)]
    n_before, last_shown = model.n_rounds, moments[0]
    console.print(report.HEADER, style="bold")
    started = time.perf_counter()

    def show() -> None:
        speed = (model.n_rounds - n_before) / (time.perf_counter() - started)
        console.print(report.row(last_shown, moments[-1], speed))

    with bar(console, endless=total is None) as progress:
        task = progress.add_task("learning", total=total)
        stop = next_stop(n_before)
        for X, y, weight in rows:
            P, losses = model.run_block(X, y, weight=weight)
            if write is not None:
                write(P, y, losses)
            progress.update(task, completed=model.n_rounds - n_before)
            if model.n_rounds >= stop:
                stop = next_stop(model.n_rounds)
                if is_looked_at(model.n_rounds):
                    moments.append(Moment.of(model))
                if is_doubling(model.n_rounds):
                    show()
                    last_shown = moments[-1]
        if moments[-1].n_rounds < model.n_rounds:
            moments.append(Moment.of(model))
        if last_shown is not moments[-1]:
            show()
    return moments


def bar(console: Console, endless: bool = False) -> Progress:
    """Return a progress bar with the rate and the time left, shown only on a terminal.

    An endless one has no time left, and counts only.
    """
    columns: tuple[ProgressColumn, ...] = (BarColumn(), MofNCompleteColumn(), _RateColumn())
    columns += (TimeRemainingColumn(), TextColumn("left"))
    if endless:
        columns = (TextColumn("{task.completed} rows,"), _RateColumn())
    return Progress(
        TextColumn("{task.description}"),
        *columns,
        console=console,
        transient=True,
        disable=console.quiet or not console.file.isatty(),
    )


class _RateColumn(ProgressColumn):
    """Rows per second, of late."""

    def render(self, task: Task) -> Text:
        """Return the rate, once there is one."""
        speed = task.finished_speed or task.speed
        return Text("- rows/s" if speed is None else f"{speed:,.0f} rows/s")
