"""`Leader` and `auto` on a device are what they are on the CPU, to rounding."""

import copy
import pickle

import numpy as np
import pytest

import folklearn
from folklearn import Leader, auto
from folklearn.kernels import experts, quadratic
from folklearn.learners.auto import Auto
from folklearn.learners.catalogue import PAIRS, select_backend
from tests.learners.streams import mixed_stream

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")

KEPT = 60  # rows that are kept


def leaders(d, K, device, **settings):
    words = {"n_features": d, "n_classes": K, "kept": KEPT, **settings}
    return Leader(**words), Leader(**words, device=device.name)


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def assert_same(found, expected):
    """Of two learners: everything that they say of themselves."""
    assert found.n_rounds == expected.n_rounds
    assert found.loss == pytest.approx(expected.loss, rel=1e-9)
    assert [one.name for one in found.experts] == [one.name for one in expected.experts]
    near([one[1:] for one in found.experts], [one[1:] for one in expected.experts])
    near(found.coef(), expected.coef())
    near(found.curvature(), expected.curvature())
    led, expected_led = found.leader(), expected.leader()
    assert (led is None) == (expected_led is None)
    if led is not None:
        assert led[0] == expected_led[0]
        near(led[1], expected_led[1])
    one, other = found.certificate(), expected.certificate()
    assert (one.valid, one.n_rounds) == (other.valid, other.n_rounds)
    if one.valid:
        assert one.regret_bound == pytest.approx(other.regret_bound, abs=1e-6 * expected.loss)


def is_there(learner):
    return learner._sums is not None


@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
@pytest.mark.parametrize(("d", "K"), [(4, 2), (3, 3), (2, 5)])
def test_a_leader_runs_as_on_the_cpu(d, K, kind, device):
    X, Y, weight = mixed_stream(d + K, 400, d, K, kind)
    y = Y if kind == "soft" else Y.argmax(axis=1)
    here, there = leaders(d, K, device)
    near(there.run(X, y, weight=weight), here.run(X, y, weight=weight))
    assert is_there(there)
    assert there.device == device.name
    assert_same(there, here)
    W = 0.5 * here.coef() / np.linalg.norm(here.coef(), axis=1).max()
    assert there.certificate(W).regret_bound == pytest.approx(here.certificate(W).regret_bound)
    near(there.predict(X[:5]), here.predict(X[:5]))


def test_rows_come_one_by_one(device):
    X, Y, _ = mixed_stream(1, 2 * KEPT, 3, 3, "hard")
    here, there = leaders(3, 3, device)
    for x, y in zip(X, Y.argmax(axis=1), strict=True):
        near(there.predict(x), here.predict(x))
        assert there.update(x, y) == pytest.approx(here.update(x, y), rel=1e-9, abs=1e-12)
    assert is_there(there)
    assert_same(there, here)


@pytest.mark.parametrize("certify", [False, True])
def test_one_by_one_then_many_then_one_by_one(certify, device):
    X, Y, weight = mixed_stream(5, 700, 3, 3, "weighted")
    y = Y.argmax(axis=1)
    here, there = leaders(3, 3, device, certify=certify)
    P = here.run(X, y, weight=weight)
    found = np.empty_like(P)

    def singly(start, stop):
        for t in range(start, stop):
            found[t] = there.predict(X[t])
            there.update(X[t], y[t], weight=weight[t])

    singly(0, 140)
    found[140:500] = there.run(X[140:500], y[140:500], weight=weight[140:500])
    singly(500, 590)  # some rows wait
    found[590:] = there.run(X[590:], y[590:], weight=weight[590:])
    near(found, P)
    assert_same(there, here)


@pytest.mark.parametrize("size", [1, 7, 64, 300])
def test_rows_may_come_in_parts_of_any_size(size, device):
    X, Y, weight = mixed_stream(6, 450, 2, 3, "weighted")
    here, there = leaders(2, 3, device)
    expected = here.run(X, Y, weight=weight)
    parts = [slice(start, start + size) for start in range(0, len(X), size)]
    found = [there.run(X[part], Y[part], weight=weight[part]) for part in parts]
    near(np.concatenate(found), expected)
    assert_same(there, here)


def test_long_stretches_are_cut(device, monkeypatch):
    monkeypatch.setattr("folklearn.kernels.on_torch.experts.MOST_ROWS", 13)
    X, Y, weight = mixed_stream(7, 400, 3, 2, "weighted")
    here, there = leaders(3, 2, device)
    near(there.run(X, Y, weight=weight), here.run(X, Y, weight=weight))
    assert_same(there, here)


def test_rows_of_no_weight_change_nothing_but_the_count(device):
    X, Y, _ = mixed_stream(8, 300, 3, 2, "hard")
    here, there = leaders(3, 2, device)
    weight = np.ones(300)
    weight[150:] = 0.0
    near(there.run(X, Y, weight=weight), here.run(X, Y, weight=weight))
    assert there.n_rounds == 300
    assert_same(there, here)


@pytest.mark.parametrize("memory", [40, 400])
def test_leaders_that_forget(memory, device):
    X, Y, weight = mixed_stream(9, 600, 3, 3, "weighted")
    here, there = leaders(3, 3, device, memory=memory)
    expected = here.run(X, Y, weight=weight)
    cut = 250
    found = [there.run(X[:cut], Y[:cut], weight=weight[:cut])]
    for t in range(cut, 300):
        found.append(there.predict(X[t])[None])
        there.update(X[t], Y[t], weight=weight[t])
    found.append(there.run(X[300:], Y[300:], weight=weight[300:]))
    near(np.concatenate(found), expected)
    assert is_there(there)
    near([one.loss for one in there.experts], [one.loss for one in here.experts])
    near(there.to("cpu")._state["G"], here._state["G"])


@pytest.mark.parametrize("when", [20, 200])
def test_features_and_classes_that_come_late(when, device):
    X, Y, _ = mixed_stream(10, 500, 4, 4, "hard")
    y = Y.argmax(axis=1)
    here, there = leaders(2, 3, device)
    old = np.flatnonzero(y[:when] < 3)
    later = slice(when, None)
    found = []
    for learner in (here, there):
        learner.run(X[old, :2], y[old])
        grown = learner.grown(n_features=4, n_classes=4)
        assert grown.device == learner.device
        found.append((grown, grown.run(X[later], y[later])))
    (larger, expected), (there, P) = found
    near(P, expected)
    assert is_there(there)
    assert_same(there, larger)


def test_evidence_is_where_the_sums_are_and_merges_with_any_other(device):
    X, Y, weight = mixed_stream(11, 300, 3, 3, "weighted")
    here, there = leaders(3, 3, device)
    here.run(X, Y, weight=weight)
    there.run(X, Y, weight=weight)
    own, theirs = here.evidence(), there.evidence()
    assert (own.device, theirs.device) == ("cpu", device.name)
    assert (own + theirs).device == "cpu"
    assert (theirs + own).device == device.name
    expected = (own + own).lower_bound()
    for both in (own + theirs, theirs + own, theirs + theirs):
        assert both.lower_bound() == pytest.approx(expected, rel=1e-9)
        assert both.n_rounds == 2 * own.n_rounds


def test_asking_changes_nothing(device):
    X, Y, weight = mixed_stream(12, 400, 3, 3, "weighted")
    asked, silent = (leaders(3, 3, device)[1] for _ in range(2))
    found = []
    for learner in (asked, silent):
        P = [learner.run(X[:150], Y[:150], weight=weight[:150])]
        for t in range(150, 180):
            learner.update(X[t], Y[t], weight=weight[t])
        if learner is asked:
            learner.certificate()
            learner.certificate(0.1 * learner.coef())
            learner.evidence()
            learner.curvature()
            learner.to_record()
            copy.deepcopy(learner).run(X, Y, weight=weight)
            learner.grown(n_features=4).run(np.pad(X, ((0, 0), (0, 1))), Y, weight=weight)
        P.append(learner.run(X[180:], Y[180:], weight=weight[180:]))
        found.append(np.concatenate(P))
    np.testing.assert_allclose(*found, rtol=1e-12)
    assert_same(asked, silent)


def test_it_is_saved_as_on_the_cpu_and_comes_back_there(device, tmp_path):
    X, Y, weight = mixed_stream(13, 400, 3, 3, "weighted")
    half = 200
    here, there = leaders(3, 3, device)
    for learner in (here, there):
        learner.run(X[:half], Y[:half], weight=weight[:half])
    there.save(tmp_path / "leader.folk")
    loaded = folklearn.load(tmp_path / "leader.folk")
    assert (loaded.device, there.device) == ("cpu", device.name)
    assert_same(loaded, here)
    mine, theirs = here.to_record(), loaded.to_record()
    assert mine.config == theirs.config
    counters = [
        experts.T,
        experts.ROUNDS,
        experts.N_KEPT,
        experts.NEXT,
        experts.BEST,
        experts.REFRESHES,
    ]
    for record in (mine, theirs):
        assert record.arrays["plan"][counters].tolist() == here._state.plan[counters].tolist()
    assert loaded.to(device.name) is loaded
    assert is_there(loaded)
    expected = here.run(X[half:], Y[half:], weight=weight[half:])
    near(loaded.run(X[half:], Y[half:], weight=weight[half:]), expected)
    assert_same(loaded.to("cpu"), here)
    assert not is_there(loaded)


def test_rows_are_let_go_of_as_on_the_cpu(device):
    X, Y, weight = mixed_stream(4, 700, 3, 3, "weighted")
    y = Y.argmax(axis=1)
    here, there = leaders(3, 3, device)
    for rows in (slice(0, 20), slice(20, 400), slice(400, 700)):
        found, expected = (
            each.run(X[rows], y[rows], weight=weight[rows]) for each in (there, here)
        )
        near(found, expected)
        for learner in (here, there):
            learner._release_rows()
        assert not there._state["kept_x"].any()
        assert there.device == device.name
        assert_same(there, here)
    assert is_there(there)


def test_to_where_it_is_changes_nothing(device):
    X, Y, _ = mixed_stream(14, 200, 3, 3, "hard")
    for learner in leaders(3, 3, device):
        learner.run(X, Y)
        state, sums = learner._state, learner._sums
        learner.to(learner.device)
        assert learner._state is state
        assert learner._sums is sums


def test_copies_are_learners_of_their_own(device):
    X, Y, weight = mixed_stream(15, 400, 3, 3, "weighted")
    _, there = leaders(3, 3, device)
    there.run(X[:200], Y[:200], weight=weight[:200])
    copies = [copy.deepcopy(there), pickle.loads(pickle.dumps(there))]
    P = [one.run(X[200:], Y[200:], weight=weight[200:]) for one in (*copies, there)]
    for one, found in zip(copies, P, strict=False):
        assert one.device == device.name
        np.testing.assert_allclose(found, P[-1], rtol=1e-12)


def test_progress_is_reported(device):
    X, Y, _ = mixed_stream(16, 300, 3, 3, "hard")
    for learner in (leaders(3, 3, device)[1], auto(n_features=3, n_classes=3, device=device.name)):
        told = []
        learner.run(X, Y, progress=told.append)
        assert told[-1] == 300


def test_memory_counts_what_is_on_the_device(device):
    X, Y, _ = mixed_stream(17, 200, 6, 3, "hard")
    here, there = leaders(6, 3, device)
    for learner in (here, there):
        learner.run(X, Y)
    full = 8 * 3 * (6 * 6 - 6 * 7 // 2)  # three pairs: not only triangles
    assert there.n_bytes == here.n_bytes + full


@pytest.fixture(scope="module")
def long_stream():
    """Rows enough that `auto` is on a device, and that experts have retired by then."""
    X, Y, _ = mixed_stream(19, 2600, 2, 3, "hard")
    weight = np.random.default_rng(19).choice([0.5, 1.0], size=len(X))
    here = auto(n_features=2, n_classes=3)
    return X, Y, weight, here, here.run(X, Y, weight=weight)


def test_auto_runs_as_on_the_cpu(device, long_stream, tmp_path):
    X, Y, weight, here, expected = long_stream
    there = auto(n_features=2, n_classes=3, device=device.name)
    found = [there.run(X[:2100], Y[:2100], weight=weight[:2100])]
    assert is_there(there)
    n_sums, n_experts = len(there._sums.S), len(there.experts)
    for t in range(2100, 2200):  # a review among them would be at 2048 and 4096
        found.append(there.predict(X[t])[None])
        there.update(X[t], Y[t], weight=weight[t])
    found.append(there.run(X[2200:], Y[2200:], weight=weight[2200:]))
    near(np.concatenate(found), expected)
    assert_same(there, here)
    assert n_experts < 14
    assert n_sums == there._state.spec.n_sums
    there.save(tmp_path / "auto.folk")
    loaded = folklearn.load(tmp_path / "auto.folk")
    assert loaded.device == "cpu"
    assert_same(loaded, here)
    grown = there.grown(n_features=3, n_classes=4)
    assert grown.device == device.name
    assert grown.certificate().valid


def within_span(T):
    """The matrices of refreshes that need no sums: as many unknowns for a class as rows."""
    matrix = quadratic.matrix

    def checked_matrix(blocks, *options, **more):
        assert blocks.shape[1] <= T
        return matrix(blocks, *options, **more)

    return checked_matrix


def test_experts_that_retire_on_a_device_take_their_sums_along(device, monkeypatch):
    monkeypatch.setattr("folklearn.learners.auto.KEPT", KEPT)
    monkeypatch.setattr("folklearn.kernels.expert_state._BEHIND", 1.0)  # sooner than they would
    monkeypatch.setattr("folklearn.kernels.expert_state._LITTLE", 0.2)
    X, Y, weight = mixed_stream(20, 600, 4, 3, "soft")
    words = {"n_features": 4, "n_classes": 3, "worst_case": False}
    here, there = Auto(**words), Auto(**words, device=device.name)
    near(there.run(X, Y, weight=weight), here.run(X, Y, weight=weight))
    assert is_there(there)
    assert len(there._sums.S) == here._state.spec.n_sums < 4
    assert_same(there, here)


def test_a_huge_problem_starts_on_the_device(device, monkeypatch):
    """Its first refreshes are those of few rows; a refresh of sums on the CPU takes a second."""
    d, K, T = 1500, 3, 20
    rng = np.random.default_rng(21)
    X = rng.normal(size=(T, d)) / np.sqrt(d)
    y = rng.integers(K, size=T)
    here, there = leaders(d, K, device, ridges=(0.1, 0.01), kept=1000)
    assert is_there(there)
    monkeypatch.setattr("folklearn.kernels.on_torch.experts.quadratic.matrix", within_span(T))
    assert not there._sums.G.any()
    near(there.run(X, y), here.run(X, y))
    for e in range(2):
        near(there._state.model(e), here._state.model(e))
    assert there.loss == pytest.approx(here.loss, rel=1e-9)


def test_auto_reaches_further_on_a_device_without_its_dear_experts(device):
    sizes = {"n_features": 400, "n_classes": 4}
    assert select_backend(**sizes) != PAIRS
    assert select_backend(**sizes, device=device) == PAIRS
    for backend in (None, PAIRS):
        learner = auto(**sizes, device=device.name, backend=backend)
        assert isinstance(learner, Auto)
        assert not learner._state.spec.forgetting
        assert learner._folklore is None
    X, Y, _ = mixed_stream(22, 50, 3, 4, "hard")
    small = auto(n_features=3, n_classes=4, device=device.name)
    small.run(X, Y)
    grown = small.grown(n_features=400)
    assert isinstance(grown, Auto)
    assert [one.name for one in grown.experts] == [one.name for one in learner.experts]
    assert grown.device == device.name
    assert small._folklore is not None
    assert small._state.spec.forgetting
