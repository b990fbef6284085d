"""One command makes every recorded number again, and says which have changed."""

import json
import re
import subprocess
import sys

import pytest

from experiments import changes, provenance, reproduce
from tests.conftest import ROOT

RECORDED = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("experiments/*/results/**/*.json", "benchmarks/results/**/*.json")
    for path in ROOT.glob(pattern)
)
# May only become shorter: results that do not say of which commit they are.
WITHOUT_COMMIT: list[str] = []
WITH_UNCOMMITTED_CHANGES: list[str] = []


def test_every_program_and_every_results_file_is_in_the_list():
    tasks, files = reproduce.TASKS, [task.file for task in reproduce.TASKS]
    assert set(RECORDED) <= set(files)
    assert len({task.name for task in tasks}) == len(set(files)) == len(tasks)
    commands = " ".join(task.command for task in tasks)
    for program in ROOT.glob("experiments/*/run.py"):
        assert f"-m experiments.{program.parent.name}.run" in commands
    for program in ROOT.glob("benchmarks/*.py"):
        writes = '"results' in program.read_text(encoding="utf-8")
        if writes and program.stem not in (*reproduce.NOT_A_TASK, "readme"):
            assert f"benchmarks.{program.stem}" in commands or str(program.name) in commands


def test_what_needs_data_says_so():
    for task in reproduce.TASKS:
        assert ("data" in task.needs) == ("FOLDER" in task.command)
        assert set(task.needs) <= set(reproduce.NEEDS)


def test_what_a_task_imports_is_part_of_its_code():
    for task in reproduce.TASKS:
        program = task.command.split()[1 if task.command.startswith("-m") else 0]
        if program.startswith("tests."):
            continue
        path = (
            ROOT / program
            if program.endswith(".py")
            else ROOT / (program.replace(".", "/") + ".py")
        )
        sources = [path] if task.file.startswith("benchmarks") else path.parent.glob("*.py")
        uses = any(re.search(r"folklearn\.(service|cli)", one.read_text()) for one in sources)
        assert uses == (task.name in reproduce.USE_UPPER_LAYERS), task.name


def test_recorded_results_are_of_a_commit():
    found = {file: reproduce.origins(reproduce.read(ROOT / file)) for file in RECORDED}
    assert [file for file, own in found.items() if not own] == WITHOUT_COMMIT
    changed = [
        file for file, own in found.items() if any(one["uncommitted_changes"] for one in own)
    ]
    assert changed == WITH_UNCOMMITTED_CHANGES


def test_only_what_is_more_than_noise_is_a_change():
    old = {"provenance": {"seconds": 1.0}, "rows": [{"loss": 0.5, "us": 10.0, "kept": True}]}
    new = {"provenance": {"seconds": 9.0}, "rows": [{"loss": 0.50001, "us": 14.0, "kept": False}]}
    assert changes.compare(old, new) == []
    new["rows"][0] |= {"loss": 0.51, "us": 40.0, "error": 0.1}
    found = changes.compare(old, new)
    assert [one.path[-1] for one in found] == ["error", "us", "loss"]
    assert (found[0].old, found[0].new) == (None, 0.1)
    table = changes.table_of_changes("x.json", found)
    assert "2 numbers changed by more than noise, 1 are new, 0 are gone" in table
    assert "| rows / 0 / us | 1 | 10 | 40 | 75.0% |" in table


def test_of_a_list_the_largest_change_is_shown():
    found = changes.compare({"losses": [1.0, 2.0, 3.0]}, {"losses": [1.1, 4.0]})
    table = changes.table_of_changes("x.json", found)
    assert "2 numbers changed by more than noise, 0 are new, 1 are gone" in table
    assert table.endswith("| losses / 1 | 2 | 2 | 4 | 50.0% |")


def test_in_a_file_of_times_only_losses_must_be_the_same():
    old, new = {"a_second": 100, "loss": 1.0}, {"a_second": 70, "loss": 1.01}
    assert [one.path for one in changes.compare(old, new, of_times=True)] == [("loss",)]


def test_signs_zeros_and_numbers_that_are_none_are_compared():
    old = {"a": 0.0, "b": 1e-9, "c": float("nan"), "d": float("inf"), "e": 1.0}
    assert changes.compare(old, dict(old)) == []
    found = changes.compare(old, {"a": 1e-12, "b": -1e-9, "c": 0.0, "d": 1.0, "e": 1.0})
    assert {one.path[0] for one in found} == {"a", "b", "c", "d"}


MEASURE = """
import json, pathlib, experiments.provenance as p
p.ROOT = pathlib.Path.cwd()
loss = float(pathlib.Path("src/loss.txt").read_text())
content = json.dumps({"origin": p.version(), "loss": loss})
pathlib.Path("benchmarks/results/tiny.json").write_text(content)
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one benchmark, whose loss is the text of a file in src."""
    for folder in ("src", "benchmarks/results"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/loss.txt").write_text("0.5")
    (tmp_path / "benchmarks/tiny.py").write_text(MEASURE)
    (tmp_path / ".gitignore").write_text(".cache\n")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    monkeypatch.setattr(reproduce, "LOGS", tmp_path / ".cache")
    monkeypatch.setattr(reproduce, "write_readme", lambda: None)
    tiny = reproduce.Task("tiny", "benchmarks/tiny.py", 1, "benchmarks/results/tiny.json")
    absent = reproduce.Task("absent", "no.py FOLDER", 1, "benchmarks/results/no.json", ("data",))
    monkeypatch.setattr(reproduce, "TASKS", (tiny, absent))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder, *words):
    who = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def commit(folder):
    reproduce._is_same.cache_clear()
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "state")


def test_results_are_made_once_for_each_state_of_the_code(repository, capsys):
    def said():
        assert reproduce.main([]) == 0
        return capsys.readouterr().out

    first = said()
    assert "[1/2] tiny: about 1 min, python benchmarks/tiny.py" in first
    assert "[2/2] absent: skipped, there is no data" in first
    assert "tiny: is of this code" in said()
    commit(repository)  # the results: other code than theirs is not made by it
    assert "tiny: is of this code" in said()
    (repository / "src/loss.txt").write_text("0.6")
    with pytest.raises(SystemExit, match="not committed"):
        reproduce.main([])
    commit(repository)
    assert reproduce.main(["--check"]) == 1
    assert "other code tiny" in capsys.readouterr().out
    again = said()
    assert "| loss | 1 | 0.5 | 0.6 | 16.7% |" in again
    assert json.loads((repository / "benchmarks/results/tiny.json").read_text())["loss"] == 0.6


def test_a_program_that_fails_is_named_and_the_others_go_on(repository, capsys):
    (repository / "benchmarks/tiny.py").write_text("raise SystemExit(3)")
    commit(repository)
    assert reproduce.main([]) == 1
    said = capsys.readouterr().out
    assert "failed with 3" in said
    assert "[2/2] absent" in said
    assert "Failed: tiny." in said


def test_words_stand_for_folders(repository):
    task = reproduce.Task("one", "-m two --data FOLDER --cache CACHE", 1, "three", ("data",))
    words = task.words(repository)
    assert words[:4] == [sys.executable, "-m", "two", "--data"]
    assert words[4] == str(repository)
    assert words[6].startswith(str(repository / ".cache" / "one-"))
