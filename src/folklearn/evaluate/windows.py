"""Windows: what no linear model could have beaten in the last 64, 128, 256, ... rounds."""

import functools
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import problem
from folklearn.arrays import Array, log_losses
from folklearn.errors import InvalidInputError
from folklearn.evaluate.companion import companion
from folklearn.evaluate.probabilities import checked_row, checked_rows, label_mass
from folklearn.lower_bound import LowerBound
from folklearn.problem import Rows
from folklearn.sparse import SparseRows

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
class _Stretch:
    """Consecutive rounds, added up."""

    start: int
    stop: int
    totals: Array  # loss, errors, weight
    evidence: LowerBound

    def joined(self, later: "_Stretch") -> "_Stretch":
        totals = self.totals + later.totals
        return _Stretch(self.start, later.stop, totals, self.evidence + later.evidence)


class Windows:
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

    def __init__(
        self, *, n_features: int, n_classes: int, B: float = 10.0, R: float = 1.0, block: int = 64
    ) -> None:
        self.block = problem.count("block", block, 1)
        self._beside = companion(n_features=n_features, n_classes=n_classes, B=B, R=R)
        self.n_features, self.n_classes = self._beside.n_features, self._beside.n_classes
        self.B = self._beside.B
        self._ladder: list[_Stretch] = []
        self._waiting: list[tuple[Rows, Array]] = []  # rows of the block that is not full yet
        self._n_waiting = 0

    @property
    def n_rounds(self) -> int:
        """The number of rounds so far."""
        done = self._ladder[-1].stop if self._ladder else 0
        return done + self._n_waiting

    def observe(self, x: Any, y: Any, p: ArrayLike, *, weight: float = 1.0) -> float:
        """Take in one round; return the log loss -ln p[y] of the prediction, unweighted."""
        P = checked_row(p, self.n_classes)[None]
        if problem.is_sparse_context(x):
            indices, values = problem.sparse_context(x, self.n_features)
            X: Any = SparseRows(np.array([0, len(indices)]), indices, values, self.n_features)
        else:
            X = problem.numbers("x", x)[None]
        return float(self.observe_many(X, np.asarray(y)[None], P, weight=[weight])[0])

    def observe_many(
        self, X: Any, y: ArrayLike, P: ArrayLike, *, weight: ArrayLike | None = None
    ) -> Array:
        """Take in rounds X (T, d), y (T,) or (T, K), P (T, K); return their losses (T,)."""
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        rows = Rows.checked(X, y, weight, **sizes)
        P = checked_rows(P, len(rows.X), self.n_classes)
        losses = log_losses(P, rows.labels, rows.soft)
        columns = (losses, 1.0 - label_mass(P, rows.labels, rows.soft))
        start = 0
        while start < len(rows.X):
            stop = min(start + self.block - self._n_waiting, len(rows.X))
            scores = np.stack([column[start:stop] for column in columns])
            self._wait(rows.part(start, stop), scores)
            start = stop
        own: Array = losses
        return own

    def _wait(self, rows: Rows, scores: Array) -> None:
        self._waiting.append((rows, scores))
        self._n_waiting += len(rows.X)
        if self._n_waiting == self.block:
            self._climb(self._stretch())
            self._waiting, self._n_waiting = [], 0

    def _stretch(self) -> _Stretch:
        """Return the rounds that wait as a stretch of their own, expanded at the leader."""
        start = self._ladder[-1].stop if self._ladder else 0
        totals = np.zeros(3)
        parts = []
        for rows, scores in self._waiting:
            w = rows.weights
            counted = w > 0.0  # a round of weight 0 does not count, even if its loss is infinite
            totals += (w[counted] @ scores[0, counted], scores[1].sum(), w.sum())
            parts.append(self._beside.expanded(rows))
        return _Stretch(start, start + self._n_waiting, totals, functools.reduce(add, parts))

    def _climb(self, stretch: _Stretch) -> None:
        for rows, _ in self._waiting:
            self._beside._run_all(rows, None)
        self._ladder.append(stretch)
        lengths = [one.stop - one.start for one in self._ladder]
        at = len(lengths) - 1
        while at >= _TWICE and lengths[at] == lengths[at - 1] == lengths[at - _TWICE]:
            joined = self._ladder[at - 2].joined(self._ladder[at - 1])
            self._ladder[at - 2 : at] = [joined]
            lengths = [one.stop - one.start for one in self._ladder]
            at -= _TWICE

    def last(self, n_rounds: int) -> Window:
        """Return the shortest window that covers the last `n_rounds`."""
        wanted = problem.count("n_rounds", n_rounds, 1)
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

    def _suffixes(self) -> list[_Stretch]:
        """Return every union of the newest stretches, the shortest first."""
        newest = [self._stretch()] if self._n_waiting else []
        suffixes: list[_Stretch] = []
        for stretch in [*newest, *reversed(self._ladder)]:
            suffixes.append(stretch.joined(suffixes[-1]) if suffixes else stretch)
        return suffixes

    def _window(self, stretch: _Stretch) -> Window:
        loss, errors, weight = stretch.totals.tolist()
        floor = stretch.evidence.floor()
        return Window(stretch.start, stretch.stop, loss, errors, weight, floor, self.B)
