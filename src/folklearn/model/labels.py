"""Labels of any hashable kind, or probabilities of them, by class; rows that wait for one."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError
from folklearn.readers.convert import format_cell, is_null
from folklearn.readers.table import TextColumn, distinct_codes
from folklearn.utils import count_of, join_names

BALANCED = "balanced"
Costs = Mapping[Any, float]
ClassWeight = Mapping[Any, float] | str | None
_KINDS: dict[str, Any] = {"str": str, "int": int, "bool": bool, "float": float.fromhex}


class LabelEncoder:
    """The labels of a model in order of appearance.

    Reading a label enrols none: `admit` does, once the example was learned. `class_weight` are
    weights of rows by label, 1 for others, or "balanced" until they are known.
    """

    def __init__(self, class_weight: "ClassWeight" = None) -> None:
        if not (isinstance(class_weight, Mapping | None) or class_weight == BALANCED):
            raise InvalidInputError(
                f'class_weight must be None, a dict or "balanced", got {class_weight!r}'
            )
        self.class_weight = class_weight
        self.kept: list[Any] = []  # by number
        self.numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.kept)

    def copy(self) -> Self:
        copied = type(self)(self.class_weight)
        copied.admit(self.kept)
        return copied

    def admit(self, labels: Iterable[Any]) -> None:
        """Enrol labels, behind those that are there."""
        for label in labels:
            self.numbers[label] = len(self.kept)
            self.kept.append(label)

    def balance(self, totals: Mapping[Any, float]) -> float:
        """Decide "balanced" weights by the total weight of each class; return the largest one."""
        if self.class_weight == BALANCED:
            total, n = sum(totals.values()), len(totals)
            self.class_weight = {
                label: total / (n * weight) if weight > 0.0 else 0.0
                for label, weight in totals.items()
            }
        weights = self.class_weight if isinstance(self.class_weight, Mapping) else {}
        return max([1.0, *weights.values()])

    def read(self, y: Any) -> tuple[int | Array, Sequence[Any]]:
        """Return the number of a label, or a soft label, and its new labels, which come last."""
        if isinstance(y, Mapping):
            return self._read_soft(y)
        label = self._check_label(y)
        number = self.numbers.get(label, len(self.kept))
        return number, [label] if number == len(self.kept) else ()

    def _read_objects(self, y: Iterable[Any]) -> tuple[Any, Sequence[Any]]:
        """Return numbers (T,) or, if one label is soft, soft labels (T, K); and the new ones."""
        later, numbers = self.copy(), []
        for label in y:
            number, new = later.read(label)
            later.admit(new)
            numbers.append(number)
        new = later.kept[len(self.kept) :]
        if all(type(number) is int for number in numbers):
            return np.array(numbers, np.int64), new
        soft = np.zeros((len(numbers), len(later.kept)))
        for row, label in zip(soft, numbers, strict=True):
            if isinstance(label, int):
                row[label] = 1.0
            else:
                row[: label.size] = label
        return soft, new

    def encode(self, y: Any, weights: Array | None = None) -> tuple[Any, Sequence[Any], Any]:
        """Return class numbers (T,), or soft labels (T, K), new labels, and weights (T,).

        y has a label for every row. The weights have those of the classes in them.
        """
        new: Any = []
        if isinstance(y, TextColumn):  # as a file holds labels; one that is text comes first
            by_text = {str(label): k for label, k in self.numbers.items()} | self.numbers
            by_code = np.full(len(y.values) + 1, -1)
            for code in distinct_codes(y.codes)[0]:
                text = y.values[code]
                if text not in by_text:
                    by_text[text] = len(self.kept) + len(new)
                    new.append(text)
                by_code[code] = by_text[text]
            numbers = by_code[y.codes]
        else:
            numbers, new = self._read_objects(y.tolist() if isinstance(y, np.ndarray) else y)
        if weights is None:
            return numbers, new, None
        if len(numbers) != len(weights):
            labels, rows = count_of(len(numbers), "label"), count_of(len(weights), "row")
            raise InvalidInputError(f"expected a label for each row, got {labels} for {rows}")
        if self.class_weight is not None:
            numbers, weights = self._apply_class_weight(self.class_weight, numbers, new, weights)
        return numbers, new, weights

    def _apply_class_weight(
        self, class_weight: Mapping[Any, float] | str, numbers: Any, new: Any, weights: Array
    ) -> tuple[Any, Array]:
        """Return labels, and weights times those of classes; soft y are y_k w_k, rescaled."""
        if isinstance(class_weight, str):
            raise InvalidInputError(
                'class_weight="balanced" needs to see all labels first: use `fit`, `run` over a '
                "file or a frame, or give the weights as a dictionary"
            )
        labels = [*self.kept, *new]
        factors = np.array([validation.weight(class_weight.get(label, 1.0)) for label in labels])
        if np.ndim(numbers) == 1:
            return numbers, weights * factors[numbers]
        shares = numbers * factors[: numbers.shape[1]]
        totals = shares.sum(axis=1, keepdims=True)
        shares = np.divide(shares, totals, out=np.array(numbers, float), where=totals > 0.0)
        return shares, weights * totals[:, 0]

    @property
    def _inverse_class_weight(self) -> Array:
        weights = self.class_weight if isinstance(self.class_weight, Mapping) else {}
        factors = np.array([float(weights.get(label, 1.0)) for label in self.kept])
        return np.divide(1.0, factors, out=np.zeros_like(factors), where=factors > 0.0)

    def undo_class_weight(self, numbers: Any, weights: Array) -> Array:
        """Return the weights (T,) of encoded rows as they were before those of their classes."""
        inverse = self._inverse_class_weight
        return weights * (inverse[numbers] if np.ndim(numbers) == 1 else numbers @ inverse)

    def decide(self, P: Array, costs: Costs | None, *, may_come: bool = False) -> Labels:
        r"""Return the class (T,) of least expected cost by P (T, K); without costs the likeliest.

        Predicting class j costs :math:`\sum_k p_k C_{kj} / w_k`: weights w of classes have made
        their probabilities larger. `costs` may name classes that are not known if they `may_come`.
        """
        if costs is None:
            return P.argmax(axis=1) if P.shape[1] else np.full(len(P), -1)
        C = self.cost_matrix(costs, may_come=may_come)
        return ((P * self._inverse_class_weight) @ C).argmin(axis=1)

    def cost_matrix(self, costs: Costs, *, may_come: bool = False) -> Array:
        """Return what it costs to predict a row of a class (first) as a class (second), (K, K)."""
        if not isinstance(costs, Mapping):
            raise InvalidInputError(
                "costs must be a dictionary of labels, or of pairs (label, predicted), to numbers, "
                f"got {costs!r}"
            )
        C, pairs = 1.0 - np.eye(len(self.kept)), {}
        for key, cost in costs.items():
            cost = validation.number(
                f"the cost of {key!r}", cost, -validation.MAX_WEIGHT, validation.MAX_WEIGHT
            )
            if key in self.numbers:
                k = self.numbers[key]
                C[k, np.arange(len(C)) != k] = cost
                continue
            is_pair = isinstance(key, tuple) and len(key) == 2
            unknown = [label for label in (key if is_pair else [key]) if label not in self.numbers]
            if unknown and may_come:
                continue
            if unknown:
                classes = join_names(list(map(str, self.kept)))
                raise InvalidInputError(
                    f"costs name the class {unknown[0]!r}, which the model does not know; its "
                    f"classes are: {classes}"
                )
            pairs[self.numbers[key[0]], self.numbers[key[1]]] = cost
        for pair, cost in pairs.items():  # more special than the cost of a class
            C[pair] = cost
        return C

    def find_known(self, y: Any) -> Any:
        """Return the class numbers (T,) of labels, -1 for one that is not known."""
        if isinstance(y, TextColumn):
            by_text = {str(label): k for label, k in self.numbers.items()} | self.numbers
            return np.array([*(by_text.get(value, -1) for value in y.values), -1])[y.codes]
        return np.array([self.numbers.get(label, -1) for label in y])

    def _read_soft(self, y: Mapping[Any, Any]) -> tuple[int | Array, Sequence[Any]]:
        """Return a soft label; a new label without probability was not seen."""
        soft, new = [0.0] * len(self.kept), []
        for label, value in y.items():
            label = self._check_label(label)
            number = self.numbers.get(label)
            try:
                p = math.fsum([value])  # `float` would take text for numbers
            except Exception:
                p = math.nan
            if not 0.0 <= p < math.inf:
                raise InvalidInputError(
                    f"the label gives {label!r} the probability {value!r}: expected a number from "
                    "0 to 1"
                )
            if number is not None:
                soft[number] += p
            elif p > 0.0:
                soft.append(p)
                new.append(label)
        if not abs(sum(soft) - 1.0) <= validation.SOFT_LABEL_TOLERANCE:
            raise InvalidInputError(
                f"the probabilities of the label {dict(y)} sum to {sum(soft):g}, not to 1"
            )
        return (np.array(soft) if len(soft) > 1 else 0), new

    def _check_label(self, y: Any) -> Any:
        """Return a label as it is kept; raise for a missing one, or the like of another type."""
        if isinstance(y, np.generic) and not isinstance(y.item(), np.generic):
            y = y.item()
        try:
            number = self.numbers.get(y)
        except TypeError:
            raise InvalidInputError(f"a label must be hashable, got {y!r}") from None
        if number is not None and type(self.kept[number]) is not type(y):
            raise InvalidInputError(
                f"the label {y!r} equals {self.kept[number]!r}, of another type, and a dictionary "
                "cannot tell them apart: use one type of label"
            )
        if is_null(y):
            raise InvalidInputError(f"the label is missing: {y!r}")
        return y


def plain(label: Any) -> list[Any]:
    """Return a label as JSON holds it; raise if it is of a kind that it cannot hold."""
    kind = type(label).__name__
    if kind not in _KINDS:
        raise InvalidInputError(
            f"the label {label!r} cannot be saved: labels must be text, numbers or truth values "
            "for that"
        )
    return [kind, label.hex() if kind == "float" else label]


def unplain(entry: Any) -> Any:
    kind, value = entry
    return _KINDS[kind](value)


def encode_labels(y: ArrayLike, n_rounds: int, n_classes: int) -> tuple[Labels, Array]:
    """Return checked labels (T,) and soft ones (T, K); a new class has the next number."""
    if np.ndim(y) != 2:
        labels, soft = validation.labels(y, n_rounds, n_classes + n_rounds + 1)
        n_known = np.maximum.accumulate(np.concatenate([[n_classes], labels + 1]))
        gaps = np.flatnonzero(labels > n_known[:-1])
        if gaps.size:
            row = gaps[0]
            raise InvalidInputError(
                f"y[{row}] is {labels[row]}, but only {n_known[row]} classes were known then: a "
                f"new class has the next number, {n_known[row]}"
            )
        return labels, soft
    width = max(n_classes, np.shape(y)[1])
    if width < 2:  # soft labels of one class alone say nothing
        raise InvalidInputError(
            f"soft labels need two known classes, and there are {n_classes}: declare them first"
        )
    return validation.labels(y, n_rounds, width)


class PendingPrediction(NamedTuple):
    """A row, what was predicted for the classes known then, and for one that was not."""

    x: dict[str, Any]
    p: Array
    unseen: float
    thresholds: Array | None = None  # of its prediction sets; None for those when the label comes

    def plain(self) -> list[Any]:
        """Return it as JSON holds it."""
        thresholds = None if self.thresholds is None else self.thresholds.tolist()
        return [plain_row(self.x), self.p.tolist(), self.unseen, thresholds]

    @classmethod
    def of_plain(cls, x: Any, p: Any, unseen: float, thresholds: Any) -> "PendingPrediction":
        issued = None if thresholds is None else np.array(thresholds)
        return cls(dict(x), np.array(p), unseen, issued)


def plain_row(value: Any) -> Any:
    """Return a row, or a value of one, as JSON holds it; values of other kinds become text."""
    if isinstance(value, Mapping):
        return {str(key): plain_row(inner) for key, inner in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return None if isinstance(value, float) else format_cell(value)
