"""Output of a running command: messages, a progress bar on a terminal, a growing table."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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

from folklearn.errors import DataWarning
from folklearn.progress import LOGGER, working_time


def new_console(quiet: bool) -> Console:
    """Return a console on standard error without markup: file and column names hold anything."""
    return Console(
        stderr=True, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


@contextmanager
def warnings_shown(console: Console) -> Iterator[None]:
    """Print DataWarnings and notices of long computations on the console only."""

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, DataWarning):
            console.print(f"Warning: {message}.")
        else:
            show_others(message, category, *rest)

    def print_sentence(record: logging.LogRecord) -> None:
        message = record.getMessage()
        console.print(f"{message[:1].upper()}{message[1:]}.")

    handler = logging.Handler()
    handler.emit = print_sentence  # type: ignore[method-assign]
    LOGGER.addHandler(handler)
    before, LOGGER.propagate = LOGGER.propagate, False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", DataWarning)
            show_others, warnings.showwarning = warnings.showwarning, show  # type: ignore[assignment]
            yield
    finally:
        LOGGER.propagate = before
        LOGGER.removeHandler(handler)


@dataclass(frozen=True)
class TextTable:
    """Lines of right-aligned cells of `width` under their titles.

    The first column is left-aligned and `left` characters wide, unless that is 0.
    """

    titles: Sequence[Sequence[str]]
    width: int = 12
    left: int = 0

    @property
    def header(self) -> str:
        """The lines of titles."""
        return "\n".join(map(self.line, self.titles))

    def line(self, cells: Sequence[str]) -> str:
        """Return the line of some cells."""
        first = [cells[0].ljust(self.left) if self.left else cells[0].rjust(self.width - 2)]
        return "".join([*first, *(cell.rjust(self.width) for cell in cells[1:])])


def run_with_table(
    console: Console,
    table: TextTable,
    counts: Iterable[int],
    cells: Callable[[float], Sequence[str]],
    *,
    what: str,
    total: int | None,
) -> None:
    """Print a line whenever the number of rows has doubled, and one at the end.

    Parameters
    ----------
    counts : does the work, and yields the number of rows done.
    cells : returns the cells of a line, given the rows a second.
    what, total : the label of the bar, and the number of rows, None if it is not known.
    """
    n = n_shown = 0
    started = working_time()
    console.print(table.header, style="bold")

    def show() -> None:
        console.print(table.line(cells(n / (working_time() - started))))

    with progress_bar(console, what, total) as report:
        for n in counts:
            report(n)
            if n >= max(1, 2 * n_shown):
                show()
                n_shown = n
        if n > n_shown:
            show()


@contextmanager
def progress_bar(console: Console, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number done, for a bar with rate and remaining time.

    The bar is shown on a terminal only. Without a total it has no remaining time.
    """
    columns: tuple[ProgressColumn, ...] = (TextColumn("{task.completed} rows,"), _RateColumn())
    if total is not None:
        columns = (BarColumn(), MofNCompleteColumn(), _RateColumn(), TimeRemainingColumn())
        columns += (TextColumn("left"),)
    with Progress(
        TextColumn("{task.description}"),
        *columns,
        console=console,
        transient=True,
        get_time=working_time,
        disable=console.quiet or not console.file.isatty(),
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


class _RateColumn(ProgressColumn):
    """Rows per second over the last seconds."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("- rows/s" if speed is None else f"{speed:,.0f} rows/s")
