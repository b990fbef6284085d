"""Versioned state files: named arrays and a JSON header in one safetensors file.

No pickle: reading a file runs no code from it. The header carries the format version, the
kind of object, its configuration and a digest of everything, so that a damaged file is
refused instead of half understood.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
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


def write(path: str | os.PathLike[str], record: Record) -> None:
    """Write a record; the file appears whole or not at all."""
    target = Path(path)
    arrays = {name: np.ascontiguousarray(array) for name, array in record.arrays.items()}
    config = json.dumps(record.config, sort_keys=True, allow_nan=False)
    header = {
        "folklearn": str(FORMAT_VERSION),
        "kind": record.kind,
        "config": config,
        "digest": _digest(record.kind, config, arrays),
    }
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    try:
        save_file(arrays, temporary, metadata=header)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: str | os.PathLike[str]) -> Record:
    """Read a record, or raise StateFileError saying why the file cannot be used."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise FileNotFoundError(f"there is no file {name}")
    try:
        with safe_open(name, framework="numpy") as file:
            header = file.metadata() or {}
            if "folklearn" not in header:
                raise StateFileError(
                    f"{name} is a safetensors file, but not one that folklearn wrote"
                )
            _check_version(name, header["folklearn"])
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise StateFileError(
            f"{name} is not a complete folklearn state file ({error}); it may be truncated, "
            "or written by another program"
        ) from None
    kind, config = header.get("kind", ""), header.get("config", "")
    if header.get("digest") != _digest(kind, config, arrays):
        raise StateFileError(f"{name} is damaged: its content does not match its digest")
    return Record(kind, json.loads(config), arrays)


def _check_version(name: str, version: str) -> None:
    if not version.isdecimal() or int(version) > FORMAT_VERSION:
        raise StateFileError(
            f"{name} has format version {version}; this folklearn reads versions up to "
            f"{FORMAT_VERSION}: upgrade folklearn to load it"
        )


def _digest(kind: str, config: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    content = hashlib.blake2b(digest_size=16)
    content.update(json.dumps([kind, config]).encode())
    for name in sorted(arrays):
        array = arrays[name]
        content.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        content.update(memoryview(array).cast("B") if array.size else b"")
    return content.hexdigest()
