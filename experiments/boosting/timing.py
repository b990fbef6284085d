"""Where the time of a round goes, and how that of a regression grows with K."""

from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from folklearn.boosting import AdaBoostOLMpp, booster, hoeffding_trees
from folklearn.boosting.booster import Round
from folklearn.kernels import boosting as kernels

from ..data import Source, stream
from .plan import TREE, N

PREDICT, UPDATE = "weak learners, predict", "weak learners, update"
COSTS, REGRESSION, PREFIXES, REST = "cost matrices", "regression", "Hedge and mixture", "rest"
PARTS = (PREDICT, UPDATE, COSTS, REGRESSION, PREFIXES, REST)
REPEATS = 7


class Clock:
    """Adds up what the functions that it wraps take, the wrapping included."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Put a timed function in the place of owner.name."""
        function = getattr(owner, name)

        def timed(*arguments: Any) -> Any:
            start = perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds[part] += perf_counter() - start

        setattr(owner, name, timed)


def split(source: Source, seed: int) -> dict[str, float]:
    """Return the microseconds of each part of a round of OLM++ with N trees.

    A round predicts probabilities and a label, and learns. The first half of the rows is not
    timed: it compiles, and the trees grow.
    """
    rows = stream(source, seed)
    trees = hoeffding_trees(n_classes=rows.K, **TREE)
    model = AdaBoostOLMpp(
        n_features=rows.d, n_classes=rows.K, n_learners=N, weak_learner=trees, seed=seed
    )
    clock = Clock()
    for learner in model.learners:
        clock.wrap(learner, "predict", PREDICT)
        clock.wrap(learner, "update", UPDATE)
    clock.wrap(model, "_cost", COSTS)
    clock.wrap(model, "_advance", REGRESSION)
    clock.wrap(model, "_absorb", REGRESSION)
    clock.wrap(booster, "draw_prefix", PREFIXES)
    for name in ("mix_prefixes", "score_prefixes"):
        clock.wrap(kernels, name, PREFIXES)
    half, start = len(rows.y) // 2, 0.0
    for t, (x, y) in enumerate(zip(rows.X, rows.y.tolist(), strict=True)):
        if t == half:
            clock.seconds.clear()
            start = perf_counter()
        model.predict(x)
        model.predict_label(x)
        model.update(x, y)
    total = perf_counter() - start
    clock.seconds[REST] = total - sum(clock.seconds.values())
    return {part: 1e6 * clock.seconds[part] / (len(rows.y) - half) for part in PARTS}


def against_classes(K: int, rounds: int, seed: int) -> dict[str, float]:
    """Return microseconds per learner and round of regression and cost matrix for K classes.

    Scores and labels are random, and nobody is asked: only the booster's own work is done. The
    least of several repetitions counts, with fewer than `rounds` rounds each where K is large.
    """
    rounds = max(2, rounds // max(1, K // 32))
    rng = np.random.default_rng(seed)
    model = AdaBoostOLMpp(
        n_features=1,
        n_classes=K,
        n_learners=N,
        weak_learner=[_Silent() for _ in range(N)],
        seed=seed,
    )
    scores = 2.0 * rng.normal(size=(N + 1, K))
    seen = Round(np.zeros(1), [], rng.integers(K, size=N), scores)
    out = np.empty(K)

    def regress() -> None:
        for i in range(N):
            model._advance(i, scores[i], int(seen.labels[i]), out)
        model._absorb(seen, int(seen.labels[0]), 1.0)

    def cost() -> None:
        for i in range(N):
            model._cost(i, scores[i])

    return {"regression": _least(regress, rounds), "costs": _least(cost, rounds)}


class _Silent:
    """A weak learner that is never asked."""

    def predict(self, x: Any, C: Any) -> int:
        return 0

    def update(self, x: Any, C: Any, y: int) -> None:
        pass


def _least(function: Callable[[], None], rounds: int) -> float:
    function()  # compiles
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        for _ in range(rounds):
            function()
        times.append(perf_counter() - start)
    return 1e6 * min(times) / (rounds * N)
