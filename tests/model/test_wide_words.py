"""Words need a learner that takes wide rows."""

import pytest

from folklearn.errors import InvalidInputError
from folklearn.model.pipeline import OnlinePipeline


def test_a_learner_that_takes_no_words_says_so_at_once():
    with pytest.raises(InvalidInputError, match="'ogd' takes no words and no wide rows"):
        OnlinePipeline("ogd", n_features=1, n_classes=2, sparse=True)
