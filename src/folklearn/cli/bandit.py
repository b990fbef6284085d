"""`folklearn bandit`: play an agent that is told only whether its actions were right."""

import csv
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from folklearn.bandits.agent import Agent, Decision
from folklearn.cli import agents, report
from folklearn.cli import plot as plots
from folklearn.cli.inputs import open_table, refuse_weights
from folklearn.cli.learning import bar
from folklearn.cli.moments import block_sizes, is_doubling
from folklearn.cli.options import Drop, File, Format, Quiet, Target, Text, new_console
from folklearn.cli.outputs import Outputs
from folklearn.cli.warmup import announced
from folklearn.model.scaler import OnlineScaler
from folklearn.streams.table import Table, classes
from folklearn.words import counted

_WIDTHS = (10, 14, 11, 11, 13)
_TITLES = (
    ("", "error since", "", "error", ""),
    ("rounds", "last row", "mistakes", "rate", "decisions/s"),
)
_EVEN = 0.5

Tell = Callable[[Decision, bool], None]


def bandit(
    file: File = None,
    target: Target = None,
    format: Format = None,
    text: Text = None,
    drop: Drop = None,
    agent: Annotated[
        str, typer.Option("--agent", metavar="NAME", help=f"One of {', '.join(agents.NAMES)}.")
    ] = agents.DEFAULT,
    exploration: Annotated[
        float | None,
        typer.Option(
            "--exploration",
            metavar="SHARE",
            help="Share of the decisions that are made at random, from 0 to 1. Default: what "
            "usually does well for the agent and the size of the data.",
        ),
    ] = None,
    theory: Annotated[
        bool,
        typer.Option(
            "--theory",
            help="Explore as the agent's bound on mistakes says for this number of examples; "
            "it is cautious.",
        ),
    ] = False,
    decoding: Annotated[
        str | None,
        typer.Option(
            "--decoding",
            metavar="|".join(agents.DECODINGS),
            help="How auto and folklore make an action of probabilities. Default: randomised, "
            "which plays the best class unless in doubt.",
        ),
    ] = None,
    updates: Annotated[
        str | None,
        typer.Option(
            "--updates",
            metavar="|".join(agents.UPDATES),
            help="Which right actions auto and folklore learn from. Default: correct, which is "
            "all of them; with --theory, explored.",
        ),
    ] = None,
    delay: Annotated[
        int,
        typer.Option("--delay", metavar="N", help="Outcomes are told N decisions later."),
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is random.")] = 0,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            metavar="OUT.csv",
            help="Write every decision: its id, the action, the probability with which that "
            "action was played, and whether it was correct (1 or 0).",
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="OUT.png", help="Draw the error rate over the rounds."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Play an agent that chooses a class and is told only whether it was right.

    The label of an example is never shown to the agent: a wrong action
    teaches it only what the label is not.

    The file is read twice: once to check every value, once to play.
    Standard input is copied to a temporary file first.
    Results go to standard error.
    """
    settings = agents.Settings(agent, exploration, theory, decoding, updates, delay, seed)
    console = new_console(quiet)
    if plot is not None:
        plots.refuse_unless_drawable(plot)
    with Outputs() as outputs:
        outputs.protect(file)
        log_path = outputs.promise("--log", log)
        plot_path = outputs.promise("--plot", plot)
        with open_table(file, target, format, text, drop) as table:
            refuse_weights(table, "folklearn bandit")
            labels = classes(table)
            agents.refuse_too_large(agent, table, len(labels))
            player = agents.make(settings, table.n_inputs + 1, len(labels), table.n_rows)
            console.print(_options(player, settings, table, labels))
            with announced(console):
                agents.use_every_kernel(settings)
            started = time.perf_counter()
            with _log_to(log_path, labels) as write:
                moments = _play(player, delay, table, labels, console, write)
            seconds = time.perf_counter() - started
        if plot_path is not None and plot is not None:
            plots.draw_mistakes(
                [now.n_rounds for now in moments],
                [now.error_rate for now in moments],
                [now.doubt for now in moments],
                _by_chance(len(labels)),
                f"folklearn bandit: {agent} on {Path(table.name).name}",
                plot_path,
                Path(plot).suffix,
            )
        outputs.commit()
    console.print(_summary(player, settings, moments[-1], len(labels), seconds))
    for what, name in (("log", log), ("plot", plot)):
        if name is not None:
            console.print(f"Wrote the {what} to {name}.")


@dataclass(frozen=True)
class _Moment:
    """Where an agent stands after some rounds."""

    n_rounds: int = 0
    n_mistakes: int = 0
    n_in_doubt: int = 0  # actions that were less likely than not

    @property
    def error_rate(self) -> float:
        return self.n_mistakes / self.n_rounds

    @property
    def doubt(self) -> float:
        return self.n_in_doubt / self.n_rounds


def _play(
    agent: Agent,
    delay: int,
    table: Table,
    labels: tuple[str, ...],
    console: Console,
    write: Tell,
) -> list[_Moment]:
    """Play every row, telling each outcome `delay` decisions later; return each stop.

    The same as `interact`, but the rows are read as they are needed and shown on the way.
    """
    scaler = OnlineScaler(n_features=table.n_inputs, gaps=True)
    waiting: deque[tuple[Decision, bool]] = deque()
    moments: list[_Moment] = []
    now = last_shown = _Moment()
    console.print("\n".join(report.line(titles, _WIDTHS) for titles in _TITLES), style="bold")
    started = time.perf_counter()
    with bar(console) as progress:
        task = progress.add_task("playing", total=table.n_rows)
        for X, y, _ in table.blocks(table.columns, labels, block_sizes(0)):
            n_mistakes, n_in_doubt = now.n_mistakes, now.n_in_doubt
            for x, label in zip(scaler.learn_transform(X), y.tolist(), strict=True):
                decision = agent.act(x)
                correct = decision.action == label
                write(decision, correct)
                n_mistakes += not correct
                n_in_doubt += decision.propensity < _EVEN
                waiting.append((decision, correct))
                if len(waiting) > delay:
                    agent.learn(*waiting.popleft())
                progress.advance(task)
            now = _Moment(now.n_rounds + len(y), n_mistakes, n_in_doubt)
            moments.append(now)
            if is_doubling(now.n_rounds) or now.n_rounds == table.n_rows:
                speed = now.n_rounds / (time.perf_counter() - started)
                console.print(_row(last_shown, now, speed))
                last_shown = now
        for late in waiting:
            agent.learn(*late)
    return moments


@contextmanager
def _log_to(path: Path | None, labels: tuple[str, ...]) -> Iterator[Tell]:
    """Yield a function that writes a decision and its outcome, or does nothing."""
    if path is None:
        yield lambda decision, correct: None
        return
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "action", "propensity", "correct"])

        def write(decision: Decision, correct: bool) -> None:
            row = [decision.id, labels[decision.action], decision.propensity, int(correct)]
            writer.writerow(row)

        yield write


def _by_chance(n_classes: int) -> float:
    return 1.0 - 1.0 / n_classes


def _options(agent: Agent, settings: agents.Settings, table: Table, labels: tuple[str, ...]) -> str:
    lines = [("agent", agents.described(agent, settings, table.n_rows))]
    if settings.delay:
        lines.append(("delay", f"outcomes are told {counted(settings.delay, 'decision')} later"))
    return report.about(table, labels, *lines)


def _row(last_shown: _Moment, now: _Moment, speed: float) -> str:
    since = (now.n_mistakes - last_shown.n_mistakes) / (now.n_rounds - last_shown.n_rounds)
    cells = (
        f"{now.n_rounds}",
        f"{since:.2%}",
        f"{now.n_mistakes}",
        f"{now.error_rate:.2%}",
        f"{speed:.0f}",
    )
    return report.line(cells, _WIDTHS)


def _summary(
    agent: Agent, settings: agents.Settings, end: _Moment, n_classes: int, seconds: float
) -> str:
    lines = [
        f"Played {counted(end.n_rounds, 'round')} in {seconds:.2f} s: "
        f"{counted(end.n_mistakes, 'mistake')}, error rate {end.error_rate:.2%}; "
        f"at random it would be {_by_chance(n_classes):.2%}.",
        f"{counted(end.n_in_doubt, 'action')} ({end.doubt:.2%}) had a probability below 1/2: "
        "explored, or in doubt.",
        agents.what_taught(agent, settings, end.n_rounds - end.n_mistakes),
    ]
    return "\n".join(lines)
