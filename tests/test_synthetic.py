"""Every synthetic stream is what its name says."""

from functools import partial

import numpy as np
import pytest

from experiments.bandit.synsep import ROWS_PER_BLOCK, syn_blocks, syn_non_sep, syn_sep
from folklearn import Folklore, synthetic
from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import best_in_class
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
    with pytest.raises(InvalidInputError, match="rate must be a number from 0 to 1"):
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


def class_sets(X, y, n_class_bits):
    """The bits that ever occur in a class: all of its own, if it is seen often enough."""
    return [np.flatnonzero(X[y == k, :n_class_bits].any(axis=0)) for k in np.unique(y)]


def test_every_example_has_the_stated_bits(seed):
    X, y = syn_sep(seed, 3000)
    assert X.shape == (3000, 400)
    assert (X.dtype, y.dtype) == (np.float64, np.int64)
    assert set(np.unique(X)) == {0.0, 1.0}
    # A bit of a class is off in at most 5 of 20 examples of it: never in 300 of them.
    sets = class_sets(X, y, 120)
    assert len(sets) == 9
    assert all(20 <= len(bits) <= 40 for bits in sets)
    own = np.array([len(sets[label]) for label in y])
    np.testing.assert_array_equal(X[:, :120].sum(axis=1), own - 5)
    np.testing.assert_array_equal(X[:, 120:].sum(axis=1), 20)


def test_labels_off_bits_and_noise_bits_are_uniform(seed):
    """Limits of six standard deviations, about 300 of them: fails for 1 seed in 10^6."""
    T = 9000
    X, y = syn_sep(seed, T)
    assert (np.abs(np.bincount(y, minlength=9) - T / 9) < 6 * np.sqrt(T / 9)).all()
    noise = X[:, 120:].mean(axis=0)
    assert (np.abs(noise - 20 / 280) < 6 * np.sqrt(20 / 280 / T)).all()
    bits = class_sets(X, y, 120)[0]
    off = 1.0 - X[y == 0][:, bits].mean(axis=0)
    share = 5 / len(bits)
    assert (np.abs(off - share) < 6 * np.sqrt(share / (y == 0).sum())).all()


@pytest.mark.parametrize("d", [20, 37, 79, 80, 161, 400, 1000])
def test_other_sizes_keep_the_proportions_and_are_separable(d, seed):
    T, K = 800, 5
    X, y = syn_sep(seed, T, d=d, K=K)
    n, noise, off = round(0.3 * d), round(d / 20), d // 80
    np.testing.assert_array_equal(X[:, n:].sum(axis=1), noise)
    sets = class_sets(X, y, n)
    assert all(round(0.05 * d) <= len(bits) <= round(0.1 * d) for bits in sets)
    own = np.array([len(sets[label]) for label in y])
    np.testing.assert_array_equal(X[:, :n].sum(axis=1), own - off)
    # The separator of the docstring, and a perceptron, which must find one of its own: it
    # makes at most 2 |W|^2 R^2 mistakes in all.
    W = np.zeros((K, d))
    for k, bits in enumerate(sets):
        W[k, bits] = 2.0
        W[k, n:] = -len(bits) / noise
    scores = X @ W.T
    right = scores[np.arange(T), y].copy()
    scores[np.arange(T), y] = -np.inf
    assert (right - scores.max(axis=1) > 0.999).all()
    assert perceptron_converges(X, y, K, most=2 * (W**2).sum() * (X**2).sum(axis=1).max())


def perceptron_converges(X, y, K, most):
    W, mistakes = np.zeros((K, X.shape[1])), 0
    while mistakes <= most:
        wrong = np.flatnonzero((X @ W.T).argmax(axis=1) != y)
        if not wrong.size:
            return True
        for x, label in zip(X[wrong], y[wrong], strict=True):
            guess = int(np.argmax(W @ x))
            if guess != label:
                W[label] += x
                W[guess] -= x
                mistakes += 1
    return False


def test_a_twentieth_of_the_labels_is_replaced(seed):
    T = 20_000
    X, y = syn_sep(seed, T, d=80)
    noisy_X, noisy = syn_non_sep(seed, T, d=80)
    np.testing.assert_array_equal(X, noisy_X)
    # Six standard deviations: fails for 2 seeds in 10^9.
    assert abs((y != noisy).mean() - 0.05) < 6 * np.sqrt(0.05 * 0.95 / T)
    assert set(np.unique((noisy - y) % 9)) == set(range(9))
    assert (syn_non_sep(seed, 500, d=80, rate=1.0)[1] != y[:500]).all()
    np.testing.assert_array_equal(syn_non_sep(seed, 500, d=80, rate=0.0)[1], y[:500])


@pytest.mark.parametrize(
    ("whole", "in_blocks"),
    [(syn_sep, partial(syn_blocks, rate=0.0)), (syn_non_sep, partial(syn_blocks, rate=0.05))],
)
@pytest.mark.parametrize("T", [1, ROWS_PER_BLOCK, 2 * ROWS_PER_BLOCK + 3])
def test_the_blocks_are_the_whole_and_a_shorter_stream_is_its_beginning(whole, in_blocks, T, seed):
    X, y = whole(seed, T, d=40, K=4)
    blocks = list(in_blocks(seed, T, d=40, K=4))
    assert all(len(rows) == ROWS_PER_BLOCK for rows, _ in blocks[:-1])
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in blocks]), X)
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in blocks]), y)
    longer = whole(seed, T + 700, d=40, K=4)
    np.testing.assert_array_equal(longer[0][:T], X)
    np.testing.assert_array_equal(longer[1][:T], y)


def test_same_seed_same_bytes_and_other_seed_other_stream(seed):
    first, again, other = (syn_non_sep(s, 300) for s in (seed, seed, seed + 1))
    assert first[0].tobytes() == again[0].tobytes()
    assert first[1].tobytes() == again[1].tobytes()
    assert (first[0] != other[0]).any()
    assert (first[1] != other[1]).any()


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"T": 0}, "T must be at least 1"),
        ({"K": 1}, "K must be at least 2"),
        ({"d": 19}, "d must be at least 20, got 19: a class needs a bit of its own"),
        ({"d": 20, "K": 40}, "d=20 is too small for K=40 classes .* more than 0: take more"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"rate": 1.5}, "rate must be a number from 0 to 1, got 1.5"),
    ],
)
def test_bad_sizes_are_refused_at_once(bad, sentence):
    arguments = {"seed": 0, "T": 10} | bad
    with pytest.raises(InvalidInputError, match=sentence):
        syn_blocks(**({"rate": 0.05} | arguments))
