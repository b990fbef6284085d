"""The learners as a River classifier; the extra `river` brings River."""

import math
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from folklearn import persist, problem
from folklearn.arrays import Array
from folklearn.certificate import Certificate
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners import catalogue
from folklearn.model.hashing import DEFAULT_BUCKETS
from folklearn.model.open import OpenModel
from folklearn.persist import Record

try:
    import narwhals.stable.v2 as nw
    from river import base
    from river.utils import dataframe

    from folklearn.adapters._river.columns import Bucket, Columns
    from folklearn.model.labels import Labels
except ImportError as error:
    raise ImportError(
        f"{error}: River comes with the extra, pip install 'folklearn[river]'"
    ) from None


_SAVABLE = (str, int, float, bool)


class FolkloreClassifier(base.MiniBatchClassifier):
    r"""Online multiclass logistic regression with a live certificate, as a River classifier.

    Use it wherever River takes a multiclass classifier: there is no learning rate, features
    need no scaling, and features and classes may appear at any time. A feature that is absent
    from an example is 0, and None or NaN is a missing value, which becomes the mean of the
    feature so far. Text is hashed (`folklearn.model.hashing.TextHasher`): each text adds 1
    or -1 in one of `n_buckets` columns, of which only those exist that were needed so far.
    Prefer a first-order model of River for more than a few hundred features: the state has
    ((K-1) d)^2 numbers.

    The probabilities are those of the classes seen so far, given that it is one of them, and
    sum to 1; with `unseen_probability` u, the probability of a class k is (1 - u) p_k. A
    feature that was never learned is ignored in a prediction. The features of the first
    example set the unit of the scaling, so the first example had better be a typical one.

    Labels are anything hashable but None and NaN. Python holds True, 1 and 1.0 to be equal,
    and so a prediction, which is a dictionary, cannot hold them side by side: a label equal to
    a known one of another type is refused. NumPy's scalars count as Python's.

    A label may also be soft: a dictionary of probabilities that sum to 1 within 1e-6, such as
    `predict_proba_one` returns. A class is new with the first example that gives it a positive
    probability.

    The update is that of the learner, see `folklearn.Folklore` and `folklearn.auto`, behind
    `folklearn.model.scaler.OnlineScaler`; `learn_many` is the loop over `learn_one`, at the
    speed of matrix products. Time O(d^2 K^3) and memory 8 ((K-1) d)^2 bytes per example for
    "folklore", about ten times that for "auto". An example is learned completely or, with an
    error, not at all.

    Guarantee: that of `certificate`, about linear models of the scaled features; none with
    `memory`.

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
    n_buckets
        Number of columns that text may take, at least 1. Texts that share a bucket are
        confused; more buckets mean lower loss and quadratically more memory and time.
    memory
        Rounds after which an example counts 1/e of what it did, at least 1, for streams that
        drift; None is for ever. Only "folklore" forgets; see `folklearn.Folklore`.

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
        n_buckets: int = DEFAULT_BUCKETS,
        memory: int | None = None,
    ) -> None:
        self.learner = learner
        self.B = B
        self.lam = lam
        self.scale = scale
        self.intercept = intercept
        self.max_weight = max_weight
        self.n_buckets = n_buckets
        self.memory = memory
        self._model: OpenModel | None = None  # from the first example on
        self._columns = Columns(n_buckets)
        self._labels = Labels()
        self._fresh(1)  # to hear of bad parameters at once

    def _fresh(self, n_features: int) -> OpenModel:
        takes = catalogue.settings_of(self.learner)
        given = {"B": self.B, "lam": self.lam}
        settings = {word: value for word, value in given.items() if value is not None}
        if self.memory is not None:
            if "memory" not in takes:
                raise InvalidInputError(
                    f"{self.learner!r} does not forget: memory is for learner='folklore'"
                )
            settings["memory"] = problem.count("memory", self.memory, 1)
        heaviest = problem.positive("max_weight", self.max_weight)
        if "max_weight" in takes:
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
        """Return the learner's certificate, or None before the second class."""
        return None if self._model is None else self._model.certificate()

    def predict_proba_one(
        self, x: Mapping[base.typing.FeatureName, Any], **kwargs: Any
    ) -> dict[base.typing.ClfTarget, float]:
        """Return the probability of every class seen so far; they sum to 1."""
        row, new = self._columns.row(x)
        if self._model is None:
            return {}
        if new:
            row = self._columns.known(row)
        try:
            p = self._model.predict_row(row)
        except InvalidInputError:
            self._refuse_infinite(row)
            raise
        return dict(zip(self._labels.kept, p.tolist()))  # noqa: B905 - a fifth of the time here

    def learn_one(
        self,
        x: Mapping[base.typing.FeatureName, Any],
        y: base.typing.ClfTarget | Mapping[base.typing.ClfTarget, float],
        w: float = 1.0,
    ) -> None:
        """Learn an example that counts `w` times, or refuse it and leave all as it was.

        y is a label, or the probability of each of several labels.
        """
        row, new = self._columns.row(x)
        label, labels = self._labels.read(y)
        model = self._model or self._fresh(row.size)
        try:
            model.learn_row(row, label, w)
        except InvalidInputError:
            self._refuse_infinite(row, new)
            raise
        if new or labels:
            self._admit(model, new, labels)

    def _admit(self, model: OpenModel, keys: Sequence[Hashable], labels: Sequence[Any]) -> None:
        self._model = model
        self._columns.admit(keys)
        self._labels.admit(labels)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a data frame, each as by `learn_one`, or none of them.

        y holds a label for each row, and some or all may be soft; w is one weight, or one for
        each row.
        """
        frame = dataframe.into_frame(X)
        rows, new, n_first = self._columns.rows(frame)
        given = nw.from_native(y, series_only=True, pass_through=True)
        wanted = given.to_list() if isinstance(given, nw.Series) else given
        numbers, labels = self._labels.read_many(wanted)
        weights = [w] * len(frame) if np.ndim(w) == 0 else w
        model = self._model or self._fresh(n_first)
        if not len(frame) and not len(numbers):
            return
        try:
            model.run(rows, numbers, weight=weights)
        except InvalidInputError:
            self._refuse_infinite(rows, new)
            raise
        self._admit(model, new, labels)

    def predict_proba_many(self, X: Any) -> Any:
        """Return a data frame with a column for every class, in order of appearance.

        It is of the kind of X; other kinds than pandas name the columns by `str` of the label.
        """
        P, frame = self._probabilities(X)
        columns = {label: P[:, k] for k, label in enumerate(self._labels.kept)}
        if not frame.implementation.is_pandas_like() and len({*map(str, columns)}) < len(columns):
            raise InvalidInputError(
                f"among {self._labels.kept} are two labels that would name the same column of this "
                "kind of data frame: use pandas, or labels of one type"
            )
        return dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """Return the most probable class of every row as a series of the kind of X."""
        P, frame = self._probabilities(X)
        best = P.argmax(axis=1).tolist() if self._labels else []
        likely = [self._labels.kept[k] for k in best] or [None] * len(frame)
        return dataframe.to_native_series(likely, name=None, like=frame)

    def _probabilities(self, X: Any) -> tuple[Array, nw.DataFrame[Any]]:
        frame = dataframe.into_frame(X)
        rows, new, _ = self._columns.rows(frame)
        if self._model is None:
            return np.empty((len(frame), 0)), frame
        if new:
            rows = self._columns.known(rows)
        try:
            return self._model.predict(rows), frame
        except InvalidInputError:
            self._refuse_infinite(rows)
            raise

    def _refuse_infinite(self, rows: Array, new: Sequence[Hashable] = ()) -> None:
        """Say which feature is infinite, by name, if one is."""
        infinite = np.flatnonzero(np.isinf(rows).reshape(-1, rows.shape[-1]).any(axis=0))
        if infinite.size:
            name = [*self._columns.keys, *new][infinite[0]]
            raise InvalidInputError(
                f"feature {name!r} is infinite: every value must be finite, or None if missing"
            ) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file, from which `load` resumes exactly.

        Labels and names of features must be text, numbers or booleans. `folklearn.load` reads
        the file too, as the model without the names.
        """
        named = [key for key in self._columns.keys if not isinstance(key, Bucket)]
        for kind, values in (("label", self._labels.kept), ("feature name", named)):
            for value in values:
                if type(value) not in _SAVABLE or value in (math.inf, -math.inf):
                    raise InvalidInputError(
                        f"the {kind} {value!r} cannot be saved: a file takes text, finite numbers "
                        "and booleans"
                    )
        record = (self._model or self._fresh(1)).to_record()
        parameters = {
            word: value.item() if isinstance(value, np.generic) else value
            for word, value in self._get_params().items()
        }
        features = [
            {"bucket": key.number} if isinstance(key, Bucket) else key for key in self._columns.keys
        ]
        names = {"parameters": parameters, "labels": self._labels.kept, "features": features}
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
            loaded._labels.admit(names["labels"])
            loaded._columns.admit(
                Bucket(key["bucket"]) if isinstance(key, dict) else key for key in names["features"]
            )
        except (KeyError, TypeError, InvalidInputError) as error:
            raise StateFileError(f"{os.fspath(path)} has bad names: {error}") from None
        sizes = (max(1, len(loaded._columns.places)), len(loaded._labels.numbers))
        if sizes != (model.n_features, model.n_classes):
            raise StateFileError(f"{os.fspath(path)} does not name all features and classes once")
        loaded._model = model if model.n_rounds else None
        return loaded
