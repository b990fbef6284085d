"""Sentences about certificates claim what is proven, and no more."""

import math
import re

import pytest

from folklearn import Certificate, Folklore, Model
from folklearn.cli import report
from folklearn.model import document


def certificate(loss, regret_bound, **more):
    return Certificate(loss=loss, regret_bound=regret_bound, B=10.0, n_rounds=100, **more)


def test_the_plain_sentence():
    assert certificate(80.0, 30.0).in_words() == (
        "No linear model of these columns could have had an average loss below 0.5, so at most "
        "0.3 could have been gained."
    )
    assert certificate(80.0, 30.0).in_words(weight=200.0) == (
        "No linear model of these columns could have had an average loss below 0.25, so at most "
        "0.15 could have been gained."
    )
    assert (
        certificate(80.0, -20.0)
        .in_words()
        .endswith("below 1, which is more than the model had itself.")
    )
    assert certificate(80.0, 80.0).in_words().startswith("Nothing useful is proven yet")
    assert document.proven(Model()) == "Nothing is proven before there is a second class."
    invalid = certificate(10.0, float("inf"), valid=False, reason="gamma was too large")
    assert invalid.in_words() == "Nothing is proven: gamma was too large."


def test_a_certificate_speaks_of_linear_models_of_the_scaled_features():
    assert certificate(80.0, 30.0).in_full(64) == (
        "Certificate: no linear model of these 64 scaled features and a constant with row norms "
        "at most 10 "
        "could have had an average log loss below 0.5 in hindsight "
        "(regret bound 0.3 per round, 30 in total)."
    )


@pytest.mark.parametrize("gain", [1.23456, 0.0123456, 123.999999, 99.99999, 123456.7, 1e-9])
def test_the_best_loss_is_rounded_downwards(gain):
    proof = certificate(300.0 + gain, 300.0)
    words = proof.in_full(2)
    below = float(re.search(r"below (\S+) in", words)[1])
    per_round = float(re.search(r"bound (\S+) per", words)[1])
    total = float(re.search(r"round, (\S+) in", words)[1])
    assert 0.999 * gain / 100 <= below <= gain / 100
    assert (per_round, total) == (3.0, 300.0)
    assert float(re.search(r"below (\S+), so", proof.in_words())[1]) == below


@pytest.mark.parametrize("bound", [1.23456, 0.0123456, 123.999999, 99.99999, 123456.7, -2.34567])
def test_bounds_are_rounded_upwards(bound):
    words = certificate(1e6, bound).in_full(2)
    total = float(re.search(r"round, (\S+) in", words)[1])
    assert bound <= total <= bound + 1e-3 * abs(bound)
    assert "e+" not in words
    if bound > 0.0:
        gain = float(re.search(r"most (\S+) could", certificate(1e6, bound).in_words())[1])
        assert bound / 100 <= gain <= 1.001 * bound / 100


@pytest.mark.parametrize("loss", [10.0, 30.0])
def test_a_bound_above_the_loss_certifies_nothing_yet(loss):
    words = certificate(loss, 30.0).in_full(65)
    assert words.startswith("The certificate does not yet exclude a perfect linear model of these")
    assert "loss below" not in words


def test_large_numbers_have_exponents():
    words = certificate(1.0, 123456789.0).in_full(1)
    assert "of these 1 scaled feature and a constant with" in words
    assert "regret bound 1.235e+06 per round, 1.235e+08 in total" in words


@pytest.mark.parametrize(("gamma", "said"), [(None, True), (0.5, False)])
def test_unsolved_rounds_are_spoken_of_if_there_is_a_certificate(gamma, said, monkeypatch):
    monkeypatch.setattr(Folklore, "n_unsolved", 1)
    model = Model("folklore", classes=["a", "b"], **({"gamma": gamma} if gamma else {}))
    model.learn_many([{"x": 1.0}, {"x": 2.0}, {"x": 3.0}], ["a", "b", "a"])
    assert model.certificate().valid == said
    words = "\n".join(report.expert_words(model))
    assert ("In 1 round the prediction was not solved" in words) == said


def test_an_invalid_certificate_gives_its_reason():
    invalid = certificate(10.0, float("inf"), valid=False, reason="gamma was too large")
    assert invalid.in_full(65) == "Nothing is certified: gamma was too large."


def test_losses_part():
    assert not document.has_parted(0.5, 0.6)
    assert not document.has_parted(0.5, 0.65)
    assert document.has_parted(0.5, 0.66)
    assert not document.has_parted(0.5, math.nan)


def test_numbers_of_a_table():
    numbers = [1.0, math.nan, None, math.inf, 1e30, -0.12345]
    assert list(map(report.number, numbers)) == ["1.0000", "-", "-", "none", "1.000e+30", "-0.1235"]


def test_what_new_classes_cost_is_part_of_the_sum(rng):
    model = Model(learner="folklore")
    for label in rng.choice(["a", "b", "c"], size=400, p=[0.6, 0.3, 0.1]).tolist():
        model.learn_one({"x": float(len(label))}, label)
    said = document.proven(model)
    below, gain = map(float, re.search(r"below (\S+), so at most (\S+) could", said).groups())
    price = float(re.search(r"beside the (\S+) paid for classes being new", said)[1])
    assert price > 0.01
    # The proof also counts a class in the row that brings it, as one of those known by then.
    assert below + gain + price == pytest.approx(model.average_loss, abs=math.log(6) / 400 + 1e-3)
