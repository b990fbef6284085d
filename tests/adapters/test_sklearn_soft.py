"""Soft labels: rows of probabilities, by the order of the classes or by their names."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import cross_val_score

from folklearn import FolkloreClassifier
from folklearn.errors import InvalidInputError
from folklearn.learners import catalogue
from folklearn.model.pipeline import OnlinePipeline
from tests.adapters.copying import copies

NAMES = ["cloud", "rain", "sun"]


def quick(**words):
    return FolkloreClassifier(**{"learner": "folklore", "shuffle": False} | words)


def sample(rng, T=60, d=3, K=3):
    X = rng.normal(size=(T, d))
    Y = np.exp(2.0 * X @ rng.normal(size=(d, K)))
    return X, Y / Y.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("learner", catalogue.CATALOGUE)
def test_it_is_the_core_of_the_model(learner, rng):
    X, Y = sample(rng, K=2)
    twin = OnlinePipeline(learner, n_features=3, n_classes=2)
    twin.run(X, Y)
    model = quick(learner=learner, passes=1).fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), twin.predict(X))
    assert model.classes_.tolist() == [0, 1]
    assert model.predict(X).tolist() == twin.predict(X).argmax(axis=1).tolist()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, list])
def test_certain_soft_labels_are_hard(dtype, rng):
    X, Y = sample(rng)
    y = Y.argmax(axis=1)
    certain = np.eye(3)[y]
    certain = certain.tolist() if dtype is list else certain.astype(dtype)
    P = quick().fit(X, y).predict_proba(X)
    np.testing.assert_allclose(quick().fit(X, certain).predict_proba(X), P, atol=1e-9)


def test_pieces_are_the_whole_and_may_be_hard(rng):
    X, Y = sample(rng)
    y = Y.argmax(axis=1)
    mixed = np.where(np.arange(60)[:, None] < 30, Y, np.eye(3)[y])
    whole = quick().fit(X, mixed)
    model = quick().partial_fit(X[:10], Y[:10]).partial_fit(X[10:30], Y[10:30])
    model.partial_fit(X[30:], y[30:])
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), atol=1e-9)
    assert model.partial_fit(X[:1], [7]).classes_.tolist() == [0, 1, 2, 7]  # and classes may come
    with pytest.raises(InvalidInputError, match="y has 3 columns of soft labels, but there are 4"):
        model.partial_fit(X, Y)
    model.partial_fit(X, np.hstack([Y, np.zeros((60, 1))]))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_a_frame_are_the_classes_in_any_order(library, rng):
    DataFrame = pytest.importorskip(library).DataFrame
    X, Y = sample(rng)
    given_so = DataFrame({name: Y[:, NAMES.index(name)] for name in ("sun", "cloud", "rain")})
    P = quick().fit(X, Y).predict_proba(X)
    model = quick().fit(X, given_so)
    assert model.classes_.tolist() == NAMES
    np.testing.assert_array_equal(model.predict_proba(X), P)
    P = quick().fit(X, Y).partial_fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(copy.deepcopy(model).partial_fit(X, Y).predict_proba(X), P)
    np.testing.assert_array_equal(model.partial_fit(X, given_so).predict_proba(X), P)
    two, others = Y[:, :2] / Y[:, :2].sum(axis=1, keepdims=True), ["cloud", "rain", "snow"]
    for names, values in (NAMES[:2], two), (others, Y), ([*NAMES, "snow"], np.insert(Y, 3, 0, 1)):
        wrong = DataFrame(dict(zip(names, values.T, strict=True)))
        before = pickle.dumps(model)
        with pytest.raises(InvalidInputError, match="a column for each class, and no other"):
            model.partial_fit(X, wrong)
        assert pickle.dumps(model) == before


def test_columns_follow_classes_whatever_their_numbers(rng):
    """Hard labels count classes as they come: the columns of y are in the sorted order."""
    pd = pytest.importorskip("pandas")
    X, Y = sample(rng)
    expected = quick().partial_fit(X[:3], ["sun", "cloud", "rain"])
    model = copy.deepcopy(expected)
    assert expected.model_.labels == ("sun", "cloud", "rain")
    twin = copy.deepcopy(expected.model_)
    twin.learn_many(X, Y[:, [2, 0, 1]])
    model.partial_fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), twin.predict_proba(X)[:, [1, 2, 0]])
    expected.partial_fit(X, pd.DataFrame(Y, columns=NAMES))
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_classes_name_the_columns_of_an_array(rng):
    X, Y = sample(rng)
    P = quick().fit(X, Y).predict_proba(X)
    model = quick().partial_fit(X, Y, classes=NAMES)
    assert model.classes_.tolist() == NAMES
    np.testing.assert_array_equal(model.predict_proba(X), P)
    with pytest.raises(InvalidInputError, match="classes must be sorted where y is an array"):
        quick().partial_fit(X, Y, classes=["sun", "cloud", "rain"])
    with pytest.raises(InvalidInputError, match="y has 3 columns.* but there are 2 classes"):
        quick().partial_fit(X, Y, classes=["cloud", "rain"])
    with pytest.raises(InvalidInputError, match="classes are numbers, but the labels so far are t"):
        model.partial_fit(X, Y, classes=[0, 1, 2])
    more = np.insert(Y, 2, 0.0, axis=1)
    model.partial_fit(X, more, classes=["snow"])
    assert model.classes_.tolist() == ["cloud", "rain", "snow", "sun"]
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(Y, columns=[0, 1, 2])
    with pytest.raises(InvalidInputError, match="the columns of y are numbers, but the labels so"):
        model.partial_fit(X, frame)
    named = pd.DataFrame(Y, columns=NAMES)
    model = quick().partial_fit(X, named, classes=["sun", "rain", "cloud"])
    np.testing.assert_array_equal(model.predict_proba(X), P)


def test_a_column_is_labels(rng):
    X, Y = sample(rng)
    y = Y.argmax(axis=1)
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        model = quick().fit(X, y[:, None])
    np.testing.assert_array_equal(model.predict_proba(X), quick().fit(X, y).predict_proba(X))


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([[0.5, 0.6], [1.0, 0.0]], "row 0 of y is .* must be non-negative and sum to 1"),
        ([[0.5, 0.5], [1.5, -0.5]], "row 1 of y is"),
        ([[0.5, 0.5], [np.nan, 1.0]], "row 1 of y is"),
        ([[0.5, 0.5]], "inconsistent numbers of samples"),
        ([[0, 1], [1, 0]], "a 2d array of floats, which are soft labels.*dtype int"),
        ([["a", "b"], ["b", "a"]], "a 2d array of floats"),
        (np.full((2, 2, 2), 0.5), "dim 3"),
    ],
)
def test_odd_soft_labels_are_refused(y, sentence):
    for model in (quick(), quick().partial_fit([[0.0], [1.0]], [0, 1])):
        before = pickle.dumps(model)
        with pytest.raises(ValueError, match=sentence):
            model.partial_fit([[0.0], [1.0]], y)
        assert pickle.dumps(model) == before
        with pytest.raises(ValueError, match=sentence):
            model.fit([[0.0], [1.0]], y)
        assert pickle.dumps(model) == before


def test_odd_frames_of_soft_labels_are_refused():
    pd = pytest.importorskip("pandas")
    X = [[0.0], [1.0]]
    with pytest.raises(InvalidInputError, match="a 2d array of floats, which are soft labels"):
        quick().fit(X, pd.DataFrame({"a": ["x", "y"], "b": [0.0, 1.0]}))
    one_hot = pd.get_dummies(pd.Series(["no", "yes"]))  # truth values, but with names
    assert quick().fit(X, one_hot).predict(X).tolist() == ["no", "yes"]


# Weights


def test_weights_of_classes_weigh_the_expected_loss(rng):
    """A soft label is as its hard ones side by side, each with its share as weight."""
    X, Y = sample(rng)
    w, factors = rng.random(60), np.array([0.5, 1.0, 3.0])
    given_so = {0: 0.5, 2: 3.0}
    shares = Y * factors
    totals = shares.sum(axis=1)
    expected = quick().fit(X, shares / totals[:, None], sample_weight=w * totals)
    model = quick(class_weight=given_so).fit(X, Y, sample_weight=w)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-12)
    parts = quick(class_weight=given_so).partial_fit(X, Y, sample_weight=w)
    np.testing.assert_array_equal(parts.predict_proba(X), model.predict_proba(X))
    certain = np.eye(3)[Y.argmax(axis=1)]
    hard = quick(class_weight=given_so).fit(X, Y.argmax(axis=1), w).predict_proba(X)
    soft = quick(class_weight=given_so).fit(X, certain, w).predict_proba(X)
    np.testing.assert_allclose(soft, hard, atol=1e-9)


def test_balanced_counts_what_is_expected(rng):
    X, Y = sample(rng)
    w = rng.random(60)
    totals = w @ Y
    given_so = dict(enumerate(totals.sum() / (3 * totals)))
    expected = quick(class_weight=given_so).fit(X, Y, w)
    model = quick(class_weight="balanced").fit(X, Y, w)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-9)


def test_a_class_without_weight_teaches_nothing(rng):
    X, Y = sample(rng)
    Y[:5] = [0.0, 0.0, 1.0]
    model = quick(class_weight={2: 0.0}, scale=False).fit(X, Y)
    expected = quick(class_weight={2: 0.0}, scale=False).fit(X[5:], Y[5:])
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-9)
    with pytest.raises(InvalidInputError, match=r"class_weight names \[7\], which y does not hold"):
        quick(class_weight={7: 2.0}).fit(X, Y)
    assert FolkloreClassifier(class_weight={2: 4.0}).partial_fit(X, Y).model_.n_rounds == 60


# All or nothing, and copies


@st.composite
def batches(draw):
    n, K = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 3, 3, 3, 4]))
    number = draw(st.sampled_from([st.floats(0.0, 1.0)] * 3 + [st.sampled_from([-1, np.nan, 1])]))
    Y = np.array(draw(st.lists(st.lists(number, min_size=K, max_size=K), min_size=n, max_size=n)))
    totals = Y.sum(axis=1, keepdims=True)
    if draw(st.booleans()) and (totals > 0.0).all():
        Y = Y / totals
    names = draw(st.sampled_from([None, None, NAMES, ["rain", "sun", "cloud"], [1, 2, 3]]))
    if names is not None and len(names) == K:
        Y = pytest.importorskip("pandas").DataFrame(Y, columns=names)
    return Y, draw(st.sampled_from([None, None, NAMES, ["a"], [0, 1], NAMES[::-1], ["sleet"]]))


@pytest.mark.filterwarnings("ignore")  # of scikit-learn, about single columns
@pytest.mark.parametrize("begun", [True, False])
def test_a_call_that_fails_changes_nothing(begun):
    begin = quick()
    if begun:
        begin.partial_fit([[0.0], [1.0], [2.0]], ["sun", "rain", "cloud"])
    state = pickle.dumps(begin)

    @settings(max_examples=80)
    @given(batches())
    def check(batch):
        Y, classes = batch
        model = pickle.loads(state)
        before = pickle.dumps(model)
        try:
            model.partial_fit(np.zeros((len(Y), 1)), Y, classes=classes)
        except (ValueError, TypeError):
            assert pickle.dumps(model) == before
        else:
            assert model.model_.n_rounds == 3 * begun + len(Y)
            np.testing.assert_allclose(model.predict_proba([[0.0]]).sum(), 1.0)

    check()


def expected_log_probability(model, X, Y):
    return (Y * model.predict_log_proba(X)).sum(axis=1).mean()


def test_cross_validated_and_copied(rng):
    X, Y = sample(rng, T=200)
    scores = cross_val_score(quick(), X, Y, cv=4, scoring=expected_log_probability)
    assert scores.mean() > -0.1 + (Y * np.log(Y)).sum(axis=1).mean()
    model = quick(random_state=3).partial_fit(X[:40], Y[:40], classes=NAMES)
    twins = copies(model)
    P = model.partial_fit(X[40:], Y[40:]).predict_proba(X)
    for twin in twins:
        np.testing.assert_array_equal(twin.partial_fit(X[40:], Y[40:]).predict_proba(X), P)
