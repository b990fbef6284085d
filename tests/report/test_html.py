"""Pages: escaped, self-contained, and the same bytes every time."""

import functools
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from folklearn import plots
from folklearn.errors import InvalidInputError
from folklearn.report import html

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
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@functools.cache
def drawn():
    windows = {"start": [0, 5], "stop": [5, 9], "loss": [0.7, 0.5], "floor": [0.1, 0.4]}
    return plots.losses(windows, title="<i>-->")


def test_a_table_puts_numbers_right_and_says_what_is_not_known():
    rows = [["a", 12_000, 0.123456, True], ["b", 3, float("nan"), None]]
    text = html.table(["class", "rounds", "loss", "sure"], rows, caption="Scores")
    assert "<caption>Scores</caption>" in text
    assert "<th scope=col class=n>rounds</th>" in text
    assert "<td class=n>12,000</td><td class=n>0.1235</td><td>yes</td>" in text
    assert "<td class=n>–</td><td>–</td>" in text
    Reader(text)
    assert "<tbody></tbody>" in html.table(["a"], [])
    with pytest.raises(InvalidInputError, match="needs 2 cells"):
        html.table(["a", "b"], [[1]])


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_a_tag(name):
    parts = [
        html.heading(name),
        html.table([name], [[name]], caption=name),
        html.card(name, [(name, name)]),
        html.picture(drawn(), label=name),
        name,
    ]
    text = html.page(name, parts)
    reader = Reader(text)
    assert "script" not in reader.tags
    assert not {"onload"} & {key for key, _ in reader.attributes}
    text.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", text)


def test_a_page_needs_nothing_from_elsewhere():
    text = html.page("A run", [html.card("Model", [("rounds", 9)], drawn()), "That is all."])
    reader = Reader(text)
    assert text.startswith("<!doctype html>")
    assert "<p>That is all.</p>" in text
    assert not {"link", "script", "img", "iframe"} & reader.tags
    places = [value for key, value in reader.attributes if key.endswith(("href", "src"))]
    assert all(value.startswith("#") for value in places)
    assert "@import" not in text


def test_pictures_are_inline_and_can_share_a_page():
    one, other = html.picture(drawn(), label="losses"), html.picture(plots.confusion([[1]], "a"))
    assert 'aria-label="losses"' in one
    assert "<!--" not in one
    svg = re.search(r"<svg.*</svg>", one, flags=re.DOTALL)[0]
    root = ElementTree.fromstring(svg)
    own = {node.get("id") for node in root.iter() if node.get("id")}
    links = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
    assert links
    assert set(links) <= own
    assert not own & set(re.findall(r'\sid="([^"]+)"', other))


def test_the_same_input_gives_the_same_bytes():
    once, again = (
        html.page("a", [html.card("b", [("c", 1.0)], drawn.__wrapped__())]) for _ in range(2)
    )
    assert once == again
    assert "<dc:date>" not in once


def test_a_notebook_shows_a_figure_without_pyplot():
    assert drawn()._repr_html_().startswith("<svg")
