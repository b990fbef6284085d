"""Why a model says what it says: weights by column and class, and what columns are worth."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn.arrays import TINY, Array
from folklearn.errors import InvalidInputError
from folklearn.model.encoder import FEATURES
from folklearn.model.roles import CATEGORY, NUMBER, WORDS
from folklearn.model.sparse_scaler import SPACE
from folklearn.model.terms import HASHED, place_of, vectorizer
from folklearn.readers.table import Table, as_text_column
from folklearn.sparse import SparseRows

if TYPE_CHECKING:
    from folklearn.model.model import Model

_REPEATS = 5  # permutations of a column, averaged


@dataclass(frozen=True)
class Explanation:
    """Weights of a linear model by column and class, and the importance of columns.

    Attributes
    ----------
    names : what the weights belong to: a column, or ``column = value``, or a word of it.
    labels : the classes.
    weights : (n, K): how many nats a row gains for a class if the value is one deviation higher
        (numbers), or is there (categories, words). They sum to 0 over the classes.
    importance : by column, how many nats a row the loss on recent rows rises if the values of the
        column are shuffled among them; empty if there are no recent rows.
    n_recent : how many rows these were.
    """

    names: tuple[str, ...]
    labels: tuple[Any, ...]
    weights: Array
    importance: dict[str, float]
    n_recent: int = 0

    def top(self, n: int = 20) -> list[tuple[str, Any, float]]:
        """Return the n largest weights as (name, label, weight)."""
        order = np.argsort(-np.abs(self.weights), axis=None)[:n]
        rows, columns = np.unravel_index(order, self.weights.shape)
        return [
            (self.names[i], self.labels[k], float(self.weights[i, k]))
            for i, k in zip(rows.tolist(), columns.tolist(), strict=True)
        ]

    def plot(self, path: str | None = None) -> Any:
        """Draw the weights; return the figure, or write it to a file."""
        from folklearn.model.display import draw_weights, save_figure

        return save_figure(draw_weights(self), path)

    def __repr__(self) -> str:
        columns = sorted(self.importance, key=self.importance.__getitem__, reverse=True)[:3]
        most = f"; most important: {', '.join(columns)}" if columns else ""
        return f"Explanation of {len(self.names)} weights for {len(self.labels)} classes{most}"

    def _repr_html_(self) -> str:
        from folklearn.model.display import explanation_card

        return explanation_card(self)


def explain_model(model: "Model", *, importance: bool, seed: int) -> Explanation:
    """Return the explanation of a model."""
    pipeline, columns = model.pipeline, model.encoder
    if pipeline is None or columns is None or pipeline.learner is None:
        raise InvalidInputError("there is nothing to explain before two classes were learned")
    block, labels = model.recent.rows()
    if pipeline.sparse:
        names, W = _wide_weights(model, block)
    else:
        places = [pipeline.column_of(place) for place in range(len(columns.keys))]
        names = [_name(model, key) for key in columns.keys]
        W = pipeline.coef()[:, places].T * pipeline.unit
        picked = [not columns._is_whole(source) for source, _ in columns.keys]
        W[picked] = pipeline.linear()[0].T[: len(picked)][picked]
    W = W - W.mean(axis=1, keepdims=True)
    worth = _importance(model, block, labels, seed) if importance and len(labels) else {}
    return Explanation(tuple(names), model.labels, W, worth, len(labels))


def _name(model: "Model", key: tuple[str, str]) -> str:
    source, part = key
    columns = model.encoder
    assert columns is not None
    if source == FEATURES:
        return columns.feature_names.get(part, part)
    if not part:
        return source
    role = columns.roles.get(source, CATEGORY)
    if part.startswith("#"):
        return f"{source} = (further ones, {part})"
    return f"{source} = {part}" if role == CATEGORY else f"{source}: {part}"


def _wide_weights(model: "Model", block: Table) -> tuple[list[str], Array]:
    """Return the weights of what occurred in recent rows: the rest has no names any more."""
    pipeline, columns = model.pipeline, model.encoder
    assert pipeline is not None
    assert columns is not None
    named: dict[int, str] = {}
    for slot, (source, part) in enumerate(columns.keys, 1):
        role = columns.roles.get(source, NUMBER)
        if source == FEATURES and isinstance(block.features, SparseRows):
            for index in np.unique(block.features.indices).tolist():
                named[slot * SPACE + index] = columns.feature_names.get(str(index), str(index))
        elif role == WORDS and source in block.columns:
            words = vectorizer().build_analyzer()
            for text in as_text_column(block.columns[source]).values:
                for token in words(text):
                    named[slot * SPACE + _place_of_word(token)] = f"{source}: {token}"
        elif role == CATEGORY and source in block.columns:
            for text in as_text_column(block.columns[source]).values:
                named[slot * SPACE + place_of(text)] = f"{source} = {text}"
        else:
            named[slot * SPACE] = f"{source}: {part}" if part else source
    found, weights = pipeline.column_weights()
    places = {int(column): i for i, column in enumerate(found.tolist())}
    there = [column for column in named if column in places]
    W = weights[np.array([places[column] for column in there], np.int64)]
    return [named[column] for column in there], W * pipeline.unit


def _place_of_word(token: str) -> int:
    from sklearn.utils import murmurhash3_32

    return abs(int(murmurhash3_32(token.encode("utf-8"), seed=0))) % HASHED


def _importance(model: "Model", block: Table, labels: Any, seed: int) -> dict[str, float]:
    """Return by how much the loss rises if a column is shuffled, for every column learned from."""
    rng = np.random.default_rng(seed)
    known = labels >= 0
    if not known.any():
        return {}
    block, labels = block.take(known), labels[known]

    def loss(rows: Table) -> float:
        given = model.predict_proba(rows)[np.arange(len(labels)), labels]
        return float(-np.log(np.maximum(given, TINY)).mean())

    before = loss(block)
    columns = model.encoder
    assert columns is not None
    worth = {}
    for name in columns.learned:
        if name not in block.columns:
            continue
        rises = []
        for _ in range(_REPEATS):
            shuffled = dict(block.columns)
            shuffled[name] = shuffled[name][rng.permutation(len(labels))]
            rises.append(loss(Table(shuffled, block.lines, block.features)) - before)
        worth[name] = float(np.mean(rises))
    return worth
