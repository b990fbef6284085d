"""Why a model says what it says: weights and shapes by column and class, and their worth."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import plots
from folklearn.arrays import TINY, Array
from folklearn.errors import InvalidInputError
from folklearn.kernels.scaling import HINGE, STEP
from folklearn.learners.term_mixture import TermMixture
from folklearn.model.batch import Key
from folklearn.model.encoder import FEATURES, TableEncoder
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.roles import (
    CATEGORY,
    DATE_PARTS,
    HASHED,
    LEARNED,
    NUMBER,
    WORDS,
    place_of,
    vectorizer,
)
from folklearn.model.terms import TermScaler, TermSet
from folklearn.readers.table import Table, as_text_column
from folklearn.report import style
from folklearn.report.rendering import format_about
from folklearn.scaler import SPACE
from folklearn.sparse import SparseRows
from folklearn.utils import count_of, join_names

if TYPE_CHECKING:
    from folklearn.model.model import Model

_REPEATS = 5  # permutations of a column, averaged
Pair = tuple[str, str, float]
_SHARES = np.linspace(0.0, 1.0, 17)  # quantiles of the rows, and of the distinct values
_MAX_PANELS, _PANELS_ACROSS = 12, 4
_MAX_DRAWN_CLASSES, _MAX_BARS = 6, 24  # of a panel
_STRIP = 0.14  # of the height of a panel, for the rows


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


@dataclass(frozen=True)
class Explanation:
    """Weights of a linear model by column and class, the importance and the shapes of columns.

    Attributes
    ----------
    names : what the weights belong to: a column, or ``column = value``, or a word of it.
    labels : the classes.
    weights : (n, K): how many nats a row gains for a class if the value is one deviation higher
        (numbers), or is there (categories, words). They sum to 0 over the classes. Of a fit that
        has terms they are its lines alone: see `shapes`.
    importance : by column, how many nats a row the loss on the `n_recent` recent rows rises if the
        values of the column are shuffled among them.
    shapes : by name, what a column (or a part of a date) adds to the score of each class, by its
        value: the most important first. A model of words has none.
    pairs : (name, name, strength) of columns of which products, or crosses, count too: standard
        deviations of what they add to a score over the recent rows, largest over the classes.
    wave_share : likewise of waves of all columns together, as a share of that of the scores.
    shapes_of : the model of these shapes, in words: predictions may mix several.
    """

    names: tuple[str, ...]
    labels: tuple[Any, ...]
    weights: Array
    importance: dict[str, float]
    n_recent: int = 0
    shapes: dict[str, Shape] = field(default_factory=dict)
    pairs: tuple[Pair, ...] = ()
    wave_share: float = 0.0
    shapes_of: str = ""

    def top(self, n: int = 20) -> list[tuple[str, Any, float]]:
        """Return the n largest weights as (name, label, weight)."""
        order = np.argsort(-np.abs(self.weights), axis=None)[:n].tolist()
        cells = [divmod(cell, len(self.labels)) for cell in order]
        return [(self.names[i], self.labels[k], float(self.weights[i, k])) for i, k in cells]

    def top_columns(self, n: int = 20) -> list[tuple[str, float]]:
        """Return the n most important columns as (name, importance)."""
        return sorted(self.importance.items(), key=lambda pair: -pair[1])[:n]

    def plot(self, path: str | None = None) -> Any:
        """Draw the weights; return the figure, and write it to a file."""
        labels = list(map(str, self.labels))
        return plots.save(plots.weights(self.names, labels, self.weights.T), path)

    def plot_shapes(self, path: str | None = None, columns: Sequence[str] | None = None) -> Any:
        """Draw what columns add to the scores, in nats; return the figure, and write it to a file.

        One panel for each of `columns`, by default the 12 most important. Of two classes the log
        odds of the second are drawn, of more than 6 those that the columns tell apart most.
        """
        return _draw_shapes(self, path, columns)

    def __repr__(self) -> str:
        columns = ", ".join(name for name, _ in self.top_columns(3))
        most = f"; most important: {columns}" if columns else ""
        return f"Explanation of {len(self.names)} weights for {len(self.labels)} classes{most}"


def explain_model(model: "Model", *, importance: bool) -> Explanation:
    pipeline, encoder = model.pipeline, model.encoder
    if pipeline is None or encoder is None or pipeline.learner is None:
        raise InvalidInputError("there is nothing to explain before two classes were learned")
    table, labels = model.recent.rows()
    names, W = _find_weights(pipeline, encoder, table)
    W = W - W.mean(axis=1, keepdims=True)
    rises = _measure_importance(model, table, labels) if importance else {}
    shapes: tuple[Any, ...] = ()
    if pipeline.dense is not None and encoder.dense is not None:
        shapes = find_shapes(pipeline.dense, encoder.dense, table, rises)
    elif not pipeline.sparse:
        shapes = find_shapes(pipeline, encoder, table, rises)
    return Explanation(tuple(names), model.labels, W, rises, len(labels), *shapes)


def _find_weights(
    pipeline: OnlinePipeline, encoder: TableEncoder, table: Table
) -> tuple[list[str], Array]:
    if pipeline.dense is not None and encoder.dense is not None:
        names, W = _find_weights(pipeline.dense, encoder.dense, table)
        words, V = _find_sparse_weights(pipeline, encoder, table, (WORDS,))
        return names + words, np.concatenate([W, V])
    if pipeline.sparse:
        return _find_sparse_weights(pipeline, encoder, table)
    places = pipeline.feature_columns[: len(encoder.keys)]
    names = [encoder.name_of(*key) for key in encoder.keys]
    W = pipeline.coef()[:, places].T * pipeline.scaler.unit
    picked = [not is_number for is_number in encoder.are_numbers(encoder.keys)]
    W[picked] = pipeline.linear()[0].T[: len(picked)][picked]
    return names, W


def _find_sparse_weights(
    pipeline: OnlinePipeline, encoder: TableEncoder, table: Table, roles: Sequence[str] = LEARNED
) -> tuple[list[str], Array]:
    """Return the weights of what occurred in recent rows: the rest has no names any more."""
    names: dict[int, str] = {}
    for slot, (source, value) in enumerate(encoder.keys, 1):
        first, role = slot * SPACE, encoder.roles.get(source, NUMBER)
        if role not in roles:
            continue
        if source == FEATURES and isinstance(table.features, SparseRows):
            for index in np.unique(table.features.indices).tolist():
                names[first + index] = encoder.feature_names.get(str(index), str(index))
        elif role in (WORDS, CATEGORY) and source in table.columns:
            texts = as_text_column(table.columns[source]).values
            if role == CATEGORY:
                names |= {first + place_of(text): f"{source} = {text}" for text in texts}
            else:
                words = find_words(texts).items()
                names |= {first + at: f"{source}: {word}" for at, word in words}
        else:
            names[first] = f"{source}: {value}" if value else source
    columns, weights = pipeline.column_weights()
    rows = [i for i, column in enumerate(columns.tolist()) if column in names]
    unit, n_words = pipeline.scaler.unit, [*encoder.roles.values()].count(WORDS)
    if pipeline.dense is not None and pipeline.scaler.scale:  # see `MixedScaler.stack`
        unit = 1.0 / math.sqrt(max(1, n_words))
    weights = weights[rows] * unit
    return [names[column] for column in columns[rows].tolist()], weights


def find_words(texts: Iterable[str]) -> dict[int, str]:
    """Return the words, and pairs of words, of texts by the places that they have by hash."""
    from sklearn.utils import murmurhash3_32

    words = dict.fromkeys(chain.from_iterable(map(vectorizer().build_analyzer(), texts)))
    return {abs(int(murmurhash3_32(w.encode("utf-8"), seed=0))) % HASHED: w for w in words}


def _measure_importance(model: "Model", table: Table, labels: Any) -> dict[str, float]:
    rng, encoder = np.random.default_rng(0), model.encoder
    assert encoder is not None
    has_label = labels >= 0
    if not has_label.any():
        return {}
    table, labels = table.take(has_label), labels[has_label]

    def average_loss(rows: Table) -> float:
        p_label = model.predict_proba(rows)[np.arange(len(labels)), labels]
        return float(-np.log(np.maximum(p_label, TINY)).mean())

    before, importance = average_loss(table), {}
    for name in filter(table.columns.__contains__, encoder.learned):
        rises = []
        for _ in range(_REPEATS):
            shuffled = {**table.columns, name: table.columns[name][rng.permutation(len(labels))]}
            rises.append(average_loss(Table(shuffled, table.lines, table.features)) - before)
        importance[name] = float(np.mean(rises))
    return importance


def find_shapes(
    pipeline: OnlinePipeline, encoder: TableEncoder, table: Table, importance: Mapping[str, float]
) -> tuple[dict[str, Shape], tuple[Pair, ...], float, str]:
    """Return shapes by name, pairs, the share of waves, and of which model; see `Explanation`."""
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
    """Return the columns of contexts by what they belong to: one column, or several, not waves."""
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


@style.use_style()
def _draw_shapes(
    explanation: Explanation, path: Any = None, columns: Sequence[str] | None = None
) -> Any:
    """Draw shapes as small multiples, all at one scale of nats."""
    labels, every = explanation.labels, explanation.shapes
    wanted = list(every)[:_MAX_PANELS] if columns is None else list(columns)
    shapes = {n: s for name in wanted for n, s in every.items() if name in (n, s.column)}
    unknown = {*wanted} - {*shapes} - {shape.column for shape in shapes.values()}
    if unknown or not shapes:
        what, have = min(unknown, default="any column"), join_names(list(every) or ["none"])
        raise InvalidInputError(f"no shape of {what} to draw; columns that have one: {have}")
    reach = np.max([np.ptp(shape.contributions, axis=0) for shape in shapes.values()], axis=0)
    classes = np.sort(np.argsort(-reach, kind="stable")[:_MAX_DRAWN_CLASSES])
    names, factor, unit = [style.truncate_label(labels[k], 18) for k in classes], 1.0, "nats"
    if len(labels) == 2:  # what is for one is against the other
        classes, factor, unit = classes[1:], 2.0, f"log odds of {names[1]}"
    heights = []  # of a column, that of a missing value last if recent rows have some
    for shape in shapes.values():
        missing = shape.missing[None][: int(np.isnan(shape.recent).any())]
        heights.append(factor * np.concatenate([shape.contributions, missing])[:, classes])
    low, high = (float(f(np.concatenate(heights))) for f in (np.min, np.max))
    margin = 0.06 * (high - low) or 1.0
    n_across = min(_PANELS_ACROSS, len(shapes))
    n_down = math.ceil(len(shapes) / n_across)
    page = style.new_figure(max(0.6 + 2.3 * n_across, 4.8), 0.9 + 1.9 * n_down)
    panels, is_first, handles = page.subplots(n_down, n_across, squeeze=False), True, []
    for i, (ax, (name, shape)) in enumerate(zip(panels.flat, shapes.items(), strict=False)):
        is_curve = not isinstance(shape.values, tuple)
        is_first = is_first or i % n_across == 0  # of the curves of its row
        x, y, grid = ("", unit * is_first, "y") if is_curve else (unit, "", "x")
        style.prepare_axes(ax, (), "", x, y, grid=grid)
        ax.set_title(style.truncate_label(name, 28), fontsize=style.BODY, pad=5.0)
        draw = _draw_curves if is_curve else _draw_bars
        handles = draw(ax, shape, heights[i], (low - margin, high + margin))
        ax.tick_params(labelleft=is_first or not is_curve)
        is_first = is_first and not is_curve
    for ax in panels.flat[len(shapes) :]:
        ax.set_visible(False)
    if len(classes) > 1:
        look = {"frameon": False, "fontsize": style.SMALL, "handlelength": 3.6}
        page.legend(handles, names, loc="outside upper right", ncols=len(classes), **look)
    page.suptitle("Shapes", x=0.01, ha="left", fontsize=style.TITLE, fontweight="bold")
    about = f"What columns add to scores, of {explanation.shapes_of}."
    about += f" {len(shapes)} of {count_of(len(every), 'column')}"
    about += f", {len(classes)} of {len(labels)} classes." if len(classes) > 1 else "."
    if explanation.pairs or explanation.wave_share:
        share = format_about(explanation.wave_share)
        about += f" Not drawn: pairs of columns, and waves, {share} of the scores' deviation."
    about += f" Grey: the last {count_of(explanation.n_recent, 'row')}; a circle: missing values."
    about = textwrap.fill(about, int(page.get_figwidth() * 72.0 / (0.55 * style.SMALL)))
    page.supxlabel(about, x=0.01, ha="left", fontsize=style.SMALL, color=style.QUIET)
    return style.save(page, path)


def _draw_curves(ax: Any, shape: Shape, heights: Array, limits: tuple[float, float]) -> list[Any]:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    x, (low, high), lines = np.asarray(shape.values), limits, []
    counts, edges = np.histogram(shape.recent[~np.isnan(shape.recent)], 30, (x[0], x[-1]))
    shares = _STRIP * np.sqrt(counts / max(1, counts.max()))  # roots: rare values stay visible
    ax.stairs(shares, edges, fill=True, color=style.GREY, transform=ax.get_xaxis_transform())
    ax.axhline(0.0, color=style.QUIET, linewidth=0.8, zorder=1)
    for y, color, dashes in zip(heights.T, style.COLORS, style.DASHES, strict=False):
        lines += ax.plot(x, y[: len(x)], color=color, linestyle=dashes, linewidth=1.8)
        for missing in y[len(x) :]:  # an empty line would spoil the layout
            look = {"mfc": "white", "mec": color, "clip_on": False}
            ax.plot(1.0, missing, "o", ms=4.5, transform=ax.get_yaxis_transform(), **look)
    ax.set_ylim(low - (high - low) * _STRIP / (1.0 - _STRIP), high)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_locator(MaxNLocator(2 if shape.is_time else 4))
    if shape.is_time:
        ax.xaxis.set_major_formatter(lambda at, _: str(np.datetime64(int(at), "s"))[:10])
    elif np.abs(x).max() >= 1e4:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    return lines


def _draw_bars(ax: Any, shape: Shape, heights: Array, limits: tuple[float, float]) -> list[Any]:
    (n, n_classes), is_missing = heights.shape, np.isnan(shape.recent)
    counts = np.bincount(shape.recent[~is_missing].astype(np.int64), minlength=n)
    counts[len(shape.values) :] = is_missing.sum()
    shown = np.argsort(-counts, kind="stable")[: max(5, _MAX_BARS // (2 * n_classes))]
    shown = shown[np.argsort(heights[shown, 0], kind="stable")]
    names, at, width = (*shape.values, "(missing)"), np.arange(len(shown)), 0.8 / n_classes
    bars = [
        ax.barh(at + (0.5 * n_classes - 0.5 - i) * width, lengths, width, color=style.COLORS[i])
        for i, lengths in enumerate(heights[shown].T)
    ]
    ax.axvline(0.0, color=style.QUIET, linewidth=0.8)
    ax.hlines(at[1:] - 0.5, *limits, color=style.FAINT, linewidth=0.6, zorder=0)
    ax.set_yticks(at, [style.truncate_label(names[v], 14) for v in shown], parse_math=False)
    ax.tick_params(axis="y", length=0.0)
    ax.set(xlim=limits, ylim=(-0.5, len(shown) - 0.5))
    style.write_note(ax, (1.0, 1.0), f"{len(shown)} of {n}" * (len(shown) < n), offset=3.0)
    return bars
