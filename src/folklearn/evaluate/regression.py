"""Logistic regression in hindsight: the penalised fit to all rows, with a proven lower bound.

For every model W, with p the prediction of any model at each row (`kernels.evidence`),

    sum of w loss(W) + 1/2 sum_ij tau_j W_ij^2  >=  c - 1/2 sum_ij G_ij^2 / tau_j,

c = sum of w H(p), G = sum of w (p - y) x'. At the minimiser of the left side both are equal.
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import Pass, Report, TotalLoss
from folklearn.evidence.certificate import round_down, round_up
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.evidence.passes import Passes, passes_over
from folklearn.kernels.blas import threads_for
from folklearn.kernels.evidence import ROUNDS, WEIGHT, penalised_lower_bound
from folklearn.kernels.on_torch import back, put
from folklearn.kernels.quadratic import factorise_near, matrix
from folklearn.validation import Rows

_TYPICAL_CURVATURE = 0.1  # p (1 - p), where the search begins to know the curvature
_N_LBFGS_PAIRS = 30  # pairs of steps and gradients that L-BFGS keeps
_MAX_SEARCHES = 4
_MAX_DENSE_PASSES = 80  # before Newton's method takes over
_MIN_STEP_LENGTH = 1e-6


@dataclass(frozen=True)
class Regression:
    """A penalised logistic regression W (K, d) of all rows, and a bound for all linear models."""

    W: Array  #: centred over the classes
    loss: float  #: of W, in all, in nats
    penalty: float  #: 1 / (2 C) times the squares of weights; of two classes, of their difference
    at_least: float  #: no linear model has a loss and a penalty together below it
    C: float  #: of the penalty, as in scikit-learn
    n_rows: int
    total_weight: float
    features: str = "the features as given"  #: in words

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
        if {*numbers, "W"} != {attribute.name for attribute in fields(cls)}:
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
            f"and a penalty of {self.penalty / n:.4f}. Every linear model of them, whatever its "
            "weights, has a loss and a penalty of together at least "
            f"{round_down(max(0.0, self.at_least) / n)}."
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
    n_jobs: int = 1,
    device: str | None = None,
) -> Regression:
    r"""Return the logistic regression of scikit-learn's objective, with a proof for every model.

    .. math:: \Phi(W) = \sum_t w_t\, \ell(W x_t, y_t) + \tfrac12 \sum_{ij} \tau_j W_{ij}^2

    :math:`\tau` is 1 / C, 2 / C for two classes (their rows are halves of the weights that
    scikit-learn has), and 1e-4 of that for the constant. By L-BFGS, one pass of O(T K d) for
    each step, and by Newton's method where that is slow.

    Guarantee: ``at_least`` is at most loss plus penalty of every W, in floating point too, wherever
    the search stopped.

    Parameters
    ----------
    X, y, weight : rows (T, d), dense or sparse, labels (T,) or soft labels (T, K), weights (T,).
    n_classes : K, at least 2.
    C : inverse of the penalty, positive.
    constant : the column that holds a constant, which is hardly penalised.
    start : W (K, d) to begin with.
    tol, most_passes : by which part of the objective the bound may lie below it; passes over the
        rows, at most, and one more that finds the sizes of the columns.
    n_jobs, device : of `best_in_class`.

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
    X = validation.table(X)
    sizes = {"n_features": X.shape[1], "n_classes": validation.count("n_classes", n_classes, 2)}
    passes = passes_over(X, y, weight, **sizes, n_jobs=n_jobs, device=device)
    options: dict[str, Any] = {"C": C, "constant": constant, "start": start, "tol": tol}
    return regress(passes, **sizes, **options, most_passes=most_passes)


def regress(
    passes: Passes,
    *,
    n_features: int,
    n_classes: int,
    C: float = 1.0,
    constant: int | None = None,
    start: ArrayLike | None = None,
    tol: float = 1e-6,
    most_passes: int = 500,
    report: Report | None = None,
) -> Regression:
    """Return the `logistic_regression` of rows that are read by passes, wherever they are.

    `report` is called with a `Pass` after each.
    """
    problem = LinearEvidence(n_features=n_features, n_classes=n_classes, C=C, constant=constant)
    loss = TotalLoss(passes, n_features=n_features, n_classes=n_classes)
    objective = _Objective(loss, problem.penalties, report)
    W = loss.narrow(validation.model("start", start, n_classes, n_features))
    with threads_for(W.size):
        tol, W = validation.positive("tol", tol), W - W.mean(axis=0)
        if W.any() and not objective.value(W)[0] < objective.value(np.zeros_like(W))[0]:
            W = np.zeros_like(W)  # a start that is worse than none
        _descend(objective, W, tol, most_passes)
        if not loss.is_wide:
            _take_newton_steps(objective, tol, most_passes)
    return Regression(
        W=loss.widen(objective.W), loss=objective.loss, penalty=objective.penalty,
        at_least=min(objective.at_least, objective.loss + objective.penalty), C=problem.C,
        n_rows=objective.n_rows, total_weight=objective.total_weight,
    )  # fmt: skip


class _Objective:
    """The total loss and the penalty, their gradient, and the bound that lies below them."""

    def __init__(self, rows: TotalLoss, tau: Array, report: Report | None) -> None:
        self.rows, self._report = rows, report
        self.tau = tau[rows.columns]
        self.W, self.least, self.penalty, self.at_least = np.empty((0, 0)), math.inf, 0.0, 0.0
        self.n_rows, self.total_weight, self.loss = 0, 0.0, 0.0

    def value(self, W: Array) -> tuple[float, Array]:
        """Return the objective at W (K, d) and its gradient; remember the best, and the proof."""
        sums = self.rows.at(W)
        penalty = 0.5 * float(((W * W) @ self.tau).sum())
        total = sums.loss + penalty
        self.n_rows, self.total_weight = int(sums.totals[ROUNDS]), float(sums.totals[WEIGHT])
        proven = penalised_lower_bound(sums.totals, sums.G.T, self.tau)
        self.at_least = max(self.at_least, proven)
        if total < self.least:
            self.W, self.least = W.copy(), total
            self.loss, self.penalty = sums.loss_at_most, penalty
        if self._report is not None:
            self._report(Pass(self.rows.n_passes, total, self.at_least, self.gap))
        return total, sums.G + W * self.tau

    @property
    def gap(self) -> float:
        return self.loss + self.penalty - self.at_least

    def is_near(self, tol: float) -> bool:
        """Return whether the bound is within a tolerance of the best model."""
        return self.gap <= tol * (1.0 + abs(self.least))

    def newton_step(self, W: Array) -> Array:
        """Return the step (K, d) to the minimum of the objective to second order at W."""
        quadratic = self.rows.expand(W)
        device = quadratic.device
        H = 2.0 * matrix(quadratic.blocks(), len(W), device)
        H.reshape(-1)[:: len(H) + 1] += put(device, np.tile(self.tau, len(W)))
        gradient = quadratic.gradient(W) + self.tau * W
        step = back(factorise_near(H, device)(put(device, gradient.reshape(-1, 1))))
        return -step.reshape(W.shape)

    def decorrelation(self) -> Array:
        """Return L with L L' about the Hessian for every class; of wide rows its diagonal."""
        if self.rows.is_wide:
            squares: Array = self.rows.total(_sum_squares, np.zeros(len(self.tau)))
            return np.sqrt(_TYPICAL_CURVATURE * squares + self.tau)
        M = self.rows.total(_sum_products, np.zeros((len(self.tau), len(self.tau))))
        M *= _TYPICAL_CURVATURE
        M[np.diag_indices_from(M)] += self.tau
        return cholesky(M, lower=True)


def _sum_products(rows: Rows) -> Array:
    return (rows.X * rows.weights[:, None]).T @ rows.X


def _sum_squares(rows: Rows) -> Array:
    return np.asarray(rows.X.multiply(rows.X).T @ rows.weights).ravel()


def _descend(objective: _Objective, W: Array, tol: float, most_passes: int) -> None:
    """Move to a model at which the bound is nearly the objective, by L-BFGS.

    The search is over V = W L, in which the columns are about uncorrelated.
    """
    from scipy.optimize import minimize  # takes a sixth of a second

    L = objective.decorrelation()
    most = most_passes if objective.rows.is_wide else min(most_passes, _MAX_DENSE_PASSES)

    def solve(V: Array, trans: str) -> Array:
        return V / L if L.ndim == 1 else solve_triangular(L, V.T, lower=True, trans=trans).T

    def value(v: Array) -> tuple[float, Array]:
        total, G = objective.value(solve(v.reshape(W.shape), "T"))
        return total, solve(G, "N").ravel()

    def stop(intermediate_result: Any) -> None:
        if objective.is_near(tol) or objective.rows.n_passes >= most:
            raise StopIteration

    limits = {"maxiter": most, "maxfun": most, "ftol": 0.0, "gtol": 0.0}
    start = W
    for _ in range(_MAX_SEARCHES):
        v = (start @ L if L.ndim == 2 else start * L).ravel()
        minimize(
            value, v, jac=True, method="L-BFGS-B", callback=stop,
            options={"maxcor": _N_LBFGS_PAIRS, **limits},
        )  # fmt: skip
        if objective.is_near(tol) or objective.rows.n_passes >= most or start is objective.W:
            break
        start = objective.W  # L-BFGS gave up: once more without what it remembers


def _take_newton_steps(objective: _Objective, tol: float, most_passes: int) -> None:
    """Go on from the best model by Newton's method, two passes a step, where L-BFGS is slow."""
    while not objective.is_near(tol) and objective.rows.n_passes < most_passes:
        W, least, length = objective.W, objective.least, 1.0
        step = objective.newton_step(W)
        while not objective.value(W + length * step)[0] < least:
            length *= 0.25
            if length < _MIN_STEP_LENGTH or objective.rows.n_passes >= most_passes:
                return  # what is left is rounding
