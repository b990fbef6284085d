"""`ModelSummary`: the facts of reports and pages, as sentences and tables."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import plots
from folklearn.arrays import Array
from folklearn.arrays import Labels as Numbers
from folklearn.errors import InvalidInputError
from folklearn.evaluate.regression import Regression
from folklearn.evidence.certificate import Certificate, round_down, round_up
from folklearn.metrics.accumulator import MIN_BOUNDED_ROWS, Metrics
from folklearn.metrics.records import ClassRecord, ColumnRecord, PredictionBatch
from folklearn.model.holdout import holdout_warning, is_degraded
from folklearn.report.formatting import format_about, format_loss, format_share
from folklearn.utils import count_of

if TYPE_CHECKING:
    from folklearn.model.explain import Explanation
    from folklearn.model.model import Model

NOTHING_PROVEN = "Nothing is proven before there is a second class."
_NO_ROWS_TO_PROVE = (
    "What could be gained cannot be said from predictions alone: it takes the rows that they are "
    "about."
)
_PREDICTED_BEFORE = "Every row was predicted before its label was known."
_NO_BOUND_OF_SEGMENTS = (
    "Lower bounds of segments were not kept: a model made with windows=True keeps them."
)

_MIN_ROWS_TO_JUDGE = 64
_MAX_LABEL_LENGTH = 40  # characters, in a sentence
_RECENT, _HALF = 7 / 8, 1 / 2  # shares of the stream: start of the recent rows, and of those before
_MIN_SEGMENTS_TO_COMPARE = 4
_DRIFT_STANDARD_ERRORS = 3.0
_LOW_RECALL, _MIN_ROWS_OF_CLASS = 0.5, 30
_LARGE_CALIBRATION_ERROR = 0.05
_MANY_MISSING, _MANY_OUTLIERS = 0.1, 0.01  # shares of rows
_MAX_TABLE_COLUMNS = 50


@dataclass(frozen=True)
class ModelSummary:
    """Metrics with what is known of the model, or of the predictions, that they are about.

    Attributes
    ----------
    labels : the classes.
    metrics : of the rows, which may be fewer than the model has learned.
    claims : sentences on what is proven.
    bounds : names of losses and bounds in nats a row, with their text.
    certificate : of the rows, None where there is none.
    columns : data quality by column.
    explanation : weights and importance, None where there is no model.
    notes : further sentences for the overview, and `warnings` for what needs attention.
    speed : a sentence, empty where it was not measured.
    """

    labels: Sequence[object]
    metrics: Metrics
    claims: Sequence[str]
    bounds: Sequence[tuple[str, str]] = ()
    certificate: Certificate | None = None
    columns: Sequence[ColumnRecord] = ()
    explanation: "Explanation | None" = None
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    speed: str = ""
    has_model: bool = True

    @classmethod
    def of_model(
        cls,
        model: "Model",
        metrics: Metrics | None = None,
        *,
        importance: bool = True,
        speed: str = "",
    ) -> "ModelSummary":
        """Summarise a model, with its metrics or those of its last rows."""
        if not model.n_rounds:
            raise InvalidInputError("there is nothing to report: the model has learned nothing yet")
        metrics = model.metrics if metrics is None else metrics
        certificate, pipeline = model.certificate(), model.pipeline
        has_weights = pipeline is not None and pipeline.learner is not None
        loss, holdout = model.metrics.average_loss, model.metrics.holdout_loss
        n_before, notes = model.n_rounds - metrics.n_rows, []
        if n_before > 0:
            notes = [f"Of {count_of(n_before, 'row')} learned before there is no record here."]
        return cls(
            model.labels,
            metrics,
            describe_claims(model, certificate),
            _bounds_of_model(model, certificate),
            certificate,
            [] if model.encoder is None else metrics.by_column(model.encoder),
            model.explain(importance=importance) if has_weights else None,
            notes,
            [f"Warning: {holdout_warning(loss, holdout)}."] if is_degraded(loss, holdout) else [],
            speed,
        )

    @classmethod
    def of_predictions(
        cls,
        labels: Sequence[object],
        P: Array,
        y: Numbers,
        certificate: Certificate | None = None,
        *,
        leader_loss: float = math.nan,
        hindsight: Regression | None = None,
        warnings: Sequence[str] = (),
    ) -> "ModelSummary":
        """Summarise predictions P (T, K) of labels y (T,), of any origin.

        `leader_loss` is the total loss of a linear model that learned the same rows on line,
        `hindsight` a regression of all of them.
        """
        n, zeros, metrics = len(y), np.zeros(len(y)), Metrics()
        empty = np.zeros((n, 0))
        metrics.add(
            PredictionBatch.of(
                P, zeros, y, np.full(n, P.shape[1]), zeros + 1.0, zeros * math.nan, empty, empty[0]
            )
        )
        if certificate is None:
            claims = [_NO_ROWS_TO_PROVE]
            return cls(labels, metrics, claims, warnings=warnings, has_model=False)
        loss, online_loss = certificate.loss / n, leader_loss / n
        gained = "A linear model that learned the same rows on line was no better."
        if online_loss < loss:
            gained = (
                f"A linear model that learned the same rows on line lost {format_loss(online_loss)}"
                f" a row: at least {format_loss(loss - online_loss)} could have been gained."
            )
        claims = [certificate.in_words(), gained, certificate.in_full()]
        bounds = [
            ("these predictions", format_loss(loss)),
            ("a linear model that learned on line", format_loss(online_loss)),
            *_bound_of_all(certificate, n),
        ]
        claims = claims if hindsight is None else [hindsight.in_words(), *claims]
        return cls(labels, metrics, claims, bounds, certificate, warnings=warnings, has_model=False)

    # Sentences.

    @property
    def overview(self) -> list[str]:
        """Sentences on accuracy, loss, what is proven, and drift."""
        return [self.accuracy, self.loss, *self.claims, self.drift, *self.notes]

    @cached_property
    def accuracy(self) -> str:
        """The share of rows predicted right, rounded so that it changes rarely."""
        n, error = self.metrics.n_rows, self.metrics.error_rate
        if n < _MIN_ROWS_TO_JUDGE:
            return "There are too few rows to say how good the predictions are."
        text = f"About {format_about(1.0 - error)} of all rows were predicted right"
        label, record = self.classes[0]
        return (
            f"{text}; always predicting {label[:_MAX_LABEL_LENGTH]!r} would have been right for "
            f"about {format_about(record.n_rows / n)}."
        )

    @cached_property
    def loss(self) -> str:
        """The average loss, and that of predicting the class frequencies."""
        if not self.metrics.n_rows:
            return "Its rows were learned before there was a record of them."
        text = (
            f"Of {self.metrics.n_rows:,} rows the average loss was "
            f"{format_loss(self.metrics.average_loss)} nats"
        )
        counts = np.array([record.n_rows for _, record in self.classes if record.n_rows], float)
        shares = counts / counts.sum()
        entropy = float(-(shares * np.log(shares)).sum())
        if not entropy > 0.0:
            return f"{text}."
        return f"{text}; predicting the frequency of each class would have lost " + (
            f"{format_loss(entropy)}."
        )

    @cached_property
    def drift(self) -> str:
        """Whether the loss of the last eighth of the rows differs from that before."""
        return describe_drift(self.segments)

    @cached_property
    def attention(self) -> list[str]:
        """What needs attention: classes, columns, and warnings."""
        by_class = list(zip(self.labels, self.metrics.by_class(), strict=False))
        found = describe_problems(by_class, self.columns, self.metrics.n_rows)
        return [*found, *self.warnings]

    @property
    def about_segments(self) -> str:
        """When rows were predicted, and what the lower bound in the plot is."""
        before = f"{_PREDICTED_BEFORE} " if self.has_model else ""
        if any(math.isfinite(one["lower_bound"]) for one in self.segments):
            models = "" if self.certificate is None else self.certificate.models
            return (
                f"{before}Hatched is a proven lower bound on the average loss, over the last rows "
                f"up to there (see its name), of every fixed {models}."
            )
        return f"{before}{_NO_BOUND_OF_SEGMENTS}" if self.has_model else ""

    @cached_property
    def worst_confusion(self) -> str:
        """Which class was predicted as which other one most often."""
        wrong = self.metrics.confusion
        np.fill_diagonal(wrong, 0)
        if not wrong.any():
            return "no row was predicted as another class"
        truth, predicted = divmod(int(wrong.argmax()), len(wrong))
        names = f"{self.labels[truth]} was predicted as {self.labels[predicted]}"
        return f"most often {names}, {int(wrong.max()):,} times"

    # Tables.

    @cached_property
    def segments(self) -> list[dict[str, float]]:
        """The segments as `plots.losses` takes them."""
        return segment_rows(self.metrics)

    @cached_property
    def classes(self) -> list[tuple[str, ClassRecord]]:
        """The records of the classes, the most frequent first."""
        records = zip(map(str, self.labels), self.metrics.by_class(), strict=False)
        return sorted(records, key=lambda pair: -pair[1].n_rows)

    @property
    def shown_columns(self) -> list[ColumnRecord]:
        """The columns with the most missing values, in their order."""
        worst = sorted(self.columns, key=lambda one: -one.n_missing)[:_MAX_TABLE_COLUMNS]
        return [one for one in self.columns if one in worst]

    @property
    def importance(self) -> list[tuple[str, float]]:
        """The columns by importance, the largest first."""
        found = {} if self.explanation is None else self.explanation.importance
        return sorted(found.items(), key=lambda pair: -pair[1])[:_MAX_TABLE_COLUMNS]

    @property
    def n_recent(self) -> int:
        """The rows that importance was measured on."""
        return 0 if self.explanation is None else self.explanation.n_recent

    @property
    def bound_name(self) -> str:
        """The name of the lower bounds of segments, on one line."""
        return " ".join(self.bound_label(of_segments=True).split())

    def bound_label(self, *, of_segments: bool = False) -> str:
        """Return the name of a lower bound in a plot; that of a segment covers more rows."""
        over = f",\nover {MIN_BOUNDED_ROWS}+ rows" * of_segments
        if self.certificate is None or not self.certificate.valid:
            return plots.BOUND + over
        norm = round_down(self.certificate.B)
        return f"lower bound,\nlinear models of\nnorm up to {norm}{over}"


def describe_claims(model: "Model", certificate: Certificate | None = None) -> list[str]:
    """Return what is proven about linear models of the rows of a model, in sentences."""
    certificate = certificate or model.certificate()
    if certificate is None:
        return [NOTHING_PROVEN]
    claims = [certificate.in_words(model.metrics.weight)]
    return claims if model.hindsight is None else [model.hindsight.in_words(), *claims]


def describe_drift(segments: Sequence[dict[str, float]]) -> str:
    """Compare the loss of the last eighth of the rows with that of the three eighths before.

    They differ if their means are more than three standard errors apart, by the spread of the
    segments.
    """
    n_rows = segments[-1]["stop"] if segments else 0
    recent = [one for one in segments if one["start"] >= _RECENT * n_rows]
    before = [one for one in segments if _HALF * n_rows <= one["start"] < _RECENT * n_rows]
    if min(len(recent), len(before)) < _MIN_SEGMENTS_TO_COMPARE:
        return "Whether it drifts cannot be told yet: there are too few rows."
    late, early = (np.array([one["loss"] for one in part]) for part in (recent, before))
    change = float(late.mean() - early.mean())
    error = math.sqrt(late.var(ddof=1) / len(late) + early.var(ddof=1) / len(early))
    losses = (
        f"In the last {recent[-1]['stop'] - recent[0]['start']:,} rows the average loss was "
        f"{format_loss(float(late.mean()))}, in the "
        f"{before[-1]['stop'] - before[0]['start']:,} before {format_loss(float(early.mean()))}"
    )
    if not abs(change) > _DRIFT_STANDARD_ERRORS * error:
        return f"No drift is seen. {losses}: within the usual variation."
    if change > 0.0:
        return f"The loss has become higher lately. {losses}. The data may have changed."
    return f"The loss has become lower lately. {losses}."


def describe_problems(
    classes: Iterable[tuple[object, Any]], columns: Iterable[Any] = (), n_rows: int = 0
) -> list[str]:
    """Return what needs attention in records by class and by column."""
    found = []
    for label, one in classes:
        if one.n_rows >= _MIN_ROWS_OF_CLASS and one.recall < _LOW_RECALL:
            share = format_share(one.recall)
            found.append(f"Of {one.n_rows:,} rows of class {label} only {share} were found.")
        if one.calibration_error > _LARGE_CALIBRATION_ERROR:
            share = format_share(one.calibration_error)
            found.append(f"Probabilities of class {label} are off by {share} on average.")
    for one in columns:
        if one.first is None:
            found.append(f"Column {one.name} never had a value.")
            continue
        n_since = n_rows - one.first
        n_missing = one.n_missing - one.first
        if n_missing > _MANY_MISSING * n_since:
            share = format_share(n_missing / n_since)
            found.append(f"Column {one.name} is empty in {share} of the rows.")
        if one.n_outliers > _MANY_OUTLIERS * n_since:
            found.append(f"Column {one.name} has {count_of(one.n_outliers, 'outlier')}.")
        if one.new_categories:
            new = count_of(len(one.new_categories), "value")
            found.append(f"Column {one.name} had {new} that came late.")
    return found


def segment_rows(metrics: Metrics) -> list[dict[str, float]]:
    """Return the segments of metrics as `plots.losses` takes them, averages a row."""
    return [
        {
            "start": one.start,
            "stop": one.stop,
            "loss": one.loss / one.weight if one.weight > 0.0 else math.nan,
            "lower_bound": one.lower_bound if math.isfinite(one.lower_bound) else math.nan,
            "error_rate": one.n_errors / max(1, one.stop - one.start),
            "holdout": one.holdout_loss,
        }
        for one in metrics.segments
    ]


def _bounds_of_model(model: "Model", certificate: Certificate | None) -> list[tuple[str, str]]:
    """Return losses and proven bounds, over all rows and lately."""
    bounds = [("average loss", format_loss(model.metrics.average_loss))]
    if certificate is not None:
        bounds += _bound_of_all(certificate, model.metrics.weight)
    if not math.isnan(model.metrics.holdout_loss):
        bounds.append(("hold-out loss of the last rows", format_loss(model.metrics.holdout_loss)))
    if model.has_window_bounds:
        bounds += [
            (
                f"could be gained by such models in the last {one.n_rounds:,} rows, at most",
                round_up(one.could_gain),
            )
            for one in model.windows()
            if one.start and one.lower_bound > 0.0  # the certificate says more about all rows
        ]
    return bounds


def _bound_of_all(certificate: Certificate, weight: float) -> list[tuple[str, str]]:
    if not certificate.valid or not weight > 0.0:
        return []
    bound = max(0.0, certificate.best_linear_at_least / weight)
    return [(certificate.bound_name, round_down(bound))]
