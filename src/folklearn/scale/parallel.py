"""Independent tasks in parallel by joblib: comparisons of learners, audits of many files."""

import math
import os
import reprlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import chdir, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from folklearn import serialization, validation
from folklearn.errors import FolklearnError, InvalidInputError, spell_argument
from folklearn.evaluate.auditing import Certifier, PredictionCertificate, PredictionLoss
from folklearn.evaluate.regression import Regression, logistic_regression
from folklearn.evidence.lower_bound import LowerBound
from folklearn.evidence.passes import MapReduce, add_in_tree
from folklearn.learners import catalogue
from folklearn.metrics.scores import Scores, progressive
from folklearn.progress import Progress, report_progress

Task = TypeVar("Task")
Result = TypeVar("Result")
File = TypeVar("File")
Settings = Mapping[str, Any]

_N_ROWS_TO_COMPILE = 160  # enough for batches of every size


def map_in_parallel(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    n_jobs: int | None = None,
    progress: Progress = False,
) -> list[Result]:
    """Call a function for every task; return the results in the order of the tasks.

    The results are the same for any number of processes, and on a cluster of like machines, if
    the function depends on its task alone: BLAS has one thread in every task. An exception in a
    task ends the run, with a note that says which task it was; so does a worker that is killed.

    Parameters
    ----------
    function : can be pickled, and so can tasks and results. Large arrays belong into the
        function (`functools.partial`): processes share them by a memory map.
    tasks : the arguments, one for each call.
    n_jobs : tasks at once; 1 runs them in this process, -1 takes every core. None means 1, or
        what `joblib.parallel_config` says, which also chooses another backend than processes.
    progress : True for a bar, or a function that takes the number of tasks that are done.

    Examples
    --------
    >>> from folklearn.scale import map_in_parallel
    >>> map_in_parallel(abs, [-3, 1, -2])
    [3, 1, 2]
    """
    tasks = list(tasks)
    if n_jobs is not None:
        MapReduce.from_options(n_jobs)  # refuses what is no number of jobs, before anything runs
    call = delayed(partial(_call, os.getcwd(), function))
    is_streamed = get_active_backend()[0].supports_return_generator  # not by Ray's backend
    # Arrays are mapped copy-on-write, because kernels take none that are read-only.
    returned = "generator" if is_streamed else "list"
    parallel = Parallel(n_jobs=n_jobs, mmap_mode="c", return_as=returned)
    results: list[Result] = []
    # The limit of this process holds for tasks in its threads, whichever of them ends first.
    with (
        threadpool_limits(1),
        report_progress(progress, len(tasks), "running") as report,
    ):
        try:
            outputs = parallel(call(number, task) for number, task in enumerate(tasks))
            with closing(outputs) if is_streamed else nullcontext():
                for result in outputs:
                    results.append(result)
                    report(len(results))
        except BrokenExecutor as error:
            raise FolklearnError(
                "a worker process ended abruptly: it was killed, perhaps for want of memory, it "
                "crashed, or a task cannot be unpickled; try "
                f"{spell_argument('n_jobs=1')}, which starts none"
            ) from error
    return results


def ignore_progress(n_done: int) -> None:
    """Ignore the progress within a task."""


def _call(folder: str, function: Callable[[Task], Result], number: int, task: Task) -> Any:
    """Call the function in the folder of the caller."""
    here = chdir(folder) if os.path.isdir(folder) else nullcontext()
    try:
        with here, threadpool_limits(1):
            return function(task)
    except Exception as error:
        error.add_note(f"This was task {number}: {reprlib.repr(task)}.")
        raise


class Compared(NamedTuple):
    """Scores of the predictions of one learner, each made before its label was seen."""

    learner: str
    scores: Scores
    regret: float  # its total loss beyond loss and penalty of the logistic regression
    seconds: float  # of learning; longer while other learners run


@dataclass(frozen=True)
class Comparison:
    """Scores of several learners on the same rows, and a logistic regression in hindsight."""

    best: Regression
    rows: tuple[Compared, ...]

    def __repr__(self) -> str:
        losses = {row.learner: row.scores.log_loss for row in self.rows}
        total = self.best.loss + self.best.penalty
        losses["logistic regression in hindsight, penalty counted"] = total / self.best.n_rows
        words = ", ".join(f"{name} {loss:.4g}" for name, loss in losses.items())
        return f"Comparison(log loss: {words})"


def compare(
    learners: Mapping[str, Settings] | Iterable[str] | str,
    X: Any,
    y: ArrayLike,
    *,
    n_classes: int,
    C: float = 1.0,
    constant: int | None = None,
    n_jobs: int | None = None,
    progress: Progress = False,
) -> Comparison:
    """Run learners on the same rows, and fit a logistic regression to them in hindsight.

    Losses and regrets are the same however many learners run at once; times are not.

    Parameters
    ----------
    learners : a name, names, or a mapping from names to settings.
    X, y, n_classes : rows (T, d) and classes (T,) or soft labels (T, K).
    C, constant : of the penalty, as of `logistic_regression`.
    n_jobs, progress : see `map_in_parallel`; a task is a learner.

    Examples
    --------
    >>> from folklearn import scale, synthetic
    >>> X, y = synthetic.stochastic(0, 300, d=3, K=2)
    >>> found = scale.compare({"auto": {}, "ogd": {"B": 10.0}}, X, y, n_classes=2)
    >>> [row.learner for row in found.rows if row.regret < 0.0]
    ['auto']
    """
    names = [learners] if isinstance(learners, str) else learners
    settings = names if isinstance(names, Mapping) else {name: {} for name in names}
    if not settings:
        raise InvalidInputError("a comparison needs a learner at least")
    X, y = validation.table(X), np.asarray(y)
    for name, chosen in settings.items():  # raises before anything is learned
        catalogue.make(name, 1, n_classes, chosen)
    problem: dict[str, Any] = {"n_classes": n_classes, "C": C, "constant": constant}
    best = logistic_regression(X, y, **problem, n_jobs=n_jobs or 1)
    measured = map_in_parallel(
        partial(_measure, X, y, n_classes), settings.items(), n_jobs=n_jobs, progress=progress
    )
    rows = (
        Compared(name, scores, scores.loss - best.loss - best.penalty, seconds)
        for name, (scores, seconds) in zip(settings, measured, strict=True)
    )
    return Comparison(best, tuple(rows))


def _measure(X: Any, y: Any, n_classes: int, task: tuple[str, Settings]) -> tuple[Scores, float]:
    name, settings = task
    sizes = X.shape[1], n_classes
    # A first learner of some rows compiles the kernels before the clock starts.
    first = catalogue.make(name, *sizes, settings)
    progressive(first, X[:_N_ROWS_TO_COMPILE], y[:_N_ROWS_TO_COMPILE], progress=ignore_progress)
    learner = catalogue.make(name, *sizes, settings)
    started = time.perf_counter()
    scores = progressive(learner, X, y, progress=ignore_progress)
    return scores, time.perf_counter() - started


class AuditedFile(NamedTuple):
    """The certificate of the predictions in one file."""

    file: Any
    certificate: PredictionCertificate


@dataclass(frozen=True)
class FilesAudit:
    """Certificates of the predictions in many files, in their order, and of all together."""

    files: tuple[AuditedFile, ...]
    certificate: PredictionCertificate  # of all, against one linear model for all rows
    evidence: LowerBound  # of all rows, to be merged further or sent

    def __repr__(self) -> str:
        return f"FilesAudit of {len(self.files)} files: {self.certificate!r}"


def audit_files(
    files: Iterable[File],
    read: Callable[[File], Iterable[tuple[Any, ...]]],
    *,
    n_features: int,
    n_classes: int,
    C: float = 1.0,
    constant: int | None = None,
    n_jobs: int | None = None,
    progress: Progress = False,
) -> FilesAudit:
    r"""Certify the predictions in many files at once, each read once.

    Every file has a `Certifier` of its own, whose evidence lies below the loss of every linear
    model on the rows of the file. So the sum lies below the loss on all rows.

    Sums are added in the order of the files, in one tree: the result has the same bits for any
    number of processes, where machines and builds are alike.

    Parameters
    ----------
    files : names, or whatever `read` understands.
    read : takes one of them and returns its rows in blocks, each X (T, d), y (T,) or (T, K),
        predictions P (T, K), and weights (T,) if there are any. Columns and classes must mean the
        same in every file.
    n_features, n_classes, C, constant : as of `Certifier`.
    n_jobs, progress : see `map_in_parallel`; a task is a file.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import scale, synthetic
    >>> def read(seed):  # stands for a file
    ...     X, y = synthetic.stochastic(seed, 500, d=3, K=2)
    ...     yield X, y, np.full((500, 2), 0.5)
    >>> found = scale.audit_files([0, 1, 2], read, n_features=3, n_classes=2)
    >>> found.certificate.n_rounds, found.certificate.best_linear_at_least > 500
    (1500, True)
    """
    files = list(files)
    if not files:
        raise InvalidInputError("there is no file to audit")
    problem = {"n_features": n_features, "n_classes": n_classes, "C": C, "constant": constant}
    Certifier(**problem)  # type: ignore[arg-type]  # raises before anything is read
    results = map_in_parallel(
        partial(_audit_file, read, problem), files, n_jobs=n_jobs, progress=progress
    )
    sums: list[Any] = [serialization.load(content) for _, content in results]
    evidence: LowerBound = add_in_tree(sums)
    certificates = [certificate for certificate, _ in results]
    predicted = PredictionLoss(math.fsum(certificate.loss for certificate in certificates))
    total = predicted.against(
        evidence.lower_bound(), n_rounds=evidence.n_rounds, n_classes=n_classes, C=evidence.C
    )
    audited = tuple(map(AuditedFile, files, certificates))
    reasons = (f"{file}: {of_file.reason}" for file, of_file in audited if of_file.reason)
    return FilesAudit(audited, replace(total, reason=next(reasons, "")), evidence)


def _audit_file(
    read: Callable[[File], Iterable[tuple[Any, ...]]], problem: dict[str, Any], file: File
) -> tuple[PredictionCertificate, bytes]:
    certifier = Certifier(**problem)
    for batch in read(file):
        certifier.observe_many(*batch, progress=ignore_progress)
    return certifier.certificate(), certifier.evidence.to_bytes()
