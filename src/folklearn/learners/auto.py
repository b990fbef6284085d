"""The learner without knobs: a mixture over B, over ridges, and over rates that track drift."""

from folklearn import problem
from folklearn.learners.folklore import Folklore
from folklearn.learners.gaf import Gaf
from folklearn.learners.laplace import Laplace
from folklearn.learners.mixture import Mixture
from folklearn.learners.ogd import Ogd

REACHES = (3.0, 16.0, 25.0, 40.0, 63.0, 100.0, 300.0)  # B R of the certified experts
TIGHTEST = 10.0  # B R of the one whose certificates are the tightest
RIDGES = (0.02, 0.003)  # of the experts with the true curvature, for R = 1
RATES = (2.0, 4.0)  # of the experts that forget, for R = 1


def auto(
    *, n_features: int, n_classes: int, R: float = 1.0, retire: bool = True, max_weight: float = 1.0
) -> Mixture:
    """Return a `Mixture` that needs no B and no learning rate.

    Seven `Folklore` experts are certified, with B R from 3 to 300, and so is `Gaf` with B R =
    10, whose certificates are tighter. Two are `Laplace`, which certifies nothing but wins on
    benign data. Two are gradient descent with a constant step, which costs next to nothing
    and wins where the stream drifts. Being twelve costs at most ln 12 = 2.5 nats over the
    whole stream. The grid was chosen with the ten streams of experiments/real_data in view.

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
    widest = REACHES[-1] / R
    certified = [Folklore(**sizes, B=reach / R, R=R) for reach in REACHES]
    tight = Gaf(**sizes, B=TIGHTEST / R, R=R, improved=True, n_points=None)
    benign = [Laplace(**sizes, lam=lam * R**2) for lam in RIDGES]
    tracking = [Ogd(**sizes, B=widest, R=R, rate=rate / R**2) for rate in RATES]
    return Mixture([*certified, tight, *benign, *tracking], retire=retire, max_weight=max_weight)
