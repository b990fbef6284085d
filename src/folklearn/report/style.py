"""What all plots share: colours, rc parameters, axes, legends, and files."""

import base64
import functools
import io
import os
import threading
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.utils import import_optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Dark enough to print; lines differ in dashes or markers too.
INK, QUIET, FAINT, GREY = "#222222", "#767676", "#dcdcdc", "#cccccc"
BLUE, RED = "#0072b2", "#c44e00"  # a pair that every kind of colour vision tells apart
COLORS = (BLUE, RED, "#007a5a", "#8f4f8f", "#8a6d00", "#b0305c", "#4d6b80", "#6b4a2f")
DASHES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)))
TITLE, BODY, SMALL = 11.0, 9.0, 8.0  # points

Inches = Sequence[float]  # width and height, or none
FORMATS = (".png", ".svg", ".pdf")
_MIN_INCHES_FOR_SIDE_LEGEND = 3.5  # of the axes
_MIN_NATS_TO_CUT = 5.0  # a lower loss is always drawn to scale
_LOCK = threading.RLock()  # rc parameters belong to the whole process
_RC_PARAMS = {
    "font.size": BODY, "text.color": INK, "text.usetex": False, "text.parse_math": False,
    "axes.titlesize": TITLE, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.titlepad": 9.0, "axes.labelsize": BODY, "axes.labelcolor": INK, "axes.titlecolor": INK,
    "axes.facecolor": "none", "figure.facecolor": "white", "savefig.facecolor": "auto",
    "savefig.bbox": None, "lines.solid_capstyle": "butt", "hatch.linewidth": 0.6,
    "axes.unicode_minus": True, "svg.fonttype": "path", "svg.hashsalt": "folklearn",
    "pdf.fonttype": 42,
}  # fmt: skip


def require_matplotlib() -> Any:
    return import_optional("matplotlib", "pictures need", "plots")


@contextmanager
def use_style() -> Iterator[None]:
    """Set the rc parameters of the library within a block; fonts stay those of the user."""
    matplotlib = require_matplotlib()
    with _LOCK, matplotlib.rc_context(_RC_PARAMS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        yield


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of these inches that pyplot does not know."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    figure._repr_svg_ = functools.partial(svg, figure)  # a notebook shows it without pyplot
    return figure


def truncate_label(name: object, most: int = 24) -> str:
    """Return a name on one line of at most `most` characters: cut in the middle."""
    text = " ".join(str(name).split())
    # Control and direction marks would break the line, or reverse its neighbours.
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))
    text, most = text or "(no name)", max(most, 3)
    if len(text) > most:
        text = text[: most // 2].rstrip() + "…" + text[-(most - most // 2 - 1) :].lstrip()
    return text


def prepare_axes(
    ax: Any, size: Inches, title: str, x: str, y: str = "", *, note: str = "", grid: str = "y"
) -> Any:
    """Set title, a note below it, axis names and a quiet frame; None makes axes of some inches."""
    ax = new_figure(*size).subplots() if ax is None else ax
    if title:
        n_characters = int(size_in_inches(ax)[0] * 72.0 / (0.68 * TITLE))
        title = truncate_label(title, max(n_characters, 12))
        ax.set_title(title, pad=9.0 + (1.6 * SMALL if note else 0.0))
    write_note(ax, (0.0, 1.0), note, offset=8.0)
    ax.set(xlabel=x, ylabel=y, axisbelow=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set(color=QUIET, linewidth=0.8)
    ticks = {"labelsize": SMALL, "labelcolor": INK, "color": QUIET}
    ax.tick_params(which="major", length=3.0, width=0.8, **ticks)
    ax.tick_params(which="minor", length=0.0)
    if grid:
        ax.grid(axis=grid, color=FAINT, linewidth=0.6)
    return ax


def write_note(ax: Any, at: tuple[float, float], note: str, offset: float = 0.0) -> None:
    look = {"fontsize": SMALL, "color": QUIET, "ha": "left" if at[0] < 0.5 else "right"}
    look["va"] = "top" if 0.5 < at[1] < 1.0 else "bottom"
    ax.annotate(note, at, (0.0, offset), "axes fraction", "offset points", **look)


def set_round_axis(ax: Any, first: float, last: float, *, log: bool = False) -> None:
    """Scale the x axis for rounds; less than a decade has too few ticks for a logarithm."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

    if last <= first:
        first, last = first - 1.0, last + 1.0
    elif log and first > 0.0 and last >= 10.0 * first:
        ax.set_xscale("log")
        within = (1.0, 2.0, 5.0) if last < 100.0 * first else (1.0,)
        ax.xaxis.set_major_locator(LogLocator(subs=within, numticks=8))
        ax.xaxis.set_minor_formatter(NullFormatter())  # its default writes formulas
    if ax.get_xscale() == "linear":
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlim(first, last)


def set_loss_axis(ax: Any, x: Array, loss: Array, *columns: Array) -> None:
    """Scale the y axis from 0 to all values but a few extreme ones, which are marked."""
    from matplotlib.ticker import MaxNLocator

    values = np.concatenate([loss, *columns])
    values = values[np.isfinite(values)]
    top = float(values.max(initial=0.0))
    usual = float(np.quantile(values, 0.9, method="lower")) if len(values) else 0.0
    if top > max(10.0 * usual, _MIN_NATS_TO_CUT):
        top = max(3.0 * usual, 0.1)
    top = 1.1 * top or 1.0
    ax.set_ylim(0.0, top)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    beyond = x[loss > top]
    if len(beyond):
        look = {"color": BLUE, "markersize": 5.0, "clip_on": False}
        ax.plot(beyond, np.ones(len(beyond)), "^", transform=ax.get_xaxis_transform(), **look)
        largest = "infinity" if np.isinf(loss).any() else f"{np.nanmax(loss):.4g}"
        write_note(ax, (0.99, 0.96), f"▲ beyond the axis, up to {largest}")


def finish(ax: Any, legend_of_narrow: tuple[float, float] = (0.0, -0.2)) -> "Figure":
    """Name the labelled lines right of the axes, or at `legend_of_narrow`; return the figure."""
    if ax.get_legend_handles_labels()[1]:
        is_wide = size_in_inches(ax)[0] >= _MIN_INCHES_FOR_SIDE_LEGEND
        corner = (1.01, 1.0) if is_wide else legend_of_narrow
        look = {"frameon": False, "fontsize": SMALL, "labelcolor": INK, "handlelength": 2.6}
        ax.legend(loc="upper left", bbox_to_anchor=corner, borderaxespad=0.0, **look)
    return ax.figure.figure  # also of axes in a subfigure


def size_in_inches(ax: Any) -> tuple[float, float]:
    # As far as the layout knows them.
    return ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi


def check_format(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise InvalidInputError(f"cannot draw {path}: its name must end in {', '.join(FORMATS)}")
    return suffix[1:]


def save(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    """Write a figure as .png, .svg or .pdf, by the suffix of the path; return it.

    The same figure gives the same bytes: no dates, no random identifiers.
    """
    if path is not None:
        _write(figure, path, check_format(path))
    return figure


def svg(figure: Any) -> str:
    out = io.BytesIO()
    _write(figure, out, "svg", facecolor="none")
    return out.getvalue().decode()


def svg_uri(figure: Any) -> str:
    """Return a figure as a data URI: an <img> of it needs no file, and shares no identifiers."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg(figure).encode()).decode()}"


def _write(figure: Any, target: Any, kind: str, **options: Any) -> None:
    undated: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with use_style():
        figure.savefig(target, format=kind, dpi=150, metadata=undated.get(kind), **options)
