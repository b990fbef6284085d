"""`folklearn run`: learn rows one after the other, predicting each one first."""

import csv
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from folklearn.cli import learners, report
from folklearn.cli.display import Table, bar, follow, new_console, warnings_shown
from folklearn.cli.flags import as_flags
from folklearn.cli.inputs import check_settings, classes_of, crosses_of, load_model
from folklearn.cli.interrupts import EXIT_CODES, Ended, Signals, Terminated
from folklearn.cli.options import Columns, Source, explained, seconds_of
from folklearn.cli.outputs import Outputs
from folklearn.cli.predictions import PredictionWriter, writer_to
from folklearn.cli.warmup import warm_up
from folklearn.errors import FolklearnError
from folklearn.evidence.certificate import round_down
from folklearn.kernels.blas import OWN
from folklearn.model.dataset import Dataset
from folklearn.model.model import Model
from folklearn.model.run import Run
from folklearn.readers.reader import BadRow
from folklearn.utils import counted

_STDOUT = "-"
_MOST = 2048  # rows of a block: a signal waits for its end
_TABLE = Table([("rows", "loss", "frozen", "error", "rows/s")])
_EXPLANATION = (
    "loss: average log loss, each row predicted before it was learned; frozen: of rows ahead, by "
    "the model as it would be saved."
)
_WINDOWS = Table([("last rows", "loss", "lower", "error"), ("", "", "bound", "")])
_UNPROVEN = "Nothing is proven before there is a second class."


@explained(
    f"""
--weight COLUMN  A column of weights of the rows.
--cross A:B  Two columns whose products count too; may be given several times.
--classes FILE  Labels that are known in advance, one a line.
--learner NAME  One of {", ".join(learners.NAMES)}. Default: auto, which needs no settings; with
    --lam, --gamma or --memory, folklore.
--B  Norm of the weights of a class, per standard deviation, up to which the lower bound speaks of
    linear models; a learner that takes a B is made for it. Default: 10 over the norm of a row.
--R  For experts: how large a scaled row is (its norm), roughly. Default: 1.
--lam  For experts: how strongly weights are held near 0. Default: the learner's own.
--gamma  For experts: how carefully it steps; less is more careful. Default: as much as is proven.
--memory ROWS  Forget: after so many rows a row counts 1/e of what it did. For streams that drift;
    nothing is proven then. Default: nothing is forgotten.
--one-pass  Read a file once: classes and categories as they come.
--shuffle  Learn the rows in a random order; they must fit in memory.
--windows  Show losses, and lower bounds for linear models, of the last 64, 128, ... rows.
--exact  Fit a logistic regression to all rows afterwards, however many and however wide they are.
    Default: for at most 3,000 weights, if the rows fit in memory.
--monitor  Say when the loss, capped at 4 a row, has risen: in at most 1 of 100 streams by chance.
--predictions -p OUT.csv  Write what was predicted for every row before it was learned; - writes to
    standard output.
--save -f MODEL  Save the model.
--load -i MODEL  Go on learning a saved model, which knows its target, roles and settings.
--checkpoint 60s  With --save: write the model on the way too, at most that often; s, m or h.
--bad-rows OUT.csv  Write the rows that were skipped: line, column, reason and text.
--verbose  Tell of the learner, its settings and all of the proof.
"""
)
def run(
    source: Source,
    columns: Columns,
    weight: str | None = None,
    cross: list[str] | None = None,
    classes: str | None = None,
    learner: str | None = None,
    B: float | None = None,
    R: float | None = None,
    lam: float | None = None,
    gamma: float | None = None,
    memory: int | None = None,
    one_pass: bool = False,
    shuffle: bool = False,
    seed: int = 0,
    windows: bool = False,
    exact: bool = False,
    monitor: bool = False,
    device: str = OWN,
    plot: str | None = None,
    predictions: str | None = None,
    save: str | None = None,
    load: str | None = None,
    checkpoint: str | None = None,
    on_bad_row: str = "stop",
    bad_rows: str | None = None,
    quiet: bool = False,
    verbose: bool = False,
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
    settings = {"R": R, "lam": lam, "gamma": gamma, "memory": memory}
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if load is not None:
        own = {"learner": learner, "cross": cross, "B": B, **given}
        _check_load({**own, "classes": classes, "windows": windows})
    if bad_rows is not None and on_bad_row != "skip":
        raise FolklearnError("--bad-rows is of use only with --on-bad-row skip")
    if checkpoint is not None and save is None:
        raise FolklearnError("--checkpoint is of use only with --save: where should it be written?")
    check_settings({**given, **({} if B is None else {"B": B})})
    kind, roles = learners.choose(learner, given), columns.roles()
    every = None if checkpoint is None else seconds_of("--checkpoint", checkpoint)
    console = new_console(quiet)
    with Outputs(source.file) as outputs, warnings_shown(console), ExitStack() as until_the_end:
        save_path = outputs.promise("model", save, as_file=True)  # may replace what was loaded
        outputs.protect(load, classes)
        plot_path = outputs.promise_plot(plot)
        to_file = None if predictions == _STDOUT else predictions
        predictions_path = outputs.promise("predictions", to_file)
        bad_path = outputs.promise("bad rows", bad_rows)
        model = load_model(load) if load is not None else None
        reader, target = source.open()
        if model is not None:
            _check_same_roles(model, roles)
            model.to(device)
        else:
            pairs, labels = crosses_of(cross, reader), classes_of(classes)
            model = Model(
                kind, roles=roles, crosses=pairs, classes=labels, B=B, windows=windows,
                device=device, **given,
            )  # fmt: skip
        if monitor:
            model.monitor(lambda alarm: console.print(alarm.in_words()))
        with skipping(on_bad_row, bad_path) as skipped:
            feed = model.feed(
                reader, target, weight=weight, one_pass=one_pass, on_bad=skipped,
                shuffle=seed if shuffle else None, most=_MOST,
            )  # fmt: skip
            begin(feed, console)
            more = [("learner", learners.described(model))] if verbose else []
            console.print(report.first_screen(feed, *more))
            warm_up(model.learner_name, bool(model.encoder and model.encoder.sparse))
            with writer_to(predictions, predictions_path, feed) as writer:
                keep = None if save_path is None else lambda: _put(outputs, model, save_path)
                signals = until_the_end.enter_context(Signals())  # also while results are saved
                learning = Learning(feed, console, writer, signals, every, keep, exact or None)
                bad = learning.learn()
        if bad is not None:
            if save_path is None or not learning.n_learned:
                raise bad
            _put(outputs, model, save_path)
            if predictions_path is not None:
                outputs.put(predictions_path)
            rows = counted(learning.n_learned, "row")
            raise FolklearnError(f"{bad}; the model of the {rows} before it was saved to {save}")
        learning.check_not_empty()
        course = learning.course.ended()
        if plot_path is not None:
            outputs.draw(course.plot(), plot_path)
        if save_path is not None:
            model.save(save_path)
        if signals.heard is not None:
            console.print("Interrupted: the stream ends here.")
        console.print("\n".join(_summary(model, course, skipped)))
        if model.has_floors:
            console.print(_windows_of(model))
        if verbose:
            console.print("\n".join(report.expert_words(model)))
        outputs.commit(console)
    console.print(_last_line(model))
    if signals.heard is not None:
        raise Ended(EXIT_CODES[signals.heard])


def _check_load(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value:
            raise FolklearnError(
                f"--{name} cannot be combined with --load: a saved model keeps its settings"
            )


def _check_same_roles(model: Model, roles: dict[str, str]) -> None:
    for name, role in roles.items():
        own = model.roles.get(name)
        if own != role:
            known = "which it does not know" if own is None else f"where it has the role {own}"
            raise FolklearnError(
                f"column {name!r} cannot become {role!r} in a saved model, {known}: leave that out"
            )


def _put(outputs: Outputs, model: Model, path: Path) -> None:
    model.save(path)
    outputs.put(path)


@dataclass
class BadRowSink:
    """Takes rows that cannot be read, and writes them down if there is a file for it."""

    write: Callable[[list[Any]], Any] | None = None
    n_rows: int = 0

    def __call__(self, bad: BadRow) -> None:
        self.n_rows += 1
        if self.write is not None:
            self.write([bad.line, bad.column, as_flags(bad.reason), bad.text])


@contextmanager
def skipping(on_bad_row: str, path: Path | None = None) -> Iterator[BadRowSink | None]:
    """Yield what takes bad rows, None if the first one is to stop everything."""
    if on_bad_row not in ("stop", "skip"):
        raise FolklearnError(f"--on-bad-row must be stop or skip, got {on_bad_row!r}")
    if on_bad_row == "stop":
        yield None
    elif path is None:
        yield BadRowSink()
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["line", "column", "reason", "text"])
            yield BadRowSink(writer.writerow)


def begin(feed: Dataset, console: Console) -> None:
    """Let a feed look at the rows, and refuse what cannot be learned."""
    model, reader = feed.model, feed.reader
    if not feed.one_pass:
        with bar(console, endless=reader.n_rows is None) as progress:
            task = progress.add_task("checking", total=reader.n_rows)
            feed.begin(lambda n_rows: progress.update(task, completed=n_rows))
    elif not model.labels:
        learners.check_growing(model.learner_name)
    feed.begin()
    if feed.scan is not None and len(model.labels) < 2:
        only = f"only the label {model.labels[0]!r}" if model.labels else "no label"
        raise FolklearnError(
            f"column {feed.target!r} of {reader.name} has {only}; learning needs at least two "
            "classes"
        )


@dataclass
class Learning:
    """Learns a feed, shows how it goes, and keeps what was learned on the way.

    Parameters
    ----------
    feed : the rows, looked at.
    writer : of predictions, if they are asked for.
    signals : what may end it.
    every : seconds after which the model is kept on the way; None for never.
    keep : keeps the model.
    exact : as for `Model.run`.
    """

    feed: Dataset
    console: Console
    writer: PredictionWriter | None
    signals: Signals
    every: float | None = None
    keep: Callable[[], None] | None = None
    exact: bool | None = None

    def __post_init__(self) -> None:
        self.model = self.feed.model
        self.n_before, self.weight_before = self.model.n_rounds, self.model.total_weight
        self.course = Run.of(self.model, self.feed, self.exact)

    @property
    def n_learned(self) -> int:
        """The number of rows learned by now."""
        return self.model.n_rounds - self.n_before

    def learn(self) -> BadRow | None:
        """Learn all rows; return the bad one that ended it, if one did."""
        found = self.feed.scan
        total = found.n_rows - found.n_unlabelled if found else None
        self.console.print(_EXPLANATION)
        try:
            follow(
                self.console, _TABLE, self._counts(), self._cells,
                what="learning", total=total,
            )  # fmt: skip
        except BadRow as bad:
            return bad
        finally:
            self.feed.keep_names()
        return None

    def _counts(self) -> Iterator[int]:
        rows, kept = self.feed.rows(), time.monotonic()
        while (some := self.signals.next_of(rows)) is not None:
            for part, step in self.feed.learn(some):
                self.course.add(part, step)
                if self.writer is not None:
                    self.writer.write(part, step)
            if self.keep is not None and self.every is not None:
                now = time.monotonic()
                if now - kept >= self.every:
                    self.keep()
                    kept = now
            yield self.n_learned

    def _cells(self, speed: float) -> list[str]:
        course, frozen = self.course, report.number(self.model.holdout_loss)
        cells = [f"{course.n_rows}", report.number(course.loss), frozen]
        return [*cells, f"{course.error:.2%}", f"{speed:.0f}"]

    def check_not_empty(self) -> None:
        """Raise if no row was learned, or none that counts."""
        name, heard = self.feed.reader.name, self.signals.heard
        if not self.n_learned:
            if heard is not None:
                raise KeyboardInterrupt if EXIT_CODES[heard] == 130 else Terminated
            what = "no row with a label" if self.feed.n_unlabelled else "no rows"
            raise FolklearnError(f"{name} has {what}")
        if not self.model.total_weight > self.weight_before:
            raise FolklearnError(f"every row of {name} has the weight 0")


def _summary(model: Model, course: Run, skipped: BadRowSink | None) -> Iterator[str]:
    """Yield what was learned, and what that is worth."""
    text = f"Learned {counted(course.n_rows, 'row')} in {course.seconds:.2f} s"
    if course.n_unlabelled:
        text += f"; {counted(course.n_unlabelled, 'row')} without a label predicted only"
    if skipped is not None and skipped.n_rows:
        text += f"; {counted(skipped.n_rows, 'bad row')} skipped"
    yield f"{text}."
    if model.is_open:
        new = report.number(model.loss_of_new / model.total_weight)
        yield f"{report.classes(model.labels)}; {new} of the loss was paid for their being new."
    if course.hindsight is None:
        yield "In hindsight: not computed for so many weights or rows; --exact does it."
    else:
        yield course.hindsight.in_words()
    certificate = course.certificate
    yield _UNPROVEN if certificate is None else certificate.in_words(model.total_weight)


def _windows_of(model: Model) -> str:
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
        floor = report.number(window.floor / window.weight) if window.floor > 0.0 else "-"
        error = f"{window.n_errors / n:.2%}"
        lines.append(_WINDOWS.line([f"{n}", report.number(loss), floor, error]))
    return "\n".join(lines)


def _last_line(model: Model) -> str:
    error = model.n_mistakes / model.n_rounds
    loss = report.number(model.average_loss)
    rows = counted(model.n_rounds, "row")
    return f"Over all {rows}: error {error:.2%}, average log loss {loss}."
