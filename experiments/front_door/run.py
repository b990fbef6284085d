"""What the front door promises: no trap in the order of rows, in saving, or in text.

Run from the root of the repository:  python -m experiments.front_door.run --data FOLDER
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import folklearn
from folklearn import FolkloreClassifier, Model

from ..provenance import provenance, write_json
from .report import plot, report

RESULTS = Path(__file__).parent / "results"
SORTED = ("adult", "weather", "satimage", "segment")
HELD_OUT, SEED = 0.3, 0
DRIFTING, CUTS, AHEAD, EVERY = "electricity", (10_000, 20_000, 30_000, 40_000), 2_000, 1_000
FOLDS, FIRST = 5, 6_000
TEXT = "banking77.csv.gz"

Found = dict[str, Any]


def read(folder: Path | None, name: str, quick: bool) -> tuple[Any, Any]:
    """Return rows and class numbers of a data set, or synthetic ones that drift."""
    if folder is None:
        rng = np.random.default_rng([SEED, len(name)])
        X = rng.normal(size=(1200, 4))
        turning = np.sin(np.arange(1200) / 200.0)
        return X, (X[:, 0] * turning + X[:, 1] + 0.3 * rng.normal(size=1200) > 0.0).astype(int)
    with np.load(folder / f"{name}.npz") as data:
        return data["X"].astype(float), data["y"].astype(int)


def loss(P: Any, y: Any) -> float:
    return float(-np.log(np.maximum(P[np.arange(len(y)), y], 1e-300)).mean())


def order(X: Any, y: Any) -> Found:
    """Fit rows as they are shuffled, and sorted by class; score rows held out."""
    rng = np.random.default_rng(SEED)
    rows = rng.permutation(len(y))
    n = int(len(y) * (1.0 - HELD_OUT))
    learned, test = rows[:n], rows[n:]
    by_class = learned[np.argsort(y[learned], kind="stable")]
    found = {}
    for name, own in (("shuffled", learned), ("sorted", by_class)):
        fitted = FolkloreClassifier().fit(X[own], y[own])
        found[name] = loss(fitted.predict_proba(X[test]), y[test])
    return {**found, "ratio": found["sorted"] / found["shuffled"]}


def folds(X: Any, y: Any) -> list[Found]:
    """Score five folds, in the order of time, beside LogisticRegression."""
    found = []
    for learned, test in KFold(FOLDS).split(X):
        ours = FolkloreClassifier().fit(X[learned], y[learned])
        peer = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        peer.fit(X[learned], y[learned])
        found.append(
            {
                "folklearn": loss(ours.predict_proba(X[test]), y[test]),
                "LogisticRegression": loss(peer.predict_proba(X[test]), y[test]),
            }
        )
    return found


def saved(X: Any, y: Any, cuts: Sequence[int], ahead: int, every: int) -> list[Found]:
    """Save the model at cuts, load it, and score it on the rows that follow."""
    model, found, at = Model(classes=np.unique(y).tolist()), [], 0  # as a first pass finds them
    with tempfile.TemporaryDirectory() as folder:
        while at + ahead <= len(y) and at <= max(cuts):
            if at >= min(cuts):
                model.save(Path(folder, "model.folk"))
                kept = folklearn.load(Path(folder, "model.folk"))
                found.append({"cut": at, **_scored(kept, X[at : at + ahead], y[at : at + ahead])})
            part = slice(at, at + every)
            model.learn_many(X[part], y[part].tolist())
            at += every
    return found


def _scored(model: Any, X: Any, y: Any) -> Found:
    columns = np.array([model.labels.index(label) for label in y.tolist()])
    core = model.pipeline
    Z = core.scaler.transform(X)
    experts = core.learner._expert_predictions(Z)
    losses = [loss(P, columns) for P in experts]
    best = int(np.argmin(losses))
    return {
        "saved": loss(core.predict(X), columns),
        "running": loss(core.predict_next(X), columns),
        "printed": model.metrics.holdout_loss,
        "best expert": losses[best],
        "its name": core.learner._expert_names()[best],
        "progressive": model.metrics.average_loss,
    }


def words(path: Path) -> Found:
    """Learn a file of sentences as it is."""
    model = Model()
    run = model.run(path, target="intent", shuffle=True)
    return {"rows": run.n_rows, "progressive": run.loss, "hold-out": run.holdout_loss,
            "error": run.error, "roles": model.roles}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="small synthetic data")
    options = parser.parse_args(arguments)
    if options.data is None and not options.quick:
        parser.error("--data FOLDER or --quick is needed")
    quick, folder = options.quick, None if options.quick else options.data
    names = SORTED[:1] if quick else SORTED
    cuts, ahead, every = ((400, 800), 200, 200) if quick else (CUTS, AHEAD, EVERY)
    with threadpool_limits(1):
        rows = {name: order(*read(folder, name, quick)) for name in track(names, "orders")}
        X, y = read(folder, DRIFTING, quick)
        found = {
            "order": rows,
            "folds": folds(X[:FIRST], y[:FIRST]),
            "cuts": cuts,
            "saved": saved(X, y, cuts, ahead, every),
            "words": words(folder / TEXT) if folder is not None else None,
        }
    sizes = {"cuts": cuts, "ahead": ahead, "every": every, "folds": FOLDS, "first": FIRST}
    origin = provenance("experiments.front_door.run", arguments, seeds=[SEED], sizes=sizes)
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "front_door.json", {"provenance": origin, **found})
    (options.out / "front_door.md").write_text(report(origin, found))
    plot(found, options.out / "front_door.png")
    print((options.out / "front_door.md").read_text())


if __name__ == "__main__":
    main()
