"""The same tests on every device of PyTorch that there is: its CPU, and a GPU if it sees one."""

import pytest

from folklearn.kernels.on_torch import OF_TORCH, Device


def names():
    try:
        import torch
    except ImportError:
        return [OF_TORCH]
    return [OF_TORCH, "cuda"] if torch.cuda.is_available() else [OF_TORCH]


@pytest.fixture(params=names())
def device(request):
    there = Device(request.param)
    there.torch.set_num_threads(1)
    return there
