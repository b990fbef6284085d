"""Versioned state files: named arrays and a JSON header in one safetensors file.

No pickle: reading a file runs no code from it. The header carries the format version, the
kind of object, its configuration and a digest of everything, so that a damaged file is
refused instead of half understood.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from folklearn.errors import StateFileError

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Record:
    """What a file holds: the kind of object, its JSON configuration, its arrays."""

    kind: str
    config: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def part(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float64
    ) -> NDArray[Any]:
        """Return an array of the state, or raise StateFileError if it is not as expected."""
        array = self.arrays.get(name)
        if array is None or array.shape != shape or array.dtype != dtype:
            article = "an" if self.kind[0] in "AEIO" or self.kind.isupper() else "a"
            raise StateFileError(
                f"{article} {self.kind} state needs {np.dtype(dtype)} {name} of shape {shape}"
            )
        return array


def nest(name: str, record: Record) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a record as an entry of another's configuration, and its arrays under `name`."""
    entry = {"kind": record.kind, "config": record.config}
    return entry, {f"{name}.{part}": array for part, array in record.arrays.items()}


def unnest(name: str, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Record:
    """Return the record that `nest` took apart; KeyError or TypeError if it is none."""
    prefix = f"{name}."
    own = {
        part.removeprefix(prefix): array
        for part, array in arrays.items()
        if part.startswith(prefix)
    }
    return Record(entry["kind"], entry["config"], own)


def write(path: str | os.PathLike[str], record: Record) -> None:
    """Write a record; the file appears whole or not at all."""
    target = Path(path)
    arrays = {name: np.ascontiguousarray(array) for name, array in record.arrays.items()}
    header = {
        "version": FORMAT_VERSION,
        "kind": record.kind,
        "config": record.config,
        "digest": _digest(record.kind, record.config, arrays),
    }
    # One metadata entry: safetensors writes several in an order that varies between runs.
    metadata = {"folklearn": json.dumps(header, sort_keys=True, allow_nan=False)}
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        save_file(arrays, temporary, metadata=metadata)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> Record:
    """Read a record, or raise StateFileError saying why the file cannot be used."""
    name = os.fspath(path)
    if os.path.isdir(name):
        raise StateFileError(f"{name} is a folder, not a state file")
    if not os.path.exists(name):
        raise FileNotFoundError(f"there is no file {name}")
    try:
        with safe_open(name, framework="numpy") as file:
            header = _header(name, file.metadata() or {})
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise StateFileError(
            f"{name} is not a complete folklearn state file ({error}); it may be truncated, "
            "or written by another program"
        ) from None
    if header["digest"] != _digest(header["kind"], header["config"], arrays):
        raise StateFileError(f"{name} is damaged: its content does not match its digest")
    return Record(header["kind"], header["config"], arrays)


def _header(name: str, metadata: Mapping[str, str]) -> dict[str, Any]:
    if "folklearn" not in metadata:
        raise StateFileError(f"{name} is a safetensors file, but not one that folklearn wrote")
    try:
        header: dict[str, Any] = json.loads(metadata["folklearn"])
        version = int(header["version"])
    except (ValueError, TypeError, KeyError):
        raise StateFileError(f"{name} is damaged: its header cannot be read") from None
    if version < 1:
        raise StateFileError(f"{name} is damaged: format version {version} does not exist")
    if version > FORMAT_VERSION:
        raise StateFileError(
            f"{name} has format version {version}; this folklearn reads versions up to "
            f"{FORMAT_VERSION}: upgrade folklearn to load it"
        )
    if not {"kind", "config", "digest"} <= header.keys():
        raise StateFileError(f"{name} is damaged: its header is incomplete")
    return header


def _digest(kind: str, config: Any, arrays: Mapping[str, NDArray[Any]]) -> str:
    content = hashlib.blake2b(digest_size=16)
    content.update(json.dumps([kind, config], sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        content.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        content.update(array.reshape(-1).view(np.uint8).data)
    return content.hexdigest()
