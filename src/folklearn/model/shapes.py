"""Shapes: what a column adds to the score of each class, as a function of its value."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from folklearn.arrays import Array
from folklearn.kernels.scaling import HINGE, STEP
from folklearn.learners.term_mixture import TermMixture
from folklearn.model.batch import Key
from folklearn.model.encoder import TableEncoder
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.roles import CATEGORY, DATE_PARTS
from folklearn.model.terms import TermScaler, TermSet
from folklearn.readers.table import Table
from folklearn.report.rendering import format_about

Pair = tuple[str, str, float]
_SHARES = np.linspace(0.0, 1.0, 17)  # quantiles of the rows, and of the distinct values


@dataclass(frozen=True)
class Shape:
    """What one column adds to the score of each class: its line and the terms of it alone.

    Contributions are in nats, sum to 0 over the classes, and average to 0 over the recent rows.
    Values are quantiles of the recent rows, and knots, each with the next number above it, where a
    step has been taken; or categories.
    """

    column: str  #: of the data; a shape is of it, or of a part of its dates
    values: Array | tuple[str, ...]  #: (n,) raw, ascending, about 40
    contributions: Array  #: (n, K)
    missing: Array  #: (K,) the contribution of a missing value
    recent: Array  #: (T,) values of the recent rows, NaN where missing; of categories their numbers
    strength: float  #: standard deviation of the contribution over them, largest over classes
    is_time: bool  #: whether values are seconds since 1970


def find_shapes(
    pipeline: OnlinePipeline, encoder: TableEncoder, table: Table, importance: Mapping[str, float]
) -> tuple[dict[str, Shape], tuple[Pair, ...], float, str]:
    """Return shapes by name, pairs, the share of waves, and of which model; see `Explanation`.

    Rows are dense; those of the table are the recent ones. Important columns come first.
    """
    (W, shapes_of), scaler = _choose_weights(pipeline), pipeline.scaler
    W, first = W - W.mean(axis=0), W.shape[1] - scaler.n_columns
    terms = scaler.terms if first and isinstance(scaler, TermScaler) else None
    X = encoder.encode_known(table)
    Z = scaler.scale_rows(X, learn=False)[:, -W.shape[1] :]
    groups = find_owners(pipeline, encoder, terms)
    scores = {owner: Z[:, at] @ W[:, at].T for owner, at in groups.items()}
    spreads = {owner: float(s.std(axis=0).max()) if len(X) else 0.0 for owner, s in scores.items()}
    grids = {owner: _make_grid(encoder, *owner, X, terms) for owner in groups if len(owner) == 1}
    # What belongs to one column depends on no other: all of them vary at once.
    n_varied = max((len(rows) for _, rows in grids.values()), default=0)
    raw = np.full((n_varied, X.shape[1]), np.nan)
    for places, rows in grids.values():
        raw[: len(rows), places] = rows
    varied = scaler.scale_rows(raw, learn=False)[:, -W.shape[1] :]
    shapes = {}
    for owner, (places, rows) in grids.items():
        ((source, part),), at, n = owner, groups[owner], len(rows) - 1
        values: Array | tuple[str, ...] = rows[:n, 0]
        recent = X[:, places[0]]
        if encoder.roles.get(source) == CATEGORY:
            values = tuple(encoder.keys[place][1] for place in places)
            recent = np.where(X[:, places].any(axis=1), X[:, places].argmax(axis=1), np.nan)
        added = varied[: n + 1, at] @ W[:, at].T - (scores[owner].mean(axis=0) if len(X) else 0.0)
        is_time = part == DATE_PARTS[0] and source in encoder.roles
        if n:
            shape = Shape(source, values, added[:n], added[n], recent, spreads[owner], is_time)
            shapes[encoder.name_of(source, part)] = shape
    ranks = {name: (-importance.get(s.column, 0.0), -s.strength) for name, s in shapes.items()}
    order = sorted(shapes.items(), key=lambda item: ranks[item[0]])
    ranked = sorted((o for o in groups if len(o) == 2), key=lambda owner: -spreads[owner])
    pairs = [(encoder.name_of(*a), encoder.name_of(*b), spreads[a, b]) for a, b in ranked]
    waves, share = slice(first if terms is None else len(terms.kinds), first), 0.0
    if len(X) and (total := np.linalg.norm((Z @ W.T).std(axis=0))) > 0.0:
        share = float(np.linalg.norm((Z[:, waves] @ W[:, waves].T).std(axis=0)) / total)
    return dict(order), tuple(pairs), share, shapes_of


def _choose_weights(pipeline: OnlinePipeline) -> tuple[Array, str]:
    """Return the weights (K, n) of one model, of terms and columns or of columns, and its name."""
    fit, learner = pipeline.batch_fit, pipeline.learner
    if isinstance(fit, np.ndarray) and fit.shape[1] > pipeline.scaler.n_columns:
        return fit, "the fit of lines and terms to all rows"
    if fit is None and isinstance(learner, TermMixture) and (best := learner.best_gaussian()):
        weights, share = pipeline.holdout.weights(learner), ""
        if weights is not None:
            by_name = dict(zip(learner._expert_names(), weights.tolist(), strict=True))
            best = max(learner.gaussians, key=lambda g: by_name[learner.name_of(g)])
            about = format_about(by_name[learner.name_of(best)])
            share = f", which has {about} of the weight of the hold-out mixture"
        leak = f" and leak {best.leak:g}" * (best.leak > 0.0)
        return best.coef(), f"the learner of terms with ridge {best.ridge:g}{leak}{share}"
    lines = "linear model that predictions lean on most"
    return pipeline.coef(), f"the {lines if fit is None else 'fit of lines to all rows'}"


def find_owners(
    pipeline: OnlinePipeline, encoder: TableEncoder, terms: TermSet | None
) -> dict[tuple[Key, ...], list[int]]:
    """Return the columns of contexts, terms first, by what they belong to: one column, or several.

    The categories of a column are one, the parts of a date are several. Waves are left out.
    """
    crosses = {f"{a}:{b}": tuple(sorted([(a, ""), (b, "")])) for a, b in encoder.crosses}
    columns: list[tuple[Key, ...]] = [
        crosses.get(source, ((source, "" if encoder.roles.get(source) == CATEGORY else part),))
        for source, part in encoder.keys
    ]
    n_terms, of_terms = (0, []) if terms is None else (len(terms), terms.columns.tolist())
    owners = [tuple(sorted({*columns[i], *columns[j]})) for i, j in of_terms] + columns
    of_columns = n_terms + pipeline.feature_columns[: len(columns)]
    groups: dict[tuple[Key, ...], list[int]] = {}
    for owner, n in zip(owners, [*range(len(of_terms)), *of_columns.tolist()], strict=True):
        groups.setdefault(owner, []).append(n)
    return groups


def _make_grid(
    encoder: TableEncoder, owner: Key, X: Array, terms: TermSet | None
) -> tuple[list[int], Array]:
    """Return the places (m,) of a column, and raw rows (n + 1, m) of its values, a gap last."""
    if encoder.roles.get(owner[0]) == CATEGORY:
        places = [column for column, key in enumerate(encoder.keys) if key[0] == owner[0]]
        return places, np.eye(len(places) + 1, len(places))
    column, knots = encoder.places[owner], np.empty(0)
    present = X[~np.isnan(X[:, column]), column]
    if terms is not None:
        is_knot = (terms.columns[:, 0] == column) & np.isin(terms.kinds, (HINGE, STEP))
        knots = terms.numbers[is_knot, 0]
    parts = [knots, np.nextafter(knots, np.inf)]
    for values in (present, np.unique(present)) if len(present) else ():
        parts.append(np.quantile(values, _SHARES, method="nearest"))
    return [column], np.append(np.unique(np.concatenate(parts)), np.nan)[:, None]
