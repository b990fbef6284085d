"""SMP, the Sample Minmax Predictor (Mourtada and Gaïffas 2022), for K classes."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from folklearn import validation
from folklearn.arrays import TINY, Array, softmax
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.kernels.fixed_point import solve_fixed_point
from folklearn.kernels.simplex import helmert
from folklearn.serialization import Record, Serializable

SMALL_STEP = 1e-7  # logits; Newton squares the error, so after such a step it is near 1e-14
_MIN_GAIN = 1e-17  # of 1 + f, promised by a step
_MAX_STEPS = 200
_MIN_STEP_LENGTH = 1e-30  # of a Newton step: less is rounding
_ROWS_PER_CHUNK = 1024  # whose k x k matrices are in memory at once
_NUMBERS_PER_CHUNK = 4_000_000  # of the state seen through a chunk of contexts
REFIT = "refit"
LAPLACE = "laplace"


class RidgeRegression:
    """f(U) = lam |U|^2 + sum of the losses of (X, targets), and its minimiser by Newton's method.

    W = Q U with U (k, d): the ridge keeps the minimiser orthogonal to the all-ones vector of the
    classes, so that nothing is lost, and |W|_F = |U|_F.
    """

    def __init__(self, X: Array, targets: Array, lam: float) -> None:
        self.X, self.targets, self.lam = X, targets, lam
        self._Q = helmert(targets.shape[1])

    def minimise(self, U: Array) -> tuple[Array, bool]:
        """Return the minimiser, by damped Newton steps from U, and whether they converged.

        The last step moves no logit of a row by more than SMALL_STEP, or promises less than f
        can show: with huge features the logits that remain open then cost nothing.
        """
        Z = self._logits(U)
        value = self._value(U, Z)
        for _ in range(_MAX_STEPS):
            P = softmax(Z)
            gradient = self._gradient(U, P)
            factor = lower_factor(self._hessian(P))
            step = cho_solve((factor, True), gradient.ravel()).reshape(U.shape)
            decrease = float((gradient * step).sum())
            moves = float(np.abs(self._logits(step)).max())
            if moves <= SMALL_STEP or decrease <= _MIN_GAIN * (1.0 + value):
                return U - step, True
            rounding = 1e-13 * (1.0 + value)  # lets the last steps through
            length = 1.0
            while True:
                moved = U - length * step
                Z = self._logits(moved)
                after = self._value(moved, Z)
                if after <= value - 1e-4 * length * decrease + rounding:
                    break
                length /= 2.0
                if length < _MIN_STEP_LENGTH:
                    return U, False
            U, value = moved, after
        return U, False

    def value(self, U: Array) -> float:
        """Return f at U."""
        return self._value(U, self._logits(U))

    def hessian(self, U: Array) -> Array:
        """Return the Hessian (n, n) of f at U, class-major."""
        return self._hessian(softmax(self._logits(U)))

    def _hessian(self, P: Array) -> Array:
        # 2 lam I + the sum of M (x) xx', M the covariance of p in the Helmert basis.
        k, d = P.shape[1] - 1, self.X.shape[1]
        H = np.zeros((k, d, k, d))
        for start in range(0, len(P), _ROWS_PER_CHUNK):
            x = self.X[start : start + _ROWS_PER_CHUNK]
            M = _covariances(P[start : start + _ROWS_PER_CHUNK], self._Q)
            for a in range(k):
                for b in range(a + 1):
                    H[a, :, b] += (x * M[:, a, b, None]).T @ x
        for a in range(k):
            for b in range(a):
                H[b, :, a] = H[a, :, b].T
        out = H.reshape(k * d, k * d)
        out[np.diag_indices(k * d)] += 2.0 * self.lam
        return out

    def _logits(self, U: Array) -> Array:
        Z: Array = (self.X @ U.T) @ self._Q.T
        return Z

    def _value(self, U: Array, Z: Array) -> float:
        top = Z.max(axis=1, keepdims=True)
        shifted = Z - top  # the loss ignores a common shift, floating point does not
        losses = np.log(np.exp(shifted).sum(axis=1)) - (self.targets * shifted).sum(axis=1)
        return float(losses.sum() + self.lam * (U**2).sum())

    def _gradient(self, U: Array, P: Array) -> Array:
        # p - y = p (1 - y) - y (1 - p), with 1 - p the sum of the others: no cancellation.
        others = np.zeros_like(P)
        others[:, 1:] = np.cumsum(P[:, :-1], axis=1)
        others[:, :-1] += np.cumsum(P[:, :0:-1], axis=1)[:, ::-1]
        E = P * (1.0 - self.targets) - self.targets * others
        gradient: Array = (E @ self._Q).T @ self.X + 2.0 * self.lam * U
        return gradient


def _covariances(P: Array, Q: Array) -> Array:
    """Return Q'(diag p - pp')Q of every row, by the factor of `folklearn.kernels.simplex`."""
    k = P.shape[1] - 1
    prefix = np.cumsum(P, axis=1)
    share = np.sqrt(P[:, 1:] / np.maximum(prefix[:, 1:], TINY))
    before = prefix[:, :-1]
    i = np.arange(1, k + 1)
    scale = share * np.sqrt(before * ((i + 1.0) / i))
    tail = np.where(before > 0.0, share / np.sqrt(np.maximum(before, TINY)), 0.0)
    rho = np.triu((P @ Q)[:, :, None] * tail[:, None, :], 1)
    rho[:, i - 1, i - 1] = scale
    M: Array = rho @ rho.transpose(0, 2, 1)
    return M


def lower_factor(H: Array) -> Array:
    """Return L with LL' = H, which rounding may have made indefinite; H may be changed."""
    ridge = 0.0
    while True:
        try:
            L: Array = cholesky(H, lower=True)
            return L
        except LinAlgError:
            added = max(9.0 * ridge, 1e-14 * float(H.trace()))
            ridge += added
            H[np.diag_indices(len(H))] += added


class SMP(Serializable):
    r"""Sample Minmax Predictor: logistic regression refitted with every label of the new x.

    Use it on a sample at hand when the model may be wrong or the sample is small: its excess
    risk has no factor :math:`e^B`, which every linear predictor can be made to pay. Prefer
    `folklearn.batch.OnlineToBatch` for samples too large for Newton's method, and a learner for
    streams.

    Refit the ridge regression once per class with the new x under that virtual label, and
    normalise what each refit says of its own label:

    .. math::
        \hat W^{(y)} = \arg\min_W \lambda \|W\|_F^2 + \sum_{t \le T} \ell(W x_t, y_t)
        + \ell(W x, y), \qquad p(y) \propto \mathrm{softmax}(\hat W^{(y)} x)_y

    ``"refit"`` does just that, by Newton's method to a last step below 1e-7 in every logit,
    hence an error near 1e-14. ``"laplace"`` replaces the sum by its second-order expansion at
    the empirical minimiser, and the refitted logits solve an equation in K - 1 dimensions.

    Time of `fit`: about 5 to 10 Newton steps of T n^2 / 2 + n^3 / 3 multiply-adds, n = (K-1) d.
    Of a prediction: n^2 + O(n K^2) for ``"laplace"``, and 2 to 4 more Newton steps for each
    of the K labels for ``"refit"``. Memory: n^2 numbers, and the sample for ``"refit"``.

    Guarantee of ``"refit"``, for rows drawn independently from one distribution, hard labels,
    any ``lam`` and no bound on x: for every W the expected risk is at most
    :math:`\text{risk}(W) + \lambda \|W\|_F^2/(T+1) + E \ln N(x)`, N(x) the normaliser; see
    `guarantee`. The last term is about (K-1) d / T at large T. ``"laplace"`` is an approximation
    without a guarantee: for T = 20 to 200 its probabilities are off by less than .01 in the
    mean at lam of .1 or more. With a weak ridge on a nearly separable sample (lam = .01, T = 20)
    they are off by .07 and too cautious, in the extreme uniform: the curvature vanishes where
    the minimiser is certain. Derived in docs/theory/reductions.md.

    Parameters
    ----------
    n_features : number of features d, at least 1.
    n_classes : number of classes K, at least 2.
    lam : ridge :math:`\lambda` of the *sum* of losses, positive. scikit-learn's
        ``LogisticRegression(C=C, fit_intercept=False)`` has the same minimiser at
        lam = 1/(2C) for K > 2 and lam = 1/C for K = 2.
    method : ``"refit"`` or ``"laplace"``.

    Attributes
    ----------
    converged : whether Newton's method converged in `fit`; a prediction that does not
        converge raises.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.baselines import SMP
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = (X[:, 0] > 0).astype(int)  # separable: plain logistic regression is too sure
    >>> model = SMP(n_features=2, n_classes=2, lam=1e-3).fit(X, y)
    >>> bool(0.9 < model.predict([2.0, 0.0])[1] < 1.0)
    True

    References
    ----------
    Mourtada and Gaïffas (2022), "An Improper Estimator with Optimal Excess Risk in Misspecified
    Density Estimation and Logistic Regression", JMLR 23(31).
    """

    PARAMS = ("n_features", "n_classes", "lam", "method")
    COUNTERS = ("n_rows",)
    ARRAYS = ("U", "root", "X", "targets")

    @classmethod
    def _fewest_numbers(cls, **words: Any) -> int:
        d, K = validation.sizes(words)
        return ((K - 1) * d) ** 2

    def __init__(
        self, *, n_features: int, n_classes: int, lam: float = 0.5, method: str = REFIT
    ) -> None:
        self.n_features = validation.count("n_features", n_features, 1)
        self.n_classes = validation.count("n_classes", n_classes, 2)
        self.lam = validation.positive("lam", lam)
        if method not in (LAPLACE, REFIT):
            raise InvalidInputError(f"method must be {REFIT!r} or {LAPLACE!r}, got {method!r}")
        self.method = method
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
        L = lower_factor(sample.hessian(self._U))
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
        W: Array = self._Q @ self._U
        return W

    def _log_numerators(self, x: ArrayLike) -> Array:
        """Return ln softmax(z^(y))_y for every label y, one row per context."""
        if self.n_rows == 0:
            raise FolklearnError("the predictor is not fitted yet: call fit(X, y) first")
        x = validation.numbers("x", x)
        if x.ndim != 2:
            X = validation.context(x, self.n_features)[None, :]
            logs: Array = self._log_numerators(X)[0]
            return logs
        X, _ = validation.contexts(x, self.n_features)
        logs = np.empty((len(X), self.n_classes))
        chunk = max(1, _NUMBERS_PER_CHUNK // (self._root.shape[0] * (self.n_classes - 1)))
        for start in range(0, len(X), chunk):
            rows = slice(start, start + chunk)
            self._write_log_numerators(X[rows], logs[rows])
        return logs

    def _write_log_numerators(self, X: Array, out: Array) -> None:
        k, d = self._U.shape
        # C/2 = G'G with G = L^-1 (I (x) x): A, half of the Hessian, is the state's curvature.
        G = (self._root.reshape(-1, d) @ X.T).reshape(-1, k, len(X)).transpose(2, 0, 1)
        half_C = G.transpose(0, 2, 1) @ G
        centres = X @ self._U.T
        (z, p), (u, g, scale, tail) = np.empty((2, k + 1)), np.empty((4, k))
        J, H, work = np.empty((k, k)), np.empty((k, k)), np.empty((6, k + 1))
        for t, x in enumerate(X):
            for y, corner in enumerate(self._Q):  # corner is Q'e_y
                h = centres[t] + half_C[t] @ corner
                log_total, _ = solve_fixed_point(
                    h, 1.0, half_C[t], u, z, p, g, scale, tail, J, H, work
                )
                out[t, y] = z[y] - log_total
                if self.method == REFIT:
                    move = self._root.T @ (G[t] @ (g - corner))
                    out[t, y] = self._refit(x, y, self._U - move.reshape(k, d))

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
        z -= z.max()
        return float(z[y] - np.log(np.exp(z).sum()))

    def to_record(self) -> Record:
        """Return the full state as a record; ``"refit"`` includes the sample."""
        record = super().to_record()
        record.config["converged"] = self.converged
        return record

    def _restore(self, record: Record) -> None:
        self.n_rows = record.count("n_rows")
        self.converged = bool(record.word("converged"))
        k, d = self._U.shape
        kept = self.n_rows if self.method == REFIT else 0
        self._U = record.part("U", (k, d)).copy()
        self._root = record.part("root", (k * d, k * d)).copy()
        self._X = record.part("X", (kept, d)).copy()
        self._targets = record.part("targets", (kept, k + 1)).copy()
