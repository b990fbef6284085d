"""Labels of the River classifier that are soft, late, or to be forgotten."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import folklearn
from folklearn.errors import InvalidInputError
from folklearn.model.pipeline import OnlinePipeline

pytest.importorskip("river", reason="River comes with the extra `river`")

from river import datasets, evaluate, metrics
from river import stream as streams

from folklearn.adapters.river import FolkloreStreamClassifier
from tests.adapters.test_river import assert_close, learned, state, stream


def test_a_certain_soft_label_is_the_hard_one(rng):
    examples = stream(rng)
    model = learned([(x, {y: 1.0}) for x, y in examples], "folklore")
    hard = learned(examples, "folklore")
    assert model.unseen_probability == hard.unseen_probability
    for x, _ in examples:
        assert_close(model.predict_proba_one(x), hard.predict_proba_one(x))


@pytest.mark.parametrize("name", ["auto", "folklore", "ogd"])
def test_soft_labels_are_those_of_the_core(name, rng):
    model, core = FolkloreStreamClassifier(name), OnlinePipeline(name, n_features=3, n_classes=3)
    core.n_new = 1  # the classes came with the first example, and core was told them
    for x, _ in stream(rng):
        q = rng.dirichlet(np.ones(3))
        model.learn_one(x, dict(zip("abc", q.tolist(), strict=True)), w=0.5)
        row = np.array(list(x.values()))
        core.learn_row(row, q, weight=0.5)
        p = core.predict_row(row)
        np.testing.assert_allclose(list(model.predict_proba_one(x).values()), p, rtol=1e-9)
        assert model.unseen_probability == core.unseen_probability


def test_new_labels_of_one_example_are_one_event():
    model = FolkloreStreamClassifier("folklore")
    model.learn_one({"x": 1.0}, {"a": 0.5, "b": 0.5, "unseen": 0.0})
    assert list(model.predict_proba_one({"x": 1.0})) == ["a", "b"]
    assert model.unseen_probability == 1.5 / 2.0
    model.learn_one({"x": 2.0}, {"b": 1.0, "a": 0})
    assert model.unseen_probability == 1.5 / 3.0
    model.learn_one({"x": 3.0}, {"b": 0.5, "c": 0.25, "d": 0.25})
    assert list(model.predict_proba_one({"x": 1.0})) == ["a", "b", "c", "d"]
    assert model.unseen_probability == 2.5 / 4.0


def test_a_second_class_may_come_softly(rng):
    model = learned([({"x": 1.0}, "a"), ({"x": 2.0}, {"a": 1.0})], "folklore")
    assert model.predict_proba_one({"x": 1.0}) == {"a": 1.0}
    model.learn_one({"x": 3.0}, {"a": 0.25, "b": 0.75})
    assert list(model.predict_proba_one({"x": 3.0})) == ["a", "b"]


def test_a_prediction_is_a_label(rng):
    """Of a model of its own kind it teaches nothing that surprises."""
    examples = stream(rng, T=200)
    teacher = learned(examples, "folklore")
    pupil = learned([(x, teacher.predict_proba_one(x)) for x, _ in examples], "folklore")
    far = [
        max(abs(pupil.predict_proba_one(x)[k] - p) for k, p in teacher.predict_proba_one(x).items())
        for x, _ in examples
    ]
    assert np.mean(far) < 0.1


def test_labels_in_a_mapping_are_not_confused_either():
    model = learned([({"a": 1.0}, 1), ({"a": 2.0}, 2)], "folklore")
    before = pickle.dumps(model)
    for bad in ({True: 1.0}, {1.0: 0.5, 2: 0.5}):
        with pytest.raises(InvalidInputError, match="equals 1, of another type"):
            model.learn_one({"a": 1.0}, bad)
    assert pickle.dumps(model) == before
    model.learn_one({"a": 1.0}, {np.int64(1): np.float32(0.5), 2: 0.5})
    assert list(model.predict_proba_one({})) == [1, 2]


def test_sums_may_be_off_by_rounding_alone():
    model = FolkloreStreamClassifier("folklore")
    model.learn_one({"a": 1.0}, {"x": 0.5, "y": 0.5 + 9e-7})
    with pytest.raises(InvalidInputError, match="not to 1"):
        model.learn_one({"a": 1.0}, {"x": 0.5, "y": 0.5 + 2e-6})


MASSES = st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(any)
SOFT = MASSES.map(lambda ms: {k: m / sum(ms) for k, m in zip("abc", ms, strict=True)})
ROWS = st.lists(st.tuples(st.floats(-2, 2), SOFT | st.sampled_from("abc")), min_size=1, max_size=12)


@given(rows=ROWS, cut=st.integers(0, 5))
def test_many_is_the_loop(rows, cut):
    pd = pytest.importorskip("pandas", reason="data frames are optional")
    one, many = FolkloreStreamClassifier("folklore"), FolkloreStreamClassifier("folklore")
    X, y = pd.DataFrame({"x": [x for x, _ in rows]}), [label for _, label in rows]
    for x, label in rows:
        one.learn_one({"x": x}, label)
    many.learn_many(X[:cut], y[:cut])
    many.learn_many(X[cut:], pd.Series(y[cut:], dtype=object))
    assert many.unseen_probability == one.unseen_probability
    P = many.predict_proba_many(X)
    assert list(P.columns) == list(one.predict_proba_one({}))
    expected = [list(one.predict_proba_one({"x": x}).values()) for x, _ in rows]
    np.testing.assert_allclose(P.to_numpy(), expected, atol=1e-7)


def test_soft_labels_bring_classes_to_the_core(rng):
    """A block is the loop; each row is predicted before its classes are known."""
    X, Y = rng.normal(size=(9, 2)), np.zeros((9, 4))
    Y[:3, 0] = 1.0
    Y[3:6, :3] = rng.dirichlet(np.ones(3), size=3)
    Y[6:] = rng.dirichlet(np.ones(4), size=3)
    block, loop = OnlinePipeline("folklore", n_features=2), OnlinePipeline("folklore", n_features=2)
    P, u = block.run(X, Y)
    for t in range(9):
        assert u[t] == loop.unseen_probability
        p = loop.predict_row(X[t])
        np.testing.assert_allclose(P[t, : p.size], p, atol=1e-9)
        assert not P[t, p.size :].any()
        loop.learn_row(X[t], Y[t])
    assert (block.n_new, block.n_rounds, block.n_classes) == (3, 9, 4)
    assert (loop.n_new, loop.n_rounds, loop.n_classes) == (3, 9, 4)
    before = pickle.dumps(block)
    for bad in ([0.5, 0.4, 0.0, 0.0, 0.0], [[0.2] * 5], [0.5, 0.5, np.nan, 0.0, 0.0]):
        with pytest.raises(InvalidInputError):
            block.learn_row(X[0], bad)
    assert pickle.dumps(block) == before
    declared = OnlinePipeline("ons", n_features=2, n_classes=2)
    with pytest.raises(InvalidInputError, match="'ons' is no learner that takes"):
        declared.learn_row(X[0], [0.5, 0.25, 0.25])


class Recording(FolkloreStreamClassifier):
    """Says what it was asked and told, in order."""

    def __init__(self, learner="folklore"):
        super().__init__(learner)
        self.events = []

    def predict_proba_one(self, x, **kwargs):
        p = super().predict_proba_one(x)
        self.events.append(("asked", x["x0"], p))
        return p

    def learn_one(self, x, y, w=1.0):
        self.events.append(("told", x["x0"], y))
        super().learn_one(x, y, w)


@pytest.mark.parametrize("delay", [1, 7, lambda x, y: 1 + int(y[-1]) * 5])
def test_delayed_labels_are_used_when_they_arrive(delay, rng):
    """Each prediction is that of a model which has learned exactly what had arrived."""
    examples = stream(rng, T=50)
    model, metric = Recording(), metrics.CrossEntropy()
    evaluate.progressive_val_score(examples, model, metric, delay=delay)
    known = FolkloreStreamClassifier("folklore")
    times = {x["x0"]: t for t, (x, _) in enumerate(examples)}
    told, now = set(), -1
    for kind, key, said in model.events:
        t = times[key]
        x, y = examples[t]
        if kind == "asked":
            now = t
            assert t not in told
            assert said == known.predict_proba_one(x)
            due = {
                s for s in range(t) if s + (delay(*examples[s]) if callable(delay) else delay) <= t
            }
            assert told == due
        else:
            assert said == y
            known.learn_one(x, y)
            told.add(t)
    assert now == 49
    assert told == set(range(50))
    assert state(known) == state(model)
    assert 0.0 < metric.get() < math.log(10.0)


def test_questions_and_answers_by_hand():
    model = FolkloreStreamClassifier("folklore")
    right = []
    for _, x, y in streams.simulate_qa(datasets.ImageSegments().take(400), None, 25):
        if y is None:
            last = model.predict_one(x)
        else:
            right.append(model.predict_one(x) == y)
            model.learn_one(x, y)
    assert last is not None
    assert len(right) == 400
    assert np.mean(right) > 0.7


def test_memory_follows_a_stream_that_turns_round(rng, tmp_path):
    examples = [({"x": x}, x > 0.0) for x in rng.normal(size=600).tolist()]
    turned = [(x, not y) for x, y in examples[300:]]
    keeping = learned(examples[:300], "folklore")
    forgetting = learned(examples[:300], "folklore", memory=np.int64(50))
    losses = [0.0, 0.0]
    for x, y in turned:
        for j, model in enumerate((keeping, forgetting)):
            losses[j] -= math.log(model.predict_proba_one(x)[y])
            model.learn_one(x, y)
    assert losses[1] < 0.8 * losses[0]
    assert forgetting.certificate().valid  # it is about the rows, whatever learns them
    forgetting.model.save(tmp_path / "model")
    resumed = forgetting.clone()
    resumed.model = folklearn.load(tmp_path / "model")
    assert resumed.memory == 50
    for x, y in examples[:60]:
        forgetting.learn_one(x, y)
        resumed.learn_one(x, y)
    assert state(resumed) == state(forgetting)
