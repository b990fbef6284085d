"""The course of a run as a picture."""

import importlib.util
import math
import warnings
from collections.abc import Sequence
from pathlib import Path

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


def draw(moments: Sequence[Moment], B: float, title: str, path: Path, suffix: str) -> None:
    """Draw loss, certified lower bound and regret bound per round against the rounds.

    `B` is the row norm that the bounds cover; `suffix` of the final name is the format.
    """
    # Here, because the extra may be missing.
    from matplotlib.figure import Figure

    moments = [now for now in moments if now.n_rounds]
    rounds = [now.n_rounds for now in moments]
    losses = [now.loss / now.n_rounds for now in moments]
    certified = [now for now in moments if math.isfinite(now.regret_bound)]
    bounds = [(now.n_rounds, now.regret_bound / now.n_rounds) for now in certified]
    # Below 0 the lower bound says nothing: a log loss is never negative.
    lower = [
        (now.n_rounds, (now.loss - now.regret_bound) / now.n_rounds)
        for now in certified
        if now.loss > now.regret_bound
    ]
    figure = Figure(figsize=(8, 6.5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    top.plot(rounds, losses, ".-C0", label="learner, each example predicted before it is learned")
    if lower:
        promise = f"certified: no linear model with row norms at most {B:g} is below this"
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
    bottom.set_xscale("log")
    for axes in (top, bottom):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # any script in a title
        figure.savefig(path, format=suffix.lower().removeprefix("."), dpi=150)
