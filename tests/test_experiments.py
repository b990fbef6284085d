"""Every experiment runs at a tiny size and says where its results came from."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

EXPERIMENTS = {
    "certificate": ["--quick"],
    "table1": ["--quick", "--processes", "1"],
    "real_data": ["--synthetic"],
    "drift": ["--quick"],
    "adversaries": ["--quick"],
    "bandit": ["--quick"],
    "coverage": ["--quick"],
    "decisions": ["--quick"],
    "boosting": ["--quick"],
    "drop_in": ["--quick"],
    "online_to_batch": ["--quick"],
    "front_door": ["--quick"],
    "monitoring": ["--quick"],
}
NEEDS = {
    "certificate": ["rich"],
    "table1": ["rich"],
    "real_data": ["river", "vowpalwabbit"],
    "drift": ["rich"],
    "adversaries": ["rich"],
    "bandit": ["rich"],
    "coverage": ["rich"],
    "decisions": ["rich", "vowpalwabbit"],
    "boosting": ["rich", "river"],
    "drop_in": ["rich"],
    "online_to_batch": ["rich"],
    "front_door": ["rich", "pyarrow"],
    "monitoring": ["rich", "river"],
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_runs(name, tmp_path):
    for package in ["matplotlib", *NEEDS[name]]:
        pytest.importorskip(package, reason=f"experiment {name} needs {package}")
    # A process of its own: peers warn and set thread counts as they please.
    command = [sys.executable, "-m", f"experiments.{name}.run", *EXPERIMENTS[name]]
    result = subprocess.run(
        [*command, "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (content,) = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert {"command", "commit", "seeds", "sizes"} <= content["provenance"].keys()
    assert list(tmp_path.glob("*.md"))
    assert list(tmp_path.glob("*.png"))


def test_tuned_peers_can_be_taken_from_an_earlier_run(tmp_path):
    for package in ["matplotlib", *NEEDS["real_data"]]:
        pytest.importorskip(package, reason=f"experiment real_data needs {package}")
    command = [sys.executable, "-m", "experiments.real_data.run", "--synthetic"]
    first, second = tmp_path / "first", tmp_path / "second"
    earlier = ["--peers", str(first / "real_data.json")]
    for words in (["--out", str(first)], [*earlier, "--out", str(second)]):
        subprocess.run([*command, *words], cwd=ROOT, capture_output=True, check=True)
    tuned, taken = (json.loads((f / "real_data.json").read_text()) for f in (first, second))
    assert taken["provenance"]["peers"]["commit"] == tuned["provenance"]["commit"]
    for name, entry in tuned["data_sets"].items():
        for family, peer in entry["peers"].items():
            assert taken["data_sets"][name]["peers"][family]["losses"] == peer["losses"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_recorded_results_are_committed_with_their_origin(name):
    folder = ROOT / "experiments" / name / "results"
    (content,) = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert content["provenance"]["command"].startswith(f"python -m experiments.{name}.run")
    assert list(folder.glob("*.md"))
    assert list(folder.glob("*.png"))


WIDE = ("banking", "zipf", "classes", "fit")  # a file of results for each


@pytest.mark.parametrize("part", WIDE)
def test_wide_runs(part, tmp_path):
    pytest.importorskip("vowpalwabbit", reason="experiment wide needs vowpalwabbit")
    command = [sys.executable, "-m", "experiments.wide.run", "--quick", "--only", part]
    result = subprocess.run(
        [*command, "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"{part}.json", f"{part}.md"}
    content = json.loads((tmp_path / f"{part}.json").read_text())
    assert {"command", "commit", "seeds", "sizes"} <= content["provenance"].keys()
    assert content[part]


def test_recorded_results_of_wide_are_committed_with_their_origin():
    recorded = list((ROOT / "experiments" / "wide" / "results").glob("*.json"))
    assert {path.stem for path in recorded} <= set(WIDE)
    for path in recorded:
        origin = json.loads(path.read_text())["provenance"]
        assert origin["command"].startswith("python -m experiments.wide.run")
        assert path.with_suffix(".md").is_file()
