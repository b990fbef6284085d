"""Learners that let old examples count less."""

import math

import numpy as np
import pytest

import folklearn
from folklearn import Folklore, synthetic
from folklearn.errors import InvalidInputError
from tests.learners.test_folklore import chosen_curvature
from tests.reference.dense_folklore import DenseFolklore


@pytest.mark.parametrize("K", [2, 4])
def test_equals_the_dense_twin_that_is_discounted(K, rng):
    d, B, memory = 3, 5.0, 40
    model = Folklore(n_features=d, n_classes=K, B=B, memory=memory)
    twin = DenseFolklore(d, K, B, model.lam, gamma=chosen_curvature)
    ridge = model.lam * np.eye(K * d)
    for t in range(1, 101):
        x, y = rng.normal(size=d) / 2, int(rng.integers(K))
        np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
        model.update(x, y)
        twin.update(x, y)
        if t % (memory // 10) == 0:
            keep = math.exp(-1 / 10)
            twin.A = keep * twin.A + (1 - keep) * ridge
            twin.G = keep * twin.G
    np.testing.assert_allclose(model.coef(), twin.coef(), atol=1e-8)


@pytest.mark.parametrize("memory", [1, 7, 30, 500])
def test_run_equals_the_loop_and_resumes_exactly(memory, rng, tmp_path):
    X, y = rng.normal(size=(120, 4)) / 2, rng.integers(0, 3, 120)
    together, alone = (Folklore(n_features=4, n_classes=3, memory=memory) for _ in range(2))
    P = together.run(X, y)
    for t, x in enumerate(X):
        np.testing.assert_allclose(alone.predict(x), P[t], atol=1e-9)
        alone.update(x, y[t])
        if t == 50:
            alone.save(tmp_path / "model")
            alone = folklearn.load(tmp_path / "model")
    assert alone.memory == memory


def test_it_follows_a_stream_that_turns():
    X, y = synthetic.drifting(0, 4000, d=3, K=3, B=10.0, turns=4.0)
    losses = {}
    for memory in (None, 300):
        P = Folklore(n_features=3, n_classes=3, B=20.0, memory=memory).run(X, y)
        losses[memory] = -np.log(P[np.arange(4000), y]).mean()
    assert losses[300] < 0.9 * losses[None]


def test_nothing_is_proven(rng):
    model = Folklore(n_features=2, n_classes=2, memory=100)
    model.run(rng.normal(size=(20, 2)), rng.integers(0, 2, 20))
    certificate = model.certificate()
    assert not certificate.valid
    assert math.isinf(certificate.regret_bound)
    assert "forgets (memory=100)" in certificate.reason
    assert math.isinf(model.regret_bound(10))


@pytest.mark.parametrize("bad", [0, -3, 2.5, "long"])
def test_a_bad_memory_is_refused(bad):
    with pytest.raises(InvalidInputError, match="memory must be"):
        Folklore(n_features=2, n_classes=2, memory=bad)
