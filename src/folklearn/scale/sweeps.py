"""Sweeps: learners, settings, orders of the rows and files, every combination a run of its own."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import problem
from folklearn.certificate import Certificate
from folklearn.errors import InvalidInputError
from folklearn.evaluate.progressive import progressive
from folklearn.learners import catalogue
from folklearn.learners.base import Learner, Progress
from folklearn.model.model import Model
from folklearn.report import html
from folklearn.scale.jobs import run_all, silent
from folklearn.words import counted

Kind = str | Callable[..., Learner]  # a name of the catalogue, or what makes a learner
Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]


class Swept(NamedTuple):
    """One run of a sweep; loss, error and bound are averages a row.

    Attributes
    ----------
    learner : its name.
    settings : what it was given, by name.
    data : the file, empty for arrays.
    order : the seed of the order of the rows, None as they came.
    n_rounds : rows that were predicted, then learned.
    loss : log loss, in nats.
    error : the share of rows whose most likely class was wrong.
    regret_bound : no linear model, in hindsight, has a loss below ``loss - regret_bound``;
        infinite if the learner proves nothing.
    """

    learner: str
    settings: dict[str, Any]
    data: str
    order: int | None
    n_rounds: int
    loss: float
    error: float
    regret_bound: float


class SweptMean(NamedTuple):
    """What a learner with some settings did on average over its runs."""

    learner: str
    settings: dict[str, Any]
    n_runs: int
    loss: float
    error: float
    regret_bound: float


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep.

    Attributes
    ----------
    rows : a `Swept` for every run, in the order of learners, settings, files and orders;
        ``pandas.DataFrame(sweep.rows)`` makes a data frame of them.
    """

    rows: tuple[Swept, ...]

    @property
    def means(self) -> tuple[SweptMean, ...]:
        """Averages over files and orders, one for every learner and settings, the best first."""
        groups: dict[str, list[Swept]] = {}
        for row in self.rows:
            groups.setdefault(_name(row), []).append(row)
        means = map(_mean, groups.values())
        return tuple(sorted(means, key=lambda mean: (math.isnan(mean.loss), mean.loss)))

    @property
    def best(self) -> SweptMean:
        """The learner and settings with the least loss, on average over files and orders."""
        return self.means[0]

    def __repr__(self) -> str:
        best = self.best
        return f"Sweep of {counted(len(self.rows), 'run')}; best: {_name(best)}, {best.loss:.4g}"

    def _repr_html_(self) -> str:
        head = ["learner", "settings", "runs", "loss", "error", "regret bound"]
        cells = [[mean.learner, _told(mean.settings), *mean[2:]] for mean in self.means]
        return html.table(head, cells, "averages a row, the best first")


def _mean(rows: Sequence[Swept]) -> SweptMean:
    loss, error, bound = (
        math.fsum(getattr(row, name) for row in rows) / len(rows)
        for name in ("loss", "error", "regret_bound")
    )
    return SweptMean(rows[0].learner, rows[0].settings, len(rows), loss, error, bound)


def _told(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _name(row: Swept | SweptMean) -> str:
    return f"{row.learner}({_told(row.settings)})"


def _named(learner: Kind) -> str:
    while isinstance(learner, partial):
        learner = learner.func
    return learner if isinstance(learner, str) else learner.__name__


class _Task(NamedTuple):
    learner: Kind
    settings: dict[str, Any]
    file: str = ""
    order: int | None = None

    def made(self, n_features: int, n_classes: int) -> Learner:
        if isinstance(self.learner, str):
            return catalogue.make(self.learner, n_features, n_classes, self.settings)
        return self.learner(n_features=n_features, n_classes=n_classes, **self.settings)

    def swept(self, n_rounds: int, loss: float, error: float, certificate: Certificate) -> Swept:
        bound = certificate.regret_bound / max(1, n_rounds)
        run = _named(self.learner), self.settings, self.file, self.order
        return Swept(*run, n_rounds, loss, error, bound)


def sweep(
    learners: Mapping[Kind, Grid] | Iterable[Kind] | Kind,
    data: Any,
    y: ArrayLike | None = None,
    *,
    target: str | None = None,
    n_classes: int | None = None,
    n_orders: int = 0,
    seed: int = 0,
    n_jobs: int | None = None,
    backend: str | None = None,
    progress: Progress = False,
    **options: Any,
) -> Sweep:
    """Run every learner with all of its settings on the same rows, many runs at once.

    Every run predicts each row before it learns it. A run depends on nothing but its learner,
    settings, file and order, so a sweep has the same results, bit for bit, on one core, on many
    and on Ray, where machines and builds are alike. Killed workers are replaced and what they
    were at is run again, see `run_all`.

    Parameters
    ----------
    learners : names of learners, or functions that take n_features, n_classes and settings and
        return a learner; as a mapping, the settings to try with each: a dictionary of lists, of
        which every combination is tried, or a list of such dictionaries.
    data, y : rows (T, d), dense or sparse, with their classes (T,) or soft labels (T, K). Or data
        is a file or a list of files, each of which is a stream of its own to a new `Model`.
    target : of files, the column of the labels.
    n_classes : of arrays, K; None counts the classes of y.
    n_orders : 0 takes the rows as they come; otherwise so many random orders of them, the same
        for every learner.
    seed : of the orders.
    n_jobs, backend, progress : see `run_all`.
    options : of files, further ones of `Model.run`.

    Examples
    --------
    >>> from folklearn import scale, synthetic
    >>> X, y = synthetic.stochastic(0, 300, d=3, K=2)
    >>> swept = scale.sweep({"auto": {}, "ogd": {"B": [1.0, 10.0]}}, X, y, n_orders=2)
    >>> len(swept.rows), swept.best.learner
    (6, 'auto')
    """
    setups = list(_setups(learners))
    orders = _orders(problem.count("n_orders", n_orders, 0), seed)
    if y is None:
        files = [data] if isinstance(data, str | os.PathLike) else list(data)
        _refuse_factories(setups)
        for task in setups:
            Model(str(task.learner), **task.settings)  # hears bad settings before anything runs
        play = partial(_play_file, target, options)
    else:
        if options or target is not None:
            name = next(iter(options), "target")
            raise InvalidInputError(f"{name} is about files, and the rows are arrays: leave it out")
        files = [""]
        y = np.asarray(y)
        K = _n_classes(y) if n_classes is None else n_classes
        for task in setups:
            task.made(1, K)
        data = problem.table(data)
        problem.labels(y, data.shape[0], K)
        play = partial(_play_rows, data, y, K)
    tasks = [
        task._replace(file=os.fspath(file), order=order)
        for task in setups
        for file in files
        for order in orders
    ]
    rows = run_all(play, tasks, n_jobs=n_jobs, backend=backend, progress=progress)
    if not rows:
        raise InvalidInputError("a sweep needs a learner and a file at least")
    return Sweep(tuple(rows))


def _n_classes(y: NDArray[Any]) -> int:
    """Return how many classes labels speak of; 2 if they are none, which is refused elsewhere."""
    if y.ndim == 2:
        return int(y.shape[1])
    return int(y.max(initial=1)) + 1 if y.dtype.kind in "iu" else 2


def _setups(learners: Mapping[Kind, Grid] | Iterable[Kind] | Kind) -> Iterable[_Task]:
    from sklearn.model_selection import ParameterGrid

    if isinstance(learners, str) or callable(learners):
        learners = [learners]
    if not isinstance(learners, Mapping):
        learners = {learner: {} for learner in learners}
    for learner, grid in learners.items():
        yield from (_Task(learner, dict(settings)) for settings in ParameterGrid(grid))


def _orders(n_orders: int, seed: int) -> list[int] | list[None]:
    if not n_orders:
        return [None]
    words: list[int] = np.random.SeedSequence(seed).generate_state(n_orders).tolist()
    return words


def _refuse_factories(tasks: Iterable[_Task]) -> None:
    for task in tasks:
        if not isinstance(task.learner, str):
            raise InvalidInputError(
                f"{_named(task.learner)} is no name, and files need learners by name: one of "
                f"{', '.join(catalogue.CATALOGUE)}"
            )


def _play_rows(X: Any, y: Any, n_classes: int, task: _Task) -> Swept:
    if task.order is not None:
        order = np.random.default_rng(task.order).permutation(len(y))
        X, y = X[order], y[order]
    learner = task.made(X.shape[1], n_classes)
    scores = progressive(learner, X, y, progress=silent)
    return task.swept(len(y), scores.log_loss, scores.error_rate, learner.certificate())


def _play_file(target: str | None, options: Mapping[str, Any], task: _Task) -> Swept:
    run = Model(str(task.learner), **task.settings).run(
        task.file, target, shuffle=task.order is not None, seed=task.order or 0, **options
    )
    assert run.certificate is not None
    return task.swept(run.n_rows, run.loss, run.error, run.certificate)
