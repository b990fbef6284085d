"""`folklearn run`: learn rows one after the other, predicting each one first."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Option

from folklearn.cli import options, text
from folklearn.cli.atomic_files import AtomicOutputs
from folklearn.cli.display import (
    TextTable,
    new_console,
    progress_bar,
    run_with_table,
    warnings_shown,
)
from folklearn.cli.labelled_file import check_two_classes
from folklearn.cli.options import Text
from folklearn.cli.predictions_file import PredictionWriter, open_writer
from folklearn.cli.signals import EXIT_CODES, Ended, Signals, Terminated
from folklearn.errors import FolklearnError
from folklearn.evidence.certificate import round_down
from folklearn.kernels.blas import OWN
from folklearn.learners import catalogue
from folklearn.model.dataset import Dataset
from folklearn.model.model import Model
from folklearn.model.run import Run
from folklearn.model.summary import NOTHING_PROVEN
from folklearn.readers.reader import BadRow
from folklearn.utils import count_of

_CLASSIC = "folklore"  # the learner that the options lam, gamma and memory belong to
_MAX_ROWS_OF_BATCH = 2048  # a signal waits for its end
_TABLE = TextTable([("rows", "loss", "frozen", "error", "rows/s")])
_EXPLANATION = (
    "loss: average log loss, each row predicted before it was learned; frozen: of rows ahead, by "
    "the model as it would be saved."
)
_WINDOWS = TextTable([("last rows", "loss", "lower", "error"), ("", "", "bound", "")])
_LEARNER_HELP = (
    f"One of {', '.join(options.LEARNERS)}. Default: auto, which needs no settings; with --lam, "
    "--gamma or --memory, folklore."
)


def run(
    file: options.File = None,
    target: options.Target = None,
    format: options.Format = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    role: options.Roles = None,
    drop: options.Dropped = None,
    weight: Annotated[Text, Option(metavar="COLUMN", help="Column of row weights.")] = None,
    cross: Annotated[
        list[str] | None,
        Option(metavar="A:B", help="Columns whose products count; repeatable."),
    ] = None,
    classes: Annotated[
        Text, Option(metavar="FILE", help="Labels that are known in advance, one a line.")
    ] = None,
    learner: Annotated[Text, Option(metavar="NAME", help=_LEARNER_HELP)] = None,
    B: options.Norm = None,
    R: Annotated[
        float | None, Option("--R", help="For experts: norm of a scaled row. Default: about 1.")
    ] = None,
    lam: Annotated[
        float | None, Option(help="For experts: the ridge lambda. Default: the learner's own.")
    ] = None,
    gamma: Annotated[
        float | None, Option(help="For experts: the step gamma. Default: the largest proven.")
    ] = None,
    memory: Annotated[
        int | None,
        Option(
            metavar="ROWS",
            help="Forget: after this many rows a row counts 1/e of what it did. For streams that "
            "drift; nothing is proven then. Default: nothing is forgotten.",
        ),
    ] = None,
    one_pass: Annotated[
        bool, Option("--one-pass", help="Read a file once: classes and categories as they come.")
    ] = False,
    shuffle: Annotated[
        bool, Option("--shuffle", help="Learn in a random order; the rows must fit in memory.")
    ] = False,
    seed: Annotated[int, Option(help="Random seed.")] = 0,
    windows: Annotated[
        bool, Option("--windows", help="Losses and lower bounds of the last 64, 128, ... rows.")
    ] = False,
    exact: Annotated[
        bool,
        Option(
            "--exact",
            help="Fit a logistic regression to all rows afterwards, whatever their number and "
            "width. Default: for at most 3,000 weights, if the rows fit in memory.",
        ),
    ] = False,
    monitor: Annotated[
        bool,
        Option(
            "--monitor",
            help="Print an alarm when the loss, capped at 4 a row, has risen: in at most 1 of 100 "
            "streams by chance.",
        ),
    ] = False,
    device: options.Device = OWN,
    plot: options.Plot = None,
    predictions: Annotated[
        Text,
        Option("-p", "--predictions", metavar="OUT.csv", help="Write predictions; - to stdout."),
    ] = None,
    save: Annotated[Text, Option("-f", "--save", metavar="MODEL", help="Save the model.")] = None,
    load: Annotated[
        Text, Option("-i", "--load", metavar="MODEL", help="Continue with a saved model.")
    ] = None,
    checkpoint: Annotated[
        Text, Option(metavar="60s", help="With --save: save this often too; s, m or h.")
    ] = None,
    on_bad_row: options.OnBadRow = "stop",
    bad_rows: Annotated[
        Text, Option(metavar="OUT.csv", help="Write skipped rows: line, column, reason and text.")
    ] = None,
    quiet: options.Quiet = False,
    verbose: Annotated[
        bool, Option("--verbose", help="Print the learner, its settings and the whole proof.")
    ] = False,
) -> None:
    """Learn rows one after the other, predicting each before its label is seen.

    Shows the loss, and how much a linear model could have gained, proven.

    The file is read twice: once to check every value, once to learn.
    Standard input (-) is read once and learned as it comes, classes included.
    A row without a label is predicted only.
    Ctrl-C and SIGTERM end it: what was learned until then is saved and
    summed up. Results go to standard error; with --predictions -, the
    predictions go to standard output.
    """
    settings = options.check_settings(R=R, lam=lam, gamma=gamma, memory=memory)
    options.check_settings(B=B)
    if load is not None:
        fixed = {"learner": learner, "cross": cross, "B": B, **settings}
        _check_load({**fixed, "classes": classes, "windows": windows})
    if bad_rows is not None and on_bad_row != "skip":
        raise FolklearnError("--bad-rows is of use only with --on-bad-row skip")
    if checkpoint is not None and save is None:
        raise FolklearnError("--checkpoint is of use only with --save: where should it be written?")
    every = None if checkpoint is None else options.parse_seconds("--checkpoint", checkpoint)
    roles = options.parse_roles(role, drop)
    learner = _choose_learner(learner, settings)
    console = new_console(quiet)
    with AtomicOutputs(file) as outputs, warnings_shown(console), ExitStack() as until_the_end:
        save_path = outputs.reserve("model", save, as_file=True)  # may replace what was loaded
        outputs.protect(load, classes)
        saving = None
        if save is not None and save_path is not None:
            saving = _Saving(outputs, save, save_path, every)
        plot_path = outputs.reserve_plot(plot)
        to_file = None if predictions == options.STDOUT else predictions
        predictions_path = outputs.reserve("predictions", to_file)
        bad_path = outputs.reserve("bad rows", bad_rows)
        model = None if load is None else options.load_model(load)
        reader, target = options.Source(file, target, format, delimiter, encoding, decimal).open()
        if model is not None:
            _check_same_roles(model, roles)
            model.to(device)
        else:
            crosses, labels = options.parse_crosses(cross, reader), options.read_classes(classes)
            model = Model(
                learner, roles=roles, crosses=crosses, classes=labels, B=B, windows=windows,
                device=device, **settings,
            )  # fmt: skip
        if monitor:
            model.monitor(lambda alarm: console.print(alarm.in_words()))
        with options.open_bad_row_sink(on_bad_row, bad_path) as bad_row_sink:
            feed = Dataset(
                model, reader, target, weight=weight, one_pass=one_pass, on_bad=bad_row_sink,
                shuffle=seed if shuffle else None, most=_MAX_ROWS_OF_BATCH,
            )  # fmt: skip
            _scan(feed, console)
            lines = [("learner", text.describe_learner(model))] if verbose else []
            console.print(text.describe_run(feed, *lines))
            with open_writer(predictions, predictions_path, feed) as writer:
                signals = until_the_end.enter_context(Signals())  # also while results are saved
                loop = RunLoop(feed, console, writer, signals, saving, exact or None)
                bad = loop.learn()
        if bad is not None:
            raise bad if saving is None else _save_before(bad, loop, saving, predictions_path)
        loop.check_not_empty()
        finished = loop.run.finish()
        if plot_path is not None:
            outputs.draw(finished.plot(), plot_path)
        if saving is not None:
            model.save(saving.path)
        _print_results(console, loop, finished, bad_row_sink, verbose)
        outputs.commit(console)
    console.print(_describe_totals(model))
    if signals.received is not None:
        raise Ended(EXIT_CODES[signals.received])


def _choose_learner(name: str | None, settings: Mapping[str, float]) -> str:
    """Return the learner to use; raise for an unknown name and settings that it does not take.

    Without a name, settings that the default does not take select Folklore.
    """
    default = text.DEFAULT_LEARNER
    if name is None:
        return default if set(settings) <= {*catalogue.settings_of(default)} else _CLASSIC
    takes = [option for option in text.SETTINGS if option in catalogue.settings_of(name)]
    for option in settings:
        if option not in takes and name == default:
            raise FolklearnError(f"{name} needs no {option}; choose --learner {_CLASSIC}")
        if option not in takes:
            options = " and ".join(f"--{word}" for word in ("B", *takes))
            raise FolklearnError(f"{name} takes no --{option}; its options are {options}")
    return name


def _check_load(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value:
            raise FolklearnError(
                f"--{name} cannot be combined with --load: a saved model keeps its settings"
            )


def _check_same_roles(model: Model, roles: dict[str, str]) -> None:
    for name, role in roles.items():
        saved = model.roles.get(name)
        if saved != role:
            why = "which it does not know" if saved is None else f"where it has the role {saved}"
            raise FolklearnError(
                f"column {name!r} cannot become {role!r} in a saved model, {why}: leave that out"
            )


def _scan(feed: Dataset, console: Console) -> None:
    """Read the rows once if they can be read twice; raise for rows that cannot be learned."""
    model, reader = feed.model, feed.reader
    if not feed.one_pass:
        with progress_bar(console, "checking", reader.n_rows) as report:
            feed.begin(report)
    elif not model.labels and not catalogue.grows(model.learner_name):
        raise FolklearnError(
            f"{model.learner_name} must know all classes beforehand, and one pass brings them as "
            "they come: let it read a file twice, name them (--classes FILE), or choose one of: "
            f"{', '.join(catalogue.growing())}"
        )
    feed.begin()
    if feed.scan is not None:
        check_two_classes(model.labels, feed)


@dataclass
class _Saving:
    """Where the model is saved, and the seconds between checkpoints, None for none."""

    outputs: AtomicOutputs
    name: str
    path: Path
    every: float | None

    def save(self, model: Model) -> None:
        """Write the model, and rename it into place."""
        model.save(self.path)
        self.outputs.publish(self.path)


@dataclass
class RunLoop:
    """Learn all rows of a feed, with a table of the progress, predictions and checkpoints.

    Parameters
    ----------
    feed : the rows, scanned.
    writer : of predictions, None for none.
    signals : SIGINT and SIGTERM, which end it.
    saving : where the model is saved, None for nowhere.
    exact : as for `Model.run`.
    """

    feed: Dataset
    console: Console
    writer: PredictionWriter | None
    signals: Signals
    saving: _Saving | None = None
    exact: bool | None = None

    def __post_init__(self) -> None:
        self.model = self.feed.model
        self._n_before, self._weight_before = self.model.n_rounds, self.model.metrics.weight
        self.run = Run.of(self.model, self.feed, self.exact)

    @property
    def n_learned(self) -> int:
        """The number of rows learned by now."""
        return self.model.n_rounds - self._n_before

    def learn(self) -> BadRow | None:
        """Learn all rows; return the bad one that ended it, if there was one."""
        scan = self.feed.scan
        total = scan.n_rows - scan.n_unlabelled if scan else None
        self.console.print(_EXPLANATION)
        try:
            run_with_table(
                self.console, _TABLE, self._learn_batches(), self._cells,
                what="learning", total=total,
            )  # fmt: skip
        except BadRow as bad:
            return bad
        finally:
            self.feed.keep_names()
        return None

    def _learn_batches(self) -> Iterator[int]:
        rows, saved = self.feed.rows(), time.monotonic()
        every = None if self.saving is None else self.saving.every
        while (batch := self.signals.next_of(rows)) is not None:
            for learned, step in self.feed.learn(batch):
                self.run.add(learned, step)
                if self.writer is not None:
                    self.writer.write(learned, step)
            if self.saving is not None and every is not None and time.monotonic() - saved >= every:
                self.saving.save(self.model)
                saved = time.monotonic()
            yield self.n_learned

    def _cells(self, speed: float) -> list[str]:
        losses = self.run.loss, self.model.metrics.holdout_loss
        cells = [f"{self.run.n_rows}", *map(text.format_loss, losses), f"{self.run.error:.2%}"]
        return [*cells, f"{speed:.0f}"]

    def check_not_empty(self) -> None:
        """Raise if no row was learned, or all had the weight 0."""
        name, received = self.feed.reader.name, self.signals.received
        if not self.n_learned:
            if received is not None:
                raise KeyboardInterrupt if EXIT_CODES[received] == 130 else Terminated
            what = "no row with a label" if self.feed.n_unlabelled else "no rows"
            raise FolklearnError(f"{name} has {what}")
        if not self.model.metrics.weight > self._weight_before:
            raise FolklearnError(f"every row of {name} has the weight 0")


def _save_before(
    bad: BadRow, loop: RunLoop, saving: _Saving, predictions: Path | None
) -> FolklearnError:
    """Save the model of the rows before a bad one; return the error to raise."""
    if not loop.n_learned:
        return bad
    saving.save(loop.model)
    if predictions is not None:
        saving.outputs.publish(predictions)
    rows = count_of(loop.n_learned, "row")
    return FolklearnError(f"{bad}; the model of the {rows} before it was saved to {saving.name}")


def _print_results(
    console: Console,
    loop: RunLoop,
    finished: Run,
    bad_row_sink: options.BadRowSink | None,
    verbose: bool,
) -> None:
    model = loop.model
    if loop.signals.received is not None:
        console.print("Interrupted: the stream ends here.")
    console.print("\n".join(_summarise(model, finished, bad_row_sink)))
    if model.has_window_bounds:
        console.print(_describe_windows(model))
    if verbose:
        console.print("\n".join(text.describe_details(model)))


def _summarise(
    model: Model, finished: Run, bad_row_sink: options.BadRowSink | None
) -> Iterator[str]:
    """Yield sentences on the rows, the regression in hindsight and the certificate."""
    rows = f"Learned {count_of(finished.n_rows, 'row')} in {finished.seconds:.2f} s"
    if finished.n_unlabelled:
        rows += f"; {count_of(finished.n_unlabelled, 'row')} without a label predicted only"
    if bad_row_sink is not None and bad_row_sink.n_rows:
        rows += f"; {count_of(bad_row_sink.n_rows, 'bad row')} skipped"
    yield f"{rows}."
    if model.is_open:
        new = text.format_loss(model.metrics.loss_of_new / model.metrics.weight)
        classes = text.describe_classes(model.labels)
        yield f"{classes}; {new} of the loss was paid for their being new."
    if finished.hindsight is None:
        yield "In hindsight: not computed for this many weights or rows; --exact does it."
    else:
        yield finished.hindsight.in_words()
    certificate = finished.certificate
    yield NOTHING_PROVEN if certificate is None else certificate.in_words(model.metrics.weight)


def _describe_windows(model: Model) -> str:
    windows = model.windows()
    lines = [
        "The last rows; the lower bound is for the linear models above, of norm up to "
        f"{round_down(windows[0].B)}, fixed for these rows:"
        if windows
        else "",
        _WINDOWS.header,
    ]
    for window in windows:
        n = max(1, window.n_rounds)
        loss = window.loss / window.weight if window.weight > 0.0 else None
        bound = (
            text.format_loss(window.lower_bound / window.weight)
            if window.lower_bound > 0.0
            else "-"
        )
        error = f"{window.n_errors / n:.2%}"
        lines.append(_WINDOWS.line([f"{n}", text.format_loss(loss), bound, error]))
    return "\n".join(lines)


def _describe_totals(model: Model) -> str:
    error = model.metrics.n_errors / model.n_rounds
    loss = text.format_loss(model.metrics.average_loss)
    rows = count_of(model.n_rounds, "row")
    return f"Over all {rows}: error {error:.2%}, average log loss {loss}."
