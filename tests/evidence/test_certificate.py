"""What a certificate says, and about which models."""

import math

import pytest

from folklearn.evidence.certificate import Certificate


def test_a_bound_with_a_penalty_is_about_every_model():
    words = Certificate(50.0, 12.5, 100, C=2.0, penalty=0.5).in_words()
    assert words.startswith(
        "Lower bound: every fixed linear model of the features as given, whatever its weights, "
        "has an average log loss of at least 0.375 on these rows, its penalty (C = 2) counted; "
    )
    assert words.endswith("is better by more than 0.125, its penalty (C = 2) counted.")


def test_a_bound_of_the_paper_is_about_a_norm():
    words = Certificate(50.0, 10.0, 100, B=3.0).in_words()
    assert "with row norms at most 3 has" in words
    assert "whatever" not in words
    assert "penalty" not in words


def test_a_bound_of_one_model_is_about_no_other():
    certificate = Certificate(50.0, 12.5, 100)
    for words in (certificate.in_words(), certificate.in_full(), repr(certificate)):
        assert "the given linear model" in words
        assert "every" not in words
        assert "whatever" not in words
    assert "so that it is not better by more than 0.125" in certificate.in_words()


@pytest.mark.parametrize(
    ("certificate", "norm", "bound"),
    [
        (Certificate(50.0, 10.0, 100, C=2.0, penalty=0.5), 4.0, 36.0),
        (Certificate(50.0, 10.0, 100, B=3.0), 2.0, 40.0),
        (Certificate(50.0, 10.0, 100, B=3.0), 3.1, 0.0),  # longer than those that it covers
        (Certificate(50.0, 10.0, 100), 0.1, 0.0),
        (Certificate(50.0, math.nan, 100, C=1.0, penalty=1.0), 1.0, -math.inf),
    ],
)
def test_the_bound_at_a_norm(certificate, norm, bound):
    assert certificate.at_norm(norm) == pytest.approx(bound, rel=1e-9)
    assert certificate.at_norm(norm) <= bound
