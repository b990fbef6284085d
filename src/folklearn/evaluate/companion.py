"""The learner that goes along with anybody's predictions: rows are expanded where it stands."""

from folklearn import validation
from folklearn.kernels.blas import device_named
from folklearn.learners.lanes import PAIRS, lane_of
from folklearn.learners.leader import Leader
from folklearn.learners.sparse_sgd import Wide


def companion(
    *, n_features: int, n_classes: int, B: float, R: float, device: str | None = None
) -> Leader | Wide:
    """Return a learner whose evidence speaks of the class of B, as tight as the size allows.

    It takes rows of any weight through the verbs that do not check.
    """
    B = validation.positive("B", B)
    d = validation.count("n_features", n_features, 1)
    K = validation.count("n_classes", n_classes, 2)
    if lane_of(d, K, device_named(device)) == PAIRS:
        most = validation.MAX_WEIGHT
        return Leader(
            n_features=d, n_classes=K, ridges=(), B=B, R=R, max_weight=most, device=device
        )
    return Wide(n_features=d, n_classes=K, B=B, R=R)
