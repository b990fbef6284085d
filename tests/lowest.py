"""The lowest versions that pyproject.toml admits, as constraints for pip: `python tests/lowest.py`.

`make lowest` installs them into an environment of its own and runs the tests there. Only lines
with a lower bound count, of the dependencies and of what the extra `dev` brings; other packages
that these need are free. Nothing but Python itself is needed.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_REQUIREMENT = re.compile(
    r"([A-Za-z0-9._-]+)(?:\[([\w,\s-]+)\])?"  # name, extras
    r"\s*(?:>=\s*([\w.]+))?(?:\s*,?\s*[<>=!~]=?\s*[\w.*]+)*"  # lower bound, others
    r"\s*(;.*)?"
)
TOOLS = ("mypy", "ruff", "import-linter")  # that look at the code and do not run it


def lowest(project: Mapping[str, Any], extras: Sequence[str] = ("dev",)) -> dict[str, str]:
    """Return the lowest version of every package that the project and these extras ask for.

    Where two lines ask for one package, the higher of their bounds is the lowest that will do.
    """
    found: dict[str, str] = {}
    for line in _lines(project, extras):
        name, _, bound, _ = _parsed(line)
        if bound and name != project["name"] and name not in TOOLS:
            found[name] = max(found.get(name, bound), bound, key=_version)
    return dict(sorted(found.items()))


def _lines(project: Mapping[str, Any], extras: Sequence[str]) -> Iterator[str]:
    yield from project["dependencies"]
    waiting, done = list(extras), set[str]()
    while waiting:
        extra = waiting.pop()
        if extra in done:
            continue
        done.add(extra)
        for line in project["optional-dependencies"][extra]:
            name, inner, _, _ = _parsed(line)
            if name == project["name"]:  # an extra that is made of others
                waiting += inner
            else:
                yield line


def _parsed(line: str) -> tuple[str, list[str], str, str]:
    """Return name, extras, lower bound and marker of a requirement."""
    match = _REQUIREMENT.fullmatch(line.strip())
    if match is None:
        raise ValueError(f"cannot read the requirement {line!r}")
    name, extras, bound, marker = match.groups()
    inner = [extra.strip() for extra in (extras or "").split(",") if extra.strip()]
    return name.lower().replace("_", "-"), inner, bound or "", marker or ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def pins(path: Path = ROOT / "pyproject.toml") -> str:
    """Return the constraints as pip reads them.

    ``~=`` and not ``==``: a bound such as 1.6 admits all of 1.6.*, of which some first ones were
    withdrawn.
    """
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    found = lowest(project).items()
    return "".join(f"{name}~={_last_free(version)}\n" for name, version in found)


def _last_free(version: str) -> str:
    """Return 1.6.0 for 1.6, and 18.0.0 for 18: then only what comes last is free."""
    parts = version.split(".")
    return ".".join([*parts, *["0"] * (3 - len(parts))])


if __name__ == "__main__":
    sys.stdout.write(pins())
