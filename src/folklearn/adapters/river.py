"""The learners as a River classifier; the extra `river` brings River."""

import math
import os
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from folklearn import persist, problem
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.contract import Certificate
from folklearn.persist import Record
from folklearn.streams.open import OpenModel

try:
    import narwhals.stable.v2 as nw
    from river import base
    from river.utils import dataframe
except ImportError as error:
    raise ImportError(
        f"{error}: River comes with the extra, pip install 'folklearn[river]'"
    ) from None

Array = NDArray[np.float64]

_SAVABLE = (str, int, float, bool)


class FolkloreClassifier(base.MiniBatchClassifier):
    r"""Online multiclass logistic regression with a live certificate, as a River classifier.

    Use it wherever River takes a multiclass classifier: there is no learning rate, features
    need no scaling, and features and classes may appear at any time. A feature that is absent
    from an example is 0, and None or NaN is a missing value, which becomes the mean of the
    feature so far. Text is refused: put ``preprocessing.OneHotEncoder()`` in front. Prefer a
    first-order model of River for more than a few hundred features: the state has
    ((K-1) d)^2 numbers.

    The probabilities are those of the classes seen so far, given that it is one of them, and
    sum to 1; with `unseen_probability` u, the probability of a class k is (1 - u) p_k. A
    feature that was never learned is ignored in a prediction. The features of the first
    example set the unit of the scaling, so the first example had better be a typical one.

    Labels are anything hashable but None and NaN. Python holds True, 1 and 1.0 to be equal,
    and so a prediction, which is a dictionary, cannot hold them side by side: a label equal to
    a known one of another type is refused. NumPy's scalars count as Python's.

    The update is that of the learner, see `folklearn.Folklore` and `folklearn.auto`, behind
    `folklearn.streams.scaler.OnlineScaler`; `learn_many` is the loop over `learn_one`, at the
    speed of matrix products. Time O(d^2 K^3) and memory 8 ((K-1) d)^2 bytes per example for
    "folklore", about ten times that for "auto". An example is learned completely or, with an
    error, not at all.

    Guarantee: that of `certificate`, about linear models of the scaled features.

    Parameters
    ----------
    learner
        "auto", which needs no B, or "folklore", "gaf", "laplace" or "ogd".
    B
        Largest row norm of the linear models to compete with, positive; the learner's own
        default if None. "auto" takes none.
    lam
        Ridge :math:`\lambda`, positive; the learner's own default if None. "auto" and "ogd"
        take none.
    scale
        Standardise the features on line; False where a scaler of River comes before.
    intercept
        Append a constant to the features.
    max_weight
        Largest weight w that will occur, which "auto" must know; the others take any.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from folklearn.adapters.river import FolkloreClassifier
    >>> model = FolkloreClassifier("folklore")
    >>> stream = datasets.ImageSegments().take(500)
    >>> evaluate.progressive_val_score(stream, model, metrics.Accuracy()).get() > 0.8
    True
    >>> model.certificate().valid
    True

    References
    ----------
    Agarwal, Kale and Zimmert (2021), "Efficient Methods for Online Multiclass Logistic
    Regression", Algorithm 1, Theorems 1 and 2.
    """

    def __init__(
        self,
        learner: str = "auto",
        B: float | None = None,
        lam: float | None = None,
        scale: bool = True,
        intercept: bool = True,
        max_weight: float = 1.0,
    ) -> None:
        self.learner = learner
        self.B = B
        self.lam = lam
        self.scale = scale
        self.intercept = intercept
        self.max_weight = max_weight
        self._model: OpenModel | None = None  # from the first example on
        self._names: list[Hashable] = []  # of the features, by column
        self._columns: dict[Hashable, int] = {}
        # How a complete example becomes a row: its values by column, in this format.
        self._values: Callable[[Any], tuple[Any, ...]] | None = None
        self._format = ""
        self._labels: list[Any] = []  # of the classes, in order of appearance
        self._classes: dict[Any, int] = {}
        self._fresh(1)  # to hear of bad parameters at once

    def _fresh(self, n_features: int) -> OpenModel:
        given = {"B": self.B, "lam": self.lam}
        settings = {word: value for word, value in given.items() if value is not None}
        heaviest = problem.positive("max_weight", self.max_weight)
        if self.learner == "auto":
            settings["max_weight"] = heaviest
        return OpenModel(
            self.learner,
            settings,
            n_features=max(1, n_features),
            scale=self.scale,
            intercept=self.intercept,
        )

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen."""
        return 1.0 if self._model is None else self._model.unseen_probability

    def certificate(self) -> Certificate | None:
        """Return the learner's certificate, or None if it has none (yet)."""
        return None if self._model is None else self._model.certificate()

    def predict_proba_one(
        self, x: Mapping[base.typing.FeatureName, Any], **kwargs: Any
    ) -> dict[base.typing.ClfTarget, float]:
        """Return the probability of every class seen so far; they sum to 1."""
        row, new = self._row(x)
        if self._model is None:
            return {}
        if new:
            row = self._known(row)
        try:
            p = self._model.predict_one(row)
        except InvalidInputError:
            self._refuse_infinite(row, [])
            raise
        return dict(zip(self._classes, p.tolist()))  # noqa: B905 - a fifth of the time here

    def learn_one(
        self, x: Mapping[base.typing.FeatureName, Any], y: base.typing.ClfTarget, w: float = 1.0
    ) -> None:
        """Learn an example that counts `w` times, or refuse it and leave all as it was."""
        row, new = self._row(x)
        label, number = _numbered(y, self._labels, self._classes)
        model = self._fresh(row.size) if self._model is None else self._model
        try:
            model.learn_one(row, number, weight=w)
        except InvalidInputError:
            self._refuse_infinite(row, new)
            raise
        if new or number == len(self._labels):
            self._model = model
            self._admit(new, [label] if number == len(self._labels) else [])

    def _admit(self, names: Sequence[Hashable], labels: Iterable[Any]) -> None:
        for name in names:
            self._columns[name] = len(self._names)
            self._names.append(name)
        if len(self._names) > 1:  # for one name it would return no tuple
            self._values = itemgetter(*self._names)
            self._format = f"{len(self._names)}d"
        for label in labels:
            self._classes[label] = len(self._labels)
            self._labels.append(label)

    def _row(self, x: Mapping[Any, Any]) -> tuple[Array, list[Hashable]]:
        """Return an example by column, and the names, in order, of columns not there yet."""
        if type(x) is not dict:
            if not isinstance(x, Mapping):
                raise InvalidInputError(f"x must be a dictionary of features, got {x!r}")
            x = dict(x)
        if self._values is not None and len(x) == len(self._names):
            row: Any = np.empty(len(x))
            try:  # the way of nearly all examples; it takes numbers, not text
                struct.pack_into(self._format, row, 0, *self._values(x))
                return row, []
            except Exception:  # another feature, a gap, or what no number can be made of
                pass  # is looked at below, value by value
        places, n_names = self._columns, len(self._names)
        new = [name for name in x if name not in places]
        if new:
            new = _in_order(new)
            places = places | {name: n_names + i for i, name in enumerate(new)}
        row = np.zeros(max(1, len(places)))
        for name, value in x.items():
            row[places[name]] = value if type(value) is float else _number(name, value)
        return row, new

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a data frame, each as by `learn_one`, or none of them.

        w is one weight, or one for each row.
        """
        rows, new, frame = self._rows(X)
        wanted = nw.from_native(y, series_only=True, pass_through=True)
        labels, classes = self._labels.copy(), self._classes.copy()
        numbers = []
        for one in wanted.to_list() if isinstance(wanted, nw.Series) else wanted:
            label, number = _numbered(one, labels, classes)
            if number == len(labels):
                labels.append(label)
                classes[label] = number
            numbers.append(number)
        weights = [w] * len(frame) if np.ndim(w) == 0 else w
        model = self._fresh(rows.shape[1]) if self._model is None else self._model
        if not len(frame) and not numbers:
            return
        try:
            model.run(rows, numbers, weight=weights)
        except InvalidInputError:
            self._refuse_infinite(rows, new)
            raise
        self._model = model
        self._admit(new, labels[len(self._labels) :])

    def predict_proba_many(self, X: Any) -> Any:
        """Return a data frame with a column for every class, in order of appearance.

        It is of the kind of X; other kinds than pandas name the columns by `str` of the label.
        """
        P, frame = self._probabilities(X)
        columns = {label: P[:, k] for k, label in enumerate(self._labels)}
        if not frame.implementation.is_pandas_like() and len({*map(str, columns)}) < len(columns):
            raise InvalidInputError(
                f"among {self._labels} are two labels that would name the same column of this "
                "kind of data frame: use pandas, or labels of one type"
            )
        return dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """Return the most probable class of every row as a series of the kind of X."""
        P, frame = self._probabilities(X)
        best = P.argmax(axis=1).tolist() if self._labels else []
        likely = [self._labels[k] for k in best] or [None] * len(frame)
        return dataframe.to_native_series(likely, name=None, like=frame)

    def _probabilities(self, X: Any) -> tuple[Array, nw.DataFrame[Any]]:
        rows, new, frame = self._rows(X)
        if self._model is None:
            return np.empty((len(frame), 0)), frame
        if new:
            rows = self._known(rows)
        try:
            return self._model.predict(rows), frame
        except InvalidInputError:
            self._refuse_infinite(rows, [])
            raise

    def _known(self, rows: Array) -> Array:
        """Return rows without the features that were never learned."""
        known = np.zeros((*rows.shape[:-1], max(1, len(self._names))))
        known[..., : len(self._names)] = rows[..., : len(self._names)]
        return known

    def _refuse_infinite(self, rows: Array, new: list[Hashable]) -> None:
        """Say which feature is infinite, by name, if one is."""
        infinite = np.flatnonzero(np.isinf(rows).reshape(-1, rows.shape[-1]).any(axis=0))
        if infinite.size:
            raise InvalidInputError(
                f"feature {[*self._names, *new][infinite[0]]!r} is infinite: every value must be "
                "finite, or None if it is missing"
            ) from None

    def _rows(self, X: Any) -> tuple[Array, list[Hashable], nw.DataFrame[Any]]:
        """Return a data frame by column, the names of columns not there yet, and the frame."""
        frame = dataframe.into_frame(X)
        new = _in_order([name for name in frame.columns if name not in self._columns])
        places = self._columns | {name: len(self._names) + i for i, name in enumerate(new)}
        rows = np.zeros((len(frame), max(1, len(places))))
        for name, series in zip(frame.columns, frame.iter_columns(), strict=True):
            rows[:, places[name]] = _column(name, series)
        return rows, new, frame

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file, from which `load` resumes exactly.

        Labels and names of features must be text, numbers or booleans. `folklearn.load` reads
        the file too, as the model without the names.
        """
        for kind, values in (("label", self._labels), ("feature name", self._names)):
            for value in values:
                if type(value) not in _SAVABLE or value in (math.inf, -math.inf):
                    raise InvalidInputError(
                        f"the {kind} {value!r} cannot be saved: a file takes text, finite numbers "
                        "and booleans"
                    )
        record = (self._model or self._fresh(1)).to_record()
        parameters = {
            word: float(value) if isinstance(value, np.generic) else value
            for word, value in self._get_params().items()
        }
        names = {"parameters": parameters, "labels": self._labels, "features": self._names}
        persist.write(path, Record(record.kind, record.config | {"river": names}, record.arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the classifier that `save` wrote."""
        record = persist.read(path)
        names = record.config.get("river")
        if names is None:
            raise StateFileError(
                f"{os.fspath(path)} holds no classifier for River, but a {record.kind}: see "
                "folklearn.load"
            )
        model = OpenModel.from_record(record)
        try:
            loaded = cls(**names["parameters"])
            loaded._admit(names["features"], names["labels"])
        except (KeyError, TypeError, InvalidInputError) as error:
            raise StateFileError(f"{os.fspath(path)} has bad names: {error}") from None
        sizes = (max(1, len(loaded._columns)), len(loaded._classes))
        if sizes != (model.n_features, model.n_classes):
            raise StateFileError(f"{os.fspath(path)} does not name all features and classes once")
        loaded._model = model if model.n_rounds else None
        return loaded


def _number(name: Hashable, value: Any) -> float:
    """Return the value of a feature as a float; NaN if it is missing."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        raise InvalidInputError(
            f"feature {name!r} is {value!r}, not a number: encode text first, as by River's "
            "preprocessing.OneHotEncoder()"
        )
    try:
        if isinstance(value, complex | np.complexfloating):
            raise TypeError
        return math.fsum([value])  # `float` would take bytes for numbers
    except OverflowError:
        raise InvalidInputError(f"feature {name!r} is an integer too large for a float") from None
    except Exception:
        raise InvalidInputError(f"feature {name!r} is {value!r}, not a number") from None


def _column(name: Hashable, series: Any) -> Any:
    """Return the values of a column as floats; NaN where they are missing."""
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        return series.cast(nw.Float64).to_numpy()
    return [_number(name, value) for value in series.to_list()]


def _in_order(names: list[Hashable]) -> list[Hashable]:
    """Return new names in an order that does not depend on that of the example.

    They may be of types that do not compare, or only in part, as sets do.
    """
    for name in names:
        if name != name:
            raise InvalidInputError(f"a feature cannot be called {name!r}")
    plain = [name.item() if isinstance(name, np.generic) else name for name in names]
    return sorted(plain, key=lambda name: (type(name).__qualname__, repr(name)))


def _numbered(y: Any, labels: Sequence[Any], classes: Mapping[Any, int]) -> tuple[Any, int]:
    """Return a label as it is kept, and its number: that of a known one, or the next."""
    try:
        number = classes.get(y)
    except TypeError:
        raise InvalidInputError(f"a label must be hashable, got {y!r}") from None
    if number is not None and type(labels[number]) is type(y):
        return y, number
    if isinstance(y, np.generic) and not isinstance(y.item(), np.generic):
        return _numbered(y.item(), labels, classes)
    if number is not None:
        raise InvalidInputError(
            f"the label {y!r} equals {labels[number]!r}, of another type, and a dictionary cannot "
            "tell them apart: use one type of label"
        )
    try:
        missing = y is None or bool(y != y)
    except TypeError:  # pandas' NA, which does not compare
        missing = True
    if missing:
        raise InvalidInputError(f"the label is missing: {y!r}")
    return y, len(labels)
