"""From raw runs to fitted exponents."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.table1 import fits
from experiments.table1.algorithms import ALGORITHMS
from experiments.table1.regret import STOCHASTIC

UPPER = 5  # the horizons that an exponent is fitted to: the last ones, a factor of 16
LARGE_B = 4.0  # from here on the growth of regret with B is fitted
CLEAR_B = 2.0  # and of the warm-up: below it there is hardly anything to gain
Run = dict[str, Any]


def summarise(raw: dict[str, Any]) -> dict[str, Any]:
    """Everything fitted, by algorithm."""
    return {
        name: {
            "regret_T": _against_T(_of(raw["regret"], name, part="T")),
            "regret_B": _against_B(_of(raw["regret"], name, part="B")),
            "warm_up": _warm_up(_of(raw["regret"], name, part="B")),
            "time": _time(raw, name),
        }
        for name in ALGORITHMS
    }


def curves(runs: Iterable[Run], *keys: str) -> dict[tuple[Any, ...], list[Run]]:
    """Runs that differ only in their seed, together."""
    groups = defaultdict(list)
    for run in runs:
        groups[tuple(run[key] for key in keys)].append(run)
    return dict(groups)


def label(stream: str, K: int, B: float) -> str:
    """The name of a curve against T."""
    return f"{stream}, K = {K}, B = {B:g}"


def _of(runs: list[Run], name: str, part: str | None = None) -> list[Run]:
    return [r for r in runs if r["algorithm"] == name and part in (None, r.get("part"))]


def _against_T(runs: list[Run]) -> dict[str, Any]:
    out = {}
    for (stream, K, B), group in curves(runs, "stream", "K", "B").items():
        T = group[0]["horizons"]
        regret = [run["regret"] for run in group]
        upper = [r[-UPPER:] for r in regret]
        mean = np.mean(regret, axis=0)
        out[label(stream, K, B)] = {
            "T": list(T),
            "mean": mean.tolist(),
            "low": np.min(regret, axis=0).tolist(),
            "high": np.max(regret, axis=0).tolist(),
            "exponent": fits.over_seeds(fits.exponent, T[-UPPER:], upper),
            "per_ln_T": fits.over_seeds(fits.slope_in_log, T[-UPPER:], upper),
            "law": fits.better_law(np.asarray(T[-UPPER:], float), mean[-UPPER:]),
        }
    return out


def _against_B(runs: list[Run]) -> dict[str, Any]:
    out = {}
    for (stream,), group in curves(runs, "stream").items():
        by_seed = [sorted(g, key=lambda r: r["B"]) for g in curves(group, "seed").values()]
        B = [run["B"] for run in by_seed[0]]
        regret = np.array([[run["regret"][-1] for run in one] for one in by_seed])
        large = np.asarray(B) >= LARGE_B if max(B) > LARGE_B else np.full(len(B), True)
        some = np.asarray(B)[large].tolist()
        out[stream] = {
            "B": B,
            "T": group[0]["horizons"][-1],
            "mean": regret.mean(axis=0).tolist(),
            "low": regret.min(axis=0).tolist(),
            "high": regret.max(axis=0).tolist(),
            "exponent": fits.over_seeds(fits.exponent, some, regret[:, large].tolist()),
            "per_ln_B": fits.over_seeds(fits.slope_in_log, some, regret[:, large].tolist()),
        }
    return out


def _warm_up(runs: list[Run]) -> dict[str, Any]:
    """Rounds until half of the best model's gain is had, as B grows; e^(rate B)."""
    found: dict[float, list[int | None]] = {}
    stochastic = [run for run in runs if run["stream"] == STOCHASTIC]
    for (B,), group in sorted(curves(stochastic, "B").items()):
        found[B] = [run["warm_up"] for run in group]
    done = {B: rounds for B, rounds in found.items() if None not in rounds}
    clear = {B: rounds for B, rounds in done.items() if B >= CLEAR_B}
    return {"rounds": found, "rate": _rate(clear), "rate_every_B": _rate(done)}


def _rate(rounds: dict[float, list[int | None]]) -> dict[str, Any] | None:
    if len(rounds) < 2:
        return None
    per_seed = np.array(list(rounds.values()), float).T
    return fits.over_seeds(fits.rate, list(rounds), per_seed.tolist())


def _time(raw: dict[str, Any], name: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for (variable,), group in curves(_of(raw["time_size"], name), "variable").items():
        work = [np.asarray(run["us"]) - run["overhead_us"] for run in group]
        sizes = group[0]["sizes"]
        out[variable] = {"sizes": sizes} | fits.over_seeds(
            fits.exponent, sizes, [w.tolist() for w in work]
        )
    rounds = _of(raw["time_rounds"], name)
    for kind in ("median", "mean", "longest"):
        us = [run[f"{kind}_us"] for run in rounds]
        out[f"t_{kind}"] = fits.over_seeds(fits.exponent, rounds[0]["t"], us)
    if name == "GAF":
        for (power,), group in curves(raw["time_gaf"], "power").items():
            us = [run["us"] for run in group]
            T = group[0]["T"]
            fitted = fits.over_seeds(fits.exponent, T[-3:], [u[-3:] for u in us])
            out[f"T_points_T^{power}"] = {"T": T} | fitted
    return out
