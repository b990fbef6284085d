"""`folklearn run`: learn rows one after the other, predicting each one first."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from typer import Option

from folklearn.cli import display, options
from folklearn.cli.display import format_cells, format_loss
from folklearn.cli.endings import AtomicOutputs, StreamSignals, handle_signals, raise_signal
from folklearn.cli.options import LearnedSource, Text, Texts
from folklearn.cli.predict import Write, open_writer
from folklearn.errors import FolklearnError
from folklearn.evaluate.prediction_sets import COVERAGE
from folklearn.kernels.blas import OWN
from folklearn.learners import catalogue
from folklearn.model.dataset import ModelDataset
from folklearn.model.labels import BALANCED
from folklearn.model.model import Model
from folklearn.model.run import Run, Score
from folklearn.model.summary import describe_claims
from folklearn.progress import show_bar, working_time
from folklearn.readers.reader import BadRow, Reader
from folklearn.report import style
from folklearn.utils import count_of

_MAX_ROWS_OF_BATCH = 2048  # a signal waits for its end
_TABLE = "rows", "loss", "hold-out", "error", "rows/s"
_EXPLANATION = (
    "loss: average log loss, each row predicted before it was learned; hold-out: of rows ahead, "
    "by the model as it would be saved."
)
_WINDOWS = ("last rows", "loss", "lower", "error"), ("", "", "bound", "")
_LEARNER_HELP = f"One of {', '.join(options.LEARNERS)}. Default: auto, which needs no settings."


@dataclass(frozen=True)
class ModelOptions:
    """What a new model is; one that is loaded keeps its own settings."""

    cross: Texts = Option(None, metavar="A:B", help="Columns whose products count; repeatable.")
    terms: str = Option("auto", metavar="auto|none|all", help="Curves and products of columns.")
    classes: Text = Option(None, metavar="FILE", help="Labels known in advance, one a line.")
    class_weight: Texts = Option(
        None, metavar="balanced|LABEL=W", help="Weight of the rows of a class; repeatable."
    )
    learner: Text = Option(None, metavar="NAME", help=_LEARNER_HELP)
    set: Texts = Option(None, metavar="NAME=N", help="Setting of the learner: lam=0.5; repeatable.")
    windows: bool = Option(False, "--windows", help="Loss and bound of the last 64, 128, ... rows.")
    coverage: list[float] | None = Option(
        None, metavar="SHARE", help="Of labels in prediction sets; repeatable. Default: .8 .9 .95."
    )
    coverage_by: str = Option("all", metavar="all|class", help="Sets over all rows, or by class.")

    def check_unset(self, **of_columns: Texts) -> None:
        """Raise if an option is set, or one about the roles of columns."""
        defaults = {field.name: field.default.default for field in fields(self)}  # type: ignore
        for name, value in (vars(self) | of_columns).items():
            if value and value != defaults.get(name):
                raise FolklearnError(f"--{name.replace('_', '-')} cannot be combined with --load")

    def choose_learner(self) -> tuple[str, dict[str, Any]]:
        """Return the name of the learner and its settings; raise unless it takes them."""
        name, settings = self.learner or display.DEFAULT_LEARNER, dict[str, Any]()
        for setting, number in options.parse_numbers("--set", self.set, "name").items():
            settings[setting] = int(number) if number.is_integer() else number
        catalogue.make(name, 1, 2, settings)
        return name, settings

    def make(self, source: LearnedSource, reader: Reader, device: str) -> Model:
        learner, settings = self.choose_learner()
        return Model(
            learner, roles=source.roles, crosses=options.parse_crosses(self.cross, reader),
            classes=options.read_classes(self.classes), windows=self.windows, terms=self.terms,
            missing=source.missing, device=device, coverage=self.coverage or COVERAGE,
            coverage_by=self.coverage_by,
            class_weight=options.parse_class_weight(self.class_weight), **settings,
        )  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """How rows are gone through, and what is written."""

    weight: Text = Option(None, metavar="COLUMN", help="Column of row weights.")
    one_pass: bool = Option(False, "--one-pass", help="Read a file once, as if from a pipe.")
    shuffle: bool = Option(False, "--shuffle", help="Learn in a random order; all rows in memory.")
    seed: int = Option(0, help="Random seed.")
    exact: bool = Option(False, "--exact", help="Fit a logistic regression at the end in any case.")
    monitor: bool = Option(False, "--monitor", help="Print an alarm when the loss rises.")
    device: options.Device = OWN
    plot: Text = Option(None, metavar="OUT.png", help="Write a plot, as .png, .svg or .pdf.")
    predictions: Text = Option(None, "-p", "--predictions", metavar="OUT.csv", help="- to stdout.")
    save: Text = Option(None, "-f", "--save", metavar="MODEL", help="Save the model.")
    load: Text = Option(None, "-i", "--load", metavar="MODEL", help="Continue with a saved model.")
    checkpoint: Text = Option(None, metavar="60s", help="With --save: this often too; s, m, h.")
    on_bad_row: options.OnBadRow = "stop"
    bad_rows: Text = Option(None, metavar="OUT.csv", help="Write skipped rows and their reasons.")
    quiet: options.Quiet = False

    def check(self, source: LearnedSource, new: ModelOptions) -> None:
        """Raise for options that cannot be, before anything is read."""
        new.choose_learner()
        if self.load is not None:
            new.check_unset(role=source.role, drop=source.drop)
        if self.bad_rows is not None and self.on_bad_row != "skip":
            raise FolklearnError("--bad-rows is of use only with --on-bad-row skip")
        if self.checkpoint is not None and self.save is None:
            raise FolklearnError("--checkpoint is of use only with --save")
        options.parse_seconds("--checkpoint", self.checkpoint)
        if self.plot is not None:
            style.check_format(self.plot)
            style.require_matplotlib()


def run(source: LearnedSource, new: ModelOptions, asked: RunOptions) -> None:
    """Shows the loss, and how much a linear model could have gained, proven.

    The file is read twice: once to check every value, once to learn.
    Standard input (-) is read once and learned as it comes, classes included.
    A row without a label is predicted only.
    Ctrl-C and SIGTERM end it: what was learned until then is saved and
    summed up. Results go to standard error; with --predictions -, the
    predictions go to standard output.
    """
    asked.check(source, new)
    with (
        AtomicOutputs(source.file, new.classes) as outputs,
        display.open_console(asked.quiet) as console,
        handle_signals(StreamSignals()) as signals,
    ):
        save_path = outputs.reserve("model", asked.save, as_file=True)  # may replace what is loaded
        outputs.protect(asked.load)
        plot_path = outputs.reserve("plot", asked.plot)
        to_file = None if asked.predictions == options.STDOUT else asked.predictions
        predictions_path = outputs.reserve("predictions", to_file)
        bad_path = outputs.reserve("bad rows", asked.bad_rows)
        model = None if asked.load is None else options.load_model(asked.load)
        reader, target = source.open()
        model = new.make(source, reader, asked.device) if model is None else model.to(asked.device)
        if asked.monitor:
            model.monitor(lambda alarm: console.print(alarm.in_words()))
        with options.open_bad_rows(asked.on_bad_row, bad_path) as bad_rows:
            dataset = ModelDataset(
                model, reader, target, weight=asked.weight, one_pass=asked.one_pass,
                on_bad=bad_rows.take, shuffle=asked.seed if asked.shuffle else None,
                max_rows=_MAX_ROWS_OF_BATCH,
            )  # fmt: skip
            _scan(dataset, console)
            console.print(display.format_fields(display.describe_run(dataset)))
            run = Run(model, reader.name, asked.exact or None)
            save = partial(_save, model, outputs, save_path)
            every = options.parse_seconds("--checkpoint", asked.checkpoint)
            try:
                with open_writer(asked.predictions, predictions_path, dataset) as write:
                    _learn(run, dataset, signals, console, write, save, every)
            except BadRow as bad:  # what came before it is kept
                if asked.save is None or not run.n_rows:
                    raise
                save(predictions_path)
                rows = count_of(run.n_rows, "row")
                said = f"{bad}; the model of the {rows} before it was saved to {asked.save}"
                raise FolklearnError(said) from None
        dataset.warn_of_missing()
        _check_learned(run, reader.name, signals)
        run.finish()
        if plot_path is not None:
            run.plot(str(plot_path))
        if save_path is not None:
            model.save(save_path)
        console.print("\n".join(_summarise(model, run, signals, bad_rows.n_rows)))
        outputs.commit(console)
    all_rows = f"all {count_of(model.n_rounds, 'row')}"
    console.print(display.describe_score(all_rows, Score(model, model.metrics)))
    signals.raise_ended()


def _save(model: Model, outputs: AtomicOutputs, *paths: Path | None) -> None:
    """Save the model to the first of the paths, and put all of them in place."""
    model.save(paths[0])  # type: ignore[arg-type]
    outputs.publish(*paths)


def _scan(dataset: ModelDataset, console: Console) -> None:
    model = dataset.model
    weights = model.label_encoder.class_weight
    if not dataset.one_pass:
        options.check_rows(dataset, console)
        if isinstance(weights, Mapping) and not model.n_rounds:
            options.check_classes("--class-weight", weights, model.labels)
        return
    if not model.labels and not catalogue.grows(model.learner_name):
        raise FolklearnError(
            f"{model.learner_name} must know all classes beforehand: let it read a file twice, "
            f"name them (--classes FILE), or choose one of: {', '.join(catalogue.growing())}"
        )
    if weights == BALANCED:
        raise FolklearnError("--class-weight balanced needs all labels first; give LABEL=W instead")
    dataset.begin()


def _learn(
    run: Run, dataset: ModelDataset, signals: StreamSignals, console: Console,
    write: Write, save: Callable[[], None], every: float,
) -> None:  # fmt: skip
    """Predict, learn and write all rows, and save between batches when `every` seconds are over.

    A line is printed whenever the number of rows has doubled, and one at the end.
    """
    rows, scan = dataset.rows(dataset.model.n_rounds), dataset.scan
    n_shown, started, saved = 0, working_time(), time.monotonic()
    console.print(_EXPLANATION)
    console.print(format_cells(_TABLE), style="bold")

    def show() -> None:
        losses = map(format_loss, (run.loss, run.holdout_loss))
        speed = run.n_rows / (working_time() - started)
        console.print(format_cells([f"{run.n_rows}", *losses, f"{run.error:.2%}", f"{speed:.0f}"]))

    total = scan.n_rows - scan.n_unlabelled if scan else None
    with show_bar(console, "learning", total) as report:
        try:
            while (batch := signals.next_of(rows)) is not None:
                for learned, result in dataset.learn(batch):
                    run.add(learned, result)
                    write(learned, result)
                if time.monotonic() - saved >= every:
                    save()
                    saved = time.monotonic()
                report(run.n_rows)
                if run.n_rows >= max(1, 2 * n_shown):
                    show()
                    n_shown = run.n_rows
        finally:
            if dataset.has_numbered_features:
                dataset.keep_names()
        if run.n_rows > n_shown:
            show()


def _check_learned(run: Run, name: str, signals: StreamSignals) -> None:
    if not run.n_rows:
        if signals.received is not None:
            raise_signal(signals.received)
        what = "no row with a label" if run.n_unlabelled else "no rows"
        raise FolklearnError(f"{name} has {what}")
    if not run.metrics.weight > 0.0:
        raise FolklearnError(f"every row of {name} has the weight 0")


def _summarise(model: Model, run: Run, signals: StreamSignals, n_bad: int) -> Iterator[str]:
    if signals.received is not None:
        yield "Interrupted: the stream ends here."
    rows = f"Learned {count_of(run.n_rows, 'row')} in {run.seconds:.2f} s"
    if run.n_unlabelled:
        rows += f"; {count_of(run.n_unlabelled, 'row')} without a label predicted only"
    if n_bad:
        rows += f"; {count_of(n_bad, 'bad row')} skipped"
    yield f"{rows}."
    if model.is_open:
        new = format_loss(model.metrics.loss_of_new / model.metrics.weight)
        classes = display.describe_classes(model.labels)
        yield f"{classes}; {new} of the loss was paid for their being new."
    if run.hindsight is None:
        yield "In hindsight: not computed for this many weights or rows; --exact does it."
    yield from describe_claims(model, run.certificate)
    yield from filter(None, [model.sets.in_words()])
    yield from run.notes
    windows = model.windows() if model.has_window_bounds else []
    windows = [window for window in windows if window.weight > 0.0]
    if windows:
        yield (
            "The last rows; the lower bound is for the linear models above, with their penalty, "
            "fixed for these rows:"
        )
        yield from map(format_cells, _WINDOWS)
    for window in windows:
        bound = window.lower_bound / window.weight if window.lower_bound > 0.0 else None
        losses = map(format_loss, (window.loss / window.weight, bound))
        error = f"{window.n_errors / window.n_rounds:.2%}"
        yield format_cells([f"{window.n_rounds}", *losses, error])
