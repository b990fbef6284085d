"""SynSep and SynNonSep, the streams of zeros and ones on which Banditron was introduced."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError
from folklearn.synthetic import Stream

ROWS_PER_BLOCK = 1000

_MIN_FEATURES = 20
_MAX_ATTEMPTS = 1000


def syn_sep(seed: int, T: int, *, d: int = 400, K: int = 9) -> Stream:
    r"""Return X (T, d) of zeros and ones and y (T,), linearly separable: SynSep.

    The first ``round(0.3 d)`` columns are class bits, of which every class k owns a random set
    :math:`S_k` of U{``round(0.05 d)``..``round(0.1 d)``}; an example of class k has the bits of
    its class on, but for m = ``floor(d / 80)`` of them at random, and exactly ``round(d / 20)``
    random bits among the rest. The first T examples of a longer stream are the same.

    Separable because the sets of two classes are made to differ in more than 2m bits: by the
    scores :math:`2 |x \cap S_j| - |S_j|`, linear since the noise bits have a constant sum, an
    example of class k has :math:`|S_k| - 2m` for its own class, and at least 1 less for another.

    Examples
    --------
    >>> X, y = syn_sep(0, 1000)
    >>> X.shape, sorted(set(y.tolist())), set(X[:, 120:].sum(axis=1).tolist())
    ((1000, 400), [0, 1, 2, 3, 4, 5, 6, 7, 8], {20.0})

    References
    ----------
    Kakade, Shalev-Shwartz and Tewari (2008), "Efficient Bandit Algorithms for Online Multiclass
    Prediction", section 5: SynSep and SynNonSep.
    """
    return syn_non_sep(seed, T, d=d, K=K, rate=0.0)


def syn_non_sep(seed: int, T: int, *, d: int = 400, K: int = 9, rate: float = 0.05) -> Stream:
    """Return SynNonSep: the examples of `syn_sep`, a part of the labels replaced.

    Every label is replaced with probability `rate`, by one of the others at random.

    Examples
    --------
    >>> X, y = syn_non_sep(0, 1000)
    >>> truth = syn_sep(0, 1000)[1]
    >>> bool(0.02 < (y != truth).mean() < 0.08)
    True
    """
    X: Array = np.empty((T, d))
    y: Labels = np.empty(T, dtype=np.int64)
    for number, (rows, labels) in enumerate(syn_blocks(seed, T, d=d, K=K, rate=rate)):
        block = slice(number * ROWS_PER_BLOCK, number * ROWS_PER_BLOCK + len(rows))
        X[block], y[block] = rows, labels
    return X, y


def syn_blocks(seed: int, T: int, *, d: int = 400, K: int = 9, rate: float) -> Iterator[Stream]:
    """Yield `syn_non_sep` in blocks of `ROWS_PER_BLOCK` rows, the last one shorter.

    With a `rate` of 0 they are those of `syn_sep`.

    Examples
    --------
    >>> [len(y) for X, y in syn_blocks(0, 2500, rate=0.0)]
    [1000, 1000, 500]
    """
    T, seed = validation.count("T", T, 1), validation.count("seed", seed, 0)
    rate, K = validation.fraction("rate", rate, 1.0), validation.count("K", K, 2)
    if validation.count("d", d, 1) < _MIN_FEATURES:
        raise InvalidInputError(
            f"d must be at least {_MIN_FEATURES}, got {d}: a class needs a bit of its own"
        )
    n_class_bits, n_off, n_noise = round(0.3 * d), d // 80, round(d / 20)
    rng = np.random.default_rng(seed)
    class_bits = _draw_class_bits(rng, K, d, n_class_bits, n_off)
    # The noise has its own generator, so that the examples do not depend on the rate.
    noise_rng = np.random.default_rng([seed, 1])
    is_noise = np.ones((ROWS_PER_BLOCK, d - n_class_bits), dtype=np.bool_)

    def draw_block(n_rows: int) -> Stream:
        # Whole blocks are drawn and the last one is cut: T does not change what is drawn.
        y = rng.integers(K, size=ROWS_PER_BLOCK)
        X = np.zeros((ROWS_PER_BLOCK, d))
        X[:, :n_class_bits] = class_bits[y]
        np.put_along_axis(X, _random_columns(rng, class_bits[y], n_off), 0.0, axis=1)
        noise = n_class_bits + _random_columns(rng, is_noise, n_noise)
        np.put_along_axis(X, noise, 1.0, axis=1)
        return X[:n_rows], _flip_labels(noise_rng, y, K, rate)[:n_rows]

    return (draw_block(min(ROWS_PER_BLOCK, T - t)) for t in range(0, T, ROWS_PER_BLOCK))


def _draw_class_bits(
    rng: np.random.Generator, K: int, d: int, n_bits: int, n_off: int
) -> NDArray[np.bool_]:
    """Draw the sets of the classes, (K, bits), any two further apart than twice `n_off` bits."""
    bits = np.zeros((K, n_bits), dtype=np.bool_)
    for k in range(K):
        for _ in range(_MAX_ATTEMPTS):
            size = rng.integers(round(0.05 * d), round(0.1 * d), endpoint=True)
            bits[k] = False
            bits[k, rng.choice(n_bits, size, replace=False)] = True
            if ((bits[:k] ^ bits[k]).sum(axis=1) > 2 * n_off).all():
                break
        else:
            raise InvalidInputError(
                f"d={d} is too small for K={K} classes whose sets of bits differ in more than "
                f"{2 * n_off}: take more features or fewer classes"
            )
    return bits


def _random_columns(
    rng: np.random.Generator, allowed: NDArray[np.bool_], n_columns: int
) -> NDArray[np.intp]:
    keys = np.where(allowed, rng.random(allowed.shape), 2.0)
    return np.argpartition(keys, n_columns, axis=1)[:, :n_columns]


def _flip_labels(rng: np.random.Generator, y: Labels, K: int, rate: float) -> Labels:
    """Return labels of which a part is replaced by one of the others."""
    others = (y + rng.integers(1, K, size=len(y))) % K
    return np.where(rng.random(len(y)) < rate, others, y)
