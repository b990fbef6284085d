"""The front door: rows as people have them in, labels and probabilities out."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, overload

import numpy as np

from folklearn import serialization, validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate.monitor import Monitor
from folklearn.evaluate.regression import Regression
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.passes import MapReduce
from folklearn.metrics.accumulator import Metrics, Window
from folklearn.metrics.predictions import PredictionBatch, log_loss, probability_of_label
from folklearn.model import roles as known_roles
from folklearn.model.batch import RowBuffer
from folklearn.model.dataset import ModelDataset, UnlearnedValues, make_encoder
from folklearn.model.explain import Explanation, explain_model
from folklearn.model.export import make_onnx
from folklearn.model.labels import PendingPrediction, encode_labels
from folklearn.model.refit import refit_tables
from folklearn.model.row_explanation import RowExplanation, explain_rows, make_table
from folklearn.model.run import Run
from folklearn.model.summary import ModelSummary, render_report
from folklearn.model.table_classifier import FixedPipeline, TableClassifier
from folklearn.readers.open import as_table
from folklearn.readers.table import Table, not_a_row_error, table_from_records
from folklearn.serialization import Record
from folklearn.utils import count_of, join_names

_ROWS_PER_LOOK = 256  # at columns, where the model is watched
_NO_EVIDENCE = "the model was saved with inference=True, without its evidence"
_UNCOUNTED = "a call was interrupted that had learned rows, and their loss was not counted"


class Model(TableClassifier):
    r"""A model that learns rows as they come, and says what it is worth.

    It takes dictionaries, data frames and files. Nothing has to be declared: columns get roles
    (number, category, words, date, id) from their first values, classes are learned when they
    appear, values may be missing, labels may be of any type, or soft (a dictionary of
    probabilities). No learning rate has to be chosen.

    Two losses are kept: the *progressive* one, of predictions made just before each label came, and
    the *hold-out* one, of rows ahead by the model as it would be saved (`HoldoutWeights`).
    `predict_one` and `predict_proba_one` are for a row whose label comes soon; `predict` and
    `predict_proba` for rows that the model will not follow. After `fit` all of them are the fit.

    Parameters
    ----------
    learner : name of a learner, see `folklearn.learners.catalogue`. The default needs no settings.
    roles : of columns whose role is not to be guessed, by name: "number", "category", "words",
        "date", "id", "weight", "target", "ignored".
    crosses : pairs of columns, such as ``[("country", "device")]``, whose products count too.
    classes : labels that are known in advance, in order. They are never "unseen".
    class_weight : weight of the rows of a class by label, 1 for others; or "balanced", which `fit`
        and `run` over a file or a frame can know.
    scale, intercept : standardise numbers on line; append a constant.
    terms : curves, products and waves of the columns next to the columns themselves, chosen after
        64 rows and again after 256: "auto", as many as a budget of operations for a row allows,
        with the learner "auto"; "none" for a linear model; "all" without a budget. Words, and
        rows without `scale`, have none; columns next to words do.
    missing : texts and numbers, such as ``("unknown", -999)``, that stand for a missing value in
        every column. None, NaN and empty texts always do; in columns of numbers and dates so do NA,
        N/A, n.a., #N/A, NaN, null, None, "?" and "-".
    windows : keep lower bounds for recent windows too (`windows`), which takes longer.
    coverage : shares of labels that sets of `predict_set` should have, declared from the first row
        on; () for no sets. With ``coverage_by="class"`` each class has its own thresholds.
    device : of the learners "auto" and "leader": "cpu", the default, or a device of PyTorch such as
        "cuda" (extra ``gpu``). It is not saved: a model that is loaded is on the CPU, see `to`.
    settings : parameters of the learner, such as ``lam=0.1``.

    Attributes
    ----------
    metrics : totals over the stream, its segments, classes and columns (`Metrics`); saved with it.
    sets : how often prediction sets missed the label, with a bound (`PredictionSets`).
    pending : the rows that wait for their labels, by number.

    Examples
    --------
    >>> import folklearn
    >>> model = folklearn.Model()
    >>> rows = [(31, "PE", "churn"), (58, "DE", "stay"), (25, "PE", "churn")] * 9
    >>> for age, country, label in rows:
    ...     model.learn_one({"age": age, "country": country}, label)
    >>> model.predict_one({"age": 28, "country": "PE"})
    'churn'
    >>> p, number = model.ask({"age": 60, "country": "DE"})  # the label comes later
    >>> model.tell(number, "stay")
    """

    _monitor: Monitor | None = None

    def _forget(self) -> None:
        super()._forget()
        self.hindsight: Regression | None = None
        self.metrics, self.recent = Metrics(), RowBuffer()
        self._n_asked, self.pending = 0, dict[int, PendingPrediction]()
        if self._monitor is not None:
            self._monitor.forget()

    def learn_one(
        self,
        x: Mapping[Any, Any],
        y: Any,
        *,
        weight: float = 1.0,
        asked: PendingPrediction | None = None,
    ) -> None:
        """Learn one row, a mapping of column names to values, and its label.

        The loss that counts is that of `asked`, if it was predicted before (`tell`). What is not
        a row of known columns with a known label is a table of one, which names what is wrong.
        """
        pipeline, encoder, labels = self.pipeline, self.encoder, self.label_encoder
        try:
            number = labels.numbers.get(y)
        except TypeError:  # not hashable: a soft label
            number = None
        if (
            number is None
            or type(labels.kept[number]) is not type(y)
            or labels.class_weight is not None
            or pipeline is None
            or encoder is None
            or (row := encoder.encode_row(x)) is None
        ):
            return self._learn_table_of_one(x, y, weight, asked)
        try:
            p, unseen = pipeline.learn_row(row, number, weight)
        except InvalidInputError:  # nothing was learned
            return self._learn_table_of_one(x, y, weight, asked)
        if asked is not None:
            p, unseen = asked.p, asked.unseen
        elif not self.is_open:
            unseen = 0.0
        weight, holdout_loss = float(weight), pipeline.holdout.loss
        self.metrics.add_one(p, number, unseen, weight, holdout_loss, row, encoder.absent)
        if self.has_window_bounds:
            self.metrics.note_lower_bounds(self.windows)
        self.recent.add_row(dict(x), number)
        self.hindsight = None
        p_label = probability_of_label(p, number, unseen)
        if self.sets.coverage:
            self.sets.observe(p_label, number, None if asked is None else asked.thresholds)
        if self._monitor is not None:  # once the row is learned: its alert may raise
            self._monitor.observe(log_loss(p_label))
            self._watch_columns(1)
        return None

    def _learn_table_of_one(
        self, x: Mapping[Any, Any], y: Any, weight: float, asked: PendingPrediction | None
    ) -> None:
        weights = np.array([validation.weight(weight)])
        encoded = self.label_encoder.encode([y], weights)
        if not isinstance(x, Mapping):
            raise not_a_row_error(x)
        self._learn_table(table_from_records([x], [1]), *encoded, x, asked)

    def ask(self, x: Mapping[Any, Any]) -> tuple[dict[Any, float], int]:
        """Predict a row whose label comes later; return probabilities and its number.

        What waits for its label is in `pending`, and saved with the model.
        """
        p = self.predict_proba_one(x)
        self._n_asked += 1
        parts = np.array([*p.values()]), self.unseen_probability, self.sets.thresholds
        self.pending[self._n_asked] = PendingPrediction(dict(x), *parts)
        return p, self._n_asked

    def tell(self, asked: int | PendingPrediction, y: Any, *, weight: float = 1.0) -> None:
        """Learn the row that was asked for; the loss that counts is that of the prediction then."""
        if isinstance(asked, PendingPrediction):
            prediction, number = asked, 0
        elif (number := validation.count("the number of a row", asked, 1)) in self.pending:
            prediction = self.pending[number]
        else:
            raise InvalidInputError(
                f"no row waits under the number {asked!r}: it was never asked for, or has its label"
            )
        label, _ = self.label_encoder.read(y)
        if not prediction.unseen and (type(label) is not int or label >= len(prediction.p)):
            # All classes were declared then: a new one costs what `learn_one` would say.
            unseen = 0.5 if self.pipeline is None else self.pipeline.unseen_probability
            prediction = prediction._replace(unseen=unseen)
        n_rounds = self.n_rounds
        try:
            self.learn_one(prediction.x, y, weight=weight, asked=prediction)
        finally:
            if self.n_rounds > n_rounds:  # also if an alert raised
                self.pending.pop(number, None)

    def learn_many(self, rows: Any, y: Any, *, weight: Any = None) -> PredictionBatch:
        """Predict, then learn, rows (a frame, dictionaries, a matrix) with labels y, one by one.

        y holds a label for every row, some may be soft; `weight` is one number, or one for each.
        """
        table = as_table(rows)
        if weight is not None and np.ndim(weight) == 0:
            weight = np.full(len(table), validation.weight(weight))
        weights = validation.weights(weight, len(table))
        return self._learn_table(table, *self.label_encoder.encode(y, weights))

    def _learn_table(
        self,
        table: Table,
        numbers: Any,
        new: Sequence[Any],
        weights: Array,
        row: Mapping[Any, Any] | None = None,
        asked: PendingPrediction | None = None,
    ) -> PredictionBatch:
        """Predict, then learn, a table, or one `row`; the rest is from `LabelEncoder.encode`."""
        encoder, pipeline, was_open = self.encoder, self.pipeline, self.is_open
        if encoder is None:
            encoder = make_encoder(self, table, len(new), is_row=row is not None)
        batch = encoder.encode(table)
        if pipeline is None:
            pipeline = self._make_pipeline(encoder, batch)
        validation.check_contexts(batch.X.numbers if encoder.sparse else batch.X, gaps=True)
        if batch.dense is not None:
            validation.check_contexts(batch.dense.X, gaps=True)
        labels, soft = numbers, validation.NO_SOFT_ROWS
        if numbers.ndim == 2:
            labels, soft = encode_labels(numbers, len(table), pipeline.n_classes)
            numbers = soft  # which sum to 1: what the loss counts is what the evidence counts
        late = encoder.describe_late(batch) if batch.keys or batch.dense else {}
        n_rounds, sentences = pipeline.n_rounds, list[str]()
        try:
            P, u = pipeline.run_checked(batch.X, labels, soft, weights, **late)
        finally:
            if pipeline.n_rounds > n_rounds:
                # Also after an interrupt: what has grown must have its names.
                self.encoder, self.pipeline, self.hindsight = encoder, pipeline, None
                if batch.keys or batch.roles or batch.dense:
                    sentences = encoder.admit_batch(batch)
                if new and pipeline.n_classes > len(self.label_encoder):
                    self.label_encoder.admit(new[: pipeline.n_classes - len(self.label_encoder)])
                    self.is_open = True
        n_known = pipeline.n_known
        if not was_open:  # until a class comes that was not declared
            u[np.logical_and.accumulate(np.diff(n_known, append=pipeline.n_classes) == 0)] = 0.0
        if asked is not None:
            P = np.pad(asked.p, (0, P.shape[1] - len(asked.p)))[None]
            u, n_known = np.array([asked.unseen]), np.array([len(asked.p)])
        values = batch.X.values_by_place(len(encoder.absent)) if pipeline.sparse else batch.X
        predicted = PredictionBatch.of(
            P, u, numbers, n_known, weights, pipeline.holdout_losses, values, encoder.absent
        )._replace(encoded=batch.X)
        if self.label_encoder.class_weight is not None:
            row_weights = self.label_encoder.undo_class_weight(numbers, weights)
            predicted = predicted._replace(row_weights=row_weights)
        self._count(predicted, None if asked is None else asked.thresholds)
        if row is None:
            self.recent.add(table, predicted.labels)
        else:
            self.recent.add_row(dict(row), int(predicted.labels[0]))
        for name in (name for name in sentences if name not in self.asked_roles):
            known_roles.warn_of_sentences(name)
        if self._monitor is not None:  # last: its alert may raise
            self._monitor.observe_many(predicted.losses)
            self._watch_columns(len(weights))
        return predicted

    def _count(self, predicted: PredictionBatch, issued: Array | None) -> None:
        """Add rows to what is counted, with the thresholds of prediction sets that were issued."""
        self.metrics.add(predicted)
        n_rows, labels = len(predicted.P), predicted.labels
        if self.sets.coverage:
            p_class = predicted.P[np.arange(n_rows), labels]
            p_class = np.where(labels < predicted.known, p_class, predicted.unseen)
            self.sets.observe_many(p_class, labels, issued)
        if self.has_window_bounds:
            self.metrics.note_lower_bounds(self.windows, n_rows)

    def run(
        self,
        source: Any,
        target: str | None = None,
        *,
        weight: str | None = None,
        one_pass: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        progress: bool = False,
        exact: bool | None = None,
        **options: Any,
    ) -> Run:
        """Predict, score, then learn the rows of a file, a frame or dictionaries, one by one.

        Parameters
        ----------
        source : a path ("-" is standard input), a data frame, or an iterable of dictionaries.
        target, weight : the columns of labels and weights; svmlight and VW text have none to name.
        one_pass : do not read a file twice: classes and categories are learned as they come.
        shuffle : learn the rows in a random order, given by `seed`; they must fit in memory.
        progress : show a bar.
        exact : fit a logistic regression to all rows afterwards (`Run.hindsight`), which keeps them
            in memory; None does so for at most 3,000 weights and 4 million numbers.
        options : of the reader: format, delimiter, encoding, decimal; and on_bad, a function that
            takes every row that cannot be read, which is then left out.
        """
        dataset = ModelDataset(
            self, source, target, weight=weight, one_pass=one_pass,
            shuffle=seed if shuffle else None, **options,
        )  # fmt: skip
        run = Run(self, dataset.reader.name, exact)
        for rows, result in dataset.steps(progress=progress):
            run.add(rows, result)
        return run.finish()

    def fit(
        self,
        source: Any,
        target: str | None = None,
        *,
        weight: str | None = None,
        passes: int | None = None,
        seed: int = 0,
        progress: bool = False,
        n_jobs: int = 1,
        device: str | None = None,
        exact: bool | None = None,
        **options: Any,
    ) -> Self:
        """Learn a file or a frame as a batch: shuffled, then fitted until nothing changes.

        Whatever was learned before is forgotten. Learners other than "auto" learn every row once.
        `hindsight` is then what an ordinary regression would have, `exact` as for `run`. `passes`
        limits how often the rows are gone over, 1 learns each once. `n_jobs` threads share the
        passes, -1 for as many as there are cores, with the same model to the last bit. ``device``
        is where sums are made, by default that of the model.
        """
        MapReduce.from_options(n_jobs, device)  # checks, before anything is learned
        self._forget()
        dataset = ModelDataset(self, source, target, weight=weight, shuffle=seed, **options)
        tables, run = [], Run(self, dataset.reader.name, exact)
        for rows, result in dataset.steps(progress=progress):
            tables.append(rows.take_labelled())
            run.add(rows, result)
        if self.learner_name == "auto" and passes != 1:
            refit_tables(self, tables, most_passes=passes, seed=seed, n_jobs=n_jobs, device=device)
        run.regress()
        return self

    def certificate(self) -> Certificate | None:
        """Return what no linear model of the columns could have beaten; None before two classes.

        It is about every one, numbers standardised once, with its penalty (C = 1) counted.
        ``certificate().at_norm(b)`` is about the loss alone of weights of at most that norm.
        """
        pipeline, encoder, loss = self.pipeline, self.encoder, self.metrics.loss
        if pipeline is None or encoder is None:
            return None
        if not self._has_counted_all:
            reason = _NO_EVIDENCE if isinstance(pipeline, FixedPipeline) else _UNCOUNTED
            return Certificate(loss, math.inf, self.n_rounds, valid=False, reason=reason)
        return pipeline.certificate(loss, encoder.in_words if self.scale else "as they are")

    @property
    def _has_counted_all(self) -> bool:  # an interrupt may lose the loss of rows that were learned
        return self.pipeline is not None and self.pipeline.evidence.n_rows == self.metrics.n_rows

    def windows(self, n_rows: int | None = None) -> list[Window]:
        """Return losses and errors of the last 64, 128, ... rows, and of all; or of `n_rows`.

        With ``windows=True`` each has a lower bound on the total loss of every linear model there.
        """
        pipeline, windows = self.pipeline, self.metrics.windows(n_rows)
        if pipeline is None or not (self.has_window_bounds and self._has_counted_all):
            return windows
        sums = pipeline.evidence.suffixes(min((w.start for w in windows), default=0))
        return [
            replace(w, lower_bound=sums[w.start].lower_bound()) if w.start in sums else w
            for w in windows
        ]

    def _watch_columns(self, n_rows: int) -> None:
        n = self.n_rounds
        if n // _ROWS_PER_LOOK > (n - n_rows) // _ROWS_PER_LOOK and self._monitor is not None:
            self._monitor.observe_columns(self.metrics.find_shifts(self.encoder))

    def monitor(self, alert: Callable[[Any], Any] | None = None, **settings: Any) -> Monitor:
        """Watch the loss of every row from now on, each counted once; return the `Monitor`.

        `alert` is called with every `Alarm`, once the rows that raised it are learned, and with a
        `ColumnAlarm` where a column has changed, looked for at every 256 rows. It is not saved:
        called again, this hands over another one, and begins anew only if `settings` (alpha, rise,
        cap) are others.
        """
        monitor = self._monitor
        if not (alert is None or callable(alert)):
            raise InvalidInputError(f"alert must be a function of an alarm, got {alert!r}")
        if monitor is None or any(getattr(monitor, n, None) != settings[n] for n in settings):
            monitor = self._monitor = Monitor(start=self.n_rounds, **settings)
        if alert is not None:
            monitor.alert = alert
        return monitor

    @overload
    def explain(self, *, importance: bool = True) -> Explanation: ...

    @overload
    def explain(self, row: Any) -> RowExplanation: ...

    def explain(self, row: Any = None, *, importance: bool = True) -> Any:
        """Return weights and shapes of columns, and what recent rows lose without each column.

        Of a row (a mapping, or a table of one row): why it is predicted as it is, by column.
        """
        if row is None:
            return explain_model(self, importance=importance)
        table, unlearned = make_table(self, row), UnlearnedValues(self)
        explained = next(explain_rows(self, table))
        unlearned.count(table)
        unlearned.warn()
        return explained

    def report(self, path: Any = None, *, title: str = "Report on a model") -> str:
        """Return the text of one HTML page about its life, self-contained; write it to a path."""
        if not self.n_rounds:
            raise InvalidInputError("there is nothing to report: the model has learned nothing yet")
        return render_report(title, ModelSummary.of_model(self), path)

    def release_rows(self) -> None:
        """Let go of every row of the data; it goes on to learn, predict and prove.

        Recent rows and those that wait for labels (`pending`) are dropped. Rows that wait to enter
        sums enter them now: bounds hold, a little less tight for later rows.
        """
        if self.pipeline is not None:
            self.pipeline = self.pipeline.without_rows()
        self.metrics.release_rows()
        self.sets = self.sets.copy()  # without labels that wait
        self.recent, self.pending = RowBuffer(), {}

    def save(self, path: str | os.PathLike[str], *, inference: bool = False) -> None:
        """Write the full state to a file; `folklearn.load` resumes exactly.

        With `inference` only what predictions and `explain` of a row need; it cannot learn.
        """
        serialization.write(path, (self._copy_to_save() if inference else self).to_record())

    def _copy_to_save(self) -> Self:
        pipeline, _ = self._check_learned()
        copied = self._shallow()
        copied.pipeline = FixedPipeline.of(pipeline)
        copied.recent, copied.pending = RowBuffer(), {}
        copied.metrics = self.metrics.without_columns()
        copied.hindsight, copied._monitor = None, None
        return copied

    def export(
        self, path: str | os.PathLike[str], *, categories: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        """Write what `predict_proba` gives as an ONNX file (extra ``onnx``), for other runtimes.

        Inputs are the columns by name: numbers float64, categories texts, dates seconds since 1970;
        outputs `label` and `probabilities`. Words have no such form. `categories` lists further
        ones of columns with more than a hundred.
        """
        serialization.write_bytes(path, make_onnx(self, categories))

    COUNTERS = ("_n_asked",)
    STATE: ClassVar[Mapping[str, Any]] = {
        **TableClassifier.STATE, "recent": RowBuffer, "metrics": Metrics, "_monitor": Monitor
    }  # fmt: skip

    def to_record(self) -> Record:
        record = super().to_record()
        record.config["pending"] = [[n, *row.plain()] for n, row in self.pending.items()]
        if self.hindsight is not None:
            record.config["hindsight"] = self.hindsight.numbers()
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        for n, *row in record.word("pending"):
            self.pending[int(n)] = PendingPrediction.of_plain(*row)
        if "hindsight" in record.config:
            self.hindsight = Regression.of_numbers(record.word("hindsight"))
        if self.recent.rows()[1].max(initial=-1) >= len(self.label_encoder):
            raise StateFileError("a Model state has recent rows of classes that it does not have")

    def __repr__(self) -> str:
        learned = f"Model({self.learner_name!r}), {count_of(self.n_rounds, 'row')} learned"
        if not self.n_rounds:
            return learned
        classes = f"{len(self.labels)} class{'es' * (len(self.labels) != 1)}"
        names = join_names(list(map(str, self.labels)))
        return f"{learned}, {classes}: {names}, loss {self.metrics.average_loss:.4f}"
