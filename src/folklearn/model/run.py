"""`Run`: the metrics of `Model.run`; `Score`: those of rows that were only predicted."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import warn_of_data
from folklearn.metrics.accumulator import Metrics
from folklearn.metrics.records import Segment
from folklearn.model.batch import BatchResult
from folklearn.model.dataset import Dataset, LabelledTable
from folklearn.model.hindsight import EncodedRows
from folklearn.model.holdout import holdout_warning, is_degraded
from folklearn.progress import working_time

if TYPE_CHECKING:
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


@dataclass
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
    certificate : what no linear model of a norm could have beaten, over the life of the model.
    hindsight : an ordinary logistic regression of all rows of this run, and what no linear model
        of any norm is below, with its penalty; None where that was too large to be done unasked.
    checkpoints : averages over all rows of the model, at doubling numbers of rows.
    metrics : the rows of this run in up to 64 segments, and counts by class and column.
    """

    name: str
    labels: tuple[Any, ...] = ()
    n_unlabelled: int = 0
    holdout_loss: float = math.nan
    seconds: float = 0.0
    certificate: "Certificate | None" = None
    hindsight: "Regression | None" = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    model: "Model | None" = field(default=None, repr=False)

    @classmethod
    def of(cls, model: "Model", dataset: Dataset, exact: bool | None = None) -> "Run":
        """Begin to record; `exact` decides whether there will be a `hindsight`."""
        run = cls(dataset.reader.name, model=model)
        run._started, run._encoded = working_time(), EncodedRows(exact)
        return run

    _started: float = field(default=0.0, repr=False)
    _encoded: EncodedRows = field(default_factory=EncodedRows, repr=False)

    @property
    def n_rows(self) -> int:
        """The rows that were learned."""
        return self.metrics.n_rows

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

    def add(self, rows: LabelledTable, result: BatchResult) -> None:
        """Add rows that were learned, or only predicted."""
        model = self.model
        assert model is not None
        if result.learned is None:
            self.n_unlabelled += len(rows.table)
            return
        self.metrics.add(result.learned)
        self._encoded.add(model, result)
        if model.has_window_bounds:
            self.metrics.note_lower_bounds(model._lower_bound_of_last, len(result.weights))
        self.holdout_loss = model.metrics.holdout_loss
        if model.n_rounds & (model.n_rounds - 1) == 0:
            self._add_checkpoint(model.certificate() if model.has_window_bounds else None)

    def _add_checkpoint(self, certificate: "Certificate | None") -> None:
        model = self.model
        assert model is not None
        if self.checkpoints and self.checkpoints[-1].n_rounds == model.n_rounds:
            self.checkpoints.pop()
        self.checkpoints.append(
            Checkpoint(
                model.n_rounds,
                model.metrics.average_loss,
                model.metrics.holdout_loss,
                model.metrics.n_errors / max(1, model.n_rounds),
                working_time() - self._started,
                _lower_bound_per_row(certificate, model.metrics.weight),
            )
        )

    def finish(self) -> "Run":
        """Add the certificate, the regression in hindsight and the time."""
        model = self.model
        assert model is not None
        self.hindsight = model.hindsight = self._encoded.regression(model)
        self.certificate = model.certificate()
        self._add_checkpoint(self.certificate)
        self.labels = model.labels
        self.seconds = working_time() - self._started
        if is_degraded(model.metrics.average_loss, model.metrics.holdout_loss):
            warn_of_data(holdout_warning(model.metrics.average_loss, model.metrics.holdout_loss))
        return self

    def table(self) -> list[tuple[int, float, float, float]]:
        """Return (rows, loss, frozen loss, error) at doubling numbers of rows, averages."""
        return [(m.n_rounds, m.loss, m.holdout_loss, m.error) for m in self.checkpoints]

    def plot(self, path: str | None = None) -> Any:
        """Draw the run on one page; return the figure, or write it to a file."""
        from folklearn.model.display import draw_run, save_figure

        return save_figure(draw_run(self), path)

    def report(self, path: Any = None) -> str:
        """Return one HTML page about the run, self-contained; write it to a path."""
        from folklearn.model.display import report_run, write_text

        return write_text(report_run(self), path)

    def __repr__(self) -> str:
        frozen = "" if math.isnan(self.holdout_loss) else f"frozen {self.holdout_loss:.4f}, "
        return (
            f"Run over {self.name}: {self.n_rows} rows, loss {self.loss:.4f}, "
            f"{frozen}error {100.0 * self.error:.1f} %"
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
    def of(cls, dataset: Dataset) -> "Score":
        """Score all rows of a dataset that have a label."""
        totals = np.zeros(5)
        for rows in dataset.rows(doubling=False):
            totals += cls.totals(rows, dataset.predict(rows))
        dataset.warn_of_left_out()
        dataset.unlearned.warn()
        return cls.of_totals(totals)

    @staticmethod
    def totals(rows: LabelledTable, result: BatchResult) -> Array:
        """Return rows with a label, their loss, weight, mistakes and unknown classes."""
        there = rows.has_label
        numbers, weights = result.numbers[there], result.weights[there]
        wrong = result.P[there].argmax(axis=1) != numbers
        loss = weights @ result.losses[there]
        return np.array([len(numbers), loss, weights.sum(), wrong.sum(), (numbers < 0).sum()])

    @classmethod
    def of_totals(cls, totals: Array) -> "Score":
        """Return the averages of totals that were added up."""
        n, loss, weight, wrong, unknown = totals.tolist()
        average = loss / weight if weight > 0.0 else math.nan
        return cls(int(n), average, wrong / n if n else math.nan, int(unknown))


def _lower_bound_per_row(certificate: "Certificate | None", weight: float) -> float:
    """Return what no linear model gets below, a row; NaN if that is not known."""
    if certificate is None or not certificate.valid or not weight > 0.0:
        return math.nan
    return certificate.best_linear_at_least / weight
