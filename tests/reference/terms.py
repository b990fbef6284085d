"""Terms of columns and their standardisation on line, from the definitions."""

import numpy as np

from .loss import Array

HINGE, STEP, PRODUCT, CROSS = range(4)


def values_of(terms, X: Array, Z: Array) -> Array:
    """Terms (T, n + m) of raw rows X (T, d), standardised Z (T, d): curves and crosses, waves."""
    found = []
    for kind, (i, j), (q, r) in zip(terms.kinds, terms.columns, terms.numbers, strict=True):
        a, b = X[:, i], X[:, j]
        values = {
            HINGE: np.minimum(np.maximum((a - q) * r, 0), 1e6),
            STEP: (a > q) * 1.0,
            PRODUCT: Z[:, i] * Z[:, j],
            CROSS: ((a > q) & (b > r)) * 1.0,
        }[int(kind)]
        found.append(np.where(np.isnan(a) | np.isnan(b), np.nan, values))
    waves = np.sqrt(2) * np.cos(Z @ terms.frequencies.T + terms.phases)
    return np.column_stack([*found, waves])


def standardised(values: Array, blocks: Array) -> Array:
    """Scores of the terms (T, n), each by the values of its column up to and with its own row.

    They are clipped to 5, 0 where a value is missing, and every kind has the same length.
    """
    lengths = np.array([(blocks == kind).sum() * len(set(blocks.tolist())) for kind in blocks])
    scores = np.zeros_like(values)
    for t, n in np.argwhere(~np.isnan(values)):
        seen = values[: t + 1, n]
        seen = seen[~np.isnan(seen)]
        spread = seen.std() if np.ptp(seen) > 0 else np.inf
        scores[t, n] = np.clip((seen[-1] - seen.mean()) / spread, -5, 5)
    return scores / np.sqrt(lengths)


def worth_of_product(Z: Array, labels: Array, i: int, j: int) -> float:
    """What the product of two columns of Z (T, d) tells of the classes that the columns do not.

    The sum over classes of the squared correlation of the product with the indicator of the class,
    both less their ridge regressions on Z, the penalty a tenth of the rows.
    """
    T, d = Z.shape

    def rest(values: Array) -> Array:
        centred = values - values.mean()
        penalised = np.vstack([Z, np.sqrt(T / 10) * np.eye(d)])
        weights = np.linalg.lstsq(penalised, np.append(centred, np.zeros(d)), rcond=None)[0]
        left: Array = centred - Z @ weights
        return left

    product = rest(Z[:, i] * Z[:, j])
    indicators = [rest((labels == k) * 1.0) for k in np.unique(labels)]
    return float(sum((product @ y) ** 2 / (product @ product) / (y @ y) for y in indicators))
