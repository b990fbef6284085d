"""The documentation runs as printed, every page can be reached, and every public name is in it.

A ``python`` block is executed, one namespace per page, in a folder of its own; a ``text`` block
after it is what it prints. In a ``console`` block a line that starts with ``$`` is a command and
the lines after it are what it says. There, ``...`` stands for anything, times and speeds may be
any, and other numbers may differ in the last digits, as they do between machines.
"""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import math
import pkgutil
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

import folklearn
from folklearn.cli.app import main
from tests.conftest import ROOT

DOCS = ROOT / "docs"
RUN = [DOCS / "index.md", DOCS / "start.md"]
RUN += [*sorted(DOCS.glob("guide/*.md")), *sorted(DOCS.glob("tutorials/*.md"))]
# Pages that `make test` runs; the others are for `make test-long`.
VITAL = ("index.md", "start.md", "guide/train.md", "guide/predict.md", "guide/certificate.md")
NOT_RUN = ("make", "pip")  # they would install from the network
OPTIONAL = (
    *("apsw", "matplotlib", "mlflow", "msgspec", "onnxruntime", "pandas", "pyarrow", "pyspark"),
    *("rich", "river", "typer", "urllib3", "vowpalwabbit"),
)

# Everything that a user may import; in packages without __all__, the modules with these names.
LISTED = (
    "folklearn",
    "folklearn.bandits",
    "folklearn.baselines",
    "folklearn.batch",
    "folklearn.boosting",
    "folklearn.evaluate",
    "folklearn.metrics",
    "folklearn.plots",
    "folklearn.readers",
    "folklearn.scale",
    "folklearn.synthetic",
)
OPEN = ("folklearn.adapters", "folklearn.evaluate", "folklearn.metrics", "folklearn.model")
INSIDE = {
    *(f"model.{name}" for name in ("batch", "encoder", "export", "holdout")),
    *(f"model.{name}" for name in ("labels", "refit", "roles", "summary")),
    *("model.stream_evidence", "model.table_classifier"),
}
PRIVATE = {  # public only within their package
    "folklearn.errors.warn_of_data",
    "folklearn.errors.spell_argument",
    "folklearn.evaluate.auditing.PredictionLoss",
    *(f"folklearn.evaluate.best_linear.{name}" for name in ("LossAndGradient", "TotalLoss")),
    "folklearn.evaluate.best_linear.predict_residuals",
    *(f"folklearn.metrics.accumulator.{name}" for name in ("EvidenceSpan", "add_to_ladder")),
    "folklearn.metrics.accumulator.join_suffixes",
    *(
        f"folklearn.metrics.scores.{name}"
        for name in ("check_probabilities", "check_rows", "label_mass")
    ),
    "folklearn.metrics.accumulator.ColumnPlaces",
    *(f"folklearn.model.explain.{name}" for name in ("explain_model", "find_words", "Pair")),
    *(f"folklearn.model.row_explanation.{name}" for name in ("explain_rows", "make_table")),
    *(f"folklearn.model.explain.{name}" for name in ("find_owners", "find_shapes")),
    "folklearn.model.dataset.UnlearnedValues",
    *(f"folklearn.model.dataset.{name}" for name in ("declare_table", "make_encoder")),
    "folklearn.model.run.known_numbers",
    "folklearn.plots.BOUND",
    "folklearn.synthetic.OBLIVIOUS",  # tables and types, which the pages that use them explain
    "folklearn.synthetic.Stream",
}


class Block(NamedTuple):
    language: str
    line: int  # of its first line, counted from 1
    text: str


def blocks(page: Path) -> list[Block]:
    content = page.read_text(encoding="utf-8")
    fences = re.finditer(r"^```([\w{}-]+)[^\n]*\n(.*?)^```$", content, flags=re.M | re.S)
    return [
        Block(fence[1], content.count("\n", 0, fence.start(2)) + 1, fence[2]) for fence in fences
    ]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=() if name in VITAL else pytest.mark.long)
        for page in RUN
        for name in [page.relative_to(DOCS).as_posix()]
    ],
)
def test_a_page_runs_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "python":
            printed = run_python(block, page, where, scope)
        elif block.language == "text":
            assert printed is not None, f"{where}: nothing printed this"
            compare(where, block.text, printed)
            printed = None
        elif block.language == "console":
            for command, expected in commands(block.text):
                compare(where, expected, run_command(command, where))


def run_python(block: Block, page: Path, where: str, scope: dict[str, object]) -> str:
    source = "\n" * (block.line - 1) + block.text
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            module = getattr(node, "module", None) or names[0]
            if module == "folklearn.adapters.river":
                module = "river"
            skip_unless_installed(module.partition(".")[0], where)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", folklearn.DataWarning)
        warnings.filterwarnings("ignore", module="mlflow")
        exec(compile(source, str(page), "exec"), scope)
    if caught:  # who reads the page sees it too, and must be told
        assert "DataWarning" in page.read_text(encoding="utf-8"), f"{where}: {caught[0].message}"
    return out.getvalue()


def skip_unless_installed(package: str, where: str) -> None:
    if package in OPTIONAL and importlib.util.find_spec(package) is None:
        pytest.skip(f"{where} needs {package}, which is not installed")


def commands(text: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n?", text.replace("\\\n", " "), flags=re.M)
    assert not parts[0].strip(), f"a console block starts with a command, not {parts[0]!r}"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def run_command(command: str, where: str) -> str:
    program, *arguments = shlex.split(command)
    if program in NOT_RUN:
        return ""
    if program == "vw":
        skip_unless_installed("vowpalwabbit", where)
        called = [sys.executable, "-m", "vowpalwabbit", *arguments]
        done = subprocess.run(called, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr
    assert program == "folklearn", f"{where}: no test runs {program}"
    skip_unless_installed("typer", where)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(arguments)
    assert code == 0, f"{where}: {out.getvalue()}"
    return out.getvalue()


_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_TIME = r"\d+\.\d+ s\b"
_SPEED = r" {3,}\d+(?:\.\d+)?(?=\n|$)"  # the last column of the command line's tables


def compare(where: str, expected: str, actual: str) -> None:
    if not expected.strip():
        return
    pattern, numbers = [], []
    tokens = rf"\.\.\.|{_TIME}|{_SPEED}|{_NUMBER}|\s+|[^\s\d.]+|."
    for token in re.findall(tokens, expected.strip()):
        if token == "...":
            pattern.append(r".*?")
        elif re.fullmatch(_TIME, token):
            pattern.append(_TIME)
        elif re.fullmatch(_SPEED, token):
            pattern.append(rf"\s+{_NUMBER}")
        elif re.fullmatch(_NUMBER, token):
            pattern.append(f"({_NUMBER})")
            numbers.append(token)
        else:
            pattern.append(r"\s+" if token.isspace() else re.escape(token))
    match = re.fullmatch("".join(pattern), actual.strip(), flags=re.S)
    assert match, f"{where} prints\n{actual}\nand not\n{expected}"
    for said, found in zip(numbers, match.groups(), strict=True):
        close = math.isclose(float(said), float(found), rel_tol=0.02, abs_tol=0.011)
        assert close, f"{where}: {found} where the page says {said}, in\n{actual}"


def toctree(page: Path) -> list[Path]:
    pages: list[Path] = []
    for block in blocks(page):
        if block.language != "{toctree}":
            continue
        for line in filter(None, map(str.strip, block.text.splitlines())):
            if not line.startswith(":"):
                entry = line.rpartition("<")[2].rstrip(">")
                found = sorted(page.parent.glob(f"{entry}.md"))
                assert found, f"{page.relative_to(ROOT)} lists {line}, which is not there"
                pages += found
    return pages


def test_pages_say_how_to_get_pandas():
    """No extra brings it: it is for examples."""
    for page in RUN:
        for line in page.read_text(encoding="utf-8").splitlines():
            if re.match(r"(import|from) pandas", line):
                assert line.endswith("# pip install pandas"), page.relative_to(ROOT)


def test_every_page_is_in_a_toctree():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page not in reached:
            reached.add(page)
            waiting += toctree(page)
    written = {page.resolve() for page in DOCS.rglob("*.md") if "_build" not in page.parts}
    assert written - reached == set()


def test_links_between_pages_lead_somewhere():
    for page in RUN:
        for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"


def test_pictures_are_small_and_shown():
    pages = "".join(page.read_text(encoding="utf-8") for page in RUN)
    pictures = sorted((DOCS / "images").glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 80_000, picture.name
        assert f"images/{picture.name})" in pages, f"no page shows {picture.name}"


def documented() -> list[object]:
    """Return every object that a table of the API lists, found by its name."""
    objects: list[object] = []
    for page in sorted((DOCS / "api").glob("*.md")):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule::"):
                module = line.split()[-1]
            elif module and re.fullmatch(r"   [\w.]+", line):
                try:
                    objects.append(getattr(importlib.import_module(module), line.strip()))
                except ModuleNotFoundError as error:
                    if error.name not in OPTIONAL:
                        raise
    return objects


def public() -> dict[str, object]:
    names: dict[str, object] = {}
    for package in LISTED:
        module = importlib.import_module(package)
        for name in set(module.__all__) - {"__version__"}:
            names[f"{package}.{name}"] = getattr(module, name)
    modules = ["bandits.reduction", "errors"]
    for package in OPEN:
        path = importlib.import_module(package).__path__
        modules += [f"{package}.{found.name}"[10:] for found in pkgutil.iter_modules(path)]
    for name in sorted(set(modules) - INSIDE):
        try:
            module = importlib.import_module(f"folklearn.{name}")
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            continue
        for member, value in vars(module).items():
            own = getattr(value, "__module__", None) == module.__name__
            named = inspect.isroutine(value) or isinstance(value, type)
            if own and named and not member.startswith("_"):
                names[f"{module.__name__}.{member}"] = value
    return names


def test_every_public_name_is_in_the_api_pages():
    listed = documented()
    missing = [name for name, value in public().items() if not any(value is one for one in listed)]
    assert set(missing) <= PRIVATE, sorted(set(missing) - PRIVATE)


def test_the_guide_names_every_learner():
    """Whoever chooses a learner should find all of them on the page about it."""
    page = (DOCS / "guide" / "choosing-a-learner.md").read_text(encoding="utf-8")
    learners = [
        name
        for name in folklearn.__all__
        if getattr(getattr(folklearn, name), "__module__", "").startswith(
            ("folklearn.learners.", "folklearn.baselines.")
        )
    ]
    assert len(learners) > 8
    assert [name for name in learners if name not in page] == []
