"""A real stream in the order of time: loss, floor and alarms, as somebody would watch it."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import folklearn

from .detectors import ALPHA, all_alarms
from .streams import World, blocks, losses_of, of_file

LEAST = 512  # rows that a floor speaks of: of fewer, little can be proven


@dataclass(frozen=True)
class Replay:
    """Rows of a data set from `first` to before `stop`, in windows of `size` rows."""

    title: str
    name: str
    size: int
    first: int = 0
    stop: int | None = None


REPLAYS = (
    Replay("electricity: two years and a half, month by month", "electricity", 1440),
    Replay("electricity: a month, day by day", "electricity", 48, 11_040, 12_480),
    Replay("weather: fifty years, year by year", "weather", 365),
)
QUICK = Replay("drawn: an abrupt change", "", 64, 128, 640)


def replayed(replay: Replay, folder: Path | None) -> dict[str, Any]:
    """Learn a stream with floors; return its windows, and all alarms up to their end."""
    X, y = of_file(folder, replay.name) if folder else World("abrupt", 5, 2, 640).drawn(0)
    X, y = X[: replay.stop], y[: replay.stop]
    model = folklearn.Model(windows=True)
    monitor = model.monitor(alpha=ALPHA)
    if replay.first:
        model.learn_many(X[: replay.first], y[: replay.first])
    windows = []
    for part in blocks(len(y) - replay.first, replay.size):
        start, stop = replay.first + part.start, replay.first + part.stop
        losses = model.learn_many(X[start:stop], y[start:stop]).losses
        floor = _floor(model, max(LEAST, stop - start))
        windows.append({"start": start, "stop": stop, "loss": losses.mean(), "floor": floor})
    return {
        "title": replay.title,
        "windows": windows,
        "alarms": [alarm._asdict() for alarm in monitor.alarms],
        "in_words": [alarm.in_words() for alarm in monitor.alarms],
        "peers": all_alarms(*losses_of("auto", X, y)),
    }


def _floor(model: folklearn.Model, n_rows: int) -> float | None:
    """Return what no linear model gets below, a row, in about the last rows; None if nothing."""
    windows = model.windows()
    last = next((one for one in windows if one.n_rounds >= n_rows), windows[-1])
    floor = last.lower_bound / last.n_rounds
    return floor if math.isfinite(floor) else None
