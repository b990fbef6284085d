"""The two streams on which bandit algorithms have been compared since the Banditron.

An example is a row of d bits. The first ``round(0.3 d)`` are class bits, of which every class
k owns a random set :math:`S_k` of U{``round(0.05 d)``..``round(0.1 d)``}; an example of class
k has the bits of its class on, but for ``floor(d / 80)`` of them at random, and exactly
``round(d / 20)`` random bits among the rest, which say nothing. With d = 400 and K = 9 that
is 120 class bits, 20 to 40 to a class, 5 off, and 20 of the last 280.

The streams come whole, or in blocks of `BLOCK` rows, so that 10^6 examples need not be held
at once. Both are the same examples; so are the first T of a longer stream.

References
----------
Kakade, Shalev-Shwartz and Tewari (2008), "Efficient Bandit Algorithms for Online Multiclass
Prediction", section 5: SynSep and SynNonSep.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError
from folklearn.synthetic.labelled import Stream

BLOCK = 1000

_LEAST_FEATURES = 20
_ATTEMPTS = 1000


def syn_sep(seed: int, T: int, *, d: int = 400, K: int = 9) -> Stream:
    r"""Return X (T, d) of zeros and ones and y (T,), linearly separable: SynSep.

    Separable because the sets of two classes are made to differ in more than 2m bits, m the
    number turned off: with the scores :math:`2 |x \cap S_j| - |S_j|`, linear since the noise
    bits have a constant sum, an example of class k has :math:`|S_k| - 2m` for its own class,
    and for another at least :math:`|S_j| + |S_k| - 2|S_j \cap S_k| - 2m \ge 1` less. At
    d = 400 random sets differ that much anyway, and practically none is drawn again.

    Examples
    --------
    >>> X, y = syn_sep(0, 1000)
    >>> X.shape, sorted(set(y.tolist())), set(X[:, 120:].sum(axis=1).tolist())
    ((1000, 400), [0, 1, 2, 3, 4, 5, 6, 7, 8], {20.0})
    """
    return _whole(syn_sep_blocks(seed, T, d=d, K=K), T, d)


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
    return _whole(syn_non_sep_blocks(seed, T, d=d, K=K, rate=rate), T, d)


def syn_sep_blocks(seed: int, T: int, *, d: int = 400, K: int = 9) -> Iterator[Stream]:
    """Yield `syn_sep` in blocks of `BLOCK` rows, the last one shorter.

    Examples
    --------
    >>> [len(y) for X, y in syn_sep_blocks(0, 2500)]
    [1000, 1000, 500]
    """
    return syn_non_sep_blocks(seed, T, d=d, K=K, rate=0.0)


def syn_non_sep_blocks(
    seed: int, T: int, *, d: int = 400, K: int = 9, rate: float = 0.05
) -> Iterator[Stream]:
    """Yield `syn_non_sep` in blocks of `BLOCK` rows, the last one shorter."""
    T, seed = validation.count("T", T, 1), validation.count("seed", seed, 0)
    rate = validation.fraction("rate", rate, 1.0)
    sizes = _sizes(d)
    rng = np.random.default_rng(seed)
    owned = _class_bits(rng, sizes, validation.count("K", K, 2))
    # The noise has its own generator, so that the examples do not depend on the rate.
    return _blocks(rng, np.random.default_rng([seed, 1]), sizes, owned, T, rate)


class _Sizes(NamedTuple):
    features: int
    class_bits: int
    fewest: int  # bits of a class, from fewest to most
    most: int
    off: int
    noise: int


def _sizes(d: int) -> _Sizes:
    d = validation.count("d", d, 1)
    if d < _LEAST_FEATURES:
        raise InvalidInputError(
            f"d must be at least {_LEAST_FEATURES}, got {d}: a class needs a bit of its own"
        )
    return _Sizes(d, round(0.3 * d), round(0.05 * d), round(0.1 * d), d // 80, round(d / 20))


def _class_bits(rng: np.random.Generator, sizes: _Sizes, K: int) -> NDArray[np.bool_]:
    """Draw the sets of the classes, (K, class bits), any two further apart than 2 off bits."""
    owned = np.zeros((K, sizes.class_bits), dtype=np.bool_)
    for k in range(K):
        for _ in range(_ATTEMPTS):
            size = rng.integers(sizes.fewest, sizes.most, endpoint=True)
            owned[k] = False
            owned[k, rng.choice(sizes.class_bits, size, replace=False)] = True
            if ((owned[:k] ^ owned[k]).sum(axis=1) > 2 * sizes.off).all():
                break
        else:
            raise InvalidInputError(
                f"d={sizes.features} is too small for K={K} classes whose sets of bits differ "
                f"in more than {2 * sizes.off}: take more features or fewer classes"
            )
    return owned


def _blocks(
    rng: np.random.Generator,
    noise_rng: np.random.Generator,
    sizes: _Sizes,
    owned: NDArray[np.bool_],
    T: int,
    rate: float,
) -> Iterator[Stream]:
    K = len(owned)
    for start in range(0, T, BLOCK):
        # Whole blocks are drawn and the last one is cut: T does not change what is drawn.
        rows = min(BLOCK, T - start)
        y = rng.integers(K, size=BLOCK)
        X = np.zeros((BLOCK, sizes.features))
        X[:, : sizes.class_bits] = owned[y]
        off = _random_places(rng, owned[y], sizes.off)
        np.put_along_axis(X, off, 0.0, axis=1)
        anywhere = np.ones((BLOCK, sizes.features - sizes.class_bits), dtype=np.bool_)
        on = sizes.class_bits + _random_places(rng, anywhere, sizes.noise)
        np.put_along_axis(X, on, 1.0, axis=1)
        others = (y + noise_rng.integers(1, K, size=BLOCK)) % K
        y = np.where(noise_rng.random(BLOCK) < rate, others, y)
        yield X[:rows], y[:rows]


def _random_places(
    rng: np.random.Generator, allowed: NDArray[np.bool_], n_places: int
) -> NDArray[np.intp]:
    """Return n random columns for every row, among those allowed: the least random keys."""
    keys = np.where(allowed, rng.random(allowed.shape), 2.0)
    return np.argpartition(keys, n_places, axis=1)[:, :n_places]


def _whole(blocks: Iterator[Stream], T: int, d: int) -> Stream:
    X: Array = np.empty((T, d))
    y: Labels = np.empty(T, dtype=np.int64)
    start = 0
    for rows, labels in blocks:
        X[start : start + len(rows)] = rows
        y[start : start + len(rows)] = labels
        start += len(rows)
    return X, y
