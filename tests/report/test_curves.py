"""Several lines over the rounds, each named at its end."""

import numpy as np
import pytest

from folklearn import plots
from folklearn.errors import InvalidInputError


def test_lines_and_levels():
    figure = plots.curves([1, 10, 100], {"loss": [1.0, 0.5, 0.25], "chance": 0.5}, title="t")
    (axes,) = figure.axes
    loss, chance = axes.lines
    assert loss.get_ydata().tolist() == [1.0, 0.5, 0.25]
    assert (chance.get_linestyle(), set(chance.get_ydata())) == (":", {0.5})
    assert axes.get_xscale() == "log"
    assert {text.get_text() for text in axes.texts} == {"loss 0.25", "chance 0.5"}


def test_shares_one_round_and_nothing():
    figure = plots.curves([1], {"wrong": [0.25], "unknown": [np.nan]}, shares=True)
    assert [text.get_text() for text in figure.axes[0].texts] == ["wrong 25%"]
    with pytest.raises(InvalidInputError, match="no curves to draw"):
        plots.curves([], {"a": []})


@pytest.mark.parametrize("n", [1, 2, 10, 1797, 10**6])
def test_places_go_from_the_first_round_to_the_last(n):
    at = plots.places(n)
    assert (at[0], at[-1]) == (1, n)
    assert len(at) <= 200
    assert (np.diff(at) > 0).all()
