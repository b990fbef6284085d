"""Windows equal the evidence of their rows, and cover what is asked for."""

import numpy as np
import pytest

from folklearn import Evidence
from folklearn.metrics.accumulator import EvidenceSpan, add_to_ladder, join_suffixes

FLOOR = 1e-9  # nats a row: two searches for a floor may each end 1e-10 from it
SIZES = {"n_features": 3, "n_classes": 3, "C": 2.0}


def evidence_of(X, y):
    evidence = Evidence(**SIZES)
    evidence.add(X, y)
    return evidence


@pytest.mark.parametrize("T", [8, 64, 200, 328])
def test_windows_equal_the_evidence_of_their_rows(T):
    rng = np.random.default_rng(T)
    X, y, ladder = rng.normal(size=(T, 3)), rng.integers(3, size=T), []
    for start in range(0, T, 8):
        rows = slice(start, start + 8)
        add_to_ladder(ladder, EvidenceSpan(start, start + 8, evidence_of(X[rows], y[rows])))
    windows = join_suffixes(ladder)
    assert windows[-1].start == 0
    for window in windows:
        assert window.stop == T
        own = evidence_of(X[window.start :], y[window.start :]).lower_bound()
        assert window.evidence.lower_bound() == pytest.approx(own, abs=FLOOR * window.n_rounds)


def test_a_window_covers_what_was_asked_for_and_less_than_twice_that():
    ladder, block, T = [], 16, 1008
    for start in range(0, T, block):
        add_to_ladder(ladder, EvidenceSpan(start, start + block, 1))
    assert len(ladder) <= 2 * np.log2(T / block) + 2
    windows = join_suffixes(ladder)
    assert [window.evidence for window in windows] == [w.n_rounds // block for w in windows]
    for n in (16, 32, 100, 256, 500, 1000):
        assert n <= next(w.n_rounds for w in windows if w.n_rounds >= n) <= 2 * n + block
