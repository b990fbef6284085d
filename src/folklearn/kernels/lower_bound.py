"""The floor of a sum of evidence: what no model of the class can go below, rounding included.

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
from folklearn.kernels.evidence import CONSTANT, DEPTH, REACH, WEIGHT
from folklearn.kernels.on_torch.quadratic import DeviceForm, DeviceQuadratic
from folklearn.kernels.quadratic import Form, Quadratic, Solve, pairs

AnyQuadratic = Quadratic | DeviceQuadratic
AnyForm = Form | DeviceForm

_UNIT = 1.01 * 2.0**-53  # with room for terms of second order
_MOST_STEPS, _MOST_STEPS_NEAR = 60, 20
TOLERANCE = 1e-10  # nats per unit of weight
_TO_ZERO = 0.9  # of the way that a step may take to where a multiplier or a slack is 0
_CENTRING = 0.1
_FAR, _NEAR = 0.1, 1e-3  # of the largest: multipliers and slacks that a search begins with
_LIGHTEST = 1e-100  # total weight; far below, rounding is not relative any more


class Floor(NamedTuple):
    """What no model of the class goes below, a model near it, and the multipliers there."""

    below: float
    W: Array
    multipliers: Array


def value(quadratic: AnyQuadratic, W: Array) -> float:
    """Return a number that the total loss of W is not below: E(W), rounded down."""
    if not quadratic.totals[WEIGHT] >= _LIGHTEST:
        return 0.0  # no loss is negative
    return _value(quadratic, quadratic.form(), W)


def loss_at_most(loss: float, totals: Array, W: Array) -> float:
    """Return what the total loss of W (K, d), computed from its logits, truly is not above.

    `totals` are those of the rows: how much they weigh, how long they are, how they were summed.
    """
    K, d = W.shape
    longest = math.sqrt(float((W**2).sum(axis=1).max()))
    of_sum = (2.0 * totals[DEPTH] + 2.0 * K + 60.0) * loss
    of_logits = 2.0 * (d + 4.0) * longest * totals[REACH]
    return float(loss + _UNIT * (of_sum + of_logits))


def floor(
    quadratic: AnyQuadratic, B: float, tolerance: float = TOLERANCE, near: Array | None = None
) -> Floor:
    """Return a number that no model of row norm at most B goes below, and a model near it.

    The multipliers are sought until F is within `tolerance`, in nats per unit of weight, of
    the least of the quadratic; the number holds wherever the search ends. Multipliers of a
    similar sum, if there are any `near`, save half of the way.
    """
    K, d = quadratic.shape
    if not quadratic.totals[WEIGHT] >= _LIGHTEST:
        return Floor(0.0, np.zeros((K, d)), np.zeros(K))
    form = quadratic.form()
    _, found, W, _, model = _multipliers(quadratic, form, B, tolerance, near)
    first = _Evaluated(quadratic, form, W, found, B)
    # No loss is negative. What is not a number comes last, where max passes over it.
    below = max(0.0, first.below)
    # Rows with hardly any pull would divide rounding by next to nothing.
    multipliers = np.maximum(found, first.rounding / (2.0 * B))
    if (multipliers > found).any():
        W = _least(quadratic, form.factored(multipliers), multipliers)
        below = max(0.0, _Evaluated(quadratic, form, W, multipliers, B).below, below)
    return Floor(below, model, found)


def plane(quadratic: AnyQuadratic, W: Array, B: float) -> tuple[float, Array]:
    """Return (c, G) with c + <G, V> below the quadratic for all V of row norm at most B.

    The quadratic is convex, so that it lies above its plane at W, which is in the class; the
    rounding of the gradient is paid for by the longest way from W, 2 B for every row.
    """
    here = _at_one_point(quadratic, quadratic.form(), W)
    away = 2.0 * (1.0 + 1e-8) * B * float(here.rounding.sum())
    product = float((here.gradient * W).sum())
    size = float(np.abs(here.gradient * W).sum()) + abs(here.below)
    return here.below - product - away - _UNIT * (W.size + 8.0) * size, here.gradient


def into_class(W: Array, B: float) -> Array:
    """Return W with rows longer than B shortened to B."""
    lengths = np.sqrt((W**2).sum(axis=1, keepdims=True))
    inside: Array = W * (B / np.maximum(lengths, B))
    return inside


class _Evaluated:
    """q(W) = E(W) + sum_i l_i (|w_i|^2 - B^2) and its gradient at W, with their rounding."""

    def __init__(
        self, quadratic: AnyQuadratic, form: AnyForm, W: Array, multipliers: Array, B: float
    ) -> None:
        K, d = quadratic.shape
        G, totals = quadratic.G, quadratic.totals
        dual, weight, reach = multipliers, totals[WEIGHT], totals[REACH]
        kappa = _UNIT * (totals[DEPTH] + K * K + K * d + 60.0)
        squares = (W**2).sum(axis=1)
        i, j = np.array(pairs(K)).T
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


def _at_one_point(quadratic: AnyQuadratic, form: AnyForm, W: Array) -> _Evaluated:
    """Return E and its gradient at W, of any norm."""
    return _Evaluated(quadratic, form, W, np.zeros(len(W)), 0.0)


def _value(quadratic: AnyQuadratic, form: AnyForm, W: Array) -> float:
    return max(0.0, _at_one_point(quadratic, form, W).below)


def _least(quadratic: AnyQuadratic, solve: Solve, multipliers: Array) -> Array:
    """Return the minimiser of q.

    What moves all classes moves nothing but the multipliers' part of q, so that there the sum of
    l_i w_i is 0. If they are next to nothing, rounding would be all that the solver knows of it.
    """
    G = quadratic.G - quadratic.G.mean(axis=0)
    W = solve(-0.5 * G.ravel()).reshape(G.shape)
    shift: Array = (multipliers / multipliers.sum()) @ W
    return W - shift


class _Found(NamedTuple):
    """Where a search ended.

    best : the largest F that was met, with its multipliers and its W.
    above : the least E of a model of the class that was met, and the model: near the end F hardly
        depends on how far W is outside of the class, and E does.
    """

    best: float
    multipliers: Array
    W: Array
    above: float
    model: Array


def _multipliers(
    quadratic: AnyQuadratic, form: AnyForm, B: float, tolerance: float, near: Array | None
) -> _Found:
    """Search for the multipliers with the largest F, from those that are near if there are any."""
    enough = tolerance * quadratic.totals[WEIGHT]
    warm = None
    if near is not None and near.any():
        warm = _search(quadratic, form, B, enough, near, _NEAR, _MOST_STEPS_NEAR)
        if warm.above - warm.best <= enough:
            return warm
    # A multiplier that was next to nothing, and no longer is, may hold up a search for ever.
    pull = np.sqrt((quadratic.G**2).sum(axis=1)) / (2.0 * B)
    cold = _search(quadratic, form, B, enough, pull, _FAR, _MOST_STEPS)
    if warm is None:
        return cold
    dual, primal = max(warm, cold, key=lambda f: f.best), min(warm, cold, key=lambda f: f.above)
    return dual._replace(above=primal.above, model=primal.model)


def _search(
    quadratic: AnyQuadratic,
    form: AnyForm,
    B: float,
    enough: float,
    dual: Array,
    slack: float,
    most_steps: int,
) -> _Found:
    """Go primal-dual steps until F is near enough to E at a model of the class."""
    K, d = quadratic.shape
    G, totals = quadratic.G, quadratic.totals
    least = 1e-15 * K * d * max(form.largest, 1e-300)
    dual = np.maximum(dual, max(slack * dual.max(), least))
    i, j = np.array(pairs(K)).T
    s: Array | None = None
    found = _Found(-math.inf, dual, np.zeros((K, d)), math.inf, np.zeros((K, d)))
    for _ in range(most_steps):
        dual = np.maximum(dual, least)
        solve = form.factored(dual)
        W = _least(quadratic, solve, dual)
        squares = (W**2).sum(axis=1)
        F = totals[CONSTANT] + 0.5 * (G * W).sum() - B * B * dual.sum()
        if found.best < F:
            found = found._replace(best=F, multipliers=dual, W=W)
        inside = into_class(W, B)
        apart = inside[i] - inside[j]
        above = totals[CONSTANT] + (G * inside).sum() + (apart * form.along(apart)).sum()
        if above < found.above:
            found = found._replace(above=above, model=inside)
        if found.above - found.best <= enough:
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
    return found


def _step(here: Array, direction: Array) -> float:
    """Return how far to go along a direction so that all stays positive, at most 1."""
    towards = direction < 0.0
    if not towards.any():
        return 1.0
    return float(min(1.0, _TO_ZERO * (here[towards] / -direction[towards]).min()))
