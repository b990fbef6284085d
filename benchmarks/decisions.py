"""What a decision costs: to act and to learn its reward, beside Vowpal Wabbit's Python package.

python -m benchmarks.decisions   writes results/decisions.json and results/decisions.md (a minute).
One process, one BLAS thread. All play the same rows of one seeded stream, in turns of 250
decisions, each on its own model, through 5,000 decisions; the first 1,000 are not timed. VW gets
its lines of text as its users write them: numbers are made text beforehand, parsing is timed.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from threadpoolctl import threadpool_limits
from vowpalwabbit import Workspace  # type: ignore[import-untyped]

from experiments.provenance import provenance, stated, write_json
from folklearn import Folklore, bandits

RESULTS = Path(__file__).parent / "results"
SIZES = ((5, 3), (20, 10), (50, 20))  # features, actions
ROUNDS, UNTIMED, TURN = 5_000, 1_000, 250
AUTO, FOLKLORE, VW = "bandits.auto", "RewardAgent, Folklore", "VW"

Play = Callable[[int, int], float]  # from a round to another; returns what was earned


def stream(d: int, K: int) -> tuple[Any, Any]:
    """Return rows of norm about 1 with a constant, and which action earns 1; all others earn 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROUNDS, d)) / np.sqrt(2 * d)
    X[:, -1] = np.sqrt(0.5)
    W = 8.0 * rng.normal(size=(K, d))
    return X, np.argmax(X @ W.T + rng.gumbel(size=(ROUNDS, K)), axis=1).tolist()


def by_context(agent: bandits.RewardAgent, X: Any, y: list[int]) -> Play:
    """Play an agent of fixed actions."""

    def play(start: int, stop: int) -> float:
        earned = 0.0
        for t in range(start, stop):
            decision = agent.act(X[t])
            reward = float(decision.action == y[t])
            agent.learn(decision, reward)
            earned += reward
        return earned

    return play


def by_vw(K: int, X: Any, y: list[int]) -> Play:
    """Play SquareCB of VW over products of context and action, as its tutorials do."""
    model = Workspace("--cb_explore_adf --squarecb -q sa --quiet --random_seed 1")
    shared = ["shared |s " + " ".join(f"{j}:{v:.6g}" for j, v in enumerate(x)) for x in X]
    actions = [f"|a a{a}" for a in range(K)]
    rng = np.random.default_rng(0)

    def play(start: int, stop: int) -> float:
        earned = 0.0
        for t in range(start, stop):
            P = model.predict([shared[t], *actions])
            left, action = rng.random(), 0
            while action < K - 1 and (left := left - P[action]) >= 0.0:
                action += 1
            reward = float(action == y[t])
            told = list(actions)
            told[action] = f"{action}:{-reward}:{P[action]} {actions[action]}"
            model.learn([shared[t], *told])
            earned += reward
        return earned

    return play


def measure(d: int, K: int) -> dict[str, Any]:
    """Let all take turns; return microseconds a decision, and the mean reward."""
    X, y = stream(d, K)
    regressions = [Folklore(n_features=d, n_classes=2) for _ in range(K)]
    players = {
        AUTO: by_context(bandits.auto(n_features=d, n_actions=K), X, y),
        FOLKLORE: by_context(bandits.RewardAgent(regressions), X, y),
        VW: by_vw(K, X, y),
    }
    seconds, earned = dict.fromkeys(players, 0.0), dict.fromkeys(players, 0.0)
    for start in range(0, ROUNDS, TURN):
        for name, play in players.items():
            started = time.perf_counter()
            earned[name] += play(start, start + TURN)
            if start >= UNTIMED:
                seconds[name] += time.perf_counter() - started
    row: dict[str, Any] = {"d": d, "K": K}
    for name in players:
        us = 1e6 * seconds[name] / (ROUNDS - UNTIMED)
        row[name] = {"us": us, "reward": earned[name] / ROUNDS}
    return row


def table(rows: list[dict[str, Any]], origin: dict[str, Any]) -> str:
    """Return the results in Markdown."""
    lines = [
        "# Decisions",
        "",
        f"{stated(origin)}. To act and learn, decisions {UNTIMED:,} to {ROUNDS:,}, one thread, in "
        f"turns: µs a decision (times that of VW) / mean reward of all {ROUNDS:,}. Must: "
        "bandits.auto at most VW at (20, 10).",
        "",
        f"| (features, actions) | {' | '.join((AUTO, FOLKLORE, VW))} |",
        "|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"({row['d']}, {row['K']})"]
        for name in (AUTO, FOLKLORE, VW):
            own = row[name]
            cells.append(f"{own['us']:.0f} ({own['us'] / row[VW]['us']:.2f}) / {own['reward']:.3f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, show and write."""
    origin = provenance(
        "benchmarks.decisions",
        sys.argv[1:],
        seeds=[0],
        sizes={"sizes": [list(size) for size in SIZES], "rounds": ROUNDS},
        libraries=["vowpalwabbit"],
    )
    with threadpool_limits(1, user_api="blas"):
        measure(3, 2)  # compiles
        rows = [measure(*size) for size in track(SIZES, "decisions")]
    write_json(RESULTS / "decisions.json", {"origin": origin, "rows": rows})
    text = table(rows, origin)
    (RESULTS / "decisions.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
