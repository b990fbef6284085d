"""An audit by passes that send what they sum elsewhere, as those on Spark do."""

import pickle
from functools import partial
from threading import Lock

import numpy as np
import pytest
from scipy.sparse import csr_array

from folklearn.batch.penalised import fit_penalised, fit_preconditioned
from folklearn.evaluate.regression import logistic_regression, regress
from folklearn.evidence.passes import Passes, passes_over
from folklearn.scale.spark_passes import ScaledPasses

cloudpickle = pytest.importorskip("cloudpickle", reason="joblib brings it, in most versions")


class SentPasses(Passes):
    def __init__(self, passes):
        self.passes, self.lock = passes, Lock()  # a lock cannot be sent, nor can a data frame

    def total(self, size, sum_chunk):
        return self.passes.total(size, pickle.loads(cloudpickle.dumps(sum_chunk)))


def test_scaled_rows(rng):
    X = rng.normal(size=(3000, 3)) * [1.0, 100.0, 0.01] + [0.0, 1e4, 3.0]
    y = (X[:, :1] + rng.gumbel(size=(3000, 3))).argmax(axis=1)
    sizes = {"n_features": 3, "n_classes": 3}
    sent = SentPasses(passes_over(X, y, None, **sizes))
    scaled, constant = ScaledPasses(sent, 3), 0
    Z = np.hstack([np.ones((3000, 1)), (X - X.mean(axis=0)) / X.std(axis=0)])
    sizes["n_features"], passes = Z.shape[1], []
    found = regress(scaled, **sizes, constant=constant, tol=1e-9, report=passes.append)
    here = logistic_regression(Z, y, n_classes=3, constant=constant, tol=1e-9)
    assert found.at_least == pytest.approx(here.at_least, rel=1e-8)
    assert passes[-1].gap <= 1e-9 * (1.0 + passes[-1].loss)


def test_wide_rows(rng):
    X = csr_array(rng.normal(size=(200, 4000)) * (rng.random((200, 4000)) < 0.005))
    y, sizes = rng.integers(3, size=200), {"n_features": 4000, "n_classes": 3}
    found = regress(SentPasses(passes_over(X, y, None, **sizes)), **sizes)
    here = logistic_regression(X, y, n_classes=3)
    assert found.at_least == pytest.approx(here.at_least, rel=1e-9)


def test_penalised_fits(rng):
    """The same bits, and what is sent does not hold the passes."""
    X = rng.normal(size=(500, 3))
    y = (X + rng.gumbel(size=(500, 3))).argmax(axis=1)
    here = passes_over(X, y, None, n_features=3, n_classes=3)
    words = {"ridge": 0.1, "freedom": np.ones(3)}
    for fit in (fit_penalised, partial(fit_preconditioned, P=np.eye(3), **words)):
        found, expected = (fit(passes, np.zeros((3, 3))) for passes in (SentPasses(here), here))
        assert found.W.tobytes() == expected.W.tobytes()
        assert found[1:] == expected[1:]
