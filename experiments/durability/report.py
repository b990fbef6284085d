"""The table of what `make torture` found, from the files that it wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.provenance import stated

RESULTS = Path(__file__).parent / "results"
GOOD = "0 lost, 0 learned twice, the same bytes"  # else the run had ended there
KILLED = "any SIGKILL"
Found = dict[str, Any]
Row = tuple[str, str, str]


def _killed(found: Found) -> list[Row]:
    deaths = ", ".join(f"{where} {n}" for where, n in found["deaths"].items())
    return [
        (
            "kill −9, with two worker processes" if "worker" in found["deaths"] else "kill −9",
            f"{found['lives']:,} lives, {found['answers']:,} answers; died at: {deaths}",
            GOOD,
        )
    ]


def _forgotten(found: Found) -> list[Row]:
    deaths = ", ".join(f"{where} {n}" for where, n in found["deaths"].items())
    how = f"{sum(found['deaths'].values())} deaths, at: {deaths}"
    return [("kill −9 while old events go and people are erased", how, f"{GOOD}, 0 rows left")]


def _lived(found: Found) -> list[Row]:
    """Compare the second month with the last whole one."""
    early, late, end = found["months"][1], found["months"][-2], found["months"][-1]
    how = (
        f"{end['days']} days on a clock that is moved, {end['labels']:,} labels, keep-days 30, a "
        f"backup every week, a person erased every month ({end['erased']} rows)"
    )
    sizes = [
        f"day {one['days']}: {one['folder_bytes'] / 1e6:.1f} MB in the folder, "
        f"{one['journal_rows']:,} events, {one['resident'] / 1e6:.0f} MB resident"
        for one in (early, late)
    ]
    return [("a year", how, "; ".join([*sizes, "a replay gives the same bytes"]))]


def _cut(found: Found) -> list[Row]:
    return [
        (
            f"power cut, synchronous={name}",
            f"{own['cuts']} cuts, {own['acknowledged']:,} acknowledgements looked for",
            f"{own['lost']:,} lost, in {own['cuts_that_lost']} cuts",
        )
        for name, own in sorted(found.items())
    ]


def _failed(found: Found) -> list[Row]:
    calls = {what: n for what, n in found.items() if what != KILLED}
    listed = ", ".join(f"{what} {n}" for what, n in calls.items())
    rows = [("a call fails, the n-th of its kind", f"{sum(calls.values())}: {listed}", GOOD)]
    if KILLED in found:
        rows.append(("kill −9 at a call, the n-th", f"{found[KILLED]}", GOOD))
    return rows


def _damaged(found: Found) -> list[Row]:
    rows = []
    for how, ends in found.items():
        by_file: dict[str, list[str]] = {}
        for words, n in ends.items():
            file, damage, end = words.split(", ")
            by_file.setdefault(f"{damage} in {file}", []).append(f"{n:,} {end}")
        for what, said in sorted(by_file.items()):
            rows.append((f"{what} of a folder that was {how}", "; ".join(said), "0 another model"))
    return rows


def _ordered(found: Found) -> list[Row]:
    return [("requests in any order", f"{found['sequences']:,} sequences", "the reference")]


def _copied(found: Found) -> list[Row]:
    how = (
        f"{found['copies']} copies of a journal of {found['bytes'] / 1e6:.1f} MB, while three "
        f"clients got {found['answers']:,} answers"
    )
    return [("backup", how, "every page and row of every copy read, 0 refused")]


_ATTACKS = {
    "words": "batches of 40,000 new words to one model",
    "labels": "labels of 0.9 MB, and long answers that 30 clients do not read",
    "everything": "words, columns, categories, classes, garbage, from two clients",
}


def _grown(found: Found) -> list[Row]:
    rows = []
    for name, one in found.items():
        ends = "; ".join(f"{n} × {end}" for end, n in one["answers"].items())
        sizes = [one[what] / 1e9 for what in ("most_resident", "resident_after_restart")]
        outcome = f"at most {sizes[0]:.2f} GB resident, {sizes[1]:.2f} GB after a restart"
        rows.append((f"6 GB of address space: {_ATTACKS[name]}", ends, outcome))
    return rows


def _drawn(found: Found) -> list[Row]:
    how = f"{found['cases']:,} requests in {found['seconds']} s"
    if "hostile" in found:
        ends = ", ".join(f"{n:,} × {status}" for status, n in found["hostile"].items())
        how += f", beside two hostile clients ({ends}), in 6 GB of address space"
    outcome = "no server error but 503, the same bytes"
    return [("requests drawn from the OpenAPI document", how, outcome)]


_ROWS: dict[str, Callable[[Found], list[Row]]] = {
    "kill": _killed,
    "workers": _killed,
    "forget": _forgotten,
    "year": _lived,
    "power": _cut,
    "failing": _failed,
    "damage": _damaged,
    "order": _ordered,
    "backups": _copied,
    "growth": _grown,
    "requests": _drawn,
}


def write_report() -> None:
    """Write the table of all parts that have been run."""
    lines = ["# What the service survived", "", "| test | how often | outcome |", "|---|---|---|"]
    origins = []
    for part, rows in _ROWS.items():
        path = RESULTS / f"{part}.json"
        if not path.exists():
            continue
        content = json.loads(path.read_text())
        found = content["found"]
        if "skipped" in found:
            lines.append(f"| {part} | not run: {found['skipped']} | |")
        else:
            lines += [f"| {' | '.join(row)} |" for row in rows(found)]
        libraries = content["provenance"]["libraries"]
        sqlite = content["provenance"]["sizes"]["sqlite"]
        origins.append(
            f"- {stated(content['provenance'])}; Python {content['provenance']['python']}, "
            f"SQLite {sqlite}, apsw {libraries['apsw']}"
        )
    text = "\n".join([*lines, "", *origins])
    (RESULTS / "durability.md").write_text(text + "\n")


if __name__ == "__main__":
    write_report()
