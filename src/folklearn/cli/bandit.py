"""`folklearn bandit`: play an agent that is told only whether its actions were right."""

import csv
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np

from folklearn import plots
from folklearn.arrays import Array
from folklearn.bandits import catalogue as agents
from folklearn.bandits.agent import Agent, Decision
from folklearn.cli.display import Table, follow, new_console, warnings_shown
from folklearn.cli.learners import refuse_unless_present
from folklearn.cli.options import Columns, Source, explained
from folklearn.cli.outputs import Outputs
from folklearn.cli.whole import Whole
from folklearn.readers import logs
from folklearn.readers.block import Block
from folklearn.readers.decisions import LoggedDecision, Option, features_of_row
from folklearn.words import counted

_TABLE = Table(
    [
        ("", "error since", "", "error", ""),
        ("rounds", "last line", "mistakes", "rate", "decisions/s"),
    ],
    width=13,
)
_EVEN = 0.5

Write = Callable[[Decision, bool, Block, int], None]  # the last two: where the row is


@explained(
    f"""
--agent NAME  One of {", ".join(agents.NAMES)}.
--exploration SHARE  Share of the decisions that are made at random, from 0 to 1. Default: what
    usually does well for the agent and the size of the data.
--theory  Explore as the agent's bound on mistakes says for this number of rows; it is cautious.
--decoding {"|".join(agents.DECODINGS)}  How reduction and folklore make an action of probabilities.
    Default: randomised, which plays the best class unless in doubt.
--updates {"|".join(agents.UPDATES)}  Which right actions reduction and folklore learn from.
    Default: correct, which is all of them; with --theory, explored.
--delay N  Outcomes are told N decisions later.
--log OUT.csv  Write every decision: its id, the action, the probability with which that action was
    played, and whether it was correct (1 or 0). A name that ends in .dsjson or .vw writes JSON
    lines or text as VW has them, with the columns of the row, for folklearn policy-value.
"""
)
def bandit(
    source: Source,
    columns: Columns,
    agent: str = agents.DEFAULT,
    exploration: float | None = None,
    theory: bool = False,
    decoding: str | None = None,
    updates: str | None = None,
    delay: int = 0,
    seed: int = 0,
    log: str | None = None,
    plot: str | None = None,
    quiet: bool = False,
) -> None:
    """Play an agent that chooses a class and is told only whether it was right.

    The label of a row is never shown to the agent: a wrong action teaches
    it only what the label is not.

    The file is read twice: once to check every value, once to play.
    Standard input is stored first. Results go to standard error.
    """
    settings = agents.Settings(agent, exploration, theory, decoding, updates, delay, seed)
    console = new_console(quiet)
    with Outputs(source.file) as outputs, warnings_shown(console):
        log_path = outputs.promise("log", log)
        plot_path = outputs.promise_plot(plot)
        whole = Whole(console, "bandit", source, columns.roles())
        K = len(whole.labels)
        needed = agents.n_bytes(agent, whole.n_inputs + 1, K)
        advice = f"; {agents.lighter(agent)} needs next to none"
        refuse_unless_present(needed, f"for {agent}", whole.n_inputs, K, advice)
        player = agents.make(settings, whole.n_inputs + 1, K, whole.n_rows)
        lines = [("agent", agents.described(player, settings, whole.n_rows))]
        if delay:
            lines.append(("delay", f"outcomes are told {counted(delay, 'decision')} later"))
        console.print(whole.about(*lines))
        agents.use_every_kernel(settings)
        started = time.perf_counter()
        with _log_to(log_path, log, whole) as write:
            game = _Game(player, delay, write)
            follow(
                console, _TABLE, game.played(whole), game.cells, what="playing", total=whole.n_rows
            )
        seconds = time.perf_counter() - started
        if plot_path is not None:
            title = f"folklearn bandit: {agent} on {Path(whole.name).name}"
            outputs.draw(game.drawn(title, K), plot_path)
        n, mistakes, doubts = len(game.wrong), sum(game.wrong), sum(game.doubtful)
        console.print(
            f"Played {counted(n, 'round')} in {seconds:.2f} s: {counted(mistakes, 'mistake')}, "
            f"error rate {mistakes / n:.2%}; at random it would be {1.0 - 1.0 / K:.2%}.\n"
            f"{counted(doubts, 'action')} ({doubts / n:.2%}) had a probability below 1/2: "
            f"explored, or in doubt.\n{agents.what_taught(player, settings, n - mistakes)}"
        )
        outputs.commit(console)


class _Game:
    """Rounds that an agent plays, each outcome told `delay` decisions later."""

    def __init__(self, agent: Agent, delay: int, write: Write) -> None:
        self._agent, self._delay, self._write = agent, delay, write
        self.wrong, self.doubtful = array("b"), array("b")  # doubtful: less likely than not
        self._shown = 0  # rounds by the last line

    def played(self, whole: Whole) -> Iterator[int]:
        """Play every row; yield how many were played."""
        waiting: deque[tuple[Decision, bool]] = deque()
        for block, X, y in whole.blocks_as_read():
            for row, label in enumerate(y.tolist()):
                decision = self._agent.act(X[row])
                correct = decision.action == label
                self._write(decision, correct, block, row)
                self.wrong.append(not correct)
                self.doubtful.append(decision.propensity < _EVEN)
                waiting.append((decision, correct))
                if len(waiting) > self._delay:
                    self._agent.learn(*waiting.popleft())
                yield len(self.wrong)
        for late in waiting:
            self._agent.learn(*late)

    def cells(self, speed: float) -> list[str]:
        """Return a line of the table."""
        n, mistakes, since = len(self.wrong), sum(self.wrong), self.wrong[self._shown :]
        self._shown = n
        errors = f"{sum(since) / len(since):.2%}", f"{mistakes}", f"{mistakes / n:.2%}"
        return [f"{n}", *errors, f"{speed:.0f}"]

    def drawn(self, title: str, n_classes: int) -> object:
        """Return the error rate so far, what chance gives, and the share of doubtful actions."""
        at = plots.places(len(self.wrong))

        def share(flags: "array[int]") -> Array:
            so_far: Array = np.cumsum(flags)[at - 1] / at
            return so_far

        lines: dict[str, Array | float] = {
            "wrong": share(self.wrong),
            "wrong at random": 1.0 - 1.0 / n_classes,
            "explored, or in doubt": share(self.doubtful),
        }
        return plots.curves(at, lines, title=title, y="share of the rounds", shares=True)


@contextmanager
def _log_to(path: Path | None, name: str | None, whole: Whole) -> Iterator[Write]:
    """Yield a function that writes a decision, its outcome and its row, or does nothing."""
    if path is None or name is None:
        yield lambda decision, correct, block, row: None
        return
    format = logs.FORMATS.get(Path(name).suffix.lower())
    with open(path, "w", encoding="utf-8", newline="") as file:
        yield _csv_writer(file, whole) if format is None else _writer(file, format, whole)


def _csv_writer(file: TextIO, whole: Whole) -> Write:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(logs.WITHOUT_CONTEXTS.split(","))

    def write(decision: Decision, correct: bool, block: Block, row: int) -> None:
        label = whole.labels[decision.action]
        writer.writerow([decision.id, label, decision.propensity, int(correct)])

    return write


def _writer(file: TextIO, format: str, whole: Whole) -> Write:
    options = tuple(Option(label, {}) for label in whole.labels)

    def write(decision: Decision, correct: bool, block: Block, row: int) -> None:
        context = features_of_row(block, row, whole.feed.reader.feature_names)
        played = decision.action, decision.propensity, float(correct)
        logged = LoggedDecision(context, options, *played, str(decision.id))
        file.writelines(logs.written(format, [logged]))

    return write
