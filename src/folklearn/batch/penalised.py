"""Penalised maximum likelihood over all rows, with a ridge chosen on rows that were held out."""

import math
import operator
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from folklearn.arrays import Array, logit_losses, softmax
from folklearn.evidence.passes import Passes, RowChunk, S, backtrack_factor
from folklearn.kernels.blas import threads_for
from folklearn.kernels.on_torch import Device
from folklearn.kernels.on_torch.expand import DeviceRows
from folklearn.validation import Rows

MAX_PASSES = 50  # for one ridge
FIRST_RIDGE = 0.003  # for contexts of norm about 1
N_FOLDS = 3
_FOLD_ORDERS = np.array(list(permutations(range(N_FOLDS))))
_DRAWS_PER_PHILOX_STEP = 4
_ROWS_PER_LOSS_CHUNK = 1 << 14
_MIN_ROWS_PER_FOLD = 4  # on average: below, the first ridge is taken
RIDGE_RATIO = math.sqrt(10.0)  # from ridge to ridge
_FINE_RIDGE_RATIO = 10.0**0.25  # around the best of these
_MAX_RIDGES_WITHOUT_GAIN = 2  # in a row
_MAX_RIDGES = 12  # in one direction
_HELD_OUT = operator.attrgetter("held_out")
MIN_RIDGE, MAX_RIDGE = 1e-15, 1e15
# Share of the objective that a further Newton step may gain, in the search and at the end.
_SEARCH_TOLERANCE, _FINAL_TOLERANCE = 1e-4, 1e-8
_PASSES_TOLERANCE = 1e-8  # of a step that costs a pass and no solution
_JITTER = 1e-12  # of a covariance, which rounding may leave singular


class PenalisedFit(NamedTuple):
    """The fit of one ridge: where ridge times the squared norm plus the total loss is least."""

    W: Array  # (K, d); in a search what was fitted to the folds, from which the next ones begin
    ridge: float
    held_out: float  # average loss of rows in fits to the other folds; NaN if there were too few


def fit_penalised(
    passes: Passes,
    W: Array,
    *,
    ridge: float = FIRST_RIDGE,
    most_passes: int = MAX_PASSES,
    seed: int = 0,
) -> PenalisedFit:
    r"""Return the penalised fit to all rows, with the ridge that predicts held-out rows best.

    .. math:: W_\lambda = \arg\min_W \lambda \|W\|_F^2 + \sum_t w_t \ell(W x_t, y_t)

    Damped Newton steps, one pass each, of (K d)^2 / 2 flops a row and (K d)^3 / 3. Three folds
    choose the ridge: first the given one, then smaller ones as long as they help, or else larger
    ones; then finer around the best. (Leaving out single rows by one Newton step is cheaper, and
    wrong by any amount where classes can be separated.) Nothing is proven of the loss at new rows.

    W (K, d) and `ridge` are the first ones, `most_passes` is for each fit, `seed` of the folds.
    """
    if passes.n_rows < _MIN_ROWS_PER_FOLD * N_FOLDS:
        fitted = minimise_penalised(passes, W, ridge, most_passes, _FINAL_TOLERANCE)
        return PenalisedFit(fitted, ridge, math.nan)

    def evaluate(ridge: float, near: PenalisedFit) -> PenalisedFit:
        fits, totals = np.empty_like(near.W), np.zeros(2)
        for number, start in enumerate(near.W):
            fold = _Fold(seed, number)
            training = _TrainingPasses(passes, fold)
            fit = minimise_penalised(training, start, ridge, most_passes, _SEARCH_TOLERANCE)
            fits[number] = fit
            totals += passes.total(_ROWS_PER_LOSS_CHUNK, partial(_held_out_loss, fold, fit))
        loss, weight = totals.tolist()
        average = loss / weight if weight > 0.0 else math.inf
        return PenalisedFit(fits, ridge, average if math.isfinite(average) else math.inf)

    first = evaluate(ridge, PenalisedFit(np.tile(W, (N_FOLDS, 1, 1)), ridge, math.inf))
    best = search_ridges(evaluate, first, _MAX_RIDGES_WITHOUT_GAIN)
    ratios = (1.0 / _FINE_RIDGE_RATIO, _FINE_RIDGE_RATIO)
    best = min(best, *(evaluate(best.ridge * ratio, best) for ratio in ratios), key=_HELD_OUT)
    start = best.W.mean(axis=0)
    W = minimise_penalised(passes, start, best.ridge, most_passes, _FINAL_TOLERANCE)
    return best._replace(W=W)


def fit_preconditioned(
    passes: Passes,
    W: Array,
    P: Array,
    *,
    ridge: float,
    freedom: Array,
    most_passes: int = MAX_PASSES,
    seed: int = 0,
) -> PenalisedFit:
    r"""Return a penalised fit as `fit_penalised` does, of rows too wide for pairs of classes.

    .. math:: W_\lambda = \arg\min_W \lambda \sum_{kj} W_{kj}^2 / f_j
        + \sum_t w_t \ell(W x_t, y_t)

    By L-BFGS in coordinates in which P (d, d), about the inverse of the curvature that classes
    share, is the identity. One fold, of three, chooses the ridge. `freedom` f (d,) is what the
    penalty of a column is divided by. A dozen or two passes are enough for a ridge.
    """
    from scipy.optimize import minimize  # takes a sixth of a second

    d = len(P)
    root = np.linalg.cholesky(P + _JITTER * np.trace(P) / d * np.eye(d))
    fold = _Fold(seed, 0)

    def minimise(left_out: _Fold | None, ridge: float, start: Array, tolerance: float) -> Array:
        def objective(v: Array) -> tuple[float, Array]:
            W = v.reshape(start.shape) @ root.T
            sum_chunk = partial(_loss_and_gradient, W, left_out)
            totals = passes.total(_ROWS_PER_LOSS_CHUNK, sum_chunk)
            penalty = ridge * W / freedom
            gradient = totals[1:].reshape(W.shape) + 2.0 * penalty
            return float(totals[0] + (penalty * W).sum()), (gradient @ root).ravel()

        options = {"maxiter": most_passes, "ftol": tolerance, "maxcor": 20}
        solution = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
        return solution.x.reshape(start.shape)

    def evaluate(ridge: float, near: PenalisedFit) -> PenalisedFit:
        V = minimise(fold, ridge, near.W, _SEARCH_TOLERANCE)
        return PenalisedFit(V, ridge, _average_held_out(passes, fold, V @ root.T))

    # Solved for V with W = V root', whatever W was.
    start = solve_triangular(root, W.T, lower=True).T
    best = search_ridges(evaluate, evaluate(ridge, PenalisedFit(start, ridge, math.inf)), 1)
    V = minimise(None, best.ridge, best.W, _PASSES_TOLERANCE)
    return best._replace(W=V @ root.T)


def first_fold_loss(passes: Passes, fit: PenalisedFit, seed: int) -> float:
    """Return the average loss of the first fold in the fit of the same ridge to the others.

    That is what `fit_preconditioned` calls held out: on the same rows both can be compared.
    """
    fold = _Fold(seed, 0)
    training = _TrainingPasses(passes, fold)
    W = minimise_penalised(training, fit.W, fit.ridge, MAX_PASSES, _SEARCH_TOLERANCE)
    return _average_held_out(passes, fold, W)


def search_ridges(
    evaluate: Callable[[float, PenalisedFit], PenalisedFit], first: PenalisedFit, patience: int
) -> PenalisedFit:
    """Return the best fit: of smaller ridges as long as they help, or else of larger ones.

    `evaluate` takes a ridge and the fit before. Each way ends after `patience` without gain.
    """
    best = first
    for factor in (1.0 / RIDGE_RATIO, RIDGE_RATIO):
        last, n_without_gain = first, 0
        for _ in range(_MAX_RIDGES):
            if n_without_gain == patience or not MIN_RIDGE <= last.ridge * factor <= MAX_RIDGE:
                break
            last = evaluate(last.ridge * factor, last)
            n_without_gain = 0 if last.held_out < best.held_out else n_without_gain + 1
            best = min(best, last, key=_HELD_OUT)
        if best is not first:
            break
    return best


def minimise_penalised(
    passes: Passes, W: Array, ridge: float, most_passes: int, tolerance: float
) -> Array:
    """Return the minimiser (K, d) of ridge |W|^2 and the loss of all rows, from W.

    The last step promises to gain less than `tolerance` of the objective.
    """
    here, best = W, math.inf
    step, slope, length = np.zeros_like(W), 0.0, 1.0
    for _ in range(most_passes):
        expansion = passes.expand(W)
        value = expansion.loss + ridge * float((W**2).sum())
        if value < best:
            here, best, length = W, value, 1.0
            with threads_for(W.size):
                target = expansion.quadratic.mode(ridge)
            if target is None:
                return here  # rows of absurd size: rounding leaves no factor
            step = target - W
            slope = float(((expansion.gradient() + 2.0 * ridge * W) * step).sum())
            if -slope <= 2.0 * tolerance * value:
                return target
        else:
            length *= backtrack_factor(slope * length, value - best)
        W = here + length * step
    return here


class _Fold(NamedTuple):
    seed: int
    number: int

    def split(self, chunk: RowChunk, *, held_out: bool) -> Iterator[Rows]:
        first = chunk.first
        for rows in chunk.batches:
            in_fold = assign_folds(self.seed, first, len(rows.X)) == self.number
            yield rows.of(in_fold == held_out)
            first += len(rows.X)


class _TrainingPasses(Passes):
    def __init__(self, passes: Passes, fold: _Fold) -> None:
        self._passes, self._fold = passes, fold

    @property
    def device(self) -> Device | None:
        return self._passes.device

    def on_device(self, n_classes: int) -> Iterator[tuple[int, DeviceRows]]:
        """Yield all rows on the device, those of the fold without weight."""
        for first, rows in self._passes.on_device(n_classes):
            folds = assign_folds(self._fold.seed, first, len(rows.X))
            in_training = rows.weights.new_tensor(folds != self._fold.number)
            yield first, rows._replace(weights=rows.weights * in_training)

    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        split = self._fold.split  # what is sent to other machines must not hold the passes

        def sum_training(chunk: RowChunk) -> S:
            return sum_chunk(RowChunk(chunk.first, split(chunk, held_out=False)))

        return self._passes.total(size, sum_training)


def _loss_and_gradient(W: Array, left_out: _Fold | None, chunk: RowChunk) -> Array:
    """Return the loss of a model W (K, d), then its gradient, as (1 + K d,)."""
    totals, first = np.zeros(1 + W.size), chunk.first
    for X, labels, soft, weights in chunk.batches:
        if left_out is not None:
            weights = weights * (assign_folds(left_out.seed, first, len(X)) != left_out.number)
        Z = X @ W.T
        residuals = softmax(Z)
        if len(soft):
            residuals -= soft
        else:
            residuals[np.arange(len(labels)), labels] -= 1.0
        totals[0] += weights @ logit_losses(Z, labels, soft)
        totals[1:] += ((weights[:, None] * residuals).T @ X).ravel()
        first += len(X)
    return totals


def _average_held_out(passes: Passes, fold: _Fold, W: Array) -> float:
    loss, weight = passes.total(_ROWS_PER_LOSS_CHUNK, partial(_held_out_loss, fold, W)).tolist()
    return float(loss / weight) if weight > 0.0 else math.inf


def _held_out_loss(fold: _Fold, W: Array, chunk: RowChunk) -> Array:
    totals = np.zeros(2)  # loss and weight
    for rows in fold.split(chunk, held_out=True):
        losses = logit_losses(rows.X @ W.T, rows.labels, rows.soft)
        totals += rows.weights @ losses, rows.weights.sum()
    return totals


def assign_folds(seed: int, first: int, n: int) -> NDArray[np.int64]:
    """Return the folds of rows number `first` to before ``first + n``, without those before them.

    Every three rows, one after the other, go to the three folds in an order drawn for them.
    """
    start = first // N_FOLDS
    stop = -((first + n) // -N_FOLDS)
    draws = np.random.Philox(seed)
    draws.advance(start // _DRAWS_PER_PHILOX_STEP)
    skipped = start % _DRAWS_PER_PHILOX_STEP
    numbers = draws.random_raw(skipped + stop - start)[skipped:]
    folds: NDArray[np.int64] = _FOLD_ORDERS[numbers % len(_FOLD_ORDERS)].ravel()
    return folds[first - start * N_FOLDS :][:n]
