"""Seeded synthetic streams, from well specified to adversarial, and the digits.

Every generator is called as ``stream(seed, T, *, d, K, R=1.0, ...)`` and returns contexts X
(T, d), rows of norm at most R, and labels y (T,) in 0..K-1. The same arguments give the same
bytes. `OBLIVIOUS` holds them by name; `against` needs a learner to play against.

>>> X, y = stochastic(0, 100, d=3, K=4)
>>> X.shape, y.shape, int(y.max())
((100, 3), (100,), 3)
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError

if TYPE_CHECKING:  # streams load faster without the learners
    from folklearn.learners.base import Learner

__all__ = [
    "OBLIVIOUS", "Stream", "against", "contexts", "digits", "drifting", "hard_for_proper",
    "pure_noise", "rare_flip", "separable", "stochastic", "syn_blocks", "syn_non_sep", "syn_sep",
]  # fmt: skip

Stream = tuple[Array, Labels]

_RADIUS_SHRINKAGE = 1.0 - 1e-12  # so that rounding puts no row outside the ball


def stochastic(seed: int, T: int, *, d: int, K: int, R: float = 1.0, B: float = 5.0) -> Stream:
    """y ~ softmax(W x), one W with row norms B: the well-specified model."""
    rng, X = _draw_contexts(seed, T, d, K, R)
    return X, _draw_labels(rng, X @ _random_predictor(rng, K, d, validation.positive("B", B)).T)


def separable(seed: int, T: int, *, d: int, K: int, R: float = 1.0) -> Stream:
    """y = argmax W x: the loss of the best model goes to 0 as its norm grows."""
    rng, X = _draw_contexts(seed, T, d, K, R)
    return X, np.argmax(X @ _random_predictor(rng, K, d, 1.0).T, axis=1)


def pure_noise(seed: int, T: int, *, d: int, K: int, R: float = 1.0) -> Stream:
    """Labels uniform and independent of the contexts: there is nothing to learn."""
    rng, X = _draw_contexts(seed, T, d, K, R)
    return X, rng.integers(K, size=T)


def rare_flip(seed: int, T: int, *, d: int, K: int, R: float = 1.0, rate: float = 0.01) -> Stream:
    """Separable, but a fraction `rate` of the labels is replaced by another class."""
    rate = validation.fraction("rate", rate, 1.0)
    X, y = separable(seed, T, d=d, K=K, R=R)
    rng = np.random.default_rng([seed, 1])  # not the generator that made the labels
    return X, _flip_labels(rng, y, K, rate)


def drifting(
    seed: int, T: int, *, d: int, K: int, R: float = 1.0, B: float = 5.0, turns: float = 1.0
) -> Stream:
    """y ~ softmax(W_t x), W_t turning from one predictor to another and round, `turns` times."""
    rng, X = _draw_contexts(seed, T, d, K, R)
    B = validation.positive("B", B)
    first, second = _random_predictor(rng, K, d, B), _random_predictor(rng, K, d, B)
    angle = 2.0 * np.pi * turns * np.arange(T)[:, None] / T
    return X, _draw_labels(rng, np.cos(angle) * (X @ first.T) + np.sin(angle) * (X @ second.T))


def hard_for_proper(
    seed: int, T: int, *, d: int = 1, K: int = 2, R: float = 1.0, B: float = 10.0
) -> Stream:
    r"""Labels that cost every proper learner of row norm B a power of B and T, not ln T.

    One dimension, two classes (further features are 0, further classes do not occur). With
    D = 2BR, the largest difference of logits, a round is independently

    * rare, with probability :math:`p = 2 (T D^2)^{-1/3}`, at most 1/4: x = R, label 1;
    * common otherwise: x = 2pR / (1 - p), label 0.

    A model whose logits differ by :math:`\theta x / R` loses about :math:`\theta` in a rare round
    and :math:`\ln 2 - p\theta` in a common one: the *expected* loss is flat on 0..D, and no proper
    learner gains by any choice. The number of rare rounds deviates by :math:`\sqrt{Tp}`, so that
    the best model in hindsight gains about :math:`D \sqrt{Tp}` less the curvature
    :math:`T p^2 D^2`, of the order :math:`D^{2/3} T^{1/3}` while T is below about :math:`e^D`.
    An improper learner knows x before it answers, and pays O(BR ln T).

    References
    ----------
    Hazan, Koren and Levy (2014), "Logistic Regression: Tight Bounds for Stochastic and
    Online Optimization", the one-dimensional lower bound; the constants here are our own.
    """
    T, d, K = validation.count("T", T, 1), validation.count("d", d, 1), validation.count("K", K, 2)
    R, B = validation.positive("R", R), validation.positive("B", B)
    p = min(0.25, 2.0 * (T * (2.0 * B * R) ** 2) ** (-1.0 / 3.0))
    rare = np.random.default_rng(seed).random(T) < p
    X = np.zeros((T, d))
    X[:, 0] = np.where(rare, R, 2.0 * p / (1.0 - p) * R)
    return X, rare.astype(np.int64)


OBLIVIOUS: dict[str, Callable[..., Stream]] = {
    stream.__name__: stream
    for stream in (stochastic, separable, pure_noise, rare_flip, drifting, hard_for_proper)
}


def against(learner: "Learner", X: ArrayLike) -> Labels:
    """Play X against a learner, which learns as it goes; return the labels (T,).

    Every label is the class that the learner holds least likely, the lowest on ties.

    >>> from folklearn import Folklore
    >>> learner = Folklore(n_features=2, n_classes=2)
    >>> y = against(learner, contexts(0, 50, d=2))
    >>> bool(learner.certificate().loss > 50 * np.log(2))
    True
    """
    X, _ = validation.contexts(X, learner.n_features)
    labels = np.empty(len(X), dtype=np.int64)
    for t, x in enumerate(X):
        labels[t] = np.argmin(learner.predict(x))
        learner.update(x, int(labels[t]))
    return labels


def contexts(seed: int, T: int, *, d: int, R: float = 1.0) -> Array:
    """Return X (T, d), rows uniform in the ball of radius R."""
    return _draw_contexts(seed, T, d, 2, R)[1]


def _draw_contexts(
    seed: Any, T: int, d: int, K: int, R: float
) -> tuple[np.random.Generator, Array]:
    T, d, R = validation.count("T", T, 1), validation.count("d", d, 1), validation.positive("R", R)
    validation.count("K", K, 2)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((T, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return rng, X * (_RADIUS_SHRINKAGE * R * rng.random((T, 1)) ** (1.0 / d))


def _random_predictor(rng: np.random.Generator, K: int, d: int, B: float) -> Array:
    W = rng.standard_normal((K, d))
    rows: Array = W * (B / np.linalg.norm(W, axis=1, keepdims=True))
    return rows


def _draw_labels(rng: np.random.Generator, Z: Array) -> Labels:
    # The Gumbel trick: one label per row of logits.
    labels: Labels = np.argmax(Z + rng.gumbel(size=Z.shape), axis=1)
    return labels


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


DIGITS_NAME = "scikit-learn's digits"
DIGITS_TARGET = "digit"
_DIGITS_SEED = 0  # the stored order goes through the writers one by one; a stream should not


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
    order = np.random.default_rng(_DIGITS_SEED).permutation(len(shown))
    images = images[order].astype(np.float64)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    pixels = {name: np.ascontiguousarray(images[:, j]) for j, name in enumerate(names)}
    return pixels, [str(digit) for digit in shown[order]]
