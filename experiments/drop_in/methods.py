"""The classifiers that are compared, each as somebody would write it down."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from folklearn import FolkloreClassifier

FLOOR = 1e-15  # of probabilities whose logarithm is taken
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # C of the tuned LogisticRegression

FIT, LINES, ONE, SGD = "default", "lines", "one pass", "SGD"
TUNED, BOOSTED = "tuned LR", "boosted trees"
SEEDED = (SGD,)  # whose mean over the seeds is reported
SGD_SEEDS = range(5)


def strict_losses(model: Any, X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """Return -ln max(p_y, FLOOR) of every row; a class that the model lacks has p = 0."""
    P = model.predict_proba(X)
    columns = {label: column for column, label in enumerate(model.classes_)}
    p = [P[row, columns[label]] if label in columns else 0.0 for row, label in enumerate(y)]
    return -np.log(np.maximum(p, FLOOR))


def _score(model: Any, X: NDArray[Any], y: NDArray[Any]) -> float:
    return -float(strict_losses(model, X, y).mean())


def _sgd(seed: int) -> Any:
    return make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=seed))


def _tuned(_: int) -> Any:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    grid = {"logisticregression__C": list(STRENGTHS)}
    return GridSearchCV(model, grid, scoring=_score, cv=3)


METHODS: dict[str, Callable[[int], Any]] = {  # from a seed
    TUNED: _tuned,
    FIT: lambda _: FolkloreClassifier(),
    LINES: lambda _: FolkloreClassifier(terms="none"),
    ONE: lambda _: FolkloreClassifier(passes=1),
    SGD: _sgd,
    BOOSTED: lambda seed: HistGradientBoostingClassifier(random_state=seed),
}


def facts(model: Any) -> dict[str, float]:
    """Return what a fitted model chose or how long it went on, if it is known."""
    if isinstance(model, FolkloreClassifier | HistGradientBoostingClassifier):
        return {}
    last = getattr(model, "best_estimator_", model)[-1]
    found = {"iterations": int(np.max(last.n_iter_))}
    return found | ({"C": last.C} if isinstance(last, LogisticRegression) else {})
