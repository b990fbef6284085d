"""Tables, pictures and whole pages as HTML that needs nothing from elsewhere.

What these functions return is `Markup`. Any other text is escaped wherever it goes, so a name
from a data file can never become a tag.
"""

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from folklearn.errors import InvalidInputError
from folklearn.report import canvas

# Colours follow the notebook's or reader's own where they can: dark themes stay dark.
_CSS = """\
.fl{font:14px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;max-width:100%}
.fl table{border-collapse:collapse;margin:.5em 0}
.fl caption{text-align:left;font-weight:600;padding-bottom:.3em}
.fl th,.fl td{padding:.15em 1.2em .15em 0;text-align:left;vertical-align:top;background:none}
.fl thead th{border-bottom:1px solid #999;font-weight:600}
.fl tbody th{font-weight:400;opacity:.7}
.fl .n{text-align:right}
.fl figure{margin:.8em 0}
.fl svg{max-width:100%;height:auto;background:#fff}
"""
_DARK = ";".join(f"{canvas.variable(own)}:{dark}" for own, dark in canvas.DARK.items())
# Of what knows its ground, a page or a picture by itself: dark if the reader likes it, and not on
# paper.
THEME = f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{_DARK}}}}}"
# Of whole pages, which know their ground: light or dark as the reader likes it, light on paper.
_PAGE_CSS = f"""\
body{{margin:0;color:var(--fl-222222,{canvas.INK});background:var(--fl-ffffff,{canvas.PAPER})}}
main.fl{{margin:2em auto;max-width:60em;padding:0 1em 3em}}
main.fl svg{{background:none;min-width:30em}}
main.fl h1{{font-size:1.7em;line-height:1.2;overflow-wrap:anywhere}}
main.fl h2{{font-size:1.2em;margin:2em 0 .4em}}
main.fl p,main.fl li{{max-width:46em;overflow-wrap:anywhere}}
main.fl div.fl,main.fl figure{{overflow-x:auto}}
main.fl thead th{{white-space:nowrap}}
main.fl td,main.fl tbody th{{max-width:24em;overflow-wrap:break-word}}
main.fl summary{{cursor:pointer;color:var(--fl-767676,{canvas.QUIET})}}
{THEME}
@media print{{main.fl{{max-width:none;margin:0}}main.fl svg{{min-width:0}}
figure,table,li{{break-inside:avoid}}h2{{break-after:avoid}}}}"""
STYLE = f"{_CSS}{_PAGE_CSS}\n"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def _escaped(value: object) -> str:
    """Return a value as HTML; invisible controls, which no page may hold, become U+FFFD."""
    if isinstance(value, Markup):
        return value
    text = "".join(c if c >= " " or c in "\t\n" else "\ufffd" for c in str(value))
    text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be stored
    return html.escape(text)


def _shown(value: object) -> str:
    """Return a cell's content; numbers short, and what is not known as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return _escaped(value)


def _side(cells: Iterable[object]) -> str:
    """Return where the cells of a column stand: right if one is a number, and none is text."""
    known = [cell for cell in cells if cell is not None]
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in known)
    return " class=n" if known and numbers else ""


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], caption: object = None
) -> Markup:
    """Return a table; numbers stand right, and a column's name above them.

    >>> table(["class", "rounds"], [["<b>", 1200]])[:60]
    '<div class="fl"><table><thead><tr><th scope=col>class</th><t'
    """
    body = [list(row) for row in rows]
    if any(len(row) != len(head) for row in body):
        raise InvalidInputError(f"every row of the table needs {len(head)} cells")
    sides = [_side(cells) for cells in zip(*body, strict=True)] or [""] * len(head)
    names = "".join(
        f"<th scope=col{side}>{_shown(name)}</th>" for name, side in zip(head, sides, strict=True)
    )
    above = "" if caption is None else f"<caption>{_escaped(caption)}</caption>"
    lines = "".join(
        "<tr>"
        + "".join(f"<td{side}>{_shown(cell)}</td>" for cell, side in zip(row, sides, strict=True))
        + "</tr>"
        for row in body
    )
    return Markup(
        f'<div class="fl"><table>{above}<thead><tr>{names}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def picture(figure: Any, *, label: object = "") -> Markup:
    """Return a matplotlib figure as inline SVG; `label` says what it shows to who cannot see.

    On a page of `page`, or one that has its `STYLE`, it is drawn in the colours of the page.
    """
    spoken = f' role="img" aria-label="{_escaped(label)}"' if str(label) else ""
    return Markup(f'<div class="fl"><figure{spoken}>{canvas.svg(figure)}</figure></div>')


def heading(text: object) -> Markup:
    """Return a heading within a page."""
    return Markup(f"<h2>{_escaped(text)}</h2>")


def bullets(lines: Iterable[object]) -> Markup:
    """Return a list of sentences."""
    items = "".join(f"<li>{_escaped(line)}</li>" for line in lines)
    return Markup(f"<ul>{items}</ul>")


def folded(title: object, *parts: object) -> Markup:
    """Return parts that are shown when their title is clicked."""
    return Markup(f"<details><summary>{_escaped(title)}</summary>{_joined(parts)}</details>")


def section(title: object, *parts: object) -> Markup:
    """Return a part of a page under its heading; what is not `Markup` is a paragraph."""
    return Markup(f"<section>{heading(title)}\n{_joined(parts)}</section>")


def _joined(parts: Iterable[object]) -> str:
    return "\n".join(
        part if isinstance(part, Markup) else f"<p>{_escaped(part)}</p>" for part in parts
    )


def card(title: object, rows: Iterable[tuple[object, object]], figure: Any = None) -> Markup:
    """Return a title, names with their values, and a picture: an object in a notebook."""
    lines = "".join(
        f"<tr><th scope=row>{_escaped(name)}</th><td>{_shown(value)}</td></tr>"
        for name, value in rows
    )
    drawn = "" if figure is None else picture(figure, label=title)
    return Markup(
        f'<style>{_CSS}</style><div class="fl"><table><caption>{_escaped(title)}</caption>'
        f"<tbody>{lines}</tbody></table>{drawn}</div>"
    )


def page(title: object, parts: Iterable[object]) -> str:
    """Return a whole document of these parts; one that is not `Markup` is a paragraph."""
    name = _escaped(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{name}</title><style>\n{STYLE}</style></head>\n"
        f'<body><main class="fl"><h1>{name}</h1>\n{_joined(parts)}\n</main></body></html>\n'
    )
