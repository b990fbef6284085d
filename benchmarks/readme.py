"""The two tables of README.md, from the results that are recorded: `python -m benchmarks.readme`.

A table is found by its first line; the rows below it are written anew, and nothing else.
"""

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SIZES = ((5, 2), (20, 5), (55, 7), (17, 26))
ROUNDS = 100_000
STREAMS = (
    "letter", "pendigits", "satimage", "segment", "digits",
    "electricity", "covtype", "adult", "nursery", "weather",
)  # fmt: skip
PLAYERS = {  # a row of README: the methods, of which the best one counts on each stream
    "`Model()`": ("model",),
    "its lines alone": ("lines",),
    "LightGBM": ("lightgbm-31-0.1-20",),  # its own defaults
    "River, best forest": ("arf-10", "arf-50", "amf-10", "amf-50"),
}
SPEED = "| columns, classes |"
LOSSES = f"| | {' | '.join(STREAMS)} |"


def speed_rows(results: dict[str, Any]) -> list[str]:
    """Return microseconds a row of `auto`, Folklore, River and VW at each size."""
    folklore = {(one["d"], one["K"]): one["us"]["folklore"] for one in results["sizes"]}
    auto = {
        (one["d"], one["K"]): times
        for one in results["auto"]
        for times in one["times"]
        if times["rounds"] == ROUNDS
    }
    rows = []
    for size in SIZES:
        us = [auto[size][f"{who}_us"] for who in ("event", "run", "river", "vw")]
        cells = [
            f"{x:.1f}" if x < 99.95 else f"{x:.0f}" for x in (*us[:2], folklore[size], *us[2:])
        ]
        rows.append(f"| {size[0]}, {size[1]} | {' | '.join(cells)} |")
    return rows


def loss_rows(results: dict[str, Any]) -> list[str]:
    """Return log losses of the ten streams, means over the seeds of each; the least are bold."""
    losses = {
        who: [min(_mean_loss(results["streams"][name], one) for one in methods) for name in STREAMS]
        for who, methods in PLAYERS.items()
    }
    least = [min(column) for column in zip(*losses.values(), strict=True)]
    rows = []
    for who, row in losses.items():
        pairs = zip(row, least, strict=True)
        cells = [f"**{_shown(x)}**" if x == most else f" {_shown(x)} " for x, most in pairs]
        rows.append(f"| {who} |{'|'.join(cells)}|")
    return rows


def _mean_loss(stream: dict[str, Any], method: str) -> float:
    """Return the mean over seeds, infinity without a result."""
    results = stream["methods"].get(method, {}).values()
    values = [one["log_loss"] for one in results if "log_loss" in one]
    return statistics.fmean(values) if values else float("inf")


def _shown(loss: float) -> str:
    return f"{loss:.2f}" if loss >= 0.9995 else f"{loss:.3f}".removeprefix("0")


def with_tables(text: str) -> str:
    """Return README's text with the rows of both tables as the results have them."""
    rows_of = {
        SPEED: speed_rows(_read("benchmarks/results/speed.json")),
        LOSSES: loss_rows(_read("experiments/terms/results/terms.json")),
    }
    lines = text.split("\n")
    for title, rows in rows_of.items():
        (first,) = (i + 2 for i, line in enumerate(lines) if line.startswith(title))
        last = first
        while lines[last].startswith("|"):
            last += 1
        lines[first:last] = rows
    return "\n".join(lines)


def _read(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def write_readme() -> None:
    """Write README.md with the tables of the recorded results."""
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_readme()
