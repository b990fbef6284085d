"""`Run`: the metrics of `Model.run`; `Score`: those of rows that were only predicted."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import warn_of_data
from folklearn.metrics.accumulator import Metrics, PredictionBatch, Segment
from folklearn.model.dataset import LabelledTable, ModelDataset
from folklearn.model.holdout import holdout_warning, is_degraded
from folklearn.model.refit import EncodedRows
from folklearn.model.summary import describe_columns, find_running_numbers
from folklearn.progress import working_time

if TYPE_CHECKING:
    from folklearn.evaluate.prediction_sets import CoverageRecord
    from folklearn.evaluate.regression import Regression
    from folklearn.evidence.certificate import Certificate
    from folklearn.model.model import Model


@dataclass(frozen=True)
class Checkpoint:
    """Averages a row over all rows that a model has learned, after `n_rounds` of them."""

    n_rounds: int
    loss: float
    holdout_loss: float
    error: float
    seconds: float
    lower_bound: float = math.nan  # known at the end, and where bounds of windows are kept


class Run:
    """Result of `Model.run`.

    Attributes
    ----------
    name : of the source.
    labels : the classes known at the end.
    n_rows, n_unlabelled : rows that were learned, and rows that were only predicted.
    loss, error : averages over the rows of this run, each predicted before it was learned.
    holdout_loss : the average loss of the model as it would be saved, of late.
    seconds : how long it took, without what kernels took to be compiled.
    certificate : what no linear model could have beaten, over the life of the model.
    coverage : how often prediction sets missed the label, over the life of the model.
    hindsight : an ordinary logistic regression of all rows of this run, and what no linear model
        is below, with its penalty; None where that was too large to be done unasked.
    checkpoints : averages over all rows of the model, at doubling numbers of rows.
    metrics : the rows of this run in up to 64 segments, and counts by class and column.
    """

    def __init__(self, model: "Model", name: str, exact: bool | None = None) -> None:
        self.model, self.name, self.metrics = model, name, Metrics()
        self.labels: tuple[Any, ...] = ()
        self.n_unlabelled, self.holdout_loss, self.seconds = 0, math.nan, 0.0
        self.certificate: Certificate | None = None
        self.hindsight: Regression | None = None
        self.coverage: list[CoverageRecord] = []
        self.checkpoints: list[Checkpoint] = []
        self._started, self._encoded = working_time(), EncodedRows(exact)

    @property
    def n_rows(self) -> int:
        """The rows that were learned."""
        return self.metrics.n_rows

    @property
    def notes(self) -> list[str]:
        """Sentences about columns: what never changes, has changed, or gives the class away."""
        model = self.model
        columns = [] if model.encoder is None else model.metrics.by_column(model.encoder)
        return find_running_numbers(model) + describe_columns(columns)

    @property
    def windows(self) -> tuple[Segment, ...]:
        """The run in up to 64 segments."""
        return self.metrics.segments

    @property
    def confusion(self) -> Any:
        """Rows of a class (first) that were predicted as a class (second)."""
        return self.metrics.confusion

    @property
    def loss(self) -> float:
        """The average loss of the rows of this run."""
        return self.metrics.average_loss

    @property
    def error(self) -> float:
        """The share of rows whose most likely class was wrong."""
        return self.metrics.error_rate

    def add(self, rows: LabelledTable, result: PredictionBatch) -> None:
        """Add rows that were learned, or only predicted."""
        model = self.model
        if result.encoded is None or model.pipeline is None:
            self.n_unlabelled += len(rows.table)
            return
        self.metrics.add(result)
        self._encoded.add(model, result)
        if model.has_window_bounds:
            self.metrics.note_lower_bounds(model.windows, len(result.weights))
        self.holdout_loss = float(result.holdout[-1])
        n_rounds = model.pipeline.n_rounds
        if n_rounds & (n_rounds - 1) == 0:
            self._add_checkpoint(model.certificate() if model.has_window_bounds else None)

    def _add_checkpoint(self, certificate: "Certificate | None") -> None:
        metrics, n_rounds, bound = self.model.metrics, self.model.n_rounds, math.nan
        if self.checkpoints and self.checkpoints[-1].n_rounds == n_rounds:
            self.checkpoints.pop()
        if certificate is not None and certificate.valid and metrics.weight > 0.0:
            bound = certificate.best_linear_at_least / metrics.weight
        self.checkpoints.append(
            Checkpoint(
                n_rounds,
                metrics.average_loss,
                metrics.holdout_loss,
                metrics.n_errors / max(1, n_rounds),
                working_time() - self._started,
                bound,
            )
        )

    def finish(self) -> "Run":
        """Add the certificate, the regression in hindsight and the time."""
        model = self.model
        self.hindsight = model.hindsight = self._encoded.regression(model)
        self.certificate, self.labels = model.certificate(), model.labels
        self.coverage = model.sets.records()
        self._add_checkpoint(self.certificate)
        self.seconds = working_time() - self._started
        losses = model.metrics.average_loss, model.metrics.holdout_loss
        if is_degraded(*losses):
            warn_of_data(holdout_warning(*losses))
        return self

    def table(self) -> list[tuple[int, float, float, float]]:
        """Return (rows, loss, hold-out loss, error) at doubling numbers of rows, averages."""
        return [(m.n_rounds, m.loss, m.holdout_loss, m.error) for m in self.checkpoints]

    def plot(self, path: str | None = None) -> Any:
        """Draw the run on one page; return the figure, and write it to a file."""
        from folklearn.model.display import draw_run

        return draw_run(self, path)

    def report(self, path: Any = None) -> str:
        """Return one HTML page about the run, self-contained; write it to a path."""
        from folklearn.model.display import report_run

        return report_run(self, path)

    def __repr__(self) -> str:
        holdout = "" if math.isnan(self.holdout_loss) else f"hold-out {self.holdout_loss:.4f}, "
        return (
            f"Run over {self.name}: {self.n_rows} rows, loss {self.loss:.4f}, "
            f"{holdout}error {100.0 * self.error:.1f} %"
        )

    def _repr_html_(self) -> str:
        from folklearn.model.display import run_card

        return run_card(self)


@dataclass(frozen=True)
class Score:
    """Scores of a model on rows that it did not learn.

    Attributes
    ----------
    n_rows : labelled rows, each counted once.
    loss : average log loss; a class that the model does not know costs -ln of what it gave to that.
    error : the share of rows whose most likely class was wrong.
    n_unknown : rows of classes that the model does not know.
    """

    n_rows: int
    loss: float
    error: float
    n_unknown: int = 0

    @classmethod
    def of(cls, dataset: ModelDataset) -> "Score":
        totals = np.zeros(5)
        for rows in dataset.rows():
            totals += cls.totals(rows, dataset.predict(rows))
        dataset.warn_of_left_out()
        dataset.warn_of_missing()
        dataset.unlearned.warn()
        return cls.of_totals(totals)

    @staticmethod
    def totals(rows: LabelledTable, result: PredictionBatch) -> Array:
        """Return rows with a label, their loss, weight, mistakes and unknown classes."""
        kept = rows.has_label
        numbers, weights = result.labels[kept], result.weights[kept]
        wrong = result.P[kept].argmax(axis=1) != numbers
        loss = weights @ result.losses[kept]
        return np.array([len(numbers), loss, weights.sum(), wrong.sum(), (numbers < 0).sum()])

    @classmethod
    def of_totals(cls, totals: Array) -> "Score":
        n, loss, weight, wrong, unknown = totals.tolist()
        average = loss / weight if weight > 0.0 else math.nan
        return cls(int(n), average, wrong / n if n else math.nan, int(unknown))
