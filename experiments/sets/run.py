"""Prediction sets on line beside split conformal sets of the same probabilities.

Run from the root of the repository:  python -m experiments.sets.run --data FOLDER
Every model predicts a row before it learns it, and both kinds of sets are made of these
probabilities. Split conformal ones have the quantile of the third quarter of the rows, as MAPIE
computes it (it is used where it is installed) and as written here; all are compared on the last.
"""

import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn import Model
from folklearn.evaluate import PredictionSets

from ..data import NAMES, SYNTHETIC, Source, add_folder, found_in, stream
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance, stated, write_json

RESULTS = Path(__file__).parent / "results"
MOST_ROWS, QUICK_ROWS = 20_000, 400
COVERAGE = 0.9
FIRST_ROWS = 5000
WINDOW = 1000  # rows of a miss rate in the picture

Numbers = NDArray[np.float64]


def predict_on_line(source: Source, seed: int) -> tuple[Numbers, NDArray[np.int64]]:
    """Return P (T, K) of every row before its label was learned, all classes declared, and y."""
    rows = stream(source, seed)
    model = Model(classes=range(rows.K))
    return model.learn_many(rows.X[:, :-1], rows.y).P, rows.y


def split_conformal(P: Numbers, y: NDArray[np.int64], coverage: float) -> float:
    """Return the threshold of 1 - p that holds for rows exchangeable with these."""
    scores = np.sort(1.0 - P[np.arange(len(y)), y])
    place = int(np.ceil((len(y) + 1) * coverage)) - 1
    return float(scores[place]) if place < len(y) else 1.0


def sets_of_mapie(
    P: Numbers, y: NDArray[np.int64], calibrated: slice, last: slice, coverage: float
) -> NDArray[np.bool_] | None:
    """Return the sets (T, K) of the last rows by MAPIE, of a model that looks P up; or None."""
    if find_spec("mapie") is None:
        return None
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Lookup(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> Any:
            self.classes_, self.fitted_ = np.arange(P.shape[1]), True
            return self

        def predict_proba(self, X: Any) -> Numbers:
            return P[np.asarray(X)[:, 0].astype(int)]

        def predict(self, X: Any) -> Any:
            return self.predict_proba(X).argmax(axis=1)

    places = np.arange(len(P), dtype=float)[:, None]
    conformal = SplitConformalClassifier(
        Lookup().fit(places, y), confidence_level=coverage, conformity_score="lac", prefit=True
    ).conformalize(places[calibrated], y[calibrated])
    chosen: NDArray[np.bool_] = conformal.predict_set(places[last])[1][:, :, 0]
    return chosen


def compare(source: Source, coverage: float, seed: int) -> dict[str, Any]:
    """Return miss rates and sizes of one stream; sizes and shown misses are of the last quarter."""
    P, y = predict_on_line(source, seed)
    T = len(y)
    p, best = P[np.arange(T), y], P.argmax(axis=1)
    sets, q = PredictionSets(coverage), np.empty(T)
    for t in range(T):
        q[t] = sets.thresholds[0, 0]
        sets.observe(p[t], 0)
    (record,) = sets.records()
    calibrated, last = slice(T // 2, 3 * T // 4), slice(3 * T // 4, T)
    by_hand = split_conformal(P[calibrated], y[calibrated], coverage)
    misses = {"on line": 1.0 - p > q, "split": 1.0 - p > by_hand}
    chosen = {"on line": 1.0 - P[last] <= q[last, None], "split": 1.0 - P[last] <= by_hand}
    of_mapie = sets_of_mapie(P, y, calibrated, last, coverage)
    if of_mapie is not None:
        chosen["MAPIE"] = of_mapie
    methods, every = {}, np.arange(T - last.start)
    for name, are_in in chosen.items():
        before = 1.0 - np.mean(are_in[every, y[last]])
        are_in[every, best[last]] = True
        methods[name] = {
            "miss_rate": float(before),
            "shown_miss_rate": 1.0 - float(np.mean(are_in[every, y[last]])),
            "size": float(are_in.sum(axis=1).mean()),
        }
    window = min(WINDOW, T // 4)
    rolling = {
        name: np.convolve(one, np.ones(window) / window, "valid")[:: max(1, T // 200)]
        for name, one in misses.items()
    }
    return {
        "rows": T,
        "classes": P.shape[1],
        "error": float(np.mean(best != y)),
        "miss_rate": record.miss_rate,
        "bound": record.bound,
        "later_miss_rate": float(np.mean(misses["on line"][FIRST_ROWS:]))
        if T > FIRST_ROWS
        else None,
        "methods": methods,
        "rolling": {name: np.round(one, 4).tolist() for name, one in rolling.items()},
    }


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| stream | error | missed, all rows | bound | after 5,000 | missed, last quarter | shown "
        "sets missed | size | split: missed | shown | size | MAPIE: shown | size |",
        "|" + "---|" * 13,
    ]
    for name, row in rows.items():
        cells = [name, f"{row['error']:.1%}", f"{row['miss_rate']:.2%}", f"± {row['bound']:.2%}"]
        later = row["later_miss_rate"]
        cells.append("-" if later is None else f"{later:.2%}")
        for method in ("on line", "split", "MAPIE"):
            found = row["methods"].get(method)
            if found is None:
                cells += ["-", "-"]
                continue
            rates = (found["miss_rate"], found["shown_miss_rate"])[method == "MAPIE" :]
            cells += [f"{rate:.2%}" for rate in rates] + [f"{found['size']:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(rows: Mapping[str, Mapping[str, Any]], coverage: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n_down = -(-len(rows) // 2)
    figure, axes = plt.subplots(
        n_down, 2, figsize=(9, 1.7 * n_down + 0.6), layout="constrained", sharey=True, squeeze=False
    )
    for axis, (name, row) in zip(axes.flat, rows.items(), strict=False):
        for (method, rates), look in zip(row["rolling"].items(), ("-", "--"), strict=True):
            window = min(WINDOW, row["rows"] // 4)
            axis.plot(np.linspace(window, row["rows"], len(rates)), rates, look, label=method)
        axis.axhline(1.0 - coverage, color="0.5", linewidth=0.8)
        axis.axvspan(row["rows"] / 2, 3 * row["rows"] / 4, color="0.9")
        axis.set_title(name, fontsize=9)
        axis.locator_params(axis="x", nbins=4)
    axes.flat[0].legend(fontsize=8)
    figure.supylabel(f"missed, of the last {WINDOW:,} rows, or the last quarter of all")
    figure.supxlabel("row; grey: calibration of the split sets")
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two short synthetic streams")
    options = parser.parse_args(arguments)
    names = list(SYNTHETIC) if options.quick else found_in(options.data, NAMES)
    folder, most = (None, QUICK_ROWS) if options.quick else (options.data, MOST_ROWS)
    has_mapie = find_spec("mapie") is not None
    origin = provenance(
        "experiments.sets.run", arguments, seeds=[options.seed],
        sizes={"most_rows": most, "coverage": COVERAGE}, libraries=["mapie"] * has_mapie,
    )  # fmt: skip
    one = partial(compare, coverage=COVERAGE, seed=options.seed)
    calls = {(name,): (one, (Source(name, folder, most),)) for name in names}
    with progress() as bar:
        found = call_all(1 if options.quick else options.jobs, bar, "streams", calls)
    rows = {name: found[name,] for name in names}
    parts = [
        "# Prediction sets on line beside split conformal sets",
        f"{stated(origin)}, seed {options.seed}. Coverage {COVERAGE:.0%}. Missed: by sets before "
        "the most probable class is added; shown: after that, and so are all sizes.",
        table(rows),
    ]
    options.out.mkdir(exist_ok=True)
    write_json(options.out / "sets.json", {"provenance": origin, "streams": rows})
    (options.out / "sets.md").write_text("\n\n".join(parts) + "\n")
    plot(rows, COVERAGE, options.out / "sets.png")
    print((options.out / "sets.md").read_text())


if __name__ == "__main__":
    main()
