"""Certificates: proven statements about linear models in hindsight."""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


@dataclass(frozen=True)
class Certificate:
    """A proven statement about every linear model in hindsight.

    It is about all linear models, each with its penalty counted (`C`); or, of learners that keep to
    a class of the paper, about those of row norm at most `B`; or about one model (neither). A
    certificate with numbers that are not finite is not valid.

    Attributes
    ----------
    loss : total (weighted) log loss of the learner so far, in nats; NaN if it keeps none.
    regret_bound : no model has a total loss, with its penalty, below ``loss - regret_bound``.
    n_rounds : number of rounds so far.
    C : inverse of the penalty, as in scikit-learn, if it is counted: half the squares of the
        weights over C (for two classes, of the difference of theirs).
    B : the row norm that the statement covers, if it is about a norm.
    penalty : what half the squares of the weights of a model are multiplied by: 1 / C, or 2 / C.
    valid : False if the proof does not apply; the bound is then infinite.
    reason : why it does not apply, or an empty string.
    scope : which losses are compared, if not those over all classes in every round.
    models : what the models are linear in, in words; by default the features as given.
    """

    loss: float
    regret_bound: float
    n_rounds: int
    C: float | None = None
    B: float | None = None
    penalty: float = 0.0
    valid: bool = True
    reason: str = ""
    scope: str = ""
    models: str = "the features as given"

    def __post_init__(self) -> None:
        if self.valid and not self._is_finite():
            object.__setattr__(self, "valid", False)
            reason = f"the loss is {self.loss:g} and the regret bound {self.regret_bound:g}"
            object.__setattr__(self, "reason", reason)
        if not self.valid:
            object.__setattr__(self, "regret_bound", math.inf)

    def _is_finite(self) -> bool:  # a certificate of given predictions may have an infinite loss
        return math.isfinite(self.loss) and math.isfinite(self.regret_bound)

    def __repr__(self) -> str:
        if not self.valid:
            return f"Certificate(not valid: {self.reason})"
        n = max(1, self.n_rounds)
        least = round_down(self.best_linear_at_least / n)
        return (
            f"Certificate({self.n_rounds} rounds, loss {self.loss / n:.4g} a round; "
            f"{self._every} {self._one_model} has at least {least})"
        )

    @property
    def _every(self) -> str:
        return "the given" if self.C is None and self.B is None else "every fixed"

    @property
    def _one_model(self) -> str:
        of_norm = "" if self.B is None else f" with row norms at most {self.B:g}"
        return f"linear model of {self.models}{of_norm}"

    @property
    def _penalty_counted(self) -> str:
        return "" if self.C is None else f", its penalty (C = {self.C:g}) counted"

    @property
    def best_linear_at_least(self) -> float:
        """A lower bound on the total loss of the best model of the class in hindsight."""
        return self.loss - self.regret_bound if self.valid else -math.inf

    def at_norm(self, norm: float) -> float:
        """Return a lower bound on the total loss of models of at most this Frobenius norm.

        Without a penalty; 0 if this certificate does not cover them all.
        """
        if self.C is None and not (self.B is not None and norm <= self.B):
            return 0.0
        return self.best_linear_at_least - 0.5 * self.penalty * norm**2 * (1.0 + 1e-12)

    @property
    def bound_name(self) -> str:
        """A name for the lower bound, which says what it is about."""
        if self.B is not None:
            return f"lower bound for linear models of norm up to {round_down(self.B)}"
        return "lower bound for linear models with their penalty"

    def in_words(self, weight: float | None = None) -> str:
        """Return in a sentence what is proven; averages are over `weight`, or the rounds."""
        if not self.valid:
            return f"There is no lower bound: {self.reason}."
        n = self.n_rounds if weight is None else weight
        if not self.best_linear_at_least > 0.0:
            return (
                f"There is no useful lower bound yet: a {self._one_model} may have had a loss of "
                "0. More rows are needed."
            )
        weights = "" if self.C is None else ", whatever its weights,"
        words = (
            f"Lower bound: {self._every} {self._one_model}{weights} has an average log loss of at "
            f"least {round_down(self.best_linear_at_least / n)} on these rows"
            f"{self._penalty_counted}; this model had {self.loss / n:.4f}, each row predicted "
            "before its label was known"
        )
        if self.regret_bound > 0.0:
            none = "it is not" if self._every == "the given" else "none of them is"
            gain = round_up(self.regret_bound / n)
            words += f", so that {none} better by more than {gain}{self._penalty_counted}"
        return f"{words}."

    def in_full(self) -> str:
        """Return what is proven, and no more, with all of its terms, on average over the rounds."""
        if not self.valid:
            return f"There is no certificate: {self.reason}."
        n, total = self.n_rounds, round_up(self.regret_bound)
        bound = f"regret bound {round_up(self.regret_bound / n)} per round, {total} in total"
        if self.best_linear_at_least <= 0.0:
            return (
                f"The certificate does not yet exclude a perfect {self._one_model}: its {bound}, "
                "is not below the loss so far. It tightens with more rounds."
            )
        text = (
            f"Certificate: {self._every} {self._one_model} has an average log loss of at least "
            f"{round_down(self.best_linear_at_least / n)} on these rows{self._penalty_counted} "
            f"({bound})."
        )
        return f"{text} Scope: {self.scope}." if self.scope else text


def round_down(value: float) -> str:
    """Return four digits of a number, rounded down: what is at least that remains so."""
    return _round_towards(value, ROUND_FLOOR)


def round_up(value: float) -> str:
    """Return four digits of a number, rounded up: what is at most that remains so."""
    return _round_towards(value, ROUND_CEILING)


def _round_towards(value: float, direction: str) -> str:
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
