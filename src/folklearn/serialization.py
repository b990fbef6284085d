"""Versioned state files, and the objects that write and read them by what they declare.

A file holds named arrays and a JSON header, by safetensors: reading it runs no code from it. The
header carries the format version, the kind of object, its configuration and a digest of everything.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, get_args, get_origin

import numpy as np
import safetensors.numpy
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError

from folklearn import registry, validation
from folklearn.errors import FolklearnError, StateFileError

FORMAT_VERSION = 1
LARGEST_NUMBER = 1e100  # of a state: products of two are numbers, and no sum of rows comes near
_FEW_NUMBERS = 2**20  # 8 MB, which may be made to see which part is wrong
# What restoring a state may raise that was never saved: of whatever kind its entries are.
_NOT_RESTORED = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError
)  # fmt: skip
_JSON_TYPES = (bool, str, list, dict)
_BIT_GENERATORS = {"PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"}


@dataclass(frozen=True)
class Record:
    """What a file holds: the kind of object, its JSON configuration, its arrays."""

    kind: str
    config: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def part(
        self,
        name: str,
        shape: tuple[int | None, ...],
        dtype: DTypeLike = np.float64,
        *,
        least: float = -LARGEST_NUMBER,
        most: float = LARGEST_NUMBER,
        gaps: bool = False,
    ) -> NDArray[Any]:
        """Return an array of the state, or raise StateFileError.

        A length that is None may be any. Numbers are from `least` to `most`, or NaN with `gaps`.
        """
        array = self.arrays.get(name)
        if (
            array is None
            or (array.dtype, array.ndim) != (np.dtype(dtype), len(shape))
            or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True))
        ):
            raise self.error(f"needs {np.dtype(dtype)} {name} of shape {shape}")
        numbers = array[~np.isnan(array)] if gaps else array
        if numbers.size and not (least <= numbers.min() and numbers.max() <= most):
            raise self.error(f"has a number in {name} that is not from {least:g} to {most:g}")
        return array

    def check_holds(self, n_numbers: int) -> None:
        """Raise if the arrays hold fewer numbers than a state of its sizes would be made of."""
        n_here = sum(array.size for array in self.arrays.values())
        if n_numbers > max(n_here, _FEW_NUMBERS):
            raise self.error(f"of its sizes has {n_numbers:,} numbers or more, not {n_here:,}")

    def word(self, name: str) -> Any:
        if name not in self.config:
            raise self.error(f"needs {name}")
        return self.config[name]

    def count(self, name: str, least: int = 0) -> int:
        with state_file_errors(self.kind):
            return validation.count(name, self.word(name), least, 2**53)

    def error(self, what: str) -> StateFileError:
        return StateFileError(f"{_article(self.kind)} state {what}")

    @property
    def digest(self) -> str:
        """A digest of everything: two states are the same if theirs are."""
        content = hashlib.blake2b(_json([self.kind, self.config]).encode(), digest_size=16)
        for name, array in sorted(self.arrays.items()):
            content.update(json.dumps([name, array.dtype.str, array.shape]).encode())
            content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return content.hexdigest()

    def inner(self, name: str, kind: Any = None) -> Any:
        """Return what was saved inside under a name: an object, a list of them, or JSON.

        It is of a `kind`: a class, classes with | between them, a list of one, a type of JSON.
        """
        entry, in_list = self.word(name), get_origin(kind) is list
        wanted = list if in_list else kind
        if wanted in _JSON_TYPES and not isinstance(entry, wanted):
            raise self.error(f"has no {wanted.__name__} for {name}")
        if isinstance(entry, list) and (in_list or kind is None):
            return [self._revive_child(f"{name}{i}", e, kind) for i, e in enumerate(entry)]
        return entry if wanted in _JSON_TYPES else self._revive_child(name, entry, kind)

    def _revive_child(self, name: str, entry: Any, kind: Any) -> "Serializable":
        if not _is_record(entry):
            raise self.error(f"has no record for {name}")
        arrays = {
            key.removeprefix(f"{name}."): array
            for key, array in self.arrays.items()
            if key.startswith(f"{name}.")
        }
        child = revive(Record(entry["kind"], entry["config"], arrays))
        if kind is not None and not isinstance(child, get_args(kind) or kind):
            raise self.error(f"has {_article(type(child).__name__)} for {name}")
        return child


def _is_record(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("kind"), str)
        and isinstance(entry.get("config"), dict)
    )


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIO' or kind.isupper() else 'a'} {kind}"


@contextmanager
def state_file_errors(kind: str) -> Iterator[None]:
    """Say of parameters that are refused within that they came from a file."""
    try:
        yield
    except StateFileError:
        raise
    except FolklearnError as error:
        raise StateFileError(f"{_article(kind)} state has a bad configuration: {error}") from None


class Serializable:
    """What saves, restores and shows itself by what its class declares.

    PARAMS are parameters of the constructor that JSON holds, CHILDREN those that are saved objects
    or sequences of them; COUNTERS further attributes, whole numbers from 0; ARRAYS the arrays of
    the state, in private attributes, finite but for those in UNBOUNDED. STATE has what else
    attributes hold and its kind: bool, str, list or dict for JSON, a class whose objects save
    themselves (or several: `Leader | SparseSgd`), or a list of that; None is not saved. A class
    with more state extends `to_record` and `_restore`. One whose constructor makes arrays says in
    FEWEST_NUMBERS, or `_fewest_numbers`, how many numbers a file must have before it is called.
    """

    PARAMS: ClassVar[tuple[str, ...]] = ()
    CHILDREN: ClassVar[tuple[str, ...]] = ()
    COUNTERS: ClassVar[tuple[str, ...]] = ()
    ARRAYS: ClassVar[tuple[str, ...]] = ()
    STATE: ClassVar[Mapping[str, Any]] = {}
    UNBOUNDED: ClassVar[tuple[str, ...]] = ()
    FEWEST_NUMBERS: ClassVar[Any] = None  # a function of sizes d and K

    def __dir__(self) -> list[str]:  # completion shows what is for users
        return [name for name in super().__dir__() if name not in Serializable.__annotations__]

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        return cls.FEWEST_NUMBERS(*validation.sizes(words)) if cls.FEWEST_NUMBERS else 0

    def _parts(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, f"_{name}") for name in self.ARRAYS}

    def _word(self, word: str) -> Any:
        """Return a parameter as the constructor would take it again."""
        return getattr(self, word)

    def to_record(self) -> Record:
        """Return the full state as a record."""
        config = {word: self._word(word) for word in self.PARAMS}
        config |= {count.lstrip("_"): getattr(self, count) for count in self.COUNTERS}
        arrays = {name: array.copy() for name, array in self._parts().items()}
        record = Record(type(self).__name__, config, arrays)
        for name in self.CHILDREN:
            put_inside(record, name, getattr(self, name))
        for attribute, kind in self.STATE.items():
            name, value = attribute.lstrip("_"), getattr(self, attribute)
            if kind in _JSON_TYPES:
                record.config[name] = value
            elif value is not None:
                put_inside(record, name, value)
        return record

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """Rebuild an object that goes on where the recorded one stopped, on one build exactly."""
        words = {word: record.word(word) for word in cls.PARAMS}
        words |= {name: record.inner(name) for name in cls.CHILDREN}
        with state_file_errors(record.kind):
            record.check_holds(cls._fewest_numbers(**words))
            restored = cls._construct(**words)
            restored._restore(record)
        return restored

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        return cls(**words)

    def _restore(self, record: Record) -> None:
        for count in self.COUNTERS:
            setattr(self, count, record.count(count.lstrip("_")))
        for name, array in self._parts().items():
            most = np.inf if name in self.UNBOUNDED else LARGEST_NUMBER
            array[...] = record.part(name, array.shape, array.dtype, least=-most, most=most)
        for attribute, kind in self.STATE.items():
            name = attribute.lstrip("_")
            if name in record.config or getattr(self, attribute) is not None:
                setattr(self, attribute, record.inner(name, kind))

    def _shallow(self) -> Self:
        shared = object.__new__(type(self))
        shared.__dict__.update(self.__dict__)
        return shared

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file; `folklearn.load` resumes exactly."""
        write(path, self.to_record())

    def to_bytes(self) -> bytes:
        """Return the content of the file that `save` writes; `folklearn.load` takes it too."""
        return as_bytes(self.to_record())

    def __repr__(self) -> str:
        children = [f"{getattr(self, name)!r}" for name in self.CHILDREN]
        params = [f"{name}={self._word(name)!r}" for name in self.PARAMS]
        return f"{type(self).__name__}({', '.join(children + params)})"


def put_inside(record: Record, name: str, value: Any) -> None:
    """Add an object, or a sequence of them, to a record; `Record.inner` takes it out."""
    record.config[name] = (
        [_nest_record(record, f"{name}{i}", child) for i, child in enumerate(value)]
        if isinstance(value, Sequence)
        else _nest_record(record, name, value)
    )


def _nest_record(record: Record, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Serializable) or type(value).__name__ not in registry.SAVED:
        raise FolklearnError(f"{name}, {value!r}, cannot save itself: only objects of folklearn do")
    inside = value.to_record()
    record.arrays.update({f"{name}.{key}": array for key, array in inside.arrays.items()})
    return {"kind": inside.kind, "config": inside.config}


def revive(record: Record) -> Serializable:
    if record.kind not in registry.SAVED:
        raise StateFileError(f"an unknown kind of object: {record.kind}")
    try:
        return registry.find(record.kind).from_record(record)
    except StateFileError:
        raise
    except _NOT_RESTORED as error:
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
        raise record.error(
            f"cannot be restored ({reason}): it is damaged, or another program wrote it; save it "
            "again"
        ) from None


def load(source: str | os.PathLike[str] | bytes) -> Serializable:
    """Load whatever `save` wrote, from a file or from its content: a learner, a model, evidence."""
    if isinstance(source, bytes):
        return revive(of_bytes(source))
    record = read(source)
    try:
        return revive(record)
    except StateFileError as error:
        raise StateFileError(f"{os.fspath(source)} cannot be loaded: {error}") from None


def write(path: str | os.PathLike[str], record: Record) -> None:
    write_bytes(path, as_bytes(record))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> Record:
    """Read a record, or raise StateFileError saying why the file cannot be used."""
    return of_bytes(Path(path).read_bytes(), os.fspath(path))


def as_bytes(record: Record) -> bytes:
    arrays = {name: np.ascontiguousarray(array) for name, array in record.arrays.items()}
    header: dict[str, Any] = {"version": FORMAT_VERSION, "digest": record.digest}
    header |= {"kind": record.kind, "config": record.config}
    # One metadata entry: safetensors writes several in an order that varies between runs.
    return safetensors.numpy.save(arrays, metadata={"folklearn": _json(header)})


def of_bytes(content: bytes, name: str = "the state") -> Record:
    try:
        arrays = safetensors.numpy.load(content)
    except SafetensorError as error:
        raise StateFileError(
            f"{name} cannot be loaded: it is cut off or damaged, or another program wrote it "
            f"({error}); save it again"
        ) from None
    # What safetensors has just understood: the length of its own header, then that, in JSON.
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    if "folklearn" not in metadata:
        raise StateFileError(f"{name} is a safetensors file, but not one that folklearn wrote")
    try:
        header = json.loads(metadata["folklearn"])
        version = int(header["version"])
        if version > FORMAT_VERSION:
            raise StateFileError(
                f"{name} has format version {version}; this folklearn reads versions up to "
                f"{FORMAT_VERSION}: upgrade folklearn to load it"
            )
        record = Record(header["kind"], header["config"], arrays)
        is_whole = header["digest"] == record.digest
        if version < 1 or not _is_record(header):
            raise ValueError("no header that was ever written")
    except StateFileError:
        raise
    except _NOT_RESTORED:
        raise StateFileError(f"{name} is damaged: its header cannot be read") from None
    if not is_whole:
        raise StateFileError(f"{name} is damaged: its content does not match its digest")
    return record


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, default=np.generic.item)


def generator_state(rng: np.random.Generator) -> Any:
    return json.loads(json.dumps(rng.bit_generator.state, default=lambda array: array.tolist()))


def generator_from(state: Any) -> np.random.Generator:
    """Return a generator in a state that `generator_state` wrote, or raise StateFileError."""
    kind = state.get("bit_generator") if isinstance(state, dict) else None
    if kind not in _BIT_GENERATORS:
        raise StateFileError(f"not the state of a generator: {state!r}")
    bits = getattr(np.random, kind)()
    try:
        bits.state = state
    except _NOT_RESTORED as error:
        raise StateFileError(f"not the state of a generator: {error!r}") from None
    return np.random.Generator(bits)
