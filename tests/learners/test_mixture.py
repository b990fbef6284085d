import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import folklearn
from folklearn import (
    Aioli,
    Certificate,
    ClassGaussians,
    Folklore,
    Gaf,
    Laplace,
    Learner,
    Mixture,
    Ogd,
    auto,
    validation,
)
from folklearn.batch import OnlineToBatch
from folklearn.errors import InvalidInputError
from folklearn.learners import mixture as mixtures
from tests.reference import streams
from tests.reference.hindsight import best_in_class
from tests.reference.mixture import bayes_mixture, fixed_share, most_missed, switching_bound

STREAMS = ["stochastic", "separable", "pure_noise", "drifting", "against"]


def experts(d, K, *, extra=()):
    return [
        *(Folklore(n_features=d, n_classes=K, B=B) for B in (1.0, 10.0, 100.0)),
        Folklore(n_features=d, n_classes=K, gamma=0.5, lam=0.01),
        Laplace(n_features=d, n_classes=K),
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
        survivors = model.experts if not retire else model._survivors
        best = min(alone[model.experts.index(expert)] for expert in survivors)
        assert model.certificate().loss <= best + math.log(N) + 1e-9
        if not retire:
            assert len(model._survivors) == N


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

    def make():
        return [Folklore(n_features=d, n_classes=K, B=B) for B in (1.0, 5.0, 50.0)]

    weight[rng.random(T) < 0.2] = 0.0
    P_experts = np.stack([fresh.run(X, y, weight=weight) for fresh in make()], axis=1)
    for share, twin in ((False, bayes_mixture), (True, fixed_share)):
        expected, last = twin(P_experts, targets, weight, 3.0)
        together, alone = (Mixture(make(), share=share, max_weight=3.0) for _ in range(2))
        P = together.run(X, y, weight=weight)
        np.testing.assert_allclose(P, expected, atol=1e-9)
        for t, x in enumerate(X):
            np.testing.assert_allclose(alone.predict(x), P[t], rtol=0.0, atol=1e-12)
            alone.update(x, y[t], weight=weight[t])
        np.testing.assert_allclose(alone.weights, together.weights, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(alone.weights, last if share else np.exp(last), atol=1e-9)


class Scripted(Learner):
    """Says what it was given, row after row; x[0] is the number of the row."""

    def __init__(self, P):
        self._size(1, P.shape[1])
        self.P = P

    def _predict(self, x):
        return self.P[int(x[0])].copy()

    def _learn(self, x, label, soft, weight):
        self._n_rounds += 1
        p = np.maximum(self.P[int(x[0])], 1e-300)
        return -math.log(p[label]) if label >= 0 else -float(soft @ np.log(p))


@given(
    N=st.integers(1, 3),
    T=st.integers(1, 6),
    w_max=st.sampled_from([0.5, 1.0, 4.0]),
    sharp=st.sampled_from([0.05, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_shares_follow_every_sequence_of_experts(N, T, w_max, sharp, seed):
    """All N^T sequences, in rounds of random weight, by their losses and switches."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(3, sharp), size=(N, T))
    y, weight = rng.integers(0, 3, T), w_max * rng.uniform(0.0, 1.0, T)
    weight[rng.random(T) < 0.5] = w_max
    model = Mixture([Scripted(p) for p in P], share=True, max_weight=w_max)
    model.run(np.arange(T)[:, None], y, weight=weight)
    loss = model.certificate().loss
    losses = weight * -np.log(np.maximum(P[:, np.arange(T), y], 1e-300))
    for sequence in itertools.product(range(N), repeat=T):
        switches = [t for t in range(1, T) if sequence[t] != sequence[t - 1]]
        theirs = losses[list(sequence), np.arange(T)].sum()
        assert loss <= theirs + w_max * switching_bound(N, switches, T) + 1e-9
    assert loss <= losses.sum(axis=1).min() + w_max * (math.log(N) + math.log(T)) + 1e-9


def test_shares_follow_a_stream_that_bayes_is_late_for():
    """Two experts, each right in its half: Bayes waits as long as the first was right."""
    T = 400
    sure, wrong = np.array([0.9, 0.1]), np.array([0.1, 0.9])
    first = np.vstack([np.tile(sure, (T, 1)), np.tile(wrong, (T, 1))])
    losses = {}
    for share in (False, True):
        model = Mixture([Scripted(first), Scripted(first[::-1])], share=share, retire=False)
        model.run(np.arange(2 * T)[:, None], np.zeros(2 * T, int))
        losses[share] = model.certificate().loss
    best = 2 * T * -math.log(0.9)
    assert losses[True] <= best + switching_bound(2, [T], 2 * T)
    assert losses[False] > best + 100.0


def test_the_share_of_a_retired_expert_goes_to_the_others(seed):
    d, K = 3, 3
    X, y = streams.stochastic(seed, 3000, d, K, B=3.0)
    Bs = (1e-3, 10.0, 11.0)
    model = Mixture([Folklore(n_features=d, n_classes=K, B=B) for B in Bs], share=True)
    model.run(X, y)
    assert len(model._survivors) == 2
    assert model.weights[0] == 0.0
    assert model.weights.sum() == pytest.approx(1.0, abs=1e-12)
    alone = [total_loss(Folklore(n_features=d, n_classes=K, B=B), X, y) for B in Bs[1:]]
    assert model.certificate().loss <= min(alone) + math.log(3) + math.log(3000)


def test_a_round_of_weight_0_moves_no_share(rng):
    X, y = rng.normal(size=(20, 2)), rng.integers(0, 2, 20)
    model = Mixture(experts(2, 2), share=True)
    model.run(X, y)
    before = model.weights
    model.update(X[0], y[0], weight=0.0)
    model.run(X, y, weight=np.zeros(20))
    np.testing.assert_array_equal(model.weights, before)
    assert model.n_rounds == 41


def test_experts_that_know_something_are_refused(rng):
    """Their floors are about other rounds: the mixture's certificate would be false."""
    learned = Folklore(n_features=2, n_classes=2)
    learned.run(rng.normal(size=(10, 2)), rng.integers(0, 2, 10))
    with pytest.raises(InvalidInputError, match=r"expert 1, Folklore.*has learned 10 rounds"):
        Mixture([Folklore(n_features=2, n_classes=2), learned])
    with pytest.raises(InvalidInputError, match="has learned 10 rounds before"):
        OnlineToBatch(Mixture([learned]))
    fresh = Ogd(n_features=2, n_classes=2)
    with pytest.raises(InvalidInputError, match=r"expert 2, Ogd.*is listed twice"):
        Mixture([fresh, Folklore(n_features=2, n_classes=2), fresh])


def test_a_row_is_checked_once(rng, monkeypatch):
    calls = []

    def counted(name):
        check = getattr(validation, name)
        return lambda *arguments, **words: (calls.append(name), check(*arguments, **words))[1]

    for name in ("contexts", "context", "labels", "label", "weights"):
        monkeypatch.setattr(validation, name, counted(name))
    model = auto(n_features=2, n_classes=3)
    X, y = rng.normal(size=(600, 2)), rng.integers(0, 3, 600)
    model.run(X, y)
    assert sorted(calls) == ["contexts", "labels", "weights"]
    calls.clear()
    model.update(X[0].tolist(), 1)
    assert sorted(calls) == ["context", "label"]
    calls.clear()
    model.predict(X)
    assert calls == ["contexts"]


def test_what_is_not_finite_proves_nothing():
    for loss, bound in ((math.inf, 1.0), (math.nan, 1.0), (1.0, math.nan), (1.0, -math.inf)):
        certificate = Certificate(loss=loss, regret_bound=bound, B=10.0, n_rounds=3)
        assert not certificate.valid
        assert certificate.regret_bound == math.inf
        assert certificate.best_linear_at_least == -math.inf
        assert certificate.reason


@pytest.mark.parametrize("mixed", [True, False])
def test_a_loss_at_the_mean_is_finite_and_so_is_what_is_certified(mixed):
    """Without mu and at the mean, Gaf gives a label a probability that underflows."""
    model = Gaf(n_features=1, n_classes=2, B=1e4, lam=1e-9, mu=0.0, n_points=None, improved=True)
    model = Mixture([model], retire=False) if mixed else model
    model.run(np.full((40, 1), 1e3), np.zeros(40, int))
    with np.errstate(all="ignore"):
        model.update([1e3], 1)
        model.update([1e5], 1)
    certificate = model.certificate()
    assert math.isfinite(certificate.loss)
    assert certificate.valid == math.isfinite(certificate.regret_bound)
    assert certificate.best_linear_at_least <= 42 * math.log(2.0)  # what W = 0 loses


def test_retired_experts_stop_and_are_reported(seed):
    d, K = 3, 3
    X, y = streams.stochastic(seed, 3000, d, K, B=3.0)
    bad = Folklore(n_features=d, n_classes=K, B=1e-3)
    good = Folklore(n_features=d, n_classes=K, B=10.0)
    model = Mixture([bad, good])
    model.run(X, y)
    assert model._survivors == [good]
    assert model.weights[0] == 0.0
    assert bad.certificate().n_rounds < 3000 == good.certificate().n_rounds
    # Up to its retirement the guarantee holds against the retired expert too.
    n = bad.certificate().n_rounds
    prefix = Mixture(
        [Folklore(n_features=d, n_classes=K, B=1e-3), Folklore(n_features=d, n_classes=K, B=10.0)]
    )
    prefix.run(X[:n], y[:n])
    assert prefix.certificate().loss <= bad.certificate().loss + math.log(2.0)


def late_stretch():
    """What three experts say: the best, one that is right in a late stretch alone, one never."""
    sure, wrong = np.array([0.9, 0.1]), np.array([0.1, 0.9])
    best, late, never = (np.tile(p, (1024, 1)) for p in (sure, wrong, wrong))
    best[900:920], late[900:920] = wrong, sure
    return [Scripted(P) for P in (best, late, never)]


def test_an_expert_that_brought_something_does_not_retire(monkeypatch):
    """Far behind in total, and behind lately; but shares found it useful for a while."""
    rounds, labels = np.arange(1024)[:, None], np.zeros(1024, int)
    for share, line, kept in [
        (True, math.log(2.0), [0, 1]),
        (True, math.inf, [0]),  # without that rule
        (False, math.log(2.0), [0]),  # Bayes' rule never gave it any weight
    ]:
        monkeypatch.setattr(mixtures, "_MIN_CREDIT", line)
        together, alone = (Mixture(late_stretch(), share=share) for _ in range(2))
        together.run(rounds[:1000], labels[:1000])
        together.run(rounds[1000:], labels[1000:])
        for x in rounds:
            alone.update(x.astype(float), 0)
        for model in (together, alone):
            assert [model.experts.index(expert) for expert in model._survivors] == kept
            np.testing.assert_array_equal([model._credit, model._stretch], 0.0)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("w_max", [1.0, 4.0])
def test_credit_is_what_the_mixture_would_miss(share, w_max, rng):
    """In the worst stretch since the last review, if the others were mixed without an expert."""
    T, first = 560, mixtures._FIRST_LOOK
    P = rng.dirichlet([2.0, 2.0], size=(3, T))
    P[1, 530:545, 0] = 0.99
    P[1, :, 1] = 1.0 - P[1, :, 0]
    weight = w_max * rng.choice([0.0, 0.5, 1.0], T)
    model, shares = Mixture([Scripted(p) for p in P], share=share, max_weight=w_max), []
    for t in range(T):
        shares.append(model.weights)
        model.update([float(t)], 0, weight=weight[t])
    late = slice(first, T)
    labels = np.zeros(T - first, int)
    expected = most_missed(
        np.array(shares)[late], P.swapaxes(0, 1)[late], labels, weight[late], w_max
    )
    np.testing.assert_allclose(model._credit, expected, atol=1e-9)
    assert expected[1] > 0.5


def test_an_expert_that_catches_up_does_not_retire(monkeypatch):
    """Of two that are far behind, one has nearly stopped losing ground."""
    T = 1024
    best, even, late = (np.tile(p, (T, 1)) for p in ([0.9, 0.1], [0.6, 0.4], [0.6, 0.4]))
    late[3 * T // 4 :] = [0.89, 0.11]
    for catches_up, kept in [(0.5, [0, 2]), (0.0, [0])]:
        monkeypatch.setattr(mixtures, "_CATCHES_UP", catches_up)
        model = Mixture([Scripted(P) for P in (best, even, late)])
        model.run(np.arange(T)[:, None], np.zeros(T, int))
        assert [model.experts.index(expert) for expert in model._survivors] == kept


def test_the_certified_expert_is_kept(rng):
    """However far it falls behind: a mixture without certificate would be half a product."""
    d, K, T = 2, 2, 2000
    X = rng.normal(size=(T, d))
    y = (X[:, 0] > 0).astype(int)
    kept = Folklore(n_features=d, n_classes=K, B=10.0, lam=1e6)
    model = Mixture([kept, Folklore(n_features=d, n_classes=K, gamma=0.5, lam=1e-3)])
    model.run(X, y)
    assert kept in model._survivors
    assert model.certificate().valid


@pytest.mark.parametrize("name", STREAMS)
def test_certificate_is_true_and_at_most_an_experts_plus_ln_n(name, seed):
    """Of Folklores it is about the largest class, and what a smaller one proves is not taken."""
    T, d, K = 400, 2, 3
    model = Mixture(experts(d, K), retire=False)
    X, y = make_stream(name, seed, T, d, K, model)
    certificate = model.certificate()
    assert certificate.valid
    assert (certificate.C, certificate.B) == (None, 100.0)
    widest = [e for e in model.experts if isinstance(e, Folklore) and e.B == 100.0]
    offers = [expert.certificate().regret_bound for expert in widest]
    assert certificate.regret_bound <= min(offers) + math.log(len(model.experts)) + 1e-9
    for B in (1.0, 5.0, 10.0, 100.0):
        W, best, _ = best_in_class(X, y, B, K)
        assert certificate.best_linear_at_least <= best + 1e-9
        one = model.certificate(W * (1 - 1e-12))
        assert (one.C, one.B) == (None, None)
        assert one.best_linear_at_least <= best + 1e-9
    assert not model.certificate(np.full((K, d), 1000.0)).valid


def test_a_bound_for_every_model_goes_before_one_for_a_norm(seed):
    X, y = streams.stochastic(seed, 300, 3, 3, B=3.0)
    sizes = {"n_features": 3, "n_classes": 3}
    model = Mixture([Folklore(**sizes, B=1e-3), auto(**sizes), ClassGaussians(**sizes)])
    model.run(X, y)
    certificate, tight = model.certificate(), model.experts[1].certificate()
    assert (certificate.C, certificate.B, certificate.penalty) == (1.0, None, 1.0)
    assert certificate.best_linear_at_least == pytest.approx(tight.best_linear_at_least)
    bare = Mixture([Ogd(**sizes)])
    assert "no surviving expert" in bare.certificate().reason


def test_plain_weights_would_break_the_guarantee():
    """Experts (.9, .1) and (.1, .9), y = 0, w = 3: with exp(-w loss) the cost exceeds ln 2."""
    P = np.array([[[0.9, 0.1], [0.1, 0.9]]] * 1)
    targets, weight = np.array([[1.0, 0.0]]), np.array([3.0])
    losses = weight[0] * -np.log(P[0, :, 0])
    mixed = bayes_mixture(P, targets, weight, 3.0)[0]
    assert weight[0] * -np.log(mixed[0, 0]) > losses.min() + math.log(2.0)
    assert weight[0] * -np.log(mixed[0, 0]) <= losses.min() + 3.0 * math.log(2.0)


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
    assert [type(e) for e in resumed._survivors] == [type(e) for e in straight._survivors]


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
        lambda: model.certificate(np.zeros((2, 3))),
    ):
        with pytest.raises(InvalidInputError):
            call()
    assert model.certificate().n_rounds == 0
    assert all(expert._totals.sum() == 0.0 for expert in model.experts)
