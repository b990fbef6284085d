"""Leaders: the modes of ridges over everything seen, for many ridges at the price of one."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, softmax
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.evidence import KEPT_ROWS, Evidence
from folklearn.kernels import experts as panel
from folklearn.kernels import leaders
from folklearn.kernels.blas import OWN, device_named, threads_for
from folklearn.kernels.evidence import n_pairs, n_products
from folklearn.kernels.expert_state import ExpertSpec, ExpertState, Forgetting, Tracker
from folklearn.kernels.on_torch import Device
from folklearn.kernels.on_torch.experts import MOST_ROWS, ExpertSums
from folklearn.kernels.second_order import run_loop
from folklearn.learners.base import FixedLearner, LeadingModel, Learner
from folklearn.learners.folklore import Folklore
from folklearn.serialization import Record
from folklearn.validation import Rows

RIDGES = (0.3, 0.03, 0.003, 0.0005)  # for contexts of norm about 1
KEPT = 2000  # rows
_CHUNK_FLOPS = 1e9  # work between two chances to report progress or to be interrupted
_FEWEST_FOR_DEVICE = 1024  # rows at once
_FOLKLORE = "folklore"  # the last of `ExpertSpec.names`, if it is there
_NO_FOLKLORE: Array = np.empty(0)  # in place of what Folklore predicts


class Expert(NamedTuple):
    """One expert of a panel, its total loss and its weight in the mixture."""

    name: str
    loss: float
    weight: float


class ExpertLearner(Learner):
    """A panel of experts in one mixture, and its evidence: what `Leader` and `auto` share.

    A round is one of `kernels.experts`; when something is due, `_settle` does it. What all rows
    prove about linear models is collected apart, in `Evidence`.
    """

    STATE: ClassVar = {"_folklore": Folklore, "_evidence": Evidence}

    certify: bool
    _state: ExpertState
    _folklore: Folklore | None
    _evidence: Evidence | None  # of all rows, where they are certified
    _sums: ExpertSums | None = None  # on a device, if they are not in the state

    def _start(
        self, spec: ExpertSpec, folklore: Folklore | None = None, device: str | None = None
    ) -> None:
        self._folklore = folklore
        self._evidence = Evidence(**self._sizes) if self.certify and spec.ridges else None
        self._state = self._make_state(spec)
        self.to(device)

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        """Construct a small one; its state is made by `_restore`, of the size that the file has."""
        d, K = validation.sizes(words)
        small = cls(**words | {"n_features": 1, "n_classes": 2})
        small._size(d, K)
        return small

    def _make_state(self, spec: ExpertSpec, **sizes: Any) -> ExpertState:
        limits: dict[str, Any] = {"max_norm": validation.MAX_NORM, "max_weight": self.max_weight}
        return ExpertState(self.n_features, self.n_classes, spec, **limits, **sizes)

    @property
    def device(self) -> str:
        """Where its sums of evidence are made: "cpu", or the name of a device of PyTorch."""
        return OWN if self._device is None else self._device.name

    @property
    def _device(self) -> Device | None:
        return None if self._sums is None else self._sums.device

    def to(self, device: str | None) -> Self:
        """Move the sums of evidence to a device, or back to the "cpu", and return the learner.

        A learner that was loaded is on the CPU, wherever it was saved.
        """
        target = device_named(device)
        if target != self._device:
            self._place(self._whole_state(), target)
            if self._evidence is not None:
                self._evidence = self._evidence.to(self.device)
        return self

    def _place(self, state: ExpertState, device: Device | None) -> None:
        """Go on from a whole state, whose sums are put on the device, if there is one."""
        self._state, self._sums = state, None
        if device is not None:
            self._sums = ExpertSums.of(device, state)
            self._state = state.like(room=state.spec.kept, whole=False)

    def _whole_state(self) -> ExpertState:
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

    def _predict_batch(self, X: Array) -> Array:
        state, P = self._state, np.empty((len(X), self.n_classes))
        folklore_p = P if self._folklore is None else self._folklore._predict_batch(X)
        panel.predict_rows(state.memo, state.plan, folklore_p, X, P)
        return P

    def _expert_names(self) -> list[str]:
        return self._state.spec.names()

    def _expert_predictions(self, X: Array) -> Array:
        state, K = self._state, self.n_classes
        W = state["W"].reshape(self.n_features + 1, -1)
        Z = X @ W[:-1]
        Z += state.spec.unit * W[-1]
        P = softmax(Z.reshape(len(X), -1, K)).transpose(1, 0, 2)
        if self._folklore is None:
            return P
        return np.concatenate([P, self._folklore._predict_rows(X)[None]])

    def _mixed_models(self, weights: Array | None = None) -> list[tuple[float, Any]]:
        state, shares = self._state, self._state["weights"] if weights is None else weights
        W = state["W"].transpose(1, 2, 0).copy()
        W[:, :, -1] *= state.spec.unit
        models = [*W] if self._folklore is None else [*W, self._folklore]
        return list(zip(shares.tolist(), models, strict=True))

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        state, folklore = self._state, self._folklore
        folklore_p = _NO_FOLKLORE if folklore is None else folklore._predict(x)
        loss, is_due = panel.learn(state.memo, state.plan, folklore_p, x, label, soft, weight)
        if loss != loss:
            return float(loss)
        if folklore is not None:
            folklore._learn(x, label, soft, weight)
        if self._evidence is not None:
            self._evidence._append(x, label, soft, weight)
        if is_due:
            with threads_for(self.n_classes * self.n_features):
                self._settle()
        return float(loss)

    def _rows_at_once(self, rows: Rows) -> int:
        is_on_device = self._sums is not None
        if is_on_device and self._state.spec.only_leaders:
            return MOST_ROWS  # leaders learn whole stretches at once
        n = self.n_features * self.n_classes
        chunk = max(_FEWEST_FOR_DEVICE if is_on_device else 1, int(_CHUNK_FLOPS / (n * n + 1e4)))
        if self._folklore is None or not self._state.spec.review:
            return chunk
        # Folklore goes ahead, but not beyond the round where it may retire: a power of 2.
        t, first = int(self._state.plan[panel.T]), int(self._state.plan[panel.REVIEWS])
        return min(chunk, max(first, 1 << t.bit_length()) - t)

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        with threads_for(self.n_features * self.n_classes):
            X, *targets = rows
            folklore, folklore_p, start = self._folklore, P, 0
            if folklore is not None:  # goes ahead: its rounds do not depend on the others
                folklore_p = np.empty_like(P)
                with threads_for(len(folklore._S)):
                    ahead = *targets, 0, len(X), True, folklore_p
                    run_loop(folklore._S, folklore._memo, X, *ahead)
            while start < len(P):
                state, is_due = self._state, False
                if self._sums is not None and state.spec.only_leaders:
                    rest, labels, soft, weights = rows.of(slice(start, None))
                    predicted = self._sums.run(state, rest, labels, soft, weights)
                    P[start : start + len(predicted)] = predicted
                    start += len(predicted)
                else:
                    arrays = folklore_p, X, *targets, P
                    start, is_due = panel.run(state.memo, state.plan, *arrays, start)
                if is_due:
                    self._settle()
        if self._evidence is not None:
            self._evidence._add(rows)

    def _settle(self) -> None:
        """Do what is due: rows enter sums, leaders are refreshed, room is made, experts retire."""
        state = self._state
        if state.settle(self._sums):
            room = 2 * state.room if state.plan[panel.N_KEPT] >= state.room else state.room
            hopeless = np.isin(np.arange(state.spec.n_experts), list(state.find_hopeless()))
            stays = ~hopeless | self._worth_keeping(hopeless, state["weights"])
            if not stays.all() or room > state.room:
                self._keep(np.flatnonzero(stays).tolist(), room)

    def _keep(self, experts: list[int], room: int | None = None) -> None:
        if self._sums is not None:
            self._sums = self._sums.only(self._state.sums_of(experts))
        self._state = self._state.like(experts=experts, room=room)
        if not self._state.spec.folklore:
            self._folklore = None

    def _release_rows(self) -> None:
        state = self._whole_state()
        with threads_for(self.n_classes * self.n_features):
            state.release_rows()
        self._place(state, self._device)
        if self._evidence is not None:
            self._evidence._release_rows()

    @property
    def n_rounds(self) -> int:
        return int(self._state.plan[panel.ROUNDS])

    @property
    def loss(self) -> float:
        """The total (weighted) loss so far."""
        return float(self._state["constants"][panel.LOSS])

    @property
    def experts(self) -> list[Expert]:
        """The experts that are left."""
        state = self._state
        columns = (self._expert_names(), state["losses"].tolist(), state["weights"].tolist())
        return [Expert(*row) for row in zip(*columns, strict=True)]

    def coef(self) -> Array:
        """Return the weights (K, d) of the leader with the least loss so far."""
        return self._state.model(int(np.argmin(self._state["losses"][: self.n_leaders])))

    @property
    def n_leaders(self) -> int:
        """The number of its experts that are leaders; they come first."""
        return len(self._state.spec.numbers["leaders"])

    def copy_to_predict(self) -> "FixedExperts":
        state, spec = self._state, self._state.spec
        fixed = FixedExperts(
            **self._sizes, names=self._expert_names(), n_leaders=self.n_leaders, R=spec.unit
        )
        for section in ("weights", "losses", "W"):
            fixed._state[section][...] = state[section]
        fixed._state["constants"][panel.LOSS] = state["constants"][panel.LOSS]
        fixed._state.plan[panel.ROUNDS] = state.plan[panel.ROUNDS]
        fixed._folklore = copy.deepcopy(self._folklore)
        return fixed

    def _leading_model(self, x: Array, weights: Array | None = None) -> LeadingModel:
        spec = self._state.spec
        weights = self._state["weights"] if weights is None else weights
        best = int(np.argmax(weights[: len(spec.numbers["linear"])]))  # Folklore is none
        name, W = self._expert_names()[best], self._state.model(best)
        bias = spec.unit * self._state["W"][-1, best]
        return LeadingModel(name, float(weights[best]), np.arange(len(x)), x, W, bias)

    def leader(self) -> tuple[float, Array] | None:
        """Return ridge and weights (K, d) of the leader with the least loss so far, if any."""
        ridges = self._state.spec.ridges
        if not ridges:
            return None
        best = int(np.argmin(self._state["losses"][: len(ridges)]))
        return ridges[best], self._state.model(best)

    def evidence(self) -> Evidence:
        """Return a copy of the evidence of all rounds so far, to be merged or sent."""
        if self._evidence is None:
            raise InvalidInputError(self._why_unproven())
        return self._evidence._copy()

    def _why_unproven(self) -> str:
        if self.certify:
            return "a learner that forgets proves nothing about the past: have one without memory"
        return "no evidence was collected: construct the learner with certify=True"

    def curvature(self) -> Array:
        """Return the sums (K, d, d) of w p_i (1 - p_i) xx' over all rounds, by class."""
        state = self._whole_state()
        kept = slice(int(state.plan[panel.N_KEPT]))
        rows = (state[f"kept_{axis}"][kept] for axis in ("x", "y", "w"))
        sums, W = state.quadratic(0), state.model(int(state.plan[panel.BEST]))
        with threads_for(self.n_classes * self.n_features):
            leaders.flush(state.memo, state.plan)
            leaders.add_expanded(sums.S, sums.G, W, *rows)
        K, d = self.n_classes, self.n_features
        classes = np.zeros((K, d, d))
        for i, j, block in zip(*np.triu_indices(K, 1), sums.blocks(), strict=True):
            classes[[i, j]] += 2.0 * block
        return classes

    def certificate(self, W: ArrayLike | None = None) -> Certificate:
        if self._evidence is not None:
            return self._evidence.certificate(self.loss, W)
        return replace(super().certificate(W), loss=self.loss, reason=self._why_unproven())

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Learner:
        sizes = self._larger_sizes(n_features, n_classes)
        larger = self._larger(**sizes)
        state = self._whole_state()
        with threads_for(self.n_classes * self.n_features):
            leaders.flush(state.memo, state.plan)
        larger._state = state.like(d=larger.n_features, K=larger.n_classes)
        larger._folklore = None if self._folklore is None else self._folklore.grown(**sizes)
        larger._evidence = None if self._evidence is None else self._evidence.grown(**sizes)
        return larger.to(self.device)

    def _begin_classes(self, first: int, constant: int, weight: float) -> None:
        column = self._state["W"][: self.n_features][constant, : self.n_leaders]
        column[:, first:] += weight
        column -= column.mean(axis=1, keepdims=True)

    @property
    def n_bytes(self) -> int:
        parts = (self._folklore, self._sums, self._evidence)
        n_inside = sum(part.n_bytes for part in parts if part is not None)
        return self._state.memo.nbytes + self._state.plan.nbytes + n_inside

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        spec = self._state.spec
        sums = (spec.n_sums + self.certify) * n_pairs(n_classes) * n_products(n_features)
        rows = (spec.kept + self.certify * KEPT_ROWS) * (n_features + n_classes)
        of_folklore = spec.folklore * ((n_classes - 1) * n_features) ** 2
        return int(8 * (sums + rows + of_folklore))

    def _parts(self) -> dict[str, NDArray[Any]]:
        state = self._state if self._sums is None else self._whole_state()
        return {"memo": state.memo[: state.n_saved], "plan": state.plan}

    def to_record(self) -> Record:
        record = super().to_record()
        record.config["room"] = self._state.room
        record.config["memories"] = [f.memory for f in self._state.spec.forgetting]
        return record

    def _restore(self, record: Record) -> None:
        all_experts, memories = self._state.spec, record.word("memories")
        spec = all_experts._replace(
            forgetting=tuple(f for f in all_experts.forgetting if f.memory in memories),
            folklore=all_experts.folklore and "folklore" in record.config,
        )
        n_saved = len(record.part("memo", (None,)))
        self._state = self._make_state(spec, room=record.count("room"), n_saved=n_saved)
        is_certified = self._evidence is not None
        self._folklore = self._evidence = None
        fresh = self._state.plan.copy()
        super()._restore(record)
        parts: Any = ((self._folklore, spec.folklore), (self._evidence, is_certified))
        for part, is_there in parts:
            if (part and part._sizes) != (self._sizes if is_there else None):
                raise record.error("has a part that does not fit its sizes")
        if not self._state.is_consistent(fresh):
            raise record.error("has a panel that does not fit its sizes")


class FixedExperts(FixedLearner, ExpertLearner):
    """An `ExpertLearner` that only predicts: its linear models, without sums and rows."""

    max_weight = 1.0
    PARAMS = ("n_features", "n_classes", "names", "n_leaders", "R")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        names: Sequence[str],
        n_leaders: int,
        R: float,
    ) -> None:
        self._size(n_features, n_classes, R=R)
        self.names = [str(name) for name in names]
        self.certify = False
        # To predict, all linear models are of one kind.
        has_folklore = self.names[-1:] == [_FOLKLORE]
        models = (Tracker(1.0),) * (len(self.names) - has_folklore)
        self._n_leaders = validation.count("n_leaders", n_leaders, 1, len(models))
        self._start(ExpertSpec((), trackers=models, folklore=has_folklore, unit=self.R))

    @property
    def n_leaders(self) -> int:
        return self._n_leaders

    def _expert_names(self) -> list[str]:
        return self.names

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Learner:
        raise InvalidInputError("a copy that was made to predict cannot grow")


class Leader(ExpertLearner):
    r"""Follow the leader of several ridges: online maximum likelihood, in one pass.

    Use it on streams whose rows come in no particular order; for those that drift there is `auto`.

    .. math::
        W_\lambda = \arg\min_W \lambda \|W\|_F^2 + \sum_{\text{kept } s} \ell_s(W)
        + \hat E_{1/2}(W)

    The first rows are kept, with their true loss; later ones are replaced by quadratics at the
    model of the best ridge so far, whose one sum all ridges share. Ridges are mixed by their losses
    (Bayes). Modes are refreshed after every twentieth more of rounds (tenth, later, and for many
    unknowns), by two damped Newton steps.

    Time (K d)^2 flops a round and O((K d)^3) a refresh; memory 4 (K d)^2 bytes and the kept rows,
    and as much again for `Evidence`.

    Guarantee: regret against every W, its penalty counted, is at most
    ``certificate().regret_bound``; none in advance.

    Parameters
    ----------
    ridges : :math:`\lambda` of every leader, positive, for contexts of norm R.
    R : typical norm of x, positive; ridges are multiplied by R^2.
    kept : rows that keep their true loss, at least 1.
    memory : rounds after which a row counts 1/e, at least 1, or None; a learner that forgets
        collects no evidence.
    max_weight : largest sample weight that will occur, positive.
    certify : collect evidence about all linear models, C = 1 (`Evidence`), for `certificate`.
    device : where the sums are and leaders are refreshed: "cpu", the default, or a device of
        PyTorch such as "cuda" (extra ``gpu``), with results that agree to rounding. It is worth
        while from about a thousand weights, K d, on; see `to`.

    Examples
    --------
    >>> from folklearn import Leader, synthetic
    >>> X, y = synthetic.stochastic(0, 500, d=4, K=3)
    >>> model = Leader(n_features=4, n_classes=3)
    >>> P = model.run(X, y)
    >>> P.shape, bool((P.argmax(axis=1) == y).mean() > 0.6), model.certificate().valid
    ((500, 3), True, True)

    References
    ----------
    docs/theory/evidence.md; Spiegelhalter and Lauritzen (1990) for the quadratics.
    """

    PARAMS = ("n_features", "n_classes", "ridges", "R", "kept", "memory", "max_weight", "certify")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        ridges: Sequence[float] = RIDGES,
        R: float = 1.0,
        kept: int = KEPT,
        memory: int | None = None,
        max_weight: float = 1.0,
        certify: bool = True,
        device: str | None = None,
    ) -> None:
        self._size(n_features, n_classes, R=R, max_weight=max_weight)
        self.ridges = tuple(validation.positive("ridges", ridge) for ridge in ridges)
        self.kept = validation.count("kept", kept, 1)
        self.memory = None if memory is None else validation.count("memory", memory, 1)
        self.certify = bool(certify)
        if not self.ridges:
            raise InvalidInputError("a leader needs a ridge")
        scaled = tuple(ridge * self.R**2 for ridge in self.ridges)
        spec = ExpertSpec(scaled, kept=self.kept, share=False, unit=self.R)
        if self.memory is not None:
            forgetting = tuple(Forgetting(ridge, self.memory) for ridge in scaled)
            spec = spec._replace(ridges=(), forgetting=forgetting)
        self._start(spec, device=device)
