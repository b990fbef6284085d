"""The best linear model in hindsight of rows that are at hand, and what linear models lose."""

from typing import Any

from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.evaluate.best_linear import Exact, refine
from folklearn.evidence.map_reduce import Engine
from folklearn.evidence.passes import PassesHere
from folklearn.validation import Rows


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
    engine = Engine.chosen(n_jobs, device)
    n_classes = validation.count("n_classes", n_classes, 2)
    B = validation.positive("B", B)
    tol = validation.positive("tol", tol)
    X = validation.table(X)
    sizes = {"n_features": X.shape[1], "n_classes": n_classes}
    rows = Rows.checked(X, y, weight, **sizes)
    return refine(PassesHere(lambda: [rows], engine), **sizes, B=B, tol=tol)
