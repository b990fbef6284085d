"""Many classes, few features: what a pass and a fit reach, and a word before it takes long."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from benchmarks.backends import stream

from folklearn import auto

from .common import (
    Found,
    Timed,
    certified,
    classifier,
    judged,
    lines,
    logistic_regression,
    megabytes,
    outcome,
    peak_memory,
    scores,
)

TITLE = "Many classes"
D, ROWS, LEARNED = 20, 20_000, 0.8
MANY, VERY_MANY = 500, 2_000
QUICK_ROWS, QUICK = 200, (10, 60)
STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
TARGETS = {"seconds of fit": 60.0, "of LogisticRegression": 1.05}


def sizes(quick: bool) -> Found:
    """Return what the provenance says of this part."""
    return {"rows": QUICK_ROWS if quick else ROWS, "d": D, "K": QUICK if quick else
            (MANY, VERY_MANY), "learned": LEARNED}  # fmt: skip


def measure(quick: bool = False) -> Found:
    """Measure both numbers of classes."""
    T = QUICK_ROWS if quick else ROWS
    many, very_many = QUICK if quick else (MANY, VERY_MANY)
    _compile(many)
    X, y = stream(D, many, T)
    cut = int(LEARNED * T)
    split = X[:cut], y[:cut], X[cut:], y[cut:]
    found: Found = {"rows": T, "many": _online(many, T)}
    found["many"] |= {
        "classifier": classifier(*split),
        "logistic regression": [
            logistic_regression(*split, C) for C in (STRENGTHS[:2] if quick else STRENGTHS)
        ],
    }
    found["very many"] = _online(very_many, T)
    return found


def _compile(K: int) -> None:
    """Compile, which is not to be timed, for the backend that so many classes are in."""
    X, y = stream(D, K, 3 * K)
    model = auto(n_features=D, n_classes=K)
    model.run(X, y)
    model.predict(X)
    classifier(X, y, X, y)


def _online(K: int, T: int) -> Found:
    """Learn and test, and listen for what is said meanwhile."""
    X, y = stream(D, K, T)
    cut = int(LEARNED * T)
    with listening() as heard, peak_memory() as memory, Timed() as timed:
        model = auto(n_features=D, n_classes=K)
        P = model.run(X[:cut], y[:cut])
    said = list(heard)  # before the answer was there
    return {
        "K": K,
        "model": type(model).__name__,
        "seconds": timed.seconds,
        "said": said,
        "progressive": scores(P, y[:cut]),
        "held out": scores(model.predict(X[cut:]), y[cut:]),
        "certificate": certified(model),
        "n_bytes": model.n_bytes,
        **memory,
    }


@contextmanager
def listening() -> Iterator[list[Found]]:
    """Yield a list that gets what the logger of the library says, and after how many seconds."""
    heard: list[Found] = []
    start = perf_counter()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append({"seconds": perf_counter() - start, "text": record.getMessage()})

    logger, ear = logging.getLogger("folklearn"), Ear()
    logger.addHandler(ear)
    try:
        yield heard
    finally:
        logger.removeHandler(ear)


def table(found: Found) -> str:
    """Return the results in Markdown."""
    many = found["many"]
    fit, tried = many["classifier"], many["logistic regression"]
    best = min(tried, key=lambda entry: float(entry["loss"]))
    most = TARGETS["of LogisticRegression"] * best["loss"]
    judgements = [
        ["`fit`, seconds", *judged(outcome(fit, "seconds"), TARGETS["seconds of fit"])],
        ["`fit`, held-out log loss", *judged(outcome(fit, "loss"), most)],
    ]
    rows = []
    for own in (many, found["very many"]):
        K = str(own["K"])
        rows.append(
            [f"`auto` ({own['model']})", K, _shown(own["progressive"]), _shown(own["held out"]),
             f"{own['seconds']:.1f}", f"{own['certificate']['best_linear_at_least']:.3f}",
             megabytes(own["n_bytes"]), megabytes(own["peak_bytes"])]
        )  # fmt: skip
        if own is many:
            silent = ["–"] * 3
            rows.append(["`FolkloreClassifier().fit`", K, "–", fit.get("failed") or _shown(fit),
                         f"{fit['seconds']:.1f}", *silent])  # fmt: skip
            rows += [
                [f"LogisticRegression(C={entry['C']:g})", K, "–", _shown(entry),
                 f"{entry['seconds']:.1f}", *silent]
                for entry in tried
            ]  # fmt: skip
    head = ["", "K", "progressive", "held out", "seconds",
            "at least, penalty counted", "state", "peak"]  # fmt: skip
    return "\n\n".join([
        f"{found['rows']:,} rows, {LEARNED:.0%} of them learned, {D} features.",
        lines(["", "measured", "at most", "kept"], judgements),
        "Log loss in nats a row / error rate. *At least*: no linear model of row norm at most B "
        "has a progressive log loss below.\n\n" + lines(head, rows),
        *(_said(own) for own in (many, found["very many"])),
    ])  # fmt: skip


def _said(own: Found) -> str:
    if not own["said"]:
        return f"K = {own['K']:,}: nothing was said before the answer."
    texts = "; ".join(f"after {one['seconds']:.1f} s “{one['text']}”" for one in own["said"])
    return f"K = {own['K']:,}: {texts}. The answer came after {own['seconds']:.1f} s."


def _shown(entry: Found) -> str:
    return f"{entry['loss']:.4f} / {entry['error']:.3f}"
