"""Many tasks at once: in order, whoever dies on the way."""

import os
import signal
import subprocess
import sys
from functools import partial

import joblib
import numpy as np
import pytest

from folklearn.errors import FolklearnError
from folklearn.scale import run_all
from tests.conftest import ROOT
from tests.scale import tasks

SQUARES = [number * number for number in range(9)]
TWO = {"n_jobs": 2}


@pytest.mark.parametrize("options", [{}, TWO, TWO | {"backend": "threading"}])
def test_results_come_in_the_order_of_the_tasks(options):
    done = []
    assert run_all(tasks.square, range(9), progress=done.append, **options) == SQUARES
    assert done == list(range(1, 10))
    assert run_all(tasks.square, [], **options) == []


def test_one_job_stays_in_this_process():
    assert run_all(lambda _: os.getpid(), range(3)) == [os.getpid()] * 3


def test_what_joblib_was_told_holds():
    with joblib.parallel_config(n_jobs=2):
        assert os.getpid() not in run_all(lambda _: os.getpid(), range(3))
        assert run_all(lambda _: os.getpid(), range(3), n_jobs=1) == [os.getpid()] * 3
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert run_all(lambda _: os.getpid(), range(3)) == [os.getpid()] * 3


@pytest.mark.parametrize("options", [{}, TWO])
def test_an_exception_names_its_task(options):
    with pytest.raises(ValueError, match="three is not wanted") as caught:
        run_all(tasks.refuse_three, range(9), **options)
    assert caught.value.__notes__ == ["This was task 3: 3."]


class Nameless:
    def __repr__(self):
        raise RuntimeError("it has no name")


def test_a_task_without_a_name_does_not_hide_what_happened():
    with pytest.raises(TypeError, match="can't multiply") as caught:
        run_all(lambda task: [task] * "no number", [Nameless()])
    assert "task 0: <Nameless instance" in caught.value.__notes__[0]


@pytest.mark.parametrize("n_jobs", [0, -2, True, 2.5, "2"])
def test_numbers_of_jobs_that_are_none_are_refused(n_jobs):
    with pytest.raises(FolklearnError, match="n_jobs must be"):
        run_all(tasks.square, range(2), n_jobs=n_jobs)


def test_a_killed_worker_costs_nothing_but_time(tmp_path):
    once = partial(tasks.killed_once, tmp_path / "killed", tasks.square)
    assert run_all(once, range(9), **TWO) == SQUARES
    assert (tmp_path / "killed").exists()


def test_workers_are_where_the_caller_is(tmp_path, monkeypatch):
    run_all(tasks.folder, range(2), **TWO)  # workers live on, with the folder that they began in
    monkeypatch.chdir(tmp_path)
    assert set(run_all(tasks.folder, range(4), **TWO)) == {str(tmp_path)}


def test_results_that_are_there_are_kept(tmp_path):
    again = partial(tasks.noted, tmp_path)
    once = partial(tasks.killed_once, tmp_path / "killed", again)

    def kill_late(task):
        return once(task) if task == 30 else again(task)

    assert run_all(kill_late, range(40), **TWO) == list(range(40))
    times = [len((tmp_path / str(task)).read_text().splitlines()) for task in range(40)]
    assert max(times) <= 2
    assert times[:25] == [1] * 25


def test_a_task_that_ends_every_worker_is_named():
    with pytest.raises(FolklearnError, match="3 worker processes ended abruptly in task 4: 4;"):
        run_all(partial(tasks.killed_at, 4), range(9), **TWO)


def test_what_cannot_be_unpickled_is_no_killed_worker():
    with pytest.raises(RuntimeError, match="failed to un-serialize") as caught:
        run_all(tasks.square, [1, tasks.Unreadable(), 3], **TWO)
    assert "nothing to read" in str(caught.value.__cause__)


@pytest.mark.parametrize("options", [{}, TWO, TWO | {"backend": "threading"}])
def test_blas_has_one_thread_in_every_task(options):
    assert run_all(tasks.blas_threads, range(4), **options) == [{1}] * 4


def test_processes_share_large_arrays():
    """Copied on writing, because kernels take no array that is read-only."""
    array = np.ones((500, 500))
    shared = run_all(partial(tasks.is_shared, array), range(3), **TWO)
    assert shared == [("memmap", True, 250_000.0)] * 3


def test_ctrl_c_ends_the_workers(tmp_path):
    code = (
        "import sys; from functools import partial; from pathlib import Path\n"
        "from folklearn.scale import run_all; from tests.scale import tasks\n"
        "run_all(partial(tasks.wait_for_ever, Path(sys.argv[1])), range(2), n_jobs=2)"
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


def test_ray_that_is_missing_is_said_to_be(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FolklearnError, match=r"pip install 'folklearn\[ray\]'"):
        run_all(tasks.square, range(3), backend="ray")
