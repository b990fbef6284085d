"""Long work says once how long it will take; short work says nothing."""

import logging

import numpy as np
import pytest

from folklearn import Ogd, progress
from folklearn.progress import Compilation, DurationNotice, format_duration, report_progress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def announcer(total):
    clock = Clock()
    return DurationNotice(total, "learning", clock), clock


def test_long_work_is_announced_once(caplog):
    report, clock = announcer(10_000)
    for done in (100, 200, 300, 400):
        report(done)
        clock.now += 0.3
    assert [record.getMessage() for record in caplog.records] == [
        "learning 10000 rows: 300 done, about 29 seconds left; Ctrl+C stops it"
    ]


def test_what_comes_before_the_first_report_does_not_count(caplog):
    report, clock = announcer(1000)
    clock.now += 60.0  # preparation
    for done in (100, 300, 700, 1000):
        report(done)
        clock.now += 0.6
    assert not caplog.records


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


def test_what_compiling_takes_is_in_no_estimate(caplog, monkeypatch):
    """18 seconds of work that compiled in between were once announced as ten minutes."""
    clock = Clock()
    compilation = Compilation(clock)
    monkeypatch.setattr(progress, "COMPILATION", compilation)
    monkeypatch.setattr(progress.time, "monotonic", clock)
    report = DurationNotice(10_000, "learning")
    for done in (100, 200, 300, 400):
        report(done)
        compilation.begin()
        clock.now += 40.0
        compilation.end()
        clock.now += 0.3
    assert [record.getMessage() for record in caplog.records] == [
        "learning 10000 rows: 300 done, about 29 seconds left; Ctrl+C stops it"
    ]


def test_short_work_says_nothing(caplog):
    report, clock = announcer(1000)
    for done in range(0, 1001, 10):
        report(done)
        clock.now += 0.01
    assert not caplog.records


def test_a_report_of_ones_own_is_called_instead():
    told = []
    model = Ogd(n_features=2, n_classes=2)
    model.run(np.ones((5, 2)), [0, 1, 0, 1, 0], progress=told.append)
    assert told[-1] == 5


def test_it_can_be_silenced(caplog):
    with caplog.at_level(logging.ERROR, logger="folklearn"):
        report, clock = announcer(10_000)
        for done in (1, 2, 3):
            report(done)
            clock.now += 1.0
    assert not caplog.records


@pytest.mark.parametrize(
    ("seconds", "words"), [(7.4, "7 seconds"), (300.0, "5 minutes"), (9000.0, "2.5 hours")]
)
def test_durations(seconds, words):
    assert format_duration(seconds) == words


def test_the_default_is_a_notice():
    with report_progress(False, 10, "learning") as report:
        assert isinstance(report, DurationNotice)
