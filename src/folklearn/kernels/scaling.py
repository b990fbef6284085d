"""Standardise rows on line, one after the other, by running means and deviations."""

import math

import numpy as np

from folklearn.kernels.compile import kernel

_LARGEST_SCORE = 5.0  # standard deviations; one absurd value must not dominate a context
_FURTHEST = 8.0  # standard deviations that a value may count for
_FIRST_SCALE_REVIEW_VALUES = 8  # values
N_MOMENTS = 5  # of a feature
COUNT, MEAN, SQUARES, HALF_MEAN, HALF_SQUARES = range(N_MOMENTS)


@kernel
def _join_moments(value, n, mean, squares):
    """Return mean and squared deviations with the n-th value, whose influence is limited.

    Welford's recursion: no sum of squares, so a large offset costs no accuracy.
    """
    step = value - mean
    if squares > 0.0:
        limit = _FURTHEST * math.sqrt(squares / (n - 1.0))
        step = min(max(step, -limit), limit)
    return mean + step / n, squares + step * step * ((n - 1.0) / n)


@kernel
def scale_rows(X, moments, learn, scale, intercept, first, out):
    """Scale row after row; the constant, if there is one, is behind the `first` columns."""
    T, d = X.shape
    constant = first if intercept else -1
    unit = 1.0 / math.sqrt(first + intercept) if scale else 1.0
    for t in range(T):
        if constant >= 0:
            out[t, constant] = unit
        for j in range(d):
            value = X[t, j]
            place = j + 1 if 0 <= constant <= j else j
            if np.isnan(value):
                out[t, place] = 0.0
                continue
            n = moments[COUNT, j] + 1.0
            mean, squares = _join_moments(value, n, moments[MEAN, j], moments[SQUARES, j])
            half_mean, half_squares = 0.0, 0.0
            fraction, exponent = math.frexp(n)
            doubled = fraction == 0.5  # n is a power of two
            n_half = n - math.ldexp(1.0, exponent - 2 if doubled else exponent - 1)
            if n > _FIRST_SCALE_REVIEW_VALUES // 2:
                half_mean, half_squares = _join_moments(
                    value, n_half, moments[HALF_MEAN, j], moments[HALF_SQUARES, j]
                )
                if doubled:
                    if 0.0 < half_squares / n_half < squares / (n * _FURTHEST**2):
                        mean, squares = half_mean, half_squares * (n / n_half)
                    half_mean, half_squares = 0.0, 0.0
            if learn:
                moments[COUNT, j] = n
                moments[MEAN, j] = mean
                moments[SQUARES, j] = squares
                moments[HALF_MEAN, j] = half_mean
                moments[HALF_SQUARES, j] = half_squares
            if scale:
                score = (value - mean) / math.sqrt(squares / n) if squares > 0.0 else 0.0
                largest = min(_LARGEST_SCORE, math.sqrt(n - 1.0))  # n plain values reach no more
                out[t, place] = unit * min(max(score, -largest), largest)
            else:
                out[t, place] = value


@kernel
def scale_row(x, moments, learn, scale, intercept, first, max_norm, out):
    """Scale one row; return False, all untouched, if its norm is unusable."""
    square = 0.0
    for value in x:
        if not math.isnan(value):  # infinity passes through
            square += value * value
    if not square <= max_norm**2:
        return False
    row, scaled = x.reshape(1, x.size), out.reshape(1, out.size)
    scale_rows(row, moments, learn, scale, intercept, first, scaled)
    return True
