"""The rounding and the unsolved part of projections are in the certificate of ONS."""

import numpy as np
import pytest

from folklearn import Ons
from folklearn.baselines import kernels
from folklearn.baselines.kernels import FAR, HEAVY, LOST, SLACK, TRACE
from folklearn.kernels.linear_models import length

RELATIVE = 2.0**-53


def test_every_round_counts_the_rounding_of_w(rng):
    model = Ons(n_features=2, n_classes=3, B=0.5)
    for _ in range(20):
        before = model._totals[SLACK]
        model.update(rng.normal(size=2) / 4.0, int(rng.integers(3)))
        largest = 1.0 + model._totals[TRACE]
        rounding = RELATIVE * largest * length(model._W.ravel()) / model._D
        assert model._totals[SLACK] - before >= 2.0 * rounding > 0.0


def test_every_round_counts_what_its_projection_lacks(monkeypatch):
    """A projection that stops a nat from the exact one costs 2/D^2 of it."""
    if not hasattr(kernels.ons_round, "py_func"):
        round_, project = kernels.ons_round, kernels.project
    else:
        pytest.skip("a compiled kernel keeps the projection it was compiled with")

    def sloppy(*arguments):
        gap, solved = project(*arguments)
        return gap + 1.0, solved

    model = Ons(n_features=2, n_classes=3, B=0.5)
    monkeypatch.setattr(kernels, "project", sloppy)
    last = model.B, model.R, model._D, model._beta, 1e15
    round_(
        model._W, model._matrices, model._totals, np.array([0.5, 0.5]), 0, np.empty(0), 1.0,
        *last,
    )  # fmt: skip
    assert model._totals[SLACK] >= 2.0 / model._D**2


def test_slack_is_in_the_bound():
    model = Ons(n_features=1, n_classes=2, B=0.5)
    before = model.certificate().regret_bound
    model._totals[SLACK] += 1.0
    assert model.certificate().regret_bound == pytest.approx(before + 0.5 / model._beta)


@pytest.mark.parametrize(
    ("x", "weight", "count"), [(0.5, 1.5, HEAVY), (1.1, 1.0, FAR), (1e15, 1.0, LOST)]
)
def test_what_voids_the_certificate_is_counted(x, weight, count):
    model = Ons(n_features=1, n_classes=2, B=0.5)
    model.update([0.5], 1)
    assert model.certificate().valid
    model.update([x], 0, weight=weight)
    assert model._totals[count] == 1.0
    assert not model.certificate().valid
