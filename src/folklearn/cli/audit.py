"""`folklearn audit`: certify the predictions of any model, in one file or several."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np
from joblib import parallel_config
from rich.console import Console
from typer import Argument, Option

from folklearn.cli import display, options
from folklearn.cli.display import TextTable, format_loss, new_console, warnings_shown
from folklearn.cli.labelled_file import LabelledFile, PredictionsFile, encode_alike
from folklearn.errors import FolklearnError
from folklearn.evaluate.auditing import Certifier, PredictionCertificate
from folklearn.evaluate.best_linear import Pass
from folklearn.evaluate.regression import Regression
from folklearn.evidence.passes import MapReduce
from folklearn.kernels.blas import OWN
from folklearn.metrics.scores import score
from folklearn.scale.parallel import AuditedFile, audit_files
from folklearn.utils import count_of, join_names

_TOLERANCE = 1e-6  # of --exact, relative
_MIN_FILE_WIDTH, _MAX_FILE_WIDTH = 10, 40  # characters
_TABLE = TextTable(
    [
        ("", "loss since", "average", "error", "regret bound", ""),
        ("rows", "last line", "log loss", "rate", "a row", "rows/s"),
    ],
    width=13,
)


def audit(
    source: options.Source,
    predictions: Annotated[
        list[str],
        Option(
            "-p",
            "--predictions",
            metavar="PREDS.csv",
            help="Probabilities of a model: a line for every row, in order, under a header of "
            "labels, plain or as p:label; one file for each file of rows, in their order.",
        ),
    ],
    more: Annotated[
        list[str] | None,
        Argument(show_default=False, help="Further files, whose evidence is added up."),
    ] = None,
    role: options.Roles = None,
    drop: options.Dropped = None,
    exact: Annotated[
        bool,
        Option("--exact", help="Read the file again until the best of all linear models is known."),
    ] = False,
    terms: Annotated[
        bool, Option("--terms", help="Also fit curves and products of the columns, in hindsight.")
    ] = False,
    jobs: options.Jobs = 1,
    device: options.Device = OWN,
    quiet: options.Quiet = False,
) -> None:
    """Certify predictions that any model made: how much better could a linear model do?

    Each prediction must have been made before its label was seen; this cannot be checked.
    """
    options.check_jobs(jobs)
    MapReduce.from_options(jobs, device)  # raises before anything is read
    roles, names = options.parse_roles(role, drop), (source.file, *(more or ()))
    if len(predictions) != len(names):
        raise FolklearnError(
            f"{count_of(len(names), 'file')} of rows, and {count_of(len(predictions), 'file')} of "
            "predictions; expected --predictions once for each, in the same order"
        )
    console, started = new_console(quiet), time.perf_counter()
    if more:
        if exact or terms or device != OWN or options.STDIN in names:
            raise FolklearnError(
                "--exact, --terms, --device and standard input are for one file of rows"
            )
        with warnings_shown(console):
            sources = [replace(source, file=name) for name in names]
            files = [LabelledFile(console, "audit", each, roles) for each in sources]
            total = _audit_together(console, dict(zip(files, predictions, strict=True)), jobs)
        seconds = time.perf_counter() - started
        console.print(f"Audited {total.n_rounds} predictions in {seconds:.2f} s.")
        console.print(total.in_words())
        return
    with warnings_shown(console):
        audited = FileAudit(console, "audit", source, roles, predictions[0], device)
        certificate = audited.certificate(jobs if exact else None)
        hindsight = audited.file.regression()
        of_terms = audited.file.term_regression() if terms else None
    seconds, scores = time.perf_counter() - started, score(audited.P, audited.y)
    console.print(
        f"Audited {certificate.n_rounds} predictions in {seconds:.2f} s: average log loss "
        f"{scores.log_loss:.4f} nats, error rate {scores.error_rate:.2%}, Brier score "
        f"{scores.brier:.4f}, expected calibration error {scores.calibration_error:.4f}."
    )
    console.print(certificate.in_words())
    if certificate.valid and certificate.regret_bound < 0.0:
        console.print(
            "So these predictions had a lower loss than every such linear model with its penalty."
        )
    if hindsight is not None:
        console.print(hindsight.in_words())
    if of_terms is not None:
        console.print(of_terms.in_words())
        console.print(_compare_with_terms(certificate.loss, of_terms))
    for note in audited.predictions.notes(audited.y):
        console.print(note)


def _compare_with_terms(loss: float, fitted: Regression) -> str:
    """Say whether curves and products of the columns know what predictions do not."""
    n = fitted.total_weight
    if loss <= fitted.at_least:
        return "So these predictions had a lower loss than every such model with its penalty."
    if loss <= fitted.loss + fitted.penalty:
        return "So it is open whether a model of terms would have done better."
    return (
        f"So there is something in these columns that the predictions do not see: up to "
        f"{(loss - fitted.loss) / n:.4f} nats a row, of which some is hindsight."
    )


class FileAudit:
    """Read rows and predictions of them, and certify these, with a table of the progress."""

    def __init__(
        self,
        console: Console,
        command: str,
        source: options.Source,
        roles: Mapping[str, str],
        predictions: str,
        device: str = OWN,
    ) -> None:
        self._console = console
        self.file = file = LabelledFile(console, command, source, roles)
        self.predictions = PredictionsFile(predictions, file).read()
        sizes = {"n_features": file.n_inputs + 1, "n_classes": len(file.labels)}
        self.certifier = Certifier(**sizes, constant=0, device=device)
        models = f"linear in {file.describe_columns()}"
        console.print(file.describe(audited=predictions, models=models))
        self.P, self.y = self.predictions.P, np.empty(file.n_rows, np.int64)
        self._shown = 0, 0.0  # rows and loss by the last line
        display.run_with_table(
            console, _TABLE, self._certify(), self._cells, what="reading", total=file.n_rows
        )

    def _certify(self) -> Iterator[int]:
        for X, y, P in self.predictions.batches():
            n_before = self.certifier.n_rounds
            self.certifier.observe_many(X, y, P)
            self.y[n_before : self.certifier.n_rounds] = y
            yield self.certifier.n_rounds

    def _cells(self, speed: float) -> list[str]:
        (n_before, loss_before), n = self._shown, self.certifier.n_rounds
        loss = self.certifier.loss
        self._shown = n, loss
        n_wrong = int((self.P[:n].argmax(axis=1) != self.y[:n]).sum())
        losses = map(format_loss, ((loss - loss_before) / (n - n_before), loss / n))
        bound = format_loss(self.certifier.certificate().regret_bound / n)
        return [f"{n}", *losses, f"{n_wrong / n:.2%}", bound, f"{speed:.0f}"]

    def certificate(self, jobs: int | None = None) -> PredictionCertificate:
        """Return the certificate; with a number of threads the exact one, from further passes."""
        models, n = self.file.describe_columns(), self.certifier.n_rounds
        if jobs is None:
            return replace(self.certifier.certificate(), models=models)

        def show(done: Pass) -> None:
            self._console.print(
                f"  pass {done.number}: a linear model with an average loss and penalty of "
                f"{done.loss / n:.6f}; none below {done.at_least / n:.6f}; gap {done.gap / n:.1e}"
            )

        self._console.print("Reading the rows again:")
        exact = self.certifier.exact(self.file.batches, tol=_TOLERANCE, report=show, n_jobs=jobs)
        return replace(exact, models=models)


def _audit_together(
    console: Console, paths: Mapping[LabelledFile, str], jobs: int
) -> PredictionCertificate:
    """Print certificates of the predictions of several files; return that of all together."""
    first, *_ = files = list(paths)
    for file, path in paths.items():
        PredictionsFile(path, file)  # its classes become those of the file
        if file.labels != first.labels:
            raise FolklearnError(
                f"{paths[first]} is about the classes {join_names(first.labels)}, and {path} about "
                f"{join_names(file.labels)}; expected the same, a column p:label for each"
            )
    encode_alike(files)
    models = first.describe_columns("the rows of all files")
    fields = {
        "data": f"{len(files)} files, {sum(file.n_rows for file in files)} rows with a label",
        "predicted": display.describe_classes(first.labels),
        "models": f"linear in {models}",
    }
    console.print(display.format_fields(fields))
    bar = display.progress_bar(console, "reading", len(files))
    with bar as report, parallel_config("threading"):  # kernels do not hold Python's lock
        audited = audit_files(
            files, lambda file: PredictionsFile(paths[file], file).read().batches(), n_jobs=jobs,
            n_features=first.n_inputs + 1, n_classes=len(first.labels), constant=0, progress=report,
        )  # fmt: skip
    total = replace(audited.certificate, models=models)
    rows = [*audited.files, AuditedFile("all", total)]
    names = [str(file)[-_MAX_FILE_WIDTH:] for file, _ in rows]
    titles = [
        ("", "", "average", "lower", "regret bound"),
        ("file", "rows", "log loss", "bound", "a row"),
    ]
    table = TextTable(titles, width=14, left=max(_MIN_FILE_WIDTH, *map(len, names)))
    console.print(table.header)
    for name, (_, certificate) in zip(names, rows, strict=True):
        sums = certificate.loss, certificate.best_linear_at_least, certificate.regret_bound
        averages = (format_loss(value / certificate.n_rounds) for value in sums)
        console.print(table.line([name, f"{certificate.n_rounds}", *averages]))
    return total
