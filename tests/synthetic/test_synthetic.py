"""Every synthetic stream is what its name says."""

import numpy as np
import pytest

from folklearn import Folklore, synthetic
from folklearn.errors import InvalidInputError
from folklearn.evaluate.hindsight import best_in_class
from folklearn.synthetic import OBLIVIOUS
from tests.reference.ogd import DenseOgd
from tests.reference.ons import DenseOns

T, d, K = 500, 4, 3


@pytest.mark.parametrize("name", OBLIVIOUS)
@pytest.mark.parametrize("R", [1.0, 1e-3, 20.0])
def test_shapes_norms_and_seeds(name, R, seed):
    X, y = OBLIVIOUS[name](seed, T, d=d, K=K, R=R)
    assert X.shape == (T, d)
    assert y.shape == (T,)
    assert (X.dtype, y.dtype) == (np.float64, np.int64)
    assert np.linalg.norm(X, axis=1).max() <= R
    assert set(np.unique(y)) <= set(range(K))
    again = OBLIVIOUS[name](seed, T, d=d, K=K, R=R)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    other = OBLIVIOUS[name](seed + 1, T, d=d, K=K, R=R)
    assert (y != other[1]).any()


@pytest.mark.parametrize("name", OBLIVIOUS)
@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"d": 0}, "d must be at least 1"),
        ({"K": 1}, "K must be at least 2"),
        ({"T": 0}, "T must be at least 1"),
        ({"R": -1.0}, "R must be a positive number"),
    ],
)
def test_bad_sizes(name, bad, sentence):
    arguments = {"seed": 0, "T": 10, "d": d, "K": K} | bad
    with pytest.raises(InvalidInputError, match=sentence):
        OBLIVIOUS[name](**arguments)


def loss_per_round(X, y, B):
    return best_in_class(X, y, B=B, n_classes=K).loss / len(y)


def test_separable_can_be_fitted_and_noise_cannot(seed):
    separable = synthetic.separable(seed, T, d=d, K=K)
    assert loss_per_round(*separable, B=1000.0) < 0.02
    noise = synthetic.pure_noise(seed, T, d=d, K=K)
    # 2 T (ln K - loss) is nearly chi squared with 8 degrees: above 40 in 3 of 10^6 seeds.
    assert loss_per_round(*noise, B=1000.0) > np.log(K) - 20.0 / T


def test_the_model_of_the_stochastic_stream_is_found(seed):
    X, y = synthetic.stochastic(seed, 4000, d=d, K=K, B=5.0)
    best = best_in_class(X, y, B=50.0, n_classes=K)
    centred = best.W - best.W.mean(axis=0)
    assert 1.0 < np.linalg.norm(centred, axis=1).max() < 8.0  # 1.8 to 6.4 over 100 seeds


def test_rare_flip_changes_the_stated_fraction(seed):
    X, y = synthetic.separable(seed, 20_000, d=d, K=K)
    flipped_X, flipped = synthetic.rare_flip(seed, 20_000, d=d, K=K, rate=0.05)
    np.testing.assert_array_equal(X, flipped_X)
    assert 0.04 < (y != flipped).mean() < 0.06  # six standard deviations
    np.testing.assert_array_equal(y, synthetic.rare_flip(seed, 20_000, d=d, K=K, rate=0.0)[1])
    assert (y != synthetic.rare_flip(seed, 20_000, d=d, K=K, rate=1.0)[1]).all()
    with pytest.raises(InvalidInputError, match="rate must be between 0 and 1"):
        synthetic.rare_flip(seed, 10, d=d, K=K, rate=-0.1)


def test_a_drifting_stream_has_no_single_good_model(seed):
    X, y = synthetic.drifting(seed, 4000, d=d, K=K, B=20.0)
    part = slice(0, 200)
    assert loss_per_round(X[part], y[part], B=50.0) < loss_per_round(X, y, B=50.0) - 0.1


def test_against_gives_the_least_likely_class(seed):
    X = synthetic.contexts(seed, 200, d=d)
    learner, twin = (Folklore(n_features=d, n_classes=K) for _ in range(2))
    y = synthetic.against(learner, X)
    for x, label in zip(X, y, strict=True):
        assert twin.predict(x).argmin() == label
        twin.update(x, int(label))
    assert learner.certificate() == twin.certificate()
    assert learner.certificate().loss >= 200 * np.log(K)


def regrets(learner, B, seeds, T):
    """Mean regret over the seeds of a function (B) -> learner with `update`."""
    total = 0.0
    for seed in seeds:
        X, y = synthetic.hard_for_proper(seed, T, B=B)
        model = learner(B)
        loss = sum(model.update(x, int(label)) for x, label in zip(X, y, strict=True))
        total += loss - best_in_class(X, y, B=B, n_classes=2).loss
    return total / len(seeds)


def folklore(B):
    return Folklore(n_features=1, n_classes=2, B=B)


def test_gradient_descent_pays_more_and_more_as_B_grows(seed):
    """Over the seeds 0 to 99: at least 4.6 times more, and 33 nats more than FOLKLORE."""
    seeds = [10 * seed + i for i in range(4)]
    proper = [regrets(lambda B: DenseOgd(1, 2, B, 1.0), B, seeds, 2000) for B in (1.0, 30.0)]
    assert proper[1] > 3.0 * proper[0]
    assert proper[1] > 20.0 + regrets(folklore, 30.0, seeds, 2000)


def test_online_newton_step_pays_more_and_more_as_B_grows(seed):
    """Over the seeds 0 to 99: at least 2.2 times more, and 6.7 nats more than FOLKLORE."""
    seeds = [10 * seed + i for i in range(8)]
    proper = [regrets(lambda B: DenseOns(1, 2, B, 1.0), B, seeds, 500) for B in (0.5, 5.0)]
    assert proper[1] > 1.5 * proper[0]
    assert proper[1] > 3.0 + regrets(folklore, 5.0, seeds, 500)
