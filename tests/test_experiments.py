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
    "boosting": ["--quick"],
    "drop_in": ["--quick"],
    "online_to_batch": ["--quick"],
}
NEEDS = {
    "certificate": ["rich"],
    "table1": ["rich"],
    "real_data": ["river", "vowpalwabbit"],
    "drift": ["rich"],
    "adversaries": ["rich"],
    "bandit": ["rich"],
    "boosting": ["rich", "river"],
    "drop_in": ["rich"],
    "online_to_batch": ["rich"],
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
