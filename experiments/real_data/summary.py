"""One entry of the results file: everything that was found out about one data set."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data import Source, stream
from .earlier import Peers
from .grid import Tuned
from .play import Key, setting

ROWS = 10_000  # of the streams that the losses below are of
# Losses on the streams of seed 0, in nats per row.
BEFORE: dict[str, dict[str, float]] = {
    "version 0.1": {
        "digits": 0.2159, "segment": 0.2691, "satimage": 0.4011, "pendigits": 0.2184,
        "letter": 0.9967, "nursery": 0.2022, "adult": 0.3402, "weather": 0.4336,
        "covtype": 0.5845, "electricity": 0.1975,
    },
    "prototype": {
        "digits": 0.2032, "segment": 0.2311, "satimage": 0.3891, "pendigits": 0.2017,
        "letter": 0.9574, "nursery": 0.1942, "adult": 0.3387, "weather": 0.4354,
        "covtype": 0.5995, "electricity": 0.1583,
    },
}  # fmt: skip


def peers_of(
    source: Source,
    seeds: tuple[int, ...],
    winners: Mapping[str, Key],
    tuned: Mapping[Key, Tuned],
    confirmed: Mapping[tuple[Any, ...], dict[str, Any]],
) -> Peers:
    """Collect what tuning found; losses are listed in the order of the seeds."""
    n_rows = len(stream(source, seeds[0]).y)
    entries = {}
    for family, key in winners.items():
        runs = [confirmed[source.name, family, seed] for seed in seeds]
        entries[family] = {
            **_loss_of(runs, tuned[key], n_rows),
            "setting": setting(key, tuned[key].best),
            "interior": tuned[key].interior,
            "confirmed_rows": runs[0]["rows"],
            "largest_gap": max(run["gap"] for run in runs),
        }
    chosen = {family: (key, tuned[key].best) for family, key in winners.items()}
    return Peers(entries, chosen, [_curve(key, found) for key, found in tuned.items()])


def summarise(
    source: Source,
    seeds: tuple[int, ...],
    peers: Peers,
    losses: Mapping[tuple[Any, ...], float],
    proof: Mapping[str, Any],
    times: Mapping[tuple[Any, ...], dict[str, Any]],
    peer_times: Mapping[tuple[Any, ...], float],
    events: Mapping[str, float],
) -> dict[str, Any]:
    """Collect what the pieces of work returned; losses are listed in the order of the seeds."""
    name = source.name
    first, *others = source.seeds(seeds)
    one = stream(source, first)
    timed, unit = times[name, "ours"], times[name, "one_folklore"]
    mine = [timed["loss"], *(losses[name, seed] for seed in others)]
    theirs = {
        family: entry | {"us": peer_times[name, family]} for family, entry in peers.entries.items()
    }
    best = min(theirs, key=lambda family: theirs[family]["loss"])
    loss = float(np.mean(mine))
    return {
        "rows": len(one.y),
        "d": one.d,
        "K": one.K,
        "order": "as published" if source.in_order else "shuffled",
        "streams": len(mine),
        "ours": {
            "loss": loss,
            "losses": mine,
            "us": timed["us"],
            "late_us": timed["late_us"],
            "us_per_event": events["us"],
        },
        "before": _before(source, first),
        "certificate": dict(proof),
        "folklore": {"loss": unit["loss"], "us": unit["us"], "late_us": unit["late_us"]},
        "ratio": timed["us"] / unit["us"],
        "late_ratio": timed["late_us"] / unit["late_us"] if timed["late_rows"] else None,
        "river_us_per_event": events["river_us"],
        "river_over_event": events["river_us"] / events["us"],
        "river_over_run": events["river_us"] / timed["us"],
        "peers": theirs,
        "best_peer": best,
        "margin": theirs[best]["loss"] - loss,
        "won": loss < theirs[best]["loss"],
        "won_streams": sum(a < min(q) for a, q in zip(mine, _by_stream(theirs), strict=True)),
        "tuning": peers.tuning,
    }


def _before(source: Source, seed: int) -> dict[str, float]:
    """Return what was lost before on the same stream, if this one is the same."""
    if source.folder is None or source.most_rows != ROWS or (seed != 0 and not source.in_order):
        return {}
    return {kind: losses[source.name] for kind, losses in BEFORE.items()}


def _loss_of(runs: list[dict[str, Any]], tuned: Tuned, n_rows: int) -> dict[str, Any]:
    """The library's losses if it played every row, else those of the tuning, which equal them."""
    whole = all(run["rows"] == n_rows for run in runs)
    losses = [run["loss"] for run in runs] if whole else list(tuned.losses[tuned.position])
    return {
        "loss": float(np.mean(losses)),
        "losses": losses,
        "loss_is_of": "library" if whole else "replica",
    }


def _by_stream(peers: Mapping[str, Any]) -> list[tuple[float, ...]]:
    return list(zip(*(peer["losses"] for peer in peers.values()), strict=True))


def _curve(key: Key, tuned: Tuned) -> dict[str, Any]:
    return {
        "variant": " ".join(key),
        "best": setting(key, tuned.best),
        "interior": tuned.interior,
        "values": list(tuned.values),
        "mean_losses": [round(loss, 6) for loss in tuned.means],
    }
