"""The learner that `auto` made in version 0.1, from the parts that are still here."""

from folklearn import Folklore, Gaf, Laplace, Mixture, Ogd

REACHES = (3.0, 16.0, 25.0, 40.0, 63.0, 100.0, 300.0)  # B of the certified experts
TIGHTEST = 10.0  # B of the one whose certificates were the tightest
RIDGES = (0.02, 0.003)
RATES = (2.0, 4.0)


def auto_of_version_0_1(*, n_features: int, n_classes: int) -> Mixture:
    """Return the twelve experts of 0.1 in a Bayesian mixture, for contexts of norm about 1."""
    sizes = {"n_features": n_features, "n_classes": n_classes}
    certified = [Folklore(**sizes, B=reach) for reach in REACHES]
    tight = Gaf(**sizes, B=TIGHTEST, improved=True, n_points=None)
    benign = [Laplace(**sizes, lam=ridge) for ridge in RIDGES]
    tracking = [Ogd(**sizes, B=REACHES[-1], rate=rate) for rate in RATES]
    return Mixture([*certified, tight, *benign, *tracking], retire=True)
