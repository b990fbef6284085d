"""Work spread over processes, with a progress bar."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from folklearn.scale import map_in_parallel

Call = tuple[Callable[..., Any], tuple[Any, ...]]
Key = tuple[Any, ...]


def progress() -> Progress:
    """Return a bar on standard error."""
    return Progress(
        TextColumn("{task.description:>13}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), console=Console(stderr=True),
    )  # fmt: skip


def call_all(jobs: int, bar: Progress, what: str, calls: Mapping[Key, Call]) -> dict[Key, Any]:
    """Make all calls in so many processes and return their results under the same keys."""
    task = bar.add_task(what, total=len(calls))
    results = map_in_parallel(
        _made, calls.values(), n_jobs=jobs, progress=lambda done: bar.update(task, completed=done)
    )
    return dict(zip(calls, results, strict=True))


def _made(call: Call) -> Any:
    function, arguments = call
    return function(*arguments)
