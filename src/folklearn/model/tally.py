"""What predictions have cost: totals over the life of a model, and windows of late."""

import math
from typing import Any, NamedTuple

import numpy as np

from folklearn.arrays import TINY, Array
from folklearn.arrays import Labels as Numbers
from folklearn.evaluate.windows import Window, Windows
from folklearn.model.core import Core
from folklearn.persist import Record, Saved, put_inside

_FEW = 64  # rows that were learned one by one, before the windows are told


class Outcome(NamedTuple):
    """What came of the prediction of one row, or arrays (T,) of many."""

    loss: Any
    of_new: Any  # the part of the loss that was paid for classes being unknown
    wrong: Any


class Tally(Saved):
    """Progressive totals since the first row, and windows of the last ones.

    Parameters
    ----------
    floors : whether windows have floors; the core must then keep the rows that it learns.

    Attributes
    ----------
    loss, loss_of_new, total_weight : weighted losses, and the weight of all rows.
    n_mistakes : rows whose most likely class was wrong.
    """

    WORDS = ("floors",)
    COUNTS = ("n_mistakes",)

    def __init__(self, *, floors: bool = False) -> None:
        self.floors = bool(floors)
        self.loss = self.loss_of_new = self.total_weight = 0.0
        self.n_mistakes = 0
        self._windows: Windows | None = None
        self._singles: list[tuple[float, bool, float]] = []  # of rows that no window has seen yet,
        self._core: Core | None = None  # and who keeps those rows

    def add_one(self, outcome: Outcome, weight: float, core: Core) -> None:
        """Count one row that the core has just learned."""
        loss, of_new, wrong = outcome
        self.loss += weight * loss
        self.loss_of_new += weight * of_new
        self.total_weight += weight
        self.n_mistakes += wrong
        self._singles.append((loss, wrong, weight))
        self._core = core
        if len(self._singles) >= _FEW:
            self.settle()

    def add(self, outcome: Outcome, weights: Array, core: Core) -> None:
        """Count rows that the core has just learned."""
        self.loss += float(weights @ outcome.loss)
        self.loss_of_new += float(weights @ outcome.of_new)
        self.total_weight += float(weights.sum())
        self.n_mistakes += int(outcome.wrong.sum())
        self.settle()
        self._observe(np.array([outcome.loss, outcome.wrong, weights]), core)

    @property
    def average(self) -> float:
        """The loss a row, NaN before the first."""
        return self.loss / self.total_weight if self.total_weight > 0.0 else math.nan

    def all(self) -> list[Window]:
        """Return the windows of the last 64, 128, 256, ... rows, and of all."""
        self.settle()
        return [] if self._windows is None else self._windows.all()

    def last(self, n_rounds: int) -> Window | None:
        """Return the shortest window of so many rows, or of all if there are fewer."""
        self.settle()
        windows = self._windows
        if windows is None or not windows.n_rounds:
            return None
        return windows.last(min(n_rounds, windows.n_rounds))

    def settle(self) -> None:
        """Let the windows see rows that were counted singly.

        Where floors are kept, this must be done before the core grows or learns a block.
        """
        if self._core is not None:
            singles, self._singles = self._singles, []
            core, self._core = self._core, None
            self._observe(np.array(singles, np.float64).T, core)

    def _observe(self, scores: Array, core: Core) -> None:
        """Let the windows see losses, errors and weights (3, T), and the rows if they are kept."""
        taken = core.taken_rows()
        if not self.floors or core.learner is None:
            if self._windows is None:
                self._windows = Windows(n_features=1, n_classes=2, floors=False)
            self._windows._observe(None, scores)
            return
        d, K = core.n_columns, core.n_classes
        windows = self._windows
        if windows is None or (windows.n_features, windows.n_classes, windows.floors) != (d, K, 1):
            windows = Windows(n_features=d, n_classes=K)  # other sizes: a new proof
            self._windows = windows
        start = 0
        for rows in taken:
            stop = start + len(rows.X)
            same = rows.X.shape[1] == d and (not len(rows.soft) or rows.soft.shape[1] == K)
            if same:
                windows._observe(rows, scores[:, start:stop])
            start = stop

    @property
    def n_bytes(self) -> int:
        """About how much memory the windows take."""
        return 0 if self._windows is None else self._windows.n_bytes

    def to_record(self) -> Record:
        """Return everything as a record."""
        self.settle()
        record = super().to_record()
        record.arrays["totals"] = np.array([self.loss, self.loss_of_new, self.total_weight])
        if self._windows is not None:
            put_inside(record, "windows", self._windows)
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self.loss, self.loss_of_new, self.total_weight = record.part("totals", (3,)).tolist()
        if "windows" in record.config:
            self._windows = record.inner("windows")

    def __getstate__(self) -> dict[str, Any]:
        self.settle()  # so that what is pickled does not depend on who has looked
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
