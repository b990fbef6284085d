"""What predictions have cost: totals over the life of a model, and windows of late."""

import math
from typing import Any, NamedTuple

import numpy as np

from folklearn.arrays import TINY, Array
from folklearn.arrays import Labels as Numbers
from folklearn.evaluate.windows import Window, Windows
from folklearn.serialization import Record, Serializable, put_inside

_FEW = 64  # rows that were learned one by one, before the windows are told


class Outcome(NamedTuple):
    """What came of the prediction of one row, or arrays (T,) of many."""

    loss: Any
    of_new: Any  # the part of the loss that was paid for classes being unknown
    wrong: Any


class Tally(Serializable):
    """Progressive totals since the first row, and windows of the last ones.

    Attributes
    ----------
    loss, loss_of_new, total_weight : weighted losses, and the weight of all rows.
    n_mistakes : rows whose most likely class was wrong.
    """

    COUNTERS = ("n_mistakes",)

    def __init__(self) -> None:
        self.loss = self.loss_of_new = self.total_weight = 0.0
        self.n_mistakes = 0
        self._windows = Windows(n_features=1, n_classes=2, floors=False)
        self._singles: list[tuple[float, bool, float]] = []  # of rows that no window has seen yet

    def add_one(self, outcome: Outcome, weight: float) -> None:
        """Count one row that was learned."""
        loss, of_new, wrong = outcome
        self.loss += weight * loss
        self.loss_of_new += weight * of_new
        self.total_weight += weight
        self.n_mistakes += wrong
        self._singles.append((loss, wrong, weight))
        if len(self._singles) >= _FEW:
            self._settle()

    def add(self, outcome: Outcome, weights: Array) -> None:
        """Count rows that were learned."""
        self.loss += float(weights @ outcome.loss)
        self.loss_of_new += float(weights @ outcome.of_new)
        self.total_weight += float(weights.sum())
        self.n_mistakes += int(outcome.wrong.sum())
        self._settle()
        self._windows._observe(None, np.array([outcome.loss, outcome.wrong, weights]))

    @property
    def n_rows(self) -> int:
        """The number of rows counted."""
        return self._windows.n_rounds + len(self._singles)

    @property
    def average(self) -> float:
        """The loss a row, NaN before the first."""
        return self.loss / self.total_weight if self.total_weight > 0.0 else math.nan

    def all(self) -> list[Window]:
        """Return the windows of the last 64, 128, 256, ... rows, and of all."""
        self._settle()
        return self._windows.all()

    def last(self, n_rounds: int) -> Window | None:
        """Return the shortest window of so many rows, or of all if there are fewer."""
        self._settle()
        windows = self._windows
        return windows.last(min(n_rounds, windows.n_rounds)) if windows.n_rounds else None

    def _settle(self) -> None:
        """Let the windows see rows that were counted singly."""
        if self._singles:
            singles, self._singles = self._singles, []
            self._windows._observe(None, np.array(singles, np.float64).T)

    @property
    def n_bytes(self) -> int:
        """About how much memory the windows take."""
        return self._windows.n_bytes

    def to_record(self) -> Record:
        """Return everything as a record."""
        self._settle()
        record = super().to_record()
        record.arrays["totals"] = np.array([self.loss, self.loss_of_new, self.total_weight])
        put_inside(record, "windows", self._windows)
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self.loss, self.loss_of_new, self.total_weight = record.part("totals", (3,)).tolist()
        self._windows = record.inner("windows", Windows)

    def __getstate__(self) -> dict[str, Any]:
        self._settle()  # so that what is pickled does not depend on who has looked
        return self.__dict__


def outcome(p: Array, label: Any, unseen: float) -> Outcome:
    """Return what came of one prediction p (K,) of the classes known then, strictly."""
    if type(label) is int:
        if label >= p.size:
            loss = -math.log(max(unseen, TINY))
            return Outcome(loss, loss, True)
        share, given = -math.log1p(-unseen) if unseen < 1.0 else 0.0, p.tolist()
        loss = share - math.log(max(given[label], TINY))
        return Outcome(loss, share, given.index(max(given)) != label)
    P = np.pad(p, (0, max(0, label.size - p.size)))[None]
    came = outcomes(P, np.array([unseen]), label[None], np.array([p.size]))
    return Outcome(*(part[0].item() for part in came))


def outcomes(P: Array, u: Array, labels: Any, known: Numbers) -> Outcome:
    """Return what came of predictions: strict losses, and what was paid for classes being unknown.

    P are the probabilities of the `known` classes before each row, if it is one of them; u that it
    is none. Labels are class numbers (T,), or soft (T, K): what a soft label gives to new classes
    is paid as a new class is.
    """
    is_known = np.arange(P.shape[1]) < known[:, None]
    y = labels
    if labels.ndim == 1:
        mass = (y >= known).astype(np.float64)  # that is new
        own = -np.log(np.maximum(P[np.arange(len(y)), y], TINY))
        of_known = np.where(mass > 0.0, 0.0, own)
    else:
        y, soft = np.argmax(labels, axis=1), labels[:, : P.shape[1]]
        there = is_known & (soft > 0.0)
        of_known = np.where(there, -soft * np.log(np.maximum(P, TINY)), 0.0).sum(axis=1)
        mass = np.where(is_known, 0.0, soft).sum(axis=1)
    share = -np.log1p(-np.where(u >= 1.0, 0.0, u))
    of_new = mass * -np.log(np.maximum(u, TINY)) + (1.0 - mass) * share
    wrong = (P.argmax(axis=1) != y) | (y >= known) if len(y) else np.zeros(0, bool)
    return Outcome(of_known + of_new, of_new, wrong)
