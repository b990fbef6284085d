"""The empirical minimiser: multinomial logistic regression with a ridge, by Newton's method.

W = Q U with U (k, d): the ridge keeps the minimiser orthogonal to the all-ones vector of the
classes, so that nothing is lost, and |W|_F = |U|_F.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky

from folklearn.arrays import TINY, Array, softmax
from folklearn.kernels.simplex import helmert

SMALL_STEP = 1e-7  # logits; Newton squares the error, so after such a step it is near 1e-14
_NO_GAIN = 1e-17  # of 1 + f, promised by a step
_MOST_STEPS = 200
_SHORTEST = 1e-30  # part of a Newton step: less is rounding
_CHUNK = 1024  # rows whose k x k matrices are in memory at once


class Ridge:
    """f(U) = lam |U|^2 + sum of the losses of (X, targets), and its minimiser."""

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
        for _ in range(_MOST_STEPS):
            P = softmax(Z)
            gradient = self._gradient(U, P)
            factor = lower_factor(self._hessian(P))
            step = cho_solve((factor, True), gradient.ravel()).reshape(U.shape)
            decrease = float((gradient * step).sum())
            moves = float(np.abs(self._logits(step)).max())
            if moves <= SMALL_STEP or decrease <= _NO_GAIN * (1.0 + value):
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
                if length < _SHORTEST:
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
        """Return 2 lam I + the sum of M (x) xx', M the covariance of p in the Helmert basis."""
        k, d = P.shape[1] - 1, self.X.shape[1]
        H = np.zeros((k, d, k, d))
        for start in range(0, len(P), _CHUNK):
            x = self.X[start : start + _CHUNK]
            M = _covariances(P[start : start + _CHUNK], self._Q)
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
