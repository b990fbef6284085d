"""The pages of docs/theory name tests that exist, and their index leads to what is stated."""

import ast
import re
from functools import cache

import pytest

from tests.conftest import ROOT

THEORY = ROOT / "docs" / "theory"
PAGES = sorted(THEORY.glob("*.md"))
INDEX = THEORY / "index.md"
ROW = re.compile(r"^\| \[([^\]]+)\]\(([\w-]+\.md)#([^)]+)\) \|(.*)\|(.*)\|(.*)\|$")


@cache
def functions_of(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@cache
def all_functions():
    files = (path.relative_to(ROOT) for path in ROOT.glob("tests/**/test_*.py"))
    return set().union(*map(functions_of, files))


def anchors(page):
    """The anchors of headings, as MyST makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.M)
    slugs = (title.strip().lower().replace(" ", "-").replace("`", "") for title in titles)
    return {re.sub(r"[^\w\- ]", "", slug) for slug in slugs}


def proven():
    """The rows of the table of what is proven: name, page, anchor, tests, status."""
    text = INDEX.read_text(encoding="utf-8").replace(r"\|", "")
    section = text.partition("## What is proven")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [(line, ROW.match(line)) for line in lines]


@pytest.mark.parametrize(("line", "row"), proven(), ids=lambda cell: str(cell)[:30])
def test_a_statement_has_a_page_tests_and_a_status(line, row):
    assert row, line
    _, page, anchor, says, executed, status = row.groups()
    assert anchor in anchors(THEORY / page), f"{page} has no #{anchor}"
    assert says.strip()
    assert status.strip()
    names = re.findall(r"`([\w/]+\.py)::(\w+)`", executed)
    assert names
    for path, name in names:
        assert name in functions_of(path), f"{path} has no {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_name_tests_that_exist_and_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"`(test_\w+)`", text)) <= all_functions()
    for path in re.findall(r"`(tests/[\w/]+\.py)", text):
        assert (ROOT / path).exists(), path
    for target, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#([^)]*))?\)", text):
        assert (THEORY / target).exists(), target
        assert not anchor or anchor in anchors(THEORY / target), f"{target}#{anchor}"


@pytest.mark.parametrize("page", sorted({*PAGES} - {INDEX}), ids=lambda page: page.stem)
def test_the_index_and_the_page_agree_on_what_is_stated(page):
    """Each page but errata and how to cite is in the table, and each of its theorems has a test."""
    if page.stem not in ("errata", "cite"):
        assert any(row and row[2] == page.name for _, row in proven()), page.name
    text = page.read_text(encoding="utf-8")
    for stated in re.split(r"(?=\*\*Theorem)", text)[1:]:
        assert re.search(r"`test_\w+`|`tests/", stated), stated[:80]
