"""Speed of folklearn beside River, Vowpal Wabbit and scikit-learn, in one run.

First `auto`, which people are told to use, over whole streams. Every section runs in its own
process, so that the number of BLAS threads is set before NumPy is loaded and no section sees the
memory or the caches of another one.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from report import markdown, show
from rich.console import Console
from rich.progress import Progress

from folklearn import __version__

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from experiments.provenance import version as version_of_code  # noqa: E402
from experiments.provenance import write_json  # noqa: E402

SIZES = [(5, 2), (20, 5), (55, 7), (65, 10), (17, 26)]
LARGE = {"d": 785, "K": 10}
PACKAGES = ["numpy", "scipy", "numba", "river", "vowpalwabbit", "scikit-learn"]
THREAD_VARIABLES = ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"]
ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")


def sections(quick: bool) -> list[tuple[str, str, dict[str, str], dict[str, Any]]]:
    """Return (name in the results, module, environment, options) of every section."""
    large = LARGE | {"n_rows": 64 if quick else 96}
    timed = large | {"repetitions": 2 if quick else 6}
    marks = [500, 1_000] if quick else [10_000, 100_000]
    return [
        (
            "auto",
            "whole",
            ONE_THREAD,
            {
                "sizes": SIZES,
                "marks": marks,
                "longest": (2 if quick else 10) * marks[-1],
                "n_long": 2,
                "chunk": marks[0] // 4,
                "budget_s": 1.0 if quick else 30.0,
            },
        ),
        (
            "sizes",
            "sizes",
            ONE_THREAD,
            {
                "sizes": SIZES,
                "repetitions": 3 if quick else 40,
                "slice_s": 0.02 if quick else 0.06,
            },
        ),
        (
            "growth",
            "growth",
            ONE_THREAD,
            {"sizes": SIZES[:2], "n_rounds": 20_000 if quick else 100_000},
        ),
        ("large_default_threads", "large", {}, timed),
        ("large_one_thread", "large", ONE_THREAD, timed),
        ("memory", "memory", {}, large),
        (
            "startup",
            "startup",
            {},
            {
                "repetitions": 1 if quick else 3,
                "learners": ["Folklore"] if quick else ["auto", "Folklore"],
            },
        ),
    ]


def run_section(
    module: str,
    environment: dict[str, str],
    options: dict[str, Any],
    report: Callable[[int, int], None],
) -> Any:
    """Run one section in a process of its own and return its result."""
    inherited = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    arguments = [sys.executable, str(HERE / "section.py"), module, json.dumps(options)]
    result = None
    with subprocess.Popen(
        arguments, env=inherited | environment, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            message = json.loads(line)
            result = message.get("result")
            if result is None:
                report(message["done"], message["total"])
    if child.returncode or result is None:
        raise SystemExit(f"section {module} failed; see its message above")
    return result


def machine() -> dict[str, Any]:
    """Return what a reader needs to judge the numbers, and nothing that names this host."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the version of every package that is measured or does the work."""
    return {"folklearn": __version__} | {package: version(package) for package in PACKAGES}


def command(arguments: argparse.Namespace) -> str:
    """Return the command line as a reader would type it, without the folders of this machine."""
    words = ["python benchmarks/speed.py"]
    if arguments.quick:
        words.append("--quick")
    if arguments.output is not None:
        path = arguments.output
        words.append(f"--output {path.name if path.is_absolute() else path}")
    return " ".join(words)


def main() -> None:
    """Measure everything, show it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="check the script, not the speed")
    parser.add_argument(
        "--output",
        type=Path,
        help="JSON file; the table goes beside it as .md (default: benchmarks/results/speed.json, "
        "with --quick .cache/speed.json)",
    )
    arguments = parser.parse_args()
    output = arguments.output
    if output is None:
        folder = HERE.parent / ".cache" if arguments.quick else HERE / "results"
        output = folder / "speed.json"

    results: dict[str, Any] = {
        "command": command(arguments),
        **version_of_code(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
    }
    with Progress(console=Console(stderr=True)) as bar:
        for name, module, environment, options in sections(arguments.quick):
            task = bar.add_task(name.replace("_", " "), total=None)

            def advance(done: int, total: int, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            results[name] = run_section(module, environment, options, advance)

    show(results, Console())
    output.parent.mkdir(parents=True, exist_ok=True)
    write_json(output, results)
    output.with_suffix(".md").write_text(markdown(results))


if __name__ == "__main__":
    main()
