"""What Spark costs: a row of a pass, an event of a keyed model, a prediction, beside a plain run.

python -m benchmarks.spark [--rows 400000]   writes results/spark.json and results/spark.md.
Local mode, two threads, on the machine that makes the plain run too, in turns; the best of three
turns counts. Costs are of one core: the time of both, times two for Spark. Needs the extra spark
and Java 17.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import folklearn
from experiments.provenance import provenance, stated, write_json
from folklearn.evaluate.best_linear import TotalLoss
from folklearn.evidence.passes import passes_over
from folklearn.kernels.blas import OneThread
from folklearn.scale import fold
from folklearn.scale import spark as on_spark
from folklearn.scale.spark_passes import ScoredRows, SparkPasses

RESULTS = Path(__file__).parent / "results"
FEATURES, CLASSES, CORES, TURNS = 20, 5, 2, 3
KEYS, BATCHES, EVENTS = 40, 4, 100  # events of a key in a micro-batch
SIZES = (5, 20, 60)  # features of models whose states are weighed
EXECUTORS, ROWS = 100, 10**9
NAMES = [f"f{j}" for j in range(FEATURES)]


def best(run: Callable[[], Any], turns: int = TURNS) -> float:
    """Return the seconds of the fastest of some turns."""
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def session() -> Any:
    """Start Spark."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", CORES)
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


class Data:
    """Rows of a linear model, as a matrix and as a table."""

    def __init__(self, n_rows: int, d: int = FEATURES) -> None:
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(n_rows, d)) / math.sqrt(d)
        self.W = rng.normal(size=(CLASSES, d))
        noisy = 3.0 * self.X @ self.W.T + rng.gumbel(size=(n_rows, CLASSES))
        self.y = noisy.argmax(axis=1)

    def arrow(self) -> pa.Table:
        """Return features and label."""
        columns = {f"f{j}": x for j, x in enumerate(self.X.T)}
        return pa.table({**columns, "label": pa.array([f"c{k}" for k in self.y])})

    def spark(self, spark: Any, folder: Path) -> Any:
        """Return the same as Spark reads it from Parquet."""
        path = str(folder / f"{self.X.shape}")
        made = spark.createDataFrame(self.arrow())
        made.repartition(CORES).write.mode("overwrite").parquet(path)
        return spark.read.parquet(path)


def blocks_of(batches: Any) -> Any:
    """Turn batches into rows, as `audit` does."""
    from folklearn.validation import Rows

    for batch in batches:
        X = np.stack([batch[name].to_numpy() for name in NAMES], axis=1)
        y = np.array([int(label[1:]) for label in batch["label"].to_pylist()])
        yield ScoredRows(Rows.checked(X, y, None, n_features=FEATURES, n_classes=CLASSES))


def passes(spark: Any, folder: Path, n_rows: int) -> dict[str, float]:
    """Measure passes of an audit and of a fit: what each costs, and every row of it."""
    data, few = Data(n_rows), Data(CORES)
    here = passes_over(data.X, data.y, None, n_features=FEATURES, n_classes=CLASSES)
    found: dict[str, float] = {}
    with SparkPasses(few.spark(spark, folder), blocks_of) as there:
        found["a pass"] = fixed = best(lambda: there.expand(data.W), 2 * TURNS)
    df = data.spark(spark, folder)
    began = time.perf_counter()
    with SparkPasses(df, blocks_of) as there:
        found["prepare"] = CORES * (time.perf_counter() - began) / n_rows
        sizes = {"n_features": FEATURES, "n_classes": CLASSES}
        of_audit = [TotalLoss(each, **sizes).at for each in (here, there)]
        for name, (plainly, on_spark_) in ("audit", of_audit), ("fit", (here.expand, there.expand)):
            plain, spread = [], []
            for _ in range(TURNS):
                plain.append(best(partial(plainly, data.W), 1))
                spread.append(best(partial(on_spark_, data.W), 1))
            found[f"{name} plain"] = min(plain) / n_rows
            found[f"{name} spark"] = CORES * max(0.0, min(spread) - fixed) / n_rows
    return found


def whole(spark: Any, folder: Path, n_rows: int) -> dict[str, float]:
    """Measure an audit and a fit from end to end, and count their passes."""
    df = Data(n_rows).spark(spark, folder)
    told: list[Any] = []
    uniform = {f"c{k}": f"p{k}" for k in range(CLASSES)}
    for column in uniform.values():
        df = df.selectExpr("*", f"{1.0 / CLASSES}D AS {column}")
    given = {"features": NAMES, "label": "label", "prediction": uniform}
    audit_s = best(lambda: on_spark.audit(df, **given, report=told.append), 1)
    made: list[int] = []
    table = df.select(*NAMES, "label")
    fit_s = best(lambda: on_spark.fit(table, label="label", progress=made.append), 1)
    return {
        "audit": audit_s,
        "audit passes": len(told) + 2,  # the losses, the means
        "fit": fit_s,
        "fit passes": len(made),
    }


def keyed(spark: Any, folder: Path) -> dict[str, float]:
    """Measure keyed models, a few events each in every micro-batch."""
    data = Data(KEYS * EVENTS * BATCHES)
    schema = "user string, n bigint, label string, " + ", ".join(f"{f} double" for f in NAMES)
    source = folder / "events"
    states: dict[str, bytes] = {}
    plain = 0.0
    for batch in range(BATCHES):
        rows, events = [], {}
        for key in range(KEYS):
            for event in range(EVENTS):
                t = (batch * KEYS + key) * EVENTS + event
                x, label = data.X[t].tolist(), f"c{data.y[t]}"
                rows.append((f"u{key}", batch * EVENTS + event, label, *x))
                row = dict(zip(NAMES, x, strict=True))
                events.setdefault(f"u{key}", []).append((row, label))
        spark.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(str(source))
        began = time.perf_counter()
        for key, own in events.items():
            states[key], _ = fold(states.get(key), own)
        plain = time.perf_counter() - began  # of the last batch, as for Spark
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    out = on_spark.learn_keyed(stream, key="user", sequence="n", label="label")
    query = out.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query = query.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    spent = [one["durationMs"]["triggerExecution"] / 1e3 for one in query.recentProgress]
    models = on_spark.read_models(spark, str(folder / "checkpoint"))
    assert {key: model.to_bytes() for key, model in models.items()} == states
    n = KEYS * EVENTS
    fastest = min(spent[1:BATCHES])
    return {
        "plain": plain / n,
        "spark": CORES * fastest / n,
        "micro-batch": fastest,
        "bytes": len(states["u0"]),
    }


def states() -> list[dict[str, float]]:
    """Measure what the state of a key costs: to read, to learn one event, to write."""
    found = []
    for d in SIZES:
        data = Data(500, d)
        rows = [
            ({f"f{j}": value for j, value in enumerate(x)}, int(k))
            for x, k in zip(data.X.tolist(), data.y, strict=True)
        ]
        state, _ = fold(None, rows)
        one = best(lambda s=state, r=rows: fold(s, r[:1]))
        found.append({"features": d, "bytes": len(state), "seconds": one})
    return found


def predictions(spark: Any, folder: Path, n_rows: int) -> dict[str, float]:
    """Measure predictions as a column."""
    data = Data(n_rows)
    table, df = data.arrow(), data.spark(spark, folder)
    model = folklearn.Model()
    model.run(table.slice(0, 5000), "label")
    asked = table.drop_columns(["label"])
    with OneThread():
        plain = best(lambda: model.predict_proba(asked)) / n_rows

    def spread() -> None:  # a new query every time: Spark would reuse what another one shuffled
        df.select(on_spark.predict_udf(model).alias("p")).selectExpr("sum(p[0])").collect()

    return {"plain": plain, "spark": CORES * best(spread) / n_rows}


def paper(found: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return hours for a billion rows: of one core here, and of a hundred executors of one core.

    A pass takes its fixed time, and its rows; nothing is said of a shuffle between machines, which
    carries one sum a partition.
    """
    rows, there = found["passes"], ROWS / EXECUTORS
    table = []
    for name, n in ("audit", found["whole"]["audit passes"]), ("fit", found["whole"]["fit passes"]):
        alone = n * ROWS * rows[f"{name} plain"]
        spread = there * rows["prepare"] + n * (rows["a pass"] + there * rows[f"{name} spark"])
        table.append((f"{name}, {n:.0f} passes", alone / 3600, spread / 3600))
    events = f"events of keyed models, {EVENTS} of a key in a micro-batch"
    for name, what in ("keyed", events), ("predictions", "predictions"):
        own = found[name]
        table.append((what, ROWS * own["plain"] / 3600, there * own["spark"] / 3600))
    return table


def report(found: dict[str, Any]) -> str:
    """Return the results in Markdown."""
    rows, own, all_of = found["passes"], found["keyed"], found["whole"]
    n = found["rows"]
    lines = [
        "# What Spark costs",
        "",
        f"{stated(found['origin'])}. {FEATURES} features, {CLASSES} classes, {n:,} rows; local "
        f"mode, {CORES} threads. Microseconds of one core for a row, or an event; the plain "
        "run is made by one thread of the same machine, in turns. Rows of a pass without what "
        "every pass costs, events of keyed models with what their micro-batch costs.",
        "",
        "| what | plain, µs | Spark, µs | × |",
        "|---|---|---|---|",
    ]
    for what, plain, spark in (
        ("a row of an audit's pass", rows["audit plain"], rows["audit spark"]),
        ("a row of a fit's pass", rows["fit plain"], rows["fit spark"]),
        ("an event of a keyed model", own["plain"], own["spark"]),
        ("a prediction", found["predictions"]["plain"], found["predictions"]["spark"]),
    ):
        lines.append(f"| {what} | {1e6 * plain:.2f} | {1e6 * spark:.2f} | {spark / plain:.1f} |")
    lines += [
        "",
        f"Spark starts in {found['start']:.1f} s. To read a row from Parquet, check it and keep it "
        f"takes {1e6 * rows['prepare']:.1f} µs, once. A pass over {CORES} rows takes "
        f"{rows['a pass']:.2f} s: so much is spent on every pass, whatever its rows. An audit: "
        f"{all_of['audit passes']:.0f} passes, {all_of['audit']:.0f} s; a fit: "
        f"{all_of['fit passes']:.0f} passes, {all_of['fit']:.0f} s. A micro-batch of {KEYS} keys, "
        f"{EVENTS} events each, takes {own['micro-batch']:.1f} s; a state has "
        f"{own['bytes'] / 1e3:.0f} kB.",
        "",
        "The state of a key is read and written in every micro-batch that has its key:",
        "",
        "| features | state, kB | read, one event, write, ms |",
        "|---|---|---|",
    ]
    lines += [
        f"| {one['features']} | {one['bytes'] / 1e3:.0f} | {1e3 * one['seconds']:.1f} |"
        for one in found["states"]
    ]
    lines += [
        "",
        f"On paper, with these constants: {ROWS:,} rows, one core alone and {EXECUTORS} executors "
        "of one core. Not measured: a network, stragglers, a disk that cannot follow.",
        "",
        "| what | one core, hours | executors, hours |",
        "|---|---|---|",
    ]
    lines += [f"| {what} | {alone:.2f} | {spread:.2f} |" for what, alone, spread in paper(found)]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure all, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    n_rows = parser.parse_args().rows
    sizes = {"features": FEATURES, "classes": CLASSES, "rows": n_rows, "keys": KEYS}
    libraries = ["pyspark", "pyarrow"]
    origin = provenance(
        "benchmarks.spark", sys.argv[1:], seeds=[0], sizes=sizes, libraries=libraries
    )
    began = time.perf_counter()
    spark = session()
    spark.range(1).collect()
    start = time.perf_counter() - began
    found: dict[str, Any] = {"origin": origin, "rows": n_rows, "start": start}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found["states"] = states()
        found["passes"] = passes(spark, folder, n_rows)
        found["predictions"] = predictions(spark, folder, n_rows)
        found["keyed"] = keyed(spark, folder)
        found["whole"] = whole(spark, folder, n_rows)
    spark.stop()
    write_json(RESULTS / "spark.json", found)
    text = report(found)
    (RESULTS / "spark.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
