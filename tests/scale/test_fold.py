"""The pure fold: bytes in, bytes out, in batches of any size."""

import itertools
import math
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import folklearn
from folklearn.errors import StateFileError
from folklearn.scale import FoldEvent, FoldOutput, fold

VALUES = st.one_of(st.none(), st.just(math.nan), st.floats(-3.0, 3.0).map(lambda x: round(x, 2)))
ROWS = st.fixed_dictionaries(
    {"early": st.floats(-3.0, 3.0)},
    optional={"gaps": VALUES, "kind": st.sampled_from(["a", "b", None]), "late": VALUES},
)
LABELS = st.sampled_from(["x", "y", "z", "rare", None])
WEIGHTS = st.sampled_from([1.0, 1.0, 0.5, 2.0, -1.0])  # the last is refused
EVENTS = st.lists(st.builds(FoldEvent, ROWS, LABELS, WEIGHTS), min_size=1, max_size=40)


@given(events=EVENTS, cuts=st.lists(st.integers(0, 40), max_size=3))
@settings(max_examples=15, deadline=None)
def test_batches_of_any_size_give_the_same_bytes(events, cuts):
    whole, expected = fold(None, events)
    state, outputs = None, []
    edges = [0, *sorted(cuts), len(events)]
    for start, stop in itertools.pairwise(edges):
        state, some = fold(state, events[start:stop])
        outputs += some
    assert state == whole
    assert repr(outputs) == repr(expected)  # equal but for NaN, which equals nothing


@pytest.mark.parametrize(
    "rows",
    [
        [{}, {"a": 2.0}],  # nothing at all, then a number in the first place
        [{"a": "", "b": 1.0}, {"a": 2.0, "b": 1.0}],  # gaps of other kinds than the column
        [{"a": np.datetime64("NaT", "s"), "b": 1.0}, {"a": 2.0, "b": 1.0}],
        [{"a": math.nan, "b": 1.0}, {"a": date(2024, 5, 1), "b": 1.0}],
        [{1: 2.0, "a": 1.0}, {True: 3.0, "a": 1.0}],  # names that are equal, and written apart
    ],
)
def test_a_state_in_between_changes_nothing(rows):
    events = [(row, label) for row, label in zip(rows * 2, "xyxy", strict=True)]
    whole, _ = fold(None, events)
    state = None
    for event in events:
        state, [output] = fold(state, [event])
        assert not output.refused
    assert state == whole


def test_it_is_what_a_model_does(rng):
    model, events = folklearn.Model(), []
    for x in rng.normal(size=(60, 2)):
        events.append(FoldEvent({"a": x[0], "b": x[1]}, "up" if x[0] > 0.0 else "down"))
    state, outputs = fold(None, events)
    loss = 0.0
    for event, output in zip(events, outputs, strict=True):
        assert output == FoldOutput(model.predict_proba_one(event.row), model.unseen_probability)
        loss -= math.log(output.chance(event.label))
        model.learn_one(event.row, event.label)
    assert model.to_bytes() == state
    assert loss == pytest.approx(model.metrics.loss)
    assert outputs[0].label is None
    assert outputs[-1].label in {"up", "down"}


def test_a_question_changes_nothing(rng):
    state, _ = fold(None, [({"a": x}, int(x > 0.0)) for x in rng.normal(size=20)])
    same, [output] = fold(state, [({"a": 1.0},)])
    assert same == state
    assert sum(output.p.values()) == pytest.approx(1.0)


def test_an_event_that_cannot_be_learned_is_refused_and_changes_nothing():
    good = [({"a": 1.0}, "x"), ({"a": 2.0}, "y")]
    bad = [({"a": 1.0}, "x", -1.0), ({"a": "text"}, "x"), ({"a": math.inf}, "y")]
    state, outputs = fold(None, [*good, *bad])
    assert state == fold(None, good)[0]
    assert [bool(output.refused) for output in outputs] == [False, False, True, True, True]
    assert "weight" in outputs[2].refused


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (({"a": 1.0}, ("a", "tuple")), "cannot be saved"),
        (({"a": 1.0}, {"x": 0.5, b"bytes": 0.5}), "cannot be saved"),
        (({"a": 1.0}, "x", Decimal(-1)), "weight"),
        ((None, "x"), "a row"),
        (({"a": 1.0}, "x", 1.0, "more"), "an event is a tuple"),
        ((), "an event is a tuple"),
        (None, "an event is a tuple"),
    ],
)
def test_no_event_can_stop_a_stream(event, sentence):
    good = [({"a": 1.0}, "x", Decimal(1)), ({"a": 2.0}, np.int64(3))]
    state, [*_, output] = fold(None, [*good, event])
    assert state == fold(None, good)[0]
    assert sentence in output.refused


def test_settings_are_those_of_the_first_model():
    state, _ = fold(None, [], learner="leader", classes=["x", "y"])
    state, _ = fold(state, [({"a": 1.0}, "y")], learner="folklore")
    model = folklearn.load(state)
    assert model.learner_name == "leader"
    assert model.labels == ("x", "y")


def test_a_state_may_be_any_buffer_and_no_file():
    state, _ = fold(None, [({"a": 1.0}, "x")])
    assert fold(bytearray(state), [])[0] == fold(memoryview(state), [])[0] == state
    with pytest.raises(TypeError):
        fold("a file", [])


def test_a_state_of_something_else_is_refused():
    evidence = folklearn.Evidence(n_features=2, n_classes=2)
    with pytest.raises(StateFileError, match="holds no folklearn.Model .Evidence is none"):
        fold(evidence.to_bytes(), [])
    with pytest.raises(StateFileError, match="cut off or damaged"):
        fold(b"nothing", [])
