"""Standardise columns on line, row after row, and the terms that are made of them.

A term is a kind, up to two columns i and j, and up to two numbers q and r:

    HINGE    max((x_i - q) r, 0)
    STEP     1 if x_i > q, else 0
    PRODUCT  z_i z_j
    CROSS    1 if x_i > q and x_j > r, else 0

of raw values x and standardised ones z. Where a raw value is missing so is the term. Waves are
sqrt(2) cos(<omega, z> + phase), with an omega for each; they come last.
"""

import math

import numpy as np

from folklearn.kernels.compile import fast_kernel, kernel
from folklearn.kernels.linear_models import multiply

HINGE, STEP, PRODUCT, CROSS = range(4)
N_MOMENTS, N_TERM_MOMENTS = 5, 3  # of a column and of a term
COUNT, MEAN, SQUARES, HALF_MEAN, HALF_SQUARES = range(N_MOMENTS)

_LARGEST_SCORE = 5.0  # standard deviations; one absurd value must not dominate a context
_FURTHEST = 8.0  # standard deviations that a value may count for
_FIRST_SCALE_REVIEW_VALUES = 8
_HIGHEST_HINGE = 1e6  # spreads of a column
_TURN = 1.0 / (2.0 * math.pi)
# Of the series of sin(2 pi u) / u, |u| <= 1/4, in u^2: its error is below 1e-11.
_SIN = tuple(
    (-1.0) ** n * (2.0 * math.pi) ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(8)
)
_S0, _S1, _S2, _S3, _S4, _S5, _S6, _S7 = _SIN


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
            column = j + 1 if 0 <= constant <= j else j
            if np.isnan(value):
                out[t, column] = 0.0
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
                out[t, column] = unit * min(max(score, -largest), largest)
            else:
                out[t, column] = value


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


@fast_kernel
def _wave(angles, phases):
    """Write sqrt(2) cos(angle + phase) into angles: a polynomial, so that it is vectorised."""
    for n in range(angles.shape[0]):
        turns = (angles[n] + phases[n]) * _TURN
        u = 0.25 - abs(turns - math.floor(turns + 0.5))
        v = u * u
        high = _S4 + v * (_S5 + v * (_S6 + v * _S7))
        angles[n] = math.sqrt(2.0) * u * (_S0 + v * (_S1 + v * (_S2 + v * (_S3 + v * high))))


@kernel
def expand_terms(X, Z, kinds, columns, numbers, frequencies, phases, out):
    """Write the terms of raw rows X (T, d), standardised Z (T, d), into out (T, n)."""
    n_plain = kinds.shape[0]
    for t in range(X.shape[0]):
        x, z, row = X[t], Z[t], out[t]
        for n in range(n_plain):
            kind, i, j = kinds[n], columns[n, 0], columns[n, 1]
            q, r = numbers[n, 0], numbers[n, 1]
            if math.isnan(x[i]) or math.isnan(x[j]):
                row[n] = math.nan
            elif kind == PRODUCT:
                row[n] = z[i] * z[j]
            elif kind == HINGE:
                row[n] = min(max((x[i] - q) * r, 0.0), _HIGHEST_HINGE)
            elif kind == STEP:
                row[n] = 1.0 if x[i] > q else 0.0
            else:
                row[n] = 1.0 if x[i] > q and x[j] > r else 0.0
        multiply(frequencies, z, row[n_plain:])
        _wave(row[n_plain:], phases)


@fast_kernel
def scale_terms(values, moments, learn, factors, out):
    """Standardise terms (T, n), each row after taking it in if `learn`, into the first n of out.

    A missing one becomes 0, its mean. factors (n,) come last.
    """
    T, n_terms = values.shape
    counts, means, squares = moments[COUNT], moments[MEAN], moments[SQUARES]
    for t in range(T):
        row, scaled = values[t], out[t]
        for n in range(n_terms):
            is_present = row[n] == row[n]
            count = counts[n] + (1.0 if is_present else 0.0)
            away = row[n] - means[n] if is_present else 0.0
            mean = means[n] + away / max(count, 1.0)
            left = row[n] - mean if is_present else 0.0
            square = squares[n] + away * left
            score = left / math.sqrt(square / count) if square > 0.0 else 0.0
            score = min(max(score, -_LARGEST_SCORE), _LARGEST_SCORE)
            scaled[n] = factors[n] * score
            if learn:
                counts[n], means[n], squares[n] = count, mean, square
