"""Pictures of a run from plain tables: losses over time, the certificate, and one page of all.

Every function returns a matplotlib figure, or draws into `ax=` and returns the figure of that.
Nothing needs pyplot, and nothing is left set. Needs the extra: ``pip install 'folklearn[plots]'``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.report import canvas
from folklearn.report.by_class import calibration, confusion, weights
from folklearn.report.canvas import BLUE, FAINT, INK, QUIET, RED, SMALL, End, save, short, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "calibration", "certificate", "confusion", "errors", "losses", "overview", "save", "style",
    "weights",
]  # fmt: skip

_OPTIONAL = ("floor", "error_rate", "frozen")
BOUND = "lower bound for\nlinear models"  # where it is not told of what norm they are
_ABSURD = 5.0  # nats a round: below, every loss is drawn to scale


@style()
def losses(
    windows: Any,
    *,
    title: str = "Loss, window by window",
    bound: str = BOUND,
    ax: Any = None,
) -> "Figure":
    """Draw the loss of each window of rounds as steps, and the lower bound, named `bound`.

    `windows` is a mapping of columns or a list of mappings: `start` and `stop` of each window,
    `loss` per round, and if known `floor` per round, `error_rate`, and `frozen`, the loss per
    round of a model that stopped learning. NaN or None is what is not known. A floor below 0
    says nothing and is drawn at 0. Error rates get axes of their own, unless `ax` is given.
    """
    table = _windows(windows)
    has_errors = bool(np.isfinite(table["error_rate"]).any())
    if ax is None and has_errors:
        page: Figure = canvas.figure(7.5, 5.0)
        _course(table, page, title, bound)
        return page
    ax = canvas.figure(7.5, 3.6).subplots() if ax is None else ax
    canvas.dress(ax, title, "rounds", "nats per round")
    top = _limit(ax, table["loss"], table["frozen"], table["floor"])
    x, floor = _steps(table, np.maximum(table["floor"], 0.0))
    ends = _floor(ax, x, floor, bound)
    lines = (("frozen", "frozen model", "--", RED, 1.4), ("loss", "loss, lately", "-", BLUE, 2.2))
    for column, name, dashes, color, width in lines:
        x, y = _steps(table, table[column])
        if not np.isnan(y).all():
            ax.plot(x, np.where(np.isinf(y), np.nan, y), dashes, color=color, linewidth=width)
            ends += _end(x, y, name, color)
    _beyond(ax, (table["start"] + table["stop"]) / 2.0, table["loss"], top)
    canvas.count_rounds(ax, table["start"][0], table["stop"][-1])
    canvas.name_ends(ax, ends)
    return canvas.root(ax)


def _course(table: Mapping[str, Array], page: Any, title: str, bound: str) -> None:
    """Draw losses above error rates, over the same rounds."""
    above, below = page.subplots(2, 1, sharex=True, height_ratios=[5, 2])
    losses(table, title=title, bound=bound, ax=above)
    above.set_xlabel("")
    errors(table, ax=below)


@style()
def errors(windows: Any, *, title: str = "Error rate", ax: Any = None) -> "Figure":
    """Draw the error rate of each window; `windows` as in `losses`."""
    from matplotlib.ticker import MaxNLocator

    table = _windows(windows)
    if not np.isfinite(table["error_rate"]).any():
        raise InvalidInputError("no error rate to draw: no window has one")
    ax = canvas.figure(7.5, 2.6).subplots() if ax is None else ax
    canvas.dress(ax, title, "rounds", "")
    x, y = _steps(table, table["error_rate"])
    ax.plot(x, y, "-", color=INK, linewidth=1.6)
    ax.set_ylim(0.0, 1.12 * float(np.nanmax(y)) or 1.0)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_formatter(lambda share, _: f"{100.0 * share:.3g}%")
    canvas.count_rounds(ax, table["start"][0], table["stop"][-1])
    last = np.flatnonzero(np.isfinite(y))[-1]
    canvas.name_ends(ax, [End(x[last], y[last], f"{100.0 * y[last]:.3g}% wrong lately")])
    return canvas.root(ax)


@style()
def certificate(
    rounds: ArrayLike,
    loss: ArrayLike,
    floor: ArrayLike | None = None,
    *,
    title: str = "Average loss so far",
    bound: str = BOUND,
    ax: Any = None,
) -> "Figure":
    """Draw the average loss after each of these rounds, and the lower bound, named `bound`.

    A floor below 0 says nothing, since no log loss is negative, and is drawn at 0; NaN is no
    floor. What lies between the two is the most that could still be gained.
    """
    columns = [rounds, loss, np.full(np.shape(loss), np.nan) if floor is None else floor]
    if len({np.shape(column) for column in columns}) != 1 or np.ndim(loss) != 1:
        raise InvalidInputError("rounds, loss and floor must be equally long lists of numbers")
    at, mean, low = np.array(columns, dtype=np.float64)[:, np.argsort(np.asarray(rounds))]
    at, mean, low = (column[at > 0.0] for column in (at, mean, low))
    if np.isnan(mean).all():
        raise InvalidInputError("no certificate to draw: no loss after a positive round is known")
    low = np.maximum(low, 0.0)
    ax = canvas.figure(7.5, 3.8).subplots() if ax is None else ax
    canvas.dress(ax, title, "rounds", "nats per round")
    top = _limit(ax, mean, low)
    finite = np.where(np.isinf(mean), np.nan, mean)
    ends = _floor(ax, at, low, bound)
    if ends:
        ax.fill_between(at, low, finite, color=BLUE, alpha=0.12, linewidth=0.0)
    dot = "o" if len(at) == 1 else None
    ax.plot(at, finite, "-", color=BLUE, linewidth=2.2, marker=dot)
    ends += _end(at, mean, "average loss", BLUE)
    if low[-1] > 0.0 and np.isfinite(mean[-1]):
        gap = mean[-1] - low[-1]
        gain = f"at most {_nats(gap)}\ncould be gained"
        if gap < 0.0:
            gain = f"each of these models\nhas {_nats(-gap)} more"
        ends.append(End(at[-1], (mean[-1] + low[-1]) / 2.0, gain, QUIET))
    _beyond(ax, at, mean, top)
    canvas.count_rounds(ax, at[0], at[-1], log=True)
    canvas.name_ends(ax, ends)
    return canvas.root(ax)


@style()
def overview(
    *,
    windows: Any = None,
    certificate: Sequence[Any] | None = None,
    calibration: Sequence[Any] | None = None,
    confusion: Sequence[Any] | None = None,
    weights: Sequence[Any] | None = None,
    title: str = "",
    bound: str = BOUND,
    bound_of_windows: str = BOUND,
) -> "Figure":
    """Draw what a run has on one page; what is None leaves no hole.

    `windows` as in `losses`; the others are the positional arguments of the picture of that
    name, such as ``certificate=(rounds, loss, floor)``.
    """
    given = (certificate, calibration, confusion, weights)
    small = [(draw, data) for draw, data in zip(_SMALL, given, strict=True) if data is not None]
    table = None if windows is None else _windows(windows)
    if table is None and not small:
        raise InvalidInputError("nothing to draw: give at least one of the tables")
    # An odd one out comes first, alone in its row: the certificate, if there is one.
    odd = len(small) % 2
    rows = [small[:odd]] * odd + [small[i : i + 2] for i in range(odd, len(small), 2)]
    heights = [3.0 if row[0][0] is _SMALL[0] and len(row) == 1 else 3.9 for row in rows]
    has_errors = table is not None and bool(np.isfinite(table["error_rate"]).any())
    if table is not None:
        heights.insert(0, 4.2 if has_errors else 2.8)
    page: Figure = canvas.figure(10.0, sum(heights) + 0.5 * bool(title))
    if title:
        page.suptitle(short(title, 76), x=0.01, ha="left", fontsize=13.0, fontweight="bold")
    parts = list(page.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
    if table is not None and has_errors:
        _course(table, parts.pop(0), "Loss, window by window", bound_of_windows)
    elif table is not None:
        losses(table, bound=bound_of_windows, ax=parts.pop(0).subplots())
    for part, row in zip(parts, rows, strict=True):
        halves = part.subfigures(1, len(row), squeeze=False)[0]
        for half, (draw, data) in zip(halves, row, strict=True):
            named = {"bound": bound} if draw is _SMALL[0] else {}
            draw(*data, ax=half.subplots(), **named)
    return page


_SMALL: tuple[Callable[..., Any], ...] = (
    certificate, calibration, partial(confusion, most=10), partial(weights, most=12),
)  # fmt: skip


def _windows(windows: Any) -> dict[str, Array]:
    """Return the columns of a table of windows, in the order of the rounds."""
    if not isinstance(windows, Mapping) and not hasattr(windows, "columns"):
        rows = list(windows)
        names = {name for row in rows for name in row}
        windows = {name: [row.get(name) for row in rows] for name in names}
    names = set(windows) if isinstance(windows, Mapping) else set(windows.columns)
    if not len(names) or not len(windows[next(iter(names))]):
        raise InvalidInputError("no losses to draw: there is no window")
    if missing := [name for name in ("start", "stop", "loss") if name not in names]:
        raise InvalidInputError(f"windows need start, stop and loss; missing: {', '.join(missing)}")
    n = len(windows["start"])
    wanted = ("start", "stop", "loss", *(name for name in _OPTIONAL if name in names))
    table = {name: np.array(windows[name], dtype=np.float64) for name in wanted}
    if any(column.shape != (n,) for column in table.values()):
        raise InvalidInputError("the columns of windows must be equally long")
    table |= {name: np.full(n, np.nan) for name in _OPTIONAL if name not in table}
    order = np.argsort(table["start"], kind="stable")
    table = {name: column[order] for name, column in table.items()}
    start, stop = table["start"], table["stop"]
    if not (start < stop).all() or (stop[:-1] > start[1:]).any():
        raise InvalidInputError("windows must not be empty and must not overlap")
    return table


def _steps(table: Mapping[str, Array], values: Array) -> tuple[Array, Array]:
    """Return the corners of a step line, with a break where rounds are missing."""
    start, stop = table["start"], table["stop"]
    x, y = np.column_stack([start, stop]).ravel(), np.repeat(values, 2)
    gaps = np.flatnonzero(start[1:] > stop[:-1])
    return np.insert(x, 2 * gaps + 2, stop[gaps]), np.insert(y, 2 * gaps + 2, np.nan)


def _floor(ax: Any, x: Array, floor: Array, name: str) -> list[End]:
    """Draw a lower bound, hatched below, and return its name; or say that it says nothing."""
    known = np.isfinite(floor)
    if not known.any():  # nobody looked for one
        return []
    if not (floor > 0.0).any():
        ax.text(0.01, 0.02, "no lower bound above 0 is known", transform=ax.transAxes, va="bottom",
                fontsize=SMALL, color=QUIET)  # fmt: skip
        return []
    hatch = {"facecolor": "none", "edgecolor": FAINT, "hatch": "////", "linewidth": 0.0}
    ax.fill_between(x, 0.0, floor, **hatch)
    ax.plot(x, floor, "-", color=INK, linewidth=1.0, marker="o" if known.sum() == 1 else None)
    return _end(x, floor, name, INK)


def _end(x: Array, y: Array, name: str, color: str) -> list[End]:
    known = np.flatnonzero(np.isfinite(y))
    if not len(known):
        return []
    last = known[-1]
    return [End(float(x[last]), float(y[last]), f"{name} {_nats(y[last])}", color)]


def _nats(value: float) -> str:
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.2g}"


def _limit(ax: Any, *columns: Array) -> float:
    """Scale the y axis from 0, to all values but a few absurd ones; return its top."""
    from matplotlib.ticker import MaxNLocator

    values = np.concatenate(columns)
    values = values[np.isfinite(values)]
    top = float(values.max(initial=0.0))
    usual = float(np.quantile(values, 0.9, method="lower")) if len(values) else 0.0
    if top > max(10.0 * usual, _ABSURD):
        top = max(3.0 * usual, 0.1)
    top = 1.1 * top or 1.0
    ax.set_ylim(0.0, top)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    return top


def _beyond(ax: Any, x: Array, y: Array, top: float) -> None:
    """Mark the values above the axis at its upper edge, and say how high they go."""
    above = y > top
    if above.any():
        edge = ax.get_xaxis_transform()
        ax.plot(x[above], np.ones(int(above.sum())), "^", color=BLUE, markersize=5.0,
                transform=edge, clip_on=False)  # fmt: skip
        most = "infinity" if np.isinf(y).any() else f"{np.nanmax(y):.4g}"
        ax.text(0.99, 0.96, f"▲ beyond the axis, up to {most}", transform=ax.transAxes,
                ha="right", va="top", fontsize=SMALL, color=QUIET)  # fmt: skip
