"""Learn a table block by block, and show how it goes."""

import time

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

from folklearn.cli import report
from folklearn.cli.moments import Moment, Watched, block_sizes
from folklearn.cli.predictions import PredictionWriter
from folklearn.streams.table import Table


def learn(
    model: Watched, table: Table, console: Console, predictions: PredictionWriter | None
) -> list[Moment]:
    """Learn every row; return where the model stood before the first row and at each stop."""
    moments = [Moment.of(model)]
    before = last_shown = moments[0]
    console.print(report.HEADER, style="bold")
    started = time.perf_counter()
    with bar(console) as progress:
        task = progress.add_task("learning", total=table.n_rows)
        sizes = block_sizes(before.n_rounds)
        for X, y, weight in table.blocks(model.columns, model.labels, sizes):
            n_before_block = moments[-1].n_rounds - before.n_rounds

            def advance(rows: int, n_before_block: int = n_before_block) -> None:
                progress.update(task, completed=n_before_block + rows)

            P, _ = model.run_block(X, y, weight=weight, progress=advance)
            if predictions is not None:
                predictions.write(P, y)
            now = Moment.of(model)
            moments.append(now)
            n_learned = now.n_rounds - before.n_rounds
            if now.is_doubling or n_learned == table.n_rows:
                speed = n_learned / (time.perf_counter() - started)
                console.print(report.row(last_shown, now, speed))
                last_shown = now
    return moments


def bar(console: Console) -> Progress:
    """Return a progress bar with the rate and the time left, shown only on a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
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
