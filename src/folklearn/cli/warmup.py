"""Compile the numerical kernels before the clock starts, and say so if it takes long."""

import threading

import numpy as np
from rich.console import Console

from folklearn.learners.folklore import Folklore
from folklearn.streams.scaler import OnlineScaler

_PATIENCE = 1.0  # seconds; kernels that were compiled before load in a fraction of this
_ANNOUNCEMENT = (
    "Compiling the numerical kernels for this machine; this happens once and takes about "
    "20 seconds."
)


def warm_up(console: Console) -> None:
    """Use every kernel once, on a learner that is thrown away."""
    announcement = threading.Timer(_PATIENCE, console.print, [_ANNOUNCEMENT])
    announcement.daemon = True
    announcement.start()
    try:
        _use_every_kernel()
    finally:
        announcement.cancel()


def _use_every_kernel() -> None:
    X = OnlineScaler(n_features=2).learn_transform(np.eye(2))
    learner = Folklore(n_features=3, n_classes=3)
    learner.predict(X[0])
    learner.update(X[0], 0)
    learner.run(np.tile(X, (8, 1)), np.arange(16) % 3)  # more than one block
