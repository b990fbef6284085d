"""Certificates: proven statements about linear models in hindsight."""

import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from folklearn import registry


@dataclass(frozen=True)
class Certificate:
    """A proven statement about every linear model of row norm at most B, in hindsight.

    A certificate with numbers that are not finite is not valid.

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
    models : the class in words, as one of its models; by default those of the features as given.
    norm : the largest norm of weights of a class in the model itself, in the unit of B; NaN where
        it is not known, or not linear.
    """

    loss: float
    regret_bound: float
    B: float
    n_rounds: int
    valid: bool = True
    reason: str = ""
    scope: str = ""
    models: str = ""
    norm: float = field(default=math.nan, compare=False)  # of the model, not of the statement

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
            f"Certificate({self.n_rounds} rounds, loss {self.loss / n:.4g} a round; every "
            f"{self._one_model} has at least {round_down(self.best_linear_at_least / n)})"
        )

    @property
    def _one_model(self) -> str:
        default = f"linear model of the features as given with row norms at most {self.B:g}"
        return self.models or default

    def _repr_html_(self) -> str:
        card: str = registry.find("certificate_card")(self)  # pictures lie far above
        return card

    @property
    def best_linear_at_least(self) -> float:
        """A lower bound on the total loss of the best model of the class in hindsight."""
        return self.loss - self.regret_bound if self.valid else -math.inf

    @property
    def bound_name(self) -> str:
        """A name for the lower bound, with the norm of the models that it is about."""
        return f"lower bound for linear models of norm up to {round_down(self.B)}"

    def in_words(self, weight: float | None = None) -> str:
        """Return what is proven in one sentence, which names the models that it is about.

        Averages are over the total weight, the number of rounds if None.
        """
        if not self.valid:
            return f"There is no lower bound: {self.reason}."
        n = self.n_rounds if weight is None else weight
        if not self.best_linear_at_least > 0.0:
            return (
                f"There is no useful lower bound yet: a {self._one_model} may have had a loss of "
                "0. More rows are needed."
            )
        words = (
            f"Lower bound: every fixed {self._one_model} has an average log loss of at least "
            f"{round_down(self.best_linear_at_least / n)} on these rows; this model had "
            f"{self.loss / n:.4f}, each row predicted before its label was known"
        )
        if self.regret_bound > 0.0:
            words += (
                f", so that none of them is better by more than {round_up(self.regret_bound / n)}"
            )
        if not math.isnan(self.norm):
            words += f". Its own weights have the norm {self.norm:.3g} now"
            words += ", which is outside of that class" if self.norm > self.B else ""
        return f"{words}."

    def in_full(self, weight: float | None = None, unit: str = "round") -> str:
        """Return what is proven, and no more, with all of its terms.

        Averages are over the total weight in this unit, the number of rounds if None.
        """
        if not self.valid:
            return f"There is no certificate: {self.reason}."
        n = self.n_rounds if weight is None else weight
        bound = (
            f"regret bound {round_up(self.regret_bound / n)} per {unit}, "
            f"{round_up(self.regret_bound)} in total"
        )
        if self.best_linear_at_least <= 0.0:
            return (
                f"The certificate does not yet exclude a perfect {self._one_model}: its {bound}, "
                "is not below the loss so far. It tightens with more rounds."
            )
        text = (
            f"Certificate: every fixed {self._one_model} has an average log loss of at least "
            f"{round_down(self.best_linear_at_least / n)} on these rows ({bound})."
        )
        return f"{text} Scope: {self.scope}." if self.scope else text


def round_down(value: float) -> str:
    """Return four digits of a number, rounded down: what is at least that remains so."""
    return _round_towards(value, ROUND_FLOOR)


def round_up(value: float) -> str:
    """Return four digits of a number, rounded up: what is at most that remains so."""
    return _round_towards(value, ROUND_CEILING)


def _round_towards(value: float, direction: str) -> str:
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
