"""Batch fits of all rows of a model: one that predicts, and the answer in hindsight to a run."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import utils, validation
from folklearn.arrays import Array
from folklearn.batch.penalised import (
    FIRST_RIDGE,
    MAX_PASSES,
    PenalisedFit,
    first_fold_loss,
    fit_penalised,
    fit_preconditioned,
)
from folklearn.batch.sparse_fit import fit_sparse
from folklearn.errors import InvalidInputError, warn_of_data
from folklearn.evaluate.regression import Regression, logistic_regression
from folklearn.evidence.passes import LocalPasses, MapReduce, Passes
from folklearn.kernels.on_torch import Device
from folklearn.learners.catalogue import PAIRS, select_backend
from folklearn.learners.leader import ExpertLearner
from folklearn.learners.shared_gaussian import SharedGaussian
from folklearn.learners.term_mixture import TermMixture
from folklearn.model.batch import BatchBuffer, SparseInput
from folklearn.model.pipeline import OnlinePipeline
from folklearn.readers.table import Table
from folklearn.scaler import FixedScaler, Moments
from folklearn.sparse import SparseRows, StackedRows, concatenate
from folklearn.validation import Rows

if TYPE_CHECKING:
    from folklearn.model.model import Model

_BYTES_OF_A_VALUE = 40  # of a sparse row, in its copies
_COPIES_OF_LOGITS = 4  # of K numbers for every row, that `fit_sparse` takes
_SHARE_OF_MEMORY = 0.25  # that scaled rows may take
_INTERCEPT_FACTOR = 10.0  # of the constant, so that the penalty hardly counts for it
_CLEARLY_BETTER = 0.98  # loss of terms on rows held out, relative: their ridge is chosen there
_MAX_WEIGHTS = 3000  # classes times columns of a regression that is made unasked
MAX_BYTES = 2**25  # of its rows, which it copies four times: a long stream takes no more memory

RawTables = Callable[[], Iterable[tuple[Any, ArrayLike, ArrayLike]]]  # X, y, weights


def refit(
    pipeline: OnlinePipeline,
    tables: RawTables,
    *,
    most_passes: int | None = None,
    seed: int = 0,
    n_jobs: int = 1,
    device: str | None = None,
) -> None:
    """Fit all rows once more, together: penalised maximum likelihood, see `fit_penalised`.

    `tables` returns the rows that were learned, raw, anew for every pass. They are scaled as the
    next row would be, and the fit predicts until something more is learned; learner and certificate
    do not change. Problems too large for all pairs of classes, and sparse rows, are fitted by
    `fit_sparse`, in one thread; of rows with words the other columns first, then the words on top
    of them. Should memory not suffice, nothing is fitted, and a warning says so.
    """
    engine = MapReduce.from_options(n_jobs, pipeline.device if device is None else device)
    if pipeline.learner is None:
        return
    limits = {"most_passes": MAX_PASSES if most_passes is None else most_passes, "seed": seed}
    if pipeline.dense is not None:
        refit(
            pipeline.dense, lambda: ((X.dense, y, weights) for X, y, weights in tables()),
            **limits, n_jobs=n_jobs, device=device,
        )  # fmt: skip
    terms = None
    if gaussian_of_terms(pipeline) is not None:
        first, _ = _gather(rows_to_fit(pipeline, *table, terms=True) for table in tables())
        terms = fit_terms_over(pipeline, LocalPasses(lambda: first, engine), **limits)
    if terms is not None and _is_wide(pipeline, engine.device):
        pipeline.batch_fit = terms.W
    elif _is_wide(pipeline, engine.device):
        _refit_wide(pipeline, (rows_to_fit(pipeline, *table, 1.0) for table in tables()), **limits)
    else:

        def scaled() -> Iterable[Rows]:
            return (rows_to_fit(pipeline, *table) for table in tables())

        batches, fits = _gather(scaled())
        passes = LocalPasses((lambda: batches) if fits else scaled, engine)
        refit_over(pipeline, passes, terms=terms, **limits)


def refit_tables(model: "Model", tables: Iterable[tuple[Table, Any, Array]], **limits: Any) -> None:
    """Fit rows that a model has learned together: tables, labels and weights; see `refit`."""
    pipeline, encoder = model.pipeline, model.encoder
    if pipeline is None or encoder is None:
        return
    read = [(rows, model.label_encoder.encode(y, weights)) for rows, y, weights in tables]
    refit(
        pipeline,
        lambda: ((encoder.encode_known(rows), y, weights) for rows, (y, _, weights) in read),
        **limits,
    )


def refit_over(
    pipeline: OnlinePipeline,
    passes: Passes,
    *,
    terms: PenalisedFit | None = None,
    most_passes: int = MAX_PASSES,
    seed: int = 0,
) -> None:
    """Fit dense rows, as `rows_to_fit` returns them, wherever they lie.

    The fit of their terms, if there is one, is taken instead if it is clearly better.
    """
    learner, intercept = pipeline.learner, pipeline.intercept_column
    if learner is None:
        return
    check_fit_size(pipeline, passes.device)
    factors = np.ones(learner.n_features)
    if intercept is not None:
        factors[intercept] = _INTERCEPT_FACTOR
    lines = learner.lines
    leader = lines.leader() if isinstance(lines, ExpertLearner) else None
    ridge, W = leader or (FIRST_RIDGE, np.zeros((learner.n_classes, learner.n_features)))
    fit = fit_penalised(passes, W / factors, ridge=ridge, most_passes=most_passes, seed=seed)
    pipeline.batch_fit = fit.W * factors
    if terms and terms.held_out < _CLEARLY_BETTER * first_fold_loss(passes, fit, seed):
        pipeline.batch_fit = terms.W


def gaussian_of_terms(pipeline: OnlinePipeline) -> SharedGaussian | None:
    """Return the learner of terms that a fit of them begins with, None without terms."""
    learner = pipeline.learner
    return learner.best_gaussian() if isinstance(learner, TermMixture) else None


def fit_terms_over(
    pipeline: OnlinePipeline, passes: Passes, *, most_passes: int = MAX_PASSES, seed: int = 0
) -> PenalisedFit | None:
    """Return the fit of columns and terms to rows as `rows_to_fit` returns them with `terms`."""
    gaussian = gaussian_of_terms(pipeline)
    if gaussian is None or not passes.n_rows:
        return None
    freedom = np.ones(gaussian.n_features)
    if pipeline.intercept_column is not None:
        n_columns = pipeline.scaler.n_columns
        freedom[len(freedom) - n_columns + pipeline.intercept_column] = _INTERCEPT_FACTOR**2
    return fit_preconditioned(
        passes, gaussian.coef(), gaussian.covariance(), ridge=gaussian.ridge, freedom=freedom,
        most_passes=most_passes, seed=seed,
    )  # fmt: skip


def check_fit_size(pipeline: OnlinePipeline, device: Device | None = None) -> None:
    """Raise if there is too much for sums over all pairs of classes, as `refit_over` makes."""
    if _is_wide(pipeline, device):
        raise InvalidInputError(
            f"{pipeline.n_classes} classes of {pipeline.scaler.n_columns} columns are too many for "
            "sums over all pairs of classes, and so are words: fit them on one machine, `Model.fit`"
        )


def rows_to_fit(
    pipeline: OnlinePipeline,
    X: object,
    y: ArrayLike,
    weight: ArrayLike,
    factor: float = _INTERCEPT_FACTOR,
    *,
    terms: bool = False,
) -> Rows:
    """Return raw rows of positive weight, scaled: without terms and the constant times a factor."""
    Z, intercept = pipeline.scale(X, by_holdout=True), pipeline.intercept_column
    if isinstance(Z, np.ndarray) and not terms:
        Z = np.ascontiguousarray(Z[:, -pipeline.scaler.n_columns :])
    if factor != 1.0 and intercept is not None and not terms:
        Z[:, intercept] *= factor
    weights = validation.weights(weight, len(Z))
    labels, soft = validation.labels(y, len(Z), pipeline.n_classes)
    return Rows(Z, labels, soft, weights).of(weights > 0.0)


def _is_wide(pipeline: OnlinePipeline, device: Device | None) -> bool:
    if pipeline.learner is not None and isinstance(pipeline.learner.lines, ExpertLearner):
        return False
    backend = select_backend(pipeline.scaler.n_columns, pipeline.n_classes, device)
    return pipeline.sparse or backend != PAIRS


def _gather(rows: Iterable[Rows]) -> tuple[list[Rows], bool]:
    """Return the first batches, as many as fit in memory, and whether these are all."""
    batches, n_bytes_left = [], _SHARE_OF_MEMORY * utils.bytes_present()
    for batch in rows:
        batches.append(batch)
        n_bytes_left -= sum(array.nbytes for array in batch)
        if n_bytes_left < 0.0:
            return batches, False
    return batches, True


def _refit_wide(
    pipeline: OnlinePipeline, rows: Iterable[Rows], *, most_passes: int, seed: int
) -> None:
    """Fit weights of the columns that occur, unless the rows do not fit in memory."""
    batches: list[Rows] = []
    n_bytes, n_present, n_classes = 0, utils.bytes_present(), pipeline.n_classes
    for batch in rows:
        Z = SparseRows.of(batch.X)
        batches.append(batch._replace(X=Z))
        n_bytes += _COPIES_OF_LOGITS * 8 * len(Z) * n_classes + _BYTES_OF_A_VALUE * Z.nnz
        if n_bytes > n_present / 2:
            return warn_of_data(
                "all rows together do not fit in memory: the model that learned on line "
                "predicts, and no fit to all rows is made"
            )
    batches = [batch for batch in batches if len(batch.weights)]
    if any(len(batch.soft) for batch in batches):  # then all of them
        hard = np.eye(n_classes)
        batches = [b if len(b.soft) else b._replace(soft=hard[b.labels]) for b in batches]
        batches = [batch._replace(labels=np.full(len(batch.soft), -1)) for batch in batches]
    Xs, labels, soft, weights = zip(*batches, strict=True)
    X, bases = concatenate(Xs), np.concatenate([rows.bases for rows in Xs])
    if pipeline.dense is not None:
        X = StackedRows(X, np.concatenate([rows.words for rows in Xs]), bases)
    whole = Rows(X, *map(np.concatenate, (labels, soft, weights)))
    constant = -1 if pipeline.intercept_column is None else pipeline.intercept_column
    pipeline.batch_fit = fit_sparse(
        whole, n_classes, constant=constant, most_passes=most_passes, seed=seed
    )
    return None


def is_regression_affordable(n_weights: int, n_bytes: int) -> bool:
    """Return whether a regression of rows of some bytes is computed without being asked for."""
    return n_weights <= _MAX_WEIGHTS and n_bytes <= MAX_BYTES


def regress_rows(
    model: "Model", rows: BatchBuffer, *, exact: bool | None = None
) -> Regression | None:
    """Return the regression of encoded rows that a model learned, None of one class.

    Unless `exact`, also None if it is too large to be computed without being asked for.
    """
    pipeline, encoder, K = model.pipeline, model.encoder, len(model.labels)
    if not rows.n_rows or pipeline is None or encoder is None or K < 2:
        return None
    numeric, most = pipeline.evidence.numeric, math.inf if exact else _MAX_WEIGHTS
    if not pipeline.sparse and K * (len(numeric) + 1) > most:
        return None
    batch = rows.batch(numeric)
    assert batch is not None
    X, Y, weights, _ = batch.resize(len(numeric), K, numeric)
    constant = 1.0 if model.intercept else None
    if isinstance(X, SparseInput):
        scaler = FixedScaler(scale=model.scale, intercept=False)
        scaler = scaler.opened(Moments.of(X.numbers), [True] * len(X.slots))
        length, width = 1.0 if model.scale else None, X.cells.shape[1]
        cells = X.scale_cells(scaler.transform(X.numbers), length, constant, width)
        # Only columns that occur have a gradient: a model has 0 elsewhere.
        columns, places = np.unique(cells.indices, return_inverse=True)
        width = max(1, len(columns))
        if K * width > most:
            return None
        Z = SparseRows(cells.indptr, places.astype(np.int32), cells.values, width).array()
        start = np.zeros((K, width))
    else:
        scaler = FixedScaler(scale=model.scale, intercept=model.intercept)
        scaler = scaler.opened(Moments.of(X), numeric)
        Z, start = scaler.transform(X), np.nan_to_num(scaler.model(*pipeline.linear()))
    y = Y.argmax(axis=1) if (Y.max(axis=1) == 1.0).all() else Y
    regression = logistic_regression(
        Z, y, n_classes=K, weight=weights, constant=0 if model.intercept else None, start=start
    )
    words = encoder.in_words.format(by="these rows") if model.scale else "as they are"
    # Weights of words are too many to be kept, and the model has its own.
    W = np.empty((K, 0)) if pipeline.sparse else regression.W
    return replace(regression, W=W, features=f"the columns ({words})")
