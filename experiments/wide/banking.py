"""Questions to a bank: 77 intents, words and pairs of words hashed into 2^18 columns."""

import csv
import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from folklearn import auto
from folklearn.evaluate import logistic_regression as fit_in_hindsight

from . import vw
from .common import (
    Found,
    Labels,
    Timed,
    certified,
    classifier,
    judged,
    lines,
    logistic_regression,
    megabytes,
    occurring,
    outcome,
    peak_memory,
    scores,
)

TITLE = "Banking77: 77 intents of short questions"
FILE = "banking77.csv.gz"
SEED, WIDTH, LEARNED = 0, 2**18, 0.77
TOLERANCE = 1e-4
STRENGTHS = (20.0, 100.0, 500.0)  # C; the first is the one to be beaten
SLICE = 500  # rows that a player plays before it is the turn of the next
RATES, POWERS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0), (0.0, 0.25, 0.375, 0.5)  # -l, --power_t
BITS = (vw.BITS, 24)  # VW keeps the weights of all classes in one table: a larger one helps it
QUICK_ROWS, QUICK_CLASSES = 200, 4

# Held out: what LogisticRegression(C=20) had in a trial before this was written.
TARGETS = {"progressive": 0.87, "held out": 0.526, "of VW's time": 1 / 3}


def sizes(quick: bool) -> Found:
    """Return what the provenance says of this part."""
    return {"rows": QUICK_ROWS if quick else "all", "width": WIDTH, "learned": LEARNED}


def read(folder: Path) -> tuple[list[str], Labels, int]:
    """Return texts, numbers of their intents, and how many intents there are."""
    with gzip.open(folder / FILE, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names, y = np.unique([row["intent"] for row in rows], return_inverse=True)
    return [row["text"] for row in rows], y.astype(np.int64), len(names)


def sentences(n: int, K: int) -> tuple[list[str], Labels, int]:
    """Return synthetic sentences, each of a subject's own words and of words of all."""
    rng = np.random.default_rng(SEED)
    y = rng.integers(K, size=n)
    own = 20 * (y[:, None] + 1) + rng.integers(20, size=(n, 4))
    drawn = np.hstack([own, rng.integers(20, size=(n, 4))])
    return [" ".join(f"word{j}" for j in rng.permutation(row)) for row in drawn], y, K


def measure(folder: Path | None, quick: bool = False) -> Found | None:
    """Measure everything; None if the data are not there."""
    if quick:
        texts, y, K = sentences(QUICK_ROWS, QUICK_CLASSES)
    elif folder is None or not (folder / FILE).is_file():
        print(f"skipped banking: --data must name a folder with {FILE}", file=sys.stderr)
        return None
    else:
        texts, y, K = read(folder)
    order = np.random.default_rng(SEED).permutation(len(texts))
    hashing = HashingVectorizer(ngram_range=(1, 2), n_features=WIDTH, norm="l2")
    X, y = hashing.transform([texts[row] for row in order]), y[order]
    T = int(LEARNED * len(y))
    learned, test = (X[:T], y[:T]), (X[T:], y[T:])
    _compile(K)
    found: Found = {
        "sizes": {"learned": T, "held out": len(y) - T, "K": K, "width": WIDTH,
                  "values a row": X.nnz / len(y)},
        **_online(*learned, *test, K),
        "in hindsight": _exact(*learned, K),
        "classifier": classifier(*learned, *test),
        "logistic regression": _logistic_regression(*learned, *test, quick),
    }  # fmt: skip
    rows = list(vw.text(*learned))
    found["times"] = _times(*learned, rows, K, SLICE)
    found["vw"] = _tuned(rows, y[:T], K, quick)
    return found


def _compile(K: int) -> None:
    """Compile, which is not to be timed."""
    model = auto(n_features=WIDTH, n_classes=K)
    x = np.array([1, 2]), np.array([0.6, 0.8])
    model.update(x, 0)
    model.predict(x)
    texts, y, _ = sentences(20, 2)
    X = HashingVectorizer(n_features=WIDTH).transform(texts)
    model.run(X, y)
    model.predict(X)
    classifier(X, np.arange(20) % 2, X, np.arange(20) % 2)


def _online(X: Any, y: Labels, X_test: Any, y_test: Labels, K: int) -> Found:
    with peak_memory() as memory, Timed() as timed:
        model = auto(n_features=WIDTH, n_classes=K)
        P = model.run(X, y)
    return {
        "model": repr(model),
        "progressive": scores(P, y),
        "held out": scores(model.predict(X_test), y_test),
        "certificate": certified(model),
        "memory": {"n_bytes": model.n_bytes, **memory},
        "seconds": timed.seconds,
    }


def _exact(X: Any, y: Labels, K: int) -> Found:
    with Timed() as timed:
        best = fit_in_hindsight(X, y, n_classes=K, tol=TOLERANCE)
    return {
        "objective": (best.loss + best.penalty) / len(y),
        "at_least": best.at_least / len(y),
        "seconds": timed.seconds,
    }


def _logistic_regression(
    X: Any, y: Labels, X_test: Any, y_test: Labels, quick: bool
) -> list[Found]:
    X, X_test = occurring(X, X_test)
    strengths = STRENGTHS[:1] if quick else STRENGTHS
    return [logistic_regression(X, y, X_test, y_test, C) for C in strengths]


def _times(X: Any, y: Labels, rows: list[str], K: int, size: int) -> Found:
    """Return µs a row of everybody, played in slices by turns so that all share what disturbs."""
    ours, single = (auto(n_features=WIDTH, n_classes=K) for _ in range(2))
    predicting, learning = (vw.workspace(K) for _ in range(2))
    labels = y.tolist()
    pairs = [
        (X.indices[start:stop], X.data[start:stop])
        for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]

    def events(part: slice) -> None:
        for x, label in zip(pairs[part], labels[part], strict=True):
            single.predict(x)
            single.update(x, label)

    players = {
        "run": lambda part: ours.run(X[part], y[part]),
        "predict + update": events,
        "VW predict + learn": lambda part: vw.predict_and_learn(predicting, rows[part]),
        "VW learn": lambda part: vw.learn(learning, rows[part]),
    }
    clocks = {name: Timed() for name in players}
    names = list(players)
    for number, start in enumerate(range(0, len(rows), size)):
        part = slice(start, start + size)
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):  # nobody always comes after the same one
            with clocks[name]:
                players[name](part)
    for model in (predicting, learning):
        model.finish()
    return {name: 1e6 * clock.seconds / len(rows) for name, clock in clocks.items()}


def _tuned(rows: list[str], y: Labels, K: int, quick: bool) -> Found:
    """Return VW's progressive losses: as it is, and over a grid for each size of its table."""
    rates, powers, sizes = (RATES[:2], POWERS[1:2], BITS[:1]) if quick else (RATES, POWERS, BITS)
    grid = [
        {"-b": bits, "-l": rate, "--power_t": power}
        | scores(vw.progressive(rows, K, "-l", str(rate), "--power_t", str(power), bits=bits), y)
        for bits in sizes
        for power in powers
        for rate in rates
    ]
    best = [
        min((one for one in grid if one["-b"] == bits), key=lambda one: float(one["loss"]))
        for bits in sizes
    ]
    return {"default": scores(vw.progressive(rows, K), y), "grid": grid, "best": best}


def table(found: Found) -> str:
    """Return the results in Markdown."""
    online, held_out, times = found["progressive"], found["held out"], found["times"]
    fit, tuned, exact = (found[key] for key in ("classifier", "vw", "in hindsight"))
    LR = found["logistic regression"][0]
    pair, alone = times["VW predict + learn"], times["VW learn"]
    share = TARGETS["of VW's time"]
    judgements = [
        ["progressive log loss", *judged(online["loss"], TARGETS["progressive"])],
        ["held-out log loss, one pass", *judged(held_out["loss"], TARGETS["held out"])],
        [f"the same / LogisticRegression(C={LR['C']:g}) in this run",
         *judged(held_out["loss"] / LR["loss"], 1.0)],
        ["held-out log loss, `FolkloreClassifier`", *judged(outcome(fit, "loss"), LR["loss"])],
        ["`run` / VW predict + learn, time", *judged(times["run"] / pair, share)],
        ["`run` / VW learn, time", *judged(times["run"] / alone, share)],
        ["`predict` + `update` / VW predict + learn, time",
         *judged(times["predict + update"] / pair, share)],
    ]  # fmt: skip
    losses = [
        ["`auto`", _shown(online), _shown(held_out), f"{found['seconds']:.1f}"],
        ["`FolkloreClassifier().fit`", "–",
         fit.get("failed") or _shown(fit), f"{fit['seconds']:.1f}"],
        *([f"LogisticRegression(C={one['C']:g})", "–", _shown(one), f"{one['seconds']:.1f}"]
          for one in found["logistic regression"]),
        [f"VW, -b {vw.BITS}", _shown(tuned["default"]), "–", "–"],
        *([f"VW, -b {best['-b']} -l {best['-l']:g} --power_t {best['--power_t']:g}",
           _shown(best), "–", "–"] for best in tuned["best"]),
    ]  # fmt: skip
    live = found["certificate"]
    proofs = [
        ["live", f"{live['loss']:.4f}", f"{live['best_linear_at_least']:.4f}"],
        [f"second look, {exact['seconds']:.0f} s",
         f"{exact['objective']:.4f} (the best model found)", f"{exact['at_least']:.4f}"],
    ]  # fmt: skip
    memory, of = found["memory"], found["sizes"]
    return "\n\n".join([
        f"{of['learned']:,} rows learned, {of['held out']:,} held out, {of['K']} classes, "
        f"{of['values a row']:.1f} values a row in {of['width']:,} columns. {found['model']}: "
        f"state {megabytes(memory['n_bytes'])}, peak {megabytes(memory['peak_bytes'])}.",
        lines(["", "measured", "at most", "kept"], judgements),
        "Log loss in nats a row / error rate:\n\n"
        + lines(["", "progressive", "held out", "seconds"], losses),
        "No linear model is below *at least*, its penalty (C = 1) counted, nats a row:\n\n"
        + lines(["certificate", "loss", "at least"], proofs),
        "µs a row, in turns of slices:\n\n"
        + lines(["", "µs"], [[name, f"{us:.1f}"] for name, us in times.items()]),
    ])  # fmt: skip


def _shown(entry: Found) -> str:
    return f"{entry['loss']:.4f} / {entry['error']:.3f}"
