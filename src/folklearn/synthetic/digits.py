"""The stream that needs no file: scikit-learn's handwritten digits."""

import numpy as np

from folklearn.arrays import Array

NAME = "scikit-learn's digits"
TARGET = "digit"
_SEED = 0  # the stored order goes through the writers one by one; a stream should not


def digits() -> tuple[dict[str, Array], list[str]]:
    """Return 1797 images of 8 × 8 pixels, by columns, and which digit each shows.

    They come in one fixed random order.

    >>> pixels, labels = digits()
    >>> len(pixels), len(labels), labels[:3]
    (64, 1797, ['6', '6', '6'])
    """
    # Here, because this import takes longer than everything else in the package.
    from sklearn.datasets import load_digits

    images, shown = load_digits(return_X_y=True)
    order = np.random.default_rng(_SEED).permutation(len(shown))
    images = images[order].astype(np.float64)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    pixels = {name: np.ascontiguousarray(images[:, j]) for j, name in enumerate(names)}
    return pixels, [str(digit) for digit in shown[order]]
