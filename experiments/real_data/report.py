"""The results as JSON, one Markdown table and one plot."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .metric import FLOOR
from .peers import FAMILIES
from .play import LATE

LEARNER = "auto()"
TITLE = f"Log loss of each tuned peer over that of {LEARNER}, untuned"


def write(folder: Path, origin: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Write all three files."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"provenance": origin, "floor": FLOOR, "late": LATE, "data_sets": found}
    (folder / "real_data.json").write_text(_compact(json.dumps(content, indent=1)) + "\n")
    (folder / "real_data.md").write_text(table(origin, found))
    plot(found, folder / "real_data.png")


def _compact(text: str) -> str:
    """Put lists of numbers on one line."""
    return re.sub(r"\[[-+\d.eE,\s]*\]", lambda m: re.sub(r"\s+", " ", m[0]), text)


def table(origin: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    lines = [
        "Progressive log loss in nats per example, mean over the streams; `auto()` is untuned,",
        "the peers are tuned in hindsight. *Margin* is the best peer's loss less ours. µs per",
        "example in parentheses. *× Folklore* is our time over that of one `Folklore(B=10)`, over",
        f"all rounds / after round {LATE:,}.",
        "",
        "| data set | rows | K | streams | `auto()` | best River | best VW "
        "| best SGDClassifier | margin | × Folklore |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(name, entry) for name, entry in found.items()]
    return "\n".join([*lines, "", *_counts(found), "", f"`{origin['command']}`"]) + "\n"


def _row(name: str, entry: Mapping[str, Any]) -> str:
    ours, peers = entry["ours"], entry["peers"]
    lowest = min([ours["loss"], *(peer["loss"] for peer in peers.values())])

    def number(loss: float) -> str:
        return f"**{loss:.4f}**" if loss == lowest else f"{loss:.4f}"

    cells = [
        name + (" (in order)" if entry["order"] != "shuffled" else ""),
        str(entry["rows"]),
        str(entry["K"]),
        str(entry["streams"]),
        f"{number(ours['loss'])} ({ours['us']:.0f})",
    ]
    for family in FAMILIES:
        peer = peers[family]
        edge = "" if peer["interior"] else ", **edge of the grid**"
        cells.append(f"{number(peer['loss'])} ({peer['us']:.0f}): {peer['setting']}{edge}")
    late = "–" if entry["late_ratio"] is None else f"{entry['late_ratio']:.1f}"
    cells += [f"{entry['margin']:+.4f}", f"{entry['ratio']:.1f} / {late}"]
    return "| " + " | ".join(cells) + " |"


def _counts(found: Mapping[str, Any]) -> list[str]:
    entries = found.values()
    won = sum(entry["won"] for entry in entries)
    streams = sum(entry["streams"] for entry in entries)
    won_streams = sum(entry["won_streams"] for entry in entries)
    late = [entry["late_ratio"] for entry in entries if entry["late_ratio"] is not None]
    edges = [
        f"{name}: {curve['best']}"
        for name, entry in found.items()
        for curve in entry["tuning"]
        if not curve["interior"]
    ]
    gap = max(peer["largest_gap"] for entry in entries for peer in entry["peers"].values())
    return [
        f"- `auto()` is below the best tuned peer on {won} of {len(found)} data sets"
        f" ({won_streams} of {streams} streams), above it on {len(found) - won}.",
        f"- After round {LATE:,} it takes at most 3 times one Folklore on"
        f" {sum(ratio <= 3.0 for ratio in late)} of the {len(late)} data sets that are longer.",
        "- Best point strictly inside its grid for every tuned variant."
        if not edges
        else "- Best point at an end of its grid (none further was tried): " + "; ".join(edges),
        "- Largest difference between a probability of a peer's library and of the replica"
        f" that tuned it: {gap:.1e}.",
    ]


def plot(found: Mapping[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter

    names = sorted(found, key=lambda name: found[name]["margin"] / found[name]["ours"]["loss"])
    figure, axis = plt.subplots(figsize=(8, 1.4 + 0.42 * len(names)), constrained_layout=True)
    highest = 1.0
    for family, marker in zip(FAMILIES, "os^", strict=True):
        ratios = [found[n]["peers"][family]["loss"] / found[n]["ours"]["loss"] for n in names]
        highest = max(highest, *ratios)
        axis.plot(ratios, range(len(names)), marker, label=f"{family}, tuned", alpha=0.85)
    axis.axvline(1.0, color="0.3", linewidth=1)
    axis.set_yticks(range(len(names)), names)
    axis.set(xscale="log", xlabel="ratio of log losses; right of the line, folklearn is better")
    step = 0.1 if highest < 1.7 else 0.25 if highest < 3 else 1.0
    low = min(1.0, axis.get_xlim()[0])
    ticks = [1 + step * i for i in range(-9, 40) if low <= 1 + step * i <= highest * 1.05]
    axis.set_xticks(ticks)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.grid(axis="both", alpha=0.25)
    axis.legend(loc="best")
    axis.set_title(TITLE, fontsize=10)
    figure.savefig(path, dpi=130)
    plt.close(figure)
