"""What reads rows several times over: the same on a device, wherever the rows lie."""

import numpy as np
import pytest
from scipy import sparse

from folklearn import Certifier, Leader, best_in_class, load
from folklearn.batch import OnlineToBatch
from folklearn.batch.penalised import fit_penalised
from folklearn.evaluate.regression import regress
from folklearn.evidence.passes import passes_over
from folklearn.kernels.on_torch.expand import DeviceRows
from tests.learners.streams import mixed_stream

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")

D, K = 4, 3
SIZES = {"n_features": D, "n_classes": K}


@pytest.fixture
def rows():
    X, Y, weight = mixed_stream(2, 300, D, K, "weighted")
    X[np.abs(X) < 0.1] = 0.0
    return X, Y, weight


def in_blocks(rows, size=70):
    """A function as the source, which fills the same arrays again and again."""

    def blocks():
        for start in range(0, len(rows[0]), size):
            yield tuple(part[start : start + size].copy() for part in rows)

    return blocks


SOURCES = {
    "arrays": lambda rows: rows,
    "sparse": lambda rows: (sparse.csr_array(rows[0]), *rows[1:]),
    "function": lambda rows: (in_blocks(rows), None, None),
}


@pytest.fixture(params=SOURCES)
def passes(request, rows, device):
    """Those of the CPU, and those of the device."""
    here = passes_over(*rows, **SIZES)
    return here, passes_over(*SOURCES[request.param](rows), **SIZES, device=device.name)


def fitted(passes):
    return regress(passes, **SIZES, tol=1e-8)


def test_the_best_model_and_its_proof(passes):
    here, there = map(fitted, passes)
    assert there.loss + there.penalty == pytest.approx(here.loss + here.penalty, rel=1e-7)
    assert there.at_least == pytest.approx(here.at_least, rel=1e-7)
    np.testing.assert_allclose(there.W, here.W, atol=1e-3)
    assert there.n_rows == here.n_rows


def test_the_penalised_fit(passes):
    here, there = (fit_penalised(one, np.zeros((K, D))) for one in passes)
    assert there.ridge == here.ridge
    assert there.held_out == pytest.approx(here.held_out, rel=1e-9)
    np.testing.assert_allclose(there.W, here.W, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("free", [np.inf, 10_000.0, 0.0], ids=["all", "some", "none"])
def test_rows_that_do_not_fit_are_sent_for_every_pass(free, rows, device, rng, monkeypatch):
    monkeypatch.setattr(type(device), "bytes_free", lambda _: free)
    monkeypatch.setattr("folklearn.kernels.on_torch.expand._MAX_SENT_ROWS", 100)
    sent = []
    send = DeviceRows.of.__func__

    def counted(cls, device, n_classes, X, *rest):
        sent.append(len(X))
        return send(cls, device, n_classes, X, *rest)

    monkeypatch.setattr(DeviceRows, "of", classmethod(counted))
    here = passes_over(*rows, **SIZES)
    there = passes_over(*rows, **SIZES, device=device.name)
    for _ in range(3):
        W = rng.normal(size=(K, D))
        assert there.expand(W).loss == pytest.approx(here.expand(W).loss, rel=1e-9)
    assert sum(sent) == (1 if free == np.inf else 3) * len(rows[0])
    assert max(sent) == 100


def test_the_best_in_class(rows, device):
    X, Y, weight = rows
    words = {"B": 3.0, "n_classes": K, "weight": weight, "tol": 1e-8}
    here = best_in_class(X, Y, **words)
    for one in (X, sparse.csr_array(X)):
        there = best_in_class(one, Y, **words, device=device.name)
        assert there.converged
        assert there.loss == pytest.approx(here.loss, rel=1e-8)  # found in another way
        assert there.at_least <= here.loss
        assert here.at_least <= there.loss


@pytest.fixture
def certifiers(rows, device, rng, monkeypatch):
    """Two that have seen the same predictions, in portions."""
    monkeypatch.setattr("folklearn.evidence.evidence.KEPT_ROWS", 60)
    monkeypatch.setattr("folklearn.evidence.evidence.SETTLED_ROWS", 30)
    X, Y, weight = rows
    P = rng.dirichlet(np.ones(K), size=len(X))
    found = [Certifier(**SIZES, device=place) for place in (None, device.name)]
    for one in found:
        one.observe_many(X[:150], Y[:150], P[:150], weight[:150])
        one.observe_many(X[150:], Y[150:], P[150:], weight[150:])
    return found


def test_a_certifier(certifiers, rows, rng, tmp_path):
    here, there = certifiers
    assert there.loss == here.loss
    W = rng.normal(size=(K, D))
    for words in ({}, {"W": W}):
        one, other = there.certificate(**words), here.certificate(**words)
        assert one.regret_bound == pytest.approx(other.regret_bound, rel=1e-6)
    exact, expected = there.exact(*rows), here.exact(*rows)
    assert exact.best_linear_at_least == pytest.approx(expected.best_linear_at_least, rel=1e-6)
    assert there.evidence.device == there.device
    there.save(tmp_path / "certifier.folk")
    loaded = load(tmp_path / "certifier.folk")
    assert loaded.device == "cpu"
    assert loaded.certificate().regret_bound == pytest.approx(here.certificate().regret_bound)


def test_online_to_batch(rows, device):
    X, Y, weight = rows
    found = []
    for place in ("cpu", device.name):
        learner = Leader(**SIZES, kept=60, device=place)
        found.append(OnlineToBatch(learner).fit(X, Y, weight=weight))
    here, there = found
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=1e-9, atol=1e-9)
    assert there.guarantee() == pytest.approx(here.guarantee(), rel=1e-9)
