"""What the parts share: losses, certificates, peak memory, and tables with targets."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from folklearn import FolkloreClassifier
from folklearn.learners.base import Learner

from ..drop_in.methods import strict_losses
from ..real_data.metric import given_to_labels, log_loss

Found = dict[str, Any]
Labels = NDArray[np.int64]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
MOST_ITERATIONS = 1000


def scores(P: NDArray[np.float64], y: Labels) -> Found:
    """Return log loss and error rate of predictions (T, K)."""
    return {
        "loss": log_loss(given_to_labels(P, y)),
        "error": float(np.mean(P.argmax(axis=1) != y)),
    }


def certified(model: Learner) -> Found:
    """Return the loss a round, and what no linear model gets below, its penalty counted."""
    certificate, T = model.certificate(), model.n_rounds
    at_least = certificate.best_linear_at_least / T
    return {"loss": certificate.loss / T, "best_linear_at_least": at_least}


class Timed:
    """Seconds of a `with` block."""

    seconds = 0.0

    def __enter__(self) -> "Timed":
        self._start = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._start


@contextmanager
def peak_memory() -> Iterator[Found]:
    """Yield a dict that gets `peak_bytes`: by how much the process grew; None if unknown.

    Every allocator counts, and so does what the block returns. Linux only.
    """
    found: Found = {"peak_bytes": None}
    try:
        _CLEAR.write_text(_RESET_PEAK)
        before = resident_bytes("VmRSS")
    except OSError:
        yield found
        return
    yield found
    found["peak_bytes"] = resident_bytes("VmHWM") - before


def resident_bytes(field: str, status: Path = _STATUS) -> int:
    """Return VmRSS (now) or VmHWM (peak) of a process, by default this one."""
    for line in status.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"{status} has no {field}")


def classifier(X: Any, y: Labels, X_test: Any, y_test: Labels) -> Found:
    """Fit `FolkloreClassifier` as anybody would, and score what was held out.

    If it fails, that is a result too, and the other measurements of a long run are not lost.
    """
    timed = Timed()
    try:
        with timed:
            model = FolkloreClassifier().fit(X, y)
        with Timed() as predicting:
            P = model.predict_proba(X_test)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}", "seconds": timed.seconds}
    return {
        "loss": float(strict_losses(model, X_test, y_test).mean()),
        "error": float(np.mean(model.classes_[P.argmax(axis=1)] != y_test)),
        "seconds": timed.seconds,
        "predict_seconds": predicting.seconds,
    }


def logistic_regression(X: Any, y: Labels, X_test: Any, y_test: Labels, C: float) -> Found:
    """Fit `LogisticRegression` at one C, and score what was held out."""
    model = LogisticRegression(C=C, max_iter=MOST_ITERATIONS)
    with warnings.catch_warnings(), Timed() as timed:
        warnings.simplefilter("ignore", ConvergenceWarning)  # `iterations` tells
        model.fit(X, y)
    return {
        "C": C,
        "loss": float(strict_losses(model, X_test, y_test).mean()),
        "error": float(np.mean(model.predict(X_test) != y_test)),
        "seconds": timed.seconds,
        "iterations": int(model.n_iter_.max()),
    }


def occurring(X: Any, *others: Any) -> list[Any]:
    """Return the columns of several sparse arrays that are not 0 everywhere in the first.

    Where rows to be learned are 0 a penalised model stays 0: to leave such columns out changes
    nothing but the time and memory of solvers that hold them all.
    """
    columns = np.unique(X.indices)
    return [one[:, columns] for one in (X, *others)]


def lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    whole = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in whole)


def judged(value: float, most: float, digits: int = 4) -> list[str]:
    """Return the cells of a value, of the most that was aimed at, and whether it was kept."""
    if value != value:
        return ["–", f"{most:.{digits}g}", "no result"]
    return [f"{value:.{digits}g}", f"{most:.{digits}g}", "yes" if value <= most else "**no**"]


def megabytes(n_bytes: float | None) -> str:
    """Return a size for a table."""
    return "–" if n_bytes is None else f"{n_bytes / 1e6:.0f} MB"


def outcome(found: Found, key: str) -> float:
    """Return a number of a result, NaN if it failed."""
    return np.nan if "failed" in found else float(found[key])
