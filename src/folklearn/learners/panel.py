"""What `Leader` and `auto` share: a panel of experts in one mixture, and its evidence."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.certificate import Certificate
from folklearn.evidence import Evidence
from folklearn.learners.folklore import Folklore
from folklearn.learners.rounds import Report, RoundLearner, Rows
from folklearn.numerics import panel
from folklearn.numerics.backend import threads_for
from folklearn.numerics.panel_state import PanelState, Spec

Array = NDArray[np.float64]

_CHUNK_FLOPS = 1e9  # work between two chances to report progress or to be interrupted
_NEWTON_STEPS = 4
_NOTHING: Array = np.zeros((1, 1))
_NO_MEMO: Array = np.zeros(1)


class PanelLearner(RoundLearner):
    """Rounds of a panel; a learner validates its parameters, then calls `_start`."""

    max_weight: float
    B: float
    R: float

    def _start(self, spec: Spec, folklore: Folklore | None = None) -> None:
        self._shape = (self.n_features,)
        self._first_classes = self.n_classes
        self._folklore = folklore
        self._state = PanelState(
            self.n_features,
            self.n_classes,
            spec,
            max_norm=problem.MAX_NORM,
            max_weight=self.max_weight,
        )

    def _arrays(self) -> tuple[Array, NDArray[np.int64], Array, Array]:
        state, folklore = self._state, self._folklore
        if folklore is None:
            return state.memo, state.plan, _NOTHING, _NO_MEMO
        return state.memo, state.plan, folklore._state.S, folklore._state.memo

    def predict(self, x: ArrayLike) -> Array:
        if not problem.is_context(x, self._shape):
            x = problem.numbers("x", x)
            if x.ndim == 2:
                X, _ = problem.contexts(x, self.n_features)
                P = np.empty((len(X), self.n_classes))
                panel.predict_rows(*self._arrays(), X, P)
                return P
            x = problem.context(x, self.n_features)
        p = np.empty(self.n_classes)
        if not panel.predict(*self._arrays(), x, p):
            problem.refuse_context(x)
        return p

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        folklore = self._folklore
        many = folklore._state.one_thread if folklore is not None else None
        if many is None:
            loss, due = panel.learn(*self._arrays(), x, label, soft, weight)
        else:
            with many:
                loss, due = panel.learn(*self._arrays(), x, label, soft, weight)
        if due:
            with threads_for(self.n_classes * self.n_features):
                panel.settle(self._state.memo, self._state.plan)
            if self._state.plan[panel.ACT]:
                self._act()
        return float(loss)

    def _learn_rows(self, rows: Rows, report: Report) -> Array:
        T = len(rows.X)
        P = np.empty((T, self.n_classes))
        n = self.n_features * self.n_classes
        chunk = max(1, int(_CHUNK_FLOPS / (n * n + 1e4)))
        start = 0
        while start < T:
            X, _, labels, soft, weights = rows.part(start, min(start + chunk, T))
            with threads_for(n):
                start += panel.run(*self._arrays(), X, labels, soft, weights, P[start:])
            if self._state.plan[panel.ACT]:
                self._act()
            if report is not None:
                report(start)
        return P

    def _act(self) -> None:
        """Make room for rows to be kept, and let experts go that carry no weight."""
        state = self._state
        t = int(state.plan[panel.T])
        room = state.room
        if state.plan[panel.N_KEPT] >= room:
            room *= 2
        experts = None
        if state.spec.review and t >= state.plan[panel.REVIEWS] and t & (t - 1) == 0:
            experts = state.reviewed()
        self._state = state.like(experts=experts, room=room)
        if not self._state.spec.folklore:
            self._folklore = None

    @property
    def weights(self) -> Array:
        """The weights of the experts that are left."""
        return self._state["weights"].copy()

    @property
    def n_rounds(self) -> int:
        return int(self._state.plan[panel.T])

    def evidence(self, B: float | None = None) -> Evidence:
        """Return the evidence for the least class that covers B."""
        classes = self._state.spec.classes
        able = [b for b in classes if b >= (B or 0.0)]
        place = classes.index(min(able))
        state = self._state
        flushed = state.like()
        panel._flush(flushed.memo, flushed.plan)
        sums = flushed.quadratic(1 + place)
        own = Evidence(n_features=self.n_features, n_classes=self.n_classes, B=classes[place])
        own._S, own._G, own._totals = (part.copy() for part in sums)
        W = state.model(len(state.spec.ridges) + place)
        X, norms, Y, weights = state.kept_rows()
        rows = (X, norms, np.full(len(X), -1), Y, weights)
        best = own.expanded(*rows, W)
        if len(X):
            # The kept rows are proved with best where the sum and their true loss are least.
            for _ in range(_NEWTON_STEPS):
                W = own.expanded(*rows, W, curved=True).least(B=B)[1]
            best = max(best, own.expanded(*rows, W), key=lambda one: one.floor(B=B))
        return best

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        return self.evidence(B).certificate(float(self._state["constants"][panel.LOSS]), W, B=B)
