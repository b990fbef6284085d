"""The competitors: each learns one stream, predicting every example before learning it.

`prepare` puts rows into the form that a competitor wants to be given (dicts, lines of text,
arrays) and is never timed; `play` is what is timed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river.linear_model import SoftmaxRegression
from sklearn.linear_model import SGDClassifier
from vowpalwabbit import Workspace  # type: ignore[import-untyped]

from folklearn import Folklore, auto

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]

NORM_W = 5.0  # typical row norm of the true weights: clear signal, noisy labels


@dataclass(frozen=True)
class Competitor:
    """One timed way to learn a stream; `multiple` is the unit of its number of rows."""

    name: str
    prepare: Callable[[Rows, Labels], Any]
    play: Callable[[Any], object]
    multiple: int = 1


def softmax_rows(d: int, K: int, n_rows: int, seed: int) -> tuple[Rows, Labels]:
    """Return rows of norm about 1 and labels drawn from one softmax model per (d, K)."""
    W = np.random.default_rng([d, K]).normal(size=(K, d)) * (NORM_W / np.sqrt(d))
    rng = np.random.default_rng([d, K, seed])
    X = rng.normal(size=(n_rows, d)) / np.sqrt(d)
    y = np.argmax(X @ W.T + rng.gumbel(size=(n_rows, K)), axis=1)
    return X, y


def auto_event(d: int, K: int) -> Competitor:
    """auto, one Python call to predict and one to learn."""
    model = auto(n_features=d, n_classes=K)

    def play(batch: list[tuple[Rows, int]]) -> None:
        for x, y in batch:
            model.predict(x)
            model.update(x, y)

    return Competitor("auto", lambda X, y: list(zip(X, y.tolist(), strict=True)), play)


def folklore_event(d: int, K: int) -> Competitor:
    """Folklore, one Python call to predict and one to learn."""
    model = Folklore(n_features=d, n_classes=K)

    def play(batch: list[tuple[Rows, int]]) -> None:
        for x, y in batch:
            model.predict(x)
            model.update(x, y)

    return Competitor("folklore", lambda X, y: list(zip(X, y.tolist(), strict=True)), play)


def folklore_run(d: int, K: int, block: int) -> Competitor:
    """Folklore, all rows in one call. Whole blocks, as in a long stream."""
    model = Folklore(n_features=d, n_classes=K)
    return Competitor("run", lambda X, y: (X, y), lambda batch: model.run(*batch), block)


def river(d: int, K: int) -> Competitor:
    """River, with the dicts built beforehand."""
    model: Any = SoftmaxRegression()

    def prepare(X: Rows, y: Labels) -> list[tuple[dict[int, float], int]]:
        return [
            (dict(enumerate(x)), label) for x, label in zip(X.tolist(), y.tolist(), strict=True)
        ]

    def play(batch: list[tuple[dict[int, float], int]]) -> None:
        for x, y in batch:
            model.predict_proba_one(x)
            model.learn_one(x, y)

    return Competitor("river", prepare, play)


def vowpal_wabbit(d: int, K: int) -> Competitor:
    """VW's Python package: parse the line once, predict it, learn it, give it back."""
    model = Workspace(f"--oaa {K} --probabilities --loss_function=logistic --quiet")

    def prepare(X: Rows, y: Labels) -> list[str]:
        lines = []
        for x, label in zip(X.tolist(), y.tolist(), strict=True):
            features = " ".join(f"{j}:{value:.6g}" for j, value in enumerate(x))
            lines.append(f"{label + 1} | {features}")
        return lines

    def play(batch: list[str]) -> None:
        for line in batch:
            example = model.parse(line)
            model.predict(example)
            model.learn(example)
            model.finish_example(example)

    return Competitor("vw", prepare, play)


def scikit_learn(d: int, K: int) -> Competitor:
    """scikit-learn's SGDClassifier, one row at a time."""
    model = SGDClassifier(loss="log_loss", random_state=0)
    model.partial_fit(np.zeros((1, d)), [0], classes=np.arange(K))  # else predict refuses

    def prepare(X: Rows, y: Labels) -> list[tuple[Rows, Labels]]:
        return [(X[i : i + 1], y[i : i + 1]) for i in range(len(X))]

    def play(batch: list[tuple[Rows, Labels]]) -> None:
        for x, y in batch:
            model.predict_proba(x)
            model.partial_fit(x, y)

    return Competitor("sklearn", prepare, play)
