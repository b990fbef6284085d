"""`folklearn predict`: predict rows with a saved model."""

import time
from typing import Annotated

import numpy as np
from typer import Argument, Option

from folklearn.cli import options, text
from folklearn.cli.atomic_files import AtomicOutputs
from folklearn.cli.display import new_console, progress_bar, warnings_shown
from folklearn.cli.predictions_file import UNSEEN, open_writer
from folklearn.cli.signals import EXIT_CODES, Ended, Signals
from folklearn.errors import FolklearnError
from folklearn.model.dataset import Dataset
from folklearn.model.run import Score
from folklearn.utils import count_of, join_names


def predict(
    model: Annotated[
        str, Argument(metavar="MODEL", help="A model that `folklearn run --save` wrote.")
    ],
    file: options.File = None,
    target: options.Target = None,
    format: options.Format = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    output: Annotated[
        str,
        Option("--output", "-o", metavar="OUT.csv", help="Output; - is standard output."),
    ] = options.STDOUT,
    on_bad_row: options.OnBadRow = "stop",
    quiet: options.Quiet = False,
) -> None:
    """Predict rows with a saved model, which learns nothing from them.

    Writes one line a row: where it came from, its ids, its label if there
    is one, the most likely class and its probability, and the probability
    of every class. Columns are found by name; those that the model does not
    know are ignored. Where rows have labels, the error and the loss follow.

    Standard input (-) is answered line by line, as it comes.
    """
    console = new_console(quiet)
    with (
        AtomicOutputs(file, model) as outputs,
        warnings_shown(console),
        options.open_bad_row_sink(on_bad_row) as bad_row_sink,
    ):
        path = outputs.reserve("predictions", None if output == options.STDOUT else output)
        loaded = options.load_model(model, "folklearn predict")
        reader, target = options.Source(file, target, format, delimiter, encoding, decimal).open()
        feed = Dataset(loaded, reader, target, one_pass=True, known_only=True, on_bad=bad_row_sink)
        if loaded.pipeline is None:
            raise FolklearnError(f"{model} has learned nothing yet")
        labelled = feed.target in reader.names
        console.print(_describe(feed))
        started = time.perf_counter()
        totals, n_rows, signals = np.zeros(5), 0, Signals()
        with (
            signals,
            progress_bar(console, "predicting", reader.n_rows) as report,
            open_writer(output, path, feed, labelled=labelled) as writer,
        ):
            rows = feed.rows(doubling=False)
            while (batch := signals.next_of(rows)) is not None:
                step = feed.predict(batch)
                if writer is not None:
                    writer.write(batch, step)
                totals += Score.totals(batch, step)
                n_rows += len(batch.table)
                report(n_rows)
        feed.unlearned.warn()
        outputs.commit(console)
    seconds = time.perf_counter() - started
    n_skipped = 0 if bad_row_sink is None else bad_row_sink.n_rows
    left_out = f"; {count_of(n_skipped, 'bad row')} skipped" if n_skipped else ""
    console.print(f"Predicted {count_of(n_rows, 'row')} in {seconds:.2f} s{left_out}.")
    score = Score.of_totals(totals)
    if score.n_rows:
        console.print(_describe_score(score))
    if signals.received is not None:
        raise Ended(EXIT_CODES[signals.received])


def _describe_score(score: Score) -> str:
    unknown = ""
    if score.n_unknown:
        unknown = f", {score.n_unknown} of them of classes that the model does not know"
    return (
        f"Over {count_of(score.n_rows, 'row')} with a label{unknown}: error {score.error:.2%}, "
        f"average log loss {score.loss:.4f}."
    )


def _describe(feed: Dataset) -> str:
    model, reader = feed.model, feed.reader
    lines = [
        ("data", text.describe_source(reader, reader.n_rows)),
        (
            "model",
            f"learned {count_of(model.n_rounds, 'row')}, {text.describe_classes(model.labels)}",
        ),
    ]
    if feed.unknown:
        lines.append(
            ("ignored", f"columns that the model does not know: {join_names(feed.unknown)}")
        )
    if model.is_open:
        unseen = model.unseen_probability
        lines.append((UNSEEN, f"a class that was never seen has the probability {unseen:.2g}"))
    return text.format_fields(*lines)
