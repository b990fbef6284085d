"""A classifier and an agent of the service, by dictionaries and a plain `Model` or decisions.

Each method takes what a client sends, and returns what the answer must say.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from folklearn.model.decisions import DecisionModel
from folklearn.model.labels import PendingPrediction
from folklearn.model.model import Model

Row = dict[str, Any]
Outcome = tuple[int, int, int]  # status, labels learned now, labels learned before


class Label(NamedTuple):
    """A label with its row, or for the id of a prediction."""

    label: str
    row: Row | None = None
    id: Hashable = None


class Classifier:
    """A model that is asked, and told once."""

    def __init__(
        self, default: str | None = None, max_classes: int = 1000, **settings: Any
    ) -> None:
        self.model, self.default, self.max_classes = (
            Model(**{"terms": "none"} | settings),
            default,
            max_classes,
        )
        self.model.monitor()
        self.keys: dict[str, tuple[Any, Outcome]] = {}
        self.asked: dict[Hashable, PendingPrediction] = {}
        self.told: dict[Hashable, str | None] = {}  # None: nobody did in time
        self.gone: set[Hashable] = set()  # of these, whose predictions were removed

    def ask(
        self, id: Hashable, row: Row, p: Sequence[float], unseen: float, thresholds: Any = None
    ) -> None:
        self.asked[id] = PendingPrediction(row, np.array(p), unseen, thresholds)

    def learn(self, key: str | None, label: Label) -> Outcome:
        return self._once(key, label, lambda: self._learn(label))

    def learn_many(self, key: str | None, labels: Sequence[Label]) -> Outcome:
        return self._once(key, list(labels), lambda: self._learn_many(labels))

    def expire(self, id: Hashable) -> None:
        self.told[id] = None
        if self.default is not None and not self._has_no_place_for([self.default]):
            self.model.tell(self.asked[id], self.default)

    def _once(self, key: str | None, request: Any, do: Callable[[], Outcome]) -> Outcome:
        if key in self.keys:
            before, outcome = self.keys[key]
            return outcome if before in (request, None) else (422, 0, 0)
        outcome = do()
        if key is not None and (outcome[1] or outcome[0] == 422 or isinstance(request, list)):
            self.keys[key] = request, outcome
        return outcome

    def _learn(self, label: Label) -> Outcome:
        if label.id is not None and label.id not in self.asked:
            return 404, 0, 0
        if label.id in self.gone:
            return 410, 0, 0
        if label.id in self.told:
            told = self.told[label.id]
            if told == label.label:
                return 200, 0, 1
            return 410 if told is None else 409, 0, 0
        if self._has_no_place_for([label.label]):
            return 422, 0, 0
        if label.row is not None:
            self.model.learn_one(label.row, label.label)
        else:
            self.told[label.id] = label.label
            self.model.tell(self.asked[label.id], label.label)
        return 200, 1, 0

    def _has_no_place_for(self, labels: Sequence[str]) -> bool:
        new = set(labels).difference(self.model.labels)
        return bool(new) and len(self.model.labels) + len(new) > self.max_classes

    def _learn_many(self, labels: Sequence[Label]) -> Outcome:
        new: list[Label] = []
        already = 0
        for label in labels:
            is_open = label.id in self.asked and label.id not in self.told
            if label.id is None or (is_open and label.id not in [one.id for one in new]):
                new.append(label)
            elif label.id in self.gone:
                continue
            elif label.id in self.told and self.told[label.id] == label.label:
                already += 1
        said = [label.label for label in new]
        if new and all(one.id is None for one in new) and not self._has_no_place_for(said):
            self.model.learn_many([one.row for one in new], said)
            return 200, len(new), already
        return 200, sum(self._learn(label)[1] for label in new), already


class Agent:
    """An agent that decides between actions, knowing one number."""

    def __init__(self, actions: Sequence[str], seed: int) -> None:
        self.model = DecisionModel(actions, context={"x": "number"}, terms="none", seed=seed)
        self.events: dict[Hashable, int] = {}  # their numbers, by the id that was given out

    def decide(self, id: Hashable, event: int, x: float) -> tuple[str, float]:
        self.events[id] = event
        decision = self.model.decide({"x": x}, id=event)
        return decision.action, decision.propensity

    def reward(self, id: Hashable, reward: float) -> None:
        self.model.reward(self.events[id], reward)
