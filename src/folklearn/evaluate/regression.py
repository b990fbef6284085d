"""Logistic regression in hindsight: the penalised fit to all rows, with a proven lower bound.

For every model W of any norm, with p the prediction of any model at each row
(`kernels.evidence`),

    sum of w loss(W) + 1/2 sum_ij tau_j W_ij^2  >=  c - 1/2 sum_ij G_ij^2 / tau_j,

c = sum of w H(p), G = sum of w (p - y) x'. At the minimiser of the left side both are equal.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import LossAndGradient, predict_residuals
from folklearn.evidence.certificate import round_down, round_up
from folklearn.kernels.blas import threads_for
from folklearn.kernels.evidence import N_TOTALS, penalised_lower_bound
from folklearn.sparse import SparseRows
from folklearn.validation import Rows

_CONSTANT_PENALTY = 1e-8  # times the square of a constant, over 2: next to none
MAX_CONSTANT_NORM = 100.0  # norm of the constants of all classes up to which the bound holds
_CHUNK_VALUES = 1 << 16  # numbers of a chunk of rows: they should stay in the cache
_TYPICAL_CURVATURE = 0.1  # p (1 - p), where the search begins to know the curvature
_MAX_SAMPLED_ROWS = 1 << 16  # of which products of columns are added up
_N_LBFGS_PAIRS = 30  # pairs of steps and gradients that L-BFGS keeps
_MAX_SEARCHES = 4  # each ten times as exact, should constants not follow
_MAX_NEWTON_STEPS = 30  # for the constants alone,
_MIN_NEWTON_STEP = 1e-13  # relative


@dataclass(frozen=True)
class Regression:
    """A penalised logistic regression W (K, d) of all rows, and a bound for all linear models.

    Attributes
    ----------
    loss, penalty : of W, in all: log loss in nats, and 1 / (2 C) times the squares of its weights
        (for two classes, of the difference of theirs).
    at_least : no linear model, of any norm but with constants of norm at most 100, has a loss and
        a penalty together below it. Constants are not penalised.
    """

    W: Array  # centred over the classes
    loss: float
    penalty: float
    at_least: float
    C: float  # of the penalty, as in scikit-learn
    n_rows: int
    total_weight: float
    features: str = "the features as given"  # in words

    @property
    def gap(self) -> float:
        """How far the bound lies below what W has: 0 but for the search and for rounding."""
        return self.loss + self.penalty - self.at_least

    def numbers(self) -> dict[str, Any]:
        """Return everything but the weights, to be saved."""
        return {name: value for name, value in asdict(self).items() if name != "W"}

    @classmethod
    def of_numbers(cls, numbers: dict[str, Any]) -> "Regression":
        """Return what `numbers` gave, without weights."""
        names = {attribute.name for attribute in fields(cls)} - {"W"}
        if set(numbers) != names:
            raise InvalidInputError("a regression lacks some of its numbers")
        return cls(np.empty((0, 0)), **numbers)

    def in_words(self) -> str:
        """Return both as sentences, averages over the total weight."""
        n = self.total_weight
        if not n > 0.0:
            return "In hindsight: no row has a weight."
        words = (
            f"In hindsight: a logistic regression of {self.features}, fitted to all of these rows "
            f"(C = {self.C:g} as in scikit-learn), has an average log loss of {self.loss / n:.4f} "
            f"and a penalty of {self.penalty / n:.4f}. Every linear model of them, of any norm, "
            f"with constants up to {MAX_CONSTANT_NORM:g}, has a loss and a penalty of together at "
            f"least {round_down(max(0.0, self.at_least) / n)}."
        )
        if self.gap > 1e-3 * (self.loss + self.penalty):
            words += f" The search stopped {round_up(self.gap / n)} above that bound."
        return words


def logistic_regression(
    X: Any,
    y: ArrayLike,
    *,
    n_classes: int,
    weight: ArrayLike | None = None,
    C: float = 1.0,
    constant: int | None = None,
    start: ArrayLike | None = None,
    tol: float = 1e-6,
    most_passes: int = 500,
) -> Regression:
    r"""Return the logistic regression of scikit-learn's objective, with a proof for every model.

    .. math:: \Phi(W) = \sum_t w_t\, \ell(W x_t, y_t) + \tfrac12 \sum_{ij} \tau_j W_{ij}^2

    :math:`\tau` is 1 / C, 2 / C for two classes (their rows are halves of the weights that
    scikit-learn has), and next to nothing for the constant, which is taken off the bound. By
    L-BFGS, one pass of O(T K d) for each step; then the constants alone by Newton's method.

    Guarantee: ``at_least`` is at most loss plus penalty of every W whose constants have a norm of
    at most 100, in floating point too, wherever the search stopped.

    Parameters
    ----------
    X, y, weight : rows (T, d), dense or sparse, labels (T,) or soft labels (T, K), weights (T,).
    n_classes : K, at least 2.
    C : inverse of the penalty, positive.
    constant : the column that holds a constant, which is hardly penalised.
    start : W (K, d) to begin with.
    tol : of the objective, that the bound may lie below it.
    most_passes : over the rows, at most, after which the gap that is left is reported.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = (X[:, 0] + rng.logistic(size=300) > 0).astype(int)
    >>> fit = logistic_regression(X, y, n_classes=2)
    >>> bool(fit.at_least <= fit.loss + fit.penalty), fit.gap < 1e-3
    (True, True)
    """
    K = validation.count("n_classes", n_classes, 2)
    C = validation.positive("C", C)
    X = validation.table(X)
    rows = Rows.checked(X, y, weight, n_features=X.shape[1], n_classes=K)
    rows = rows.of(np.flatnonzero(rows.weights > 0.0))
    if isinstance(rows.X, SparseRows):
        rows = rows._replace(X=rows.X.array())
    tau = np.full(X.shape[1], (2.0 if K == 2 else 1.0) / C)
    if constant is not None:
        tau[constant] = _CONSTANT_PENALTY * min(1.0, tau[constant])
    W = validation.model("start", start, K, X.shape[1])
    objective = _Objective(rows, K, tau, constant)
    with threads_for(W.size):
        W = _minimise(objective, W - W.mean(axis=0), tol, most_passes)
        loss, penalty, at_least = objective.prove(W)
    at_least = min(at_least, loss + penalty)
    return Regression(W, loss, penalty, at_least, C, X.shape[0], float(rows.weights.sum()))


class _Objective:
    """The total loss and the penalty, their gradient, and the bound that lies below them."""

    def __init__(self, rows: Rows, n_classes: int, tau: Array, constant: int | None) -> None:
        self.rows, self.tau, self.constant = rows, tau, constant
        self.n_passes = 0
        self._chunk_rows = max(64, _CHUNK_VALUES // (rows.X.shape[1] + n_classes))

    def _chunks(self) -> Iterator[Rows]:
        for first in range(0, len(self.rows.weights), self._chunk_rows):
            yield self.rows.part(first, first + self._chunk_rows)

    def value(self, W: Array) -> tuple[float, Array]:
        """Return the objective at W (K, d) and its gradient."""
        self.n_passes += 1
        total, G = 0.5 * float(((W * W) @ self.tau).sum()), W * self.tau
        for rows in self._chunks():
            sums = LossAndGradient.of(rows, W, has_planes=False)
            total += sums.loss
            G += sums.G
        return total, G

    def missing(self, G: Array) -> Array:
        """Return what the bound lies below the objective for each column (d,) of a gradient."""
        lost: Array = 0.5 * (G * G).sum(axis=0) / self.tau
        return lost

    def prove(self, W: Array) -> tuple[float, float, float]:
        """Return loss and penalty of W, and the bound from the planes at its predictions."""
        sums = LossAndGradient(W, 0.0, np.zeros_like(W), np.zeros(N_TOTALS))
        for rows in self._chunks():
            sums += LossAndGradient.of(rows, W)
        at_least = penalised_lower_bound(sums.totals, sums.G.T, self.tau)
        penalised = np.ones(len(self.tau))
        if self.constant is not None:
            at_least -= 0.5 * self.tau[self.constant] * MAX_CONSTANT_NORM**2
            penalised[self.constant] = 0.0
        return sums.loss, 0.5 * float(((W * W) @ (self.tau * penalised)).sum()), max(0.0, at_least)

    def with_best_constants(self, W: Array) -> Array:
        """Return W with the constants at their best, by Newton's method."""
        column = self.constant
        if column is None:
            return W
        X, _, labels, soft, weights = self.rows
        tau, unit = self.tau[column], X[:, [column]]
        unit = (unit if isinstance(unit, np.ndarray) else unit.toarray())[:, 0]
        Z = np.ascontiguousarray((X @ W.T).T)
        best, least, step = W[:, column], math.inf, np.zeros(len(W))
        constants = best
        for _ in range(_MAX_NEWTON_STEPS):
            shifted = Z + (constants - W[:, column])[:, None] * unit
            P, residuals, losses = predict_residuals(shifted, labels, soft, weights)
            value = float(weights @ losses) + 0.5 * tau * float(constants @ constants)
            if value < least:
                best, least = constants, value
                curved = P * (weights * unit**2)
                H = np.diag(curved.sum(axis=1) + tau) - curved @ P.T
                step = -np.linalg.solve(H, residuals @ unit + tau * constants)
            else:
                step = 0.5 * step  # it led up: Newton's step was too long
            if np.abs(step).max() <= _MIN_NEWTON_STEP * (1.0 + np.abs(best).max()):
                break
            constants = best + step
        moved = W.copy()
        moved[:, column] = best
        return moved


def _decorrelation(objective: _Objective) -> Array:
    """Return L such that L L' is about the Hessian for every class; of sparse rows its diagonal."""
    X, _, _, _, weights = objective.rows
    step = -(len(weights) // -_MAX_SAMPLED_ROWS)
    sample, w = X[::step], weights[::step] * step * _TYPICAL_CURVATURE
    L: Array
    if isinstance(X, np.ndarray):
        M = (sample * w[:, None]).T @ sample
        M[np.diag_indices_from(M)] += objective.tau
        L = cholesky(M, lower=True)
    else:
        L = np.sqrt(np.asarray(sample.multiply(sample).T @ w).ravel() + objective.tau)
    return L


def _minimise(objective: _Objective, W: Array, tol: float, most_passes: int) -> Array:
    """Return a model at which the bound is nearly the objective: L-BFGS, constants by Newton.

    The search is over V = W L, in which the columns are about uncorrelated.
    """
    from scipy.optimize import minimize  # takes a sixth of a second

    if not len(objective.rows.weights):
        return W
    L, gap = _decorrelation(objective), math.inf

    def solve(V: Array, trans: str) -> Array:
        if L.ndim == 1:
            return V / L
        solved: Array = solve_triangular(L, V.T, lower=True, trans=trans).T
        return solved

    def value(v: Array) -> tuple[float, Array]:
        nonlocal gap
        total, G = objective.value(solve(v.reshape(W.shape), "T"))
        lost = objective.missing(G)
        if objective.constant is not None:
            lost[objective.constant] = 0.0
        gap = float(lost.sum()) / (1.0 + abs(total))  # at the model that was evaluated last
        return total, solve(G, "N").ravel()

    limits = {"maxiter": most_passes, "maxfun": most_passes, "ftol": 0.0, "gtol": 0.0}
    for number in range(_MAX_SEARCHES):
        enough = tol * 0.1**number

        def stop(intermediate_result: Any, enough: float = enough) -> None:
            if gap <= enough or objective.n_passes >= most_passes:
                raise StopIteration

        result = minimize(
            value, (W @ L if L.ndim == 2 else W * L).ravel(), jac=True, method="L-BFGS-B",
            callback=stop, options={"maxcor": _N_LBFGS_PAIRS, **limits},
        )  # fmt: skip
        W = objective.with_best_constants(solve(result.x.reshape(W.shape), "T"))
        total, G = objective.value(W)
        left = float(objective.missing(G).sum())
        if left <= 2.0 * tol * (1.0 + abs(total)) or objective.n_passes >= most_passes:
            break
    return W
