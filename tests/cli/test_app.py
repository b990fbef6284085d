"""The border: exit codes, signals, pipes, and extras that are not installed."""

import os
import subprocess
import sys
import threading

import pytest

import folklearn as library
from folklearn.cli import warmup

COMMAND = [sys.executable, "-m", "folklearn.cli.app"]


def test_version(folklearn):
    outcome = folklearn("--version")
    assert (outcome.code, outcome.stdout) == (0, f"folklearn {library.__version__}\n")


def test_no_command_shows_the_commands(folklearn):
    outcome = folklearn()
    assert outcome.code == 0
    assert "run" in outcome.stdout


def test_help_names_every_option(folklearn, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    outcome = folklearn("run", "--help")
    assert outcome.code == 0
    for option in (
        "target",
        "learner",
        "B",
        "R",
        "lam",
        "gamma",
        "plot",
        "predictions",
        "save",
        "load",
        "weight",
        "delimiter",
        "encoding",
        "decimal",
        "role",
        "drop",
        "cross",
        "classes",
        "one-pass",
        "shuffle",
        "seed",
        "windows",
        "checkpoint",
        "on-bad-row",
        "bad-rows",
        "verbose",
    ):
        assert f"--{option} " in outcome.stdout


@pytest.mark.parametrize("command", [[], ["run"], ["predict"], ["bandit"], ["warmup"]])
def test_flags_look_like_flags(folklearn, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    said = folklearn(*command, "--help").stdout
    assert "--help " in said
    assert "bool" not in said.lower()


def test_help_says_where_things_go(folklearn, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = " ".join(folklearn("run", "--help").stdout.replace("│", " ").split())
    for sentence in (
        "The file is read twice",
        "Standard input (-) is read once and learned as it comes, classes included",
        "A row without a label is predicted only",
        "Ctrl-C and SIGTERM end it",
        "Results go to standard error",
        "More trusts the data faster, and too much costs loss",
        "One of auto, folklore, aioli, leader, blocks, gaf, laplace, ogd, ons.",
    ):
        assert sentence in said


def test_an_unknown_command(folklearn):
    outcome = folklearn("runn")
    assert outcome.code == 2
    assert outcome.stderr.startswith("folklearn: No such command 'runn'")
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_extra_is_named(missing):
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from folklearn.cli.app import main; sys.exit(main(['run']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("pip install 'folklearn[cli]'\n")


def test_a_bug_is_not_hidden(folklearn, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("folklearn.cli.run.warm_up", fail)
    with pytest.raises(ZeroDivisionError):
        folklearn("run")


def test_an_interrupt_leaves_nothing(folklearn, pets, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("folklearn.model.model.Model._learn_block", interrupt)
    before = os.listdir(tmp_path)
    outcome = folklearn("run", pets, "--target", "kind", "-p", tmp_path / "p.csv", "--quiet")
    assert outcome.code == 130
    assert outcome.stderr.strip() == "folklearn: interrupted: nothing was written"
    assert os.listdir(tmp_path) == before


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize(
    "arguments", [["run", "--learner", "ogd", "-p", "-", "--quiet"], ["run", "--help"]]
)
def test_a_reader_that_leaves_early_is_not_an_error_to_talk_about(arguments):
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_a_bar_and_colours_unless_it_wants_none(no_color):
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": no_color}
    process = subprocess.Popen(
        [*COMMAND, "run", "--learner", "ogd"], stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    assert b"learning" in shown
    assert (b"\x1b[32m" in shown) == (not no_color)


class Listener:
    """Stands in for the console."""

    def __init__(self):
        self.heard = []
        self.spoken = threading.Event()

    def print(self, text):
        self.heard.append(text)
        self.spoken.set()


def test_compiling_is_announced_when_it_takes_long(monkeypatch):
    listener = Listener()
    monkeypatch.setattr(warmup, "_PATIENCE", 0.01)
    monkeypatch.setattr(warmup, "_use_every_kernel", lambda *_: listener.spoken.wait(30))
    warmup.warm_up(listener, "folklore")
    assert len(listener.heard) == 1
    assert listener.heard[0] == (
        "Preparing the numerical kernels; the first time on a machine they are compiled, which "
        "may take a minute or two."
    )


def test_compiled_kernels_are_not_announced(monkeypatch):
    listener = Listener()
    monkeypatch.setattr(warmup, "_PATIENCE", 60.0)
    monkeypatch.setattr(warmup, "_use_every_kernel", lambda *_: None)
    before = set(threading.enumerate())
    warmup.warm_up(listener, "folklore")
    for timer in set(threading.enumerate()) - before:
        timer.join(30)  # it was cancelled, so this does not wait for its time
        assert not timer.is_alive()
    assert listener.heard == []


@pytest.mark.parametrize("name", ["folklore", "auto"])
def test_the_warm_up_compiles_everything_that_a_run_uses(name):
    """After it, learning the digits compiles no kernel for another type of argument."""
    script = """
import io, sys
from rich.console import Console
from folklearn.cli.warmup import warm_up
from folklearn.cli.app import main
from folklearn.numerics.blocks import run_rounds
from folklearn.learners.ogd import ogd_round, ogd_rounds
from folklearn.scaler import _scale_rows
warm_up(Console(file=io.StringIO()), sys.argv[1])
kernels = run_rounds, ogd_round, ogd_rounds, _scale_rows
before = [len(kernel.signatures) for kernel in kernels]
assert main(["run", "--quiet", "--learner", sys.argv[1]]) == 0
assert before == [len(kernel.signatures) for kernel in kernels], before
assert max(before) == 1, before
"""
    done = subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_everything_can_be_compiled_beforehand(folklearn, monkeypatch):
    used = []
    monkeypatch.setattr(warmup, "_use_every_kernel", lambda *given: used.append(given))
    for home in ("bandits", "boosting"):
        name = f"folklearn.{home}.catalogue.use_every_kernel"
        monkeypatch.setattr(name, lambda settings: used.append(settings))
    outcome = folklearn("warmup")
    assert outcome.code == 0
    assert outcome.stderr.startswith("Compiled for words.\nCompiled for auto.\n")
    assert outcome.stderr.endswith("Everything is compiled.\n")
    assert len(used) == outcome.stderr.count("Compiled for") == 1 + 9 + 10 + 4
