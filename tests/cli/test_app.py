"""The border: exit codes, signals, pipes, and extras that are not installed."""

import math
import os
import subprocess
import sys

import pytest

import folklearn as library
from folklearn import progress
from folklearn.cli import display, serve
from folklearn.cli.commands import SUMMARIES

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
        "set",
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
    ):
        assert f"--{option} " in outcome.stdout


def test_help_on_all_commands_imports_none_of_them():
    """What they need takes half a second."""
    script = (
        "import sys\n"
        "from folklearn.cli.app import main; main(['--help'])\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    packages, modules = (set(line.split()) for line in done.stderr.splitlines())
    assert not packages & {"numpy", "scipy", "numba", "llvmlite", "sklearn", "pyarrow", "joblib"}
    assert {name for name in modules if name.startswith("folklearn.")} == {
        f"folklearn.{name}"
        for name in ("cli", "cli.app", "cli.commands", "cli.endings", "errors", "registry")
    }


@pytest.mark.parametrize("command", SUMMARIES)
def test_the_list_of_commands_says_what_their_help_says(folklearn, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    assert f" {SUMMARIES[command]} " in folklearn("--help").stdout
    said = folklearn(command, "--help").stdout
    assert said.strip().splitlines()[2].strip() == SUMMARIES[command]


@pytest.mark.parametrize("command", [[], ["run"], ["predict"], ["audit"], ["warmup"]])
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
        "One of auto, folklore, aioli, leader, blocks, gaf, laplace, ogd, ons. Default: auto",
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

    monkeypatch.setattr("folklearn.cli.display.describe_run", fail)
    with pytest.raises(ZeroDivisionError):
        folklearn("run")


def test_an_interrupt_leaves_nothing(folklearn, pets, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("folklearn.model.model.Model._learn_table", interrupt)
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


@pytest.mark.parametrize(("seconds", "n_said"), [(0.0, 1), (math.inf, 0)])
def test_compiling_is_announced_when_it_takes_long(folklearn, pets, monkeypatch, seconds, n_said):
    compilation = progress.Compilation()

    def compile(*_):
        for _ in range(3):
            compilation.begin()
            compilation.end()

    monkeypatch.setattr(progress, "_SECONDS_TO_COMPILE_SILENTLY", seconds)
    monkeypatch.setattr(progress.COMPILATION, "_is_announced", True)  # kernels may be cold
    describe_run = display.describe_run
    monkeypatch.setattr(display, "describe_run", lambda *feed: compile() or describe_run(*feed))
    said = folklearn("run", pets, "--target", "kind").stderr
    sentence = (
        "Compiling kernels, once per machine, which takes a minute or two; `folklearn warmup` "
        "compiles all of them beforehand.\n"
    )
    assert said.count(sentence) == said.count("ompiling kernels") == n_said
    assert folklearn("run", pets, "--target", "kind", "--quiet").stderr == ""


@pytest.mark.parametrize("name", ["folklore", "auto"])
def test_the_warm_up_compiles_everything_that_a_run_uses(name):
    """After it, learning the digits compiles no kernel for another type of argument."""
    script = """
import sys
from folklearn.cli.serve import warm_up
from folklearn.cli.app import main
from folklearn.kernels.second_order_blocks import run_rounds
from folklearn.learners.sgd import ogd_round, ogd_rounds
from folklearn.kernels.scaling import scale_rows
warm_up(sys.argv[1])
kernels = run_rounds, ogd_round, ogd_rounds, scale_rows
before = [len(kernel.signatures) for kernel in kernels]
assert main(["run", "--quiet", "--learner", sys.argv[1]]) == 0
assert before == [len(kernel.signatures) for kernel in kernels], before
assert max(before) == 1, before
"""
    done = subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_everything_can_be_compiled_beforehand(folklearn, monkeypatch):
    used = []
    monkeypatch.setattr(serve, "warm_up", lambda *given: used.append(given))
    monkeypatch.setattr(serve, "_use_model", lambda **given: used.append(given))
    outcome = folklearn("warmup")
    assert outcome.code == 0
    assert outcome.stderr.startswith("Compiled for the service.\n")
    assert outcome.stderr.endswith("All of this is compiled.\n")
    assert len(used) == 1 + outcome.stderr.count("Compiled for") == 2 + 9
