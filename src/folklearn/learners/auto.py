"""The learner without knobs: leaders, trackers and FOLKLORE in fixed share, or a wider backend."""

import math
from collections.abc import Sequence
from typing import Any, Self

from folklearn import validation
from folklearn.evidence import bounds
from folklearn.evidence.evidence import Evidence
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.kernels.blas import device_named
from folklearn.kernels.evidence import n_pairs, n_products
from folklearn.kernels.expert_state import ExpertSpec, Forgetting, Tracker
from folklearn.learners.backends import BLOCKS, PAIRS, WIDE, chosen, select_backend
from folklearn.learners.base import Learner, WarmStart
from folklearn.learners.class_gaussians import ClassGaussians
from folklearn.learners.experts import ExpertLearner, classes_of
from folklearn.learners.folklore import Folklore
from folklearn.learners.leader import KEPT, RIDGES
from folklearn.learners.mixture import DEFAULT_B, Mixture
from folklearn.learners.sparse_sgd import SparseSgd

# All for contexts of norm about 1.
FORGETTING = ((0.03, 300.0), (0.01, 2000.0))  # ridge and memory of leaders that forget
TRACKERS = (
    Tracker(1.0),
    Tracker(4.0),
    Tracker(1.0, biased=True),
    Tracker(4.0, biased=True),
    Tracker(32.0, decaying=True),
    Tracker(0.5, adaptive=True, biased=True),
)
WORST_CASE = 10.0  # B of FOLKLORE
_NO_CLASS = 1e-12  # B of evidence that was not collected: it speaks of no model
BLOCK_RIDGES = (0.3, 0.03, 0.003)  # of the class blocks


class Auto(ExpertLearner):
    r"""A mixture that needs no B and no learning rate; made by `auto`.

    Experts: leaders at four ridges (`Leader`), one more from which each certificate is
    expanded, two leaders that forget, gradient descent at constant rates with and without a
    unit intercept, at a decaying rate, AdaGrad, and `Folklore` for the worst case. They were
    chosen with the ten streams of experiments/real_data in view. Fixed share:

    .. math:: \pi \leftarrow (1 - \alpha_t) \frac{\pi \circ e^{-\ell_t / w_{\max}}}{Z}
        + \frac{\alpha_t}{N}, \qquad \alpha_t = \frac1{t+1}

    At 512, 1024, 2048, ... rounds the three dear experts may retire: a leader that forgets if it
    is more than 20 nats behind the best and carried less than 1/500 of the weight since the last
    time, Folklore, by far the dearest, sooner. All others stay. One compiled call to predict and
    one to learn, and one each for Folklore while it is there; time and memory per round as
    `Leader` has them, and O(N K d).

    Guarantee: regret against every W of row norm at most B is at most
    ``certificate().regret_bound``, from evidence, whatever the experts do. The loss is at most that
    of the best expert that has not retired plus :math:`w_{\max}(\ln N + \ln T)`, N = 14; so it is
    always against the four ridges, the leader of the certificate and the six ways of gradient
    descent. Against an expert that has retired this holds up to the round in which it went, and of
    what it would have done later nothing is known. With ``retire=False`` it holds against all of
    them, and `regret_bound` is that of Folklore with these nats. See Theorem 2 of
    docs/theory/evidence.md, also for sequences of experts.
    """

    PARAMS = ("n_features", "n_classes", "R", "B", "retire", "max_weight")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        R: float = 1.0,
        B: float | Sequence[float] | None = 10.0,
        retire: bool = True,
        max_weight: float = 1.0,
        worst_case: bool = True,
        forgetting: bool = True,
        device: str | None = None,
    ) -> None:
        self._size(n_features, n_classes)
        self.R = validation.positive("R", R)
        self.classes = classes_of(B)
        self.B = max(self.classes, default=math.inf)
        self.retire = bool(retire)
        self.max_weight = validation.positive("max_weight", max_weight)
        R2 = self.R**2
        spec = ExpertSpec(
            tuple(ridge * R2 for ridge in RIDGES),
            self.classes,
            tuple(Forgetting(ridge * R2, memory) for ridge, memory in FORGETTING if forgetting),
            tuple(
                one._replace(rate=one.rate / (self.R if one.adaptive else R2)) for one in TRACKERS
            ),
            folklore=worst_case,
            kept=KEPT,
            share=True,
            review=self.retire,
            unit=self.R,
        )
        sizes = {"n_features": self.n_features, "n_classes": self.n_classes}
        folklore = Folklore(**sizes, B=WORST_CASE / self.R, R=self.R) if worst_case else None
        self._start(spec, folklore, device=device)

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Learner:
        """Return a learner with room for more features and classes; this one is unchanged.

        New features come last and are as if they had been 0 so far. New classes come last and
        were not there before. Beyond the sizes of its backend it is what `auto` returns there,
        begun where this one stands; its certificate is of first order from then on, and speaks
        of classes up to the B of this one.
        """
        sizes: dict[str, Any] = self._larger_sizes(n_features, n_classes)
        backend = select_backend(**sizes, device=self._place)
        if backend != PAIRS:
            return self._moved(backend).grown(**sizes)
        own = self if select_backend(**sizes) == PAIRS else self._without_dear_ones()
        return ExpertLearner.grown(own, **sizes)

    def _without_dear_ones(self) -> "Auto":
        """Return a learner without `Folklore` and leaders that forget; see `device` in `auto`."""
        own = self._shallow()
        spec = own._state.spec
        forgetting = range(spec.n_modes, spec.n_modes + len(spec.forgetting))
        own._keep([e for e in range(spec.n_linear) if e not in forgetting])
        return own

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        # The experts are in the state.
        return super()._construct(**words, worst_case=False, forgetting=False)

    def _moved(self, backend: str) -> Learner:
        """Return what `auto` is in another backend, begun where this one stands."""
        own: dict[str, Any] = {"n_features": self.n_features, "n_classes": self.n_classes}
        moved = auto(
            **own,
            R=self.R,
            B=self.classes or None,
            retire=self.retire,
            max_weight=self.max_weight,
            worst_case=self._folklore is not None,
            backend=backend,
        )
        if not self.n_rounds:
            return moved
        evidence = (
            self.evidence(B=max(self.classes)) if self.classes else Evidence(**own, B=_NO_CLASS)
        )
        start = WarmStart(
            self.coef(),
            self.curvature(),
            LinearEvidence.tangent_to(evidence),
            self.loss,
            self.n_rounds,
        )
        moved._begin(start)
        return moved

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds` with |x| at most R and unit weights.

        Infinity without Folklore, if experts may retire, or for classes larger than Folklore's.
        """
        certain = self._folklore is not None and not self.retire and bool(self.classes)
        if not certain or max(self.classes) > WORST_CASE / self.R:
            return math.inf
        bound = bounds.folklore(
            n_rounds,
            n_features=self.n_features,
            n_classes=self.n_classes,
            B=WORST_CASE / self.R,
            R=self.R,
        )
        n_experts = self._state.spec.n_experts
        return bound + self.max_weight * (math.log(n_experts) + math.log(max(n_rounds, 1)))

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        """Return about how much memory the state takes at other sizes."""
        backend = select_backend(n_features, n_classes)
        if backend != PAIRS:
            return auto(n_features=1, n_classes=2, backend=backend).expected_bytes(
                n_features, n_classes
            )
        sums = 1 + len(self.classes) + len(FORGETTING)
        inner = ((n_classes - 1) * n_features) ** 2 + KEPT * (n_features + n_classes)
        return int(8 * (sums * n_pairs(n_classes) * n_products(n_features) + inner))


def auto(
    *,
    n_features: int,
    n_classes: int,
    R: float = 1.0,
    B: float | Sequence[float] | None = 10.0,
    retire: bool = True,
    max_weight: float = 1.0,
    worst_case: bool = True,
    backend: str | None = None,
    device: str | None = None,
) -> Learner:
    """Return the learner to use if nothing else is known: it needs no B and no learning rate.

    The size decides what it is (`folklearn.learners.backends`), and its `repr` says so:

    ========  ==============================================  ================================
    backend      for                                             what it returns
    ========  ==============================================  ================================
    pairs     up to about a thousand weights, K d             `Auto`: leaders, trackers and a
                                                              certified `Folklore`
    blocks    many classes, few features                      `Mixture` of `ClassGaussians` and
                                                              `SparseSgd`, with fixed share
    wide      everything else, and sparse rows                `SparseSgd`
    ========  ==============================================  ================================

    All of them have a certificate. `certificate` speaks of B = 10 unless told otherwise.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    R : typical norm of x, which should be about 1 for the defaults to make sense.
    B : largest row norm of the models that certificates speak of, or several: in the first
        backend one sum of evidence each, in the others every B can be asked about.
    retire : stop dear experts that carry no weight; what is lost by it is said in `Auto`, `Mixture`
        and `SparseSgd`. With False nobody stops.
    max_weight : largest sample weight that will occur; the guarantee is paid in its unit.
    worst_case : in the first backend, have `Folklore` among the experts; a round without it takes
        a third less time, and nothing is known of the regret in advance.
    backend : "pairs", "blocks" or "wide", to decide otherwise than by size.
    device : in the first backend, where leaders are refreshed and evidence is collected, "cpu" or a
        device of PyTorch such as "cuda" (extra ``gpu``); trackers, `Folklore` and other backends
        stay on the CPU. On a device the first backend reaches further, to twenty thousand weights:
        beyond its limit on the CPU without `Folklore` and leaders that forget, whose every
        round or block would cost a refresh.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import auto
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 4)) / 2
    >>> y = np.argmax(X[:, :3], axis=1)
    >>> model = auto(n_features=4, n_classes=3)
    >>> P = model.run(X, y)
    >>> bool(np.mean(P[300:].argmax(axis=1) == y[300:]) > 0.95), model.certificate().valid
    (True, True)

    >>> auto(n_features=10**6, n_classes=20)
    SparseSgd(n_features=1000000, n_classes=20, R=1.0, B=10.0, retire=True, max_weight=1.0)
    """
    sizes: dict[str, Any] = {
        "n_features": validation.count("n_features", n_features, 1),
        "n_classes": validation.count("n_classes", n_classes, 2),
    }
    place = device_named(device)
    which = chosen(backend, **sizes, device=place)
    if which == PAIRS:
        fits = place is None or select_backend(**sizes) == PAIRS
        return Auto(
            **sizes,
            R=R,
            B=B,
            retire=retire,
            max_weight=max_weight,
            worst_case=worst_case and fits,
            forgetting=fits,
            device=device,
        )
    spoken_of = (*classes_of(B), DEFAULT_B)[0]
    wide = SparseSgd(**sizes, R=R, B=spoken_of, retire=retire, max_weight=max_weight)
    if which == WIDE:
        return wide
    blocks = [ClassGaussians(**sizes, ridge=ridge, R=R) for ridge in BLOCK_RIDGES]
    return Mixture(
        [*blocks, wide], share=True, retire=retire, max_weight=max_weight, spoken_of=spoken_of
    )


def lane_taken(learner: Learner) -> str:
    """Return the backend of a learner that `auto` returned."""
    return {Auto: PAIRS, Mixture: BLOCKS, SparseSgd: WIDE}[type(learner)]
