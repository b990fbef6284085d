"""Progress of long work, and what compiling has to do with it."""

import numpy as np
import pytest

from folklearn import Ogd, progress
from folklearn.progress import Compilation, working_time


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_TO_COMPILE_SILENTLY", 1.0)


def test_compiling_is_announced_once_and_only_while_it_goes_on(caplog, impatient):
    clock = Clock()
    compilation = Compilation(clock)
    for _ in range(3):
        compilation.begin()
        clock.now += 0.4
        compilation.end()
        clock.now += 60.0  # of work
    assert not caplog.records  # what took long is over
    for _ in range(3):
        compilation.begin()
        compilation.end()
    assert [record.getMessage() for record in caplog.records] == [
        "compiling kernels, once per machine, which takes a minute or two; `folklearn warmup` "
        "compiles all of them beforehand"
    ]


def test_a_kernel_within_another_counts_once():
    clock = Clock()
    compilation = Compilation(clock)
    compilation.begin()
    clock.now += 2.0
    compilation.begin()
    clock.now += 1.0
    assert compilation.seconds == 3.0
    compilation.end()
    clock.now += 4.0
    compilation.end()
    clock.now += 100.0
    assert compilation.seconds == 7.0


def test_what_compiling_takes_is_in_no_working_time(monkeypatch):
    """18 seconds of work that compiled in between were once announced as ten minutes."""
    clock = Clock()
    compilation = Compilation(clock)
    monkeypatch.setattr(progress, "COMPILATION", compilation)
    monkeypatch.setattr(progress.time, "monotonic", clock)
    start = working_time()
    for _ in range(3):
        compilation.begin()
        clock.now += 40.0
        assert working_time() - start < 1.0
        compilation.end()
        clock.now += 0.3
    assert working_time() - start == pytest.approx(0.9)


def test_a_report_of_ones_own_is_called_instead():
    told = []
    model = Ogd(n_features=2, n_classes=2)
    model.run(np.ones((5, 2)), [0, 1, 0, 1, 0], progress=told.append)
    assert told[-1] == 5
