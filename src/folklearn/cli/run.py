"""`folklearn run`: learn a stream of examples, predicting each one first."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from folklearn.cli import learners, report
from folklearn.cli import plot as plots
from folklearn.cli.inputs import check_options, load_model, new_model, open_table
from folklearn.cli.learning import learn
from folklearn.cli.options import File, Format, Quiet, Target, new_console
from folklearn.cli.outputs import Outputs
from folklearn.cli.predictions import writer_to
from folklearn.cli.warmup import warm_up
from folklearn.errors import FolklearnError

_STDOUT = "-"


def run(
    file: File = None,
    target: Target = None,
    format: Format = None,
    learner: Annotated[
        str | None,
        typer.Option(
            "--learner",
            metavar="NAME",
            help=f"One of {', '.join(learners.NAMES)}. Default: auto, which needs no settings; "
            "with --B, --lam or --gamma, folklore.",
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
        float | None, typer.Option("--lam", help="Ridge, positive. Default: 2R/B.")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option("--gamma", help="Curvature. Default: the largest valid in each round."),
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
    Standard input is copied to a temporary file first.
    Results go to standard error; with --predictions -, the predictions
    go to standard output.
    """
    settings = {"B": B, "R": R, "lam": lam, "gamma": gamma}
    given = {name: value for name, value in settings.items() if value is not None}
    if load is not None and (given or learner is not None):
        raise FolklearnError(
            f"--{next(iter(given), 'learner')} cannot be combined with --load: "
            "a saved model keeps its settings"
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
        usual_target = model.target if model is not None else None
        with open_table(file, target, format, usual_target) as table:
            if model is None:
                model = new_model(table, kind, given)
            else:
                model.refuse_unless_it_fits(table)
            console.print(report.options(model, table, _why(kind, learner, load)))
            warm_up(console, learners.name_of(model.learner))
            started = time.perf_counter()
            with (
                writer_to(predictions_path, model.labels) if predictions else nullcontext()
            ) as writer:
                moments = learn(model, table, console, writer)
            seconds = time.perf_counter() - started
        if plot_path is not None and plot is not None:
            title = f"folklearn run: {Path(table.name).name}"
            certificate = model.certificate()
            norm = certificate.B if certificate is not None else None
            plots.draw(moments, norm, title, plot_path, Path(plot).suffix)
        if save_path is not None:
            model.save(save_path)
        outputs.commit()
    console.print(report.summary(model, table.n_rows, seconds))
    for what, name in (("plot", plot), ("predictions", predictions), ("model", save)):
        if name is not None and name != _STDOUT:
            console.print(f"Wrote the {what} to {name}.")


def _why(kind: str, asked: str | None, load: str | None) -> str:
    """Return why a learner was taken that nobody named, if it is not the default."""
    if asked is not None or load is not None or kind == learners.DEFAULT:
        return ""
    return f"for its options; without them, {learners.DEFAULT}"
