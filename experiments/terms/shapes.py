"""Draw the shapes of three streams for the guide.

Run from the root of the repository:  python -m experiments.terms.shapes --data FOLDER
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import folklearn

from ..data import add_folder
from ..options import new_parser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
ROWS = 15_000
NUMBERS = {  # by name, columns that are numbers; the others are left out, but for these indicators
    "electricity": ({"period": 8, "NSW price": 9, "NSW demand": 10}, "day", range(1, 8)),
    "adult": (
        {"age": 0, "education years": 27, "capital gain": 63, "capital loss": 64, "hours": 65},
        "work class", range(1, 10),
    ),
    "covtype": (
        {"elevation": 0, "aspect": 1, "slope": 2, "to water": 3, "to roads": 5, "to fire": 9},
        "area", range(10, 14),
    ),
}  # fmt: skip


def rows_of(name: str, folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows with names, in the order of the stream, and labels."""
    with np.load(folder / f"{name}.npz") as arrays:
        X, y = arrays["X"][:ROWS].astype(float), arrays["classes"][arrays["y"][:ROWS]]
    numbers, category, indicators = NUMBERS[name]
    kinds = X[:, list(indicators)].argmax(axis=1)
    rows = [
        {**{column: float(x[j]) for column, j in numbers.items()}, category: f"no. {kind}"}
        for x, kind in zip(X, kinds.tolist(), strict=True)
    ]
    return rows, [str(label) for label in y]


def main(arguments: list[str] | None = None) -> int:
    parser: argparse.ArgumentParser = new_parser(__doc__, IMAGES)
    add_folder(parser)
    options = parser.parse_args(arguments)
    for name in NUMBERS:
        rows, labels = rows_of(name, options.data)
        model = folklearn.Model()
        model.learn_many(rows, labels)
        explanation = model.explain()
        explanation.plot_shapes(str(options.out / f"shapes-{name}.png"))
        print(f"{name}: {explanation.shapes_of}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
