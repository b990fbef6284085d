"""`folklearn.Model` as a scikit-learn classifier."""

import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from folklearn import serialization, validation
from folklearn.adapters import select_settings
from folklearn.adapters.sklearn_data import Target, read_rows
from folklearn.arrays import TINY, Array
from folklearn.batch.penalised import MAX_PASSES
from folklearn.errors import InvalidInputError
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.passes import MapReduce
from folklearn.learners import catalogue
from folklearn.learners.term_mixture import TermMixture
from folklearn.model.dataset import declare_table
from folklearn.model.encoder import FEATURES
from folklearn.model.model import Model
from folklearn.model.refit import refit_tables
from folklearn.progress import report_progress
from folklearn.readers.table import Table, slice_rows
from folklearn.scaler import SPACE
from folklearn.serialization import Record

_AUTO = "auto"


class FolkloreClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Multinomial logistic regression, learned online, for scikit-learn.

    Use it where rows come in batches (`partial_fit`), where classes appear that were not declared,
    values are missing, columns hold text or dates, labels are uncertain (soft), or where good
    probabilities are wanted after one pass and without a learning rate, at any width. It
    translates to and from a `folklearn.Model`, its attribute `model_`.

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
        once, as all learners but ``"auto"`` do in any case. ``"auto"`` is right almost always.
    shuffle : whether `fit` shuffles the rows; False keeps the order of a stream.
    scale : standardise the features online, or divide sparse rows by their norm. False leaves
        them as they are: their norm should then be about 1.
    fit_intercept : append a constant to the features.
    roles : of columns of a data frame, by name, where they are not to be inferred:
        ``"number"``, ``"category"``, ``"words"``, ``"date"``, ``"id"`` or ``"ignored"``.
    crosses : pairs of columns of a data frame whose products are features too.
    terms : "auto", "none" or "all": curves, products and waves of the columns, as for
        `folklearn.Model`; with "none" the model is linear, and has `coef_`.
    missing : texts and numbers that stand for a missing value in columns of a data frame, besides
        the usual ones; see `folklearn.Model`.
    class_weight : None, a dict from label to weight (1 for those not in it), or
        ``"balanced"``, n / (K n_k), in `fit` only.
    max_weight : largest product of sample and class weight that will occur, for ``"auto"`` only,
        which refuses heavier rows. None is the largest there is in `fit`, and the largest class
        weight, or 1, in `partial_fit`.
    random_state : of the order of the rows; None always gives the same order.
    n_jobs : threads for the passes of the fit to all rows, -1 for all cores; None is 1. The model
        is the same to the last bit on one machine.
    device : of the sums of that fit, and of the learners "auto" and "leader": "cpu", the default,
        or a device of PyTorch such as "cuda" (extra ``gpu``). An unpickled model is on the CPU.
    verbose : show the progress of `fit` on standard error.

    Attributes
    ----------
    classes_ : the labels known so far, sorted: the columns of `predict_proba`.
    n_features_in_, feature_names_in_ : number of columns of X, and their names if they are text.
    coef_, intercept_ : of a model without terms where every column of X is a number, weights (K, d)
        and constants (K,), of two classes (1, d) and (1,) for the second:
        ``X @ coef_.T + intercept_`` are the logits of the linear model with the largest weight, up
        to a number for each row, and but for the clipping of outliers; where rows stay sparse, in
        units of rows of norm 1.
    model_ : the `folklearn.Model` after the last row; it has the labels as they came.

    Notes
    -----
    NaN, and None or NA of a data frame, is a missing value: the mean of its column so far, or 0 in
    rows that stay sparse. The first rows of a data frame (pandas, polars, Arrow) decide the roles
    of columns. A label is text, an integer or a truth value, one kind per estimator. Soft labels
    are rows of K >= 2 probabilities: a 2-d array of floats, whose columns are in the order of
    `classes_` (0 to K-1 if there are none yet), or a data frame with the classes as columns.

    A call that fails changes nothing. One estimator is for one thread at a time. pickle, joblib and
    skops keep everything; skops has to trust the class::

        skops.io.load(file, trusted=["folklearn.adapters.sklearn.FolkloreClassifier"])

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

    Classes as they come:

    >>> model = FolkloreClassifier(learner="folklore")
    >>> model = model.partial_fit([[0.1], [0.9]], ["sun", "rain"])
    >>> model.partial_fit([[0.5]], ["snow"]).classes_.tolist()
    ['rain', 'snow', 'sun']
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
        passes: int | str = _AUTO,
        shuffle: bool = True,
        scale: bool = True,
        fit_intercept: bool = True,
        roles: Mapping[str, str] | None = None,
        crosses: Any = (),
        terms: str = _AUTO,
        missing: Any = None,
        class_weight: Any = None,
        max_weight: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
        verbose: bool = False,
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
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rows of X (T, d) with labels y, shuffled, then together; return self.

        y is one label for every row (T,), or soft labels (T, K), see the Notes. Whatever was
        learned before is forgotten.
        """
        n_jobs = 1 if self.n_jobs is None else self.n_jobs
        MapReduce.from_options(n_jobs, self.device)  # check before anything is learned
        most_passes = self._most_passes()
        with _all_or_nothing(self):
            table, target, weights, _ = self._read_rows(X, y, None, sample_weight, first=True)
            classes = target.classes
            if target.columns is None:
                check_classification_targets(target.values)
            class_weight = target.decide_class_weight(self.class_weight, weights)
            self._begin(class_weight, classes.tolist())
            labels = target.for_model(self.model_)
            _, _, totals = self.model_.label_encoder.encode(labels, weights)
            if not totals.any():
                raise InvalidInputError("the sample weights are all zero: nothing can be learned")
            self._begin_rows(table, float(totals.max()), len(classes))
            seed, order = 0, np.arange(len(table))
            if self.random_state is not None:
                seed = check_random_state(self.random_state).randint(2**31 - 1)
            if self.shuffle:
                order = np.random.default_rng([seed, 0]).permutation(order)
            with report_progress(self.verbose, len(table), "learning") as report:
                for rows in slice_rows(table):
                    part = order[rows]
                    self.model_.learn_many(table.take(part), labels[part], weight=weights[part])
                    report(rows.stop)
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
        advance, in any call: these then have a column before their first row. Soft labels
        (T, K) must have one column for every class known by then, see the Notes.
        """
        first = not hasattr(self, "model_")
        with _all_or_nothing(self):
            if isinstance(self.class_weight, str):
                raise InvalidInputError(
                    f"class_weight={self.class_weight!r} is not supported by partial_fit, which "
                    "does not see all labels: use compute_class_weight of scikit-learn on a "
                    "large enough sample and give its weights as a dict"
                )
            table, target, weights, declared = self._read_rows(X, y, classes, sample_weight, first)
            slices = list(slice_rows(table))
            if first:
                self._begin(self.class_weight, declared.tolist())
                heaviest = max([1.0, *map(validation.weight, (self.class_weight or {}).values())])
                n_classes = len({*declared.tolist(), *target.classes.tolist()})
                self._begin_rows(table, heaviest, n_classes)
            else:
                if len(declared) or (table.columns and len(slices) > 1):
                    self.model_ = copy.deepcopy(self.model_)  # a failure must leave the old one
                self.model_.declare(declared.tolist())
            labels = target.for_model(self.model_)
            _, _, totals = self.model_.label_encoder.encode(labels, weights)
            validation.check_max_weight(totals, self.model_.max_weight)
            for rows in slices:
                self.model_.learn_many(table.take(rows), labels[rows], weight=weights[rows])
            kind = target.classes.dtype
            names = np.array(self.model_.labels, kind if kind.kind in "bO" else None)
            self.classes_ = np.sort(names)
        return self

    def _read_rows(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, first: bool
    ) -> tuple[Table, Target, Array, NDArray[Any]]:
        """Return checked rows, labels and weights (T,), and the classes to declare."""
        table = read_rows(self, X, first)
        target, declared = Target.read(y, np.empty(0) if first else self.classes_, classes)
        check_consistent_length(table, target.values)
        if sample_weight is not None and np.isscalar(sample_weight):
            sample_weight = np.full(len(table), sample_weight)
        return table, target, validation.weights(sample_weight, len(table)), declared

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities (T, K) of the classes `classes_`, given that it is one."""
        check_is_fitted(self)
        return self.model_.predict_proba(read_rows(self, X))[:, self._class_numbers()]

    def _class_numbers(self) -> list[int]:
        return [self.model_.labels.index(label) for label in self.classes_.tolist()]

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`, never below ln 1e-300."""
        return np.log(np.maximum(self.predict_proba(X), TINY))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of every row."""
        P = self.predict_proba(X)  # first: it says if nothing was fitted
        return self.classes_[P.argmax(axis=1)]

    @property
    def coef_(self) -> Array:
        """Weights (K, d), or (1, d) of two classes; see the class."""
        return self._linear()[0]

    @property
    def intercept_(self) -> Array:
        """Constants (K,), or (1,) of two classes."""
        return self._linear()[1]

    def _linear(self) -> tuple[Array, Array]:
        columns = self.model_.encoder if hasattr(self, "model_") else None
        core = self.model_.pipeline if columns is not None else None
        if columns is None or core is None or core.learner is None:
            raise AttributeError("there are no weights before two classes were learned")
        if isinstance(core.learner, TermMixture):
            raise AttributeError(
                'the model is not linear: it has terms; see model_.explain(), or set terms="none"'
            )
        d = self.n_features_in_
        names = getattr(self, "feature_names_in_", ())
        keys = [(str(name), "") for name in names] if columns.roles else ()
        if core.sparse and columns.keys == [(FEATURES, "")]:
            columns_used, weights = core.column_weights()
            W, constants = np.zeros((core.n_classes, d)), np.zeros(core.n_classes)
            is_feature = columns_used >= SPACE
            W[:, columns_used[is_feature] - SPACE] = weights[is_feature].T
            if self.fit_intercept:
                constants = weights[columns_used == 0].sum(axis=0) * core.scaler.constant
        elif not core.sparse and (columns.is_matrix or set(keys) == set(columns.keys)):
            W, constants = core.linear()
            W = W if columns.is_matrix else W[:, [columns.places[key] for key in keys]]
        else:
            raise AttributeError("there is no weight for every column of X: see model_.explain()")
        order = self._class_numbers()
        W, constants = W[order] - W.mean(axis=0), constants[order] - constants.mean()
        return (W[1:] - W[:1], constants[1:] - constants[:1]) if len(W) == 2 else (W, constants)

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen.

        `predict_proba` is given that it is of one in `classes_`: times 1 minus this, it is
        the probability outright. It is 0 as long as all classes were declared, as in `fit`.
        """
        check_is_fitted(self)
        return float(self.model_.unseen_probability)

    def certificate(self) -> Certificate | None:
        """Return what is proven about linear models of the features, standardised once.

        None as long as there is one class alone. It speaks of the losses while learning; see
        `Certificate` and `folklearn.Model`.
        """
        check_is_fitted(self)
        return self.model_.certificate()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `model_` to a safetensors file, which `folklearn.load` reads."""
        check_is_fitted(self)
        self.model_.save(path)

    def _begin(self, class_weight: Any, known: list[Any]) -> None:
        names = "B", "lam", "memory", "max_weight"
        settings = select_settings(self.learner, **{name: getattr(self, name) for name in names})
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
        is_fitted = self.learner == _AUTO
        if isinstance(self.passes, str):
            if self.passes == _AUTO:
                return MAX_PASSES if is_fitted else 0
            raise InvalidInputError(f"passes must be {_AUTO!r} or a number, got {self.passes!r}")
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
