"""Compile the numerical kernels before the clock starts."""

import time
from collections.abc import Callable

import numpy as np

from folklearn.cli import learners
from folklearn.cli.display import bar, new_console, warnings_shown
from folklearn.cli.options import explained
from folklearn.evaluate.auditing import audit
from folklearn.evaluate.best_linear import best_in_class
from folklearn.model.model import Model

_ROWS = 160  # enough for every kind of block, and for a stretch of rows ahead


@explained()
def warmup(quiet: bool = False) -> None:
    """Compile what models, decisions and boosting use, for a new machine or a container image.

    Compiled kernels are kept in a folder beside the package, or in NUMBA_CACHE_DIR.
    """
    steps: dict[str, Callable[[], None]] = {"words": lambda: warm_up("auto", True)}
    steps["models"] = _use_every_verb
    steps["decisions"] = _decide
    steps["boosting"] = _boost
    for name in learners.NAMES:
        steps[name] = lambda name=name: warm_up(name)  # type: ignore[misc]
    console = new_console(quiet)
    with warnings_shown(new_console(quiet=True)), bar(console, clock=time.monotonic) as progress:
        task = progress.add_task("compiling", total=len(steps))
        for name, compile in steps.items():
            progress.update(task, description=f"compiling for {name}")
            compile()
            progress.advance(task)
            if not console.is_terminal:
                console.print(f"Compiled for {name}.")
    console.print("All of this is compiled.")


def warm_up(name: str, sparse: bool = False) -> None:
    """Use every kernel of a kind of learner once, in a model that is thrown away."""
    labels = ["a", "b"] * (_ROWS // 2)
    if sparse:
        rows = [{"text": f"one more text {i % 3}", "number": i} for i in range(_ROWS)]
        model = Model(name, classes="ab", roles={"text": "words"})
        model.learn_many(rows, labels)
        model.predict_proba(rows)
        return
    for d in (2, 100):  # small problems go round by round, larger ones in blocks
        X = np.tile(np.eye(2, d), (_ROWS // 2, 1))
        model = Model(name, classes="ab")
        model.learn_many(X, labels)
        model.predict_one({})


def _use_every_verb() -> None:
    """Use what a model of Python can do, with words and without, and audit its predictions."""
    for more in ({}, {"text": "one more text"}):
        rows = [{"x": i % 5, "k": "uvw"[i % 3], **more, "y": "ab"[i % 2]} for i in range(_ROWS)]
        model = Model(windows=True)
        for label in ("a", "b", {"a": 0.5, "b": 0.5}):
            x = {"x": 1, "k": "u", **more}
            model.predict_one(x)
            model.learn_one(x, label)
            model.learn_one({**x, "x": None}, label)
        model.run(rows, target="y")
        model.explain()
        fit = Model().fit(rows, target="y")
        fit.predict_proba(rows)
        Model.from_record(fit.to_record()).predict_proba(rows)
    X = np.tile(np.eye(2), (_ROWS // 2, 1))
    labels = np.arange(_ROWS) % 2
    audit(X, labels, np.full((_ROWS, 2), 0.5))
    best_in_class(X, labels, B=10.0, n_classes=2)


def _decide() -> None:
    """Let `bandits.auto` act and learn rewards, as the service does."""
    from folklearn.bandits.rewards import auto

    agent = auto(n_features=2, n_actions=2)
    for t in range(_ROWS):
        agent.learn(agent.act([t % 2, 1.0 - t % 2]), t % 2)


def _boost() -> None:
    """Let AdaBoost.OLM++ over naive Bayes learn and predict a few rows."""
    from folklearn.boosting.olmpp import AdaBoostOLMpp
    from folklearn.boosting.weak_learners import NaiveBayes, Probabilistic

    weak = [Probabilistic(NaiveBayes(n_features=2, n_classes=2)) for _ in range(2)]
    booster = AdaBoostOLMpp(n_features=2, n_classes=2, n_learners=2, weak_learner=weak)
    booster.run(np.tile(np.eye(2), (8, 1)), np.arange(16) % 2)
    booster.predict_label(np.ones(2))
