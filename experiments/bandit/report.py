"""The results as JSON, Markdown and pictures."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from ..provenance import write_json
from .plan import AGENTS, REFERENCE_ROUNDS, SAMPLED, THEORY

_SHADES = plt.colormaps["tab10"].colors
STYLES = {name: {"color": _SHADES[place % 10]} for place, name in enumerate(AGENTS)}
Found = dict[str, Any]


def write(folder: Path, origin: Found, found: Found) -> None:
    """Write bandit.json, bandit.md and bandit.png."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"provenance": origin} | found
    write_json(folder / "bandit.json", content)
    _draw(found["streams"], len(origin["seeds"]), folder / "bandit.png")
    parts = [
        "# Bandit feedback",
        f"`{origin['command']}`, commit {origin['commit'][:12]}, seeds "
        f"{', '.join(map(str, origin['seeds']))}; {origin['wall_s'] / 60:.0f} minutes.",
        _errors(found["streams"]),
        "![mistakes against rounds](bandit.png)",
        _reference(found["reference"], origin),
        _bound(found["bound"]),
        _updates(found["streams"]),
        _times(found["times"]),
    ]
    (folder / "bandit.md").write_text("\n\n".join(part for part in parts if part) + "\n")


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _errors(streams: Found) -> str:
    rows = []
    for name in AGENTS:
        cells = [name]
        for found in streams.values():
            agent = found["agents"].get(name)
            if agent is None:
                cells.append("–")
                continue
            settings = agent["settings"]
            tuned = settings[agent["tuned"]]
            text = f"{tuned['error']:.3f}"
            if tuned["exploration"] and agent["tuned"] != "None":
                text += f" (2^{np.log2(tuned['exploration']):.0f})"
            if THEORY in settings:
                theory = settings[THEORY]
                text += f" / {theory['error']:.3f} ({theory['exploration']:.2g})"
            cells.append(text)
        rows.append(cells)
    head = [
        "error rate",
        *(f"{name}, T = {found['rounds'][-1]}" for name, found in streams.items()),
    ]
    return (
        "Tuned exploration, chosen in hindsight from 2^-9, 2^-7, 2^-5, 2^-3 by the mean over seeds "
        "(the exploration), and, behind the slash, the exploration of each agent's theory for "
        "this horizon.\n\n" + _table(head, rows)
    )


def _reference(rows: list[Found], origin: Found) -> str:
    if not rows or origin["sizes"]["SynSep"]["rounds"] != REFERENCE_ROUNDS:
        return ""
    cells = [
        [
            row["stream"], row["agent"], f"2^{np.log2(row['exploration']):.0f}",
            f"{row['mean']:.3f}", f"{row['median']:.3f}",
            f"{row['least']:.3f}–{row['most']:.3f}", f"{row['reference']:.3f}",
            f"{row['mean'] - row['reference']:+.3f}", f"{row['median'] - row['reference']:+.3f}",
        ]
        for row in rows
    ]  # fmt: skip
    head = ["stream", "agent", "exploration", "mean", "median", "range", "reference",
            "mean − reference", "median − reference"]  # fmt: skip
    return (
        "## Beside an independent implementation\n\nThe reference is the median of five seeds "
        "(Banditron) or three (SOBA).\n\n" + _table(head, cells)
    )


def _bound(rows: list[Found]) -> str:
    cells = [
        [
            row["decoding"], row["updates"], f"{row['exploration']:.3f}", f"{row['learned']:.0f}",
            f"{row['mistakes']:.0f}", f"{row['bound']:.0f}", f"{row['loss']:.0f}",
            f"{row['standard_error']:.1f}", "yes" if row["holds"] else "**no**",
        ]
        for row in rows
    ]  # fmt: skip
    head = ["decoding", "updates", "exploration", "examples learned", "mean mistakes",
            "mean bound", "loss of the best model", "standard error", "holds"]  # fmt: skip
    return (
        "## The theorem\n\nA stochastic stream, d = 2, K = 3, B = 3, exploration by the horizon; "
        "it holds if the mean of mistakes is below the mean bound plus three standard errors.\n\n"
        + _table(head, cells)
    )


def _updates(streams: Found) -> str:
    rows = []
    for name, found in streams.items():
        for agent, entry in found["agents"].items():
            if agent != SAMPLED:
                continue
            for setting in entry["settings"].values():
                if setting["updates"] is None:
                    continue
                share = setting["updates"] / found["rounds"][-1]
                rows.append([name, f"{setting['exploration']:.4f}", f"{share:.5f}",
                             f"{share / setting['exploration']:.3f}"])  # fmt: skip
    head = ["stream", "exploration", "share of rounds that learn", "share / exploration"]
    return (
        "## How rarely the paper's reduction learns\n\nFOLKLORE, sampled. One in K explorations is "
        "correct: the last column is 1/K, up to chance.\n\n" + _table(head, rows)
    )


def _times(rows: Found) -> str:
    cells = [
        [name, f"{row['times_banditron']:.1f}", f"{row['error']:.3f}"] for name, row in rows.items()
    ]
    return (
        "## The cost of a round\n\nSynSep with d = 40, K = 9, exploration 2^-5, act and learn, in "
        "multiples of Banditron in the same run (median of seeds), and error rates of these "
        "short runs.\n\n" + _table(["agent", "× Banditron", "error rate"], cells)
    )


def _draw(streams: Found, n_seeds: int, path: Path) -> None:
    figure, axes = plt.subplots(
        2, len(streams), figsize=(4.2 * len(streams), 8), constrained_layout=True, squeeze=False
    )
    for column, (stream, found) in enumerate(streams.items()):
        T = np.array(found["rounds"])
        for row in (0, 1):
            axis = axes[row, column]
            for name, agent in found["agents"].items():
                key = agent["tuned"] if row == 0 else THEORY
                if key not in agent["settings"]:
                    continue
                curve = agent["settings"][key]
                mean, low, high = (np.array(curve[part]) / T for part in ("mean", "low", "high"))
                axis.plot(T, mean, label=name, lw=1.4, **STYLES[name])
                colour = STYLES[name]["color"]
                axis.fill_between(T, low, high, color=colour, alpha=0.15, lw=0)
            axis.set(xscale="log", xlabel="rounds", ylim=(0.0, 1.0))
            axis.set_title(f"{stream}, {'tuned' if row == 0 else 'theoretical'} exploration")
            axis.grid(alpha=0.2)
    for axis in axes[:, 0]:
        axis.set_ylabel("mistakes per round so far")
    axes[0, -1].legend(fontsize=7, loc="lower left")  # every agent is in this panel
    figure.suptitle(f"Mistakes under bandit feedback: mean and range over {n_seeds} seeds")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def write_million(folder: Path, origin: Found, found: Found) -> None:
    """Write million.json, million.md and million.png."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"provenance": origin} | found
    write_json(folder / "million.json", content)
    T, wrong = found["rounds"][-1], found["mistakes"][-1]
    later = [(t, m) for t, m in zip(found["rounds"], found["mistakes"], strict=True) if t <= T / 2]
    half, half_wrong = later[-1]
    (folder / "million.md").write_text(
        f"# SynSep, {T} rounds\n\n`{origin['command']}`, commit {origin['commit'][:12]}.\n\n"
        f"FOLKLORE in the paper's reduction, d = 400, K = 9, exploration "
        f"{found['exploration']:g}: {wrong} mistakes ({wrong / T:.2%}; "
        f"{(wrong - half_wrong) / (T - half):.2%} after round {half}), {found['updates']} rounds "
        f"learned ({found['updates'] / T:.3%}), {found['seconds'] / 60:.1f} minutes of acting "
        f"and learning, {1e6 * found['seconds'] / T:.0f} µs a round.\n\n![mistakes](million.png)\n"
    )
    figure, axis = plt.subplots(figsize=(6, 4), constrained_layout=True)
    rounds = np.array(found["rounds"])
    axis.plot(rounds, np.array(found["mistakes"]) / rounds)
    axis.axhline(found["exploration"] * 8 / 9, ls=":", color="0.5", label="exploration alone")
    axis.set(xscale="log", yscale="log", xlabel="rounds", ylabel="mistakes per round")
    axis.set_title("FOLKLORE in the paper's reduction on SynSep")
    axis.legend()
    figure.savefig(folder / "million.png", dpi=100)
    plt.close(figure)
