"""What a run over many rows was like: losses on the way, and how they came about."""

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn.arrays import Array
from folklearn.model.feed import FedRows, Feed
from folklearn.readers.block import Texts

if TYPE_CHECKING:
    from folklearn.certificate import Certificate
    from folklearn.model.model import Model, Step

_MOST_WINDOWS = 64  # then neighbours are joined
_FIRST_WINDOW = 32  # rows
_LEAST_FLOOR = 512  # rows that a floor speaks of: of fewer, little can be proven
_MOST_CLASSES = 50  # of which calibration is recorded
_BINS = 10


@dataclass(frozen=True)
class Moment:
    """Where a model stood after so many rows of its life: averages a row."""

    n_rounds: int
    loss: float
    frozen_loss: float
    error: float
    seconds: float
    floor: float = (
        math.nan
    )  # that no linear model gets below: at the end, and where floors are kept


@dataclass
class RunWindow:
    """Rows of a run that lie side by side: totals."""

    start: int
    stop: int
    loss: float = 0.0
    n_errors: int = 0
    weight: float = 0.0
    floor: float = math.nan  # nats a row that no linear model gets below, in about this window
    frozen_loss: float = math.nan

    def joined(self, later: "RunWindow") -> "RunWindow":
        """Return both as one."""
        return RunWindow(
            self.start,
            later.stop,
            self.loss + later.loss,
            self.n_errors + later.n_errors,
            self.weight + later.weight,
            later.floor,
            later.frozen_loss,
        )


@dataclass
class Run:
    """The course of `Model.run`.

    Attributes
    ----------
    name : of the source.
    labels : the classes known at the end.
    n_rows, n_unlabelled : rows that were learned, and rows that were only predicted.
    loss, error : averages over the rows of this run, each predicted before it was learned.
    frozen_loss : the average loss of the model as it would be saved, of late.
    certificate : what no linear model could have beaten, over the life of the model.
    moments : where the model stood at doubling numbers of rows.
    windows : the run in up to 64 pieces.
    confusion : (K, K) rows of a class (first) that were taken for a class (second).
    """

    name: str
    labels: tuple[Any, ...] = ()
    n_rows: int = 0
    n_unlabelled: int = 0
    total_loss: float = 0.0
    n_mistakes: int = 0
    weight: float = 0.0
    frozen_loss: float = math.nan
    seconds: float = 0.0
    certificate: "Certificate | None" = None
    moments: list[Moment] = field(default_factory=list)
    windows: list[RunWindow] = field(default_factory=list)
    confusion: Any = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    calibration: Array = field(default_factory=lambda: np.zeros((3, 0, _BINS)))
    model: "Model | None" = field(default=None, repr=False)

    @classmethod
    def of(cls, model: "Model", feed: Feed) -> "Run":
        """Begin to record."""
        run = cls(feed.reader.name, model=model)
        run._started = time.perf_counter()
        run._size = _FIRST_WINDOW
        return run

    _started: float = field(default=0.0, repr=False)
    _size: int = field(default=_FIRST_WINDOW, repr=False)

    @property
    def loss(self) -> float:
        """The average loss of the rows of this run."""
        return self.total_loss / self.weight if self.weight > 0.0 else math.nan

    @property
    def error(self) -> float:
        """The share of rows whose most likely class was wrong."""
        return self.n_mistakes / self.n_rows if self.n_rows else math.nan

    def add(self, rows: FedRows, step: "Step") -> None:
        """Take in rows that were learned, or only predicted."""
        if not rows.has_label.all():
            self.n_unlabelled += len(rows.block)
            return
        hard = step.numbers
        predicted = np.full(len(hard), -1)
        if step.P.shape[1]:  # before the first class is known, none is predicted
            predicted = np.where(step.P.any(axis=1), step.P.argmax(axis=1), -1)
        wrong = predicted != hard
        self.total_loss += float(step.weights @ step.losses)
        self.weight += float(step.weights.sum())
        self.n_mistakes += int(wrong.sum())
        n_before = self.n_rows
        self._add_windows(step.losses, wrong, step.weights)
        self.n_rows += len(hard)
        self._add_confusion(hard, predicted, step.P)
        model = self.model
        assert model is not None
        self.frozen_loss = model.frozen_loss
        floor = self._floor(model) if model.has_floors else math.nan
        for window in self.windows:
            if window.stop > n_before:
                window.frozen_loss, window.floor = model.frozen_loss, floor
        if model.n_rounds & (model.n_rounds - 1) == 0:
            self._look(model.certificate() if model.has_floors else None)

    def _floor(self, model: "Model") -> float:
        """Return what no linear model gets below, a row, in about the last window."""
        last = model._tally.last(max(self._size, _LEAST_FLOOR))
        return last.floor / last.weight if last is not None and last.weight > 0.0 else math.nan

    def _look(self, certificate: "Certificate | None") -> None:
        model = self.model
        assert model is not None
        if self.moments and self.moments[-1].n_rounds == model.n_rounds:
            self.moments.pop()
        self.moments.append(
            Moment(
                model.n_rounds,
                model.average_loss,
                model.frozen_loss,
                model.n_mistakes / max(1, model.n_rounds),
                time.perf_counter() - self._started,
                _certified(certificate, model.total_weight),
            )
        )

    def _add_windows(self, losses: Array, wrong: Any, weights: Array) -> None:
        start = 0
        while start < len(losses):
            if not self.windows or self.windows[-1].stop % self._size == 0:
                at = self.n_rows + start
                self.windows.append(RunWindow(at, at))
            last = self.windows[-1]
            stop = min(len(losses), start + self._size - last.stop % self._size)
            part = slice(start, stop)
            last.loss += float(losses[part] @ weights[part])
            last.n_errors += int(wrong[part].sum())
            last.weight += float(weights[part].sum())
            last.stop += stop - start
            start = stop
            if len(self.windows) > _MOST_WINDOWS:
                self._size *= 2
                pairs = zip(self.windows[::2], [*self.windows[1::2], None], strict=False)
                self.windows = [a if b is None else a.joined(b) for a, b in pairs]

    def _add_confusion(self, hard: Any, predicted: Any, P: Array) -> None:
        K = max(P.shape[1], len(self.confusion), int(hard.max(initial=-1)) + 1)
        if len(self.confusion) < K:
            grown = np.zeros((K, K), np.int64)
            n = len(self.confusion)
            grown[:n, :n] = self.confusion
            self.confusion = grown
            bins = np.zeros((3, K, _BINS))
            bins[:, :n] = self.calibration
            self.calibration = bins
        known = (hard >= 0) & (predicted >= 0)
        np.add.at(self.confusion, (hard[known], predicted[known]), 1)
        if P.shape[1] <= _MOST_CLASSES:
            self._add_calibration(hard, P)

    def _add_calibration(self, hard: Any, P: Array) -> None:
        """Count, for every class and bin, rows, probability given, and rows of the class."""
        K = P.shape[1]
        bins = np.minimum((P * _BINS).astype(np.int64), _BINS - 1) + _BINS * np.arange(K)
        hit = hard[:, None] == np.arange(K)
        for part, weights in enumerate((np.ones_like(P), P, hit.astype(np.float64))):
            counts = np.bincount(bins.ravel(), weights.ravel(), K * _BINS)
            self.calibration[part, :K] += counts.reshape(K, _BINS)

    def ended(self) -> "Run":
        """Sum up."""
        model = self.model
        assert model is not None
        self.certificate = model.certificate()
        self._look(self.certificate)
        self.labels = model.labels
        self.seconds = time.perf_counter() - self._started
        return self

    def table(self) -> list[tuple[int, float, float, float]]:
        """Return (rows, loss, frozen loss, error) at doubling numbers of rows, averages."""
        return [(m.n_rounds, m.loss, m.frozen_loss, m.error) for m in self.moments]

    def plot(self, path: str | None = None) -> Any:
        """Draw the run on one page; return the figure, or write it to a file."""
        from folklearn.model.pictures import run_figure, saved

        return saved(run_figure(self), path)

    def __repr__(self) -> str:
        return (
            f"Run over {self.name}: {self.n_rows} rows, loss {self.loss:.4f}, "
            f"frozen {self.frozen_loss:.4f}, error {100.0 * self.error:.1f} %"
        )

    def _repr_html_(self) -> str:
        from folklearn.model.pictures import run_card

        return run_card(self)


@dataclass(frozen=True)
class Score:
    """How a model did on rows that it did not learn.

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
    def of(cls, model: "Model", feed: Feed) -> "Score":
        """Score all rows of a feed that have a label."""
        totals = np.zeros(5)
        for rows in feed.rows(doubling=False):
            totals += cls.totals(rows, feed.predict(rows))
        return cls.of_totals(totals)

    @staticmethod
    def totals(rows: FedRows, step: "Step") -> Array:
        """Return rows with a label, their loss, weight, mistakes and unknown classes."""
        there = rows.has_label
        numbers, weights = step.numbers[there], step.weights[there]
        wrong = step.P[there].argmax(axis=1) != numbers
        loss = weights @ step.losses[there]
        return np.array([len(numbers), loss, weights.sum(), wrong.sum(), (numbers < 0).sum()])

    @classmethod
    def of_totals(cls, totals: Array) -> "Score":
        """Return the averages of totals that were added up."""
        n, loss, weight, wrong, unknown = totals.tolist()
        average = loss / weight if weight > 0.0 else math.nan
        return cls(int(n), average, wrong / n if n else math.nan, int(unknown))


def known_numbers(model: "Model", labels: Any) -> Any:
    """Return the class numbers of labels, -1 for one that the model does not know."""
    numbers = model._labels.numbers
    if isinstance(labels, Texts):
        known = model._labels.by_text()
        own = [known.get(value, -1) for value in labels.values]
        return np.array([*own, -1])[labels.codes]
    return np.array([numbers.get(label, -1) for label in labels])


def _certified(certificate: "Certificate | None", weight: float) -> float:
    """Return what no linear model gets below, a row; NaN if that is not known."""
    if certificate is None or not certificate.valid or not weight > 0.0:
        return math.nan
    return certificate.best_linear_at_least / weight
