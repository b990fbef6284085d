"""Numbers in plain words."""

import math
from datetime import UTC, datetime
from typing import Any

_NOT_KNOWN = "–"
_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"))


def count(n: int) -> str:
    """Return a whole number.

    >>> count(12345)
    '12,345'
    """
    return f"{n:,}"


def nats(loss: float | None) -> str:
    """Return a loss, or a floor.

    >>> nats(0.13942), nats(None)
    ('0.139', '–')
    """
    return _NOT_KNOWN if loss is None or not math.isfinite(loss) else f"{loss:.3f}"


def share(value: float | None) -> str:
    """Return a part of 1 as per cent.

    >>> share(0.0654), share(None)
    ('6.5 %', '–')
    """
    return _NOT_KNOWN if value is None or not math.isfinite(value) else f"{100.0 * value:.1f} %"


def about(value: float) -> str:
    """Return a part of 1 as it is said.

    >>> about(0.0654), about(0.9996), about(0.0004)
    ('7 %', 'more than 99 %', 'less than 1 %')
    """
    if 0.99 < value < 1.0:
        return "more than 99 %"
    return "less than 1 %" if 0.0 < value < 0.01 else f"{100.0 * value:.0f} %"


def chance(loss: float) -> str:
    """Return the chance that, given to every label that came, has this average loss.

    >>> chance(0.0), chance(0.6931)
    ('100 %', '50 %')
    """
    return about(math.exp(-loss))


def ago(then: int, now: int) -> str:
    """Return how long ago a time was, both in milliseconds.

    >>> ago(0, 5_000), ago(0, 60_000), ago(0, 7_300_000)
    ('just now', '1 minute ago', '2 hours ago')
    """
    for unit, name in _UNITS:
        n = (now - then) // unit
        if n >= 1:
            return f"{n} {name}{'s' * (n > 1)} ago"
    return "just now"


def moment(milliseconds: int) -> str:
    """Return a time.

    >>> moment(1_700_000_000_000)
    '2023-11-14 22:13 UTC'
    """
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def verdict(result: dict[str, Any]) -> str:
    """Return what came out of a replay."""
    events, asked = count(result["events"]), result["predictions"]
    if not result["same"]:
        return f"Another model came out of its {events} events: do not trust this folder."
    if result["other_predictions"]:
        other = count(result["other_predictions"])
        return f"The same model came out, but {other} of {count(asked)} predictions are others."
    predictions = f", and all {count(asked)} predictions that it remembers are the same" * (
        asked > 0
    )
    return f"The same model came out of its {events} events, byte for byte{predictions}."


FILTERS = {
    function.__name__: function
    for function in (about, ago, chance, count, moment, nats, share, verdict)
}
