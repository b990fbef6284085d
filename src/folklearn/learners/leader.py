"""The leader: the mode of a ridge over everything seen, for many ridges at the price of one."""

import math
from collections.abc import Sequence

from folklearn import validation
from folklearn.errors import InvalidInputError
from folklearn.kernels.evidence import n_pairs, n_products
from folklearn.kernels.expert_state import ExpertSpec, Forgetting
from folklearn.learners.experts import ExpertLearner, classes_of

RIDGES = (0.3, 0.03, 0.003, 0.0005)  # for contexts of norm about 1
KEPT = 2000  # rows


class Leader(ExpertLearner):
    r"""Follow the leader of several ridges: online maximum likelihood, in one pass.

    Use it on streams whose rows come in no particular order; on streams that drift it is bad
    alone, and `auto` has trackers beside it.

    .. math::
        W_\lambda = \arg\min_W \lambda \|W\|_F^2 + \sum_{\text{kept } s} \ell_s(W)
        + \hat E_{1/2}(W)

    The first rows are kept, with their true loss; every later one is replaced by its quadratic
    at the model of the best ridge so far. All ridges share the one sum of these, and are mixed
    by their losses (Bayes). Modes are refreshed after every twentieth more of rounds (tenth,
    later, and for many unknowns), by two damped Newton steps: O(ln T) refreshes.

    Time (K d)^2 flops a round and O((K d)^3) a refresh; memory 4 (K d)^2 bytes and the kept rows.

    Guarantee: none in advance. Live: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, whatever the learner does.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    ridges : :math:`\lambda` of every leader, positive, for contexts of norm R.
    R : typical norm of x, positive; ridges are multiplied by R^2.
    B : largest row norm of the models that `certificate` speaks of, or several, each of which
        costs a sum more; None collects no evidence.
    kept : rows that keep their true loss, at least 1.
    memory : rounds after which a row counts 1/e, at least 1; a learner that forgets collects no
        evidence. By default for ever.
    max_weight : largest sample weight that will occur, positive.
    device : where the sums are and leaders are refreshed: "cpu", the default, or a device of
        PyTorch such as "cuda" (extra ``gpu``), with results that agree to rounding. It is worth
        while from about a thousand weights, K d, on; see `to`.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Leader
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 4)) / 2
    >>> y = np.argmax(X[:, :3], axis=1)
    >>> model = Leader(n_features=4, n_classes=3)
    >>> P = model.run(X, y)
    >>> bool(np.mean(P[100:].argmax(axis=1) == y[100:]) > 0.95), model.certificate().valid
    (True, True)

    References
    ----------
    docs/theory/evidence.md; Spiegelhalter and Lauritzen (1990) for the quadratics.
    """

    PARAMS = ("n_features", "n_classes", "ridges", "R", "B", "kept", "memory", "max_weight")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        ridges: Sequence[float] = RIDGES,
        R: float = 1.0,
        B: float | Sequence[float] | None = 10.0,
        kept: int = KEPT,
        memory: int | None = None,
        max_weight: float = 1.0,
        device: str | None = None,
    ) -> None:
        self._size(n_features, n_classes)
        self.ridges = tuple(validation.positive("ridges", ridge) for ridge in ridges)
        self.R = validation.positive("R", R)
        self.kept = validation.count("kept", kept, 1)
        self.memory = None if memory is None else validation.count("memory", memory, 1)
        self.max_weight = validation.positive("max_weight", max_weight)
        self.classes = () if self.memory is not None else classes_of(B)
        self.B = max(self.classes, default=math.inf)
        scaled = tuple(ridge * self.R**2 for ridge in self.ridges)
        forgetting: tuple[Forgetting, ...] = ()
        if self.memory is not None:
            forgetting = tuple(Forgetting(ridge, self.memory) for ridge in scaled)
            scaled = ()
        if not (scaled or forgetting or self.classes):
            raise InvalidInputError("a leader needs a ridge, or a B to collect evidence for")
        spec = ExpertSpec(scaled, self.classes, forgetting)
        self._start(spec._replace(kept=self.kept, share=False, unit=self.R), device=device)

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the state takes at other sizes."""
        sums = 1 + len(self.classes)
        rows = self.kept * (n_features + n_classes)
        return int(8 * (sums * n_pairs(n_classes) * n_products(n_features) + rows))
