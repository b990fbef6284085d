"""What the learners on the second-order state share: rounds, certificate, records.

FOLKLORE, AIOLI, GAF and Laplace are one state with different prediction rules and
constants. A learner file holds its rule, its constants and its guarantee.
"""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.evidence.certificate import Certificate, scope_of_growth
from folklearn.kernels.prediction_rules import (
    BRACKET,
    IMPRECISE,
    LOSS,
    OVERCURVED,
    ROUNDS,
    UNSOLVED,
)
from folklearn.kernels.second_order import predict_round, update_round
from folklearn.kernels.state import SecondOrderState
from folklearn.learners.base import Learner
from folklearn.progress import Report
from folklearn.serialization import Record
from folklearn.validation import Rows

_STEPS_OF_FORGETTING = 10  # within one memory: the examples lose a tenth of it at once


class SecondOrderLearner(Learner):
    """Rounds on the state; a learner validates its parameters, then calls `_start`.

    Surrogates that lie below the losses make the state a certificate; where they do not,
    `_why_invalid` says so.
    """

    COUNTERS = ("_first_classes",)

    memory: int | None = None  # rounds after which an example counts 1/e; None is for ever
    lam: float

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return (K - 1) * d * ((K - 1) * d + 1) // 2  # the triangle S

    def _start(
        self,
        *,
        gamma: float | None,
        pull: float = 0.5,
        mu: float = 0.0,
        nodes: Array | None = None,
    ) -> None:
        """Begin with an empty state; gamma None is the largest valid in each round."""
        self._first_classes = self.n_classes
        self._state = SecondOrderState(
            self.n_features,
            self.n_classes,
            self.lam,
            B=self.B,
            gamma=gamma or 0.0,
            max_norm=validation.MAX_NORM,
            pull=pull,
            mu=mu,
            nodes=nodes,
        )

    def _predict(self, x: Array) -> Array:
        p = np.empty(self.n_classes)
        state = self._state
        if not predict_round(state.S, state.memo, x, p):
            validation.check_context(x)
        return p

    def _predict_rows(self, X: Array, norms: Array) -> Array:
        return self._state.predict_many(X, norms)

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

    def _run(self, rows: Rows, report: Report | None) -> Array:
        if self.memory is None:
            return self._state.run(*rows, report)[0]
        T = len(rows.X)
        P = np.empty((T, self.n_classes))
        start = 0
        while start < T:
            # To where old examples lose weight: `run` and the loop forget alike.
            stop = min(start + self._period - self.n_rounds % self._period, T)
            P[start:stop] = self._state.run(*rows.part(start, stop))[0]
            self._forget()
            start = stop
            if report is not None:
                report(start)
        return P

    @property
    def _period(self) -> int:
        return max(1, (self.memory or 0) // _STEPS_OF_FORGETTING)

    def _forget(self) -> None:
        """Discount all examples if a period is over."""
        if self.memory is not None and self.n_rounds % self._period == 0:
            self._state.discount(math.exp(-self._period / self.memory))

    @property
    def n_rounds(self) -> int:
        """The number of rounds learned so far, those of weight 0 included."""
        return int(self._state.totals[ROUNDS])

    @property
    def n_unsolved(self) -> int:
        """Rounds whose fixed point did not converge; a certificate holds all the same."""
        return int(self._state.totals[UNSOLVED])

    @property
    def n_bytes(self) -> int:
        """The memory of the arrays of the state."""
        return self._state.S.nbytes + self._state.memo.nbytes

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the state of such a learner takes at other sizes."""
        return 8 * ((n_classes - 1) * n_features) ** 2

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        """Return a learner with room for more features and classes; this one is unchanged.

        New features come last and are as if they had been 0 so far: exactly what a learner
        told of them at the start would know. New classes come last and were not there
        before: past rounds remain rounds among fewer classes. Costs one copy of the state.
        """
        larger = self._larger(n_features, n_classes)
        larger._state.adopt(self._state)
        larger._first_classes = self._first_classes
        return larger

    def renew(self, feature: int) -> None:
        """Forget one feature, which means something else from now on; the others stay known.

        The certificate then covers models whose weights of this feature change now, each
        within the class, and is dearer by lam K B^2. Costs O(n).
        """
        self._state.renew(feature)
        self._state.totals[BRACKET] += self.lam * self.n_classes * self.B**2

    def coef(self) -> Array:
        """Return the mean weights (K, d) of the current state; its columns sum to zero."""
        return self._state.mean()

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the certificate for the class, a smaller class, or one W (K, d).

        The bound is lam K B^2 plus the brackets of the rounds. ``B`` may be smaller than
        the learner's; for one W it is lam |W|_F^2 instead, which is never larger.
        """
        totals = self._state.totals
        covered, norm = validation.comparators(W, B, self.B, self.n_classes, self.n_features)
        reason = self._why_invalid()
        return Certificate(
            loss=float(totals[LOSS]),
            regret_bound=float(self.lam * norm + totals[BRACKET]),
            B=covered,
            n_rounds=self.n_rounds,
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

    def _parts(self) -> dict[str, NDArray[Any]]:
        state = self._state
        return {"S": state.packed(), "theta": state.theta, "totals": state.totals}

    def _restore(self, record: Record) -> None:
        self._first_classes = record.count("first_classes", 2)
        parts = self._parts().items()
        self._state.restore(*[record.part(name, own.shape) for name, own in parts])
