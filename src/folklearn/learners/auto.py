"""The learner without knobs: leaders, trackers and FOLKLORE in fixed share, or a wider backend."""

import math
from typing import Any

from folklearn import validation
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.kernels.blas import device_named
from folklearn.kernels.expert_state import ExpertSpec, Forgetting, Tracker
from folklearn.learners.base import Learner, WarmStart
from folklearn.learners.catalogue import BACKENDS, PAIRS, WIDE, select_backend
from folklearn.learners.class_gaussians import ClassGaussians
from folklearn.learners.folklore import Folklore
from folklearn.learners.leader import KEPT, RIDGES, ExpertLearner
from folklearn.learners.mixture import Mixture
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
FOLLOWING = 0.03  # ridge of the covariance by which leaders follow the first rows
WORST_CASE = 10.0  # B of FOLKLORE
BLOCK_RIDGES = (0.3, 0.03, 0.003)  # of the class blocks


class Auto(ExpertLearner):
    r"""A mixture that needs no norm and no learning rate; made by `auto`.

    Experts: leaders at four ridges (`Leader`), two leaders that forget, gradient descent at
    constant rates with and without a unit intercept, at a decaying rate, AdaGrad, and `Folklore`
    for the worst case (chosen with the streams of experiments/real_data in view). Fixed share:

    .. math:: \pi \leftarrow (1 - \alpha_t) \frac{\pi \circ e^{-\ell_t / w_{\max}}}{Z}
        + \frac{\alpha_t}{N}, \qquad \alpha_t = \frac1{t+1}

    In the first 4,000 rounds leaders are refreshed more seldom than those of `Leader`, and follow
    every row in between, as Gaussians whose covariance P (d, d) they and all classes share:

    .. math:: W \leftarrow W + \frac{w (y - p) (Px)^T}{1 + w s / 5 + 2 \lambda r}, \quad
        P^{-1} \leftarrow P^{-1} + h x x^T, \quad s = x^T P x, \; r = \frac{|Px|^2}{s},

    h the curvature w p (1 - p) of an average class in the mixture (unless d is above 500).

    At 128, 256, 512, ... rounds the three dear experts may retire: a leader that forgets if it
    is more than 20 nats behind the best and carried less than 1/500 of the weight since the last
    time, Folklore, by far the dearest, sooner. Time and memory per round are those of `Leader`,
    and O(N K d + d^2).

    Guarantee: regret against every W, its penalty counted, is at most
    ``certificate().regret_bound``, whatever the experts do. The loss is at most that of the best
    expert that has not retired plus :math:`w_{\max}(\ln N + \ln T)`, N = 13; against one that has,
    this holds up to its retirement. With ``retire=False`` `regret_bound` is that of Folklore with
    these nats. See Theorem 2 of docs/theory/leaders.md, also for sequences of experts.
    """

    PARAMS = ("n_features", "n_classes", "R", "retire", "max_weight", "certify")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        R: float = 1.0,
        retire: bool = True,
        max_weight: float = 1.0,
        certify: bool = True,
        worst_case: bool = True,
        forgetting: bool = True,
        device: str | None = None,
    ) -> None:
        self._size(n_features, n_classes, R=R, max_weight=max_weight)
        self.certify = bool(certify)
        self.retire = bool(retire)
        R2 = self.R**2
        spec = ExpertSpec(
            tuple(ridge * R2 for ridge in RIDGES),
            tuple(Forgetting(ridge * R2, memory) for ridge, memory in FORGETTING if forgetting),
            tuple(t._replace(rate=t.rate / (self.R if t.adaptive else R2)) for t in TRACKERS),
            folklore=worst_case, kept=KEPT, share=True, review=self.retire, unit=self.R,
            following=FOLLOWING * R2,
        )  # fmt: skip
        folklore = Folklore(**self._sizes, B=WORST_CASE / self.R, R=self.R) if worst_case else None
        self._start(spec, folklore, device=device)

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Learner:
        """Return a larger learner: of another backend, begun where this one stands, if need be."""
        sizes: dict[str, Any] = self._larger_sizes(n_features, n_classes)
        backend = select_backend(**sizes, device=self._device)
        if backend != PAIRS:
            return self._move_to(backend).grown(**sizes)
        smaller = self._shallow()
        if select_backend(**sizes) != PAIRS:  # without its dear experts, see `device` in `auto`
            spec = self._state.spec
            smaller._keep([e for e in spec.numbers["experts"] if e not in spec.dear])
        return ExpertLearner.grown(smaller, **sizes)

    def _move_to(self, backend: str) -> Learner:
        """Return what `auto` is in another backend, begun where this one stands."""
        moved = auto(**{word: self._word(word) for word in self.PARAMS}, backend=backend)
        if not self.n_rounds:
            return moved
        past = LinearEvidence(**self._sizes)  # of no row, which is below any loss
        if self._evidence is not None:
            past = LinearEvidence.tangent_to(self._evidence)
        moved._begin(WarmStart(self.coef(), self.curvature(), past, self.loss, self.n_rounds))
        return moved

    def regret_bound(self, n_rounds: int) -> float:
        """Return a bound on the regret after `n_rounds` with |x| at most R and unit weights.

        Against models of row norms at most 10 / R. Infinity without Folklore, or if it may retire.
        """
        if self._folklore is None or self.retire:
            return math.inf
        nats = math.log(self._state.spec.n_experts) + math.log(max(n_rounds, 1))
        return self._folklore.regret_bound(n_rounds) + self.max_weight * nats

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        backend = select_backend(n_features, n_classes)
        if backend != PAIRS:
            smallest = auto(n_features=1, n_classes=2, backend=backend)
            return smallest.expected_bytes(n_features, n_classes)
        return super().expected_bytes(n_features, n_classes)


def auto(
    *,
    n_features: int,
    n_classes: int,
    R: float = 1.0,
    retire: bool = True,
    max_weight: float = 1.0,
    certify: bool = True,
    worst_case: bool = True,
    backend: str | None = None,
    device: str | None = None,
) -> Learner:
    """Return the learner to use if nothing else is known: it needs no norm and no learning rate.

    The size decides what it is (`folklearn.learners.catalogue`), and its `repr` says so:

    =======  =====================================  ===============================================
    backend  for                                    what it returns
    =======  =====================================  ===============================================
    pairs    up to about a thousand weights, K d    `Auto`: leaders, trackers, a `Folklore`
    blocks   many classes, few features             `Mixture` of `ClassGaussians` and `SparseSgd`
    wide     everything else, and sparse rows       `SparseSgd`
    =======  =====================================  ===============================================

    All of them have a certificate, about every linear model, its penalty (C = 1) counted.

    Parameters
    ----------
    R : typical norm of x, which should be about 1 for the defaults to make sense.
    retire : stop dear experts that carry no weight, see `Auto`, `Mixture` and `SparseSgd`.
    max_weight : largest sample weight that will occur; the guarantee is paid in its unit.
    certify : in the first backend, collect evidence for `certificate`; in the others it is free.
    worst_case : in the first backend, have `Folklore` among the experts; a round without it takes
        a third less time, and nothing is known of the regret in advance.
    backend : "pairs", "blocks" or "wide", to decide otherwise than by size.
    device : in the first backend, where leaders are refreshed and evidence is collected, "cpu" or a
        device of PyTorch such as "cuda" (extra ``gpu``). There the first backend reaches further,
        to twenty thousand weights: beyond its limit on the CPU without `Folklore` and leaders that
        forget, whose every round or block would cost a refresh.

    Examples
    --------
    >>> from folklearn import auto, synthetic
    >>> X, y = synthetic.stochastic(0, 600, d=4, K=3)
    >>> model = auto(n_features=4, n_classes=3)
    >>> P = model.run(X, y)
    >>> P.shape, bool((P.argmax(axis=1) == y).mean() > 0.6), model.certificate().valid
    ((600, 3), True, True)
    >>> auto(n_features=10**6, n_classes=20)
    SparseSgd(n_features=1000000, n_classes=20, R=1.0, retire=True, max_weight=1.0)
    """
    sizes: dict[str, Any] = {
        "n_features": validation.count("n_features", n_features, 1),
        "n_classes": validation.count("n_classes", n_classes, 2),
    }
    settings: dict[str, Any] = {"R": R, "retire": retire, "max_weight": max_weight}
    target = device_named(device)
    chosen = validation.choice(
        "backend", backend or select_backend(**sizes, device=target), BACKENDS
    )
    if chosen == PAIRS:
        fits = target is None or select_backend(**sizes) == PAIRS
        return Auto(
            **sizes, **settings, certify=certify, worst_case=worst_case and fits,
            forgetting=fits, device=device,
        )  # fmt: skip
    wide = SparseSgd(**sizes, **settings)
    if chosen == WIDE:
        return wide
    blocks = [ClassGaussians(**sizes, ridge=ridge, R=R) for ridge in BLOCK_RIDGES]
    return Mixture([*blocks, wide], share=True, retire=retire, max_weight=max_weight)
