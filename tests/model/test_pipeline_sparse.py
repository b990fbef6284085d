"""Streams of sparse rows whose classes and columns come late."""

import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

import folklearn
from folklearn import DataWarning, Mixture, SparseSgd
from folklearn.errors import InvalidInputError
from folklearn.model.batch import SparseInput
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.refit import refit
from folklearn.scaler import SparseScaler
from folklearn.sparse import SparseRows
from tests.reference.streams import soft_labels, words

D, K = 2000, 4


def sample(seed, T=300):
    X, y = words(seed, T, d=D, K=K, n=10)
    _, places, y = np.unique(y, return_index=True, return_inverse=True)
    return X, np.argsort(np.argsort(places))[y]  # classes numbered as they come


def open_model(n_classes=0, **words):
    return OnlinePipeline("auto", n_features=1, n_classes=n_classes, sparse=True, **words)


def scaled(X):
    scaler = SparseScaler(n_features=1)
    return scaler.transform(SparseInput.of_rows(SparseRows.of(X))), scaler.n_columns


def state(model):
    record = model.to_record()
    return record.config, {part: array.tobytes() for part, array in record.arrays.items()}


def test_it_is_a_scaler_and_a_wide_learner(seed):
    X, y = sample(seed)
    model = open_model(K)
    P, u = model.run(X, y)
    Z, width = scaled(X)
    twin = SparseSgd(n_features=width, n_classes=K)
    np.testing.assert_array_equal(P, twin.run(Z.array(), y))
    found = model.certificate(twin.loss)
    assert found.valid
    assert found.n_rounds == len(y)
    assert (u < 1.0).all()


def test_pieces_are_the_whole_byte_for_byte(seed):
    """With the frozen record, whose stripes are then held row by row."""
    X, y = sample(seed)
    whole, rows, pieces = open_model(), open_model(), open_model()
    P, u = whole.run(X, y)
    for t in range(300):
        own, v = rows.run(X[[t]], y[t : t + 1])
        np.testing.assert_array_equal(own[0], P[t, : own.shape[1]])
        assert v[0] == u[t]
    for part in (slice(0, 70), slice(70, 75), slice(75, 300)):
        pieces.run(X[part], y[part])
    assert state(whole) == state(rows) == state(pieces)


def test_resuming_within_a_stripe_equals_never_stopping(seed, tmp_path):
    X, y = sample(seed)
    straight = open_model()
    straight.run(X[:70], y[:70])
    straight.save(tmp_path / "model")
    resumed = folklearn.load(tmp_path / "model")
    for model in (straight, resumed):
        model.run(X[70:], y[70:])
    assert state(resumed) == state(straight)


def test_soft_labels_and_weights(seed, rng):
    X, y = sample(seed)
    Y, weight = soft_labels(seed, y, K), rng.random(300)
    model = open_model(K)
    P, _ = model.run(X, Y, weight=weight)
    Z, width = scaled(X)
    twin = SparseSgd(n_features=width, n_classes=K)
    np.testing.assert_array_equal(P, twin.run(Z.array(), Y, weight=weight))
    refit(model, lambda: [(X[:100], Y[:100], weight[:100]), (X[100:], Y[100:], weight[100:])])
    whole = open_model(K)
    whole.run(X, Y, weight=weight)
    refit(whole, lambda: [(X, Y, weight)])
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def with_numbers(rng, X, slots=(2,)):
    """Rows that have numbers too, in the columns of these slots."""
    numbers = rng.normal(size=(X.shape[0], len(slots)))
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    return SparseInput.of_parts(numbers, slots, {1: SparseRows.of(X)})


def test_columns_and_classes_come_late(seed, rng):
    X, y = sample(seed)
    narrow = open_model()
    few = (y < 2).nonzero()[0]
    narrow.run(X[few], y[few])
    assert narrow.n_classes == 2
    wider = with_numbers(rng, X)
    narrow.run(wider, y)
    assert (narrow.n_classes, narrow.n_features) == (K, 2)
    P = narrow.predict(wider)
    assert P.shape == (300, K)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    parts = {1: SparseRows.of(X), 3: SparseRows.of(X)}
    widest = SparseInput.of_parts(wider.numbers, (2,), parts)
    narrow.run(widest, y)
    assert narrow.n_features == 3


def test_growth_within_a_stripe(seed, rng):
    X, y = sample(seed)
    wider = with_numbers(rng, X)
    whole, rows = open_model(K), open_model(K)
    for model in (whole, rows):
        model.run(X[:66], y[:66])
    whole.run(wider[66:], y[66:])
    for t in range(66, 300):
        rows.run(wider[t : t + 1], y[t : t + 1])
    assert state(whole) == state(rows)


def test_a_fit_predicts_until_something_is_learned(seed):
    X, y = sample(seed, 600)
    model = open_model(K)
    model.run(X[:300], y[:300])
    before, certificate = model.predict(X[300:]), repr(model.certificate(500.0))
    refit(model, lambda: [(X[:300], y[:300], np.ones(300))])
    after = model.predict(X[300:])
    given = np.arange(300), y[300:]
    assert -np.log(after[given]).mean() < -1.05 * np.log(before[given]).mean()
    assert repr(model.certificate(500.0)) == certificate
    np.testing.assert_array_equal(model.predict_next(X[300:]), after)
    model.run(X[[300]], [0])
    twin = open_model(K)
    twin.run(X[:301], [*y[:300], 0])
    np.testing.assert_array_equal(model.predict(X), twin.predict(X))


def test_it_goes_on_after_every_way_of_keeping_it(seed, tmp_path):
    X, y = sample(seed)
    model = open_model()
    model.run(X[:200], y[:200])
    for is_fitted in (False, True):
        if is_fitted:
            refit(model, lambda: [(X[:200], y[:200], np.ones(200))])
        model.save(tmp_path / "model")
        kept = [
            folklearn.load(tmp_path / "model"),
            pickle.loads(pickle.dumps(model)),
            copy.deepcopy(model),
        ]
        for one in kept:
            np.testing.assert_array_equal(one.predict(X), model.predict(X))
            twin = copy.deepcopy(model)
            np.testing.assert_array_equal(one.run(X, y)[0], twin.run(X, y)[0])


def test_other_learners_do_not_take_such_rows():
    for name in ("folklore", "ogd"):  # whose state has a number for every place
        with pytest.raises(InvalidInputError, match="takes no words and no wide rows"):
            OnlinePipeline(name, n_features=1, n_classes=K, sparse=True)


def test_dense_rows_of_many_classes_are_fitted_too(rng):
    X, V = rng.normal(size=(900, 40)), rng.normal(size=(100, 40))
    y = (2.0 * X @ V.T + rng.gumbel(size=(900, 100))).argmax(axis=1)
    model = OnlinePipeline("auto", n_features=40, n_classes=100)
    model.run(X, y)
    assert isinstance(model.learner, Mixture)  # of class blocks
    before = model.predict(X)
    refit(model, lambda: [(X, y, np.ones(900))])
    after = model.predict(X)
    given = np.arange(900), y
    assert np.log(after[given]).mean() > np.log(before[given]).mean()
    np.testing.assert_allclose(model.predict_row(X[0]), after[0], atol=1e-12)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), after)


def test_nothing_is_fitted_where_memory_is_short(seed, monkeypatch):
    X, y = sample(seed)
    model = open_model(K)
    model.run(X, y)
    before = model.predict(X)
    monkeypatch.setattr("folklearn.utils.bytes_present", lambda: 10_000)
    with pytest.warns(DataWarning, match="all rows together do not fit in memory"):
        refit(model, lambda: [(X, y, np.ones(300))])
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (csr_array((2, D)), [0, 5], "next number"),
        (csr_array((2, D)), [0], "one label per row"),
        (csr_array(([np.inf], ([0], [0])), shape=(1, D)), [0], "inf"),
    ],
)
def test_nonsense_changes_nothing(X, y, said, seed):
    model = open_model()
    model.run(*sample(seed))
    before = pickle.dumps(model.to_record())
    with pytest.raises(InvalidInputError, match=said):
        model.run(X, y)
    assert pickle.dumps(model.to_record()) == before
