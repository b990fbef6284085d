"""Every size has a backend, and `auto` takes it, says so, and can be told otherwise."""

import numpy as np
import pytest

import folklearn
from folklearn import ClassGaussians, Mixture, SparseSgd, auto, utils
from folklearn.errors import InvalidInputError
from folklearn.evaluate import logistic_regression
from folklearn.learners import catalogue
from folklearn.learners.auto import Auto
from folklearn.learners.catalogue import BACKENDS, select_backend


@pytest.mark.parametrize(
    ("d", "K", "backend"),
    [
        (5, 2, "pairs"),
        (65, 10, "pairs"),
        (17, 26, "pairs"),
        (109, 2, "pairs"),
        (20, 500, "blocks"),
        (20, 2000, "blocks"),
        (2**18, 77, "wide"),
        (100_000, 8, "wide"),
        (5000, 2, "wide"),
        (2**60, 10**6, "wide"),
    ],
)
def test_sizes(d, K, backend):
    assert select_backend(d, K) == backend


def test_little_memory_means_a_lighter_lane(monkeypatch):
    monkeypatch.setattr(utils, "bytes_present", lambda: 10**7)
    assert select_backend(65, 10) == "blocks"
    assert select_backend(20, 2000) == "wide"
    monkeypatch.setattr(utils, "bytes_present", lambda: float("inf"))
    assert select_backend(65, 10) == "pairs"


def test_auto_takes_the_lane_and_says_so():
    made = {backend: auto(n_features=6, n_classes=5, backend=backend) for backend in BACKENDS}
    assert isinstance(made["pairs"], Auto)
    assert isinstance(made["wide"], SparseSgd)
    blocks = made["blocks"]
    assert isinstance(blocks, Mixture)
    assert [type(expert) for expert in blocks.experts] == [ClassGaussians] * 3 + [SparseSgd]
    assert "Auto(" in repr(made["pairs"])
    assert "ClassGaussians(" in repr(blocks)
    assert "SparseSgd(" in repr(made["wide"])
    with pytest.raises(InvalidInputError, match="one of 'pairs', 'blocks', 'wide', got 'fast'"):
        auto(n_features=6, n_classes=5, backend="fast")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_lane_learns_and_proves(backend):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 6)) / 2
    y = np.argmax(X @ rng.normal(size=(6, 5)), axis=1)
    model = auto(n_features=6, n_classes=5, backend=backend)
    P = model.run(X, y)
    assert np.mean(P[1000:].argmax(axis=1) == y[1000:]) > 0.9
    best = logistic_regression(X, y, n_classes=5)
    certificate = model.certificate()
    assert certificate.valid
    assert certificate.C == 1.0
    assert certificate.best_linear_at_least <= best.loss + best.penalty


def test_nothing_is_refused_for_width():
    model = auto(n_features=2**45, n_classes=3)
    model.update(([2**44], [1.0]), 1)
    assert model.predict(([2**44], [1.0])).argmax() == 1


@pytest.mark.parametrize(("backend", "max_weight"), [("blocks", 1.0), ("wide", 8.0)])
def test_a_model_that_outgrows_its_lane_goes_on(backend, max_weight, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6)) / 2
    W = 4.0 * rng.normal(size=(5, 6))
    y = np.argmax(X @ W.T + rng.gumbel(size=(3000, 5)), axis=1)
    w = max_weight * rng.integers(1, 3, size=3000) / 2.0
    model = auto(n_features=4, n_classes=5, max_weight=max_weight)
    before = -np.log(model.run(X[:2500, :4], y[:2500], weight=w[:2500])[np.arange(2500), y[:2500]])
    W[:, 4:] = 0.0  # the same world
    stays = model.grown(n_features=6)
    monkeypatch.setattr(catalogue, "_MAX_PAIR_PRODUCTS", 0)
    monkeypatch.setattr(catalogue, "_MAX_BLOCK_ENTRIES", 0 if backend == "wide" else 10**6)
    moves = model.grown(n_features=6)
    assert isinstance(moves, SparseSgd if backend == "wide" else Mixture)
    assert moves.n_rounds == model.n_rounds == 2500
    for one in (moves, stays):
        rest = one.run(X[2500:], y[2500:], weight=w[2500:])
        losses = -np.log(rest[np.arange(500), y[2500:]])
        assert losses.mean() < 1.1 * before[-500:].mean() + 0.05  # nothing was forgotten
        wide = np.hstack([X[:2500, :4], np.zeros((2500, 2))])
        everything = np.vstack([wide, X[2500:]])
        best = logistic_regression(everything, y, n_classes=5, weight=w)
        proven = one.certificate()
        assert proven.valid
        assert proven.n_rounds == 3000
        assert proven.loss == pytest.approx(w[:2500] @ before + w[2500:] @ losses)
        least = best.loss + best.penalty
        assert proven.best_linear_at_least <= least
        assert one.certificate(best.W).best_linear_at_least <= best.loss
    assert stays.certificate().best_linear_at_least > 0.99 * least
    moves.save(tmp_path / "m")
    assert folklearn.load(tmp_path / "m").certificate() == moves.certificate()


def test_a_model_without_evidence_begins_with_none_where_it_moves():
    model = auto(n_features=2, n_classes=2, certify=False)
    model.update([1.0, 0.0], 0)
    moved = model.grown(n_features=10**6)
    assert isinstance(moved, SparseSgd)
    assert moved.predict(([0], [1.0]))[0] > 0.5
    assert moved.certificate().best_linear_at_least == pytest.approx(0.0, abs=1e-12)


def test_class_blocks_that_would_not_fit_are_left_behind():
    model = auto(n_features=20, n_classes=500)
    model.update(np.ones(20), 3)
    grown = model.grown(n_features=2**40)
    assert [type(expert) for expert in grown.experts] == [SparseSgd]
    assert grown.certificate().valid
    grown.update(([2**39], [1.0]), 7)
    assert grown.predict(([2**39], [1.0])).argmax() == 7
    assert grown.n_rounds == 2
