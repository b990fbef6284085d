"""Compile the numerical kernels before the clock starts, and say so if it takes long."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Console

from folklearn.cli import learners
from folklearn.model.hashing import TextHasher
from folklearn.model.scaler import OnlineScaler

_PATIENCE = 1.0  # seconds; kernels that were compiled before load in a fraction of this
_ANNOUNCEMENT = (
    "Preparing the numerical kernels; the first time on a machine they are compiled, which "
    "takes about half a minute."
)


def warm_up(console: Console, learner: str, text: Sequence[str] = ()) -> None:
    """Use every kernel of a kind of learner once, on one that is thrown away.

    If there are columns of text, the hash function is loaded too.
    """
    with announced(console):
        _use_every_kernel(learner)
        if text:
            TextHasher().place("", "")


@contextmanager
def announced(console: Console) -> Iterator[None]:
    """Say what the wait is for, if what happens within takes long."""
    announcement = threading.Timer(_PATIENCE, console.print, [_ANNOUNCEMENT])
    announcement.daemon = True
    announcement.start()
    try:
        yield
    finally:
        announcement.cancel()


def _use_every_kernel(name: str) -> None:
    for d in (2, 100):  # small problems go round by round, larger ones in blocks
        X = OnlineScaler(n_features=d).learn_transform(np.eye(2, d))
        learner = learners.make(name, d + 1, 2, {})
        learner.predict(X[0])
        learner.update(X[0], 0)
        learner.run(np.tile(X, (16, 1)), np.arange(32) % 2)  # more than one block
