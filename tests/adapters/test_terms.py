"""Terms and waves as scikit-learn sees them."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from folklearn import Terms, Waves
from folklearn.errors import InvalidInputError


@parametrize_with_checks([Terms(n_terms=40), Waves(n_waves=20)])
@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings, and look at them themselves
def test_the_checks_of_scikit_learn(estimator, check):
    with np.errstate(all="warn"):
        check(estimator)


def test_waves_are_their_definition(rng, monkeypatch):
    monkeypatch.setattr("folklearn.adapters.terms._ROWS_AT_ONCE", 3)
    X = rng.uniform(size=(8, 5))
    waves = Waves(n_waves=7, sigma=3.0, seed=4).fit(X)
    one_by_one = list(zip(waves.frequencies_, waves.phases_, strict=True))
    expected = [[np.cos(omega @ x + b) for omega, b in one_by_one] for x in X]
    np.testing.assert_allclose(waves.transform(X), np.sqrt(2 / 7) * np.array(expected), atol=1e-12)
    assert list(waves.get_feature_names_out()) == [f"waves{i}" for i in range(7)]


def test_products_of_waves_are_a_kernel(rng):
    """To 5 deviations: a mean of 20,000 products of variance below 1."""
    X = rng.uniform(size=(2, 9))
    a, b = Waves(n_waves=20_000, sigma=4.0).fit_transform(X)
    kernel = np.exp(-(4.0**2) * ((X[0] - X[1]) ** 2).sum() / 18.0)
    assert abs(a @ b - kernel) < 5.0 / np.sqrt(20_000)
    assert abs(a @ a - 1.0) < 5.0 / np.sqrt(20_000)


def test_settings_that_no_wave_has(rng):
    X = rng.normal(size=(4, 2))
    for words in ({"n_waves": 0}, {"sigma": 0.0}, {"device": "abacus"}):
        with pytest.raises(InvalidInputError, match=next(iter(words))):
            Waves(**words).fit_transform(X)
