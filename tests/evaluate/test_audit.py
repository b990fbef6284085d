"""The certificate of anybody's predictions holds, is tight, and exact after a few passes."""

import math

import numpy as np
import pytest
from scipy.special import softmax

from folklearn import Certificate, Folklore
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate.auditing import Certifier
from folklearn.evaluate.best_linear import best_in_class
from folklearn.serialization import Record, read
from folklearn.synthetic import OBLIVIOUS, against, contexts
from tests.evaluate.peers import PEERS, river
from tests.reference.hindsight import best_in_class as slow_best
from tests.reference.streams import soft_labels

T, d, K, B = 400, 3, 3, 10.0


def stream(name, seed, T=T):
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
        assert whole.best_linear_at_least <= one.best_linear_at_least + 1e-3
        assert one.best_linear_at_least <= best.loss + 1e-8
        assert theirs - best.loss <= one.regret_bound + 1e-8
        assert one.regret_bound <= whole.regret_bound + 1e-3
    assert watcher.certificate() == watcher.certificate(B=B)


def test_what_is_proven_of_linear_models_does_not_depend_on_the_predictions(seed):
    X, y = stream("stochastic", seed)
    bounds = set()
    for peer in ("constant", "frequencies"):
        watcher = certifier()
        watcher.observe_many(X, y, PEERS[peer](X, y, K))
        bounds.add(watcher.certificate().best_linear_at_least)
    assert len(bounds) == 1
    assert watcher.evidence.lower_bound() in bounds


@pytest.mark.parametrize("T", [400, 4000])
@pytest.mark.parametrize("name", [*OBLIVIOUS, "against"])
def test_at_least_as_tight_as_folklore_beside(name, T, seed):
    """What 0.1 had: the surrogate state of a Folklore that learns the same rows."""
    X, y = stream(name, seed, T)
    before = Folklore(n_features=d, n_classes=K, B=B)
    P = before.run(X, y)
    watcher = certifier()
    watcher.observe_many(X, y, P)
    old, new = before.certificate(), watcher.certificate()
    assert new.loss == pytest.approx(old.loss, rel=1e-12)
    assert new.regret_bound <= old.regret_bound
    best = best_in_class(X, y, B=B, n_classes=K)
    if T == 400:  # all rows are kept, and expanded at the best model
        assert new.best_linear_at_least == pytest.approx(best.loss, rel=1e-5)


@pytest.mark.parametrize("name", OBLIVIOUS)
def test_exact_is_the_loss_of_the_best_model(name, seed, rng):
    X, y = stream(name, seed, 3000)
    weight, P = 2.0 * rng.random(3000), np.full((3000, K), 1.0 / K)
    soft = soft_labels(seed, y, K)
    watcher = certifier()
    watcher.observe_many(X, soft, P, weight)
    for b in (B, 1.0):
        live, passes = watcher.certificate(B=b), []
        exact = watcher.exact(X, soft, weight, B=b, tol=1e-7, report=passes.append)
        best = best_in_class(X, soft, B=b, n_classes=K, weight=weight)
        assert live.best_linear_at_least <= exact.best_linear_at_least <= best.loss * (1 + 1e-12)
        assert exact.best_linear_at_least == pytest.approx(best.loss, rel=3e-7)
        assert (exact.B, exact.n_rounds, exact.loss) == (b, 3000, live.loss)
        assert [one.number for one in passes] == list(range(1, len(passes) + 1))
        assert passes[-1].gap <= 1e-7 * (1 + best.loss)


@pytest.mark.parametrize("d", [3, 5000])
def test_exact_reads_rows_without_weight_again(d, rng):
    X, y = rng.normal(size=(40, d)) / np.sqrt(d), rng.integers(3, size=40)
    weight = rng.choice([0.0, 1.0], size=40)
    watcher = Certifier(n_features=d, n_classes=3)
    watcher.observe_many(X, y, np.full((40, 3), 1 / 3), weight)
    exact = watcher.exact(X, y, weight, most_passes=5)
    assert exact.best_linear_at_least >= watcher.certificate().best_linear_at_least


def test_exact_reads_blocks_and_refuses_other_rows(seed):
    X, y = stream("stochastic", seed)
    watcher = certifier()
    watcher.observe_many(X, y, np.full((T, K), 1.0 / K))
    _, best, gap = slow_best(X, y, B, K)

    def blocks():
        yield X[:150], y[:150]
        yield X[150:], y[150:], np.ones(T - 150)

    certificate = watcher.exact(blocks, tol=1e-8)
    assert best - gap - 1e-5 <= certificate.best_linear_at_least <= best
    for rows in (slice(1, None), slice(None)):
        weight = np.full(T, 2.0)[rows]
        with pytest.raises(InvalidInputError, match="400 of total weight 400 were observed"):
            watcher.exact(X[rows], y[rows], weight)
    with pytest.raises(InvalidInputError, match="brings labels and weights itself"):
        watcher.exact(blocks, y)
    with pytest.raises(InvalidInputError, match="B=11 is larger than the class"):
        watcher.exact(X, y, B=11.0)


@pytest.mark.parametrize("weight", [1e-15, 1e15])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e14])
def test_rounding_never_makes_it_invalid(weight, scale, seed):
    X, y = stream("rare_flip", seed)
    watcher = certifier()
    weights = np.where(np.arange(T) % 2, weight, 1.0)
    watcher.observe_many(scale * X, y, np.full((T, K), 1.0 / K), weights)
    certificate = watcher.certificate()
    assert certificate.valid
    best = best_in_class(scale * X, y, B=B, n_classes=K, weight=weights)
    assert 0.0 <= certificate.best_linear_at_least <= best.loss * (1.0 + 1e-9)


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
    other = Certifier(n_features=d, n_classes=K, B=2.0).to_record()
    config = other.config | {"B": B}
    with pytest.raises(StateFileError, match="the learner of another problem"):
        Certifier.from_record(Record("Certifier", config, other.arrays))
