"""Kill -9 of a Python worker, of an executor, of the driver: the models are the same bytes.

It takes minutes, so that only `make test-spark` runs it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from folklearn.scale.spark import audit, fit, read_models
from tests.scale import test_spark as local
from tests.scale.conftest import session

pytest.importorskip("pyspark", reason="Spark is not installed: make test-spark")

N_FILES = 6
ROOT = Path(__file__).parents[2]
TWO_WORKERS = "local-cluster[2,1,1024]"


@pytest.fixture
def rows(spark, rng, tmp_path):
    """Rows of a stream, in six files."""
    found = local.events(rng, 40 * N_FILES, 20)
    for start in range(0, len(found), 40):
        one = spark.createDataFrame(found[start : start + 40], local.SCHEMA).coalesce(1)
        one.write.mode("append").parquet(str(tmp_path / "in"))
    return found


def program(*arguments, **options):
    """Start a module of the tests as a program."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=environment, **options)


def started(folder, master):
    """Start the driver."""
    with (folder / "log").open("ab") as log:
        return program("-m", "tests.scale.keyed_stream", folder, master, stderr=log)


def n_committed(folder):
    """Return how many micro-batches are finished."""
    commits = folder / "checkpoint" / "commits"
    return sum(path.name.isdigit() for path in commits.iterdir()) if commits.is_dir() else 0


def descendants(pid):
    """Return processes that a process has started, directly or not, and their commands."""
    command = ["ps", "-ewwo", "pid,ppid,args"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()[1:]]
    family, found = {str(pid)}, {}
    for own, parent, command in sorted(lines, key=lambda line: int(line[0])):
        if parent in family:
            family.add(own)
            found[int(own)] = command
    return found


def killed(folder, driver, victim, after):
    """Kill a process with `victim` in its command once `after` micro-batches are finished."""
    while driver.poll() is None:
        if n_committed(folder) >= after:
            found = [pid for pid, command in descendants(driver.pid).items() if victim in command]
            if found:
                os.kill(max(found), signal.SIGKILL)
                return True
        time.sleep(0.05)
    return False


def finish(folder, master):
    """Start the driver again, if need be, until all is learned; return how often."""
    for attempt in range(4):
        if started(folder, master).wait() == 0:
            return attempt + 1
    raise AssertionError((folder / "log").read_text()[-3000:])


def check(spark, folder, rows):
    models = read_models(spark, str(folder / "checkpoint"))
    assert {user: model.to_bytes() for user, model in models.items()} == local.plain_run(rows)
    out = spark.read.parquet(str(folder / "out"))
    assert out.count() == len(rows)
    assert out.where("refused is not null").count() == 0


@pytest.mark.parametrize(
    ("master", "victim"),
    [
        ("local[2,4]", "pyspark.daemon"),  # a worker of Python: its task is tried again
        (TWO_WORKERS, "pyspark.daemon"),
        (TWO_WORKERS, "CoarseGrainedExecutorBackend"),  # an executor: another one starts
    ],
)
def test_a_killed_worker_changes_nothing(spark, rows, tmp_path, master, victim):
    driver = started(tmp_path, master)
    for after in 1, 3:
        assert killed(tmp_path, driver, victim, after)
    if driver.wait() != 0:
        finish(tmp_path, master)
    check(spark, tmp_path, rows)


def test_a_killed_driver_goes_on_where_it_was(spark, rows, tmp_path):
    for after in 1, 3:
        driver = started(tmp_path, "local[2]")
        assert killed(tmp_path, driver, "SparkSubmit", after)  # the driver's Java
        driver.kill()
        driver.wait()
        assert n_committed(tmp_path) < N_FILES
    finish(tmp_path, "local[2]")
    check(spark, tmp_path, rows)


def test_two_worker_processes_give_the_same_floor_and_fit(spark, rng, tmp_path):
    df, *_ = local.table(spark, rng, 2000, n_parts=4)
    df.write.parquet(str(tmp_path / "table"))
    assert program("-m", "tests.scale.spark_kills", tmp_path, TWO_WORKERS).wait() == 0
    floor, weights = json.loads((tmp_path / "found").read_text())
    here_floor, here_weights = both(spark.read.parquet(str(tmp_path / "table")))
    assert floor == pytest.approx(here_floor, rel=1e-9)
    np.testing.assert_allclose(weights, here_weights, rtol=1e-9)


def both(df):
    """Return the floor of an audit, and the weights of a fit."""
    floor = audit(df, **local.AUDITED, tol=1e-9).best_linear_at_least
    in_order = df.select("a", "b", "label").orderBy("b")  # files are dealt out by how many cores
    return floor, fit(in_order, label="label", sample=500).pipeline.coef().tolist()


if __name__ == "__main__":  # in a cluster of its own
    table = session(sys.argv[2]).read.parquet(f"{sys.argv[1]}/table")
    Path(sys.argv[1], "found").write_text(json.dumps(both(table)))
