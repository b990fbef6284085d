"""`folklearn warmup`: compile kernels before they are needed."""

from collections.abc import Callable
from functools import partial

import numpy as np

from folklearn.cli.display import new_console, warnings_shown
from folklearn.cli.options import LEARNERS, Quiet
from folklearn.evaluate.auditing import audit
from folklearn.evaluate.best_linear import best_in_class
from folklearn.model.model import Model

_N_ROWS = 160  # enough for every size of batch, and for the hold-out


def warmup(quiet: Quiet = False) -> None:
    """Compile what models and decisions use, for a new machine or a container image.

    Compiled kernels are kept in the folder of the package, or in NUMBA_CACHE_DIR.
    """
    console = new_console(quiet)
    steps: dict[str, Callable[[], None]] = {
        "words": partial(_use_model, text="one more text"),
        "models": _use_model,
        "decisions": _decide,
        **{name: partial(warm_up, name) for name in LEARNERS},
    }
    with warnings_shown(new_console(quiet=True)):
        for name, use in steps.items():
            use()
            console.print(f"Compiled for {name}.")
    console.print("All of this is compiled.")


def warm_up_service() -> None:
    """Do once what requests to the service do, so that none waits for a compiler."""
    _use_model(text="one more text")
    _use_model()
    _decide()


def warm_up(learner: str) -> None:
    """Use every kernel of a learner once, in models of digits-like size and of two columns."""
    labels = ["a", "b"] * (_N_ROWS // 2)
    for d in (2, 100):  # small problems are learned row by row, larger ones in blocks
        model = Model(learner, classes=["a", "b"])
        model.learn_many(np.tile(np.eye(2, d), (_N_ROWS // 2, 1)), labels)
        model.predict_one({})


def _use_model(**words: str) -> None:
    roles = dict.fromkeys(words, "words")
    rows = [{"x": i % 5, "k": "uvw"[i % 3], **words, "y": "ab"[i % 2]} for i in range(_N_ROWS)]
    model = Model(windows=True, roles=roles)
    for label in ("a", "b", {"a": 0.5, "b": 0.5}):
        x = {"x": 1, "k": "u", **words}
        model.predict_one(x)
        model.learn_one(x, label)
        model.learn_one({**x, "x": None}, label)
    model.run(rows, target="y")
    model.explain()
    fit = Model(roles=roles).fit(rows, target="y")
    fit.predict_proba(rows)
    Model.from_record(fit.to_record()).predict_proba(rows)
    X, labels = np.tile(np.eye(2), (_N_ROWS // 2, 1)), np.arange(_N_ROWS) % 2
    audit(X, labels, np.full((_N_ROWS, 2), 0.5))
    best_in_class(X, labels, B=10.0, n_classes=2)


def _decide() -> None:
    from folklearn.bandits.rewards import auto

    agent = auto(n_features=2, n_actions=2)
    for t in range(_N_ROWS):
        agent.learn(agent.act([t % 2, 1.0 - t % 2]), t % 2)
