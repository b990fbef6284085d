"""Streams of sparse rows whose classes and features come late."""

import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

import folklearn
from folklearn import Mixture, Wide
from folklearn.errors import InvalidInputError
from folklearn.model.core import Core
from folklearn.model.sparse_scaler import SparseScaler
from folklearn.sparse import SparseRows
from tests.reference.streams import soft_labels, words

D, K = 2000, 4


def sample(seed, T=300):
    X, y = words(seed, T, d=D, K=K, n=10)
    _, places, y = np.unique(y, return_index=True, return_inverse=True)
    return X, np.argsort(np.argsort(places))[y]  # classes numbered as they come


def open_model(n_classes=0, **words):
    return Core("auto", n_features=D, n_classes=n_classes, sparse=True, **words)


def test_it_is_a_scaler_and_a_wide_learner(seed):
    X, y = sample(seed)
    model = open_model(K)
    P, u = model.run(X, y)
    twin = Wide(n_features=D + 1, n_classes=K)
    expected = twin.run(SparseScaler(n_features=D).transform(X).array(), y)
    np.testing.assert_array_equal(P, expected)
    assert model.certificate() == twin.certificate()
    assert (u < 1.0).all()


def test_one_by_one_dense_or_sparse_is_the_same(seed):
    X, y = sample(seed)
    blocks, dense, pairs = open_model(), open_model(), open_model()
    P, u = blocks.run(X, y)
    D_P, _ = dense.run(X.toarray(), y)
    np.testing.assert_array_equal(P, D_P)
    for t, label in enumerate(y[:100].tolist()):
        own = slice(X.indptr[t], X.indptr[t + 1])
        pair = X.indices[own], X.data[own]
        p = pairs.predict_one(pair)
        np.testing.assert_allclose(p, P[t, : len(p)], atol=1e-12)
        assert pairs.unseen_probability == pytest.approx(u[t])
        row = X[[t]].toarray()[0]
        np.testing.assert_allclose(pairs.predict_row(row), p, atol=1e-15)
        if t % 2:
            pairs.learn_row(row, label, 1.0)
        else:
            pairs.learn_one(pair, label)


def test_soft_labels_and_weights(seed, rng):
    X, y = sample(seed)
    Y, weight = soft_labels(seed, y, K), rng.random(300)
    model = open_model(K)
    P, _ = model.run(X, Y, weight=weight)
    twin = Wide(n_features=D + 1, n_classes=K)
    Z = SparseScaler(n_features=D).transform(X).array()
    np.testing.assert_array_equal(P, twin.run(Z, Y, weight=weight))
    model.refit(lambda: [(X[:100], Y[:100], weight[:100]), (X[100:], Y[100:], weight[100:])])
    whole = open_model(K)
    whole.run(X, Y, weight=weight)
    whole.refit(lambda: [(X, Y, weight)])
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_features_and_classes_come_late(seed):
    X, y = sample(seed)
    narrow = Core("auto", n_features=D // 2, sparse=True)
    few = (y < 2).nonzero()[0]
    narrow.run(X[few][:, : D // 2], y[few])
    assert narrow.n_classes == 2
    narrow.run(X, y)
    assert (narrow.n_classes, narrow.n_features) == (K, D)
    P = narrow.predict(X)
    assert P.shape == (300, K)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    narrow.learn_one(([D + 5], [1.0]), 0)
    assert narrow.n_features == D + 6


def test_a_fit_predicts_until_something_is_learned(seed):
    X, y = sample(seed, 600)
    model = open_model(K)
    model.run(X[:300], y[:300])
    before, certificate = model.predict(X[300:]), model.certificate()
    model.refit(lambda: [(X[:300], y[:300], np.ones(300))])
    after = model.predict(X[300:])
    given = np.arange(300), y[300:]
    assert -np.log(after[given]).mean() < -1.05 * np.log(before[given]).mean()
    assert model.certificate() == certificate
    np.testing.assert_allclose(model.predict(X[300:].toarray()), after, atol=1e-14)
    np.testing.assert_allclose(model.predict_one(X[[300]].toarray()[0]), after[0], atol=1e-14)
    model.learn_one(X[[300]].toarray()[0], 0)
    twin = open_model(K)
    twin.run(X[:301], [*y[:300], 0])
    np.testing.assert_array_equal(model.predict(X), twin.predict(X))


def test_it_goes_on_after_every_way_of_keeping_it(seed, tmp_path):
    X, y = sample(seed)
    model = open_model()
    model.run(X[:200], y[:200])
    for refit in (False, True):
        if refit:
            model.refit(lambda: [(X[:200], y[:200], np.ones(200))])
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


def test_other_learners_take_the_same_rows(seed):
    X, y = sample(seed, 30)
    model = Core("ogd", n_features=D, n_classes=K, sparse=True)
    P, _ = model.run(X, y)
    twin = folklearn.Ogd(n_features=D + 1, n_classes=K)
    np.testing.assert_allclose(P, twin.run(SparseScaler(n_features=D).transform(X).dense(), y))
    assert model.predict(SparseRows.of(X)).shape == (30, K)
    late = Core("ogd", n_features=D, sparse=True)
    late.run(X, y)
    assert late.n_classes == K


def test_dense_rows_of_many_classes_are_fitted_too(rng):
    X, V = rng.normal(size=(900, 40)), rng.normal(size=(100, 40))
    y = (2.0 * X @ V.T + rng.gumbel(size=(900, 100))).argmax(axis=1)
    model = Core("auto", n_features=40, n_classes=100)
    model.run(X, y)
    assert isinstance(model.learner, Mixture)  # of class blocks
    before = model.predict(X)
    model.refit(lambda: [(X, y, np.ones(900))])
    after = model.predict(X)
    given = np.arange(900), y
    assert np.log(after[given]).mean() > np.log(before[given]).mean()
    np.testing.assert_allclose(model.predict_one(X[0]), after[0], atol=1e-12)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), after)


def test_nothing_is_fitted_where_memory_is_short(seed, monkeypatch):
    X, y = sample(seed)
    model = open_model(K)
    model.run(X, y)
    before = model.predict(X)
    monkeypatch.setattr("folklearn.memory.bytes_present", lambda: 10_000)
    model.refit(lambda: [(X, y, np.ones(300))])
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (csr_array((2, D - 1)), [0, 1], "shape"),
        (csr_array((2, D)), [0, 5], "next number"),
        (csr_array((2, D)), [0], "one label per row"),
        (csr_array(([np.inf], ([0], [0])), shape=(1, D)), [0], "inf"),
        (np.ones(D), [0], "shape"),
    ],
)
def test_nonsense_changes_nothing(X, y, said, seed):
    model = open_model()
    model.run(*sample(seed))
    before = pickle.dumps(model.to_record())
    with pytest.raises(InvalidInputError, match=said):
        model.run(X, y)
    assert pickle.dumps(model.to_record()) == before


def test_a_learner_that_takes_no_words_says_so_at_once():
    with pytest.raises(InvalidInputError, match="'ogd' takes no words and no wide rows"):
        Core("ogd", n_features=1, n_classes=2, sparse=True)
