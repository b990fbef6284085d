"""A model as a pure fold of its events, from bytes to bytes, for any engine that stores state."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from folklearn import serialization
from folklearn.errors import FolklearnError, StateFileError
from folklearn.kernels.blas import OneThread
from folklearn.model.labels import plain
from folklearn.model.model import Model


class FoldEvent(NamedTuple):
    """A row for a model: values by column, as `Model.learn_one` takes them."""

    row: Mapping[Any, Any]
    label: Any = None  # None for a prediction only
    weight: float = 1.0


class FoldOutput(NamedTuple):
    """The prediction of an event, made before it was learned."""

    p: dict[Any, float]  # probabilities of the classes known by then, which sum to 1
    unseen: float  # probability of a class never seen; NaN for a refused event
    refused: str = ""  # why the event could not be learned, and changed nothing

    @property
    def label(self) -> Any:
        """The most likely label, None before the first class."""
        return max(self.p, key=self.p.__getitem__, default=None)

    def chance(self, label: Any) -> float:
        """Return the probability of a label; the progressive loss is minus its logarithm."""
        return (1.0 - self.unseen) * self.p[label] if label in self.p else self.unseen


def fold(
    state: bytes | None, events: Iterable[FoldEvent], **settings: Any
) -> tuple[bytes, list[FoldOutput]]:
    """Predict every event, then learn it if it has a label; return the new state, and outputs.

    A pure function: the same state and events give the same bytes on the same machine and build,
    in batches of any size. An event that cannot be learned is refused in its output, so that no
    event stops a stream.

    Parameters
    ----------
    state : what the last call returned, None for the first; `folklearn.load` takes it too.
    events : in order; tuples (row, label, weight), of which the last two may be left out.
    settings : of the `Model` that begins where there is no state, such as ``learner="leader"``.

    Examples
    --------
    >>> import folklearn
    >>> from folklearn.scale import fold
    >>> events = [({"age": 31}, "churn"), ({"age": 58}, "stay"), ({"age": 25}, "churn")] * 9
    >>> state, outputs = fold(None, events[:20])
    >>> state, more = fold(state, events[20:])
    >>> state == fold(None, events)[0]
    True
    >>> _, [output] = fold(state, [({"age": 28},)])  # no label: a prediction only
    >>> output.label, folklearn.load(state).n_rounds
    ('churn', 27)
    """
    model = Model(**settings) if state is None else model_of(state)
    with OneThread(everywhere=True):
        outputs = [_learn(model, event) for event in events]
    return model.to_bytes(), outputs


def model_of(state: bytes) -> Model:
    """Return the model that a state holds, or raise StateFileError."""
    model = serialization.load(bytes(memoryview(state)))  # engines hand over buffers of all kinds
    if not isinstance(model, Model):
        raise StateFileError(
            f"the state holds no folklearn.Model ({type(model).__name__} is none): give `fold` "
            "what it returned, or what Model.to_bytes returns"
        )
    return model


def _learn(model: Model, values: Any) -> FoldOutput:
    try:
        event = FoldEvent(*values)
    except TypeError:
        why = f"an event is a tuple of a row, and perhaps its label and weight, got {values!r}"
        return FoldOutput({}, math.nan, why)
    try:
        output = FoldOutput(model.predict_proba_one(event.row), model.unseen_probability)
        if event.label is not None:
            _, new = model.label_encoder.read(event.label)
            for label in new:
                plain(label)  # one that no state can hold would undo the events before it
            model.learn_one(event.row, event.label, weight=event.weight)
    except FolklearnError as error:
        return FoldOutput({}, math.nan, str(error))
    return output
