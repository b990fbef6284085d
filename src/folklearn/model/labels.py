"""LabelEncoder of any hashable kind, or probabilities of them, by the numbers of their classes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, Labels
from folklearn.errors import InvalidInputError
from folklearn.readers.table import TextColumn
from folklearn.utils import count_of

_KINDS: dict[str, Any] = {"str": str, "int": int, "bool": bool, "float": float.fromhex}


class LabelEncoder:
    """The labels of a model in order of appearance.

    Reading a label enrols none: `admit` does, once the example was learned. `class_weight` are
    weights of rows by label, 1 for others, or "balanced" until they are known.
    """

    def __init__(self, class_weight: "ClassWeight" = None) -> None:
        self.class_weight = class_weight
        self.kept: list[Any] = []  # by number
        self.numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.kept)

    def copy(self) -> Self:
        """Return labels of their own, to which more can be admitted."""
        copied = type(self)(self.class_weight)
        copied.admit(self.kept)
        return copied

    def admit(self, labels: Iterable[Any]) -> None:
        """Enrol labels, behind those that are there."""
        for label in labels:
            self.numbers[label] = len(self.kept)
            self.kept.append(label)

    def read(self, y: Any) -> tuple[int | Array, Sequence[Any]]:
        """Return the number of a label, and which labels of it are new.

        A new label has the next number. A mapping becomes a soft label, the new ones last.
        """
        try:
            number = self.numbers.get(y)
        except TypeError:  # not hashable
            number = None
        if number is not None and type(self.kept[number]) is type(y):
            return number, ()
        if isinstance(y, Mapping):
            return self._soft(y)
        label, number = self._one(y)
        return number, [label] if number == len(self.kept) else ()

    def read_many(self, y: Iterable[Any] | TextColumn) -> tuple[Any, Sequence[Any]]:
        """Return numbers (T,) or, if one label is soft, soft labels (T, K); and the new ones."""
        if isinstance(y, TextColumn):
            return self._read_texts(y)
        later, found = self.copy(), []
        for one in y:
            label, new = later.read(one)
            later.admit(new)
            found.append(label)
        new = later.kept[len(self.kept) :]
        if all(type(label) is int for label in found):
            return found, new
        soft = np.zeros((len(found), len(later.kept)))
        for row, label in zip(soft, found, strict=True):
            if isinstance(label, int):
                row[label] = 1.0
            else:
                row[: label.size] = label
        return soft, new

    def encode(self, y: Any, weights: Array) -> tuple[Any, Sequence[Any], Array]:
        """Return class numbers (T,), or soft labels (T, K), new labels, and weights (T,).

        y has a label for every row, or is a matrix (T, K) of probabilities of the known ones.
        The weights have those of the classes in them.
        """
        n_rows = len(weights)
        new: Sequence[Any] = ()
        if isinstance(y, np.ndarray) and y.ndim == 2:
            numbers = y
            if y.shape != (n_rows, len(self.kept)):
                raise InvalidInputError(
                    f"soft labels have shape {y.shape}; expected ({n_rows}, {len(self.kept)}), "
                    "a column for every known class: `declare` further ones first"
                )
        else:
            read, new = self.read_many(y.tolist() if isinstance(y, np.ndarray) else y)
            if len(read) != n_rows:
                raise InvalidInputError(
                    f"there are {len(read)} labels for {count_of(n_rows, 'row')}"
                )
            numbers = np.asarray(read, None if np.ndim(read) == 2 else np.int64)
        numbers, weights = self.apply_class_weight(numbers, new, weights)
        return numbers, new, weights

    def apply_class_weight(
        self, numbers: Any, new: Sequence[Any], weights: Array
    ) -> tuple[Any, Array]:
        r"""Return class numbers (T,) or soft labels (T, K), and weights times those of classes.

        A soft label y counts as what is expected of hard ones: the soft label
        :math:`y_k w_k / w` with the weight :math:`w = \sum_k y_k w_k`.
        """
        class_weight = self.class_weight
        if class_weight is None:
            return numbers, weights
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

    def find_known(self, y: Any) -> Any:
        """Return the class numbers (T,) of labels, -1 for one that is not known."""
        if isinstance(y, TextColumn):
            known = self.by_text()
            return np.array([*(known.get(value, -1) for value in y.values), -1])[y.codes]
        return np.array([self.numbers.get(label, -1) for label in y])

    def by_text(self) -> dict[str, int]:
        """Return the numbers of the labels as a file holds them; one that is text comes first."""
        texts = {label: k for k, label in enumerate(self.kept) if type(label) is str}
        return {str(label): k for k, label in enumerate(self.kept)} | texts

    def _read_texts(self, texts: TextColumn) -> tuple[Any, Sequence[Any]]:
        """Return the numbers (T,) of labels that are text, and the new ones as they appear."""
        codes, firsts = np.unique(texts.codes, return_index=True)
        known = self.by_text()
        numbers = np.full(len(texts.values) + 1, -1)
        new: list[str] = []
        for code in codes[np.argsort(firsts)].tolist():
            text = texts.values[code]
            number = known.get(text)
            if number is None:
                number = len(self.kept) + len(new)
                new.append(text)
            numbers[code] = number
        return numbers[texts.codes], new

    def plain(self) -> list[list[Any]]:
        """Return the labels as JSON holds them; raise for one of a kind that it cannot hold."""
        return [plain(label) for label in self.kept]

    @classmethod
    def of_plain(cls, plain: Iterable[Any]) -> Self:
        """Return what `plain` gave."""
        labels = cls()
        labels.admit(_KINDS[kind](value) for kind, value in plain)
        if len(labels.numbers) < len(labels.kept):
            raise InvalidInputError("two classes have the same label")
        return labels

    def _soft(self, y: Mapping[Any, Any]) -> tuple[int | Array, Sequence[Any]]:
        """Return the probabilities of the known labels, then those of the new ones.

        A new label without probability was not seen, and is left out.
        """
        soft, new = [0.0] * len(self.kept), []
        for label, value in y.items():
            label, number = self._one(label)
            p = _probability(label, value)
            if number < len(self.kept):
                soft[number] += p
            elif p > 0.0:
                soft.append(p)
                new.append(label)
        if not abs(sum(soft) - 1.0) <= validation.SOFT_LABEL_TOLERANCE:
            raise InvalidInputError(
                f"the probabilities of the label {dict(y)} sum to {sum(soft):g}, not to 1"
            )
        return (np.array(soft) if len(soft) > 1 else 0), new

    def _one(self, y: Any) -> tuple[Any, int]:
        """Return a label as it is kept, and its number: that of a known one, or the next."""
        try:
            number = self.numbers.get(y)
        except TypeError:
            raise InvalidInputError(f"a label must be hashable, got {y!r}") from None
        if number is not None and type(self.kept[number]) is type(y):
            return y, number
        if isinstance(y, np.generic) and not isinstance(y.item(), np.generic):
            return self._one(y.item())
        if number is not None:
            raise InvalidInputError(
                f"the label {y!r} equals {self.kept[number]!r}, of another type, and a dictionary "
                "cannot tell them apart: use one type of label"
            )
        try:
            missing = y is None or bool(y != y)
        except TypeError:  # pandas' NA, which does not compare
            missing = True
        if missing:
            raise InvalidInputError(f"the label is missing: {y!r}")
        return y, len(self.kept)


def plain(label: Any) -> list[Any]:
    """Return a label as JSON holds it; raise if it is of a kind that it cannot hold."""
    kind = type(label).__name__
    if kind not in _KINDS:
        raise InvalidInputError(
            f"the label {label!r} cannot be saved: labels must be text, numbers or truth values "
            "for that"
        )
    return [kind, label.hex() if kind == "float" else label]


def _probability(label: Any, value: Any) -> float:
    try:
        p = math.fsum([value])  # `float` would take text for numbers
    except Exception:
        p = math.nan
    if not 0.0 <= p < math.inf:
        raise InvalidInputError(
            f"the label gives {label!r} the probability {value!r}: expected a number from 0 to 1"
        )
    return p


def encode_labels(y: ArrayLike, n_rounds: int, n_classes: int) -> tuple[Labels, Array, Labels]:
    """Return labels (T,), soft ones (T, K), and the number of classes known after each.

    So many are known before. A new class must have the next number; a soft label may bring
    several, which are known from the first row that gives them, or a later class, probability.
    """
    return (_encode_soft if np.ndim(y) == 2 else _encode_hard)(y, n_rounds, n_classes)


def _encode_hard(y: ArrayLike, n_rounds: int, n_classes: int) -> tuple[Labels, Array, Labels]:
    y, none = validation.labels(y, n_rounds, n_classes + n_rounds + 1)
    known = np.maximum.accumulate(np.concatenate([[n_classes - 1], y]))
    gaps = np.flatnonzero(y > known[:-1] + 1)
    if gaps.size:
        row = gaps[0]
        raise InvalidInputError(
            f"y[{row}] is {y[row]}, but only {known[row] + 1} classes were known then: a new "
            f"class has the next number, {known[row] + 1}"
        )
    return y, none, known[1:] + 1


def _encode_soft(y: ArrayLike, n_rounds: int, n_classes: int) -> tuple[Labels, Array, Labels]:
    """Check soft labels; those of one class alone say nothing."""
    width = max(n_classes, np.shape(y)[1])
    if width < 2:
        raise InvalidInputError(
            f"soft labels need two known classes, and there are {n_classes}: declare them first"
        )
    none, soft = validation.labels(y, n_rounds, width)
    behind = np.argmax(soft[:, ::-1] > 0.0, axis=1)  # classes without probability at the end
    known = np.maximum.accumulate(np.maximum(width - behind, n_classes))
    return none, soft, known


BALANCED = "balanced"

ClassWeight = Mapping[Any, float] | str | None


def check_class_weight(given: Any) -> None:
    """Raise unless it is None, weights by label, or "balanced"."""
    if not (given is None or isinstance(given, Mapping) or given == BALANCED):
        raise InvalidInputError(f'class_weight must be None, a dict or "balanced", got {given!r}')


def balance_class_weight(totals: Mapping[Any, float]) -> dict[Any, float]:
    """Return weights that make all classes count alike, given the total weight of each."""
    total = sum(totals.values())
    return {
        label: total / (len(totals) * weight) if weight > 0.0 else 0.0
        for label, weight in totals.items()
    }


def class_weight_to_json(given: ClassWeight) -> Any:
    """Return them as JSON holds them."""
    if not isinstance(given, Mapping):
        return given
    labels = LabelEncoder()
    labels.admit(given)
    return [labels.plain(), [float(weight) for weight in given.values()]]


def class_weight_from_json(saved: Any) -> ClassWeight:
    """Return what `class_weight_to_json` gave."""
    if not isinstance(saved, list):
        return saved  # type: ignore[no-any-return]
    keys, values = saved
    return dict(zip(LabelEncoder.of_plain(keys).kept, values, strict=True))
