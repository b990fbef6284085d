"""Learners that meet classes and features late."""

from dataclasses import asdict

import numpy as np
import pytest

import folklearn
from folklearn import ClassGaussians, Folklore, Gaf, Laplace, Mixture, Ogd, Ons, auto
from folklearn.errors import InvalidInputError
from tests.learners.test_folklore import chosen_curvature, dense_reduced_inverse, full_inverse
from tests.reference.dense_folklore import DenseFolklore
from tests.reference.loss import log_loss

GROWING = {
    "folklore": lambda d, K: Folklore(n_features=d, n_classes=K, B=6.0),
    "gaf": lambda d, K: Gaf(n_features=d, n_classes=K, B=6.0, n_points=64),
    "laplace": lambda d, K: Laplace(n_features=d, n_classes=K, B=6.0),
    "ogd": lambda d, K: Ogd(n_features=d, n_classes=K, B=6.0),
    "class blocks": lambda d, K: ClassGaussians(n_features=d, n_classes=K),
    "auto": lambda d, K: auto(n_features=d, n_classes=K),
}
growing = pytest.mark.parametrize("make", GROWING.values(), ids=GROWING)


def dense_twin_with_another_class(twin):
    """All K d coordinates, padded: past losses do not depend on the new row of W."""
    d, K = twin.d, twin.K
    larger = DenseFolklore(d, K + 1, twin.B, twin.lam, gamma=twin.gamma)
    larger.A[: K * d, : K * d] = twin.A
    larger.G[: K * d] = twin.G
    larger.constant, larger.loss = twin.constant, twin.loss
    larger.delta_sum, larger.bracket_sum = twin.delta_sum, twin.bracket_sum
    return larger


def test_late_classes_equal_the_padded_dense_twin(rng):
    d, B = 3, 5.0
    model = Folklore(n_features=d, n_classes=2, B=B)
    twin = DenseFolklore(d, 2, B, model.lam, gamma=chosen_curvature)
    for K in (2, 3, 4, 5):
        if K > 2:
            model = model.grown(n_classes=K)
            twin = dense_twin_with_another_class(twin)
        for t in range(40):
            x = rng.normal(size=d) / 2
            y = K - 1 if t == 0 else int(rng.integers(K))
            np.testing.assert_allclose(model.predict(x), twin.predict(x), atol=1e-9)
            assert model.update(x, y) == pytest.approx(twin.update(x, y), abs=1e-9)
        inverse = dense_reduced_inverse(twin, d, K)
        assert np.linalg.norm(full_inverse(model) - inverse) <= 1e-9 * np.linalg.norm(inverse)
        np.testing.assert_allclose(model.coef(), twin.coef(), atol=1e-8)
        certificate = model.certificate()
        assert certificate.loss == pytest.approx(twin.loss, rel=1e-10)
        quarter = certificate.regret_bound - model.lam * K * B**2
        assert quarter == pytest.approx(twin.certificate_sum, rel=1e-8)


@growing
def test_a_late_feature_was_always_zero(make, rng):
    X, y = rng.normal(size=(60, 4)) / 2, rng.integers(0, 3, 60)
    X[:30, 2:] = 0.0
    told, late = make(4, 3), make(2, 3)
    expected = told.run(X, y)
    early = late.run(X[:30, :2], y[:30])
    late = late.grown(n_features=4)
    np.testing.assert_allclose(np.vstack([early, late.run(X[30:], y[30:])]), expected, atol=1e-9)
    np.testing.assert_allclose(late.predict(X), told.predict(X), atol=1e-9)


@growing
def test_growing_keeps_what_was_known(make, rng):
    X, y = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
    model = make(3, 2)
    model.run(X, y)
    before = model.predict(X)
    model = model.grown(n_classes=4)
    after = model.predict(X)
    assert after.shape == (80, 4)
    np.testing.assert_allclose(after.sum(axis=1), 1.0, atol=1e-12)
    agrees = (after[:, 0] > after[:, 1]) == (before[:, 0] > before[:, 1])
    assert agrees[np.abs(before[:, 0] - 0.5) > 0.02].all()
    assert model.n_classes == 4
    model.run(X, rng.integers(0, 4, 80))


@growing
def test_a_grown_learner_resumes_exactly(make, rng, tmp_path):
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    model = make(2, 2)
    model.run(X[:, :2], y)
    model = model.grown(n_features=3, n_classes=5)
    model.save(tmp_path / "grown")
    resumed = folklearn.load(tmp_path / "grown")
    labels = rng.integers(0, 5, 40)
    np.testing.assert_array_equal(resumed.run(X, labels), model.run(X, labels))
    np.testing.assert_equal(asdict(resumed.certificate()), asdict(model.certificate()))


@pytest.mark.parametrize("name", ["folklore", "class blocks", "auto"])
def test_the_certificate_after_growth_says_what_it_covers_and_is_true(name, rng):
    """Folklore counts losses over the classes known in each round, evidence over all of them."""
    d = 2
    model = GROWING[name](d, 2)
    assert not model.certificate().scope
    played = []
    for K in (2, 4, 5):
        model = model.grown(n_classes=K)
        for _ in range(60):
            x = rng.normal(size=d)
            y = int(rng.integers(K))
            model.update(x, y)
            played.append((x, y, K))
    certificate = model.certificate()
    assert certificate.valid
    assert ("from 2 to 5" in certificate.scope) == (name == "folklore")
    for _ in range(50):
        W = rng.normal(size=(5, d))
        W *= 6.0 * rng.random() / np.linalg.norm(W, axis=1).max()
        known = 5 if name == "auto" else 0
        loss = sum(log_loss(W[: known or K] @ x, y) for x, y, K in played)
        penalty = 0.5 * certificate.penalty * float((W**2).sum())
        assert loss + penalty >= certificate.best_linear_at_least


def test_growing_with_no_change_changes_nothing(rng):
    model = Folklore(n_features=3, n_classes=3)
    model.run(rng.normal(size=(20, 3)), rng.integers(0, 3, 20))
    before = model.to_record()
    after = model.grown().grown(n_features=3, n_classes=3).to_record()
    assert after.config == before.config
    assert all(np.array_equal(after.arrays[part], before.arrays[part]) for part in before.arrays)


@growing
@pytest.mark.parametrize("sizes", [{"n_classes": 2}, {"n_features": 1}, {"n_classes": 2.5}])
def test_shrinking_is_refused(make, sizes):
    model = make(2, 3)
    with pytest.raises(InvalidInputError, match=next(iter(sizes))):
        model.grown(**sizes)
    assert (model.n_features, model.n_classes) == (2, 3)


def test_a_mixture_grows_whole_or_not_at_all():
    experts = [Folklore(n_features=2, n_classes=2), Ons(n_features=2, n_classes=2)]
    model = Mixture(experts)
    with pytest.raises(InvalidInputError, match=r"^Ons.*cannot grow"):
        model.grown(n_classes=3)
    assert model.experts == experts
    assert [expert.n_classes for expert in experts] == [2, 2]
    assert model.n_classes == 2
