"""Compile the numerical kernels before the clock starts."""

import time
from collections.abc import Callable

import numpy as np

from folklearn.cli import learners
from folklearn.cli.display import bar, new_console, warnings_shown
from folklearn.cli.options import explained
from folklearn.evaluate.certify import audit
from folklearn.evaluate.hindsight import best_in_class
from folklearn.model.model import Model

_ROWS = 160  # enough for every kind of block, and for a stretch of rows ahead


@explained()
def warmup(quiet: bool = False) -> None:
    """Compile everything that is compiled, for an image of a container or a new machine.

    Compiled kernels are kept in a folder beside the package, or in NUMBA_CACHE_DIR.
    """
    from folklearn.bandits import catalogue as agents
    from folklearn.boosting import catalogue as boosters

    steps: dict[str, Callable[[], None]] = {"words": lambda: warm_up("auto", True)}
    steps["models"] = _use_every_verb
    for name in learners.NAMES:
        steps[name] = lambda name=name: warm_up(name)  # type: ignore[misc]
    for name in agents.NAMES:
        settings = agents.Settings(name)
        steps[f"bandit {name}"] = lambda settings=settings: agents.use_every_kernel(settings)  # type: ignore[misc]
    for name in boosters.NAMES:
        choice = boosters.Settings(name, "naive-bayes", 2)
        steps[f"boost {name}"] = lambda choice=choice: boosters.use_every_kernel(choice)  # type: ignore[misc]
    console = new_console(quiet)
    with warnings_shown(new_console(quiet=True)), bar(console, clock=time.monotonic) as progress:
        task = progress.add_task("compiling", total=len(steps))
        for name, compile in steps.items():
            progress.update(task, description=f"compiling for {name}")
            compile()
            progress.advance(task)
            if not console.is_terminal:
                console.print(f"Compiled for {name}.")
    console.print("Everything is compiled.")


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
