"""What a certificate says."""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from folklearn import registry
from folklearn.words import counted


@dataclass(frozen=True)
class Certificate:
    """A proven statement about every linear model of row norm at most B, in hindsight.

    Numbers that are not finite prove nothing: with them a certificate is not valid, whoever
    makes it.

    Attributes
    ----------
    loss : total (weighted) log loss of the learner so far, in nats; NaN if it keeps none.
    regret_bound : no model in the class, or the one asked about, has a total loss below
        ``loss - regret_bound``.
    B : the row norm that the statement covers.
    n_rounds : number of rounds so far.
    valid : False if the proof does not apply; the bound is then infinite.
    reason : why it does not apply, or an empty string.
    scope : which losses are compared, if not those over all classes in every round.
    """

    loss: float
    regret_bound: float
    B: float
    n_rounds: int
    valid: bool = True
    reason: str = ""
    scope: str = ""

    def __post_init__(self) -> None:
        if self.valid and not self._is_finite():
            object.__setattr__(self, "valid", False)
            reason = f"the loss is {self.loss:g} and the regret bound {self.regret_bound:g}"
            object.__setattr__(self, "reason", reason)
        if not self.valid:
            object.__setattr__(self, "regret_bound", math.inf)

    def _is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.regret_bound)

    def __repr__(self) -> str:
        if not self.valid:
            return f"Certificate(not valid: {self.reason})"
        n = max(1, self.n_rounds)
        return (
            f"Certificate({self.n_rounds} rounds, loss {self.loss / n:.4g} a round, no linear "
            f"model of row norm {self.B:g} below {self.best_linear_at_least / n:.4g})"
        )

    def _repr_html_(self) -> str:
        card: str = registry.find("certificate_card")(self)  # pictures lie far above
        return card

    @property
    def best_linear_at_least(self) -> float:
        """A lower bound on the total loss of the best model of the class in hindsight."""
        return self.loss - self.regret_bound if self.valid else -math.inf

    def in_words(self, weight: float | None = None, *, of_new: float = 0.0) -> str:
        """Return what is proven, in one plain sentence.

        Averages are over the total weight, the number of rounds if None. `of_new` is the total
        that was paid for classes being unknown, which a certificate leaves out.
        """
        if not self.valid:
            return f"Nothing is proven: {self.reason}."
        n = self.n_rounds if weight is None else weight
        floor = self.best_linear_at_least
        if not floor > 0.0:
            return "Nothing useful is proven yet: more rows are needed for that."
        below = (
            f"No linear model of these columns could have had an average loss below "
            f"{_down(floor / n)}"
        )
        beside = f", beside the {of_new / n:.4f} paid for classes being new" if of_new > 0.0 else ""
        if self.regret_bound < 0.0:
            return f"{below}, which is more than the model had itself{beside}."
        return f"{below}, so at most {_up(self.regret_bound / n)} could have been gained{beside}."

    def in_full(self, n_inputs: int, weight: float | None = None, unit: str = "round") -> str:
        """Return what is proven, and no more, with all of its terms.

        `n_inputs` is the number of columns beside the constant. Averages are over the total
        weight in this unit, the number of rounds if None.
        """
        if not self.valid:
            return f"Nothing is certified: {self.reason}."
        n = self.n_rounds if weight is None else weight
        models = (
            f"linear model of these {counted(n_inputs, 'scaled feature')} and a constant with row "
            f"norms at most {self.B:g}"
        )
        bound = (
            f"regret bound {_up(self.regret_bound / n)} per {unit}, {_up(self.regret_bound)} in "
            "total"
        )
        if self.best_linear_at_least <= 0.0:
            return (
                f"The certificate does not yet exclude a perfect {models}: its {bound}, is not "
                "below the loss so far. It tightens with more rounds."
            )
        text = (
            f"Certificate: no {models} could have had an average log loss below "
            f"{_down(self.best_linear_at_least / n)} in hindsight ({bound})."
        )
        if self.scope:
            text += f" Scope: {self.scope}; the price of not knowing a class is not in it."
        return text


def _down(value: float) -> str:
    return _rounded(value, ROUND_FLOOR)


def _up(value: float) -> str:
    return _rounded(value, ROUND_CEILING)


def _rounded(value: float, direction: str) -> str:
    """Round to four digits in the direction that keeps a claim true."""
    rounded = float(Context(prec=4, rounding=direction).create_decimal(value))
    return f"{rounded:.10g}" if abs(rounded) < 1e6 else f"{rounded:.3e}"


def scope_of_growth(first: int, n_classes: int) -> str:
    """Return what a certificate compares after the number of classes grew from `first`."""
    if first == n_classes:
        return ""
    return (
        f"the classes grew from {first} to {n_classes}: in every round the loss of the learner "
        "and that of a linear model W, a row for each class, are those of the softmax over the "
        "classes known in that round"
    )
