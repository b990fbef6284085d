"""What was measured, as tables, and whether it is what it must be."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data import Source
from .methods import DEFAULTS, GRID

COLUMNS = {
    "model": "`Model()`",
    "lines": '`terms="none"`',
    "lightgbm": "LightGBM",
    DEFAULTS: "LightGBM, its defaults",
    "lightgbm-best": "LightGBM, best of 8",
    "hat": "HAT",
    "arf-10": "ARF 10",
    "arf-50": "ARF 50",
    "amf-10": "AMF 10",
    "amf-50": "AMF 50",
    "arf-10-scaled": "ARF 10, scaled",
    "amf-10-scaled": "AMF 10, scaled",
}
FORESTS = ("arf-10", "arf-50", "amf-10", "amf-50")
SCALED = ("arf-10-scaled", "amf-10-scaled")
MEASURES = {
    "log_loss": ("Progressive log loss, nats a row", "{:.4f}", 1.0),
    "error": ("Progressive error, %", "{:.2f}", 100.0),
    "microseconds_a_row": ("CPU time of predicting and learning, µs a row", "{:,.0f}", 1.0),
}
Streams = dict[str, dict[str, Any]]


def stream_name(source: Source) -> str:
    return f"{source.name}, all" if source.most_rows is None else source.name


def collect(found: Mapping[Any, dict[str, Any]]) -> Streams:
    """Return results by stream and rows, method and seed; the best of the grid for each seed."""
    streams: Streams = {}
    for (source, seed, method), result in found.items():
        name = stream_name(source)
        sizes = {key: result[key] for key in ("rows", "columns", "classes")}
        methods = streams.setdefault(name, {**sizes, "methods": {}})["methods"]
        kept = {key: value for key, value in result.items() if key not in sizes}
        methods.setdefault(method, {})[str(seed)] = kept
    for stream in streams.values():
        methods = stream["methods"]
        grid = {name: methods[name] for name in GRID if name in methods}
        for seed in sorted({seed for by_seed in grid.values() for seed in by_seed}):
            tried = {
                name: grid[name][seed] for name in grid if "log_loss" in grid[name].get(seed, {})
            }
            if len(tried) == len(GRID):
                best = min(tried, key=lambda name: tried[name]["log_loss"])
                kept = {**tried[best], "settings": best}
                methods.setdefault("lightgbm-best", {})[seed] = kept
    return streams


def _mean(stream: dict[str, Any], method: str, what: str = "log_loss") -> float:
    """Return the mean over seeds, NaN without a result."""
    values = [one[what] for one in stream["methods"].get(method, {}).values() if what in one]
    return float(np.mean(values)) if values else float("nan")


def _gain(stream: dict[str, Any], method: str) -> float:
    """Return how much more a method loses than `Model()`, a mean over the seeds of both."""
    ours, theirs = (stream["methods"].get(name, {}) for name in ("model", method))
    gains = [
        theirs[seed]["log_loss"] - ours[seed]["log_loss"]
        for seed in ours if "log_loss" in ours[seed] and "log_loss" in theirs.get(seed, {})
    ]  # fmt: skip
    return float(np.mean(gains)) if gains else float("nan")


def musts(streams: Streams) -> dict[str, str]:
    """Return what must hold, and on how many streams it does."""
    ten = [stream for name, stream in streams.items() if name != "bananas" and ", " not in name]

    def count(methods: tuple[str, ...]) -> str:
        gains = [[_gain(stream, method) for method in methods] for stream in ten]
        known = [[gain for gain in row if not np.isnan(gain)] for row in gains]
        n_whole = sum(len(row) == len(methods) for row in known)
        n_below = sum(bool(row) and min(row) > 0.0 for row in known)
        return f"{n_below} of {len(ten)} ({n_whole} with all results)"

    worst = [
        (-gain, name) for name, one in streams.items() if not np.isnan(gain := _gain(one, "lines"))
    ]
    excess, where = max(worst, default=(float("nan"), "none"))
    banana = 100.0 * _mean(streams.get("bananas", {"methods": {}}), "model", "error")
    adult = _mean(streams.get("adult, all", {"methods": {}}), "model")
    return {
        "log loss below LightGBM, at least 9 of 10": count(("lightgbm",)),
        "log loss below ARF and AMF of 10 and 50 trees, 10 of 10": count(FORESTS),
        'log loss above that of `terms="none"` by at most .006': f"{excess:+.4f} ({where})",
        "error on bananas below 12 %": f"{banana:.2f} %",
        "log loss on all of adult at most .302": f"{adult:.4f}",
        "not asked: log loss below LightGBM, its defaults": count((DEFAULTS,)),
        "not asked: log loss below LightGBM, best of 8": count(("lightgbm-best",)),
        "not asked: log loss below HAT": count(("hat",)),
        "not asked: log loss below ARF 10 and AMF 10, scaled": count(SCALED),
    }


def tables(streams: Streams, held: Mapping[str, str]) -> str:
    """Return what must hold, a table for each measure, and what has no result."""
    parts = ["| must | is |\n|---|---|", *(f"| {must} | {value} |" for must, value in held.items())]
    for what, (title, form, unit) in MEASURES.items():
        parts += [f"\n## {title}\n", f"| stream | rows | seeds | {' | '.join(COLUMNS.values())} |"]
        parts.append("|---" * (3 + len(COLUMNS)) + "|")
        for name, stream in streams.items():
            means = {method: unit * _mean(stream, method, what) for method in COLUMNS}
            least = min((mean for mean in means.values() if not np.isnan(mean)), default=0.0)
            cells = [
                "" if np.isnan(mean) else f"**{form.format(mean)}**" if mean == least
                else form.format(mean)
                for mean in means.values()
            ]  # fmt: skip
            n_seeds = max(len(by_seed) for by_seed in stream["methods"].values())
            row = [name, f"{stream['rows']:,}", str(n_seeds), *cells]
            parts.append(f"| {' | '.join(row)} |")
    gone = [
        f"- {name}, {method}, seed {seed}: {one['failed']}"
        for name, stream in streams.items()
        for method, by_seed in stream["methods"].items()
        for seed, one in by_seed.items() if "failed" in one
    ]  # fmt: skip
    return "\n".join([*parts, *(["\n## Without a result\n", *gone] if gone else [])])
