"""Sections of a report: in plain words, escaped, and whole where something is missing."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from folklearn.report import canvas, document, html
from tests.report.test_html import HOSTILE, Reader


def segments(losses, size=100, **more):
    return [
        {"start": size * i, "stop": size * (i + 1), "loss": loss, **more}
        for i, loss in enumerate(losses)
    ]


def of_class(**own):
    known = {"n_rows": 100, "precision": 0.9, "recall": 0.9, "auc": 0.8, "calibration_error": 0.01}
    return SimpleNamespace(**known | own)


def of_column(**own):
    known = {"name": "age", "role": "number", "first": 0, "n_missing": 0, "n_outliers": 0}
    return SimpleNamespace(**known | {"n_categories": 0, "new_categories": ()} | own)


@pytest.mark.parametrize(
    ("late", "said"), [(0.5, "No drift"), (0.9, "become worse"), (0.2, "become better")]
)
def test_drift_is_told_from_the_noise_of_pieces(late, said, rng):
    """Three standard errors: of 100 seeds without drift about one may be told wrong."""
    noise = 0.01 * np.tile([-1.0, 1.0], 32)
    losses = np.where(np.arange(64) < 56, 0.5, late) + noise
    assert said in document.drift(segments(losses.tolist()))
    assert "In the last 800 rows" in document.drift(segments(losses.tolist()))


def test_a_bad_beginning_is_no_drift():
    assert "No drift" in document.drift(segments([3.0] * 16 + [0.5] * 48))
    assert "too few rows" in document.drift(segments([0.5] * 20))
    assert "too few rows" in document.drift([])


def test_what_is_proven_stays_true_when_it_is_rounded():
    assert document.down(0.44349) == 0.4434
    assert document.up(0.04391) == 0.044
    assert math.isnan(document.down(-math.inf))


def test_how_good_it_is_beside_guessing():
    said = document.how_good(1000, [500, 500, 0], 0.25, 0.1)
    assert "Of 1,000 rows 90 % were predicted right" in said
    assert "would have lost 0.693" in said
    assert "would have" not in document.how_good(5, [5], 0.25, 0.0)


def test_attention_names_what_is_wrong_and_nothing_else():
    assert document.attention("ab", [of_class(), of_class()], [of_column()], 100) == [
        "Nothing stands out."
    ]
    found = document.attention(
        ["a", "b"],
        [of_class(recall=0.2), of_class(calibration_error=0.3, recall=math.nan)],
        [
            of_column(n_missing=50),
            of_column(name="late", first=50, n_missing=50),
            of_column(name="far", n_outliers=2),
            of_column(name="new", new_categories=("x", "y")),
            of_column(name="none", first=None, n_missing=100),
        ],
        100,
        ["more"],
    )
    assert found == [
        "Of 100 rows of class a only 20 % were found.",
        "Probabilities of class b are off by 30 % on average.",
        "Column age is empty in 50 % of the rows.",
        "Column far has 2 numbers far from all others.",
        "Column new had 2 values that came late.",
        "Column none never had a value.",
        "more",
    ]


def test_what_is_missing_is_a_sentence():
    parts = [
        document.course([]),
        document.classes([], []),
        document.confusion([], np.zeros((0, 0))),
        document.calibration([], []),
        document.weights([], [], np.zeros((0, 0)), {}, 0),
        document.quality([], 0),
    ]
    for part in parts:
        assert "<p>" in part
        assert "<svg" not in part
        Reader(part)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_class_or_a_column_becomes_a_tag(name):
    labels, table = [name, "b"], {"predicted": [0.5], "observed": [0.5], "count": [9]}
    needs = document.attention(labels, [of_class(recall=0.1)], [of_column(name=name, n_outliers=9)])
    parts = [
        document.summary([name], needs),
        document.course(segments([0.5, 0.4], floor=0.1, frozen=0.5, error_rate=0.1)),
        document.proven([name], [(name, 1.0)]),
        document.changed(segments([0.5])),
        document.classes(labels, [of_class(), of_class()]),
        document.confusion(labels, [[5, 3], [0, 2]]),
        document.calibration(labels, [table, table]),
        document.weights([name], labels, [[1.0, -1.0]], {name: 0.1}, 50),
        document.quality([of_column(name=name, role="category", new_categories=(name,))], 100),
        document.speed(100, 0.5),
    ]
    text = html.page(name, parts)
    reader = Reader(text)
    assert reader.tags.isdisjoint({"script", "i", "b"})
    assert not [key for key, _ in reader.attributes if key.startswith("on")]
    assert re.findall(r"<h(\d)", text) == ["1", *"2" * len(parts)]
    pictures = text.count("<svg")
    assert pictures == len(re.findall(r'<figure role="img" aria-label="[^"]{10}', text)) == 4
    assert "http" not in re.sub(
        r"xmlns(:\w+)?=\"[^\"]*\"|<metadata>.*?</metadata>", "", text, flags=re.S
    )


def test_pictures_take_the_colours_of_the_page():
    """No colour of ours is left that a dark page could not replace."""
    text = document.course(segments([0.5, 0.4], floor=0.1, frozen=0.6, error_rate=0.1))
    drawn = re.findall(r": (#[0-9a-f]{6})\b", text)
    assert not drawn
    for colour, dark in canvas.DARK.items():
        assert f"{canvas.variable(colour)}:{dark}" in html.STYLE
    assert f"var({canvas.variable(canvas.INK)},{canvas.INK})" in text


def test_the_table_of_pieces_says_what_the_picture_shows():
    text = document.course(
        segments([0.5, math.nan]), when="Before it was known.", without_floor="No floor was kept."
    )
    assert "Before it was known. No floor was kept.</p>" in text
    assert "<details><summary>The same as a table</summary>" in text
    assert "<td>100 to 200</td><td class=n>–</td>" in text
