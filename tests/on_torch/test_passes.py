"""What reads rows several times over: the same on a device, wherever the rows lie."""

import numpy as np
import pytest
from scipy import sparse

from folklearn import Certifier, Leader, best_in_class, load
from folklearn.batch import OnlineToBatch
from folklearn.batch.penalised import fit_penalised
from folklearn.evaluate.best_linear import refine
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


def refined(passes):
    return refine(passes, **SIZES, B=5.0)


def test_the_best_model_and_its_proof(passes):
    here, there = map(refined, passes)
    assert there.converged
    assert there.n_passes == here.n_passes
    assert there.loss == pytest.approx(here.loss, rel=1e-9)
    assert there.at_least == pytest.approx(here.at_least, rel=1e-9)
    np.testing.assert_allclose(there.W, here.W, atol=1e-6)
    assert there.evidence.n_rounds == here.evidence.n_rounds


def test_the_penalised_fit(passes):
    here, there = (fit_penalised(one, np.zeros((K, D))) for one in passes)
    assert there.ridge == here.ridge
    assert there.held_out == pytest.approx(here.held_out, rel=1e-9)
    np.testing.assert_allclose(there.W, here.W, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("free", [np.inf, 10_000.0, 0.0], ids=["all", "some", "none"])
def test_rows_that_do_not_fit_are_sent_for_every_pass(free, rows, device, monkeypatch):
    monkeypatch.setattr(type(device), "bytes_free", lambda _: free)
    monkeypatch.setattr("folklearn.kernels.on_torch.expand._MAX_SENT_ROWS", 100)
    sent = []
    send = DeviceRows.of.__func__

    def counted(cls, device, n_classes, X, *rest):
        sent.append(len(X))
        return send(cls, device, n_classes, X, *rest)

    monkeypatch.setattr(DeviceRows, "of", classmethod(counted))
    monkeypatch.setattr("folklearn.evaluate.best_linear.select_backend", lambda *_: "pairs")
    here = refined(passes_over(*rows, **SIZES))
    there = refined(passes_over(*rows, **SIZES, device=device.name))
    assert there.loss == pytest.approx(here.loss, rel=1e-9)
    assert there.at_least == pytest.approx(here.at_least, rel=1e-9)
    assert sum(sent) == (len(rows[0]) if free == np.inf else there.n_passes * len(rows[0]))
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
    """Two that have seen the same predictions, some rows one by one."""
    monkeypatch.setattr("folklearn.evaluate.windows.Leader", early_leader)
    X, Y, weight = rows
    P = rng.dirichlet(np.ones(K), size=len(X))
    found = [Certifier(**SIZES, B=5.0, device=place) for place in (None, device.name)]
    for one in found:
        one.observe_many(X[:150], Y[:150], P[:150], weight[:150])
        for t in range(150, 200):
            one.observe(X[t], Y[t], P[t], weight[t])
        one.observe_many(X[200:], Y[200:], P[200:], weight[200:])
    return found


def early_leader(**words):
    return Leader(**words, kept=60)


def test_a_certifier(certifiers, rows, tmp_path):
    here, there = certifiers
    assert there._reference._sums is not None
    assert there.loss == here.loss
    assert there.leader_loss == pytest.approx(here.leader_loss, rel=1e-9)
    W = 0.3 * here._reference.coef()
    for words in ({}, {"B": 2.0}, {"W": W}):
        one, other = there.certificate(**words), here.certificate(**words)
        assert one.regret_bound == pytest.approx(other.regret_bound, rel=1e-9)
    exact, expected = there.exact(*rows), here.exact(*rows)
    assert exact.linear_at_least == pytest.approx(expected.linear_at_least, rel=1e-9)
    assert exact.linear_at_least >= there.certificate().linear_at_least
    assert there.evidence.device == there.device
    there.save(tmp_path / "certifier.folk")
    loaded = load(tmp_path / "certifier.folk")
    assert loaded.device == "cpu"
    assert loaded.certificate().regret_bound == pytest.approx(here.certificate().regret_bound)


@pytest.mark.parametrize("select", ["last", "average"])
def test_online_to_batch(select, rows, device):
    X, Y, weight = rows
    found = []
    for place in ("cpu", device.name):
        learner = Leader(**SIZES, kept=60, device=place)
        found.append(OnlineToBatch(learner, select=select).fit(X, Y, weight=weight))
    here, there = found
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=1e-9, atol=1e-9)
    if select == "average":
        assert there.guarantee() == pytest.approx(here.guarantee(), rel=1e-9)
