"""What people use instead: Vowpal Wabbit's explorers, LinUCB and Thompson sampling."""

import tempfile
from functools import lru_cache
from pathlib import Path
from time import perf_counter

import numpy as np
from vowpalwabbit import Workspace  # type: ignore[import-untyped]

from folklearn.arrays import Array

from .arenas import Arena, game

# The settings that hindsight chooses from, for every stream anew. Costs from -1 to 0 instead of 0
# to 1 are worth a try (Bietti, Agarwal and Langford 2021, "A Contextual Bandit Bake-off").
_RATES = (0.1, 0.3, 1.0, 3.0)
_COSTS = ("", " --loss0 -1 --loss1 0")
_EXPLORERS = {
    "squarecb": [f"--squarecb --gamma_scale {scale}" for scale in (10, 100, 1000)],
    "epsilon": [f"--epsilon {share}" for share in (0.02, 0.05)],
    "cover": [f"--cover {size} --nounif" for size in (4,)],
    "bag": [f"--bag {size}" for size in (5,)],
}
VW: dict[str, list[str]] = {
    name: [f"{words} -l {rate}{costs}" for words in own for rate in _RATES for costs in _COSTS]
    for name, own in _EXPLORERS.items()
}
WIDTHS = (0.1, 0.3, 1.0)  # of the confidence of LinUCB, and of the posterior
LINEAR = {"linucb": WIDTHS, "thompson": WIDTHS}


def vw(arena: Arena, seed: int, words: str) -> tuple[float, float]:
    """Return mean reward and seconds of VW, which turns costs into a bandit game by itself."""
    own, folder = game(arena, seed), _written(arena, seed)
    K = own.R.shape[1]
    command = f"--cbify {K} --cbify_cs --cb_explore_adf {words} --random_seed {seed + 1} --quiet"
    start = perf_counter()
    model = Workspace(f"{command} -d {folder.name}/rows.vw --no_stdin")
    model.run_parser()
    seconds = perf_counter() - start
    lost = model.get_sum_loss() / model.get_weighted_examples()
    model.finish()
    # It says by how much it lost against the best action of each round.
    return float(own.R.max(axis=1).mean()) - lost, seconds


@lru_cache(maxsize=2)
def _written(arena: Arena, seed: int) -> "tempfile.TemporaryDirectory[str]":
    """Return a folder with the stream as VW reads it, which is deleted when it is forgotten.

    Features have names: numbers collide where `--cbify` spreads them over the actions.
    """
    own, folder = game(arena, seed), tempfile.TemporaryDirectory()
    with Path(folder.name, "rows.vw").open("w") as file:
        for x, r in zip(own.X[:, :-1].tolist(), own.R.tolist(), strict=True):
            costs = " ".join(f"{k}:{1.0 - reward:.6g}" for k, reward in enumerate(r, 1))
            features = " ".join(f"f{j}:{value:.6g}" for j, value in enumerate(x) if value)
            file.write(f"{costs} | {features}\n")
    return folder


def linear(arena: Arena, seed: int, name: str, width: float) -> tuple[float, float]:
    """Return mean reward and seconds of one ridge regression per action, ridge 1.

    LinUCB (Li, Chu, Langford and Schapire 2010) plays the largest mean plus `width` deviations;
    Thompson sampling (Agrawal and Goyal 2013) the largest draw of a posterior so wide.
    """
    own, rng = game(arena, seed), np.random.default_rng(seed)
    T, d = own.X.shape
    K = own.R.shape[1]
    X = own.X * np.sqrt(d)  # a deviation of 1: the ridge is then that of a standard prior
    inverse = np.tile(np.eye(d), (K, 1, 1))
    b = np.zeros((K, d))
    total, start = 0.0, perf_counter()
    for t, x in enumerate(X):
        leverage = inverse @ x
        deviations = np.sqrt(leverage @ x)
        means = np.einsum("kd,kd->k", leverage, b)
        noise: Array = np.ones(K) if name == "linucb" else rng.normal(size=K)
        action = int(np.argmax(means + width * noise * deviations))
        reward = own.R[t, action]
        total += reward
        v = leverage[action]
        inverse[action] -= np.outer(v, v) / (1.0 + v @ x)
        b[action] += reward * x
    return total / T, perf_counter() - start
