"""Names around an open model: columns and labels as they are called in the data."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem
from folklearn.arrays import TINY, Array
from folklearn.certificate import Certificate
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.base import Learner
from folklearn.model.hashing import DEFAULT_BUCKETS
from folklearn.model.open import OpenModel
from folklearn.persist import Record, Saved
from folklearn.streams.table import LaidOut, Layout, Table
from folklearn.streams.text import is_missing
from folklearn.words import listed

Numbers = NDArray[np.int64]


_TOTALS = ("loss", "loss_of_new", "total_weight")


class StreamModel(LaidOut, Saved):
    r"""An `OpenModel` with the names of columns and labels: raw rows in, losses out.

    Given its labels, it knows all classes: the loss of an example is :math:`-\ln p_y`, and the
    total is the one that the certificate speaks of. Without, labels are learned as they come,
    in order of appearance, and the loss is the strict one: :math:`-\ln((1-u)\,p_y)` for a
    known class and :math:`-\ln u` for a new one, u the probability of a class that was never
    seen. The probabilities of the known classes then sum to 1 - u.

    Parameters
    ----------
    learner : name of a learner, see `folklearn.learners.catalogue`.
    settings : its parameters, such as ``{"B": 10.0}``.
    columns : names of the features, in order.
    target : name of the column that holds the labels.
    labels : text of every class, its position being the class number; none to learn them.
    text : those of the columns that hold text. The inputs X are the columns of numbers in
        their order, NaN if missing, then the buckets of a `TextHasher`; `inputs` makes them.
    n_buckets : number of inputs that all text together becomes.
    sparse : whether its rows name only what is not 0, as in svmlight and VW text: then the
        command line gives it features that come late.

    Attributes
    ----------
    open : whether labels are learned as they come; may be set for a model that can grow.
    loss, n_mistakes : total (weighted) log loss in nats, and rounds in which the most likely
        class was wrong, since the first round of its life.
    loss_of_new : the part of the loss that was paid for classes being unknown: all of it for
        an example of a new class, and :math:`-\ln(1-u)` for the others.
    total_weight : what to divide the loss by for an average: the number of rounds, unless
        examples were weighted.

    Examples
    --------
    >>> model = StreamModel("folklore", columns=["size"], target="kind", labels=["cat", "dog"])
    >>> P, losses = model.run_block([[30.0], [70.0], [28.0]], ["cat", "dog", "cat"])
    >>> model.labels[model.predict([66.0]).argmax()]
    'dog'
    """

    def __init__(
        self,
        learner: str = "auto",
        settings: Mapping[str, Any] | None = None,
        *,
        columns: Sequence[str],
        target: str,
        labels: Sequence[str] = (),
        text: Sequence[str] = (),
        n_buckets: int = DEFAULT_BUCKETS,
        sparse: bool = False,
    ) -> None:
        self.target = target
        self.sparse = bool(sparse)
        self._layout = _layout(columns, text, n_buckets)
        self._labels = _distinct("labels", labels)
        self._numbers = {label: number for number, label in enumerate(self._labels)}
        self._model = OpenModel(
            learner, settings, n_features=self._layout.n_inputs, n_classes=len(self._labels)
        )
        self.open = not self._labels
        self.loss = self.loss_of_new = 0.0
        self.n_mistakes = 0
        self.total_weight = 0.0

    @property
    def n_buckets(self) -> int:
        """The number of inputs that all text together becomes, if there is any."""
        return self._layout.n_buckets

    @property
    def labels(self) -> tuple[str, ...]:
        """The text of every class that is known."""
        return tuple(self._labels)

    @property
    def name(self) -> str:
        """The name of its learner."""
        return self._model.name

    @property
    def learner(self) -> Learner | None:
        """The learner inside, None before the second class."""
        return self._model.learner

    @property
    def n_rounds(self) -> int:
        """Rounds since the first of its life."""
        return self._model.n_rounds

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of its learner."""
        return self._model.settings

    @property
    def max_weight(self) -> float:
        """The largest weight that it was made for."""
        return self._model.max_weight

    @property
    def can_grow(self) -> bool:
        """Whether its learner takes classes and features that come late."""
        return self._model.can_grow

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen."""
        return self._model.unseen_probability if self.open else 0.0

    def inputs(self, rows: Sequence[Sequence[Any]]) -> Array:
        """Return X (T, n_inputs) of rows that hold every column in order: numbers and text.

        None and NaN are missing values, and so is text that files would call missing: empty, nan,
        NA, N/A or null. Spaces around text are ignored.

        >>> model = StreamModel(columns=["size", "fur"], target="kind", text=["fur"], n_buckets=4)
        >>> model.inputs([[30.0, "long"], [None, "short"]])
        array([[30.,  0., -1.,  0.,  0.],
               [nan,  0.,  0.,  0., -1.]])
        """
        numbers, texts = [], []
        for row in rows:
            if len(row) != len(self.columns):
                raise InvalidInputError(
                    f"a row has {len(row)} values for {len(self.columns)} columns"
                )
            cells = dict(zip(self.columns, row, strict=True))
            given = [cells[column] for column in self._layout.numeric]
            numbers.append([math.nan if cell is None else cell for cell in given])
            words = [cells[column] for column in self.text]
            texts.append([_text(cell) for cell in words])
        return self._layout.inputs(numbers, texts)

    def add_columns(self, names: Sequence[str]) -> None:
        """Make room for features, 0 in every example so far: they come last."""
        if self.text:
            raise InvalidInputError("columns cannot be added behind those of text")
        layout = _layout((*self.columns, *names), (), self.n_buckets)
        self._model.grow(n_features=layout.n_inputs)
        self._layout = layout

    def predict(self, X: ArrayLike) -> Array:
        """Return the class probabilities of inputs: (d,) in, (K,) out, or (T, d) and (T, K).

        Every row is predicted as if it came next; nothing is learned.
        """
        X = problem.numbers("X", X)
        P = self._model.predict(X if X.ndim == 2 else X[None, ...])
        P *= 1.0 - self.unseen_probability
        return P if X.ndim == 2 else P[0]

    def run_block(
        self, X: ArrayLike, y: ArrayLike, *, weight: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """Predict, then learn, inputs X (T, d) with labels y (T,), one by one.

        Labels are text, or numbers of known classes. Returns the predictions (T, K), each made
        before its label was learned and 0 for a class that was not known then, and their log
        losses (T,), unweighted. Weights (T,) count in learning and in the total loss; the
        scaling of the features does not know them.
        """
        X, _ = problem.contexts(X, self.n_inputs, gaps=True)
        y, labels = self._class_numbers(y, len(X))
        weights = problem.weights(weight, len(X))
        problem.refuse_heavy(weights, self.max_weight)
        n_before = len(self._labels)
        P, u = self._model.run(X, y, weight=weights)
        self._labels = labels
        self._numbers = {label: number for number, label in enumerate(labels)}
        known = np.maximum.accumulate(np.concatenate([[n_before - 1], y]))[:-1]
        is_new = y > known
        if not self.open:
            u[:] = 0.0
        P *= (1.0 - u)[:, None]
        p = np.where(is_new, u, P[np.arange(len(y)), y])
        losses: Array = -np.log(np.maximum(p, TINY))
        self.loss += float(weights @ losses)
        # In the first round everything is new, and known to be: u is 1 and the loss 0.
        of_known = -np.log1p(-np.where(is_new, 0.0, u))
        self.loss_of_new += float(weights @ np.where(is_new, losses, of_known))
        self.total_weight += float(weights.sum())
        self.n_mistakes += int(((P.argmax(axis=1) != y) | is_new).sum()) if len(y) else 0
        return P, losses

    def _class_numbers(self, y: ArrayLike, n_rounds: int) -> tuple[Numbers, list[str]]:
        """Return the numbers of the labels, and all labels that are known after them."""
        given = y.tolist() if isinstance(y, np.ndarray) else y
        if isinstance(given, (list, tuple)) and any(isinstance(label, str) for label in given):
            if len(given) != n_rounds:
                raise InvalidInputError(f"y has {len(given)} labels for {n_rounds} rows of X")
            numbers = dict(self._numbers)
            for label in given:
                if not isinstance(label, str):
                    raise InvalidInputError(f"y has the label {label!r} among text")
                if label not in numbers and not self.open:
                    raise InvalidInputError(
                        f"y has the label {label!r}, which the model does not know; its labels "
                        f"are: {listed(self.labels)}"
                    )
                numbers.setdefault(label, len(numbers))
            return np.array([numbers[label] for label in given], dtype=np.int64), list(numbers)
        array = np.asarray(y)
        if array.ndim == 2:
            raise InvalidInputError("y must hold labels, not soft labels")
        return problem.labels(array, n_rounds, len(self._labels))[0], self._labels

    def certificate(self) -> Certificate | None:
        """Return the learner's certificate, or None if no learner has begun.

        It speaks of the classes known in each round; the price of not knowing a class is not
        in it.
        """
        return self._model.certificate()

    def refuse_unless_it_fits(self, table: Table) -> None:
        """Raise if a table has other columns, or labels that this model does not know.

        A column that does not occur in a sparse table is 0 there.
        """
        found, known = set(table.columns), set(self.columns)
        lacking = [column for column in self.columns if column not in found and not table.sparse]
        extra = [column for column in table.columns if column not in known]
        other = [
            column for column in table.columns if (column in table.text) != (column in self.text)
        ]
        differences = [
            f"{verb}: {listed(names)}"
            for verb, names in (
                ("it lacks", lacking),
                ("the model does not know", extra),
                ("text here or there, not in both", [c for c in other if c in known]),
            )
            if names
        ]
        if differences:
            raise InvalidInputError(
                f"the columns of {table.name} are not those of the model; " + "; ".join(differences)
            )
        if not self.open:
            advice = "; folklearn run - (standard input) takes new classes"
            self.refuse_unknown_labels(table, advice if self.can_grow else "")
        if table.weights is not None:
            problem.refuse_heavy(table.weights.largest, self.max_weight)

    def refuse_unknown_labels(self, table: Table, advice: str = "") -> None:
        """Raise if a table has labels that this model does not know; say what could be done."""
        unknown = [
            (line, label) for label, line in table.first_lines.items() if label not in self._numbers
        ]
        if unknown:
            line, label = min(unknown)
            raise InvalidInputError(
                f"{table.unit} {line} of {table.name} has the label {label!r}, which the model "
                f"does not know; its labels are: {listed(self.labels)}{advice}"
            )

    def to_record(self) -> Record:
        """Return the full state as a record; that of the open model lies inside."""
        config = {
            "columns": list(self.columns),
            "text": list(self.text),
            "n_buckets": self.n_buckets,
            "sparse": self.sparse,
            "target": self.target,
            "labels": self._labels,
            "open": self.open,
            "n_mistakes": self.n_mistakes,
        }
        config |= {total: getattr(self, total).hex() for total in _TOTALS}
        record = Record("StreamModel", config, {})
        persist.put_inside(record, "model", self._model)
        return record

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild a model that goes on exactly where the recorded one stopped."""
        model = cls.__new__(cls)
        word = record.word
        with persist.refusing(record.kind):
            model._layout = _layout(word("columns"), word("text"), word("n_buckets"))
            model._labels = _distinct("labels", word("labels"))
        model._numbers = {label: number for number, label in enumerate(model._labels)}
        model.target = word("target")
        model.open, model.sparse = bool(word("open")), bool(word("sparse"))
        model.n_mistakes = record.count("n_mistakes")
        for total in _TOTALS:
            setattr(model, total, _number(record, total))
        model._model = record.inner("model")
        sizes = (model._model.n_features, model._model.n_classes)
        if sizes != (model.n_inputs, len(model._labels)):
            raise StateFileError("a StreamModel state holds a model of another size")
        return model

    def __repr__(self) -> str:
        return f"StreamModel({self.name!r}, columns={listed(self.columns)}, target={self.target!r})"


def _text(cell: Any) -> str | None:
    text = "" if cell is None else str(cell).strip()
    return None if is_missing(text) else text


def _layout(columns: Sequence[str], text: Sequence[str], n_buckets: int) -> Layout:
    names = _distinct("columns", columns)
    unknown = [column for column in text if column not in names]
    if unknown:
        raise InvalidInputError(f"text names {unknown[0]!r}, which is none of the columns")
    # In the order of the columns: the same texts have the same buckets, however they are named.
    in_order = tuple(column for column in names if column in set(text))
    return Layout(tuple(names), in_order, problem.count("n_buckets", n_buckets, 1))


def _distinct(what: str, names: Sequence[str]) -> list[str]:
    names = [names] if isinstance(names, str) else list(names)
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InvalidInputError(f"{what} has {name!r} twice")
    return names


def _number(record: Record, name: str) -> float:
    text = record.word(name)
    try:
        return float.fromhex(text)
    except (TypeError, ValueError, OverflowError):
        raise StateFileError(f"a StreamModel state has a bad {name}") from None
