"""Numbers and times as text, and HTML of reports and pages by Jinja templates.

Every value is escaped by Jinja, so a name from a data file cannot become a tag.
"""

import math
from datetime import UTC, datetime
from functools import cache
from typing import Any

from folklearn.evidence.certificate import round_down, round_up
from folklearn.utils import import_optional

_UNKNOWN = "–"
_TIME_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"))  # milliseconds
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_loss(loss: float | None) -> str:
    """Return a loss or a reward: three decimals, two digits of a small one."""
    if loss is None or not math.isfinite(loss):
        return _UNKNOWN
    return f"{loss:.3f}" if abs(loss) >= 0.01 or loss == 0.0 else f"{loss:.2g}"


def format_share(share: float | None) -> str:
    return _UNKNOWN if share is None or not math.isfinite(share) else f"{100.0 * share:.3g} %"


def format_about(share: float) -> str:
    if 0.99 < share < 1.0:
        return "more than 99 %"
    return "less than 1 %" if 0.0 < share < 0.01 else f"{100.0 * share:.0f} %"


def format_chance(loss: float) -> str:
    """Return the probability that, given to every label, has this average loss."""
    return format_about(math.exp(-loss))


def format_value(value: object) -> str:
    """Return any value of a table: numbers short, a dash for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _UNKNOWN
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def format_compact(number: float) -> str:
    for unit, letter in _PREFIXES:
        if number >= 0.9995 * unit:
            digits = 1 if number < 9.95 * unit else 0
            return f"{number / unit:.{digits}f}".removesuffix(".0") + letter
    return f"{number:.3g}"


def format_ago(then: int, now: int) -> str:
    for unit, name in _TIME_UNITS:
        n = (now - then) // unit
        if n >= 1:
            return f"{n} {name}{'s' * (n > 1)} ago"
    return "just now"


def format_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


@cache
def _load_environment(package: str) -> Any:
    jinja2 = import_optional("jinja2", "reports need", "plots")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_replace_controls,
    )
    formats = {name: f for name, f in globals().items() if name.startswith("format_")}
    environment.filters |= {name.removeprefix("format_"): f for name, f in formats.items()}
    own = {"count": format_value, "round_down": round_down, "round_up": round_up}
    environment.filters |= own
    return environment


def render(template: str, *, package: str = __package__, **context: Any) -> str:
    return _load_environment(package).get_template(template).render(**context)


def _replace_controls(value: Any) -> Any:
    """Replace control characters, and surrogates that UTF-8 cannot hold, by U+FFFD."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    text = "".join(c if c >= " " or c in "\t\n" else "\ufffd" for c in value)
    return text.encode("utf-8", "replace").decode()
