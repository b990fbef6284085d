"""Learners beside a logistic regression in hindsight, the same however many run at once."""

import numpy as np
import pytest

from folklearn import scale, synthetic
from folklearn.errors import InvalidInputError
from folklearn.evaluate.regression import logistic_regression
from folklearn.learners import catalogue
from folklearn.metrics.scores import progressive

LEARNERS = {"auto": {}, "folklore": {"B": 4.0}, "ogd": {"B": 4.0}}


@pytest.fixture
def rows(seed):
    return synthetic.stochastic(seed, 400, d=3, K=3)


def test_the_rows(rows):
    found = scale.compare(LEARNERS, *rows, n_classes=3, C=4.0)
    best = logistic_regression(*rows, n_classes=3, C=4.0)
    np.testing.assert_array_equal(found.best.W, best.W)
    assert [row.learner for row in found.rows] == list(LEARNERS)
    for row in found.rows:
        learner = catalogue.make(row.learner, 3, 3, LEARNERS[row.learner])
        scores = progressive(learner, *rows)
        np.testing.assert_array_equal(row.scores.P, scores.P)
        assert row.regret == row.scores.loss - best.loss - best.penalty
        assert row.seconds > 0.0
    assert "ogd 0." in repr(found)
    assert "logistic regression in hindsight, penalty counted" in repr(found)


def test_processes_change_nothing_but_times(rows):
    one, two = (scale.compare(LEARNERS, *rows, n_classes=3, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one.best.loss == two.best.loss
    for here, there in zip(one.rows, two.rows, strict=True):
        np.testing.assert_array_equal(here.scores.P, there.scores.P)
        assert (here.learner, here.regret) == (there.learner, there.regret)


def test_names_alone_and_what_is_refused(rows):
    (row,) = scale.compare(["ogd"], *rows, n_classes=3).rows
    assert row.learner == "ogd"
    with pytest.raises(InvalidInputError, match="there is no learner 'sgd'"):
        scale.compare(["sgd"], *rows, n_classes=3)
    with pytest.raises(InvalidInputError, match="a comparison needs a learner at least"):
        scale.compare([], *rows, n_classes=3)
    X, y = rows
    listed = scale.compare("ogd", X.tolist(), y.tolist(), n_classes=3)
    assert listed.rows[0].regret == row.regret
