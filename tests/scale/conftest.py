import os
import shutil
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def spark():
    """A session of Spark on this machine, two threads."""
    sql = pytest.importorskip("pyspark.sql", reason="make test-spark installs pyspark")
    if not has_java():
        pytest.skip("Spark needs Java 17 or newer")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = sql.SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def has_java() -> bool:
    """Tell whether there is a Java that Spark runs on."""
    if shutil.which("java") is None:
        return False
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = told.partition('"')[2].partition(".")[0]
    return version.isdigit() and int(version) >= 17
