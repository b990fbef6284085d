"""From the single runs to means with standard errors, paired differences, and exponents."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np

from .plan import OLM, OLMPP, ONE, runs

METRICS = ("accuracy", "accuracy_of_mixture", "log_loss", "at_floor")
CLEAR = 2.0  # standard errors
TIE = 1e-12  # a smaller difference is rounding
NOISE_US = 1e-3  # the clock cannot tell less
Found = dict[str, Any]


def summarise(
    names: Sequence[str],
    seeds: tuple[int, ...],
    methods: Sequence[str],
    played: Mapping[tuple[Any, ...], Found],
    split: Mapping[tuple[Any, ...], Mapping[str, float]],
    classes: Mapping[tuple[Any, ...], Mapping[str, float]],
) -> Found:
    """Return everything that is reported."""
    sets = {name: _set(name, seeds, methods, played) for name in names}
    return {
        "sets": sets,
        "against_one_tree": {
            method: _compare(sets, method, ONE) for method in methods if method != ONE
        },
        "olmpp_against": {
            method: _compare(sets, OLMPP, method) for method in methods if method != OLMPP
        },
        "learners": {
            name: {
                method: _about([played[name, method, runs(method)[-1], seed] for seed in seeds])
                for method in (OLMPP, OLM)
            }
            for name in names
        },
        "split": {key[0]: dict(parts) for key, parts in split.items()},
        "classes": _growth({key[1]: times for key, times in classes.items()}),
    }


def _set(
    name: str,
    seeds: tuple[int, ...],
    methods: Sequence[str],
    played: Mapping[tuple[Any, ...], Found],
) -> Found:
    found: Found = {}
    for method in methods:
        sizes: Found = {}
        for n in runs(method):
            entries = [played[name, method, n, seed] for seed in seeds]
            if not entries[0]:  # two classes only
                continue
            for size in entries[0]["sizes"]:
                scores = [entry["sizes"][size] for entry in entries]
                sizes[str(size)] = {
                    metric: mean([score[metric] for score in scores]) for metric in METRICS
                }
            ms = [entry["ms_per_round"] for entry in entries]
            sizes[str(n)]["ms_per_round"] = float(np.median(ms))
        if sizes:
            found[method] = sizes
    return found


def mean(values: Sequence[float]) -> Found:
    """Return the mean, its standard error (None for a single seed), and the values."""
    many = len(values) > 1
    return {
        "mean": float(np.mean(values)),
        "error": float(np.std(values, ddof=1) / sqrt(len(values))) if many else None,
        "values": list(map(float, values)),
    }


def largest(sizes: Found) -> Found:
    """Return the scores of the most learners."""
    entry: Found = sizes[max(sizes, key=int)]
    return entry


def _compare(sets: Found, one: str, other: str) -> Found:
    """The differences of two methods on the same streams, each with its most learners."""
    rows: Found = {}
    for name, methods in sets.items():
        if one not in methods or other not in methods:
            continue
        ours, theirs = largest(methods[one]), largest(methods[other])
        rows[name] = {
            metric: mean(np.subtract(ours[metric]["values"], theirs[metric]["values"]).tolist())
            for metric in ("accuracy", "log_loss")
        }
    return {"sets": rows} | {
        metric: _count([row[metric] for row in rows.values()], sign)
        for metric, sign in (("accuracy", 1.0), ("log_loss", -1.0))
    }


def _count(differences: list[Found], sign: float) -> dict[str, int]:
    """How many sets were won and lost, and how many by more than two standard errors."""
    gains = [(sign * d["mean"], CLEAR * (d["error"] or 0.0)) for d in differences]
    return {
        "won": sum(gain > TIE for gain, _ in gains),
        "lost": sum(gain < -TIE for gain, _ in gains),
        "clearly_won": sum(gain > least > 0.0 for gain, least in gains),
        "clearly_lost": sum(-gain > least > 0.0 for gain, least in gains),
    }


def _about(entries: list[Found]) -> Found:
    """The mean over seeds of what explains a booster, learner by learner."""
    return {
        what: np.mean([entry["about"][what] for entry in entries], axis=0).tolist()
        for what in entries[0]["about"]
    }


def _growth(times: Mapping[int, Mapping[str, float]]) -> Found:
    """Times and exponents of K: of what a step from one size to the next adds.

    Differences drop the fixed cost of a call, which is most of the time where K is small; the
    lower half of the steps is left out because they drown in noise.
    """
    K = np.array(list(times))[:-1]
    found: Found = {}
    for part in ("regression", "costs"):
        us = np.array([times[k][part] for k in times])
        added = np.fmax(np.diff(us), NOISE_US)
        upper = slice(len(added) // 2, None)
        found[part] = {
            "us": {str(k): times[k][part] for k in times},
            "exponent": float(np.polyfit(np.log(K[upper]), np.log(added[upper]), 1)[0]),
        }
    return found
