"""`folklearn predict`: predict rows with a saved model; the writer of predictions."""

import csv
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from typer import Option

from folklearn.cli import display, options
from folklearn.cli.endings import AtomicOutputs, StreamSignals, handle_signals
from folklearn.errors import FolklearnError
from folklearn.metrics.predictions import PredictionBatch
from folklearn.model.dataset import LabelledTable, ModelDataset
from folklearn.model.roles import ID
from folklearn.model.row_explanation import explain_rows
from folklearn.model.run import Score
from folklearn.progress import show_bar
from folklearn.readers.table import TextColumn
from folklearn.utils import count_of, join_names

# Columns of a file of predictions: the probability of a class, of one never seen, and the label.
CLASS_PREFIX, UNSEEN, LABEL = "p:", "unseen", "label"
_SET = "set"
_MAX_REASONS = 3  # of a row

Write = Callable[[LabelledTable, PredictionBatch], None]


def predict(
    model: options.ModelFile,
    source: options.Source,
    output: str = Option("-", "--output", "-o", metavar="OUT.csv", help="- is standard output."),
    coverage: float | None = Option(
        None, metavar="SHARE", help="Add the set of labels: a share that the model has."
    ),
    costs: options.Texts = Option(
        None,
        metavar="LABEL[:PREDICTED]=N",
        help="What a mistake costs, 1 by default: predict the class of least cost; repeatable.",
    ),
    explain: bool = Option(False, "--explain", help="Add what speaks for the class, not the next."),
    on_bad_row: options.OnBadRow = "stop",
    quiet: options.Quiet = False,
) -> None:
    """Writes one line a row: where it came from, its ids, its label if there
    is one, the most likely class and its probability, and the probability
    of every class. Columns are found by name; those that the model does not
    know are ignored. Where rows have labels, the error and the loss follow.
    With --explain, two columns more: the next class, and what speaks most
    for the first against it, in nats.

    Standard input (-) is answered line by line, as it comes.
    """
    with (
        AtomicOutputs(source.file, model) as outputs,
        display.open_console(quiet) as console,
        options.open_bad_rows(on_bad_row) as bad_rows,
    ):
        path = outputs.reserve("predictions", None if output == options.STDOUT else output)
        loaded = options.load_model(model, "folklearn predict")
        reader, target = source.open()
        dataset = ModelDataset(
            loaded, reader, target, one_pass=True, known_only=True, on_bad=bad_rows.take
        )
        if loaded.pipeline is None:
            raise FolklearnError(f"{model} has learned nothing yet")
        if coverage is not None:
            loaded.sets.by_class(coverage)  # raises if it was not declared
        cost_of = options.parse_costs(costs, loaded.labels)
        console.print(_describe(dataset))
        score, n_rows, started = Score(loaded, costs=cost_of), 0, time.perf_counter()
        with (
            handle_signals(StreamSignals()) as signals,
            show_bar(console, "predicting", reader.n_rows) as report,
            open_writer(output, path, dataset, coverage=coverage, explain=explain) as write,
        ):
            rows = dataset.rows()
            while (batch := signals.next_of(rows)) is not None:
                step = dataset.predict(batch, cost_of)
                write(batch, step)
                score.add(batch, step)
                n_rows += len(batch.table)
                report(n_rows)
        dataset.warn_of_missing()
        dataset.unlearned.warn()
        outputs.commit(console)
    seconds = time.perf_counter() - started
    console.print("\n".join(_summarise(score, n_rows, bad_rows.n_rows, seconds)))
    signals.raise_ended()


def _summarise(score: Score, n_rows: int, n_bad: int, seconds: float) -> Iterator[str]:
    skipped = f"; {count_of(n_bad, 'bad row')} skipped" if n_bad else ""
    yield f"Predicted {count_of(n_rows, 'row')} in {seconds:.2f} s{skipped}."
    if score.n_rows:
        yield display.describe_score(f"{count_of(score.n_rows, 'row')} with a label", score)


def _describe(dataset: ModelDataset) -> str:
    model, reader = dataset.model, dataset.reader
    learned, classes = count_of(model.n_rounds, "row"), display.describe_classes(model.labels)
    fields = {"data": display.describe_source(reader, reader.n_rows)}
    fields["model"] = f"learned {learned}, {classes}"
    if dataset.unknown:
        unknown = join_names(dataset.unknown)
        fields["ignored"] = f"columns that the model does not know: {unknown}"
    if model.is_open:
        p = model.unseen_probability
        fields[UNSEEN] = f"a class that was never seen has the probability {p:.2g}"
    return display.format_fields(fields)


class PredictionWriter:
    """Write predictions as CSV; numbers are written so that they read back equal.

    `p_label` is the probability that the label was given, `unseen` that of a class never seen;
    a set has | between labels (a label that has one has \\| for it); `why` is what adds most to the
    log odds between the two likeliest classes, and what all the rest adds. There is a `p:` for
    every class that is known when the first row is written.
    """

    def __init__(
        self, file: TextIO, dataset: ModelDataset, coverage: float | None, explain: bool
    ) -> None:
        self._coverage, self._explain = coverage, explain
        self._file, self._model = file, dataset.model
        self._labelled = not dataset.known_only or dataset.target in dataset.reader.names
        self._is_live = dataset.reader.is_live
        self._ids = [name for name in dataset.kinds if dataset.roles[name] == ID]
        self._n_classes = len(dataset.model.labels)
        self._writer = csv.writer(file, lineterminator="\n")
        names = ["row", LABEL, "predicted", "probability", "p_label", UNSEEN]
        names += [_SET] * (coverage is not None)
        names += ["against", "why"] * explain
        names += [f"{CLASS_PREFIX}{label}" for label in dataset.model.labels]
        ids = [f"id:{name}" if name in names else name or "id:" for name in self._ids]
        hidden = () if self._labelled else (LABEL, "p_label")
        self._write([[names[0], *ids, *(name for name in names[1:] if name not in hidden)]])

    def write(self, rows: LabelledTable, step: PredictionBatch) -> None:
        labels, n_rows = self._model.labels, len(rows.table)
        best = step.predicted
        highest = step.P[np.arange(n_rows), best] if step.P.shape[1] else np.zeros(n_rows)
        predicted = [labels[k] if p > 0.0 else "" for k, p in zip(best, highest, strict=True)]
        columns: list[Any] = [rows.table.lines.tolist()]
        columns += [rows.ids.get(name, [None] * n_rows) for name in self._ids]
        true, p_label = np.full((2, n_rows), "", object)
        is_text = isinstance(rows.labels, TextColumn)
        true[rows.has_label] = rows.labels.to_list() if is_text else list(rows.labels)
        p_label[rows.has_label] = np.exp(-step.losses[rows.has_label])
        columns += [true] * self._labelled + [predicted, highest.tolist()]
        columns += [p_label] * self._labelled
        columns.append(step.unseen.tolist())
        if self._coverage is not None:
            sets = self._model.sets.choose(step.P, labels, self._coverage)
            columns.append(
                ["|".join(str(label).replace("|", r"\|") for label in chosen) for chosen in sets]
            )
        if self._explain:
            whys = list(explain_rows(self._model, rows.table, decided=best))
            columns.append([why.against for why in whys])
            tops = (why.top(_MAX_REASONS) for why in whys)
            columns.append(["; ".join(f"{line} {line.nats:+.2f}" for line in top) for top in tops])
        columns += step.P[:, : self._n_classes].T.tolist()
        self._write(zip(*columns, strict=True))

    def _write(self, lines: Iterable[Sequence[Any]]) -> None:
        self._writer.writerows(lines)
        if self._is_live:
            self._file.flush()


@contextmanager
def open_writer(
    name: str | None,
    path: Path | None,
    dataset: ModelDataset,
    *,
    coverage: float | None = None,
    explain: bool = False,
) -> Iterator[Write]:
    """Yield what writes rows to a path, or to standard output; without a name it writes none."""
    if name is None:
        yield lambda rows, step: None
        return
    stdout: Any = sys.stdout
    if path is None:
        if stdout is None:  # the calling process closed it
            raise FolklearnError("standard output is closed: name a file for the predictions")
        stdout.reconfigure(encoding="utf-8", newline="")
    with open(path, "w", encoding="utf-8", newline="") if path else nullcontext(stdout) as file:
        yield PredictionWriter(file, dataset, coverage, explain).write
        file.flush()
