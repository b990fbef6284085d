"""States drawn uniformly from all rounds, and what they predict together."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.adapters._sklearn import rows
from folklearn.adapters._sklearn.labels import Target
from folklearn.arrays import Array
from folklearn.model.open import OpenModel

Numbers = NDArray[np.intp]
Drawn = tuple[list[OpenModel], Numbers]  # states, and which of them each draw is


def learn(
    model: OpenModel,
    drawn: Drawn,
    seed: int,
    X: rows.Rows,
    target: Target,
    weights: Array,
    passes: int = 1,
    shuffle: bool = False,
    report: Callable[[int], None] | None = None,
) -> Drawn:
    """Run over the rows; return draws that are uniform among all rounds so far.

    The first pass is in the order given unless `shuffle`, later ones never are. A draw among
    the rounds before this call, where its state already is one at random, leaves it; so the
    draws are uniform after every call.
    """
    T, before = len(target), model.n_rounds
    rng = np.random.default_rng([seed, before])
    states, slots = list(drawn[0]), drawn[1].copy()
    rounds = rng.integers(before + passes * T, size=len(slots)) - before
    starts = [block.start for block in rows.blocks(X, model.sparse)]
    for number in range(passes):
        order = rng.permutation(T) if number or shuffle else np.arange(T)
        places = rounds - number * T
        stops = places[(places >= 0) & (places < T)].tolist()
        edges = sorted({*starts, *stops, T})
        for start, stop in itertools.pairwise(edges):
            if start in stops:
                slots[places == start] = len(states)
                states.append(copy.deepcopy(model))
            chosen = order[start:stop]
            own = rows.taken(X[chosen], model.sparse)
            model.run(own, target[chosen], weight=weights[chosen])
            if report is not None:
                report(number * T + stop)
    used, slots = np.unique(slots, return_inverse=True)
    return [states[i] for i in used], slots


def predict(drawn: Drawn, n_classes: int, x: Any) -> Array:
    """Return the probabilities, by number, averaged over the draws."""
    states, slots = drawn
    shares = np.bincount(slots) / len(slots)
    P = np.zeros((x.shape[0], n_classes))
    for share, state in zip(shares, states, strict=True):
        P += share * _shared(state, n_classes, x)
    return P


def _shared(state: OpenModel, n_classes: int, x: Any) -> Array:
    """Return a state's probabilities; classes that came later share what it held for them."""
    P = state.predict(x)
    n_later = n_classes - state.n_classes
    if n_later:
        u = state.unseen_probability
        P = np.hstack([(1.0 - u) * P, np.full((len(P), n_later), u / n_later)])
    return P
