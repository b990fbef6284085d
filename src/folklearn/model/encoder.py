"""Rows of any kind as a matrix: columns, their roles, and the places that they have in it."""

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.metrics.columns import ColumnPlaces
from folklearn.model import roles as known_roles
from folklearn.model.batch import MOST_OWN, SHARED, Key, PlaceFinder, SparseInput, shared_part
from folklearn.model.roles import CATEGORY, DATES, LEARNED, NUMBER, WORDS, EncodedColumn
from folklearn.readers.convert import MAX_ABS_VALUE, format_cell, is_gap
from folklearn.readers.table import MissingValues, Table, distinct_codes, not_a_row_error
from folklearn.serialization import Record, Serializable, put_inside
from folklearn.sparse import SparseRows
from folklearn.utils import join_names

_Columns = dict[str, EncodedColumn]  # by name

FEATURES = "\0"  # the source of what svmlight and VW text, or an array, have by number
_FORGOTTEN = " forgotten "  # and its place, in place of a name: no value begins with a space


def as_pairs(crosses: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Return crosses as pairs of column names, or raise InvalidInputError."""
    pairs = [(pair,) if isinstance(pair, str) else tuple(pair) for pair in crosses]
    for pair in pairs:
        if len(pair) != 2:
            expected = 'crosses must be pairs of columns, such as [("country", "device")]'
            raise InvalidInputError(f"{expected}, got {pair[0] if len(pair) == 1 else pair!r}")
    return [(str(a), str(b)) for a, b in pairs]


@dataclass(frozen=True)
class EncodedBatch:
    """Rows as a matrix, and what they bring that was not there: encoding changes nothing."""

    X: Any  # (T, d) raw numbers, places of new keys included, or a `SparseInput`
    keys: Sequence[Key] = ()  # the new ones, in the order in which rows need them
    roles: dict[str, str] = field(default_factory=dict)
    n_first: int = 0  # places with the first row
    dense: "EncodedBatch | None" = None  # the dense view of X, if it has one


class TableEncoder(Serializable):
    """Rows of any kind in, a matrix out.

    A number has a place of its own. So has every category of a column, up to a hundred, and
    further ones share a few by hash. A date becomes a trend, times of day and year, and weekdays.
    Words, and everything in a model that has words, are hashed into a space too wide to be dense
    (`SparseInput`); columns next to words come both ways, dense by the encoder `dense`. Ids,
    weights and targets have no place. Rows stay sparse if that is asked for, or there are words.
    """

    PARAMS = ("sparse", "missing")

    def __init__(
        self,
        roles: Mapping[str, str] | None = None,
        crosses: Iterable[Sequence[str]] = (),
        *,
        sparse: bool = False,
        missing: Iterable[Any] | None = None,
    ) -> None:
        self.gaps = MissingValues(missing)
        self.missing = self.gaps.asked
        self.sparse = bool(sparse) or WORDS in (roles or {}).values()
        self.crosses = as_pairs(crosses)
        others = {name: role for name, role in (roles or {}).items() if role != WORDS}
        is_mixed = self.sparse and not sparse and not set(LEARNED).isdisjoint(others.values())
        self.dense = TableEncoder(others, self.crosses, missing=missing) if is_mixed else None
        self.roles: dict[str, str] = {}
        self.feature_names: dict[str, str] = {}  # of features that have a number
        self.keys: list[Key] = []
        self.places: dict[Key, int] = {}
        self.n_letters = 0  # of all names and categories
        self._placed: set[str] = set()  # columns that have a place
        self._n_own: dict[str, int] = {}  # categories of a column with a place of their own
        self._numeric: list[Key] = []  # keys of numbers, in order
        for name, role in (roles or {}).items():
            known_roles.check_known(role, name)
        both = {f"{a}:{b}" for a, b in self.crosses} & set(roles or ())
        if both:
            raise InvalidInputError(f"a column is called {min(both)!r}, like a cross: rename it")
        self.admit((), roles or {})

    @classmethod
    def of_context(
        cls, context: Mapping[str, str | Sequence[str]], crosses: Iterable[Sequence[str]] = ()
    ) -> "TableEncoder":
        """Return an encoder with the places of columns, "number" or a list of all their values."""
        values = {name: kind for name, kind in context.items() if kind != NUMBER}
        for name, kind in values.items():
            if isinstance(kind, str):
                raise InvalidInputError(
                    f'the context {name!r} is "number", or the list of its values; got {kind!r}'
                )
        encoder = cls({name: CATEGORY if name in values else NUMBER for name in context}, crosses)
        encoder.declare(values)
        return encoder

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def learned(self) -> list[str]:
        return [name for name, role in self.roles.items() if role in LEARNED]

    @property
    def n_unplaced(self) -> int:
        """The number of columns without a place: of ids, or without a value so far."""
        return len(self.roles.keys() - self._placed)

    @property
    def n_bytes(self) -> int:
        dense = 0 if self.dense is None else self.dense.n_bytes
        return 300 * (len(self.roles) + len(self.keys)) + self.n_letters + dense

    @property
    def n_numbers(self) -> int:
        return len(self._numeric)

    def admit(self, keys: Iterable[Key], roles: Mapping[str, str] | None = None) -> None:
        """Open the places that rows needed, behind those that are there."""
        roles = roles or {}
        self.n_letters += sum(len(name) for name in roles if name not in self.roles)
        self.roles |= roles
        keys = list(keys)
        for (source, part), is_number in zip(keys, self.are_numbers(keys), strict=True):
            self.places[source, part] = len(self.keys)
            self.keys.append((source, part))
            self.n_letters += len(part)
            self._placed.add(source)
            if is_number:
                self._numeric.append((source, part))
            else:
                self._n_own[source] = self._n_own.get(source, 0) + (not part.startswith("#"))
        self._prepare_rows()

    def admit_batch(self, batch: EncodedBatch) -> list[str]:
        """Open the places that rows needed; return columns of categories that hold sentences."""
        n_own = dict(self._n_own)
        self.admit(batch.keys, batch.roles)
        if self.dense is not None and batch.dense is not None:
            return self.dense.admit_batch(batch.dense)
        full = (name for name, n in self._n_own.items() if n_own.get(name, 0) < MOST_OWN <= n)
        parts = {name: [part for source, part in self.keys if source == name] for name in full}
        return [name for name in parts if known_roles.are_sentences(parts[name])]

    def declare(
        self, categories: Mapping[str, Sequence[str]], features: Iterable[int] = ()
    ) -> None:
        """Open the places of all columns, of categories (first ones first), and of features."""
        places = PlaceFinder(self.places, self._n_own)
        crosses = {f"{a}:{b}": (a, b) for a, b in self.crosses}
        for source in (*self.learned, *crosses):
            names = crosses.get(source, (source,))
            roles = [self.roles.get(name) for name in names]
            if roles.count(CATEGORY) == 1 and set(roles) <= {CATEGORY, NUMBER}:
                for rank, category in enumerate(categories.get(names[roles.index(CATEGORY)], ())):
                    places.find_category(source, category, rank)
            elif set(roles) == {NUMBER} or source in self.roles:
                for part in known_roles.DATE_PARTS if roles[0] in DATES else ("",):
                    places.find((source, part))
        for index in features:
            places.find((FEATURES, str(index)))
        self.admit(places.order_keys()[0])

    def find_category(self, column: str, value: Any) -> int | None:
        """Return the place of a category that is known by name, or of a cross with it, if any."""
        if self.dense is not None:  # words have no names
            return self.dense.find_category(column, value)
        part = format_cell(value)
        if part is None or self.roles.get(column) != CATEGORY:
            return None
        return next((self.places[key] for key in self._find_keys(column, part)), None)

    def forget_categories(self, places: Iterable[int]) -> None:
        """Forget the names of categories and of their crosses; their places stay, without names."""
        if self.dense is not None:
            return self.dense.forget_categories(places)
        places, crosses = list(places), {f"{a}:{b}" for a, b in self.crosses}
        for place in places:
            source, part = self.keys[place] if place in range(len(self.keys)) else ("", "")
            if part[:1] in ("", "#") or not (source in crosses or self.roles[source] == CATEGORY):
                raise InvalidInputError(f"no category has the position {place!r}: `find_category`")
        for place in places:
            for key in [self.keys[place], *self._find_keys(*self.keys[place])]:
                if (at := self.places.pop(key, None)) is not None:
                    self.keys[at] = key[0], f"{_FORGOTTEN}{at}"
                    self.places[self.keys[at]] = at
                    self.n_letters += len(self.keys[at][1]) - len(key[1])
        return None

    def _find_keys(self, column: str, part: str) -> list[Key]:
        mark, names = known_roles.PAIR_MARK, [key for key in self.keys if key[1][:1] != "#"]
        keys = [key for key in [(column, part)] if key in self.places and part[:1] != "#"]
        for a, b in self.crosses:
            for source, name in names:
                begins = column == a and f"{name}{mark}".startswith(f"{part}{mark}")
                ends = column == b and f"{mark}{name}".endswith(f"{mark}{part}")
                if source == f"{a}:{b}" and (begins or ends):
                    keys.append((source, name))
        return keys

    def are_numbers(
        self, keys: Iterable[Key], roles: Mapping[str, str] | None = None
    ) -> list[bool]:
        roles = {**self.roles, **(roles or {})}
        are_numeric = {name: role in (NUMBER, *DATES) for name, role in roles.items()}
        for a, b in self.crosses:
            are_numeric[f"{a}:{b}"] = roles.get(a) == roles.get(b) == NUMBER
        are_numeric[FEATURES] = not self.sparse
        return [are_numeric[source] for source, _ in keys]

    def describe_late(self, batch: EncodedBatch) -> dict[str, Any]:
        """Tell of the new keys whether they are numbers: missing before, and standardised."""
        roles, late = self.roles | batch.roles, dict[str, Any]()
        late["late_missing"] = [roles.get(source) in (NUMBER, *DATES) for source, _ in batch.keys]
        late["late_numeric"] = self.are_numbers(batch.keys, batch.roles)
        if self.dense is not None and batch.dense is not None:
            late["dense"] = self.dense.describe_late(batch.dense)
        return late

    @property
    def in_words(self) -> str:
        """What linear models of these columns are linear in; `by` is what standardises numbers."""
        parts, roles = [], set(self.roles.values())
        if self._numeric or (not self.sparse and FEATURES in self._placed):
            parts.append("numbers standardised by {by}")
        if CATEGORY in roles and self.sparse:
            parts.append("each category hashed to a place of its own")
        elif CATEGORY in roles:
            rest = f", those beyond {MOST_OWN} of a column in {SHARED} shared places"
            shares = any(part.startswith("#") for _, part in self.keys)
            parts.append(f"categories as 0 or 1{rest * shares}")
        if WORDS in roles:
            parts.append("texts as counts of hashed words, of length 1 in each row")
        elif self.sparse and FEATURES in self._placed:
            parts.append("sparse features of length 1 in each row")
        return "; ".join(parts) or "numbers standardised by {by}"

    def _prepare_rows(self) -> None:
        self.absent = np.zeros(max(1, len(self.keys)))
        self.absent[[self.places[key] for key in self._numeric if key[0] != FEATURES]] = math.nan
        # Whether a matrix without names is all there is, so that its rows are taken as they are.
        are_numbered = all(key == (FEATURES, str(j)) for j, key in enumerate(self.keys))
        self.is_matrix = are_numbered and not self.sparse
        sources = [source for source, _ in self.keys]
        self._row_size = -1  # entries of a row that holds every column, if all are numbers
        is_plain = set(self.roles.values()) == {NUMBER} and not (self.crosses or self.sparse)
        if is_plain and len(sources) > 1 and sources == [*self.roles]:
            self._row_size = len(sources)
            self._row_values: Callable[[Any], tuple[Any, ...]] = itemgetter(*sources)
            self._row_struct = struct.Struct(f"{len(sources)}d")

    def encode_row(self, x: Any) -> Array | None:
        """Return one row (d,) of numbers and categories that are all known; None for any other."""
        if self.missing and isinstance(x, Mapping):
            x = {name: self.gaps.mask_value(value) for name, value in x.items()}
        if type(x) is dict and len(x) == self._row_size:
            row: Any = np.empty(self._row_size)
            try:  # the way of nearly all rows of numbers
                self._row_struct.pack_into(row, 0, *self._row_values(x))
                return row
            except Exception:  # another column, a gap, text, or what no number can be made of
                pass  # is looked at below, value by value
        if not isinstance(x, Mapping):
            raise not_a_row_error(x)
        if self.sparse or self.crosses:
            return None
        values: Array = self.absent.copy()
        for name, value in x.items():
            name = name if type(name) is str else str(name)  # as a table of the row would have it
            role = self.roles.get(name)
            if role == NUMBER:
                if value is None:
                    continue
                place = self.places.get((name, ""))
                if place is None or not isinstance(value, float | int):
                    if type(value) is str and is_gap(value.strip()):
                        continue
                    return None
                if type(value) is int and abs(value) > MAX_ABS_VALUE:
                    return None
                values[place] = value
            elif role == CATEGORY and type(value) is str:
                text = format_cell(value)
                place = self.places.get((name, text or ""))
                if place is None and text is not None:
                    return None
                if place is not None:
                    values[place] += 1.0
            elif value is not None and role in (*LEARNED, None):
                return None
        return values

    def encode(self, table: Table) -> EncodedBatch:
        """Return the rows of a table as a matrix, and what they bring that is new."""
        table = self.gaps.mask(table) if self.missing else table
        features, new_roles = table.features, dict[str, str]()
        if features is not None and self.keys and FEATURES not in self._placed:
            raise InvalidInputError(
                "these rows are a matrix, and the columns of the model have names: give a data "
                f"frame or dictionaries with {join_names(self.learned)}"
            )
        if not table.columns.keys() <= self.roles.keys():
            new_roles = known_roles.of_first_values(table, skip=self.roles)
            if not self.sparse:  # a text that comes late is a category where rows are dense
                new_roles |= {n: CATEGORY for n, role in new_roles.items() if role == WORDS}
        roles = self.roles | new_roles
        columns = {
            name: known_roles.encode_column(name, role, table.columns[name])
            for name, role in roles.items()
            if role in LEARNED and name in table.columns
        }
        if self.crosses:
            self._add_crosses(columns, roles)
        is_whole = features is not None and features.shape[1] == len(self.keys)
        if self.is_matrix and not columns and is_whole:  # the rows as they are
            matrix: Any = features.dense() if isinstance(features, SparseRows) else features
            matrix = np.require(matrix, np.float64, ["C", "A", "W"])  # as kernels take it
            return EncodedBatch(matrix, (), new_roles, len(self.keys))
        if not self.sparse:
            return self._encode_dense(columns, features, len(table), new_roles)
        finder, dense = PlaceFinder(self.places, self._n_own), None
        X = self._fill_sparse(finder, columns, table)
        if self.dense is not None:
            others = {name: column for name, column in columns.items() if column.words is None}
            late_roles = {name: role for name, role in new_roles.items() if role != WORDS}
            dense = self.dense._encode_dense(others, None, len(table), late_roles)
            slots, roles = enumerate([*self.keys, *finder.new], 1), {FEATURES: WORDS} | roles
            words = [slot for slot, (name, _) in slots if roles.get(name) == WORDS]
            X = replace(X, dense=dense.X, words=tuple(words))
        return EncodedBatch(X, [*finder.new], new_roles, len(self.keys) + len(finder.new), dense)

    def _encode_dense(
        self, columns: _Columns, features: Any, n_rows: int, new_roles: dict[str, str]
    ) -> EncodedBatch:
        finder = PlaceFinder(self.places, self._n_own)
        cells: list[tuple[Any, Any, Any]] = []  # rows, places and values
        for source, column in columns.items():
            if column.codes is not None:
                place_of_code = np.full(len(column.parts) + 1, -1)
                for code, row in zip(*distinct_codes(column.codes), strict=True):
                    place = self.places.get((source, column.parts[code]))
                    if place is None:
                        place = finder.find_category(source, column.parts[code], row)
                    place_of_code[code] = place
                places = place_of_code[column.codes]
                rows = np.flatnonzero(places >= 0)
                factors = np.broadcast_to(column.factors, len(places))
                cells.append((rows, places[rows], factors[rows]))
                continue
            assert column.numbers is not None
            for part, values in zip(column.parts, column.numbers, strict=True):
                place = self.places.get((source, part))
                if place is None:
                    place = finder.find_number((source, part), values)
                if place is not None:
                    cells.append((slice(None), place, values))
        if isinstance(features, SparseRows):
            compact = features.compact()
            indices, codes = np.unique(compact.indices, return_inverse=True)
            rows = np.repeat(np.arange(n_rows), np.diff(compact.indptr))
            feature_places = [finder.find((FEATURES, str(index))) for index in indices.tolist()]
            cells.append((rows, np.array(feature_places, np.intp)[codes], compact.values))
        elif features is not None:
            feature_places = [finder.find((FEATURES, str(j))) for j in range(features.shape[1])]
            cells.append((slice(None), feature_places, features))
        X = np.zeros((n_rows, max(1, len(self.keys) + len(finder.new))))
        for key in self._numeric:
            if key[0] not in columns and key[0] != FEATURES:
                X[:, self.places[key]] = math.nan
        for rows, places, values in cells:
            X[rows, places] = values
        if not finder.new:
            return EncodedBatch(X, (), new_roles, len(self.keys))
        keys, order, n_first = finder.order_keys()
        X = X if order is None else np.ascontiguousarray(X[:, order])
        return EncodedBatch(X, keys, new_roles, n_first)

    def _add_crosses(self, columns: _Columns, roles: Mapping[str, str]) -> None:
        for a, b in self.crosses:
            for name in (a, b):
                if roles.get(name, NUMBER) not in LEARNED:
                    raise InvalidInputError(
                        f"{a}:{b} cannot be crossed: the role of {name!r} is {roles[name]}"
                    )
            if a in columns and b in columns:
                columns[f"{a}:{b}"] = known_roles.cross_columns(a, columns[a], b, columns[b])

    def encode_known(self, table: Table) -> Any:
        """Return rows as a matrix of the places that are there."""
        X, n = self.encode(table).X, len(self.keys)
        if isinstance(X, SparseInput):
            return X.of_slots(n, None if self.dense is None else max(1, len(self.dense.keys)))
        return np.ascontiguousarray(X[:, :n]) if n else np.zeros((len(X), 1))

    def _fill_sparse(self, finder: PlaceFinder, columns: _Columns, table: Table) -> SparseInput:
        parts: dict[int, SparseRows] = {}
        numbers: dict[Key, Array] = {}
        for source, column in columns.items():
            if column.numbers is None:
                parts[1 + finder.find((source, ""))] = column.hash_parts()
                continue
            for part, values in zip(column.parts, column.numbers, strict=True):
                if finder.find_number((source, part), values) is not None:
                    numbers[source, part] = values
        if table.features is not None:
            features = SparseRows.of(table.features)
            if np.isnan(features.values).any():
                array = features.array().copy()
                array.data[np.isnan(array.data)] = 0.0
                features = SparseRows.of(array)  # without zeros
            parts[1 + finder.find((FEATURES, ""))] = features
        numeric = [*self._numeric, *(key for key in finder.new if key in numbers)]
        values = np.empty((len(table), len(numeric)))
        for j, key in enumerate(numeric):
            values[:, j] = numbers.get(key, math.nan)
        return SparseInput.of_parts(values, [1 + finder.find(key) for key in numeric], parts)

    def name_of(self, source: str, part: str) -> str:
        """Return a key as people write it: a column, one of its categories, or a part of it."""
        if source == FEATURES:
            return self.feature_names.get(part, part)
        if not part:
            return source
        if part.startswith("#"):
            part = f"(further ones, {part})"
        elif part.startswith(_FORGOTTEN):
            part = f"({part.strip()})"
        elif self.roles.get(source, CATEGORY) != CATEGORY:
            return f"{source}: {part}"
        return f"{source} = {part}"

    def has_places(self, name: str, categories: Sequence[str]) -> NDArray[np.bool_]:
        """Tell of categories of a column of dense rows whether they have a place."""
        share = self._n_own.get(name, 0) >= MOST_OWN
        parts = ((part, shared_part(part) if share else part) for part in categories)
        return np.array([any((name, p) in self.places for p in pair) for pair in parts], bool)

    def column_places(self, n_places: int) -> list[ColumnPlaces]:
        """Return the columns that have some of the first places of a row, in their order."""
        parts_by_source: dict[str, list[str]] = {name: [] for name in self.learned}
        for source, part in self.keys[:n_places]:
            if source in parts_by_source or source == FEATURES:
                parts_by_source.setdefault(source, []).append(part)
        layout = []
        for source, parts in parts_by_source.items():
            role = self.roles.get(source, NUMBER)
            places = [self.places[source, part] for part in parts]
            if source == FEATURES:
                names = (self.feature_names.get(part, part) for part in parts)
                features = zip(names, places, strict=True)
                layout += [ColumnPlaces(name, role, [at], None, True) for name, at in features]
            elif parts:
                categories = None if role != CATEGORY else () if self.sparse else parts
                layout.append(ColumnPlaces(source, role, places, categories))
        return layout

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the record, of which reading a row changes no byte."""
        return TableEncoder.from_record, (self.to_record(),)

    def to_record(self) -> Record:
        record = super().to_record()
        record.config.update(roles=list(self.roles.items()), crosses=self.crosses)
        record.config.update(keys=list(self.keys), feature_names=dict(self.feature_names))
        if self.dense is not None:
            put_inside(record, "dense", self.dense)
        return record

    def _restore(self, record: Record) -> None:
        keys = [(str(source), str(part)) for source, part in record.word("keys")]
        roles = {str(name): str(role) for name, role in record.word("roles")}
        self.crosses = [(str(a), str(b)) for a, b in record.word("crosses")]
        self.feature_names = dict(record.word("feature_names"))
        self.admit(keys, roles)
        if "dense" in record.config:
            self.dense = record.inner("dense", TableEncoder)
