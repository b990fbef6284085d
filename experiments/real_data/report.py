"""The results as JSON, Markdown tables and one plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..provenance import stated, write_json
from .metric import FLOOR
from .peers import FAMILIES
from .play import LATE, B
from .summary import BEFORE

LEARNER = "auto()"
TITLE = f"Log loss of each tuned peer over that of {LEARNER}, untuned"


def write(folder: Path, origin: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Write all three files."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"provenance": origin, "floor": FLOOR, "late": LATE, "data_sets": found}
    write_json(folder / "real_data.json", content)
    (folder / "real_data.md").write_text(markdown(origin, found))
    plot(found, folder / "real_data.png")


def markdown(origin: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    parts = [
        "# Untuned against tuned",
        "\n".join(_origin(origin)),
        "## Losses",
        "Progressive log loss in nats per example, mean over the streams; `auto()` is untuned,\n"
        "the peers are tuned in hindsight. *Margin* is the best peer's loss less ours.",
        _losses(found),
        "\n".join(_counts(found)),
        "## Every stream",
        "The loss on each stream, in the order of the seeds, and of the peer whose mean is best.",
        _streams(found),
        "## The first stream: what was before, and what is proven",
        "Loss on the stream of the first seed, beside that of `auto()` in version 0.1 and of the\n"
        "prototype from which it was built (leaders, trackers, fixed share), where they played\n"
        "the same rows. The certificate says that no linear model, its penalty (C = 1) counted,\n"
        "is below *proven*; *best linear* is the truth, found afterwards.",
        _first(found),
        "## Time",
        "µs per example on the first stream, everything included, one BLAS thread. Per event:\n"
        "`predict`, then `update`, in turns with the tuned River. *× Folklore* is `run` over that\n"
        f"of one `Folklore(B={B:g})`, over all rounds / after round {LATE:,}.",
        _times(found),
    ]
    return "\n\n".join(parts) + "\n"


def _origin(origin: Mapping[str, Any]) -> list[str]:
    lines = [f"{stated(origin)}."]
    if "peers" in origin:
        before = origin["peers"]
        versions = ", ".join(
            f"{name} {before['libraries'][name]}"
            for name in ("river", "vowpalwabbit", "scikit-learn")
        )
        lines.append(
            f"Which setting of a peer is best was found before: `{before['command']}`, at commit "
            f"{before['tuned_at'][:12]}, {versions}.\nWith it each has played its streams again "
            "in this run, with the same losses; times are of this run."
        )
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _losses(found: Mapping[str, Any]) -> str:
    head = ["data set", "rows", "K", "streams", f"`{LEARNER}`"]
    head += [f"best {family}" for family in FAMILIES] + ["margin"]
    return _table(head, [_row(name, entry) for name, entry in found.items()])


def _row(name: str, entry: Mapping[str, Any]) -> list[str]:
    ours, peers = entry["ours"], entry["peers"]
    lowest = min([ours["loss"], *(peer["loss"] for peer in peers.values())])

    def number(loss: float) -> str:
        return f"**{loss:.4f}**" if loss == lowest else f"{loss:.4f}"

    cells = [
        name + (" (in order)" if entry["order"] != "shuffled" else ""),
        str(entry["rows"]),
        str(entry["K"]),
        str(entry["streams"]),
        number(ours["loss"]),
    ]
    for family in FAMILIES:
        peer = peers[family]
        edge = "" if peer["interior"] else ", **edge of the grid**"
        cells.append(f"{number(peer['loss'])}: {peer['setting']}{edge}")
    return [*cells, f"{entry['margin']:+.4f}"]


def _counts(found: Mapping[str, Any]) -> list[str]:
    entries = found.values()
    won = sum(entry["won"] for entry in entries)
    streams = sum(entry["streams"] for entry in entries)
    won_streams = sum(entry["won_streams"] for entry in entries)
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
        "- Best point strictly inside its grid for every tuned variant."
        if not edges
        else "- Best point at an end of its grid (none further was tried): " + "; ".join(edges),
        "- Largest difference between a probability of a peer's library and of the replica"
        f" that tuned it: {gap:.1e}.",
    ]


def _streams(found: Mapping[str, Any]) -> str:
    rows = []
    for name, entry in found.items():
        peer = entry["peers"][entry["best_peer"]]
        ours, theirs = (
            ", ".join(f"{x:.4f}" for x in one["losses"]) for one in (entry["ours"], peer)
        )
        rows.append([name, ours, f"{entry['best_peer']}: {theirs}"])
    return _table(["data set", f"`{LEARNER}`", "best peer"], rows)


def _first(found: Mapping[str, Any]) -> str:
    rows = []
    for name, entry in found.items():
        proof, mine = entry["certificate"], entry["ours"]["losses"][0]
        before = [entry["before"].get(kind) for kind in BEFORE]
        cells = ["–" if loss is None else f"{loss:.4f} ({mine - loss:+.4f})" for loss in before]
        proven = f"{proof['floor']:.4f}" if proof["valid"] else "nothing"
        gap = proof["best_linear"] - proof["floor"]
        rows.append(
            [name, f"{mine:.4f}", *cells, proven, f"{proof['best_linear']:.4f}", f"{gap:.4f}"]
        )
    head = ["data set", f"`{LEARNER}`", *(f"{kind} (change)" for kind in BEFORE)]
    return _table([*head, "proven", "best linear", "gap"], rows)


def _times(found: Mapping[str, Any]) -> str:
    rows = []
    for name, entry in found.items():
        ours, peers = entry["ours"], entry["peers"]
        late = "–" if entry["late_ratio"] is None else f"{entry['late_ratio']:.1f}"
        rows.append(
            [
                name, f"{entry['d']}, {entry['K']}", f"{ours['us_per_event']:.0f}",
                f"{entry['river_us_per_event']:.0f}", f"{entry['river_over_event']:.1f}",
                f"{ours['us']:.1f}", f"{entry['river_over_run']:.1f}",
                *(f"{peers[family]['us']:.0f}" for family in FAMILIES[1:]),
                f"{entry['ratio']:.1f} / {late}",
            ]
        )  # fmt: skip
    head = ["data set", "d, K", "per event", "River", "× River", "`run`", "× River"]
    return _table([*head, *FAMILIES[1:], "× Folklore"], rows)


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
