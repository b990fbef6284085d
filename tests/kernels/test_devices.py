"""Devices by name, and what is said where there is none; PyTorch itself is not needed."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from folklearn import Certifier, Evidence, Leader, Model, auto, best_in_class
from folklearn.errors import InvalidInputError
from folklearn.evidence.passes import MapReduce, passes_over
from folklearn.kernels.blas import OWN, device_named

SIZES = {"n_features": 2, "n_classes": 2}
X, y = np.eye(2), np.array([0, 1])
ASKED = {
    "Evidence": lambda device: Evidence(**SIZES, device=device),
    "Evidence.to": lambda device: Evidence(**SIZES).to(device),
    "Leader": lambda device: Leader(**SIZES, device=device),
    "Leader.to": lambda device: Leader(**SIZES).to(device),
    "auto": lambda device: auto(**SIZES, device=device),
    "Certifier": lambda device: Certifier(**SIZES, device=device),
    "best_in_class": lambda device: best_in_class(X, y, B=1.0, n_classes=2, device=device),
    "passes_over": lambda device: passes_over(X, y, None, **SIZES, device=device),
    "MapReduce": lambda device: MapReduce.from_options(device=device),
    "Model": lambda device: Model(device=device),
    "Model.to": lambda device: Model().to(device),
    "Model.fit": lambda device: Model().fit([{"a": 1, "y": 0}], "y", device=device),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_device_without_pytorch_is_refused(asked, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it could not be imported
    with pytest.raises(InvalidInputError, match="device='cuda' needs PyTorch: pip install"):
        asked("cuda")


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_device_has_a_name(asked):
    with pytest.raises(InvalidInputError, match="device must be a name such as 'cuda', got 0"):
        asked(0)


@pytest.mark.parametrize("name", [None, OWN])
def test_the_cpu_needs_no_pytorch(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert device_named(name) is None
    assert Leader(**SIZES, device=name).device == Evidence(**SIZES, device=name).device == OWN
    assert Model(device=name).device == Certifier(**SIZES, device=name).device == OWN


def test_who_takes_no_device_says_so():
    with pytest.raises(InvalidInputError, match="folklore does not take the setting 'device'"):
        Model("folklore", device="cuda")
    with pytest.raises(InvalidInputError, match="folklore does not take the setting 'device'"):
        Model("folklore").to("cuda")
    assert Model("folklore", device="cpu").to("cpu").device == OWN


def torch_that_raises(error):
    def zeros(*_, **__):
        raise error

    return SimpleNamespace(device=str, zeros=zeros, float64=None)


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("Torch not compiled with CUDA enabled"),
        RuntimeError("No CUDA GPUs are available.\nCompile with ..."),
        TypeError("Cannot convert a tensor to float64"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_device_that_cannot_be_used_is_refused_in_one_line(error, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch_that_raises(error))
    with pytest.raises(InvalidInputError) as refused:
        device_named("cuda:3")
    text = str(refused.value)
    assert text.startswith(f"device='cuda:3' cannot be used: {str(error)[:20]}")
    assert "'cpu' computes without one" in text
    assert "\n" not in text
