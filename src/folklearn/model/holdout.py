r"""How well the model would do that is saved now: rows ahead, predicted by the model as it stands.

A model that learns on line is judged by predictions made just before each label comes. Whoever
saves it and uses it later gets something else: a tracker that follows the last few labels wins
the first game and loses the second. So in stripes of the stream, given by the number of the
round, rows are predicted by the experts *as they were when the stripe began*, and these losses,
lately, decide how the experts are weighted in whatever predicts many rows at once.
"""

import copy
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np

from folklearn import validation
from folklearn.arrays import TINY, Array, Labels, log_losses, softmax
from folklearn.errors import InvalidInputError
from folklearn.learners.base import Learner
from folklearn.model.sparse_scaler import SparseInput, SparseScaler
from folklearn.scaler import OnlineScaler
from folklearn.serialization import Record, Serializable, put_inside

_FIRST = 64  # rounds before the first stripe
_LONGEST = 288  # rounds
_SHARE = 4  # a stripe is as long as a quarter of the rounds before it, at most
_SPACED = 16  # stripes of wide models begin when so much of the rounds so far has gone by
_KEEP = 0.8  # of the record, from one stripe to the next
_PARTED = 1.2, 0.05  # factor and nats by which the frozen loss may exceed the progressive one
_SHARPNESS = 10.0  # rows of a stripe are alike: a nat of their mean counts as ten, not as 288


def has_parted(loss: float, frozen: float) -> bool:
    """Tell whether the model as it would be saved does clearly worse than the running one."""
    factor, nats = _PARTED
    return frozen > factor * loss + nats


def parted(loss: float, frozen: float) -> str:
    """Return what it means that the two losses have parted."""
    return (
        f"the saved model will do worse than the running one. Rows ahead, it had an average loss "
        f"of {frozen:.4f}, where predictions with every label known had {loss:.4f}: what is "
        "learned here goes out of date, so go on learning while you predict"
    )


class HeldRows(NamedTuple):
    """Rows of a stripe: raw inputs, labels or soft labels, weights."""

    X: Any
    labels: Labels
    soft: Array
    weights: Array

    def arrays(self) -> dict[str, Any]:
        """Return everything as arrays by name."""
        own = {"labels": self.labels, "soft": self.soft, "weights": self.weights}
        X = self.X.arrays() if isinstance(self.X, SparseInput) else {"X": self.X}
        return own | X

    @classmethod
    def of_arrays(cls, arrays: dict[str, Any]) -> "HeldRows":
        """Return what `arrays` gave, behind the prefix "held."."""
        start = "held."
        own = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
        X = own["X"] if "X" in own else SparseInput.of_arrays(own)
        return cls(X, own["labels"], own["soft"], own["weights"])

    def check_shape_of(self, scaler: Any, n_classes: int) -> None:
        """Raise if these are not rows that a scaler, and a learner of so many classes, can see."""
        T = len(self.labels)
        if isinstance(self.X, SparseInput):
            self.X.check_shape_of(T, scaler.n_slots)
        else:
            validation.contexts(self.X, scaler.n_features, gaps=True)
        y = self.soft if len(self.soft) else self.labels
        validation.labels(y, len(self.X), n_classes)
        validation.weights(self.weights, T)
        if self.labels.dtype != np.int64 or self.weights.dtype != np.float64:
            raise InvalidInputError("rows of a stripe are of another kind")

    def copy(self) -> "HeldRows":
        """Return rows that share nothing with anybody's arrays."""
        X = SparseInput.joined([self.X]) if isinstance(self.X, SparseInput) else self.X.copy()
        return HeldRows(X, self.labels.copy(), self.soft.copy(), self.weights.copy())


_Row = tuple[Array, int, Array, float]  # x, label, soft label, weight


class HoldoutScores(NamedTuple):
    """What the experts lost in a stripe, a row, and what their mixture lost in all."""

    names: list[str]
    losses: Array
    own: float
    weight: float


class HoldoutWeights(Serializable):
    """The record of the experts of a learner on rows that they did not follow.

    Attributes
    ----------
    loss : average loss of the weighted experts in recent stripes, NaN before the first.
    """

    PARAMS = ("wide",)
    COUNTERS = ("_begins", "_ends")

    def __init__(self, *, wide: bool = False) -> None:
        self.wide = bool(wide)
        self._begins, self._ends = _FIRST, 0
        self.loss = float("nan")
        self._names: list[str] = []
        self._losses: Array = np.zeros(0)
        self._totals: Array = np.zeros(2)  # loss and weight of recent stripes
        self._learner: Learner | None = None  # as it was when the stripe began
        self._scaler: Any = None
        self._held: list[HeldRows] = []
        self._rows: list[_Row] = []  # that came one by one, behind those

    def rows_ahead(self, n_rounds: int) -> int:
        """Return how many rows may be learned until a stripe begins or ends."""
        return (self._ends if self.is_open else self._begins) - n_rounds

    @property
    def is_open(self) -> bool:
        """Whether a stripe is under way."""
        return self._learner is not None

    @property
    def length(self) -> int:
        """The number of rows of the stripe that begins next."""
        return min(_LONGEST, self._begins // _SHARE)

    def begin(
        self, n_rounds: int, learner: Learner | None, scaler: Any, ahead: HeldRows | None
    ) -> HoldoutScores | None:
        """Begin a stripe if it is time.

        If all of its rows are known, `ahead`, nothing has to be put aside: the verdict is returned,
        for `take_in` when the rows have been learned.
        """
        if n_rounds != self._begins:
            return None
        length = self.length
        self._begins += max(2 * length, n_rounds // _SPACED if self.wide else 0)
        self._ends = n_rounds + length
        if learner is None:
            return None
        if ahead is not None:
            return self._judged(learner, scaler, [ahead])
        self._learner, self._scaler = copy.deepcopy((learner, scaler))
        return None

    def hold_row(self, n_rounds: int, x: Array, label: int, soft: Array, weight: float) -> bool:
        """Keep one row of a dense model, as `hold` keeps many."""
        self._rows.append((x.copy(), label, soft, weight))
        return n_rounds == self._ends and self._end()

    def hold(self, n_rounds: int, rows: HeldRows) -> bool:
        """Keep rows of the stripe that is under way; at its end count them, and say so."""
        self._gather()
        self._held.append(rows)
        return n_rounds == self._ends and self._end()

    def _gather(self) -> None:
        """Put rows that came one by one together, as far as they are of one kind."""
        rows, self._rows = self._rows, []
        for (_, width), alike in groupby(rows, key=lambda row: (row[0].size, row[2].size)):
            X, labels, soft, weights = zip(*alike, strict=True)
            own = np.array(soft) if width else np.empty((0, 0))
            self._held.append(HeldRows(np.array(X), np.array(labels), own, np.array(weights)))

    def _end(self) -> bool:
        """Count the rows of a stripe that is over."""
        self._gather()
        assert self._learner is not None
        judged = self._judged(self._learner, self._scaler, self._held)
        self._learner, self._scaler, self._held = None, None, []
        if judged is not None:
            self.take_in(judged)
        return True

    def _judged(self, learner: Learner, scaler: Any, held: list[HeldRows]) -> HoldoutScores | None:
        """Return what the experts lose on rows, None if none of them counts."""
        names = learner._expert_names()
        before = self.weights(learner)
        X, labels, soft, weights = _joined(held, scaler, learner.n_classes)
        if not len(labels):
            return None
        Z = scaler.transform(X)
        P = learner._expert_predictions(Z, validation.norms(Z))
        losses = log_losses(P, labels, soft, TINY) @ weights
        own = float(log_losses(np.tensordot(before, P, 1), labels, soft, TINY) @ weights)
        weight = float(weights.sum())
        return HoldoutScores(names, losses / weight, own, weight)

    def take_in(self, judged: HoldoutScores) -> None:
        """Add what the experts lost in a stripe to their record."""
        names, losses, own, weight = judged
        past = dict(zip(self._names, self._losses.tolist(), strict=True))
        kept = np.array([past.get(name, 0.0) for name in names])
        if not past.keys() >= set(names):
            kept[:] = 0.0  # other experts: nothing can be compared
        self._names, self._losses = names, _KEEP * kept + losses
        self._sum_up(_KEEP * self._totals + (own, weight))

    def _sum_up(self, totals: Array) -> None:
        self._totals = totals
        total, weight = totals.tolist()
        self.loss = total / weight if weight > 0.0 else float("nan")

    def weights(self, learner: Learner) -> Array:
        """Return the weights of a learner's experts by their record; equal ones without one."""
        names = learner._expert_names()
        past = dict(zip(self._names, self._losses.tolist(), strict=True))
        if not past.keys() >= set(names):
            return np.full(len(names), 1.0 / len(names))
        return softmax(-_SHARPNESS * np.array([past[name] for name in names]))

    def has_judged(self, learner: Learner) -> bool:
        """Tell whether there is a record of all experts of a learner."""
        return bool(self._names) and set(learner._expert_names()) <= set(self._names)

    def tell(self, learner: Learner) -> None:
        """Let no expert retire that the record puts before all others."""
        learner.standing = dict(zip(self._names, self._losses.tolist(), strict=True))

    @property
    def n_bytes(self) -> int:
        """About how much memory the stripe that is under way takes."""
        held: int = sum(array.nbytes for rows in self._held for array in rows.arrays().values())
        own = 0 if self._learner is None else self._learner.n_bytes
        return own + held + sum(x.nbytes for x, *_ in self._rows)

    def record_only(self) -> Self:
        """Return a copy without the stripe that is under way."""
        own = self._shallow()
        own._learner, own._scaler, own._held, own._rows = None, None, [], []
        return own

    def to_record(self) -> Record:
        """Return the full state as a record, the stripe that is under way included."""
        self._gather()
        record = super().to_record()
        record.config["names"] = self._names
        record.arrays.update(losses=self._losses.copy(), totals=self._totals.copy())
        if self._learner is not None:
            put_inside(record, "learner", self._learner)
            put_inside(record, "scaler", self._scaler)
            if self._held:  # as one, however they came
                own = _joined(self._held, self._scaler, self._learner.n_classes).arrays()
                record.arrays.update({f"held.{part}": own[part] for part in own})
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self._names = [str(name) for name in record.word("names")]
        self._losses = record.part("losses", (len(self._names),))
        self._sum_up(record.part("totals", (2,)))
        if "learner" in record.config:
            self._learner = record.inner("learner", Learner)
            self._scaler = record.inner("scaler", OnlineScaler, SparseScaler)
            if "held.labels" in record.arrays:
                self._held = [HeldRows.of_arrays(record.arrays)]
                self._held[0].check_shape_of(self._scaler, self._learner.n_classes)


def _joined(held: list[HeldRows], scaler: Any, n_classes: int) -> HeldRows:
    """Return the rows as they would have been seen when the scaler and the learner were put aside.

    Columns that came later are left out, and so are rows of later classes, and of weight 0.
    """
    parts = []
    for X, labels, soft, weights in held:
        is_later = (soft[:, n_classes:] > 0.0).any(axis=1) if len(soft) else labels >= n_classes
        own = ~is_later & (weights > 0.0)
        if isinstance(X, SparseInput):
            seen: Any = X.of_slots(scaler.n_slots)[own]
        else:
            seen = X[own, : scaler.n_features]
        if len(soft):
            soft = soft[own, :n_classes]
            soft = np.pad(soft, ((0, 0), (0, n_classes - soft.shape[1])))
        parts.append(HeldRows(seen, labels[own], soft, weights[own]))
    if len(parts) == 1:
        return parts[0]
    Xs, numbers, softs, counts = map(list, zip(*parts, strict=True))
    is_soft = any(map(len, softs))  # then some labels may be hard all the same
    pairs = zip(softs, numbers, strict=True)
    softs = [s if len(s) else np.eye(n_classes)[k] for s, k in pairs] if is_soft else softs[:0]
    soft = np.concatenate(softs) if is_soft else parts[0].soft[:0]
    sparse = isinstance(Xs[0], SparseInput)
    X = SparseInput.joined(Xs) if sparse else np.concatenate(Xs)
    return HeldRows(X, np.concatenate(numbers), soft, np.concatenate(counts))
