"""Where the records of CSV end: at line ends that are not within quotes."""

import numpy as np

from folklearn.kernels.compile import kernel

_RETURN, _NEWLINE, _SPACE, _QUOTE = 13, 10, 32, 34
_START, _PLAIN, _QUOTED, _CLOSED = range(4)  # where in a cell


@kernel
def record_ends(text, delimiter, ends):
    """Write where the records end; return how many did, and whether all quotes are regular.

    A quote opens a cell if nothing but spaces is before it; two of them within such a cell are
    one. Regular quotes have nothing before them and nothing behind them in their cell.
    """
    n_ends, regular = 0, True
    place, is_spaced = _START, False
    for i in range(text.shape[0]):
        byte = text[i]
        if place == _QUOTED:
            if byte == _QUOTE:
                place = _CLOSED
        elif byte == _NEWLINE:
            ends[n_ends] = i + 1
            n_ends += 1
            place, is_spaced = _START, False
        elif byte == delimiter:
            place, is_spaced = _START, False
        elif byte == _QUOTE:
            if place == _PLAIN:
                regular = False
            else:
                regular = regular and not is_spaced
                place = _QUOTED
        elif place == _START and byte == _SPACE:
            is_spaced = True
        elif place == _CLOSED and byte != _RETURN:
            place, regular = _PLAIN, False
        elif place == _START:
            place = _PLAIN
    return n_ends, regular and place != _QUOTED and place != _CLOSED


def ends_of(text: bytes, delimiter: str):
    """Return where the records of a text end (after their line ends), and whether it is regular."""
    data = np.frombuffer(text, np.uint8)
    if b'"' not in text:
        return np.flatnonzero(data == _NEWLINE) + 1, True
    ends = np.empty(text.count(b"\n"), np.int64)
    n_ends, regular = record_ends(data, ord(delimiter), ends)
    return ends[:n_ends], regular
