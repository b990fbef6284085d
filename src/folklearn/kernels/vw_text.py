"""Lines of Vowpal Wabbit's text as sparse rows, names hashed: the lines that are plain.

A line is plain if it is ``[label [weight]] ['tag] |namespace[:scale] feature[:value] ...`` with
named features, a weight that is not negative, and numbers of at most 15 digits, which a float
holds exactly before one division or product rounds them. Others are left to a reader that knows
everything and says what is wrong; it must place names as `place_of` does.
"""

import numpy as np

from folklearn.kernels.compile import kernel

PLAIN, OTHER, BLANK = range(3)

_SPACE, _TAB, _RETURN, _BAR, _COLON, _CARET = 32, 9, 13, 124, 58, 94
_NINE, _ZERO, _POINT, _MINUS, _PLUS, _SMALL_E, _LARGE_E = 57, 48, 46, 45, 43, 101, 69
_APOSTROPHE, _COMMA = 39, 44
_MOST_WEIGHT = 1e15
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
def _before_bar(text, start, bar, label, tag):
    """Find the label and the tag in what is before the first bar; return (is plain, weight).

    The last word is a tag if it touches the bar or begins with an apostrophe. Without a weight
    that is NaN.
    """
    label[0] = label[1] = tag[0] = tag[1] = start
    stop = bar
    while stop > start and text[stop - 1] == _SPACE:
        stop -= 1
    weight = np.nan
    n_words = 0
    i = start
    while i < stop:
        while text[i] == _SPACE:
            i += 1
        first = i
        while i < stop and text[i] != _SPACE:
            if text[i] == _TAB or text[i] == _COLON or text[i] == _COMMA:
                return False, weight
            i += 1
        if i == stop and (i == bar or text[first] == _APOSTROPHE):
            tag[0], tag[1] = first, i
            if n_words == 0 and text[first] != _APOSTROPHE:
                return False, weight  # it may be meant as a label
            return True, weight
        if n_words == 0:
            label[0], label[1] = first, i
        elif n_words == 1:
            weight = _number(text, first, i)
            if not 0.0 <= weight <= _MOST_WEIGHT:
                return False, weight
        else:
            return False, weight
        n_words += 1
    return True, weight


@kernel
def _is_new(place, seen):
    """Tell whether a place was not in a table, whose size is a power of 2, and put it there."""
    slot = place & (seen.shape[0] - 1)
    while seen[slot] != -1:
        if seen[slot] == place:
            return False
        slot = (slot + 1) & (seen.shape[0] - 1)
    seen[slot] = place
    return True


@kernel
def _line(text, start, stop, n_features, label, tag, indices, values, at, seen, new, n_new):
    """Read one line into indices and values from `at` on.

    Return its kind, its weight, where indices and values end, and how many names were new.
    """
    i = start
    while i < stop and text[i] == _SPACE:
        i += 1
    if i == stop:
        return BLANK, np.nan, at, n_new
    while i < stop and text[i] != _BAR:
        i += 1
    if i == stop:
        return OTHER, np.nan, at, n_new
    is_plain, weight = _before_bar(text, start, i, label, tag)
    if not is_plain:
        return OTHER, weight, at, n_new
    end = at
    while i < stop:
        i += 1  # behind the bar
        space_start, scale = i, 1.0
        while i < stop and not _ends_word(text[i]) and text[i] != _COLON:
            i += 1
        space_stop = i
        if i < stop and text[i] == _COLON:
            i += 1
            scale_start = i
            while i < stop and not _ends_word(text[i]):
                i += 1
            scale = _number(text, scale_start, i)
            if scale != scale or space_start == space_stop:
                return OTHER, weight, at, n_new
        while i < stop and text[i] != _BAR:
            while i < stop and (text[i] == _SPACE or text[i] == _TAB):
                i += 1
            if i == stop or text[i] == _BAR:
                break
            name_start = i
            while i < stop and not _ends_word(text[i]) and text[i] != _COLON:
                i += 1
            name_stop = i
            value = 1.0
            if i < stop and text[i] == _COLON:
                i += 1
                value_start = i
                while i < stop and not _ends_word(text[i]):
                    i += 1
                value = _number(text, value_start, i)
            if name_start == name_stop or value != value:
                return OTHER, weight, at, n_new
            place = place_of(text, name_start, name_stop, space_start, space_stop, n_features)
            if n_new < new.shape[0] and _is_new(place, seen):
                new[n_new, 0] = place
                new[n_new, 1], new[n_new, 2] = space_start, space_stop
                new[n_new, 3], new[n_new, 4] = name_start, name_stop
                n_new += 1
            indices[end], values[end] = place, scale * value
            end += 1
    return PLAIN, weight, tidied(indices, values, at, end), n_new


@kernel
def _ends_word(byte):
    return byte in (_SPACE, _TAB, _BAR)


@kernel
def read_lines(
    text, ends, n_features, kinds, labels, tags, weights, indptr, indices, values, seen, new
):
    """Read lines that end at `ends`; rows that are not plain are left empty.

    Names whose place is not in the table `seen` are put there and written to `new` while it has
    room: the place, and where in the text namespace and name begin and end. Return how many.
    """
    start, at, n_new = 0, 0, 0
    indptr[0] = 0
    for t in range(ends.shape[0]):
        stop = ends[t]
        trimmed = stop
        while trimmed > start and text[trimmed - 1] == _RETURN:
            trimmed -= 1
        kinds[t], weights[t], at, n_new = _line(
            text, start, trimmed, n_features, labels[t], tags[t], indices, values, at,
            seen, new, n_new,
        )  # fmt: skip
        indptr[t + 1] = at
        start = stop + 1
    return n_new
