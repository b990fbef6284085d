"""Many tasks at once: results in order, one BLAS thread each, and nothing left after an error."""

import os
import signal
import subprocess
import sys
from functools import partial
from threading import Event

import joblib
import numpy as np
import pytest
from joblib.parallel import ThreadingBackend
from threadpoolctl import threadpool_limits

from folklearn.errors import FolklearnError
from folklearn.scale import map_in_parallel
from tests.conftest import ROOT
from tests.scale import tasks

SQUARES = [number * number for number in range(9)]
TWO = {"n_jobs": 2}
IN_THREADS = {"backend": "threading", "n_jobs": 2}


class NotStreaming(ThreadingBackend):
    """A backend that returns all results at the end, as Ray's does."""

    supports_return_generator = False


@pytest.mark.parametrize(
    "config", [{"n_jobs": 1}, TWO, IN_THREADS, {"backend": NotStreaming(), "n_jobs": 2}]
)
def test_results_come_in_the_order_of_the_tasks(config):
    done = []
    with joblib.parallel_config(**config):
        assert map_in_parallel(tasks.square, range(9), progress=done.append) == SQUARES
        assert done == list(range(1, 10))
        assert map_in_parallel(tasks.square, []) == []


def test_one_job_stays_in_this_process():
    assert map_in_parallel(lambda _: os.getpid(), range(3)) == [os.getpid()] * 3


def test_what_joblib_was_told_holds():
    with joblib.parallel_config(n_jobs=2):
        assert os.getpid() not in map_in_parallel(lambda _: os.getpid(), range(3))
        assert map_in_parallel(lambda _: os.getpid(), range(3), n_jobs=1) == [os.getpid()] * 3


@pytest.mark.parametrize("options", [{}, TWO])
def test_an_exception_names_its_task(options):
    with pytest.raises(ValueError, match="three is not wanted") as caught:
        map_in_parallel(tasks.check_three, range(9), **options)
    assert caught.value.__notes__ == ["This was task 3: 3."]


class Nameless:
    def __repr__(self):
        raise RuntimeError("it has no name")


def test_a_task_without_a_name_does_not_hide_what_happened():
    with pytest.raises(TypeError, match="can't multiply") as caught:
        map_in_parallel(lambda task: [task] * "no number", [Nameless()])
    assert "task 0: <Nameless instance" in caught.value.__notes__[0]


@pytest.mark.parametrize("n_jobs", [0, -2, True, 2.5, "2"])
def test_numbers_of_jobs_that_are_none_are_refused(n_jobs):
    with pytest.raises(FolklearnError, match="n_jobs must be"):
        map_in_parallel(tasks.square, range(2), n_jobs=n_jobs)


def test_a_killed_worker_ends_the_run_and_not_the_next():
    with pytest.raises(FolklearnError, match="a worker process ended abruptly: .* try n_jobs=1"):
        map_in_parallel(partial(tasks.killed_at, 4), range(9), **TWO)
    assert map_in_parallel(tasks.square, range(9), **TWO) == SQUARES


def test_workers_are_where_the_caller_is(tmp_path, monkeypatch):
    map_in_parallel(tasks.folder, range(2), **TWO)  # starts workers, in the folder of now
    monkeypatch.chdir(tmp_path)
    assert set(map_in_parallel(tasks.folder, range(4), **TWO)) == {str(tmp_path)}


@pytest.mark.parametrize(
    "config",
    [{"n_jobs": 1}, {"backend": "loky", "inner_max_num_threads": 2, "n_jobs": 2}, IN_THREADS],
)
def test_blas_has_one_thread_in_every_task(config):
    with joblib.parallel_config(**config):
        assert map_in_parallel(tasks.blas_threads, range(4)) == [{1}] * 4


def test_a_task_that_ends_gives_no_blas_threads_to_another():
    began, ended = Event(), Event()

    def task(number):
        if number == 0:
            return began.wait(60.0)
        began.set()
        ended.wait(60.0)
        return tasks.blas_threads(number)

    with threadpool_limits(2), joblib.parallel_config(**IN_THREADS):
        found = map_in_parallel(task, range(2), progress=lambda _: ended.set())
    assert found == [True, {1}]


def test_processes_share_large_arrays():
    """Copied on writing, because kernels take no array that is read-only."""
    array = np.ones((500, 500))
    shared = map_in_parallel(partial(tasks.is_shared, array), range(3), **TWO)
    assert shared == [("memmap", True, 250_000.0)] * 3


def test_an_error_in_the_callers_progress_ends_the_workers(tmp_path):
    path = tmp_path / "1.pid"

    def interrupt(_):
        while not path.exists() or not path.read_text():
            pass
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="been cancelled"):
        map_in_parallel(partial(tasks.wait_at_one, tmp_path), range(2), progress=interrupt, **TWO)
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


def test_ctrl_c_ends_the_workers(tmp_path):
    code = (
        "import signal, sys; from functools import partial; from pathlib import Path\n"
        "from folklearn.scale import map_in_parallel; from tests.scale import tasks\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell may ignore it\n"
        "map_in_parallel(partial(tasks.wait_for_ever, Path(sys.argv[1])), range(2), n_jobs=2)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    assert process.stderr is not None
    while len(pids := [path.read_text() for path in tmp_path.glob("*.pid")]) < 2 or "" in pids:
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate()[1]
    for pid in map(int, pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
