"""Evidence about every linear model, whatever its norm: quadratics that hold where they matter.

Below the divergence D(v) = lse(z + v) - lse(z) - <p, v> of a row expanded at logits z,
p = softmax(z), lies for every v

    k(v) = sup over b of <b - p, v> - sum_i c_i (b_i - p_i)^2 / p_i,   b_i >= (1 - theta_i) p_i,

b in the simplex, c_i at least f(1 - theta_i) / theta_i^2, f(u) = u ln u - u + 1: by Gibbs D is the
same supremum with KL(b, p) = sum p_i f(b_i / p_i) for the sum, and over all b. k is convex, and
in the *zone* v_i - m >= -2 c_i theta_i it is the quadratic

    Q(v) = 1/4 sum_i r_i (v_i - m)^2,   r_i = p_i / c_i,   m = <r, v> / sum_i r_i.

So the sum of the tangents of k at any points of their zones, with a penalty, is below the sum of
losses with that penalty for every W, and its least value is known.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp, softmax

from .loss import Array

ROWS_AT_A_TIME = 2048


def f(u: float) -> float:
    """u ln u - u + 1, the summand of KL, without cancellation near 1."""
    if u <= 0.0:
        return 1.0
    t = u - 1.0
    if abs(t) < 1e-2:
        return sum((-t) ** k / (k * (k - 1)) for k in range(2, 12))
    return float(u * np.log(u) - t)


def least_constant(theta: float) -> float:
    """The least c with f(u) <= c (u - 1)^2 for every u >= 1 - theta: 1/2 at 0, 1 at 1."""
    return 0.5 if theta == 0.0 else f(1.0 - theta) / theta**2


def constant(reach: Array) -> Array:
    """A valid c for zones v_i - m >= -reach_i, near the least one, with 2 c theta = reach."""
    inside = 0.5 + reach / 6.0 + reach**2 / 24.0  # the page's (4): above the least one
    return np.where(reach >= 2.0, 0.5 * reach, inside)


def divergence(v: Array, z: Array) -> float:
    """What a step v from logits z adds to the log loss, beyond its slope."""
    return float(logsumexp(z + v) - logsumexp(z) - softmax(z) @ v)


def lower_function(v: Array, p: Array, reach: Array) -> float:
    """k(v) from its definition: b(mu) for the multiplier mu of sum b = 1, found by bisection."""
    c = constant(reach)
    r, least = p / c, (1.0 - reach / (2.0 * c)) * p

    def b(mu: float) -> Array:
        return np.maximum(p + 0.5 * r * (v - mu), least)

    low, high = float(v.min()) - 10.0, float(v.max()) + 10.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if b(middle).sum() > 1.0 else (low, middle)
    step = b(high) - p  # of sum at most 0: another b of the simplex adds what is missing
    step[r.argmax()] -= step.sum()
    return float(step @ v - np.sum(np.divide(step**2, r, out=np.zeros_like(p), where=r > 0.0)))


def choose_curvatures(P: Array, distances: Array, radius: float, *, rounds: int = 2) -> Array:
    """r (T, K) whose zones hold every step of norm at most `radius`.

    distances (T, K, K) are the norms of (e_i - e_k) (x) x of each row in the dual norm. A step of
    norm at most `radius` has v_i - m >= -radius sum_k pi_k D_ik for the mean m with weights pi;
    r = s pi for the largest s that these reaches allow, so that m is that mean exactly.
    """
    pi = P
    for _ in range(rounds):
        pi = P / constant(radius * np.einsum("tk,tik->ti", pi, distances))
        pi = pi / pi.sum(axis=1, keepdims=True)
    c = constant(radius * np.einsum("tk,tik->ti", pi, distances))
    scale = np.divide(P, c * pi, out=np.full_like(P, np.inf), where=pi > 0.0).min(axis=1)
    return scale[:, None] * pi


def pair_distances(X: Array, inverse: Array, n_classes: int) -> Array:
    """Norms (T, K, K) of (e_i - e_k) (x) x in the norm of M^-1, `inverse`, (K d, K d)."""
    d = X.shape[1]
    blocks = inverse.reshape(n_classes, d, n_classes, d)
    inner = np.empty((len(X), n_classes, n_classes))
    for i in range(n_classes):
        for k in range(n_classes):
            inner[:, i, k] = np.sum((X @ blocks[i, :, k]) * X, axis=1)
    diagonal = np.einsum("tii->ti", inner)
    squares = diagonal[:, :, None] + diagonal[:, None, :] - inner - inner.transpose(0, 2, 1)
    return np.sqrt(np.maximum(squares, 0.0))


def weighted_gram(X: Array, A: Array) -> Array:
    """The sum of A_t (x) x_t x_t' over rows, A (T, K, K) symmetric: (K d, K d)."""
    K, d = A.shape[1], X.shape[1]
    out = np.empty((K, d, K, d))
    for i in range(K):
        for k in range(i, K):
            block = (X * A[:, i, k, None]).T @ X
            out[i, :, k], out[k, :, i] = block, block.T
    return out.reshape(K * d, K * d)


@dataclass
class Sums:
    """What expanded rows add up to: planes, and the quadratics above them."""

    S: Array  # (n, n), second derivatives of the quadratics
    G: Array  # (n,), slopes of planes and quadratics together at W = 0
    c: float  # their value there
    G0: Array  # slopes of the planes alone
    c0: float


class LiveBound:
    """A lower bound on the penalised loss of every linear model, in one pass.

    Rows wait as they are. Whenever the stream has grown by `growth`, and at least when half of them
    are new, the penalised loss of the waiting rows plus the sums of the others is minimised. If
    more than `n_waiting` wait, those that this mode and its Hessian M know best (the least mean
    distance, `pair_distances`) are expanded there: what is new in a stream waits until enough of
    its kind has come.

    tau (d,) is the penalty 1/2 sum tau_j W_kj^2; radius, times the root of the number of weights,
    the largest step in the norm of M for which the zones of rows are chosen.
    """

    def __init__(
        self,
        n_classes: int,
        tau: Array,
        *,
        n_waiting: int = 4000,
        growth: float = 0.05,
        radius: float = 32.0,
    ) -> None:
        self.K, self.d = n_classes, len(tau)
        n = self.K * self.d
        self.penalty = np.tile(tau, self.K)
        self.n_waiting, self.growth = n_waiting, growth
        self.radius = radius * np.sqrt(n)
        self.sums = Sums(np.zeros((n, n)), np.zeros(n), 0.0, np.zeros(n), 0.0)
        self.rows = np.empty((0, self.d)), np.empty((0, self.K)), np.empty(0)
        self.points: list[tuple[Array, Array]] = []  # W and M of each refresh that expanded rows
        self.n_rows = 0
        self.W = np.zeros(n)

    def extend(self, X: Array, Y: Array, weight: Array | None = None) -> None:
        """Take rows (T, d), labels (T, K) and weights (T,), refresh by refresh."""
        weight = np.ones(len(X)) if weight is None else weight
        done = 0
        while done < len(X):
            step = max(64, min(int(self.growth * self.n_rows), self.n_waiting // 2))
            new = X[done : done + step], Y[done : done + step], weight[done : done + step]
            pairs = zip(self.rows, new, strict=True)
            self.rows = tuple(np.concatenate(pair) for pair in pairs)
            self.n_rows += len(new[0])
            done += step
            self.W, M = self.minimise(self.W, 1.0, most_steps=3)
            n_ready = len(self.rows[0]) - self.n_waiting
            if n_ready > 0:
                self.expand_best_known(M, n_ready)

    def losses(self, W: Array) -> tuple[float, Array, Array]:
        """Loss, gradient (n,) and probabilities (T, K) of a model on the rows that wait."""
        return losses_at(W, *self.rows)

    def objective(self, W: Array, s: float) -> tuple[float, Array, Array]:
        """Loss of waiting rows, the sums with quadratics s times as steep, the penalty."""
        loss, gradient, P = self.losses(W)
        G = self.sums.G0 + s * (self.sums.G - self.sums.G0)
        SW = self.sums.S @ W
        value = loss + G @ W + 0.5 * s * W @ SW + 0.5 * self.penalty @ W**2
        return float(value), gradient + G + s * SW + self.penalty * W, P

    def minimise(self, W: Array, s: float, most_steps: int = 60) -> tuple[Array, Array]:
        """The least point of `objective` and the Hessian there, by damped Newton steps."""
        X, _, w = self.rows
        value, gradient, P = self.objective(W, s)
        while True:
            M = s * self.sums.S + np.diag(self.penalty)
            for start in range(0, len(X), ROWS_AT_A_TIME):
                some = slice(start, start + ROWS_AT_A_TIME)
                A = P[some, :, None] * (np.eye(self.K) - P[some, None, :])
                M += weighted_gram(X[some], w[some, None, None] * A)
            step = -cho_solve(cho_factor(M), gradient)
            decrease = -float(gradient @ step)
            most_steps -= 1
            if most_steps < 0 or decrease <= 1e-12 * (1.0 + abs(value)):
                return W, M
            length = 1.0
            tried = self.objective(W + step, s)
            while tried[0] > value - 1e-4 * length * decrease and length > 1e-8:
                length *= 0.5
                tried = self.objective(W + length * step, s)
            W = W + length * step
            value, gradient, P = tried

    def expand_best_known(self, M: Array, n_rows: int) -> None:
        """Expand the waiting rows of least mean distance at the present mode."""
        X, Y, w = self.rows
        inverse = np.linalg.inv(M)
        P = self.losses(self.W)[2]
        distances = pair_distances(X, inverse, self.K)
        order = np.argsort(np.einsum("ti,tik,tk->t", P, distances, P), kind="stable")
        ready, waiting = order[:n_rows], np.sort(order[n_rows:])
        r = choose_curvatures(P[ready], distances[ready], self.radius)
        self.add(self.W, X[ready], Y[ready], w[ready], r)
        self.points.append((self.W, M))
        self.rows = X[waiting], Y[waiting], w[waiting]

    def add(self, W: Array, X: Array, Y: Array, w: Array, r: Array) -> None:
        """Add the planes of rows at W, and quadratics of curvatures r (T, K)."""
        sums = self.sums
        loss, slope, _ = losses_at(W, X, Y, w)
        Z = X @ W.reshape(self.K, self.d).T
        total = r.sum(axis=1, keepdims=True)
        centred = Z - np.sum(r * Z, axis=1, keepdims=True) / total
        outer = r[:, :, None] * r[:, None, :] / total[:, :, None]
        A = 0.5 * (r[:, :, None] * np.eye(self.K) - outer)
        sums.S += weighted_gram(X, w[:, None, None] * A)
        sums.G0 += slope
        sums.c0 += loss - float(slope @ W)
        sums.G += slope - 0.5 * ((w[:, None] * r * centred).T @ X).ravel()
        sums.c += loss - float(slope @ W) + 0.25 * float(w @ np.sum(r * centred**2, axis=1))

    def bound(self) -> dict[str, float]:
        """The bound, how far s the tangents lie on the way to W, and the longest step to W."""
        s = 1.0
        while True:
            W, _ = self.minimise(self.W, s)
            steps = [np.sqrt((W - at) @ M @ (W - at)) for at, M in self.points]
            needed = max(steps, default=0.0)
            if s * needed <= self.radius:
                break
            s *= min(0.97, self.radius / (s * needed))
        return {"bound": self.value(W, s), "s": s, "needed": needed, "radius": self.radius}

    def value(self, W: Array, s: float) -> float:
        """What every model loses at least, with its penalty, by tangents at s of the way to W."""
        sums = self.sums
        waiting, gradient, _ = self.losses(W)
        plane = sums.c0 + sums.G0 @ W
        quadratic = sums.c + sums.G @ W + 0.5 * W @ sums.S @ W - plane
        slope = gradient + sums.G0 + s * (sums.G - sums.G0 + sums.S @ W) + self.penalty * W
        least = waiting + plane + (2.0 * s - s * s) * quadratic + 0.5 * self.penalty @ W**2
        return float(least - 0.5 * np.sum(slope**2 / self.penalty))


def losses_at(W: Array, X: Array, Y: Array, w: Array) -> tuple[float, Array, Array]:
    """Loss, gradient (n,) and probabilities (T, K) of a model on rows."""
    Z = X @ W.reshape(Y.shape[1], X.shape[1]).T
    P = softmax(Z, axis=1)
    loss = float(w @ (logsumexp(Z, axis=1) - np.sum(Y * Z, axis=1)))
    return loss, ((w[:, None] * (P - Y)).T @ X).ravel(), P
