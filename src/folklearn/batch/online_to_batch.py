"""Online to batch: from any online learner to one predictor, with a bound on its excess risk."""

import copy
import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, softmax
from folklearn.batch.penalised import FIRST_RIDGE, fit_penalised
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.evidence.map_reduce import MapReduce
from folklearn.evidence.passes import LocalPasses
from folklearn.learners.base import Learner, check_is_learner
from folklearn.learners.experts import ExpertLearner
from folklearn.progress import Progress, Report, report_progress
from folklearn.serialization import Record, Serializable, put_inside, state_file_errors
from folklearn.validation import Rows

AVERAGE = "average"
RANDOM = "random"
LAST = "last"
_NORM_SLACK = 1.0 + 1e-9  # a norm of R may round above R


class OnlineToBatch(Serializable):
    r"""Fit a fixed predictor to a sample by running an online learner over it once.

    Use it when all rows are there beforehand and a certified learner's regret bound should
    become a bound on the risk at new points. Prefer the learner itself on a stream, and
    ``select="last"`` or `folklearn.baselines.SMP` when only the accuracy counts.

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

    The last state has seen most and is usually the best in practice; nothing proves it. With
    ``select="last"``, several passes and a learner that has leaders (`auto`, `Leader`) what
    predicts is the penalised maximum-likelihood fit to all rows, its ridge chosen by leaving
    rows out (`fit_penalised`): the learner runs once, and its best leader is where the fit begins.

    Time is that of the learner's `run`; a prediction costs one of the learner's per state
    kept. Memory is that of up to m + 1 learners: every state is a full copy.

    Guarantee, for rows drawn independently from one distribution, a learner that had learned
    nothing before, ``passes=1`` and ``"random"`` or ``"average"``: for every W of the class
    :math:`E[\text{risk}] - \text{risk}(W) \le E[\text{Regret}(W)]/T \le E[G]`, G what
    `guarantee` returns. The expectations are over rows and draws: a single G is one draw of
    the bound, and a single predictor may be worse. Averaging is no worse than random stopping
    in expectation, because -ln p is convex in p, and varies less. Risk is the expected log
    loss; with weights, of :math:`w\,\ell` for independent rows (x, y, w). Derived in
    docs/theory/reductions.md.

    Parameters
    ----------
    learner : a learner that has learned nothing; it is taken over, not copied, and afterwards
        is in the state after the last row. One that has learned already goes on from there
        (so does a second `fit`), without a guarantee.
    select : ``"average"``, ``"random"`` or ``"last"``.
    n_checkpoints : number m of states that ``"average"`` draws, at least 1; those drawn twice
        count twice.
    passes : times that the rows are run over, at least 1: first in the order given, then
        reshuffled each time. Rounds 1..T are then those of all passes. For the penalised fit,
        the most for each ridge; it ends when nothing changes, so 50 is a good number.
    seed : of the draws, an integer; rows, learner and seed determine the result.

    Examples
    --------
    >>> from folklearn import Folklore, synthetic
    >>> from folklearn.batch import OnlineToBatch
    >>> X, y = synthetic.stochastic(0, 1000, d=3, K=3)
    >>> model = OnlineToBatch(Folklore(n_features=3, n_classes=3, B=5.0)).fit(X, y)
    >>> model.predict(X[:4]).shape, bool(0.0 < model.guarantee() < 0.2)
    ((4, 3), True)
    >>> OnlineToBatch(Folklore(n_features=3, n_classes=3), select="last").fit(X, y).guarantee()

    References
    ----------
    Cesa-Bianchi, Conconi and Gentile (2004), "On the generalization ability of on-line learning
    algorithms". Agarwal, Kale and Zimmert (2021) for FOLKLORE's regret.
    """

    PARAMS = ("select", "n_checkpoints", "passes", "seed")
    CHILDREN = ("learner",)
    COUNTERS = ("n_rounds",)

    def __init__(
        self,
        learner: Learner,
        *,
        select: str = AVERAGE,
        n_checkpoints: int = 10,
        passes: int = 1,
        seed: int = 0,
    ) -> None:
        check_is_learner("the learner", learner)
        if select not in (AVERAGE, RANDOM, LAST):
            raise InvalidInputError(
                f"select must be {AVERAGE!r}, {RANDOM!r} or {LAST!r}, got {select!r}"
            )
        self.learner = learner
        self.n_features = learner.n_features
        self.n_classes = learner.n_classes
        self.select = select
        self.n_checkpoints = validation.count("n_checkpoints", n_checkpoints, 1)
        self.passes = validation.count("passes", passes, 1)
        self.seed = validation.count("seed", seed, 0)
        self.n_rounds = 0
        self._heuristic = "the predictor is not fitted yet"
        self._rounds: list[int] = []  # the states that predict are those before these rounds
        self._counts: list[int] = []
        self._states: list[Learner] = []
        self._refitted: Array | None = None  # (K, d), the penalised fit if that predicts
        self._closed_form = False  # whether the rows satisfy the hypotheses of `regret_bound`

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
        n_jobs: int = 1,
        device: str | None = None,
    ) -> Self:
        """Run the learner over the rows, keep the states that predict, return self.

        y is (T,) classes or (T, K) soft labels. Every row is checked before the first round;
        `progress` is True for a bar or a function of the number of rounds done. `n_jobs` threads
        share the passes of a penalised fit, -1 for as many as there are cores, on one
        machine with the same result to the last bit; a learner learns in one. ``device`` is where
        the sums of that fit are made: "cpu", the default, or a device of PyTorch such as "cuda"
        (extra ``gpu``).
        """
        engine = MapReduce.from_options(n_jobs, device)
        rows = self.learner._checked(X, y, weight)
        T = len(rows.X)
        if T == 0:
            raise InvalidInputError("X has no rows: a predictor needs at least one")
        before = self.learner.n_rounds
        rng = np.random.default_rng(self.seed)
        is_refitted = self._is_refitted
        passes = 1 if is_refitted else self.passes
        n_rounds = passes * T
        rounds, counts = self._draw_rounds(rng, n_rounds)
        states: list[Learner] = []
        with report_progress(progress, n_rounds, "learning") as report:
            for number in range(passes):
                ordered = rows if number == 0 else rows.of(rng.permutation(T))
                done, start = number * T, 0
                stops = [t - 1 - done for t in rounds if done < t <= done + T]
                for i, stop in enumerate([*stops, T]):
                    if stop > start:
                        shifted = _shift_report(report, done + start)
                        self.learner._run(ordered.part(start, stop), shifted)
                        start = stop
                    if i < len(stops):
                        states.append(copy.deepcopy(self.learner))
        self._refitted = self._refit(rows, engine) if is_refitted else None
        self._rounds, self._counts, self._states = rounds, counts, states
        self.n_rounds = n_rounds
        within = bool(rows.norms.max() <= self.learner.R * _NORM_SLACK)
        self._closed_form = weight is None and within
        self._heuristic = self._why_heuristic(before)
        return self

    @property
    def _is_refitted(self) -> bool:
        return self.passes > 1 and self.select == LAST and isinstance(self.learner, ExpertLearner)

    def _refit(self, rows: Rows, engine: MapReduce) -> Array:
        leader = self.learner.leader() if isinstance(self.learner, ExpertLearner) else None
        ridge, W = leader or (FIRST_RIDGE, np.zeros((self.n_classes, self.n_features)))
        passes = LocalPasses(lambda: [rows], engine)
        most_passes = self.passes - 1
        return fit_penalised(passes, W, ridge=ridge, most_passes=most_passes, seed=self.seed).W

    def _draw_rounds(self, rng: np.random.Generator, n_rounds: int) -> tuple[list[int], list[int]]:
        if self.select == LAST:
            return [], []
        m = 1 if self.select == RANDOM else self.n_checkpoints
        rounds, counts = np.unique(rng.integers(1, n_rounds + 1, size=m), return_counts=True)
        return rounds.tolist(), counts.tolist()

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
        if self._refitted is not None:
            return self._predict_refitted(self._refitted, x)
        if self.select == LAST:
            return self.learner.predict(x)
        shares = np.array(self._counts) / sum(self._counts)
        P: Array = shares[0] * self._states[0].predict(x)
        for share, state in zip(shares[1:], self._states[1:], strict=True):
            P += share * state.predict(x)
        return P

    def _predict_refitted(self, W: Array, x: ArrayLike) -> Array:
        x = validation.numbers("x", x)
        if x.ndim == 2:
            return softmax(validation.contexts(x, self.n_features)[0] @ W.T)
        return softmax(W @ validation.usable_context(x, self.n_features))

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
        if self._heuristic:
            return math.inf, self._heuristic
        certificate = self.learner.certificate(B=B)
        bound = self.learner.regret_bound(self.n_rounds)
        if certificate.valid:
            return certificate.regret_bound, ""
        if not math.isfinite(bound) or B is not None or math.isfinite(certificate.loss):
            return math.inf, certificate.reason
        name = type(self.learner).__name__
        if not self._closed_form:
            return math.inf, f"the bound of {name} is for weights of 1 and contexts of norm R"
        return bound, ""

    def to_record(self) -> Record:
        """Return the full state as a record: the learner's, and those of the kept states."""
        record = super().to_record()
        put_inside(record, "states", self._states)
        record.config["rounds"], record.config["counts"] = self._rounds, self._counts
        record.config["closed_form"] = self._closed_form
        record.config["heuristic"] = self._heuristic
        if self._refitted is not None:
            record.arrays["refitted"] = self._refitted.copy()
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self._states = record.inner("states")
        with state_file_errors(record.kind):
            self._rounds = [validation.count("rounds", t, 1) for t in record.word("rounds")]
            self._counts = [validation.count("counts", c, 1) for c in record.word("counts")]
        self._closed_form = bool(record.word("closed_form"))
        self._heuristic = str(record.word("heuristic"))
        if self._is_refitted and self.n_rounds:
            self._refitted = record.part("refitted", (self.n_classes, self.n_features))
        needed = 0 if self.select == LAST or not self.n_rounds else max(1, len(self._rounds))
        if not len(self._states) == len(self._rounds) == len(self._counts) == needed:
            raise StateFileError("states, rounds and counts must be equally many")


def _shift_report(report: Report | None, n_done: int) -> Report | None:
    return None if report is None else lambda n_rounds: report(n_done + n_rounds)
