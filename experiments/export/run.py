"""Does an ONNX file say what the model says, and how large is it?

Run from the root of the repository:  python -m experiments.export.run --data FOLDER
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from threadpoolctl import threadpool_limits

from folklearn import Model

from ..data import NAMES, SYNTHETIC, Source, _raw, add_folder, found_in
from ..options import new_parser
from ..provenance import provenance, stated, write_json

RESULTS = Path(__file__).parent / "results"
N_LEARNED, N_PREDICTED, SEED = 2000, 1000, 0
WAYS = ("run", "fit")
HEAD = """# A model and its ONNX file

After {n_learned} rows, or two thirds: the largest difference between `predict_proba` and
onnxruntime over at most {n_predicted} rows behind them, how many labels differ, and sizes in kB:
of the saved model, which goes on learning, of what `save(inference=True)` writes, and of the file.

| stream | by | classes | columns, terms | difference | other labels | model | inference | ONNX |
|---|---|---:|---:|---:|---:|---:|---:|---:|
"""


def measure(source: Source, way: str, n_learned: int, n_predicted: int) -> dict[str, Any]:
    """Learn the first rows of a stream, export, and compare predictions of those behind them."""
    X, y, _ = _raw(source)
    if not source.in_order:
        order = np.random.default_rng(SEED).permutation(len(X))
        X, y = X[order], y[order]
    n_learned = min(n_learned, 2 * len(X) // 3)
    X = X[: n_learned + n_predicted].astype(float)
    model = Model()
    if way == "run":
        model.learn_many(X[:n_learned], y[:n_learned].tolist())
    else:
        rows = [dict(enumerate(x)) | {"class": k} for x, k in zip(X, y.tolist(), strict=False)]
        model.fit(rows[:n_learned], "class")
    new = X[n_learned:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        model.save(path / "model")
        model.save(path / "inference", inference=True)
        model.export(path / "onnx")
        sizes = {name: os.path.getsize(path / name) for name in ("model", "inference", "onnx")}
        session = onnxruntime.InferenceSession(path / "onnx")
    if way == "run":
        known, inputs = new, {"X": new}
    else:
        known = [dict(enumerate(x)) for x in new]
        names = {given.name for given in session.get_inputs()}
        inputs = {name: new[:, int(name)] for name in names}
    labels, P = session.run(["label", "probabilities"], inputs)
    assert model.pipeline is not None
    return {
        "stream": source.name,
        "by": way,
        "classes": len(model.labels),
        "columns": X.shape[1],
        "terms": model.pipeline.scaler.n_terms,
        "difference": float(np.abs(P - model.predict_proba(known)).max()),
        "other_labels": int((labels != np.array(model.predict(known))).sum()),
        "bytes": sizes,
    }


def main() -> None:
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--quick", action="store_true", help="synthetic rows, in seconds")
    options = parser.parse_args()
    sizes = {"n_learned": N_LEARNED, "n_predicted": N_PREDICTED}
    sources = [Source(name, options.data, None) for name in found_in(options.data, NAMES)]
    if options.quick:
        sizes = {"n_learned": 200, "n_predicted": 100}
        sources = [Source(name, None, 300) for name in SYNTHETIC]
    with threadpool_limits(1):
        rows = [measure(source, way, **sizes) for source in sources for way in WAYS]
    origin = provenance(
        "experiments.export.run", sys.argv[1:], seeds=(SEED,), sizes=sizes,
        libraries=("onnx", "onnxruntime"),
    )  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "export.json", {"provenance": origin, "streams": rows})
    text = HEAD.format(**sizes)
    for row in rows:
        cells = (
            row["stream"], f"`{row['by']}`", row["classes"], f"{row['columns']}, {row['terms']}",
            f"{row['difference']:.0e}", row["other_labels"],
            *(f"{n_bytes / 1e3:,.0f}" for n_bytes in row["bytes"].values()),
        )  # fmt: skip
        text += f"| {' | '.join(map(str, cells))} |\n"
    (options.out / "export.md").write_text(f"{text}\n{stated(origin)}\n")


if __name__ == "__main__":
    main()
