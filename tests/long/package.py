"""The package as others install it: `make test-package [PYTHON=...]`.

Builds the source archive and from it the wheel, warnings being errors. Then, in an empty
environment each, it installs the wheel with the core dependencies alone and with each extra alone,
runs README's Python block, and what the extra is for. `python -m tests.long.package --python
python3.14 cli df` takes another Python, and some extras only; `core` is none of them. What needs
Java is left out, and said to be, where there is none.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT

CORE = "core"
_ROWS = """
import folklearn
rows = [{"a": t % 7, "b": "xyz"[t % 3], "kind": "odd" if t % 2 else "even"} for t in range(400)]
model = folklearn.Model()
"""
_SERVE = """
import re, subprocess, sys
from folklearn.service import Client
command = [sys.executable, "-m", "folklearn.cli.app", "serve", "served", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as own:
    said = ""
    while "listening" not in said:
        line = own.stdout.readline()
        assert line, said
        said += line
    with Client(re.search(r"http://[\\d.:]+", said)[0], re.search(r"flk_\\w+", said)[0]) as client:
        remote = client.create("kinds")
        for row in rows[:20]:
            remote.learn(row.pop("kind"), row)
        assert remote.predict({"a": 1, "b": "x"}).probabilities
    own.terminate()
"""
_SPARK = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from folklearn.scale import spark
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
values = [tuple(row.values()) for row in rows]
table = session.createDataFrame(values, "a int, b string, kind string")
print(spark.fit(table, label="kind").predict_one({"a": 1, "b": "x"}))
"""
_MLFLOW = """
import mlflow, pandas
class Kinds(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.model = folklearn.load(context.artifacts["model"])
    def predict(self, context, model_input, params=None):
        return self.model.predict_proba(model_input)
model.run(pandas.DataFrame(rows), target="kind")
model.save("kinds.folk")
mlflow.set_tracking_uri("sqlite:///mlflow.db")
with mlflow.start_run():
    logged = mlflow.pyfunc.log_model(
        name="kinds", python_model=Kinds(), artifacts={"model": "kinds.folk"}
    )
loaded = mlflow.pyfunc.load_model(logged.model_uri)
assert loaded.predict(pandas.DataFrame(rows)[["a", "b"]]).shape == (400, 2)
"""
# What an extra is for, after README's block.
TRIALS = {
    CORE: "model.run(rows, target='kind'); print(model)",
    "cli": """
        import csv, subprocess, sys
        with open("rows.csv", "w", newline="") as file:
            csv.writer(file).writerows([list(rows[0]), *(row.values() for row in rows)])
        command = [sys.executable, "-m", "folklearn.cli.app", "run", "rows.csv", "--target", "kind"]
        subprocess.run(command, check=True)
    """,
    "df": """
        import pyarrow, pyarrow.parquet
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, "rows.parquet")
        assert model.run("rows.parquet", target="kind").n_rows == model.score(table, "kind").n_rows
    """,
    "plots": """
        run = model.run(rows, target="kind")
        run.plot("run.png")
        run.report("run.html")
    """,
    "gpu": """
        import numpy, torch
        where = "cuda" if torch.cuda.is_available() else "torch-cpu"
        learner = folklearn.Leader(n_features=100, n_classes=6, device=where)
        X = numpy.random.default_rng(0).normal(size=(3000, 100))
        learner.run(X, X[:, :6].argmax(axis=1))
        assert learner.certificate().valid
    """,
    "mlflow": _MLFLOW,
    "onnx": """
        import onnx
        model.run(rows, target="kind")
        model.export("kinds.onnx")
        onnx.checker.check_model(onnx.load("kinds.onnx"))
    """,
    "river": """
        from river import metrics
        from folklearn.adapters.river import FolkloreStreamClassifier
        own, metric = FolkloreStreamClassifier(), metrics.LogLoss()
        for row in rows:
            x, y = {"a": row["a"]}, row["kind"]
            metric.update(y == "odd", own.predict_proba_one(x).get("odd", 0.5))
            own.learn_one(x, y)
        print(metric)
    """,
    "serve": _SERVE,
    "spark": _SPARK,
}
TOOLS = ("bench", "dev", "docs")  # of this repository: other targets install and run them


def build(folder: Path) -> Path:
    """Build source archive and wheel, the second from the first; return the wheel."""
    command = [sys.executable, "-W", "error", "-m", "build", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode or "warning" in said.lower():
        raise SystemExit(f"The build failed or warns:\n{said}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def readme_block() -> str:
    """Return the Python block of README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def try_extra(extra: str, wheel: Path, python: str, folder: Path) -> str:
    """Install the wheel with an extra into an empty environment, use it; return what failed."""
    own = folder / "environment" / "bin" / "python"
    wanted = str(wheel) + (f"[{extra}]" if extra != CORE else "")
    code = f"{readme_block()}\n{_ROWS}\n{textwrap.dedent(TRIALS[extra])}"
    steps = {
        "make an environment": [python, "-m", "venv", "--without-pip", folder / "environment"],
        # This environment's pip, for that of the trial: no version of pip is tried but one.
        "install": [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "pip",
            "--python",
            own,
            "install",
            wanted,
        ],
        "check what is installed": [sys.executable, "-m", "pip", "--python", own, "check"],
        "import": [own, "-W", "error", "-I", "-c", "import folklearn"],
        "use": [own, "-I", "-c", code],
    }
    for what, command in steps.items():
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{what}: {(done.stdout + done.stderr).strip()[-2000:]}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, try everything, print a line for each; return 1 if something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", choices=[[], *TRIALS], default=[])
    parser.add_argument("--python", default=sys.executable, help="of the environments")
    options = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {CORE, *project["optional-dependencies"]} == {*TRIALS, *TOOLS}
    failed = []
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        print(f"{wheel.name}: built without a warning", flush=True)
        for extra in options.extras or TRIALS:
            if extra == "spark" and not shutil.which("java"):
                print(f"{extra:7} left out: there is no Java", flush=True)
                continue
            folder = Path(name) / extra
            folder.mkdir()
            wrong = try_extra(extra, wheel, options.python, folder)
            print(f"{extra:7} {wrong or 'installed alone, and used'}", flush=True)
            failed += [extra] * bool(wrong)
            shutil.rmtree(folder)
    print(f"Failed: {', '.join(failed) or 'none'}.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
