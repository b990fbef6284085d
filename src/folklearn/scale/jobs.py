"""Independent tasks at once: on the cores of this machine by joblib, or on a cluster by Ray."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import chdir, closing, nullcontext
from itertools import islice
from reprlib import Repr
from textwrap import shorten
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

from folklearn.engine import Engine
from folklearn.errors import FolklearnError
from folklearn.progress import Report, reporter
from folklearn.readers.extras import needed

RAY = "ray"
_SHORT = Repr()  # also of what has no `repr`
_SHORT.maxstring = _SHORT.maxother = 200
_MOST_LOSSES = 3  # workers that a task may lose before it is held to be the cause

Task = TypeVar("Task")
Result = TypeVar("Result")
_Keep = Callable[[int, Any], None]


def run_all(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
    progress: bool | Report = False,
) -> list[Result]:
    """Call a function for every task; return the results in the order of the tasks.

    The results are the same on one core, on many and on a cluster of like machines, if the
    function depends on its task alone: BLAS has one thread in every task, wherever it runs.

    A worker that is killed takes nothing along but the tasks it was at: they are run again, and
    the results that are there are kept. A task during which three workers ended is named in an
    error. An exception in a task ends the run; a note says which task it was. Ctrl+C ends the
    workers.

    Parameters
    ----------
    function : can be pickled, and so can tasks and results. Large arrays belong into the
        function (`functools.partial`): processes share them by a memory map, and Ray keeps them
        in its store, so that no task carries a copy.
    tasks : the arguments, one for each call.
    n_jobs : tasks at once; 1 runs them in this process, -1 takes every core. None means 1, or
        what `joblib.parallel_config` says; on Ray as many as it has room for.
    backend : "loky" for processes, "ray" for a cluster, or another of joblib's. None means
        processes, or what `joblib.parallel_config` says.
    progress : True for a bar, or a function that takes the number of tasks that are done.

    Examples
    --------
    >>> from folklearn.scale import run_all
    >>> run_all(abs, [-3, 1, -2])
    [3, 1, 2]
    """
    tasks = list(tasks)
    if n_jobs is not None:
        Engine.chosen(n_jobs)  # hears what is wrong before anything runs
    active, n_active = get_active_backend()
    results: dict[int, Result] = {}

    with threadpool_limits(1), reporter(progress, len(tasks), "running", of="tasks") as report:

        def keep(number: int, result: Result) -> None:
            results[number] = result
            report(len(results))

        if backend == RAY or (backend is None and type(active).__module__.startswith("ray.")):
            _on_ray(function, tasks, n_jobs or n_active, keep)
        elif effective_n_jobs(n_jobs) == 1:
            for number, task in enumerate(tasks):
                keep(*_called(function, number, task))
        else:
            _in_processes(function, tasks, keep, n_jobs=n_jobs, backend=backend)
    return [results[number] for number in range(len(tasks))]


def silent(n_done: int) -> None:
    """Take the progress within a task, of which nobody is told: there are many."""


def _called(function: Callable[[Task], Result], number: int, task: Task) -> tuple[int, Result]:
    """Return the number of a task and its result; an exception is told which task it was."""
    try:
        with threadpool_limits(1):
            return number, function(task)
    except Exception as error:
        error.add_note(f"This was {_named(number, task)}.")
        raise


def _called_in(
    folder: str, function: Callable[[Task], Result], number: int, task: Task
) -> tuple[int, Result]:
    """Call it where the caller is: a worker lives on from an earlier call, made elsewhere."""
    with chdir(folder) if os.path.isdir(folder) else nullcontext():
        return _called(function, number, task)


def _named(number: int, task: Any) -> str:
    return f"task {number}: {shorten(_SHORT.repr(task), 200)}"


def _lost(number: int, task: Any) -> FolklearnError:
    return FolklearnError(
        f"{_MOST_LOSSES} worker processes ended abruptly in {_named(number, task)}; they were "
        "killed, perhaps for want of memory, or crashed: try it with n_jobs=1, or leave it out"
    )


def _in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], keep: _Keep, **options: Any
) -> None:
    """Run tasks by joblib, and those that were lost with a worker once more.

    A killed worker takes the whole pool with it, and whose fault it was is not known: tasks
    that were under way are run again one at a time.
    """
    waiting = dict(enumerate(tasks))
    losses: Counter[int] = Counter()

    def finished(number: int, result: Result) -> None:
        del waiting[number]
        keep(number, result)

    while waiting:
        suspects = [number for number in waiting if number in losses]
        begun = _begun(function, waiting, suspects[:1] or list(waiting), finished, options)
        losses.update(number for number in begun if number in waiting)
        for number, n_lost in losses.items():
            if n_lost == _MOST_LOSSES:
                raise _lost(number, tasks[number])


def _begun(
    function: Callable[[Task], Result],
    tasks: Mapping[int, Task],
    chosen: Sequence[int],
    finished: _Keep,
    options: Mapping[str, Any],
) -> list[int]:
    """Run the chosen tasks until a worker is killed; return which were given to workers."""
    begun: list[int] = []
    folder = os.getcwd()

    def calls() -> Iterator[Any]:
        for number in chosen:
            begun.append(number)
            yield delayed(_called_in)(folder, function, number, tasks[number])

    # One call per message and none in advance: what has begun is what a worker is at.
    # Arrays are mapped copy-on-write, because kernels take none that are read-only.
    parallel = Parallel(
        return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs", mmap_mode="c",
        **options,
    )  # fmt: skip
    try:
        with closing(parallel(calls())) as found:
            for number, result in found:
                finished(number, result)
    except BrokenExecutor as error:
        if error.__cause__ is not None:  # what cannot be unpickled: no worker was killed
            raise
    return begun


def _on_ray(
    function: Callable[[Task], Result], tasks: Sequence[Task], n_jobs: int | None, keep: _Keep
) -> None:
    """Run tasks by Ray itself: its pool for joblib loses all results when a worker is killed."""
    ray = needed("ray", "backend='ray' needs", "ray")
    failed = ray.exceptions
    call = ray.remote(num_cpus=1, max_retries=_MOST_LOSSES - 1)(_called)
    shared = ray.put(function)
    waiting = enumerate(tasks)
    at_once = n_jobs if n_jobs is not None and n_jobs > 0 else len(tasks)
    running: dict[Any, int] = {}
    try:
        while True:
            for number, task in islice(waiting, at_once - len(running)):
                running[call.remote(shared, number, task)] = number
            if not running:
                return
            (done,), _ = ray.wait(list(running))
            number = running.pop(done)
            try:
                keep(*ray.get(done))
            except failed.RayTaskError as error:
                raise error.cause from None
            except (failed.WorkerCrashedError, failed.NodeDiedError, failed.OutOfMemoryError):
                raise _lost(number, tasks[number]) from None
    finally:
        for one in running:
            ray.cancel(one, force=True)
