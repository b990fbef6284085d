"""The stream that needs no file: scikit-learn's handwritten digits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from folklearn.streams.table import Block

_SEED = 0  # the stored order goes through the writers one by one; a stream should not


class Digits:
    """1797 images of 8 × 8 pixels in 10 classes, in one fixed random order."""

    name = "scikit-learn's digits"
    target = "digit"
    text = ()
    missing: ClassVar[Mapping[str, int]] = {}
    weights = None
    sparse = False
    unit = "row"
    note = ""

    def __init__(self) -> None:
        # Here, because this import takes longer than everything else in the package.
        from sklearn.datasets import load_digits

        pixels, digits = load_digits(return_X_y=True)
        order = np.random.default_rng(_SEED).permutation(len(digits))
        self._pixels: NDArray[np.float64] = pixels[order].astype(np.float64)
        self._digits = [str(digit) for digit in digits[order]]
        self.columns = tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8))
        self.n_inputs = len(self.columns)
        self.n_rows = len(digits)

    @cached_property
    def first_lines(self) -> Mapping[str, int]:
        """For every digit, the row where it occurs first, counted from 1."""
        return {digit: self._digits.index(digit) + 1 for digit in set(self._digits)}

    def blocks(
        self, columns: Sequence[str], labels: Sequence[str], sizes: Iterable[int]
    ) -> Iterator[Block]:
        """Yield blocks of `sizes` rows each, until the rows end."""
        X = np.ascontiguousarray(self._pixels[:, [self.columns.index(name) for name in columns]])
        y = np.array([labels.index(digit) for digit in self._digits], dtype=np.int64)
        start = 0
        for size in sizes:
            if start >= self.n_rows:
                return
            yield Block(X[start : start + size], y[start : start + size], None)
            start += size
