"""What all plots share: colours, rc parameters, axes, legends, and files."""

import base64
import functools
import importlib.util
import io
import os
import threading
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.report.formatting import PREFIXES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Dark enough to print; lines differ in dashes or markers too.
INK, QUIET, FAINT, GREY = "#222222", "#767676", "#dcdcdc", "#cccccc"
BLUE, RED = "#0072b2", "#c44e00"  # a pair that every kind of colour vision tells apart
GREEN, PURPLE, OLIVE, ROSE, SLATE, BROWN = (
    "#007a5a", "#8f4f8f", "#8a6d00", "#b0305c", "#4d6b80", "#6b4a2f",
)  # fmt: skip
TITLE, BODY, SMALL = 11.0, 9.0, 8.0  # points

FORMATS = (".png", ".svg", ".pdf")
_MIN_INCHES_FOR_SIDE_LEGEND = 3.5  # of the axes
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


def require_matplotlib() -> None:
    """Raise if plots cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise FolklearnError("pictures need matplotlib: pip install 'folklearn[plots]'")


@contextmanager
def use_style() -> Iterator[None]:
    """Set the rc parameters of the library within a block; fonts stay those of the user."""
    require_matplotlib()
    import matplotlib

    with _LOCK, matplotlib.rc_context(_RC_PARAMS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        yield


@functools.cache
def _figure_class() -> Any:
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """A figure that a notebook shows without pyplot."""

        def _repr_svg_(self) -> str:
            return svg(self)

    return NotebookFigure


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of these inches that pyplot does not know."""
    figure = _figure_class()(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    return figure


def new_axes(width: float, height: float) -> Any:
    """Return the axes of a figure of these inches."""
    return new_figure(width, height).subplots()


def truncate_label(name: object, most: int = 24) -> str:
    """Return a name on one line of at most so many characters: cut in the middle."""
    text = " ".join(str(name).split())
    # Control and direction marks would break the line, or reverse its neighbours.
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))
    text, most = text or "(no name)", max(most, 3)
    if len(text) > most:
        text = text[: most // 2].rstrip() + "…" + text[-(most - most // 2 - 1) :].lstrip()
    return text


def style_axes(ax: Any, title: str, x: str, y: str, *, note: str = "", grid: str = "y") -> None:
    """Set title, a note below it, axis names and a quiet frame.

    Ticks are made when a figure is drawn, outside of `use_style`, so their look is set here.
    """
    if title:
        n_characters = int(size_in_inches(ax)[0] * 72.0 / (0.68 * TITLE))
        title = truncate_label(title, max(n_characters, 12))
        ax.set_title(title, pad=9.0 + (1.6 * SMALL if note else 0.0))
    if note:
        small = {"fontsize": SMALL, "color": QUIET, "va": "bottom"}
        ax.annotate(note, (0.0, 1.0), (0.0, 8.0), "axes fraction", "offset points", **small)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set(color=QUIET, linewidth=0.8)
    ticks = {"labelsize": SMALL, "labelcolor": INK}
    ax.tick_params(which="major", color=QUIET, length=3.0, width=0.8, **ticks)
    ax.tick_params(which="minor", length=0.0)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=FAINT, linewidth=0.6)


def set_round_axis(ax: Any, first: float, last: float, *, log: bool = False) -> None:
    """Scale the x axis for rounds; less than a decade has too few ticks for a logarithm."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if last <= first:
        first, last = first - 1.0, last + 1.0
    elif log and first > 0.0 and last >= 10.0 * first:
        ax.set_xscale("log")
        within = (1.0, 2.0, 5.0) if last < 100.0 * first else (1.0,)
        ax.xaxis.set_major_locator(LogLocator(subs=within, numticks=8))
        ax.xaxis.set_minor_formatter(NullFormatter())  # its default writes formulas
    if ax.get_xscale() == "linear":
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.xaxis.set_major_formatter(_format_tick)
    ax.set_xlim(first, last)


def _format_tick(number: float, _: object) -> str:
    unit, letter = next(((unit, letter) for unit, letter in PREFIXES if number >= unit), (1.0, ""))
    return f"{number / unit:g}{letter}"


def add_legend(ax: Any, narrow_place: tuple[float, float] = (0.0, -0.2)) -> None:
    """Name the labelled lines right of the axes; of narrow ones, with the upper left corner here.

    `narrow_place` is in fractions of the axes, by default below them.
    """
    if ax.get_legend_handles_labels()[1]:
        is_wide = size_in_inches(ax)[0] >= _MIN_INCHES_FOR_SIDE_LEGEND
        place = (1.01, 1.0) if is_wide else narrow_place
        look = {"frameon": False, "fontsize": SMALL, "labelcolor": INK, "handlelength": 2.6}
        ax.legend(loc="upper left", bbox_to_anchor=place, borderaxespad=0.0, **look)


def size_in_inches(ax: Any) -> tuple[float, float]:
    """Return width and height of axes, as far as they are known before the layout."""
    return ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi


def figure_of(ax: Any) -> "Figure":
    """Return the whole figure of axes, also of those in a subfigure."""
    figure: Figure = ax.figure.figure
    return figure


def check_format(path: str | os.PathLike[str]) -> str:
    """Return the format that a path's suffix names; raise if it is not one of FORMATS."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise InvalidInputError(
            f"cannot draw {os.fspath(path)}: its name must end in {', '.join(FORMATS)}"
        )
    return suffix[1:]


def save(figure: Any, path: str | os.PathLike[str], *, suffix: str | None = None) -> None:
    """Write a figure; `suffix`, by default that of the path, is the format: .png, .svg or .pdf.

    The same figure gives the same bytes: no dates, no random identifiers.
    """
    _write(figure, path, check_format(path if suffix is None else f"figure{suffix}"))


def svg(figure: Any) -> str:
    """Return a figure as the text of an SVG file without a background."""
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
