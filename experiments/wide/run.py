"""Wide rows and many classes: hashed text, a long file, 2,000 classes, sparse fits.

Run from the root of the repository:  python -m experiments.wide.run --data FOLDER
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from threadpoolctl import threadpool_limits

from ..data import add_folder
from ..provenance import provenance, stated, write_json
from . import banking, classes, fit, zipf
from .common import Found

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, Any] = {"banking": banking, "zipf": zipf, "classes": classes, "fit": fit}


def measurements(options: argparse.Namespace) -> dict[str, tuple[Callable[..., Any], Found]]:
    """Return for each part how to call it, and its sizes."""
    quick = options.quick
    return {
        "banking": (lambda: banking.measure(options.data, quick), banking.sizes(quick)),
        "zipf": (lambda: zipf.measure(options.rows, quick), zipf.sizes(quick, options.rows)),
        "classes": (lambda: classes.measure(quick), classes.sizes(quick)),
        "fit": (lambda: fit.measure(quick), fit.sizes(quick)),
    }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_folder(parser)
    parser.add_argument("--only", choices=PARTS, metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--rows", type=int, default=zipf.ROWS, help="of the file of part zipf")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, no data")
    return parser.parse_args(arguments)


def write(folder: Path, name: str, origin: Found, found: Found) -> None:
    """Write PART.json and PART.md."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", {"provenance": origin, name: found})
    head = f"{stated(origin)}; {origin['wall_s']:.0f} seconds, one thread."
    parts = [f"# {PARTS[name].TITLE}", head, PARTS[name].table(found)]
    (folder / f"{name}.md").write_text("\n\n".join(parts) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    for name, (measure, sizes) in measurements(options).items():
        if options.only not in (None, name):
            continue
        start = perf_counter()
        with threadpool_limits(1):
            found = measure()
        if found is None:
            continue
        origin = provenance(
            "experiments.wide.run", arguments, seeds=[0], sizes=sizes, libraries=["vowpalwabbit"]
        )
        origin["wall_s"] = perf_counter() - start
        write(options.out, name, origin, found)  # each as soon as it is there
        print((options.out / f"{name}.md").read_text())


if __name__ == "__main__":
    main()
