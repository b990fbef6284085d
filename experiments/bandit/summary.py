"""From the single runs to curves with bands, the best exploration, and the checks."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .plan import AGENTS, REFERENCE, THEORY, Arena, explorations


def summarise(
    arenas: list[Arena],
    seeds: tuple[int, ...],
    played: Mapping[tuple[Any, ...], dict[str, Any]],
    bound: Mapping[tuple[Any, ...], dict[str, float]],
    times: Mapping[tuple[Any, ...], dict[str, float]],
) -> dict[str, Any]:
    """Return everything that is reported."""
    streams = {arena.name: _stream(arena, seeds, played) for arena in arenas}
    return {
        "streams": streams,
        "reference": _reference(streams),
        "bound": _bound(bound),
        "times": _times(times),
    }


def _stream(
    arena: Arena, seeds: tuple[int, ...], played: Mapping[tuple[Any, ...], dict[str, Any]]
) -> dict[str, Any]:
    agents = {}
    for name in AGENTS:
        settings = {
            str(exploration): _runs([played[arena.name, name, exploration, s] for s in seeds])
            for exploration in explorations(name, arena)
        }
        if not settings:
            continue
        tuned = min(
            (key for key in settings if key != THEORY), key=lambda key: settings[key]["error"]
        )
        agents[name] = {"settings": settings, "tuned": tuned}
    rounds = next(run["rounds"] for key, run in played.items() if key[0] == arena.name)
    return {"rounds": rounds, "agents": agents}


def _runs(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean and the range over seeds of one agent at one exploration."""
    curves = np.array([run["mistakes"] for run in runs], float)
    errors = np.array([run["error"] for run in runs])
    updates = [run["updates"] for run in runs if run["updates"] is not None]
    return {
        "exploration": runs[0]["exploration"],
        "mean": curves.mean(axis=0).tolist(),
        "low": curves.min(axis=0).tolist(),
        "high": curves.max(axis=0).tolist(),
        "error": float(errors.mean()),
        "median": float(np.median(errors)),
        "errors": errors.tolist(),
        "updates": float(np.mean(updates)) if updates else None,
    }


def _reference(streams: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Our error rates beside those of an independent implementation."""
    rows = []
    for (name, agent), theirs in REFERENCE.items():
        if name not in streams:
            continue
        settings = streams[name]["agents"][agent]["settings"]
        grid = [key for key in settings if key != THEORY]
        for key, other in zip(grid, theirs, strict=True):
            mine = settings[key]
            rows.append(
                {
                    "stream": name,
                    "agent": agent,
                    "exploration": float(key),
                    "mean": mine["error"],
                    "median": mine["median"],
                    "least": min(mine["errors"]),
                    "most": max(mine["errors"]),
                    "reference": other,
                }
            )
    return rows


def _bound(found: Mapping[tuple[Any, ...], dict[str, float]]) -> list[dict[str, Any]]:
    """Mean mistakes beside the theorem's bound; it holds if below it by three errors."""
    rows = []
    for variant in sorted({key[:2] for key in found}, reverse=True):
        runs = [run for key, run in found.items() if key[:2] == variant]
        mistakes = np.array([run["mistakes"] for run in runs])
        bounds = np.array([run["bound"] for run in runs])
        error = float(np.std(mistakes - bounds, ddof=1) / np.sqrt(len(runs)))
        mean, limit = float(mistakes.mean()), float(bounds.mean())
        rows.append(
            {
                "decoding": variant[0],
                "updates": variant[1],
                "exploration": float(np.mean([run["exploration"] for run in runs])),
                "mistakes": mean,
                "bound": limit,
                "loss": float(np.mean([run["loss"] for run in runs])),
                "standard_error": error,
                "holds": mean <= limit + 3.0 * error,
                "learned": float(np.mean([run["updates"] for run in runs])),
            }
        )
    return rows


def _times(found: Mapping[tuple[Any, ...], dict[str, float]]) -> dict[str, dict[str, float]]:
    """The median time of a round in multiples of Banditron's, and the error rates."""
    rows = {}
    unit = np.median([run["us"] for key, run in found.items() if key[0] == "Banditron"])
    for name in dict.fromkeys(key[0] for key in found):
        runs = [run for key, run in found.items() if key[0] == name]
        rows[name] = {
            "times_banditron": float(np.median([run["us"] for run in runs]) / unit),
            "us": float(np.median([run["us"] for run in runs])),
            "error": float(np.mean([run["error"] for run in runs])),
        }
    return rows
