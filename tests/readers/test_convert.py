"""One cell, or one column of cells, by the rule that all formats share."""

from datetime import datetime

import numpy as np

from folklearn.readers.convert import format_cell, parse_amount, parse_date, parse_number
from folklearn.readers.sparse_text import parse_vw
from folklearn.readers.table import TextColumn, distinct_codes


def test_numbers():
    texts = ("1e3", "1_000", "1,5")  # underscores are part of a number for Python only
    assert [parse_number(text) for text in texts] == [1000.0, None, None]
    assert parse_number("1,5", ",") == 1.5
    assert [parse_amount(text) for text in ("$5,643.83", "12%", "1,5")] == [5643.83, 0.12, None]


def test_dates():
    assert parse_date("2024-05-01") == datetime(2024, 5, 1)
    assert parse_date("2024-05-01T10:00+02:00") == datetime(2024, 5, 1, 8)
    assert parse_date("31.01.2024") == datetime(2024, 1, 31)
    assert parse_date("20240501") is None
    assert parse_date("1/5/2024") is None
    assert parse_date("1/5/2024", "day/month") == datetime(2024, 5, 1)


def test_text():
    values = (" red ", True, 3.0, 2.5, "NA")
    assert [format_cell(value) for value in values] == ["red", "true", "3", "2.5", "NA"]
    column = TextColumn.of(["red", None, " red", "blue", "nan", " "])
    assert column.codes.tolist() == [0, -1, 0, 1, -1, -1]
    assert column.values == ("red", "blue")
    assert distinct_codes(np.array([2, -1, 0, 2])) == ([2, 0], [0, 2])


def test_features():
    row = parse_vw("spam 2.5 'mail7|words:2 cheap offer:3 |size :40")
    assert row.features == {"words^cheap": 2.0, "words^offer": 6.0, "size^0": 40.0}
