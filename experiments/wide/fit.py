"""`fit` on sparse rows of a hundred thousand columns, beside scikit-learn's classifiers."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import normalize

from ..drop_in.methods import strict_losses
from .common import (
    Found,
    Labels,
    Timed,
    classifier,
    judged,
    lines,
    logistic_regression,
    occurring,
    outcome,
)
from .zipf import EXPONENT

TITLE = "Fitting sparse rows"
SEED, D, LENGTH, K = 0, 100_000, 40, 8
ROWS, HELD_OUT = (5_000, 20_000), 5_000
QUICK_ROWS, QUICK_HELD_OUT, QUICK_D = (200,), 100, 2_000
SPREAD = 0.7  # deviation of the log frequencies of a word between classes
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
TARGETS = {"of SGD's time": 10.0, "of LogisticRegression": 1.05}


def sizes(quick: bool) -> Found:
    """Return what the provenance says of this part."""
    return {"rows": QUICK_ROWS if quick else ROWS, "held out": QUICK_HELD_OUT if quick else
            HELD_OUT, "d": QUICK_D if quick else D, "length": LENGTH, "K": K}  # fmt: skip


def draw(T: int, d: int) -> tuple[Any, Labels]:
    """Return counts of words scaled to norm 1; each class has its own frequencies of words."""
    rng = np.random.default_rng(SEED)
    common = -EXPONENT * np.log(np.arange(1, d + 1))
    frequencies = np.exp(common + SPREAD * rng.normal(size=(K, d)))
    steps = np.cumsum(frequencies / frequencies.sum(axis=1, keepdims=True), axis=1)
    y = rng.integers(K, size=T)
    drawn = np.empty((T, LENGTH), dtype=np.int32)  # SGDClassifier takes no others
    for k in range(K):
        drawn[y == k] = np.searchsorted(steps[k], rng.random((np.sum(y == k), LENGTH)))
    drawn = np.minimum(drawn, d - 1)  # the last step may be a rounding below 1
    starts = LENGTH * np.arange(T + 1, dtype=np.int32)
    counts = (np.ones(T * LENGTH), drawn.ravel(), starts)
    X = csr_array(counts, shape=(T, d))
    X.sum_duplicates()
    return normalize(X), y


def measure(quick: bool = False) -> Found:
    """Fit the first rows, of each number, and test on the last."""
    tried, held_out = (QUICK_ROWS, QUICK_HELD_OUT) if quick else (ROWS, HELD_OUT)
    X, y = draw(max(tried) + held_out, QUICK_D if quick else D)
    X_test, y_test = X[-held_out:], y[-held_out:]
    small = X[:100], y[:100], X_test[:100], y_test[:100]
    for method in (classifier, _sgd):
        method(*small)  # what comes first compiles and loads
    found: Found = {"sizes": {"d": X.shape[1], "held out": held_out}, "fits": []}
    for T in tried:
        split = X[:T], y[:T], X_test, y_test
        found["fits"].append({
            "rows": T,
            "columns": len(np.unique(X[:T].indices)),
            "classifier": classifier(*split),
            "SGD": _sgd(*split),
            "logistic regression": _tuned(*split, STRENGTHS[:2] if quick else STRENGTHS),
        })  # fmt: skip
    return found


def _sgd(X: Any, y: Labels, X_test: Any, y_test: Labels) -> Found:
    model = SGDClassifier(loss="log_loss", random_state=SEED)
    with Timed() as timed:
        model.fit(X, y)
    return {
        "loss": float(strict_losses(model, X_test, y_test).mean()),
        "error": float(np.mean(model.predict(X_test) != y_test)),
        "seconds": timed.seconds,
        "passes": int(model.n_iter_),
    }


def _tuned(X: Any, y: Labels, X_test: Any, y_test: Labels, strengths: tuple[float, ...]) -> Found:
    """Return all C, tuned on the very rows that judge."""
    X, X_test = occurring(X, X_test)
    tried = [logistic_regression(X, y, X_test, y_test, C) for C in strengths]
    return {"tried": tried, "best": min(tried, key=lambda entry: float(entry["loss"]))}


def table(found: Found) -> str:
    """Return the results in Markdown."""
    judgements, rows = [], []
    for own in found["fits"]:
        T, fit, SGD = f"{own['rows']:,}", own["classifier"], own["SGD"]
        best = own["logistic regression"]["best"]
        time, loss = outcome(fit, "seconds"), outcome(fit, "loss")
        judgements += [
            [T, "`fit` / SGD, time", *judged(time / SGD["seconds"], TARGETS["of SGD's time"])],
            [T, "`fit` / tuned LR, held-out log loss",
             *judged(loss / best["loss"], TARGETS["of LogisticRegression"])],
        ]  # fmt: skip
        rows += [
            [T, "`FolkloreClassifier().fit`", fit.get("failed") or _shown(fit), f"{time:.2f}"],
            [T, f"SGDClassifier, {SGD['passes']} passes", _shown(SGD), f"{SGD['seconds']:.2f}"],
        ]
        rows += [
            [T, f"LogisticRegression(C={entry['C']:g})", _shown(entry), f"{entry['seconds']:.2f}"]
            for entry in own["logistic regression"]["tried"]
        ]
    of = found["sizes"]
    return "\n\n".join([
        f"{LENGTH} words a row out of {of['d']:,}, {K} classes; {of['held out']:,} rows held out. "
        "C is tuned on the rows held out, which is generous to LogisticRegression.",
        lines(["rows", "", "measured", "at most", "kept"], judgements),
        "Held-out log loss in nats a row / error rate; seconds of `fit`.\n\n"
        + lines(["rows", "", "held out", "seconds"], rows),
    ])  # fmt: skip


def _shown(entry: Found) -> str:
    return f"{entry['loss']:.4f} / {entry['error']:.3f}"
