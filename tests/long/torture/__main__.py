"""What `make test` does to the service in small, at length: `make torture`.

``python -m tests.long.torture [PART ...]`` runs all parts, or some, and writes what was found so
far after every step, so that a run that is stopped has its true numbers.
"""

import errno
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
from hypothesis import HealthCheck

from experiments.durability.report import RESULTS, write_report
from experiments.provenance import provenance, write_json
from tests.service import (
    lives,
    test_damage,
    test_failing_io,
    test_kill,
    test_power_cut,
    test_retention,
)
from tests.service import test_state_machine as order_of_requests
from tests.service.attacks import (
    MOST_RESIDENT,
    Hostile,
    flood_with_labels,
    flood_with_words,
    grow_in_every_way,
    serving,
)
from tests.service.backups import copies_of_a_live_folder
from tests.service.fuzz import fuzz
from tests.service.running import Running
from tests.service.years import live_through

Found = dict[str, Any]


def kill(n_workers: int = 0) -> Iterator[Found]:
    """Kill a service a thousand times, in twenty folders."""
    ends: Counter[str] = Counter()
    for seed in range(20):
        with lives.scratch() as place:
            ends += test_kill.live_and_die(Path(place), 50, seed, n_workers)
        answers = ends["answers"]
        deaths = {where: n for where, n in sorted(ends.items()) if where != "answers"}
        yield {"lives": sum(deaths.values()), "answers": answers, "deaths": deaths}


def workers() -> Iterator[Found]:
    """Kill a service with worker processes, and its workers, a thousand times."""
    return kill(2)


def forget() -> Iterator[Found]:
    """Kill two hundred times a folder that removes what is old, and forgets people."""
    deaths: Counter[str] = Counter()
    for seed in range(6):
        for where in lives.FORGETTING:
            with lives.scratch() as place:
                folder = Path(place) / "folder"
                deaths[where] += test_retention.forget_and_die(folder, where, seed, n_deaths=5)
        yield {"deaths": dict(deaths)}


def year() -> Iterator[Found]:
    """Serve a year and a million labels on a clock that is moved, with one month to keep."""
    months: list[Found] = []
    with lives.scratch() as place:
        for month in live_through(Path(place), 365, 2_740):
            months.append(month)
            yield {"months": months}


def power() -> Iterator[Found]:
    """Cut the power a hundred times, and ten times each under those that do not wait."""
    why_not = test_power_cut.unable()
    if why_not is not None:
        yield {"skipped": why_not}
        return
    found: Found = {}
    for synchronous, rounds in (("NORMAL", 1), ("OFF", 1), ("FULL", 10)):
        for seed in range(rounds):
            with lives.scratch() as place:
                cuts = test_power_cut.cut(Path(place), 10, synchronous, seed)
            own = found.setdefault(
                synchronous, {"cuts": 0, "cuts_that_lost": 0, "acknowledged": 0, "lost": 0}
            )
            own["cuts"] += len(cuts)
            own["cuts_that_lost"] += sum(one.lost > 0 for one in cuts)
            own["acknowledged"] += sum(one.acknowledged for one in cuts)
            own["lost"] += sum(one.lost for one in cuts)
            yield found


def failing() -> Iterator[Found]:
    """Let every call fail, the first, the second, ... until none is left; the same with kill -9."""
    if lives.faults_library() is None:
        yield {"skipped": "there is no C compiler"}
        return
    found: Found = {}
    errors = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
    faults = [(call, *pair) for call in test_failing_io.CALLS for pair in errors.items()]
    for call, name, error in [*faults, ("any", "SIGKILL", 0)]:
        for n in itertools.count(1):
            with lives.scratch() as place:
                came = test_failing_io.trial(Path(place), lives.Fault(call, n, error))
            if not came:
                break
            found[f"{call} {name}"] = n
        yield found


def damage() -> Iterator[Found]:
    """Damage every 512th byte of every file of a folder, after a kill and after a clean end."""
    found: Found = {}
    for how in ("killed", "closed"):
        with lives.scratch() as place:
            was, ends = test_damage.served(Path(place), how), Counter[tuple[str, ...]]()
            for start in range(0, len(was.places), 50):
                places = was.places[start : start + 50]
                ends += test_damage.outcomes(was, Path(place), places)
                found[how] = {", ".join(words): n for words, n in sorted(ends.items())}
                yield found


def order() -> Iterator[Found]:
    """Five thousand sequences of requests beside the reference, others every time."""
    for n in range(20):
        order_of_requests.run(
            250,
            deadline=None,
            derandomize=False,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        )
        yield {"sequences": 250 * (n + 1)}


def backups() -> Iterator[Found]:
    """Back up a folder above 10 MB three hundred times, while three clients write."""
    with lives.scratch() as place:
        yield from copies_of_a_live_folder(Path(place), 300, 10_000_000)


def growth() -> Iterator[Found]:
    """Attack the memory of `folklearn serve`, which has 6 GB of address space."""
    attacks = {
        "words": lambda service: flood_with_words(service, 40),
        "labels": lambda service: flood_with_labels(service, 30),
        "everything": lambda service: grow_in_every_way(service, 120),
    }
    found: Found = {}
    for name, attack in attacks.items():
        with lives.scratch() as place:
            folder = Path(place) / "folder"
            with serving(folder) as service:
                found[name], key = attack(service), service.key
                rows = _rows_learned(service)
            with serving(folder, key) as service:  # what was learned is there, and can be asked
                assert _rows_learned(service) == rows
                found[name]["resident_after_restart"] = service.resident
        yield found


def _rows_learned(service: Running) -> dict[str, int]:
    models = service.ask("GET", "/v1/models").body["models"]
    return {one["name"]: one["rows"] for one in models}


def requests() -> Iterator[Found]:
    """Send requests drawn from the OpenAPI document for ten minutes, beside hostile clients."""
    seconds, clients = 600, []
    found: Found = {"seconds": seconds}

    @contextmanager
    def attacked(folder: Path) -> Iterator[Running]:
        with serving(folder) as service:
            with Hostile(service, 0) as one, Hostile(service, 1) as other:
                clients.extend([one, other])
                yield service
            found["most_resident"] = service.most_resident

    with lives.scratch() as place:
        done = fuzz(Path(place), seconds, attacked)
    assert done.returncode == 0, done.stdout[-3000:]
    (cases,) = re.findall(r"([\d,]+) generated", done.stdout)
    statuses = sum((one.statuses for one in clients), Counter[int]())
    assert not [error for one in clients for error in one.errors]
    assert all(status < 500 or status == 503 for status in statuses), statuses
    assert found["most_resident"] < MOST_RESIDENT
    hostile = {str(status): n for status, n in sorted(statuses.items())}
    yield {**found, "cases": int(cases.replace(",", "")), "hostile": hostile}


PARTS: dict[str, Callable[[], Iterator[Found]]] = {
    "kill": kill,
    "workers": workers,
    "forget": forget,
    "year": year,
    "power": power,
    "failing": failing,
    "damage": damage,
    "order": order,
    "backups": backups,
    "growth": growth,
    "requests": requests,
}


def torture(parts: list[str]) -> None:
    """Run parts, and write what they find as they go."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for part in parts:
        origin = provenance(
            "tests.long.torture",
            [part],
            seeds=[],
            sizes={"sqlite": apsw.sqlite_lib_version()},
            libraries=("apsw", "uvicorn", "starlette", "msgspec", "hypothesis"),
        )
        print(part, (PARTS[part].__doc__ or "").partition(".")[0], flush=True)
        for found in PARTS[part]():
            write_json(RESULTS / f"{part}.json", {"provenance": origin, "found": found})
            print("  ", found, flush=True)
        write_report()


if __name__ == "__main__":
    torture(sys.argv[1:] or list(PARTS))
