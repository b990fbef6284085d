"""Where a results file comes from: what was run, of which version, with which libraries."""

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
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
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "uncommitted_changes": _changed(),
        "seeds": list(seeds),
        "sizes": dict(sizes),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "libraries": {"folklearn": __version__}
        | {name: metadata.version(name) for name in (*LIBRARIES, *libraries)},
    }


def _without_place(argument: str) -> str:
    return f".../{Path(argument).name}" if Path(argument).is_absolute() else argument


def _changed() -> bool | None:
    """Whether code differs from the commit; results, which runs write, do not count."""
    state = _git("status", "--porcelain", "--", ".", ":!experiments/*/results")
    return None if state is None else bool(state)


def _git(*words: str) -> str | None:
    """The answer of a git command that changes nothing, or None without a repository."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *words],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
