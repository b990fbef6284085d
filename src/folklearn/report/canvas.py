"""What all pictures share: one style, names that fit, labels at line ends, and files."""

import functools
import hashlib
import importlib.util
import io
import os
import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from folklearn.arrays import Array
from folklearn.errors import FolklearnError, InvalidInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Dark enough to print; no two lines are told apart by these alone.
INK, QUIET, FAINT = "#222222", "#767676", "#dcdcdc"
BLUE, RED = "#0072b2", "#c44e00"  # a pair that every kind of sight tells apart
# Of lines beside those, told apart by dashes and markers; the colours only help.
GREEN, PURPLE, OLIVE, ROSE, SLATE, BROWN = (
    "#007a5a", "#8f4f8f", "#8a6d00", "#b0305c", "#4d6b80", "#6b4a2f",
)  # fmt: skip
GREY, PAPER = "#cccccc", "#ffffff"
# What a page on a dark ground draws in place of them.
DARK = {
    INK: "#e8e8e8", QUIET: "#a3a8ae", FAINT: "#41464d", GREY: "#5b6168", PAPER: "#15181c",
    BLUE: "#4a9bd6", RED: "#f29a5b", GREEN: "#4cc39c", PURPLE: "#d79bd7", OLIVE: "#d0ae3c",
    ROSE: "#ee86a8", SLATE: "#9dbad0", BROWN: "#c9a585",
}  # fmt: skip
TITLE, BODY, SMALL = 11.0, 9.0, 8.0  # points

FORMATS = (".png", ".svg", ".pdf")
# DejaVu Sans comes with matplotlib; the others are asked only for what it cannot write.
_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Hiragino Sans",
          "Microsoft YaHei", "Noto Sans Devanagari", "Arial Unicode MS")  # fmt: skip
_LOCK = threading.RLock()  # rc parameters belong to the whole process


def require_matplotlib() -> None:
    """Raise if pictures cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise FolklearnError("pictures need matplotlib: pip install 'folklearn[plots]'")


@contextmanager
def style() -> Iterator[None]:
    """Set the library's rc parameters for a while; every picture is drawn and saved within."""
    require_matplotlib()
    import matplotlib

    parameters = {
        "font.family": _fonts(), "font.size": BODY, "text.color": INK, "text.usetex": False,
        "text.parse_math": False, "axes.titlesize": TITLE, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "axes.titlepad": 9.0, "axes.labelsize": BODY,
        "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.facecolor": "white",
        "figure.facecolor": "white", "savefig.facecolor": "white", "savefig.bbox": None,
        "lines.solid_capstyle": "butt", "hatch.linewidth": 0.6, "axes.unicode_minus": True,
        "svg.fonttype": "path", "svg.hashsalt": "folklearn", "pdf.fonttype": 42,
    }  # fmt: skip
    with _LOCK, matplotlib.rc_context(parameters):
        yield


@functools.cache
def _fonts() -> list[str]:
    from matplotlib import font_manager

    present = set(font_manager.get_font_names())
    return [name for name in _FONTS if name in present]


@functools.cache
def _drawable() -> frozenset[int]:
    from matplotlib import font_manager

    paths = [font_manager.findfont(name) for name in _fonts()]
    return frozenset().union(*(font_manager.get_font(path).get_charmap() for path in paths))


def short(name: object, most: int = 24) -> str:
    """Return a name as it can be drawn on one line: cut in the middle, since ends tell apart."""
    text = " ".join(str(name).split())
    # Control and direction marks would break the line, or reverse what stands beside.
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co"))
    text, most = text or "(no name)", max(most, 3)
    if len(text) > most:
        text = text[: most // 2].rstrip() + "…" + text[-(most - most // 2 - 1) :].lstrip()
    return "".join(c if ord(c) in _drawable() else "□" for c in text)


_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def compact(number: float) -> str:
    """Return a count in at most five characters or so: 950, 1.2k, 35k, 4.1M."""
    for unit, letter in _UNITS:
        if number >= 0.9995 * unit:
            digits = 1 if number < 9.95 * unit else 0
            return f"{number / unit:.{digits}f}".removesuffix(".0") + letter
    return f"{number:.3g}"


def _tick(number: float, _: object) -> str:
    unit, letter = next(((unit, letter) for unit, letter in _UNITS if number >= unit), (1.0, ""))
    return f"{number / unit:g}{letter}"


def figure(width: float, height: float) -> Any:
    """Return an empty figure of these inches that no window manager knows."""
    from folklearn.report.picture import Picture

    made: Any = Picture(figsize=(width, height), layout="constrained")
    made.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    return made


def dress(ax: Any, title: str, x: str, y: str, *, note: str = "", grid: str = "y") -> None:
    """Give axes their title, with a note below it, names and a quiet frame.

    Ticks are made when a figure is drawn, outside of `style`: they are told everything here.
    """
    if title:
        fits = int(inches(ax)[0] * 72.0 / (0.68 * TITLE))  # characters
        ax.set_title(short(title, max(fits, 12)), pad=9.0 + (1.6 * SMALL if note else 0.0))
    if note:
        small = {"fontsize": SMALL, "color": QUIET, "va": "bottom"}
        ax.annotate(note, (0.0, 1.0), (0.0, 8.0), "axes fraction", "offset points", **small)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set(color=QUIET, linewidth=0.8)
    look = {"labelsize": SMALL, "labelcolor": INK, "labelfontfamily": _fonts()}
    ax.tick_params(which="major", color=QUIET, length=3.0, width=0.8, **look)
    ax.tick_params(which="minor", length=0.0)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=FAINT, linewidth=0.6)


def count_rounds(ax: Any, first: float, last: float, *, log: bool = False) -> None:
    """Scale the x axis for rounds; less than a decade has too few ticks for a logarithm."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if last <= first:
        first, last = first - 1.0, last + 1.0
    elif log and first > 0.0 and last >= 10.0 * first:
        ax.set_xscale("log")
        within = (1.0, 2.0, 5.0) if last < 100.0 * first else (1.0,)
        ax.xaxis.set_major_locator(LogLocator(subs=within, numticks=8))
        ax.xaxis.set_minor_formatter(NullFormatter())  # it writes formulas, and text has none
    if ax.get_xscale() == "linear":
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.xaxis.set_major_formatter(_tick)
    ax.set_xlim(first, last)


class End(NamedTuple):
    """Where a line ends, in data, and what it is called there."""

    x: float
    y: float
    text: str
    color: str = INK


def name_ends(ax: Any, ends: Sequence[End]) -> None:
    """Write names right of the axes, beside the ends of their lines, pushed apart.

    How far apart depends on the height of the axes, which only drawing decides: the places
    are found then.
    """
    from matplotlib.transforms import Affine2D

    ends = sorted(ends, key=lambda end: end.y)
    lines = np.array([1 + end.text.count("\n") for end in ends])

    def place(i: int, _: object) -> Any:
        box, point = ax.bbox, ax.figure.dpi / 72.0
        low, high = ax.get_ylim()
        wanted = [(end.y - low) / (high - low) for end in ends]
        at = _apart(wanted, 1.35 * SMALL * point * lines / box.height)[i]
        return Affine2D().translate(box.x1 + 9.0 * point, box.y0 + at * box.height)

    line = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1.0, "shrinkB": 0.0}
    for i, end in enumerate(ends):
        ax.annotate(
            end.text, (end.x, end.y), (0.0, 0.0), textcoords=functools.partial(place, i),
            va="center", ha="left", fontsize=SMALL, color=end.color, annotation_clip=False,
            arrowprops={**line, "color": end.color, "relpos": (0.0, 0.5)},
        )  # fmt: skip


def _apart(wanted: Sequence[float], heights: Array) -> Array:
    """Return places near those wanted, with room for these heights, in [0, 1] if they fit."""
    # Measured from the middle of the lowest; a gap needs half of each neighbour.
    room = np.concatenate([[0.0], np.cumsum((heights[1:] + heights[:-1]) / 2.0)])
    free = np.clip(wanted, 0.0, 1.0) - room
    up, down = np.maximum.accumulate(free), np.minimum.accumulate(free[::-1])[::-1]
    last = 1.0 - room[-1]
    # Both never fall, nor does their mean.
    places: Array = np.clip((up + down) / 2.0, min(0.0, last), last) + room
    return places


def inches(ax: Any) -> tuple[float, float]:
    """Return width and height of axes, as far as they are known before the layout."""
    return ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi


def root(ax: Any) -> "Figure":
    """Return the whole figure that axes belong to, also within a part of it."""
    whole: Figure = ax.figure.figure
    return whole


def check_format(path: str | os.PathLike[str]) -> str:
    """Return the format that a path's suffix asks for; raise if it is none of ours."""
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
    kind = check_format(path if suffix is None else f"figure{suffix}")
    _write(figure, path, kind)


def svg(figure: Any) -> str:
    """Return a figure as an <svg> element that can stand beside others in one document.

    Its colours are those of the page where that sets their variables, and else their own.
    """
    out = io.BytesIO()
    _write(figure, out, "svg")
    text = out.getvalue().decode()
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    # An identifier may occur once in a document, whatever else is drawn there.
    mark = f"f{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}-"
    text = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{mark}", text).strip()
    return re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda colour: _themed(colour[0]), text)


def variable(colour: str) -> str:
    """Return the name of the CSS variable by which a page may draw a colour otherwise."""
    return f"--fl-{colour[1:]}"


def _themed(colour: str) -> str:
    return f"var({variable(colour)},{colour})" if colour in DARK else colour


def _write(figure: Any, target: Any, kind: str) -> None:
    undated: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with style():
        figure.savefig(target, format=kind, dpi=150, metadata=undated.get(kind))
