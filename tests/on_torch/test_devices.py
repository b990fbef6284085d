"""Devices of PyTorch by name."""

import copy
import pickle

import numpy as np
import pytest

from folklearn.errors import InvalidInputError
from folklearn.kernels.blas import device_named
from folklearn.kernels.on_torch import Device, back

pytest.importorskip("torch", reason="PyTorch is not installed: make test-gpu")


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", ["tpu", "mps", "meta", "cuda:99", "cuda:x", ""])
def test_a_device_that_cannot_be_used_is_refused(name):
    with pytest.raises(InvalidInputError, match=r"cannot be used: .*Devices are 'cuda' and 'cuda:"):
        device_named(name)


def test_cuda_without_a_gpu_is_refused(device):
    if device.torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InvalidInputError, match="device='cuda' cannot be used: .*'cpu' computes"):
        device_named("cuda")


def test_two_of_the_same_name_are_the_same(device):
    for same in (Device(device.name), copy.deepcopy(device), pickle.loads(pickle.dumps(device))):
        assert same == device
        assert hash(same) == hash(device)
    assert repr(device) == f"Device({device.name!r})"
    assert device != device.name


def test_arrays_go_there_and_come_back(device, rng):
    A = rng.normal(size=(4, 3))
    np.testing.assert_array_equal(back(device.put(A.T)), A.T)
    np.testing.assert_array_equal(back(device.zeros(2, 3)), np.zeros((2, 3)))
    assert device.bytes_free() > 0
