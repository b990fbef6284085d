"""What the learners on the second-order state share: rounds, certificate, records.

FOLKLORE, AIOLI, GAF and Laplace are one state with different prediction rules and
constants. A learner file holds its rule, its constants and its guarantee.
"""

import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.contract import (
    Certificate,
    grown_sizes,
    scope_of_growth,
)
from folklearn.learners.rounds import Report, RoundLearner, Rows
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


class SecondOrderLearner(RoundLearner):
    """Rounds on the state; a learner validates its parameters, then calls `_start`."""

    memory: int | None = None  # rounds after which an example counts 1/e; None is for ever
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

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        state = self._state
        loss: float
        if state.one_thread is None:
            loss = update_round(state.S, state.memo, x, label, soft, weight)
        else:
            with state.one_thread:
                loss = update_round(state.S, state.memo, x, label, soft, weight)
        if self.memory is not None and loss == loss:
            self._forget()
        return loss

    def _learn_rows(self, rows: Rows, report: Report) -> Array:
        if self.memory is None:
            return self._state.run(*rows, report)[0]
        T = len(rows.X)
        P = np.empty((T, self.n_classes))
        start = 0
        while start < T:
            stop = min(start + self._rounds_to_forget(), T)
            P[start:stop] = self._state.run(*rows.part(start, stop))[0]
            self._forget()
            start = stop
            if report is not None:
                report(start)
        return P

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
