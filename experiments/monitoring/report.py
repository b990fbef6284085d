"""The table and the pictures of the experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from folklearn import plots

from ..provenance import stated
from .detectors import ALPHA, DETECTORS

MARK = "#c44e52"


def table(content: Mapping[str, Any]) -> str:
    """Return all results as a page."""
    lines = [
        "# Monitoring: false alarms and delays",
        "",
        f"{stated(content['provenance'])}. Everybody sees the same losses, of a model that learns",
        f"each row after it was predicted. Monitor: alpha = {ALPHA:g}, the probability that a",
        "stream that stands still has *ever* an alarm. The others are River's, with their",
        "defaults; of ADWIN only the alarms at which its mean rose.",
        "",
        "## Streams that stand still: how many had an alarm",
        "",
        f"| stream | learner | rows | streams | {' | '.join(DETECTORS)} |",
        f"|---|---|---|---|{'---|' * len(DETECTORS)}",
    ]
    still = content["still"]
    for group in still:
        cells = [f"{group['with_alarm'][name]}" for name in DETECTORS]
        lines.append(
            f"| {group['name']} | {group['learner']} | {group['rows']:,} | {group['streams']} "
            f"| {' | '.join(cells)} |"
        )
    streams = sum(group["streams"] for group in still)
    totals = {name: sum(group["with_alarm"][name] for group in still) for name in DETECTORS}
    shares = " | ".join(f"**{totals[name] / streams:.1%}**" for name in DETECTORS)
    lines.append(f"| **all** | | | **{streams}** | {shares} |")
    held = "holds" if totals["Monitor"] <= ALPHA * streams else "**does not hold**"
    lines += [
        "",
        f"Stated rate of the monitor: at most {ALPHA:.0%} of the streams. It {held}: "
        f"{totals['Monitor']} of {streams}.",
        "",
        "## Streams that change: found, and rows until then",
        "",
        "Streams with an alarm after the change, and before the next one; the median of the rows",
        "until then; *early*: streams with an alarm before the change.",
        "",
        f"| change | learner | streams | {' | '.join(DETECTORS)} |",
        f"|---|---|---|{'---|' * len(DETECTORS)}",
    ]
    for group in content["changes"]:
        cells = [_cell(group["found"][name]) for name in DETECTORS]
        lines.append(
            f"| {group['kind']} | {group['learner']} | {group['streams']} | {' | '.join(cells)} |"
        )
    lines += ["", "## Real streams, in the order of time", ""]
    for replay in content["replays"]:
        peers = ", ".join(f"{name} {len(rows)}" for name, rows in replay["peers"].items())
        lines += [f"**{replay['title'].capitalize()}.** Alarms: {peers}.", ""]
        lines += [f"- {sentence}" for sentence in replay["in_words"]]
        lines += ["", f"![{replay['title']}]({picture_name(replay)})", ""]
    return "\n".join([*lines, "![delays](delays.png)", ""])


def _cell(found: Mapping[str, Any]) -> str:
    early = f", early {found['early']}" if found["early"] else ""
    if not found["delays"]:
        return f"none{early}"
    return f"{len(found['delays'])}, {np.median(found['delays']):.0f} rows{early}"


def picture_name(replay: Mapping[str, Any]) -> str:
    """Return the file of a picture of a real stream."""
    words = replay["title"].replace(",", "").replace(":", "").split()
    return f"{words[0]}-{words[-1]}.png"


def draw_replay(replay: Mapping[str, Any], folder: Path) -> None:
    """Draw loss and floor of every window, and the alarms among them."""
    windows = [{**one, "lower_bound": _or_nan(one["floor"])} for one in replay["windows"]]
    figure = plots.losses(windows, title=replay["title"].capitalize())
    axes = figure.axes[0]
    top = axes.get_ylim()[1]
    for alarm in replay["alarms"]:
        if windows[0]["start"] <= alarm["row"] <= windows[-1]["stop"]:
            axes.axvline(alarm["row"], color=MARK, linewidth=1.4, linestyle=":")
            axes.text(
                alarm["row"], top, f" alarm: {alarm['before']:.2f} to {alarm['now']:.2f}",
                color=MARK, fontsize=8, va="top",
            )  # fmt: skip
    plots.save(figure, folder / picture_name(replay))


def _or_nan(floor: float | None) -> float:
    return np.nan if floor is None else floor


def draw_delays(groups: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the delay of every stream as a dot, changes below one another."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = (7.5, 0.9 + 0.55 * len(groups))
    figure, axis = plt.subplots(figsize=size, constrained_layout=True)
    for line, group in enumerate(groups):
        for place, name in enumerate(DETECTORS):
            delays = group["found"][name]["delays"]
            label = name if line == 0 else None
            height = line + 0.16 * (place - 1.5)
            axis.plot(delays, np.full(len(delays), height), "|", color=f"C{place}", label=label)
    axis.set_yticks(range(len(groups)), [f"{one['kind']}, {one['learner']}" for one in groups])
    axis.invert_yaxis()
    axis.set(xscale="log", xlabel="rows from the change to the alarm")
    axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)
