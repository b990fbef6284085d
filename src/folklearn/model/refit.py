"""A batch fit of all rows of a pipeline, which predicts until something more is learned."""

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from folklearn import memory, validation
from folklearn.batch.penalised import FIRST_RIDGE, MAX_PASSES, fit_penalised
from folklearn.batch.sparse_fit import ColumnModel, fit_sparse
from folklearn.errors import InvalidInputError, warn_of_data
from folklearn.evidence.map_reduce import MapReduce
from folklearn.evidence.passes import LocalPasses, Passes
from folklearn.kernels.on_torch.device import Device
from folklearn.learners.backends import PAIRS, select_backend
from folklearn.learners.experts import ExpertLearner
from folklearn.model.pipeline import OnlinePipeline
from folklearn.sparse import SparseRows, concatenate
from folklearn.validation import Rows

_BYTES_OF_A_VALUE = 40  # of a sparse row, in its copies
_COPIES_OF_LOGITS = 4  # of K numbers for every row, that `fit_sparse` takes
_SHARE_OF_MEMORY = 0.25  # that scaled rows may take
_INTERCEPT_FACTOR = 10.0  # of the constant, so that the penalty hardly counts for it

RawTables = Callable[[], Iterable[tuple[object, ArrayLike, ArrayLike]]]  # X, y, weights
ScaledRows = Callable[[], Iterable[Rows]]  # anew for every pass


def refit(
    pipeline: OnlinePipeline,
    tables: RawTables,
    *,
    most_passes: int = MAX_PASSES,
    seed: int = 0,
    n_jobs: int = 1,
    device: str | None = None,
) -> None:
    """Fit all rows once more, together: penalised maximum likelihood, see `fit_penalised`.

    `tables` returns the rows that were learned, raw, anew for every pass: an iterable of X
    (T, d), class numbers (T,) or soft labels (T, K), and weights (T,). They are scaled as the
    next row would be, the constant ten times as large so that the penalty hardly counts for
    it, and the fit predicts until something more is learned; learner and certificate do not
    change. Without a learner there is nothing to fit. `n_jobs` threads share every pass, -1 for
    as many as there are cores, with the same result to the last bit; ``device`` is where the
    sums are made, by default that of the learner.

    Problems too large for all pairs of classes, and sparse rows, are fitted by `fit_sparse`. It
    takes memory for K numbers a row and for the values that are not 0; should this machine not
    have it, nothing is fitted, and a warning says so. It runs in one thread.
    """
    engine = MapReduce.from_options(n_jobs, pipeline.device if device is None else device)
    if pipeline.learner is None:
        return
    limits = {"most_passes": most_passes, "seed": seed}
    if not _is_wide(pipeline, engine.device):
        rows = _cache_if_fits(lambda: (rows_to_fit(pipeline, *table) for table in tables()))
        refit_over(pipeline, LocalPasses(rows, engine), **limits)
        return
    fitted = _fit_wide(
        lambda: (_scaled_rows(pipeline, *table) for table in tables()), pipeline, **limits
    )
    if fitted is not None:
        pipeline.batch_fit = fitted


def refit_over(
    pipeline: OnlinePipeline, passes: Passes, *, most_passes: int = MAX_PASSES, seed: int = 0
) -> None:
    """Fit dense rows, as `rows_to_fit` returns them, wherever they lie."""
    learner, intercept = pipeline.learner, pipeline.intercept_column
    if learner is None:
        return
    check_fit_size(pipeline, passes.device)
    factors = np.ones(learner.n_features)
    if intercept is not None:
        factors[intercept] = _INTERCEPT_FACTOR
    leader = learner.leader() if isinstance(learner, ExpertLearner) else None
    ridge, W = leader or (FIRST_RIDGE, np.zeros((learner.n_classes, learner.n_features)))
    fit = fit_penalised(passes, W / factors, ridge=ridge, most_passes=most_passes, seed=seed)
    pipeline.batch_fit = fit.W * factors


def check_fit_size(pipeline: OnlinePipeline, device: Device | None = None) -> None:
    """Raise if there is too much for sums over all pairs of classes, as `refit_over` makes."""
    if _is_wide(pipeline, device):
        raise InvalidInputError(
            f"{pipeline.n_classes} classes of {pipeline.n_columns} columns are too many for sums "
            "over all pairs of classes, and words are too: fit them on one machine, `Model.fit`"
        )


def rows_to_fit(pipeline: OnlinePipeline, X: object, y: ArrayLike, weight: ArrayLike) -> Rows:
    """Return raw rows, which must be dense, as `refit_over` takes them."""
    rows, intercept = _scaled_rows(pipeline, X, y, weight), pipeline.intercept_column
    if intercept is None:
        return rows
    Z = rows.X.copy()
    Z[:, intercept] *= _INTERCEPT_FACTOR
    return rows._replace(X=Z, norms=validation.norms(Z))


def _scaled_rows(pipeline: OnlinePipeline, X: object, y: ArrayLike, weight: ArrayLike) -> Rows:
    """Return rows scaled as the next one would be; those of weight 0 must not decide the folds."""
    Z = pipeline.scale(X)
    weights = validation.weights(weight, len(Z))
    labels, soft = validation.labels(y, len(Z), pipeline.n_classes)
    return Rows(Z, validation.norms(Z), labels, soft, weights).of(weights > 0.0)


def _is_wide(pipeline: OnlinePipeline, device: Device | None) -> bool:
    if isinstance(pipeline.learner, ExpertLearner):
        return False
    return (
        pipeline.sparse or select_backend(pipeline.n_columns, pipeline.n_classes, device) != PAIRS
    )


def _cache_if_fits(rows: ScaledRows) -> ScaledRows:
    """Return the same rows, scaled once for all passes if there is memory for them."""
    cached, n_bytes_left = [], _SHARE_OF_MEMORY * (memory.bytes_present() or math.inf)
    for batch in rows():
        cached.append(batch)
        n_bytes_left -= sum(array.nbytes for array in batch)
        if n_bytes_left < 0.0:
            return rows
    return lambda: cached


def _fit_wide(
    rows: ScaledRows, pipeline: OnlinePipeline, *, most_passes: int, seed: int
) -> ColumnModel | None:
    """Return weights of the columns that occur, or None if the rows do not fit in memory."""
    batches: list[Rows] = []
    n_bytes, n_present, n_classes = 0, memory.bytes_present() or math.inf, pipeline.n_classes
    for batch in rows():
        Z = SparseRows.of_any(batch.X)
        batches.append(batch._replace(X=Z))
        n_bytes += _COPIES_OF_LOGITS * 8 * len(Z) * n_classes + _BYTES_OF_A_VALUE * Z.nnz
        if n_bytes > n_present / 2:
            warn_of_data(
                "all rows together do not fit in memory: the model that learned on line "
                "predicts, and no fit to all rows is made"
            )
            return None
    Xs, norms, labels, soft, weights = zip(*batches, strict=True)
    whole = Rows(concatenate(Xs), *map(np.concatenate, (norms, labels, soft, weights)))
    intercept = pipeline.intercept_column
    fit = fit_sparse(
        whole, n_classes, constant=-1 if intercept is None else intercept,
        most_passes=most_passes, seed=seed,
    )  # fmt: skip
    return ColumnModel(fit.columns, fit.weights)
