"""Spark in local mode: the same numbers as on one machine, the same bytes for keyed models."""

import math
from collections import Counter

import numpy as np
import pytest

import folklearn
from folklearn.errors import FolklearnError
from folklearn.model.dataset import ModelDataset
from folklearn.model.refit import refit_tables
from folklearn.scale import fold
from folklearn.scale import spark as on_spark

functions = pytest.importorskip(
    "pyspark.sql.functions", reason="Spark is not installed: make test-spark"
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
        rows.append((f"user {user}", counts[user], age, visits, country, label, 1.0 - t % 2 / 2))
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
    rows = events(rng, n_users=4)
    order = rng.permutation(200)  # within a micro-batch any order will do
    learned(spark, tmp_path, [rows[i] for i in order])
    out = learned(spark, tmp_path, rows[200:])
    models = on_spark.read_models(spark, str(tmp_path / "checkpoint"))
    expected = plain_run(rows)
    assert {user: model.to_bytes() for user, model in models.items()} == expected
    assert all(model.pipeline.scaler.n_terms for model in models.values())
    assert out.count() == len(rows)
    loss = -sum(math.log(row["chance"]) for row in out.where("chance is not null").collect())
    weighted = {f"user {user}": 0.0 for user in range(4)}
    assert 0.0 < loss < math.inf
    for row in out.join(spark.createDataFrame(rows, SCHEMA), ["user", "n"]).collect():
        if row["label"] is not None:
            weighted[row["user"]] -= row["w"] * math.log(row["chance"])
    for user, model in models.items():
        # The model counts a row that brings a column as predicted with it, unseen as it is.
        assert weighted[user] == pytest.approx(model.metrics.loss, rel=1e-2)


def table(spark, rng, n_rows=3000, n_parts=3):
    """Return a table of numbers, labels and predictions of them, as Spark and NumPy have it."""
    X = rng.normal(size=(n_rows, 3)) * [1.0, 100.0, 0.01] + [0.0, 1e4, 3.0]
    scores = np.stack([X[:, 0], (X[:, 1] - 1e4) / 100.0, -X[:, 0]], axis=1)
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    P = rng.dirichlet(np.ones(3), size=n_rows)
    w = rng.choice([0.5, 1.0, 2.0], size=n_rows)
    names = np.array(["low", "mid", "top"])[y]
    rows = [
        (*map(float, x), str(name), float(v), *map(float, p))
        for x, name, v, p in zip(X, names, w, P, strict=True)
    ]
    schema = "a double, b double, c double, label string, w double, p0 double, p1 double, p2 double"
    df = spark.createDataFrame(spark.sparkContext.parallelize(rows, n_parts), schema)
    return df, X, y, P, w


AUDITED = {
    "features": ["a", "b", "c"],
    "label": "label",
    "prediction": {"low": "p0", "mid": "p1", "top": "p2"},
    "weight": "w",
}


@pytest.mark.parametrize("n_parts", [1, 3, 20])
def test_an_audit_is_that_of_one_machine(spark, rng, n_parts):
    df, X, y, P, w = table(spark, rng, n_parts=n_parts)
    told = []
    audited = on_spark.audit(df, **AUDITED, tol=1e-9, report=told.append)
    Z = np.hstack([np.ones((len(X), 1)), (X - X.mean(axis=0)) / X.std(axis=0)])
    certifier = folklearn.Certifier(n_features=4, n_classes=3, constant=0)
    certifier.observe_many(Z, y, P, w)
    here = certifier.exact(Z, y, w, tol=1e-9)
    assert audited.loss == pytest.approx(here.loss, rel=1e-12)
    assert audited.best_linear_at_least == pytest.approx(here.best_linear_at_least, rel=1e-8)
    assert audited.n_rounds == len(y)
    assert "the columns (numbers standardised by all rows), whatever" in audited.in_words()
    assert [done.number for done in told] == list(range(1, len(told) + 1))
    assert told[-1].gap <= 1e-9 * (1.0 + told[-1].loss)
    again = on_spark.audit(df, **AUDITED, tol=1e-9)
    assert again == audited  # bit by bit: the tree depends on the partitions alone


def test_an_audit_names_impossible_labels(spark, rng):
    df, _, y, *_ = table(spark, rng, 500)
    sure = df.withColumn("p0", functions.lit(0.0)).withColumn("p1", functions.lit(0.0))
    impossible = on_spark.audit(sure.withColumn("p2", functions.lit(1.0)), **AUDITED)
    first = int(np.flatnonzero(y != 2)[0])
    assert f"{(y != 2).sum()} of 500 rounds, first in round {first} " in impossible.reason


def test_what_an_audit_refuses(spark, rng):
    df, *_ = table(spark, rng, 50)
    with pytest.raises(FolklearnError, match="no column 'd'"):
        on_spark.audit(df, **{**AUDITED, "features": ["a", "d"]})
    with pytest.raises(FolklearnError, match="'label' is of type string, and features"):
        on_spark.audit(df, **{**AUDITED, "features": ["label"]})
    with pytest.raises(FolklearnError, match="no prediction is named for the label 'top'"):
        on_spark.audit(df, **{**AUDITED, "prediction": {"low": "p0", "mid": "p1"}})
    gaps = df.withColumn("a", functions.when(df.a > 0.0, df.a))
    with pytest.raises(FolklearnError, match="column 'a' has [0-9]+ missing values: fill"):
        on_spark.audit(gaps, **AUDITED)
    with pytest.raises(FolklearnError, match="there are no rows"):
        on_spark.audit(df.limit(0), **AUDITED)


@pytest.mark.parametrize("curved", [False, True])
def test_a_fit_is_that_of_one_machine(curved, spark, rng, tmp_path):
    """With terms where they are clearly better, as `Model.fit` takes them."""
    df, X, y, *_ = table(spark, rng, 1200)
    if curved:
        inside = functions.abs(functions.col("a")) < 0.7
        df = df.withColumn("label", functions.when(inside, "low").otherwise(df.label))
    kinds = rng.choice(["red", "green"], size=len(y))
    numbers = spark.createDataFrame(
        [(float(x), str(kind)) for x, kind in zip(X[:, 0], kinds, strict=True)],
        "a double, kind string",
    )
    df = df.select("a", "b", "label", "w").join(numbers, "a").orderBy("b").coalesce(4).persist()
    limits = {"most_passes": 6 if curved else 50}
    settings = {"label": "label", "weight": "w", "sample": 300}
    terms = "auto" if curved else "none"
    model = on_spark.fit(df, **settings, **limits, terms=terms)
    rows = [row.asDict() for row in df.collect()]
    here = folklearn.Model(terms=terms)
    classes, counts = zip(*sorted(Counter(row["label"] for row in rows).items()), strict=True)
    here.declare(classes, counts=counts, max_weight=2.0)
    here.run(rows[:300], "label", weight="w")
    dataset = ModelDataset(here, rows, "label", weight="w", one_pass=True)
    refit_tables(here, [rows.take_labelled() for rows in dataset.rows()], **limits)
    questions = [{name: row[name] for name in ("a", "b", "kind")} for row in rows]
    n_terms = model.pipeline.scaler.n_terms
    assert model.pipeline.batch_fit.shape[1] == model.pipeline.scaler.n_columns + n_terms * curved
    np.testing.assert_allclose(
        model.predict_proba(questions), here.predict_proba(questions), rtol=1e-6 if curved else 1e-9
    )
    model.save(tmp_path / "m.folk")
    P = folklearn.load(tmp_path / "m.folk").predict_proba(questions)
    np.testing.assert_array_equal(P, model.predict_proba(questions))
    column = [row["p"] for row in df.withColumn("p", on_spark.predict_udf(model)).collect()]
    np.testing.assert_allclose(column, P, rtol=1e-12)


def test_what_a_fit_refuses(spark, rng):
    df, *_ = table(spark, rng, 50)
    with pytest.raises(FolklearnError, match="needs two classes"):
        on_spark.fit(df.where("label = 'top'"), label="label")
    words = df.withColumn("text", functions.lit("three words here at least"))
    with pytest.raises(FolklearnError, match="words"):
        on_spark.fit(words, label="label", roles={"text": "words"})


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
    for n_parts, rtol in (1, 0.0), (3, 1e-14):
        df = spark.createDataFrame(rows, schema).repartition(n_parts)
        found = [row.asDict() for row in df.withColumn("p", on_spark.predict_udf(model)).collect()]
        asked = [{name: row[name] for name in ("age", "visits", "country")} for row in found]
        P = [row["p"] for row in found]
        np.testing.assert_allclose(P, model.predict_proba(asked), rtol=rtol, atol=0.0)


def test_a_column_that_is_not_there_is_named(spark, rng):
    model = folklearn.Model()
    with pytest.raises(FolklearnError, match="learned nothing"):
        on_spark.predict_udf(model)
    for x in rng.normal(size=20):
        model.learn_one({"age": x}, int(x > 0.0))
    with pytest.raises(Exception, match="`age` cannot be resolved"):
        spark.range(3).withColumn("p", on_spark.predict_udf(model))
