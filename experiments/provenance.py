"""Where a results file comes from, and how it is written."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAKE_NUMBERS = (
    *("src", "experiments", "benchmarks", "tests/reference", "tests/long", "tests/service"),
    *(":!*/results/*", ":!*.md", ":!experiments/reproduce.py", ":!experiments/changes.py"),
)
LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn")


def provenance(
    module: str,
    arguments: Iterable[str],
    *,
    seeds: Sequence[int],
    sizes: Mapping[str, Any],
    libraries: Sequence[str] = (),
) -> dict[str, Any]:
    """Return command, commit, seeds, sizes and library versions, and nothing about the host.

    `arguments` are those of the command line; absolute paths are cut to their last part.
    `libraries` are distributions to name besides folklearn and the ones it always uses.
    """
    from folklearn import __version__

    return {
        "command": " ".join(["python", "-m", module, *map(_without_place, arguments)]),
        **version(),
        "seeds": list(seeds),
        "sizes": dict(sizes),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "libraries": {"folklearn": __version__}
        | {name: metadata.version(name) for name in (*LIBRARIES, *libraries)},
    }


def version() -> dict[str, Any]:
    """Return the commit, and whether code differs from it; None outside a repository.

    It is the last commit that changed what makes numbers: those that record them, correct a page
    or a test do not make the results of one release look like those of many.
    """
    return {
        "commit": git("log", "-1", "--format=%H", "--", *MAKE_NUMBERS) or "unknown",
        "uncommitted_changes": _changed(),
    }


def stated(origin: Mapping[str, Any]) -> str:
    """Return command and commit as one line of a report, marked if code was not committed."""
    changed = " **with uncommitted changes**" if origin["uncommitted_changes"] else ""
    return f"`{origin['command']}`, commit {origin['commit'][:12]}{changed}"


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON, with every list of numbers on one line."""
    text = json.dumps(content, indent=1)
    path.write_text(re.sub(r"\[[-+\d.eE,\s]*\]", _on_one_line, text) + "\n")


def _on_one_line(found: re.Match[str]) -> str:
    return "[" + " ".join(found[0][1:-1].split()) + "]"


def _without_place(argument: str) -> str:
    return f".../{Path(argument).name}" if Path(argument).is_absolute() else argument


def _changed() -> bool | None:
    """Whether code differs from the commit; results, which runs write, do not count."""
    results = [":!experiments/*/results/*", ":!benchmarks/results/*"]
    state = git("status", "--porcelain", "--untracked-files=all", "--", ".", *results)
    return None if state is None else bool(state)


def git(*words: str) -> str | None:
    """The answer of a git command that changes nothing, or None without a repository."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *words],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
