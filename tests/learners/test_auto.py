"""`auto` against its slow twin; fixed share; who retires; what it certifies."""

import math

import numpy as np
import pytest

from folklearn import auto, best_in_class, load, synthetic
from folklearn.evaluate import logistic_regression
from folklearn.kernels import experts
from tests.learners.streams import mixed_stream
from tests.reference.auto import DenseAuto


@pytest.mark.parametrize("kind", ["hard", "soft", "weighted"])
@pytest.mark.parametrize(("d", "K"), [(2, 2), (3, 3), (4, 5)])
def test_equals_the_dense_auto(d, K, kind):
    X, Y, weight = mixed_stream(d + K, 100, d, K, kind)
    slow = DenseAuto(d, K)
    fast = auto(n_features=d, n_classes=K, retire=False)
    for x, y, w in zip(X, Y, weight, strict=True):
        np.testing.assert_allclose(fast.predict(x), slow.predict(x), atol=1e-9)
        fast.update(x, y, weight=w)
        slow.learn(x, y, w)
    losses = [expert.loss for expert in fast.experts]
    np.testing.assert_allclose(losses, slow.losses, rtol=1e-7)


@pytest.mark.parametrize("max_weight", [1.0, 5.0])
def test_loses_no_more_than_fixed_share_allows(max_weight):
    T = 700
    X, Y, weight = mixed_stream(1, T, 3, 3, "weighted")
    model = auto(n_features=3, n_classes=3, retire=False, max_weight=max_weight)
    model.run(X, Y, weight=max_weight * weight)
    best = min(expert.loss for expert in model.experts)
    assert model.loss <= best + max_weight * (math.log(len(model.experts)) + math.log(T)) + 1e-9


def test_experts_that_carry_no_weight_retire_and_nothing_else_changes(tmp_path):
    X, y = synthetic.stochastic(0, 4200, d=4, K=3)
    whole = auto(n_features=4, n_classes=3)
    P = whole.run(X, y)
    one_by_one, resumed = auto(n_features=4, n_classes=3), auto(n_features=4, n_classes=3)
    for x, label, p in zip(X, y, P, strict=True):
        assert np.array_equal(one_by_one.predict(x), p)
        one_by_one.update(x, label)
    assert len(whole.experts) < len(auto(n_features=4, n_classes=3).experts)
    assert [e.name for e in whole.experts] == [e.name for e in one_by_one.experts]
    assert sum(expert.weight for expert in whole.experts) == pytest.approx(1.0)
    resumed.run(X[:4090], y[:4090])
    resumed.save(tmp_path / "auto.folk")
    assert np.array_equal(load(tmp_path / "auto.folk").run(X[4090:], y[4090:]), P[4090:])


def test_only_dear_experts_retire():
    state = auto(n_features=3, n_classes=3)._state
    state["losses"][1:] = 1000.0
    state.plan[experts.T] = 128
    names = state.spec.names()
    gone = {names[e] for e in state.find_hopeless()}
    forgetting = {"leader, ridge 0.03, memory 300", "leader, ridge 0.01, memory 2000"}
    assert gone == {*forgetting, "folklore"}


@pytest.mark.parametrize("seed", range(2))
def test_a_late_change_finds_the_experts_that_follow_it(seed):
    """3,000 rows of one world, then labels in blocks of 20: trackers lead that were far behind."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6000, 3)) / math.sqrt(3)
    y = (X @ rng.normal(scale=2.0, size=(3, 3)).T + rng.gumbel(size=(6000, 3))).argmax(axis=1)
    y[3000:] = np.repeat(rng.integers(3, size=150), 20)
    model = auto(n_features=3, n_classes=3)
    everybody = auto(n_features=3, n_classes=3, retire=False)
    model.run(X, y)
    everybody.run(X, y)
    assert len(model.experts) < len(everybody.experts)
    best = min(expert.loss for expert in everybody.experts)
    assert model.loss <= best + math.log(len(everybody.experts)) + math.log(6000)


def test_folklore_stays_where_it_leads():
    state = auto(n_features=3, n_classes=3)._state
    state["losses"][:-1] = 1000.0
    for t in (128, 256, 1 << 20):
        state.plan[experts.T] = t
        assert state.spec.n_experts - 1 not in state.find_hopeless()


def test_against_the_least_likely_label_nothing_is_lost_by_retiring():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 3)) / 2
    model, everybody = (auto(n_features=3, n_classes=3, retire=retire) for retire in (True, False))
    for learner in (model, everybody):
        for x in X:
            learner.update(x, int(np.argmin(learner.predict(x))))
    assert model.loss <= everybody.loss + 1.0


def test_folklore_does_not_run_beyond_where_it_may_retire():
    X, y = synthetic.stochastic(0, 700, d=3, K=3)
    model = auto(n_features=3, n_classes=3)
    rows = range(0)
    for done, ahead in ((0, 128), (100, 28), (128, 128), (700, 324)):
        model.run(X[model.n_rounds : done], y[model.n_rounds : done])
        assert model._rows_at_once(rows) == ahead
    assert auto(n_features=3, n_classes=3, retire=False)._rows_at_once(rows) > 1000


def test_leaders_follow_rows_between_refreshes():
    """After a refresh the next is rounds away, and every row counts at once."""
    X, y = synthetic.stochastic(3, 400, d=3, K=3)
    model = auto(n_features=3, n_classes=3)
    model.run(X, y)
    state = model._state
    while state.plan[experts.NEXT] - state.plan[experts.T] < 2:
        model.update(X[0], y[0])
    refreshes = state.plan[experts.REFRESHES]
    before = [state.model(e) for e in range(5)]
    p = model.predict(X[7])
    model.update(X[7], y[7])
    assert model._state.plan[experts.REFRESHES] == refreshes
    assert all((model._state.model(e) != W).all() for e, W in enumerate(before))
    assert model.predict(X[7])[y[7]] > p[y[7]]


def test_its_covariance_grows_with_it_and_wide_rows_have_none():
    X, y = synthetic.stochastic(4, 50, d=3, K=3)
    model = auto(n_features=3, n_classes=3, R=2.0)
    model.run(X, y)
    P, larger = model._state["P"], model.grown(n_features=5, n_classes=4)._state["P"]
    np.testing.assert_array_equal(larger[:3, :3], P)
    np.testing.assert_array_equal(larger[3:, 3:], np.eye(2) / (2 * 0.03 * 2.0**2))
    assert not larger[3:, :3].any()
    wide = auto(n_features=500, n_classes=2, worst_case=False, certify=False)
    assert wide._state["P"].shape == (500, 500)
    still = wide.grown(n_features=501)._state
    assert still["P"].size == still.plan[experts.FOLLOWING] == 0


def test_rows_of_absurd_size_leave_leaders_that_can_be_followed():
    X, y = synthetic.stochastic(5, 300, d=3, K=3)
    X[[50, 51, 120]] *= 1e15
    model = auto(n_features=3, n_classes=3)
    model.run(X, y)
    assert np.isfinite(model._state["W"]).all()
    assert np.linalg.eigvalsh(model._state["P"]).min() > -1e-9


def test_without_the_worst_case_there_is_no_folklore(tmp_path):
    X, y = synthetic.stochastic(1, 300, d=3, K=3)
    model = auto(n_features=3, n_classes=3, worst_case=False, retire=False)
    model.run(X[:200], y[:200])
    assert "folklore" not in [expert.name for expert in model.experts]
    assert model.regret_bound(100) == math.inf
    assert model.certificate().valid
    model.save(tmp_path / "auto.folk")
    resumed = load(tmp_path / "auto.folk")
    assert np.array_equal(resumed.run(X[200:], y[200:]), model.run(X[200:], y[200:]))


def test_certifies_every_linear_model():
    X, y = synthetic.stochastic(1, 900, d=3, K=3)
    model = auto(n_features=3, n_classes=3)
    model.run(X, y)
    best = logistic_regression(X, y, n_classes=3)
    certificate = model.certificate()
    assert certificate.C == 1.0
    assert 0.999 * best.at_least <= certificate.best_linear_at_least <= best.loss + best.penalty
    assert model.certificate(best.W).best_linear_at_least <= best.loss
    assert not auto(n_features=3, n_classes=3, certify=False).certificate().valid


def test_the_unit_of_the_features_does_not_matter():
    X, y = synthetic.stochastic(2, 400, d=3, K=3)
    near = auto(n_features=3, n_classes=3).run(X, y)
    far = auto(n_features=3, n_classes=3, R=8.0).run(8.0 * X, y)
    np.testing.assert_allclose(far, near, atol=1e-5)  # the weakest ridges are ill-conditioned


def test_a_stream_that_switches_is_followed():
    """Two models that take turns every 2,000 rounds: near the best sequence of experts."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(8000, 4)) / 2
    models = [4.0 * rng.normal(size=(3, 4)) for _ in range(2)]
    turn = np.arange(8000) // 2000 % 2
    noise = rng.gumbel(size=(8000, 3))
    y = np.array([np.argmax(models[k] @ x + g) for k, x, g in zip(turn, X, noise, strict=True)])
    model = auto(n_features=4, n_classes=3, retire=False)
    losses = []
    for start in range(0, 8000, 2000):
        before = np.array([expert.loss for expert in model.experts])
        model.run(X[start : start + 2000], y[start : start + 2000])
        losses.append(np.array([expert.loss for expert in model.experts]) - before)
    best = sum(stretch.min() for stretch in losses)
    assert model.loss <= 1.1 * best


def test_has_a_bound_in_advance_if_nobody_retires():
    X, y = synthetic.stochastic(4, 300, d=2, K=2)
    model = auto(n_features=2, n_classes=2, retire=False)
    norms = np.sqrt((X**2).sum(axis=1))
    X = X / max(1.0, norms.max())
    model.run(X, y)
    best = best_in_class(X, y, B=10.0, n_classes=2).loss
    assert model.loss - best <= model.regret_bound(300) < math.inf
    assert auto(n_features=2, n_classes=2).regret_bound(300) == math.inf
