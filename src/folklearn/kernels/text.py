"""Scanners of text: VW lines as sparse rows, ends of CSV records.

A VW line is plain if it is ``[label [weight]] ['tag] |namespace[:scale] feature[:value] ...`` with
named features, a weight that is not negative, and numbers of at most 15 digits, which a float
holds exactly before one division or product rounds them. Other lines are left to the parser in
Python, which must number names as `feature_index` does.
"""

import numpy as np

from folklearn.kernels.compile import kernel

PLAIN, OTHER, BLANK = range(3)

_SPACE, _TAB, _NEWLINE, _RETURN, _QUOTE = 32, 9, 10, 13, 34
_BAR, _COLON, _CARET = 124, 58, 94
_NINE, _ZERO, _POINT, _MINUS, _PLUS, _SMALL_E, _LARGE_E = 57, 48, 46, 45, 43, 101, 69
_APOSTROPHE, _COMMA = 39, 44
_MAX_WEIGHT = 1e15
_MASK = np.uint64(0xFFFFFFFF)
_MAX_DIGITS = 15
_MAX_POWER = 22  # 10^22 is the largest power of 10 that a float holds exactly
_POWERS = np.array([10.0**i for i in range(_MAX_POWER + 1)])
_START, _PLAIN, _QUOTED, _CLOSED = range(4)  # position within a cell of CSV


@kernel
def _hash_byte(hashed, byte):
    """Return a hash with one more byte (Jenkins, one at a time; 32 bits)."""
    hashed = (hashed + np.uint64(byte)) & _MASK
    hashed = (hashed + (hashed << np.uint64(10))) & _MASK
    return hashed ^ (hashed >> np.uint64(6))


@kernel
def _finish_hash(hashed):
    hashed = (hashed + (hashed << np.uint64(3))) & _MASK
    hashed ^= hashed >> np.uint64(11)
    return (hashed + (hashed << np.uint64(15))) & _MASK


@kernel
def feature_index(text, start, stop, space_start, space_stop, n_features):
    """Return the column of a name; a whole number without a namespace is its own, as in VW."""
    if space_start == space_stop and 0 < stop - start <= _MAX_DIGITS:
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
        hashed = _hash_byte(hashed, text[i])
    if space_start < space_stop:
        hashed = _hash_byte(hashed, _CARET)
    for i in range(start, stop):
        hashed = _hash_byte(hashed, text[i])
    return np.int64(_finish_hash(hashed)) % n_features


@kernel
def _parse_number(text, start, stop):
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
            if n_digits > _MAX_DIGITS:
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
    if i < stop or abs(power) > _MAX_POWER:
        return np.nan
    if power < 0:
        return sign * (digits / _POWERS[-power])
    return sign * (digits * _POWERS[power])


@kernel
def sum_duplicates(indices, values, start, stop):
    """Sort a sparse row by index, sum values of equal index, drop zeros; return its new end."""
    n = stop - start
    gap = n // 2
    while gap > 0:  # Shell's sort; it is stable enough: equal places are only added up
        for a in range(start + gap, stop):
            index, value = indices[a], values[a]
            b = a
            while b >= start + gap and indices[b - gap] > index:
                indices[b], values[b] = indices[b - gap], values[b - gap]
                b -= gap
            indices[b], values[b] = index, value
        gap //= 2
    end = start
    a = start
    while a < stop:
        index, value = indices[a], values[a]
        a += 1
        while a < stop and indices[a] == index:
            value += values[a]
            a += 1
        if value != 0.0:
            indices[end], values[end] = index, value
            end += 1
    return end


@kernel
def _parse_label(text, start, bar, label, tag):
    """Find the label and the tag in what is before the first bar; return (is plain, weight or NaN).

    The last word is a tag if it touches the bar or begins with an apostrophe.
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
            weight = _parse_number(text, first, i)
            if not 0.0 <= weight <= _MAX_WEIGHT:
                return False, weight
        else:
            return False, weight
        n_words += 1
    return True, weight


@kernel
def _insert(index, seen):
    slot = index & (seen.shape[0] - 1)
    while seen[slot] != -1:
        if seen[slot] == index:
            return False
        slot = (slot + 1) & (seen.shape[0] - 1)
    seen[slot] = index
    return True


@kernel
def _parse_word(text, i, stop):
    """Read name[:number] from i on; return where name and word end, and the number, or 1."""
    name_stop = -1
    while i < stop and text[i] not in (_SPACE, _TAB, _BAR):
        if text[i] == _COLON and name_stop < 0:
            name_stop = i
        i += 1
    if name_stop < 0:
        return i, i, 1.0
    return name_stop, i, _parse_number(text, name_stop + 1, i)


@kernel
def _parse_vw_line(
    text, start, stop, n_features, label, tag, indices, values, at, seen, new, n_new
):
    """Read one line; return its kind, weight, where its values end, and n_new."""
    i = start
    while i < stop and text[i] == _SPACE:
        i += 1
    if i == stop:
        return BLANK, np.nan, at, n_new
    while i < stop and text[i] != _BAR:
        i += 1
    if i == stop:
        return OTHER, np.nan, at, n_new
    is_plain, weight = _parse_label(text, start, i, label, tag)
    end = at
    while is_plain and i < stop:
        space_start = i + 1  # behind the bar
        space_stop, i, scale = _parse_word(text, space_start, stop)
        is_plain = scale == scale and not (space_start == space_stop < i)
        while is_plain:
            while i < stop and (text[i] == _SPACE or text[i] == _TAB):
                i += 1
            if i == stop or text[i] == _BAR:
                break
            name_start = i
            name_stop, i, value = _parse_word(text, name_start, stop)
            is_plain = name_start < name_stop and value == value
            if not is_plain:
                break
            index = feature_index(text, name_start, name_stop, space_start, space_stop, n_features)
            if n_new < new.shape[0] and _insert(index, seen):
                new[n_new, 0] = index
                new[n_new, 1], new[n_new, 2] = space_start, space_stop
                new[n_new, 3], new[n_new, 4] = name_start, name_stop
                n_new += 1
            indices[end], values[end] = index, scale * value
            end += 1
    if not is_plain:
        return OTHER, weight, at, n_new
    return PLAIN, weight, sum_duplicates(indices, values, at, end), n_new


@kernel
def parse_vw_lines(
    text, ends, n_features, kinds, labels, tags, weights, indptr, indices, values, seen, new
):
    """Read lines that end at `ends`; rows that are not plain are left empty.

    Places that are not in `seen` enter it and, with where their names are, `new`; return how many.
    """
    start, at, n_new = 0, 0, 0
    indptr[0] = 0
    for t in range(ends.shape[0]):
        stop = ends[t]
        trimmed = stop
        while trimmed > start and text[trimmed - 1] == _RETURN:
            trimmed -= 1
        kinds[t], weights[t], at, n_new = _parse_vw_line(
            text, start, trimmed, n_features, labels[t], tags[t], indices, values, at,
            seen, new, n_new,
        )  # fmt: skip
        indptr[t + 1] = at
        start = stop + 1
    return n_new


@kernel
def _find_record_ends(text, delimiter, ends):
    """Write the offsets behind records; return their number, and whether quotes are regular.

    A quote opens a cell if only spaces are before it; regular ones have nothing around them there.
    """
    n_ends, regular = 0, True
    position, is_spaced = _START, False
    for i in range(text.shape[0]):
        byte = text[i]
        if position == _QUOTED:
            if byte == _QUOTE:
                position = _CLOSED
        elif byte == _NEWLINE:
            ends[n_ends] = i + 1
            n_ends += 1
            position, is_spaced = _START, False
        elif byte == delimiter:
            position, is_spaced = _START, False
        elif byte == _QUOTE:
            if position == _PLAIN:
                regular = False
            else:
                regular = regular and not is_spaced
                position = _QUOTED
        elif position == _START and byte == _SPACE:
            is_spaced = True
        elif position == _CLOSED and byte != _RETURN:
            position, regular = _PLAIN, False
        elif position == _START:
            position = _PLAIN
    return n_ends, regular and position != _QUOTED and position != _CLOSED


def record_ends(text: bytes, delimiter: str):
    """Return the offsets behind the records of a CSV text, and whether all quotes are regular."""
    data = np.frombuffer(text, np.uint8)
    if b'"' not in text:
        return np.flatnonzero(data == _NEWLINE) + 1, True
    ends = np.empty(text.count(b"\n"), np.int64)
    n_ends, regular = _find_record_ends(data, ord(delimiter), ends)
    return ends[:n_ends], regular


def last_record_end(text: bytes, delimiter: str = ""):
    """Return the size of the whole records of a CSV text, of its whole lines without delimiter."""
    if not delimiter or b'"' not in text:
        return text.rfind(b"\n") + 1
    ends, _ = record_ends(text, delimiter)
    return int(ends[-1]) if len(ends) else 0
