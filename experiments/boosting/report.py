"""The results as JSON, Markdown and pictures."""

from math import ceil
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from ..provenance import write_json
from .plan import FLOOR, METHODS, OLMPP, ONE, N
from .summary import largest
from .timing import PARTS, REGRESSION

COLOURS = {name: f"C{place}" for place, name in enumerate(METHODS)}
# A peer has one N; its mark stands beside it, so that marks do not hide each other.
MARKS = {
    "River AdaBoost": ("^", 1.15),
    "River ADWIN boosting": ("v", 1.3),
    "River BOLE": ("D", 1.5),
}
COLUMNS = 4
Found = dict[str, Any]


def write(folder: Path, origin: Found, found: Found) -> None:
    """Write boosting.json, boosting.md, accuracy.png and log_loss.png."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"provenance": origin} | found
    write_json(folder / "boosting.json", content)
    n_seeds = len(origin["seeds"])
    _draw(found["sets"], "accuracy", n_seeds, folder / "accuracy.png")
    _draw(found["sets"], "log_loss", n_seeds, folder / "log_loss.png")
    parts = [
        "# Online boosting",
        f"`{origin['command']}`, commit {origin['commit'][:12]}, seeds "
        f"{', '.join(map(str, origin['seeds']))}; {origin['wall_s'] / 60:.0f} minutes. Mean ± "
        f"standard error over the seeds, in the last 20 % of the rows, while still learning; {N} "
        "trees, and one.",
        "## Accuracy\n\n" + _scores(found["sets"], "accuracy"),
        "![accuracy against N](accuracy.png)",
        "The label of the largest probability, where a booster draws its label by Hedge:\n\n"
        + _scores(found["sets"], "accuracy_of_mixture", boosters=True),
        f"## Log loss\n\nIn nats; a probability below {FLOOR:g} counts as {FLOOR:g}, and the "
        "percentage in brackets is how often that happened.\n\n"
        + _scores(found["sets"], "log_loss"),
        "![log loss against N](log_loss.png)",
        "## Against one tree\n\nAccuracy minus that of one tree on the same rows, paired by seed.\n"
        "\n" + _differences(found["sets"], found["against_one_tree"], "accuracy"),
        "The same for log loss, where less is better.\n\n"
        + _differences(found["sets"], found["against_one_tree"], "log_loss"),
        "## OLM++ against the others\n\nAccuracy of OLM++ minus that of the other, paired by seed."
        "\n\n" + _differences(found["sets"], found["olmpp_against"], "accuracy"),
        "The same for log loss, where less is better.\n\n"
        + _differences(found["sets"], found["olmpp_against"], "log_loss"),
        _learners(found["learners"], found["sets"]),
        _split(found["split"]),
        _classes(found["classes"]),
        _times(found["sets"]),
    ]
    (folder / "boosting.md").write_text("\n\n".join(part for part in parts if part) + "\n")


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _played(sets: Found) -> list[str]:
    return [method for method in METHODS if any(method in methods for methods in sets.values())]


def _number(value: Found, *, sign: str = "") -> str:
    text = f"{value['mean']:{sign}.3f}"
    return text if value["error"] is None else f"{text} ± {value['error']:.3f}"


def _scores(sets: Found, metric: str, *, boosters: bool = False) -> str:
    least = metric == "log_loss"
    best = {
        name: (min if least else max)(largest(sizes)[metric]["mean"] for sizes in methods.values())
        for name, methods in sets.items()
    }
    rows = []
    for method in _played(sets):
        if boosters and not METHODS[method].booster:
            continue
        cells = [method]
        for name, methods in sets.items():
            if method not in methods:
                cells.append("–")
                continue
            scores = largest(methods[method])
            text = _number(scores[metric])
            if not boosters and scores[metric]["mean"] == best[name]:
                text = f"**{text}**"
            if least and scores["at_floor"]["mean"] > 0.0:
                text += f" ({100 * scores['at_floor']['mean']:.1f} %)"
            cells.append(text)
        rows.append(cells)
    return _table([metric.replace("_", " "), *sets], rows)


def _differences(sets: Found, pairs: Found, metric: str) -> str:
    rows = []
    for method, pair in pairs.items():
        if not pair["sets"]:
            continue
        cells = [method]
        for name in sets:
            difference = pair["sets"].get(name)
            cells.append("–" if difference is None else _number(difference[metric], sign="+"))
        count = pair[metric]
        cells += [
            f"{count['won']} ({count['clearly_won']})",
            f"{count['lost']} ({count['clearly_lost']})",
        ]
        rows.append(cells)
    return _table(["difference", *sets, "better (by 2 s.e.)", "worse (by 2 s.e.)"], rows)


def _learners(learners: Found, sets: Found) -> str:
    rows = []
    for name, methods in learners.items():
        one = largest(sets[name][ONE])["accuracy"]["mean"]
        for method, about in methods.items():
            prefixes, hedged = about["prefix_accuracy"], largest(sets[name][method])["accuracy"]
            best = max(range(len(prefixes)), key=prefixes.__getitem__)
            rows.append([
                name, method, f"{one:.3f}", f"{prefixes[0]:.3f}", f"{prefixes[-1]:.3f}",
                f"{prefixes[best]:.3f} ({best + 1})", f"{hedged['mean']:.3f}",
                _ends(about["weight"], ".2f"), _ends(about["leaves"], ".0f"),
                _ends(about["edge"], ".2f") if "edge" in about else "–",
            ])  # fmt: skip
    head = [
        "data set", "booster", "one tree", "prefix 1", f"prefix {N}", "best prefix", "Hedge",
        f"weight of an example, learners 1 / {N // 2} / {N}", "leaves", "edge",
    ]  # fmt: skip
    return (
        "## Inside the boosters\n\nAccuracies of the votes of the first, of all, and of the best "
        "number of learners, and what Hedge makes of them; then, for the first, middle and last "
        "learner, the mean importance that an example had for it (1 for a tree alone), the "
        "leaves of its tree at the end, and its edge over guessing.\n\n" + _table(head, rows)
    )


def _ends(values: list[float], form: str) -> str:
    shown = (values[0], values[len(values) // 2 - 1], values[-1])
    return " / ".join(format(value, form) for value in shown)


def _split(split: Found) -> str:
    if not split:
        return ""
    rows = []
    for name, parts in split.items():
        total = sum(parts.values())
        shares = [f"{100 * parts[part] / total:.1f} %" for part in PARTS]
        rows.append([name, f"{1e-3 * total:.2f}", *shares])
    worst = max(parts[REGRESSION] / sum(parts.values()) for parts in split.values())
    return (
        f"## Where the time of a round goes\n\n{OLMPP}, {N} trees, second half of the rows, the "
        f"clocks' own time included. Regression: at most {100 * worst:.1f} % of a round.\n\n"
        + _table(["data set", "ms a round", *PARTS], rows)
    )


def _classes(classes: Found) -> str:
    sizes = list(classes["regression"]["us"])
    rows = [
        [part, *(f"{entry['us'][K]:.2f}" for K in sizes), f"{entry['exponent']:.2f}"]
        for part, entry in classes.items()
    ]
    return (
        "## Time against the number of classes\n\nMicroseconds a learner and round of regression "
        "(predict and learn) and cost matrix, and the exponent of K in what doubling K adds, which "
        "leaves out the fixed cost of a call.\n\n" + _table(["K", *sizes, "exponent"], rows)
    )


def _times(sets: Found) -> str:
    rows = []
    for method in _played(sets):
        cells = [method]
        for methods in sets.values():
            time = largest(methods[method])["ms_per_round"] if method in methods else None
            cells.append("–" if time is None else f"{time:.2f}")
        rows.append(cells)
    return (
        "## The cost of a round\n\nMilliseconds of processor time, predict and learn, median over "
        "the seeds.\n\n" + _table(["ms", *sets], rows)
    )


def _draw(sets: Found, metric: str, n_seeds: int, path: Path) -> None:
    n_rows = ceil((len(sets) + 1) / COLUMNS)  # the legend has a panel too
    figure, axes = plt.subplots(
        n_rows, COLUMNS, figsize=(4 * COLUMNS, 3.4 * n_rows), constrained_layout=True, squeeze=False
    )
    panels = list(axes.flat)
    handles: Found = {}
    for axis, (name, methods) in zip(panels, sets.items(), strict=False):
        for method, sizes in methods.items():
            handles[method] = _curve(axis, method, sizes, metric)
        axis.set(xscale="log", title=name, xlabel="N", ylabel=metric.replace("_", " "))
        ticks = [int(size) for size in methods[OLMPP]]
        axis.set_xticks(ticks, map(str, ticks))
        axis.minorticks_off()
        if metric == "log_loss":
            axis.set_yscale("log")
        axis.grid(alpha=0.2)
    for axis in panels[len(sets) :]:
        axis.axis("off")
    panels[len(sets)].legend(handles.values(), handles.keys(), loc="center")
    figure.suptitle(
        f"{metric.replace('_', ' ').capitalize()} over the last 20 % against the number N of "
        f"Hoeffding trees: mean ± standard error, {n_seeds} seed{'s' * (n_seeds > 1)}"
    )
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _curve(axis: Any, method: str, sizes: Found, metric: str) -> Any:
    """Draw one method: a level for one tree, a mark for a peer, a curve for a booster."""
    colour = COLOURS[method]
    N_, means, errors = [], [], []
    for size, scores in sizes.items():
        N_.append(int(size))
        means.append(scores[metric]["mean"])
        errors.append(scores[metric]["error"] or 0.0)
    if method == ONE:
        axis.axhspan(means[0] - errors[0], means[0] + errors[0], color="0.5", alpha=0.2, lw=0)
        return axis.axhline(means[0], color="0.3", ls="--")
    line = "none" if method in MARKS else "-"
    mark, aside = MARKS.get(method, ("o", 1.0))
    places = [aside * n for n in N_]
    return axis.errorbar(
        places, means, yerr=errors, color=colour, ls=line, marker=mark, ms=5, lw=1.4, capsize=2
    )
