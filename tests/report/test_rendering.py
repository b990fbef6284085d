"""Formats of numbers, and what every page is checked for: nothing from elsewhere, no tags."""

import math
import re
from html.parser import HTMLParser

import pytest

from folklearn.report import rendering

HOSTILE = [
    "<script>alert(1)</script>",
    '" onload="x',
    "a & b",
    "</style>",
    "-->",
    "\x00\x1b",
    "\ud800",
]


class Reader(HTMLParser):
    """Collects tags, attributes and text; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check_is_safe_and_alone(text):
    """Check that no name became a tag, and that nothing is needed from elsewhere."""
    reader = Reader(text)
    assert not {"script", "link", "iframe", "i", "b"} & reader.tags
    assert not [key for key, _ in reader.attributes if key.startswith("on")]
    sources = [value for key, value in reader.attributes if key.endswith(("href", "src"))]
    assert all(value.startswith("data:image/svg+xml;base64,") for value in sources)
    assert "@import" not in text
    text.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", text)
    return reader


@pytest.mark.parametrize(
    ("name", "values", "texts"),
    [
        ("loss", [0.13942, 0.00521, None], ["0.139", "0.0052", "–"]),
        ("share", [0.0654, None], ["6.54 %", "–"]),
        ("about", [0.0654, 0.9996, 0.0004], ["7 %", "more than 99 %", "less than 1 %"]),
        ("chance", [0.0, 0.6931], ["100 %", "50 %"]),
        ("value", [12000, 0.123456, math.nan, "a"], ["12,000", "0.1235", "–", "a"]),
        ("compact", [950, 1234, 35_000, 4.1e6], ["950", "1.2k", "35k", "4.1M"]),
        ("time", [1_700_000_000_000], ["2023-11-14 22:13 UTC"]),
    ],
)
def test_formats(name, values, texts):
    assert list(map(getattr(rendering, f"format_{name}"), values)) == texts


def test_how_long_ago():
    agos = [rendering.format_ago(0, now) for now in (5_000, 60_000, 7_300_000)]
    assert agos == ["just now", "1 minute ago", "2 hours ago"]
