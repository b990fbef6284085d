"""`ModelSummary`: what reports and pages say of a model, as sentences, tables and plots."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import plots
from folklearn.arrays import Array
from folklearn.arrays import Labels as Numbers
from folklearn.evaluate.regression import Regression
from folklearn.evidence.certificate import Certificate
from folklearn.metrics.accumulator import (
    MIN_BOUNDED_ROWS,
    ClassRecord,
    ColumnRecord,
    Metrics,
    Window,
)
from folklearn.metrics.predictions import PredictionBatch
from folklearn.model.holdout import holdout_warning
from folklearn.model.roles import NUMBER
from folklearn.report import style
from folklearn.report.rendering import format_about, format_loss, format_share, render
from folklearn.utils import count_of, join_names

if TYPE_CHECKING:
    from folklearn.model.explain import Explanation
    from folklearn.model.model import Model

NOTHING_PROVEN = "Nothing is proven before there is a second class."
_NO_ROWS_TO_PROVE = (
    "What could be gained cannot be said from predictions alone: it takes the rows that they are "
    "about."
)
SEGMENT_BOUND = f"{plots.BOUND},\nover {MIN_BOUNDED_ROWS}+ rows"
_MIN_ROWS_TO_JUDGE = 64
_MAX_LABEL_LENGTH = 40  # characters, in a sentence
_RECENT, _HALF = 7 / 8, 1 / 2  # shares of the stream: start of the recent rows, and of those before
_MIN_SEGMENTS_TO_COMPARE = 4
_DRIFT_STANDARD_ERRORS = 3.0
_LOW_RECALL, _MIN_ROWS_OF_CLASS = 0.5, 30
_LARGE_CALIBRATION_ERROR = 0.05
_MANY_MISSING, _MANY_OUTLIERS = 0.1, 0.01  # shares of rows
_GIVES_AWAY = 0.95  # of the entropy of the classes, which a column alone explains
_MIN_RUNNING_ROWS = 64
_MAX_LISTED = 5  # columns that have changed, or pairs of labels, that are named one by one
_MAX_TABLE_COLUMNS = 50


@dataclass(frozen=True)
class ModelSummary:
    """Metrics with what is known of the model, or of the predictions, that they are about."""

    labels: Sequence[object]
    metrics: Metrics  # of the rows, which may be fewer than the model has learned
    claims: Sequence[str] = ()  # sentences on what is proven
    losses: Mapping[str, float] = field(default_factory=dict)  # averages over all rows, by name
    certificate: Certificate | None = None
    weight: float = 0.0  # of the rows of the certificate
    windows: Sequence[Window] = ()  # that double, the shortest first
    columns: Sequence[ColumnRecord] = ()
    explanation: "Explanation | None" = None
    notes: Sequence[str] = ()  # further sentences for the overview
    warnings: Sequence[str] = ()  # likewise for what needs attention
    has_model: bool = True

    @classmethod
    def of_model(
        cls, model: "Model", metrics: Metrics | None = None, *, importance: bool = True
    ) -> "ModelSummary":
        metrics = model.metrics if metrics is None else metrics
        certificate, pipeline = model.certificate(), model.pipeline
        loss, holdout = model.metrics.average_loss, model.metrics.holdout_loss
        notes, warnings = [*filter(None, [model.sets.in_words()])], describe_oddities(model)
        if n_before := max(0, model.n_rounds - metrics.n_rows):
            notes.append(f"Of {count_of(n_before, 'row')} learned before there is no record here.")
        if warning := holdout_warning(loss, holdout):
            warnings.append(f"Warning: {warning}.")
        explanation = None
        if pipeline is not None and pipeline.learner is not None:
            explanation = model.explain(importance=importance)
        return cls(
            model.labels, metrics, describe_claims(model, certificate),
            {"average loss": loss, "hold-out loss of the last rows": holdout},
            certificate, model.metrics.weight,
            [window for window in model.windows() if window.weight > 0.0],
            [] if model.encoder is None else metrics.by_column(model.encoder),
            explanation, notes, warnings,
        )  # fmt: skip

    @classmethod
    def of_predictions(
        cls,
        labels: Sequence[object],
        P: Array,
        y: Numbers,
        certificate: Certificate | None = None,
        *,
        hindsight: Regression | None = None,
        warnings: Sequence[str] = (),
    ) -> "ModelSummary":
        """Summarise predictions P (T, K) of labels y (T,), of any origin."""
        n, metrics = len(y), Metrics()
        metrics.add(PredictionBatch.of_predictions(P, np.zeros(n), y, np.ones(n), P.argmax(axis=1)))
        claims, losses = [_NO_ROWS_TO_PROVE], {}
        if certificate is not None:
            losses = {"these predictions": certificate.loss / n}
            claims = [certificate.in_words(), certificate.in_full()]
            if hindsight is not None:
                claims.insert(0, hindsight.in_words())
                losses["a logistic regression in hindsight"] = hindsight.loss / n
        about: Any = {"warnings": warnings, "has_model": False}
        return cls(labels, metrics, claims, losses, certificate, n, **about)

    @property
    def overview(self) -> list[str]:
        return [self.accuracy, self.loss, *self.claims, self.drift, *self.notes]

    @cached_property
    def accuracy(self) -> str:
        """The share of rows predicted right, rounded so that it changes rarely."""
        n, error = self.metrics.n_rows, self.metrics.error_rate
        if n < _MIN_ROWS_TO_JUDGE:
            return "There are too few rows to say how good the predictions are."
        label, record = self.classes[0]
        return (
            f"About {format_about(1.0 - error)} of all rows were predicted right; always "
            f"predicting {label[:_MAX_LABEL_LENGTH]!r} would have been right for about "
            f"{format_about(record.n_rows / n)}."
        )

    @property
    def loss(self) -> str:
        """The average loss, and that of predicting the class frequencies."""
        if not self.metrics.n_rows:
            return "Its rows were learned before there was a record of them."
        loss = format_loss(self.metrics.average_loss)
        text = f"Of {self.metrics.n_rows:,} rows the average loss was {loss} nats"
        counts = np.array([record.n_rows for _, record in self.classes if record.n_rows], float)
        shares = counts / counts.sum()
        entropy = float(-(shares * np.log(shares)).sum())
        if entropy > 0.0:
            loss = format_loss(entropy)
            text += f"; predicting the frequency of each class would have lost {loss}"
        return f"{text}."

    @cached_property
    def drift(self) -> str:
        return describe_drift(self.segments)

    @property
    def attention(self) -> list[str]:
        by_class = zip(self.labels, self.metrics.by_class(), strict=False)
        return [*describe_problems(by_class, self.columns, self.metrics.n_rows), *self.warnings]

    @property
    def lower_bound(self) -> float | None:
        """The proven lower bound on the average loss of linear models, if there is one."""
        if self.certificate is None or not self.certificate.valid or not self.weight > 0.0:
            return None
        return max(0.0, self.certificate.best_linear_at_least / self.weight)

    @cached_property
    def segments(self) -> list[dict[str, float]]:
        """The segments as `plots.losses` takes them, averages a row."""
        return [
            {
                "start": segment.start,
                "stop": segment.stop,
                "loss": segment.loss / segment.weight if segment.weight > 0.0 else math.nan,
                "lower_bound": segment.lower_bound if segment.lower_bound > -math.inf else math.nan,
                "error_rate": segment.n_errors / max(1, segment.stop - segment.start),
                "holdout": segment.holdout_loss,
            }
            for segment in self.metrics.segments
        ]

    @property
    def has_segment_bounds(self) -> bool:
        return any(math.isfinite(segment["lower_bound"]) for segment in self.segments)

    @cached_property
    def classes(self) -> list[tuple[str, ClassRecord]]:
        """The records of the classes, the most frequent first."""
        records = zip(map(str, self.labels), self.metrics.by_class(), strict=False)
        return sorted(records, key=lambda pair: -pair[1].n_rows)

    @property
    def shown_columns(self) -> list[ColumnRecord]:
        """The columns with the most missing values, in their order."""
        worst = sorted(self.columns, key=lambda column: -column.n_missing)[:_MAX_TABLE_COLUMNS]
        return [column for column in self.columns if column in worst]

    @property
    def importance(self) -> list[tuple[str, float]]:
        return self.explanation.top_columns(_MAX_TABLE_COLUMNS) if self.explanation else []

    @cached_property
    def plot_data(self) -> dict[str, tuple[Any, ...]]:
        """The plots that there are data for, by name: the first arguments of their functions."""
        labels = list(map(str, self.labels))
        data: dict[str, tuple[Any, ...]] = {}
        if self.segments:
            data |= {"losses": (self.segments,), "errors": (self.segments,)}
        if len(self.windows) > 1:
            lines = {"loss": [window.loss / window.weight for window in self.windows]}
            bounds = [max(0.0, window.lower_bound / window.weight) for window in self.windows]
            if any(bounds):
                lines[plots.BOUND] = bounds
            data["drift"] = ([window.n_rounds for window in self.windows], lines)
        curves, confusion = self.metrics.calibration_curves(), self.metrics.confusion
        if any(len(curve.count) for curve in curves):
            data["calibration"] = (curves, labels[: len(curves)])
        if confusion.any():
            data["confusion"] = (confusion, labels[: len(confusion)])
        if self.explanation is not None and self.explanation.weights.size:
            data["weights"] = (self.explanation.names, labels, self.explanation.weights.T)
        return data

    def draw(self, name: str, **options: Any) -> Any:
        """Draw one of the plots that there are data for; options are those of its function."""
        if name == "losses":
            options["bound"] = SEGMENT_BOUND
        if name == "drift":
            options |= {"x": "the last … rows", "y": "nats per row"}
        function = plots.curves if name == "drift" else getattr(plots, name)
        return function(*self.plot_data[name], **options)


class ReportPage(str):
    """The text of an HTML page, which a notebook does not print in full."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ReportPage of {len(self):,} characters"


def render_report(title: str, facts: ModelSummary, path: Any = None) -> str:
    """Return a summary as one HTML page that needs no other file; write it to a path."""
    names = [name for name in facts.plot_data if name not in ("errors", "drift")]
    images = {name: style.svg_uri(facts.draw(name)) for name in names}
    if facts.explanation is not None and facts.explanation.shapes:
        images["shapes"] = style.svg_uri(facts.explanation.plot_shapes())
    bound = SEGMENT_BOUND.replace("\n", " ")
    page = render("report.html", title=title, facts=facts, images=images, bound=bound)
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    return ReportPage(page)


def describe_claims(model: "Model", certificate: Certificate | None = None) -> list[str]:
    """Return what is proven about linear models of the rows of a model, in sentences."""
    certificate = certificate or model.certificate()
    if certificate is None:
        return [NOTHING_PROVEN]
    hindsight = [] if model.hindsight is None else [model.hindsight.in_words()]
    return [*hindsight, certificate.in_words(model.metrics.weight)]


def describe_drift(segments: Sequence[Mapping[str, float]]) -> str:
    """Compare the last eighth of the rows with the three eighths before, by standard errors."""
    n_rows = segments[-1]["stop"] if segments else 0
    starts = [segment["start"] / n_rows for segment in segments]
    first, last = np.searchsorted(starts, [_HALF, _RECENT]).tolist()
    before, recent = segments[first:last], segments[last:]
    if min(len(recent), len(before)) < _MIN_SEGMENTS_TO_COMPARE:
        return "Whether it drifts is not known yet: there are too few rows."
    late, early = (np.array([segment["loss"] for segment in half]) for half in (recent, before))
    change = float(late.mean() - early.mean())
    error = math.sqrt(late.var(ddof=1) / len(late) + early.var(ddof=1) / len(early))
    losses = (
        f"In the last {n_rows - recent[0]['start']:,} rows the average loss was "
        f"{format_loss(float(late.mean()))}, in the {before[-1]['stop'] - before[0]['start']:,} "
        f"before {format_loss(float(early.mean()))}"
    )
    if not abs(change) > _DRIFT_STANDARD_ERRORS * error:
        return f"No drift is seen. {losses}: within the usual variation."
    if change < 0.0:
        return f"The loss has become lower lately. {losses}."
    return f"The loss has become higher lately. {losses}. The data may have changed."


def describe_problems(
    classes: Iterable[tuple[object, Any]], columns: Iterable[Any], n_rows: int
) -> list[str]:
    problems = []
    for label, record in classes:
        if record.n_rows >= _MIN_ROWS_OF_CLASS and record.recall < _LOW_RECALL:
            share = format_share(record.recall)
            problems.append(f"Of {record.n_rows:,} rows of class {label} only {share} were found.")
        if record.calibration_error > _LARGE_CALIBRATION_ERROR:
            share = format_share(record.calibration_error)
            problems.append(f"Probabilities of class {label} are off by {share} on average.")
    for column in columns:
        name = f"Column {column.name}"
        if column.first is None:
            problems.append(f"{name} never had a value.")
            continue
        n_since, n_missing = n_rows - column.first, column.n_missing - column.first
        if n_missing > _MANY_MISSING * n_since:
            share = format_share(n_missing / n_since)
            problems.append(f"{name} is empty in {share} of the rows.")
        if column.n_outliers > _MANY_OUTLIERS * n_since:
            problems.append(f"{name} has {count_of(column.n_outliers, 'outlier')}.")
        if column.new_categories:
            new = count_of(len(column.new_categories), "value")
            problems.append(f"{name} had {new} that came late.")
    return problems + describe_columns(columns)


def describe_columns(columns: Iterable[Any]) -> list[str]:
    """Return what is odd about columns: constants, what gives the class away, what has changed."""
    notes, shifts, constant = [], [], []
    for column in columns:
        if column.is_constant:
            constant.append(column.name)
        if column.explained >= _GIVES_AWAY:
            notes.append(
                f"Column {column.name} alone explains {format_share(column.explained)} of the "
                "classes: will it be known when you predict?"
            )
        if column.shift is not None:
            shifts.append(f"Column {column.name} {column.shift.in_words()}.")
    if constant:
        notes.append(f"The same value in all rows: {join_names(constant)}.")
    if len(shifts) > _MAX_LISTED:
        further = count_of(len(shifts) - _MAX_LISTED, "further column")
        shifts[_MAX_LISTED:] = [f"The values of {further} have changed too."]
    return notes + shifts


def describe_oddities(model: "Model") -> list[str]:
    """Return what is odd about a model: running numbers, labels spelled twice, no columns."""
    table, _ = model.recent.rows()
    running = [
        name
        for name, role in model.roles.items()
        if role == NUMBER and isinstance(column := table.columns.get(name), np.ndarray)
        and len(column) >= _MIN_RUNNING_ROWS and (np.diff(column) > 0.0).all()
    ]  # fmt: skip
    notes = [
        f"Column {name} grows from row to row: a running number tells the order, nothing else."
        for name in running
    ]
    spellings: dict[str, list[str]] = {}
    for label in filter(lambda label: isinstance(label, str), model.labels):
        spellings.setdefault(label.casefold(), []).append(label)
    if twice := [join_names(group) for group in spellings.values() if len(group) > 1]:
        which = "; ".join(twice[:_MAX_LISTED]) + "; ..." * (len(twice) > _MAX_LISTED)
        notes.append(f"Labels that differ in upper and lower case only: {which}.")
    if model.encoder is not None and not model.encoder.keys and not model.encoder.sparse:
        notes.append("There is no column to learn from: only how often each class comes is known.")
    return notes
