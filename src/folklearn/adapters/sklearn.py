"""`folklearn.Model` as a scikit-learn classifier."""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from folklearn import serialization, validation
from folklearn.arrays import TINY, Array
from folklearn.batch.penalised import MAX_PASSES
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.passes import MapReduce
from folklearn.learners import catalogue
from folklearn.model.dataset import declare_table
from folklearn.model.model import Model
from folklearn.model.refit import refit_tables
from folklearn.model.roles import IGNORED
from folklearn.readers.columnar import is_frame
from folklearn.readers.open import as_table, open_reader
from folklearn.readers.table import Table, slice_rows
from folklearn.serialization import Record
from folklearn.sparse import SparseRows

Labels = NDArray[Any]

_MAX_LABEL = 2**53  # from here on, neighbouring integers are the same float
_LABEL_KINDS = {"b": "truth values", "i": "numbers", "u": "numbers", "f": "numbers"}
_ACCEPTED = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": "allow-nan"}


class FolkloreClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Multinomial logistic regression, learned online, for scikit-learn.

    Use it where rows come in batches (`partial_fit`), where classes appear that were not declared,
    values are missing, columns hold text or dates, or where good probabilities are wanted after
    one pass and without a learning rate, at any width. It translates to and from a
    `folklearn.Model`, its attribute `model_`.

    `fit` shuffles the rows and learns each once; with the default learner it then goes over all of
    them until the penalised maximum-likelihood fit is found, its ridge chosen by three folds: no C
    to be tuned. `partial_fit` learns every row once, in order; after `fit` it goes on with the
    model that learned online, and predicts with it.

    Guarantee: that of `certificate`, about the losses of the pass that learned each row once. The
    model that predicts afterwards has none; `folklearn.OnlineToBatch` makes models that have.

    Parameters
    ----------
    learner : ``"auto"``, which needs no setting, ``"folklore"``, ``"gaf"``, ``"laplace"`` or
        ``"ogd"``. Also ``"ons"``, and ``"aioli"`` for two classes: these two need all classes
        beforehand, as `fit` has them, and refuse a new one.
    B : largest norm of the weights of a class, of rows scaled to a norm of about 1, positive;
        None for the learner's default. ``"auto"`` takes none.
    lam : ridge :math:`\lambda`, positive; None for the learner's default. ``"auto"``,
        ``"ogd"`` and ``"ons"`` take none.
    memory : rows after which an example counts 1/e of what it did, at least 1, for streams
        that drift; None forgets nothing. Only ``"folklore"`` takes it.
    passes : most passes of the penalised fit over the rows, for each ridge; 1 learns each row
        once, as all learners but ``"auto"`` do in any case. None is right almost always.
    shuffle : whether `fit` shuffles the rows; False keeps the order of a stream.
    scale : standardise the features online, or divide sparse rows by their norm. False leaves
        them as they are: their norm should then be about 1.
    fit_intercept : append a constant to the features.
    roles, crosses, missing : of columns of a data frame, as for `folklearn.Model`.
    terms : "auto", "none" or "all": curves, products and waves of the columns, as for
        `folklearn.Model`; with "none" the model is linear.
    class_weight : None, a dict from label to weight (1 for those not in it), or
        ``"balanced"``, n / (K n_k), in `fit` only.
    max_weight : largest product of sample and class weight that ``"auto"`` will take. None is the
        largest there is in `fit`, and the largest class weight, or 1, in `partial_fit`.
    random_state : of the order of the rows; None always gives the same order.
    n_jobs : threads of the fit to all rows, -1 for all cores, None is 1; the model is the same.
    device : of the sums of that fit, and of the learners "auto" and "leader": "cpu", the default,
        or a device of PyTorch such as "cuda" (extra ``gpu``). An unpickled model is on the CPU.

    Attributes
    ----------
    classes_ : the labels known so far, sorted: the columns of `predict_proba`.
    n_features_in_, feature_names_in_ : number of columns of X, and their names if they are text.
    model_ : the `folklearn.Model` after the last row; it has the labels as they came, explains its
        weights, and says how probable a class is that was never seen (`unseen_probability`).

    Notes
    -----
    NaN, and None or NA of a data frame, is a missing value: the mean of its column so far, or 0 in
    rows that stay sparse. The first rows of a data frame (pandas, polars, Arrow) decide the roles
    of columns. A label is text, an integer or a truth value, one kind per estimator.

    A call that fails changes nothing. One estimator is for one thread at a time. pickle, joblib and
    skops, by ``trusted=["folklearn.adapters.sklearn.FolkloreClassifier"]``, keep everything.

    Examples
    --------
    >>> from folklearn import FolkloreClassifier
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_wine(return_X_y=True)
    >>> X, X_new, y, y_new = train_test_split(X, y, random_state=0)
    >>> model = FolkloreClassifier().fit(X, y)
    >>> model.score(X_new, y_new) > 0.95, model.predict_proba(X_new).shape
    (True, (45, 3))
    """

    model_: Model
    classes_: NDArray[Any]
    _names: list[str] | None

    def __init__(
        self,
        learner: str = "auto",
        *,
        B: float | None = None,
        lam: float | None = None,
        memory: int | None = None,
        passes: int | None = None,
        shuffle: bool = True,
        scale: bool = True,
        fit_intercept: bool = True,
        roles: Mapping[str, str] | None = None,
        crosses: Any = (),
        terms: str = "auto",
        missing: Any = None,
        class_weight: Any = None,
        max_weight: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.learner = learner
        self.B = B
        self.lam = lam
        self.memory = memory
        self.passes = passes
        self.shuffle = shuffle
        self.scale = scale
        self.fit_intercept = fit_intercept
        self.roles = roles
        self.crosses = crosses
        self.terms = terms
        self.missing = missing
        self.class_weight = class_weight
        self.max_weight = max_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rows of X (T, d) with labels y, shuffled, then together; return self.

        Whatever was learned before is forgotten.
        """
        n_jobs = 1 if self.n_jobs is None else self.n_jobs
        MapReduce.from_options(n_jobs, self.device)  # check before anything is learned
        most_passes = self._most_passes()
        with _all_or_nothing(self):
            table, labels, weights, _ = self._read_rows(X, y, None, sample_weight, first=True)
            check_classification_targets(labels)
            classes = np.unique(labels)
            known = classes.tolist()
            named = [*self.class_weight] if isinstance(self.class_weight, Mapping) else []
            unknown = [label for label in named if label not in known]
            if unknown and not {*known} <= {*named}:
                raise InvalidInputError(f"class_weight names {unknown}, which y does not hold")
            self._begin(self.class_weight, known)
            if isinstance(self.class_weight, str):
                weights_of_classes = (weights @ (labels[:, None] == classes)).tolist()
                self.model_.label_encoder.balance(dict(zip(known, weights_of_classes, strict=True)))
            _, _, totals = self.model_.label_encoder.encode(labels, weights)
            if not totals.any():
                raise InvalidInputError("the sample weights are all zero: nothing can be learned")
            self._begin_rows(table, float(totals.max()), len(classes))
            seed, order = 0, np.arange(len(table))
            if self.random_state is not None:
                seed = check_random_state(self.random_state).randint(2**31 - 1)
            if self.shuffle:
                order = np.random.default_rng([seed, 0]).permutation(order)
            for rows in slice_rows(table):
                part = order[rows]
                self.model_.learn_many(table.take(part), labels[part], weight=weights[part])
            if most_passes:
                batches = [
                    (table.take(rows), labels[rows], weights[rows]) for rows in slice_rows(table)
                ]
                limits = {"most_passes": most_passes, "seed": seed, "n_jobs": n_jobs}
                refit_tables(self.model_, batches, **limits)
            self.classes_ = classes
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on with the rows of X (T, d) and labels y, each learned once; return self.

        Labels y (T,) that are new are learned as new classes. ``classes`` may name some in
        advance, in any call: these then have a column before their first row.
        """
        first = not hasattr(self, "model_")
        with _all_or_nothing(self):
            if isinstance(self.class_weight, str):
                raise InvalidInputError(
                    f"class_weight={self.class_weight!r} is not supported by partial_fit, which "
                    "does not see all labels: use compute_class_weight of scikit-learn on a "
                    "large enough sample and give its weights as a dict"
                )
            table, labels, weights, declared = self._read_rows(X, y, classes, sample_weight, first)
            slices = list(slice_rows(table))
            if first:
                self._begin(self.class_weight, declared.tolist())
                heaviest = max([1.0, *map(validation.weight, (self.class_weight or {}).values())])
                n_classes = len({*declared.tolist(), *labels.tolist()})
                self._begin_rows(table, heaviest, n_classes)
            else:
                if len(declared) or (table.columns and len(slices) > 1):
                    self.model_ = copy.deepcopy(self.model_)  # a failure must leave the old one
                self.model_.declare(declared.tolist())
            _, _, totals = self.model_.label_encoder.encode(labels, weights)
            validation.check_max_weight(totals, self.model_.max_weight)
            for rows in slices:
                self.model_.learn_many(table.take(rows), labels[rows], weight=weights[rows])
            kind = labels.dtype
            names = np.array(self.model_.labels, kind if kind.kind in "bO" else None)
            self.classes_ = np.sort(names)
        return self

    def _read_rows(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, first: bool
    ) -> tuple[Table, NDArray[Any], Array, NDArray[Any]]:
        """Return checked rows, labels and weights (T,), and the classes to declare."""
        table = _check_rows(self, X, first)
        labels, declared = _read_labels(y, np.empty(0) if first else self.classes_, classes)
        check_consistent_length(table, labels)
        if sample_weight is not None and np.isscalar(sample_weight):
            sample_weight = np.full(len(table), sample_weight)
        return table, labels, validation.weights(sample_weight, len(table)), declared

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities (T, K) of the classes `classes_`, given that it is one."""
        check_is_fitted(self)
        order = [self.model_.labels.index(label) for label in self.classes_.tolist()]
        return self.model_.predict_proba(_check_rows(self, X))[:, order]

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`, never below ln 1e-300."""
        return np.log(np.maximum(self.predict_proba(X), TINY))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of every row."""
        P = self.predict_proba(X)  # first: it says if nothing was fitted
        return self.classes_[P.argmax(axis=1)]

    def certificate(self) -> Certificate | None:
        """Return the certificate of `folklearn.Model`, or None before the second class."""
        check_is_fitted(self)
        return self.model_.certificate()

    def _begin(self, class_weight: Any, known: list[Any]) -> None:
        names = "B", "lam", "memory", "max_weight"
        values = {name: getattr(self, name) for name in names}
        settings: dict[str, Any] = {n: value for n, value in values.items() if value is not None}
        settings |= {"scale": self.scale, "intercept": self.fit_intercept, "device": self.device}
        settings |= {"roles": self.roles, "crosses": self.crosses, "class_weight": class_weight}
        settings |= {"missing": self.missing, "terms": self.terms}
        self.model_ = Model(self.learner, classes=known, **settings)

    def _begin_rows(self, table: Table, heaviest: float, n_classes: int) -> None:
        if "max_weight" in catalogue.settings_of(self.learner):
            largest = self.model_.settings.setdefault("max_weight", max(1.0, heaviest))
            self.model_.max_weight = largest
        declare_table(self.model_, table, n_classes)

    def _most_passes(self) -> int:
        """Return the most passes of the penalised fit, 0 if there is none."""
        is_fitted = self.learner == "auto"
        if self.passes is None:
            return MAX_PASSES if is_fitted else 0
        passes = validation.count("passes", self.passes, 1)
        if passes > 1 and not is_fitted:
            raise InvalidInputError(
                f"learner={self.learner!r} learns every row once: leave passes={passes} out"
            )
        return passes - 1

    def __getstate__(self) -> dict[str, Any]:
        # Records instead of objects: they hold nothing but numbers and text, so that skops
        # has one class to trust and a pickle does not depend on how learners are built.
        state: dict[str, Any] = {**super().__getstate__()}
        if "model_" in state:
            state["model_"] = vars(self.model_.to_record())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = {**state, "model_": serialization.revive(Record(**state["model_"]))}
        super().__setstate__(state)


@contextmanager
def _all_or_nothing(estimator: FolkloreClassifier) -> Iterator[None]:
    """Put every attribute back if something goes wrong; also those that scikit-learn sets."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def _check_rows(estimator: Any, X: Any, first: bool = False) -> Table:
    """Return the rows of X; the first ones of an estimator decide whether columns have names."""
    is_named = first or estimator._names is not None
    if is_named and is_frame(X) and find_spec("narwhals") and find_spec("pyarrow"):
        validate_data(estimator, X, reset=first, skip_check_array=True)
        table = _read_frame(X, estimator)
        if first:
            estimator._names = list(table.columns)
        columns = zip(estimator._names or (), table.columns.values(), strict=True)
        return Table(dict(columns), table.lines)
    if first and (estimator.roles or estimator.crosses):
        raise InvalidInputError("roles and crosses are for the columns of a data frame")
    _check_no_text(X)
    X = validate_data(estimator, X, reset=first, **_ACCEPTED)
    (T, d), rows = X.shape, SparseRows.of(X) if issparse(X) else X
    if isinstance(rows, SparseRows):
        values = np.nan_to_num(rows.values, nan=0.0)
        validation.rows_of_contexts(SparseRows(rows.indptr, rows.indices, values, d), d)
    else:
        validation.contexts(X, d, gaps=True)
    if first:
        estimator._names = None
    if estimator._names is None:
        return Table({}, np.arange(1, T + 1), rows)
    dense = rows.dense() if isinstance(rows, SparseRows) else rows
    return Table(dict(zip(estimator._names, dense.T, strict=True)), np.arange(1, T + 1))


def _read_frame(X: Any, estimator: Any) -> Table:
    import narwhals.stable.v2 as nw

    frame, reader = nw.from_native(X, eager_only=True), open_reader(X)
    roles = estimator.roles or {}
    names = {str(name): name for name in frame.columns}
    unknown = [name for name in roles if name not in names]
    if unknown:
        raise InvalidInputError(f"X has no column {unknown[0]!r}, which was given a role")
    for name in names:
        is_ignored = name in reader.names or roles.get(name) == IGNORED
        if is_ignored or frame[names[name]].is_null().all():
            continue
        raise InvalidInputError(
            f"column {name!r} is of type {frame.schema[names[name]]}, and only numbers, truth "
            "values, text, categories, dates and durations can be read: convert or drop it, or "
            f"say by roles that it is {IGNORED!r}"
        )
    if not len(frame):
        raise InvalidInputError(
            f"Found array with 0 sample(s) (shape={(0, len(names))}) while a minimum of 1 is "
            f"required by {type(estimator).__name__}."
        )
    table = as_table(X, reader.left_out)  # all of them are ignored, or empty
    gap = np.full(len(table), math.nan)
    return Table({name: table.columns.get(name, gap) for name in names}, table.lines)


def _check_no_text(X: Any) -> None:
    """Raise for an array or a list with text, which scikit-learn would parse."""
    if isinstance(X, list | tuple) or hasattr(X, "columns"):
        try:
            X = np.asarray(X)
        except ValueError:  # scikit-learn says what is wrong with its shape
            return
    if not isinstance(X, np.ndarray):
        return
    kind = X.dtype.kind
    if kind in "UST" or (kind == "O" and any(isinstance(value, str | bytes) for value in X.flat)):
        raise InvalidInputError(
            "X holds text, which is taken from data frames only, if the first rows came in one: "
            "pass one (of pandas, polars or Arrow; it is read with narwhals and pyarrow), or "
            "convert the text to numbers"
        )


def _read_labels(y: Any, known: Labels, classes: Any) -> tuple[Labels, Labels]:
    """Return labels (T,) in the type of those known, and the classes to declare."""
    if y is None:
        raise InvalidInputError(
            "FolkloreClassifier requires y to be passed, but the target y is None"
        )
    values = column_or_1d(y, warn=True)
    assert_all_finite(values, input_name="y")
    labels, declared = _check_labels("y", values), known[:0]
    if classes is not None and np.size(classes):
        declared = _convert_labels("classes", _check_labels("classes", classes), known)
    all_known = np.concatenate([known, declared]) if len(known) else declared
    new = np.setdiff1d(declared, known) if len(known) else declared
    return _convert_labels("y", labels, all_known), new


def _check_labels(name: str, values: Any) -> Labels:
    labels = np.asarray(values)
    kind = labels.dtype.kind
    if labels.ndim != 1:
        raise InvalidInputError(f"{name} must be a list of labels, got shape {labels.shape}")
    if kind in "biuU":
        return labels
    if kind == "f" and (np.abs(labels) < _MAX_LABEL).all() and not (labels % 1.0).any():
        return labels
    if kind in "OT" and all(isinstance(label, str) for label in labels):
        return labels.astype(object)
    raise InvalidInputError(
        f"Unknown label type: {name} must hold integers, truth values or text, "
        f"got dtype {labels.dtype}"
    )


def _convert_labels(name: str, labels: Labels, known: Labels) -> Labels:
    """Return labels in the type of others; whole floats and integers are one kind."""
    if not len(known):
        return labels
    kind, known_kind = (_LABEL_KINDS.get(array.dtype.kind, "text") for array in (labels, known))
    if kind != known_kind:
        verb = "holds" if name == "y" else "are"
        raise InvalidInputError(
            f"{name} {verb} {kind}, but the labels so far are {known_kind}: convert one to the "
            "other first"
        )
    if kind != "numbers" or (labels.dtype.kind == "f") == (known.dtype.kind == "f"):
        return labels
    converted = labels.astype(np.float64 if known.dtype.kind == "f" else np.int64)
    return _check_labels("all labels together", converted)
