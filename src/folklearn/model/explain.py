"""Why a model says what it says: weights and shapes by column and class, and their worth."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import plots
from folklearn.arrays import TINY, Array
from folklearn.errors import InvalidInputError
from folklearn.model.display import draw_shapes
from folklearn.model.encoder import FEATURES, TableEncoder
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.roles import CATEGORY, HASHED, LEARNED, NUMBER, WORDS, place_of, vectorizer
from folklearn.model.shapes import Shape, find_shapes
from folklearn.readers.table import Table, as_text_column
from folklearn.scaler import SPACE
from folklearn.sparse import SparseRows

if TYPE_CHECKING:
    from folklearn.model.model import Model

_REPEATS = 5  # permutations of a column, averaged


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
    pairs: tuple[tuple[str, str, float], ...] = ()
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
        return draw_shapes(self, path, columns)

    def __repr__(self) -> str:
        columns = ", ".join(name for name, _ in self.top_columns(3))
        most = f"; most important: {columns}" if columns else ""
        return f"Explanation of {len(self.names)} weights for {len(self.labels)} classes{most}"


def explain_model(model: "Model", *, importance: bool, seed: int) -> Explanation:
    pipeline, encoder = model.pipeline, model.encoder
    if pipeline is None or encoder is None or pipeline.learner is None:
        raise InvalidInputError("there is nothing to explain before two classes were learned")
    table, labels = model.recent.rows()
    names, W = _find_weights(pipeline, encoder, table)
    W = W - W.mean(axis=1, keepdims=True)
    rises = _measure_importance(model, table, labels, seed) if importance else {}
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


def _measure_importance(model: "Model", table: Table, labels: Any, seed: int) -> dict[str, float]:
    rng, encoder = np.random.default_rng(seed), model.encoder
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
