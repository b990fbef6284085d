"""The same on Ray: same numbers, and nothing is lost with a worker that is killed."""

import os
import signal
import sys
import warnings
from functools import partial

import joblib
import numpy as np
import pytest

from folklearn import scale, synthetic
from folklearn.errors import FolklearnError
from folklearn.scale import run_all
from tests.conftest import ROOT
from tests.scale import tasks
from tests.scale.test_files import FILES, SIZES

ray = pytest.importorskip("ray", reason="Ray is not installed: make test-ray installs it")
RAY = {"backend": "ray"}
pytestmark = pytest.mark.filterwarnings("default")  # Ray warns as it pleases


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    """Two processors of this machine; workers find the tests where this process does."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": paths}},
        )
        yield
        ray.shutdown()


@pytest.fixture
def rows(seed):
    return synthetic.stochastic(seed, 400, d=3, K=3)


def test_results_come_in_the_order_of_the_tasks():
    done = []
    squares = [number * number for number in range(9)]
    assert run_all(tasks.square, range(9), progress=done.append, **RAY) == squares
    assert done == list(range(1, 10))
    assert run_all(tasks.square, range(9), n_jobs=1, **RAY) == squares


def test_what_joblib_was_told_holds():
    from ray.util.joblib import register_ray

    register_ray()
    with joblib.parallel_config(backend="ray"):
        assert os.getpid() not in run_all(tasks.process, range(2))
        assert run_all(tasks.process, range(2), backend="loky", n_jobs=1) == [os.getpid()] * 2


def test_an_exception_names_its_task():
    with pytest.raises(ValueError, match="three is not wanted") as caught:
        run_all(tasks.refuse_three, range(9), **RAY)
    assert caught.value.__notes__ == ["This was task 3: 3."]


def test_a_task_that_ends_every_worker_is_named():
    with pytest.raises(FolklearnError, match="3 worker processes ended abruptly in task 4: 4;"):
        run_all(partial(tasks.killed_at, 4), range(9), **RAY)


def test_blas_has_one_thread_in_every_task():
    assert run_all(tasks.blas_threads, range(4), **RAY) == [{1}] * 4


def test_a_sweep_survives_the_loss_of_a_worker(rows, tmp_path):
    learners = {"folklore": {"B": [1.0, 10.0]}, "ogd": {}}
    here = scale.sweep(learners, *rows, n_orders=2)
    assert scale.sweep(learners, *rows, n_orders=2, **RAY) == here
    dying = {partial(tasks.dying, tmp_path / "killed"): {"B": [1.0, 10.0]}}
    there = scale.sweep(dying, *rows, n_orders=2, **RAY)
    assert (tmp_path / "killed").exists()
    assert [row[3:] for row in there.rows] == [row[3:] for row in here.rows[:4]]


def test_a_worker_killed_from_outside(tmp_path):
    """Whoever kills, with whatever is under way, the results are those of a quiet run."""
    killed = []

    def kill_the_first(_: int) -> None:
        (path, *_) = tmp_path.glob("*.pid")
        if not killed:
            killed.append(int(path.read_text()))
            os.kill(killed[0], signal.SIGKILL)

    found = run_all(partial(tasks.named, tmp_path), range(200), progress=kill_the_first, **RAY)
    assert found == list(range(200))
    assert killed


def test_files_give_the_same_bits():
    here = scale.audit_files(FILES, tasks.blocks_of, **SIZES)
    there = scale.audit_files(FILES, tasks.blocks_of, **SIZES, **RAY)
    assert here.evidence.to_bytes() == there.evidence.to_bytes()
    assert here.certificate == there.certificate


def test_compare(rows):
    here, there = (scale.compare(["auto", "ogd"], *rows, n_classes=3, **on) for on in ({}, RAY))
    for one, other in zip(here.rows, there.rows, strict=True):
        np.testing.assert_array_equal(one.scores.P, other.scores.P)
