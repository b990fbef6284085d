"""Does a model of curves and products of columns predict better than trees, on line?

Run from the root of the repository:  python -m experiments.terms.run --data FOLDER --cache FOLDER
"""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from river.datasets import Bananas
from threadpoolctl import threadpool_limits

from ..data import NAMES, Labels, Rows, Source, _raw, add_folder, found_in
from ..options import new_parser
from ..provenance import provenance, stated, version, write_json
from .methods import CHUNK_ROWS, DEFAULTS, FIRST_FIT, FLOOR, GRID, GROWTH, METHODS, OURS
from .report import collect, musts, stream_name, tables

RESULTS = Path(__file__).parent / "results"
ROWS = 20_000
SEEDS = (0, 1, 2)
WHOLE = ("electricity", "adult", "covtype")  # also at full length
REPEATED = (*OURS, "lightgbm", DEFAULTS)  # the methods that get every seed, and whole streams
MOST_SECONDS = 1500.0  # of CPU, for one method on one stream
WARM_UP_ROWS = 2048  # of a `Model`, before the clock runs
SMALLEST = 1e-300  # probability that is scored

Task = tuple[Source, int, str]  # with a seed and a method


def raw_rows(source: Source, seed: int) -> tuple[Rows, Labels, int]:
    """Return X as it is, y and K, shuffled with the seed unless rows have an order, and cut."""
    X, y, K = _bananas() if source.name == "bananas" else _raw(source)
    if not source.in_order:
        order = np.random.default_rng(seed).permutation(len(X))
        X, y = X[order], y[order]
    return X[: source.most_rows].astype(float), y[: source.most_rows], K


def _bananas() -> tuple[Rows, Labels, int]:
    rows = [(list(x.values()), int(label)) for x, label in Bananas()]
    return np.array([x for x, _ in rows]), np.array([label for _, label in rows]), 2


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError within the block once it has used so many seconds of CPU."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 10.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def measure(source: Source, seed: int, method: str) -> dict[str, Any]:
    """Return what one method loses on one stream, or why it has no result."""
    X, y, K = raw_rows(source, seed)
    play, what = METHODS[method], {"rows": len(X), "columns": X.shape[1], "classes": K}
    try:
        with threadpool_limits(1), limited(MOST_SECONDS):
            if method in OURS:
                play(X[:WARM_UP_ROWS], y[:WARM_UP_ROWS], K, seed)
            began = time.process_time()
            P = play(X, y, K, seed)
            seconds = time.process_time() - began
    except TimeoutError:
        return {**what, "failed": f"more than {MOST_SECONDS:,.0f} s"}
    except MemoryError:
        return {**what, "failed": "not enough memory"}
    losses = -np.log(np.maximum(P[np.arange(len(y)), y], SMALLEST))
    return {
        **what,
        "log_loss": float(losses.mean()),
        "error": float((P.argmax(axis=1) != y).mean()),
        "microseconds_a_row": 1e6 * seconds / len(X),
    }


def planned(folder: Path | None, seeds: tuple[int, ...]) -> list[Task]:
    """Return all that is to be measured: the first seed, the other seeds, the whole streams."""
    streams = [Source(name, folder, ROWS) for name in found_in(folder, NAMES)]
    cut = [*streams, Source("bananas", None, ROWS)]
    first = [(source, seeds[0], method) for method in METHODS for source in cut]
    others = [
        (source, seed, method)
        for method in REPEATED for seed in seeds[1:] for source in cut
        if seed in source.seeds(seeds)
    ]  # fmt: skip
    whole = [
        (Source(one.name, folder, None), seed, method)
        for seed in seeds for method in REPEATED for one in streams
        if one.name in WHOLE and seed in one.seeds(seeds)
    ]  # fmt: skip
    return first + others + whole


def kept_at(cache: Path, task: Task) -> Path:
    source, seed, method = task
    return cache / f"{source.name}-{source.most_rows or 'all'}-{seed}-{method}.json"


def recorded(path: Path, tasks: list[Task]) -> dict[Task, dict[str, Any]]:
    """Return what an earlier terms.json has of the tasks."""
    streams = json.loads(path.read_text())["streams"] if path.exists() else {}
    results = {
        (name, int(seed), method): {**stream, **result}
        for name, stream in streams.items()
        for method, by_seed in stream.pop("methods").items() for seed, result in by_seed.items()
    }  # fmt: skip
    names = {task: (stream_name(task[0]), *task[1:]) for task in tasks}
    return {task: results[name] for task, name in names.items() if name in results}


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)  # its --jobs is not used: times are measured
    add_folder(parser)
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="of results so far")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--missing", action="store_true", help="only what terms.json lacks")
    parser.add_argument("--summary", action="store_true", help="measure nothing")
    parser.add_argument("--quick", action="store_true", help="a small synthetic stream, no data")
    options = parser.parse_args(arguments)
    seeds, code = SEEDS[:1] if options.quick else SEEDS, version()
    with tempfile.TemporaryDirectory() as passing:
        cache = options.cache or Path(passing)
        cache.mkdir(parents=True, exist_ok=True)
        if options.quick:
            tasks = [(Source("synthetic-3", None, 300), seeds[0], method) for method in METHODS]
        else:
            tasks = planned(options.data, seeds)
        earlier = recorded(options.out / "terms.json", tasks)
        for task in tasks:
            known = kept_at(cache, task).exists() or (options.missing and task in earlier)
            if options.summary or task[2] not in options.methods or known:
                continue
            result = {**measure(*task), **code}
            write_json(kept_at(cache, task), result)
            print(kept_at(cache, task).stem, *map(str, result.values()), file=sys.stderr)
        fresh = {
            task: json.loads(kept_at(cache, task).read_text())
            for task in tasks if kept_at(cache, task).exists()
        }  # fmt: skip
    both = earlier | fresh
    found = {task: both[task] for task in tasks if task in both}
    results = collect(found)
    origin = provenance(
        "experiments.terms.run", arguments, seeds=seeds, libraries=("lightgbm", "river"),
        sizes={
            "rows": ROWS, "chunk": CHUNK_ROWS, "floor": FLOOR, "first_fit": FIRST_FIT,
            "growth": GROWTH, "grid": len(GRID), "most_seconds": MOST_SECONDS,
        },
    )  # fmt: skip
    held = musts(results)
    options.out.mkdir(exist_ok=True)
    write_json(
        options.out / "terms.json", {"provenance": origin, "musts": held, "streams": results}
    )
    text = f"# Curves and products beside trees\n\n{stated(origin)}.\n\n{tables(results, held)}\n"
    (options.out / "terms.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
