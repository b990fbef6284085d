"""Evidence on a device: the same numbers as on the CPU, and never above the truth."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

from folklearn import Evidence, load
from folklearn.evidence import evidence as module
from tests.reference.hostile import one_stream
from tests.reference.loss import linear_losses

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")

N_STREAMS = 15


@pytest.fixture(autouse=True)
def _few_rows_wait(monkeypatch):
    monkeypatch.setattr(module, "KEPT_ROWS", 24)
    monkeypatch.setattr(module, "SETTLED_ROWS", 8)


def both_places(device, d, K):
    words = {"n_features": d, "n_classes": K}
    return Evidence(**words), Evidence(**words, device=device.name)


def some_rows(rng, T=200, d=3, K=4):
    return rng.normal(size=(T, d)), rng.dirichlet(np.ones(K), size=T), rng.uniform(0, 5, size=T)


def added(device, rng, T=200):
    """The same rows here and there."""
    X, Y, weight = some_rows(rng, T)
    found = both_places(device, 3, 4)
    for one in found:
        one.add(X, Y, weight=weight)
    return found


def assert_same(found, expected):
    assert found.lower_bound() == pytest.approx(expected.lower_bound(), rel=1e-6)
    assert found.n_rounds == expected.n_rounds
    assert len(found._parts()["rows.X"]) == len(expected._parts()["rows.X"])
    assert found.total_weight == pytest.approx(expected.total_weight, rel=1e-12)


@pytest.mark.parametrize("part", range(4))
def test_no_bound_is_above_a_model(part, device, seed):
    rng = np.random.default_rng([seed, 90, part])
    for _ in range(N_STREAMS):
        d, K = int(rng.integers(1, 5)), int(rng.integers(2, 6))
        X, Y, weight = one_stream(rng, int(rng.integers(30, 100)), d, K)
        X = np.clip(X, -1e4, 1e4)
        _, there = both_places(device, d, K)
        there.add(X, Y, weight=weight)
        bound, best = there.minimise()
        for W in (best, 0.0 * best, best + rng.normal(size=best.shape)):
            loss = float(weight @ linear_losses(X, Y, W))
            slack = 1e-12 * (weight @ np.linalg.norm(X, axis=1)) * (1.0 + np.abs(W).max())
            slack += 1e-12 * (loss + weight.sum())
            assert bound <= loss + 0.5 * float((there.penalties * W**2).sum()) + slack
            assert there.value(W) <= loss + slack


def test_it_adds_up_as_on_the_cpu(device, rng):
    here, there = added(device, rng)
    assert_same(there, here)
    W = rng.normal(size=(4, 3))
    assert there.value(W) == pytest.approx(here.value(W), rel=1e-6)
    assert_same(there + there, here + here)
    assert_same(0.3 * there, 0.3 * here)
    assert_same(there.grown(n_features=5, n_classes=6), here.grown(n_features=5, n_classes=6))
    for one in (there + there, 0.3 * there, there.grown(n_features=5)):
        assert one.device == device.name
    certificate, expected = there.certificate(500.0), here.certificate(500.0)
    assert certificate.regret_bound == pytest.approx(expected.regret_bound, rel=1e-6)


def test_evidence_of_two_places_is_added_where_the_first_is(device, rng):
    here, there = added(device, rng)
    for one, other in ((here, there), (there, here)):
        both = one + other
        assert both.device == one.device
        assert_same(both, here + here)
    assert_same(there, here)


def test_it_moves(device, rng):
    here, there = added(device, rng)
    assert here.to(device.name).device == device.name
    assert there.to("cpu").device == "cpu"
    assert_same(here.to(device.name), here)
    moved = there.to("cpu")
    moved.add(np.ones((1, 3)), [0])
    assert_same(there, here)


def test_it_is_saved_and_copied(device, rng, tmp_path):
    here, there = added(device, rng)
    there.save(tmp_path / "evidence.folk")
    loaded = load(tmp_path / "evidence.folk")
    assert loaded.device == "cpu"
    assert_same(loaded, here)
    for twice in (copy.deepcopy(there), pickle.loads(pickle.dumps(there))):
        assert twice.device == device.name
        twice.add(np.ones((1, 3)), [0])
        assert twice.n_rounds == there.n_rounds + 1
    assert_same(there, here)


def test_sparse_rows(device, rng):
    X, Y, weight = some_rows(rng, 500)
    X[rng.random(X.shape) < 0.6] = 0.0
    here, there = both_places(device, 3, 4)
    here.add(X, Y, weight=weight)
    there.add(sparse.csr_array(X), Y, weight=weight)
    assert_same(there, here)


def test_a_refused_row_changes_nothing(device, rng):
    here, there = added(device, rng)
    with pytest.raises(ValueError, match="finite"):
        there.add([[0.0, 1.0, np.nan]], [0])
    assert_same(there, here)
