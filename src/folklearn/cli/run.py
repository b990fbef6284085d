"""`folklearn run`: learn rows one after the other, predicting each one first."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated

from rich.console import Console
from typer import Option

from folklearn.cli import display, options
from folklearn.cli.display import TextTable, format_loss
from folklearn.cli.endings import AtomicOutputs, StreamSignals, raise_signal, stream_signals
from folklearn.cli.labelled_file import check_two_classes
from folklearn.cli.options import Text
from folklearn.cli.predict import PredictionWriter, open_writer
from folklearn.errors import FolklearnError
from folklearn.evaluate.prediction_sets import COVERAGE
from folklearn.kernels.blas import OWN
from folklearn.learners import catalogue
from folklearn.model.dataset import ModelDataset
from folklearn.model.labels import BALANCED
from folklearn.model.model import Model
from folklearn.model.run import Run, Score
from folklearn.model.summary import describe_claims
from folklearn.readers.reader import BadRow
from folklearn.report import style
from folklearn.utils import count_of

_CLASSIC = "folklore"  # the learner that the options lam, gamma and memory belong to
_MAX_ROWS_OF_BATCH = 2048  # a signal waits for its end
_TABLE = TextTable([("rows", "loss", "hold-out", "error", "rows/s")])
_EXPLANATION = (
    "loss: average log loss, each row predicted before it was learned; hold-out: of rows ahead, "
    "by the model as it would be saved."
)
_WINDOWS = TextTable([("last rows", "loss", "lower", "error"), ("", "", "bound", "")])
_LEARNER_HELP = (
    f"One of {', '.join(options.LEARNERS)}. Default: auto, which needs no settings; with --lam, "
    "--gamma or --memory, folklore."
)


def run(
    source: options.Source,
    role: options.Roles = None,
    drop: options.Dropped = None,
    weight: Annotated[Text, Option(metavar="COLUMN", help="Column of row weights.")] = None,
    cross: Annotated[
        list[str] | None, Option(metavar="A:B", help="Columns whose products count; repeatable.")
    ] = None,
    terms: Annotated[
        str,
        Option(
            metavar="auto|none|all",
            help="Curves, products and waves of columns: as many as a budget allows, none (lines "
            "only), or all.",
        ),
    ] = "auto",
    classes: Annotated[
        Text, Option(metavar="FILE", help="Labels that are known in advance, one a line.")
    ] = None,
    class_weight: Annotated[
        list[str] | None,
        Option(
            metavar="balanced|LABEL=W",
            help="Weight of the rows of a class, repeatable, or all classes alike.",
        ),
    ] = None,
    learner: Annotated[Text, Option(metavar="NAME", help=_LEARNER_HELP)] = None,
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
        Option(metavar="ROWS", help="Rows after which one counts 1/e; then nothing is proven."),
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
        Option("--exact", help="Fit a logistic regression afterwards, of any number of rows."),
    ] = False,
    coverage: Annotated[
        list[float] | None,
        Option(
            metavar="SHARE",
            help="Of labels that prediction sets should have; repeatable. Default: .8, .9 and .95.",
        ),
    ] = None,
    coverage_by: Annotated[
        str, Option(metavar="all|class", help="Whether sets hold over all rows, or in each class.")
    ] = "all",
    monitor: Annotated[
        bool,
        Option("--monitor", help="Print an alarm when the loss rises: 1 in 100 streams by chance."),
    ] = False,
    device: options.Device = OWN,
    plot: Annotated[
        Text, Option(metavar="OUT.png", help="Write a plot, as .png, .svg or .pdf.")
    ] = None,
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
    fixed = {"learner": learner, "cross": cross, **settings}
    fixed |= {"classes": classes, "windows": windows, "role": role, "drop": drop}
    fixed |= {"terms": terms != "auto", "coverage": coverage, "coverage-by": coverage_by != "all"}
    fixed["class-weight"] = class_weight
    for name in fixed:
        if load is not None and fixed[name]:
            raise FolklearnError(
                f"--{name} cannot be combined with --load: a saved model keeps its settings"
            )
    if bad_rows is not None and on_bad_row != "skip":
        raise FolklearnError("--bad-rows is of use only with --on-bad-row skip")
    if checkpoint is not None and save is None:
        raise FolklearnError("--checkpoint is of use only with --save: where should it be written?")
    every = None if checkpoint is None else options.parse_seconds("--checkpoint", checkpoint)
    if plot is not None:
        style.check_format(plot)
        style.require_matplotlib()
    roles = options.parse_roles(role, drop)
    learner = _choose_learner(learner, settings)
    console = display.new_console(quiet)
    with (
        AtomicOutputs(source.file) as outputs,
        display.warnings_shown(console),
        stream_signals() as signals,
    ):
        save_path = outputs.reserve("model", save, as_file=True)  # may replace what was loaded
        outputs.protect(load, classes)
        plot_path = outputs.reserve("plot", plot)
        to_file = None if predictions == options.STDOUT else predictions
        predictions_path = outputs.reserve("predictions", to_file)
        bad_path = outputs.reserve("bad rows", bad_rows)
        model = None if load is None else options.load_model(load)
        reader, target = source.open()
        if model is not None:
            model.to(device)
        else:
            crosses, labels = options.parse_crosses(cross, reader), options.read_classes(classes)
            model = Model(
                learner, roles=roles, crosses=crosses, classes=labels, windows=windows,
                terms=terms, missing=source.missing, device=device,
                coverage=coverage or COVERAGE, coverage_by=coverage_by,
                class_weight=options.parse_class_weight(class_weight), **settings,
            )  # fmt: skip
        if monitor:
            model.monitor(lambda alarm: console.print(alarm.in_words()))
        n_before = model.n_rounds

        def save_model() -> None:
            assert save_path is not None
            model.save(save_path)
            outputs.publish(save_path)

        try:
            with options.open_bad_row_sink(on_bad_row, bad_path) as bad_row_sink:
                dataset = ModelDataset(
                    model, reader, target, weight=weight, one_pass=one_pass, on_bad=bad_row_sink,
                    shuffle=seed if shuffle else None, max_rows=_MAX_ROWS_OF_BATCH,
                )  # fmt: skip
                _scan(dataset, console)
                console.print(display.format_fields(display.describe_run(dataset)))
                scan, run = dataset.scan, Run(model, reader.name, exact or None)
                with open_writer(predictions, predictions_path, dataset) as writer:
                    console.print(_EXPLANATION)
                    display.run_with_table(
                        console,
                        _TABLE,
                        _learn(run, dataset, writer, signals, save_model, every),
                        partial(_format_progress, run),
                        what="learning",
                        total=scan.n_rows - scan.n_unlabelled if scan else None,
                    )
        except BadRow as bad:
            n_learned = model.n_rounds - n_before
            if save is None or not n_learned:
                raise
            save_model()
            if predictions_path is not None:
                outputs.publish(predictions_path)
            rows = count_of(n_learned, "row")
            sentence = f"{bad}; the model of the {rows} before it was saved to {save}"
            raise FolklearnError(sentence) from None
        dataset.warn_of_missing()
        _check_learned(run, reader.name, signals)
        run.finish()
        if plot_path is not None:
            run.plot(str(plot_path))
        if save_path is not None:
            model.save(save_path)
        if signals.received is not None:
            console.print("Interrupted: the stream ends here.")
        n_bad = 0 if bad_row_sink is None else bad_row_sink.n_rows
        console.print("\n".join(_summarise(model, run, n_bad)))
        if verbose:
            console.print("\n".join(display.describe_details(model)))
        outputs.commit(console)
    error, rows = model.metrics.n_errors / model.n_rounds, count_of(model.n_rounds, "row")
    score = Score(model, model.metrics)
    losses = f"average log loss {format_loss(score.loss)}, Brier score {score.brier:.4f}"
    console.print(f"Over all {rows}: error {error:.2%}, {losses}.")
    for line in score.rare_in_words:
        console.print(line)
    signals.raise_ended()


def _choose_learner(name: str | None, settings: Mapping[str, float]) -> str:
    default = display.DEFAULT_LEARNER
    if name is None:  # settings that the default does not take select Folklore
        return default if set(settings) <= {*catalogue.settings_of(default)} else _CLASSIC
    takes = [option for option in display.SETTINGS if option in catalogue.settings_of(name)]
    for option in settings:
        if option not in takes and name == default:
            raise FolklearnError(f"{name} needs no {option}; choose --learner {_CLASSIC}")
        if option not in takes:
            options = " and ".join(f"--{word}" for word in takes)
            raise FolklearnError(f"{name} takes no --{option}; its options are {options}")
    return name


def _scan(dataset: ModelDataset, console: Console) -> None:
    model, reader = dataset.model, dataset.reader
    if dataset.one_pass and not model.labels and not catalogue.grows(model.learner_name):
        raise FolklearnError(
            f"{model.learner_name} must know all classes beforehand, and one pass brings them as "
            "they come: let it read a file twice, name them (--classes FILE), or choose one of: "
            f"{', '.join(catalogue.growing())}"
        )
    weights = model.label_encoder.class_weight
    if dataset.one_pass and weights == BALANCED:
        raise FolklearnError(
            "--class-weight balanced needs all labels first: let it read a file twice, or give "
            "weights as --class-weight LABEL=W"
        )
    if dataset.one_pass:
        dataset.begin()
    else:
        with display.progress_bar(console, "checking", reader.n_rows) as report:
            dataset.begin(report)
        check_two_classes(model.labels, dataset)
        if isinstance(weights, Mapping) and not model.n_rounds:
            options.check_classes("--class-weight", weights, model.labels)


def _learn(
    run: Run,
    dataset: ModelDataset,
    writer: PredictionWriter | None,
    signals: StreamSignals,
    save: Callable[[], None],
    every: float | None,
) -> Iterator[int]:
    rows, saved = dataset.rows(dataset.model.n_rounds), time.monotonic()
    try:
        while (batch := signals.next_of(rows)) is not None:
            for learned, result in dataset.learn(batch):
                run.add(learned, result)
                if writer is not None:
                    writer.write(learned, result)
            if every is not None and time.monotonic() - saved >= every:
                save()
                saved = time.monotonic()
            yield run.n_rows
    finally:
        if dataset.has_numbered_features:
            dataset.keep_names()


def _format_progress(run: Run, speed: float) -> list[str]:
    losses = map(format_loss, (run.loss, run.holdout_loss))
    return [f"{run.n_rows}", *losses, f"{run.error:.2%}", f"{speed:.0f}"]


def _check_learned(run: Run, name: str, signals: StreamSignals) -> None:
    if not run.n_rows:
        if signals.received is not None:
            raise_signal(signals.received)
        what = "no row with a label" if run.n_unlabelled else "no rows"
        raise FolklearnError(f"{name} has {what}")
    if not run.metrics.weight > 0.0:
        raise FolklearnError(f"every row of {name} has the weight 0")


def _summarise(model: Model, run: Run, n_bad: int) -> Iterator[str]:
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
        yield _WINDOWS.header
    for window in windows:
        bound = window.lower_bound / window.weight if window.lower_bound > 0.0 else None
        losses = map(format_loss, (window.loss / window.weight, bound))
        error = f"{window.n_errors / window.n_rounds:.2%}"
        yield _WINDOWS.line([f"{window.n_rounds}", *losses, error])
