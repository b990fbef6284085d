"""Plots of runs and models from plain tables, as matplotlib figures.

Every function returns a figure, or draws into `ax=` and returns the figure of that.
Nothing needs pyplot, and nothing is left set. Needs the extra: ``pip install 'folklearn[plots]'``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.report import style
from folklearn.report.class_plots import calibration, confusion, weights
from folklearn.report.formatting import format_loss, format_share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "BOUND", "calibration", "certificate", "confusion", "curve_rounds", "curves", "errors",
    "losses", "overview", "save", "use_style", "weights",
]  # fmt: skip

save, use_style = style.save, style.use_style
_OPTIONAL_COLUMNS = ("lower_bound", "error_rate", "holdout")
BOUND = "lower bound for\nlinear models"  # where their norm is not known
_MIN_NATS_TO_CUT = 5.0  # a lower loss is always drawn to scale
_CURVE_COLORS = (style.BLUE, style.RED, style.INK, style.GREEN, style.PURPLE, style.QUIET)
_CURVE_DASHES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)))
_MAX_CURVE_POINTS = 200


@style.use_style()
def losses(
    windows: Any,
    *,
    title: str = "Loss, window by window",
    bound: str = BOUND,
    ax: Any = None,
) -> "Figure":
    """Draw the loss of each window of rounds as steps, and the lower bound, named `bound`.

    `windows` is a mapping of columns or a list of mappings: `start` and `stop` of each window,
    `loss` per round, and if known `lower_bound` per round, `error_rate`, and `holdout`, the loss
    per round of the model as it would be saved. NaN or None is what is not known. A bound below 0
    says nothing and is drawn at 0. Error rates get axes of their own, unless `ax` is given.
    """
    table = _window_table(windows)
    has_errors = bool(np.isfinite(table["error_rate"]).any())
    if ax is None and has_errors:
        page: Figure = style.new_figure(7.5, 5.0)
        _draw_losses_and_errors(table, page, title, bound)
        return page
    ax = style.new_axes(7.5, 3.6) if ax is None else ax
    style.style_axes(ax, title, "rounds", "nats per round")
    top = _limit_losses(ax, table["loss"], table["holdout"], table["lower_bound"])
    x, lower = _steps(table, np.maximum(table["lower_bound"], 0.0))
    _draw_bound(ax, x, lower, bound)
    lines = (
        ("holdout", "hold-out", "--", style.RED, 1.4),
        ("loss", "loss, lately", "-", style.BLUE, 2.2),
    )
    for column, name, dashes, color, width in lines:
        x, y = _steps(table, table[column])
        _draw_line(ax, x, y, name, linestyle=dashes, color=color, linewidth=width)
    _mark_beyond(ax, (table["start"] + table["stop"]) / 2.0, table["loss"], top)
    style.set_round_axis(ax, table["start"][0], table["stop"][-1])
    style.add_legend(ax)
    return style.figure_of(ax)


def _draw_losses_and_errors(table: Mapping[str, Array], page: Any, title: str, bound: str) -> None:
    above, below = page.subplots(2, 1, sharex=True, height_ratios=[5, 2])
    losses(table, title=title, bound=bound, ax=above)
    above.set_xlabel("")
    errors(table, ax=below)


@style.use_style()
def errors(windows: Any, *, title: str = "Error rate", ax: Any = None) -> "Figure":
    """Draw the error rate of each window; `windows` as in `losses`."""
    from matplotlib.ticker import MaxNLocator

    table = _window_table(windows)
    if not np.isfinite(table["error_rate"]).any():
        raise InvalidInputError("no error rate to draw: no window has one")
    ax = style.new_axes(7.5, 2.6) if ax is None else ax
    style.style_axes(ax, title, "rounds", "")
    x, y = _steps(table, table["error_rate"])
    last = float(y[np.isfinite(y)][-1])
    ax.plot(x, y, "-", color=style.INK, linewidth=1.6, label=f"{format_share(last)} wrong lately")
    ax.set_ylim(0.0, 1.12 * float(np.nanmax(y)) or 1.0)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_formatter(lambda share, _: f"{100.0 * share:.3g}%")
    style.set_round_axis(ax, table["start"][0], table["stop"][-1])
    style.add_legend(ax)
    return style.figure_of(ax)


@style.use_style()
def certificate(
    rounds: ArrayLike,
    loss: ArrayLike,
    lower_bound: ArrayLike | None = None,
    *,
    title: str = "Average loss so far",
    bound: str = BOUND,
    ax: Any = None,
) -> "Figure":
    """Draw the average loss after each of these rounds, and the lower bound, named `bound`.

    A bound below 0 says nothing, since no log loss is negative, and is drawn at 0; NaN is no
    bound. The distance of the two is the most that could still be gained.
    """
    columns = [
        rounds,
        loss,
        np.full(np.shape(loss), np.nan) if lower_bound is None else lower_bound,
    ]
    if len({np.shape(column) for column in columns}) != 1 or np.ndim(loss) != 1:
        raise InvalidInputError("rounds, loss and lower_bound must be equally long lists")
    at, mean, low = np.array(columns, dtype=np.float64)[:, np.argsort(np.asarray(rounds))]
    at, mean, low = (column[at > 0.0] for column in (at, mean, low))
    if np.isnan(mean).all():
        raise InvalidInputError("no certificate to draw: no loss after a positive round is known")
    low = np.maximum(low, 0.0)
    ax = style.new_axes(7.5, 3.8) if ax is None else ax
    style.style_axes(ax, title, "rounds", "nats per round")
    top = _limit_losses(ax, mean, low)
    if _draw_bound(ax, at, low, bound):
        gap, label = mean[-1] - low[-1], None
        if low[-1] > 0.0 and np.isfinite(gap):
            label = f"at most {format_loss(gap)}\ncould be gained"
            if gap < 0.0:
                label = f"each of these models\nhas {format_loss(-gap)} more"
        finite = np.where(np.isinf(mean), np.nan, mean)
        ax.fill_between(at, low, finite, color=style.BLUE, alpha=0.12, linewidth=0.0, label=label)
    _draw_line(ax, at, mean, "average loss", color=style.BLUE, linewidth=2.2)
    _mark_beyond(ax, at, mean, top)
    style.set_round_axis(ax, at[0], at[-1], log=True)
    style.add_legend(ax)
    return style.figure_of(ax)


@style.use_style()
def curves(
    at: ArrayLike,
    lines: Mapping[str, ArrayLike],
    *,
    title: str = "",
    x: str = "rounds",
    y: str = "nats per round",
    ax: Any = None,
) -> "Figure":
    """Draw lines by name over the same rounds, from 0 up; a single number is a dotted level."""
    rounds = np.asarray(at, np.float64)
    if not len(rounds) or not lines:
        raise InvalidInputError("no curves to draw: there are no rounds, or no lines")
    ax = style.new_axes(7.5, 3.8) if ax is None else ax
    style.style_axes(ax, title, x, y)
    top = 0.0
    for i, (name, values) in enumerate(lines.items()):
        heights = np.broadcast_to(np.asarray(values, np.float64), rounds.shape)
        if not np.isfinite(heights).any():
            continue
        look: dict[str, Any] = {"color": _CURVE_COLORS[i % len(_CURVE_COLORS)]}
        if np.ndim(values) == 0:
            look |= {"linestyle": ":", "linewidth": 1.0}
        else:
            look |= {"linestyle": _CURVE_DASHES[i % len(_CURVE_DASHES)], "linewidth": 2.0}
        lines_of_name = [style.truncate_label(line, 32) for line in name.split("\n")]
        _draw_line(ax, rounds, heights, "\n".join(lines_of_name), **look)
        top = max(top, float(heights[np.isfinite(heights)].max()))
    ax.set_ylim(0.0, 1.08 * top or 1.0)
    style.set_round_axis(ax, float(rounds[0]), float(rounds[-1]), log=True)
    style.add_legend(ax)
    return style.figure_of(ax)


def curve_rounds(n_rounds: int) -> NDArray[np.int64]:
    """Return at most 200 of the rounds 1 to `n_rounds`, in equal ratios, to draw a curve at."""
    return np.unique(np.geomspace(1, n_rounds, _MAX_CURVE_POINTS).round().astype(np.int64))


@style.use_style()
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
    name, such as ``certificate=(rounds, loss, lower_bound)``.
    """
    tables = (certificate, calibration, confusion, weights)
    small = [(draw, data) for draw, data in zip(_SMALL, tables, strict=True) if data is not None]
    table = None if windows is None else _window_table(windows)
    if table is None and not small:
        raise InvalidInputError("nothing to draw: give at least one of the tables")
    # Of an odd number the first, the certificate if there is one, has a row to itself.
    odd = len(small) % 2
    rows = [small[:odd]] * odd + [small[i : i + 2] for i in range(odd, len(small), 2)]
    heights = [3.0 if row[0][0] is _SMALL[0] and len(row) == 1 else 3.9 for row in rows]
    has_errors = table is not None and bool(np.isfinite(table["error_rate"]).any())
    if table is not None:
        heights.insert(0, 4.2 if has_errors else 2.8)
    page: Figure = style.new_figure(10.0, sum(heights) + 0.5 * bool(title))
    if title:
        page.suptitle(
            style.truncate_label(title, 76), x=0.01, ha="left", fontsize=13.0, fontweight="bold"
        )
    parts = list(page.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
    if table is not None and has_errors:
        _draw_losses_and_errors(table, parts.pop(0), "Loss, window by window", bound_of_windows)
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


def _window_table(windows: Any) -> dict[str, Array]:
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
    wanted = ("start", "stop", "loss", *(name for name in _OPTIONAL_COLUMNS if name in names))
    table = {name: np.array(windows[name], dtype=np.float64) for name in wanted}
    if any(column.shape != (n,) for column in table.values()):
        raise InvalidInputError("the columns of windows must be equally long")
    table |= {name: np.full(n, np.nan) for name in _OPTIONAL_COLUMNS if name not in table}
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


def _draw_bound(ax: Any, x: Array, lower: Array, name: str) -> bool:
    """Draw a lower bound, hatched below; return whether it is above 0 anywhere."""
    known = np.isfinite(lower)
    if not known.any():
        return False
    if not (lower > 0.0).any():
        ax.text(0.01, 0.02, "no lower bound above 0 is known", transform=ax.transAxes, va="bottom",
                fontsize=style.SMALL, color=style.QUIET)  # fmt: skip
        return False
    hatch = {"facecolor": "none", "edgecolor": style.FAINT, "hatch": "////", "linewidth": 0.0}
    ax.fill_between(x, 0.0, lower, **hatch)
    _draw_line(ax, x, lower, name, color=style.INK, linewidth=1.0)
    return True


def _draw_line(ax: Any, x: Array, y: Array, name: str, **look: Any) -> None:
    """Draw a line named with its last value; a single point has a marker."""
    known = np.flatnonzero(np.isfinite(y))
    if len(known):
        marker = "o" if len(known) == 1 else None
        label = f"{name} {format_loss(float(y[known[-1]]))}"
        ax.plot(x, np.where(np.isinf(y), np.nan, y), marker=marker, label=label, **look)


def _limit_losses(ax: Any, *columns: Array) -> float:
    """Scale the y axis from 0 to all values but a few extreme ones; return its top."""
    from matplotlib.ticker import MaxNLocator

    values = np.concatenate(columns)
    values = values[np.isfinite(values)]
    top = float(values.max(initial=0.0))
    usual = float(np.quantile(values, 0.9, method="lower")) if len(values) else 0.0
    if top > max(10.0 * usual, _MIN_NATS_TO_CUT):
        top = max(3.0 * usual, 0.1)
    top = 1.1 * top or 1.0
    ax.set_ylim(0.0, top)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    return top


def _mark_beyond(ax: Any, x: Array, y: Array, top: float) -> None:
    """Mark the values above the axis at its upper edge, with the largest."""
    above = y > top
    if above.any():
        edge = ax.get_xaxis_transform()
        ax.plot(x[above], np.ones(int(above.sum())), "^", color=style.BLUE, markersize=5.0,
                transform=edge, clip_on=False)  # fmt: skip
        largest = "infinity" if np.isinf(y).any() else f"{np.nanmax(y):.4g}"
        ax.text(0.99, 0.96, f"▲ beyond the axis, up to {largest}", transform=ax.transAxes,
                ha="right", va="top", fontsize=style.SMALL, color=style.QUIET)  # fmt: skip
