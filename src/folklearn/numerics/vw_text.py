"""Lines of Vowpal Wabbit's text as sparse rows, names hashed: the lines that are plain.

A line is plain if it is ``label |namespace feature feature:value ...`` with a label of one word,
no tag, no weight, no scale of a namespace, named features, and numbers of at most 15 digits,
which a float holds exactly before one division or product rounds them. Others are left to a
reader that knows everything and says what is wrong; it must hash as `hash_bytes` does.
"""

import numpy as np

from folklearn.numerics.compile import kernel

PLAIN, OTHER, BLANK = range(3)

_SPACE, _TAB, _RETURN, _BAR, _COLON, _CARET = 32, 9, 13, 124, 58, 94
_NINE, _ZERO, _POINT, _MINUS, _PLUS, _SMALL_E, _LARGE_E = 57, 48, 46, 45, 43, 101, 69
_MASK = np.uint64(0xFFFFFFFF)
_MOST_DIGITS = 15
_MOST_POWER = 22  # 10^22 is the largest power of 10 that a float holds exactly
_POWERS = np.array([10.0**i for i in range(_MOST_POWER + 1)])


@kernel
def mixed_in(hashed, byte):
    """Return a hash with one more byte (Jenkins, one at a time; 32 bits)."""
    hashed = (hashed + np.uint64(byte)) & _MASK
    hashed = (hashed + (hashed << np.uint64(10))) & _MASK
    return hashed ^ (hashed >> np.uint64(6))


@kernel
def _ended(hashed):
    hashed = (hashed + (hashed << np.uint64(3))) & _MASK
    hashed ^= hashed >> np.uint64(11)
    return (hashed + (hashed << np.uint64(15))) & _MASK


@kernel
def place_of(text, start, stop, space_start, space_stop, n_features):
    """Return the column of a name, within a namespace if that is not empty.

    A whole number without a namespace is its own column, as in VW.
    """
    if space_start == space_stop and 0 < stop - start <= _MOST_DIGITS:
        number = 0
        for i in range(start, stop):
            if text[i] < _ZERO or text[i] > _NINE:
                number = -1
                break
            number = 10 * number + int(text[i] - _ZERO)
        if number >= 0:
            return number % n_features
    hashed = np.uint64(0)
    for i in range(space_start, space_stop):
        hashed = mixed_in(hashed, text[i])
    if space_start < space_stop:
        hashed = mixed_in(hashed, _CARET)
    for i in range(start, stop):
        hashed = mixed_in(hashed, text[i])
    return np.int64(_ended(hashed)) % n_features


@kernel
def _number(text, start, stop):
    """Return a plain number, or NaN."""
    i = start
    sign = 1.0
    if i < stop and (text[i] == _MINUS or text[i] == _PLUS):
        sign = -1.0 if text[i] == _MINUS else 1.0
        i += 1
    digits, power, n_digits, is_fraction = 0, 0, 0, False
    while i < stop and (text[i] == _POINT or _ZERO <= text[i] <= _NINE):
        if text[i] == _POINT:
            if is_fraction:
                return np.nan
            is_fraction = True
        else:
            digits = 10 * digits + int(text[i] - _ZERO)
            n_digits += 1
            power -= is_fraction
            if n_digits > _MOST_DIGITS:
                return np.nan
        i += 1
    if n_digits == 0:
        return np.nan
    if i < stop and (text[i] == _SMALL_E or text[i] == _LARGE_E):
        i += 1
        down = i < stop and text[i] == _MINUS
        i += i < stop and (text[i] == _MINUS or text[i] == _PLUS)
        if i == stop or stop - i > 3:
            return np.nan
        exponent = 0
        while i < stop and _ZERO <= text[i] <= _NINE:
            exponent = 10 * exponent + int(text[i] - _ZERO)
            i += 1
        power += -exponent if down else exponent
    if i < stop or abs(power) > _MOST_POWER:
        return np.nan
    if power < 0:
        return sign * (digits / _POWERS[-power])
    return sign * (digits * _POWERS[power])


@kernel
def tidied(indices, values, start, stop):
    """Sort a row by place, add up what a place is named for twice; return where it ends now.

    What adds up to 0 is not kept.
    """
    n = stop - start
    gap = n // 2
    while gap > 0:  # Shell's sort; it is stable enough: equal places are only added up
        for a in range(start + gap, stop):
            place, value = indices[a], values[a]
            b = a
            while b >= start + gap and indices[b - gap] > place:
                indices[b], values[b] = indices[b - gap], values[b - gap]
                b -= gap
            indices[b], values[b] = place, value
        gap //= 2
    end = start
    a = start
    while a < stop:
        place, value = indices[a], values[a]
        a += 1
        while a < stop and indices[a] == place:
            value += values[a]
            a += 1
        if value != 0.0:
            indices[end], values[end] = place, value
            end += 1
    return end


@kernel
def _line(text, start, stop, n_features, label, indices, values, at):
    """Read one line into indices and values from `at` on; return (kind, where they end)."""
    i = start
    while i < stop and text[i] == _SPACE:
        i += 1
    if i == stop:
        return BLANK, at
    label[0] = i
    while i < stop and text[i] != _SPACE and text[i] != _BAR and text[i] != _COLON:
        if text[i] == _TAB or text[i] == 39 or text[i] == 44:  # an apostrophe, a comma
            return OTHER, at
        i += 1
    label[1] = i
    if i - label[0] == 3 and (text[label[0]] | 32) == 110:  # it may be "nan", in any case
        return OTHER, at
    while i < stop and text[i] == _SPACE:
        i += 1
    if i == stop or text[i] != _BAR or text[i - 1] != _SPACE or label[0] == label[1]:
        return OTHER, at
    end = at
    while i < stop:
        i += 1  # behind the bar
        space_start = i
        while i < stop and text[i] != _SPACE and text[i] != _TAB and text[i] != _BAR:
            if text[i] == _COLON:
                return OTHER, at
            i += 1
        space_stop = i
        while i < stop and text[i] != _BAR:
            while i < stop and (text[i] == _SPACE or text[i] == _TAB):
                i += 1
            if i == stop or text[i] == _BAR:
                break
            name_start = i
            while (
                i < stop
                and text[i] != _SPACE
                and text[i] != _TAB
                and text[i] != _BAR
                and text[i] != _COLON
            ):
                i += 1
            name_stop = i
            value = 1.0
            if i < stop and text[i] == _COLON:
                i += 1
                value_start = i
                while i < stop and text[i] != _SPACE and text[i] != _TAB and text[i] != _BAR:
                    i += 1
                value = _number(text, value_start, i)
            if name_start == name_stop or value != value:
                return OTHER, at
            indices[end] = place_of(
                text, name_start, name_stop, space_start, space_stop, n_features
            )
            values[end] = value
            end += 1
    return PLAIN, tidied(indices, values, at, end)


@kernel
def read_lines(text, ends, n_features, kinds, labels, indptr, indices, values):
    """Read lines that end at `ends`; rows that are not plain are left empty."""
    start, at = 0, 0
    indptr[0] = 0
    for t in range(ends.shape[0]):
        stop = ends[t]
        trimmed = stop
        while trimmed > start and text[trimmed - 1] == _RETURN:
            trimmed -= 1
        kinds[t], at = _line(text, start, trimmed, n_features, labels[t], indices, values, at)
        indptr[t + 1] = at
        start = stop + 1
