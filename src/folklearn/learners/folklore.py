"""FOLKLORE: fast online K-class logistic regression (Agarwal, Kale and Zimmert 2021)."""

import math

from folklearn import validation
from folklearn.evidence import bounds
from folklearn.learners.second_order import SecondOrderLearner


class Folklore(SecondOrderLearner):
    r"""Online multiclass logistic regression with logarithmic regret and a live certificate.

    Use it on any stream of labelled examples: no learning rate, each example is learned
    once, and `certificate` says at every moment how much better any linear model of row
    norm at most B could have done in hindsight. Prefer a first-order method when the state
    of ((K-1) d)^2 numbers does not fit in memory.

    Follow the regularised leader on quadratic lower bounds of the loss, with the improper
    regulariser :math:`\phi_t` that minimises the worst case over the label to come:

    .. math::
        W_t = \arg\min_W \lambda \|W\|_F^2 + \sum_{s<t} \hat\ell_s(W) + \phi_t(W), \qquad
        \hat\ell_t(W) = \ell_t + \langle W - W_t, \nabla \ell_t\rangle
        + \gamma_t \|W - W_t\|^2_{\nabla^2 \ell_t}

    with :math:`z_t = W_t x_t` and :math:`p_t = \mathrm{softmax}(z_t)`. Differs from the
    paper's Algorithm 1 in the update and in :math:`\gamma`, which are wrong as printed, and
    in working in (K-1) d dimensions; see docs/theory/folklore.md for every deviation.

    Time O(d^2 K^3) and memory 8 ((K-1) d)^2 bytes per round, neither growing with t.

    Guarantee, for every stream, hard or soft labels, any ``lam`` and any R: regret against
    every W of row norm at most B is at most ``certificate().regret_bound``. For unit weights
    and contexts of norm at most R that is at most `folklearn.evidence.bounds.folklore`, which is
    O((BR + ln K) d K ln T).

    Parameters
    ----------
    n_features : number of features d, at least 1.
    n_classes : number of classes K, at least 2.
    B : largest row norm of the linear models to compete with, positive. With contexts of
        norm about 1, 10 is a good start; a larger B trusts the data faster.
    R : rough bound on the norm of x; it only sets the default ``lam``.
    lam : ridge :math:`\lambda`, positive; by default 2R/B.
    gamma : curvature :math:`\gamma`, positive. By default the largest constant that is
        valid in each round. A number is used as given, and the certificate becomes invalid
        once a round's valid constant is below it.
    memory : rounds after which an example counts 1/e of what it did, at least 1, for streams
        that drift; by default for ever. Examples lose weight ten times within one memory,
        at O(n^3) each, n = (K-1) d: keep it well above n. A learner that forgets has neither
        certificate nor regret bound.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Folklore
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 4)) / 2
    >>> y = np.argmax(X[:, :3], axis=1)
    >>> model = Folklore(n_features=4, n_classes=3, B=10.0)
    >>> P = model.run(X, y)
    >>> P.shape, bool(np.mean(P.argmax(axis=1) == y) > 0.9)
    ((500, 3), True)
    >>> model.certificate().valid
    True

    References
    ----------
    Agarwal, Kale and Zimmert (2021), "Efficient Methods for Online Multiclass Logistic
    Regression", Algorithm 1, Theorems 1 and 2.
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "lam", "gamma", "memory")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        lam: float | None = None,
        gamma: float | None = None,
        memory: int | None = None,
    ) -> None:
        self._size(n_features, n_classes)
        self.B = validation.positive("B", B)
        self.R = validation.positive("R", R)
        self.lam = validation.positive("lam", 2.0 * self.R / self.B if lam is None else lam)
        self.gamma = None if gamma is None else validation.positive("gamma", gamma)
        self.memory = None if memory is None else validation.count("memory", memory, 1)
        self._start(gamma=self.gamma)

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds` with contexts of norm at most R."""
        if self.memory is not None:
            return math.inf
        return bounds.folklore(
            n_rounds,
            n_features=self.n_features,
            n_classes=self.n_classes,
            B=self.B,
            R=self.R,
            lam=self.lam,
            gamma=self.gamma,
        )
