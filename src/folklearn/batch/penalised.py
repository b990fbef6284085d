"""Penalised maximum likelihood over all rows, with a ridge chosen on rows that were held out."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array, logit_losses
from folklearn.evidence.map_reduce import RowChunk, S
from folklearn.evidence.passes import Passes, shorter
from folklearn.kernels.blas import threads_for
from folklearn.kernels.on_torch.device import Device
from folklearn.kernels.on_torch.rows import DeviceRows
from folklearn.validation import Rows

MOST_PASSES = 50  # for one ridge
FIRST_RIDGE = 0.003  # for contexts of norm about 1
N_FOLDS = 3
_ORDERS = np.array(list(permutations(range(N_FOLDS))))
_DRAWS_OF_A_STEP = 4  # that Philox makes at once
_CHUNK_ROWS = 1 << 14  # rows of which only the loss is wanted
_FEWEST = 4  # rows in a fold, on average: below, the first ridge is taken
_STEP = math.sqrt(10.0)  # from ridge to ridge
_FINER = 10.0**0.25  # around the best of these
_PATIENCE = 2  # ridges in a row that are no better
_MOST_RIDGES = 16
_LEAST, _MOST = 1e-15, 1e15  # ridge
_ROUGHLY, _NEARLY = 1e-4, 1e-8  # of the objective, that a further Newton step would gain


class Penalised(NamedTuple):
    """The fit of one ridge.

    Attributes
    ----------
    W : (K, d), where ridge times its squared norm plus the total loss is least.
    ridge : of W.
    held_out : average loss of rows in fits to two thirds of the others with this ridge; NaN if
        there were too few.
    """

    W: Array
    ridge: float
    held_out: float


def penalised(
    passes: Passes,
    W: Array,
    *,
    ridge: float = FIRST_RIDGE,
    most_passes: int = MOST_PASSES,
    seed: int = 0,
) -> Penalised:
    r"""Return the penalised fit to all rows, with the ridge that predicts held-out rows best.

    .. math:: W_\lambda = \arg\min_W \lambda \|W\|_F^2 + \sum_t w_t \ell(W x_t, y_t)

    Damped Newton steps, one pass each. Three folds choose the ridge: rows are `dealt` to them, each
    is predicted by the fit to the two others. First a given ridge, then smaller ones as long as
    they help, or else larger ones, each fit from its neighbour; then finer around the best.
    (Leaving out single rows by one Newton step is cheaper, and wrong by any amount where classes
    can be separated: on digits it took the smallest ridge there was.)

    A heuristic: nothing is proven of the loss at new rows. A pass takes (K d)^2 / 2 flops a row
    and (K d)^3 / 3; there are two or three for each fold of six to ten ridges.

    Parameters
    ----------
    passes : all rows, wherever they lie.
    W : (K, d), to begin with.
    ridge : the first one.
    most_passes : for each fit.
    seed : of the folds.
    """
    search = _Search(passes, most_passes, seed)
    if not search.can_choose:
        fitted = mode(passes, W, ridge, most_passes, _NEARLY)
        return Penalised(fitted, ridge, math.nan)
    first = best = search.at(ridge, np.tile(W, (N_FOLDS, 1, 1)))
    for factor in (1.0 / _STEP, _STEP):
        here, idle = first, 0
        while idle < _PATIENCE and search.goes_on(here.ridge * factor):
            here = search.at(here.ridge * factor, here.fits)
            idle = 0 if here.held_out < best.held_out else idle + 1
            best = min(best, here, key=_held_out)
        if best is not first:
            break
    around = [search.at(best.ridge * factor, best.fits) for factor in (1.0 / _FINER, _FINER)]
    best = min(best, *around, key=_held_out)
    start = best.fits.mean(axis=0)
    return Penalised(mode(passes, start, best.ridge, most_passes, _NEARLY), *best[1:])


def mode(passes: Passes, W: Array, ridge: float, most_passes: int, tolerance: float) -> Array:
    """Return the minimiser (K, d) of ridge |W|^2 and the loss of all rows, from W.

    The last step promises to gain less than `tolerance` of the objective; Newton's method
    about squares that.
    """
    here, best = W, math.inf
    step, slope, length = np.zeros_like(W), 0.0, 1.0
    for _ in range(most_passes):
        sums = passes.sums(W)
        value = sums.loss + ridge * float((W**2).sum())
        if value < best:
            here, best, length = W, value, 1.0
            with threads_for(W.size):
                target = sums.quadratic().mode(ridge)
            if target is None:
                return here  # rows of absurd size: rounding leaves no factor
            step = target - W
            slope = float(((sums.gradient() + 2.0 * ridge * W) * step).sum())
            if -slope <= 2.0 * tolerance * value:
                return target
        else:
            length *= shorter(slope * length, value - best)
        W = here + length * step
    return here


class _Tried(NamedTuple):
    """A ridge, and the fits (folds, K, d) to all rows but those of each fold."""

    fits: Array
    ridge: float
    held_out: float


def _held_out(tried: _Tried) -> float:
    return tried.held_out


class _Search:
    """Fits of several ridges to the same folds."""

    def __init__(self, passes: Passes, most_passes: int, seed: int) -> None:
        self._passes, self._most, self._n_tried = passes, most_passes, 0
        self._folds = [_Fold(seed, number) for number in range(N_FOLDS)]
        self.can_choose = passes.n_rows >= _FEWEST * N_FOLDS

    def goes_on(self, ridge: float) -> bool:
        """Tell whether to try a further ridge."""
        return self._n_tried < _MOST_RIDGES and _LEAST <= ridge <= _MOST

    def at(self, ridge: float, starts: Array) -> _Tried:
        """Return what a ridge does, its fits found from others."""
        self._n_tried += 1
        fits, lost = np.empty_like(starts), np.zeros(2)
        for fold, W in zip(self._folds, starts, strict=True):
            fit = mode(_Others(self._passes, fold), W, ridge, self._most, _ROUGHLY)
            fits[fold.number] = fit
            lost += self._passes.total(_CHUNK_ROWS, partial(_lost, fold, fit))
        loss, weight = lost.tolist()
        average = loss / weight if weight > 0.0 else math.inf
        return _Tried(fits, ridge, average if math.isfinite(average) else math.inf)


class _Fold(NamedTuple):
    """Some of the rows."""

    seed: int
    number: int

    def split(self, chunk: RowChunk, *, own: bool) -> Iterator[Rows]:
        """Yield the rows of a chunk that are in this fold, or those that are not."""
        first = chunk.first
        for rows in chunk.batches:
            yield rows.of((dealt(self.seed, first, len(rows.X)) == self.number) == own)
            first += len(rows.X)


class _Others(Passes):
    """All rows but those of a fold."""

    def __init__(self, passes: Passes, fold: _Fold) -> None:
        self._passes, self._fold = passes, fold

    @property
    def device(self) -> Device | None:
        """Where sums over pairs of classes are made."""
        return self._passes.device

    def on_device(self, n_classes: int) -> Iterator[tuple[int, DeviceRows]]:
        """Yield all rows on the device, those of the fold without weight."""
        for first, rows in self._passes.on_device(n_classes):
            own = dealt(self._fold.seed, first, len(rows.X)) == self._fold.number
            outside = rows.weights.new_tensor(~own)
            yield first, rows._replace(weights=rows.weights * outside)

    def total(self, size: int | None, sum_chunk: Callable[[RowChunk], S]) -> S:
        """Return what they add up to."""
        fold = self._fold
        return self._passes.total(
            size, lambda chunk: sum_chunk(RowChunk(chunk.first, fold.split(chunk, own=False)))
        )


def _lost(fold: _Fold, W: Array, chunk: RowChunk) -> Array:
    """Return the total loss at W of a fold's rows, and their weight."""
    lost = np.zeros(2)
    for rows in fold.split(chunk, own=True):
        losses = logit_losses(rows.X @ W.T, rows.labels, rows.soft)
        lost += rows.weights @ losses, rows.weights.sum()
    return lost


def dealt(seed: int, first: int, n: int) -> NDArray[np.int64]:
    """Return the folds of rows number `first` to before ``first + n``.

    Every three rows, one after the other, go to the three folds in an order drawn for them. So
    whoever has some of the rows knows their folds without the others.
    """
    start = first // N_FOLDS
    stop = -((first + n) // -N_FOLDS)
    draws = np.random.Philox(seed)
    draws.advance(start // _DRAWS_OF_A_STEP)
    skipped = start % _DRAWS_OF_A_STEP
    drawn = draws.random_raw(skipped + stop - start)[skipped:]
    folds: NDArray[np.int64] = _ORDERS[drawn % len(_ORDERS)].ravel()
    return folds[first - start * N_FOLDS :][:n]
