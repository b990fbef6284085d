"""The results as JSON, as tables and as one figure."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from ..provenance import write_json
from .methods import BOOSTED, FIT, LINES, ONE, SGD, STRENGTHS, TUNED
from .summary import CLOSE, CLOSE_TO_TREES

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Found = dict[str, Any]
ORDER = (FIT, LINES, ONE, SGD, TUNED, BOOSTED)
COLOURS = {FIT: "C3", LINES: "C4", ONE: "C1", SGD: "C0", TUNED: "0.4", BOOSTED: "C2"}


def write(folder: Path, origin: Found, found: Found) -> None:
    """Write drop_in.json, drop_in.md and drop_in.png."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"provenance": origin} | found
    write_json(folder / "drop_in.json", content)
    parts = [
        "# A drop-in classifier, and classes that nobody declared",
        f"`{origin['command']}`, commit {origin['commit'][:12]}, split "
        f"with seed {origin['split_seed']}; {origin['wall_s']:.0f} seconds.",
        _losses(found["sets"]), _counts(found), _accuracies(found["sets"]),
        _facts(found["sets"]), _late(found["late"]), "![losses](drop_in.png)",
    ]  # fmt: skip
    (folder / "drop_in.md").write_text("\n\n".join(parts) + "\n")
    _draw(found, folder / "drop_in.png")


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _losses(sets: Found) -> str:
    rows = []
    for name, found in sets.items():
        sizes, of = found["sizes"], found["methods"]
        low, high = of[SGD]["loss_range"]
        gaps = found["default_minus"]
        rows.append([
            name, *(str(sizes[key]) for key in ("train", "test", "d", "K")),
            *(f"{of[method]['loss']:.4f}" for method in (FIT, LINES, ONE)),
            f"{of[SGD]['loss']:.4f} ({low:.4f} to {high:.4f})",
            *(f"{of[method]['loss']:.4f}" for method in (TUNED, BOOSTED)),
            *(f"{gaps[other]['mean']:+.4f} ± {gaps[other]['standard_error']:.4f}"
              for other in (SGD, TUNED, BOOSTED)),
            *(f"{found[ratio]:.3f}" for ratio in ("ratio_to_tuned", "ratio_to_trees")),
            f"{found['one_pass_ratio_to_tuned']:.3f}",
        ])  # fmt: skip
    head = ["set", "train", "test", "d", "K", *ORDER, "default − SGD", "default − tuned",
            "default − trees", "default / tuned", "default / trees",
            "one pass / tuned"]  # fmt: skip
    return (
        "## Held-out log loss\n\nNats a row, probabilities floored at 1e-15; SGD: mean and range "
        "of five seeds. ± is the standard error of the difference over the test rows.\n\n"
        + _table(head, rows)
    )


def _counts(found: Found) -> str:
    def said(names: list[str]) -> str:
        return f"{len(names)} of {len(found['sets'])} ({', '.join(names) or 'none'})"

    return "\n".join([
        f"- Default below SGD's mean: {said(found['below_sgd'])}.",
        f"- Default below the best of SGD's seeds: {said(found['below_best_sgd'])}.",
        f"- One pass below SGD's mean: {said(found['one_pass_below_sgd'])}.",
        f"- Default at most {CLOSE:g} times tuned LogisticRegression: "
        f"{said(found['close_to_tuned'])}.",
        f"- Default at most {CLOSE_TO_TREES:g} times boosted trees: "
        f"{said(found['close_to_trees'])}.",
    ])  # fmt: skip


def _accuracies(sets: Found) -> str:
    rows = []
    for name, found in sets.items():
        cells = [f"{found['methods'][method]['accuracy']:.4f}" for method in ORDER]
        low, high = found["methods"][SGD]["accuracy_range"]
        cells[ORDER.index(SGD)] += f" ({low:.4f} to {high:.4f})"
        rows.append([name, *cells])
    return "## Held-out accuracy\n\n" + _table(["set", *ORDER], rows)


def _facts(sets: Found) -> str:
    rows = []
    for name, found in sets.items():
        of = found["methods"]
        rows.append([
            name, *(f"{of[method]['seconds']:.2f}" for method in ORDER),
            str(of[SGD]["iterations"]), f"{of[TUNED]['C']:g}", str(of[TUNED]["iterations"]),
        ])  # fmt: skip
    head = ["set", *(f"{method}, s" for method in ORDER), "SGD passes", "C", "LR iterations"]
    return (
        "## What they did\n\nSeconds of processor time of `fit`, beside other work: only roughly "
        "comparable; those of tuned LR contain the search. SGD passes: the most of any class and "
        f"seed. C: of {', '.join(f'{C:g}' for C in STRENGTHS)}. LR iterations: 1000 means that "
        "the solver was stopped.\n\n" + _table(head, rows)
    )


def _late(streams: Found) -> str:
    rows = []
    for name, found in streams.items():
        mean = found["mean"]
        for seed, one in enumerate([*found["seeds"], mean]):
            label = "mean" if seed == len(found["seeds"]) else str(seed)
            extra, plain = one["open"] - one["told_strict"], one["open"] - one["told_plain"]
            rows.append([
                name, f"{one['K']:.0f}", f"{one['T']:.0f}", label,
                f"{one['last_class_in_round']:.0f}",
                *(f"{one[key]:.2f}" for key in ("open", "told_strict", "told_plain")),
                f"{extra:+.2f}", f"{extra / one['T']:+.5f}",
                f"{plain:+.2f}", f"{plain / one['T']:+.5f}",
                f"{one['open_novelty']:.2f}",
                f"{one['open_on_other_rows'] - one['told_plain_on_other_rows']:+.2f}",
                f"{-one['told_plain_on_first_rows']:+.2f}",
            ])  # fmt: skip
    head = ["stream", "K", "rounds", "seed", "last class comes in round", "open", "told, strict",
            "told, plain", "extra over strict", "a round", "extra over plain", "a round",
            "new or not", "other rows", "first rows"]  # fmt: skip
    return (
        "## Classes as they come\n\n*One by one*: class k first comes after about k/(2K) of the "
        "rounds. Total log loss in nats; *open* and *told, strict* count −ln u "
        "and −ln((1−u) p). Extra over plain is the sum of the last three columns: the cost of "
        "saying whether a class is new; open − told on rows that are not the first of a class; "
        "minus what the told model pays for the first row of each class.\n\n" + _table(head, rows)
    )


def _draw(found: Found, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), constrained_layout=True)
    names = list(found["sets"])
    for place, method in enumerate(ORDER):
        ratios = [
            found["sets"][name]["methods"][method]["loss"]
            / found["sets"][name]["methods"][TUNED]["loss"]
            for name in names
        ]
        where = np.arange(len(names)) + 0.12 * (place - 2.5)
        left.plot(where, ratios, "o", color=COLOURS[method], label=method)
    left.axhline(CLOSE, ls=":", color="0.6", lw=1)
    left.set(yscale="log", ylabel="held-out log loss / that of tuned LR")
    left.set_xticks(range(len(names)), names, rotation=40, ha="right")
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    left.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    left.minorticks_off()
    left.legend(fontsize=8)
    left.set_title("Held-out log loss (dotted: 1 % above tuned LR)")
    for place, late in enumerate(found["late"].values()):
        for key, colour in (("extra_over_told_strict", "C3"), ("extra_over_told_plain", "C0")):
            label = key.replace("_", " ") if place == 0 else None
            right.plot([place] * len(late[key]), late[key], "o", color=colour, label=label)
    right.axhline(0.0, color="0.6", lw=1)
    right.set_xticks(range(len(found["late"])), list(found["late"]), rotation=20, ha="right")
    right.set(ylabel="extra nats over the whole stream", xlim=(-0.5, len(found["late"]) - 0.5))
    right.set_title("The price of classes as they come, each seed")
    right.legend(fontsize=8)
    figure.savefig(path, dpi=100)
    plt.close(figure)
