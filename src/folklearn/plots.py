"""Pictures of runs and models, drawn from plain tables as matplotlib figures."""

from folklearn.report.curves import curves, places
from folklearn.report.plots import (
    BOUND,
    calibration,
    certificate,
    confusion,
    errors,
    losses,
    overview,
    save,
    style,
    weights,
)

__all__ = [
    "BOUND",
    "calibration",
    "certificate",
    "confusion",
    "curves",
    "errors",
    "losses",
    "overview",
    "places",
    "save",
    "style",
    "weights",
]
