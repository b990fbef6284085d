"""The monitor and its peers on the same losses: the rows at which each raises an alarm."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river.drift import ADWIN, PageHinkley
from river.drift.binary import DDM

from folklearn.evaluate import Monitor

ALPHA = 0.01  # of the monitor; peers have their defaults
CAP = Monitor().cap


def monitor(losses: NDArray[np.float64], wrong: Any) -> list[int]:
    """`folklearn.evaluate.Monitor`."""
    found = Monitor(alpha=ALPHA)
    found.observe_many(losses)
    return [alarm.row for alarm in found.alarms]


def adwin(losses: NDArray[np.float64], wrong: Any) -> list[int]:
    """ADWIN; it tells falls, too, which are left out here."""
    rows, detector = [], ADWIN()
    for row, loss in enumerate(losses.clip(0.0, CAP).tolist(), 1):
        before = detector.estimation
        detector.update(loss)
        if detector.drift_detected and detector.estimation > before:
            rows.append(row)
    return rows


def page_hinkley(losses: NDArray[np.float64], wrong: Any) -> list[int]:
    """Page and Hinkley's test, upwards."""
    return _told(PageHinkley(mode="up"), losses.clip(0.0, CAP))


def ddm(losses: NDArray[np.float64], wrong: Any) -> list[int]:
    """The drift detection method, on errors."""
    return _told(DDM(), wrong)


def _told(detector: Any, values: Any) -> list[int]:
    rows = []
    for row, value in enumerate(values.tolist(), 1):
        detector.update(value)
        if detector.drift_detected:
            rows.append(row)
    return rows


DETECTORS: dict[str, Callable[[NDArray[np.float64], Any], list[int]]] = {
    "Monitor": monitor,
    "ADWIN": adwin,
    "Page-Hinkley": page_hinkley,
    "DDM": ddm,
}


def all_alarms(losses: NDArray[np.float64], wrong: Any) -> dict[str, list[int]]:
    """Return the alarms of everybody."""
    return {name: find(losses, wrong) for name, find in DETECTORS.items()}
