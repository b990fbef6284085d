"""The course of a run as a picture."""

import importlib.util
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from folklearn.cli.moments import Moment
from folklearn.errors import FolklearnError

_FORMATS = (".png", ".pdf", ".svg")


def refuse_unless_drawable(name: str) -> None:
    """Raise, before any work is done, if a picture of this name could not be drawn."""
    if Path(name).suffix.lower() not in _FORMATS:
        raise FolklearnError(
            f"cannot write --plot {name}: its name must end in {', '.join(_FORMATS)}"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise FolklearnError(
            "--plot needs matplotlib, which comes with the extra: pip install 'folklearn[plots]'"
        )


def draw(moments: Sequence[Moment], B: float | None, title: str, path: Path, suffix: str) -> None:
    """Draw loss, certified lower bound and regret bound per round against the rounds.

    `B` is the row norm that the bounds cover, if there are any; `suffix` of the final name is
    the format.
    """
    # Here, because the extra may be missing.
    from matplotlib.figure import Figure

    moments = [now for now in moments if now.weight > 0.0]
    rounds = [now.n_rounds for now in moments]
    losses = [now.loss / now.weight for now in moments]
    certified = [
        (now.n_rounds, now.weight, now.certified, now.regret_bound)
        for now in moments
        if now.regret_bound is not None and math.isfinite(now.regret_bound)
    ]
    bounds = [(n, bound / weight) for n, weight, _, bound in certified]
    # Below 0 the lower bound says nothing: a log loss is never negative.
    lower = [(n, (loss - bound) / weight) for n, weight, loss, bound in certified if loss > bound]
    figure = Figure(figsize=(8, 6.5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    top.plot(rounds, losses, ".-C0", label="learner, each example predicted before it is learned")
    if lower:
        promise = (
            "certified: no linear model of these scaled features with row norms at most "
            f"{B:g} is below this"
        )
        top.plot(*zip(*lower, strict=True), ".-C2", label=promise)
    top.set_ylabel("average log loss (nats)")
    top.set_ylim(0.0, 1.08 * max(losses))
    top.set_title(title, parse_math=False)
    if bounds:
        bottom.plot(*zip(*bounds, strict=True), ".-C1", label="regret bound per round")
        bottom.set_yscale("log")
    else:
        bottom.text(0.5, 0.5, "nothing is certified", ha="center", transform=bottom.transAxes)
    bottom.set_ylabel("regret per round (nats)")
    bottom.set_xlabel("rounds")
    bottom.set_xscale(_scale(rounds))
    for axes in (top, bottom):
        axes.grid(alpha=0.3)
    _finish(figure, path, suffix)


def draw_losses(
    rounds: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    best: Sequence[float],
    B: float,
    title: str,
    path: Path,
    suffix: str,
) -> None:
    """Draw the average loss of every learner, and of the `best` model, at these rounds."""
    # Here, because the extra may be missing.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    for name, losses in curves.items():
        axes.plot(rounds, losses, ".-", label=name)
    promise = (
        f"best linear model of these scaled features with row norms at most {B:g}, in hindsight"
    )
    axes.plot(rounds, best, "--k", label=promise)
    axes.set_ylim(0.0, 1.08 * max(map(max, curves.values())))
    axes.set_ylabel("average log loss (nats)")
    axes.set_xlabel("rounds")
    axes.set_xscale(_scale(rounds))
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.3)
    _finish(figure, path, suffix)


def draw_mistakes(
    rounds: Sequence[int],
    errors: Sequence[float],
    doubts: Sequence[float],
    chance: float,
    title: str,
    path: Path,
    suffix: str,
) -> None:
    """Draw an agent's error rate, beside what chance gives, and its share of doubtful actions."""
    # Here, because the extra may be missing.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(rounds, errors, ".-C0", label="error rate so far")
    axes.axhline(chance, ls="--", color="k", lw=1.0, label="error rate of playing at random")
    promise = "share of actions with a probability below 1/2: explored, or in doubt"
    axes.plot(rounds, doubts, ":C1", label=promise)
    _as_shares(axes, rounds, title)
    _finish(figure, path, suffix)


def draw_boosting(
    rounds: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    prefixes: Sequence[float],
    title: str,
    path: Path,
    suffix: str,
) -> None:
    """Draw error rates over the rounds, and at the end those of the first 1, 2, ... learners."""
    # Here, because the extra may be missing.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = Figure(figsize=(8, 7.5), layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=[3, 2])
    for (name, errors), style in zip(curves.items(), (".-C0", ".-C1", ".:C2"), strict=True):
        top.plot(rounds, errors, style, label=name)
    _as_shares(top, rounds, title)
    top.set_ylabel("error rate so far")
    count = range(1, len(prefixes) + 1)
    bottom.plot(count, prefixes, "o-C3", ms=4, label="first 1, 2, 3, ... weak learners")
    bottom.set_ylim(0.0, max(1.08 * max(prefixes), 0.01))
    bottom.yaxis.set_major_formatter(PercentFormatter(1.0))
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    bottom.set_ylabel("error rate at the end")
    bottom.set_xlabel("number of weak learners")
    bottom.grid(alpha=0.3)
    _finish(figure, path, suffix)


def _as_shares(axes: Any, rounds: Sequence[int], title: str) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.set_ylim(0.0, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("share of the rounds")
    axes.set_xlabel("rounds")
    axes.set_xscale(_scale(rounds))
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.3)


def _scale(rounds: Sequence[int]) -> str:
    """Return how to draw the rounds: a logarithm of less than a decade has no ticks."""
    return "log" if rounds and rounds[-1] >= 10 * rounds[0] else "linear"


def _finish(figure: Any, path: Path, suffix: str) -> None:
    figure.legend(loc="outside lower center")  # where it covers no curve
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # any script in a title
        figure.savefig(path, format=suffix.lower().removeprefix("."), dpi=150)
