"""Models drawn uniformly from all rounds, and what they predict together."""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from folklearn import serialization
from folklearn.adapters._sklearn.rows import Rows
from folklearn.arrays import Array
from folklearn.model.model import Model
from folklearn.readers.table import Table
from folklearn.serialization import Record


@dataclass
class Draws:
    """States of a model before m rounds, drawn uniformly from all so far; none if m is 0."""

    m: int
    seed: int
    states: list[Model] = field(default_factory=list)
    slots: Any = None  # (m,) which of the states each draw is

    def learn(
        self,
        model: Model,
        rows: Rows,
        target: Any,
        weights: Array,
        passes: int = 1,
        shuffle: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> None:
        """Run over the rows; draws are then uniform among all rounds so far.

        The first pass is in the order given unless `shuffle`, later ones never are. A draw among
        the rounds before this call, where its state already is one at random, leaves it; so the
        draws are uniform after every call.
        """
        T, before = len(rows), model.n_rounds
        rng = np.random.default_rng([self.seed, before])
        states = list(self.states)
        slots = np.zeros(self.m, np.intp) if self.slots is None else self.slots.copy()
        rounds = rng.integers(before + passes * T, size=self.m) - before
        starts = [part.start for part in rows.parts()]
        for number in range(passes):
            order = rng.permutation(T) if number or shuffle else None
            places = rounds - number * T
            stops = places[(places >= 0) & (places < T)].tolist()
            for start, stop in itertools.pairwise(sorted({*starts, *stops, T})):
                if start in stops:
                    slots[places == start] = len(states)
                    states.append(copy.deepcopy(model))
                own: Any = slice(start, stop) if order is None else order[start:stop]
                model.learn_many(rows.whole.take(own), target[own], weight=weights[own])
                if report is not None:
                    report(number * T + stop)
        used, self.slots = np.unique(slots, return_inverse=True)
        self.states = [states[i] for i in used]

    def predict(self, model: Model, block: Table) -> Array:
        """Return the probabilities of the labels of the model, averaged over the draws."""
        if not self.states:
            return model._frozen(block)
        K = len(model.labels)
        P = np.zeros((len(block), K))
        for share, state in zip(np.bincount(self.slots) / self.m, self.states, strict=True):
            P += share * _shared(state, K, block)
        return P

    def plain(self) -> dict[str, Any]:
        """Return everything as arrays, numbers and text."""
        states = [vars(state.to_record()) for state in self.states]
        return {"m": self.m, "seed": self.seed, "states": states, "slots": self.slots}

    @classmethod
    def of_plain(cls, m: int, seed: int, states: list[Any], slots: Any) -> "Draws":
        """Return what `plain` gave."""
        models: Any = [serialization.revive(Record(**state)) for state in states]
        return cls(m, seed, models, slots)


def _shared(state: Model, n_classes: int, block: Table) -> Array:
    """Return a state's probabilities; classes that came later share what it held for them."""
    n_later = n_classes - len(state.labels)
    if state.pipeline is None:  # before the first round
        return np.full((len(block), n_classes), 1.0 / n_classes)
    P = state._frozen(block)
    if n_later:
        u = state.pipeline.unseen_probability
        P = np.hstack([(1.0 - u) * P, np.full((len(P), n_later), u / n_later)])
    return P
