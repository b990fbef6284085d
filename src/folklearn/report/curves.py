"""Several lines over the rounds, each named at its end."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn.errors import InvalidInputError
from folklearn.report import canvas
from folklearn.report.canvas import BLUE, GREEN, INK, PURPLE, QUIET, RED, End, short, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = (BLUE, RED, INK, GREEN, PURPLE, QUIET)
_PLACES = 200  # at which a course is drawn, at most


@style()
def curves(
    at: ArrayLike,
    lines: Mapping[str, ArrayLike],
    *,
    title: str = "",
    x: str = "rounds",
    y: str = "nats per round",
    shares: bool = False,
    ax: Any = None,
) -> "Figure":
    """Draw lines by name over the same rounds, from 0 up; `shares` are shown as per cent.

    A value that is one number is a level, drawn across.
    """
    places = np.asarray(at, np.float64)
    if not len(places) or not lines:
        raise InvalidInputError("no curves to draw: there are no rounds, or no lines")
    ax = canvas.figure(7.5, 3.8).subplots() if ax is None else ax
    canvas.dress(ax, title, x, y)
    ends, top = [], 0.0
    for i, (name, values) in enumerate(lines.items()):
        is_level = np.ndim(values) == 0
        own = np.broadcast_to(np.asarray(values, np.float64), places.shape)
        if not np.isfinite(own).any():
            continue
        color, dashes = _COLORS[i % len(_COLORS)], ":" if is_level else "-"
        dot = "o" if len(places) == 1 else None
        ax.plot(places, own, dashes, color=color, linewidth=1.0 if is_level else 2.0, marker=dot,
                label=name)  # fmt: skip
        last = np.flatnonzero(np.isfinite(own))[-1]
        shown = f"{100.0 * own[last]:.3g}%" if shares else f"{own[last]:.3g}"
        ends.append(End(float(places[last]), float(own[last]), f"{short(name)} {shown}", color))
        top = max(top, float(own[np.isfinite(own)].max()))
    ax.set_ylim(0.0, 1.08 * top or 1.0)
    if shares:
        ax.yaxis.set_major_formatter(lambda share, _: f"{100.0 * share:.3g}%")
    canvas.count_rounds(ax, float(places[0]), float(places[-1]), log=True)
    canvas.name_ends(ax, ends)
    return canvas.root(ax)


def places(n_rounds: int) -> NDArray[np.int64]:
    """Return rounds at which a course of so many is drawn: many at first, then ever fewer."""
    return np.unique(np.geomspace(1, n_rounds, _PLACES).round().astype(np.int64))
