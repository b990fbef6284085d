"""The classifier as scikit-learn sees it, and what it promises beyond that."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import folklearn
from folklearn import FolkloreClassifier
from folklearn.errors import InvalidInputError
from folklearn.learners import catalogue
from folklearn.model.pipeline import OnlinePipeline
from folklearn.readers import table as table_module
from folklearn.scaler import OnlineScaler
from tests.adapters.copying import TRUSTED, copies


def quick(**words):
    return FolkloreClassifier(**{"learner": "folklore", "shuffle": False} | words)


def sample(rng, T=60, d=3, K=3):
    X = rng.normal(size=(T, d))
    W = 3.0 * rng.normal(size=(K, d))
    y = (X @ W.T + rng.gumbel(size=(T, K))).argmax(axis=1)
    y[:K] = np.arange(K)  # all occur
    return X, y


def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def online(estimator):
    """A weight is a step, not a repetition: scikit-learn expects the same of SGDClassifier."""
    reason = "sample_weight is not equivalent to removing or repeating rows in a stream"
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@parametrize_with_checks(
    [
        FolkloreClassifier(),
        quick(),  # in one pass, the extreme weights of the checks want the order of the checks
        FolkloreClassifier(passes=1),
        # With B = 10 a single step overshoots on the few, extremely weighted rows of the checks.
        FolkloreClassifier(learner="ogd", B=3.0),
    ],
    expected_failed_checks=online,
)
@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings, and look at them themselves
def test_the_checks_of_scikit_learn(estimator, check):
    with np.errstate(all="warn"):
        check(estimator)


def test_the_learner_is_named_first_and_the_rest_by_name():
    assert FolkloreClassifier("folklore").learner == "folklore"
    with pytest.raises(TypeError, match="positional"):
        FolkloreClassifier("folklore", 10.0)


# What fit and partial_fit are


@pytest.mark.parametrize("learner", ["folklore", "auto", "ogd"])
def test_fit_is_partial_fit_with_classes_declared(learner, rng):
    X, y = sample(rng, T=90)
    whole = FolkloreClassifier(learner=learner, passes=1, shuffle=False).fit(X, y)
    parts = FolkloreClassifier(learner=learner)
    for rows in np.split(np.arange(90), [1, 2, 40]):
        parts.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-9)
    assert (
        parts.model_.unseen_probability == whole.model_.unseen_probability == 0.0
    )  # all were declared


def test_it_is_the_core_of_the_model(rng):
    X, y = sample(rng)
    model = OnlinePipeline("folklore", {"lam": 0.3, "B": 4.0}, n_features=3, n_classes=3)
    model.run(X, y)
    estimator = quick(B=4.0, lam=0.3).fit(X, y)
    np.testing.assert_array_equal(estimator.predict_proba(X), model.predict(X))
    np.testing.assert_array_equal(estimator.predict(X), model.predict(X).argmax(axis=1))
    found = estimator.certificate()
    assert found == model.certificate(found.loss, estimator.model_.encoder.in_words)
    assert FolkloreClassifier(learner="ogd").fit(X, y).certificate().valid


def test_fit_forgets_and_partial_fit_goes_on(rng):
    X, y = sample(rng)
    once, twice = quick().fit(X, y), quick().fit(-X, y).fit(X, y)
    np.testing.assert_array_equal(once.predict_proba(X), twice.predict_proba(X))
    once.partial_fit(X[:5], y[:5])
    assert once.model_.n_rounds == 65


def test_small_blocks_are_the_same(rng, monkeypatch):
    X, y = sample(rng)
    whole = quick().fit(X, y)
    P = whole.predict_proba(X)
    monkeypatch.setattr(table_module, "_MAX_DENSE_NUMBERS", 21)
    np.testing.assert_allclose(quick().fit(X, y).predict_proba(X), P, atol=1e-9)
    np.testing.assert_allclose(whole.predict_proba(X), P, atol=1e-12)


def test_the_random_state_decides_the_order(rng):
    X, y = sample(rng)
    model, again, other = (quick(shuffle=True, random_state=state).fit(X, y) for state in (1, 1, 2))
    assert model.model_.n_rounds == 60
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    assert (model.predict_proba(X) != other.predict_proba(X)).any()


@pytest.mark.parametrize("words", [{}, {"learner": "folklore"}])
def test_sorted_rows_do_no_harm(words, rng):
    X, y = sample(rng, T=900)
    train, new = slice(0, 600), slice(600, None)
    order = np.argsort(y[train], kind="stable")
    losses = [
        log_loss(y[new], FolkloreClassifier(**words).fit(X[rows], y[rows]).predict_proba(X[new]))
        for rows in (np.arange(600), order)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    in_order = FolkloreClassifier(**words, passes=1, shuffle=False).fit(X[order], y[order])
    assert log_loss(y[new], in_order.predict_proba(X[new])) > 1.1 * losses[1]


def test_the_default_is_the_penalised_fit_of_all_rows(rng):
    X, y = sample(rng, T=600)
    model = FolkloreClassifier().fit(X[:400], y[:400])
    best = min(
        log_loss(y[400:], LogisticRegression(C=C).fit(X[:400], y[:400]).predict_proba(X[400:]))
        for C in (0.1, 1.0, 10.0, 100.0)
    )
    assert log_loss(y[400:], model.predict_proba(X[400:])) <= 1.03 * best
    assert model.model_.n_rounds == 400  # the learner, and its certificate, see every row once
    once = FolkloreClassifier(passes=1).fit(X[:400], y[:400])
    assert once.certificate() == model.certificate()
    P = model.predict_proba(X)
    assert np.abs(P - once.predict_proba(X)).max() > 1e-6
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), P)
    np.testing.assert_allclose(model.model_.predict_next(X[:1]), P[:1], rtol=1e-12)
    # What is learned afterwards is learned on line, and predicted so.
    for other in (model, once):
        other.partial_fit(X[400:], y[400:])
    np.testing.assert_array_equal(model.predict_proba(X), once.predict_proba(X))


# Labels


@pytest.mark.parametrize(
    "names",
    [["c", "a", "b"], [7, -3, 5], [3.0, 1.0, 2.0], np.array(["z", "y", "xx"], object)],
    ids=["text", "integers", "floats", "objects"],
)
def test_columns_follow_the_sorted_labels(names, rng):
    X, y = sample(rng)
    names = np.asarray(names)
    P = quick().fit(X, y).predict_proba(X)[:, np.argsort(names)]
    model = quick().fit(X, names[y])
    assert model.classes_.tolist() == sorted(names.tolist())
    np.testing.assert_allclose(model.predict_proba(X), P, atol=1e-8)
    streamed = quick()
    for row in range(60):
        streamed.partial_fit(X[[row]], names[y[[row]]])
    assert streamed.classes_.tolist() == model.classes_.tolist()
    assert streamed.score(X, names[y]) > 0.5
    np.testing.assert_allclose(streamed.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)


def test_truth_values_are_labels_of_their_own(rng):
    X, y = sample(rng, K=2)
    model = quick().fit(X, y == 1)
    assert model.classes_.dtype == bool
    np.testing.assert_array_equal(model.predict_proba(X), quick().fit(X, y).predict_proba(X))
    with pytest.raises(InvalidInputError, match="y holds numbers, but the labels so far are truth"):
        model.partial_fit(X, y)
    with pytest.raises(
        InvalidInputError, match="y holds truth values, but the labels so far are text"
    ):
        quick().partial_fit(X, y == 1, classes=["no", "yes"])


def test_classes_come_late_and_are_not_impossible(rng):
    X, y = sample(rng, T=80, K=4)
    names = np.array(["d", "b", "a", "c"])
    model = quick()
    assert model.partial_fit(X[:1], names[y[:1]]).predict_proba(X).tolist() == [[1.0]] * 80
    for row in range(1, 80):
        model.partial_fit(X[[row]], names[y[[row]]])
        P = model.predict_proba(X[row:])
        assert P.shape[1] == len(model.classes_) == len(set(y[: row + 1]))
        np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
        assert (P > 0.0).all()
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert model.model_.unseen_probability == 4.5 / 81


def test_classes_may_be_declared_at_any_time(rng):
    X, y = sample(rng)
    model = quick().partial_fit(X, y, classes=[0, 5]).partial_fit(X, y, classes=[9, 1])
    assert model.classes_.tolist() == [0, 1, 2, 5, 9]
    assert sorted(model.model_.labels[:2]) == [0, 5]
    assert model.model_.pipeline.n_new == 2  # 1 and 2 were not declared before they came


def test_one_class_is_certain(rng):
    X, _ = sample(rng)
    model = quick().fit(X, ["only"] * 60)
    assert (model.predict(X) == "only").all()
    assert (model.predict_log_proba(X) == 0.0).all()


def test_many_labels_in_a_small_batch_are_no_regression(rng):
    quick().partial_fit(rng.normal(size=(30, 2)), np.arange(30))  # warnings are errors here


def objects(*labels):
    array = np.empty(len(labels), object)
    array[:] = labels
    return array


@pytest.mark.parametrize(
    "y",
    [
        objects("a", None),
        objects("a", 1),
        objects(1, "a"),
        objects("a", (1, 2)),
        objects("a", np.nan),
        np.array([b"a", b"b"]),
        np.array([0.5, 1.0]),
        np.array([1e300, 1.0]),
        np.array([np.nan, 1.0]),
        np.array([1j, 2.0]),
        np.array(["2026-01-01", "2026-01-02"], "datetime64[D]"),
        np.array([[0, 1], [1, 0]]),
    ],
    ids=repr,
)
def test_odd_labels_are_refused(y):
    for verb in ("fit", "partial_fit"):
        with pytest.raises((ValueError, TypeError)):
            getattr(quick(), verb)([[0.0], [1.0]], y)


def test_integers_that_floats_would_confuse_are_refused():
    model = quick().partial_fit([[0.0], [1.0]], [2**53, 2**53 + 1])
    assert model.classes_.tolist() == [2**53, 2**53 + 1]
    model.partial_fit([[0.0]], [1.0])  # a whole float, taken as the integers before it
    assert model.classes_.tolist() == [1, 2**53, 2**53 + 1]
    model = quick().partial_fit([[0.0], [1.0]], [0.0, 1.0])
    before = pickle.dumps(model)
    with pytest.raises(InvalidInputError, match="all labels together must hold integers"):
        model.partial_fit([[0.0]], [2**53 + 1])
    assert pickle.dumps(model) == before


# Rows


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "coo_array", "csc_matrix"])
def test_sparse_is_dense(kind, rng):
    X, y = sample(rng)
    X[rng.random(X.shape) < 0.6] = 0.0
    X[3, 1] = np.nan
    S = getattr(scipy.sparse, kind)(X)
    for words in ({}, {"shuffle": True, "random_state": 0}):
        dense, sparse = quick(**words).fit(X, y), quick(**words).fit(S, y)
        np.testing.assert_array_equal(sparse.predict_proba(S), dense.predict_proba(X))
        sparse.partial_fit(S, y)
        dense.partial_fit(X, y)
        np.testing.assert_array_equal(sparse.predict_proba(S), dense.predict_proba(X))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_arrays_with_names(library, rng):
    frames = pytest.importorskip(library)
    X, y = sample(rng)
    names = np.array(["low", "mid", "top"])
    frame = frames.DataFrame({f"f{j}": X[:, j] for j in range(3)})
    labels = frames.Series(names[y])
    model = quick().fit(frame, labels, sample_weight=frames.Series(np.ones(60)))
    assert model.feature_names_in_.tolist() == ["f0", "f1", "f2"]
    expected = quick().fit(X, names[y]).partial_fit(X, names[y])
    model.partial_fit(frame, labels)
    np.testing.assert_array_equal(model.predict_proba(frame), expected.predict_proba(X))
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(frame[["f1", "f0", "f2"]], labels)
    assert pickle.dumps(model) == before


def test_missing_is_the_mean_so_far(rng):
    """The mean is the scaler's: plain but for outliers, and the first three values."""
    X, y = sample(rng)
    X[:, 2] = X[:, 2] > 0.0  # about half of them: no outliers
    model = quick().fit(X, y)
    scaler = OnlineScaler(n_features=3, gaps=True)
    scaler.learn_transform(X)
    means = scaler.to_record().arrays["moments"][1]
    assert means[2] == pytest.approx(X[:, 2].mean())
    gaps, filled = X.copy(), X.copy()
    gaps[:, 1:], filled[:, 1:] = np.nan, means[1:]
    np.testing.assert_allclose(
        model.predict_proba(gaps), model.predict_proba(filled), rtol=0.0, atol=1e-9
    )
    gaps[:, 2] = X[:, 2]
    P = model.predict_proba(gaps)
    nones = gaps.astype(object)
    nones[:, 1] = None
    np.testing.assert_array_equal(model.predict_proba(nones), P)
    X[rng.random(X.shape) < 0.3] = np.nan
    assert np.isfinite(quick().fit(X, y).predict_proba(X)).all()


def test_an_outlier_does_no_lasting_harm(rng):
    X, y = sample(rng, T=300)
    P = quick().fit(X, y).predict_proba(X)
    X[30, 0] = 1e9
    np.testing.assert_allclose(quick().fit(X, y).predict_proba(X)[100:], P[100:], atol=0.2)


def test_rows_must_be_numbers_of_bearable_size(rng):
    X, y = sample(rng)
    model = quick().fit(X, y)
    for S in (X, scipy.sparse.csr_array(X)):
        S[7, 1] = -1e200
        for call in (lambda S=S: model.predict(S), lambda S=S: model.partial_fit(S, y)):
            with pytest.raises(InvalidInputError, match="row 7 of X has a norm above"):
                call()
    X[7, 1] = 9e14
    X[8, 0] = np.nan
    assert np.isfinite(model.fit(X, y).predict_proba(X)).all()
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit([[np.inf, 0.0, 0.0]], [0])


# Weights


@pytest.mark.parametrize("learner", ["folklore", "ogd"])
def test_weight_0_teaches_nothing(learner, rng):
    """But for "auto", whose leaders are refreshed by the number of rounds, these included."""
    X, y = sample(rng)
    X /= np.abs(X).sum(axis=1, keepdims=True)
    weights = np.tile([1.0, 0.0, 0.5], 20)
    model = quick(learner=learner, passes=1, scale=False)
    P = model.fit(X, y, sample_weight=weights).predict_proba(X)
    with_weight = weights > 0.0
    model.partial_fit(X[:1], y[:1], sample_weight=[0.0])
    np.testing.assert_allclose(model.predict_proba(X), P, atol=1e-9)
    model.fit(X[with_weight], y[with_weight], sample_weight=weights[with_weight])
    np.testing.assert_allclose(model.predict_proba(X), P, atol=1e-9)


def test_weight_0_moves_the_scaler(rng):
    X, y = sample(rng)
    model = quick().fit(X, y)
    P = model.predict_proba(X)
    theta = model.model_.pipeline.learner.coef()
    model.partial_fit([[100.0, 0.0, 0.0]], [1], sample_weight=0.0)
    np.testing.assert_array_equal(model.model_.pipeline.learner.coef(), theta)
    assert (model.predict_proba(X) != P).any()


def test_class_weight_is_sample_weight(rng):
    X, y = sample(rng)
    weights = rng.random(60)
    names = np.array(["x", "y", "z"])
    factors = np.array([1.0, 4.0, 0.5])
    given = dict(zip(names.tolist(), factors, strict=True))
    expected = FolkloreClassifier().fit(X, names[y], weights * factors[y]).predict_proba(X)
    model = FolkloreClassifier(class_weight=given).fit(X, names[y], weights)
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    given.pop("x")  # is 1 all the same
    model.set_params(class_weight=given).fit(X, names[y], weights)
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    streamed = quick(class_weight=given).partial_fit(X, names[y], names, weights)
    batch = quick(class_weight=given).fit(X, names[y], weights)
    np.testing.assert_array_equal(streamed.predict_proba(X), batch.predict_proba(X))


def test_balanced_is_that_of_scikit_learn(rng):
    X, y = sample(rng)
    factors = compute_class_weight("balanced", classes=np.arange(3), y=y)
    model = quick(class_weight="balanced").fit(X, y)
    expected = quick().fit(X, y, factors[y])
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-9)
    model.fit(X, y, sample_weight=np.where(y == 1, 0.0, 1.0))  # a class without weight
    assert np.isfinite(model.predict_proba(X)).all()
    with pytest.raises(InvalidInputError, match="'balanced' is not supported by partial_fit"):
        model.partial_fit(X, y)


def test_auto_is_told_of_the_largest_weight(rng):
    X, y = sample(rng)
    weights = np.linspace(0.0, 5.0, 60)
    assert FolkloreClassifier().fit(X, y, weights).model_.pipeline.learner.max_weight == 5.0
    with pytest.raises(InvalidInputError, match=r"weight\[59\] is 5, above max_weight=1"):
        FolkloreClassifier().partial_fit(X, y, sample_weight=weights)
    FolkloreClassifier(max_weight=5).partial_fit(X, y, sample_weight=weights)
    FolkloreClassifier(class_weight={2: 5.0}).partial_fit(X, y)
    with pytest.raises(InvalidInputError, match="above max_weight=2"):
        FolkloreClassifier(max_weight=2.0).fit(X, y, weights)
    quick().partial_fit(X, y, sample_weight=weights)  # one learner has no such limit


# Parameters and refusals


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"learner": "perceptron"}, "there is no learner 'perceptron'; choose one of: auto"),
        ({"learner": "aioli"}, "Aioli is for two classes, got n_classes=3"),
        ({"learner": "auto", "lam": 3.0}, "auto does not take the setting 'lam'"),
        ({"learner": "ogd", "lam": 3.0}, "does not take the setting 'lam'"),
        ({"max_weight": 3.0}, "folklore does not take the setting 'max_weight'"),
        ({"learner": "auto", "memory": 9}, "auto does not take the setting 'memory'"),
        ({"memory": 0}, "memory must be at least 1"),
        ({"memory": 2.5}, "memory must be an integer"),
        ({"roles": {"a": "number"}}, "roles and crosses are for the columns of a data frame"),
        ({"B": -1.0}, "B must be a positive number"),
        ({"passes": 0}, "passes must be at least 1"),
        ({"passes": "many"}, "passes must be an integer, got 'many'"),
        ({"passes": 3}, "learner='folklore' learns every row once: leave passes=3 out"),
        ({"class_weight": [1.0, 2.0]}, 'must be None, a dict or "balanced"'),
        ({"class_weight": {0: -1.0}}, "class_weight of 0 must be a number from 0"),
        ({"class_weight": {7: 1.0}}, r"class_weight names \[7\], which y does not hold"),
        ({"class_weight": {0: 0.0, 1: 0.0, 2: 0.0}}, "weights are all zero"),
    ],
)
def test_bad_parameters_are_refused_in_fit(words, sentence, rng):
    X, y = sample(rng)
    model = quick().fit(X, y).set_params(**words)
    before = pickle.dumps(model)
    with pytest.raises(InvalidInputError, match=sentence):
        model.fit(X, y)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("name", catalogue.growing())
def test_every_growing_learner_can_be_chosen(name):
    X, y = wine()
    model = FolkloreClassifier(learner=name).fit(X[:120], y[:120])
    assert log_loss(y[120:], model.predict_proba(X[120:])) < 0.3
    assert model.score(X[120:], y[120:]) > 0.9


@pytest.mark.parametrize("name", sorted({*catalogue.CATALOGUE} - {*catalogue.growing()}))
def test_a_learner_that_cannot_grow_is_told_all_classes(name, rng):
    X, y = sample(rng, K=2)
    twin = OnlinePipeline(name, {"B": 3.0}, n_features=3, n_classes=2)
    twin.run(X, y)
    model = quick(learner=name, B=3.0)
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), twin.predict(X))
    model = FolkloreClassifier(learner=name, B=3.0)
    sentence = f"'{name}' is no learner that takes classes as they come"
    empty = pickle.dumps(model)
    for classes in (None, [0], [0, 5]):
        with pytest.raises(InvalidInputError, match=sentence):
            model.partial_fit(X, y, classes=classes)
        assert pickle.dumps(model) == empty
    for rows in np.split(np.arange(60), [1, 20]):
        model.partial_fit(X[rows], y[rows], classes=[0, 1])
    np.testing.assert_allclose(model.predict_proba(X), twin.predict(X), atol=1e-9)
    before = pickle.dumps(model)
    for late, classes in ([7, 0], None), ([0, 1], [7]):
        with pytest.raises(InvalidInputError, match=sentence):
            model.partial_fit(X[:2], late, classes=classes)
        assert pickle.dumps(model) == before


@pytest.mark.parametrize("name", sorted({*catalogue.CATALOGUE} - {*catalogue.growing()}))
def test_a_learner_that_cannot_grow_is_copied(name, rng):
    X, y = sample(rng, K=2)
    model = FolkloreClassifier(learner=name, B=3.0, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_memory_forgets(rng):
    X = rng.normal(size=(1000, 3))
    y = ((X[:, 0] > 0.0) ^ (rng.random(1000) < 0.1)).astype(int)
    twin = OnlinePipeline("folklore", {"memory": 100}, n_features=3, n_classes=2)
    twin.run(X, y)
    model = quick(memory=100).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), twin.predict(X))
    assert model.certificate().valid  # it is about the rows, whatever learns them
    forgets, remembers = (
        log_loss(1 - y, other.partial_fit(X[:50], 1 - y[:50]).predict_proba(X))
        for other in (model, quick().fit(X, y))
    )
    assert forgets < remembers


def test_a_state_that_cannot_fit_is_refused_at_once():
    X = scipy.sparse.csr_array((20, 10**6))
    y = np.arange(20) % 2
    with pytest.raises(InvalidInputError, match='GB of memory.*use learner="auto"'):
        quick().fit(X, y)
    FolkloreClassifier().fit(X, y)
    FolkloreClassifier(learner="ogd").fit(X, y)


def test_nothing_is_known_before_the_first_fit():
    model = quick()
    for call in (
        model.certificate,
        lambda: model.predict([[1]]),
    ):
        with pytest.raises(NotFittedError):
            call()


VALUES = st.one_of(
    st.floats(-3.0, 3.0),
    st.sampled_from([np.nan, np.inf, -np.inf, None, "2", "two", 1e15, -1e200, 1e308, 2**80, True]),
)
LABELS = st.sampled_from(["a", "b", "new", "", 0, 1.0, 0.5, np.nan, None, True, b"a", (1, 2), 1j])
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 1.5, -1.0, np.nan, np.inf, 1e20, None, "1", [1.0]])


def as_list(draw, elements, n):
    """Mostly one valid kind, sometimes anything: both sides of the border are visited."""
    return draw(st.lists(elements, min_size=n, max_size=n))


@st.composite
def batches(draw):
    n = draw(st.integers(0, 4))
    good = st.floats(-3.0, 3.0) | st.just(np.nan)
    X = [as_list(draw, draw(st.sampled_from([good, good, VALUES])), 2) for _ in range(n)]
    text = st.sampled_from(["a", "b", "new"])
    y = as_list(draw, draw(st.sampled_from([text, text, LABELS])), n)
    fine = st.sampled_from([0.0, 0.5, 1.0])
    weight = as_list(draw, draw(st.sampled_from([fine, fine, WEIGHTS])), n)
    classes = draw(st.sampled_from([None, None, ["z", "a"], [1], ["a", None], [], "a", 3]))
    y = np.array([*y, None], object)[:-1] if draw(st.booleans()) else y
    return X, y, classes, draw(st.sampled_from([None, weight, -1.0]))


@pytest.mark.filterwarnings("ignore")  # of scikit-learn, about the odd input
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("words", [{"learner": "folklore"}, {}])
def test_a_call_that_fails_changes_nothing(begun, words):
    begin = FolkloreClassifier(**words, random_state=0)
    if begun:
        begin.partial_fit([[0.0, 1.0], [1.0, np.nan], [0.5, 0.5]], ["a", "b", "a"])
    state = pickle.dumps(begin)

    @settings(max_examples=80)
    @given(batches())
    def check(batch):
        X, y, classes, weight = batch
        model = pickle.loads(state)
        before = pickle.dumps(model)
        try:
            model.partial_fit(X, y, classes=classes, sample_weight=weight)
        except (ValueError, TypeError):
            assert pickle.dumps(model) == before
        else:
            assert model.model_.n_rounds == 3 * begun + len(X)
            P = model.predict_proba([[0.0, 0.0]])
            np.testing.assert_allclose(P.sum(), 1.0)

    check()


def test_an_interrupted_call_can_be_followed_by_others(rng, monkeypatch):
    X, y = sample(rng)
    model = quick().partial_fit(X, y)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OnlinePipeline, "run_checked", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[:2], [7, 5])
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    model.partial_fit(X[:2], [5, 8])
    assert model.classes_.tolist() == [0, 1, 2, 5, 8]
    assert model.predict_proba(X).shape == (60, 5)


# Among other estimators


def test_in_a_pipeline_and_a_grid():
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    X, y = X[order], y[order]
    pipeline = make_pipeline(PolynomialFeatures(2, include_bias=False), quick())
    grid = {"folkloreclassifier__B": [3.0, 30.0], "folkloreclassifier__lam": [1e-3, 100.0]}
    search = GridSearchCV(pipeline, grid, cv=3, scoring="neg_log_loss").fit(X, y)
    assert search.best_params_["folkloreclassifier__lam"] == 1e-3
    assert search.score(X, y) > -0.3


def test_calibrated_and_cross_validated():
    X, y = wine()
    P = cross_val_predict(FolkloreClassifier(), X, y, cv=5, method="predict_proba")
    assert log_loss(y, P) < 0.15
    model = CalibratedClassifierCV(quick(), cv=3).fit(X, y)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("words", [{}, {"learner": "folklore"}])
def test_pickle_joblib_skops_and_copies_go_on_exactly(words, rng):
    X, y = sample(rng)
    names = np.array(["one", "three", "two"])[y]
    model = FolkloreClassifier(**words, random_state=3).partial_fit(X[:40], names[:40])
    twins = copies(model)
    P = model.partial_fit(X[40:], names[40:]).predict_proba(X)
    for twin in twins:
        twin.partial_fit(X[40:], names[40:])
        np.testing.assert_array_equal(twin.predict_proba(X), P)
    assert pickle.loads(pickle.dumps(quick())).get_params() == quick().get_params()


def test_the_documentation_tells_skops_whom_to_trust():
    assert f'trusted=["{TRUSTED[0]}"]' in FolkloreClassifier.__doc__


def test_saved_is_the_last_model(tmp_path, rng):
    X, y = sample(rng)
    model = quick().partial_fit(X, 2 - y)
    model.model_.save(tmp_path / "model.safetensors")
    loaded = folklearn.load(tmp_path / "model.safetensors")
    assert sorted(loaded.labels) == model.classes_.tolist()
    order = [loaded.labels.index(label) for label in model.classes_.tolist()]
    np.testing.assert_array_equal(loaded.predict_proba(X)[:, order], model.predict_proba(X))
    assert loaded.predict(X) == model.predict(X).tolist()
