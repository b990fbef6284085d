"""Prediction sets: the twin, the bound on every sequence, late labels, classes, saving."""

import json

import numpy as np
import pytest

import folklearn
from folklearn.errors import FolklearnError, InvalidInputError, StateFileError
from folklearn.evaluate import PredictionSets
from folklearn.kernels.metrics import step_of_threshold
from folklearn.serialization import Record
from tests.reference import prediction_sets as reference

N_RANDOM, N_ADVERSARIAL = 1000, 50
ROUNDING = 1e-12


def random_stream(rng):
    """Probabilities of labels: constant, uniform, near 0 or 1, in phases, or all at the edge."""
    T = int(rng.integers(1, 400))
    shape = rng.integers(5)
    if shape == 0:
        return np.full(T, rng.random())
    if shape == 1:
        return rng.random(T)
    if shape == 2:
        return rng.beta(0.1, 0.1, size=T)
    if shape == 3:
        return rng.random(3)[rng.integers(3, size=1 + T // 50).repeat(50)[:T]]
    return rng.integers(2, size=T).astype(float)


def play_adversary(rng, sets, T):
    """Give labels that the sets miss, or do not, as it hurts most just then: probabilities (T,)."""
    wish, given = rng.random() < 0.5, []
    turn = int(rng.integers(1, T))
    for t in range(T):
        q = float(sets.thresholds[0, 0])
        misses = wish != (t >= turn) if rng.random() < 0.95 else rng.random() < 0.5
        p = np.nextafter(1.0 - q, 0.0) - 1e-12 if misses else 1.0 - q
        given.append(float(np.clip(p, 0.0, 1.0)))
        sets.observe(given[-1], 0)
    return given


def assert_within(sets, D=0):
    for record in sets.records():
        far = abs(record.miss_rate - (1.0 - record.coverage))
        assert far <= record.bound + ROUNDING
        if record.n_rows:
            most = min(1.0, reference.bound(record.n_rows, D))
            assert record.bound <= most + ROUNDING
            assert D or record.bound == pytest.approx(most)


@pytest.mark.parametrize("late", [False, True])
def test_the_kernel_is_its_twin(rng, late):
    p = random_stream(rng)
    T = len(p)
    issued = np.maximum(0, np.arange(T) - rng.integers(8, size=T)) if late else np.arange(T)
    sets, q = PredictionSets((0.6, 0.9)), [np.ones((2, 1))]
    for t in range(T):
        sets.observe(p[t], 0, q[issued[t]] if late else None)
        q.append(sets.thresholds)
    for c, record in enumerate(sets.records()):
        expected, misses = reference.follow(1.0 - p, 1.0 - record.coverage, issued)
        np.testing.assert_allclose([one[c, 0] for one in q], expected, rtol=0, atol=1e-12)
        assert record.n_misses == sum(misses)


def test_the_step_is_the_larger_of_both():
    steps = [step_of_threshold(float(t)) for t in range(1, 2000)]
    assert steps == [reference.step(t) for t in range(1, 2000)]


def test_the_bound_holds_on_random_sequences(rng):
    for _ in range(N_RANDOM):
        sets = PredictionSets((0.5, 0.9, rng.uniform(0.01, 0.99)))
        p = random_stream(rng)
        sets.observe_many(p, np.zeros(len(p), int))
        assert_within(sets)


def test_the_bound_holds_and_is_nearly_reached_on_adversarial_sequences(rng):
    reached = 0.0
    for _ in range(N_ADVERSARIAL):
        sets = PredictionSets(rng.uniform(0.05, 0.95))
        play_adversary(rng, sets, int(rng.integers(20, 1000)))
        assert_within(sets)
        (record,) = sets.records()
        far = abs(record.miss_rate - (1.0 - record.coverage))
        reached = max(reached, far / record.bound)
    assert reached > 0.3  # the bound is no idle one


def test_the_bound_holds_for_late_labels_as_their_sets_were_issued(rng):
    """Up to D others wait; the adversary keeps back the rows whose labels will be missed."""
    widest = 0.0
    for stream in range(N_RANDOM // 10 + N_ADVERSARIAL):
        D, T = int(rng.integers(1, 20)), int(rng.integers(50, 250))
        sets, waiting, n_told, q = PredictionSets(rng.uniform(0.1, 0.9)), [], 0, [1.0]
        while n_told < T:
            waiting.append(sets.thresholds)
            if len(waiting) <= D:
                continue
            thresholds = np.array([float(one[0, 0]) for one in waiting])
            if stream % 2:
                chosen, score = int(rng.integers(len(waiting))), rng.random()
            else:  # up as far as it goes, then down
                is_up = n_told % (4 * D) < 2 * D
                chosen = int(thresholds.argmin() if is_up else thresholds.argmax())
                score = thresholds[chosen] + (1e-9 if is_up else -1e-9)
            issued = waiting.pop(chosen)
            sets.observe(float(np.clip(1.0 - score, 0.0, 1.0)), 0, issued)
            n_told += 1
            q.append(float(sets.thresholds[0, 0]))
        assert_within(sets, D)
        moved = max(1.0 + reference.step(1), max(q) - min(q)) / (reference.step(T) * T)
        assert sets.records()[0].bound == pytest.approx(min(1.0, moved))
        widest = max(widest, max(q) - min(q))
    assert widest > 1.0 + step_of_threshold(1.0)  # late labels do move thresholds further


def test_every_class_has_its_own_bound(rng):
    """Labels that are easy for one class and hopeless for another."""
    y = rng.choice(4, size=3000, p=[0.7, 0.2, 0.09, 0.01])
    p = np.array([0.99, 0.5, 0.01, 0.0])[y] * rng.random(3000)
    sets = PredictionSets(0.9, by="class")
    sets.observe_many(p, y)
    for k, record in enumerate(sets.by_class(0.9)):
        assert record.n_rows == (y == k).sum()
        _, misses = reference.follow(1.0 - p[y == k], 1.0 - 0.9)
        assert record.n_misses == sum(misses)
        assert abs(record.miss_rate - 0.1) <= record.bound <= reference.bound(record.n_rows)
    assert_within(sets, D=1000)
    overall = PredictionSets(0.9)
    overall.observe_many(p, y)
    rates = [np.mean(1.0 - p[y == k] > overall.thresholds[0, 0]) for k in range(4)]
    assert max(rates) > 0.5  # one threshold does not do that


def test_on_a_stationary_stream_misses_are_within_a_point_after_5000_rows(rng):
    P = rng.dirichlet(np.full(5, 0.4), size=5000)
    y = (P.cumsum(axis=1) > rng.random((5000, 1))).argmax(axis=1)
    sets = PredictionSets()
    sets.observe_many(P[np.arange(5000), y], y)
    for record in sets.records():
        assert abs(record.miss_rate - (1.0 - record.coverage)) < 0.01


def test_sets_have_the_classes_up_to_the_threshold_and_the_most_probable_one():
    sets = PredictionSets((0.5, 0.9))
    sets.observe_many([0.3] * 40, [0] * 40)
    q = sets.thresholds[:, 0]
    P = [[0.1, 0.6, 0.3], [0.2, 0.5, 0.3], [0.34, 0.33, 0.33]]
    for limit, coverage in zip(q, sets.coverage, strict=True):
        for p, chosen in zip(P, sets.choose(P, "abc", coverage), strict=True):
            inside = {k for k, one in zip("abc", p, strict=True) if 1.0 - one <= limit}
            best = "abc"[int(np.argmax(p))]
            assert (set(chosen), chosen[0]) == (inside | {best}, best)
    hopeless = PredictionSets(0.1)
    hopeless.observe_many([1.0] * 50, [0] * 50)
    assert hopeless.thresholds[0, 0] < 0.0
    assert hopeless.choose(P, "abc", 0.1) == [("b",), ("b",), ("a",)]


def test_a_set_by_class_asks_the_threshold_of_each_class():
    sets = PredictionSets(0.9, by="class")
    sets.observe_many([0.9] * 300, [0] * 300)  # of other classes nothing is known: they are in
    assert sets.choose([[0.6, 0.4, 0.0]], "abc", 0.9) == [("a", "b", "c")]
    sets.observe_many([0.8] * 300, [1] * 300)
    assert sets.choose([[0.6, 0.4, 0.0]], "abc", 0.9) == [("a", "c")]


@pytest.mark.parametrize("by", ["all", "class"])
def test_any_chunking_copies_and_files_give_the_same_bytes(rng, by):
    p, y = rng.random(700), rng.integers(4, size=700)
    whole, one_by_one, resumed = (PredictionSets(by=by) for _ in range(3))
    whole.observe_many(p, y)
    for t in range(700):
        one_by_one.observe(float(p[t]), int(y[t]))
        if t % 97 == 0:
            resumed = folklearn.load(resumed.to_bytes()).copy()
        resumed.observe(float(p[t]), int(y[t]))
    assert whole.to_bytes() == one_by_one.to_bytes() == resumed.to_bytes()
    copied = whole.copy()
    copied.observe(0.1, 0)
    assert copied.records() != whole.records()
    whole.forget()
    assert whole.to_bytes() == PredictionSets(by=by).to_bytes()


def test_wrong_input_is_refused_and_changes_nothing(rng):
    sets = PredictionSets(0.9)
    sets.observe_many([0.5], [0])
    before = sets.to_bytes()
    for p, y in [([0.5, 0.5], [0]), ([1.5], [0]), ([-0.1], [0]), ([0.5], [-1]), ([0.5], [0.5])]:
        with pytest.raises(InvalidInputError, match="a probability from 0 to 1 and the number"):
            sets.observe_many(p, y)
    with pytest.raises(InvalidInputError, match=r"0.8 was not declared; declared: 0.9\."):
        sets.choose([[0.5, 0.5]], "ab", 0.8)
    assert sets.to_bytes() == before
    for options in ({"coverage": 90}, {"coverage": (0.9, 1.0)}, {"by": "segment"}):
        with pytest.raises(FolklearnError, match="coverage must be|by must be"):
            PredictionSets(**options)
    record = sets.to_record()
    record.arrays["state"][0] = -1.0
    with pytest.raises(StateFileError, match="count below 0"):
        PredictionSets.from_record(
            Record(record.kind, json.loads(json.dumps(record.config)), record.arrays)
        )


def test_nothing_is_said_before_the_first_row_or_without_a_coverage():
    assert PredictionSets().in_words() == PredictionSets(()).in_words() == ""
    assert np.isnan(PredictionSets(0.9).records()[0].miss_rate)
    assert PredictionSets(0.9).records()[0].bound == 1.0
