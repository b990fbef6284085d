"""`folklearn audit`: certify the predictions of any model."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from rich.console import Console

from folklearn.arrays import Array, Labels
from folklearn.cli import report
from folklearn.cli.display import Table, follow, new_console, warnings_shown
from folklearn.cli.given import Given, read
from folklearn.cli.inputs import check_settings
from folklearn.cli.many_files import Pair, audit_together
from folklearn.cli.options import Columns, Source, explained
from folklearn.cli.warmup import warm_up
from folklearn.cli.whole import Whole
from folklearn.errors import FolklearnError
from folklearn.evaluate.auditing import Certifier, PredictionCertificate
from folklearn.evaluate.best_linear import Pass
from folklearn.evaluate.regression import Regression
from folklearn.evidence.map_reduce import MapReduce
from folklearn.kernels.blas import OWN
from folklearn.metrics.scores import score
from folklearn.utils import counted

_TOLERANCE = 1e-6  # of --exact, relative
_TABLE = Table(
    [
        ("", "loss since", "average", "error", "regret bound", ""),
        ("rows", "last line", "log loss", "rate", "a row", "rows/s"),
    ],
    width=13,
)


@dataclass(frozen=True)
class Predicted:
    """Files of predictions, one for each file of rows, and the files of rows after the first."""

    more: list[str] = field(default_factory=list)
    predictions: list[str] = field(default_factory=list)


@explained(
    f"""
MORE  Further files, audited together with the first: their evidence is added up.
--predictions -p PREDS.csv  What a model predicted: a line of probabilities for every row, in order,
    under a header of labels, plain or as p:label; what run and predict write will do. For several
    files, given as often, in their order.
--B  Largest norm of the weights of a class, per standard deviation, of the linear models to compare
    with. Default: 10 over the norm of a row.
--exact  Read the file again, a few times, until the best of these models is known to
    {_TOLERANCE:g} of its loss.
--jobs N  Of several files, how many are read at once; with --exact, threads that share the rows. -1
    for as many as there are cores. What comes out is the same.
"""
)
def audit(
    source: Source,
    columns: Columns,
    given: Predicted,
    B: float | None = None,
    exact: bool = False,
    jobs: int = 1,
    device: str = OWN,
    quiet: bool = False,
) -> None:
    """Certify predictions that any model made: how much better could a linear model do?

    Each prediction must have been made before its label was seen; this cannot be checked.
    """
    if not any(given.predictions):
        raise FolklearnError("--predictions is needed: the file that holds what was predicted")
    MapReduce.from_options(jobs, device)  # check before anything is read
    sources = [source, *(replace(source, file=file) for file in given.more)]
    if len(given.predictions) != len(sources):
        raise FolklearnError(
            f"{counted(len(sources), 'file')} of rows, and "
            f"{counted(len(given.predictions), 'file')} of predictions; expected --predictions "
            "once for each, in the same order"
        )
    pairs = [Pair(*pair) for pair in zip(sources, given.predictions, strict=True)]
    console = new_console(quiet)
    if given.more:
        if exact or device != OWN:
            option = "--exact" if exact else "--device"
            raise FolklearnError(f"{option} is for one file: leave it out, or audit one at a time")
        check_settings({} if B is None else {"B": B})
        with warnings_shown(console):
            audit_together(console, pairs, columns.roles(), B, jobs)
        return
    with warnings_shown(console):
        started = time.perf_counter()
        audited = certified(console, "audit", source, columns, pairs[0].predictions, B, device)
        certifier = audited.certifier
        certificate = _refined(audited, console, jobs) if exact else certifier.certificate()
        certificate = audited.whole.named(certificate)
        hindsight = audited.whole.regression(audited.given.labels)
        seconds = time.perf_counter() - started
    console.print(_summary(audited, certificate, hindsight, seconds))


def certified(
    console: Console,
    command: str,
    source: Source,
    columns: Columns,
    predictions: str,
    B: float | None,
    device: str = OWN,
) -> "Audited":
    """Read rows and predictions of them, and certify these, showing how it goes."""
    check_settings({} if B is None else {"B": B})
    whole = Whole(console, command, source, columns.roles())
    given = read(predictions, whole)
    sizes = {"n_features": whole.n_inputs + 1, "n_classes": len(given.labels)}
    certifier = Certifier(**sizes, B=whole.norm(B), device=device)
    more = ("audited", given.name), ("models", whole.models(certifier.B * whole.scaler.unit))
    console.print(whole.about(*more, labels=given.labels))
    warm_up("auto")
    audited = Audited(certifier, given, whole)
    follow(console, _TABLE, audited.certified(), audited.cells, what="reading", total=whole.n_rows)
    return audited


def _refined(audited: "Audited", console: Console, jobs: int) -> PredictionCertificate:
    """Read the rows again until the certificate is exact; say after each pass how far it is."""
    n = audited.certifier.n_rounds
    console.print("Reading the rows again:")

    def show(done: Pass) -> None:
        console.print(
            f"  pass {done.number}: a linear model with an average log loss of "
            f"{done.loss / n:.6f}; none below {done.at_least / n:.6f}; gap {done.gap / n:.1e}"
        )

    return audited.certifier.exact(audited.again, tol=_TOLERANCE, report=show, n_jobs=jobs)


class Audited:
    """Predictions of a file beside the rows that they are about."""

    def __init__(self, certifier: Certifier, given: Given, whole: Whole) -> None:
        self.certifier, self.given, self.whole = certifier, given, whole
        self.P = given.clipped
        self.y = np.empty(len(given.P), dtype=np.int64)
        self._n_wrong = 0
        self._shown = 0, 0.0  # rows and loss by the last line

    def certified(self) -> Iterator[int]:
        """Certify all rows; yield how many, also at every power of two."""
        for X, y in self.again():
            start = 0
            while start < len(y):
                n = self.certifier.n_rounds
                stop = min(len(y), start + (1 << n.bit_length()) - n)
                self._certify(X[start:stop], y[start:stop])
                start = stop
                yield self.certifier.n_rounds

    def _certify(self, X: Array, y: Labels) -> None:
        start = self.certifier.n_rounds
        rows = slice(start, start + len(y))
        self.given.check_same_rows(start, y)
        self.certifier.observe_many(X, y, self.P[rows])
        self.y[rows] = y
        self._n_wrong += int((self.P[rows].argmax(axis=1) != y).sum())

    def again(self) -> Iterator[tuple[Array, Labels]]:
        """Yield all rows, standardised."""
        return self.whole.blocks(self.given.labels)

    def cells(self, speed: float) -> list[str]:
        """Return a line of the table."""
        (shown, before), n = self._shown, self.certifier.n_rounds
        loss = self.certifier.loss
        self._shown = n, loss
        bound = self.certifier.certificate().regret_bound
        losses = report.number((loss - before) / (n - shown)), report.number(loss / n)
        return [
            f"{n}", *losses, f"{self._n_wrong / n:.2%}", report.number(bound / n), f"{speed:.0f}"
        ]  # fmt: skip


def _summary(
    audited: Audited,
    certificate: PredictionCertificate,
    hindsight: Regression | None,
    seconds: float,
) -> str:
    """Return the result and what is proven about it."""
    n = certificate.n_rounds
    scores = score(audited.P, audited.y)
    lines = [
        f"Audited {n} predictions in {seconds:.2f} s: average log loss {scores.log_loss:.4f} "
        f"nats, error rate {scores.error_rate:.2%}, Brier score {scores.brier:.4f}, "
        f"expected calibration error {scores.calibration_error:.4f}.",
        certificate.in_full(),
    ]
    if certificate.valid and certificate.regret_bound < 0.0:
        lines.append("So these predictions had a lower loss than every such linear model.")
    if hindsight is not None:
        lines.append(hindsight.in_words())
    lines.append(
        "The linear model that learned the same rows beside them, on line, had an average log "
        f"loss of {audited.certifier.leader_loss / n:.4f}."
    )
    lines += audited.given.notes(audited.y)
    return "\n".join(lines)
