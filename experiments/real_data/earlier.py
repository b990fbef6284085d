"""Peers that an earlier run has tuned: that takes long, and neither they nor the streams change.

That the streams are the same is checked: every tuned peer plays each of them again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Source, stream
from .play import VARIANTS, Key

TOLERANCE = 1e-9  # of a mean loss; a replica differs from its library by rounding


@dataclass(frozen=True)
class Peers:
    """The peers of one data set: what is reported of each family, its choice, all tuning."""

    entries: dict[str, dict[str, Any]]
    chosen: dict[str, tuple[Key, float]]
    tuning: list[dict[str, Any]]


def origin(file: Path) -> dict[str, Any]:
    """Return which run tuned the peers of a file. Their losses and times are of the present one."""
    found: dict[str, Any] = json.loads(file.read_text())["provenance"]
    if "peers" in found:  # that run had taken them over itself
        return dict(found["peers"])
    return {
        "command": found["command"], "tuned_at": found["commit"], "libraries": found["libraries"]
    }  # fmt: skip


def read(file: Path, source: Source, seeds: tuple[int, ...]) -> Peers:
    """Return the tuned peers of a data set, if they were tuned for these streams."""
    content = json.loads(file.read_text())
    entry = content["data_sets"].get(source.name)
    one = stream(source, seeds[0])
    sizes = {"rows": len(one.y), "d": one.d, "K": one.K}
    if entry is None or any(entry[size] != value for size, value in sizes.items()):
        raise SystemExit(f"{file} has no peers tuned on {source.name} with {sizes}")
    if tuple(content["provenance"]["seeds"]) != seeds:
        raise SystemExit(
            f"the peers of {file} were tuned on seeds {content['provenance']['seeds']}"
        )
    chosen = {family: _choice(family, peer, entry) for family, peer in entry["peers"].items()}
    return Peers(entry["peers"], chosen, entry["tuning"])


def _choice(family: str, peer: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[Key, float]:
    """Return the variant and the number that stand behind a setting."""
    for key, variant in VARIANTS.items():
        for curve in entry["tuning"]:
            if key[0] == family and curve["variant"] == " ".join(key):
                value = curve["values"][int(np.argmin(curve["mean_losses"]))]
                if variant.setting(value) == peer["setting"]:
                    return key, value
    raise SystemExit(f"no variant of {family} is set {peer['setting']!r}")


def refuse_unless_same(
    source: Source,
    seeds: tuple[int, ...],
    peers: Peers,
    again: Mapping[tuple[Any, ...], float],
) -> None:
    """Raise if a peer loses something else than it did: then the streams are not the same."""
    for family, entry in peers.entries.items():
        for seed, before in zip(seeds, entry["losses"], strict=True):
            now = again[source.name, family, seed]
            if abs(now - before) > TOLERANCE:
                raise SystemExit(
                    f"{family} ({entry['setting']}) lost {before} on {source.name}, seed {seed}, "
                    f"and loses {now} now: tune the peers again"
                )
