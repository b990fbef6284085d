"""Learners on the same rows, beside the best linear model in hindsight."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import BestLinearModel, best_in_class
from folklearn.learners import catalogue
from folklearn.metrics.scores import Scores, progressive
from folklearn.progress import Progress
from folklearn.report import html
from folklearn.scale.parallel import ignore_progress, map_in_parallel

Settings = Mapping[str, Any]

_N_ROWS_TO_COMPILE = 160  # enough for batches of every size


class Compared(NamedTuple):
    """What one learner did.

    scores : of its predictions, each made before its label was seen.
    regret : its total loss beyond that of the best linear model.
    seconds : that it took; with others beside it, longer than alone.
    """

    learner: str
    scores: Scores
    regret: float
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """Several learners on the same rows.

    Attributes
    ----------
    best : the best linear model in hindsight, with the proof of it.
    rows : what each learner did, in the order of the learners.
    """

    best: BestLinearModel
    rows: tuple[Compared, ...]

    def __repr__(self) -> str:
        found = ", ".join(f"{row.learner} {row.scores.log_loss:.4g}" for row in self.rows)
        return f"Comparison(log loss: {found}; best linear model {self._best_loss:.4g})"

    def _repr_html_(self) -> str:
        head = ["learner", "log loss", "error rate", "regret in total"]
        cells: list[list[object]] = [
            [row.learner, row.scores.log_loss, row.scores.error_rate, row.regret]
            for row in self.rows
        ]
        named = f"best linear model, row norms to {self.best.B:g}"
        return html.table(head, [*cells, [named, self._best_loss, None, 0.0]])

    @property
    def _best_loss(self) -> float:
        return self.best.loss / self.rows[0].scores.n_rounds


def compare(
    learners: Mapping[str, Settings] | Iterable[str] | str,
    X: Any,
    y: ArrayLike,
    *,
    n_classes: int,
    B: float = 10.0,
    n_jobs: int | None = None,
    progress: Progress = False,
) -> Comparison:
    """Run learners on the same rows, and find the best linear model of these in hindsight.

    Losses and regrets are the same however many learners run at once; times are not.

    Parameters
    ----------
    learners : a name, names, or a mapping from names to settings.
    X, y, n_classes : rows (T, d) and classes (T,) or soft labels (T, K).
    B : largest row norm of the linear models to compare with.
    n_jobs, progress : see `map_in_parallel`; a task is a learner. The search for the best linear
        model takes as many threads.

    Examples
    --------
    >>> from folklearn import scale, synthetic
    >>> X, y = synthetic.stochastic(0, 300, d=3, K=2)
    >>> found = scale.compare({"auto": {}, "ogd": {"B": 10.0}}, X, y, n_classes=2)
    >>> [row.learner for row in found.rows if row.regret < 20.0]
    ['auto']
    """
    names = [learners] if isinstance(learners, str) else learners
    settings = names if isinstance(names, Mapping) else {name: {} for name in names}
    if not settings:
        raise InvalidInputError("a comparison needs a learner at least")
    X, y = validation.table(X), np.asarray(y)
    for name, chosen in settings.items():  # raises before anything is learned
        catalogue.make(name, 1, n_classes, chosen)
    best = best_in_class(X, y, B=B, n_classes=n_classes, n_jobs=n_jobs or 1)
    measured = map_in_parallel(
        partial(_measure, X, y, n_classes), settings.items(), n_jobs=n_jobs, progress=progress
    )
    rows = [
        Compared(name, scores, scores.loss - best.loss, seconds)
        for name, (scores, seconds) in zip(settings, measured, strict=True)
    ]
    return Comparison(best, tuple(rows))


def _measure(X: Any, y: Any, n_classes: int, task: tuple[str, Settings]) -> tuple[Scores, float]:
    name, settings = task
    sizes = X.shape[1], n_classes
    # A first learner of some rows compiles the kernels before the clock starts.
    first = catalogue.make(name, *sizes, settings)
    progressive(first, X[:_N_ROWS_TO_COMPILE], y[:_N_ROWS_TO_COMPILE], progress=ignore_progress)
    learner = catalogue.make(name, *sizes, settings)
    started = time.perf_counter()
    scores = progressive(learner, X, y, progress=ignore_progress)
    return scores, time.perf_counter() - started
