"""The pieces of work: tune a variant, confirm a peer with its library, play folklearn, time."""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from folklearn import Folklore, auto
from folklearn.evaluate import logistic_regression

from ..data import Source, Stream, stream
from .grid import Tuned, tune
from .metric import given_to_labels, log_loss
from .peers import FAMILIES, SGD, variants

VARIANTS = {(variant.family, variant.name): variant for variant in variants()}

Key = tuple[str, str]  # family and name of a variant

CONFIRMED_ROWS = {SGD: 2000}  # milliseconds per example; the others are confirmed on all rows
TIMED_ROWS = 1000  # for the peers; folklearn is timed on the whole stream
SLICE, RIVER_SLICE = 250, 50  # rows of a turn, where times per event are compared
LATE = 5000  # the round after which time is measured once more
B = 10.0


def ours(d: int, K: int) -> Any:
    """Return the learner that is compared: untuned, told nothing but d and K."""
    return auto(n_features=d, n_classes=K)


def one_folklore(d: int, K: int) -> Any:
    """Return the learner whose time is the unit."""
    return Folklore(n_features=d, n_classes=K, B=B)


def tune_variant(source: Source, seeds: tuple[int, ...], key: Key) -> Tuned:
    """Tune one variant on all streams of a data set at once."""
    variant = VARIANTS[key]
    streams = [stream(source, seed) for seed in source.seeds(seeds)]
    return tune(
        lambda value: tuple(log_loss(variant.tuning(one, value)) for one in streams),
        *variant.powers,
    )


def confirm(source: Source, seed: int, key: Key, value: float) -> dict[str, Any]:
    """Play a tuned peer with its own library, and compare with what the tuning played."""
    variant = VARIANTS[key]
    whole = stream(source, seed)
    part = whole.head(CONFIRMED_ROWS.get(variant.family, len(whole.y)))
    library = variant.library(part, value)()
    tuning = variant.tuning(part, value)
    return {
        "rows": len(part.y),
        "gap": float(np.abs(library - tuning).max()),
        "loss": log_loss(library),
        "loss_by_tuning": log_loss(tuning),
    }


def replay(source: Source, seed: int, key: Key, value: float) -> float:
    """Return the loss of a tuned peer on one stream, the fast way."""
    return log_loss(VARIANTS[key].tuning(stream(source, seed), value))


def play_ours(source: Source, seed: int) -> float:
    """Return the loss of folklearn on one stream."""
    one = stream(source, seed)
    return log_loss(given_to_labels(ours(one.d, one.K).run(one.X, one.y), one.y))


def certify_ours(source: Source, seed: int) -> dict[str, Any]:
    """Return what the certificate says no linear model is below, and what is true, per round."""
    one = stream(source, seed)
    model = ours(one.d, one.K)
    model.run(one.X, one.y)
    certificate = model.certificate()
    best = logistic_regression(one.X, one.y, n_classes=one.K)
    return {
        "floor": certificate.best_linear_at_least / len(one.y),
        "best_linear": (best.loss + best.penalty) / len(one.y),
        "valid": certificate.valid,
        "experts": len(model.experts),
    }


def time_ours(
    source: Source, seed: int, make: Callable[[int, int], Any]
) -> dict[str, float | int | None]:
    """Play one stream in two parts, and return the loss and the times per example."""
    one = stream(source, seed)
    small = one.head(50)
    make(one.d, one.K).run(small.X, small.y)  # loads compiled code
    model = make(one.d, one.K)
    predictions, times = [], []
    for part in (slice(None, LATE), slice(LATE, None)):
        start = perf_counter()
        predictions.append(model.run(one.X[part], one.y[part]))
        times.append(perf_counter() - start)
    n_late = len(one.y) - LATE
    return {
        "loss": log_loss(given_to_labels(np.concatenate(predictions), one.y)),
        "us": 1e6 * sum(times) / len(one.y),
        "late_us": 1e6 * times[1] / n_late if n_late > 0 else None,
        "late_rows": max(0, n_late),
    }


def time_peer(source: Source, seed: int, key: Key, value: float) -> float:
    """Return microseconds per example of a tuned peer; its input is prepared beforehand."""
    part = stream(source, seed).head(TIMED_ROWS)
    VARIANTS[key].library(part.head(20), value)()
    play = VARIANTS[key].library(part, value)
    start = perf_counter()
    play()
    return 1e6 * (perf_counter() - start) / len(part.y)


def time_events(source: Source, seed: int, key: Key, value: float) -> dict[str, float]:
    """Return microseconds per event of folklearn over the whole stream, and of a tuned River.

    They take turns, a slice of the stream each; River plays the first rows of every slice.
    """
    one = stream(source, seed)
    warm, model = ours(one.d, one.K), ours(one.d, one.K)
    _events(warm, one.head(50))
    VARIANTS[key].library(one.head(20), value)()
    mine = theirs = 0.0
    n_theirs = 0
    for start in range(0, len(one.y), SLICE):
        part = Stream(one.X[start : start + SLICE], one.y[start : start + SLICE], one.K)
        mine += _events(model, part)
        few = part.head(RIVER_SLICE)
        play = VARIANTS[key].library(few, value)
        begin = perf_counter()
        play()
        theirs += perf_counter() - begin
        n_theirs += len(few.y)
    return {"us": 1e6 * mine / len(one.y), "river_us": 1e6 * theirs / n_theirs}


def _events(model: Any, part: Stream) -> float:
    """Return the seconds of predicting and learning rows one by one."""
    rows = list(zip(part.X, part.y.tolist(), strict=True))
    begin = perf_counter()
    for x, y in rows:
        model.predict(x)
        model.update(x, y)
    return perf_counter() - begin


def best_of_each_family(tuned: Mapping[Key, Tuned]) -> dict[str, Key]:
    """Return, for each family, the variant whose best point has the lowest mean loss."""
    return {
        family: min(
            (key for key in tuned if key[0] == family), key=lambda key: min(tuned[key].means)
        )
        for family in FAMILIES
    }


def setting(key: Key, value: float) -> str:
    """Return a tuned variant as a table names it."""
    return VARIANTS[key].setting(value)
