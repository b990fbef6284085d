"""One entry of the results file: everything that was found out about one data set."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data import Source, stream
from .grid import Tuned
from .play import Key, best_of_each_family, setting


def summarise(
    source: Source,
    seeds: tuple[int, ...],
    tuned: Mapping[Key, Tuned],
    confirmed: Mapping[tuple[Any, ...], dict[str, Any]],
    losses: Mapping[tuple[Any, ...], float],
    times: Mapping[tuple[Any, ...], dict[str, Any]],
    peer_times: Mapping[tuple[Any, ...], float],
) -> dict[str, Any]:
    """Collect what the pieces of work returned; losses are listed in the order of the seeds."""
    name = source.name
    first, *others = source.seeds(seeds)
    one = stream(source, first)
    timed, unit = times[name, "ours"], times[name, "one_folklore"]
    mine = [timed["loss"], *(losses[name, seed] for seed in others)]
    peers = {}
    for family, key in best_of_each_family(tuned).items():
        runs = [confirmed[name, family, seed] for seed in (first, *others)]
        peers[family] = {
            **_loss_of(runs, tuned[key], len(one.y)),
            "setting": setting(key, tuned[key].best),
            "interior": tuned[key].interior,
            "confirmed_rows": runs[0]["rows"],
            "largest_gap": max(run["gap"] for run in runs),
            "us": peer_times[name, family],
        }
    best = min(peers, key=lambda family: peers[family]["loss"])
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
        },
        "folklore": {"loss": unit["loss"], "us": unit["us"], "late_us": unit["late_us"]},
        "ratio": timed["us"] / unit["us"],
        "late_ratio": timed["late_us"] / unit["late_us"] if timed["late_rows"] else None,
        "peers": peers,
        "best_peer": best,
        "margin": peers[best]["loss"] - loss,
        "won": loss < peers[best]["loss"],
        "won_streams": sum(a < min(q) for a, q in zip(mine, _by_stream(peers), strict=True)),
        "tuning": [_curve(key, found) for key, found in tuned.items()],
    }


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
