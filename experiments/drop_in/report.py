"""The results as JSON, as tables and as one figure."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from ..provenance import write_json
from .methods import FIT, ONE, SGD, SORTED, STRENGTHS, TUNED
from .summary import CLOSE

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Found = dict[str, Any]
ORDER = (FIT, ONE, SGD, TUNED)
COLOURS = {FIT: "C3", ONE: "C1", SGD: "C0", TUNED: "0.4"}


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
        _facts(found["sets"]), _late(found["late"]),
        _text(found["text"]), "![losses](drop_in.png)",
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
            f"{of[FIT]['loss']:.4f}", f"{of[ONE]['loss']:.4f}",
            f"{of[SGD]['loss']:.4f} ({low:.4f} to {high:.4f})", f"{of[TUNED]['loss']:.4f}",
            *(f"{gaps[other]['mean']:+.4f} ± {gaps[other]['standard_error']:.4f}"
              for other in (SGD, TUNED)),
            f"{found['ratio_to_tuned']:.3f}", f"{found['one_pass_ratio_to_tuned']:.3f}",
            f"{of[SORTED]['loss']:.4f}",
        ])  # fmt: skip
    head = ["set", "train", "test", "d", "K", *ORDER, "default − SGD", "default − tuned",
            "default / tuned", "one pass / tuned", SORTED]  # fmt: skip
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
        "## What they did\n\nSeconds of `fit`, several processes at once, so only roughly "
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


def _text(streams: Found) -> str:
    rows = [
        [name, str(found["T"]), str(found["categories"]),
         *(f"{loss:.4f}" for loss in found["losses"].values())]
        for name, found in streams.items()
    ]  # fmt: skip
    some = next(iter(streams.values()), {"losses": {}})
    widths = [f"{width} buckets" if width else "a column each" for width in some["losses"]]
    return (
        "## Hashed text\n\nAverage log loss of shuffled streams, mean of three seeds: categories "
        "in a 0/1 column each, or hashed.\n\n"
        + _table(["stream", "rounds", "categories", *widths], rows)
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
        where = np.arange(len(names)) + 0.15 * (place - 1.5)
        left.plot(where, ratios, "o", color=COLOURS[method], label=method)
    left.axhline(CLOSE, ls=":", color="0.6", lw=1)
    left.set(yscale="log", ylabel="held-out log loss / that of tuned LR")
    left.set_xticks(range(len(names)), names, rotation=40, ha="right")
    left.set_yticks([0.8, 1, 1.5, 2, 3, 5, 8], ["0.8", "1", "1.5", "2", "3", "5", "8"])
    left.minorticks_off()
    left.legend(fontsize=8)
    left.set_title("Held-out log loss (dotted: 2 % above tuned LR)")
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
