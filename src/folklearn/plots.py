"""Plots of runs and models from plain tables, as matplotlib figures.

Every function returns a figure, or draws into `ax=` and returns the figure of that.
Nothing needs pyplot, and nothing is left set. Needs the extra: ``pip install 'folklearn[plots]'``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError
from folklearn.metrics.scores import CalibrationCurve
from folklearn.report import style
from folklearn.report.rendering import format_compact, format_loss, format_share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "BOUND", "calibration", "confusion", "curves", "errors", "losses", "overview", "save",
    "use_style", "weights",
]  # fmt: skip

Names = Sequence[object]  # written as text
Windows = Sequence[Mapping[str, float | None]]
Plot = Callable[..., Any]
save, use_style = style.save, style.use_style
BOUND = "lower bound,\nlinear models\nwith their penalty"
_MIN_PREDICTIONS_OF_BIN = 5  # below, its frequency is noise
_N_POOLED_BINS = 10
_MAX_CLASSES_WITH_FULL_COUNTS = 6  # of more, cells have no room for every digit
_CLASS_MARKERS = "s^DvPX<>"


@style.use_style()
def losses(
    windows: Windows, *, title: str = "Loss, window by window", bound: str = BOUND, ax: Any = None
) -> "Figure":
    """Draw the loss of each window of rounds as steps, and the lower bound, named `bound`.

    `windows` are mappings, in order: `start`, `stop`, `loss` per round, and if known `lower_bound`
    per round, `error_rate`, and `holdout`, the loss per round of the model as it would be saved.
    Error rates get axes of their own, but in `ax`.
    """
    table = _window_table(windows)
    if ax is None and _has_errors(table):
        page: Figure = style.new_figure(7.5, 5.0)
        above, below = page.subplots(2, 1, sharex=True, height_ratios=[5, 2])
        losses(windows, title=title, bound=bound, ax=above)
        above.set_xlabel("")
        errors(windows, ax=below)
        return page
    ax = style.prepare_axes(ax, (7.5, 3.6), title, "rounds", "nats per round")
    x, lower = _steps(table, np.maximum(table["lower_bound"], 0.0))
    if (lower > 0.0).any():
        hatch = {"facecolor": "none", "edgecolor": style.FAINT, "hatch": "////", "linewidth": 0.0}
        ax.fill_between(x, 0.0, lower, **hatch)
        _draw_line(ax, x, lower, bound, color=style.INK, linewidth=1.0)
    elif np.isfinite(lower).any():
        style.write_note(ax, (0.01, 0.02), "no lower bound above 0 is known")
    x, holdout = _steps(table, table["holdout"])
    _draw_line(ax, x, holdout, "hold-out", linestyle="--", color=style.RED, linewidth=1.4)
    x, loss = _steps(table, table["loss"])
    _draw_line(ax, x, loss, "loss, lately", color=style.BLUE, linewidth=2.2)
    middles = (table["start"] + table["stop"]) / 2.0
    style.set_loss_axis(ax, middles, table["loss"], table["holdout"], table["lower_bound"])
    style.set_round_axis(ax, table["start"][0], table["stop"][-1])
    return style.finish(ax)


@style.use_style()
def errors(windows: Windows, *, title: str = "Error rate", ax: Any = None) -> "Figure":
    """Draw the error rate of each window; `windows` as in `losses`."""
    from matplotlib.ticker import MaxNLocator

    table = _window_table(windows)
    if not _has_errors(table):
        raise InvalidInputError("no error rate to draw: no window has one")
    ax = style.prepare_axes(ax, (7.5, 2.6), title, "rounds")
    x, y = _steps(table, table["error_rate"])
    last = float(y[np.isfinite(y)][-1])
    ax.plot(x, y, "-", color=style.INK, linewidth=1.6, label=f"{format_share(last)} wrong lately")
    ax.set_ylim(0.0, 1.12 * float(np.nanmax(y)) or 1.0)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_formatter(lambda share, _: f"{100.0 * share:.3g}%")
    style.set_round_axis(ax, table["start"][0], table["stop"][-1])
    return style.finish(ax)


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
    """Draw lines by name over the same rounds, from 0 up."""
    rounds = np.asarray(at, np.float64)
    if not len(rounds) or not lines:
        raise InvalidInputError("no curves to draw: there are no rounds, or no lines")
    ax = style.prepare_axes(ax, (7.5, 3.8), title, x, y)
    top = 0.0
    for i, (name, values) in enumerate(lines.items()):
        heights = np.asarray(values, np.float64)
        look: Any = {"linestyle": style.DASHES[i % len(style.DASHES)], "linewidth": 2.0}
        label = "\n".join(style.truncate_label(line, 32) for line in name.split("\n"))
        color = style.COLORS[i % len(style.COLORS)]
        _draw_line(ax, rounds, heights, label, color=color, **look)
        top = max(top, float(heights[np.isfinite(heights)].max(initial=0.0)))
    ax.set_ylim(0.0, 1.08 * top or 1.0)
    style.set_round_axis(ax, float(rounds[0]), float(rounds[-1]), log=True)
    return style.finish(ax)


@style.use_style()
def calibration(
    curves: Sequence[CalibrationCurve], labels: Names, *, title: str = "Calibration", ax: Any = None
) -> "Figure":
    """Draw the observed frequency of each class against its predicted probability.

    The thick line is all classes together; the eight most frequent have named lines, without bins
    of fewer than 5 predictions. The bars below count the predictions.
    """
    bins = [np.array([curve.predicted, curve.observed, curve.count], float) for curve in curves]
    if len(bins) != len(labels):
        raise InvalidInputError(f"there are {len(bins)} curves and {len(labels)} names for them")
    all_bins = np.concatenate(bins, axis=1) if bins else np.zeros((3, 0))
    if not all_bins[2].sum() > 0.0:
        raise InvalidInputError("no calibration to draw: no bin holds a prediction")
    n_named = len(_CLASS_MARKERS)
    note = f"the {n_named} most frequent classes; the others are grey" * (len(bins) > n_named)
    ax = style.prepare_axes(ax, (6.8, 5.4), title, "", "observed frequency", note=note)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.plot([0, 1], [0, 1], color=style.QUIET, linewidth=0.8, zorder=1)
    n_rows_of_class = [-(observed @ count) for _, observed, count in bins]
    for rank, k in enumerate(np.argsort(n_rows_of_class, kind="stable")):
        predicted, observed, _ = bins[k][:, bins[k][2] >= _MIN_PREDICTIONS_OF_BIN]
        look: dict[str, Any] = {"color": style.GREY, "linewidth": 0.8, "zorder": 1}
        if rank < n_named:
            # The solid line is of all classes.
            dashes = style.DASHES[1 + rank % (len(style.DASHES) - 1)]
            look = {"color": style.COLORS[rank], "linestyle": dashes, "linewidth": 1.0, "zorder": 2}
            look |= {"marker": _CLASS_MARKERS[rank], "markersize": 3.5}
            name = style.truncate_label(labels[k], 18)
            # A legend leaves out what begins with an underscore.
            look["label"] = f" {name}" if name.startswith("_") else name
        if len(predicted):
            ax.plot(predicted, observed, **look)
    at = np.clip((all_bins[0] * _N_POOLED_BINS).astype(np.int64), 0, _N_POOLED_BINS - 1)
    sizes: Any = np.bincount(at, all_bins[2], _N_POOLED_BINS)
    sums = [np.bincount(at, all_bins[2] * values, _N_POOLED_BINS) for values in all_bins[:2]]
    means = sums / np.maximum(sizes, 1.0)
    line = {"color": style.INK, "linewidth": 2.2, "markersize": 5.0, "zorder": 3}
    ax.plot(*means[:, sizes > 0.0], "o-", **line, label="all classes")
    _draw_bin_sizes(ax, sizes)
    return style.finish(ax, (0.02, 1.0))  # the legend inside: few lines are there


def _draw_bin_sizes(ax: Any, sizes: Array) -> None:
    ax.tick_params(labelbottom=False, length=0.0, axis="x")
    strip = ax.inset_axes((0.0, -0.26, 1.0, 0.17), sharex=ax)
    style.prepare_axes(strip, (), "", "predicted probability", grid="")
    strip.set(yticks=[], ylim=(0.0, 1.45))
    strip.spines["left"].set_visible(False)
    middles = (np.arange(len(sizes)) + 0.5) / len(sizes)
    heights = np.sqrt(sizes / sizes.max())  # roots: small bins stay visible
    look = {"color": style.FAINT, "edgecolor": style.QUIET}
    bars = strip.bar(middles, heights, 0.9 / len(sizes), **look)
    counts = [format_compact(size) if size else "" for size in sizes.tolist()]
    strip.bar_label(bars, counts, padding=1.0, fontsize=style.SMALL - 1.5, color=style.INK)


@style.use_style()
def confusion(
    counts: ArrayLike, labels: Names, *, title: str = "Confusion", most: int = 20, ax: Any = None
) -> "Figure":
    """Draw how often each class (row) was predicted as each class (column).

    The shade of a cell is its share of the row. Of more than `most` classes, those with the
    most mistakes from and to them are drawn, in the order given.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    C = _check_matrix("counts", counts, labels, labels)
    if (C < 0.0).any():
        raise InvalidInputError("counts must not be negative")
    sums = C.sum(axis=1, keepdims=True)
    kept = _find_largest(sums[:, 0] + C.sum(axis=0) - 2.0 * np.diag(C), most)
    n = len(kept)
    note = f"the {n} most confused of {len(C)} classes" if n < len(C) else ""
    side = max(3.0, 1.0 + 0.36 * n)
    ax = style.prepare_axes(
        ax, (side + 1.8, side + 1.2), title, "predicted", "truth", note=note, grid=""
    )
    names = [style.truncate_label(labels[k], 20) for k in kept]
    width = _name_cells(ax, names, names)[0]
    shown = C[np.ix_(kept, kept)]
    shades = np.sqrt(shown / np.where(sums > 0.0, sums, 1.0)[kept])  # roots: 1 % is visible
    blues = [to_rgba(style.BLUE, 0.0), to_rgba(style.BLUE, 1.0)]  # for any background
    cmap = LinearSegmentedColormap.from_list("shades", blues)
    ax.pcolormesh(shades, cmap=cmap, vmin=0.0, vmax=1.0, edgecolors="white", linewidth=1.0)
    for i, j in np.argwhere(shown > 0.0).tolist():
        count = float(shown[i, j])
        has_room = n <= _MAX_CLASSES_WITH_FULL_COUNTS and count < 1e6
        look = {
            "color": "white" if shades[i, j] > 0.85 else style.INK,
            "weight": "bold" if i == j else "normal",
            "fontsize": min(style.SMALL, 72.0 * 0.3 * width),
        }
        text = f"{count:,.6g}" if has_room else format_compact(count)
        ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", **look)
    return style.finish(ax)


@style.use_style()
def weights(
    names: Names,
    labels: Names,
    W: ArrayLike,
    *,
    title: str = "Weights",
    what: str = "weight",
    most: int = 20,
    ax: Any = None,
) -> "Figure":
    """Draw the weights W (classes, columns) of the `most` columns that tell classes apart.

    Weights are shown as differences from the mean over classes, or between two: adding the same to
    all changes nothing. Of more classes full circles speak for a class and empty ones against it.
    """
    V = _check_matrix("W", W, labels, names)
    K, d = V.shape
    if K > 2:
        V = V - V.mean(axis=0)
    elif K == 2:
        V = V[1:] - V[:1]
    columns = np.argsort(-np.abs(V).max(axis=0), kind="stable")[:most]
    classes = _find_largest(np.abs(V).max(axis=1), most)
    values = V[np.ix_(classes, columns)].T
    note = f"the {len(columns)} most important of {d} columns" if len(columns) < d else ""
    rows = [style.truncate_label(names[j]) for j in columns]
    height = 1.4 + 0.24 * len(rows)
    reach = float(np.abs(values).max()) or 1.0
    color = np.where(values > 0.0, style.BLUE, style.RED)
    inside = np.where(values > 0.0, color, "white")  # full is for a class, empty against it
    if K <= 2:
        sides = [style.truncate_label(label, 18) for label in labels]
        about = f"{what} for {sides[0]}" if K == 1 else f"← {sides[0]}     {what}     {sides[1]} →"
        ax = style.prepare_axes(ax, (6.4, height), title, about, note=note, grid="x")
        middles = np.arange(len(rows)) + 0.5
        ax.barh(middles, values[:, 0], 0.5, color=inside[:, 0], edgecolor=color[:, 0])
        ax.axvline(0.0, color=style.INK, linewidth=0.8)
        ax.set_yticks(middles, rows, parse_math=False)
        ax.set(xlim=(-1.08 * reach, 1.08 * reach), ylim=(len(rows), 0.0))
    else:
        size = 2.8 + 0.32 * max(len(classes), 8), height + 1.2
        about = f"● for the class   ○ against it   largest: {reach:.3g}"
        about += f", {len(classes)} of {K} classes" if len(classes) < K else ""
        ax = style.prepare_axes(ax, size, title, about, note=note, grid="both")
        cells = _name_cells(ax, rows, [style.truncate_label(labels[k], 18) for k in classes])
        diameter = 72.0 * 0.75 * min(cells)  # points
        i, j = np.nonzero(np.abs(values) > 1e-3 * reach)
        areas = diameter**2 * np.abs(values[i, j]) / reach
        look = {"facecolors": inside[i, j], "edgecolors": color[i, j], "clip_on": False}
        ax.scatter(j + 0.5, i + 0.5, s=areas, zorder=3, linewidth=1.0, **look)
    return style.finish(ax)


@style.use_style()
def overview(wide: Sequence[Plot], panels: Sequence[Plot], *, title: str = "") -> "Figure":
    """Draw plots on one page: `wide` ones below each other, then `panels` two by two.

    A plot is a function that draws into ``ax=``, such as ``functools.partial(losses, windows)``.
    Of an odd number of panels the first has a row to itself.
    """
    n_alone = len(panels) % 2
    rows = [*([plot] for plot in wide), *[panels[:1]] * n_alone]
    heights = [2.8] * len(wide) + [3.4] * n_alone
    for i in range(n_alone, len(panels), 2):
        rows.append(panels[i : i + 2])
        heights.append(3.9)
    if not rows:
        raise InvalidInputError("nothing to draw: give at least one plot")
    page: Figure = style.new_figure(10.0, sum(heights) + 0.5 * bool(title))
    if title:
        text = style.truncate_label(title, 76)
        page.suptitle(text, x=0.01, ha="left", fontsize=13.0, fontweight="bold")
    bands = page.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
    for band, row in zip(bands, rows, strict=True):
        for panel, draw in zip(band.subfigures(1, len(row), squeeze=False)[0], row, strict=True):
            draw(ax=panel.subplots())
    return page


def _has_errors(table: Mapping[str, Array]) -> bool:
    return bool(np.isfinite(table["error_rate"]).any())


def _window_table(windows: Windows) -> dict[str, Array]:
    if not windows:
        raise InvalidInputError("no losses to draw: there is no window")
    names = "start", "stop", "loss", "lower_bound", "error_rate", "holdout"
    return {name: np.array([row.get(name) for row in windows], np.float64) for name in names}


def _steps(table: Mapping[str, Array], values: Array) -> tuple[Array, Array]:
    return np.column_stack([table["start"], table["stop"]]).ravel(), np.repeat(values, 2)


def _draw_line(ax: Any, x: Array, y: Array, name: str, **look: Any) -> None:
    finite = y[np.isfinite(y)]
    if len(finite):
        if len(finite) == 1:
            look |= {"marker": "o", "clip_on": False}  # whole, also at the edge
        label = f"{name} {format_loss(float(finite[-1]))}"
        ax.plot(x, np.where(np.isinf(y), np.nan, y), label=label, **look)


def _find_largest(scores: Array, most: int) -> Labels:
    return np.sort(np.argsort(-scores, kind="stable")[:most])


def _name_cells(ax: Any, rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float]:
    """Name the rows, top to bottom, and the columns of a table; return inches of a cell, about."""
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows, parse_math=False)
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns, parse_math=False)
    ax.set(xlim=(0.0, len(columns)), ylim=(len(rows), 0.0))
    ax.tick_params(length=0.0)
    width, height = (0.9 * inches for inches in style.size_in_inches(ax))  # names take some room
    width, height = width / len(columns), height / len(rows)
    if max(map(len, columns)) * 0.6 * style.SMALL / 72.0 > width:
        for tick in ax.get_xticklabels():
            tick.set(rotation=50, ha="right", rotation_mode="anchor")
    return width, height


def _check_matrix(name: str, values: ArrayLike, rows: Names, columns: Names) -> Array:
    matrix, shape = np.asarray(values, np.float64), (len(rows), len(columns))
    if matrix.shape != shape or not matrix.size or not np.isfinite(matrix).all():
        raise InvalidInputError(f"{name} has shape {matrix.shape}; expected finite numbers {shape}")
    return matrix
