"""Evidence from its definition: a dense quadratic in all K d coordinates, and its least value.

Expanded at logits z, a row's surrogate is

    w [l(z, y) + <W x - z, p - y> + gamma |W x - z|^2 in the norm of diag p - p p'],

p = softmax(z). Vectors of length K d are W row by row, so that the vector of p (x) x is
np.kron(p, x).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import softmax

from .curvature import round_gamma
from .hindsight import optimality_gap
from .loss import Array, as_distribution, covariance, log_loss


def labels_as_rows(y: ArrayLike, n_classes: int) -> Array:
    """(T, K), hard labels as unit vectors."""
    rows = [as_distribution(label, n_classes) for label in np.asarray(y)]
    return np.array(rows).reshape(-1, n_classes)


def centred(Z: Array) -> Array:
    """Logits less their maximum: only differences matter, and rounding hates a common shift."""
    return Z - Z.max(axis=1, keepdims=True)


def curvatures(X: Array, Z: Array, B: float) -> Array:
    """The largest constant known to be valid, for every row expanded at logits Z (T, K)."""
    norms = np.linalg.norm(X, axis=1)
    return np.array([round_gamma(z, norm, B) for z, norm in zip(Z, norms, strict=True)])


def surrogate(W: Array, x: Array, y: ArrayLike, z: Array, gamma: float) -> float:
    """One row's surrogate at W, term by term."""
    p = softmax(z)
    step = W @ x - z
    linear = float(step @ (p - as_distribution(y, z.size)))
    return log_loss(z, y) + linear + gamma * float(step @ covariance(p) @ step)


def total(W: Array, X: Array, y: ArrayLike, Z: Array, gamma: Array, weight: Array) -> float:
    """The weighted sum of the surrogates at W."""
    rows = zip(X, np.asarray(y), Z, gamma, weight, strict=True)
    return sum(w * surrogate(W, x, label, z, g) for x, label, z, g, w in rows)


@dataclass(frozen=True)
class Quadratic:
    """c + <g, W> + <W, A W>, in the coordinates W.ravel()."""

    A: Array
    g: Array
    c: float
    n_classes: int

    def value(self, W: Array) -> float:
        w = W.ravel()
        return float(self.c + self.g @ w + w @ self.A @ w)

    def gradient(self, W: Array) -> Array:
        return (self.g + 2 * self.A @ W.ravel()).reshape(W.shape)

    def __add__(self, other: "Quadratic") -> "Quadratic":
        return Quadratic(self.A + other.A, self.g + other.g, self.c + other.c, self.n_classes)

    def __mul__(self, factor: float) -> "Quadratic":
        return Quadratic(factor * self.A, factor * self.g, factor * self.c, self.n_classes)


def quadratic(
    X: Array,
    y: ArrayLike,
    n_classes: int,
    *,
    at: Array | None = None,
    B: float = 10.0,
    gamma: Array | float | None = None,
    weight: Array | None = None,
) -> Quadratic:
    """The sum of the surrogates expanded at the model `at` (zeros), collected around W = 0."""
    K, d = n_classes, X.shape[1]
    Y = labels_as_rows(y, K)
    Z = centred(X @ (np.zeros((K, d)) if at is None else at).T)
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    gammas = curvatures(X, Z, B) if gamma is None else np.broadcast_to(gamma, len(X))
    A, g, c = np.zeros((K * d, K * d)), np.zeros(K * d), 0.0
    for x, label, z, w, curvature in zip(X, Y, Z, weight, gammas, strict=True):
        p, loss = softmax(z), log_loss(z, label)
        M = covariance(p)
        A += w * curvature * np.kron(M, np.outer(x, x))
        g += w * np.kron(p - label - 2 * curvature * (M @ z), x)
        c += w * (loss - z @ (p - label) + curvature * (z @ M @ z))
    return Quadratic(A, g, c, K)


def pair_coefficients(q: Quadratic) -> Array:
    """S_ij (P, d, d) of the pairs i < j: the blocks off A's diagonal with the other sign."""
    K = q.n_classes
    d = q.g.size // K
    blocks = q.A.reshape(K, d, K, d)
    return np.array([-blocks[i, :, j, :] for i in range(K) for j in range(i + 1, K)])


def dual(multipliers: Array, q: Quadratic, B: float) -> tuple[float, Array, Array]:
    """F(l) = min over all W of q(W) + sum_i l_i (|w_i|^2 - B^2), its gradient and Hessian."""
    K, d = q.n_classes, q.g.size // q.n_classes
    M = q.A + np.kron(np.diag(multipliers), np.eye(d))
    inverse = np.linalg.inv(M)
    W = (-inverse @ q.g / 2).reshape(K, d)
    value = q.c + float(q.g @ W.ravel()) / 2 - B**2 * float(multipliers.sum())
    blocks = inverse.reshape(K, d, K, d)
    hessian = -2 * np.einsum("ia,iajb,jb->ij", W, blocks, W)
    return value, (W**2).sum(axis=1) - B**2, hessian


def floor_by_dual(q: Quadratic, B: float) -> float:
    """The least value over the class, from below: F at the best multipliers a search finds.

    The search runs over log l, scaled to what the multipliers of a linear q would be, and stops
    at 1e-6 of that: as l goes to 0 the matrix becomes singular along equal rows, and F noise.
    """
    size = np.linalg.norm(q.g.reshape(q.n_classes, -1), axis=1).max() / (2 * B)
    if size == 0.0:
        return q.c
    scale = size * B**2

    def negative(logs: Array) -> tuple[float, Array]:
        multipliers = size * np.exp(logs)
        value, gradient, _ = dual(multipliers, q, B)
        return -(value - q.c) / scale, -gradient * multipliers / scale

    start, bounds = np.zeros(q.n_classes), [(-14.0, 14.0)] * q.n_classes
    options = {"gtol": 1e-12, "ftol": 1e-15}
    found = minimize(negative, start, jac=True, bounds=bounds, options=options)
    return float(q.c - found.fun * scale)


def floor(q: Quadratic, B: float, tol: float = 1e-12) -> tuple[float, float]:
    """(value, gap): the least value over the class is between value - gap and value.

    Newton on the barrier q(W) - mu sum_k log(B^2 - |w_k|^2) with mu going to 0, as in
    `hindsight.best_in_class`.
    """
    K, d = q.n_classes, q.g.size // q.n_classes
    W = np.zeros((K, d))

    def barrier(V: Array, mu: float) -> float:
        slack = B**2 - (V**2).sum(axis=1)
        return q.value(V) - mu * float(np.log(slack).sum()) if (slack > 0).all() else np.inf

    mu = max(abs(q.c), 1.0)
    for _ in range(400):
        gradient = q.gradient(W)
        gap = optimality_gap(W, gradient, B)
        if gap <= tol * (1 + abs(q.c)):
            break
        slack = B**2 - (W**2).sum(axis=1)
        full = (gradient + 2 * mu * W / slack[:, None]).ravel()
        H = 2 * q.A
        for k in range(K):
            block = slice(k * d, (k + 1) * d)
            H[block, block] += 2 * mu / slack[k] * np.eye(d)
            H[block, block] += 4 * mu / slack[k] ** 2 * np.outer(W[k], W[k])
        step = -np.linalg.solve(H, full).reshape(K, d)
        decrease = -float(full @ step.ravel())
        t, now = 1.0, barrier(W, mu)
        while barrier(W + t * step, mu) > now - 1e-4 * t * decrease + 1e-14 * (1 + abs(now)):
            t /= 2
        W = W + t * step
        if decrease <= 0.1 * mu:
            mu = max(mu / 5, tol * (1 + abs(q.c)) / (2 * K))
    return q.value(W), optimality_gap(W, q.gradient(W), B)


def floor_cvxpy(q: Quadratic, B: float) -> float:
    """The least value over the class from CVXPY with Clarabel, for small problems."""
    import cvxpy as cp  # optional: only this cross-check needs it

    K, d = q.n_classes, q.g.size // q.n_classes
    values, vectors = np.linalg.eigh(q.A)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    V = cp.Variable((K, d))
    flat = cp.reshape(V, K * d, order="C")
    objective = cp.Minimize(q.c + q.g @ flat + cp.sum_squares(root @ flat))
    problem = cp.Problem(objective, [cp.norm(V, 2, axis=1) <= B])
    return float(problem.solve(solver=cp.CLARABEL))


def best_many(
    X: Array, Y: Array, weight: Array, B: float, n_steps: int = 36
) -> tuple[Array, Array]:
    """Models W (N, K, d) inside the class and their total losses (N,), for N streams at once.

    X is (N, T, d), Y (N, T, K), weight (N, T). Newton's method on the loss with a barrier whose
    strength falls; whether it arrived or not, the best model of the class loses no more.
    """
    n_streams, _, d = X.shape
    K = Y.shape[2]
    W = np.zeros((n_streams, K, d))
    eye = np.eye(K * d)
    squares = (X[:, :, :, None] * X[:, :, None, :]).reshape(n_streams, -1, d * d)

    def losses(W: Array) -> Array:
        Z = np.einsum("nkd,ntd->ntk", W, X)
        Z = Z - Z.max(axis=2, keepdims=True)
        return np.einsum("nt,nt->n", weight, np.logaddexp.reduce(Z, axis=2) - (Y * Z).sum(axis=2))

    def slack(W: Array) -> Array:
        return B**2 - (W**2).sum(axis=2)

    def barrier(W: Array, mu: Array) -> Array:
        room = slack(W)
        inside = (room > 0).all(axis=1)
        logs = np.log(np.where(inside[:, None], room, 1.0)).sum(axis=1)
        return np.where(inside, losses(np.where(inside[:, None, None], W, 0.0)) - mu * logs, np.inf)

    best, best_loss = W, losses(W)
    size = np.maximum(best_loss, 1e-100)
    mu = size.copy()
    for step_number in range(n_steps):
        Z = np.einsum("nkd,ntd->ntk", W, X)
        P = softmax(Z, axis=2)
        gradient = np.einsum("ntk,ntd->nkd", weight[:, :, None] * (P - Y), X)
        M = -P[:, :, :, None] * P[:, :, None, :]
        M[:, :, range(K), range(K)] += P
        M = (weight[:, :, None, None] * M).reshape(n_streams, -1, K * K).transpose(0, 2, 1)
        H = (M @ squares).reshape(n_streams, K, K, d, d).transpose(0, 1, 3, 2, 4)
        H = H.reshape(n_streams, K * d, K * d)
        room = slack(W)
        ratio = mu[:, None] / room
        gradient = gradient + 2 * ratio[:, :, None] * W
        for k in range(K):
            block = slice(k * d, (k + 1) * d)
            outer = W[:, k, :, None] * W[:, k, None, :]
            H[:, block, block] += (4 * ratio[:, k] / room[:, k])[:, None, None] * outer
            H[:, block, block] += 2 * ratio[:, k, None, None] * np.eye(d)
        ridge = 1e-13 * np.trace(H, axis1=1, axis2=2)[:, None, None]
        full = gradient.reshape(n_streams, -1, 1)
        try:
            step = -np.linalg.solve(H + ridge * eye, full)
        except np.linalg.LinAlgError:  # one of them is singular
            step = -np.linalg.pinv(H + ridge * eye, hermitian=True) @ full
        step = step.reshape(W.shape)
        slope = (step * gradient).sum(axis=(1, 2))
        now, length = barrier(W, mu), np.ones(n_streams)
        for _ in range(12):
            after = barrier(W + length[:, None, None] * step, mu)
            long = after > now + 1e-4 * length * slope + 1e-13 * (1e-300 + np.abs(now))
            if not long.any():
                break
            length = np.where(long, 0.4 * length, length)
        W = np.where(long[:, None, None], W, W + length[:, None, None] * step)
        loss = losses(W)
        better = loss < best_loss
        best = np.where(better[:, None, None], W, best)
        best_loss = np.where(better, loss, best_loss)
        if step_number % 2:
            mu = np.maximum(mu * 0.1, 1e-13 * size)
    return best, best_loss


def rounding(
    S: Array, G: Array, totals: Array, W: Array, multipliers: Array, B: float
) -> tuple[float, float, Array, float]:
    """(q(W), e_q, e_i, floor) of the theorem on floating point in docs/theory/evidence.md.

    S (P, d(d+1)/2) holds lower triangles by rows; totals are c, N_w, N_x, depth.
    """
    K, d = G.shape
    c, weight, reach, depth = totals[:4]
    kappa = 1.01 * 2.0**-53 * (depth + K**2 + K * d + 60)
    value = c + float((G * W).sum() + (multipliers * ((W**2).sum(axis=1) - B**2)).sum())
    slope = G + 2 * multipliers[:, None] * W
    slopes = (2 + 3 * np.log(K)) * reach
    e_q = (1 + np.log(K)) ** 2 * weight + abs(c)
    e_q += slopes * np.linalg.norm(W, axis=1).max()
    e_q += float((multipliers * ((W**2).sum(axis=1) + B**2)).sum())
    e_i = slopes + 2 * multipliers * np.linalg.norm(W, axis=1)
    pairs = [(i, j) for i in range(K) for j in range(i + 1, K)]
    for (i, j), packed in zip(pairs, S, strict=True):
        block = np.zeros((d, d))
        block[np.tril_indices(d)] = packed
        block = block + np.tril(block, -1).T
        apart = W[i] - W[j]
        value += float(apart @ block @ apart)
        slope[i] += 2 * block @ apart
        slope[j] -= 2 * block @ apart
        e_q += np.trace(block) * float(apart @ apart)
        e_i[i] += 2 * np.trace(block) * np.linalg.norm(apart)
        e_i[j] += 2 * np.trace(block) * np.linalg.norm(apart)
    e_q, e_i = kappa * e_q, kappa * e_i
    pulled = multipliers > 0  # without multipliers W is one model, and nothing is minimised
    bent = (np.linalg.norm(slope, axis=1) + e_i)[pulled] ** 2 / (4 * multipliers[pulled])
    return value, float(e_q), e_i, float(value - e_q - bent.sum())
