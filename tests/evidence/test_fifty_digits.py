"""Evidence is never above the truth: hostile streams, judged in 50 digits.

Rows and columns of all sizes at once, nearly on a line, weights up to 1e15, soft labels, any
penalty. FOLKLEARN_TEST_SEED gives other streams, FOLKLEARN_STREAMS more of them.
"""

import os

import mpmath as mp
import numpy as np
import pytest

import folklearn
from folklearn import Evidence, LinearEvidence
from folklearn.evidence import evidence as module
from tests.reference import fifty_digits
from tests.reference.hostile import one_stream

N_STREAMS = int(os.environ.get("FOLKLEARN_STREAMS", "8"))


@pytest.fixture(autouse=True)
def _few_rows_wait(monkeypatch):
    monkeypatch.setattr(module, "KEPT_ROWS", 12)
    monkeypatch.setattr(module, "SETTLED_ROWS", 6)
    monkeypatch.setattr(module, "_MAX_POINTS", 3)


def extreme(rng):
    """A stream as hostile as validation admits, and settings."""
    d, K = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    X, Y, weight = one_stream(rng, int(rng.integers(20, 60)), d, K)
    if rng.random() < 0.5:
        X = X * 10.0 ** rng.uniform(-15, 9, size=d)
        X *= np.minimum(1.0, 1e14 / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-100))
    if rng.random() < 0.3:
        weight = np.minimum(weight * 10.0 ** rng.uniform(-15, 9), 1e15)
    settings = {"C": 10.0 ** rng.uniform(-15, 15) if rng.random() < 0.5 else 1.0}
    if rng.random() < 0.3:
        settings["constant"] = int(rng.integers(d))
    return X, Y, weight, settings


def collect(rng, X, Y, weight, settings):
    (T, d), K = X.shape, Y.shape[1]
    kind, half = rng.integers(4), T // 2
    evidence = Evidence(n_features=d, n_classes=K, **settings)
    if kind == 0:
        evidence.add(X, Y, weight=weight)
        return evidence
    evidence.add(X[:half], Y[:half], weight=weight[:half])
    if kind == 1:
        evidence = folklearn.load(evidence.to_bytes())
    if kind == 2:
        more = Evidence(n_features=d, n_classes=K, **settings)
        more.add(X[half:], Y[half:], weight=weight[half:])
        return evidence + more
    evidence.add(X[half:], Y[half:], weight=weight[half:])
    return evidence


@pytest.mark.parametrize("group", range(12))
def test_no_bound_is_above_the_exact_loss(group, seed):
    rng = np.random.default_rng([seed, 77, group])
    for _ in range(N_STREAMS):
        X, Y, weight, settings = extreme(rng)
        evidence = collect(rng, X, Y, weight, settings)
        planes = LinearEvidence.tangent_to(evidence)
        bound, best = evidence.minimise()
        for W in (best, 0.0 * best, best + rng.normal(size=best.shape), 0.5 * best):
            loss = fifty_digits.total_loss(W, X, Y, weight)
            penalty = fifty_digits.penalty(W, evidence.penalties)
            with mp.workdps(fifty_digits.DIGITS):
                assert bound <= loss + penalty
                assert planes.lower_bound() <= loss + penalty
                assert evidence.value(W) <= loss
                assert planes.value(W) <= loss


@pytest.mark.parametrize("group", range(4))
def test_no_bound_is_above_the_exact_least_value(group, seed):
    rng = np.random.default_rng([seed, 78, group])
    n_close = 0
    for _ in range(4):
        d, K, T = int(rng.integers(1, 3)), int(rng.integers(2, 4)), int(rng.integers(12, 40))
        X, Y, weight = (
            rng.normal(size=(T, d)),
            rng.dirichlet(np.ones(K), T),
            rng.exponential(size=T),
        )
        evidence = collect(rng, X, Y, weight, {})
        bound, W = evidence.minimise()
        least = fifty_digits.least_penalised(X, Y, weight, evidence.penalties, W)
        assert bound <= least
        n_close += float(least) - bound <= 0.2 * float(least)
    assert n_close >= 2


def test_evidence_scaled_into_underflow_is_never_above(rng):
    """A thousand halvings leave subnormal numbers, whose rounding is not relative."""
    X, Y, weight = rng.normal(size=(40, 3)), rng.dirichlet(np.ones(4), 40), rng.exponential(size=40)
    evidence = Evidence(n_features=3, n_classes=4)
    evidence.add(X, Y, weight=weight)
    W = rng.normal(size=(4, 3))
    loss = fifty_digits.total_loss(W, X, Y, weight)
    for power in (300, 600, 900, 1000, 1020, 1060, 1080):
        faded = (evidence * 2.0**-200) * 2.0 ** max(200 - power, -1074)
        assert faded.value(W) <= loss * mp.mpf(2) ** -power
        assert faded.lower_bound() <= loss * mp.mpf(2) ** -power + fifty_digits.penalty(
            W, faded.penalties
        )
