"""Numbers and times as text, and HTML of reports, notebook cards and pages by Jinja templates.

Every value is escaped by Jinja, so a name from a data file cannot become a tag.
"""

import importlib.util
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from folklearn.errors import FolklearnError
from folklearn.evidence.certificate import round_down, round_up
from folklearn.report.style import svg_uri

if TYPE_CHECKING:
    from jinja2 import Environment

_UNKNOWN = "–"
_TIME_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"))  # milliseconds
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_loss(loss: float | None) -> str:
    """Return a loss or a reward: three decimals, two digits of a small one.

    >>> format_loss(0.13942), format_loss(0.00521), format_loss(None)
    ('0.139', '0.0052', '–')
    """
    if loss is None or not math.isfinite(loss):
        return _UNKNOWN
    return f"{loss:.3f}" if abs(loss) >= 0.01 or loss == 0.0 else f"{loss:.2g}"


def format_share(share: float | None) -> str:
    """Return a share of 1 as per cent.

    >>> format_share(0.0654), format_share(None)
    ('6.54 %', '–')
    """
    if share is None or not math.isfinite(share):
        return _UNKNOWN
    return f"{100.0 * share:.3g} %"


def format_about(share: float) -> str:
    """Return a share of 1 as whole per cent.

    >>> format_about(0.0654), format_about(0.9996), format_about(0.0004)
    ('7 %', 'more than 99 %', 'less than 1 %')
    """
    if 0.99 < share < 1.0:
        return "more than 99 %"
    return "less than 1 %" if 0.0 < share < 0.01 else f"{100.0 * share:.0f} %"


def format_label_chance(loss: float) -> str:
    """Return the probability that, given to every label, has this average loss.

    >>> format_label_chance(0.0), format_label_chance(0.6931)
    ('100 %', '50 %')
    """
    return format_about(math.exp(-loss))


def format_count(n: int | None) -> str:
    """Return a whole number.

    >>> format_count(12345)
    '12,345'
    """
    return _UNKNOWN if n is None else f"{n:,}"


def format_value(value: object) -> str:
    """Return any value of a table: numbers short, a dash for None and NaN.

    >>> format_value(12000), format_value(0.123456), format_value(math.nan), format_value("a")
    ('12,000', '0.1235', '–', 'a')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _UNKNOWN
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def format_compact(number: float) -> str:
    """Return a count in at most five characters or so.

    >>> [format_compact(n) for n in (950, 1234, 35_000, 4.1e6)]
    ['950', '1.2k', '35k', '4.1M']
    """
    for unit, letter in _PREFIXES:
        if number >= 0.9995 * unit:
            digits = 1 if number < 9.95 * unit else 0
            return f"{number / unit:.{digits}f}".removesuffix(".0") + letter
    return f"{number:.3g}"


def format_ago(then: int, now: int) -> str:
    """Return how long ago a time was, both in milliseconds.

    >>> format_ago(0, 5_000), format_ago(0, 60_000), format_ago(0, 7_300_000)
    ('just now', '1 minute ago', '2 hours ago')
    """
    for unit, name in _TIME_UNITS:
        n = (now - then) // unit
        if n >= 1:
            return f"{n} {name}{'s' * (n > 1)} ago"
    return "just now"


def format_time(milliseconds: int) -> str:
    """Return a time.

    >>> format_time(1_700_000_000_000)
    '2023-11-14 22:13 UTC'
    """
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


_FILTERS = {
    "about": format_about,
    "ago": format_ago,
    "chance": format_label_chance,
    "count": format_count,
    "loss": format_loss,
    "round_down": round_down,
    "round_up": round_up,
    "share": format_share,
    "time": format_time,
    "value": format_value,
}


@cache
def _load_environment(package: str) -> "Environment":
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
    environment.filters.update(_FILTERS)
    return environment


def render(template: str, *, package: str = __package__, **context: Any) -> str:
    """Return the text of a template of a package, by default this one."""
    return _load_environment(package).get_template(template).render(**context)


def render_card(title: str, rows: Iterable[tuple[str, object]], figure: Any = None) -> str:
    """Return a title, names with values and a figure as HTML, for a notebook."""
    image = None if figure is None else svg_uri(figure)
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
