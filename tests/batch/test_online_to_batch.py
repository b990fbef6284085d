"""Selections equal hand-made copies; the guarantee is where the theorem is and nowhere else."""

import copy

import numpy as np
import pytest

import folklearn
from folklearn import Aggregating, Folklore, Laplace, Mixture, Ogd, auto
from folklearn.batch import OnlineToBatch
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.serialization import Record
from tests.reference import streams

D, K, T = 3, 3, 60


def folklore(**parameters):
    return Folklore(n_features=D, n_classes=K, B=5.0, **parameters)


def stream(seed, T=T):
    X, y = streams.stochastic(seed, T, D, K)
    return X, y, streams.contexts(np.random.default_rng([seed, 1]), 8, D, 1.0)


def before(rounds, X, y, make=folklore, weight=None):
    """States before the rounds, by a loop over single updates."""
    model, found = make(), []
    for t in range(1, len(X) + 1):
        found += [copy.deepcopy(model)] * rounds.count(t)
        model.update(X[t - 1], y[t - 1], weight=1.0 if weight is None else float(weight[t - 1]))
    return found


@pytest.mark.parametrize("n", [1, 6])
@pytest.mark.parametrize("number", range(5))
def test_selections_equal_copies_made_by_hand(n, number, seed):
    X, y, new = stream(seed)
    model = OnlineToBatch(folklore(), n_checkpoints=n, seed=number).fit(X, y)
    assert len(model.rounds) == n
    assert model.rounds == sorted(model.rounds)
    states = before(model.rounds, X, y)
    expected = np.mean([state.predict(new) for state in states], axis=0)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-12)
    np.testing.assert_allclose(model.predict(new[0]), expected[0], atol=1e-12)
    whole = folklore()
    whole.run(X, y)
    assert model.learner.certificate().loss == pytest.approx(whole.certificate().loss, abs=1e-9)


def test_soft_labels_and_weights(seed):
    X, y, new = stream(seed)
    soft, weight = streams.soft_labels(seed, y, K), np.random.default_rng(seed).random(T)
    model = OnlineToBatch(folklore(), n_checkpoints=3, seed=seed).fit(X, soft, weight=weight)
    states = before(model.rounds, X, soft, weight=weight)
    expected = np.mean([state.predict(new) for state in states], axis=0)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-12)
    expected = model.learner.certificate().regret_bound / T
    assert model.guarantee() == expected


def test_repeated_checkpoints_count_twice(seed):
    X, y, new = stream(seed, 4)
    model = OnlineToBatch(folklore(), n_checkpoints=40).fit(X, y)
    assert len(model.rounds) == 40
    assert set(model.rounds) == {1, 2, 3, 4}
    expected = np.mean([s.predict(new) for s in before(model.rounds, X, y)], axis=0)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-12)


def test_one_row_is_predicted_uniformly():
    model = OnlineToBatch(folklore(), n_checkpoints=1).fit([[0.5, 0.0, 0.0]], [1])
    assert model.rounds == [1]
    np.testing.assert_allclose(model.predict([0.5, 0.0, 0.0]), 1 / 3, atol=1e-15)


@pytest.mark.parametrize(("n", "n_seeds"), [(1, 400), (10, 40)])
def test_rounds_are_uniform(n, n_seeds, seed):
    """400 draws among 4 rounds: each 100 +- 8.7; 50 away is 5.8 standard deviations, and the
    eight checks fail together with probability below 1e-7."""
    X, y, _ = stream(seed, 4)
    drawn = []
    for number in range(n_seeds):
        model = OnlineToBatch(folklore(), n_checkpoints=n, seed=10_000 * seed + number).fit(X, y)
        drawn += model.rounds
    counts = np.bincount(drawn, minlength=5)
    assert counts[0] == 0
    assert counts.sum() == 400
    assert np.abs(counts[1:] - 100).max() < 50


def test_the_draws_depend_on_the_seed_alone(seed):
    X, y, _ = stream(seed)
    rounds = [
        OnlineToBatch(make(n_features=D, n_classes=K), seed=s).fit(X[rows], y[rows]).rounds
        for make, rows, s in (
            (Folklore, slice(None), 3),
            (Ogd, slice(None, None, -1), 3),
            (Ogd, slice(None), 4),
        )
    ]
    assert rounds[0] == rounds[1] != rounds[2]


def test_the_average_loses_at_most_the_average_loss(seed):
    """Jensen's inequality, in every row."""
    X, y, _ = stream(seed, 200)
    model = OnlineToBatch(folklore(), n_checkpoints=7, seed=seed).fit(X[:100], y[:100])
    new, label = X[100:], y[100:]
    rows = np.arange(100)
    states = before(model.rounds, X[:100], y[:100])
    average = np.mean([-np.log(s.predict(new)[rows, label]) for s in states], axis=0)
    own = -np.log(model.predict(new)[rows, label])
    assert (own <= average + 1e-12).all()
    assert own.mean() < average.mean()


@pytest.mark.parametrize("n", [1, 10])
def test_the_guarantee_is_the_certificate(n, seed):
    X, y, _ = stream(seed)
    model = OnlineToBatch(folklore(), n_checkpoints=n).fit(X, y)
    assert model.guarantee() == model.learner.certificate().regret_bound / T
    assert model.guarantee(B=2.0) == model.learner.certificate(B=2.0).regret_bound / T
    assert model.reason == ""
    assert model.guarantee() <= folklore().regret_bound(T) / T


def test_the_guarantee_without_a_certificate(seed):
    X, y, _ = stream(seed)
    ogd = OnlineToBatch(Ogd(n_features=D, n_classes=K, B=5.0)).fit(X, y)
    expected = Ogd(n_features=D, n_classes=K, B=5.0).regret_bound(T) / T
    assert ogd.guarantee() == pytest.approx(expected)
    assert ogd.guarantee(B=1.0) is None  # only a certificate can tell
    for more in ({"weight": np.ones(T)}, {}):
        scale = 1.0 if more else 2.0
        model = OnlineToBatch(Ogd(n_features=D, n_classes=K, R=0.5)).fit(scale * X, y, **more)
        assert model.guarantee() is None
        assert "weights of 1 and contexts of norm R" in model.reason


@pytest.mark.parametrize(
    ("learner", "reason"),
    [
        (folklore(gamma=5.0), "above the valid constant"),
        (Laplace(n_features=D, n_classes=K), "an expansion is no lower bound"),
        (Ogd(n_features=D, n_classes=K, rate=0.1), "Ogd proves nothing"),
        (Mixture([Ogd(n_features=D, n_classes=K)]), "no surviving expert has a certificate"),
    ],
    ids=["invalid", "laplace", "ogd", "mixture"],
)
def test_heuristics_say_so(learner, reason, seed):
    X, y, _ = stream(seed)
    model = OnlineToBatch(copy.deepcopy(learner)).fit(X, y)
    assert model.guarantee() is None
    assert reason in model.reason


def test_a_learner_that_has_learned_goes_on_without_guarantee(seed):
    X, y, new = stream(seed)
    learner = folklore()
    learner.run(X[:20], y[:20])
    model = OnlineToBatch(learner, n_checkpoints=1, seed=seed).fit(X[20:], y[20:])
    assert model.guarantee() is None
    assert "had learned before" in model.reason
    (state,) = before([model.rounds[0] + 20], X, y)
    np.testing.assert_allclose(model.predict(new), state.predict(new), atol=1e-12)
    for again in (OnlineToBatch(folklore()), OnlineToBatch(Ogd(n_features=D, n_classes=K))):
        again.fit(X, y).fit(X, y)
        assert again.n_rounds == T
        assert "had learned before" in again.reason


def test_excess_risk_stays_below_the_guarantee():
    """60 independent samples of 60 rows: the mean excess, about .2 with a standard error near
    .02, is below the mean bound, above 1, by dozens of standard errors."""
    excess, proven = [], []
    for number in range(60):
        rng = np.random.default_rng([5, number])
        W = streams.predictor(rng, K, D, 5.0)
        X = streams.contexts(rng, T + 50, D, 1.0)
        P = np.exp(X @ W.T)
        P /= P.sum(axis=1, keepdims=True)
        y = np.array([rng.choice(K, p=p) for p in P[:T]])
        model = OnlineToBatch(folklore(), n_checkpoints=1, seed=number).fit(X[:T], y)
        excess.append((P[T:] * np.log(P[T:] / model.predict(X[T:]))).sum(axis=1).mean())
        proven.append(model.guarantee())
    assert 0.0 < np.mean(excess) < 0.5 * np.mean(proven)


LEARNERS = {
    "folklore": folklore,
    "ogd": lambda: Ogd(n_features=D, n_classes=K),
    "auto": lambda: auto(n_features=D, n_classes=K),
    "aggregating": lambda: Aggregating(n_features=D, n_classes=K, n_particles=32),
}


@pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize("n", [1, 3])
def test_a_saved_predictor_is_the_same(make, n, tmp_path, seed):
    X, y, new = stream(seed, 20)
    model = OnlineToBatch(make(), n_checkpoints=n, seed=seed)
    model.save(tmp_path / "empty")
    fresh = folklearn.load(tmp_path / "empty").fit(X, y)
    model.fit(X, y)
    np.testing.assert_array_equal(fresh.predict(new), model.predict(new))
    model.save(tmp_path / "model")
    again = folklearn.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    assert again.guarantee() == model.guarantee()
    assert (again.rounds, again.reason) == (model.rounds, model.reason)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    more = [one.fit(X, y).predict(new) for one in (model, again)]
    np.testing.assert_array_equal(*more)


def test_damaged_records_are_refused(seed):
    X, y, _ = stream(seed, 20)
    record = OnlineToBatch(folklore(), n_checkpoints=2).fit(X, y).to_record()
    for part, value in {"states": [], "rounds": [0], "n_rounds": 0, "learner": 1}.items():
        with pytest.raises(StateFileError):
            OnlineToBatch.from_record(
                Record(record.kind, record.config | {part: value}, record.arrays)
            )
    arrays = {name: a for name, a in record.arrays.items() if name != "states0.S"}
    with pytest.raises(StateFileError, match="needs float64 S"):
        OnlineToBatch.from_record(Record(record.kind, record.config, arrays))


def test_bad_input(seed):
    X, y, _ = stream(seed)
    for learner in (Folklore, None, object()):
        with pytest.raises(InvalidInputError, match="not a learner"):
            OnlineToBatch(learner)
    with pytest.raises(InvalidInputError, match="n_checkpoints must be at least 1"):
        OnlineToBatch(folklore(), n_checkpoints=0)
    model = OnlineToBatch(folklore())
    with pytest.raises(FolklearnError, match="call fit"):
        model.predict(X)
    assert model.guarantee() is None
    assert "not fitted" in model.reason
    with pytest.raises(InvalidInputError, match="no rows"):
        model.fit(X[:0], y[:0])
    bad = X.copy()
    bad[-1, 0] = np.nan
    with pytest.raises(InvalidInputError, match="row 59 of X has nan"):
        model.fit(bad, y)
    with pytest.raises(InvalidInputError, match="label y\\[59\\] is 7"):
        model.fit(X, [*y[:-1], 7])
    assert model.learner.certificate().n_rounds == 0
    heavy = OnlineToBatch(Mixture([folklore()]))
    with pytest.raises(InvalidInputError, match="weight\\[59\\] is 2, above max_weight=1"):
        heavy.fit(X, y, weight=[1.0] * 59 + [2.0])
    assert heavy.learner.certificate().n_rounds == 0
    with pytest.raises(InvalidInputError, match="x has shape"):
        model.fit(X, y).predict([1.0])


def test_an_ogd_that_had_learned_has_no_guarantee(rng):
    X, y = rng.normal(size=(30, 2)) / 4, rng.integers(0, 3, 30)
    learner = Ogd(n_features=2, n_classes=3)
    learner.run(X, y)
    model = OnlineToBatch(learner).fit(X, y)
    assert model.guarantee() is None
    assert "had learned before" in model.reason
    assert OnlineToBatch(Ogd(n_features=2, n_classes=3)).fit(X, y).guarantee() is not None
