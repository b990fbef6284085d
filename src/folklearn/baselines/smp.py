"""SMP, the Sample Minmax Predictor (Mourtada and Gaïffas 2022), for K classes."""

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from folklearn import validation
from folklearn.arrays import Array, logit_losses, softmax
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.kernels import prediction_rules
from folklearn.kernels.simplex import helmert
from folklearn.serialization import Record, Serializable

_SMALL_LOGIT_STEP = 1e-7  # logits; Newton squares the error, so after such a step it is near 1e-14
_MIN_GAIN = 1e-17  # of 1 + f, promised by a step
_VALUE_ROUNDING = 1e-13  # of 1 + f, which lets the last steps through
_MAX_STEPS = 200
_MIN_STEP_LENGTH = 1e-30  # of a Newton step: less is rounding
REFIT, LAPLACE = "refit", "laplace"


class RidgeRegression:
    """f(U) = lam |U|^2 + sum of the losses of (X, targets), and its minimiser by Newton's method.

    W = Q U with U (k, d): the ridge keeps the minimiser orthogonal to the all-ones vector of the
    classes, so that nothing is lost, and |W|_F = |U|_F.
    """

    def __init__(self, X: Array, targets: Array, lam: float) -> None:
        self.X, self.targets, self.lam = X, targets, lam
        self._Q = helmert(targets.shape[1])

    def _logits(self, U: Array) -> Array:
        return (self.X @ U.T) @ self._Q.T

    def value(self, U: Array) -> float:
        losses = logit_losses(self._logits(U), np.empty(0, np.int64), self.targets)
        return float(losses.sum() + self.lam * (U**2).sum())

    def expand(self, U: Array) -> tuple[Array, Array]:
        """Return the gradient (k, d) of f at U, and L (n, n), class-major, with LL' the Hessian."""
        (k, d), Q, P = U.shape, self._Q, softmax(self._logits(U))
        # p - y = p (1 - y) - y (1 - p), with 1 - p the sum of the others: no cancellation.
        others = P @ (1.0 - np.eye(k + 1))
        E = P * (1.0 - self.targets) - self.targets * others
        gradient: Array = (E @ Q).T @ self.X + 2.0 * self.lam * U
        # Of 2 lam I + the sum of M (x) xx', M the covariance of Q'e_y under p, the blocks below.
        H = np.zeros((k, d, k, d))
        D = np.sqrt(P)[:, :, None] * (Q - (P @ Q)[:, None, :])
        M = D.transpose(0, 2, 1) @ D
        for a in range(k):
            for b in range(a + 1):
                H[a, :, b] = (self.X * M[:, a, b, None]).T @ self.X
        hessian = H.reshape(k * d, k * d) + 2.0 * self.lam * np.eye(k * d)
        return gradient, lower_factor(hessian)

    def minimise(self, U: Array) -> tuple[Array, bool]:
        """Return the minimiser, by damped Newton steps from U, and whether they converged.

        The last step moves no logit of a row by more than _SMALL_LOGIT_STEP, or promises less than
        f can show: with huge features the logits that remain open then cost nothing.
        """
        for _ in range(_MAX_STEPS):
            value = self.value(U)
            gradient, L = self.expand(U)
            step = cho_solve((L, True), gradient.ravel()).reshape(U.shape)
            decrease = float((gradient * step).sum())
            moves = float(np.abs(self._logits(step)).max())
            if moves <= _SMALL_LOGIT_STEP or decrease <= _MIN_GAIN * (1.0 + value):
                return U - step, True
            limit = value + _VALUE_ROUNDING * (1.0 + value)
            length = 1.0
            while not self.value(U - length * step) <= limit - 1e-4 * length * decrease:
                length /= 2.0
                if length < _MIN_STEP_LENGTH:
                    return U, False
            U = U - length * step
        return U, False


def lower_factor(H: Array) -> Array:
    """Return L with LL' = H, of which the lower triangle counts; rounding may want a ridge."""
    ridge = 0.0
    while True:
        try:
            return cholesky(H + ridge * np.eye(len(H)), lower=True)
        except LinAlgError:
            ridge = max(10.0 * ridge, 1e-14 * float(H.trace()))


class SMP(Serializable):
    r"""Sample Minmax Predictor: logistic regression refitted with every label of the new x.

    Use it on a sample at hand when the model may be wrong or the sample is small: its excess
    risk has no factor :math:`e^B`, which every linear predictor can be made to pay. Prefer
    `folklearn.batch.OnlineToBatch` for samples too large for Newton's method.

    .. math::
        \hat W^{(y)} = \arg\min_W \lambda \|W\|_F^2 + \sum_{t \le T} \ell(W x_t, y_t)
        + \ell(W x, y), \qquad p(y) \propto \mathrm{softmax}(\hat W^{(y)} x)_y

    ``"laplace"`` replaces the sum by its second-order expansion at the empirical minimiser. Time of
    `fit`: about 5 to 10 Newton steps of T n^2 / 2 + n^3 / 3 multiply-adds, n = (K-1) d; of a
    prediction: n^2 + O(n K^2), and for ``"refit"`` 2 to 4 more Newton steps for each of the K
    labels. Memory: n^2 + T K^2 numbers.

    Guarantee of ``"refit"``, for rows drawn independently from one distribution, hard labels,
    any ``lam`` and no bound on x: for every W the expected risk is at most
    :math:`\text{risk}(W) + \lambda \|W\|_F^2/(T+1) + E \ln N(x)`, N(x) the normaliser; see
    `guarantee`. The last term is about (K-1) d / T at large T. ``"laplace"`` has none: its
    probabilities are off by less than .01 in the mean at lam of .1 or more, by .07 on a nearly
    separable sample (lam = .01, T = 20). Derived in docs/theory/sample.md.

    Parameters
    ----------
    n_features, n_classes : sizes of the problem, d at least 1 and K at least 2.
    lam : ridge :math:`\lambda` of the *sum* of losses, positive. scikit-learn's
        ``LogisticRegression(C=C, fit_intercept=False)`` has the same minimiser at
        lam = 1/(2C) for K > 2 and lam = 1/C for K = 2.
    method : ``"refit"`` or ``"laplace"``.

    Attributes
    ----------
    converged : whether Newton's method converged in `fit`; a prediction that does not raises.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.baselines import SMP
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = (X[:, 0] > 0).astype(int)  # separable: plain logistic regression is too sure
    >>> bool(0.9 < SMP(n_features=2, n_classes=2, lam=1e-3).fit(X, y).predict([2.0, 0.0])[1] < 1.0)
    True

    References
    ----------
    Mourtada and Gaïffas (2022), "An Improper Estimator with Optimal Excess Risk in Misspecified
    Density Estimation and Logistic Regression", JMLR 23(31).
    """

    PARAMS = ("n_features", "n_classes", "lam", "method")
    COUNTERS = ("n_rows",)
    STATE: ClassVar = {"converged": bool}
    ARRAYS = ("U", "root", "X", "targets")
    FEWEST_NUMBERS = staticmethod(lambda d, K: ((K - 1) * d) ** 2)

    def __init__(
        self, *, n_features: int, n_classes: int, lam: float = 0.5, method: str = REFIT
    ) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self.lam = validation.positive("lam", lam)
        self.method = validation.choice("method", method, (REFIT, LAPLACE))
        self.n_rows = 0
        self.converged = True
        self._Q = helmert(self.n_classes)
        k, d = self.n_classes - 1, self.n_features
        self._U: Array = np.zeros((k, d))  # of the empirical minimiser W = Q U
        self._root: Array = np.zeros((k * d, k * d))  # L^-1, with LL' the Hessian there
        self._X: Array = np.empty((0, d))  # the sample, for refitting only
        self._targets: Array = np.empty((0, self.n_classes))

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows X (T, d), y (T,) classes or (T, K) soft labels; return self."""
        X, _ = validation.contexts(X, self.n_features)
        if len(X) == 0:
            raise InvalidInputError("X has no rows: a predictor needs at least one")
        labels, soft = validation.labels(y, len(X), self.n_classes)
        targets = soft if len(soft) else np.eye(self.n_classes)[labels]
        sample = RidgeRegression(X, targets, self.lam)
        self._U, self.converged = sample.minimise(np.zeros_like(self._U))
        _, L = sample.expand(self._U)
        # In C order, as a loaded one is: the order of sums depends on it.
        self._root = np.ascontiguousarray(solve_triangular(L, np.eye(len(L)), lower=True))
        self.n_rows = len(X)
        if self.method == REFIT:
            self._X, self._targets = X.copy(), targets
        return self

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities: (d,) in, (K,) out; (T, d) in, (T, K) out."""
        return softmax(self._log_numerators(x))

    def guarantee(self, X: ArrayLike, *, B: float) -> float | None:
        r"""Return lam K B^2 / (T + 1) + the mean of ln N(x) over new rows X, in nats.

        No label of X is needed. For ``"refit"`` and hard labels, its expectation over sample
        and X bounds the expected excess risk over the best model of row norm at most B; None
        for ``"laplace"``, which is an approximation.
        """
        B = validation.positive("B", B)
        logs = self._log_numerators(validation.contexts(X, self.n_features)[0])
        if len(logs) == 0:
            raise InvalidInputError("X has no rows: the normaliser is averaged over new ones")
        if self.method == LAPLACE:
            return None
        normaliser = np.log(np.exp(logs).sum(axis=1))
        return self.lam * self.n_classes * B**2 / (self.n_rows + 1) + float(normaliser.mean())

    def coef(self) -> Array:
        """Return the empirical minimiser W (K, d), without virtual labels."""
        return self._Q @ self._U

    def _log_numerators(self, x: ArrayLike) -> Array:
        """Return ln softmax(z^(y))_y for every label y, one row per context."""
        if self.n_rows == 0:
            raise FolklearnError("the predictor is not fitted yet: call fit(X, y) first")
        x = validation.numbers("x", x)
        if x.ndim != 2:
            return self._log_numerators(validation.context(x, self.n_features)[None])[0]
        X, _ = validation.contexts(x, self.n_features)
        logs, (k, d) = np.empty((len(X), self.n_classes)), self._U.shape
        squares, vectors = prediction_rules.small_arrays(k)
        h, g = vectors[prediction_rules.A_AT, :k], vectors[prediction_rules.G_AT, :k]
        z, info = vectors[prediction_rules.Z_AT], vectors[prediction_rules.INFO]
        for t, row in enumerate(X):
            # C/2 = G'G with G = L^-1 (I (x) x): A, half of the Hessian, is the state's curvature.
            G = (self._root.reshape(-1, d) @ row).reshape(-1, k)
            half_C = G.T @ G
            for y, corner in enumerate(self._Q):  # corner is Q'e_y
                squares[prediction_rules.C_AT] = half_C
                h[:] = self._U @ row + half_C @ corner
                prediction_rules.solve_fixed_point(1.0, squares, vectors)
                logs[t, y] = z[y] - info[prediction_rules.LOG_TOTAL]
                if self.method == REFIT:
                    move = self._root.T @ (G @ (g - corner))
                    logs[t, y] = self._refit(row, y, self._U - move.reshape(k, d))
        return logs

    def _refit(self, x: Array, y: int, start: Array) -> float:
        X = np.vstack([self._X, x])
        targets = np.vstack([self._targets, np.eye(1, self.n_classes, y)])
        sample = RidgeRegression(X, targets, self.lam)
        # Where the minimiser is certain the quadratic may lead far away: Newton's method would
        # need many steps back from there.
        U, converged = sample.minimise(min(start, self._U, key=sample.value))
        if not converged:
            raise FolklearnError(
                "a refit did not converge: scale the features, raise lam, or use "
                f"method={LAPLACE!r}"
            )
        z = self._Q @ (U @ x)
        return -float(logit_losses(z[None], np.array([y]), validation.NO_SOFT_ROWS)[0])

    def _restore(self, record: Record) -> None:
        kept = record.count("n_rows") if self.method == REFIT else 0
        record.check_holds(kept * self.n_features)
        self._X = np.empty((kept, self.n_features))
        self._targets = np.empty((kept, self.n_classes))
        super()._restore(record)
