"""`folklearn predict`: what a saved model says of examples, learning nothing."""

import time
from itertools import repeat
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from folklearn.arrays import TINY, log_losses
from folklearn.cli import learners, report
from folklearn.cli.inputs import load_model, open_rows
from folklearn.cli.learning import bar
from folklearn.cli.options import File, Format, Quiet, Target, new_console
from folklearn.cli.outputs import Outputs
from folklearn.cli.predictions import PredictionWriter, writer_to
from folklearn.cli.warmup import warm_up
from folklearn.errors import FolklearnError
from folklearn.streams.model import StreamModel
from folklearn.streams.scanned import FileTable
from folklearn.streams.table import Table
from folklearn.words import counted, listed

_STDOUT = "-"
_BLOCK = 1024


def predict(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="What `folklearn run --save` wrote.")
    ],
    file: File = None,
    target: Target = None,
    format: Format = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="OUT.csv", help="Where to write; - is standard output."
        ),
    ] = _STDOUT,
    score: Annotated[
        bool,
        typer.Option("--score", help="Compare with the labels, which every example must have."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Predict examples with a saved model, which learns nothing from them.

    Writes one row per example: the most likely class, then the probability
    of every class, and for a model that learns classes as they come that of
    a class never seen, p(unseen). Columns are found by name; those that the model does not
    know are ignored, and so are the labels unless --score asks for them.

    The file is read twice: once to check every value, once to predict.
    Standard input is copied to a temporary file first.
    """
    if target is not None and not score:
        raise FolklearnError("--target is of use only with --score: else no label is looked at")
    console = new_console(quiet)
    with Outputs() as outputs:
        outputs.protect(file)
        outputs.protect(model)
        path = outputs.promise("--output", None if output == _STDOUT else output)
        loaded = load_model(model, "folklearn predict")
        with open_rows(loaded, file, target, format, score) as table:
            if score:
                loaded.refuse_unknown_labels(table)
            console.print(_about(loaded, table))
            warm_up(console, loaded.name, table.text)
            started = time.perf_counter()
            unseen = loaded.unseen_probability if loaded.open else None
            with writer_to(path, loaded.labels, labelled=False, unseen=unseen) as writer:
                scores = _predict(loaded, table, console, writer, score)
            seconds = time.perf_counter() - started
        outputs.commit()
    console.print(f"Predicted {counted(table.n_rows, 'example')} in {seconds:.2f} s{scores}.")
    if path is not None:
        console.print(f"Wrote the predictions to {output}.")


def _predict(
    model: StreamModel, table: Table, console: Console, writer: PredictionWriter, score: bool
) -> str:
    """Predict every row; return what the predictions were worth, in words."""
    loss = total = 0.0
    n_mistakes = 0
    with bar(console) as progress:
        task = progress.add_task("predicting", total=table.n_rows)
        for X, y, weight in table.blocks(model.columns, model.labels, repeat(_BLOCK)):
            P = model.predict(X)
            writer.write(P)
            if score:
                weights = np.ones(len(y)) if weight is None else weight
                loss += float(weights @ log_losses(P, y, np.empty(0), TINY))
                total += float(weights.sum())
                n_mistakes += int((P.argmax(axis=1) != y).sum())
            progress.advance(task, len(y))
    if not score:
        return ""
    return f": average log loss {loss / total:.4f} nats, error rate {n_mistakes / table.n_rows:.2%}"


def _about(model: StreamModel, table: Table) -> str:
    lines = [
        ("data", report.described(table)),
        ("learner", f"{learners.described(model)}; learned {model.n_rounds} rounds"),
    ]
    if isinstance(table, FileTable) and table.unused:
        unused = counted(len(table.unused), "column")
        lines.append(("ignored", f"{unused} unknown to the model: {listed(table.unused)}"))
    if isinstance(table, FileTable) and table.sparse:
        lines.append(("absent", "features that a line does not name are 0"))
    if table.missing:
        lines.append(("missing", report.missing(table.missing)))
    if model.open:
        u = model.unseen_probability
        lines.append(("unseen", f"a class that was never seen has the probability {u:.2g}"))
    return report.named(*lines)
