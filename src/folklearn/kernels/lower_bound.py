"""Minimum of a sum of evidence over a class of models, as a lower bound with rounding included.

With a multiplier l_i > 0 for every row of W, and M the matrix of the quadratic plus
diag(l) (x) I,

    F(l) = min over all W of  E(W) + sum_i l_i (|w_i|^2 - B^2)  <=  min over the class of E(W),

one linear solve, W = -M^-1 G / 2. F is concave, its gradient is |w_i|^2 - B^2 and its Hessian
-2 w_i'[M^-1]_ij w_j, so a few primal-dual steps find the best l. Every l is sound, and so is
every W: for any W, min q >= q(W) - sum_i |grad_i q(W)|^2 / (4 l_i). Only q and its gradient at
one point are evaluated, and the rounding of that is bounded; the solver is not trusted.
"""

import math
from typing import NamedTuple

import numpy as np

from folklearn.arrays import Array
from folklearn.kernels.evidence import CONSTANT, DEPTH, MIN_TOTAL_WEIGHT, REACH, WEIGHT
from folklearn.kernels.quadratic import Form, Quadratic, Solve

_UNIT = 1.01 * 2.0**-53  # with room for terms of second order
_MAX_STEPS, _MAX_WARM_STEPS = 60, 20
TOLERANCE = 1e-10  # nats per unit of weight
_SHARE_OF_WAY_TO_ZERO = 0.9  # of multipliers and slacks, that a step may go
_CENTRING = 0.1
_COLD_SHARE, _WARM_SHARE = 0.1, 1e-3  # of the largest: first multipliers and slacks of a search


class Minimum(NamedTuple):
    """A lower bound for all models of a class, a model near it, and the multipliers (K,) there."""

    lower_bound: float
    W: Array
    multipliers: Array


def value(quadratic: Quadratic, W: Array) -> float:
    """Return a lower bound on the total loss of W: E(W), rounded down."""
    if not quadratic.totals[WEIGHT] >= MIN_TOTAL_WEIGHT:
        return 0.0  # no loss is negative
    return max(0.0, _evaluate(quadratic.form(), W).below)


def loss_at_most(loss: float, totals: Array, W: Array) -> float:
    """Return an upper bound on the total loss of W (K, d) that was computed from its logits.

    `totals` are those of the rows: their weights, norms, and the depth of the sum.
    """
    K, d = W.shape
    longest = math.sqrt(float((W**2).sum(axis=1).max()))
    of_sum = (2.0 * totals[DEPTH] + 2.0 * K + 60.0) * loss
    of_logits = 2.0 * (d + 4.0) * longest * totals[REACH]
    return float(loss + _UNIT * (of_sum + of_logits))


def minimise(
    quadratic: Quadratic, B: float, tolerance: float = TOLERANCE, near: Array | None = None
) -> Minimum:
    """Return a lower bound for all models of row norm at most B, and a model near it.

    The multipliers are sought until F is within `tolerance`, in nats per unit of weight, of
    the least of the quadratic; the bound holds wherever the search ends. Multipliers of a
    similar sum, if there are any `near`, save half of the way.
    """
    K, d = quadratic.shape
    if not quadratic.totals[WEIGHT] >= MIN_TOTAL_WEIGHT:
        return Minimum(0.0, np.zeros((K, d)), np.zeros(K))
    form = quadratic.form()
    _, multipliers, W, _, model = _find_multipliers(form, B, tolerance, near)
    first = _Evaluated(form, W, multipliers, B)
    # No loss is negative. What is not a number comes last, where max passes over it.
    below = max(0.0, first.below)
    # Rows with hardly any pull would divide rounding by next to nothing.
    raised = np.maximum(multipliers, first.rounding / (2.0 * B))
    if (raised > multipliers).any():
        W = _minimiser(form, form.solver(raised), raised)
        below = max(0.0, _Evaluated(form, W, raised, B).below, below)
    return Minimum(below, model, multipliers)


def plane(quadratic: Quadratic, W: Array, B: float) -> tuple[float, Array]:
    """Return (c, G) with c + <G, V> below the quadratic for all V of row norm at most B.

    The quadratic is convex, so that it lies above its plane at W, which is in the class; the
    rounding of the gradient is paid for by the longest way from W, 2 B for every row.
    """
    here = _evaluate(quadratic.form(), W)
    away = 2.0 * (1.0 + 1e-8) * B * float(here.rounding.sum())
    product = float((here.gradient * W).sum())
    size = float(np.abs(here.gradient * W).sum()) + abs(here.below)
    return here.below - product - away - _UNIT * (W.size + 8.0) * size, here.gradient


def project_into_class(W: Array, B: float) -> Array:
    """Return W with rows longer than B shortened to B."""
    lengths = np.sqrt((W**2).sum(axis=1, keepdims=True))
    inside: Array = W * (B / np.maximum(lengths, B))
    return inside


class _Evaluated:
    """q(W) = E(W) + sum_i l_i (|w_i|^2 - B^2) and its gradient at W, with their rounding."""

    def __init__(self, form: Form, W: Array, multipliers: Array, B: float) -> None:
        K, d = W.shape
        G, totals = form.G, form.totals
        dual, weight, reach = multipliers, totals[WEIGHT], totals[REACH]
        kappa = _UNIT * (totals[DEPTH] + K * K + K * d + 60.0)
        squares = (W**2).sum(axis=1)
        i, j = np.triu_indices(K, 1)
        apart = W[i] - W[j]
        along = form.along(apart)
        curvature = (apart * along).sum()
        total = totals[CONSTANT] + (G * W).sum() + (dual * (squares - B * B)).sum() + curvature
        gradient = G + 2.0 * dual[:, None] * W
        np.add.at(gradient, i, 2.0 * along)
        np.subtract.at(gradient, j, 2.0 * along)
        lengths_apart = np.sqrt((apart**2).sum(axis=1))
        curved = (form.traces * lengths_apart**2).sum()
        size = np.zeros(K)
        np.add.at(size, i, 2.0 * form.traces * lengths_apart)
        np.add.at(size, j, 2.0 * form.traces * lengths_apart)
        self.gradient: Array = gradient
        log_K = math.log(K)
        lengths = np.sqrt(squares)
        slopes = (2.0 + 3.0 * log_K) * reach
        self.rounding: Array = kappa * (slopes + size + 2.0 * dual * lengths)
        allowance = kappa * (
            (1.0 + log_K) ** 2 * weight
            + abs(totals[CONSTANT])
            + slopes * lengths.max()
            + curved
            + (dual * (squares + B * B)).sum()
        )
        pull = np.sqrt((gradient**2).sum(axis=1)) + self.rounding
        with np.errstate(over="ignore"):  # next to no multiplier: a bound of minus infinity
            bent = (pull[dual > 0.0] ** 2 / (4.0 * dual[dual > 0.0])).sum()
        self.below = float(total - allowance - bent * (1.0 + 4.0 * _UNIT * (K + d)))


def _evaluate(form: Form, W: Array) -> _Evaluated:
    """Return E and its gradient at W, of any norm."""
    return _Evaluated(form, W, np.zeros(len(W)), 0.0)


def _minimiser(form: Form, solve: Solve, multipliers: Array) -> Array:
    """Return the minimiser of q.

    A common shift of all classes changes nothing but the multipliers' part of q, so that there the
    sum of l_i w_i is 0. If they are next to nothing, the solver would return rounding for it.
    """
    G = form.G - form.G.mean(axis=0)
    W: Array = solve(-0.5 * G.ravel()).reshape(G.shape)
    shift: Array = (multipliers / multipliers.sum()) @ W
    return W - shift


class _Search(NamedTuple):
    """Where a search ended.

    best : the largest F on the way, with its multipliers and its W.
    above : the least E of a model of the class on the way, and the model: near the end F hardly
        depends on how far W is outside of the class, and E does.
    """

    best: float
    multipliers: Array
    W: Array
    above: float
    model: Array


def _find_multipliers(form: Form, B: float, tolerance: float, near: Array | None) -> _Search:
    """Search for the multipliers with the largest F, from those that are near if there are any."""
    enough = tolerance * form.totals[WEIGHT]
    warm = None
    if near is not None and near.any():
        warm = _search(form, B, enough, near, _WARM_SHARE, _MAX_WARM_STEPS)
        if warm.above - warm.best <= enough:
            return warm
    # A warm search may be stuck at a multiplier that was next to nothing, and no longer is.
    pull = np.sqrt((form.G**2).sum(axis=1)) / (2.0 * B)
    cold = _search(form, B, enough, pull, _COLD_SHARE, _MAX_STEPS)
    if warm is None:
        return cold
    dual, primal = max(warm, cold, key=lambda f: f.best), min(warm, cold, key=lambda f: f.above)
    return dual._replace(above=primal.above, model=primal.model)


def _search(
    form: Form, B: float, enough: float, dual: Array, slack: float, max_steps: int
) -> _Search:
    """Take primal-dual steps until F is near enough to E at a model of the class."""
    K, d = form.G.shape
    G, totals = form.G, form.totals
    least = 1e-15 * K * d * max(form.largest, 1e-300)
    dual = np.maximum(dual, max(slack * dual.max(), least))
    i, j = np.triu_indices(K, 1)
    s: Array | None = None
    search = _Search(-math.inf, dual, np.zeros((K, d)), math.inf, np.zeros((K, d)))
    for _ in range(max_steps):
        dual = np.maximum(dual, least)
        solve = form.solver(dual)
        W = _minimiser(form, solve, dual)
        squares = (W**2).sum(axis=1)
        F = totals[CONSTANT] + 0.5 * (G * W).sum() - B * B * dual.sum()
        if search.best < F:
            search = search._replace(best=F, multipliers=dual, W=W)
        inside = project_into_class(W, B)
        apart = inside[i] - inside[j]
        above = totals[CONSTANT] + (G * inside).sum() + (apart * form.along(apart)).sum()
        if above < search.above:
            search = search._replace(above=above, model=inside)
        if search.above - search.best <= enough:
            break
        g = squares - B * B
        if s is None:
            s = np.maximum(-g, slack * B * B)
        spread = np.zeros((K * d, K))
        for c in range(K):
            spread[c * d : (c + 1) * d, c] = W[c]
        hessian = -2.0 * spread.T @ solve(spread)
        mu = _CENTRING * (dual * s).mean()
        dl = np.linalg.solve(np.diag(s / dual) - hessian, mu / dual + g)
        ds = (mu - dual * s - s * dl) / dual
        dual, s = dual + _step(dual, dl) * dl, s + _step(s, ds) * ds
    return search


def _step(here: Array, direction: Array) -> float:
    """Return how far to go along a direction so that all stays positive, at most 1."""
    towards = direction < 0.0
    if not towards.any():
        return 1.0
    return float(min(1.0, _SHARE_OF_WAY_TO_ZERO * (here[towards] / -direction[towards]).min()))
