"""The River classifier: River's own checks, and what they do not ask."""

import copy
import math
import pickle
import random
from collections import ChainMap, Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import folklearn
from folklearn.errors import InvalidInputError
from folklearn.model.pipeline import OnlinePipeline

river = pytest.importorskip("river", reason="River comes with the extra `river`")

from river import checks, compose, datasets, evaluate, metrics, preprocessing  # noqa: E402

from folklearn.adapters.river import FolkloreStreamClassifier  # noqa: E402

LEARNERS = ["auto", "folklore", "gaf", "laplace", "ogd"]


def stream(rng, T=60, d=3, K=3, missing=0.0):
    """Examples of River: dictionaries and text labels."""
    X = rng.normal(size=(T, d))
    y = np.argmax(X @ rng.normal(size=(d, K)) + rng.gumbel(size=(T, K)), axis=1)
    X[rng.random(X.shape) < missing] = np.nan
    names = [f"x{j}" for j in range(d)]
    return [
        (dict(zip(names, row, strict=True)), f"class {k}")
        for row, k in zip(X.tolist(), y.tolist(), strict=True)
    ]


def learned(examples, *arguments, **words):
    model = FolkloreStreamClassifier(*arguments, **words)
    for x, y in examples:
        model.learn_one(x, y)
    return model


def state(model):
    """All that the future depends on; equal for equal states, unlike the bytes of a pickle."""
    record = model.model.to_record()
    arrays = {part: array.tobytes() for part, array in record.arrays.items()}
    return record.config, arrays


def assert_close(one, other):
    assert list(one) == list(other)
    np.testing.assert_allclose(list(one.values()), list(other.values()), atol=1e-8)


CHECKS = [
    pytest.param(name, number, id=f"{name}-{number}-{check.__name__}")
    for name in ("auto", "folklore")
    for number, check in enumerate(checks.yield_checks(FolkloreStreamClassifier(name)))
]


@pytest.mark.parametrize(("name", "number"), CHECKS)
def test_rivers_checks(name, number):
    """A check is made anew for its one run: some of their data can be read only once."""
    random.seed(number)
    model = FolkloreStreamClassifier(name)
    check = list(checks.yield_checks(model))[number]
    assert not model._unit_test_skips()
    check(model)


@pytest.mark.parametrize("name", ["gaf", "laplace", "ogd"])
def test_the_other_learners_pass_too(name):
    random.seed(0)
    checks.check_estimator(FolkloreStreamClassifier(name))


@pytest.mark.parametrize("name", LEARNERS)
def test_it_is_the_core_of_the_model(name, rng):
    examples = stream(rng, T=80, missing=0.1)
    terms = "auto" if name == "auto" else "none"
    core, known = OnlinePipeline(name, n_features=3, terms=terms), []
    model = FolkloreStreamClassifier(name)
    for x, y in examples:
        row = np.array(list(x.values()))
        assert model.unseen_probability == core.unseen_probability
        p = model.predict_proba_one(x)
        assert list(p) == known
        assert list(p.values()) == (core.predict_row(row).tolist() if known else [])
        if y not in known:
            known.append(y)
        core.learn_row(row, known.index(y))
        model.learn_one(x, y)
    found, beside = model.certificate(), core.certificate(model.model.metrics.loss)
    assert found.best_linear_at_least == beside.best_linear_at_least


def test_it_learns_in_a_pipeline():
    pipeline = preprocessing.StandardScaler() | FolkloreStreamClassifier("folklore", scale=False)
    score = evaluate.progressive_val_score(
        datasets.ImageSegments().take(600), pipeline, metrics.Accuracy()
    )
    assert score.get() > 0.8


def test_text_and_numbers_in_a_pipeline():
    encoder = compose.SelectType(str) | preprocessing.OneHotEncoder()
    pipeline = (encoder + compose.SelectType(float)) | FolkloreStreamClassifier("folklore")
    colours = ["red", "green", "blue"]
    for t in range(90):
        pipeline.learn_one({"colour": colours[t % 3], "noise": math.sin(t)}, t % 3)
    assert pipeline.predict_one({"colour": "blue", "noise": 0.5}) == 2


def test_before_and_with_one_class():
    model = FolkloreStreamClassifier()
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_one({"a": 1.0}) is None
    assert model.unseen_probability == 1.0
    assert model.certificate() is None
    model.learn_one({"a": 1.0}, "yes")
    assert model.predict_proba_one({"b": 1.0}) == {"yes": 1.0}
    assert model.unseen_probability == 0.75


def test_absent_and_none_are_the_mean(rng):
    """The mean is the plain one where there are no outliers, whose influence is limited."""
    examples = [(x | {"x1": float(x["x1"] > 0.0)}, y) for x, y in stream(rng)]
    model = learned(examples, "folklore")
    x = dict(examples[0][0])
    del x["x1"]
    gap = model.predict_proba_one(x | {"x1": None})
    assert gap == model.predict_proba_one(x | {"x1": math.nan}) == model.predict_proba_one(x)
    mean = np.mean([seen["x1"] for seen, _ in examples])
    assert_close(gap, model.predict_proba_one(x | {"x1": mean}))
    assert gap != model.predict_proba_one(x | {"x1": 0.0})


def test_every_kind_of_number(rng):
    model = learned(stream(rng, d=2), "folklore")
    expected = model.predict_proba_one({"x0": 1.0, "x1": 0.5})
    for one in (1, True, np.True_, np.int8(1), np.float32(1), Decimal(1), np.array(1.0)):
        for half in (0.5, Fraction(1, 2), Decimal("0.5"), np.float16(0.5)):
            assert model.predict_proba_one({"x0": one, "x1": half}) == expected
    for kind in (Counter, ChainMap):
        assert model.predict_proba_one(kind({"x0": 1, "x1": 0.5})) == expected


def test_unknown_features_are_ignored(rng):
    model = learned(stream(rng), "folklore")
    before = pickle.dumps(model)
    x = {"x0": 0.3, "x1": -1.0, "x2": 0.0}
    assert model.predict_proba_one(x | {"new": 5.0}) == model.predict_proba_one(x)
    assert pickle.dumps(model) == before


def test_a_first_example_without_features(rng):
    model = learned([({}, "a"), ({}, "b")], "folklore")
    assert model.predict_proba_one({"x": 9.0}) == model.predict_proba_one({})
    for t in range(40):
        model.learn_one({"x": t % 2}, "ab"[t % 2])
    assert model.predict_one({"x": 1}) == "b"
    assert model.predict_one({"x": 0}) == "a"


def test_the_order_of_features_is_of_no_account(rng):
    """Names of types that do not compare, some of them late."""
    names = ["b", 2, (1, "t"), None, frozenset({1}), frozenset({2}), 1.5, "a", 10]
    one, other = FolkloreStreamClassifier("folklore"), FolkloreStreamClassifier("folklore")
    for t in range(40):
        x = {name: float(rng.normal()) for name in names[: 4 + t // 5]}
        shuffled = {names[j]: x[names[j]] for j in rng.permutation(len(x))}
        assert one.predict_proba_one(x) == other.predict_proba_one(shuffled)
        one.learn_one(x, t % 3)
        other.learn_one(shuffled, t % 3)
    assert one.model.encoder.keys == other.model.encoder.keys


def test_labels_that_python_holds_equal_are_not_confused():
    model = learned([({"a": 1.0}, 1), ({"a": 2.0}, "1"), ({"a": 3.0}, (1,))], "folklore")
    before = pickle.dumps(model)
    for equal in (True, 1.0, np.True_, np.float64(1)):
        with pytest.raises(InvalidInputError, match="equals 1, of another type"):
            model.learn_one({"a": 1.0}, equal)
    assert pickle.dumps(model) == before
    model.learn_one({"a": 1.0}, np.int64(1))
    assert list(model.predict_proba_one({"a": 1.0})) == [1, "1", (1,)]
    kept = learned([({}, np.bool_(True)), ({}, np.str_("b"))]).predict_proba_one({})
    assert [type(label) for label in kept] == [bool, str]


@pytest.mark.parametrize("name", ["auto", "folklore"])
def test_a_weight_is_a_repetition_in_the_certificate(name, rng):
    examples = stream(rng)
    model = FolkloreStreamClassifier(name, max_weight=3.0)
    for x, y in examples:
        model.learn_one(x, y, w=2.5)
    single = learned(examples, name, max_weight=3.0)
    assert model.certificate().loss > 1.5 * single.certificate().loss
    with pytest.raises(InvalidInputError, match="expected a number"):
        model.learn_one({}, "class 0", w=-1.0)


def test_heavy_examples_need_to_be_announced():
    with pytest.raises(InvalidInputError, match="max_weight=1"):
        FolkloreStreamClassifier("auto").learn_one({"a": 1.0}, 0, w=2.0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"learner": "ons"}, "takes classes as they come"),
        ({"learner": "folklore", "B": -3.0}, "B must be"),
        ({"learner": "folklore", "max_weight": 0.0}, "max_weight must be"),
        ({"learner": "folklore", "memory": 0}, "memory must be at least 1"),
        ({"learner": "folklore", "memory": 5.0}, "memory must be an integer"),
        ({"learner": "auto", "memory": 100}, "auto does not take the setting 'memory'"),
        ({"learner": "ogd", "memory": 100}, "ogd does not take the setting 'memory'"),
    ],
)
def test_bad_parameters_are_refused_at_once(words, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        FolkloreStreamClassifier(**words)


REFUSED = [
    ({"x0": b"1"}, "y", 1.0, "column 'x0': b'1' is not a number"),
    ({"new": "red", "x0": bytearray(b"1")}, "y", 1.0, "is not a number"),
    ({"x0": 1j}, "y", 1.0, "not a number"),
    ({"x0": np.complex128(1)}, "y", 1.0, "not a number"),
    ({"x0": [1.0]}, "y", 1.0, "column 'x0': the value is nested"),
    ({"new": np.array([1.0, 2.0])}, "y", 1.0, "column 'new': the value is nested"),
    ({"x0": 10**400}, "y", 1.0, "column 'x0' has inf, which is not finite"),
    ({"x0": math.inf, "x1": None, "x2": 0}, "y", 1.0, "column 'x0' has inf, which is not finite"),
    ({"x0": 1.0, "new": -math.inf}, "y", 1.0, "column 'new' has -inf, which is not finite"),
    ({"x0": 1e300, "new": 1.0}, "y", 1.0, "column 'x0' has 1e.300, which is too large"),
    ({"x0": 1.0, "x1": 1.0, "x2": math.inf}, "y", 1.0, "column 'x2' has inf"),
    ([1.0], "y", 1.0, "must be a dictionary"),
    ({"new": 1.0}, None, 1.0, "label is missing"),
    ({"new": 1.0}, math.nan, 1.0, "label is missing"),
    ({"new": 1.0}, ["y"], 1.0, "hashable"),
    ({"new": 1.0}, "y", math.nan, "weight is nan"),
    ({"new": 1.0}, "y", "heavy", "weight is 'heavy'"),
    ({"new": "red"}, "y", -1.0, "weight is -1"),
    ({"new": 1.0}, {}, 1.0, "sum to 0, not to 1"),
    ({"new": "red"}, {"class 0": 0.5, "y": 0.4}, 1.0, "sum to 0.9, not to 1"),
    ({"new": 1.0}, {"class 0": 1.5, "y": -0.5}, 1.0, "gives 'y' the probability -0.5"),
    ({"new": 1.0}, {"y": 0.5, "z": math.nan}, 1.0, "gives 'z' the probability nan"),
    ({"new": 1.0}, {"y": "1"}, 1.0, "gives 'y' the probability '1'"),
    ({"new": 1.0}, {"y": 0.5, None: 0.5}, 1.0, "label is missing"),
    ({"new": math.inf}, {"y": 0.5, "z": 0.5}, 1.0, "column 'new' has inf"),
    ({"x0": 1e300}, {"y": 0.5, "z": 0.5}, 1.0, "which is too large"),
    ({"new": 1.0}, {"y": 0.5, "z": 0.5}, -1.0, "weight is -1"),
]


@pytest.mark.parametrize(("x", "y", "w", "sentence"), REFUSED)
def test_what_is_refused_changes_nothing(x, y, w, sentence, rng):
    for model in (FolkloreStreamClassifier("folklore"), learned(stream(rng), "auto")):
        before = pickle.dumps(model)
        with pytest.raises(InvalidInputError, match=sentence):
            model.learn_one(x, y, w)
        assert pickle.dumps(model) == before


NAMES = st.sampled_from(["x0", "x1", "x2"]) | st.one_of(
    st.text(max_size=2), st.integers(-2, 2), st.none(), st.booleans(), st.floats(), st.tuples()
)
VALUES = st.floats(-10, 10) | st.sampled_from(["red", "blue"]) | st.one_of(
    st.floats(), st.integers(), st.none(), st.booleans(), st.text(max_size=2),
    st.binary(max_size=1), st.decimals(), st.fractions(), st.complex_numbers(),
    st.just(10**400), st.lists(st.floats()),
    st.sampled_from([np.float64(1e200), np.int8(1), np.array([1.0]), np.str_("1"), 1e15, -1e308]),
)  # fmt: skip
LABELS = st.sampled_from(["class 0", "class 1"]) | st.one_of(
    st.text(max_size=1), st.integers(0, 2), st.booleans(), st.floats(), st.none(),
    st.lists(st.none()),
)  # fmt: skip
PARTS = st.floats(0, 1) | st.floats() | st.none() | st.just(Fraction(1, 2))
SOFT = st.one_of(
    st.floats(0, 1).map(lambda p: {"class 0": p, "class 1": 1.0 - p}),
    st.tuples(st.text(max_size=1), st.floats(0, 1)).map(lambda t: {t[0]: t[1], 7: 1.0 - t[1]}),
    st.dictionaries(LABELS.filter(lambda y: not isinstance(y, list)), PARTS, max_size=3),
)
WEIGHTS = st.just(1.0) | st.floats() | st.none() | st.text(max_size=1) | st.integers()
EXAMPLES = st.tuples(st.dictionaries(NAMES, VALUES, max_size=4), LABELS | SOFT, WEIGHTS)


@pytest.mark.parametrize("name", ["auto", "folklore"])
@pytest.mark.parametrize("scale", [True, False])
@given(events=st.lists(EXAMPLES, max_size=12))
@example(events=[({"x0": 1e15}, "class 0", 1.0), ({"x1": 7e14, "x0": -7e14}, "class 1", 1.0)])
def test_all_or_nothing(name, scale, events):
    model = FolkloreStreamClassifier(name, scale=scale)
    for x, y in stream(np.random.default_rng(0), T=6):
        model.learn_one(x, y)
    for x, y, w in events:
        before, given_x = pickle.dumps(model), copy.copy(x)
        try:
            model.learn_one(x, y, w)
        except InvalidInputError:
            assert pickle.dumps(model) == before
        else:
            p = model.predict_proba_one(x)
            assert list(x.items()) == list(given_x.items())
            assert math.isclose(sum(p.values()), 1.0)
            assert all(0.0 <= value <= 1.0 for value in p.values())
    p = model.predict_proba_one({"x0": 1.0})
    assert math.isclose(sum(p.values()), 1.0)


def test_copies_are_independent(rng):
    examples = stream(rng, missing=0.1)
    model = learned(examples, "auto")
    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    before = state(model)  # which settles labels that wait, so that later pickles are equal too
    pickled = pickle.dumps(model)
    for other in (*copies, model.clone(include_attributes=True)):
        assert state(other) == before
        other.learn_one({"new": 1.0}, "new")
        assert state(other) != before
        assert pickle.dumps(model) == pickled
    model.predict_one(examples[0][0])
    assert pickle.dumps(model) == pickled


def test_memory_is_that_of_the_state(rng):
    model = learned(stream(rng, d=20, K=5), "folklore")
    n = 4 * 21
    # The rows of late that explanations are tried on are there too.
    assert 8 * n * n < model._raw_memory_usage < 6 * 8 * n * n


@pytest.mark.parametrize("cut", [0, 1, 30])
@pytest.mark.parametrize("name", ["auto", "folklore"])
def test_resuming_equals_never_stopping(name, cut, rng, tmp_path):
    examples = [(x | {3: 1, 2.5: True}, y) for x, y in stream(rng, missing=0.1)]
    kept = {"class 0": "0", "class 1": 1, "class 2": False}
    examples = [(x, kept[y]) for x, y in examples]
    model = learned(examples[:cut], name, max_weight=2.0, intercept=False)
    model.model.save(tmp_path / "model")
    resumed = model.clone()
    resumed.model = folklearn.load(tmp_path / "model")
    for x, y in examples[cut:]:
        said = resumed.predict_proba_one(x)
        assert list(said.items()) == list(model.predict_proba_one(x).items())
        model.learn_one(x, y, w=1.5)
        resumed.learn_one(x, y, w=1.5)
    assert [type(label) for label in resumed.model.labels] == [
        type(label) for label in model.model.labels
    ]
    assert state(resumed) == state(model)


def test_the_file_is_that_of_the_inner_model(rng, tmp_path):
    examples = stream(rng)
    model = learned(examples, "folklore", B=np.float64(5.0))
    model.model.save(tmp_path / "model")
    inner = folklearn.load(tmp_path / "model")
    x = examples[0][0]
    assert inner.predict_proba_one(x) == model.predict_proba_one(x)
    assert inner.labels == model.model.labels


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        ({"a": 1.0}, (1, 2), r"label \(1, 2\) cannot be saved"),
    ],
)
def test_names_that_json_does_not_know_cannot_be_saved(x, y, sentence, tmp_path):
    with pytest.raises(InvalidInputError, match=sentence):
        learned([(x, y)]).model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def batches(examples, size=7):
    """Blocks of examples whose columns come and go."""
    for number, start in enumerate(range(0, len(examples), size)):
        names = [["x0"], ["x2", "x1", "x0"], ["x1"], ["x3", "x0"]][number % 4]
        yield [({name: x[name] for name in names}, y) for x, y in examples[start : start + size]]


def as_frame(library, batch):
    data = {name: [x[name] for x, _ in batch] for name in batch[0][0]}
    return library.DataFrame(data), library.Series([y for _, y in batch])


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("name", LEARNERS)
def test_many_is_the_loop(kind, name, rng):
    library = pytest.importorskip(kind, reason="data frames are optional")
    examples = stream(rng, d=4, missing=0.1)
    one, many = FolkloreStreamClassifier(name), FolkloreStreamClassifier(name)
    for batch in batches(examples):
        X, y = as_frame(library, batch)
        weights = rng.uniform(size=len(batch))
        for (x, label), w in zip(batch, weights.tolist(), strict=True):
            one.learn_one(x, label, w)
        many.learn_many(X, y, w=library.Series(weights))
        P = many.predict_proba_many(X)
        assert type(P) is type(X)
        assert list(P.columns) == list(one.predict_proba_one({}))
        expected = [list(one.predict_proba_one(x).values()) for x, _ in batch]
        np.testing.assert_allclose(P.to_numpy(), expected, atol=1e-8)
        assert many.predict_many(X).to_list() == [one.predict_one(x) for x, _ in batch]
        assert many.unseen_probability == one.unseen_probability
    assert many.model.encoder.keys == one.model.encoder.keys


def test_pandas_keeps_index_and_labels():
    pd = pytest.importorskip("pandas", reason="data frames are optional")
    nullable, objects = pd.array([1, None, 3], "Int64"), [1.5, None, Decimal(2)]
    X = pd.DataFrame({"a": nullable, 5: [True, False, True], "o": objects}, index=[7, 8, 9])
    model = FolkloreStreamClassifier("folklore")
    assert model.predict_proba_many(X).shape == (3, 0)
    assert model.predict_many(X).tolist() == [None] * 3
    model.learn_many(X, pd.Series([True, False, True]))
    P = model.predict_proba_many(X)
    assert list(P.columns) == [True, False]
    assert list(P.index) == [7, 8, 9]
    assert list(model.predict_many(X).index) == [7, 8, 9]
    rows = [{"a": 1, 5: True, "o": 1.5}, {"a": None, 5: False, "o": None}, {"a": 3, 5: 1, "o": 2}]
    loop = learned(zip(rows, [True, False, True], strict=True), "folklore")
    for k, x in enumerate(rows):
        assert_close(loop.predict_proba_one(x), dict(P.iloc[k]))
    before = pickle.dumps(model)
    model.learn_many(X.iloc[:0].assign(new=1.0), pd.Series([], dtype=bool))
    assert pickle.dumps(model) == before


def test_a_bad_row_refuses_the_whole_frame(rng):
    pd = pytest.importorskip("pandas", reason="data frames are optional")
    model = learned(stream(rng), "folklore")
    before = pickle.dumps(model)
    X, y = pd.DataFrame({"x0": [1.0, 2.0], "new": [1.0, 1.0]}), pd.Series(["class 0", "new"])
    refused = [
        (X.assign(new=[1.0, math.inf]), y, 1.0, "column 'new': inf is not finite"),
        (X.assign(x0=["1", "two"]), y, 1.0, "column 'x0': 'two' is not a number"),
        (X, [{"new": 1.0}, {"new": 0.5}], 1.0, "sum to 0.5"),
        (X.assign(x0=math.inf), [{"new": 1.0}, "class 0"], 1.0, "column 'x0': inf is"),
        (X, pd.Series(["class 0", None]), 1.0, "label is missing"),
        (X, y[:1], 1.0, "got 1 label for 2 rows"),
        (X, y, [1.0, -1.0], "weight"),
        (X, y, [1.0], "weight"),
    ]
    for frame, labels, w, sentence in refused:
        with pytest.raises(InvalidInputError, match=sentence):
            model.learn_many(frame, labels, w)
        assert pickle.dumps(model) == before
    with pytest.raises(InvalidInputError, match="column 'x0': inf is not finite"):
        model.predict_many(pd.DataFrame({"x0": [math.inf]}))


def test_labels_that_would_name_one_column_of_polars():
    pl = pytest.importorskip("polars", reason="data frames are optional")
    model = learned([({"a": 1.0}, 1), ({"a": 2.0}, "1")])
    with pytest.raises(InvalidInputError, match="same column"):
        model.predict_proba_many(pl.DataFrame({"a": [1.0]}))
