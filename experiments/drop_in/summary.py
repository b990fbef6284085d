"""From the single fits to means, paired differences and the two counts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .methods import BOOSTED, FIT, METHODS, ONE, SGD, TUNED

CLOSE = 1.01  # times the loss of the tuned model
CLOSE_TO_TREES = 1.15  # times the loss of boosted trees
Found = dict[str, Any]


def summarise(
    fits: Mapping[tuple[Any, ...], Found],
    streams: Mapping[tuple[Any, ...], Found],
) -> Found:
    """Return everything that is reported; keys begin with the name of a set and end in a seed."""
    sets = {name: _set(name, fits) for name in dict.fromkeys(key[0] for key in fits)}
    return {
        "sets": sets,
        "below_sgd": _below(sets, FIT),
        "one_pass_below_sgd": _below(sets, ONE),
        "below_best_sgd": [
            name for name, found in sets.items()
            if found["methods"][FIT]["loss"] < found["methods"][SGD]["loss_range"][0]
        ],
        "close_to_tuned": [
            name for name, found in sets.items() if found["ratio_to_tuned"] <= CLOSE
        ],
        "close_to_trees": [
            name for name, found in sets.items() if found["ratio_to_trees"] <= CLOSE_TO_TREES
        ],
        "late": {
            name: _late([found for key, found in streams.items() if key[0] == name])
            for name in dict.fromkeys(key[0] for key in streams)
        },
    }  # fmt: skip


def _below(sets: Found, method: str) -> list[str]:
    return [
        name for name, found in sets.items()
        if found["methods"][method]["loss"] < found["methods"][SGD]["loss"]
    ]  # fmt: skip


def _set(name: str, fits: Mapping[tuple[Any, ...], Found]) -> Found:
    of = {
        method: [found for key, found in fits.items() if key[:2] == (name, method)]
        for method in METHODS
    }
    rows = {
        method: np.mean([fit["losses"] for fit in found], axis=0) for method, found in of.items()
    }
    methods = {method: _method(found) for method, found in of.items()}
    return {
        "sizes": of[FIT][0]["sizes"],
        "methods": methods,
        "default_minus": {
            other: _paired(rows[FIT] - rows[other]) for other in (SGD, TUNED, BOOSTED)
        },
        "ratio_to_tuned": methods[FIT]["loss"] / methods[TUNED]["loss"],
        "one_pass_ratio_to_tuned": methods[ONE]["loss"] / methods[TUNED]["loss"],
        "ratio_to_trees": methods[FIT]["loss"] / methods[BOOSTED]["loss"],
    }  # fmt: skip


def _paired(gaps: NDArray[np.float64]) -> Found:
    return {
        "mean": float(gaps.mean()),
        "standard_error": float(gaps.std() / len(gaps) ** 0.5),
    }


def _method(found: Sequence[Found]) -> Found:
    losses = [float(fit["losses"].mean()) for fit in found]
    accuracies = [fit["accuracy"] for fit in found]
    known = {"loss": float(np.mean(losses)), "accuracy": float(np.mean(accuracies)),
             "seconds": float(np.mean([fit["seconds"] for fit in found]))}  # fmt: skip
    if len(found) > 1:
        known |= {"loss_range": [min(losses), max(losses)],
                  "accuracy_range": [min(accuracies), max(accuracies)]}  # fmt: skip
    for fact in ("iterations", "C"):
        if fact in found[0]:
            known[fact] = max(fit[fact] for fit in found)
    return known


def _late(found: list[Found]) -> Found:
    mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    extra = {
        f"extra_over_{rival}": [one["open"] - one[rival] for one in found]
        for rival in ("told_strict", "told_plain")
    }
    return {"mean": mean, "seeds": found} | extra
