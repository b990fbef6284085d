"""FOLKLORE: fast online K-class logistic regression (Agarwal, Kale and Zimmert 2021)."""

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem, progress
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.contract import Certificate, Progress
from folklearn.numerics.second_order import (
    BRACKET,
    IMPRECISE,
    LOSS,
    N_TOTALS,
    OVERCURVED,
    ROUNDS,
    UNSOLVED,
    predict_round,
    update_round,
)
from folklearn.numerics.state import SecondOrderState
from folklearn.persist import Record

Array = NDArray[np.float64]


class Folklore:
    r"""Online multiclass logistic regression with logarithmic regret and a live certificate.

    Use it on any stream of labelled examples: no learning rate, each example is learned
    once, and `certificate` says at every moment how much better any linear model of row
    norm at most B could have done in hindsight. Prefer a first-order method when the state
    of ((K-1) d)^2 numbers does not fit in memory.

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
    every W of row norm at most B is at most ``certificate().regret_bound``, itself at most
    `folklearn.bounds.folklore`, which is O((BR + ln K) d K ln T).

    Parameters
    ----------
    n_features : number of features d, at least 1.
    n_classes : number of classes K, at least 2.
    B : largest row norm of the linear models to compete with, positive. With contexts of
        norm about 1, 10 is a good start; a larger B trusts the data faster.
    R : rough bound on the norm of x; it only sets the default ``lam``.
    lam : ridge :math:`\lambda`, positive; by default 2R/B.
    gamma : curvature :math:`\gamma`, positive. By default the largest constant that is
        valid in each round. A number is used as given, and the certificate becomes invalid
        once a round's valid constant is below it.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn import Folklore
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 4)) / 2
    >>> y = np.argmax(X[:, :3], axis=1)
    >>> model = Folklore(n_features=4, n_classes=3, B=10.0)
    >>> P = model.run(X, y)
    >>> P.shape, bool(np.mean(P.argmax(axis=1) == y) > 0.9)
    ((500, 3), True)
    >>> model.certificate().valid
    True

    References
    ----------
    Agarwal, Kale and Zimmert (2021), "Efficient Methods for Online Multiclass Logistic
    Regression", Algorithm 1, Theorems 1 and 2.
    """

    def __init__(
        self,
        *,
        n_features: int,
        n_classes: int,
        B: float = 10.0,
        R: float = 1.0,
        lam: float | None = None,
        gamma: float | None = None,
    ) -> None:
        self.n_features = problem.count("n_features", n_features, 1)
        self.n_classes = problem.count("n_classes", n_classes, 2)
        self.B = problem.positive("B", B)
        self.R = problem.positive("R", R)
        self.lam = 2.0 * self.R / self.B if lam is None else problem.positive("lam", lam)
        self.gamma = None if gamma is None else problem.positive("gamma", gamma)
        self._shape = (self.n_features,)
        self._gamma = self.gamma or 0.0  # what the kernels take: 0 means the largest valid
        self._state = SecondOrderState(self.n_features, self.n_classes, self.lam)

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out.

        Rows of a matrix are all predicted from the current state. The prediction is
        improper: it depends on x beyond a linear map of it.
        """
        if not problem.is_context(x, self._shape):
            if np.ndim(x) == 2:
                return self._state.predict_many(*problem.contexts(x, self.n_features))
            x = problem.context(x, self.n_features)
        p = np.empty(self.n_classes)
        state = self._state
        if not predict_round(state.S, state.memo, x, problem.MAX_NORM, p):
            problem.refuse_context(x)
        return p

    def update(self, x: ArrayLike, y: Any, *, weight: float = 1.0) -> float:
        """Learn one example and return its log loss -ln p[y], predicted before learning.

        y is a class 0..K-1 or a point of the simplex (K,). The example counts `weight`
        times in the state and in the certificate; the returned loss is unweighted.
        """
        if not problem.is_context(x, self._shape):
            x = problem.context(x, self.n_features)
        label, soft = problem.label(y, self.n_classes)
        if weight != 1.0:
            weight = problem.weight(weight)
        state = self._state
        arguments = (state.S, state.memo, x, label, soft, weight, self.B, self._gamma)
        if state.one_thread is None:
            loss: float = update_round(*arguments, problem.MAX_NORM)
        else:
            with state.one_thread:
                loss = update_round(*arguments, problem.MAX_NORM)
        if loss != loss:
            problem.refuse_context(x)
        return loss

    def run(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
    ) -> Array:
        """Predict, then learn, row by row; return the predictions (T, K).

        Equal to the loop over `predict` and `update`, at the speed of matrix products.
        Every row is checked before the first round. y is (T,) classes or (T, K) soft
        labels; `progress` is True for a bar or a function of the number of rounds done.
        """
        return self._run(X, y, weight, progress)[0]

    def _run(
        self, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None, show: Progress
    ) -> tuple[Array, Array]:
        X, norms = problem.contexts(X, self.n_features)
        labels, soft = problem.labels(y, len(X), self.n_classes)
        weights = problem.weights(weight, len(X))
        with progress.reporter(show, len(X), "learning") as report:
            return self._state.run(X, norms, labels, soft, weights, self.B, self._gamma, report)

    def certificate(self, W: ArrayLike | None = None) -> Certificate:
        """Return the certificate for the whole class, or for one W (K, d) of it.

        The bound is lam K B^2 plus the brackets of the rounds; for one W, lam |W|_F^2
        instead, which is never larger.
        """
        totals = self._state.totals
        norm = self.n_classes * self.B**2 if W is None else self._squared_norm(W)
        reason = self._why_invalid()
        return Certificate(
            loss=float(totals[LOSS]),
            regret_bound=np.inf if reason else float(self.lam * norm + totals[BRACKET]),
            B=self.B,
            n_rounds=int(totals[ROUNDS]),
            valid=not reason,
            reason=reason,
        )

    def _squared_norm(self, W: ArrayLike) -> float:
        W = problem.numbers("W", W)
        if W.shape != (self.n_classes, self.n_features) or not np.isfinite(W).all():
            raise InvalidInputError(
                f"W has shape {W.shape}; expected finite numbers of shape "
                f"(n_classes={self.n_classes}, n_features={self.n_features})"
            )
        largest = float(np.sqrt((W**2).sum(axis=1)).max())
        if largest > self.B * (1.0 + 1e-9):
            raise InvalidInputError(
                f"W has a row of norm {largest:g}, outside the class that this certificate "
                f"covers (row norms at most B={self.B:g})"
            )
        return float((W**2).sum())

    def _why_invalid(self) -> str:
        totals = self._state.totals
        if totals[OVERCURVED]:
            return (
                f"gamma={self.gamma:g} was above the valid constant in "
                f"{totals[OVERCURVED]:.0f} of {totals[ROUNDS]:.0f} rounds"
            )
        if totals[IMPRECISE]:
            return (
                f"the state lost its digits to rounding in {totals[IMPRECISE]:.0f} of "
                f"{totals[ROUNDS]:.0f} rounds: scale the features, or raise lam"
            )
        return ""

    @property
    def n_unsolved(self) -> int:
        """Rounds whose fixed point did not converge; the certificate holds all the same."""
        return int(self._state.totals[UNSOLVED])

    def coef(self) -> Array:
        """Return the mean weights (K, d) of the current state; its rows sum to zero."""
        return self._state.mean()

    def to_record(self) -> Record:
        """Return the full state as a record."""
        config = {
            "n_features": self.n_features,
            "n_classes": self.n_classes,
            "B": self.B,
            "R": self.R,
            "lam": self.lam,
            "gamma": self.gamma,
        }
        state = self._state
        arrays = {"S": state.packed(), "theta": state.theta, "totals": state.totals}
        return Record("Folklore", config, arrays)

    @classmethod
    def from_record(cls, record: Record) -> "Folklore":
        """Rebuild a learner from its record."""
        try:
            model = cls(**record.config)
        except (TypeError, InvalidInputError) as error:
            raise StateFileError(f"a Folklore state has a bad configuration: {error}") from None
        state = model._state
        n = state.theta.size
        shapes = {"S": (n * (n + 1) // 2,), "theta": (n,), "totals": (N_TOTALS,)}
        for name, shape in shapes.items():
            array = record.arrays.get(name)
            if array is None or array.shape != shape or array.dtype != np.float64:
                raise StateFileError(f"a Folklore state needs float64 {name} of shape {shape}")
        state.restore(*(record.arrays[name] for name in shapes))
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file; `folklearn.load` resumes exactly."""
        persist.write(path, self.to_record())

    def __repr__(self) -> str:
        return (
            f"Folklore(n_features={self.n_features}, n_classes={self.n_classes}, "
            f"B={self.B:g}, R={self.R:g}, lam={self.lam:g}, gamma={self.gamma})"
        )
