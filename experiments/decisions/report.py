"""Tables and a picture of what was played."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..pool import Key
from ..provenance import stated, write_json
from .arenas import REAL

_PROVEN = ("regret", "bound", "explored", "nats")


def best_settings(played: Mapping[Key, tuple[float, float]]) -> dict[str, dict[str, Any]]:
    """Return for each stream and player the setting of the best mean reward over all seeds."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for (stream, player, setting, _), result in sorted(played.items()):
        found[stream, player, setting].append(result)
    best: dict[str, dict[str, Any]] = defaultdict(dict)
    for (stream, player, setting), results in found.items():
        rewards, seconds = np.array(results).T
        entry = {
            "reward": float(rewards.mean()),
            "rewards": rewards.tolist(),
            "setting": setting,
            "seconds": float(seconds.mean()),
        }
        if entry["reward"] > best[stream].get(player, {"reward": -1.0})["reward"]:
            best[stream][player] = entry
    return dict(best)


def rewards_table(best: Mapping[str, Mapping[str, Any]]) -> str:
    """Return mean rewards; the best VW variant is the best of all of its settings."""
    players = list(dict.fromkeys(player for own in best.values() for player in own))
    lines = [
        "| mean reward | " + " | ".join(players) + " | auto − best VW |",
        "|---" * (len(players) + 2) + "|",
    ]
    n_real = n_won = 0
    for stream, own in best.items():
        vw = max(entry["reward"] for player, entry in own.items() if player.startswith("vw"))
        gap = own["ours auto"]["reward"] - vw
        n_real, n_won = n_real + (stream in REAL), n_won + (stream in REAL and gap >= 0.0)
        cells = [f"{own[p]['reward']:.4f}" if p in own else "" for p in players]
        lines.append(f"| {stream} | " + " | ".join(cells) + f" | {gap:+.4f} |")
    won = (
        "`bandits.auto`, untuned, has at least the reward of the best VW variant and setting of "
        f"hindsight on {n_won} of {n_real} conversions."
    )
    return "\n".join(lines) + (f"\n\n{won}" if n_real else "")


def details_table(best: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what hindsight chose, the spread over seeds, and the time."""
    lines = ["| stream | player | best setting | reward | least | most | s |", "|---" * 7 + "|"]
    for stream, own in best.items():
        for player, entry in own.items():
            rewards = entry["rewards"]
            lines.append(
                f"| {stream} | {player} | {entry['setting']} | {entry['reward']:.4f} | "
                f"{min(rewards):.4f} | {max(rewards):.4f} | {entry['seconds']:.1f} |"
            )
    return "\n".join(lines)


def bound_table(proven: Mapping[Key, Mapping[str, float]]) -> str:
    """Return regret and its bound, means over the seeds."""
    groups: dict[tuple[str, ...], list[Mapping[str, float]]] = defaultdict(list)
    for (*group, _), result in proven.items():
        groups[tuple(group)].append(result)
    lines = [
        "| rewards | contexts | exploration, strength | regret | bound | explored | nats |",
        "|---" * 7 + "|",
    ]
    for group, results in groups.items():
        means = [np.mean([one[name] for one in results]) for name in _PROVEN]
        lines.append(f"| {' | '.join(group)} | " + " | ".join(f"{m:.1f}" for m in means) + " |")
    return "\n".join(lines)


def write(folder: Path, origin: dict[str, Any], played: Any, proven: Any) -> None:
    """Write decisions.json, decisions.md and decisions.png."""
    folder.mkdir(parents=True, exist_ok=True)
    best = best_settings(played)
    everything = [[*key, *result] for key, result in sorted(played.items())]
    bounds = [[*key, result] for key, result in proven.items()]
    content = {"provenance": origin, "best": best, "bounds": bounds, "played": everything}
    write_json(folder / "decisions.json", content)
    T = origin["sizes"]
    parts = [
        "# Decisions for rewards",
        f"{stated(origin)}; {origin['wall_s']:.0f} seconds.",
        f"Mean reward of up to {T['rounds']} rounds, over {len(origin['seeds'])} seeds.",
        rewards_table(best),
        f"## Proven regret, {T['rounds of the bound']} rounds",
        bound_table(proven),
        "## Settings, spread, time",
        details_table(best),
    ]
    (folder / "decisions.md").write_text("\n\n".join(parts) + "\n")
    _draw(folder / "decisions.png", best)


def _draw(path: Path, best: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the reward of everybody, stream by stream."""
    import matplotlib.pyplot as plt

    marks = {"ours auto": "^", "vw": "s", "linucb": "x", "thompson": "+"}
    figure, axes = plt.subplots(figsize=(8.0, 0.4 * len(best) + 1.2), layout="constrained")
    for y, (stream, own) in enumerate(best.items()):
        for player, entry in own.items():
            mark = next((m for name, m in marks.items() if player.startswith(name)), None)
            if mark is not None:
                axes.plot(entry["reward"], y, mark, color="k", mfc="none" if mark == "s" else "k")
        axes.text(1.005, y, stream, transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.set_xlabel("mean reward (▲ bandits.auto, □ VW's variants tuned, × LinUCB, + Thompson)")
    figure.savefig(path, dpi=120)
    plt.close(figure)
