"""Every experiment runs at a tiny size and says where its results came from."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

EXPERIMENTS = {
    "certificate": ["--rounds", "60"],
    "table1": ["--quick", "--processes", "1"],
    "real_data": ["--synthetic"],
    "bandit": ["--quick"],
    "boosting": ["--quick"],
    "drop_in": ["--quick"],
    "online_to_batch": ["--quick"],
}
NEEDS = {
    "certificate": [],
    "table1": [],
    "real_data": ["river", "vowpalwabbit"],
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


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_recorded_results_are_committed_with_their_origin(name):
    folder = ROOT / "experiments" / name / "results"
    (content,) = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert content["provenance"]["command"].startswith(f"python -m experiments.{name}.run")
    assert list(folder.glob("*.md"))
    assert list(folder.glob("*.png"))
