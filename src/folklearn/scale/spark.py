"""Spark: audits and fits of large tables, a model for every key of a stream, predictions.

Functions take and return data frames of Spark, and compute in executors, which need this library
too. Needs the extra: ``pip install 'folklearn[spark]'``, and Java 17 or newer.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from folklearn.arrays import Array, log_losses
from folklearn.errors import InvalidInputError
from folklearn.evaluate.auditing import PredictionCertificate, PredictionLoss
from folklearn.evaluate.best_linear import Report as PassReport
from folklearn.evaluate.regression import regress
from folklearn.kernels.blas import OneThread
from folklearn.metrics.scores import check_probabilities
from folklearn.model import refit
from folklearn.model.dataset import ModelDataset
from folklearn.model.model import Model
from folklearn.model.roles import LEARNED
from folklearn.scale.folding import FoldEvent, FoldOutput, fold, model_of
from folklearn.scale.spark_passes import ScaledPasses, ScoredRows, SparkPasses
from folklearn.utils import count_of, import_optional, join_names
from folklearn.validation import Rows

_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE = "model"  # name of the state variable of a key
_PREDICTED = ("prediction", "probability", "chance", "refused")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# Types of columns, and what messages say of them.
_FEATURES = (*_INTEGERS, "boolean", "float", "double"), "features must be numbers"
_SEQUENCE = _INTEGERS, "sequence numbers must be whole numbers"
_LABEL_TYPES = *_INTEGERS, "string", "boolean", "double"
_LABELS = _LABEL_TYPES, "labels must be text, numbers or truth values"


def audit(
    df: Any,
    *,
    features: Sequence[str],
    label: str,
    prediction: Mapping[Any, str],
    weight: str | None = None,
    C: float = 1.0,
    tol: float = 1e-6,
    most_passes: int = 500,
    report: PassReport | None = None,
) -> PredictionCertificate:
    """Certify predictions that a table holds: how much better could a linear model do?

    It is `Certifier.exact`, with its guarantee, for tables that no machine holds, of columns that
    are standardised and have a constant beside them, whose weights are hardly penalised. Another
    number of partitions gives another order of sums, and differs by rounding.

    Parameters
    ----------
    df : a data frame of Spark.
    features : columns of numbers, none missing.
    label : the column of labels.
    prediction : the column of probabilities of every class, by label.
    weight : a column of weights.
    C : inverse of the penalty, as in scikit-learn.
    tol, most_passes, report : of `regress`.
    """
    names = [*features, label, *prediction.values(), *([] if weight is None else [weight])]
    _check_columns(df, names, dict.fromkeys(features, _FEATURES))
    labels = list(prediction)
    _check_same_labels(df, label, labels)
    _check_missing(df, names)
    table = df.select(*(_column(name) for name in dict.fromkeys(names)))
    sizes = {"n_features": len(features) + 1, "n_classes": len(labels)}

    def blocks_of(batches: Iterable[Any]) -> Iterator[ScoredRows]:
        numbers = {value: k for k, value in enumerate(labels)}
        for batch in batches:
            y = np.array([numbers[value] for value in batch[label].to_pylist()], np.int64)
            weights = None if weight is None else _matrix(batch, [weight])[:, 0]
            X = _matrix(batch, features)
            rows = Rows.checked(X, y, weights, n_features=X.shape[1], n_classes=len(labels))
            P = check_probabilities(_matrix(batch, prediction.values()), len(y), len(labels))
            yield ScoredRows(rows, log_losses(P, rows.labels, rows.soft))

    with SparkPasses(table, blocks_of) as passes:
        predicted = passes.of_partitions(_sum_losses)
        best = regress(
            ScaledPasses(passes, len(features)), **sizes, C=C, constant=0, tol=tol,
            most_passes=most_passes, report=report,
        )  # fmt: skip
    sizes = {"n_rounds": passes.n_rows, "n_classes": len(labels)}
    certificate = predicted.against(best.at_least, **sizes, C=best.C)
    return replace(certificate, models="the columns (numbers standardised by all rows)")


def _sum_losses(first: int, blocks: Iterable[ScoredRows]) -> PredictionLoss:
    total = PredictionLoss()
    for rows, losses in blocks:
        total += PredictionLoss.of(losses, rows.weights, first)
        first += len(losses)
    return total


def fit(
    df: Any,
    *,
    label: str,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    sample: int = 10_000,
    most_passes: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> Model:
    """Return a model fitted to all rows of a table: penalised maximum likelihood.

    The first `sample` rows are learned by a `Model` on the driver: what columns are, which
    categories and terms there are, how numbers are scaled. Then executors turn all rows into
    numbers once, and the fit is that of `Model.fit`, every Newton step a pass. ``terms="none"``
    halves the passes. A category that is not in the sample has no weight: sort the table at random
    if its first rows are not like the others. Words, and problems too large for sums over all pairs
    of classes, are refused.

    Parameters
    ----------
    df : a data frame of Spark, which has the same rows in the same order whenever it is read.
        Files alone have an order that depends on the number of cores, ``df.orderBy`` does not.
    label : the column of labels; rows without are left out.
    features : columns to learn from, by default all others.
    weight : a column of weights.
    sample : rows for the driver.
    most_passes : for each ridge and fold, and for the last fit.
    seed : of the folds.
    settings : of the `Model`.
    """
    special = [label] if weight is None else [label, weight]
    types = _check_columns(df, [*(features or ()), *special], {label: _LABELS})
    names = [name for name in types if name not in special] if features is None else list(features)
    table = df.select(*(_column(name) for name in [*names, *special])).where(
        _column(label).isNotNull()
    )
    model = Model(**settings)
    heaviest = 1.0 if weight is None else table.agg({weight: "max"}).first()[0]
    counts = sorted(map(tuple, table.groupBy(_column(label)).count().collect()))
    if len(counts) < 2:
        raise InvalidInputError(f"column {label!r} needs two classes, and rows to learn")
    model.declare(
        [value for value, _ in counts], counts=[n for _, n in counts], max_weight=heaviest or 1.0
    )
    model.run(table.limit(sample).toArrow(), label, weight=weight)
    assert model.pipeline is not None
    refit.check_fit_size(model.pipeline)
    content = model.to_bytes()

    def blocks_of(terms: bool, batches: Iterable[Any]) -> Iterator[ScoredRows]:
        import pyarrow as pa

        fitted = model_of(content)
        for batch in batches:
            dataset = ModelDataset(fitted, pa.table(batch), label, weight=weight, one_pass=True)
            for rows in dataset.rows():
                chunk, y, weights = rows.take_labelled()
                numbers, _, weights = fitted.label_encoder.encode(y, weights)
                encoder, pipeline = fitted.encoder, fitted.pipeline
                assert encoder is not None
                assert pipeline is not None
                X = encoder.encode_known(chunk)
                yield ScoredRows(refit.rows_to_fit(pipeline, X, numbers, weights, terms=terms))

    limits = {"seed": seed, **({} if most_passes is None else {"most_passes": most_passes})}
    terms = None
    if refit.gaussian_of_terms(model.pipeline) is not None:
        with SparkPasses(table, partial(blocks_of, True)) as passes:
            terms = refit.fit_terms_over(model.pipeline, passes, **limits)
    with SparkPasses(table, partial(blocks_of, False)) as passes:
        refit.refit_over(model.pipeline, passes, terms=terms, **limits)
    return model


def learn_keyed(
    stream: Any, *, key: str, sequence: str, label: str, weight: str | None = None, **settings: Any
) -> Any:
    """Return predictions of a stream by one model for each key, made just before it learns.

    Every event is one update of its model, in the order of `sequence`, by `fold`. The models are
    exact, byte by byte, after a crash too: Spark commits them with the offsets of the stream.

    The columns that come out are key and sequence; ``prediction``, the most likely label, and its
    ``probability``; ``chance``, the probability that the true label was given, so that the
    progressive loss is the mean of ``-ln(chance)``; and ``refused``, why an event was not
    learned, null for all others. An event without a label is only predicted. One whose number is
    not above the last one that its model learned is refused: a source may deliver more than once.

    States are kept in RocksDB, and read and written once in a micro-batch that has their key. The
    number of shuffle partitions is fixed for the life of a checkpoint.

    Parameters
    ----------
    stream : a streaming data frame; all columns but the four that follow are features.
    key : the column that says which model an event is for.
    sequence : a column of whole numbers that increase from event to event of a key.
    label : the column of labels: text, whole numbers, truth values or doubles.
    weight : a column of weights.
    settings : of every `Model`, such as ``learner="leader"``.
    """
    import_optional("google.protobuf", "keyed models on Spark need", "spark")
    names = [key, sequence, label, *([] if weight is None else [weight])]
    types = _check_columns(stream, names, {sequence: _SEQUENCE, label: _LABELS})
    if set(_PREDICTED) & {key, sequence}:
        raise InvalidInputError(
            f"the columns {join_names(_PREDICTED)} are added: rename {key!r} or {sequence!r}"
        )
    Model(**settings)  # raises for bad settings
    stream.sparkSession.conf.set("spark.sql.streaming.stateStore.providerClass", _STORE)
    output = (
        f"`{key}` {types[key]}, `{sequence}` {types[sequence]}, prediction {types[label]}, "
        "probability double, chance double, refused string"
    )
    processor = _KeyedProcessor(key, sequence, label, weight, settings)
    return stream.groupBy(key).transformWithState(
        processor, output, outputMode="Append", timeMode="None"
    )


@dataclass(eq=False)
class _KeyedProcessor:
    """Folds the events of a key into its model: a `StatefulProcessor` of Spark."""

    key: str
    sequence: str
    label: str
    weight: str | None
    settings: dict[str, Any]

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState(_STATE, "state binary, last bigint")

    def handleInputRows(self, key: Any, rows: Iterable[Any], timers: Any) -> Iterator[Any]:
        state, last = self._state.get() if self._state.exists() else (None, None)
        new: list[Any] = []
        sequence = self.sequence
        for row in sorted(rows, key=lambda row: (row[sequence] is not None, row[sequence] or 0)):
            number = row[self.sequence]
            if number is None:
                why = "there is no sequence number"
                yield self._answer(row, FoldOutput({}, math.nan, why))
            elif last is not None and number <= last:
                why = f"the sequence number is not above {last}, which is in the model"
                yield self._answer(row, FoldOutput({}, math.nan, why))
            else:
                new.append(row)
                last = number
        if new:
            state, outputs = fold(state, map(self._event, new), **self.settings)
            self._state.update((state, last))
            yield from map(self._answer, new, outputs)

    def _event(self, row: Any) -> FoldEvent:
        values = row.asDict()
        label = values.pop(self.label)
        weight = 1.0 if self.weight is None else values.pop(self.weight)
        del values[self.key], values[self.sequence]
        return FoldEvent(values, label, weight)

    def _answer(self, row: Any, output: FoldOutput) -> Any:
        from pyspark.sql import Row

        true, predicted, refused = row[self.label], output.label, output.refused or None
        chance = None if true is None or refused else output.chance(true)
        values = predicted, output.p.get(predicted), chance, refused
        keys = {self.key: row[self.key], self.sequence: row[self.sequence]}
        return Row(**keys, **dict(zip(_PREDICTED, values, strict=True)))

    def close(self) -> None:
        """Do nothing: no resource is held."""


def read_models(spark: Any, checkpoint: str) -> dict[Any, Model]:
    """Return the models of a stream by key, as its last finished micro-batch left them.

    All of them come to the driver; ``spark.read.format("statestore")`` gives a table instead.
    """
    rows = spark.read.format("statestore").option("stateVarName", _STATE).load(checkpoint)
    states = rows.select("key", "value.state").toLocalIterator()
    return {row["key"][0]: model_of(bytes(row["state"])) for row in states}


def predict_udf(model: Model) -> Any:
    """Return a column of probabilities, in the order of ``model.labels``: an array for every row.

    ``df.withColumn("p", predict_udf(model))`` takes the columns that the model knows from `df`,
    by name, and gives what ``model.predict_proba`` gives.
    """
    functions = import_optional("pyspark.sql.functions", "predictions on Spark need", "spark")
    import pyarrow as pa

    if model.pipeline is None:
        raise InvalidInputError("the model has learned nothing yet: `learn_one`, `run` or `fit`")
    content = model.to_bytes()

    def predict(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        copied = model_of(content)
        with OneThread(everywhere=True):
            for batch in batches:
                P = copied.predict_proba(pa.Table.from_struct_array(batch))
                yield pa.array(list(P), pa.list_(pa.float64()))

    udf = functions.arrow_udf(predict, "array<double>")
    names = [name for name, role in model.roles.items() if role in LEARNED]
    return udf(functions.struct(*map(_column, names)))


def _column(name: str) -> Any:
    functions = import_optional("pyspark.sql.functions", "this needs", "spark")
    return functions.col("`" + name.replace("`", "``") + "`")


def _matrix(batch: Any, names: Iterable[str]) -> Array:
    columns = [batch[name].to_numpy(zero_copy_only=False) for name in names]
    return np.stack(columns, axis=1).astype(np.float64)


def _check_columns(
    df: Any, names: Iterable[str], rules: Mapping[str, tuple[Sequence[str], str]]
) -> dict[str, str]:
    """Return the type of every column; `rules` are types that one may have, and what to say."""
    if not hasattr(df, "sparkSession"):
        raise InvalidInputError(f"expected a data frame of Spark, got {type(df).__name__}")
    types = dict(df.dtypes)
    for name in names:
        if name not in types:
            raise InvalidInputError(
                f"there is no column {name!r}; the columns are: {join_names(list(types))}"
            )
    for name, (accepted, rule) in rules.items():
        if types[name] not in accepted:
            raise InvalidInputError(f"column {name!r} is of type {types[name]}, and {rule}")
    return types


def _check_missing(df: Any, names: Iterable[str]) -> None:
    functions = import_optional("pyspark.sql.functions", "this needs", "spark")
    wanted = list(dict.fromkeys(names))
    gaps = [functions.count_if(_column(name).isNull()) for name in wanted]
    for name, n in zip(wanted, df.select(*gaps).first(), strict=True):
        if n:
            raise InvalidInputError(
                f"column {name!r} has {count_of(n, 'missing value')}: fill it in (df.fillna) or "
                "leave these rows out (df.dropna)"
            )


def _check_same_labels(df: Any, label: str, labels: Sequence[Any]) -> None:
    for (value,) in df.select(_column(label)).distinct().collect():
        if value is not None and value not in labels:
            raise InvalidInputError(
                f"no prediction is named for the label {value!r} of column {label!r}; named are: "
                f"{join_names([str(label) for label in labels])}"
            )
