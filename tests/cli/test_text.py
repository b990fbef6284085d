"""Sentences about certificates claim what is proven, and no more."""

import math
import re

import pytest

from folklearn import Certificate, Model
from folklearn.cli import display
from folklearn.model import holdout
from folklearn.model.summary import describe_claims


def certificate(loss, regret_bound, **more):
    return Certificate(loss=loss, regret_bound=regret_bound, C=1.0, n_rounds=100, **more)


MODELS = "linear model of the features as given"
WITH_PENALTY = "on these rows, its penalty (C = 1) counted"


def test_the_plain_sentence():
    assert certificate(80.0, 30.0).in_words() == (
        f"Lower bound: every fixed {MODELS}, whatever its weights, has an average log loss of at "
        f"least 0.5 {WITH_PENALTY}; this model had 0.8000, each row predicted before its label was "
        "known, so that none of them is better by more than 0.3, its penalty (C = 1) counted."
    )
    words = certificate(80.0, 30.0).in_words(weight=200.0)
    assert f"at least 0.25 {WITH_PENALTY}; this model had 0.4000" in words
    beaten = certificate(80.0, -20.0, models="columns of some kind").in_words()
    assert beaten == (
        "Lower bound: every fixed linear model of columns of some kind, whatever its weights, has "
        f"an average log loss of at least 1 {WITH_PENALTY}; this model had 0.8000, each row "
        "predicted before its label was known."
    )
    assert certificate(80.0, 80.0).in_words().startswith("There is no useful lower bound yet")
    assert describe_claims(Model()) == ["Nothing is proven before there is a second class."]
    invalid = certificate(10.0, float("inf"), valid=False, reason="gamma was too large")
    assert invalid.in_words() == "There is no lower bound: gamma was too large."


def test_a_certificate_names_its_models():
    assert certificate(80.0, 30.0).in_full() == (
        f"Certificate: every fixed {MODELS} has an average log loss of at least 0.5 {WITH_PENALTY} "
        "(regret bound 0.3 per round, 30 in total)."
    )


@pytest.mark.parametrize("gain", [1.23456, 0.0123456, 123.999999, 99.99999, 123456.7, 1e-9])
def test_the_best_loss_is_rounded_downwards(gain):
    proof = certificate(300.0 + gain, 300.0)
    words = proof.in_full()
    below = float(re.search(r"at least (\S+) on", words)[1])
    per_round = float(re.search(r"bound (\S+) per", words)[1])
    total = float(re.search(r"round, (\S+) in", words)[1])
    assert 0.999 * gain / 100 <= below <= gain / 100
    assert (per_round, total) == (3.0, 300.0)
    assert float(re.search(r"at least (\S+) on", proof.in_words())[1]) == below


@pytest.mark.parametrize("bound", [1.23456, 0.0123456, 123.999999, 99.99999, 123456.7, -2.34567])
def test_bounds_are_rounded_upwards(bound):
    words = certificate(1e6, bound).in_full()
    total = float(re.search(r"round, (\S+) in", words)[1])
    assert bound <= total <= bound + 1e-3 * abs(bound)
    assert "e+" not in words
    if bound > 0.0:
        gain = float(re.search(r"more than ([^ ,]+)", certificate(1e6, bound).in_words())[1])
        assert bound / 100 <= gain <= 1.001 * bound / 100


@pytest.mark.parametrize("loss", [10.0, 30.0])
def test_a_bound_above_the_loss_certifies_nothing_yet(loss):
    words = certificate(loss, 30.0).in_full()
    assert words.startswith(f"The certificate does not yet exclude a perfect {MODELS}")
    assert "at least" not in words


def test_large_numbers_have_exponents():
    words = certificate(1.0, 123456789.0).in_full()
    assert "regret bound 1.235e+06 per round, 1.235e+08 in total" in words


def test_an_invalid_certificate_gives_its_reason():
    invalid = certificate(10.0, float("inf"), valid=False, reason="gamma was too large")
    assert invalid.in_full() == "There is no certificate: gamma was too large."


def test_losses_part():
    assert not holdout.holdout_warning(0.5, 0.6)
    assert not holdout.holdout_warning(0.5, 0.65)
    assert holdout.holdout_warning(0.5, 0.66)
    assert not holdout.holdout_warning(0.5, math.nan)


def test_numbers_of_a_table():
    numbers = [1.0, math.nan, None, math.inf, 1e30, -0.12345]
    assert list(map(display.format_loss, numbers)) == [
        "1.0000",
        "-",
        "-",
        "none",
        "1.000e+30",
        "-0.1235",
    ]


def test_what_new_classes_cost_is_part_of_the_loss(rng):
    model = Model(learner="folklore")
    for label in rng.choice(["a", "b", "c"], size=400, p=[0.6, 0.3, 0.1]).tolist():
        model.learn_one({"x": float(len(label))}, label)
    said = describe_claims(model)[-1]
    below = float(re.search(r"of at least (\S+) on these rows", said)[1])
    gain = float(re.search(r"by more than ([0-9.]+[0-9])", said)[1])
    assert model.metrics.loss_of_new > 4.0
    assert below + gain == pytest.approx(model.metrics.average_loss, abs=1e-3)
