"""Run every experiment and benchmark again from one commit, and say which numbers have changed.

python -m experiments.reproduce [--data FOLDER] [--only NAME ...] [--minutes M]
python -m experiments.reproduce --check             time, needs and commit of every results file
python -m experiments.reproduce --compare [COMMIT]  the numbers here against those of a commit

The first, `make results DATA=FOLDER`, runs what is not of this code yet, one after the other, and
without data what needs none. A results file is of this code if nothing that made it has changed
since its commit (`Task.code`): results may be committed meanwhile, and a run that was stopped goes
on; with --minutes nothing begins that would take longer than what is left of them. Times are
measured, alone and first: leave the machine alone. What takes one core and is judged by its losses
runs in pairs. --check fails where a file is not of this code.
"""

import argparse
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.readme import write_readme

from .changes import compare, table_of_changes
from .provenance import ROOT, git, version

LOGS = ROOT / ".cache" / "results"
NEEDS = {  # what a task may need, and whether it is here
    "data": lambda folder: folder is not None,
    "gpu": lambda folder: bool(shutil.which("nvidia-smi") and find_spec("torch")),
    "spark": lambda folder: bool(shutil.which("java") and find_spec("pyspark")),
    "root": lambda folder: os.geteuid() == 0,
}
SHARED = (
    *("src", "tests/reference", ":(glob)experiments/*.py"),
    *(":!experiments/reproduce.py", ":!experiments/changes.py"),
)
# What nothing below imports (`lint-imports`), and the tasks that use it.
UPPER_LAYERS = (":!src/folklearn/service", ":!src/folklearn/cli")
USE_UPPER_LAYERS = ("command_line", "service")


@dataclass(frozen=True)
class Task:
    """One command after "python", what it writes, and what it takes on idle cores.

    In the command FOLDER stands for the data, CACHE for a folder of this task and this code.
    """

    name: str
    command: str
    minutes: int
    file: str
    needs: tuple[str, ...] = ()
    cores: int = 2

    @property
    def code(self) -> tuple[str, ...]:
        """Return what of the repository decides these numbers, as pathspecs of git."""
        if "tests.long" in self.command:
            return *SHARED, "tests/service", "tests/long/torture"
        is_benchmark = self.file.startswith("benchmarks")
        own = ("benchmarks/*.py", ":!benchmarks/readme.py") if is_benchmark else (
            f"{self.file.partition('/results/')[0]}/*.py",
        )  # fmt: skip
        return *SHARED, *own, *(() if self.name in USE_UPPER_LAYERS else UPPER_LAYERS)

    def is_current(self) -> bool:
        """Whether every number of the file was measured with the code of this commit."""
        found = origins(read(ROOT / self.file))
        return bool(found) and all(
            not one["uncommitted_changes"] and _is_same(one["commit"], self.code) for one in found
        )

    def lacks(self, folder: Path | None) -> list[str]:
        """Return what it needs and is not here."""
        return [need for need in self.needs if not NEEDS[need](folder)]

    def words(self, folder: Path | None) -> list[str]:
        """Return the command line."""
        places = {"FOLDER": folder, "CACHE": LOGS / f"{self.name}-{git('rev-parse', 'HEAD')}"}
        words = shlex.split(self.command)
        return [sys.executable, *(str(places.get(word, word)) for word in words)]


def _benchmark(name: str, minutes: int, options: str = "", *needs: str) -> Task:
    command = f"-m benchmarks.{name} {options}".strip()
    return Task(name, command, minutes, f"benchmarks/results/{name}.json", needs)


def _experiment(name: str, minutes: int, options: str = "", file: str = "", cores: int = 2) -> Task:
    folder, command = name.partition("-")[0], f"-m experiments.{name.partition('-')[0]}.run"
    needs = ("data",) if "FOLDER" in options else ()
    path = f"experiments/{folder}/results/{file or folder}.json"
    return Task(name, f"{command} {options}".strip(), minutes, path, needs, cores)


def _torture(part: str, minutes: int, *needs: str) -> Task:
    path = f"experiments/durability/results/{part}.json"
    return Task(f"durability-{part}", f"-m tests.long.torture {part}", minutes, path, needs, 1)


TASKS = (
    # Times first, while nothing has been read or written.
    Task("speed", "benchmarks/speed.py", 12, "benchmarks/results/speed.json"),
    _benchmark("adapters", 1),
    _benchmark("backends", 4),
    Task("benchmark-decisions", "-m benchmarks.decisions", 1, "benchmarks/results/decisions.json"),
    _benchmark("command_line", 2),
    _benchmark("scaling", 15),
    _benchmark("service", 30, "--minutes 10"),
    _benchmark("spark", 5, "", "spark"),
    _benchmark("device", 10, "--data FOLDER", "data", "gpu"),
    _benchmark("waves", 10, "--data FOLDER", "data", "gpu"),
    # Experiments on two processes without data, then those with it, the long ones last.
    _experiment("drift", 1),
    _experiment("adversaries", 1),
    _experiment("online_to_batch", 1),
    _experiment("table1", 5),
    _experiment("coverage", 5),
    _experiment("certificate", 1, "--data FOLDER"),
    _experiment("unconstrained", 2, "--data FOLDER"),
    _experiment("text", 1, "--data FOLDER"),
    _experiment("sets", 2, "--data FOLDER"),
    _experiment("monitoring", 3, "--data FOLDER"),
    _experiment("drop_in", 3, "--data FOLDER"),
    _experiment("decisions", 6, "--data FOLDER"),
    _experiment("boosting", 30, "--data FOLDER --seeds 0 1 2"),
    _experiment("bandit", 80, "--data FOLDER"),
    _experiment(  # with the settings of the peers that its hours of tuning found
        "real_data", 5, "--data FOLDER --peers experiments/real_data/tuned_peers.json"
    ),
    # In pairs, the long ones first.
    _experiment("terms", 100, "--data FOLDER --cache CACHE", cores=1),  # the peers' forests
    _experiment("bandit-million", 31, "--million 0.03125", "million/million", cores=1),
    _experiment("export", 5, "--data FOLDER", cores=1),
    _experiment("front_door", 2, "--data FOLDER", cores=1),
    _experiment("wide-zipf", 2, "--only zipf", "zipf", cores=1),
    _experiment("wide-classes", 2, "--only classes", "classes", cores=1),
    _experiment("wide-fit", 2, "--only fit", "fit", cores=1),
    _experiment("wide-banking", 2, "--data FOLDER --only banking", "banking", cores=1),
    _torture("kill", 15),
    _torture("workers", 30),
    _torture("forget", 10),
    _torture("year", 15),
    _torture("power", 10, "root"),
    _torture("failing", 10),
    _torture("damage", 10),
    _torture("order", 10),
    _torture("backups", 10),
    _torture("growth", 10),
    _torture("requests", 12),
)
NOT_A_TASK = {"against": "compares two checkouts, and has no results file of numbers"}


def read(path: Path) -> Any:
    """Return the content of a results file, None without one."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def origins(content: Any) -> list[dict[str, Any]]:
    """Return every record of a commit in a results file; some have one for each result."""
    if isinstance(content, list):
        return [found for one in content for found in origins(one)]
    if not isinstance(content, dict):
        return []
    own = [content] if "commit" in content and "uncommitted_changes" in content else []
    return own + [found for one in content.values() for found in origins(one)]


@cache
def _is_same(commit: str, code: tuple[str, ...]) -> bool:
    """Whether this code has not changed since a commit; an unknown commit is another code."""
    return git("diff", "--quiet", commit, "HEAD", "--", *code) is not None


def check(tasks: Sequence[Task], folder: Path | None) -> bool:
    """Print time, needs and commits of every task; return whether all results are of this code."""
    for task in tasks:
        found = origins(read(ROOT / task.file))
        commits = list(dict.fromkeys(one["commit"][:12] for one in found)) or ["no commit"]
        commits += ["UNCOMMITTED CHANGES"] * any(one["uncommitted_changes"] for one in found)
        state, needs = "current" if task.is_current() else "other code", ", ".join(task.needs)
        print(f"{state:10} {task.name:20} {task.minutes:4} min  {needs:9} {' '.join(commits)}")
    others = [task for task in tasks if not task.is_current()]
    minutes = sum(task.minutes for task in others if not task.lacks(folder))
    print(f"{len(others)} of {len(tasks)} files are not of this code")
    print(f"What can be run here takes about {minutes} minutes on two idle cores.")
    return not others


def compare_with_commit(tasks: Sequence[Task], commit: str) -> None:
    """Print how the results in the folder differ from those of a commit."""
    for task in tasks:
        old, new = git("show", f"{commit}:{task.file}"), read(ROOT / task.file)
        if old is not None and new is not None and json.loads(old) != new:
            of_times = task.file.startswith(("benchmarks", "experiments/durability"))
            changes = compare(json.loads(old), new, of_times=of_times)
            print(table_of_changes(task.file, changes))


def run(tasks: Sequence[Task], folder: Path | None, minutes: float) -> list[str]:
    """Run what is not of this code and can be run; return the names of those that failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    until = perf_counter() + 60.0 * minutes
    order = sorted(tasks, key=lambda task: -task.cores)  # stable
    places = {task.name: f"[{number}/{len(order)}] " for number, task in enumerate(order, start=1)}

    def run_one(task: Task) -> str | None:
        where, lacking = places[task.name] + task.name, task.lacks(folder)
        if task.is_current():
            print(f"{where}: is of this code")
        elif lacking:
            print(f"{where}: skipped, there is no {', no '.join(lacking)}")
        elif perf_counter() + 60.0 * task.minutes > until:
            print(f"{where}: left for later, it takes {task.minutes} min")
        else:
            print(f"{where}: about {task.minutes} min, python {task.command}", flush=True)
            return _run_one(task, folder, where)
        return None

    with ThreadPoolExecutor(2) as pairs:
        alone = [run_one(task) for task in order if task.cores > 1]
        failed = [*alone, *pairs.map(run_one, [task for task in order if task.cores == 1])]
    return [name for name in failed if name is not None]


def _run_one(task: Task, folder: Path | None, where: str) -> str | None:
    """Run a task; return its name if it failed."""
    log, began = LOGS / f"{task.name}.log", perf_counter()
    with log.open("w") as output:
        done = subprocess.run(task.words(folder), cwd=ROOT, stdout=output, check=False)
    print(f"{where}: took {(perf_counter() - began) / 60:.1f} min", flush=True)
    if done.returncode == 0 and task.is_current():
        return None
    print(f"{where}: failed with {done.returncode}, or wrote no new results: see {log}")
    return task.name


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where NAME.npz are")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[task.name for task in TASKS])
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing longer")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--compare", nargs="?", const="HEAD", metavar="COMMIT")
    options = parser.parse_args(arguments)
    tasks = [task for task in TASKS if task.name in (options.only or [task.name])]
    folder = options.data.resolve() if options.data else None
    if options.check:
        return int(not check(tasks, folder))
    if options.compare:
        compare_with_commit(tasks, options.compare)
        return 0
    if version()["uncommitted_changes"] is not False:
        raise SystemExit(
            "There are changes that are not committed, or there is no repository: commit first, so "
            "that every number is of a commit. `git status` names the files."
        )
    failed = run(tasks, folder, options.minutes)
    compare_with_commit(tasks, "HEAD")
    write_readme()
    print(f"\nREADME's tables are written. Failed: {', '.join(failed) or 'none'}.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
