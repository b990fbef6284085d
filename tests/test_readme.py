"""What the README shows must run as printed."""

import re
import sys

from benchmarks.readme import with_tables

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path, monkeypatch):
    """Also where only what README's own line installs is there."""
    assert "pip install '.[cli,df,plots,serve]'" in README
    for package in ("pandas", "polars", "river"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)  # the example saves a file
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert len(blocks[0].strip().splitlines()) <= 15
    assert len(blocks) == 1
    scope: dict[str, object] = {}
    exec(compile(blocks[0], "README.md", "exec"), scope)
    certificate, run = scope["model"].certificate(), scope["run"]
    assert certificate.valid
    assert certificate.best_linear_at_least > 0.0
    assert run.hindsight.at_least > 0.0


def test_it_is_short():
    lines = README.splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 120


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+?)\)", README) + re.findall(r'src="([^"]+)"', README)
    assert links
    for link in links:
        if not link.startswith("http"):
            assert (ROOT / link).exists(), link


def test_its_tables_are_those_of_the_recorded_results():
    assert with_tables(README) == README, "python -m benchmarks.readme writes them"


def test_tables_follow_the_results():
    wrong = README.replace("| 14.4 |", "| 14.5 |").replace("|**.287**|", "| .287 |")
    assert wrong != README
    assert with_tables(wrong) == README
