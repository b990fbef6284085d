"""AIOLI: efficient improper learning for online logistic regression (Jézéquel et al. 2020)."""

from folklearn import validation
from folklearn.errors import InvalidInputError
from folklearn.evidence import bounds
from folklearn.learners.second_order import SecondOrderLearner


class Aioli(SecondOrderLearner):
    r"""AIOLI, the binary ancestor of FOLKLORE, on the same state.

    Use it to compare with FOLKLORE on two classes; for anything else use `Folklore`.

    AIOLI regularises with :math:`\phi_t = \ell(\cdot, 0) + \ell(\cdot, 1)`. For the logit
    difference :math:`m = (W_1 - W_0) x`, in its own coordinates
    :math:`\theta = W_1 - W_0, \|\theta\| \le B_\theta = 2B`, it predicts the root of

    .. math:: m = \mu_0 - \tfrac12\, x^\top A^{-1} x \tanh(m/2),

    which in the reduced coordinates of this library is the fixed point of FOLKLORE with
    pull 1 instead of 1/2: FOLKLORE for K = 2 is AIOLI with :math:`\phi_t` halved, lam
    halved and the same gamma.

    Time O(d^2) and memory 8 d^2 bytes per round.

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, itself at most `folklearn.evidence.bounds.aioli`.

    Parameters
    ----------
    n_features : number of features d.
    n_classes : must be 2.
    B : largest row norm of W; the paper's bound on :math:`\theta` is 2B.
    R : bound on the norm of x; it sets the default ``lam`` and AIOLI's own gamma.
    lam : ridge on W, by default 2R/B, which is the paper's default on :math:`\theta`.
    improved : use the largest valid curvature of each round instead of AIOLI's own
        constant 1/(2 + 4BR), which holds as long as :math:`\|x\| \le R`.

    Examples
    --------
    >>> from folklearn import Aioli
    >>> model = Aioli(n_features=2, B=5.0)
    >>> losses = [model.update([0.6, 0.8], 1) for _ in range(20)]
    >>> bool(model.predict([0.6, 0.8])[1] > 0.8), model.certificate().valid
    (True, True)

    References
    ----------
    Jézéquel, Gaillard and Rudi (2020), "Efficient improper learning for online logistic
    regression", COLT.
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "lam", "improved")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int = 2,
        B: float = 10.0,
        R: float = 1.0,
        lam: float | None = None,
        improved: bool = False,
    ) -> None:
        self._size(n_features, n_classes)
        if self.n_classes != 2:
            raise InvalidInputError(
                f"Aioli is for two classes, got n_classes={self.n_classes}: use Folklore, "
                "which generalises it"
            )
        self.B = validation.positive("B", B)
        self.R = validation.positive("R", R)
        self.lam = validation.positive("lam", 2.0 * self.R / self.B if lam is None else lam)
        self.improved = bool(improved)
        own = 1.0 / (2.0 + 4.0 * self.B * self.R)
        self._start(gamma=None if self.improved else own, pull=1.0)

    @property
    def can_grow(self) -> bool:
        """False: `grown` takes more features, but a third class is refused."""
        return False

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds` with contexts of norm at most R."""
        return bounds.aioli(
            n_rounds,
            n_features=self.n_features,
            B=self.B,
            R=self.R,
            lam=self.lam,
            improved=self.improved,
        )
