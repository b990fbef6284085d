"""The certificate of anybody's predictions holds, and is the one of the dense twin."""

import math

import numpy as np
import pytest
from scipy.special import softmax

from folklearn import Certificate, Folklore
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate.certify import Certifier
from folklearn.evaluate.hindsight import best_in_class
from folklearn.persist import Record, read
from folklearn.streams.synthetic import OBLIVIOUS, against, contexts
from tests.evaluate.peers import PEERS, river
from tests.reference.dense_folklore import DenseFolklore
from tests.reference.streams import soft_labels

T, d, K, B = 400, 3, 3, 10.0


def stream(name, seed):
    if name != "against":
        return OBLIVIOUS[name](seed, T, d=d, K=K)
    X = contexts(seed, T, d=d)
    return X, against(Folklore(n_features=d, n_classes=K, B=B), X)


def certifier(**more):
    return Certifier(n_features=d, n_classes=K, B=B, **more)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("name", [*OBLIVIOUS, "against"])
def test_the_bound_holds_against_the_best_model(name, peer, seed):
    X, y = stream(name, seed)
    P = PEERS[peer](X, y, K)
    watcher = certifier()
    losses = watcher.observe_many(X, y, P)
    theirs = -np.log(P[np.arange(T), y]).sum()
    assert losses.sum() == pytest.approx(theirs, rel=1e-12)
    for b in (B, 3.0, 0.5):
        best = best_in_class(X, y, B=b, n_classes=K)
        whole, one = watcher.certificate(B=b), watcher.certificate(best.W)
        assert isinstance(whole, Certificate)
        assert whole.valid
        assert (whole.B, whole.n_rounds, whole.reason) == (b, T, "")
        assert whole.loss == pytest.approx(theirs, rel=1e-12)
        assert whole.best_linear_at_least <= one.best_linear_at_least <= best.loss + 1e-8
        assert theirs - best.loss <= one.regret_bound + 1e-8
        assert one.regret_bound <= whole.regret_bound + 1e-9
    assert watcher.certificate() == watcher.certificate(B=B)


def test_what_is_proven_of_linear_models_does_not_depend_on_the_predictions(seed):
    X, y = stream("stochastic", seed)
    bounds = set()
    for peer in ("constant", "frequencies"):
        watcher = certifier()
        watcher.observe_many(X, y, PEERS[peer](X, y, K))
        bounds.add(watcher.certificate().best_linear_at_least)
    assert len(bounds) == 1
    learner = Folklore(n_features=d, n_classes=K, B=B)
    watcher = certifier()
    watcher.observe_many(X, y, learner.run(X, y))
    mine, own = watcher.certificate(), learner.certificate()
    assert mine.regret_bound == pytest.approx(own.regret_bound, rel=1e-9)
    assert watcher.surrogate == own


def test_equals_the_dense_definition(seed, rng):
    """The sum of -ln p_t(y_t) - (min L-hat_t - min L-hat_{t-1}), from dense matrices."""
    X, y = stream("stochastic", seed)
    X, y = X[:60], soft_labels(seed, y[:60], K)
    P = softmax(rng.normal(size=(60, K)), axis=1)
    weight = rng.random(60) * 2
    watcher = certifier(lam=0.7)
    twin = DenseFolklore(d, K, B, lam=0.7)
    bracket = 0.0
    for x, label, p, w in zip(X, y, P, weight, strict=True):
        before = twin.surrogate_min
        twin.update(x, label, w)
        loss = watcher.observe(x, label, p, w)
        assert loss == pytest.approx(-label @ np.log(p), rel=1e-12)
        bracket += w * loss - (twin.surrogate_min - before)
    W = rng.normal(size=(K, d))
    # The library's gamma comes from a table that is lower in the seventh digit or so.
    for certificate, norm in [
        (watcher.certificate(), K * B**2),
        (watcher.certificate(W), (W**2).sum()),
        (watcher.certificate(B=2.0), K * 2.0**2),
    ]:
        assert certificate.regret_bound == pytest.approx(0.7 * norm + bracket, abs=1e-4)


def test_predictions_that_see_the_label_beat_every_linear_model(seed):
    X, y = stream("pure_noise", seed)
    watcher = certifier()
    watcher.observe_many(X, y, 0.9 * np.eye(K)[y] + 0.1 / K)
    assert watcher.certificate().regret_bound < 0.0
    assert watcher.certificate().best_linear_at_least > 0.5 * T


def test_one_by_one_equals_at_once(seed, rng):
    X, y = stream("stochastic", seed)
    P, weight = softmax(rng.normal(size=(T, K)), axis=1), rng.random(T) * 2
    one, many, soft = certifier(), certifier(), certifier()
    losses = [one.observe(*row) for row in zip(X, y, P, weight, strict=True)]
    np.testing.assert_allclose(many.observe_many(X, y, P, weight), losses, rtol=1e-14)
    soft.observe_many(X, np.eye(K)[y], P, weight)
    for other in (many, soft):
        assert other.certificate().loss == pytest.approx(one.certificate().loss, rel=1e-12)
        assert other.certificate().regret_bound == pytest.approx(
            one.certificate().regret_bound, rel=1e-9
        )


def test_probability_zero_costs_infinity_and_the_rest_stays_proven(seed):
    X, y = stream("stochastic", seed)
    P = np.full((T, K), 1.0 / K)
    finite, watcher = certifier(), certifier()
    finite.observe_many(X, y, P)
    P[[7, 30]] = np.roll(np.eye(K), 1, axis=1)[y[[7, 30]]]
    assert watcher.observe_many(X, y, P)[7] == np.inf
    certificate = watcher.certificate()
    assert (certificate.loss, certificate.regret_bound) == (np.inf, np.inf)
    assert certificate.valid
    assert "probability 0 in 2 of 400 rounds, first in round 7" in certificate.reason
    assert certificate.best_linear_at_least == finite.certificate().best_linear_at_least
    assert watcher.observe(X[0], y[0], [1.0 / K] * K) < 2.0
    assert "2 of 401 rounds, first in round 7" in watcher.certificate().reason


def test_a_round_without_weight_does_not_count(seed):
    watcher = certifier()
    assert watcher.observe([1.0, 0.0, 0.0], 0, [0.0, 0.5, 0.5], 0.0) == np.inf
    assert watcher.certificate().loss == 0.0
    # A soft label that has nothing where the prediction has nothing costs nothing there.
    loss = watcher.observe([1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5])
    assert loss == pytest.approx(np.log(2.0))


def test_river_as_it_is_gives_new_classes_nothing(seed):
    X, y = stream("stochastic", seed)
    watcher = certifier()
    watcher.observe_many(X, y, river(X, y, K, mix=0.0))
    certificate = watcher.certificate()
    assert certificate.loss == np.inf
    assert math.isfinite(certificate.best_linear_at_least)


X0, P0 = np.zeros((3, d)), np.full((3, K), 1.0 / K)
BAD_ROW = np.array([[1.0, 0.0, 0.0], [0.5, 0.4, 0.0], [0.2, 0.3, 0.5]])


@pytest.mark.parametrize(
    ("X", "y", "P", "weight", "sentence"),
    [
        (X0, [0, 1, 2], BAD_ROW, None, "row 1 of P sums to 0.9; probabilities must sum to 1"),
        (X0, [0, 1, 2], -P0, None, "row 0 of P gives class 0 the probability -0.333333"),
        (X0, [0, 1, 2], P0[:2], None, r"P has shape \(2, 3\)"),
        (X0, [0, 1, 3], P0, None, r"label y\[2\] is 3"),
        (X0 + np.nan, [0, 1, 2], P0, None, "row 0 of X has nan"),
        (X0, [0, 1, 2], P0, [1.0, 1.0, -1.0], r"weight\[2\] is -1"),
    ],
)
def test_refused_before_anything_changes(X, y, P, weight, sentence):
    watcher = certifier()
    watcher.observe([1.0, 0.0, 0.0], 1, [0.2, 0.3, 0.5])
    before = watcher.certificate()
    with pytest.raises(InvalidInputError, match=sentence):
        watcher.observe_many(X, y, P, weight)
    assert watcher.certificate() == before


@pytest.mark.parametrize(
    ("x", "y", "p", "weight", "sentence"),
    [
        ([1.0, 0.0, 0.0], 1, [0.2, 0.3, 0.6], 1.0, "p sums to 1.1"),
        ([1.0, 0.0, 0.0], 1, [0.5, 0.5], 1.0, r"p has shape \(2,\)"),
        ([1.0, 0.0, 0.0], 3, [0.2, 0.3, 0.5], 1.0, "label y is 3"),
        ([np.inf, 0.0, 0.0], 1, [0.2, 0.3, 0.5], 1.0, "x has inf"),
        ([1.0, 0.0, 0.0], 1, [0.2, 0.3, 0.5], -1.0, "weight is -1"),
    ],
)
def test_one_round_refused_before_anything_changes(x, y, p, weight, sentence):
    watcher = certifier()
    before = watcher.certificate()
    with pytest.raises(InvalidInputError, match=sentence):
        watcher.observe(x, y, p, weight)
    assert watcher.certificate() == before


def test_classes_that_are_not_covered():
    watcher = certifier()
    with pytest.raises(InvalidInputError, match="B=11 is larger than the class"):
        watcher.certificate(B=11.0)
    with pytest.raises(InvalidInputError, match="a row of norm 11"):
        watcher.certificate(11.0 * np.eye(3))
    with pytest.raises(InvalidInputError, match="give W or B, not both"):
        watcher.certificate(5.0 * np.eye(3), B=4.0)
    with pytest.raises(InvalidInputError, match="B must be a positive number"):
        Certifier(n_features=1, n_classes=2, B=0.0)


def test_what_rounding_destroyed_is_not_certified():
    watcher = Certifier(n_features=2, n_classes=2, lam=1e-9)
    watcher.observe_many(np.full((4, 2), 1e8), [0, 1, 0, 1], np.full((4, 2), 0.5))
    certificate = watcher.certificate()
    assert not certificate.valid
    assert "lost its digits" in certificate.reason
    assert (certificate.regret_bound, certificate.best_linear_at_least) == (np.inf, -np.inf)


def test_resume(seed, tmp_path):
    X, y = stream("stochastic", seed)
    P = np.full((T, K), 1.0 / K)
    P[5] = np.roll(np.eye(K), 1, axis=1)[y[5]]
    whole, part = certifier(R=2.0), certifier(R=2.0)
    for rows in (slice(0, 100), slice(100, T)):
        whole.observe_many(X[rows], y[rows], P[rows])
    part.observe_many(X[:100], y[:100], P[:100])
    part.save(tmp_path / "c")
    record = read(tmp_path / "c")
    assert record.kind == "Certifier"
    resumed = Certifier.from_record(record)
    assert repr(resumed) == repr(part)
    resumed.observe_many(X[100:], y[100:], P[100:])
    assert resumed.certificate() == whole.certificate()


def test_damaged_records():
    record = certifier().to_record()
    for arrays in ({}, record.arrays | {"totals": np.zeros(2)}):
        with pytest.raises(StateFileError, match="a Certifier state needs float64 totals"):
            Certifier.from_record(Record("Certifier", record.config, arrays))
    with pytest.raises(StateFileError):
        Certifier.from_record(
            Record("Certifier", record.config, {"totals": record.arrays["totals"]})
        )
