"""Work spread over processes, with a progress bar."""

from collections.abc import Callable, Mapping
from typing import Any

from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

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
    # Arrays are mapped copy-on-write, because kernels take none that are read-only.
    parallel = Parallel(n_jobs=jobs, mmap_mode="c", return_as="generator")
    results = {}
    made = parallel(delayed(_made)(call) for call in calls.values())
    for key, result in zip(calls, made, strict=True):
        results[key] = result
        bar.advance(task)
    return results


def _made(call: Call) -> Any:
    function, arguments = call
    with threadpool_limits(1):  # the same results for any number of processes
        return function(*arguments)
