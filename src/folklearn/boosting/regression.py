"""The boosting regression problem (Agarwal, Kale and Zimmert 2021, Algorithm 3)."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.kernels import boosting as kernels
from folklearn.serialization import Serializable

KINDS = {"folklore": kernels.FOLKLORE, "aioli": kernels.AIOLI, "offset": kernels.OFFSET}


def kind_of(regression: Any) -> int:
    """Return the kernel's number of a regression by its name."""
    if not isinstance(regression, str) or regression not in KINDS:
        raise InvalidInputError(
            f"regression must be one of {', '.join(map(repr, KINDS))}, got {regression!r}"
        )
    return KINDS[regression]


def clip(horizon: int | None, n_rounds: int) -> float:
    """Return the largest |x_1| of the next round: ln T, or ln(t+1) where T is unknown."""
    return math.log(n_rounds + 2 if horizon is None else horizon)


def regret_bound(row: Array, kind: int, alpha: float) -> float:
    """Return what one row of the state proves against alpha: ridge, brackets, clipping."""
    comparator = alpha**2 if kind == kernels.OFFSET else 4.0 + alpha**2
    bound = kernels.RIDGE[kind] * comparator + row[kernels.BRACKET] + row[kernels.CLIPPED]
    return float(bound)


class BoostingRegression(Serializable):
    r"""Learn how far to trust a label: scores s and a label l in, better scores out.

    Use it as the step of a boosting algorithm, as `AdaBoostOLMpp` does N at a time, or to add
    one label at a time to scores. It competes with the best
    constant :math:`\alpha \in [-2, 2]` in :math:`s + \alpha e_l`, in hindsight.

    K classes collapse to "l is right" against the rest, with the margin
    :math:`o = s_l - \ln \sum_{k \ne l} e^{s_k}`. Binary FOLKLORE sees
    :math:`\tilde x = (\mathrm{clip}(o/2), 1)` and plays a margin m; the label gets
    :math:`\sigma(\hat s)_l = 1/(1 + e^{-m})` and the others stay proportional. The comparator
    is the linear model :math:`m = 2 \tilde x_1 + \alpha`. Differs from the paper's
    Algorithm 3, which prints s where :math:`\hat s` is played, in that, in the corrected
    curvature :math:`\gamma^*(2|\tilde x_1| + 2)`, and in :math:`\lambda = 1`.

    Time O(K) and memory ten numbers, neither growing with t.

    Guarantee, on every stream: the loss is at most that of any :math:`\alpha` in [-2, 2] plus
    ``certificate(alpha).regret_bound``, which is O(ln(T)^2).

    Parameters
    ----------
    n_classes : number of classes K, at least 2.
    regression : "folklore", "aioli" (its ancestor, which pulls twice as much to even odds),
        or "offset": one-dimensional, :math:`m = o + \alpha_t`, without clipping. The offset
        has about half of the regret if the scores are calibrated, but it cannot rescale scores
        that are not.
    horizon : number of rounds T if known; clips at ln T instead of the growing ln(t+1).

    Examples
    --------
    >>> from folklearn.boosting import BoostingRegression
    >>> model = BoostingRegression(n_classes=3)
    >>> for _ in range(100):
    ...     loss = model.update([0.0, 0.0, 0.0], label=1, y=1)
    >>> bool(loss < 0.1), model.predict([0.0, 0.0, 0.0], label=1).argmax()
    (True, np.int64(1))
    >>> model.certificate(2.0).valid
    True

    References
    ----------
    Agarwal, Kale and Zimmert (2021), "Efficient Methods for Online Multiclass Logistic
    Regression", Algorithm 3 and Theorem 4; docs/theory/reductions.md.
    """

    PARAMS = ("n_classes", "regression", "horizon")
    COUNTERS = ("n_rounds",)
    ARRAYS = ("rows",)

    def __init__(
        self, *, n_classes: int, regression: str = "folklore", horizon: int | None = None
    ) -> None:
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self._kind = kind_of(regression)
        self.regression = regression
        self.horizon = None if horizon is None else validation.count("horizon", horizon, 1)
        self.n_rounds = 0
        self._rows = kernels.initial_rows(1, self._kind)

    def predict(self, s: ArrayLike, label: int) -> Array:
        """Return the regressed scores (K,) for scores s (K,) and a label, modulo constants."""
        s, label = self._check_input(s, label)
        out = np.empty(self.n_classes)
        kernels.regress(self._rows[0], self._kind, self._clip, s, label, out)
        return out

    def update(self, s: ArrayLike, label: int, y: int, *, weight: float = 1.0) -> float:
        """Learn that y was true; return the log loss of the regressed scores before learning.

        The round counts `weight` times in state and certificate; the returned loss does not.
        """
        s, label = self._check_input(s, label)
        y = _class("y", y, self.n_classes)
        loss: float = kernels.learn_regression(
            self._rows[0], self._kind, self._clip, s, label, y, validation.weight(weight)
        )
        self.n_rounds += 1
        return loss

    def certificate(self, alpha: float | None = None) -> Certificate:
        """Return what is proven against one alpha in [-2, 2], by default against all.

        ``B`` is the largest |alpha| that it covers, and ``best_linear_at_least`` bounds the
        total loss of s + alpha e_l from below. What clipping costs is summed as it happens.
        """
        covered = kernels.REACH if alpha is None else abs(float(alpha))
        if not covered <= kernels.REACH:
            raise InvalidInputError(f"alpha is {alpha}; the certificate covers -2 to 2")
        return Certificate(
            loss=float(self._rows[0, kernels.LOSS]),
            regret_bound=regret_bound(self._rows[0], self._kind, covered),
            B=covered,
            n_rounds=self.n_rounds,
        )

    @property
    def _clip(self) -> float:
        return clip(self.horizon, self.n_rounds)

    def _check_input(self, s: ArrayLike, label: int) -> tuple[Array, int]:
        s = validation.numbers("s", s)
        if s.shape != (self.n_classes,) or not (np.abs(s) <= validation.MAX_NORM).all():
            raise InvalidInputError(
                f"s must hold n_classes={self.n_classes} scores between "
                f"{-validation.MAX_NORM:g} and {validation.MAX_NORM:g}, got {s!r}"
            )
        return s, _class("label", label, self.n_classes)


def _class(name: str, value: int, n_classes: int) -> int:
    number = validation.count(name, value, 0)
    if number >= n_classes:
        raise InvalidInputError(f"{name} is {number}; expected 0 to {n_classes - 1}")
    return number
