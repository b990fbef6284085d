"""Independent tasks in parallel by joblib: runs of learners, seeds and settings, many files."""

import os
import reprlib
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from contextlib import chdir, closing, nullcontext
from functools import partial
from typing import Any, TypeVar

from joblib import Parallel, delayed
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

from folklearn.errors import FolklearnError, spell_argument
from folklearn.evidence.passes import MapReduce
from folklearn.progress import Progress, report_progress

Task = TypeVar("Task")
Result = TypeVar("Result")


def map_in_parallel(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    n_jobs: int | None = None,
    progress: Progress = False,
) -> list[Result]:
    """Call a function for every task; return the results in the order of the tasks.

    The results are the same for any number of processes, and on a cluster of like machines, if
    the function depends on its task alone: BLAS has one thread in every task. An exception in a
    task ends the run, with a note that says which task it was; so does a worker that is killed.

    Parameters
    ----------
    function, tasks : can be pickled, and so can results. Large arrays belong into the function
        (`functools.partial`): processes share them by a memory map.
    n_jobs : tasks at once; 1 runs them in this process, -1 takes every core. None means 1, or
        what `joblib.parallel_config` says, which also chooses another backend than processes.
    progress : True for a bar, or a function that takes the number of tasks that are done.

    Examples
    --------
    >>> from folklearn.scale import map_in_parallel
    >>> map_in_parallel(abs, [-3, 1, -2])
    [3, 1, 2]
    """
    tasks = list(tasks)
    if n_jobs is not None:
        MapReduce.from_options(n_jobs)  # refuses what is no number of jobs, before anything runs
    call = delayed(partial(_call, os.getcwd(), function))
    is_streamed = get_active_backend()[0].supports_return_generator  # not by Ray's backend
    # Arrays are mapped copy-on-write, because kernels take none that are read-only.
    returned = "generator" if is_streamed else "list"
    parallel = Parallel(n_jobs=n_jobs, mmap_mode="c", return_as=returned)
    results: list[Result] = []
    # The limit of this process holds for tasks in its threads, whichever of them ends first.
    with threadpool_limits(1), report_progress(progress, len(tasks), "running") as report:
        try:
            outputs = parallel(call(number, task) for number, task in enumerate(tasks))
            with closing(outputs) if is_streamed else nullcontext():
                for result in outputs:
                    results.append(result)
                    report(len(results))
        except BrokenExecutor as error:
            raise FolklearnError(
                "a worker process ended abruptly: it was killed, perhaps for want of memory, it "
                "crashed, or a task cannot be unpickled; try "
                f"{spell_argument('n_jobs=1')}, which starts none"
            ) from error
    return results


def _call(folder: str, function: Callable[[Task], Result], number: int, task: Task) -> Any:
    """Call the function in the folder of the caller."""
    here = chdir(folder) if os.path.isdir(folder) else nullcontext()
    try:
        with here, threadpool_limits(1):
            return function(task)
    except Exception as error:
        error.add_note(f"This was task {number}: {reprlib.repr(task)}.")
        raise
