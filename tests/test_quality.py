"""What carries the claims of README, of Ten minutes and of the guide is there."""

import re

import pytest

from tests.conftest import ROOT
from tests.mutants import MUTANTS

DOCS = ROOT / "docs"
PAGE = (DOCS / "quality.md").read_text(encoding="utf-8")
SECTIONS = {
    title: body.strip()
    for title, body in re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", PAGE, flags=re.M | re.S)
}
CARRIER = re.compile(r"`((?:tests|experiments|benchmarks|docs)/[^`*]+)`")


def rows(title: str) -> list[tuple[str, str]]:
    """Return (claim, what carries it) of a section's table."""
    lines = [line for line in SECTIONS[title].splitlines() if line.startswith("| ")][1:]
    cells = [re.split(r" (?<!\\)\| ", line.removeprefix("| ").removesuffix(" |")) for line in lines]
    return [(claim.replace("\\|", "|"), carriers) for claim, carriers in cells]


def plain(text: str) -> str:
    """Return text without the marks of links and bold letters, on one line."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("title", "file"), [("README", "README.md"), ("Ten minutes", "docs/start.md")]
)
def test_claims_are_quoted_as_they_stand(title, file):
    text = plain((ROOT / file).read_text(encoding="utf-8"))
    assert len(rows(title)) > 20
    assert [claim for claim, _ in rows(title) if plain(claim) not in text] == []


@pytest.mark.parametrize("title", SECTIONS)
def test_every_claim_is_carried(title):
    assert [claim for claim, carriers in rows(title) if not CARRIER.search(carriers)] == []


def test_what_carries_is_there():
    for carrier in CARRIER.findall(PAGE):
        file, _, test = carrier.partition("::")
        assert (ROOT / file).exists(), carrier
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), carrier


def test_every_page_of_the_guide_is_listed():
    listed = {name for row, _ in rows("The guide") for name in re.findall(r"\((\S+)\)", row)}
    pages = {f"guide/{page.name}" for page in (DOCS / "guide").glob("*.md")} - {"guide/index.md"}
    assert listed == pages


def test_counts_are_those_of_the_record():
    record = (ROOT / "experiments/durability/results/durability.md").read_text(encoding="utf-8")
    recorded = set(re.findall(r"[\d,]*\d", record))
    table = PAGE.partition("\n| what | how often")[2].partition("\n\n")[0]
    counts = re.findall(r"[\d,]*\d", "".join(line.split("|")[2] for line in table.splitlines()[2:]))
    assert len(counts) > 8
    assert [count for count in counts if count not in recorded] == []


def test_mutants_are_counted():
    n_equivalent = sum(bool(mutant.equivalent) for mutant in MUTANTS)
    said = f"{len(MUTANTS)} changed lines that soundness rests on, of which {n_equivalent} are"
    assert said in PAGE
