"""Windows: what no linear model could have beaten in the last 64, 128, 256, ... rounds."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, log_losses
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.evidence import LowerBound
from folklearn.kernels.blas import device_named
from folklearn.learners.lanes import PAIRS, lane_of
from folklearn.learners.leader import Leader
from folklearn.learners.sparse_sgd import Wide
from folklearn.metrics.scores import checked_row, checked_rows, label_mass
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.sparse import SparseRows
from folklearn.validation import Rows

_TWICE = 2  # stretches of one length; a third makes one of the older two


@dataclass(frozen=True)
class Window:
    """The last rounds of a stream, from `start` to before `stop`, counted from 0.

    Attributes
    ----------
    loss, n_errors, weight : totals over the window; the loss is weighted.
    floor : no linear model of row norm at most B has a total loss below it on these rounds.
    B : the row norm that the statement covers.
    """

    start: int
    stop: int
    loss: float
    n_errors: float
    weight: float
    floor: float
    B: float

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return self.stop - self.start

    @property
    def could_gain(self) -> float:
        """The most that any linear model of the class could have gained, a round, in nats."""
        return (self.loss - self.floor) / max(self.n_rounds, 1)


@dataclass(frozen=True)
class Stretch:
    """Consecutive rounds, added up."""

    start: int
    stop: int
    totals: Array  # loss, errors, weight
    evidence: Any  # a sum that can be added up, or None

    def joined(self, later: "Stretch") -> "Stretch":
        """Return both as one."""
        totals = self.totals + later.totals
        evidence = None
        if self.evidence is not None and later.evidence is not None:
            evidence = self.evidence + later.evidence
        return Stretch(self.start, later.stop, totals, evidence)


def climb(ladder: list[Stretch], stretch: Stretch) -> None:
    """Put a stretch behind those of a ladder: at most two of a length, a third joins them."""
    ladder.append(stretch)
    lengths = [one.stop - one.start for one in ladder]
    at = len(lengths) - 1
    while at >= _TWICE and lengths[at] == lengths[at - 1] == lengths[at - _TWICE]:
        ladder[at - 2 : at] = [ladder[at - 2].joined(ladder[at - 1])]
        lengths = [one.stop - one.start for one in ladder]
        at -= _TWICE


def suffixes(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return every union of the newest stretches, the shortest first."""
    found: list[Stretch] = []
    for stretch in reversed(stretches):
        found.append(stretch.joined(found[-1]) if found else stretch)
    return found


class Windows(Serializable):
    r"""A ladder of windows over a stream: losses, errors and a floor, for every power of two.

    Use it beside any model, to see whether it has become beatable *lately*: if the predictions
    lose more than the floor allows in a short window and not in a long one, the stream has
    moved and the model has not.

    Evidence is kept for stretches of ``block``, 2 ``block``, 4 ``block``, ... rounds, at most
    two of each length; a third joins the older two. So the last :math:`2^j` rounds are a sum of
    :math:`O(\log T)` stretches, nothing is ever subtracted, and a window covers at least what
    was asked for and less than twice that. A block is expanded at what a learner beside would
    predict: the leader of the class, or `Wide` where that does not fit.

    Time as that learner; memory :math:`O(\log T)` sums of evidence.

    Guarantee: every floor is a theorem about the rounds of its window (docs/theory/evidence.md).

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    B : largest row norm of the models that floors speak of, positive.
    R : typical norm of x, positive.
    block : rounds of the shortest window, at least 1.
    floors : False counts losses and errors only, which costs next to nothing; floors are then
        -infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.evaluate import Windows
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> y[700:] = 1 - y[700:]  # the world turns
    >>> P = np.where(X[:, :1] > 0, [0.05, 0.95], [0.95, 0.05])  # the model does not
    >>> windows = Windows(n_features=2, n_classes=2)
    >>> losses = windows.observe_many(X, y, P)
    >>> last = windows.last(128)
    >>> last.n_rounds >= 128, last.n_errors == last.n_rounds, last.could_gain > 1.0
    (True, True, True)
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "block", "floors")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        block: int = 64,
        floors: bool = True,
    ) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 1)
        self.B, self.R = validation.positive("B", B), validation.positive("R", R)
        self.block, self.floors = validation.count("block", block, 1), bool(floors)
        self._beside: Leader | Wide | None = None
        if self.floors:
            self._beside = make_reference_learner(
                n_features=n_features, n_classes=n_classes, B=B, R=R
            )
        self._ladder: list[Stretch] = []
        # Rows of the block that is not full yet, none without floors; and of each its loss, error
        # and weight.
        self._waiting: list[tuple[Rows | None, Array]] = []
        self._n_waiting = 0

    @property
    def n_rounds(self) -> int:
        """The number of rounds so far."""
        done = self._ladder[-1].stop if self._ladder else 0
        return done + self._n_waiting

    def observe(self, x: Any, y: Any, p: ArrayLike, *, weight: float = 1.0) -> float:
        """Take in one round; return the log loss -ln p[y] of the prediction, unweighted."""
        P = checked_row(p, self.n_classes)[None]
        if validation.is_sparse_context(x):
            indices, values = validation.sparse_context(x, self.n_features)
            X: Any = SparseRows(np.array([0, len(indices)]), indices, values, self.n_features)
        else:
            X = validation.numbers("x", x)[None]
        return float(self.observe_many(X, np.asarray(y)[None], P, weight=[weight])[0])

    def observe_many(
        self, X: Any, y: ArrayLike, P: ArrayLike, *, weight: ArrayLike | None = None
    ) -> Array:
        """Take in rounds X (T, d), y (T,) or (T, K), P (T, K); return their losses (T,)."""
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        rows = Rows.checked(X, y, weight, **sizes)
        P = checked_rows(P, len(rows.X), self.n_classes)
        losses = log_losses(P, rows.labels, rows.soft)
        errors = 1.0 - label_mass(P, rows.labels, rows.soft)
        self._observe(rows if self.floors else None, np.array([losses, errors, rows.weights]))
        return losses

    def _observe(self, rows: Rows | None, scores: Array) -> None:
        """Take in checked rounds, and of each loss, error and weight (3, T)."""
        start, T = 0, scores.shape[1]
        while start < T:
            stop = min(start + self.block - self._n_waiting, T)
            part = None if rows is None else rows.part(start, stop)
            self._waiting.append((part, scores[:, start:stop]))
            self._n_waiting += stop - start
            if self._n_waiting == self.block:
                self._climb(self._stretch())
                self._waiting, self._n_waiting = [], 0
            start = stop

    def _stretch(self) -> Stretch:
        """Return the rounds that wait as a stretch of their own, expanded at the leader."""
        start = self._ladder[-1].stop if self._ladder else 0
        losses, errors, weights = np.hstack([scores for _, scores in self._waiting])
        counted = weights > 0.0  # a round of weight 0 does not count, even if its loss is infinite
        totals = np.array([weights[counted] @ losses[counted], errors.sum(), weights.sum()])
        evidence = None
        if self._beside is not None:
            beside = self._beside
            evidence = functools.reduce(add, map(beside.expanded, self._rows()))
        return Stretch(start, start + self._n_waiting, totals, evidence)

    def _rows(self) -> list[Rows]:
        """Return the rows that wait, however they came."""
        return Rows.joined([rows for rows, _ in self._waiting if rows is not None])

    def _climb(self, stretch: Stretch) -> None:
        for rows in self._rows():
            assert self._beside is not None
            self._beside._run_all(rows, None)
        climb(self._ladder, stretch)

    def last(self, n_rounds: int) -> Window:
        """Return the shortest window that covers the last `n_rounds`."""
        wanted = validation.count("n_rounds", n_rounds, 1)
        if wanted > self.n_rounds:
            raise InvalidInputError(f"there were {self.n_rounds} rounds, not {wanted}")
        return self._window(next(one for one in self._suffixes() if one.stop - one.start >= wanted))

    def all(self) -> list[Window]:
        """Return the windows of at least 1, 2, 4, ... blocks, the shortest first, and the whole."""
        found, wanted = [], self.block
        for suffix in self._suffixes():
            length = suffix.stop - suffix.start
            if length >= wanted or suffix.start == 0:
                found.append(self._window(suffix))
                while wanted <= length:
                    wanted *= 2
        return found

    def _suffixes(self) -> list[Stretch]:
        """Return every union of the newest stretches, the shortest first."""
        newest = [self._stretch()] if self._n_waiting else []
        return suffixes([*self._ladder, *newest])

    def _window(self, stretch: Stretch) -> Window:
        loss, errors, weight = stretch.totals.tolist()
        floor = -math.inf if stretch.evidence is None else stretch.evidence.lower_bound()
        return Window(stretch.start, stretch.stop, loss, errors, weight, floor, self.B)

    @property
    def n_bytes(self) -> int:
        """About how much memory the evidence, the learner beside and the rows that wait take."""
        own = 0 if self._beside is None else self._beside.n_bytes
        own += sum(one.evidence.n_bytes for one in self._ladder if one.evidence is not None)
        waiting = [rows.arrays("") for rows, _ in self._waiting if rows is not None]
        total: int = own + sum(array.nbytes for arrays in waiting for array in arrays.values())
        return total

    def to_record(self) -> Record:
        """Return everything as a record, rows that wait included."""
        record = super().to_record()
        ladder = self._ladder
        spans = [(one.start, one.stop) for one in ladder]
        record.arrays["spans"] = np.array(spans, np.int64).reshape(-1, 2)
        record.arrays["totals"] = np.array([one.totals for one in ladder]).reshape(-1, 3)
        scores = np.hstack([np.zeros((3, 0)), *(scores for _, scores in self._waiting)])
        pieces: list[Any] = self._rows() if self.floors else [None] * bool(self._waiting)
        record.config["n_waiting"], start = len(pieces), 0
        for i, rows in enumerate(pieces):
            stop = scores.shape[1] if rows is None else start + len(rows.X)
            record.arrays[f"waiting{i}.scores"] = scores[:, start:stop]
            record.arrays.update({} if rows is None else rows.arrays(f"waiting{i}."))
            start = stop
        if self._beside is not None:
            put_inside(record, "beside", self._beside)
            put_inside(record, "evidence", [one.evidence for one in ladder])
        return record

    @classmethod
    def _made(cls, **words: Any) -> Self:
        """Construct without the learner beside: `_restore` takes that of the file."""
        made = cls(**words | {"floors": False})
        made.floors = bool(words["floors"])
        return made

    def _restore(self, record: Record) -> None:
        spans = record.part("spans", (None, 2), np.int64)
        totals = record.part("totals", (len(spans), 3), most=np.inf)
        evidence: list[Any] = [None] * len(spans)
        if self.floors:
            self._beside, evidence = record.inner("beside", Leader, Wide), record.inner("evidence")
        own = [self._beside, *evidence] if self.floors else []
        if not all(isinstance(one, LowerBound) for one in own[1:]):
            raise StateFileError("windows have something else for evidence")
        found = {(one.n_features, one.n_classes, one.B) for one in own}
        if len(evidence) != len(spans) or not found <= {(self.n_features, self.n_classes, self.B)}:
            raise StateFileError("windows lack their evidence")
        stretches = zip(spans.tolist(), totals, evidence, strict=True)
        self._ladder = [Stretch(a, b, own, proof) for (a, b), own, proof in stretches]
        for i in range(record.count("n_waiting")):
            scores = record.part(f"waiting{i}.scores", (3, None), most=np.inf)
            rows = None
            if self.floors:
                sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
                rows = Rows.of_arrays(record.arrays, f"waiting{i}.", **sizes)
                if len(rows.X) != scores.shape[1]:
                    raise StateFileError("windows have other rows than scores")
            self._waiting.append((rows, scores))
            self._n_waiting += scores.shape[1]


def make_reference_learner(
    *, n_features: int, n_classes: int, B: float, R: float, device: str | None = None
) -> Leader | Wide:
    """Return a learner at whose predictions rows are expanded, as tight as the size allows.

    Its evidence is about models of row norm at most B. `_learn` and `_run_all` take any weight.
    """
    B = validation.positive("B", B)
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    if lane_of(d, K, device_named(device)) == PAIRS:
        most = validation.MAX_WEIGHT
        return Leader(
            n_features=d, n_classes=K, ridges=(), B=B, R=R, max_weight=most, device=device
        )
    return Wide(n_features=d, n_classes=K, B=B, R=R)
