"""Every size has a lane, and `auto` takes it, says so, and can be told otherwise."""

import numpy as np
import pytest

from folklearn import ClassBlocks, Mixture, Wide, auto, memory
from folklearn.errors import InvalidInputError
from folklearn.learners.auto import Auto
from folklearn.learners.lanes import LANES, lane_of


@pytest.mark.parametrize(
    ("d", "K", "lane"),
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
def test_sizes(d, K, lane):
    assert lane_of(d, K) == lane


def test_little_memory_means_a_lighter_lane(monkeypatch):
    monkeypatch.setattr(memory, "bytes_present", lambda: 10**7)
    assert lane_of(65, 10) == "blocks"
    assert lane_of(20, 2000) == "wide"
    monkeypatch.setattr(memory, "bytes_present", lambda: None)
    assert lane_of(65, 10) == "pairs"


def test_auto_takes_the_lane_and_says_so():
    made = {lane: auto(n_features=6, n_classes=5, lane=lane) for lane in LANES}
    assert isinstance(made["pairs"], Auto)
    assert isinstance(made["wide"], Wide)
    blocks = made["blocks"]
    assert isinstance(blocks, Mixture)
    assert [type(expert) for expert in blocks.experts] == [ClassBlocks] * 3 + [Wide]
    assert "Auto(" in repr(made["pairs"])
    assert "ClassBlocks(" in repr(blocks)
    assert "Wide(" in repr(made["wide"])
    with pytest.raises(InvalidInputError, match="no lane 'fast'; choose one of: pairs, blocks"):
        auto(n_features=6, n_classes=5, lane="fast")


@pytest.mark.parametrize("lane", LANES)
def test_every_lane_learns_and_proves(lane):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 6)) / 2
    y = np.argmax(X @ rng.normal(size=(6, 5)), axis=1)
    model = auto(n_features=6, n_classes=5, lane=lane, B=(5.0, 20.0))
    P = model.run(X, y)
    assert np.mean(P[1000:].argmax(axis=1) == y[1000:]) > 0.9
    small, large = (model.certificate(B=B) for B in (5.0, 20.0))
    assert small.valid
    assert large.valid
    assert small.best_linear_at_least >= large.best_linear_at_least


def test_nothing_is_refused_for_width():
    model = auto(n_features=2**45, n_classes=3)
    model.update(([2**44], [1.0]), 1)
    assert model.predict(([2**44], [1.0])).argmax() == 1
