"""The frozen record is what it says, whatever way the rows come, and it is worth having."""

import numpy as np
import pytest

from folklearn import serialization, synthetic
from folklearn.model.pipeline import OnlinePipeline
from tests.reference import frozen as reference


def rows(seed, T, d=3, K=2):
    X, y = synthetic.drifting(seed, T, d=d, K=K)
    return X * (1.0 + np.arange(d)), y


@pytest.mark.parametrize("learner", ["auto", "folklore", "ogd"])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_definition(learner, seed):
    X, y = rows(seed, 900)
    weight = np.random.default_rng(seed).choice([0.0, 0.5, 1.0], len(y))
    slow = OnlinePipeline(learner, n_features=3, n_classes=2)
    record, loss = reference.played(slow, X, y, weight)
    pipeline = OnlinePipeline(learner, n_features=3, n_classes=2)
    pipeline.run(X, y, weight=weight)
    names = pipeline.learner._expert_names()
    np.testing.assert_allclose(pipeline.holdout.loss, loss, rtol=1e-9)
    expected = reference.weights_of(record, names)
    np.testing.assert_allclose(pipeline.holdout.weights(pipeline.learner), expected, atol=1e-9)


@pytest.mark.parametrize("block", [1, 7, 64, 250])
def test_pieces_make_no_difference(block):
    X, y = rows(2, 700)
    whole, pieces = (OnlinePipeline("auto", n_features=3, n_classes=2) for _ in range(2))
    whole.run(X, y)
    for start in range(0, len(y), block):
        pieces.run(X[start : start + block], y[start : start + block])
    assert_same_record(whole, pieces)


def test_one_by_one_makes_no_difference():
    X, y = rows(3, 700)
    whole, single = (OnlinePipeline("auto", n_features=3, n_classes=2) for _ in range(2))
    whole.run(X, y)
    for x, label in zip(X, y.tolist(), strict=True):
        single.learn_row(x, label)
    assert_same_record(whole, single)


@pytest.mark.parametrize("cut", [70, 100, 380, 650])
def test_it_goes_on_from_a_file_in_the_middle_of_a_stripe(cut, tmp_path):
    X, y = rows(4, 700)
    whole, first = (OnlinePipeline("auto", n_features=3, n_classes=2) for _ in range(2))
    whole.run(X, y)
    first.run(X[:cut], y[:cut])
    first.save(tmp_path / "pipeline")
    second = serialization.load(tmp_path / "pipeline")
    second.run(X[cut:], y[cut:])
    assert_same_record(whole, second)


def assert_same_record(one, other):
    ours, theirs = one.to_record(), other.to_record()
    assert ours.config == theirs.config
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name in ours.arrays:
        np.testing.assert_array_equal(ours.arrays[name], theirs.arrays[name], err_msg=name)


def test_classes_and_features_may_come_in_the_middle_of_a_stripe():
    X, y = rows(5, 400, d=4, K=3)
    pipeline = OnlinePipeline("auto", n_features=3)
    y[:66] = np.arange(66) % 2
    y[70] = 2
    for t in range(400):
        x = X[t, :3] if t < 75 else X[t]
        pipeline.learn_row(np.ascontiguousarray(x), int(y[t]))
    assert pipeline.n_classes == 3
    assert np.isfinite(pipeline.holdout.loss)


def test_soft_labels_count():
    X, y = rows(6, 300)
    soft = 0.9 * np.eye(2)[y] + 0.05
    pipeline = OnlinePipeline("auto", n_features=3, n_classes=2)
    pipeline.run(X, soft)
    hard = OnlinePipeline("auto", n_features=3, n_classes=2)
    hard.run(X, y)
    assert np.isfinite(pipeline.holdout.loss)
    assert pipeline.holdout.loss != hard.holdout.loss


def persistent(seed, T):
    """Labels that stay for a while, whatever the context: only who follows them is right."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, 3))
    y = (np.cumsum(rng.random(T) < 0.02) % 2).astype(np.int64)
    return X, y


def test_a_tracker_does_not_end_up_in_what_predicts():
    X, y = persistent(0, 8000)
    pipeline = OnlinePipeline("auto", n_features=3, n_classes=2)
    losses = []
    for start in range(0, 7000, 1000):
        part, ahead = slice(start, start + 1000), slice(start + 1000, start + 2000)
        P, _ = pipeline.run(X[part], y[part])
        told = P, pipeline.predict_next(X[ahead]), pipeline.predict(X[ahead])
        losses.append(
            [
                -np.log(Q[np.arange(1000), y[own]]).mean()
                for Q, own in zip(told, (part, ahead, ahead), strict=True)
            ]
            + [pipeline.holdout.loss]
        )
    progressive, running, saved, said = np.mean(losses, axis=0)
    assert progressive < 0.45  # it pays to follow,
    assert running > 1.2 * saved  # and costs not to be able to any more:
    assert saved < 0.8  # what predicts is hardly worse than a coin, ln 2,
    assert abs(said - saved) < 0.1  # and says so


def test_an_expert_that_the_record_puts_first_does_not_retire():
    X, y = persistent(1, 9000)
    pipeline, alone = (OnlinePipeline("auto", n_features=3, n_classes=2) for _ in range(2))
    alone._share_holdout = lambda: None
    pipeline.run(X, y)
    alone.run(X, y)
    left = set(pipeline.learner._expert_names()) - set(alone.learner._expert_names())
    assert left  # what would have gone by the progressive losses alone
