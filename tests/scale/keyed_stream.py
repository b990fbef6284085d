"""A stream of keyed models as a program of its own, to be killed: FOLDER MASTER."""

import sys
from pathlib import Path

from folklearn.scale.spark import learn_keyed
from tests.scale.conftest import session
from tests.scale.test_spark import SCHEMA


def main(folder: Path, master: str) -> None:
    """Learn all files of FOLDER/in, one in a micro-batch."""
    spark = session(master)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    out = learn_keyed(
        stream.parquet(str(folder / "in")), key="user", sequence="n", label="label", weight="w"
    )
    query = out.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
