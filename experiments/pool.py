"""Work spread over processes, with a progress bar; BLAS has one thread in each."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import get_context
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

Call = tuple[Callable[..., Any], tuple[Any, ...]]
Key = tuple[Any, ...]  # begins with the name that the bar shows


def workers(jobs: int) -> AbstractContextManager[Executor | None]:
    """Return a pool, or nothing where one process is enough."""
    if jobs == 1:
        return nullcontext()
    return ProcessPoolExecutor(jobs, get_context("spawn"))


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function while BLAS, which its module has loaded by now, has one thread."""
    with threadpool_limits(1):
        return function(*arguments)


def progress() -> Progress:
    """Return a bar on standard error."""
    return Progress(
        TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("{task.fields[now]}"), console=Console(stderr=True),
    )  # fmt: skip


def call_all(
    pool: Executor | None, bar: Progress, what: str, calls: Mapping[Key, Call]
) -> dict[Key, Any]:
    """Make all calls and return their results under the same keys."""
    task = bar.add_task(what, total=len(calls), now="")
    if pool is None:
        results = {}
        for key, (function, arguments) in calls.items():
            bar.update(task, now=str(key[0]))
            results[key] = alone(function, *arguments)
            bar.update(task, advance=1)
    else:
        futures = {pool.submit(alone, f, *arguments): key for key, (f, arguments) in calls.items()}
        for future in as_completed(futures):
            future.result()  # a failure ends the run at once
            bar.update(task, advance=1, now=str(futures[future][0]))
        results = {key: future.result() for future, key in futures.items()}
    bar.update(task, now="")
    return results
