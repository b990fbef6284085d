"""Evidence on a device: the same numbers as on the CPU, and never above the truth."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

from folklearn import Evidence, best_in_class, load
from folklearn.kernels import quadratic
from tests.reference import evidence as twin
from tests.test_evidence_proofs import RADII, expansion_point, one_stream, rows_of, slack

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")

N_STREAMS = 60


def both_places(device, d, K, B=10.0):
    words = {"n_features": d, "n_classes": K, "B": B}
    return Evidence(**words), Evidence(**words, device=device.name)


def added(device, rng, T=200):
    """The same rows here and there, and models."""
    X, Y, weight, at = rows_of(rng, T)
    found = both_places(device, 3, 4)
    for one in found:
        one.add(X, Y, at=at, weight=weight)
    return (*found, 0.5 * at)


def assert_same(found, expected):
    assert found.lower_bound() == pytest.approx(expected.lower_bound(), rel=1e-9)
    assert found.lower_bound(B=1.0) == pytest.approx(expected.lower_bound(B=1.0), rel=1e-9)
    assert found.n_rounds == expected.n_rounds
    assert found.total_weight == pytest.approx(expected.total_weight, rel=1e-12)
    np.testing.assert_allclose(found._totals, expected._totals, rtol=1e-12)


@pytest.mark.parametrize("least_size", [0, 1500], ids=["floor there", "floor here"])
@pytest.mark.parametrize("part", range(4))
def test_no_floor_is_above_the_best_model(part, least_size, device, seed, monkeypatch):
    monkeypatch.setattr(quadratic, "_MIN_DEVICE_UNKNOWNS", least_size)
    rng = np.random.default_rng([seed, 90, part])
    T, d, K = int(rng.integers(1, 17)), int(rng.integers(1, 5)), int(rng.integers(2, 6))
    B = RADII[part]
    streams = [one_stream(rng, T, d, K) for _ in range(N_STREAMS)]
    best, losses = twin.best_many(*(np.array(one) for one in zip(*streams, strict=True)), B)
    for (X, Y, weight), model, loss in zip(streams, best, losses, strict=True):
        here, there = both_places(device, d, K, B)
        point = expansion_point(rng, model, B)
        for evidence in (here, there):
            evidence.add(X, Y, at=point, weight=weight)
        allowed = loss + slack(X, weight, B)
        assert there.value(model) <= allowed
        assert there.lower_bound() <= allowed
        unit = float(weight @ (1.0 + B * np.linalg.norm(X, axis=1)))
        assert there.lower_bound() == pytest.approx(here.lower_bound(), rel=1e-9, abs=1e-9 * unit)
        assert there.value(model) == pytest.approx(here.value(model), rel=1e-9, abs=1e-12 * unit)


def test_it_adds_up_as_on_the_cpu(device, rng):
    here, there, W = added(device, rng)
    assert_same(there, here)
    assert there.value(W) == pytest.approx(here.value(W), rel=1e-11)
    assert_same(there + there, here + here)
    assert_same(0.3 * there, 0.3 * here)
    assert_same(there.grown(n_features=5, n_classes=6), here.grown(n_features=5, n_classes=6))
    for one in (there + there, 0.3 * there, there.grown(n_features=5)):
        assert one.device == device.name
    certificate, expected = there.certificate(500.0), here.certificate(500.0)
    assert certificate.regret_bound == pytest.approx(expected.regret_bound, rel=1e-9)


def test_evidence_of_two_places_is_added_where_the_first_is(device, rng):
    here, there, _ = added(device, rng)
    for one, other in ((here, there), (there, here)):
        both = one + other
        assert both.device == one.device
        assert_same(both, here + here)
    assert_same(there, here)


def test_it_moves(device, rng):
    here, there, _ = added(device, rng)
    assert here.to(device.name).device == device.name
    assert there.to("cpu").device == "cpu"
    assert_same(here.to(device.name), here)
    for name, part in there.to("cpu").to_record().arrays.items():
        np.testing.assert_allclose(part, here.to_record().arrays[name], rtol=1e-11, atol=1e-12)
    moved = there.to("cpu")
    moved.add(np.ones((1, 3)), [0])
    assert_same(there, here)


def test_it_is_saved_and_copied(device, rng, tmp_path):
    here, there, _ = added(device, rng)
    there.save(tmp_path / "evidence.folk")
    for loaded in (load(tmp_path / "evidence.folk"), Evidence.load(tmp_path / "evidence.folk")):
        assert loaded.device == "cpu"
        assert_same(loaded, here)
    for twice in (copy.deepcopy(there), pickle.loads(pickle.dumps(there))):
        assert twice.device == device.name
        twice.add(np.ones((1, 3)), [0])
        assert twice.n_rounds == there.n_rounds + 1
    assert_same(there, here)


def test_memory_is_that_of_full_matrices(device):
    here, there = both_places(device, 6, 3)
    assert there.n_bytes == here.n_bytes + 8 * 3 * (36 - 21)


def test_many_rows_and_sparse_ones(device, rng, monkeypatch):
    X, Y, weight, at = rows_of(rng, 500)
    X[rng.random(X.shape) < 0.6] = 0.0
    here, there = both_places(device, 3, 4)
    monkeypatch.setattr("folklearn.kernels.on_torch.expand._MAX_SENT_ROWS", 64)
    here.add(X, Y, at=at, weight=weight)
    there.add(X, Y, at=at, weight=weight)
    assert_same(there, here)
    sparsely = both_places(device, 3, 4)[1]
    sparsely.add(sparse.csr_array(X), Y, at=at, weight=weight, n_jobs=2)
    assert_same(sparsely, here)


def test_a_refused_row_changes_nothing(device, rng):
    here, there, _ = added(device, rng)
    with pytest.raises(ValueError, match="finite"):
        there.add([[0.0, 1.0, np.nan]], [0])
    assert_same(there, here)


def test_the_best_model_is_its_own_floor(device, rng):
    X, Y, weight, _ = rows_of(rng, 80)
    best = best_in_class(X, Y, B=3.0, n_classes=4, weight=weight, tol=1e-12)
    _, there = both_places(device, 3, 4, 3.0)
    there.add(X, Y, at=best.W, weight=weight)
    assert there.lower_bound() == pytest.approx(best.loss, rel=1e-9)
    assert there.lower_bound() <= best.loss
