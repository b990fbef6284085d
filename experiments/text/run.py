"""What a column of text does to a table: one that informs, one that does not, one that is all.

Run from the root of the repository:  python -m experiments.text.run --data FOLDER
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from folklearn import Model
from folklearn.model.encoder import TableEncoder

from ..data import Source, add_folder, found_in, stream
from ..options import new_parser
from ..pool import call_all, progress
from ..provenance import provenance, stated, write_json

RESULTS = Path(__file__).parent / "results"
NAMES = ("adult", "weather", "segment")
TEXTS = ("informs", "does not", "is all")
METHODS = ("columns and text", "columns alone", "text alone", "all hashed")
ROWS, SEEDS = 3000, range(3)
WORDS_OF_CLASS, COMMON_WORDS = 40, 400
SHARE_ON_TOPIC, SHARE_TOLD = 0.25, 0.5  # of the words; of these, those of the own class


def write_texts(y: Any, n_classes: int, informs: bool, rng: np.random.Generator) -> list[str]:
    """Return texts of 4 to 9 words; if they inform, an eighth of the words tell of the class."""
    texts = []
    for label in y:
        words = []
        for _ in range(rng.integers(4, 10)):
            if rng.random() < SHARE_ON_TOPIC:
                told = informs and rng.random() < SHARE_TOLD
                k = label if told else rng.integers(n_classes)
                words.append(f"topic{k}word{rng.integers(WORDS_OF_CLASS)}")
            else:
                words.append(f"word{int(COMMON_WORDS * rng.random() ** 2)}")
        texts.append(" ".join(words))
    return texts


def play(source: Source, text: str, method: str, seed: int) -> dict[str, float]:
    """Return the loss of a run over the rows, the hold-out loss, and the time of a row."""
    X, y, K = (lambda s: (s.X, s.y, s.K))(stream(source, seed))
    rng = np.random.default_rng(seed)
    if text == "is all":
        X = X[rng.permutation(len(X))]
    names = [f"c{j}" for j in range(X.shape[1])] if method != "text alone" else []
    rows: list[dict[str, Any]] = [dict(zip(names, x.tolist(), strict=False)) for x in X]
    roles = dict.fromkeys(names, "number")
    if method != "columns alone":
        roles["note"] = "words"
        for row, note in zip(rows, write_texts(y, K, text != "does not", rng), strict=True):
            row["note"] = note
    model = Model(roles=roles, classes=list(range(K)))
    if method == "all hashed":  # as it was in 0.3: every column is sparse
        model.encoder = TableEncoder(roles, sparse=True)
    start = perf_counter()
    model.learn_many(rows, y.tolist())
    seconds = perf_counter() - start
    losses = {"loss": model.metrics.average_loss, "hold-out": model.metrics.holdout_loss}
    return losses | {"us": 1e6 * seconds / len(rows)}


def report(origin: dict[str, Any], tables: list[dict[str, Any]]) -> str:
    """Return the table of losses."""
    lines = [
        "# Text beside other columns", "", stated(origin), "",
        f"Log loss a row, progressive, mean of {len(origin['seeds'])} seeds, in brackets the "
        "hold-out loss; beside it the microseconds of a row.", "",
        f"| table | the text | {' | '.join(METHODS)} | to the better one |",
        f"|---|---|{'---|' * len(METHODS)}---|",
    ]  # fmt: skip
    for table in tables:
        cells = [
            "{loss:.4f} ({hold-out:.3f}) {us:.0f}".format(**table["methods"][method])
            for method in METHODS
        ]
        lines.append(
            f"| {table['name']} | {table['text']} | {' | '.join(cells)} | {table['excess']:+.4f} |"
        )
    worst = max(table["largest_excess"] for table in tables)
    return "\n".join([*lines, "", f"Largest excess of any seed: {worst:+.4f}.", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = new_parser(__doc__, RESULTS)
    add_folder(parser)
    parser.add_argument("--quick", action="store_true", help="a short synthetic table")
    options = parser.parse_args(arguments)
    seeds = [*SEEDS][: 1 if options.quick else None]
    sources = [Source("synthetic-3", None, 300)]
    if not options.quick:
        sources = [Source(name, options.data, ROWS) for name in found_in(options.data, NAMES)]
    play(replace(sources[0], most_rows=100), TEXTS[0], METHODS[0], 0)  # compiles
    with progress() as bar:
        played = call_all(
            options.jobs if not options.quick else 1, bar, "texts",
            {(source, text, method, seed): (play, (source, text, method, seed))
             for source in sources for text in TEXTS for seed in seeds for method in METHODS},
        )  # fmt: skip
    tables = []
    for source in sources:
        for text in TEXTS:
            runs = {m: [played[source, text, m, seed] for seed in seeds] for m in METHODS}
            means = {
                m: {what: float(np.mean([run[what] for run in found])) for what in found[0]}
                for m, found in runs.items()
            }
            losses = np.array([[run["loss"] for run in runs[m]] for m in METHODS])
            excess = losses[0] - losses[1:3].min(axis=0)
            tables.append({
                "name": source.name, "text": text, "methods": means,
                "excess": float(excess.mean()), "largest_excess": float(excess.max()),
            })  # fmt: skip
    sizes = {source.name: len(stream(source, 0).y) for source in sources}
    origin = provenance("experiments.text.run", arguments, seeds=seeds, sizes=sizes)
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "text.json", {"provenance": origin, "tables": tables})
    (options.out / "text.md").write_text(report(origin, tables))
    print((options.out / "text.md").read_text())


if __name__ == "__main__":
    main()
