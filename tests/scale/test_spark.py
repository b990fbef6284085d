"""Spark in local mode: the same numbers as on one machine, the same bytes for keyed models."""

import math

import numpy as np
import pytest

import folklearn
from folklearn.errors import FolklearnError
from folklearn.scale import fold
from folklearn.scale import spark as on_spark

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning"
)

SCHEMA = "user string, n long, age double, visits int, country string, label string, w double"


def events(rng, n_rows=400, n_users=7):
    """Return rows of a stream, with gaps, late columns and questions."""
    counts = dict.fromkeys(range(n_users), 0)
    rows = []
    for t in range(n_rows):
        user = int(rng.integers(n_users))
        counts[user] += 1
        age = float(rng.normal(40.0, 10.0)) if rng.random() < 0.9 else None
        visits = int(rng.integers(9)) if t > n_rows // 3 else None
        country = str(rng.choice(["DE", "PE", "IN"]))
        churns = (age or 40.0) + 5.0 * rng.normal() > 42.0
        label = None if rng.random() < 0.05 else ("churn" if churns else "stay")
        if t > n_rows // 2 and rng.random() < 0.1:
            label = "return"
        rows.append((f"user {user}", counts[user], age, visits, country, label, 1.0 + t % 2))
    return rows


def plain_run(rows):
    """Return the bytes of the models, by key, as a loop on one machine makes them."""
    states = {}
    for user, _, age, visits, country, label, w in rows:
        row = {"age": age, "visits": visits, "country": country}
        states[user], _ = fold(states.get(user), [(row, label, w)])
    return states


def learned(spark, folder, rows=None):
    """Let a stream of the files in a folder be learned as far as it goes."""
    if rows is not None:
        spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("append").parquet(
            str(folder / "in")
        )
    stream = spark.readStream.schema(SCHEMA).parquet(str(folder / "in"))
    out = on_spark.learn_keyed(stream, key="user", sequence="n", label="label", weight="w")
    query = (
        out.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    return spark.read.parquet(str(folder / "out"))


def test_keyed_models_are_those_of_a_plain_run(spark, rng, tmp_path):
    rows = events(rng)
    order = rng.permutation(200)  # within a micro-batch any order will do
    learned(spark, tmp_path, [rows[i] for i in order])
    out = learned(spark, tmp_path, rows[200:])
    models = on_spark.read_models(spark, str(tmp_path / "checkpoint"))
    expected = plain_run(rows)
    assert {user: model.to_bytes() for user, model in models.items()} == expected
    assert out.count() == len(rows)
    loss = -sum(math.log(row["chance"]) for row in out.where("chance is not null").collect())
    weighted = {f"user {user}": 0.0 for user in range(7)}
    assert 0.0 < loss < math.inf
    for row in out.join(spark.createDataFrame(rows, SCHEMA), ["user", "n"]).collect():
        if row["label"] is not None:
            weighted[row["user"]] -= row["w"] * math.log(row["chance"])
    for user, model in models.items():
        assert weighted[user] == pytest.approx(model.loss)


def test_what_comes_twice_or_late_is_refused(spark, rng, tmp_path):
    rows = events(rng, 60, 2)
    learned(spark, tmp_path, rows)
    unnumbered = ("user 0", None, 30.0, 1, "DE", "stay", 1.0)
    out = learned(spark, tmp_path, [*rows[:10], unnumbered])
    models = on_spark.read_models(spark, str(tmp_path / "checkpoint"))
    assert {user: model.to_bytes() for user, model in models.items()} == plain_run(rows)
    refused = [row["refused"] for row in out.where("refused is not null").collect()]
    assert len(refused) == 11
    assert sum("not above" in why for why in refused) == 10
    assert sum("no sequence number" in why for why in refused) == 1


def test_wrong_columns_are_named(spark, rng):
    df = spark.createDataFrame(events(rng, 5), SCHEMA)
    given = {"key": "user", "sequence": "n", "label": "label"}
    with pytest.raises(FolklearnError, match="no column 'uesr'; the columns are: user, n"):
        on_spark.learn_keyed(df, **{**given, "key": "uesr"})
    with pytest.raises(FolklearnError, match="'age' is of type double, and sequence numbers"):
        on_spark.learn_keyed(df, **{**given, "sequence": "age"})
    with pytest.raises(FolklearnError, match="no learner 'autoo'"):
        on_spark.learn_keyed(df, **given, learner="autoo")
    with pytest.raises(FolklearnError, match="data frame of Spark, got list"):
        on_spark.learn_keyed([], **given)
    clashing = df.withColumnRenamed("user", "refused")
    with pytest.raises(FolklearnError, match="rename 'refused'"):
        on_spark.learn_keyed(clashing, **{**given, "key": "refused"})


def test_predictions_are_those_of_the_model(spark, rng):
    rows = [
        {"age": age, "visits": visits, "country": country, "label": label}
        for _, _, age, visits, country, label, _ in events(rng, 600)
        if label is not None
    ]
    model = folklearn.Model()
    for row in rows[:400]:
        model.learn_one({name: row[name] for name in row if name != "label"}, row["label"])
    schema = "age double, visits int, country string, label string"
    df = spark.createDataFrame(rows, schema).repartition(3)
    found = df.withColumn("p", on_spark.predict_udf(model)).collect()
    asked = [row.asDict() for row in found]
    P = model.predict_proba(
        [{name: row[name] for name in ("age", "visits", "country")} for row in asked]
    )
    np.testing.assert_array_equal([row["p"] for row in asked], P)


def test_a_column_that_is_not_there_is_named(spark, rng):
    model = folklearn.Model()
    with pytest.raises(FolklearnError, match="learned nothing"):
        on_spark.predict_udf(model)
    for x in rng.normal(size=20):
        model.learn_one({"age": x}, int(x > 0.0))
    with pytest.raises(Exception, match="`age` cannot be resolved"):
        spark.range(3).withColumn("p", on_spark.predict_udf(model))
