"""The learner without knobs: a mixture over B, certified, and over ridges, uncertified."""

from folklearn import problem
from folklearn.learners.folklore import Folklore
from folklearn.learners.mixture import Mixture

REACHES = (3.0, 10.0, 30.0, 100.0, 300.0)  # B R of the certified experts
RIDGES = (0.1, 0.01, 0.001)  # of the experts with the true curvature, for R = 1


def auto(
    *, n_features: int, n_classes: int, R: float = 1.0, retire: bool = True, max_weight: float = 1.0
) -> Mixture:
    """Return a `Mixture` of `Folklore` learners that needs no B and no learning rate.

    Five experts are certified, with B R of 3, 10, 30, 100 and 300. Three use the true
    curvature gamma = 1/2, which certifies nothing but wins on large, benign data. Being
    eight costs at most ln 8 = 2.1 nats over the whole stream.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    R : typical norm of x, which should be about 1 for the defaults to make sense.
    retire, max_weight : as for `Mixture`.

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
    """
    R = problem.positive("R", R)
    sizes = {"n_features": n_features, "n_classes": n_classes}
    certified = [Folklore(**sizes, B=reach / R, R=R) for reach in REACHES]
    benign = [
        Folklore(**sizes, B=REACHES[-1] / R, R=R, gamma=0.5, lam=lam * R**2) for lam in RIDGES
    ]
    return Mixture([*certified, *benign], retire=retire, max_weight=max_weight)
