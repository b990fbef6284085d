"""Certificates of the predictions of any model: what a linear model could have gained on them."""

import math
from dataclasses import astuple, dataclass
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array, log_losses
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate.best_linear import Report
from folklearn.evaluate.regression import regress
from folklearn.evidence.certificate import Certificate
from folklearn.evidence.evidence import Evidence
from folklearn.evidence.linear_evidence import LinearEvidence
from folklearn.evidence.lower_bound import LowerBound, penalty_of, round_loss_up
from folklearn.evidence.passes import LocalPasses, MapReduce, passes_over
from folklearn.kernels.blas import OWN, device_named
from folklearn.learners.catalogue import PAIRS, select_backend
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.metrics.scores import check_probabilities
from folklearn.serialization import Record, Serializable
from folklearn.sparse import SparseRow, SparseRows
from folklearn.validation import Rows

_CHUNK_ROWS = 4096  # between two chances to be interrupted


@dataclass(frozen=True)
class PredictionCertificate(Certificate):
    """A certificate whose loss is that of the predictions that were observed.

    If a label was given probability 0, the loss and the regret bound are infinite; the certificate
    is valid, and `reason` says which round it was. `best_linear_at_least` stays finite.
    """

    linear_at_least: float = -math.inf

    def _is_finite(self) -> bool:
        return math.isfinite(self.linear_at_least) and not math.isnan(self.loss)

    @property
    def best_linear_at_least(self) -> float:
        return self.linear_at_least


@dataclass(frozen=True)
class PredictionLoss:
    total: float = 0.0
    n_impossible: float = 0.0  # rounds of positive weight whose label was given probability 0
    first_impossible: float = 0.0

    @classmethod
    def of(cls, losses: Array, weights: Array, before: int) -> Self:
        """Return the total of unweighted losses (T,) that follow `before` others."""
        counted = weights > 0.0  # 0 times infinity is 0 here: the round does not count
        impossible = np.flatnonzero(np.isinf(losses) & counted)
        first = before + impossible[0] if impossible.size else 0.0
        return cls(float(weights[counted] @ losses[counted]), impossible.size, first)

    def __add__(self, other: Self) -> Self:
        first = self.first_impossible if self.n_impossible else other.first_impossible
        n_impossible = self.n_impossible + other.n_impossible
        return type(self)(self.total + other.total, n_impossible, first)

    def against(
        self, linear: float, *, n_rounds: int, n_classes: int, C: float | None
    ) -> PredictionCertificate:
        """Return the certificate by a bound for every linear model or, without C, for one."""
        reason = (
            f"the prediction gave its label the probability 0 in {int(self.n_impossible)} of "
            f"{n_rounds} rounds, first in round {int(self.first_impossible)} (counted from 0): its "
            "log loss is infinite"
        )
        return PredictionCertificate(
            self.total, round_loss_up(self.total, n_rounds) - linear, n_rounds, C=C,
            penalty=0.0 if C is None else penalty_of(C, n_classes),
            reason=reason if self.n_impossible else "", linear_at_least=linear,
        )  # fmt: skip


def audit(
    X: Any,
    y: ArrayLike,
    P: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    C: float = 1.0,
    constant: int | None = None,
    tol: float = 1e-6,
    most_passes: int = 500,
    report: Report | None = None,
    n_jobs: int = 1,
    device: str | None = None,
) -> PredictionCertificate:
    """Return the exact certificate of predictions P (T, K) for rows that are all at hand.

    What `Certifier.exact` returns, in fewer passes, and with its guarantee;
    `folklearn.scale.spark.audit` is for tables that no machine holds.

    Parameters
    ----------
    X, y, weight : rows (T, d), labels (T,) or soft labels (T, K), weights (T,).
    P : what was predicted, before the labels were seen.
    C, constant : of the penalty, as of `Evidence`.
    tol, most_passes, report, n_jobs, device : of `logistic_regression` and `regress`.
    """
    X, P = validation.table(X), validation.numbers("P", P)
    if P.ndim != 2:
        raise InvalidInputError(f"P must be a table of probabilities (T, K), got shape {P.shape}")
    n_classes = validation.count("the number of columns of P", P.shape[1], 2)
    sizes = {"n_features": X.shape[1], "n_classes": n_classes}
    rows = Rows.checked(X, y, weight, **sizes)
    losses = log_losses(check_probabilities(P, len(rows.X), n_classes), rows.labels, rows.soft)
    passes = LocalPasses(lambda: [rows], MapReduce.from_options(n_jobs, device))
    best = regress(
        passes, **sizes, C=C, constant=constant, tol=tol, most_passes=most_passes, report=report
    )
    total = PredictionLoss.of(losses, rows.weights, 0)
    return total.against(best.at_least, n_rounds=len(rows.X), n_classes=n_classes, C=best.C)


class Certifier(Serializable):
    r"""Certify the predictions of any model: River, VW, a neural network.

    Pass it every context, label and prediction; it bounds how much better any linear model, its
    penalty counted, could have done in hindsight. A negative bound proves that the predictions
    beat every such model. It collects `Evidence` from the rows; for wide rows and many classes
    `LinearEvidence` at what `SparseSgd` predicts. With E its `lower_bound`, for *any* predictions

    .. math:: \sum_t -w_t \ln p_t(y_t) - \Bigl(\sum_t w_t \ell_t(W) + \tfrac12 \|W\|_\tau^2\Bigr)
        \le \sum_t -w_t \ln p_t(y_t) - E \quad\text{for every } W

    Guarantee: no linear model has a total loss and a penalty below
    ``certificate().best_linear_at_least``, in floating point too (docs/theory/evidence.md).

    Parameters
    ----------
    n_features, n_classes : sizes of the problem.
    C, constant : of the penalty, as of `Evidence`.
    device : where the sums are, as of `Evidence`. What is loaded from a file is on the CPU.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3)) / 2
    >>> y = (X[:, 0] + 0.3 * rng.logistic(size=1000) > 0).astype(int)
    >>> certifier = Certifier(n_features=3, n_classes=2)
    >>> losses = certifier.observe_many(X, y, np.full((1000, 2), 0.5))  # a constant predictor
    >>> certificate = certifier.certificate()
    >>> round(certificate.loss / 1000, 4), certificate.best_linear_at_least > 400
    (0.6931, True)
    """

    PARAMS = ("n_features", "n_classes", "C", "constant")
    # Which of them by the memory of the machine it began on.
    STATE: ClassVar = {"_evidence": Evidence | LinearEvidence, "_learner": SparseSgd}
    ARRAYS = ("totals",)
    UNBOUNDED = ("totals",)  # predictions of 0 lose infinitely much

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        C: float = 1.0,
        constant: int | None = None,
        device: str | None = None,
    ) -> None:
        self.device = OWN if device is None else device
        d = self.n_features = validation.count("n_features", n_features, 1)
        K = self.n_classes = validation.count("n_classes", n_classes, 2)
        self._evidence: Evidence | LinearEvidence
        self._learner: SparseSgd | None = None  # of the rows: planes touch at its predictions
        if select_backend(d, K, device_named(device)) == PAIRS:
            self._evidence = Evidence(**self._sizes, C=C, constant=constant, device=device)
        else:
            self._evidence = LinearEvidence(**self._sizes, C=C, constant=constant)
            self._learner = SparseSgd(n_features=d, n_classes=K)
        self.C, self.constant = self._evidence.C, self._evidence.constant
        self._totals: Array = np.array(astuple(PredictionLoss()))

    @property
    def _sizes(self) -> dict[str, int]:
        return {"n_features": self.n_features, "n_classes": self.n_classes}

    def observe(self, x: Any, y: Any, p: ArrayLike, weight: float = 1.0) -> float:
        """Observe one round; return the log loss -ln p[y] of its prediction p (K,), unweighted."""
        d = self.n_features
        if validation.is_sparse_context(x):
            row: SparseRow = validation.usable(validation.sparse_context(x, d))
            X: Any = SparseRows(np.array([0, len(row.indices)]), *row, d)
        else:
            X = validation.usable_context(x, d)[None]
        p = check_probabilities(p, self.n_classes)
        label, soft = validation.label(y, self.n_classes)
        weights = np.array([validation.weight(weight)])
        Y = soft[None] if soft.size else np.empty((0, self.n_classes))
        rows = Rows(X, np.array([label]), Y, weights)
        return float(self._observe(rows, p[None])[0])

    def observe_many(
        self, X: Any, y: ArrayLike, P: ArrayLike, weight: ArrayLike | None = None
    ) -> Array:
        """Observe rounds X (T, d), y (T,) or (T, K), P (T, K); return their losses (T,)."""
        rows = Rows.checked(X, y, weight, **self._sizes)
        return self._observe(rows, check_probabilities(P, len(rows.X), self.n_classes))

    def _observe(self, rows: Rows, P: Array) -> Array:
        losses, evidence = log_losses(P, rows.labels, rows.soft), self._evidence
        added = PredictionLoss.of(losses, rows.weights, self.n_rounds)
        self._totals[:] = astuple(self._prediction_loss + added)
        # The evidence last: after an interrupt a bound on fewer rows is still sound.
        if isinstance(evidence, LinearEvidence):
            assert self._learner is not None
            evidence._add_planes(rows, self._learner._run(rows, None))
            return losses
        for start in range(0, len(rows.X), _CHUNK_ROWS):
            evidence._add(rows.part(start, start + _CHUNK_ROWS))
        return losses

    @property
    def _prediction_loss(self) -> PredictionLoss:
        return PredictionLoss(*self._totals.tolist())

    @property
    def n_rounds(self) -> int:
        """The number of rounds so far."""
        return self._evidence.n_rounds

    @property
    def loss(self) -> float:
        """The total (weighted) loss of the predictions."""
        return self._prediction_loss.total

    @property
    def evidence(self) -> LowerBound:
        """The evidence of all rounds so far, which does not depend on predictions."""
        return self._evidence * 1.0  # a copy, which later rounds do not change

    def certificate(self, W: ArrayLike | None = None) -> PredictionCertificate:
        """Return the certificate for all models, penalty counted, or for one W (K, d) without."""
        if W is None:
            return self._against(self._evidence.lower_bound(), self.C)
        return self._against(self._evidence.value(W), None)

    def _against(self, bound: float, C: float | None) -> PredictionCertificate:
        loss = self._prediction_loss
        return loss.against(bound, n_rounds=self.n_rounds, n_classes=self.n_classes, C=C)

    def exact(
        self,
        X: Any,
        y: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        *,
        tol: float = 1e-6,
        most_passes: int = 500,
        report: Report | None = None,
        n_jobs: int = 1,
    ) -> PredictionCertificate:
        """Return the certificate with nothing left to gain: all rows are read again.

        X, y, weight are the rows that were observed, in any order; or X is a function that
        returns them anew for every pass, as an iterable of (X, y) or (X, y, weight). It ends when
        the bound is within ``tol`` (1 + its loss) of a model. For the others see `audit`.
        """
        evidence, learner = self._evidence, self._learner
        if isinstance(evidence, Evidence):
            bound, start = evidence.minimise()
        else:
            assert learner is not None
            bound, start = evidence.lower_bound(), np.nan_to_num(learner.coef())
        best = regress(
            passes_over(X, y, weight, **self._sizes, n_jobs=n_jobs, device=self.device),
            **self._sizes, C=self.C, constant=self.constant, start=start, tol=tol,
            most_passes=most_passes, report=report,
        )  # fmt: skip
        if best.n_rows != self.n_rounds or not math.isclose(
            best.total_weight, evidence.total_weight, rel_tol=1e-9
        ):
            raise InvalidInputError(
                f"{best.n_rows} rows of total weight {best.total_weight:g} were read again, "
                f"and {self.n_rounds} of total weight {evidence.total_weight:g} were observed; "
                "give the same rows"
            )
        return self._against(max(bound, best.at_least), self.C)

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        """Construct with small evidence, which is replaced by that of the file."""
        observer = cls(**words | {"n_features": 1, "n_classes": 2, "constant": None})
        observer.n_features, observer.n_classes = validation.sizes(words)
        observer.constant = words["constant"]
        return observer

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        params_of, learner = attrgetter(*self.PARAMS), self._learner
        if params_of(self._evidence) != params_of(self):
            raise StateFileError("a Certifier state holds the evidence of another problem")
        if isinstance(self._evidence, LinearEvidence) and (
            learner is None or learner._sizes != self._sizes
        ):
            raise StateFileError("a Certifier state holds the learner of another problem")
        if not np.isfinite(self._totals[1:]).all():  # counts of rounds
            raise StateFileError("a Certifier state counts infinitely many rounds")
