"""Waves on a device are those of the CPU, to rounding, and a `Leader` there learns them."""

import numpy as np
import pytest

from folklearn import Leader, Waves

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")


def test_waves_are_those_of_the_cpu(device, rng, monkeypatch):
    X = rng.uniform(size=(300, 4))
    y = (np.hypot(X[:, 0] - 0.5, X[:, 1] - 0.5) < 0.35).astype(int)
    here = Waves(n_waves=12, sigma=6.0).fit_transform(X)
    monkeypatch.setattr("folklearn.adapters.terms._ROWS_AT_ONCE", 70)
    there = Waves(n_waves=12, sigma=6.0, device=device.name).fit_transform(X)
    np.testing.assert_allclose(there, here, rtol=0.0, atol=1e-12)
    sizes = {"n_features": 12, "n_classes": 2, "kept": 60}
    P = Leader(**sizes, device=device.name).run(there, y)
    np.testing.assert_allclose(P, Leader(**sizes).run(here, y), atol=1e-9)
