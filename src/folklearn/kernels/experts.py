"""Rounds of many linear experts and at most one FOLKLORE in one mixture, in one compiled call.

Experts, in this order: the modes of ridges on everything seen (`leaders`), the modes of leaders
that forget, trackers by gradient descent, trackers by AdaGrad, and FOLKLORE. All but the last are
linear, softmax(W x), and their weights stand side by side in one matrix (d + 1, experts K), whose
last row is for a constant input that only some trackers use. FOLKLORE is compiled for itself, and
its rounds do not depend on the others: its predictions are arguments.

Leaders are refreshed on a schedule; while a panel is young they follow every row in between
(`_follow`), at the price of a tracker and d^2. What happens on a schedule depends on the number of
the round alone (`ExpertState.settle`), so that one by one and many at once are the same.

Everything lives in one array of floats, `memo`, and one of integers, `plan`, because a
compiled function pays for every array it is called with. `plan` holds sizes, counters, and the
place and shape of every section of memo, which `vector` and `table` return.
"""

import math

import numpy as np
from numba import carray

from folklearn.kernels.blas import address
from folklearn.kernels.compile import helper_kernel, inner_kernel, kernel, shared_kernel
from folklearn.kernels.simplex import softmax_each

# Sizes, fixed when a panel is made.
(
    FEATURES, CLASSES, RIDGES, FORGETTING, DESCENDING, ADAPTIVE, FOLKLORE,
    BLOCK, RECENT, CAPACITY, KEPT, DENSE, SHARE, REVIEWS, FOLLOWING,
) = range(15)  # fmt: skip
# Counters: rounds that counted so far, and all rounds; where the next row goes in the recent
# ones, and from where on they are not in the sums yet; rows kept; the round of the next refresh;
# the mode that rows are expanded at; refreshes so far.
T, ROUNDS, POSITION, FLUSHED, N_KEPT, NEXT, BEST, REFRESHES = range(15, 23)
N_COUNTERS = 23
N_CONSTANTS = 5
MAX_NORM, MAX_WEIGHT, UNIT, SQUARED_WEIGHTS, LOSS = range(N_CONSTANTS)

AXES: dict[str, tuple[str | int, ...]] = {}  # of every section of memo, in their order
N_ENTRIES = 4  # that plan has for a section: its place in memo and three lengths, 1 if unused


def _section(name: str, *axes: str | int) -> int:
    """Declare a section of memo and its axes; return where its entries stand in plan."""
    AXES[name] = axes
    return N_COUNTERS + N_ENTRIES * (len(AXES) - 1)


CONSTANTS_AT = _section("constants", N_CONSTANTS)
RIDGES_AT = _section("ridges", "leaders")
FORGETTING_AT = _section("forgetting", "forgetting", 2)
RATES_AT = _section("rates", "trackers")
DECAYING_AT = _section("decaying", "trackers")
BIASED_AT = _section("biased", "trackers")
WEIGHTS_AT = _section("weights", "experts")
LOSSES_AT = _section("losses", "experts")
CREDIT_AT = _section("credit", "experts")
W_AT = _section("W", "inputs", "linear", "classes")
SQUARES_AT = _section("squares", "inputs", "adaptive", "classes")
P_AT = _section("P", "followed", "features")
S_AT = _section("S", "sums", "pairs", "products")
G_AT = _section("G", "sums", "classes", "features")
RECENT_X_AT = _section("recent_x", "recent", "features")
RECENT_Y_AT = _section("recent_y", "recent", "classes")
RECENT_W_AT = _section("recent_w", "recent")
KEPT_X_AT = _section("kept_x", "kept", "features")
KEPT_Y_AT = _section("kept_y", "kept", "classes")
KEPT_W_AT = _section("kept_w", "kept")
SEEN_AT = _section("seen", "inputs")
ROUND_LOSSES_AT = _section("round_losses", "experts")
LOGITS_AT = _section("logits", "linear", "classes")
PREDICTED_AT = _section("predicted", "predictions", "classes")
STEPS_AT = _section("steps", "linear", "classes")
ALONG_AT = _section("along", "features")
POWERS_AT = _section("powers", "linear", "classes")
SCRATCH = ("seen", "round_losses", "logits", "predicted", "steps", "along", "powers")  # of a round
N_PLAN = N_COUNTERS + N_ENTRIES * len(AXES)

PERIOD, KEEP = range(2)  # of a leader that forgets: rounds between refreshes, and what remains

FLOOR = 1e-300  # no expert gives a class less, so that every loss is finite
_TINY_STEP = 1e-300
_TYPICAL_CURVATURE = 0.2  # of the log loss in the logits, on the way of a step
_NOISE = 1e-9  # of a variance, relative to the lengths of what it is the product of


@inner_kernel
def vector(memo, plan, section):
    """Return a section as a vector."""
    n = plan[section + 1] * plan[section + 2] * plan[section + 3]
    return carray(address(memo, plan[section]), (n,), np.float64)


@inner_kernel
def table(memo, plan, section):
    """Return a section as a matrix: its first axis, and the others in one."""
    shape = (plan[section + 1], plan[section + 2] * plan[section + 3])
    return carray(address(memo, plan[section]), shape, np.float64)


@helper_kernel
def target(label, soft, i):
    """Return y_i, of a class or, if that is -1, of a soft label."""
    return soft[i] if label < 0 else (1.0 if i == label else 0.0)


@helper_kernel
def mix(weights, predicted, out):
    """Write the mixture (K,) of what experts predict (E, K)."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    for e in range(weights.shape[0]):
        weight = weights[e]
        for i in range(out.shape[0]):
            out[i] += weight * max(predicted[e, i], FLOOR)


@helper_kernel
def loss_of(p, label, soft):
    """Return -<y, ln p>; classes without mass in y cost nothing."""
    if label >= 0:
        return -math.log(max(p[label], FLOOR))
    loss = 0.0
    for i in range(p.shape[0]):
        if soft[i] > 0.0:
            loss -= soft[i] * math.log(max(p[i], FLOOR))
    return loss


@helper_kernel
def share_weights(weights, losses, share):
    """Weigh experts by their losses (E,), by Bayes' rule; a share of the mass is for all alike."""
    n = weights.shape[0]
    least, total = losses[0], 0.0
    for e in range(1, n):
        least = losses[e] if losses[e] < least else least
    for e in range(n):
        weights[e] *= math.exp(least - losses[e])
        total += weights[e]
    for e in range(n):
        weights[e] = (1.0 - share) * (weights[e] / total) + share / n


@kernel
def weigh_rounds(weights, totals, stretch, credit, losses, counted, share, t, scale, before):
    """Count rounds with losses (E, T), from t + 1 on; write the weights before each (E, T).

    Without an expert of weight u, v after Bayes' rule, the mixture loses ln((1 - u) / (1 - v))
    more: `stretch` is the largest such sum up to now, from any round on, `credit` its maximum.
    """
    charged = np.empty(weights.shape[0])
    for s in range(losses.shape[1]):
        for e in range(weights.shape[0]):
            before[e, s] = weights[e]
            totals[e] += losses[e, s]
            charged[e] = scale * (losses[e, s] if share else totals[e])
        if counted[s]:
            t += 1
            if not share:
                weights[:] = 1.0
            part = 1.0 / (t + 1.0) if share else 0.0
            share_weights(weights, charged, part)
            for e in range(weights.shape[0]):
                by_bayes = (weights[e] - part / weights.shape[0]) / (1.0 - part)
                gain = max(1.0 - before[e, s], FLOOR) / max(1.0 - by_bayes, FLOOR)
                stretch[e] = max(0.0, stretch[e] + math.log(gain))
                credit[e] = max(credit[e], stretch[e])
    return t


@kernel
def predict(memo, plan, folklore_p, x, out):
    """Write the prediction for x; return False, all untouched, if |x| is unusable."""
    return _predict(memo, plan, folklore_p, x, out)


@shared_kernel("b1(vector, integers, vector, vector, vector)", fast=True)
def _predict(memo, plan, folklore_p, x, out):
    # What every expert predicts is kept for the update that may follow with the same x.
    d, K = plan[FEATURES], plan[CLASSES]
    seen, square = plan[SEEN_AT], 0.0
    same = memo[seen + d] != 0.0
    for j in range(d):
        same &= memo[seen + j] == x[j]
        square += x[j] * x[j]
        memo[seen + j] = x[j]
    memo[seen + d] = 0.0
    if not math.sqrt(square) <= memo[plan[CONSTANTS_AT] + MAX_NORM]:
        return False
    predicted = table(memo, plan, PREDICTED_AT)
    if not same:
        z, W = vector(memo, plan, LOGITS_AT), table(memo, plan, W_AT)
        width = z.shape[0]
        last, unit = W[d], memo[plan[CONSTANTS_AT] + UNIT]
        for c in range(width):
            z[c] = last[c] * unit
        for j in range(d):
            row, factor = W[j], x[j]
            if factor != 0.0:  # most pixels are 0
                for c in range(width):
                    z[c] += row[c] * factor
        powers = carray(address(memo, plan[POWERS_AT]), (width,), np.int64)
        softmax_each(z, K, vector(memo, plan, PREDICTED_AT)[:width], powers)
        if plan[FOLKLORE]:
            for i in range(K):
                predicted[width // K, i] = folklore_p[i]
    memo[seen + d] = 1.0
    mix(vector(memo, plan, WEIGHTS_AT), predicted, out)
    return True


@shared_kernel("void(vector, integers, vector, i8, vector, f8)", fast=True)
def _track(memo, plan, x, label, soft, weight):
    d, K = plan[FEATURES], plan[CLASSES]
    n_plain, n_adaptive = plan[DESCENDING], plan[ADAPTIVE]
    n_trackers = n_plain + n_adaptive
    if n_trackers == 0:
        return
    rates, biased = vector(memo, plan, RATES_AT), vector(memo, plan, BIASED_AT)
    decaying, constants = vector(memo, plan, DECAYING_AT), vector(memo, plan, CONSTANTS_AT)
    predicted, steps = vector(memo, plan, PREDICTED_AT), vector(memo, plan, STEPS_AT)
    W = table(memo, plan, W_AT)
    constants[SQUARED_WEIGHTS] += weight * weight
    slowly = weight / math.sqrt(max(constants[SQUARED_WEIGHTS], _TINY_STEP))
    at = W.shape[1] - n_trackers * K
    for e in range(n_trackers):
        rate = rates[e] * (slowly if decaying[e] > 0.0 else weight)
        if e >= n_plain:
            rate = weight  # the rate of AdaGrad comes in below
        for i in range(K):
            steps[e * K + i] = rate * (predicted[at + e * K + i] - target(label, soft, i))
    width = n_plain * K
    squares = table(memo, plan, SQUARES_AT)
    for j in range(d + 1):
        row, factor = W[j], x[j] if j < d else 1.0
        if factor == 0.0:
            continue  # nothing would change
        if j == d:
            for e in range(n_trackers):
                for c in range(e * K, (e + 1) * K):
                    steps[c] *= biased[e]
        for c in range(width):
            row[at + c] -= factor * steps[c]
        for e in range(n_plain, n_trackers):
            for c in range(e * K, (e + 1) * K):
                slope = factor * steps[c]
                squares[j, c - width] += slope * slope
                root = math.sqrt(max(squares[j, c - width], _TINY_STEP))
                row[at + c] -= rates[e] * slope / root


@shared_kernel("void(vector, integers, vector, i8, vector, f8, vector)", fast=True)
def _follow(memo, plan, x, label, soft, weight, mixed):
    """Move the leaders by one row, as Gaussians whose covariance P (d, d) all classes share.

    A row moves W by w (y - p') (Px)', p' what is predicted afterwards; with s = x'Px that is about
    y - p' = (y - p) / (1 + w s / 5 + 2 lam r). The last term, r the variance of P along Px, holds
    back strong ridges, since P is that of a weak one. Then P^-1 grows by h xx', h the curvature
    w p (1 - p) of the mixture in an average class.

    Leaders that forget begin with their first refresh: one that still predicts all classes alike
    is the best expert where there is nothing to learn.
    """
    d, K, n_leaders = plan[FEATURES], plan[CLASSES], plan[RIDGES] + plan[FORGETTING]
    ridges, forgetting = vector(memo, plan, RIDGES_AT), table(memo, plan, FORGETTING_AT)
    P, W, along = table(memo, plan, P_AT), table(memo, plan, W_AT), vector(memo, plan, ALONG_AT)
    predicted, steps = vector(memo, plan, PREDICTED_AT), vector(memo, plan, STEPS_AT)
    variance, squares, squares_along = 0.0, 0.0, 0.0
    for j in range(d):
        row, total = P[j], 0.0
        for c in range(d):
            total += row[c] * x[c]
        along[j] = total
        variance += total * x[j]
        squares += x[j] * x[j]
        squares_along += total * total
    if not variance > _NOISE * math.sqrt(squares * squares_along):
        return  # rows of absurd size leave nothing but rounding of P
    curvature, along_itself = 0.0, squares_along / variance
    for i in range(K):
        curvature += weight / K * mixed[i] * (1.0 - mixed[i])
    for e in range(n_leaders):
        rate = weight / (
            1.0 + _TYPICAL_CURVATURE * weight * variance + 2.0 * ridges[e] * along_itself
        )
        if e >= plan[RIDGES] and plan[T] <= forgetting[e - plan[RIDGES], PERIOD]:
            rate = 0.0
        for i in range(K):
            steps[e * K + i] = rate * (predicted[e * K + i] - target(label, soft, i))
    shrinkage = curvature / (1.0 + curvature * variance)
    for j in range(d):
        row, models, factor = P[j], W[j], along[j]
        for c in range(n_leaders * K):
            models[c] -= factor * steps[c]
        factor *= shrinkage
        for c in range(d):
            row[c] -= factor * along[c]


@inner_kernel
def _put_row(memo, plan, section, at, x, label, soft, weight):
    d, K = plan[FEATURES], plan[CLASSES]
    x0, y0 = plan[section] + at * d, plan[section + N_ENTRIES] + at * K
    for j in range(d):
        memo[x0 + j] = x[j]
    for i in range(K):
        memo[y0 + i] = target(label, soft, i)
    memo[plan[section + 2 * N_ENTRIES] + at] = weight


@kernel
def learn(memo, plan, folklore_p, x, label, soft, weight):
    """Learn one example. Return its loss and whether `ExpertState.settle` is due.

    The loss is NaN, and all is untouched, if |x| is unusable.
    """
    K = plan[CLASSES]
    mixed = carray(address(memo, plan[POWERS_AT]), (K,), np.float64)  # which are not needed again
    return _learn(memo, plan, folklore_p, x, label, soft, weight, mixed)


@shared_kernel(
    "Tuple((f8, b1))(vector, integers, vector, vector, i8, vector, f8, vector)", fast=True
)
def _learn(memo, plan, folklore_p, x, label, soft, weight, mixed):
    # Write what is predicted for x into `mixed` (K,) first.
    d = plan[FEATURES]
    if not _predict(memo, plan, folklore_p, x, mixed):
        return math.nan, False
    loss = loss_of(mixed, label, soft)
    plan[ROUNDS] += 1
    if weight == 0.0:
        return loss, False
    constants = plan[CONSTANTS_AT]
    memo[constants + LOSS] += weight * loss
    # Charge every expert its loss, and weigh them anew: fixed share, or Bayes.
    weights, predicted = vector(memo, plan, WEIGHTS_AT), table(memo, plan, PREDICTED_AT)
    losses, credit = vector(memo, plan, LOSSES_AT), vector(memo, plan, CREDIT_AT)
    charged = vector(memo, plan, ROUND_LOSSES_AT)
    scale = 1.0 / memo[constants + MAX_WEIGHT]
    for e in range(weights.shape[0]):
        lost = weight * loss_of(predicted[e], label, soft)
        losses[e] += lost
        credit[e] += weights[e]
        charged[e] = scale * lost
        if plan[SHARE] == 0:
            charged[e] = scale * losses[e]
            weights[e] = 1.0
    plan[T] += 1
    t = plan[T]
    share_weights(weights, charged, 1.0 / (t + 1.0) if plan[SHARE] else 0.0)
    _track(memo, plan, x, label, soft, weight)
    if t <= plan[FOLLOWING]:
        _follow(memo, plan, x, label, soft, weight, mixed)
    memo[plan[SEEN_AT] + d] = 0.0
    # Put the row among the recent ones, and among the kept ones while there is room.
    due = t >= plan[NEXT] or t & (t - 1) == 0
    if plan[RECENT] > 0:
        _put_row(memo, plan, RECENT_X_AT, plan[POSITION], x, label, soft, weight)
        plan[POSITION] += 1
        due |= plan[POSITION] >= plan[RECENT]
    if plan[RIDGES] == 0:
        plan[FLUSHED] = plan[POSITION]  # there is nothing to enter
    elif plan[N_KEPT] < plan[KEPT]:
        _put_row(memo, plan, KEPT_X_AT, plan[N_KEPT], x, label, soft, weight)
        plan[N_KEPT] += 1
        plan[FLUSHED] = plan[POSITION]  # rows that are kept do not enter the sums
        due |= plan[N_KEPT] >= plan[CAPACITY]
    due |= plan[POSITION] - plan[FLUSHED] >= plan[BLOCK]
    forgetting = table(memo, plan, FORGETTING_AT)
    for f in range(plan[FORGETTING]):
        due |= t % int(forgetting[f, PERIOD]) == 0
    return loss, due


@kernel
def predict_rows(memo, plan, folklore_p, X, out):
    """Write the prediction for every row of X, all from the present state."""
    for t in range(X.shape[0]):
        _predict(memo, plan, folklore_p[t], X[t], out[t])


@kernel
def run(memo, plan, folklore_p, X, labels, soft, weights, out, start):
    """Predict, then learn, from row `start` until `settle` is due; return where, and if it is."""
    return _run(memo, plan, folklore_p, X, labels, soft, weights, out, start)


@shared_kernel(
    "Tuple((i8, b1))(vector, integers, matrix, matrix, integers, matrix, vector, matrix, i8)"
)
def _run(memo, plan, folklore_p, X, labels, soft, weights, out, start):
    no_label = np.empty(0)
    for t in range(start, X.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        _, due = _learn(memo, plan, folklore_p[t], X[t], labels[t], y, weights[t], out[t])
        if due:
            return t + 1, True
    return X.shape[0], False
