"""What is proven about the regret of an agent of rewards, and under which hypotheses."""

import math
from dataclasses import dataclass

from folklearn.utils import counted


@dataclass(frozen=True)
class RegretCertificate:
    r"""A bound on the expected regret of all decisions so far, and what it rests on.

    The regret of a decision is the expected reward of the best action minus that of the action
    that was played. Its expectation over the draws of the agent and the rewards is at most

    .. math:: E\Big[\sum_t c_t + \eta \sum_a C_a\Big]

    and `bound` is what stands in the brackets, measured: :math:`c_t` is the most that round t
    could cost beyond :math:`\eta_t` times its excess log loss (known before it is played),
    :math:`\eta` the largest :math:`\eta_t`, and :math:`C_a` the certified log-loss regret of the
    regressions. The proof is in docs/theory/reductions.md.

    Attributes
    ----------
    n_rounds : decisions whose reward was learned.
    explored : the sum of :math:`c_t`.
    eta : the price of a nat, :math:`\eta`.
    regression : the sum of :math:`C_a`, in nats.
    B : row norm of the linear models that the regressions compete with; the logit of a reward,
        the difference of two rows, has weights of norm at most 2 B.
    features : what the regressions are linear in.
    reason : why nothing is proven, or an empty string.
    """

    n_rounds: int
    explored: float
    eta: float
    regression: float
    B: float
    features: str = "its features"
    reason: str = ""

    @property
    def valid(self) -> bool:
        """Whether the proof applies to what happened; the hypotheses remain the caller's."""
        return not self.reason

    @property
    def bound(self) -> float:
        """The bound on the expected regret; infinite if nothing is proven."""
        return math.inf if self.reason else self.explored + self.eta * self.regression

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """What must be true of the world for the bound to hold."""
        return (
            "the expected reward of an action is the sigmoid of a linear function of "
            f"{self.features}, with weights of norm at most {2.0 * self.B:g} that never change",
            "contexts may depend on all that happened before, but not on the draw to come",
            "every reward is told before the next decision, and none twice, those of logs included",
            "the number of decisions does not depend on the rewards",
        )

    def in_words(self) -> str:
        """Return what is proven, with its hypotheses, in plain sentences."""
        if self.reason:
            return f"Nothing is proven about the regret: {self.reason}."
        if not self.n_rounds:
            return "Nothing is proven about the regret: there was no decision yet."
        share = self.bound / self.n_rounds
        worth = "" if share < 1.0 else " This says nothing yet: no regret is above 1 a decision."
        return (
            f"In expectation the rewards of {counted(self.n_rounds, 'decision')} fall short of "
            f"those of the best actions by at most the mean of a bound that is {self.bound:.4g} "
            f"here, {share:.2g} a decision: "
            f"{self.explored:.4g} for exploring, and {self.regression:.4g} nats of regret of the "
            f"regressions at {self.eta:.3g} each.{worth} It holds if {'; '.join(self.hypotheses)}."
        )
