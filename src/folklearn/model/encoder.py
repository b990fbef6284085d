"""The columns of the data, their roles, and the places that they have in a matrix."""

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.metrics.records import ColumnPlaces
from folklearn.model import roles as known_roles
from folklearn.model.roles import CATEGORY, DATES, ID, IGNORED, LEARNED, NUMBER, WORDS
from folklearn.model.sparse_scaler import SPACE, SparseInput
from folklearn.model.terms import (
    HASHED,
    CategoricalColumn,
    NumericColumn,
    Term,
    crossed,
    place_of,
    terms_of,
)
from folklearn.readers.convert import MAX_ABS_VALUE, format_cell
from folklearn.readers.table import (
    Column,
    Table,
    TextColumn,
    is_missing,
    not_a_row_error,
)
from folklearn.serialization import Record, Serializable
from folklearn.sparse import SparseRows
from folklearn.utils import join_names

Key = tuple[str, str]  # a column of the data, or a cross of two, and a part of it

FEATURES = "\0"  # what svmlight and VW text, or an array, bring beside named columns
MOST_OWN = 100  # categories of a column that have a place of their own,
SHARED = 28  # and places that all further ones share


@dataclass(frozen=True)
class EncodedBatch:
    """Rows as a matrix, and what they bring that was not there: reading changes nothing.

    X : (T, d) raw numbers, places of new keys included, or a `SparseInput`.
    keys : the new ones, those that the first row needs before those of the second, and so on.
    n_first : how many places there are with the first row.
    late_missing : of the new keys, whether they are numbers, missing until now; others were 0.
    late_numeric : of the new keys, whether they hold numbers, which are standardised; others are
        0 or 1.
    """

    X: Any
    keys: Sequence[Key] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    n_first: int = 0
    late_missing: Sequence[bool] = ()
    late_numeric: Sequence[bool] = ()


class TableEncoder(Serializable):
    """Rows of any kind in, a matrix out.

    A number has a place of its own. So has every category of a column, up to a hundred, and
    further ones share a few by hash. A date becomes a trend, times of day and year, and weekdays.
    Words, and everything in a model that has words, are hashed into a space of their own, too
    wide to be dense (`SparseInput`). Ids, weights and targets have no place.

    Parameters
    ----------
    roles : of the columns that are known, by name.
    crosses : pairs of columns whose products count too.
    sparse : whether rows stay sparse: they do if there are words.
    """

    PARAMS = ("sparse",)

    def __init__(
        self,
        roles: Mapping[str, str] | None = None,
        crosses: Iterable[Sequence[str]] = (),
        *,
        sparse: bool = False,
    ) -> None:
        self.sparse = bool(sparse)
        self.crosses = [(str(a), str(b)) for a, b in crosses]
        self._crossed = {f"{a}:{b}": (a, b) for a, b in self.crosses}
        self.roles: dict[str, str] = {}
        self.feature_names: dict[str, str] = {}  # of features that are given by number
        self.keys: list[Key] = []
        self.places: dict[Key, int] = {}
        self._placed: set[str] = set()  # columns that have a place
        self.n_letters = 0  # of all names and categories, which are kept as they came
        self._n_own: dict[str, int] = {}  # categories of a column with a place of their own
        self._whole: list[Key] = []  # keys of numbers, in order
        self._row_size = -1  # entries of a row that holds every column, if all are numbers
        self._row_values: Callable[[Any], tuple[Any, ...]] = tuple
        self._row_format = ""
        for name, role in (roles or {}).items():
            known_roles.check_known(role, name)
        both = {f"{a}:{b}" for a, b in self.crosses} & set(roles or ())
        if both:
            raise InvalidInputError(f"a column is called {min(both)!r}, like a cross: rename it")
        self.admit(EncodedBatch(None, [], dict(roles or {})))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def learned(self) -> list[str]:
        """The names of the columns that are learned from."""
        return [name for name, role in self.roles.items() if role in LEARNED]

    @property
    def n_unplaced(self) -> int:
        """The number of columns that have no place: of ids, or without a value so far."""
        return len(self.roles) - len(self._placed)

    @property
    def n_bytes(self) -> int:
        """About how much memory the names and the places of the columns take."""
        return 300 * (len(self.roles) + len(self.keys)) + self.n_letters

    @property
    def n_numbers(self) -> int:
        """The number of places that hold numbers."""
        return len(self._whole)

    def admit(self, encoded: EncodedBatch) -> None:
        """Open the places that rows needed, behind those that are there."""
        self.n_letters += sum(len(name) for name in encoded.roles if name not in self.roles)
        self.n_letters += sum(len(part) for _, part in encoded.keys)
        self.roles |= encoded.roles
        for key in encoded.keys:
            self.places[key] = len(self.keys)
            self.keys.append(key)
            source, part = key
            self._placed |= {source} & self.roles.keys()
            if self._is_whole(source):
                self._whole.append(key)
            else:
                self._n_own[source] = self._n_own.get(source, 0) + (not part.startswith("#"))
        self._know_rows()

    def _is_whole(self, source: str) -> bool:
        """Tell whether the parts of a source are numbers, in a wide model too."""
        if source == FEATURES:
            return not self.sparse
        if source in self.roles:
            return self.roles[source] in (NUMBER, *DATES)
        return all(self.roles.get(name) == NUMBER for name in self._crossed[source])

    def are_numbers(self, encoded: EncodedBatch) -> list[bool]:
        """Tell of new keys whether they hold numbers, which are standardised; others are 0 or 1."""
        known, self.roles = self.roles, {**self.roles, **encoded.roles}
        numbers = [self._is_whole(source) for source, _ in encoded.keys]
        self.roles = known
        return numbers

    @property
    def in_words(self) -> str:
        """What linear models of these columns are linear in; `by` is what standardises numbers."""
        parts = []
        roles = set(self.roles.values())
        if self._whole or (not self.sparse and any(key[0] == FEATURES for key in self.keys)):
            parts.append("numbers standardised by {by}")
        if CATEGORY in roles and self.sparse:
            parts.append("each category hashed to a place of its own")
        elif CATEGORY in roles:
            shares = any(part.startswith("#") for _, part in self.keys)
            rest = f", those beyond {MOST_OWN} of a column in {SHARED} shared places" * shares
            parts.append(f"categories as 0 or 1{rest}")
        if WORDS in roles:
            parts.append("texts as counts of hashed words, of length 1 in each row")
        elif self.sparse and any(key[0] == FEATURES for key in self.keys):
            parts.append("sparse features of length 1 in each row")
        return "; ".join(parts) or "numbers standardised by {by}"

    def _know_rows(self) -> None:
        """Find out how a row of numbers is read in one step, and what a row of nothing is."""
        self.absent = np.zeros(max(1, len(self.keys)))
        self.absent[[self.places[key] for key in self._whole if key[0] != FEATURES]] = math.nan
        # Whether a matrix without names is all there is, so that its rows are taken as they are.
        numbered = all(key == (FEATURES, str(j)) for j, key in enumerate(self.keys))
        self.is_matrix = numbered and not self.sparse
        learned = [key[0] for key in self.keys]
        plain = set(self.roles.values()) <= {NUMBER, ID, IGNORED}
        self._row_size = -1
        if self.crosses or self.sparse or len(learned) < 2:
            return
        if plain and learned == self.learned and len(learned) == len(self.roles):
            self._row_size = len(self.roles)
            self._row_values = itemgetter(*learned)
            self._row_format = f"{len(learned)}d"

    def encode_row(self, x: Any) -> Array | None:
        """Return one row (d,) of numbers and categories that are all known; None for any other.

        Whether numbers can be computed with is for `OnlinePipeline` to say.
        """
        if type(x) is dict and len(x) == self._row_size:
            try:  # the way of nearly all rows of numbers
                row: Any = np.empty(self._row_size)
                struct.pack_into(self._row_format, row, 0, *self._row_values(x))
            except Exception:  # another column, a gap, text, or what no number can be made of
                pass  # is looked at below, value by value
            else:
                return row  # type: ignore[no-any-return]
        if not isinstance(x, Mapping):
            raise not_a_row_error(x)
        return None if self.sparse or self.crosses else self._known_row(x)

    def _known_row(self, x: Mapping[str, Any]) -> Array | None:
        row = self.absent.copy()
        for name, value in x.items():
            role = self.roles.get(name)
            if role == NUMBER:
                if value is None:
                    continue
                place = self.places.get((name, ""))
                if place is None or not isinstance(value, float | int):
                    return None
                if type(value) is int and abs(value) > MAX_ABS_VALUE:
                    return None
                row[place] = value
            elif role == CATEGORY and type(value) is str:
                text = format_cell(value)
                place = self.places.get((name, text or ""))
                if place is None and text is not None:
                    return None
                if place is not None:
                    row[place] += 1.0
            elif value is not None and role in (*LEARNED, None):
                return None
        return row

    def encode(self, block: Table) -> EncodedBatch:
        """Return the rows of a block as a matrix, and what they bring that is new."""
        if (
            block.features is not None
            and self.keys
            and all(source != FEATURES for source, _ in self.keys)
        ):
            raise InvalidInputError(
                "these rows are a matrix, and the columns of the model have names: give a data "
                f"frame or dictionaries with {join_names(self.learned)}"
            )
        roles = {}
        if not block.columns.keys() <= self.roles.keys():
            roles = {
                name: known_roles.of_value(_first_value(block.columns[name]))
                for name in known_roles.by_first_value(block)
                if name not in self.roles
            }
        if not self.sparse:  # a text that comes late is a category where rows are dense
            roles = {name: CATEGORY if role == WORDS else role for name, role in roles.items()}
        sources = list(self._sources(block, self.roles | roles))
        features = block.features
        is_whole = features is not None and features.shape[1] == len(self.keys)
        if self.is_matrix and not sources and is_whole:  # the rows as they are
            matrix: Any = features.dense() if isinstance(features, SparseRows) else features
            return EncodedBatch(matrix, (), roles, len(self.keys))
        encode = self._wide if self.sparse else self._dense
        X, keys, n_first = encode(sources, block)
        batch = EncodedBatch(X, keys, roles, n_first)
        if not keys:
            return batch
        all_roles = {**self.roles, **roles}
        late_missing = [all_roles.get(source) in (NUMBER, *DATES) for source, _ in keys]
        late_numeric = self.are_numbers(batch)
        return replace(batch, late_missing=late_missing, late_numeric=late_numeric)

    def encode_known(self, block: Table) -> Any:
        """Return the rows of a block as a matrix of the places that are there."""
        return self.known(self.encode(block).X)

    def _sources(
        self, block: Table, roles: Mapping[str, str]
    ) -> Iterator[tuple[str, Sequence[Term]]]:
        """Yield what every column, and every cross, of a block says."""
        found: dict[str, Sequence[Term]] = {}
        for name, role in roles.items():
            if role in LEARNED and name in block.columns:
                found[name] = terms_of(name, role, block.columns[name])
                yield name, found[name]
        for a, b in self.crosses:
            for name in (a, b):
                if roles.get(name, NUMBER) not in LEARNED:
                    raise InvalidInputError(
                        f"{a}:{b} cannot be crossed: the role of {name!r} is {roles[name]}"
                    )
            if a in found and b in found:
                yield f"{a}:{b}", crossed(a, found[a], b, found[b])

    def _dense(
        self, sources: Sequence[tuple[str, Sequence[Term]]], block: Table
    ) -> tuple[Array, list[Key], int]:
        fresh = _ColumnAllocator(self)
        columns: list[tuple[int, Array]] = []
        cells: list[tuple[Any, Any]] = []
        present = {source for source, _ in sources}
        for source, terms in sources:
            for term in terms:
                if isinstance(term, NumericColumn):
                    if fresh.needs((source, term.part), term.values):
                        columns.append((fresh.place((source, term.part)), _checked(source, term)))
                elif isinstance(term, CategoricalColumn):
                    cells.append((fresh.picked(source, term), term.values))
        matrix = self._features(block, fresh)
        X = np.zeros((len(block), max(1, len(self.keys) + len(fresh.keys))))
        for key in self._whole:
            if key[0] not in present and key[0] != FEATURES:
                X[:, self.places[key]] = math.nan
        for place, values in columns:
            X[:, place] = values
        for places, values in cells:
            rows = np.flatnonzero(places >= 0)
            X[rows, places[rows]] += values if isinstance(values, float) else values[rows]
        if matrix is not None:
            places, values = matrix
            X[:, places] = values
        keys, order, n_first = fresh.ordered()
        return X[:, order] if order is not None else X, keys, n_first

    def _features(self, block: Table, fresh: "_ColumnAllocator") -> tuple[Any, Array] | None:
        """Return places and values of what a block brings beside its columns."""
        features = block.features
        if features is None:
            return None
        if isinstance(features, SparseRows):
            own = features.compact()
            found, codes = np.unique(own.indices, return_inverse=True)
            places = np.array([fresh.place((FEATURES, str(index))) for index in found.tolist()])
            within = SparseRows(own.indptr, codes.astype(np.int32), own.values, max(1, len(found)))
            return places.astype(np.intp), within.dense()[:, : len(found)]
        m = features.shape[1]
        return [fresh.place((FEATURES, str(j))) for j in range(m)], features

    def _wide(
        self, sources: Sequence[tuple[str, Sequence[Term]]], block: Table
    ) -> tuple[SparseInput, list[Key], int]:
        fresh = _ColumnAllocator(self)
        parts: dict[int, SparseRows] = {}
        numbers: dict[Key, Array] = {}
        for source, terms in sources:
            for term in terms:
                if isinstance(term, NumericColumn):
                    if fresh.needs((source, term.part), term.values):
                        fresh.place((source, term.part))
                        numbers[source, term.part] = _checked(source, term)
                    continue
                rows = _hashed(term) if isinstance(term, CategoricalColumn) else term.rows
                parts[1 + fresh.place((source, ""))] = rows
        if block.features is not None:
            parts[1 + fresh.place((FEATURES, ""))] = _without_gaps(block.features)
        new = [key for key in fresh.keys if key in numbers]
        whole = [*self._whole, *new]
        gap = np.full(len(block), math.nan)
        values = np.array([numbers.get(key, gap) for key in whole]).reshape(len(whole), len(block))
        slots = tuple(1 + fresh.place(key) for key in whole)
        keys = fresh.keys
        X = SparseInput(np.ascontiguousarray(values.T), slots, parts)
        return X, keys, len(self.keys) + len(keys)

    def has_places(self, name: str, categories: Sequence[str]) -> NDArray[np.bool_]:
        """Tell of categories of a column of dense rows whether they have a place."""
        rare = self._n_own.get(name, 0) >= MOST_OWN
        keys = (
            [(name, part), (name, _shared_part(part))] if rare else [(name, part)]
            for part in categories
        )
        return np.array([any(key in self.places for key in own) for own in keys], bool)

    def wide_places(self, name: str, categories: Sequence[str]) -> NDArray[np.int64]:
        """Return the columns (n,) of wide rows that categories of a column of the data have."""
        slot = 1 + self.places.get((name, ""), len(self.keys))
        return slot * SPACE + np.array([place_of(part) for part in categories], np.int64)

    def column_places(self, n_places: int) -> list[ColumnPlaces]:
        """Return the columns that have some of the first places of a row, in their order."""
        keys_by_source: dict[str, list[Key]] = {name: [] for name in self.learned}
        for key in self.keys[:n_places]:
            if key[0] in keys_by_source or key[0] == FEATURES:
                keys_by_source.setdefault(key[0], []).append(key)
        layout = []
        for source, keys in keys_by_source.items():
            role, places = self.roles.get(source, NUMBER), [self.places[key] for key in keys]
            if source == FEATURES:
                names = [self.feature_names.get(part, part) for _, part in keys]
                features = zip(names, places, strict=True)
                layout += [ColumnPlaces(name, role, [at], None, True) for name, at in features]
            elif keys and role == CATEGORY:
                categories = () if self.sparse else [part for _, part in keys]
                layout.append(ColumnPlaces(source, role, places, categories))
            elif keys:
                layout.append(ColumnPlaces(source, role, places))
        return layout

    def known(self, X: Any) -> Any:
        """Return a matrix without the places that are not there yet."""
        if not isinstance(X, SparseInput):
            if X.shape[1] == len(self.keys):
                return X
            known = np.zeros((len(X), max(1, len(self.keys))))
            known[:, : len(self.keys)] = X[:, : len(self.keys)]
            return known
        return X.of_slots(len(self.keys))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the record, of which reading a row changes no byte."""
        return TableEncoder.from_record, (self.to_record(),)

    def to_record(self) -> Record:
        """Return everything as a record."""
        record = super().to_record()
        record.config["roles"] = list(self.roles.items())
        record.config["crosses"] = self.crosses
        record.config["keys"] = list(self.keys)
        record.config["feature_names"] = dict(self.feature_names)
        return record

    def _restore(self, record: Record) -> None:
        keys = [(str(source), str(part)) for source, part in record.word("keys")]
        roles = {str(name): str(role) for name, role in record.word("roles")}
        self.crosses = [(str(a), str(b)) for a, b in record.word("crosses")]
        self._crossed = {f"{a}:{b}": (a, b) for a, b in self.crosses}
        self.feature_names = dict(record.word("feature_names"))
        self.admit(EncodedBatch(None, keys, roles))

    def __repr__(self) -> str:
        return f"TableEncoder({join_names(list(self.roles))})"


class _ColumnAllocator:
    """The places of keys while rows are read: those there, and new ones behind them."""

    def __init__(self, columns: TableEncoder) -> None:
        self._columns = columns
        self._new: dict[Key, int] = {}
        self._first: dict[Key, int] = {}  # the row that needs a new key first; 0 if not here
        self._n_own = dict(columns._n_own)

    @property
    def keys(self) -> list[Key]:
        return list(self._new)

    def place(self, key: Key) -> int:
        found = self._columns.places.get(key)
        if found is None:
            found = self._new.setdefault(key, len(self._columns.keys) + len(self._new))
        return found

    def needs(self, key: Key, values: Array) -> bool:
        """Tell whether numbers need a place: they have one, or one of them is there."""
        if key not in self._columns.places:
            there = ~np.isnan(values)
            if not there.any():
                return False
            self._first[key] = int(there.argmax())
        return True

    def ordered(self) -> tuple[list[Key], Any, int]:
        """Return new keys as row after row needs them, the order of all places, and `n_first`.

        The order is None if it is theirs already.
        """
        n = len(self._columns.keys)
        first = [self._first.get(key, 0) for key in self._new]
        n_first = n + first.count(0)
        if first == sorted(first):
            return self.keys, None, n_first
        order = np.argsort(first, kind="stable")
        keys = self.keys
        return [keys[i] for i in order.tolist()], [*range(n), *(n + order).tolist()], n_first

    def picked(self, source: str, term: CategoricalColumn) -> Any:
        """Return the place of every row, -1 for none; new categories as they come."""
        found, first = np.unique(term.codes, return_index=True)
        lookup = np.full(len(term.parts) + 1, -1)
        for at in np.argsort(first).tolist():
            code = int(found[at])
            if code >= 0:
                key = self._category(source, term.parts[code])
                self._first.setdefault(key, int(first[at]))
                lookup[code] = self.place(key)
        return lookup[term.codes]

    def _category(self, source: str, part: str) -> Key:
        key = (source, part)
        if key in self._columns.places or key in self._new:
            return key
        n_own = self._n_own.get(source, 0)
        if n_own >= MOST_OWN or part.startswith("#"):
            return source, _shared_part(part)
        self._n_own[source] = n_own + 1
        return key


def _shared_part(category: str) -> str:
    """Return the part of a column that a category shares with others."""
    return f"#{place_of(category) % SHARED}"


def _hashed(term: CategoricalColumn) -> SparseRows:
    """Return one hashed place for every row that has a category."""
    places = np.array([*map(place_of, term.parts), 0])
    there = term.codes >= 0
    values = np.broadcast_to(np.asarray(term.values, np.float64), len(there))[there]
    indptr = np.concatenate([[0], np.cumsum(there)])
    indices = places[term.codes[there]].astype(np.int32)
    return SparseRows(indptr, indices, np.ascontiguousarray(values), HASHED)


def _without_gaps(features: Any) -> SparseRows:
    """Return what is not 0, and there, in features of a wide model."""
    rows = SparseRows.of_any(features)
    if not np.isnan(rows.values).any():
        return rows
    own = rows.array()
    own.data = np.nan_to_num(own.data, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return SparseRows.of(own)


def _checked(source: str, term: NumericColumn) -> Array:
    """Return numbers that can be computed with."""
    values = term.values
    largest = np.fmax.reduce(np.abs(values), initial=0.0)
    if largest <= MAX_ABS_VALUE:
        return values
    bad = values[int(np.nanargmax(np.abs(values)))]
    raise InvalidInputError(
        f"column {source!r} has {bad:g}, which "
        + ("is not finite" if math.isinf(bad) else "is too large to compute with")
        + "; leave such values out, scale them, or give the column the role category"
    )


def _first_value(column: Column) -> Any:
    """Return the first value of a column that has one."""
    first = int(np.argmin(is_missing(column)))
    return column.values[column.codes[first]] if isinstance(column, TextColumn) else column[first]
