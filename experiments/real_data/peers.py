"""The peers as their users run them, one example at a time, and the variants that are tuned.

All are told the classes in advance: River by registering every class in `weights` (its softmax
then covers all of them from the first round), VW by `--oaa K`, scikit-learn by `classes=`.
VW and scikit-learn are tuned both with the intercept that they add themselves, besides the
constant column that all are given, and without it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from river import optim
from river.linear_model import SoftmaxRegression
from sklearn.linear_model import SGDClassifier
from vowpalwabbit import Workspace  # type: ignore[import-untyped]

from ..data import Stream
from . import replicas
from .metric import Given, given_to_labels

RIVER, VW, SGD = "River", "VW", "SGDClassifier"
FAMILIES = (RIVER, VW, SGD)


@dataclass(frozen=True)
class Variant:
    """One way to set up a peer, up to the one number (`knob`) that is tuned.

    `tuning` gives the label probabilities at a value of the knob as fast as possible, and
    `library` makes the peer's own function that plays a stream.
    """

    family: str
    name: str
    knob: str
    powers: tuple[int, int]  # the grid starts as 2**first ... 2**last
    tuning: Callable[[Stream, float], Given] = field(repr=False)
    library: Callable[[Stream, float], Callable[[], Given]] = field(repr=False)
    separator: str = "="

    def setting(self, value: float) -> str:
        """Return the variant with its number, as a table names it."""
        return f"{self.name} {self.knob}{self.separator}{value:.4g}"


def variants() -> list[Variant]:
    """Return everything that is tuned; the best variant of a family represents it."""
    return [*_river(), *_vw(), *_sgd()]


def _river() -> list[Variant]:
    optimizers = {
        "SGD": (optim.SGD, replicas.SGD, (-2, 6)),
        "Adam": (optim.Adam, replicas.ADAM, (-9, 0)),
        "AdaGrad": (optim.AdaGrad, replicas.ADAGRAD, (-4, 3)),
    }
    return [
        Variant(RIVER, name, "lr", powers, _softmax_replica(code), _river_library(optimizer))
        for name, (optimizer, code, powers) in optimizers.items()
    ]


def _softmax_replica(code: int) -> Callable[[Stream, float], Given]:
    return lambda s, rate: replicas.softmax_regression(s.X, s.y, s.K, code, rate)


def _river_library(optimizer: Callable[[float], Any]) -> Callable[..., Callable[[], Given]]:
    def library(stream: Stream, rate: float) -> Callable[[], Given]:
        model: Any = SoftmaxRegression(optimizer(rate))
        for label in range(stream.K):
            _ = model.weights[label]  # a defaultdict: looking a class up registers it
        rows = [dict(enumerate(x)) for x in stream.X.tolist()]
        labels = stream.y.tolist()

        def play() -> Given:
            P = np.empty((len(rows), stream.K))
            for t, (x, y) in enumerate(zip(rows, labels, strict=True)):
                P[t] = list(model.predict_proba_one(x).values())  # in order of registration
                model.learn_one(x, y)
            return given_to_labels(P, stream.y)

        return play

    return library


def _vw() -> list[Variant]:
    updates = {
        "default": (0, 5),
        "--sgd": (0, 5),
        "--sgd --power_t 0": (-1, 4),
        "--adaptive": (-1, 4),
        "--normalized": (1, 6),
        "--invariant": (1, 6),
        "--adaptive --normalized": (-1, 4),
        "--adaptive --invariant": (0, 5),
        "--normalized --invariant": (2, 7),
    }
    found = []
    for constant in ("", " --noconstant"):
        found += [_vw_variant(name + constant, "-l", powers) for name, powers in updates.items()]
        found.append(_vw_variant("--coin" + constant, "--ftrl_alpha", (2, 6)))  # it ignores -l
    return found


def _vw_variant(name: str, knob: str, powers: tuple[int, int]) -> Variant:
    def library(stream: Stream, value: float) -> Callable[[], Given]:
        lines = _lines(stream)
        model = Workspace(
            f"--oaa {stream.K} --probabilities --loss_function=logistic --quiet "
            f"{name.removeprefix('default')} {knob} {value!r}"
        )
        kind = model.get_prediction_type()

        def play() -> Given:
            P = np.empty((len(lines), stream.K))
            for t, line in enumerate(lines):
                example = model.parse(line)
                model.learn(example)
                P[t] = example.get_prediction(kind)  # made before learning, as VW reports it
                model.finish_example(example)
            model.finish()
            return given_to_labels(P, stream.y)

        return play

    def tuning(stream: Stream, value: float) -> Given:
        return library(stream, value)()

    return Variant(VW, name, knob, powers, tuning, library, separator=" ")


@lru_cache(maxsize=4)
def _lines(stream: Stream) -> list[str]:
    """Return the rows as VW reads them; nine digits are all that single precision holds."""
    lines = []
    for x, label in zip(stream.X.tolist(), stream.y.tolist(), strict=True):
        features = " ".join(f"{j}:{value:.9g}" for j, value in enumerate(x))
        lines.append(f"{label + 1} | {features}")
    return lines


def _sgd() -> list[Variant]:
    found = []
    for intercept in (True, False):
        found.append(_sgd_variant("optimal", "alpha", (-16, -8), intercept))
        for schedule, powers in (("constant", (-3, 4)), ("invscaling", (0, 8))):
            for alpha in (1e-4, 0.0):
                found.append(_sgd_variant(schedule, "eta0", powers, intercept, alpha))
    return found


def _sgd_variant(
    schedule: str, knob: str, powers: tuple[int, int], intercept: bool, alpha: float = 1e-4
) -> Variant:
    code = {
        "constant": replicas.CONSTANT,
        "optimal": replicas.OPTIMAL,
        "invscaling": replicas.INVSCALING,
    }[schedule]
    words = [schedule]
    if alpha == 0.0:
        words.append("penalty=None")
    if not intercept:
        words.append("fit_intercept=False")

    def tuning(stream: Stream, value: float) -> Given:
        numbers = {"eta0": 0.01, "alpha": alpha} | {knob: value}
        given: Given = replicas.one_vs_all(
            stream.X, stream.y, stream.K, code, numbers["eta0"], numbers["alpha"], 0.5, intercept
        )
        return given

    def library(stream: Stream, value: float) -> Callable[[], Given]:
        numbers = {"eta0": 0.01, "alpha": alpha} | {knob: value}
        model = SGDClassifier(
            loss="log_loss", learning_rate=schedule, power_t=0.5, fit_intercept=intercept,
            penalty=None if numbers["alpha"] == 0.0 else "l2", random_state=0, **numbers,
        )  # fmt: skip
        classes = np.arange(stream.K)
        rows = [(stream.X[t : t + 1], stream.y[t : t + 1]) for t in range(len(stream.y))]

        def play() -> Given:
            P = np.full((len(rows), stream.K), 1.0 / stream.K)  # it refuses the first round
            for t, (x, y) in enumerate(rows):
                if t > 0:
                    P[t] = model.predict_proba(x)[0]
                model.partial_fit(x, y, classes=classes)
            return given_to_labels(P, stream.y)

        return play

    return Variant(SGD, ", ".join(words), knob, powers, tuning, library)
