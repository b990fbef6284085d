"""Terms as scikit-learn sees them."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from folklearn import Terms


@parametrize_with_checks([Terms(n_terms=40)])
@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings, and look at them themselves
def test_the_checks_of_scikit_learn(estimator, check):
    with np.errstate(all="warn"):
        check(estimator)
