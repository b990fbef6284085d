"""A text file of a million rows, read and learned: words by Zipf's law, ten classes."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

from folklearn import auto
from folklearn.readers import open_reader
from folklearn.sparse import SparseRows

from . import vw
from .common import (
    Found,
    Labels,
    Timed,
    certified,
    lines,
    megabytes,
    peak_memory,
    scores,
)

TITLE = "A file of Zipf's words"
ROWS, QUICK_ROWS = 1_000_000, 2_000
SEED, WORDS, EXPONENT, LENGTH, K = 0, 50_000, 1.1, 50, 10
WIDTH = 2**vw.BITS  # of VW's table, and so of ours
SPREAD = 0.3  # deviation of the weights of words
BLOCK = 20_000  # rows that are drawn at a time


def sizes(quick: bool, rows: int = ROWS) -> Found:
    """Return what the provenance says of this part."""
    return {"rows": QUICK_ROWS if quick else rows, "words": WORDS, "length": LENGTH, "K": K}


def law(n: int) -> Any:
    """Return the cumulative probabilities (n,) of words."""
    p = np.arange(1, n + 1) ** -EXPONENT
    return np.cumsum(p / p.sum())


def blocks(n_rows: int) -> Iterator[tuple[Any, Labels]]:
    """Yield counts of words, csr, and labels drawn from a softmax of their summed weights."""
    rng = np.random.default_rng(SEED)
    W = SPREAD * rng.normal(size=(WORDS, K))
    steps = law(WORDS)
    for start in range(0, n_rows, BLOCK):
        T = min(BLOCK, n_rows - start)
        drawn = np.minimum(np.searchsorted(steps, rng.random(T * LENGTH)), WORDS - 1)
        counts = (np.ones(T * LENGTH), drawn, np.arange(T + 1) * LENGTH)
        X = csr_array(counts, shape=(T, WORDS))
        X.sum_duplicates()
        yield X, np.argmax(X @ W + rng.gumbel(size=(T, K)), axis=1)


def write(n_rows: int, raw: Path, scaled: Path) -> None:
    """Write the rows twice as VW reads them: counts, and rows of norm 1."""
    with raw.open("w") as counts, scaled.open("w") as unit:
        for X, y in blocks(n_rows):
            counts.writelines(line + "\n" for line in vw.text(X, y, ".0f"))
            unit.writelines(line + "\n" for line in vw.text(normalize(X), y, ".6g"))


def read(file: Path) -> Iterator[tuple[Any, Labels]]:
    """Yield rows of norm 1 and labels of a file of VW's, whose features are numbers."""
    for block in open_reader(file, format="vw").read({"label": "text"}):
        own = block.features.compact()
        X = SparseRows(own.indptr, (own.indices % WIDTH).astype(np.int32), own.values, WIDTH)
        labels = np.array(block.columns["label"].to_list()).astype(np.int64)
        yield normalize(X.array(), copy=False), labels - 1


def measure(n_rows: int = ROWS, quick: bool = False) -> Found:
    """Write the file, let VW's command line learn it, then learn it."""
    n_rows = QUICK_ROWS if quick else n_rows
    _compile()
    with TemporaryDirectory() as folder:
        raw, scaled = Path(folder, "raw.txt"), Path(folder, "scaled.txt")
        with Timed() as writing:
            write(n_rows, raw, scaled)
        found: Found = {
            "rows": n_rows,
            "file_bytes": raw.stat().st_size,
            "write_seconds": writing.seconds,
            "vw": vw.command_line(K, raw),
            "ours": _ours(raw),
            "vw, norm 1": vw.command_line(K, scaled),
        }
    for player in ("vw", "ours", "vw, norm 1"):
        found[player]["rows_a_second"] = n_rows / found[player]["seconds"]
    return found


def _compile() -> None:
    """Compile, which is not to be timed."""
    with TemporaryDirectory() as folder:
        raw, scaled = Path(folder, "raw.txt"), Path(folder, "scaled.txt")
        write(100, raw, scaled)
        X, y = next(read(raw))
        auto(n_features=WIDTH, n_classes=K).run(X, y)


def _ours(file: Path) -> Found:
    reading, learning = Timed(), Timed()
    loss = errors = 0.0
    with peak_memory() as memory, Timed() as whole:
        model = auto(n_features=WIDTH, n_classes=K)
        rows = read(file)
        while True:
            with reading:
                block = next(rows, None)
            if block is None:
                break
            X, y = block
            with learning:
                P = model.run(X, y)
            own = scores(P, y)
            loss += len(y) * own["loss"]
            errors += len(y) * own["error"]
    return {
        "model": repr(model),
        "seconds": whole.seconds,
        "read_seconds": reading.seconds,
        "learn_seconds": learning.seconds,
        "loss": loss / model.n_rounds,
        "error": errors / model.n_rounds,
        "certificate": certified(model),
        "n_bytes": model.n_bytes,
        "n_columns": getattr(model, "n_columns", None),
        **memory,
    }


def table(found: Found) -> str:
    """Return the results in Markdown."""
    names = {"ours": "`auto`, rows of norm 1", "vw": "VW, counts", "vw, norm 1": "VW, norm 1"}
    rows = [
        [name, f"{found[key]['seconds']:.1f}", *(
            f"{found[key][part]:.1f}" if part in found[key] else "–"
            for part in ("read_seconds", "learn_seconds")
         ), f"{found[key]['rows_a_second']:,.0f}", f"{found[key]['loss']:.4f}",
         f"{found[key]['error']:.4f}", megabytes(found[key]["peak_bytes"])]
        for key, name in names.items()
    ]  # fmt: skip
    ours = found["ours"]
    head = ["", "seconds", "of these reading", "learning", "rows/s", "log loss", "error", "peak"]
    proven = ours["certificate"]
    return "\n\n".join([
        f"{found['rows']:,} rows of {LENGTH} words out of {WORDS:,}, {K} classes; the file has "
        f"{megabytes(found['file_bytes'])}. {ours['model']}: state "
        f"{megabytes(ours['n_bytes'])} for {ours['n_columns']:,} columns.",
        "One pass over the same file, parsing included; losses are progressive, nats a row.\n\n"
        + lines(head, rows),
        "No linear model is below *at least*, its penalty (C = 1) counted:\n\n"
        + lines(["loss of `auto`", "at least"],
                [[f"{proven['loss']:.4f}", f"{proven['best_linear_at_least']:.4f}"]]),
    ])  # fmt: skip
