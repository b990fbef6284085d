"""The leader against its slow twin; its evidence; what it refuses."""

import numpy as np
import pytest

from folklearn import Leader, best_in_class, load, synthetic
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.kernels import leaders
from folklearn.kernels.evidence import CONSTANT
from folklearn.kernels.quadratic import matrix
from tests.learners.streams import mixed_stream
from tests.reference.leader import DenseLeader

SHAPES = [(1, 2), (4, 2), (3, 3), (5, 4), (2, 6)]


@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
@pytest.mark.parametrize(("d", "K"), SHAPES)
def test_equals_the_dense_leader(d, K, kind):
    X, Y, weight = mixed_stream(d + 10 * K, 120, d, K, kind)
    slow = DenseLeader(d, K, (0.3, 0.01), 10.0, kept=50)
    fast = Leader(n_features=d, n_classes=K, ridges=(0.3, 0.01), kept=50)
    P = fast.run(X, Y, weight=weight)
    np.testing.assert_allclose(P, slow.run(X, Y, weight), atol=1e-9)
    for e in range(3):
        np.testing.assert_allclose(fast._state.model(e), slow.W[e], rtol=1e-7, atol=1e-8)


def test_its_sums_are_those_of_the_dense_leader():
    X, Y, weight = mixed_stream(3, 150, 3, 3, "hard")
    slow = DenseLeader(3, 3, (0.1,), 2.0, kept=40)
    slow.run(X, Y, weight)
    fast = Leader(n_features=3, n_classes=3, ridges=(0.1,), B=2.0, kept=40)
    fast.run(X, Y)
    state = fast._state.like()
    leaders.flush(state.memo, state.plan)
    for place, twin in enumerate((slow.sum, slow.evidence)):
        sums = state.quadratic(place)
        near = (1e-8, 1e-4)[place]  # the curvature of the class comes from a table
        np.testing.assert_allclose(sums.G.ravel(), twin.g, atol=near)
        np.testing.assert_allclose(matrix(sums.blocks(), len(sums.G)), twin.A, atol=near)
        assert sums.totals[CONSTANT] == pytest.approx(twin.c, rel=near)
    assert fast.evidence().n_rounds == 150


def test_while_all_rows_are_kept_the_certificate_is_exact():
    X, y = synthetic.stochastic(1, 400, d=4, K=3)
    model = Leader(n_features=4, n_classes=3)
    model.run(X, y)
    best = best_in_class(X, y, B=10.0, n_classes=3)
    assert best.loss - 1e-3 <= model.certificate().best_linear_at_least <= best.loss


@pytest.mark.parametrize("B", [1.0, 5.0, 10.0])
def test_one_sum_certifies_every_smaller_class(B):
    X, y = synthetic.stochastic(2, 600, d=3, K=3)
    model = Leader(n_features=3, n_classes=3)
    model.run(X, y)
    certificate = model.certificate(B=B)
    assert certificate.valid
    assert certificate.best_linear_at_least <= best_in_class(X, y, B=B, n_classes=3).loss


def test_a_larger_class_must_be_declared():
    model = Leader(n_features=2, n_classes=2)
    model.update([1.0, 0.0], 1)
    certificate = model.certificate(B=30.0)
    assert not certificate.valid
    assert "construct the learner with that B" in certificate.reason
    with pytest.raises(InvalidInputError, match="larger than the classes"):
        model.evidence(B=30.0)
    both = Leader(n_features=2, n_classes=2, B=(10.0, 30.0))
    both.update([1.0, 0.0], 1)
    assert both.certificate(B=30.0).valid
    assert both.certificate().B == 10.0


def test_one_model_is_certified_at_least_as_tightly_as_its_class():
    X, y = synthetic.stochastic(3, 500, d=3, K=2)
    model = Leader(n_features=3, n_classes=2)
    model.run(X, y)
    W = best_in_class(X, y, B=10.0, n_classes=2).W
    assert model.certificate(W).regret_bound <= model.certificate().regret_bound + 1e-3


def test_evidence_of_two_leaders_adds_up():
    X, y = synthetic.stochastic(4, 800, d=3, K=3)
    halves = []
    for rows in (slice(0, 400), slice(400, 800)):
        model = Leader(n_features=3, n_classes=3)
        model.run(X[rows], y[rows])
        halves.append(model.evidence())
    both = halves[0] + halves[1]
    assert both.n_rounds == 800
    assert 0.9 * 800 * 0.3 < both.lower_bound() <= best_in_class(X, y, B=10.0, n_classes=3).loss


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
        Leader(n_features=2, n_classes=2, ridges=(), B=None)
    with pytest.raises(InvalidInputError, match="ridges"):
        Leader(n_features=2, n_classes=2, ridges=(0.0,))
    with pytest.raises(InvalidInputError, match="twice"):
        Leader(n_features=2, n_classes=2, B=(10.0, 10.0))


@pytest.mark.parametrize(
    "damage",
    [
        lambda config: config.pop("memories"),
        lambda config: config.update(ridges=["x"]),
        lambda config: config.update(ridges=[0.1, 0.2]),
        lambda config: config.update(memory=300),
        lambda config: config.update(room=5000),
        lambda config: config.update(first_classes=1),
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
