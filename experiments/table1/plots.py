"""Regret and time as pictures."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from experiments.table1.algorithms import ALGORITHMS, LEADER
from experiments.table1.plan import Plan
from experiments.table1.regret import ADVERSARIAL, HARD, STOCHASTIC
from experiments.table1.summary import curves, label

COLOURS = dict(zip(ALGORITHMS, ("C7", "C1", "C2", "C4", "C5", "C0", "C3"), strict=True))
Summary = dict[str, Any]


def regret(summary: Summary, plan: Plan, path: Path) -> None:
    """Against T, log-log above and against ln T in the middle; against B below."""
    few, many = plan.classes[0], plan.classes[-1]
    names = [
        label(STOCHASTIC, few, plan.B),
        label(ADVERSARIAL, few, plan.B),
        label(STOCHASTIC, 2, plan.second_norm),
        label(ADVERSARIAL, many, plan.B),
        label(HARD, 2, plan.B),
    ]
    figure, axes = plt.subplots(3, 5, figsize=(20, 11), constrained_layout=True)
    for column, name in enumerate(names):
        shown = {
            a: found["regret_T"][name] for a, found in summary.items() if name in found["regret_T"]
        }
        for row in (0, 1):
            axis = axes[row, column]
            for algorithm, curve in shown.items():
                _band(axis, algorithm, curve, "T", positive=row == 0)
        axes[0, column].set(xscale="log", yscale="log", title=name, xlabel="T")
        top = max(shown["FOLKLORE"]["mean"]) * 4
        axes[1, column].set(xscale="log", xlabel="T (straight: ln T)", ylim=(-0.3 * top, top))
        axes[1, column].axhline(0, color="0.8", lw=0.8, zorder=0)
        _guide(axes[0, column], shown["OGD"])
    for column, stream in enumerate((STOCHASTIC, ADVERSARIAL, HARD)):
        axis = axes[2, column]
        for algorithm, found in summary.items():
            _band(axis, algorithm, found["regret_B"][stream], "B", positive=True)
        T = summary["FOLKLORE"]["regret_B"][stream]["T"]
        axis.set(xscale="log", yscale="log", xlabel="B", title=f"{stream}, K = 2, T = {T}")
    _warm_up(axes[2, 3], summary)
    axes[2, 4].set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("regret, nats")
    axes[0, 0].legend(fontsize=8)
    few_T = summary["Aggregating"]["regret_B"][STOCHASTIC]["T"]
    figure.suptitle(
        "Regret against the best model in hindsight: mean and range over seeds "
        f"(Aggregating: shorter runs, T = {few_T} below; negative regret is not drawn in logs)"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _band(axis: Axes, name: str, curve: dict[str, Any], key: str, *, positive: bool) -> None:
    x, mean, low, high = (np.asarray(curve[k], float) for k in (key, "mean", "low", "high"))
    if positive:
        mean, low = (np.where(v > 0, v, np.nan) for v in (mean, low))
        high = np.where(high > 0, high, np.nan)
    axis.plot(x, mean, ".-", color=COLOURS[name], label=name, lw=2 if name == "FOLKLORE" else 1.2)
    axis.fill_between(x, low, high, color=COLOURS[name], alpha=0.15, lw=0)


def _guide(axis: Axes, curve: dict[str, Any]) -> None:
    """A line of slope 1/2 above the curve of OGD."""
    T = np.asarray(curve["T"], float)
    axis.plot(
        T, 1.5 * max(curve["mean"][-1], 1.0) * np.sqrt(T / T[-1]), ":", color="0.5", label="√T"
    )


def _warm_up(axis: Axes, summary: Summary) -> None:
    for name, found in summary.items():
        done = {B: r for B, r in found["warm_up"]["rounds"].items() if None not in r}
        if done:
            axis.plot(list(done), [np.median(r) for r in done.values()], ".-", color=COLOURS[name])
    axis.set(
        yscale="log", xlabel="B (straight: exponential)", ylabel="rounds",
        title="rounds until half of the gain is had\n(stochastic, K = 2; missing: not by T)",
    )  # fmt: skip


def time(raw: dict[str, Any], path: Path) -> None:
    """Against d, K and the round, in multiples of FOLKLORE's round at d = 1, K = 2."""
    unit = np.median([r["overhead_us"] for r in raw["time_size"] if r["algorithm"] == "FOLKLORE"])
    figure, axes = plt.subplots(1, 4, figsize=(17, 4.4), constrained_layout=True)
    for (name, variable), group in curves(raw["time_size"], "algorithm", "variable").items():
        us = np.array([run["us"] for run in group])
        axis = axes[0 if variable == "d" else 1]
        axis.plot(
            group[0]["sizes"], np.median(us, axis=0) / unit, ".-", color=COLOURS[name], label=name
        )
    for (name,), group in curves(raw["time_rounds"], "algorithm").items():
        t = group[0]["t"]
        median, mean, longest = (
            np.median([run[f"{kind}_us"] for run in group], axis=0) / unit
            for kind in ("median", "mean", "longest")
        )
        axes[2].plot(t, median, ".-", color=COLOURS[name], label=name)
        if ALGORITHMS[name].sampling or name == LEADER:
            axes[2].plot(t, longest, "^--", color=COLOURS[name], label=f"{name}, longest round")
            axes[2].plot(t, mean, "x:", color=COLOURS[name], label=f"{name}, mean")
    for (power,), group in curves(raw["time_gaf"], "power").items():
        us = np.median([run["us"] for run in group], axis=0) / unit
        style = "s-" if power == 3 else "s--"
        axes[3].plot(group[0]["T"], us, style, color=COLOURS["GAF"], label=f"GAF, T^{power} points")
        folklore = np.median([run["folklore_us"] for run in group], axis=0) / unit
        axes[3].plot(
            group[0]["T"],
            folklore,
            ".-",
            color=COLOURS["FOLKLORE"],
            label="FOLKLORE" if power == 3 else None,
        )
    labels = (
        "d (K = 3; AIOLI, Aggregating 2)",
        "K (d = 8; Aggregating 2)",
        "round t",
        "horizon T",
    )
    for axis, text in zip(axes, labels, strict=True):
        axis.set(xscale="log", yscale="log", xlabel=text)
        axis.legend(fontsize=7)
    axes[0].set_ylabel("time of a round / FOLKLORE's at d = 1, K = 2")
    figure.suptitle("Time per round, predict and update")
    figure.savefig(path, dpi=110)
    plt.close(figure)
