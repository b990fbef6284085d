"""FOLKLORE: fast online K-class logistic regression (Agarwal, Kale and Zimmert 2021)."""

import math
import sys
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from folklearn import validation
from folklearn.arrays import Array
from folklearn.evidence.certificate import Certificate, scope_of_growth
from folklearn.kernels import prediction_rules as rules
from folklearn.kernels.blas import one_thread, threads_for
from folklearn.kernels.curvature import gamma_star_below
from folklearn.kernels.second_order import (
    SPARE,
    memo_offsets,
    predict_round,
    run_loop,
    update_round,
)
from folklearn.kernels.second_order_blocks import block_size, run_rounds
from folklearn.kernels.simplex import helmert
from folklearn.learners.base import Learner
from folklearn.serialization import Record
from folklearn.validation import Rows

_CHUNK_FLOPS = 3e9  # work between two chances to report progress or to be interrupted
_STEPS_OF_FORGETTING = 10  # within one memory: the examples lose a tenth of it at once
_DEFAULT_NORM = 10.0  # of models that `certificate_at_norm` is about


class SecondOrderLearner(Learner):
    """Rounds on the state S = A^-1, theta = A^-1 g of a sum of quadratic surrogates.

    FOLKLORE, AIOLI, GAF and Laplace differ in their rule of prediction and their constants. A
    round, in `kernels.second_order`:

        P, C, q = context_stats(S, theta, x)    S(I (x) x), (I (x) x)'P and (I (x) x)'theta
        p = predict_from_state(C, q)            the rule, of K numbers
        V, a = learn(p, C, q, y, w)             the surrogate at p, and its bracket in the totals
        absorb(S, theta, P, V, a)               theta += P a,  S -= (P V)(P V)'

    Surrogates that lie below the losses make the state a certificate; where they do not,
    `_why_invalid` says so.
    """

    COUNTERS = ("_first_classes",)

    memory: int | None = None  # rounds after which an example counts 1/e; None is without end
    lam: float

    FEWEST_NUMBERS = staticmethod(lambda d, K: (K - 1) * d * ((K - 1) * d + 1) // 2)  # S

    def _start(
        self, *, gamma: float | None, pull: float = 0.5, mu: float = 0.0, nodes: Array | None = None
    ) -> None:
        """Begin with an empty state; gamma None is the largest valid in each round.

        Without nodes (m, k) the rule is the explicit one.
        """
        self._first_classes = self.n_classes
        d, k = self.n_features, self.n_classes - 1
        self._S: Array = np.zeros((k * d, k * d))
        np.fill_diagonal(self._S, 1.0 / self.lam)
        rule = rules.EXPLICIT if nodes is None else rules.IMPLICIT
        constants = self.B, gamma or 0.0, pull, mu, validation.MAX_NORM, self.lam, rule
        behind = np.empty(0) if nodes is None else nodes.ravel()
        self._memo: Array = np.append(np.zeros(memo_offsets(d, k)[-1]), behind)
        self._memo[rules.N_TOTALS :][: rules.N_CONSTANTS] = constants
        self._one_thread = one_thread(k * d, k)

    # Views are made when asked for: stored ones would not survive a copy of this object.
    @property
    def _totals(self) -> Array:
        return self._memo[: rules.N_TOTALS]

    @property
    def _theta(self) -> Array:
        start, stop, *_ = memo_offsets(self.n_features, self.n_classes - 1)
        return self._memo[start:stop]

    def _constant(self, which: int) -> float:
        return float(self._memo[rules.N_TOTALS + which])

    def _predict(self, x: Array) -> Array:
        p = np.empty(self.n_classes)
        if not predict_round(self._S, self._memo, x, p):
            validation.check_context(x)
        return p

    def _predict_batch(self, X: Array) -> Array:
        T, P, no_soft = len(X), np.empty((len(X), self.n_classes)), np.empty((0, self.n_classes))
        rows = Rows(X, np.zeros(T, np.int64), no_soft, np.zeros(T))
        self._run_blocks(rows, P, learning=False)
        return P

    def _learn(self, x: Array, label: int, soft: Array, weight: float) -> float:
        loss: float
        if self._one_thread is None:  # a single event is too short for another layer of calls
            loss = update_round(self._S, self._memo, x, label, soft, weight)
        else:
            with self._one_thread:
                loss = update_round(self._S, self._memo, x, label, soft, weight)
        if self.memory is not None and loss == loss:
            self._forget()
        return loss

    def _rows_at_once(self, rows: Rows) -> int:
        """Return the rows up to where old examples lose weight: `run` and the loop forget alike.

        Or whole blocks, if they are fewer: so they do not change the result.
        """
        n, k = len(self._S), self.n_classes - 1
        b = block_size(self.n_features, k)
        chunk = b * max(1, int(_CHUNK_FLOPS / (n * n * (k + 2.0) + 5e4) / b))
        return min(chunk, self._period - self.n_rounds % self._period)

    def _run_chunk(self, rows: Rows, P: Array) -> None:
        self._run_blocks(rows, P)
        self._forget()

    def _run_blocks(self, rows: Rows, P: Array, *, learning: bool = True) -> None:
        """Predict rows into P (T, K), each before it is learned: blocks of 1 are the loop."""
        X, *labelled = rows
        b = block_size(self.n_features, self.n_classes - 1)
        with threads_for(len(self._S)):
            if b == 1:
                run_loop(self._S, self._memo, X, *labelled, 0, len(X), learning, P)
            else:
                run_rounds(self._S, self._memo, X, validation.norms(X), *labelled, b, learning, P)

    @property
    def _period(self) -> int:
        return max(1, self.memory // _STEPS_OF_FORGETTING) if self.memory else sys.maxsize

    def _forget(self) -> None:
        if self.memory is not None and self.n_rounds % self._period == 0:
            self._discount(math.exp(-self._period / self.memory))

    def _discount(self, keep: float) -> None:
        """Let all examples count `keep` times: A' = keep A + (1 - keep) lam I, in O(n^3)."""
        n, d, lam = len(self._S), self.n_features, self.lam
        with threads_for(n):
            A = _inverse(self._S, SPARE / lam)
            g = A @ self._theta
            A *= keep
            A.flat[:: n + 1] += (1.0 - keep) * lam
            self._S[:] = _inverse(A, lam)
            self._theta[:] = self._S @ (keep * g)
        at_seen = memo_offsets(d, self.n_classes - 1)[1]
        self._memo[at_seen + d] = 0.0  # what the memo holds of the last context

    @property
    def n_rounds(self) -> int:
        return int(self._totals[rules.ROUNDS])

    @property
    def n_bytes(self) -> int:
        return self._S.nbytes + self._memo.nbytes

    def expected_bytes(self, n_features: int, n_classes: int) -> int:
        return 8 * ((n_classes - 1) * n_features) ** 2

    def grown(self, *, n_features: int | None = None, n_classes: int | None = None) -> Self:
        larger = self._larger(n_features, n_classes)
        # The Helmert basis is nested: old coordinates keep their meaning, A = diag(A, lam I).
        classes, features = np.arange(self.n_classes - 1), np.arange(self.n_features)
        places = (classes[:, None] * larger.n_features + features).ravel()
        larger._S[np.ix_(places, places)] = self._S  # lower triangle to lower triangle
        larger._theta[places] = self._theta
        larger._totals[:] = self._totals
        larger._first_classes = self._first_classes
        return larger

    def coef(self) -> Array:
        return helmert(self.n_classes) @ (-0.5 * self._theta.reshape(-1, self.n_features))

    def _explicit_rule(self) -> tuple[Array, float] | None:
        """Return S (k, d, k, d) and the pull of the explicit rule; None if the rule is another."""
        if self._constant(rules.RULE) != rules.EXPLICIT:
            return None
        lower, sizes = np.tril(self._S), (self.n_classes - 1, self.n_features)
        S: Array = (lower + np.tril(lower, -1).T).reshape(*sizes, *sizes)
        return S, self._constant(rules.PULL)

    def certificate(self, W: ArrayLike | None = None, *, B: float | None = None) -> Certificate:
        """Return the certificate for the class, that of a smaller ``B``, or one W (K, d).

        The bound is lam K B^2, for one W lam |W|_F^2, plus the brackets of the rounds.
        """
        totals = self._totals
        covered, norm = validation.comparators(W, B, self.B, self.n_classes, self.n_features)
        reason = self._why_invalid()
        return Certificate(
            loss=float(totals[rules.LOSS]),
            regret_bound=float(self.lam * norm + totals[rules.BRACKET]), B=covered,
            n_rounds=self.n_rounds, valid=not reason, reason=reason,
            scope=scope_of_growth(self._first_classes, self.n_classes),
        )  # fmt: skip

    def _why_invalid(self) -> str:
        totals = self._totals
        n_rounds = f"{totals[rules.ROUNDS]:.0f} rounds"
        if self.memory is not None:
            return f"a learner that forgets (memory={self.memory}) proves nothing about the past"
        if totals[rules.OVERCURVED]:
            return (
                f"gamma={self._constant(rules.GAMMA):g} was above the valid constant in "
                f"{totals[rules.OVERCURVED]:.0f} of {n_rounds}: leave gamma to the learner, or "
                "give a B and R that cover the contexts"
            )
        if totals[rules.IMPRECISE]:
            return (
                f"the state lost its digits to rounding in {totals[rules.IMPRECISE]:.0f} of "
                f"{n_rounds}: scale the features, or raise lam"
            )
        return ""

    def _parts(self) -> dict[str, NDArray[Any]]:
        lower = self._S[np.tri(len(self._S), dtype=bool)]
        return {"S": lower, "theta": self._theta, "totals": self._totals}

    def _restore(self, record: Record) -> None:
        self._first_classes = record.count("first_classes", 2)
        parts = self._parts().items()
        lower, theta, totals = (record.part(name, array.shape) for name, array in parts)
        self._S[np.tri(len(self._S), dtype=bool)] = lower
        self._theta[:], self._totals[:] = theta, totals


def _inverse(lower: Array, ridge: float) -> Array:
    """Return the inverse of a positive definite matrix, given by its lower triangle.

    If rounding has made it indefinite a ridge is added, ten times larger at every try.
    """
    # LAPACK counts by columns: its upper triangle is our lower one.
    factor, failed = dpotrf(lower.T, lower=False)
    while failed:
        raised = lower + ridge * np.eye(len(lower))
        factor, failed = dpotrf(raised.T, lower=False)
        ridge *= 10.0
    upper = np.triu(dpotri(factor, lower=False)[0])
    inverse: Array = upper + np.triu(upper, 1).T
    return inverse


class Folklore(SecondOrderLearner):
    r"""Online multiclass logistic regression with logarithmic regret and a live certificate.

    Use it on any stream of labelled examples whose state of ((K-1) d)^2 numbers fits in memory: no
    learning rate, and `certificate` says at every moment how much better any linear model of row
    norm at most B could have done in hindsight.

    Follow the regularised leader on quadratic lower bounds of the loss, with the improper
    regulariser :math:`\phi_t` that minimises the worst case over the label to come:

    .. math::
        W_t = \arg\min_W \lambda \|W\|_F^2 + \sum_{s<t} \hat\ell_s(W) + \phi_t(W), \qquad
        \hat\ell_t(W) = \ell_t + \langle W - W_t, \nabla \ell_t\rangle
        + \gamma_t \|W - W_t\|^2_{\nabla^2 \ell_t}

    with :math:`z_t = W_t x_t` and :math:`p_t = \mathrm{softmax}(z_t)`. Differs from the
    paper's Algorithm 1 in the update and in :math:`\gamma`, which are wrong as printed, and
    in working in (K-1) d dimensions; see docs/theory/folklore.md for every deviation.

    Time O(d^2 K^3) and memory 8 ((K-1) d)^2 bytes per round, neither growing with t.

    Guarantee, for every stream, hard or soft labels, any ``lam`` and any R: regret against
    every W of row norm at most B is at most ``certificate().regret_bound``. For unit weights
    and contexts of norm at most R that is at most `regret_bound`, O((BR + ln K) d K ln T).

    Parameters
    ----------
    B : largest row norm of the linear models to compete with, positive. With contexts of
        norm about 1, 10 is a good start; a larger B trusts the data faster.
    R : rough bound on the norm of x; it only sets the default ``lam``.
    lam : ridge :math:`\lambda`, positive; by default 2R/B.
    gamma : curvature :math:`\gamma`, positive; by default the largest that is valid in each round.
        A larger number makes the certificate invalid.
    memory : rounds after which an example counts 1/e, at least 1, for streams that drift, or None.
        Examples lose weight ten times within one memory, at O(n^3) each, n = (K-1) d: keep it
        well above n. A learner that forgets has neither certificate nor regret bound.

    Examples
    --------
    >>> from folklearn import Folklore, synthetic
    >>> X, y = synthetic.stochastic(0, 500, d=4, K=3)
    >>> model = Folklore(n_features=4, n_classes=3, B=10.0)
    >>> P = model.run(X, y)
    >>> P.shape, bool((P.argmax(axis=1) == y).mean() > 0.6), model.certificate().valid
    ((500, 3), True, True)

    References
    ----------
    Agarwal, Kale and Zimmert (2021), "Efficient Methods for Online Multiclass Logistic
    Regression", Algorithm 1, Theorems 1 and 2.
    """

    PARAMS = ("n_features", "n_classes", "B", "R", "lam", "gamma", "memory")

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        lam: float | None = None,
        gamma: float | None = None,
        memory: int | None = None,
    ) -> None:
        self._size(n_features, n_classes, B=B, R=R)
        self.lam = validation.positive("lam", 2.0 * self.R / self.B if lam is None else lam)
        self.gamma = None if gamma is None else validation.positive("gamma", gamma)
        self.memory = None if memory is None else validation.count("memory", memory, 1)
        self._start(gamma=self.gamma)

    def regret_bound(self, n_rounds: int) -> float:
        r"""Return a bound on the regret after `n_rounds` for unit weights and :math:`|x|\le R`.

        .. math::
            \lambda K B^2 + \frac14 \left(\frac1{\gamma_{\min}} + \frac{R^2}{4\lambda}\right)
            (K-1) d \ln\left(1 + \frac{\gamma_{\max} T R^2}{\lambda K d}\right)

        The curvature of a round lies between :math:`\gamma_{\min} = \gamma^*(2BR + \ln(K-1))`
        and :math:`\gamma_{\max} = 1/2`; a given ``gamma``, which must be at most the former, is
        both. The paper's Theorem 1 has a curvature that is too large and drops a factor 1/4.
        """
        T, d, K = validation.count("n_rounds", n_rounds, 0), self.n_features, self.n_classes
        B, R, lam = self.B, self.R, self.lam
        least, most = float(gamma_star_below(2.0 * B * R + math.log(K - 1))), 0.5
        if self.memory is not None or (self.gamma is not None and self.gamma > least):
            return math.inf
        if self.gamma is not None:
            least = most = self.gamma
        growth = math.log1p(most * T * R**2 / (lam * K * d))
        return lam * K * B**2 + 0.25 * (1.0 / least + R**2 / (4.0 * lam)) * (K - 1) * d * growth


def certificate_at_norm(learner: Learner, B: float | None = None) -> Certificate:
    """Return what a learner proves about models of row norm at most B, without a penalty.

    By default B is that of its class; of a learner that proves something about all models, 10.
    """
    if isinstance(learner, SecondOrderLearner):
        return learner.certificate(B=B)
    proven = learner.certificate()
    norm = (proven.B or _DEFAULT_NORM) if B is None else validation.positive("B", B)
    if proven.B is not None:
        return replace(proven, B=min(norm, proven.B))
    bound = proven.loss - proven.at_norm(math.sqrt(learner.n_classes) * norm)
    return replace(proven, regret_bound=bound, C=None, B=norm, penalty=0.0)
