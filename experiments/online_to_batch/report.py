"""The results as JSON, Markdown and a picture."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from ..provenance import write_json
from .methods import METHODS, ONLINE
from .worlds import MISSPECIFIED

COLOURS = {name: f"C{place}" for place, name in enumerate(METHODS)}
Found = dict[str, Any]


def write(folder: Path, origin: Found, found: Found) -> None:
    """Write online_to_batch.json, .md and .png."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"provenance": origin} | found
    write_json(folder / "online_to_batch.json", content)
    _draw(found, len(origin["seeds"]), folder / "online_to_batch.png")
    parts = [
        "# Online to batch: excess risk against the size of the sample",
        f"`{origin['command']}`, commit {origin['commit'][:12]}, {len(origin['seeds'])} samples; "
        f"{origin['wall_s'] / 60:.1f} minutes.",
        *(_table(world, found) for world in found["worlds"]),
        "![excess risk](online_to_batch.png)",
        _guarantees(found),
    ]
    (folder / "online_to_batch.md").write_text("\n\n".join(parts) + "\n")


def _lines(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _table(world: str, found: Found) -> str:
    entry = found["worlds"][world]
    rows = []
    for name, curve in entry["methods"].items():
        cells = {
            T: f"{1000 * mean:.1f} ± {1000 * error:.1f}"
            for T, mean, error in zip(curve["T"], curve["mean"], curve["error"], strict=True)
        }
        rows.append([name, *(cells.get(T, "–") for T in found["T"])])
    rows.append(["*closed-form bound / T*", *(f"{1000 * bound:.0f}" for bound in found["bound"])])
    text = f"## {world.capitalize()}\n\nExcess risk over the best linear model of row norm 10 "
    text += f"(loss {entry['best_loss']:.4f}), in thousandths of a nat: mean over samples ± "
    text += "standard error."
    if world == MISSPECIFIED:
        text += f" The Bayes rule is at {1000 * entry['bayes_excess']:.1f}."
    return text + "\n\n" + _lines(["T =", *map(str, found["T"])], rows)


def _guarantees(found: Found) -> str:
    rows = []
    for world, entry in found["worlds"].items():
        for name, curve in entry["methods"].items():
            if None in curve["guarantee"] or not curve["T"]:
                continue
            cells = {
                T: f"{proven:.3f} / {mean:.3f}"
                for T, proven, mean in zip(
                    curve["T"], curve["guarantee"], curve["mean"], strict=True
                )
            }
            rows.append([world, name, *(cells.get(T, "–") for T in found["T"])])
    return (
        "## What is proven beside what is measured\n\n`guarantee()` / excess risk, nats, means "
        "over samples. Methods without a guarantee are not listed.\n\n"
        + _lines(["", "T =", *map(str, found["T"])], rows)
    )


def _draw(found: Found, n_seeds: int, path: Path) -> None:
    worlds = found["worlds"]
    figure, axes = plt.subplots(
        1, len(worlds), figsize=(6.2 * len(worlds), 5), constrained_layout=True, sharey=True
    )
    for axis, (world, entry) in zip(axes, worlds.items(), strict=True):
        for name, curve in entry["methods"].items():
            axis.errorbar(
                curve["T"], curve["mean"], curve["error"], lw=1.4, capsize=2, label=name,
                color=COLOURS[name], ls="-" if name in ONLINE else ":",
            )  # fmt: skip
        certified = entry["methods"][ONLINE[1]]
        axis.plot(certified["T"], certified["guarantee"], "0.4", label="certificate / T")
        axis.plot(found["T"], found["bound"], color="0.7", label="closed-form bound / T")
        axis.set(xscale="log", yscale="log", xlabel="size T of the sample", title=world)
        axis.grid(alpha=0.2)
    axes[0].set_ylabel("excess risk over the best linear model, nats")
    axes[0].legend(fontsize=7, loc="lower left")
    figure.suptitle(f"Excess risk: mean and standard error over {n_seeds} samples")
    figure.savefig(path, dpi=110)
    plt.close(figure)
