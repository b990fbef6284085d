"""Plots with the classes as rows, columns or lines: calibration, confusion, weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError
from folklearn.metrics.scores import CalibrationCurve
from folklearn.report import style
from folklearn.report.formatting import format_compact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIN_PREDICTIONS_OF_BIN = 5  # below, its frequency is noise
_N_POOLED_BINS = 10
_MAX_CLASSES_WITH_FULL_COUNTS = 6  # of more, cells have no room for every digit
_COLOURS = (
    style.BLUE, style.RED, style.GREEN, style.PURPLE, style.OLIVE, style.ROSE, style.SLATE,
    style.BROWN,
)  # fmt: skip
_LINES = tuple(
    zip(("--", ":", "-.", "--", ":", "-.", "--", ":"), "s^DvPX<>", _COLOURS, strict=True)
)


@style.use_style()
def calibration(
    curves: Sequence[CalibrationCurve],
    labels: Sequence[object],
    *,
    title: str = "Calibration",
    ax: Any = None,
) -> "Figure":
    """Draw the observed frequency of each class against its predicted probability.

    `curves` has one for each class. The thick line is all classes together; the eight most
    frequent have named lines, the others are grey.
    Bins with fewer than 5 predictions of a class are left out of its line. The bars below
    count the predictions.
    """
    bins = [np.array([one.predicted, one.observed, one.count], np.float64) for one in curves]
    _check_length("curves", len(bins), labels)
    everything = np.concatenate(bins, axis=1) if bins else np.zeros((3, 0))
    if not everything[2].sum() > 0.0:
        raise InvalidInputError("no calibration to draw: no bin holds a prediction")
    ax = style.new_axes(6.8, 5.4) if ax is None else ax
    note = f"the {len(_LINES)} most frequent classes; the others are grey"
    note = note if len(bins) > len(_LINES) else ""
    style.style_axes(ax, title, "", "observed frequency", note=note)
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    ax.plot([0, 1], [0, 1], color=style.QUIET, linewidth=0.8, zorder=1)
    frequency = np.array([observed @ count for _, observed, count in bins])
    order = np.argsort(-frequency, kind="stable")
    for rank, k in enumerate(order):
        predicted, observed, count = bins[k]
        kept = count >= _MIN_PREDICTIONS_OF_BIN
        if not kept.any():
            continue
        if rank >= len(_LINES):
            ax.plot(predicted[kept], observed[kept], "-", color=style.GREY, linewidth=0.8, zorder=1)
            continue
        dashes, marker, color = _LINES[rank]
        look: dict[str, Any] = {
            "linestyle": dashes,
            "marker": marker,
            "color": color,
            "markersize": 3.5,
        }
        look |= {"linewidth": 1.0, "zorder": 2}
        name = style.truncate_label(labels[k], 18)
        ax.plot(predicted[kept], observed[kept], **look, label=_legend_name(name))
    pooled, edges = _pooled(everything)
    line = {"color": style.INK, "linewidth": 2.2, "markersize": 5.0, "zorder": 3}
    ax.plot(*pooled[:2, pooled[2] > 0.0], "o-", **line, label="all classes")
    style.add_legend(ax, (0.02, 1.0))  # inside: few lines are there
    _add_counts(ax, pooled[2], edges)
    return style.figure_of(ax)


def _legend_name(name: str) -> str:
    """Return a name that a legend shows: it leaves out those that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def _add_counts(ax: Any, sizes: Array, edges: Array) -> None:
    """Draw bars below the axes for the number of predictions in each pooled bin."""
    ax.tick_params(labelbottom=False, length=0.0, axis="x")
    strip = ax.inset_axes((0.0, -0.26, 1.0, 0.17), sharex=ax)
    style.style_axes(strip, "", "predicted probability", "", grid="")
    strip.set_yticks([])
    strip.spines["left"].set_visible(False)
    heights = np.sqrt(sizes / sizes.max())  # roots: small bins stay visible
    width = float(edges[1] - edges[0])
    strip.bar(
        edges[:-1],
        heights,
        0.9 * width,
        0.0,
        align="edge",
        color=style.FAINT,
        edgecolor=style.QUIET,
    )
    for left, height, size in zip(edges, heights, sizes, strict=False):
        if size > 0.0:
            where = (left + 0.45 * width, height + 0.08)
            strip.text(
                *where,
                format_compact(size),
                ha="center",
                va="bottom",
                fontsize=style.SMALL - 1.5,
                color=style.INK,
            )
    strip.set_ylim(0.0, 1.45)


def _pooled(bins: Array) -> tuple[Array, Array]:
    at = np.clip((bins[0] * _N_POOLED_BINS).astype(np.int64), 0, _N_POOLED_BINS - 1)
    sizes = np.bincount(at, bins[2], _N_POOLED_BINS)
    sums = [np.bincount(at, bins[2] * one, _N_POOLED_BINS) for one in bins[:2]]
    means = [one / np.where(sizes > 0.0, sizes, 1.0) for one in sums]
    return np.array([*means, sizes]), np.linspace(0.0, 1.0, _N_POOLED_BINS + 1)


@style.use_style()
def confusion(
    counts: ArrayLike,
    labels: Sequence[object],
    *,
    title: str = "Confusion",
    most: int = 20,
    ax: Any = None,
) -> "Figure":
    """Draw how often each class (row) was predicted as each class (column).

    The shade of a cell is its share of the row. Of more than `most` classes, those with the
    most mistakes from and to them are drawn, in the order given.
    """
    C = np.asarray(counts, dtype=np.float64)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or not C.size:
        raise InvalidInputError(f"counts has shape {C.shape}; expected (classes, classes)")
    if not (np.isfinite(C).all() and (C >= 0.0).all()):
        raise InvalidInputError("counts must be finite and not negative")
    _check_length("rows of counts", len(C), labels)
    K, rows = len(C), C.sum(axis=1, keepdims=True)
    mistakes = rows[:, 0] + C.sum(axis=0) - 2.0 * np.diag(C)
    kept = _largest(mistakes, most)
    note = f"the {len(kept)} most confused of {K} classes" if len(kept) < K else ""
    names = [style.truncate_label(labels[k], 20) for k in kept]
    side = max(3.0, 1.0 + 0.36 * len(kept))
    ax = style.new_axes(side + 1.8, side + 1.2) if ax is None else ax
    style.style_axes(ax, title, "predicted", "truth", note=note, grid="")
    shares = (C / np.where(rows > 0.0, rows, 1.0))[np.ix_(kept, kept)]
    shades = np.sqrt(shares)  # roots: a share of 1 % is visible
    ax.pcolormesh(shades, cmap=_shades(), vmin=0.0, vmax=1.0, edgecolors="white", linewidth=1.0)
    _name_cells(ax, names, names)
    size = min(style.SMALL, 72.0 * 0.3 * _cell_inches(ax, len(kept), len(kept))[0])
    for i, j in np.ndindex(shades.shape):
        value = float(C[kept[i], kept[j]])
        if value > 0.0:
            is_roomy = len(kept) <= _MAX_CLASSES_WITH_FULL_COUNTS and value < 1e6
            text = f"{value:,.6g}" if is_roomy else format_compact(value)
            color = "white" if shades[i, j] > 0.85 else style.INK
            look = {"fontsize": size, "color": color, "weight": "bold" if i == j else "normal"}
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", **look)
    return style.figure_of(ax)


def _shades() -> Any:
    """Return transparent to opaque blue, for any background."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    ends = [to_rgba(style.BLUE, 0.0), to_rgba(style.BLUE, 1.0)]
    return LinearSegmentedColormap.from_list("shades", ends)


@style.use_style()
def weights(
    names: Sequence[object],
    labels: Sequence[object],
    W: ArrayLike,
    *,
    title: str = "Weights",
    most: int = 20,
    ax: Any = None,
) -> "Figure":
    """Draw the weights W (classes, columns) of the `most` important columns.

    Adding the same to all classes changes no prediction, so a weight is shown as its
    difference from the mean over classes; of two classes, from the first. Important is a
    column whose weights differ most between classes. With more than two classes a full
    circle speaks for the class and an empty one against it, and its area is the weight.
    """
    V = np.asarray(W, dtype=np.float64)
    if V.ndim != 2 or not V.size:
        raise InvalidInputError(f"W has shape {V.shape}; expected (classes, columns)")
    if not np.isfinite(V).all():
        raise InvalidInputError("W must be finite")
    _check_length("rows of W", len(V), labels)
    _check_length("columns of W", V.shape[1], names)
    K, d = V.shape
    if K > 2:
        V = V - V.mean(axis=0)
    elif K == 2:
        V = V[1:] - V[:1]
    spread = np.abs(V).max(axis=0)
    columns = np.argsort(-spread, kind="stable")[:most]
    classes = _largest(np.abs(V).max(axis=1), most)
    rows = [style.truncate_label(names[j]) for j in columns]
    note = f"the {len(rows)} most important of {d} columns" if len(rows) < d else ""
    height = 1.4 + 0.24 * len(rows)
    if K <= 2:
        ax = style.new_axes(6.4, height) if ax is None else ax
        style.style_axes(ax, title, _direction(labels), "", note=note, grid="x")
        _draw_bars(ax, rows, V[0, columns])
        return style.figure_of(ax)
    width = 2.8 + 0.32 * max(len(classes), 8)
    ax = style.new_axes(width, height + 1.2) if ax is None else ax
    style.style_axes(ax, title, "", "", note=note, grid="both")
    _name_cells(ax, rows, [style.truncate_label(labels[k], 18) for k in classes])
    reach = _draw_circles(ax, V[np.ix_(classes, columns)].T)
    shown = f", {len(classes)} of {K} classes" if len(classes) < K else ""
    ax.set_xlabel(
        f"● for the class   ○ against it   largest: {reach:.3g}{shown}", color=style.QUIET
    )
    return style.figure_of(ax)


def _draw_bars(ax: Any, rows: Sequence[str], values: Array) -> None:
    edge, inside = _colours_of(values)
    middles = np.arange(len(rows)) + 0.5
    ax.barh(middles, values, 0.5, color=inside, edgecolor=edge)
    ax.axvline(0.0, color=style.INK, linewidth=0.8)
    ax.set_yticks(middles, rows, parse_math=False)
    ax.set_ylim(len(rows), 0.0)
    reach = 1.08 * float(np.abs(values).max()) or 1.0
    ax.set_xlim(-reach, reach)


def _draw_circles(ax: Any, values: Array) -> float:
    """Draw values (rows, columns) as circles; return the largest size of one."""
    reach = float(np.abs(values).max()) or 1.0
    diameter = 72.0 * 0.75 * min(_cell_inches(ax, *values.shape))
    i, j = np.nonzero(np.abs(values) > 1e-3 * reach)
    edge, inside = _colours_of(values[i, j])
    sizes = diameter**2 * np.abs(values[i, j]) / reach
    look = {"edgecolors": edge, "facecolors": inside, "linewidth": 1.0, "clip_on": False}
    ax.scatter(j + 0.5, i + 0.5, s=sizes, zorder=3, **look)
    return reach


def _colours_of(values: Array) -> tuple[Any, Any]:
    """Return the colours of the edge and inside: full is for, empty is against."""
    edge = np.where(values > 0.0, style.BLUE, style.RED)
    return edge, np.where(values > 0.0, edge, "white")


def _direction(labels: Sequence[object]) -> str:
    if len(labels) == 1:
        return f"weight for {style.truncate_label(labels[0])}"
    against, favoured = (style.truncate_label(label, 18) for label in labels)
    return f"← {against}     weight     {favoured} →"


def _largest(scores: Array, most: int) -> Labels:
    """Return where the largest scores are, in the order given."""
    return np.sort(np.argsort(-scores, kind="stable")[:most])


def _cell_inches(ax: Any, n_rows: int, n_columns: int) -> tuple[float, float]:
    """Return width and height of a cell, about: names will take some of the room."""
    width, height = style.size_in_inches(ax)
    return 0.9 * width / n_columns, 0.9 * height / n_rows


def _name_cells(ax: Any, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Name the rows, top to bottom, and the columns of a table."""
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows, parse_math=False)
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns, parse_math=False)
    ax.set_xlim(0.0, len(columns))
    ax.set_ylim(len(rows), 0.0)
    ax.tick_params(length=0.0)
    width = _cell_inches(ax, len(rows), len(columns))[0]
    if max(map(len, columns)) * 0.6 * style.SMALL / 72.0 > width:
        for tick in ax.get_xticklabels():
            tick.set(rotation=50, ha="right", rotation_mode="anchor")


def _check_length(what: str, n: int, names: Sequence[object]) -> None:
    if n != len(names):
        raise InvalidInputError(f"there are {n} {what} and {len(names)} names for them")
