"""One compiled boosting regression by itself: that of a booster of one weak learner."""

import numpy as np

from folklearn.boosting import AdaBoostOLMpp
from folklearn.evidence.certificate import Certificate
from folklearn.kernels import boosting as kernels
from tests.reference.weak_learners import CostMinimiser


class BoostingRegression:
    """Scores s and a label l in, better scores out."""

    def __init__(self, *, n_classes, **words):
        self.booster = AdaBoostOLMpp(
            n_features=1, n_classes=n_classes, n_learners=1, **words,
            weak_learner=[CostMinimiser(n_classes)],
        )  # fmt: skip

    @property
    def row(self):
        return self.booster._rows[0]

    def predict(self, s, label):
        """Return the regressed scores (K,), modulo constants."""
        s, out = np.asarray(s, float), np.empty(self.booster.n_classes)
        kernels.regress(self.row, self.booster._kind, self.booster._clip, s, label, out)
        return out

    def update(self, s, label, y, *, weight=1.0):
        """Learn that y was true; return the log loss of the regressed scores before."""
        of_regression = self.row, self.booster._kind, self.booster._clip
        loss = kernels.learn_regression(*of_regression, np.asarray(s, float), label, y, weight)
        self.booster._n_rounds += 1
        return loss

    def certificate(self, alpha=kernels.REACH):
        """Return what is proven against one alpha, by default against all."""
        bound = float(self.booster._regret_bounds(abs(alpha))[0])
        return Certificate(float(self.row[kernels.LOSS]), bound, self.booster.n_rounds, B=2.0)
