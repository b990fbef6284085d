"""The learners as a scikit-learn classifier."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from folklearn import memory, persist, problem
from folklearn.adapters._sklearn import draws, frames, labels, rows, weights
from folklearn.arrays import TINY, Array
from folklearn.batch.penalised import MOST_PASSES
from folklearn.certificate import Certificate
from folklearn.errors import InvalidInputError
from folklearn.learners import catalogue
from folklearn.learners.lanes import PAIRS, lane_of
from folklearn.model.hashing import DEFAULT_BUCKETS
from folklearn.model.open import OpenModel
from folklearn.persist import Record
from folklearn.progress import reporter

Labels = NDArray[Any]
Numbers = NDArray[np.intp]

AUTO = "auto"
SELECT = ("last", "average", "random")
_SETTINGS = ("B", "lam", "memory", "max_weight")  # parameters that not every learner takes


class FolkloreClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Multinomial logistic regression, learned online, for scikit-learn.

    Use it where rows come in batches (`partial_fit`), where classes appear that nobody
    declared, where values are missing, where some columns hold text, where labels are
    uncertain (soft), or where good probabilities are wanted after one pass and without a
    learning rate. It takes problems of any width: words, hashed features, thousands of classes.

    Each row is scaled by the mean and deviation of the rows so far, predicted, then learned;
    `fit` shuffles them first. Sparse rows are divided by their norm instead, and stay sparse,
    unless the problem is small. With the default learner `fit` then goes over all rows again, as
    ``LogisticRegression`` does, until the penalised maximum-likelihood fit is found, for
    several ridges, of which it takes the one that predicts best what is left out: no C to be
    tuned. `partial_fit` learns every row once, in the order given.

    What predicts afterwards is otherwise chosen by ``select``:

    .. math:: p(x) = \frac1m \sum_{i \le m} h_{\tau_i}(x), \qquad \tau_i \sim U\{1..T\}

    with :math:`h_t` the model before round t of T.

    ==============================  ================================  =========
    select                          models that predict               guarantee
    ==============================  ================================  =========
    ``"last"``, ``"auto"``, `fit`   penalised fit to all rows         heuristic
    ``"last"``                      the one after the last row        heuristic
    ``"average"``, ``passes=1``     m = ``n_checkpoints``             yes
    ``"random"``, ``passes=1``      m = 1                             yes
    any, ``passes`` > 1             as above, rows seen again         heuristic
    ==============================  ================================  =========

    The fit to all rows is the best of these in practice, then the last model, which has seen
    most; nothing proves it. `certificate` speaks of the pass that learned each row once,
    whatever predicts afterwards. `partial_fit` after `fit` goes on with the model that learned
    on line, and predicts with it. The draws stay uniform from one `partial_fit` to the next, so
    that it has the same guarantee as `fit`.

    Small problems (`auto` says what is small): time is that of the learner, O(d^2 K^3) per row
    (``"ogd"``: O(d K)); the fit to all rows takes some twenty passes of (K d)^2 / 2 flops a row
    more. Memory is 8 ((K-1) d)^2 bytes, ten times that for ``"auto"``, times 1 + m with
    ``"average"`` and ``"random"``; sparse rows are made dense a block at a time.

    Larger ones ``"auto"`` learns in O(K) for a value that is not 0 (`Wide`; many classes of few
    dense features in O(K d^2), `ClassBlocks`), and never refuses for their width; other learners
    say if their state does not fit. Memory is 64 (K + 1) bytes for every column that occurred.
    The fit to all rows then is `wide_fit`, about a hundred passes, with memory for some 4 K
    numbers a row more; where this machine does not have it, the learner predicts.

    Guarantee, for independent rows of one distribution, all classes declared (`fit` takes
    those in y) and a choice above that carries one: the expected log loss at a new point is
    at most :math:`E[L_T]/T \le E[\min_W L_T(W) + G]/T`, where :math:`L_T` is the loss while
    learning, G the ``regret_bound`` of `certificate`, and W any linear model, of row norm at
    most B, of the features as scaled in each round (with ``scale=False``: of the features).
    With sample weights, drawn with their rows, losses are weighted.

    Parameters
    ----------
    learner : ``"auto"``, which needs no setting, ``"folklore"``, ``"gaf"``, ``"laplace"`` or
        ``"ogd"``. Also ``"ons"``, and ``"aioli"`` for two classes: these two must be told all
        classes, as `fit` is, and refuse a new one.
    B : largest row norm of the linear models to compete with, positive; None for the
        learner's default. ``"auto"`` learns the same whatever it is: there it is the class that
        `certificate` speaks of.
    lam : ridge :math:`\lambda`, positive; None for the learner's default. ``"auto"``,
        ``"ogd"`` and ``"ons"`` take none.
    memory : rows after which an example counts 1/e of what it did, at least 1, for streams
        that drift; None for ever. Only ``"folklore"`` takes it, and then has no certificate.
    select : ``"last"``, ``"average"`` or ``"random"``.
    passes : ``"auto"`` is right almost always: with ``learner="auto"`` and ``select="last"``
        all rows are fitted together until nothing changes, and otherwise each is learned once.
        An integer of at least 1 is the most that `fit` goes over the rows (for each ridge),
        1 learns each once. With other learners and choices it is how often the learner
        runs over them, reshuffled each time. `partial_fit` runs once.
    shuffle : whether `fit` shuffles the rows. Sorted rows, by class or in time, do great harm
        to what learns them one by one; False is for a stream whose order is to be kept.
    scale : standardise the features on line, or divide sparse rows by their norm. False leaves
        them as they are: their norm should then be about 1.
    fit_intercept : append a constant to the features.
    n_buckets : number of columns, at least 1, into which all columns of text are hashed
        together; without text it says nothing. More confuse less, and cost as features do.
    class_weight : None, a dict from label to weight (1 for those not in it), or
        ``"balanced"``, n / (K n_k), which only `fit` can know. Of a soft label every class
        has its own weight: the loss is :math:`\sum_k y_k w_k (-\ln p_k)`.
    n_checkpoints : number m of models that ``"average"`` draws, at least 1.
    max_weight : largest weight, sample weight times class weight, that will occur; only for
        ``"auto"``, which mixes its experts on this scale and refuses heavier rows. None
        stands for the largest weight there is in `fit`, and in `partial_fit` for the largest
        class weight, in both for 1 at least: with sample weights above 1, say so here.
    random_state : of the draws and of the order. With None and ``select="last"`` the order is
        one and the same every time, so that equal rows give equal models.
    verbose : show the progress of `fit` on standard error.

    Attributes
    ----------
    classes_ : the labels known so far, sorted: the columns of `predict_proba`.
    n_features_in_ : number of columns of X.
    feature_names_in_ : their names, if the first rows had names that are all text.
    text_features_ : names of those that hold text, in order; none if X was no data frame.
    model_ : the `OpenModel` after the last row. Its features are the columns of numbers, in
        order, followed by the ``n_buckets`` for text, if there is any.
    numbers_ : the numbers of the labels `classes_` in `model_`, which counts classes as they
        come.

    Notes
    -----
    NaN, and None or NA of a data frame, is a missing value: it becomes the mean of its
    feature so far, as the scaler has it, on which outliers have limited influence. In rows that
    stay sparse it counts as 0.

    Whether rows stay sparse is decided by the first ones: X must be sparse (or a frame of text
    alone), the learner ``"auto"``, and K d too large for all pairs of classes. Later rows may be
    dense all the same. Dense rows are standardised at any width.

    In a data frame (pandas, polars, Arrow) columns of text, categories and enums are hashed,
    see `TextHasher`: a text that was never seen needs nothing, and a missing one adds nothing.
    The first rows decide which columns these are. A number in one of them is then taken as
    its text; text in another column is refused, as are dates, lists and the like. A column
    without any value or declared type counts as numbers.

    A label may be text, an integer or a truth value, one kind per estimator. Soft labels are
    rows of K >= 2 probabilities, as a 2-d array of floats, whose columns are in the order of
    `classes_` (0 to K-1 if nothing is known yet), or as a data frame whose columns are named
    after the classes, in any order. They declare no new class beside known ones.

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

    Labels that are uncertain:

    >>> soft = [[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]]
    >>> model = FolkloreClassifier().fit([[0.1], [0.5], [0.9]], soft)
    >>> model.predict([[0.0], [1.0]]).tolist()
    [0, 1]

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
        memory: int | None = None,
        select: str = "last",
        passes: int | str = AUTO,
        shuffle: bool = True,
        scale: bool = True,
        fit_intercept: bool = True,
        n_buckets: int = DEFAULT_BUCKETS,
        class_weight: Any = None,
        n_checkpoints: int = 10,
        max_weight: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.learner = learner
        self.B = B
        self.lam = lam
        self.memory = memory
        self.select = select
        self.passes = passes
        self.shuffle = shuffle
        self.scale = scale
        self.fit_intercept = fit_intercept
        self.n_buckets = n_buckets
        self.class_weight = class_weight
        self.n_checkpoints = n_checkpoints
        self.max_weight = max_weight
        self.random_state = random_state
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
        with _all_or_nothing(self):
            X = self._rows(X, first=True)
            y, columns = labels.read(y)
            check_consistent_length(X, y)
            passes, most = self._passes()
            self.classes_, target = labels.sort(y, columns)
            self.numbers_ = np.arange(len(self.classes_))
            weights.refuse_unknown_names(self.class_weight, self.classes_)
            target, w = weights.weighted(target, self.classes_, sample_weight, self.class_weight)
            if not w.any():
                raise InvalidInputError("the sample weights are all zero: nothing can be learned")
            self._begin(X, len(self.classes_), len(self.classes_), float(w.max()))
            problem.refuse_heavy(w, self.model_.max_weight)
            with reporter(self.verbose, passes * len(y), "learning") as report:
                self._learn(X, target, w, passes, bool(self.shuffle), report)
            if most:
                self._refit(X, target, w, most)
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
            X = self._rows(X, first)
            y, columns = labels.read(y)
            check_consistent_length(X, y)
            so_far = np.empty(0) if first else self.classes_[np.argsort(self.numbers_)]
            known, n_told, target = labels.enrol(y, columns, so_far, classes)
            target, w = weights.weighted(target, known, sample_weight, self.class_weight)
            if first:
                named = (self.class_weight or {}).values()
                heaviest = max([1.0, *map(problem.weight, named)])
                self._begin(X, n_told, len(known), heaviest)
            problem.refuse_heavy(w, self.model_.max_weight)
            self._refuse_too_large(X.shape[1], len(known))
            if not self.model_.can_grow:
                self.model_.grow(n_classes=len(known))  # refuses, unless there is nothing to do
        self.numbers_ = np.argsort(known, kind="stable")
        self.classes_ = known[self.numbers_]
        self.model_.grow(n_classes=n_told)
        self._learn(X, target, w)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities (T, K) of the classes `classes_`, given that it is one."""
        check_is_fitted(self)
        X = self._rows(X)
        P = np.empty((X.shape[0], len(self.classes_)))
        sparse = self.model_.sparse
        for block in rows.blocks(X, sparse):
            P[block] = self._mixed(rows.taken(X[block], sparse))[:, self.numbers_]
        return P

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`, never below ln 1e-300."""
        logs: Array = np.log(np.maximum(self.predict_proba(X), TINY))
        return logs

    def predict(self, X: Any) -> Labels:
        """Return the most probable label of every row."""
        P = self.predict_proba(X)
        likeliest: Labels = self.classes_[P.argmax(axis=1)]
        return likeliest

    @property
    def unseen_probability(self) -> float:
        """The probability that the next example is of a class that was never seen.

        `predict_proba` is given that it is of one in `classes_`: times 1 minus this, it is
        the probability outright. See `OpenModel`.
        """
        check_is_fitted(self)
        return float(self.model_.unseen_probability)

    def certificate(self) -> Certificate | None:
        """Return what is proven about every linear model of the scaled features.

        None as long as there is one class alone. It speaks of the losses while learning; see
        `Certificate` and `OpenModel`.
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

    def _rows(self, X: Any, first: bool = False) -> rows.Rows:
        """Return X as numbers, dense or sparse: of a frame, first its numbers, then its text.

        What scikit-learn says of names and counts of columns is said here; the first rows
        decide them, and which columns are text.
        """
        frame = frames.opened(X)
        if frame is not None:
            X = self._columns(X, frame, first)
        else:
            rows.refuse_text(X)
            if not first and len(self.text_features_):
                raise InvalidInputError(
                    f"the columns {self.text_features_.tolist()} held text in the first rows: "
                    "pass a data frame, as then"
                )
            X = validate_data(self, X, reset=first, **rows.ACCEPTED)
            if first:
                self._expect_text(np.zeros(X.shape[1], bool), [])
        rows.refuse_huge(X)
        return X

    def _columns(self, X: Any, frame: Any, first: bool) -> rows.Rows:
        """Return the rows of a frame."""
        validate_data(self, X, reset=first, skip_check_array=True)
        is_text = frames.text_columns(frame)
        if first:
            self._expect_text(is_text, itertools.compress(frame.columns, is_text))
        frames.refuse_new_text(frame, is_text & ~self._is_text)
        checks: dict[str, Any] = {**rows.ACCEPTED, "input_name": "X", "estimator": self}
        known = self._is_text, self.text_features_, self._n_buckets
        return frames.as_numbers(frame, *known, **checks)

    def _expect_text(self, is_text: NDArray[np.bool_], names: Iterable[Any]) -> None:
        """Remember which columns are text, and how it is to be hashed."""
        self._is_text = is_text
        self._n_buckets = problem.count("n_buckets", self.n_buckets, 1)
        self.text_features_: NDArray[Any] = np.fromiter(names, object)

    def _begin(self, X: rows.Rows, n_classes: int, n_coming: int, largest: float) -> None:
        """Start a model that has learned nothing, of so many classes, and more that are coming."""
        if self.select not in SELECT:
            raise InvalidInputError(f"select must be one of {SELECT}, got {self.select!r}")
        m = problem.count("n_checkpoints", self.n_checkpoints, 1)
        m = {"last": 0, "average": m, "random": 1}[self.select]
        self._slots: Numbers = np.zeros(m, np.intp)  # which of the states each draw is
        self._states: list[OpenModel] = []
        settings = self._settings(largest)
        self._refuse_too_large(X.shape[1], n_classes)
        self.model_ = OpenModel(
            self.learner,
            settings,
            n_features=X.shape[1],
            n_classes=n_classes,
            scale=self.scale,
            intercept=self.fit_intercept,
            sparse=self._stays_sparse(X, n_coming),
        )
        chance = m > 0 or self.random_state is not None
        self._seed = check_random_state(self.random_state).randint(2**31 - 1) if chance else 0

    def _stays_sparse(self, X: rows.Rows, n_classes: int) -> bool:
        """Tell whether rows are to be learned as sparse ones.

        Not where a frame holds numbers beside its text: these must be standardised.
        """
        mixed = self._is_text.any() and not self._is_text.all()
        return scipy.sparse.issparse(X) and not mixed and self._is_wide(X.shape[1], n_classes)

    def _is_wide(self, n_features: int, n_classes: int) -> bool:
        """Tell whether the default learner is one without sums over all pairs of classes."""
        n_columns = n_features + bool(self.fit_intercept)
        return self.learner == AUTO and lane_of(n_columns, max(n_classes, 2)) != PAIRS

    def _settings(self, largest: float) -> dict[str, float]:
        """Return what the learner is to be told of the parameters."""
        takes = catalogue.settings_of(self.learner)
        settings: dict[str, float] = {}
        for name in _SETTINGS:
            value = getattr(self, name)
            if value is None:
                continue
            if name not in takes:
                raise InvalidInputError(
                    f"learner={self.learner!r} takes no {name}, got {name}={value!r}: leave it None"
                )
            if name == "memory":
                settings[name] = problem.count(name, value, 1)
            else:
                settings[name] = problem.positive(name, value)
        if "max_weight" in takes:
            settings.setdefault("max_weight", max(largest, 1.0))
        return settings

    def _refuse_too_large(self, n_features: int, n_classes: int) -> None:
        """Raise if the states cannot fit in this machine: it would stall, not fail.

        Of wide problems nobody knows before which columns will occur; they are never refused.
        """
        n_columns, n_classes = n_features + bool(self.fit_intercept), max(n_classes, 2)
        needed = catalogue.n_bytes(self.learner, n_columns, n_classes)
        needed *= 1 + len(self._slots)
        present = memory.bytes_present()
        if present is not None and needed > present:
            of_text = f" ({self._n_buckets} of them for text)" if self._is_text.any() else ""
            advice = 'use learner="auto"' if self.learner != AUTO else 'use select="last"'
            raise InvalidInputError(
                f"learner={self.learner!r} needs {needed / 1e9:.1f} GB of memory for "
                f"{n_features} features{of_text} and {n_classes} classes, and this machine has "
                f"{present / 1e9:.1f} GB: {advice}, or fewer features"
            )

    def _learn(
        self,
        X: rows.Rows,
        target: labels.Target,
        w: Array,
        passes: int = 1,
        shuffle: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> None:
        drawn = self._states, self._slots
        self._states, self._slots = draws.learn(
            self.model_, drawn, self._seed, X, target, w, passes, shuffle, report
        )

    def _passes(self) -> tuple[int, int]:
        """Return how often the learner runs over the rows, and how often they are fitted then."""
        together = self.learner == AUTO and self.select == "last"
        if isinstance(self.passes, str):
            if self.passes != AUTO:
                raise InvalidInputError(f"passes must be {AUTO!r} or a number, got {self.passes!r}")
            return 1, MOST_PASSES * together
        passes = problem.count("passes", self.passes, 1)
        return (1, passes - 1) if together else (passes, 0)

    def _refit(self, X: rows.Rows, target: labels.Target, w: Array, most_passes: int) -> None:
        """Fit all rows together."""
        sparse = self.model_.sparse

        def again() -> Iterator[tuple[Any, Any, Array]]:
            for block in rows.blocks(X, sparse):
                yield rows.taken(X[block], sparse), target[block], w[block]

        self.model_.refit(again, most_passes=most_passes, seed=self._seed)

    def _mixed(self, x: Any) -> Array:
        """Return the probabilities, by number, of the states that predict."""
        drawn = (self._states, self._slots) if self._states else ([self.model_], np.zeros(1, int))
        return draws.predict(drawn, len(self.classes_), x)

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
            model = persist.revive(Record(**state["model_"]))
            kept = [persist.revive(Record(**record)) for record in state["_states"]]
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
