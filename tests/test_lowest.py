"""`make lowest` installs what pyproject.toml says is enough."""

import tomllib

import pytest

from tests.conftest import ROOT
from tests.lowest import lowest, pins

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SMALL = {
    "name": "thing",
    "dependencies": ["alpha>=2.1", "Beta_two >= 0.9,<2 ; python_version < '4'", "gamma"],
    "optional-dependencies": {
        "dev": ["thing[more, most]", "delta>=8", "mypy>=1.0"],
        "more": ["alpha>=2.10", "thing[dev]"],  # in a circle
        "most": ["epsilon[fast]>=1.2.3"],
        "other": ["zeta>=1"],
    },
}


def test_lower_bounds_are_found_through_extras():
    expected = {"alpha": "2.10", "beta-two": "0.9", "delta": "8", "epsilon": "1.2.3"}
    assert lowest(SMALL) == expected


def test_what_cannot_be_read_is_said():
    with pytest.raises(ValueError, match="requirement"):
        lowest({**SMALL, "dependencies": ["alpha @ https://example.org/alpha.zip"]})


def test_every_requirement_of_the_project_has_a_lower_bound():
    found = lowest(PROJECT)
    for line in PROJECT["dependencies"]:
        name, _, bound = line.partition(">=")
        assert found[name] == bound
    extras = PROJECT["optional-dependencies"]
    for extra in ("cli", "df", "plots", "river", "serve"):  # what users can have, the tests need
        for line in extras[extra]:
            name = line.partition(">=")[0]
            assert name in found or name.startswith(PROJECT["name"]), line


def test_pins_are_constraints_of_the_oldest_release():
    lines = pins().splitlines()
    bounds = dict(line.split(">=") for line in PROJECT["dependencies"])
    assert f"numpy~={bounds['numpy']}.0" in lines
    assert all(line.count(".") >= 2 and "~=" in line for line in lines)
    assert not any(line.startswith(("folklearn", "ruff", "mypy")) for line in lines)
