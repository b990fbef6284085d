"""The leader against its slow twin; its evidence; what it refuses."""

import numpy as np
import pytest

from folklearn import Leader, auto, load, synthetic
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate import logistic_regression
from folklearn.evidence import evidence as evidence_module
from folklearn.kernels import leaders
from folklearn.kernels.quadratic import matrix
from tests.learners.streams import loss_with_penalty, mixed_stream
from tests.reference.leader import DenseLeader

SHAPES = [(1, 2), (4, 2), (3, 3), (5, 4), (2, 6)]


@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
@pytest.mark.parametrize(("d", "K"), SHAPES)
def test_equals_the_dense_leader(d, K, kind):
    X, Y, weight = mixed_stream(d + 10 * K, 120, d, K, kind)
    slow = DenseLeader(d, K, (0.3, 0.01), kept=50)
    fast = Leader(n_features=d, n_classes=K, ridges=(0.3, 0.01), kept=50)
    P = fast.run(X, Y, weight=weight)
    np.testing.assert_allclose(P, slow.run(X, Y, weight), atol=1e-9)
    for e in range(2):
        np.testing.assert_allclose(fast._state.model(e), slow.W[e], rtol=1e-7, atol=1e-8)


def test_its_sum_is_that_of_the_dense_leader():
    X, Y, weight = mixed_stream(3, 150, 3, 3, "hard")
    slow = DenseLeader(3, 3, (0.1,), kept=40)
    slow.run(X, Y, weight)
    fast = Leader(n_features=3, n_classes=3, ridges=(0.1,), kept=40)
    fast.run(X, Y)
    state = fast._state.like()
    leaders.flush(state.memo, state.plan)
    sums = state.quadratic(0)
    np.testing.assert_allclose(sums.G.ravel(), slow.sum.g, atol=1e-8)
    np.testing.assert_allclose(matrix(sums.blocks(), len(sums.G)), slow.sum.A, atol=1e-8)
    assert fast.evidence().n_rounds == 150


@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
@pytest.mark.parametrize(("d", "K"), SHAPES)
def test_no_model_is_better_than_what_is_certified(d, K, kind, monkeypatch):
    monkeypatch.setattr(evidence_module, "KEPT_ROWS", 100)
    monkeypatch.setattr(evidence_module, "SETTLED_ROWS", 50)
    X, Y, weight = mixed_stream(d + K, 600, d, K, kind)
    model = Leader(n_features=d, n_classes=K)
    model.run(X, Y, weight=weight)
    certificate = model.certificate()
    best = logistic_regression(X, Y, n_classes=K, weight=weight)
    least = best.loss + best.penalty
    assert (certificate.C, certificate.n_rounds, certificate.loss) == (1.0, 600, model.loss)
    assert 0.9 * least < certificate.best_linear_at_least <= least
    rng = np.random.default_rng(0)
    for W in (best.W, np.zeros((K, d)), rng.normal(size=(K, d)), 30.0 * rng.normal(size=(K, d))):
        own = loss_with_penalty(W, X, Y, weight)
        assert certificate.best_linear_at_least <= own * (1.0 + 1e-12)
        penalty = own - loss_with_penalty(W, X[:0], Y[:0], weight[:0])
        assert model.certificate(W).best_linear_at_least <= penalty * (1.0 + 1e-12)


def test_while_all_rows_wait_the_certificate_is_exact():
    X, y = synthetic.stochastic(1, 400, d=4, K=3)
    model = Leader(n_features=4, n_classes=3)
    model.run(X, y)
    best = logistic_regression(X, y, n_classes=3, tol=1e-9)
    least = best.loss + best.penalty
    assert least - 1e-3 <= model.certificate().best_linear_at_least <= least


def test_without_evidence_nothing_is_proven_and_nothing_else_changes(tmp_path):
    X, y = synthetic.stochastic(2, 300, d=3, K=3)
    model, bare = (
        Leader(n_features=3, n_classes=3),
        Leader(n_features=3, n_classes=3, certify=False),
    )
    assert np.array_equal(model.run(X, y), bare.run(X, y))
    assert "certify=True" in bare.certificate().reason
    assert bare.certificate().loss == model.loss
    assert bare.n_bytes < model.n_bytes
    with pytest.raises(InvalidInputError, match="certify=True"):
        bare.evidence()
    bare.save(tmp_path / "bare")
    assert not load(tmp_path / "bare").certificate().valid


def test_evidence_is_a_copy():
    model = Leader(n_features=2, n_classes=2)
    model.update([1.0, 0.0], 1)
    evidence = model.evidence()
    model.update([1.0, 0.0], 0)
    assert (evidence.n_rounds, model.evidence().n_rounds) == (1, 2)


def test_evidence_of_two_leaders_adds_up():
    X, y = synthetic.stochastic(4, 800, d=3, K=3)
    halves = []
    for rows in (slice(0, 400), slice(400, 800)):
        model = Leader(n_features=3, n_classes=3)
        model.run(X[rows], y[rows])
        halves.append(model.evidence())
    both = halves[0] + halves[1]
    best = logistic_regression(X, y, n_classes=3)
    assert both.n_rounds == 800
    assert 0.99 * best.at_least < both.lower_bound() <= best.loss + best.penalty


@pytest.mark.parametrize("make", [Leader, auto])
def test_any_portions_leave_the_same_bytes(make, monkeypatch):
    monkeypatch.setattr(evidence_module, "KEPT_ROWS", 100)
    monkeypatch.setattr(evidence_module, "SETTLED_ROWS", 50)
    X, y = synthetic.stochastic(5, 700, d=3, K=3)
    whole, parts, loop = (make(n_features=3, n_classes=3) for _ in range(3))
    whole.run(X, y)
    for start in range(0, 700, 33):
        parts.run(X[start : start + 33], y[start : start + 33])
        parts.certificate()
    for t, (x, label) in enumerate(zip(X, y, strict=True)):
        loop.update(x, label)
        loop = load(loop.to_bytes()) if t == 444 else loop
    assert whole.to_bytes() == parts.to_bytes() == loop.to_bytes()


def test_a_leader_that_forgets_follows_a_change():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    W = 3.0 * rng.normal(size=(3, 3))
    y = np.argmax(X @ W.T, axis=1)
    y[1500:] = (y[1500:] + 1) % 3
    steady, forgetful = (Leader(n_features=3, n_classes=3, memory=m) for m in (None, 200))
    for model in (steady, forgetful):
        model.run(X[:2500], y[:2500])
    late = X[2500:], y[2500:]
    error = [np.mean(m.run(*late).argmax(axis=1) != late[1]) for m in (steady, forgetful)]
    assert error[1] < 0.2 < error[0]
    assert not forgetful.certificate().valid


def test_what_makes_no_leader_is_refused():
    with pytest.raises(InvalidInputError, match="needs a ridge"):
        Leader(n_features=2, n_classes=2, ridges=())
    with pytest.raises(InvalidInputError, match="ridges"):
        Leader(n_features=2, n_classes=2, ridges=(0.0,))


@pytest.mark.parametrize(
    "damage",
    [
        lambda config: config.pop("memories"),
        lambda config: config.update(ridges=["x"]),
        lambda config: config.update(ridges=[0.1, 0.2]),
        lambda config: config.update(memory=300),
        lambda config: config.update(room=5000),
        lambda config: config.update(certify=False),
        lambda config: config.pop("evidence"),
        lambda config: config["evidence"]["config"].update(n_classes=2),
    ],
)
def test_a_damaged_record_is_refused(damage):
    model = Leader(n_features=2, n_classes=3)
    model.run(np.eye(2), [0, 2])
    record = model.to_record()
    damage(record.config)
    with pytest.raises(StateFileError):
        Leader.from_record(record)


def test_a_plan_that_does_not_fit_is_refused():
    record = Leader(n_features=2, n_classes=3).to_record()
    for place in range(len(record.arrays["plan"])):
        spoiled = Leader(n_features=2, n_classes=3).to_record()
        spoiled.arrays["plan"][place] = -7
        with pytest.raises(StateFileError):
            Leader.from_record(spoiled)


def test_saved_and_loaded_within_a_period(tmp_path):
    X, y = synthetic.stochastic(5, 900, d=4, K=3)
    whole = Leader(n_features=4, n_classes=3, kept=100)
    P = whole.run(X, y)
    part = Leader(n_features=4, n_classes=3, kept=100)
    part.run(X[:777], y[:777])
    part.save(tmp_path / "leader.folk")
    resumed = load(tmp_path / "leader.folk")
    assert np.array_equal(resumed.run(X[777:], y[777:]), P[777:])
    a, b = whole.to_record(), resumed.to_record()
    assert a.config == b.config
    assert all(np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays)


def test_classes_that_come_early_cost_the_leaders_nothing_later():
    """Rows from before a class came are rows in which it was not it, as for one that was told."""
    X, y = synthetic.stochastic(0, 800, d=8, K=6, B=10.0)
    firsts = np.sort(np.unique(y, return_index=True)[1])
    y = np.argsort(y[firsts])[y]
    told = Leader(n_features=8, n_classes=6)
    open_, parts = Leader(n_features=8, n_classes=2), []
    for K, stop in zip(range(3, 8), [*firsts[2:].tolist(), len(y)], strict=True):
        start = sum(map(len, parts))
        parts.append(open_.run(X[start:stop], y[start:stop]))
        open_ = open_.grown(n_classes=K) if K < 7 else open_
    last = parts[-1][-700:]  # all classes were there by then
    own = np.arange(700), y[-700:]
    assert last[own].min() > 0.0
    loss = -np.log(told.run(X, y)[-700:][own]).sum()
    assert -np.log(last[own]).sum() < loss + 0.5
