"""Online to batch: from any online learner to one predictor, with a bound on its excess risk."""

import copy
import math
import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem, registry
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.learners.contract import Learner, Progress
from folklearn.persist import Record
from folklearn.progress import reporter

Array = NDArray[np.float64]

AVERAGE = "average"
RANDOM = "random"
LAST = "last"
_NORM_SLACK = 1.0 + 1e-9  # a norm of R may round above R


class OnlineToBatch:
    r"""Fit a fixed predictor to a sample by running an online learner over it once.

    Use it when all rows are there beforehand and a certified learner's regret bound should
    become a bound on the risk at new points. Prefer the learner itself on a stream, and
    ``select="last"`` or `SMP` when only the accuracy counts.

    Run the learner over the T rows and keep the states :math:`h_{\tau_i}` before rounds
    :math:`\tau_1, \dots, \tau_m`, drawn uniformly from 1..T before the first row is seen:

    .. math:: p(x) = \frac1m \sum_{i \le m} h_{\tau_i}(x), \qquad \tau_i \sim U\{1..T\}

    ======================  ================================  =========
    select                  states that predict               guarantee
    ======================  ================================  =========
    ``"random"``            m = 1: random stopping            yes
    ``"average"``           m = ``n_checkpoints``             yes
    ``"last"``              the learner after the last row    heuristic
    several ``passes``      any of these, rows seen again     heuristic
    ======================  ================================  =========

    The last state has seen most and is usually the best in practice; nothing proves it.

    Time is that of the learner's `run`; a prediction costs one of the learner's per state
    kept. Memory is that of up to m + 1 learners: every state is a full copy.

    Guarantee, for rows drawn independently from one distribution, a learner that had learned
    nothing before, ``passes=1`` and ``"random"`` or ``"average"``: for every W of the class
    :math:`E[\text{risk}] - \text{risk}(W) \le E[\text{Regret}(W)]/T \le E[G]`, G what
    `guarantee` returns. The expectations are over rows and draws: a single G is one draw of
    the bound, and a single predictor may be worse. Averaging is no worse than random stopping
    in expectation, because -ln p is convex in p, and varies less. Risk is the expected log
    loss; with weights, of :math:`w\,\ell` for independent rows (x, y, w). Derived in
    docs/theory/batch.md.

    Parameters
    ----------
    learner : a learner that has learned nothing; it is taken over, not copied, and afterwards
        is in the state after the last row. One that has learned already goes on from there
        (so does a second `fit`), without a guarantee.
    select : ``"average"``, ``"random"`` or ``"last"``.
    n_checkpoints : number m of states that ``"average"`` draws, at least 1; those drawn twice
        count twice.
    passes : times that the rows are run over, at least 1: first in the order given, then
        reshuffled each time. Rounds 1..T are then those of all passes.
    seed : of the draws, an integer; rows, learner and seed determine the result.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Folklore
    >>> from folklearn.batch import OnlineToBatch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3)) / 2
    >>> y = np.argmax(X + 0.1 * rng.gumbel(size=X.shape), axis=1)
    >>> model = OnlineToBatch(Folklore(n_features=3, n_classes=3, B=5.0)).fit(X, y)
    >>> model.predict(X[:4]).shape, bool(0.0 < model.guarantee() < 0.2)
    ((4, 3), True)
    >>> OnlineToBatch(Folklore(n_features=3, n_classes=3), select="last").fit(X, y).guarantee()

    References
    ----------
    Cesa-Bianchi, Conconi and Gentile (2004), "On the generalization ability of on-line learning
    algorithms". Agarwal, Kale and Zimmert (2021) for FOLKLORE's regret.
    """

    def __init__(
        self,
        learner: Learner,
        *,
        select: str = AVERAGE,
        n_checkpoints: int = 10,
        passes: int = 1,
        seed: int = 0,
    ) -> None:
        verbs = [callable(getattr(learner, verb, None)) for verb in ("predict", "run")]
        if not all(verbs) or isinstance(learner, type):
            raise InvalidInputError(f"{learner!r} is no learner: it needs predict and run")
        if select not in (AVERAGE, RANDOM, LAST):
            raise InvalidInputError(
                f"select must be {AVERAGE!r}, {RANDOM!r} or {LAST!r}, got {select!r}"
            )
        self.learner = learner
        self.n_features = learner.n_features
        self.n_classes = learner.n_classes
        self.select = select
        self.n_checkpoints = problem.count("n_checkpoints", n_checkpoints, 1)
        self.passes = problem.count("passes", passes, 1)
        self.seed = problem.count("seed", seed, 0)
        self.n_rounds = 0
        self._heuristic = "the predictor is not fitted yet"
        self._rounds: list[int] = []  # the states that predict are those before these rounds
        self._counts: list[int] = []
        self._states: list[Any] = []
        self._closed_form = False  # whether the rows satisfy the hypotheses of `regret_bound`

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
    ) -> Self:
        """Run the learner over the rows, keep the states that predict, return self.

        y is (T,) classes or (T, K) soft labels. Every row is checked before the first round;
        `progress` is True for a bar or a function of the number of rounds done.
        """
        X, norms = problem.contexts(X, self.n_features)
        T = len(X)
        if T == 0:
            raise InvalidInputError("X has no rows: a predictor needs at least one")
        labels, soft = problem.labels(y, T, self.n_classes)
        given: Any = soft if len(soft) else labels
        weights = problem.weights(weight, T)
        self._refuse_if_too_heavy(weights)
        before = self._rounds_before()
        rng = np.random.default_rng(self.seed)
        n_rounds = self.passes * T
        rounds, counts = self._draw(rng, n_rounds)
        states: list[Any] = []
        with reporter(progress, n_rounds, "learning") as report:
            for number in range(self.passes):
                order = slice(None) if number == 0 else rng.permutation(T)
                rows, answers, importance = X[order], given[order], weights[order]
                done, start = number * T, 0
                stops = [t - 1 - done for t in rounds if done < t <= done + T]
                for place, stop in enumerate([*stops, T]):
                    if stop > start:
                        self.learner.run(
                            rows[start:stop],
                            answers[start:stop],
                            weight=None if weight is None else importance[start:stop],
                            progress=_later(report, done + start),
                        )
                        start = stop
                    if place < len(stops):
                        states.append(copy.deepcopy(self.learner))
        self._rounds, self._counts, self._states = rounds, counts, states
        self.n_rounds = n_rounds
        self._closed_form = weight is None and bool(
            norms.max() <= getattr(self.learner, "R", math.inf) * _NORM_SLACK
        )
        self._heuristic = self._why_heuristic(before)
        return self

    def _draw(self, rng: np.random.Generator, n_rounds: int) -> tuple[list[int], list[int]]:
        """Return the rounds before which a state is kept, in order, and how often each counts."""
        if self.select == LAST:
            return [], []
        m = 1 if self.select == RANDOM else self.n_checkpoints
        rounds, counts = np.unique(rng.integers(1, n_rounds + 1, size=m), return_counts=True)
        return rounds.tolist(), counts.tolist()

    def _refuse_if_too_heavy(self, weights: Array) -> None:
        """Raise before anything is learned for weights that the learner would refuse later."""
        limit = getattr(self.learner, "max_weight", math.inf)
        heavy = np.flatnonzero(weights > limit)
        if heavy.size:
            raise InvalidInputError(
                f"weight[{heavy[0]}] is {weights[heavy[0]]:g}, above the learner's "
                f"max_weight={limit:g}: construct it with a larger max_weight"
            )

    def _rounds_before(self) -> int:
        """Return how many rounds the learner had learned, as far as can be told."""
        if callable(getattr(self.learner, "certificate", None)):
            learner: Any = self.learner
            return int(learner.certificate().n_rounds)
        return max(self.n_rounds, int(getattr(self.learner, "has_learned", False)))

    def _why_heuristic(self, before: int) -> str:
        if self.select == LAST:
            return 'select="last" is a heuristic: the bound holds for states drawn at random'
        if self.passes > 1:
            return f"passes={self.passes} is a heuristic: rows seen again are not independent"
        if before:
            return (
                "the learner had learned before: its regret bound counts rounds from which no "
                "state was drawn"
            )
        return ""

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out."""
        if self.n_rounds == 0:
            raise FolklearnError("the predictor is not fitted yet: call fit(X, y) first")
        if self.select == LAST:
            return self.learner.predict(x)
        shares = np.array(self._counts) / sum(self._counts)
        P: Array = shares[0] * self._states[0].predict(x)
        for share, state in zip(shares[1:], self._states[1:], strict=True):
            P += share * state.predict(x)
        return P

    @property
    def rounds(self) -> list[int]:
        """The rounds before which the kept states were copied, in order, repeats included."""
        repeated: list[int] = np.repeat(self._rounds, self._counts).tolist()
        return repeated

    def guarantee(self, *, B: float | None = None) -> float | None:
        """Return the bound on the expected excess risk, in nats, or None without one.

        It is the regret bound of the learner's certificate divided by T, or, for a learner
        without a certificate, that of its `regret_bound`, if weights are 1 and contexts of
        norm at most R. The excess is over the best model of the certificate's class, or of a
        smaller ``B``. `reason` says why there is none.
        """
        bound, why = self._regret(B)
        return None if why else bound / self.n_rounds

    @property
    def reason(self) -> str:
        """Why `guarantee` returns None, or an empty string."""
        return self._regret(None)[1]

    def _regret(self, B: float | None) -> tuple[float, str]:
        """Return a bound on the learner's regret, and why it says nothing about the risk."""
        learner: Any = self.learner
        name = type(learner).__name__
        if self._heuristic:
            return math.inf, self._heuristic
        if callable(getattr(learner, "certificate", None)):
            certificate = learner.certificate() if B is None else learner.certificate(B=B)
            return certificate.regret_bound, certificate.reason
        if B is not None:
            raise InvalidInputError(f"{name} has no certificate, which a smaller B needs")
        bound = getattr(learner, "regret_bound", lambda n_rounds: math.inf)(self.n_rounds)
        if not math.isfinite(bound):
            return math.inf, f"{name} has no regret bound"
        if not self._closed_form:
            return math.inf, f"the bound of {name} is for weights of 1 and contexts of norm R"
        return bound, ""

    def to_record(self) -> Record:
        """Return the full state as a record: the learner's, and those of the kept states."""
        if not callable(getattr(self.learner, "to_record", None)):
            raise FolklearnError(f"the learner, {self.learner!r}, cannot save itself")
        learner, arrays = persist.nest("learner", self.learner.to_record())
        states = []
        for i, state in enumerate(self._states):
            entry, own = persist.nest(f"state{i}", state.to_record())
            states.append(entry)
            arrays |= own
        config = {
            "learner": learner,
            "select": self.select,
            "n_checkpoints": self.n_checkpoints,
            "passes": self.passes,
            "seed": self.seed,
            "states": states,
            "rounds": self._rounds,
            "counts": self._counts,
            "n_rounds": self.n_rounds,
            "closed_form": self._closed_form,
            "heuristic": self._heuristic,
        }
        return Record("OnlineToBatch", config, arrays)

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a predictor from its record."""
        config = record.config
        try:
            model = cls(
                registry.revive(persist.unnest("learner", config["learner"], record.arrays)),
                select=config["select"],
                n_checkpoints=config["n_checkpoints"],
                passes=config["passes"],
                seed=config["seed"],
            )
            model._states = [
                registry.revive(persist.unnest(f"state{i}", entry, record.arrays))
                for i, entry in enumerate(config["states"])
            ]
            model._rounds = [problem.count("rounds", t, 1) for t in config["rounds"]]
            model._counts = [problem.count("counts", c, 1) for c in config["counts"]]
            model.n_rounds = problem.count("n_rounds", config["n_rounds"], 0)
            model._closed_form = bool(config["closed_form"])
            model._heuristic = str(config["heuristic"])
            needed = 0 if model.select == LAST or not model.n_rounds else max(1, len(model._rounds))
            if not len(model._states) == len(model._rounds) == len(model._counts) == needed:
                raise ValueError("states, rounds and counts must be equally many")
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, StateFileError):
                raise
            raise StateFileError(f"an OnlineToBatch state is incomplete: {error}") from None
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file that `folklearn.load` reads."""
        persist.write(path, self.to_record())

    def __repr__(self) -> str:
        return (
            f"OnlineToBatch({self.learner!r}, select={self.select!r}, "
            f"n_checkpoints={self.n_checkpoints}, passes={self.passes}, seed={self.seed})"
        )


def _later(report: Any, done: int) -> Progress:
    """Return the report of a stretch that begins after `done` rounds."""
    return False if report is None else lambda more: report(done + more)
