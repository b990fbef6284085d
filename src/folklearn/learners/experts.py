"""What `Leader` and `auto` share: a panel of experts in one mixture, and its evidence."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, softmax
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.evidence import Evidence
from folklearn.kernels import experts as panel
from folklearn.kernels.blas import OWN, device_named, threads_for
from folklearn.kernels.expert_state import ExpertSpec, ExpertState
from folklearn.kernels.on_torch.device import Device
from folklearn.kernels.on_torch.panel import MOST_ROWS, ExpertSums
from folklearn.learners.base import Learner
from folklearn.learners.folklore import Folklore
from folklearn.progress import Report
from folklearn.serialization import Record, put_inside
from folklearn.validation import Rows

_CHUNK_FLOPS = 1e9  # work between two chances to report progress or to be interrupted
_NOBODY: Array = np.empty(0)  # in place of what Folklore predicts


class Expert(NamedTuple):
    """One expert of a panel: what it is, its total loss, its weight in the mixture."""

    name: str
    loss: float
    weight: float


class ExpertLearner(Learner):
    """Rounds of a panel; a learner validates its parameters, then calls `_start`."""

    classes: tuple[float, ...]  # B of every class that is certified
    _state: ExpertState
    _folklore: Folklore | None
    _sums: ExpertSums | None = None  # on a device, if they are not in the state
    _awaited: Device | None = None  # where the sums go once there are many rows

    def _start(
        self, spec: ExpertSpec, folklore: Folklore | None = None, device: str | None = None
    ) -> None:
        self._awaited = device_named(device)
        self._first_classes = self.n_classes
        self._folklore = folklore
        self._state = self._empty(spec)
        self._go()

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        """Construct a small one; its state is made by `_restore`, of the size that the file has."""
        d, K = validation.sizes(words)
        made = cls(**words | {"n_features": 1, "n_classes": 2})
        made._size(d, K)
        return made

    def _empty(self, spec: ExpertSpec, room: int = 0, n_saved: int | None = None) -> ExpertState:
        return ExpertState(
            self.n_features,
            self.n_classes,
            spec,
            max_norm=validation.MAX_NORM,
            max_weight=self.max_weight,
            room=room,
            n_saved=n_saved,
        )

    @property
    def device(self) -> str:
        """Where its sums of evidence are made: "cpu", or the name of a device of PyTorch."""
        return OWN if self._place is None else self._place.name

    @property
    def _place(self) -> Device | None:
        return self._awaited if self._sums is None else self._sums.device

    def to(self, device: str) -> Self:
        """Move the sums of evidence to a device, or back to the "cpu", and return the learner.

        A learner that was loaded is on the CPU, wherever it was saved.
        """
        place = device_named(device)
        if place != self._place:
            self._state, self._sums, self._awaited = self._whole(), None, place
            self._go()
        return self

    def _go(self) -> None:
        """Go to the device that is awaited, if it is time.

        The first rounds are dense with refreshes of few rows. Those of a small problem are over
        sooner on the CPU than a device could be told what to do.
        """
        state = self._state
        is_young = state.plan[panel.T] < state.spec.kept and state.plan[panel.DENSE] > 0
        if self._awaited is None or is_young:
            return
        self._sums, self._awaited = ExpertSums.of(self._awaited, state), None
        self._state = state.like(room=state.spec.kept, whole=False)

    def _whole(self) -> ExpertState:
        """Return a copy of the state that has its sums, wherever they are."""
        if self._sums is None:
            return self._state.like()
        state = self._state.like(whole=True)
        self._sums.write(state)
        return state

    def _predict(self, x: Array) -> Array:
        state, p = self._state, np.empty(self.n_classes)
        folklore_p = p if self._folklore is None else self._folklore._predict(x)
        if not panel.predict(state.memo, state.plan, folklore_p, x, p):
            validation.check_context(x)
        return p

    def _predict_rows(self, X: Array, norms: Array) -> Array:
        state, P = self._state, np.empty((len(X), self.n_classes))
        folklore_p = P if self._folklore is None else self._folklore._predict_rows(X, norms)
        panel.predict_rows(state.memo, state.plan, folklore_p, X, P)
        return P

    def _expert_names(self) -> list[str]:
        return self._state.spec.names()

    def _expert_predictions(self, X: Array, norms: Array) -> Array:
        state, K = self._state, self.n_classes
        W = state["W"].reshape(self.n_features + 1, -1)
        Z = X @ W[:-1]
        Z += state.spec.unit * W[-1]
        P = softmax(Z.reshape(len(X), -1, K)).transpose(1, 0, 2)
        if self._folklore is None:
            return P
        return np.concatenate([P, self._folklore._predict_rows(X, norms)[None]])

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        state, folklore = self._state, self._folklore
        folklore_p = _NOBODY if folklore is None else folklore._predict(x)
        loss, due = panel.learn(state.memo, state.plan, folklore_p, x, label, soft, weight)
        if folklore is not None and loss == loss:
            folklore._learn(x, label, soft, weight)
        if due:
            with threads_for(self.n_classes * self.n_features):
                self._settle()
        return float(loss)

    def _run(self, rows: Rows, report: Report | None) -> Array:
        T = len(rows.X)
        P = np.empty((T, self.n_classes))
        n = self.n_features * self.n_classes
        chunk = max(1, int(_CHUNK_FLOPS / (n * n + 1e4)))
        if self.device != OWN and self._state.spec.only_leaders:
            chunk = MOST_ROWS  # leaders learn whole stretches at once
        with threads_for(n):
            for start in range(0, T, chunk):
                stop = min(start + chunk, T)
                self._run_part(rows.part(start, stop), P[start:stop])
                if report is not None:
                    report(stop)
        return P

    def _run_part(self, rows: Rows, P: Array) -> None:
        """Predict into P, then learn, row by row; Folklore goes ahead: its rounds are its own."""
        folklore_p = P
        if self._folklore is not None:
            folklore_p = self._folklore._state.run(*rows, block=1)[0]
        start = 0
        while start < len(P):
            state = self._state
            if self._sums is not None and state.spec.only_leaders:
                found = self._sums.run(state, *rows.part(start, len(P)))
                P[start : start + len(found)] = found
                start += len(found)
                continue
            X, _, labels, soft, weights = rows.part(start, len(P))
            done, due = panel.run(
                state.memo, state.plan, folklore_p[start:], X, labels, soft, weights, P[start:]
            )
            start += done
            if due:
                self._settle()

    def _settle(self) -> None:
        """Do what is due: rows enter sums, leaders are refreshed, room is made, experts go."""
        if self._sums is None:
            panel.settle(self._state.memo, self._state.plan)
        else:
            self._sums.settle(self._state)
        if self._state.plan[panel.ACT]:
            self._act()
        if self._awaited is not None:
            self._go()

    def _act(self) -> None:
        """Make room for rows to be kept, and let experts go."""
        state = self._state
        room = 2 * state.room if state.plan[panel.N_KEPT] >= state.room else state.room
        stays = np.isin(np.arange(state.spec.n_experts), state.reviewed())
        stays |= self._worth_keeping(~stays, state["weights"])
        self._keep(np.flatnonzero(stays).tolist(), room)

    def _keep(self, experts: list[int], room: int | None = None) -> None:
        """Let all other experts go."""
        if self._sums is not None:
            self._sums = self._sums.only(self._state.sums_of(experts))
        self._state = self._state.like(experts=experts, room=room)
        if not self._state.spec.folklore:
            self._folklore = None

    @property
    def n_rounds(self) -> int:
        """The number of rounds learned so far."""
        return int(self._state.plan[panel.ROUNDS])

    def _word(self, word: str) -> Any:
        return (list(self.classes) or None) if word == "B" else super()._word(word)

    @property
    def loss(self) -> float:
        """The total (weighted) loss so far."""
        return float(self._state["constants"][panel.LOSS])

    @property
    def experts(self) -> list[Expert]:
        """The experts that are left."""
        state = self._state
        columns = (state.spec.names(), state["losses"].tolist(), state["weights"].tolist())
        return [Expert(*row) for row in zip(*columns, strict=True)]

    def coef(self) -> Array:
        """Return the weights (K, d) of the leader with the least loss so far."""
        spec = self._state.spec
        n_leaders = spec.n_modes + len(spec.forgetting)
        return self._state.model(int(np.argmin(self._state["losses"][:n_leaders])))

    def expansion_point(self) -> Array:
        """Return the weights (K, d) of the leader that is steered into the first class."""
        return self._state.model(len(self._state.spec.ridges)) if self.classes else self.coef()

    def leader(self) -> tuple[float, Array] | None:
        """Return ridge and weights (K, d) of the leader with the least loss so far, if any."""
        ridges = self._state.spec.ridges
        if not ridges:
            return None
        best = int(np.argmin(self._state["losses"][: len(ridges)]))
        return ridges[best], self._state.model(best)

    def evidence(self, *, B: float | None = None) -> Evidence:
        """Return the evidence for the least class that covers B, to be merged or sent.

        Rows that are held as rows are expanded where that proves most.
        """
        covered = self.classes[0] if B is None else validation.positive("B", B)
        able = [one for one in self.classes if one >= covered / (1.0 + 1e-9)]
        if not able:
            raise InvalidInputError(self._why_uncovered(covered))
        place = self.classes.index(min(able))
        B = self.classes[place]
        state = self._state.like()
        own = Evidence.of(
            self._flushed(state).quadratic(1 + place), B=B, first_classes=self._first_classes
        )
        rows = _kept_rows(state, first=int(state.plan[panel.N_PROVEN]))
        if not len(rows.X):
            return own
        W = state.model(len(state.spec.ridges) + place)
        return own._with(rows, W, B=min(covered, B))

    def _flushed(self, state: ExpertState) -> ExpertState | ExpertSums:
        """Return the sums with the rows that wait in a copy of the state, which it may be."""
        if self._sums is not None:
            sums = self._sums.copy()
            sums.flush(state)
            return sums
        with threads_for(self.n_classes * self.n_features):
            panel.flush(state.memo, state.plan)
        return state

    def curvature(self) -> Array:
        """Return for every class the sum (K, d, d) of w p_i (1 - p_i) xx' over all rounds."""
        state = self._whole()
        own, rows = state.quadratic(0), _kept_rows(state)
        W = state.model(int(state.plan[panel.BEST]))
        with threads_for(self.n_classes * self.n_features):
            panel.flush(state.memo, state.plan)
            panel.add_expanded(*own, W, rows.X, rows.soft, rows.weights, rows.norms, 0.0)
        K, d = self.n_classes, self.n_features
        classes = np.zeros((K, d, d))
        pairs = zip(*np.triu_indices(K, 1), strict=True)
        for (i, j), block in zip(pairs, own.blocks(), strict=True):
            classes[[i, j]] += 2.0 * block
        return classes

    def expanded(self, rows: Rows) -> Evidence:
        """Return the evidence of checked rows for the largest class, expanded at `coef`."""
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        own = Evidence(**sizes, B=self.B, device=self.device)
        own._add(rows, self.coef())
        return own

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the certificate for a class, or for one W (K, d), from the evidence so far.

        Without B it speaks of the first class that was declared.
        """
        asked = None if B is None else validation.positive("B", B)
        if W is not None:
            validation.comparators(W, B, math.inf, self.n_classes, self.n_features)
            asked = max(float(np.sqrt((np.asarray(W) ** 2).sum(axis=1)).max()), 1e-15)
        covered = math.inf if not self.classes else max(self.classes)
        if not self.classes or (asked or 0.0) > covered * (1.0 + 1e-9):
            return Certificate(
                loss=self.loss,
                regret_bound=math.inf,
                B=math.inf if asked is None else asked,
                n_rounds=self.n_rounds,
                valid=False,
                reason=self._why_uncovered(asked),
            )
        evidence = self.evidence(B=asked)
        proven = evidence.certificate(self.loss, W, B=None if W is not None else asked)
        return replace(proven, n_rounds=self.n_rounds)  # those of weight 0 included

    def _why_uncovered(self, B: float | None) -> str:
        if not self.classes:
            return "no evidence was collected: construct the learner with B, and without memory"
        classes = ", ".join(f"{one:g}" for one in self.classes)
        return (
            f"B = {B:g} is larger than the classes for which evidence is collected (B = "
            f"{classes}): construct the learner with that B"
        )

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Learner:
        """Return a learner with room for more features and classes; this one is unchanged.

        New features come last and are as if they had been 0 so far. New classes come last and
        were not there before: for certificates past rows remain rows among fewer classes.
        """
        sizes = self._larger_sizes(n_features, n_classes)
        larger = self._larger(**sizes)
        state = self._whole()
        with threads_for(self.n_classes * self.n_features):
            if larger.n_classes > self.n_classes:
                panel.prove_kept(state.memo, state.plan)
            else:
                panel.flush(state.memo, state.plan)
        larger._state = state.like(d=larger.n_features, K=larger.n_classes)
        larger._first_classes = self._first_classes if self.n_rounds else larger.n_classes
        larger._folklore = None if self._folklore is None else self._folklore.grown(**sizes)
        return larger.to(self.device)

    @property
    def n_bytes(self) -> int:
        """The memory of the arrays of the state."""
        inner = 0 if self._folklore is None else self._folklore.n_bytes
        sums = 0 if self._sums is None else self._sums.n_bytes
        return self._state.memo.nbytes + self._state.plan.nbytes + inner + sums

    def _parts(self) -> dict[str, NDArray[np.float64] | NDArray[np.int64]]:
        state = self._state if self._sums is None else self._whole()
        return {"memo": state.memo[: state.n_saved], "plan": state.plan}

    def to_record(self) -> Record:
        """Return the full state as a record."""
        record = super().to_record()
        record.config["first_classes"] = self._first_classes
        record.config["room"] = self._state.room
        record.config["panel"] = self._state.spec.plain()
        if self._folklore is not None:
            put_inside(record, "folklore", self._folklore)
        return record

    def _restore(self, record: Record) -> None:
        self._first_classes = record.count("first_classes", 2)
        try:
            spec = ExpertSpec.read(record.word("panel"))
            n_saved = len(record.part("memo", (None,)))
            self._state = self._empty(spec, record.count("room"), n_saved)
        except (TypeError, ValueError) as error:
            raise StateFileError(f"the panel of a state cannot be read: {error}") from None
        own = self._state.plan.copy()
        super()._restore(record)
        self._folklore = None
        if spec.folklore:
            inner = record.inner("folklore")
            if not isinstance(inner, Folklore):
                raise StateFileError("the panel of a state needs a Folklore")
            self._folklore = inner
        if not self._state.is_consistent(own):
            raise StateFileError("the panel of a state does not fit its sizes")


def _kept_rows(state: ExpertState, first: int = 0) -> Rows:
    """Return the rows that are held as rows, with their targets as soft labels."""
    some = slice(first, int(state.plan[panel.N_KEPT]))
    x, norms, y, w = (state[f"kept_{part}"][some] for part in ("x", "norm", "y", "w"))
    return Rows(x, norms, np.full(len(x), -1), y, w)


def classes_of(B: float | Sequence[float] | None) -> tuple[float, ...]:
    """Return the classes to be certified: none, one, or several."""
    if B is None:
        return ()
    several = B if isinstance(B, Sequence) else (B,)
    classes = tuple(validation.positive("B", one) for one in several)
    if len(set(classes)) != len(classes):
        raise InvalidInputError(f"B names a class twice: {classes}")
    return classes
