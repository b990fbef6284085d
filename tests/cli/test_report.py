"""Sentences about certificates claim what is proven, and no more."""

import re
from itertools import pairwise

import pytest

from folklearn import Certificate, Folklore
from folklearn.cli import report
from folklearn.cli.moments import Moment, next_stop
from folklearn.streams.model import StreamModel


def certificate(loss, regret_bound, **more):
    return Certificate(loss=loss, regret_bound=regret_bound, B=10.0, n_rounds=100, **more)


def test_a_certificate_speaks_of_linear_models_of_the_scaled_features():
    assert report.certificate_in_words(certificate(80.0, 30.0), 64) == (
        "Certificate: no linear model of these 64 scaled features and a constant with row norms "
        "at most 10 "
        "could have had an average log loss below 0.5 in hindsight "
        "(regret bound 0.3 per round, 30 in total)."
    )


@pytest.mark.parametrize("gain", [1.23456, 0.0123456, 123.999999, 99.99999, 123456.7, 1e-9])
def test_the_best_loss_is_rounded_downwards(gain):
    words = report.certificate_in_words(certificate(300.0 + gain, 300.0), 2)
    below = float(re.search(r"below (\S+) in", words)[1])
    per_round = float(re.search(r"bound (\S+) per", words)[1])
    total = float(re.search(r"round, (\S+) in", words)[1])
    assert 0.999 * gain / 100 <= below <= gain / 100
    assert (per_round, total) == (3.0, 300.0)


@pytest.mark.parametrize("bound", [1.23456, 0.0123456, 123.999999, 99.99999, 123456.7, -2.34567])
def test_bounds_are_rounded_upwards(bound):
    words = report.certificate_in_words(certificate(1e6, bound), 2)
    total = float(re.search(r"round, (\S+) in", words)[1])
    assert bound <= total <= bound + 1e-3 * abs(bound)
    assert "e+" not in words


@pytest.mark.parametrize("loss", [10.0, 30.0])
def test_a_bound_above_the_loss_certifies_nothing_yet(loss):
    words = report.certificate_in_words(certificate(loss, 30.0), 65)
    assert words.startswith("The certificate does not yet exclude a perfect linear model of these")
    assert "loss below" not in words


def test_large_numbers_have_exponents():
    words = report.certificate_in_words(certificate(1.0, 123456789.0), 1)
    assert "of these 1 scaled feature and a constant with" in words
    assert "regret bound 1.235e+06 per round, 1.235e+08 in total" in words


@pytest.mark.parametrize(("gamma", "said"), [(None, True), (0.5, False)])
def test_unsolved_rounds_are_spoken_of_if_there_is_a_certificate(gamma, said, monkeypatch):
    monkeypatch.setattr(Folklore, "n_unsolved", 1)
    settings = {"gamma": gamma}
    model = StreamModel("folklore", settings, columns=["x"], target="y", labels=["a", "b"])
    model.run_block([[1.0], [2.0], [3.0]], [0, 1, 0])
    assert model.certificate().valid == said
    assert ("In 1 round the prediction was not solved" in report.summary(model, 3, 1.0)) == said


def test_an_invalid_certificate_gives_its_reason():
    invalid = certificate(10.0, float("inf"), valid=False, reason="gamma was too large")
    assert report.certificate_in_words(invalid, 65) == (
        "Nothing is certified: gamma was too large."
    )


def test_a_row_of_the_table():
    line = report.row(Moment(4, 6.0, 40.0, 3), Moment(8, 8.0, 48.0, 4), 1234.4)
    assert line.split() == ["8", "0.5000", "1.0000", "50.00%", "6.0000", "1234"]
    assert len(line) == len(report.HEADER.splitlines()[1])


def test_a_row_without_a_bound():
    line = report.row(Moment(0, 0.0, 0.0, 0), Moment(1, 1.0, float("inf"), 0), 10.0)
    assert line.split()[4] == "none"


def test_a_row_without_a_certificate():
    line = report.row(Moment(0, 0.0, None, 0), Moment(1, 1.0, None, 0), 10.0)
    assert line.split()[4] == "-"


def test_a_row_of_absurd_numbers_keeps_its_columns():
    line = report.row(Moment(0, 0.0, 0.0, 0), Moment(1, 1e30, 1e300, 0), 10.0)
    assert line.split()[1:5] == ["1.000e+30", "1.000e+30", "0.00%", "1.000e+300"]


def test_stops_include_every_power_of_two_and_blocks_stay_small():
    stops, at = [], 0
    while at < 2**17:
        at = next_stop(at)
        stops.append(at)
    assert {2**j for j in range(18)} <= set(stops)
    assert max(b - a for a, b in pairwise(stops)) == 4096


def test_only_powers_of_two_are_doubling():
    doubling = [n for n in range(70) if Moment(n, 0.0, 0.0, 0).is_doubling]
    assert doubling == [1, 2, 4, 8, 16, 32, 64]
