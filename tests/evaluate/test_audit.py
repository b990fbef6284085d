"""The certificate of anybody's predictions holds, is tight, and exact after a few passes."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import folklearn
from folklearn import Certificate, Folklore
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate.auditing import Certifier, audit
from folklearn.evaluate.regression import logistic_regression
from folklearn.metrics.scores import linear_losses
from folklearn.serialization import Record, read
from folklearn.synthetic import OBLIVIOUS, against, contexts
from tests.evaluate.peers import PEERS, river
from tests.reference.streams import soft_labels

T, d, K = 400, 3, 3


def stream(name, seed, T=T):
    if name != "against":
        return OBLIVIOUS[name](seed, T, d=d, K=K)
    X = contexts(seed, T, d=d)
    return X, against(Folklore(n_features=d, n_classes=K, B=10.0), X)


def certifier(**more):
    return Certifier(n_features=d, n_classes=K, **more)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("name", [*OBLIVIOUS, "against"])
def test_the_bound_holds_against_the_best_model(name, peer, seed):
    X, y = stream(name, seed)
    P = PEERS[peer](X, y, K)
    watcher = certifier()
    losses = watcher.observe_many(X, y, P)
    theirs = -np.log(P[np.arange(T), y]).sum()
    assert losses.sum() == pytest.approx(theirs, rel=1e-12)
    fit = logistic_regression(X, y, n_classes=K)
    whole, one = watcher.certificate(), watcher.certificate(fit.W)
    assert isinstance(whole, Certificate)
    assert whole.valid
    assert (whole.C, whole.penalty, whole.n_rounds, whole.reason) == (1.0, 1.0, T, "")
    assert whole.loss == pytest.approx(theirs, rel=1e-12)
    total = fit.loss + fit.penalty
    assert total * (1.0 - 1e-5) <= whole.best_linear_at_least <= total
    assert one.C is None
    assert one.best_linear_at_least <= fit.loss
    assert theirs - fit.loss <= one.regret_bound + 1e-8
    norm = np.linalg.norm(fit.W)
    assert whole.at_norm(norm) <= fit.loss


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_no_regression_of_scikit_learn_gets_below(C, K, seed):
    X, y = OBLIVIOUS["stochastic"](seed, 6000, d=d, K=K)
    X = np.hstack([np.ones((len(X), 1)), X])
    watcher = Certifier(n_features=d + 1, n_classes=K, C=C, constant=0)
    watcher.observe_many(X, y, np.full((len(y), K), 1.0 / K))
    model = LogisticRegression(C=C, tol=1e-9, max_iter=1000).fit(X[:, 1:], y)
    P = model.predict_proba(X[:, 1:])
    total = -np.log(P[np.arange(len(y)), y]).sum() + (model.coef_**2).sum() / (2.0 * C)
    # The constant costs 1e-4 of its penalty, which scikit-learn does not count.
    constant = 1e-4 * (model.intercept_**2).sum() / (2.0 * C)
    bound = watcher.certificate().best_linear_at_least
    assert total * (1.0 - 1e-3) <= bound <= total + constant


def test_what_is_proven_of_linear_models_does_not_depend_on_the_predictions(seed):
    X, y = stream("stochastic", seed)
    bounds = set()
    for peer in ("constant", "frequencies"):
        watcher = certifier()
        watcher.observe_many(X, y, PEERS[peer](X, y, K))
        bounds.add(watcher.certificate().best_linear_at_least)
    assert len(bounds) == 1
    assert watcher.evidence.lower_bound() == pytest.approx(bounds.pop(), rel=1e-9)


def test_the_evidence_is_a_copy(seed):
    X, y = stream("stochastic", seed)
    watcher = certifier()
    watcher.observe_many(X[:200], y[:200], np.full((200, K), 1.0 / K))
    evidence = watcher.evidence
    watcher.observe_many(X[200:], y[200:], np.full((T - 200, K), 1.0 / K))
    assert (evidence.n_rounds, watcher.n_rounds) == (200, T)


@pytest.mark.parametrize("name", [*OBLIVIOUS, "against"])
def test_at_least_as_tight_as_folklore_beside(name, seed):
    """Folklore bounds the models of norm 10, each of which is among all, less its penalty."""
    X, y = stream(name, seed, 4000)
    before = Folklore(n_features=d, n_classes=K, B=10.0)
    P = before.run(X, y)
    watcher = certifier()
    watcher.observe_many(X, y, P)
    old, new = before.certificate(), watcher.certificate()
    assert new.loss == pytest.approx(old.loss, rel=1e-12)
    W = logistic_regression(X, y, n_classes=K).W
    assert new.regret_bound <= old.regret_bound + 0.5 * (W**2).sum()


@pytest.mark.parametrize("name", OBLIVIOUS)
def test_exact_is_the_loss_and_penalty_of_the_regression(name, seed, rng):
    X, y = stream(name, seed, 6000)
    weight, P = 2.0 * rng.random(6000), np.full((6000, K), 1.0 / K)
    soft = soft_labels(seed, y, K)
    watcher = certifier(C=3.0)
    watcher.observe_many(X, soft, P, weight)
    live, passes = watcher.certificate(), []
    exact = watcher.exact(X, soft, weight, tol=1e-7, report=passes.append)
    fit = logistic_regression(X, soft, n_classes=K, weight=weight, C=3.0, tol=1e-9)
    total = fit.loss + fit.penalty
    assert live.best_linear_at_least <= exact.best_linear_at_least <= total
    assert exact.best_linear_at_least == pytest.approx(total, rel=3e-7)
    assert (exact.C, exact.n_rounds, exact.loss) == (3.0, 6000, live.loss)
    assert [one.number for one in passes] == list(range(1, len(passes) + 1))
    assert passes[-1].gap <= 1e-7 * (1 + total)
    at_once = audit(X, soft, P, weight, C=3.0, tol=1e-7)
    assert at_once.best_linear_at_least == pytest.approx(total, rel=3e-7)
    assert at_once.best_linear_at_least <= total
    assert at_once.loss == pytest.approx(live.loss, rel=1e-12)


def test_wide_rows_have_planes_at_the_predictions_of_a_learner(rng, tmp_path):
    T, d, K = 3000, 4000, 3
    indices = np.minimum(3.0 * rng.pareto(0.8, size=(T, 8)), d - 1).astype(int)
    X = csr_array((np.full(8 * T, 8**-0.5), indices.ravel(), np.arange(0, 8 * T + 1, 8)), (T, d))
    X.sum_duplicates()
    y = (X @ (3.0 * rng.normal(size=(d, K))) + rng.gumbel(size=(T, K))).argmax(axis=1)
    P = np.full((T, K), 1.0 / K)
    whole, part = (Certifier(n_features=d, n_classes=K) for _ in range(2))
    assert whole._learner is not None
    whole.observe_many(X, y, P)
    part.observe_many(X[:2999], y[:2999], P[:2999])
    part.save(tmp_path / "part")
    resumed = folklearn.load(tmp_path / "part")
    last = X[[2999]].tocoo()
    resumed.observe((last.coords[1], last.data), y[2999], P[2999])
    fit = logistic_regression(X, y, n_classes=K)
    bound = whole.certificate().best_linear_at_least
    assert 0.5 * fit.loss < bound <= fit.loss + fit.penalty
    assert resumed.certificate().best_linear_at_least == pytest.approx(bound, rel=1e-9)
    exact = whole.exact(X, y).best_linear_at_least
    assert exact == pytest.approx(fit.loss + fit.penalty, rel=1e-5)


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
    fit = logistic_regression(X, y, n_classes=K)
    best = fit.loss + fit.penalty

    def blocks():
        yield X[:150], y[:150]
        yield X[150:], y[150:], np.ones(T - 150)

    certificate = watcher.exact(blocks, tol=1e-8)
    assert best - fit.gap - 1e-4 <= certificate.best_linear_at_least <= best
    for rows in (slice(1, None), slice(None)):
        weight = np.full(T, 2.0)[rows]
        with pytest.raises(InvalidInputError, match="400 of total weight 400 were observed"):
            watcher.exact(X[rows], y[rows], weight)
    with pytest.raises(InvalidInputError, match="brings labels and weights itself"):
        watcher.exact(blocks, y)


@pytest.mark.parametrize("weight", [1e-15, 1e15])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e14])
def test_rounding_never_makes_it_invalid(weight, scale, seed):
    X, y = stream("rare_flip", seed)
    watcher = certifier()
    weights = np.where(np.arange(T) % 2, weight, 1.0)
    watcher.observe_many(scale * X, y, np.full((T, K), 1.0 / K), weights)
    certificate = watcher.certificate()
    assert certificate.valid
    assert certificate.best_linear_at_least >= 0.0
    for W in (np.zeros((K, d)), np.eye(K), 0.5 * np.eye(K) / scale):
        loss = weights @ linear_losses(scale * X, y, W)
        total = loss + 0.5 * (W**2).sum()
        assert certificate.best_linear_at_least <= total * (1.0 + 1e-9)
        assert watcher.certificate(W).best_linear_at_least <= loss * (1.0 + 1e-9)


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


def test_problems_that_are_none():
    with pytest.raises(InvalidInputError, match="C must be a positive number"):
        Certifier(n_features=1, n_classes=2, C=0.0)
    with pytest.raises(InvalidInputError, match="constant must be"):
        Certifier(n_features=1, n_classes=2, constant=1)
    with pytest.raises(InvalidInputError, match="W has shape"):
        certifier().certificate(np.eye(2))


def test_resume(seed, tmp_path):
    X, y = stream("stochastic", seed)
    P = np.full((T, K), 1.0 / K)
    P[5] = np.roll(np.eye(K), 1, axis=1)[y[5]]
    whole, part = certifier(C=2.0, constant=1), certifier(C=2.0, constant=1)
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
    other = Certifier(n_features=d, n_classes=K, C=2.0).to_record()
    config = other.config | {"C": 1.0}
    with pytest.raises(StateFileError, match="the evidence of another problem"):
        Certifier.from_record(Record("Certifier", config, other.arrays))
