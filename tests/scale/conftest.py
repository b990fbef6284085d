import os
import shutil
import subprocess
import sys

import pytest

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@pytest.fixture(scope="session")
def spark():
    """A session of Spark on this machine, two threads."""
    pytest.importorskip("pyspark", reason="Spark is not installed: make test-spark")
    if not has_java():
        pytest.skip("Spark needs Java 17 or newer")
    started = session("local[2]")
    yield started
    started.stop()


def session(master):
    """Return a session of Spark; its executors run this interpreter."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def has_java() -> bool:
    """Tell whether there is a Java that Spark runs on."""
    if shutil.which("java") is None:
        return False
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = told.partition('"')[2].partition(".")[0]
    return version.isdigit() and int(version) >= 17
