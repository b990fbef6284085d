"""HTML of reports, notebook cards and pages by Jinja templates.

Every value is escaped by Jinja, so a name from a data file cannot become a tag.
"""

import importlib.util
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from folklearn.errors import FolklearnError
from folklearn.evidence.certificate import round_down, round_up
from folklearn.report import formatting, style

if TYPE_CHECKING:
    from jinja2 import Environment

FILTERS = {
    "about": formatting.format_about,
    "ago": formatting.format_ago,
    "chance": formatting.format_label_chance,
    "count": formatting.format_count,
    "loss": formatting.format_loss,
    "round_down": round_down,
    "round_up": round_up,
    "share": formatting.format_share,
    "time": formatting.format_time,
    "value": formatting.format_value,
}


def new_environment(package: str) -> "Environment":
    """Return Jinja's environment for the templates of a package, with the formats as filters."""
    if importlib.util.find_spec("jinja2") is None:
        raise FolklearnError("reports need jinja2: pip install 'folklearn[plots]'")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_replace_controls,
    )
    environment.filters.update(FILTERS)
    return environment


@cache
def _environment() -> "Environment":
    return new_environment(__package__)


def render(template: str, **context: Any) -> str:
    """Return the text of a template of this package."""
    return _environment().get_template(template).render(**context)


def render_card(title: str, rows: Iterable[tuple[str, object]], figure: Any = None) -> str:
    """Return a title, names with values and a figure as HTML, for a notebook."""
    image = None if figure is None else style.svg_uri(figure)
    return render("card.html", title=title, rows=list(rows), image=image)


def render_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of names and numbers as HTML, for a notebook."""
    return render("table.html", head=head, rows=list(rows))


def _replace_controls(value: Any) -> Any:
    """Replace control characters, and surrogates that UTF-8 cannot hold, by U+FFFD."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    text = "".join(c if c >= " " or c in "\t\n" else "\ufffd" for c in value)
    return text.encode("utf-8", "replace").decode()
