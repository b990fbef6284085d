"""What the learners on the second-order state share: verbs, certificate, records.

FOLKLORE, AIOLI, GAF and Laplace are one state with different prediction rules and
constants. A learner file holds its rule, its constants and its guarantee; the verbs are
here, once, because a single event is too short to be passed on through layers.
"""

import math
import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem, progress
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.contract import (
    Certificate,
    Progress,
    grown_sizes,
    scope_of_growth,
)
from folklearn.numerics.rules import (
    BRACKET,
    IMPRECISE,
    LOSS,
    N_TOTALS,
    OVERCURVED,
    ROUNDS,
    UNSOLVED,
)
from folklearn.numerics.second_order import predict_round, update_round
from folklearn.numerics.state import SecondOrderState
from folklearn.persist import Record

Array = NDArray[np.float64]

_STEPS_OF_FORGETTING = 10  # within one memory: the examples lose a tenth of it at once


class SecondOrderLearner:
    """The verbs; a learner validates its parameters, then calls `_start`.

    One model is for one thread at a time, predictions included: a prediction is kept for
    the update that may follow it.
    """

    WORDS: ClassVar[tuple[str, ...]]  # the constructor's parameters, each an attribute
    memory: int | None = None  # rounds after which an example counts 1/e; None is for ever
    n_features: int
    n_classes: int
    B: float
    lam: float

    def _start(
        self,
        *,
        gamma: float | None,
        pull: float = 0.5,
        mu: float = 0.0,
        nodes: Array | None = None,
    ) -> None:
        """Begin with an empty state; gamma None is the largest valid in each round."""
        self._shape = (self.n_features,)
        self._first_classes = self.n_classes
        self._state = SecondOrderState(
            self.n_features,
            self.n_classes,
            self.lam,
            B=self.B,
            gamma=gamma or 0.0,
            max_norm=problem.MAX_NORM,
            pull=pull,
            mu=mu,
            nodes=nodes,
        )

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out.

        Rows of a matrix are all predicted from the current state. The prediction is
        improper: it depends on x beyond a linear map of it.
        """
        if not problem.is_context(x, self._shape):
            x = problem.numbers("x", x)
            if x.ndim == 2:
                return self._state.predict_many(*problem.contexts(x, self.n_features))
            x = problem.context(x, self.n_features)
        p = np.empty(self.n_classes)
        state = self._state
        if not predict_round(state.S, state.memo, x, p):
            problem.refuse_context(x)
        return p

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example and return its log loss -ln p[y], predicted before learning.

        y is a class 0..K-1 or a point of the simplex (K,). The example counts `weight`
        times in the state and in the certificate; the returned loss is unweighted. A label
        may arrive long after `predict(x)`: the round is then predicted again from the
        present state, and that prediction is the one that loss and certificate count.
        """
        if not problem.is_context(x, self._shape):
            x = problem.context(x, self.n_features)
        label, soft = problem.label(y, self.n_classes)
        if type(weight) is not float or weight != 1.0:
            weight = problem.weight(weight)
        state = self._state
        loss: float
        if state.one_thread is None:
            loss = update_round(state.S, state.memo, x, label, soft, weight)
        else:
            with state.one_thread:
                loss = update_round(state.S, state.memo, x, label, soft, weight)
        if loss != loss:
            problem.refuse_context(x)
        if self.memory is not None:
            self._forget()
        return loss

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
    ) -> Array:
        """Predict, then learn, row by row; return the predictions (T, K).

        Equal to the loop over `predict` and `update`, at the speed of matrix products.
        Every row is checked before the first round. y is (T,) classes or (T, K) soft
        labels; `progress` is True for a bar or a function of the number of rounds done.
        """
        return self._run(X, y, weight, progress)[0]

    def _run(
        self, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None, show: Progress
    ) -> tuple[Array, Array]:
        X, norms = problem.contexts(X, self.n_features)
        labels, soft = problem.labels(y, len(X), self.n_classes)
        weights = problem.weights(weight, len(X))
        with progress.reporter(show, len(X), "learning") as report:
            if self.memory is None:
                return self._state.run(X, norms, labels, soft, weights, report)
            P, losses = np.empty((len(X), self.n_classes)), np.empty(len(X))
            start = 0
            while start < len(X):
                rows = slice(start, min(start + self._rounds_to_forget(), len(X)))
                some = soft[rows] if len(soft) else soft
                P[rows], losses[rows] = self._state.run(
                    X[rows], norms[rows], labels[rows], some, weights[rows]
                )
                self._forget()
                start = rows.stop
                if report is not None:
                    report(start)
            return P, losses

    def _rounds_to_forget(self) -> int:
        """Rounds until old examples lose weight, so that `run` and the loop forget alike."""
        period = self._period
        return period - int(self._state.totals[ROUNDS]) % period

    @property
    def _period(self) -> int:
        return max(1, (self.memory or 0) // _STEPS_OF_FORGETTING)

    def _forget(self) -> None:
        """Discount all examples if a period is over."""
        if self.memory is not None and int(self._state.totals[ROUNDS]) % self._period == 0:
            self._state.discount(math.exp(-self._period / self.memory))

    def grow(self, *, n_features: int | None = None, n_classes: int | None = None) -> None:
        """Make room for more features and classes, of which nothing is known yet.

        New features come last and are as if they had been 0 so far: exactly what a learner
        told of them at the start would know. New classes come last and were not there
        before: past rounds remain rounds among fewer classes. Costs one copy of the state.
        """
        words = {word: getattr(self, word) for word in self.WORDS}
        larger = type(self)(**words | grown_sizes(self, n_features, n_classes))
        larger._state.adopt(self._state)
        larger._first_classes = self._first_classes
        self.__dict__.update(larger.__dict__)

    @property
    def n_unsolved(self) -> int:
        """Rounds whose fixed point did not converge; a certificate holds all the same."""
        return int(self._state.totals[UNSOLVED])

    def coef(self) -> Array:
        """Return the mean weights (K, d) of the current state; its columns sum to zero."""
        return self._state.mean()

    def to_record(self) -> Record:
        """Return the full state as a record."""
        config = {word: getattr(self, word) for word in self.WORDS}
        state = self._state
        arrays = {
            "S": state.packed(),
            "theta": state.theta.copy(),
            "totals": state.totals.copy(),
        }
        if self._first_classes != self.n_classes:
            config["first_classes"] = self._first_classes
        return Record(type(self).__name__, config, arrays)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a learner from its record."""
        name = cls.__name__
        config = dict(record.config)
        first = config.pop("first_classes", None)
        try:
            model = cls(**config)
            if first is not None:
                model._first_classes = problem.count("first_classes", first, 2)
        except (TypeError, InvalidInputError) as error:
            raise StateFileError(f"a {name} state has a bad configuration: {error}") from None
        state = model._state
        n = state.theta.size
        shapes = {"S": (n * (n + 1) // 2,), "theta": (n,), "totals": (N_TOTALS,)}
        state.restore(*[record.part(*part) for part in shapes.items()])
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file; `folklearn.load` resumes exactly."""
        persist.write(path, self.to_record())

    def __repr__(self) -> str:
        words = ", ".join(f"{word}={getattr(self, word)!r}" for word in self.WORDS)
        return f"{type(self).__name__}({words})"


class CertifiedLearner(SecondOrderLearner):
    """A learner whose surrogates lie below the loss, so that its state certifies."""

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the certificate for the class, a smaller class, or one W (K, d).

        The bound is lam K B^2 plus the brackets of the rounds. ``B`` may be smaller than
        the learner's; for one W it is lam |W|_F^2 instead, which is never larger.
        """
        totals = self._state.totals
        covered, norm = problem.comparators(W, B, self.B, self.n_classes, self.n_features)
        reason = self._why_invalid()
        return Certificate(
            loss=float(totals[LOSS]),
            regret_bound=np.inf if reason else float(self.lam * norm + totals[BRACKET]),
            B=covered,
            n_rounds=int(totals[ROUNDS]),
            valid=not reason,
            reason=reason,
            scope=scope_of_growth(self._first_classes, self.n_classes),
        )

    def _why_invalid(self) -> str:
        totals = self._state.totals
        n_rounds = f"{totals[ROUNDS]:.0f} rounds"
        if self.memory is not None:
            return f"a learner that forgets (memory={self.memory}) proves nothing about the past"
        if totals[OVERCURVED]:
            return (
                f"gamma={self._state.gamma:g} was above the valid constant in "
                f"{totals[OVERCURVED]:.0f} of {n_rounds}: leave gamma to the learner, or give a "
                "B and R that cover the contexts"
            )
        if totals[IMPRECISE]:
            return (
                f"the state lost its digits to rounding in {totals[IMPRECISE]:.0f} of "
                f"{n_rounds}: scale the features, or raise lam"
            )
        return ""
