"""`folklearn run`: learn a stream of examples, predicting each one first."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from folklearn.cli import learners, report
from folklearn.cli import plot as plots
from folklearn.cli.inputs import check_options, load_model, new_model, open_examples
from folklearn.cli.interrupts import CtrlC, Interrupted
from folklearn.cli.learning import Write, labelled_rows_of, learn, rows_as_they_come, rows_of
from folklearn.cli.options import Drop, File, Format, Quiet, Target, Text, new_console
from folklearn.cli.outputs import Outputs
from folklearn.cli.predictions import OpenWriter, PredictionWriter, opened
from folklearn.cli.warmup import warm_up
from folklearn.errors import FolklearnError
from folklearn.streams.live import Live
from folklearn.streams.model import StreamModel

_STDOUT = "-"


def run(
    file: File = None,
    target: Target = None,
    format: Format = None,
    text: Text = None,
    drop: Drop = None,
    learner: Annotated[
        str | None,
        typer.Option(
            "--learner",
            metavar="NAME",
            help=f"One of {', '.join(learners.NAMES)}. Default: auto, which needs no settings; "
            "with --B, --lam, --gamma or --memory, folklore.",
        ),
    ] = None,
    B: Annotated[
        float | None,
        typer.Option(
            "--B",
            help="Largest row norm of the models to compete with: a larger B trusts the data "
            "faster, and one that is too large costs loss. Default: 10.",
        ),
    ] = None,
    R: Annotated[
        float | None,
        typer.Option("--R", help="Rough norm of the scaled features. Default: 1."),
    ] = None,
    lam: Annotated[
        float | None, typer.Option("--lam", help="Ridge, positive. Default: the learner's own.")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option("--gamma", help="Curvature. Default: the largest valid in each round."),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory",
            metavar="ROUNDS",
            help="Forget: after so many rounds an example counts 1/e of what it did. For streams "
            "that drift; nothing is certified then. Default: nothing is forgotten.",
        ),
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="OUT.png", help="Draw the course of the run.")
    ] = None,
    predictions: Annotated[
        str | None,
        typer.Option(
            "--predictions",
            "-p",
            metavar="OUT.csv",
            help="Write what was predicted for every example before it was learned; "
            "- writes to standard output.",
        ),
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", "-f", metavar="MODEL", help="Save the model.")
    ] = None,
    load: Annotated[
        str | None,
        typer.Option("--load", "-i", metavar="MODEL", help="Go on learning a saved model."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Learn examples one after the other, predicting each before its label is seen.

    Shows the loss and a proven bound on what any linear model could have gained.

    The file is read twice: once to check every value, once to learn.
    Standard input (-) is read once and learned as it comes, classes included;
    only Parquet and Arrow files are copied to a temporary file first.
    Ctrl-C ends it: what was learned until then is saved and summed up.
    Results go to standard error; with --predictions -, the predictions
    go to standard output.
    """
    settings = {"B": B, "R": R, "lam": lam, "gamma": gamma, "memory": memory}
    given = {name: value for name, value in settings.items() if value is not None}
    if load is not None and (given or learner is not None or text):
        option = next(iter(given), "learner" if learner is not None else "text")
        raise FolklearnError(
            f"--{option} cannot be combined with --load: a saved model keeps its settings"
        )
    check_options(given)
    kind = learners.choose(learner, given)
    console = new_console(quiet)
    if plot is not None:
        plots.refuse_unless_drawable(plot)
    to_stdout = predictions == _STDOUT
    with Outputs() as outputs:
        outputs.protect(file)
        save_path = outputs.promise("--save", save)  # this one may replace the model it came from
        outputs.protect(load)
        plot_path = outputs.promise("--plot", plot)
        predictions_path = outputs.promise("--predictions", None if to_stdout else predictions)
        model = load_model(load) if load is not None else None
        with open_examples(file, target, format, text, drop, model) as table:
            if model is None:
                model = new_model(table, kind, given)
            elif isinstance(table, Live):
                model.open = model.can_grow
            else:
                model.refuse_unless_it_fits(table)
            console.print(report.options(model, table, _why(kind, learner, load)))
            warm_up(console, model.name, table.text)
            started = time.perf_counter()
            n_before, weight_before = model.n_rounds, model.total_weight
            ctrl_c = CtrlC()
            with _writer(predictions, predictions_path, model) as write:
                if isinstance(table, Live):
                    with ctrl_c:
                        rows = rows_as_they_come(table, model, ctrl_c)
                        moments = learn(model, rows, console, write)
                else:
                    rows = labelled_rows_of(table, model) if model.open else rows_of(table, model)
                    moments = learn(model, rows, console, write, table.n_rows)
            seconds = time.perf_counter() - started
        n_learned = model.n_rounds - n_before
        if ctrl_c.pressed and not n_learned:
            raise KeyboardInterrupt
        if not n_learned:
            raise FolklearnError(f"{table.name} has no examples")
        if not model.total_weight > weight_before:
            raise FolklearnError(f"every example of {table.name} has the weight 0")
        if plot_path is not None and plot is not None:
            title = f"folklearn run: {Path(table.name).name}"
            certificate = model.certificate()
            norm = certificate.B if certificate is not None else None
            plots.draw(moments, norm, title, plot_path, Path(plot).suffix)
        if save_path is not None:
            model.save(save_path)
        outputs.commit()
    if ctrl_c.pressed:
        console.print("Interrupted: the stream ends here.")
    console.print(report.summary(model, n_learned, seconds))
    if isinstance(table, Live) and table.missing:
        console.print(f"Missing: {report.missing(table.missing)}.")
    for what, name in (("plot", plot), ("predictions", predictions), ("model", save)):
        if name is not None and name != _STDOUT:
            console.print(f"Wrote the {what} to {name}.")
    if ctrl_c.pressed:
        raise Interrupted


@contextmanager
def _writer(
    predictions: str | None, path: Path | None, model: StreamModel
) -> Iterator[Write | None]:
    """Yield what writes predictions to a path, standard output if None; nothing if not asked."""
    if predictions is None:
        yield None
        return
    with opened(path) as file:
        if model.open:
            some = OpenWriter(file)
            yield lambda P, y, losses: some.write(P, y, losses, model.labels)
        else:
            every = PredictionWriter(file, model.labels)
            yield lambda P, y, losses: every.write(P, y)


def _why(kind: str, asked: str | None, load: str | None) -> str:
    """Return why a learner was taken that nobody named, if it is not the default."""
    if asked is not None or load is not None or kind == learners.DEFAULT:
        return ""
    return f"for its options; without them, {learners.DEFAULT}"
