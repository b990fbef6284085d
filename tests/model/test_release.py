"""A model lets go of every row, and goes on to learn, predict and prove."""

import struct

import numpy as np
import pytest

from folklearn import DecisionModel, Model, load

RARE = {"number": 0.123456789123456, "category": "zebrafish", "word": "quokka", "id": "P-77"}


def stream(n, *, words=False, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        row = {"a": rng.normal(), "b": rng.exponential(), "c": str(rng.choice(["x", "y", "z"]))}
        if words:
            row["t"] = " ".join(rng.choice(["red", "green", "blue", "grey"], 4))
        yield row, "p" if row["a"] + (row["c"] == "x") + 0.5 * rng.logistic() > 0.3 else "q"


@pytest.mark.parametrize("n", [0, 1, 40, 300, 2100])
@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("windows", [False, True])
def test_a_released_model_holds_no_row_and_goes_on(n, words, windows):
    model = Model(roles={"id": "ignored"}, windows=windows)
    for i, (row, label) in enumerate(stream(n, words=words)):
        row["id"] = f"P-{i}"
        if i == n - 1:
            row |= {"a": RARE["number"], "id": RARE["id"]}
            row |= {"t": f"red {RARE['word']}"} if words else {}
        model.learn_one(row, label)
    number = model.ask({"a": RARE["number"], "id": RARE["id"]})[1]
    planted = [struct.pack("<d", RARE["number"]), RARE["id"].encode(), b"0.12345678912345"]
    planted += [RARE["word"].encode()] * (words and n > 0)
    before = model.to_bytes()
    assert all(each in before for each in planted[1:])
    model.release_rows()
    after = model.to_bytes()
    if n != 1:  # the mean of one row is that row
        assert not any(each in after for each in planted)
    assert number not in model.pending
    assert not len(model.recent.rows()[1])
    again = load(after)
    again.release_rows()
    assert again.to_bytes() == after
    for row, label in stream(100, words=words, seed=1):
        model.learn_one(row, label)
    assert model.n_rounds == n + 100
    assert model.certificate().valid


def test_decisions_that_wait_are_let_go_of():
    model = DecisionModel(["tea", "coffee"])
    for hour in [8, 21] * 100:
        decision = model.decide({"hour": hour, "who": RARE["id"]})
        if hour == 8:
            model.reward(decision.id, decision.action == "coffee")
    assert len(model.pending) == 100
    model.release_rows()
    assert not model.pending
    assert model.n_dropped == 100


def test_a_category_loses_its_name_and_keeps_its_weights():
    model = Model(crosses=[("c", "d")])
    for i, (row, label) in enumerate(stream(300)):
        category = RARE["category"] if i % 7 == 0 else row["c"]
        model.learn_one({**row, "c": category, "d": "ab"[i % 2]}, label)
    place, W = model.find_category("c", RARE["category"]), model.pipeline.coef()
    model.forget_categories([place])
    model.release_rows()
    assert model.find_category("c", RARE["category"]) is None
    content = model.to_bytes()
    assert RARE["category"].encode() not in content
    again = load(content)
    assert again.encoder.keys == model.encoder.keys
    assert again.to_bytes() == content
    np.testing.assert_array_equal(model.pipeline.coef(), W)
    n = len(model.encoder.keys)
    model.learn_one({"a": 0.0, "b": 1.0, "c": RARE["category"], "d": "a"}, "p")
    assert model.find_category("c", RARE["category"]) == n
