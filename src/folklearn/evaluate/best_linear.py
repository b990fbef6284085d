"""The best linear model in hindsight and its proof, by a few passes over all rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.evaluate.projected_gradient import Descent, WideLoss
from folklearn.evidence.evidence import Evidence, LowerBound
from folklearn.evidence.map_reduce import MapReduce
from folklearn.evidence.passes import Expansion, LocalPasses, Passes, backtrack_factor
from folklearn.kernels.blas import threads_for
from folklearn.kernels.evidence import MIN_TOTAL_WEIGHT, WEIGHT
from folklearn.kernels.lower_bound import TOLERANCE, minimise, project_into_class
from folklearn.learners.backends import PAIRS, select_backend
from folklearn.validation import Rows

Report = Callable[["Pass"], None]

MAX_PASSES = 50
MAX_WIDE_PASSES = 500  # of first order, each cheaper by far
_MAX_IDLE_PASSES, _MAX_IDLE_WIDE_PASSES = 8, 40  # without a smaller gap: what is left is rounding
_STEP_TOLERANCE = 1e-6  # of the gap: a proof with little curvature magnifies errors of a step;
_MIN_STEP_TOLERANCE = 1e-13  # in nats per unit of weight, below which is rounding


class Pass(NamedTuple):
    """The state of a search after a pass.

    number : of the pass, from 1.
    loss : total loss of the model at which this pass expanded the rows, rounded up.
    at_least : no model of the class has a total loss below; the best of all passes.
    gap : the least loss of a model so far, less `at_least`.
    """

    number: int
    loss: float
    at_least: float
    gap: float


@dataclass(frozen=True)
class BestLinearModel:
    """The best model of the class, up to a proven gap, after some passes.

    Attributes
    ----------
    W : (K, d), every row norm at most B.
    loss : total (weighted) log loss of W, in nats, rounded up: what the floats W truly have is not
        above it.
    evidence : the evidence with the highest lower bound, all rows expanded at one model.
    at_least : that lower bound: no model of the class has a total loss below.
    B : the row norm that bounds the class.
    n_passes : passes that were made.
    converged : whether the gap came below the tolerance.
    """

    W: Array
    loss: float
    evidence: LowerBound
    at_least: float
    B: float
    n_passes: int
    converged: bool

    @property
    def gap(self) -> float:
        """Proven distance of ``loss`` from the least loss in the class, rounding included."""
        return self.loss - self.at_least


def refine(
    passes: Passes,
    *,
    n_features: int,
    n_classes: int,
    B: float,
    at: ArrayLike | None = None,
    tol: float = 1e-6,
    most_passes: int | None = None,
    report: Report | None = None,
) -> BestLinearModel:
    r"""Find the best model of the class and prove it, reading all rows a few times over.

    Use it where rows are too many for memory, or where evidence of one pass is not tight
    enough; `best_in_class` is for arrays. Each pass expands every row at the model W of the
    pass, twice:

    .. math::
        \hat E_\gamma(V) \le L(V) \text{ in the class,} \qquad
        \hat E_{1/2}(V) = L(V) + O(\|V - W\|^3)

    The minimum of the first is a proof; the minimiser of the second over the class is the next W,
    Newton's method with the class as it is. If its loss, which the next pass finds, is not
    lower, that pass is followed by a shorter step. The gap of the proof is of second order in
    the distance of W from the best model, so near it every pass about squares the gap.

    A pass takes (K d)^2 flops a row and two minima some twenty systems of K d equations;
    memory 4 (K d)^2 bytes and one batch of rows. Where that does not fit (`select_backend`), it is
    projected gradients and evidence of first order, `LinearEvidence`: two passes at least, tens to
    hundreds mostly, of O(K) a value that is not 0.

    Guarantee: ``at_least`` of the result is at most the loss of every model of the class, and its
    ``loss`` at least that of its W, in floating point too, whether or not it converged. That it
    converges is observed, not proven.

    Parameters
    ----------
    passes : all rows; `passes_over` makes them of arrays, or of a function that returns batches,
        and shares them out to threads.
    n_features, n_classes, B : the class.
    at : model (K, d) to begin with, by default 0.
    tol : of the gap, relative to 1 + loss. Below about 1e-10 rounding is in the way, and sooner
        where the sum of w B |x| is far above the loss: 1e-13 of it stays in the gap, or more.
    most_passes : at least 1, by default 50 (500 of first order), after which it ends,
        converged or not, and also when the gap does not become smaller any more.
    report : called with a `Pass` after each.
    """
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    B, tol = validation.positive("B", B), validation.positive("tol", tol)
    W = validation.model("at", at, K, d)
    is_wide = select_backend(d, K, passes.device) != PAIRS
    default = MAX_WIDE_PASSES if is_wide else MAX_PASSES
    most = default if most_passes is None else validation.count("most_passes", most_passes, 1)
    search = _Search(B, tol, _MAX_IDLE_WIDE_PASSES if is_wide else _MAX_IDLE_PASSES, report)
    return (_descend if is_wide else _take_newton_steps)(passes, W, search, most)


class _Search:
    """The best model and the best proof so far."""

    def __init__(self, B: float, tol: float, max_idle: int, report: Report | None) -> None:
        self.B, self._tol, self._max_idle, self._report = B, tol, max_idle, report
        self.W, self.loss, self.loss_at_most = np.empty((0, 0)), np.inf, np.inf
        self.evidence: LowerBound | None = None
        self.at_least, self.gap = -np.inf, np.inf
        self._n_idle = 0

    def add(
        self, number: int, W: Array, loss: float, loss_at_most: float, evidence: LowerBound,
        lower_bound: float,
    ) -> bool:  # fmt: skip
        """Take in the model and the proof of a pass; return whether the model is the best."""
        is_first = self.evidence is None
        if is_first or lower_bound > self.at_least:
            self.evidence, self.at_least = evidence, lower_bound
        is_best = is_first or loss < self.loss
        if is_best:
            self.W, self.loss, self.loss_at_most = W, loss, loss_at_most
        gap_before, self.gap = self.gap, self.loss_at_most - self.at_least
        self._n_idle = 0 if is_first or self.gap < gap_before else self._n_idle + 1
        if self._report is not None:
            self._report(Pass(number, loss_at_most, self.at_least, self.gap))
        return is_best

    @property
    def has_converged(self) -> bool:
        return self.gap <= self._tol * (1.0 + self.loss_at_most)

    @property
    def has_ended(self) -> bool:
        return self.has_converged or self._n_idle >= self._max_idle

    def result(self, W: Array, n_passes: int) -> BestLinearModel:
        assert self.evidence is not None
        proof = self.evidence, self.at_least, self.B
        return BestLinearModel(W, self.loss_at_most, *proof, n_passes, self.has_converged)


def _take_newton_steps(passes: Passes, W: Array, search: _Search, most: int) -> BestLinearModel:
    B, W = search.B, project_into_class(W, search.B)
    step, slope, length = np.zeros_like(W), 0.0, 1.0
    near_proof: Array | None = None  # multipliers of the last proof,
    near_step: Array | None = None  # and of the last step
    for number in range(1, most + 1):
        expansion = passes.expand(W, (B,))
        proof = Evidence.of(expansion.sums[1], B=B, first_classes=len(W))
        lower_bound, _, near_proof = proof.minimise(near_proof)
        rise = expansion.loss - search.loss
        losses = expansion.loss, expansion.loss_at_most
        is_best = search.add(number, W, *losses, proof, lower_bound)
        if search.has_ended:
            break
        if is_best:
            target, near_step = _newton_target(expansion, search, near_step)
            step, length = target - W, 1.0
            slope = float((expansion.gradient() * step).sum())
        else:
            length *= backtrack_factor(slope * length, rise)
        W = search.W + length * step
    return search.result(search.W, number)


def _newton_target(
    expansion: Expansion, search: _Search, near: Array | None
) -> tuple[Array, Array]:
    """Return the minimiser of the second-order loss over the class, and its multipliers."""
    quadratic = expansion.sums[0]
    weight = max(float(quadratic.totals[WEIGHT]), MIN_TOTAL_WEIGHT)
    enough = max(_STEP_TOLERANCE * search.gap / weight, _MIN_STEP_TOLERANCE)
    with threads_for(expansion.W.size):
        _, target, near = minimise(quadratic, search.B, min(enough, TOLERANCE), near)
    return target, near


def _descend(passes: Passes, W: Array, search: _Search, most: int) -> BestLinearModel:
    """Find and prove the best model by projected gradients."""
    K, d = W.shape
    loss = WideLoss(passes, n_features=d, n_classes=K)
    descent = Descent(loss, loss.narrow(W), search.B, most)
    while True:
        here = descent.here
        evidence = loss.evidence(here, search.B)
        losses = here.loss, here.loss_at_most
        search.add(descent.n_passes, here.W, *losses, evidence, evidence.lower_bound())
        if search.has_ended or not descent.step():
            break
    return search.result(loss.widen(search.W), descent.n_passes)


def best_in_class(
    X: Any,
    y: ArrayLike,
    *,
    B: float,
    n_classes: int,
    weight: ArrayLike | None = None,
    tol: float = 1e-8,
    n_jobs: int = 1,
    device: str | None = None,
) -> BestLinearModel:
    """Minimise the total log loss over linear models of row norm at most B.

    The passes of `refine` over rows in memory: Newton's method with the class as it is, mostly 3
    to 10 steps, each with a lower bound of `Evidence` that proves how near the model is.
    T (K d)^2 multiply-adds a step, and some twenty systems of K d equations; memory 8 (K d)^2
    bytes. For problems too wide for that (`select_backend`): first order, many passes, and a
    gap that may stay above the tolerance.

    Guarantee: ``at_least`` of the result is at most the loss of every model of the class and its
    ``loss`` at least that of W, in floating point too. The gap between them comes below ``tol``
    times (1 + loss) unless rounding is in the way, as with rows or weights that are huge compared
    with the loss; ``converged`` says so.

    Parameters
    ----------
    X, y, weight : as in `Folklore.run`; y is (T,) classes or (T, K) soft labels.
    B : largest row norm, positive.
    n_classes : K, at least 2.
    tol : relative tolerance of the gap, positive.
    n_jobs : threads that share the sums over rows, -1 for as many as there are cores; the result
        is the same to the last bit. From 1000 coordinates d K on BLAS shares them out itself.
    device : where the sums are made: "cpu", the default, or a device of PyTorch such as "cuda"
        (extra ``gpu``).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)
    >>> best = best_in_class(X, y, B=5.0, n_classes=2)
    >>> best.converged, best.gap < 1e-5, bool(best.loss < 200 * np.log(2))
    (True, True, True)
    """
    engine = MapReduce.from_options(n_jobs, device)
    n_classes = validation.count("n_classes", n_classes, 2)
    B = validation.positive("B", B)
    tol = validation.positive("tol", tol)
    X = validation.table(X)
    sizes = {"n_features": X.shape[1], "n_classes": n_classes}
    rows = Rows.checked(X, y, weight, **sizes)
    return refine(LocalPasses(lambda: [rows], engine), **sizes, B=B, tol=tol)
