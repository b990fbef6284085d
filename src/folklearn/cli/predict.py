"""`folklearn predict`: what a saved model says of rows, learning nothing."""

import time

import numpy as np

from folklearn.cli import report
from folklearn.cli.display import bar, new_console, warnings_shown
from folklearn.cli.inputs import load_model
from folklearn.cli.interrupts import EXIT_CODES, Ended, Signals
from folklearn.cli.options import Source, explained
from folklearn.cli.outputs import Outputs
from folklearn.cli.predictions import UNSEEN, writer_to
from folklearn.cli.run import skipping
from folklearn.errors import FolklearnError
from folklearn.model.dataset import Dataset
from folklearn.model.run import Score
from folklearn.utils import counted, listed

_STDOUT = "-"


@explained(
    """
--output -o OUT.csv  Where to write; - is standard output.
"""
)
def predict(
    model: str,
    source: Source,
    output: str = _STDOUT,
    on_bad_row: str = "stop",
    quiet: bool = False,
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
        Outputs(source.file, model) as outputs,
        warnings_shown(console),
        skipping(on_bad_row) as skipped,
    ):
        path = outputs.promise("predictions", None if output == _STDOUT else output)
        loaded = load_model(model, "folklearn predict")
        reader, target = source.open()
        feed = loaded.feed(reader, target, one_pass=True, known_only=True, on_bad=skipped)
        if loaded.pipeline is None:
            raise FolklearnError(f"{model} has learned nothing yet")
        labelled = feed.target in reader.names
        console.print(_about(feed))
        started = time.perf_counter()
        totals, n_rows, signals = np.zeros(5), 0, Signals()
        with (
            signals,
            bar(console, endless=reader.n_rows is None) as progress,
            writer_to(output, path, feed, labelled=labelled) as writer,
        ):
            task = progress.add_task("predicting", total=reader.n_rows)
            rows = feed.rows(doubling=False)
            while (some := signals.next_of(rows)) is not None:
                step = feed.predict(some)
                if writer is not None:
                    writer.write(some, step)
                totals += Score.totals(some, step)
                n_rows += len(some.block)
                progress.update(task, completed=n_rows)
        feed.unlearned.warn()
        outputs.commit(console)
    seconds = time.perf_counter() - started
    n_skipped = skipped.n_rows if skipped is not None else 0
    left_out = f"; {counted(n_skipped, 'bad row')} skipped" if n_skipped else ""
    console.print(f"Predicted {counted(n_rows, 'row')} in {seconds:.2f} s{left_out}.")
    score = Score.of_totals(totals)
    if score.n_rows:
        console.print(_score(score))
    if signals.heard is not None:
        raise Ended(EXIT_CODES[signals.heard])


def _score(score: Score) -> str:
    unknown = ""
    if score.n_unknown:
        unknown = f", {score.n_unknown} of them of classes that the model does not know"
    return (
        f"Over {counted(score.n_rows, 'row')} with a label{unknown}: error {score.error:.2%}, "
        f"average log loss {score.loss:.4f}."
    )


def _about(feed: Dataset) -> str:
    model, reader = feed.model, feed.reader
    lines = [
        ("data", report.source(reader, reader.n_rows)),
        ("model", f"learned {counted(model.n_rounds, 'row')}, {report.classes(model.labels)}"),
    ]
    if feed.unknown:
        lines.append(("ignored", f"columns that the model does not know: {listed(feed.unknown)}"))
    if model.is_open:
        unseen = model.unseen_probability
        lines.append((UNSEEN, f"a class that was never seen has the probability {unseen:.2g}"))
    return report.named(*lines)
