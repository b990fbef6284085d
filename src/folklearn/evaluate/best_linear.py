"""The best linear model in hindsight and its proof, by a few passes over rows of any number."""

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
from folklearn.evidence.passes import Passes, PassesHere, shorter
from folklearn.kernels.blas import threads_for
from folklearn.kernels.evidence import WEIGHT
from folklearn.kernels.lower_bound import TOLERANCE, floor, into_class
from folklearn.learners.lanes import PAIRS, lane_of
from folklearn.validation import Rows

Report = Callable[["Pass"], None]

MOST_PASSES = 50
MOST_WIDE_PASSES = 500  # of first order, each cheaper by far
_PATIENCE_WIDE = 40
_LIGHTEST = 1e-100  # total weight that is divided by
_PATIENCE = 8  # passes without a smaller gap: what is left is rounding
_STEP = 1e-6  # of the gap, to which a step is found: a proof with little curvature magnifies it;
_LEAST_STEP = 1e-13  # in nats per unit of weight, below which is rounding


class Pass(NamedTuple):
    """What is known after a pass.

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
class Exact:
    """The best model of the class, up to a proven gap, after some passes.

    Attributes
    ----------
    W : (K, d), every row norm at most B.
    loss : total (weighted) log loss of W, in nats, rounded up: what the floats W truly have is not
        above it.
    evidence : the evidence with the highest floor, all rows expanded at one model.
    at_least : that floor: no model of the class has a total loss below.
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
        """The least loss in the class is between ``at_least`` and ``loss``, proven.

        Whatever solver made W, and whatever was lost to rounding: that is part of the gap.
        """
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
) -> Exact:
    r"""Find the best model of the class and prove it, reading all rows a few times over.

    Use it where rows are too many for memory, or where evidence of one pass is not tight
    enough; `best_in_class` is for arrays. Each pass expands every row at the model W of the
    pass, twice:

    .. math::
        \hat E_\gamma(V) \le L(V) \text{ in the class,} \qquad
        \hat E_{1/2}(V) = L(V) + O(\|V - W\|^3)

    The floor of the first is a proof; the minimiser of the second over the class is the next W,
    Newton's method with the class as it is. If its loss, which the next pass finds, is not
    lower, that pass is followed by a shorter step. The gap of the proof is of second order in
    the distance of W from the best model, so near it every pass about squares the gap.

    A pass takes (K d)^2 flops a row and the floors some twenty systems of K d equations;
    memory 4 (K d)^2 bytes and one block of rows. Where that does not fit (`lane_of`), it is
    projected gradients and evidence of first order, `LinearEvidence`: two passes at least, tens to
    hundreds mostly, of O(K) a value that is not 0.

    Guarantee: `Exact.at_least` is at most the loss of every model of the class, and `Exact.loss` at
    least that of its W, in floating point too, whether or not it converged. That it converges
    is observed, not proven.

    Parameters
    ----------
    passes : all rows, wherever they lie; `passes_over` makes them of arrays, or of a function that
        returns blocks, and shares them out to threads.
    n_features, n_classes, B : the class.
    at : model (K, d) to begin with, by default 0.
    tol : of the gap, relative to 1 + loss. Below about 1e-10 rounding is in the way, and sooner
        where the sum of w B |x| is far above the loss: 1e-13 of it stays in the gap, or more.
    most_passes : at least 1; after so many, by default 50 (500 of first order), it ends,
        converged or not, and also when the gap does not become smaller any more.
    report : told a `Pass` after each.
    """
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    B, tol = validation.positive("B", B), validation.positive("tol", tol)
    is_wide = lane_of(d, K, passes.device) != PAIRS
    default = MOST_WIDE_PASSES if is_wide else MOST_PASSES
    most = default if most_passes is None else validation.count("most_passes", most_passes, 1)
    if is_wide:
        start = validation.model("at", at, K, d)
        return _refine_wide(passes, start, B=B, tol=tol, most_passes=most, report=report)
    W = into_class(validation.model("at", at, K, d), B)
    found: Exact | None = None
    least, evidence, at_least, idle = np.inf, None, -np.inf, 0
    here, loss, towards, slope, length = W, np.inf, np.zeros_like(W), 0.0, 1.0
    near: Array | None = None  # multipliers of the last proof,
    near_step: Array | None = None  # and of the last step
    for number in range(1, most + 1):
        sums = passes.sums(W, (B,))
        proof = Evidence.of(sums.quadratic(1), B=B, first_classes=K)
        floored, _, near = proof.floored(near)
        if evidence is None or floored > at_least:
            evidence, at_least = proof, floored
        is_lower = sums.loss < least
        if is_lower:
            here, least, loss, length = W, sums.loss, sums.loss_at_most, 1.0
        else:
            length *= shorter(slope * length, sums.loss - least)
        gap = loss - at_least
        done = gap <= tol * (1.0 + loss)
        idle = 0 if found is None or gap < found.gap else idle + 1
        found = Exact(here, loss, evidence, at_least, B, number, done)
        if report is not None:
            report(Pass(number, sums.loss_at_most, at_least, gap))
        if done or idle >= _PATIENCE:
            break
        if is_lower:
            model = sums.quadratic()
            weight = max(float(model.totals[WEIGHT]), _LIGHTEST)
            enough = min(max(_STEP * gap / weight, _LEAST_STEP), TOLERANCE)
            with threads_for(W.size):
                _, there, near_step = floor(model, B, enough, near_step)
            towards = there - W
            slope = float((sums.gradient() * towards).sum())
        W = here + length * towards
    assert found is not None
    return found


def _refine_wide(
    passes: Passes, W: Array, *, B: float, tol: float, most_passes: int, report: Report | None
) -> Exact:
    """Find and prove the best model by projected gradients."""
    K, d = W.shape
    loss = WideLoss(passes, n_features=d, n_classes=K)
    descent = Descent(loss, loss.narrow(W), B, most_passes)
    best, at_least, proof, idle = descent.here, -np.inf, None, 0
    while True:
        here = descent.here
        evidence = loss.evidence(here, B)
        floored = evidence.floor()
        gap_before = best.loss_at_most - at_least
        if proof is None or floored > at_least:
            proof, at_least = evidence, floored
        if here.loss < best.loss:
            best = here
        gap = best.loss_at_most - at_least
        idle = 0 if gap < gap_before else idle + 1
        if report is not None:
            report(Pass(descent.n_passes, here.loss_at_most, at_least, gap))
        done = gap <= tol * (1.0 + best.loss_at_most)
        if done or idle >= _PATIENCE_WIDE or not descent.step():
            break
    W = loss.widened(best.W)
    return Exact(W, best.loss_at_most, proof, at_least, B, descent.n_passes, done)


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
) -> Exact:
    """Minimise the total log loss over linear models of row norm at most B.

    The passes of `refine` over rows in memory: Newton's method with the class as it is, mostly 3
    to 10 steps, each with a floor of `Evidence` that proves how far the model is from the best.
    T (K d)^2 multiply-adds a step, and some twenty systems of K d equations; memory 8 (K d)^2
    bytes. For problems too wide for that (`lane_of`): first order, many passes, and a gap that may
    stay above the tolerance.

    Guarantee: `Exact.at_least` is at most the loss of every model of the class and `Exact.loss` at
    least that of W, in floating point too. The gap between them comes below ``tol`` times
    (1 + loss) unless rounding is in the way, as with rows or weights that are huge beside the loss;
    `Exact.converged` tells.

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
    return refine(PassesHere(lambda: [rows], engine), **sizes, B=B, tol=tol)
