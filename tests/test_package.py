"""The package as others get it: a wheel, a light import, lazy names."""

import re
import subprocess
import sys

import pytest

import folklearn
from folklearn import registry
from tests.conftest import ROOT
from tests.crafted import registered


def python(code: str, *, path: str = "", cwd=None) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PATH": "", "PYTHONPATH": path} if path else None,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_a_built_wheel_installs_and_predicts(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    subprocess.run([*build, ROOT], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("folklearn-*.whl")
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    package = target / "folklearn"
    assert (package / "py.typed").is_file()
    for folder in ("report/templates", "service/pages/templates", "service/pages/static"):
        own = {path.name for path in (ROOT / "src/folklearn" / folder).iterdir()}
        found = {path.name for path in (package / folder).iterdir()}
        assert found == own
    code = (
        "import folklearn; print(folklearn.__file__); "
        "print(folklearn.Folklore(n_features=2, n_classes=4).predict([0.5, 1.0]))"
    )
    where, p = python(code, path=str(target), cwd=tmp_path).splitlines()
    assert where.startswith(str(target))
    assert p == "[0.25 0.25 0.25 0.25]"


def test_importing_the_package_loads_nothing_heavy():
    heavy = "{'numpy', 'numba', 'scipy', 'sklearn', 'rich', 'matplotlib'}"
    assert python(f"import sys, folklearn; print({heavy} & set(sys.modules))") == "set()"
    heavy = "{'sklearn', 'pandas', 'matplotlib'}"  # half a second of every command
    pytest.importorskip("typer")
    commands = "audit, inspect, predict, run, serve"
    code = f"import sys; from folklearn.cli import {commands}; print({heavy} & set(sys.modules))"
    assert python(code) == "set()"


def test_packages_are_loaded_when_asked_for():
    code = (
        "import folklearn; "
        "print(folklearn.baselines.Soba.__name__, folklearn.evidence.points.__name__)"
    )
    assert python(code) == "Soba folklearn.evidence.points"
    for package in ("bandits", "baselines", "batch", "boosting", "evaluate", "learners", "readers"):
        module = getattr(folklearn, package)
        own = {"auto"} if package == "bandits" else set()  # not the learner of that name
        names = set(module.__all__) - own
        assert names == set(registry.names_of(package))
        for name in names:
            assert getattr(module, name) is registry.find(name)
        with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
            _ = module.Nothing


def test_type_checkers_see_what_the_table_says():
    source = (ROOT / "src" / "folklearn" / "__init__.py").read_text()
    seen = re.findall(r"from (folklearn\S+) import (\w+) as \2\n", source)
    assert {name: home for home, name in seen} == {
        name: registry.HOMES[name] for name in registry.PUBLIC
    }


def test_public_names_exist_and_unknown_ones_do_not():
    for name in folklearn.__all__:
        assert getattr(folklearn, name) is not None
    assert set(folklearn.__all__) <= set(dir(folklearn))
    with pytest.raises(AttributeError, match="no attribute 'Folklor'"):
        _ = folklearn.Folklor


def test_saved_files_name_their_kinds_by_words_of_a_table():
    bases = {"Agent", "Booster", "LinearAgent"}
    assert set(registry.SAVED) == registered() - bases
