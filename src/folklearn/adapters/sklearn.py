"""The learners as a scikit-learn classifier."""

import copy
import inspect
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from folklearn import problem, registry
from folklearn.errors import InvalidInputError
from folklearn.learners import catalogue
from folklearn.learners.contract import Certificate
from folklearn.persist import Record
from folklearn.progress import reporter
from folklearn.streams.open import OpenModel

Array = NDArray[np.float64]
Labels = NDArray[Any]
Numbers = NDArray[np.intp]

SELECT = ("last", "average", "random")
_INPUT = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": "allow-nan"}
_BLOCK = 2**21  # numbers that are dense at a time
_FLOOR = 1e-300  # of probabilities whose logarithm is asked for
_LARGEST_LABEL = 2**53  # from here on, neighbouring integers are the same float


class FolkloreClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Multinomial logistic regression, learned online, for scikit-learn.

    Use it where rows come in batches (`partial_fit`), where classes appear that nobody
    declared, where values are missing, or where good probabilities are wanted after one pass
    and without a learning rate. Prefer ``LogisticRegression`` when all rows fit in memory and
    can be visited many times, and ``learner="ogd"`` when ((K-1) d)^2 numbers do not fit.

    Each row is scaled by the mean and deviation of the rows so far, predicted, then learned.
    What predicts afterwards is chosen by ``select``:

    .. math:: p(x) = \frac1m \sum_{i \le m} h_{\tau_i}(x), \qquad \tau_i \sim U\{1..T\}

    with :math:`h_t` the model before round t of T.

    ==============================  ================================  =========
    select                          models that predict               guarantee
    ==============================  ================================  =========
    ``"last"``                      the one after the last row        heuristic
    ``"average"``, ``passes=1``     m = ``n_checkpoints``             yes
    ``"random"``, ``passes=1``      m = 1                             yes
    any, ``passes`` > 1             as above, rows seen again         heuristic
    ==============================  ================================  =========

    The last model has seen most and is usually the best; nothing proves it. The draws stay
    uniform from one `partial_fit` to the next, so that it has the same guarantee as `fit`.

    Time is that of the learner, O(d^2 K^3) per row (``"ogd"``: O(d K)). Memory is
    8 ((K-1) d)^2 bytes, ten times that for ``"auto"``, times 1 + m with ``"average"`` and
    ``"random"``. Sparse rows are made dense a block at a time: that saves the memory of the
    rows, not of the state.

    Guarantee, for independent rows of one distribution, all classes declared (`fit` takes
    those in y) and a choice above that carries one: the expected log loss at a new point is
    at most :math:`E[L_T]/T \le E[\min_W L_T(W) + G]/T`, where :math:`L_T` is the loss while
    learning, G the ``regret_bound`` of `certificate`, and W any linear model, of row norm at
    most B, of the features as scaled in each round (with ``scale=False``: of the features).
    With sample weights, drawn with their rows, losses are weighted.

    Parameters
    ----------
    learner : ``"auto"``, which needs no setting, ``"folklore"``, ``"gaf"``, ``"laplace"`` or
        ``"ogd"``.
    B : largest row norm of the linear models to compete with, positive; None for the
        learner's default. ``"auto"`` tries many and takes none.
    lam : ridge :math:`\lambda`, positive; None for the learner's default. ``"auto"`` and
        ``"ogd"`` take none.
    select : ``"last"``, ``"average"`` or ``"random"``.
    passes : times that `fit` runs over the rows, at least 1: first in the order given, then
        reshuffled each time. `partial_fit` runs once.
    scale : standardise the features on line. False leaves them as they are: their norm
        should then be about 1.
    fit_intercept : append a constant to the features.
    class_weight : None, a dict from label to weight (1 for those not in it), or
        ``"balanced"``, n / (K n_k), which only `fit` can know.
    n_checkpoints : number m of models that ``"average"`` draws, at least 1.
    max_weight : largest weight, sample weight times class weight, that will occur; only for
        ``"auto"``, which mixes its experts on this scale and refuses heavier rows. None
        stands for the largest weight there is in `fit`, and in `partial_fit` for the largest
        class weight, or 1: with sample weights above 1, say so here.
    random_state : of the draws and of the order after the first pass. With
        ``select="last"`` and one pass nothing is random.
    verbose : show the progress of `fit` on standard error.

    Attributes
    ----------
    classes_ : the labels known so far, sorted: the columns of `predict_proba`.
    n_features_in_ : number of features.
    feature_names_in_ : their names, if the first rows had names that are all text.
    model_ : the `OpenModel` after the last row.
    numbers_ : the numbers of the labels `classes_` in `model_`, which counts classes as they
        come.

    Notes
    -----
    NaN, and None or NA of a data frame, is a missing value: it becomes the mean of its
    feature so far. A label may be text, an integer or a truth value, one kind per estimator.

    A class that `partial_fit` was not told of is learned from its first row on. Learner and
    settings are read when the first rows come; `fit` starts anew. A call that fails, because
    of whichever row, leaves everything as it was. One estimator is for one thread at a time,
    predictions included.

    pickle, joblib and skops keep everything. skops wants to be told of the class::

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

    A class that nobody declared:

    >>> model = FolkloreClassifier(learner="folklore")
    >>> model = model.partial_fit([[0.1], [0.9]], ["sun", "rain"])
    >>> model.partial_fit([[0.5]], ["snow"]).classes_.tolist()
    ['rain', 'snow', 'sun']

    References
    ----------
    Agarwal, Kale and Zimmert (2021), "Efficient Methods for Online Multiclass Logistic
    Regression". Cesa-Bianchi, Conconi and Gentile (2004), "On the generalization ability of
    on-line learning algorithms", for ``select``.
    """

    def __init__(
        self,
        *,
        learner: str = "auto",
        B: float | None = None,
        lam: float | None = None,
        select: str = "last",
        passes: int = 1,
        scale: bool = True,
        fit_intercept: bool = True,
        class_weight: Any = None,
        n_checkpoints: int = 10,
        max_weight: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.learner = learner
        self.B = B
        self.lam = lam
        self.select = select
        self.passes = passes
        self.scale = scale
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.n_checkpoints = n_checkpoints
        self.max_weight = max_weight
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rows of X (T, d) with labels y (T,) in the order given; return self.

        Whatever was learned before is forgotten.
        """
        with _all_or_nothing(self):
            X, y = validate_data(self, X, y, **_INPUT)
            _refuse_huge(X)
            y, _ = _labels("y", y)
            check_classification_targets(y)
            passes = problem.count("passes", self.passes, 1)
            self.classes_, numbers = np.unique(y, return_inverse=True)
            self.numbers_ = np.arange(len(self.classes_))
            self._refuse_unknown_names()
            weights = self._weights(self.classes_, numbers, sample_weight)
            if not weights.any():
                raise InvalidInputError("the sample weights are all zero: nothing can be learned")
            self._begin(len(self.classes_), float(weights.max()))
            self._refuse_heavy(weights)
            with reporter(self.verbose, passes * len(y), "learning") as report:
                self._learn(X, numbers, weights, passes, report)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on with the rows of X (T, d) and labels y (T,), each learned once; return self.

        Labels that are new are learned as new classes. ``classes`` may name some in advance,
        in any call: these then have a column before their first row.
        """
        first = not hasattr(self, "model_")
        with _all_or_nothing(self):
            if isinstance(self.class_weight, str):
                raise InvalidInputError(
                    f"class_weight={self.class_weight!r} is not supported by partial_fit, which "
                    "does not see all labels: use compute_class_weight of scikit-learn on a "
                    "large enough sample and give its weights as a dict"
                )
            X, y = validate_data(self, X, y, reset=first, **_INPUT)
            _refuse_huge(X)
            known, n_told, numbers = self._enrol(y, classes, first)
            weights = self._weights(known, numbers, sample_weight)
            if first:
                named = (self.class_weight or {}).values()
                self._begin(n_told, max([1.0, *map(problem.weight, named)]))
            self._refuse_heavy(weights)
            self._refuse_too_large(len(known))
        self.numbers_ = np.argsort(known, kind="stable")
        self.classes_ = known[self.numbers_]
        self.model_.grow(n_classes=n_told)
        self._learn(X, numbers, weights)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities (T, K) of the classes `classes_`, given that it is one."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_INPUT)
        _refuse_huge(X)
        P = np.empty((X.shape[0], len(self.classes_)))
        for rows in _blocks(X):
            P[rows] = self._mixed(_dense(X[rows]))[:, self.numbers_]
        return P

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`, never below ln 1e-300."""
        logs: Array = np.log(np.maximum(self.predict_proba(X), _FLOOR))
        return logs

    def predict(self, X: Any) -> Labels:
        """Return the most probable label of every row."""
        P = self.predict_proba(X)
        labels: Labels = self.classes_[P.argmax(axis=1)]
        return labels

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen.

        `predict_proba` is given that it is of one in `classes_`: times 1 minus this, it is
        the probability outright. See `OpenModel`.
        """
        check_is_fitted(self)
        return float(self.model_.unseen_probability)

    def certificate(self) -> Certificate | None:
        """Return what is proven about every linear model of the scaled features, or None.

        It speaks of the losses while learning; see `Certificate` and `OpenModel`.
        """
        check_is_fitted(self)
        certificate: Certificate | None = self.model_.certificate()
        return certificate

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `model_` to a safetensors file, which `folklearn.load` reads.

        It counts classes instead of naming them, see `numbers_`, and is what
        ``select="last"`` predicts with.
        """
        check_is_fitted(self)
        self.model_.save(path)

    def _enrol(self, y: Any, classes: Any, first: bool) -> tuple[Labels, int, Numbers]:
        """Return the labels by number, the count of those that y does not bring, y's numbers."""
        y, kind = _labels("y", y)
        told = y[:0]
        if not first:
            told = np.empty_like(self.classes_)
            told[self.numbers_] = self.classes_
        for name, more in (("the labels so far", told), ("classes", classes)):
            if more is None or np.size(more) == 0:
                continue
            more, theirs = _labels(name, more)
            if theirs != kind:
                raise InvalidInputError(
                    f"y holds {kind}, but {name} are {theirs}: convert one to the other first"
                )
            told = np.concatenate([told, np.setdiff1d(more, told)])
        values, places = np.unique(y, return_index=True)
        values = values[np.argsort(places)]
        known = np.concatenate([told, values[~np.isin(values, told)]])
        known, _ = _labels("all labels together", known)  # integers may have become floats
        order = np.argsort(known, kind="stable")
        numbers: Numbers = order[np.searchsorted(known[order], y)]
        return known, len(told), numbers

    def _weights(self, known: Labels, numbers: Numbers, sample_weight: Any) -> Array:
        """Return sample weight times class weight of every row."""
        if np.isscalar(sample_weight):
            sample_weight = np.full(len(numbers), sample_weight)
        weights = problem.weights(sample_weight, len(numbers))
        given = self.class_weight
        if given is None:
            return weights
        if isinstance(given, Mapping):
            factors = np.array([problem.weight(given.get(label, 1)) for label in known.tolist()])
        elif isinstance(given, str) and given == "balanced":
            totals = np.bincount(numbers, weights, len(known))
            factors = np.zeros(len(known))
            np.divide(totals.sum() / len(known), totals, out=factors, where=totals > 0.0)
        else:
            raise InvalidInputError(
                f'class_weight must be None, a dict or "balanced", got {given!r}'
            )
        return problem.weights(weights * factors[numbers], len(numbers))

    def _refuse_unknown_names(self) -> None:
        """Raise if class_weight leaves out a label and names one that is not there: a slip."""
        if isinstance(self.class_weight, Mapping):
            labels = set(self.classes_.tolist())
            strangers = [label for label in self.class_weight if label not in labels]
            if strangers and not labels <= set(self.class_weight):
                raise InvalidInputError(f"class_weight names {strangers}, which y does not hold")

    def _begin(self, n_classes: int, largest: float) -> None:
        """Start a model that has learned nothing."""
        if self.select not in SELECT:
            raise InvalidInputError(f"select must be one of {SELECT}, got {self.select!r}")
        m = problem.count("n_checkpoints", self.n_checkpoints, 1)
        m = {"last": 0, "average": m, "random": 1}[self.select]
        self._slots: Numbers = np.zeros(m, np.intp)  # which of the states each draw is
        self._states: list[OpenModel] = []
        settings = self._settings(largest)
        self._refuse_too_large(n_classes)
        self.model_ = OpenModel(
            self.learner,
            settings,
            n_features=self.n_features_in_,
            n_classes=n_classes,
            scale=self.scale,
            intercept=self.fit_intercept,
        )
        chance = m > 0 or self.passes != 1
        self._seed = check_random_state(self.random_state).randint(2**31 - 1) if chance else 0

    def _settings(self, largest: float) -> dict[str, float]:
        """Return what the learner is to be told of the parameters."""
        if self.learner not in catalogue.GROWING:
            return {}  # the model refuses it
        takes = inspect.signature(catalogue.CATALOGUE[self.learner]).parameters
        settings = {}
        for name in ("B", "lam", "max_weight"):
            value = getattr(self, name)
            if value is not None and name not in takes:
                raise InvalidInputError(
                    f"learner={self.learner!r} takes no {name}, got {name}={value!r}: leave it None"
                )
            if value is not None:
                settings[name] = problem.positive(name, value)
        if "max_weight" in takes:
            settings.setdefault("max_weight", max(largest, 1.0 / problem.MAX_PARAMETER))
        return settings

    def _refuse_heavy(self, weights: Array) -> None:
        limit = self.model_.settings.get("max_weight", math.inf)
        heavy = np.flatnonzero(weights > limit)
        if heavy.size:
            raise InvalidInputError(
                f"row {heavy[0]} has the weight {weights[heavy[0]]:g} (sample weight times class "
                f"weight), above max_weight={limit:g}, for which this model was made: construct "
                "it with a max_weight that covers every weight to come"
            )

    def _refuse_too_large(self, n_classes: int) -> None:
        """Raise if the states cannot fit in this machine: it would stall, not fail."""
        n_columns = self.n_features_in_ + bool(self.fit_intercept)
        needed = catalogue.n_bytes(self.learner, n_columns, max(n_classes, 2))
        needed *= 1 + len(self._slots)
        present = catalogue.bytes_present()
        if present is not None and needed > present:
            raise InvalidInputError(
                f"learner={self.learner!r} needs {needed / 1e9:.1f} GB of memory for "
                f"{self.n_features_in_} features and {n_classes} classes, and this machine has "
                f'{present / 1e9:.1f} GB: use learner="ogd", or fewer features'
            )

    def _learn(
        self,
        X: Any,
        numbers: Numbers,
        weights: Array,
        passes: int = 1,
        report: Callable[[int], None] | None = None,
    ) -> None:
        """Run over the rows; every slot then holds a state drawn from all rounds so far.

        A draw among the rounds before this call, where the slot's state already is one
        at random, leaves it; so the draws are uniform after every call.
        """
        model: OpenModel = self.model_
        T, before = len(numbers), model.n_rounds
        rng = np.random.default_rng([self._seed, before])
        drawn = rng.integers(before + passes * T, size=len(self._slots)) - before
        states, slots = list(self._states), self._slots.copy()
        for number in range(passes):
            order = rng.permutation(T) if number else np.arange(T)
            places = drawn - number * T
            stops = places[(places >= 0) & (places < T)].tolist()
            edges = sorted({*(rows.start for rows in _blocks(X)), *stops, T})
            for start, stop in itertools.pairwise(edges):
                if start in stops:
                    slots[places == start] = len(states)
                    states.append(copy.deepcopy(model))
                rows = order[start:stop]
                model.run(_dense(X[rows]), numbers[rows], weight=weights[rows])
                if report is not None:
                    report(number * T + stop)
        used, self._slots = np.unique(slots, return_inverse=True)
        self._states = [states[i] for i in used]

    def _mixed(self, x: Array) -> Array:
        """Return the probabilities, by number, of the states that predict."""
        if not self._states:
            return self._shared(self.model_, x)
        shares = np.bincount(self._slots) / len(self._slots)
        P = np.zeros((len(x), len(self.classes_)))
        for share, state in zip(shares, self._states, strict=True):
            P += share * self._shared(state, x)
        return P

    def _shared(self, state: OpenModel, x: Array) -> Array:
        """Return a state's probabilities; classes that came later share what it held for them."""
        P = state.predict(x)
        n_later = len(self.classes_) - state.n_classes
        if n_later:
            u = state.unseen_probability
            P = np.hstack([(1.0 - u) * P, np.full((len(x), n_later), u / n_later)])
        return P

    def __getstate__(self) -> dict[str, Any]:
        # Records instead of objects: they hold nothing but numbers and text, so that skops
        # has one class to trust and a pickle does not depend on how learners are built.
        state: dict[str, Any] = {**super().__getstate__()}
        if "model_" in state:
            state["model_"] = vars(self.model_.to_record())
            state["_states"] = [vars(kept.to_record()) for kept in self._states]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            model = registry.revive(Record(**state["model_"]))
            kept = [registry.revive(Record(**record)) for record in state["_states"]]
            state = {**state, "model_": model, "_states": kept}
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


def _labels(name: str, values: Any) -> tuple[Labels, str]:
    """Return labels (T,), and their kind in words."""
    labels = np.asarray(values)
    kind = labels.dtype.kind
    if labels.ndim != 1:
        raise InvalidInputError(f"{name} must be a list of labels, got shape {labels.shape}")
    if kind == "b":
        return labels, "truth values"
    if kind in "iu":
        return labels, "numbers"
    if kind == "f" and (np.abs(labels) < _LARGEST_LABEL).all() and not (labels % 1.0).any():
        return labels, "numbers"
    if kind == "U" or (kind in "OT" and all(isinstance(label, str) for label in labels)):
        return labels if kind == "U" else labels.astype(object), "text"
    raise InvalidInputError(
        f"Unknown label type: {name} must hold integers, truth values or text, "
        f"got dtype {labels.dtype}"
    )


def _refuse_huge(X: Any) -> None:
    """Raise for a row whose norm is too large for the arithmetic, as a learner would."""
    values = X.data if scipy.sparse.issparse(X) else X
    largest = max(np.fmax.reduce(values, None, initial=0), -np.fmin.reduce(values, None, initial=0))
    if largest < problem.MAX_NORM / math.sqrt(2 * X.shape[1]):
        return
    for i in range(X.shape[0]):
        row = np.nan_to_num(_dense(X[i : i + 1])[0])
        if math.hypot(*row) >= problem.MAX_NORM * (1.0 - 1e-9):
            problem.refuse_context(row, f"row {i} of X")


def _blocks(X: Any) -> Iterator[slice]:
    """Yield the rows of X, as many at a time as may be dense."""
    n_rows, n_features = X.shape
    size = max(1, _BLOCK // n_features)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def _dense(rows: Any) -> Array:
    dense: Array = rows.toarray() if scipy.sparse.issparse(rows) else rows
    return dense
