"""Penalised maximum likelihood over all rows, with a ridge chosen on rows that were held out."""

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from folklearn.arrays import Array, logit_losses
from folklearn.numerics.backend import threads_for
from folklearn.numerics.leaders import factor_ridge, jump
from folklearn.passes import Blocks, Sums, shorter
from folklearn.problem import Rows

MOST_PASSES = 50  # for one ridge
FIRST_RIDGE = 0.003  # for contexts of norm about 1
N_FOLDS = 3
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
    blocks: Blocks,
    W: Array,
    *,
    ridge: float = FIRST_RIDGE,
    most_passes: int = MOST_PASSES,
    seed: int = 0,
) -> Penalised:
    r"""Return the penalised fit to all rows, with the ridge that predicts held-out rows best.

    .. math:: W_\lambda = \arg\min_W \lambda \|W\|_F^2 + \sum_t w_t \ell(W x_t, y_t)

    Damped Newton steps, one pass each. Three folds choose the ridge: rows are drawn into them,
    each is predicted by the fit to the two others. First a given ridge, then smaller ones as long
    as they help, or else larger ones, each fit from its neighbour; then finer around the best.
    (Leaving out single rows by one Newton step is cheaper, and wrong by any amount where classes
    can be separated: on digits it took the smallest ridge there was.)

    A heuristic: nothing is proven of the loss at new rows. A pass takes (K d)^2 / 2 flops a row
    and (K d)^3 / 3; there are two or three for each fold of six to ten ridges.

    Parameters
    ----------
    blocks : all rows, once for every pass.
    W : (K, d), to begin with.
    ridge : the first one.
    most_passes : for each fit.
    seed : of the folds.
    """
    search = _Search(blocks, most_passes, seed)
    if not search.can_choose:
        fitted = mode(blocks, W, ridge, most_passes, _NEARLY)
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
    return Penalised(mode(blocks, start, best.ridge, most_passes, _NEARLY), *best[1:])


def mode(blocks: Blocks, W: Array, ridge: float, most_passes: int, tolerance: float) -> Array:
    """Return the minimiser (K, d) of ridge |W|^2 and the loss of all rows, from W.

    The last step promises to gain less than `tolerance` of the objective; Newton's method
    about squares that.
    """
    K, d = W.shape
    H = np.empty(((K - 1) * d, (K - 1) * d))
    here, best = W, math.inf
    step, slope, length = np.zeros_like(W), 0.0, 1.0
    for _ in range(most_passes):
        sums = Sums.over(blocks, W)
        value = sums.loss + ridge * float((W**2).sum())
        if value < best:
            here, best, length, target = W, value, 1.0, W.copy()
            S, G, _ = sums.quadratic()
            with threads_for(W.size):
                if not factor_ridge(S, ridge, K, H):
                    return here  # rows of absurd size: rounding leaves no factor
                jump(G, H, target)
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

    def __init__(self, blocks: Blocks, most_passes: int, seed: int) -> None:
        self._blocks, self._most, self._n_tried = blocks, most_passes, 0
        n_rows = sum(len(rows.X) for rows in blocks())
        self._fold = np.random.default_rng(seed).permutation(n_rows) % N_FOLDS
        self.can_choose = n_rows >= _FEWEST * N_FOLDS

    def goes_on(self, ridge: float) -> bool:
        """Tell whether to try a further ridge."""
        return self._n_tried < _MOST_RIDGES and _LEAST <= ridge <= _MOST

    def at(self, ridge: float, starts: Array) -> _Tried:
        """Return what a ridge does, its fits found from others."""
        self._n_tried += 1
        fits, loss, weight = np.empty_like(starts), 0.0, 0.0
        for fold, W in enumerate(starts):
            others = partial(self._rows, fold, held_out=False)
            fits[fold] = mode(others, W, ridge, self._most, _ROUGHLY)
            for rows in self._rows(fold, held_out=True):
                losses = logit_losses(rows.X @ fits[fold].T, rows.labels, rows.soft)
                loss += float(rows.weights @ losses)
                weight += float(rows.weights.sum())
        average = loss / weight if weight > 0.0 else math.inf
        return _Tried(fits, ridge, average if math.isfinite(average) else math.inf)

    def _rows(self, fold: int, *, held_out: bool) -> Iterator[Rows]:
        """Yield the rows of a fold, or all others."""
        before = 0
        for rows in self._blocks():
            own = self._fold[before : before + len(rows.X)] == fold
            before += len(rows.X)
            yield rows.of(own if held_out else ~own)
