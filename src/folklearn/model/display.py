"""Models, runs and explanations as figures and HTML reports."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.model.summary import SEGMENT_BOUND, ModelSummary
from folklearn.report import style
from folklearn.report.rendering import format_about, render
from folklearn.utils import count_of, join_names

if TYPE_CHECKING:
    from folklearn.model.explain import Explanation, Shape

_MAX_PANELS, _PANELS_ACROSS = 12, 4
_MAX_DRAWN_CLASSES, _MAX_BARS = 6, 24  # of a panel
_STRIP = 0.14  # of the height of a panel, for the rows


class ReportPage(str):
    """The text of an HTML page, which a notebook does not print in full."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ReportPage of {len(self):,} characters"


def render_report(title: str, facts: ModelSummary, path: Any = None) -> str:
    """Return a summary as one HTML page that needs no other file; write it to a path."""
    names = [name for name in facts.plot_data if name not in ("errors", "drift")]
    images = {name: style.svg_uri(facts.draw(name)) for name in names}
    if facts.explanation is not None and facts.explanation.shapes:
        images["shapes"] = style.svg_uri(draw_shapes(facts.explanation))
    bound = SEGMENT_BOUND.replace("\n", " ")
    page = render("report.html", title=title, facts=facts, images=images, bound=bound)
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    return ReportPage(page)


@style.use_style()
def draw_shapes(
    explanation: "Explanation", path: Any = None, columns: Sequence[str] | None = None
) -> Any:
    """Draw shapes as small multiples, all at one scale of nats."""
    labels, every = explanation.labels, explanation.shapes
    wanted = list(every)[:_MAX_PANELS] if columns is None else list(columns)
    shapes = {n: s for name in wanted for n, s in every.items() if name in (n, s.column)}
    unknown = {*wanted} - {*shapes} - {shape.column for shape in shapes.values()}
    if unknown or not shapes:
        what, have = min(unknown, default="any column"), join_names(list(every) or ["none"])
        raise InvalidInputError(f"no shape of {what} to draw; columns that have one: {have}")
    reach = np.max([np.ptp(shape.contributions, axis=0) for shape in shapes.values()], axis=0)
    classes = np.sort(np.argsort(-reach, kind="stable")[:_MAX_DRAWN_CLASSES])
    names, factor, unit = [style.truncate_label(labels[k], 18) for k in classes], 1.0, "nats"
    if len(labels) == 2:  # what is for one is against the other
        classes, factor, unit = classes[1:], 2.0, f"log odds of {names[1]}"
    heights = []  # of a column, that of a missing value last if recent rows have some
    for shape in shapes.values():
        missing = shape.missing[None][: int(np.isnan(shape.recent).any())]
        heights.append(factor * np.concatenate([shape.contributions, missing])[:, classes])
    low, high = (float(f(np.concatenate(heights))) for f in (np.min, np.max))
    margin = 0.06 * (high - low) or 1.0
    n_across = min(_PANELS_ACROSS, len(shapes))
    n_down = math.ceil(len(shapes) / n_across)
    page = style.new_figure(max(0.6 + 2.3 * n_across, 4.8), 0.9 + 1.9 * n_down)
    panels, is_first, handles = page.subplots(n_down, n_across, squeeze=False), True, []
    for i, (ax, (name, shape)) in enumerate(zip(panels.flat, shapes.items(), strict=False)):
        is_curve = not isinstance(shape.values, tuple)
        is_first = is_first or i % n_across == 0  # of the curves of its row
        x, y, grid = ("", unit * is_first, "y") if is_curve else (unit, "", "x")
        style.prepare_axes(ax, (), "", x, y, grid=grid)
        ax.set_title(style.truncate_label(name, 28), fontsize=style.BODY, pad=5.0)
        draw = _draw_curves if is_curve else _draw_bars
        handles = draw(ax, shape, heights[i], (low - margin, high + margin))
        ax.tick_params(labelleft=is_first or not is_curve)
        is_first = is_first and not is_curve
    for ax in panels.flat[len(shapes) :]:
        ax.set_visible(False)
    if len(classes) > 1:
        look = {"frameon": False, "fontsize": style.SMALL, "handlelength": 3.6}
        page.legend(handles, names, loc="outside upper right", ncols=len(classes), **look)
    page.suptitle("Shapes", x=0.01, ha="left", fontsize=style.TITLE, fontweight="bold")
    about = f"What columns add to scores, of {explanation.shapes_of}."
    about += f" {len(shapes)} of {count_of(len(every), 'column')}"
    about += f", {len(classes)} of {len(labels)} classes." if len(classes) > 1 else "."
    if explanation.pairs or explanation.wave_share:
        share = format_about(explanation.wave_share)
        about += f" Not drawn: pairs of columns, and waves, {share} of the scores' deviation."
    about += f" Grey: the last {count_of(explanation.n_recent, 'row')}; a circle: missing values."
    about = textwrap.fill(about, int(page.get_figwidth() * 72.0 / (0.55 * style.SMALL)))
    page.supxlabel(about, x=0.01, ha="left", fontsize=style.SMALL, color=style.QUIET)
    return style.save(page, path)


def _draw_curves(ax: Any, shape: "Shape", heights: Array, limits: tuple[float, float]) -> list[Any]:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    x, (low, high), lines = np.asarray(shape.values), limits, []
    counts, edges = np.histogram(shape.recent[~np.isnan(shape.recent)], 30, (x[0], x[-1]))
    shares = _STRIP * np.sqrt(counts / max(1, counts.max()))  # roots: rare values stay visible
    ax.stairs(shares, edges, fill=True, color=style.GREY, transform=ax.get_xaxis_transform())
    ax.axhline(0.0, color=style.QUIET, linewidth=0.8, zorder=1)
    for y, color, dashes in zip(heights.T, style.COLORS, style.DASHES, strict=False):
        lines += ax.plot(x, y[: len(x)], color=color, linestyle=dashes, linewidth=1.8)
        for missing in y[len(x) :]:  # an empty line would spoil the layout
            look = {"mfc": "white", "mec": color, "clip_on": False}
            ax.plot(1.0, missing, "o", ms=4.5, transform=ax.get_yaxis_transform(), **look)
    ax.set_ylim(low - (high - low) * _STRIP / (1.0 - _STRIP), high)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_locator(MaxNLocator(2 if shape.is_time else 4))
    if shape.is_time:
        ax.xaxis.set_major_formatter(lambda at, _: str(np.datetime64(int(at), "s"))[:10])
    elif np.abs(x).max() >= 1e4:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    return lines


def _draw_bars(ax: Any, shape: "Shape", heights: Array, limits: tuple[float, float]) -> list[Any]:
    (n, n_classes), is_missing = heights.shape, np.isnan(shape.recent)
    counts = np.bincount(shape.recent[~is_missing].astype(np.int64), minlength=n)
    counts[len(shape.values) :] = is_missing.sum()
    shown = np.argsort(-counts, kind="stable")[: max(5, _MAX_BARS // (2 * n_classes))]
    shown = shown[np.argsort(heights[shown, 0], kind="stable")]
    names, at, width = (*shape.values, "(missing)"), np.arange(len(shown)), 0.8 / n_classes
    bars = [
        ax.barh(at + (0.5 * n_classes - 0.5 - i) * width, lengths, width, color=style.COLORS[i])
        for i, lengths in enumerate(heights[shown].T)
    ]
    ax.axvline(0.0, color=style.QUIET, linewidth=0.8)
    ax.hlines(at[1:] - 0.5, *limits, color=style.FAINT, linewidth=0.6, zorder=0)
    ax.set_yticks(at, [style.truncate_label(names[v], 14) for v in shown], parse_math=False)
    ax.tick_params(axis="y", length=0.0)
    ax.set(xlim=limits, ylim=(-0.5, len(shown) - 0.5))
    style.write_note(ax, (1.0, 1.0), f"{len(shown)} of {n}" * (len(shown) < n), offset=3.0)
    return bars
