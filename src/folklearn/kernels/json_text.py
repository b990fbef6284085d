"""How many different keys lines of JSON have, and how deep they are nested."""

import numpy as np

from folklearn.kernels.compile import kernel

_NEWLINE, _SPACE, _TAB, _QUOTE, _COLON, _BACKSLASH = 10, 32, 9, 34, 58, 92
_OPEN, _CLOSE = (123, 91), (125, 93)
_OFFSET, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # FNV-1a


@kernel
def extent(text, seen):
    """Return the number of different keys, and the deepest nesting of a line.

    `seen` (a power of two) is 0 and holds the hashes; half as many keys as it holds are counted.
    """
    n_keys, depth, deepest = 0, 0, 0
    mask = np.uint64(seen.shape[0] - 1)
    most = seen.shape[0] // 2
    end = text.shape[0]
    i = 0
    while i < end:
        byte = text[i]
        i += 1
        if byte == _NEWLINE:
            depth = 0
        elif byte == _OPEN[0] or byte == _OPEN[1]:
            depth += 1
            deepest = max(deepest, depth)
        elif byte == _CLOSE[0] or byte == _CLOSE[1]:
            depth -= 1
        elif byte == _QUOTE:
            hashed = _OFFSET
            while i < end and text[i] != _QUOTE and text[i] != _NEWLINE:
                if text[i] == _BACKSLASH:
                    i += 1
                    if i == end:
                        break
                hashed = (hashed ^ np.uint64(text[i])) * _PRIME
                i += 1
            if i < end and text[i] == _QUOTE:
                i += 1
            while i < end and (text[i] == _SPACE or text[i] == _TAB):
                i += 1
            if i < end and text[i] == _COLON and n_keys < most:
                hashed |= np.uint64(1)  # 0 is an empty place
                place = (hashed >> np.uint64(20)) & mask
                while seen[place] != 0 and seen[place] != hashed:
                    place = (place + np.uint64(1)) & mask
                if seen[place] == 0:
                    seen[place] = hashed
                    n_keys += 1
    return n_keys, deepest


def extent_of(text: bytes, most: int):
    """Return the number of different keys of lines, at most `most`, and their deepest nesting."""
    seen = np.zeros(2 ** (2 * most - 1).bit_length(), np.uint64)
    n_keys, deepest = extent(np.frombuffer(text, np.uint8), seen)
    return min(n_keys, most), deepest
