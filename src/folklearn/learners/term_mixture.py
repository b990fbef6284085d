"""Lines and terms in one mixture: a learner of the columns, and Gaussians of their terms too."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import validation
from folklearn.arrays import Array
from folklearn.evidence.certificate import Certificate
from folklearn.learners.base import Learner
from folklearn.learners.mixture import Mixture
from folklearn.learners.shared_gaussian import SharedGaussian

# Ridge and leak of the Gaussians, for contexts of norm about 1.
GAUSSIANS = ((0.3, 0.0), (0.03, 0.0), (0.003, 0.0), (0.0003, 0.0), (0.03, 1e-4), (0.03, 1e-3))
_OPERATIONS, _OPERATIONS_PER_CLASS = 1.2e6, 4e5  # that all Gaussians may take for a row
_OPERATIONS_PER_SQUARE = 3.0  # of the number of columns and terms, for one of them


def affordable_terms(n_columns: int, n_classes: int) -> int:
    """Return how many terms besides the columns the budget of operations for a row allows."""
    budget = _OPERATIONS + _OPERATIONS_PER_CLASS * n_classes
    size = math.sqrt(budget / (_OPERATIONS_PER_SQUARE * len(GAUSSIANS)))
    return max(0, int(size) - n_columns)


class TermMixture(Mixture):
    r"""A learner of lines with `SharedGaussian` learners of lines and terms, in one fixed share.

    A context has the terms first, then the columns. The learner of lines sees the columns, the
    Gaussians, at four ridges and two leaks, everything. So terms that do not help cost little: the
    loss is at most that of the lines plus :math:`w_{\max}(\ln 7 + \ln T)`, from the round on at
    which the mixture begins and as long as the lines have not retired. What has retired is not
    kept. `folklearn.Model` makes it when terms open, of a learner of lines that goes on.

    Parameters
    ----------
    experts : the learner of lines, unless it has retired, and Gaussians; they may have learned.
    n_terms : number of terms at the beginning of a context. `n_features` is that of the columns.
    share, retire, max_weight : as for `Mixture`.
    """

    PARAMS: ClassVar[tuple[str, ...]] = ("n_terms", *Mixture.PARAMS)

    def __init__(
        self,
        experts: Sequence[Learner],
        *,
        n_terms: int,
        share: bool = True,
        retire: bool = True,
        max_weight: float = 1.0,
    ) -> None:
        self.n_terms = validation.count("n_terms", n_terms, 1)
        self._start(experts, share, retire, max_weight)
        self._shape = (self.n_terms + self.n_features,)

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        return cls(**words)

    @classmethod
    def of_lines(cls, lines: Learner, n_terms: int) -> Self:
        """Return the mixture of a learner of lines with Gaussians that have learned nothing."""
        sizes = {"n_features": n_terms + lines.n_features, "n_classes": lines.n_classes}
        gaussians = [SharedGaussian(**sizes, ridge=ridge, leak=leak) for ridge, leak in GAUSSIANS]
        weight = lines.max_weight if math.isfinite(lines.max_weight) else 1.0
        mixture = cls([lines, *gaussians], n_terms=n_terms, max_weight=weight)
        mixture._n_rounds = lines.n_rounds
        mixture._totals[:] = 0.0, lines.n_rounds
        return mixture

    @property
    def lines(self) -> Learner | None:
        return None if isinstance(self.experts[0], SharedGaussian) else self.experts[0]

    @property
    def gaussians(self) -> list[SharedGaussian]:
        """The learners of terms that have not retired."""
        return [expert for expert in self.experts if isinstance(expert, SharedGaussian)]

    def _n_terms_of(self, expert: Learner) -> int:
        return self.n_terms * isinstance(expert, SharedGaussian)

    def _views(self, X: Any) -> Iterator[tuple[Learner, Any]]:
        for expert in self._survivors:
            is_of_terms = isinstance(expert, SharedGaussian)
            yield expert, X if is_of_terms else np.ascontiguousarray(X[..., self.n_terms :])

    @staticmethod
    def name_of(expert: Learner) -> str:
        """Return what an expert is: lines, or terms with a ridge and a leak."""
        return expert._expert_names()[0] if isinstance(expert, SharedGaussian) else "lines"

    def _names_of(self, expert: Learner) -> list[str]:
        return expert._expert_names()

    def _expert_predictions(self, X: Any) -> Array:
        return np.concatenate([e._expert_predictions(seen) for e, seen in self._views(X)])

    def _standings(self) -> list[float]:
        names = map(self._names_of, self._survivors)
        return [min(self.standing.get(name, math.inf) for name in each) for each in names]

    def _worth_keeping(self, hopeless: Any, weights: Array) -> NDArray[np.bool_]:
        """Tell which of the hopeless stay: also the next weaker ridge than that of the best.

        The more rows, the weaker the best ridge: its time may come.
        """
        kept = super()._worth_keeping(hopeless, weights)
        best = self.experts[int(self._losses.argmin())]
        if isinstance(best, SharedGaussian):
            weaker = [g for g in self.gaussians if g.leak == 0.0 and g.ridge < best.ridge]
            following = max(weaker, key=lambda g: g.ridge, default=None)
            kept |= hopeless & [expert is following for expert in self.experts]
        return kept

    def _set_standing(self, losses: Mapping[str, float]) -> None:
        super()._set_standing(losses)
        if self.lines is not None:
            self.lines._set_standing(losses)

    def _review(self) -> None:
        super()._review()
        self.experts = self._survivors
        for name in self.ARRAYS:
            if name != "totals":
                setattr(self, f"_{name}", getattr(self, f"_{name}")[self._alive])
        self._find_survivors()

    def certificate(self, W: ArrayLike | None = None) -> Certificate:
        """Return a certificate that is not valid: the loss counts from the opening on."""
        return Learner.certificate(self)

    def coef(self) -> Array:
        return super().coef()[:, self.n_terms :] if self.lines is None else self.lines.coef()

    def best_gaussian(self) -> SharedGaussian | None:
        """Return the learner of terms with the least loss, of those that do not forget if any."""
        ranked = [
            (expert.leak > 0.0, loss, expert)
            for expert, loss in zip(self.experts, self._losses.tolist(), strict=True)
            if isinstance(expert, SharedGaussian)
        ]
        return min(ranked, key=lambda entry: entry[:2], default=(0, 0, None))[2]

    def copy_to_predict(self) -> Self:
        copied = self._shallow()
        copied.experts = [expert.copy_to_predict() for expert in self.experts]
        for name, array in self._parts().items():
            setattr(copied, f"_{name}", array.copy())
        copied._find_survivors()
        return copied
