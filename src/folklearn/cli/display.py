"""How a command talks while it works: sentences, a bar on a terminal, and a table that grows."""

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

from folklearn.cli.flags import as_flags
from folklearn.errors import DataWarning
from folklearn.progress import LOGGER, working_time


def new_console(quiet: bool) -> Console:
    """Return a console on standard error; nothing that it prints is markup.

    Names of files, columns and labels go through it, which may hold anything.
    """
    return Console(
        stderr=True, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


@contextmanager
def warnings_shown(console: Console) -> Iterator[None]:
    """Let the console say what the library warns of, and what takes long, and nobody else."""

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, DataWarning):
            console.print(f"Warning: {as_flags(str(message))}.")
        else:
            show_others(message, category, *rest)

    handler = logging.Handler()
    handler.emit = lambda record: console.print(_sentence(record.getMessage()))  # type: ignore[method-assign]
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


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:]}."


@dataclass(frozen=True)
class Table:
    """Lines of cells, flush right under their titles; `left` says how wide the first is, on the
    left.
    """

    titles: Sequence[Sequence[str]]
    width: int = 12
    left: int = 0

    @property
    def header(self) -> str:
        """The titles."""
        return "\n".join(map(self.line, self.titles))

    def line(self, cells: Sequence[str]) -> str:
        """Return one line."""
        first = [cells[0].ljust(self.left) if self.left else cells[0].rjust(self.width - 2)]
        return "".join([*first, *(cell.rjust(self.width) for cell in cells[1:])])


def follow(
    console: Console,
    table: Table,
    counts: Iterable[int],
    cells: Callable[[float], Sequence[str]],
    *,
    what: str,
    total: int | None,
) -> None:
    """Show how something goes on: a line whenever the rows have doubled, and one at the end.

    Parameters
    ----------
    counts : does the work, and yields the number of rows done.
    cells : of a line now, given the rows a second.
    what, total : the bar's name, and its end, None if nobody knows.
    """
    n = shown = 0
    started = working_time()
    console.print(table.header, style="bold")

    def show() -> None:
        console.print(table.line(cells(n / (working_time() - started))))

    with bar(console, endless=total is None) as progress:
        task = progress.add_task(what, total=total)
        for n in counts:
            progress.update(task, completed=n)
            if n >= max(1, 2 * shown):
                show()
                shown = n
        if n > shown:
            show()


def bar(
    console: Console, endless: bool = False, clock: Callable[[], float] = working_time
) -> Progress:
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
        get_time=clock,
        disable=console.quiet or not console.file.isatty(),
    )


class _RateColumn(ProgressColumn):
    """Rows per second, of late."""

    def render(self, task: Task) -> Text:
        """Return the rate, once there is one."""
        speed = task.finished_speed or task.speed
        return Text("- rows/s" if speed is None else f"{speed:,.0f} rows/s")
