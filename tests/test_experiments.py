"""Every experiment runs at a tiny size and says where its results came from."""

import json
import runpy
import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tests.conftest import ROOT

EXPERIMENTS = {
    "certificate": ["--quick"],
    "table1": ["--quick", "--jobs", "1"],
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
    "sets": ["--quick"],
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
    "wide": ["vowpalwabbit"],
    "monitoring": ["rich", "river"],
    "sets": ["rich"],
    "unconstrained": ["rich"],
    "terms": ["lightgbm", "river"],
    "text": ["rich"],
    "export": ["onnx", "onnxruntime"],
}


def run(name, *words, out):
    """Run an experiment as ``python -m`` would, and return its only file of results."""
    for package in ["matplotlib", *NEEDS[name]]:
        pytest.importorskip(package, reason=f"experiment {name} needs {package}")
    with (
        threadpool_limits(),  # peers set thread counts and warn as they please
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
        pytest.MonkeyPatch.context() as patch,
    ):
        warnings.simplefilter("ignore")
        patch.setattr("sys.argv", ["run", *words, "--out", str(out)])
        runpy.run_module(f"experiments.{name}.run", run_name="__main__")
    (content,) = [json.loads(path.read_text()) for path in out.glob("*.json")]
    assert {"command", "commit", "seeds", "sizes"} <= content["provenance"].keys()
    assert list(out.glob("*.md"))
    return content


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "certificate" else pytest.mark.long)
        for name in EXPERIMENTS
        if name != "real_data"
    ],
)
def test_it_runs(name, tmp_path):
    run(name, *EXPERIMENTS[name], out=tmp_path)
    assert list(tmp_path.glob("*.png"))


@pytest.mark.long
def test_tuned_peers_can_be_taken_from_an_earlier_run(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    tuned = run("real_data", "--synthetic", out=first)
    assert list(first.glob("*.png"))
    earlier = ["--peers", str(first / "real_data.json")]
    taken = run("real_data", "--synthetic", *earlier, out=second)
    assert taken["provenance"]["peers"]["tuned_at"] == tuned["provenance"]["commit"]
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


@pytest.mark.long
@pytest.mark.parametrize("part", WIDE)
def test_wide_runs(part, tmp_path):
    content = run("wide", "--quick", "--only", part, out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{part}.json", f"{part}.md"}
    assert content[part]


def test_recorded_results_of_wide_are_committed_with_their_origin():
    recorded = list((ROOT / "experiments" / "wide" / "results").glob("*.json"))
    assert {path.stem for path in recorded} <= set(WIDE)
    for path in recorded:
        origin = json.loads(path.read_text())["provenance"]
        assert origin["command"].startswith("python -m experiments.wide.run")
        assert path.with_suffix(".md").is_file()


@pytest.mark.long
def test_a_bound_without_a_norm_is_measured(tmp_path):
    (row,) = run("unconstrained", "--quick", out=tmp_path)["streams"]["synthetic-3"]
    assert 0.99 * row["truth"] <= row["bound"] <= row["truth"]


@pytest.mark.long
def test_a_text_that_says_nothing_costs_next_to_nothing(tmp_path):
    tables = run("text", "--quick", out=tmp_path)["tables"]
    assert [table["text"] for table in tables] == ["informs", "does not", "is all"]
    assert tables[1]["excess"] < (np.log(20) + np.log(300)) / 300


@pytest.mark.long
def test_onnx_files_say_what_models_say(tmp_path):
    streams = run("export", "--quick", out=tmp_path)["streams"]
    assert max(row["difference"] for row in streams) < 1e-6


@pytest.mark.long
def test_terms_are_measured_beside_trees_and_results_so_far_are_kept(tmp_path):
    peers = "lightgbm", "hat", "arf-10", "amf-10"
    cached = "--quick", "--cache", str(tmp_path / "cache")
    first = run("terms", *cached, "--methods", *peers, out=tmp_path)
    again = run("terms", "--quick", "--missing", "--methods", "model", "hat", out=tmp_path)
    (stream,) = again["streams"].values()
    assert set(stream["methods"]) == {"model", *peers}
    for method, by_seed in first["streams"]["synthetic-3"]["methods"].items():
        assert stream["methods"][method] == by_seed
    for by_seed in stream["methods"].values():
        assert 0.0 < by_seed["0"]["log_loss"] < np.log(3)
        assert 0.0 < by_seed["0"]["error"] < 2 / 3
