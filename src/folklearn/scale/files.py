"""Predictions that lie in many files, audited at once: evidence is a sum."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from folklearn import serialization
from folklearn.errors import InvalidInputError
from folklearn.evaluate.auditing import Certifier, PredictionCertificate, PredictionLoss
from folklearn.evidence.evidence import LowerBound
from folklearn.evidence.map_reduce import add_in_tree
from folklearn.progress import Progress
from folklearn.report import html
from folklearn.scale.parallel import ignore_progress, map_in_parallel

File = TypeVar("File")


class AuditedFile(NamedTuple):
    """What is proven of the predictions in one file."""

    file: Any
    certificate: PredictionCertificate


@dataclass(frozen=True)
class FilesAudit:
    """What is proven of predictions in many files.

    Attributes
    ----------
    files : each with its own certificate, in the order of the files.
    certificate : of all predictions together, against one linear model for all rows.
    evidence : of all rows, to be merged further or sent.
    """

    files: tuple[AuditedFile, ...]
    certificate: PredictionCertificate
    evidence: LowerBound

    def __repr__(self) -> str:
        return f"FilesAudit of {len(self.files)} files: {self.certificate!r}"

    def _repr_html_(self) -> str:
        head = ["file", "rows", "loss a row", "no linear model below", "regret bound a row"]
        rows = [*self.files, AuditedFile("all", self.certificate)]
        return html.table(head, [[str(row.file), *averages(row.certificate)] for row in rows])


def averages(certificate: PredictionCertificate) -> tuple[int, float, float, float]:
    """Return rows, and loss, floor and regret bound a row."""
    n = certificate.n_rounds
    totals = certificate.loss, certificate.best_linear_at_least, certificate.regret_bound
    loss, floor, bound = (total / max(1, n) for total in totals)
    return n, loss, floor, bound


def audit_files(
    files: Iterable[File],
    read: Callable[[File], Iterable[tuple[Any, ...]]],
    *,
    n_features: int,
    n_classes: int,
    B: float = 10.0,
    R: float = 1.0,
    n_jobs: int | None = None,
    progress: Progress = False,
) -> FilesAudit:
    r"""Certify the predictions in many files at once, each read once.

    Every file has a `Certifier` of its own. Its evidence :math:`\hat E_f` lies below the loss of
    every linear model on the rows of the file, so the sum lies below the loss on all rows:

    .. math::
        \min_W \sum_f \hat E_f(W) \le \min_W \sum_f L_f(W), \qquad
        \sum_f \min_W \hat E_f(W) \le \min_W \sum_f \hat E_f(W)

    The floor of the sum speaks of one model for all files, and is at least the sum of what is
    proven file by file. It does not matter at which models the rows of a file were expanded. Sums
    are added in the order of the files, in one tree: the result has the same bits for any
    number of processes, where machines and builds are alike.

    Parameters
    ----------
    files : names, pairs of names, or whatever `read` understands.
    read : takes one of them and returns its rows in blocks, each X (T, d), y (T,) or (T, K),
        probabilities P (T, K) that were given before y was seen, and weights (T,) if there are
        any. Columns and classes must mean the same in every file.
    n_features, n_classes, B, R : as of `Certifier`.
    n_jobs, progress : see `map_in_parallel`; a task is a file.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import scale, synthetic
    >>> def read(seed):  # stands for a file
    ...     X, y = synthetic.stochastic(seed, 500, d=3, K=2)
    ...     yield X, y, np.full((500, 2), 0.5)
    >>> found = scale.audit_files([0, 1, 2], read, n_features=3, n_classes=2)
    >>> by_file = [one.certificate.best_linear_at_least for one in found.files]
    >>> found.certificate.n_rounds, found.certificate.best_linear_at_least >= sum(by_file)
    (1500, True)
    """
    files = list(files)
    if not files:
        raise InvalidInputError("there is no file to audit")
    sizes = {"n_features": n_features, "n_classes": n_classes, "B": B, "R": R}
    Certifier(**sizes)  # type: ignore[arg-type]  # hears what is wrong before anything is read
    audited = partial(_audited, read, sizes)
    found = map_in_parallel(audited, files, n_jobs=n_jobs, progress=progress)
    sums: list[Any] = [serialization.load(content) for _, content in found]
    evidence: LowerBound = add_in_tree(sums)
    rows = tuple(AuditedFile(file, own) for file, (own, _) in zip(files, found, strict=True))
    return FilesAudit(rows, _together(rows, evidence), evidence)


def _audited(
    read: Callable[[File], Iterable[tuple[Any, ...]]], sizes: dict[str, Any], file: File
) -> tuple[PredictionCertificate, bytes]:
    certifier = Certifier(**sizes)
    for block in read(file):
        certifier.observe_many(*block, progress=ignore_progress)
    return certifier.certificate(), certifier.evidence.to_bytes()


def _together(files: Iterable[AuditedFile], evidence: LowerBound) -> PredictionCertificate:
    predicted = PredictionLoss(math.fsum(one.certificate.loss for one in files))
    total = predicted.against(evidence.lower_bound(), B=evidence.B, n_rounds=evidence.n_rounds)
    reasons = (f"{one.file}: {one.certificate.reason}" for one in files if one.certificate.reason)
    return replace(total, reason=next(reasons, ""))
