"""`Run`: the metrics of `Model.run`; `Score`: those of rows that were only predicted."""

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import plots
from folklearn.errors import warn_of_data
from folklearn.metrics.accumulator import ClassRecord, Metrics
from folklearn.metrics.predictions import PredictionBatch
from folklearn.model.batch import BatchBuffer, RawBatch
from folklearn.model.dataset import LabelledTable
from folklearn.model.holdout import holdout_warning
from folklearn.model.labels import Costs
from folklearn.model.refit import MAX_BYTES, regress_rows
from folklearn.model.summary import (
    SEGMENT_BOUND,
    ModelSummary,
    describe_columns,
    describe_oddities,
    render_report,
)
from folklearn.progress import working_time
from folklearn.utils import count_of
from folklearn.validation import NO_SOFT_ROWS

if TYPE_CHECKING:
    from folklearn.evaluate.prediction_sets import CoverageRecord
    from folklearn.evaluate.regression import Regression
    from folklearn.evidence.certificate import Certificate
    from folklearn.model.model import Model

_RARE_SHARE = 0.4  # of an equal share of the rows
_MAX_RARE_CLASSES = 8  # in words


@dataclass(frozen=True)
class Checkpoint:
    """Averages a row over all rows that a model has learned, after `n_rounds` of them."""

    n_rounds: int
    loss: float
    holdout_loss: float
    error: float
    lower_bound: float = math.nan  # known at the end, and where bounds of windows are kept


class Score:
    """Result of `Model.score`: the `metrics` of rows with labels, and the `labels` it knows."""

    def __init__(
        self, model: "Model", metrics: Metrics | None = None, costs: Costs | None = None
    ) -> None:
        self.labels, self.metrics = model.labels, metrics or Metrics()
        self._costs = None if costs is None else model.label_encoder.cost_matrix(costs)

    def add(self, rows: LabelledTable, result: PredictionBatch) -> None:
        """Add the rows that have a label, which were predicted only."""
        kept, K = rows.has_label, result.P.shape[1]
        labels = np.where(result.labels < 0, K, result.labels)
        batch = PredictionBatch.of_predictions(
            result.P[kept], result.unseen[kept], labels[kept], result.weights[kept],
            result.predicted[kept],
        )  # fmt: skip
        if len(batch.P):
            self.metrics.add(batch)

    @property
    def n_rows(self) -> int:
        """The rows with a label."""
        return self.metrics.n_rows

    @property
    def n_unknown(self) -> int:
        """The rows of classes that the model does not know."""
        return sum(record.n_rows for record in self.metrics.by_class()[len(self.labels) :])

    @property
    def loss(self) -> float:
        """The average log loss; a class not known costs -ln of what was given to all such."""
        return self.metrics.average_loss

    @property
    def error(self) -> float:
        """The share of rows whose predicted class was wrong."""
        return self.metrics.error_rate

    @property
    def cost(self) -> float:
        """The average cost of a row of the known classes; NaN without costs."""
        counts = self.confusion[: len(self.labels), : len(self.labels)]
        if self._costs is None or not counts.any():  # there is no table of more than 50 classes
            return math.nan
        return float((counts * self._costs).sum() / counts.sum())

    @property
    def brier(self) -> float:
        """The mean squared distance of probabilities and label, from 0 to 2."""
        return self.metrics.brier

    @property
    def auc(self) -> float:
        """The mean of the AUC of the classes, each against all others."""
        return self.metrics.auc

    @property
    def classes(self) -> dict[Any, ClassRecord]:
        """Recall, precision, AUC and average precision by label."""
        return dict(zip(self.labels, self.metrics.by_class(), strict=False))

    @property
    def confusion(self) -> Any:
        """Rows of a class (first) that were predicted as a class (second)."""
        return self.metrics.confusion

    @property
    def rare(self) -> dict[Any, ClassRecord]:
        """The classes with less than 40 % of an equal share of the rows, the rarest first."""
        classes = {label: record for label, record in self.classes.items() if record.n_rows}
        limit = _RARE_SHARE * self.n_rows / max(1, len(classes))
        rare = {label: record for label, record in classes.items() if record.n_rows < limit}
        return dict(sorted(rare.items(), key=lambda item: item[1].n_rows))

    @property
    def rare_in_words(self) -> list[str]:
        """A line for every rare class, and for all of them after the first eight."""
        lines = [f"{label}: {record.in_words(self.n_rows)}." for label, record in self.rare.items()]
        n_more = len(lines) - _MAX_RARE_CLASSES
        return lines[:_MAX_RARE_CLASSES] + [f"And {n_more} more rare classes."] * (n_more > 0)

    def __repr__(self) -> str:
        return self._describe(f"Score: {count_of(self.n_rows, 'row')}", math.nan)

    def _describe(self, what: str, holdout_loss: float) -> str:
        facts = [f"{what}, loss {self.loss:.4f}"]
        if not math.isnan(holdout_loss):
            facts.append(f"hold-out {holdout_loss:.4f}")
        facts.append(f"error {100.0 * self.error:.1f} %")
        if not math.isnan(self.cost):
            facts.append(f"cost {self.cost:.4g}")
        if self.rare and not math.isnan(self.auc):
            facts.append(f"AUC {self.auc:.3f}")
        if self.n_unknown:
            facts.append(f"{self.n_unknown} of classes that the model does not know")
        return ", ".join(facts)


class Run(Score):
    """Result of `Model.run`: a `Score` of rows that were each predicted before they were learned.

    Attributes
    ----------
    name : of the source.
    labels : the classes known at the end.
    n_unlabelled : rows that were only predicted; `n_rows` were learned.
    holdout_loss : the average loss of the model as it would be saved, of late.
    seconds : how long it took, without what kernels took to be compiled.
    certificate, coverage : of linear models, and of prediction sets, over the life of the model.
    hindsight : a logistic regression of all rows of this run, with its bound for linear models;
        None where that was too large to be done unasked.
    checkpoints : averages over all rows of the model, at doubling numbers of rows.
    metrics : the rows of this run in up to 64 segments, and counts by class and column.
    """

    def __init__(self, model: "Model", name: str, exact: bool | None = None) -> None:
        super().__init__(model)
        self.model, self.name = model, name
        self.n_unlabelled, self.holdout_loss, self.seconds = 0, math.nan, 0.0
        self.certificate: Certificate | None = None
        self.hindsight: Regression | None = None
        self.coverage: list[CoverageRecord] = []
        self.checkpoints: list[Checkpoint] = []
        self._started, self._exact = working_time(), exact
        self._rows, self._n_bytes = BatchBuffer(), 0  # for the regression, if they are few enough

    @property
    def notes(self) -> list[str]:
        """What is odd: columns that never change, have changed, give the class away; labels."""
        model = self.model
        columns = [] if model.encoder is None else model.metrics.by_column(model.encoder)
        return describe_oddities(model) + describe_columns(columns)

    def add(self, rows: LabelledTable, result: PredictionBatch) -> None:
        """Add rows that were learned, or only predicted."""
        model = self.model
        if result.encoded is None or model.pipeline is None:
            self.n_unlabelled += len(rows.table)
            return
        self.metrics.add(result)
        if self._exact is not False:
            soft = result.targets if result.targets.ndim == 2 else NO_SOFT_ROWS
            batch = RawBatch.of(result.encoded, result.labels, soft, result.weights)
            self._rows.add(batch)
            self._n_bytes += sum(array.nbytes for array in batch)
            if self._exact is None and self._n_bytes > MAX_BYTES:
                self._exact, self._rows = False, BatchBuffer()
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
        averages = metrics.average_loss, metrics.holdout_loss, metrics.n_errors / max(1, n_rounds)
        self.checkpoints.append(Checkpoint(n_rounds, *averages, bound))

    def regress(self) -> None:
        """Add the regression in hindsight, and let go of the rows."""
        rows, self._rows = self._rows, BatchBuffer()
        self.hindsight = regress_rows(self.model, rows, exact=self._exact)
        self.model.hindsight = self.hindsight

    def finish(self) -> "Run":
        """Add the certificate, the regression in hindsight and the time."""
        model = self.model
        self.regress()
        self.certificate, self.labels = model.certificate(), model.labels
        self.coverage = model.sets.records()
        self._add_checkpoint(self.certificate)
        self.seconds = working_time() - self._started
        if warning := holdout_warning(model.metrics.average_loss, model.metrics.holdout_loss):
            warn_of_data(warning)
        if len(self.labels) == 1:
            warn_of_data(f"all labels are {self.labels[0]!r}: nothing is learned of one class")
        return self

    def table(self) -> list[tuple[int, float, float, float]]:
        """Return (rows, loss, hold-out loss, error) at doubling numbers of rows, averages."""
        return [(m.n_rounds, m.loss, m.holdout_loss, m.error) for m in self.checkpoints]

    def plot(self, path: str | None = None) -> Any:
        """Draw the run on one page; return the figure, and write it to a file."""
        data = ModelSummary(self.labels, self.metrics).plot_data
        wide: list[plots.Plot] = []
        if "losses" in data:
            wide = [partial(plots.losses, *data["losses"], bound=SEGMENT_BOUND)]
            wide.append(partial(plots.errors, *data["errors"]))
        panels: list[plots.Plot] = []
        if any(math.isfinite(checkpoint.lower_bound) for checkpoint in self.checkpoints):
            rounds = [checkpoint.n_rounds for checkpoint in self.checkpoints]
            lines = {
                "average loss": [checkpoint.loss for checkpoint in self.checkpoints],
                plots.BOUND: [max(checkpoint.lower_bound, 0.0) for checkpoint in self.checkpoints],
            }
            panels.append(partial(plots.curves, rounds, lines, title="Average loss so far"))
        for name, options in (("calibration", {}), ("confusion", {"most": 10})):
            if name in data:
                panels.append(partial(getattr(plots, name), *data[name], **options))
        title = f"{self.name}: {self.n_rows:,} rows"
        return plots.save(plots.overview(wide, panels, title=title), path)

    def report(self, path: Any = None) -> str:
        """Return the text of one HTML page about the run, self-contained; write it to a path."""
        facts = ModelSummary.of_model(self.model, self.metrics)
        return render_report(f"Report on {self.name}", facts, path)

    def __repr__(self) -> str:
        rows = count_of(self.n_rows, "row")
        return self._describe(f"Run over {self.name}: {rows}", self.holdout_loss)
