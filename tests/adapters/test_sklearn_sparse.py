"""The classifier on rows that are wide and sparse: never dense, never refused."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import folklearn
from folklearn import FolkloreClassifier, Mixture, SparseSgd
from folklearn.batch.sparse_fit import ColumnModel
from folklearn.errors import InvalidInputError
from folklearn.model.model import Model
from tests.adapters.copying import copies
from tests.adapters.test_sklearn import online
from tests.reference.streams import words

D, K = 4000, 3


def sample(seed, T=300, d=D):
    X, y = words(seed, T, d=d, K=K, n=12, own=0.7)
    return X, np.array(["pear", "apple", "plum"])[y]


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "coo_array", "csc_matrix"])
def test_every_kind_of_sparse_rows_and_dense_ones_to_predict(kind, seed):
    X, y = sample(seed)
    expected = FolkloreClassifier().fit(X, y)
    model = FolkloreClassifier().fit(getattr(scipy.sparse, kind)(X), y)
    assert model.model_.pipeline.sparse
    assert isinstance(model.model_.pipeline.learner, SparseSgd)
    P = expected.predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(getattr(scipy.sparse, kind)(X)), P)
    np.testing.assert_allclose(model.predict_proba(X.toarray()), P, atol=1e-14)
    assert model.certificate().valid
    assert model.certificate() == expected.certificate()
    assert model.score(X, y) > 0.9


def test_it_is_a_model_of_sparse_rows(seed):
    X, y = sample(seed)
    model = FolkloreClassifier(shuffle=False, passes=1).fit(X, y)
    twin = Model(classes=np.unique(y))
    twin.learn_many(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), twin.predict_proba(X))
    later = FolkloreClassifier()
    for part in (slice(0, 100), slice(100, 101), slice(101, 300)):
        later.partial_fit(X[part], y[part], classes=np.unique(y))
    np.testing.assert_array_equal(later.predict_proba(X), twin.predict_proba(X))


def test_small_sparse_problems_are_dense_as_ever(seed):
    X, y = sample(seed, d=50)
    model = FolkloreClassifier().fit(X, y)
    assert not model.model_.pipeline.sparse
    dense = FolkloreClassifier().fit(X.toarray(), y)
    np.testing.assert_array_equal(model.predict_proba(X), dense.predict_proba(X.toarray()))


def test_a_wide_problem_is_learned_well(seed):
    X, y = words(seed, 3000, own=0.6)
    model = FolkloreClassifier().fit(X[:2000], y[:2000])
    assert X.shape[1] == 100_000
    assert log_loss(y[2000:], model.predict_proba(X[2000:])) < 0.4 * np.log(8)
    fitted = model.model_.pipeline.batch_fit
    assert isinstance(fitted, ColumnModel)
    assert len(fitted.columns) == len(np.unique(X[:2000].indices)) + 1
    once = FolkloreClassifier(passes=1).fit(X[:2000], y[:2000])
    assert log_loss(y[2000:], once.predict_proba(X[2000:])) < 0.7 * np.log(8)


def test_every_way_of_keeping_it(seed, tmp_path):
    X, y = sample(seed)
    for model in (FolkloreClassifier(), FolkloreClassifier(random_state=0)):
        model.fit(X, y)
        P = model.predict_proba(X)
        for kept in copies(model):
            np.testing.assert_array_equal(kept.predict_proba(X), P)
            kept.partial_fit(X, y)
    model = FolkloreClassifier().fit(X, y)
    model.model_.save(tmp_path / "model")
    saved = folklearn.load(tmp_path / "model")
    np.testing.assert_array_equal(saved.predict_proba(X), model.predict_proba(X))
    assert saved.predict(X) == model.predict(X).tolist()


def test_classes_come_late(seed):
    X, y = sample(seed)
    few = y != "plum"
    model = FolkloreClassifier().partial_fit(X[few], y[few])
    assert model.classes_.tolist() == ["apple", "pear"]
    model.partial_fit(X, y)
    assert model.classes_.tolist() == ["apple", "pear", "plum"]
    assert model.score(X, y) > 0.9
    assert model.model_.pipeline.n_classes == K


def test_partial_fit_goes_on_from_the_learner(seed):
    X, y = sample(seed)
    model = FolkloreClassifier(random_state=1).fit(X, y)
    once = FolkloreClassifier(random_state=1, passes=1).fit(X, y)
    assert not np.array_equal(model.predict_proba(X), once.predict_proba(X))
    model.partial_fit(X[:5], y[:5])
    once.partial_fit(X[:5], y[:5])
    np.testing.assert_array_equal(model.predict_proba(X), once.predict_proba(X))


def test_weights_and_missing_values(seed, rng):
    X, y = sample(seed)
    model = FolkloreClassifier().fit(X, y, sample_weight=rng.random(300))
    assert (model.predict(X) == y).mean() > 0.7
    heavy = FolkloreClassifier(class_weight={"plum": 20.0}).fit(X, y)
    plain = FolkloreClassifier().fit(X, y)
    at = plain.classes_.tolist().index("plum")
    assert heavy.predict_proba(X)[:, at].sum() > plain.predict_proba(X)[:, at].sum()
    gaps, zeros = X.copy(), X.copy()
    gaps.data[::7], zeros.data[::7] = np.nan, 0.0
    one, other = FolkloreClassifier().fit(gaps, y), FolkloreClassifier().fit(zeros, y)
    np.testing.assert_array_equal(one.predict_proba(gaps), other.predict_proba(zeros))


def test_the_random_state_decides_everything(seed):
    X, y = sample(seed)
    P = [
        FolkloreClassifier(random_state=state).fit(X, y).predict_proba(X)
        for state in (1, 1, 2, None, None)
    ]
    np.testing.assert_array_equal(P[0], P[1])
    np.testing.assert_array_equal(P[3], P[4])
    assert not np.array_equal(P[0], P[2])


def test_raw_counts_without_scale_or_intercept(seed):
    X, y = sample(seed)
    for words_ in ({"scale": False}, {"fit_intercept": False}):
        assert FolkloreClassifier(**words_).fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize("d", [10**6, 2**31 - 2])
def test_no_width_is_refused(d):
    X = scipy.sparse.csr_array((20, d))
    y = np.arange(20) % 2
    model = FolkloreClassifier().fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), 0.5, atol=0.02)
    for learner in ("folklore", "leader"):
        with pytest.raises(InvalidInputError, match="GB of memory.*learner="):
            FolkloreClassifier(learner=learner).fit(X, y)


def test_dense_rows_of_many_classes(rng):
    X, V = rng.normal(size=(600, 30)), rng.normal(size=(120, 30))
    y = (3.0 * X @ V.T + rng.gumbel(size=(600, 120))).argmax(axis=1)
    y[:120] = np.arange(120)
    model = FolkloreClassifier().fit(X, y)
    assert isinstance(model.model_.pipeline.learner, Mixture)  # of class blocks
    assert not model.model_.pipeline.sparse
    assert model.score(X, y) > 0.5
    late = FolkloreClassifier().partial_fit(X, y)  # no class was declared
    assert isinstance(late.model_.pipeline.learner, Mixture)


def test_text_through_a_pipeline():
    texts = ["the sun shines", "rain and more rain", "sun again", "it rains", "sunny", "rain"] * 10
    labels = ["sun" if "sun" in text else "rain" for text in texts]
    model = make_pipeline(HashingVectorizer(n_features=2**20), FolkloreClassifier())
    model.fit(texts, labels)
    assert model.predict(["sun", "more rain"]).tolist() == ["sun", "rain"]


def test_frames_of_words_stay_sparse_and_categories_do_not():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    frame = pandas.DataFrame({"a": ["x", "y", "z"] * 20, "n": 1000.0 + np.tile([5.0, 1.0], 30)})
    y = np.array([0, 1, 1] * 20)
    model = FolkloreClassifier().fit(frame, y)
    assert not model.model_.pipeline.sparse
    assert model.score(frame, y) == 1.0
    frame["note"] = ["it rains and rains", "the sun is out", "sun and some wind"] * 20
    model = FolkloreClassifier(roles={"note": "words"}).fit(frame[["n", "note"]], y)
    assert model.model_.roles == {"n": "number", "note": "words"}
    assert model.model_.pipeline.sparse
    assert model.score(frame[["n", "note"]], y) == 1.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda X: X[:, :-1], "features"),
        (lambda X: X * np.inf, "infinity"),
        (lambda X: X * 1e16, "norm"),
        (lambda X: X.astype(complex), "[Cc]omplex"),
        (lambda X: X[:0], "0 sample"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_nonsense_is_refused_and_changes_nothing(change, said, seed):
    X, y = sample(seed)
    model = FolkloreClassifier().fit(X, y)
    P = model.predict_proba(X)
    with np.errstate(all="ignore"):
        wrong = change(X)
    for call in (model.predict_proba, lambda X: model.partial_fit(X, y[: X.shape[0]])):
        with pytest.raises(ValueError, match=said):
            call(wrong)
    np.testing.assert_array_equal(model.predict_proba(X), P)


@pytest.fixture
def _every_problem_is_wide(monkeypatch):
    for module in ("pipeline", "dataset"):
        monkeypatch.setattr(f"folklearn.model.{module}.select_backend", lambda *_: "wide")


@parametrize_with_checks([FolkloreClassifier()], expected_failed_checks=online)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_every_problem_is_wide")
def test_the_checks_of_scikit_learn(estimator, check):
    with np.errstate(all="warn"):
        check(estimator)
