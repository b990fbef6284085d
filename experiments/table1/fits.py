"""Least squares on logarithms, and how much the answers differ between seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Fit = Callable[[Array, Array], float | None]


def exponent(x: Array, y: Array) -> float | None:
    """The e of y = c x^e; None where fewer than two of the y are positive."""
    return _slope(np.log(x), y, np.log)


def rate(x: Array, y: Array) -> float | None:
    """The r of y = c exp(r x)."""
    return _slope(x, y, np.log)


def slope_in_log(x: Array, y: Array) -> float | None:
    """The b of y = a + b ln x."""
    return _slope(np.log(x), y, None)


def better_law(T: Array, regret: Array) -> dict[str, float | str]:
    """Which of a + b ln T and a + b √T leaves less of a curve unexplained, and how much."""
    left = {law: _unexplained(f(T), regret) for law, f in (("ln T", np.log), ("√T", np.sqrt))}
    return {"law": min(left, key=left.__getitem__), **left}


def over_seeds(fit: Fit, x: Sequence[float], curves: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The fit of the mean curve, and the least and the largest fit of a single curve."""
    abscissa, ordinates = np.asarray(x, float), np.asarray(curves, float)
    single = [value for y in ordinates if (value := fit(abscissa, y)) is not None]
    return {
        "value": fit(abscissa, ordinates.mean(axis=0)),
        "low": min(single, default=None),
        "high": max(single, default=None),
    }


def _slope(x: Array, y: Array, change: Callable[[Array], Array] | None) -> float | None:
    usable = y > 0 if change else np.isfinite(y)
    if usable.sum() < 2:
        return None
    y = change(y[usable]) if change else y[usable]
    x = x[usable] - x[usable].mean()
    return float(x @ y / (x @ x))


def _unexplained(x: Array, y: Array) -> float:
    """The share of the variance of y that a straight line in x leaves over."""
    x, y = x - x.mean(), y - y.mean()
    total = float(y @ y)
    return 0.0 if total == 0 else max(0.0, 1.0 - float(x @ y) ** 2 / (float(x @ x) * total))
