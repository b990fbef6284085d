import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import folklearn
from folklearn import Aioli, Folklore, Laplace, Mixture, auto
from folklearn.errors import InvalidInputError
from tests.reference import streams
from tests.reference.hindsight import best_in_class
from tests.reference.mixture import bayes_mixture

STREAMS = ["stochastic", "separable", "pure_noise", "drifting", "against"]


def experts(d, K, *, extra=()):
    return [
        *(Folklore(n_features=d, n_classes=K, B=B) for B in (1.0, 10.0, 100.0)),
        Folklore(n_features=d, n_classes=K, gamma=0.5, lam=0.01),
        Laplace(n_features=d, n_classes=K, n_points=16),
        *extra,
    ]


def make_stream(name, seed, T, d, K, model):
    if name == "against":
        X = streams.pure_noise(seed, T, d, K)[0]
        return X, streams.play_adversarial(model, X)
    X, y = getattr(streams, name)(seed, T, d, K)
    model.run(X, y)
    return X, y


def total_loss(model, X, y):
    return sum(model.update(x, label) for x, label in zip(X, y, strict=True))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("K", [2, 3])
def test_loss_is_at_most_the_best_expert_plus_ln_n(name, K, seed):
    T, d = 1500, 3
    for retire in (False, True):
        model = Mixture(experts(d, K), retire=retire)
        X, y = make_stream(name, seed, T, d, K, model)
        alone = [total_loss(expert, X, y) for expert in experts(d, K)]
        N = len(alone)
        survivors = model.experts if not retire else model.survivors
        best = min(alone[model.experts.index(expert)] for expert in survivors)
        assert model.certificate().loss <= best + math.log(N) + 1e-9
        if not retire:
            assert len(model.survivors) == N


@given(
    K=st.integers(2, 4),
    T=st.integers(1, 40),
    soft=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_equals_the_slow_twin(K, T, soft, weighted, seed):
    rng = np.random.default_rng(seed)
    d = 2
    X = rng.normal(size=(T, d))
    targets = rng.dirichlet(np.ones(K), size=T) if soft else np.eye(K)[rng.integers(0, K, T)]
    y = targets if soft else targets.argmax(axis=1)
    weight = rng.uniform(0.0, 3.0, size=T) if weighted else np.ones(T)
    make = [Folklore(n_features=d, n_classes=K, B=B) for B in (1.0, 5.0, 50.0)]
    P_experts = np.stack([expert.run(X, y, weight=weight) for expert in make], axis=1)
    expected, _ = bayes_mixture(P_experts, targets, weight, 3.0)
    fresh = [Folklore(n_features=d, n_classes=K, B=B) for B in (1.0, 5.0, 50.0)]
    model = Mixture(fresh, max_weight=3.0)
    np.testing.assert_allclose(model.run(X, y, weight=weight), expected, atol=1e-9)


def test_retired_experts_stop_and_are_reported(seed):
    d, K = 3, 3
    X, y = streams.stochastic(seed, 3000, d, K, B=3.0)
    bad = Folklore(n_features=d, n_classes=K, B=1e-3)
    good = Folklore(n_features=d, n_classes=K, B=10.0)
    model = Mixture([bad, good])
    model.run(X, y)
    assert model.survivors == [good]
    assert model.weights[0] == 0.0
    assert bad.certificate().n_rounds < 3000 == good.certificate().n_rounds
    # Up to its retirement the guarantee holds against the retired expert too.
    n = bad.certificate().n_rounds
    prefix = Mixture(
        [Folklore(n_features=d, n_classes=K, B=1e-3), Folklore(n_features=d, n_classes=K, B=10.0)]
    )
    prefix.run(X[:n], y[:n])
    assert prefix.certificate().loss <= bad.certificate().loss + math.log(2.0)


def test_the_certified_expert_for_ten_is_kept(rng):
    """However far it falls behind: a mixture without certificate would be half a product."""
    d, K, T = 2, 2, 2000
    X = rng.normal(size=(T, d))
    y = (X[:, 0] > 0).astype(int)
    kept = Folklore(n_features=d, n_classes=K, B=10.0, lam=1e6)
    model = Mixture([kept, Folklore(n_features=d, n_classes=K, gamma=0.5, lam=1e-3)])
    model.run(X, y)
    assert kept in model.survivors
    assert model.certificate().valid


@pytest.mark.parametrize("name", STREAMS)
def test_certificate_is_true_and_at_most_an_experts_plus_ln_n(name, seed):
    T, d, K = 400, 2, 3
    model = Mixture(experts(d, K), retire=False)
    X, y = make_stream(name, seed, T, d, K, model)
    for B in (1.0, 5.0, 10.0, 100.0):
        W, best, _ = best_in_class(X, y, B, K)
        certificate = model.certificate(B=B)
        assert certificate.valid
        assert certificate.B == B
        assert certificate.best_linear_at_least <= best + 1e-9
        assert model.certificate(W * (1 - 1e-12)).best_linear_at_least <= best + 1e-9
        offers = [
            expert.certificate(B=B).regret_bound
            for expert in model.experts
            if isinstance(expert, Folklore) and expert.gamma is None and B <= expert.B
        ]
        assert certificate.regret_bound <= min(offers) + math.log(len(model.experts)) + 1e-9
    assert model.certificate().B == 10.0
    assert not model.certificate(B=1000.0).valid
    assert "no surviving expert certifies B=1000" in model.certificate(B=1000.0).reason


def test_plain_weights_would_break_the_guarantee():
    """Experts (.9, .1) and (.1, .9), y = 0, w = 3: with exp(-w loss) the cost exceeds ln 2."""
    P = np.array([[[0.9, 0.1], [0.1, 0.9]]] * 1)
    targets, weight = np.array([[1.0, 0.0]]), np.array([3.0])
    losses = weight[0] * -np.log(P[0, :, 0])
    mixed = bayes_mixture(P, targets, weight, 3.0)[0]
    assert weight[0] * -np.log(mixed[0, 0]) > losses.min() + math.log(2.0)
    assert weight[0] * -np.log(mixed[0, 0]) <= losses.min() + 3.0 * math.log(2.0)


def test_auto_is_within_ln_n_of_its_best_expert(rng):
    T, d, K = 600, 4, 3
    X = rng.normal(size=(T, d)) / 2
    y = np.argmax(X @ rng.normal(size=(K, d)).T + 0.3 * rng.gumbel(size=(T, K)), axis=1)
    model = auto(n_features=d, n_classes=K)
    N = len(model.experts)
    model.run(X, y)
    fresh = auto(n_features=d, n_classes=K).experts
    best = min(total_loss(expert, X, y) for expert in fresh)
    assert model.certificate().loss <= best + math.log(N)


def test_save_and_resume(tmp_path, rng):
    d, K = 2, 3
    X, y = rng.normal(size=(1200, d)), rng.integers(0, K, 1200)
    straight, stopped = Mixture(experts(d, K)), Mixture(experts(d, K))
    expected = straight.run(X, y)
    first = stopped.run(X[:600], y[:600])
    stopped.save(tmp_path / "mixture")
    resumed = folklearn.load(tmp_path / "mixture")
    np.testing.assert_allclose(
        np.concatenate([first, resumed.run(X[600:], y[600:])]), expected, atol=1e-9
    )
    assert resumed.certificate().loss == pytest.approx(straight.certificate().loss)
    assert [type(e) for e in resumed.survivors] == [type(e) for e in straight.survivors]


def test_delayed_labels_are_predicted_again(rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    for model, twin in [
        (auto(n_features=2, n_classes=2), auto(n_features=2, n_classes=2)),
        (Aioli(n_features=2), Aioli(n_features=2)),
    ]:
        early = model.predict(X[0])
        for x, label in zip(X[1:], y[1:], strict=True):
            model.update(x, label)
            twin.update(x, label)
        loss = model.update(X[0], y[0])
        assert loss == twin.update(X[0], y[0])
        assert loss != pytest.approx(-math.log(early[y[0]]), abs=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mixture([]), "at least one expert"),
        (lambda: Mixture(["folklore"]), "expert 0 is 'folklore', not a learner"),
        (lambda: Mixture([Folklore]), "not a learner"),
        (
            lambda: Mixture(
                [Folklore(n_features=2, n_classes=2), Folklore(n_features=3, n_classes=2)]
            ),
            "equal n_features",
        ),
        (lambda: auto(n_features=2, n_classes=1), "n_classes must be at least 2"),
        (lambda: auto(n_features=2, n_classes=2, R=0), "R must be"),
    ],
)
def test_bad_mixtures_get_a_sentence(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_weights_above_the_promise_are_refused_before_anything_changes(rng):
    model = Mixture(experts(2, 2))
    X, y = rng.normal(size=(5, 2)), rng.integers(0, 2, 5)
    for call in (
        lambda: model.update(X[0], 1, weight=2.0),
        lambda: model.run(X, y, weight=[1, 1, 1, 1, 2.0]),
        lambda: model.update([math.nan, 1.0], 1),
        lambda: model.update(X[0], 7),
        lambda: model.certificate(np.zeros((2, 2)), B=1.0),
    ):
        with pytest.raises(InvalidInputError):
            call()
    assert model.certificate().n_rounds == 0
    assert all(expert._state.totals.sum() == 0.0 for expert in model.experts)
