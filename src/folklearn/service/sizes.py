"""How large a model is in what limits count, and how large labels would make it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from folklearn.learners import catalogue
from folklearn.model import roles
from folklearn.model.encoder import MOST_OWN, SHARED
from folklearn.model.model import Model
from folklearn.model.terms import DATE_PARTS
from folklearn.readers.records import table_from_records
from folklearn.service import events
from folklearn.service.answers import RefusedError

Item = tuple[events.Row, events.Label]

_MOST_OF_COLUMN = MOST_OWN + SHARED  # features that categories of one column take
_BYTES_OF_WEIGHT = 64  # of a wide learner, which has eight experts at first
MOST_NUMBERS_AT_ONCE = 8_000_000  # of a matrix; what is larger is learned row by row


class Size(NamedTuple):
    """What limits count of a model; `learner` is in bytes, about."""

    classes: int
    columns: int
    features: int
    places: int
    learner: int

    @classmethod
    def of(cls, model: Model) -> "Size":
        """Return how large a model is."""
        columns = model.columns
        n_columns, n_features = len(model.asked_roles), 0
        if columns is not None:
            n_columns, n_features = len(columns.roles), len(columns)
        n_places = 0 if model.core is None else model.core.n_places
        if columns is not None and columns.sparse:
            n_features = 0
        return cls._filled(model, 0, len(model._labels), n_columns, n_features, n_places)

    @classmethod
    def _filled(
        cls,
        model: Model,
        n_letters: int,
        n_classes: int,
        n_columns: int,
        n_features: int,
        n_places: int,
    ) -> "Size":
        """Return the size with the bytes that weights, names and so many more letters take."""
        n_weights = (n_classes + 1) * max(n_places, n_features)
        n_bytes = _BYTES_OF_WEIGHT * n_weights if model.learner_name == "auto" else 0
        if n_features:
            size = n_features + 1, max(2, n_classes)
            n_bytes = max(n_bytes, catalogue.n_bytes(model.learner_name, *size))
            if model.learner is not None:  # one that began small may stay of a dearer kind
                n_bytes = max(n_bytes, model.learner.expected_bytes(*size))
        n_letters += 0 if model.columns is None else model.columns.n_letters
        return cls(n_classes, n_columns, n_features, n_places, n_bytes + n_letters)

    @classmethod
    def bound(cls, model: Model, items: Sequence[Item]) -> "Size":
        """Return a size that the model does not exceed with more items: fast, and not tight."""
        columns, labels = model.columns, model._labels.numbers
        known = model.asked_roles if columns is None else columns.roles
        new_columns: dict[str, Any] = {}
        new_classes: set[Any] = set()
        n_texts: Counter[str] = Counter()  # by column
        n_cells = n_letters = 0
        for row, label in items:
            n_cells += len(row)
            if not row.keys() <= known.keys():
                new_columns |= {name: value for name, value in row.items() if name not in known}
            new_classes |= set(label if isinstance(label, dict) else (label,)) - labels.keys()
            texts = [(name, value) for name, value in row.items() if type(value) is str]
            n_texts.update(name for name, _ in texts)
            n_letters += sum(len(value) for _, value in texts)
        now = cls.of(model)
        # Columns that are known, and have no value so far.
        n_unplaced = len(known) if columns is None else columns.n_unplaced
        is_dense = columns is not None and not columns.sparse
        if is_dense and not (new_columns or new_classes or n_texts or n_unplaced):
            return now  # nearly all rows of numbers
        n_new = sum(_n_features_of(value) for value in new_columns.values())
        n_new += len(DATE_PARTS) * n_unplaced
        n_crossed = len(model.crosses)
        n_features = now.features + n_new
        n_features += sum(min(n, _MOST_OF_COLUMN) for n in n_texts.values())
        n_features += n_crossed * min(len(items), _MOST_OF_COLUMN)
        # A word has two letters and one between it and the next, which is a pair of words too.
        n_places = now.places + 1 + n_cells + n_new + n_crossed * len(items) + 2 * n_letters // 3
        n_places += len(n_texts)
        if columns is not None:
            n_places += columns.n_numbers  # a number that was always the same has no weight yet
            n_features, n_places = (0, n_places) if columns.sparse else (n_features, 0)
        return cls._filled(
            model,
            n_letters + sum(map(len, new_columns)),
            now.classes + len(new_classes),
            now.columns + len(new_columns),
            n_features,
            n_places,
        )

    def exactly(self, model: Model, items: Sequence[Item]) -> "Size":
        """Return this bound with features or places counted, which takes as long as reading."""
        columns, core = model.columns, model.core
        if columns is None or core is None or not (columns.sparse or len(items) == 1):
            return self
        if self.columns * len(items) > MOST_NUMBERS_AT_ONCE:
            return self
        rows = [row for row, _ in items]
        encoded = columns.encode(table_from_records(rows, range(1, len(rows) + 1)))
        n_features = 0 if columns.sparse else len(columns) + len(encoded.keys)
        n_places = core.n_places_with(encoded.X) if columns.sparse else 0
        n_letters = sum(len(part) for _, part in encoded.keys) + sum(map(len, encoded.roles))
        return self._filled(model, n_letters, self.classes, self.columns, n_features, n_places)

    def exceeds(self, limits: "Size", now: "Size") -> str | None:
        """Return what would grow from now beyond its limit, None if nothing would."""
        for what, wanted, limit, present in zip(self._fields, self, limits, now, strict=True):
            if wanted > max(limit, present):
                return what
        return None

    def check(self, limits: "Size", now: "Size") -> None:
        """Refuse to grow from now to this, if that is beyond the limits."""
        what = self.exceeds(limits, now)
        if what is not None:
            wanted, limit, present = (getattr(size, what) for size in (self, limits, now))
            unit = {"learner": "bytes of weights", "places": "hashed places"}.get(what, what)
            raise RefusedError(
                422,
                f"the model may have {limit:,} {unit}; with this it could come to {wanted:,}, and "
                f"it has {present:,} now",
            )


def _n_features_of(value: Any) -> int:
    """Return how many features a column begins with, by its first value."""
    is_date = type(value) is str and roles.of_value(value) in roles.DATES
    return len(DATE_PARTS) if is_date else 1
