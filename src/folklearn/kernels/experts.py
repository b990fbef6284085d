"""Many linear experts and at most one FOLKLORE in one mixture, in one compiled call.

Experts, in this order: the modes of ridges on everything seen (`leaders`), the modes from
which certificates are expanded, the modes of leaders that forget, trackers by gradient
descent, trackers by AdaGrad, and FOLKLORE. All but the last are linear, softmax(W x), and
their weights stand side by side in one matrix (d + 1, experts K), whose last row is for a
constant input that only some trackers use. FOLKLORE is compiled for itself, and its rounds do not
depend on the others: its predictions are arguments.

What happens on a schedule depends on the number of the round alone: rows enter the sums of
evidence in blocks, leaders are refreshed when a twentieth or a tenth more has been seen, those
that forget after a fixed number of rounds. So one by one and many at once are the same.

Everything lives in one array of floats, `memo`, and one of integers, `plan`, because a
compiled function pays for every array it is called with. `plan` holds sizes, counters, and the
place and shape of every section of memo, which `vector`, `table` and `cube` return.
"""

import math

import numpy as np
from numba import carray

from folklearn.kernels.blas import address
from folklearn.kernels.compile import inline_kernel, inner_kernel, kernel, shared_kernel
from folklearn.kernels.evidence import (
    N_TOTALS,
    add_rows,
    block_rows,
)
from folklearn.kernels.newton import factor_ridge, inner_product, linear_logits, walk
from folklearn.kernels.second_order import norm
from folklearn.kernels.simplex import exp_all

# Sizes, fixed when a panel is made.
(
    FEATURES, CLASSES, RIDGES, CERTIFIED, FORGETTING, DESCENDING, ADAPTIVE, FOLKLORE,
    BLOCK, RECENT, CAPACITY, KEPT, DENSE, SHARE, REVIEWS,
) = range(15)  # fmt: skip
# Counters: rounds that counted so far, and all rounds; where the next row goes in the recent
# ones, and from where on they are not in the sums yet; rows kept, and how many of them the sums
# of certified classes hold already; the round of the next refresh; the mode that rows are
# expanded at; refreshes so far; whether Python has to act.
T, ROUNDS, POSITION, FLUSHED, N_KEPT, N_PROVEN, NEXT, BEST, REFRESHES, ACT = range(15, 25)
N_COUNTERS = 25
N_CONSTANTS = 5
MAX_NORM, MAX_WEIGHT, UNIT, SQUARED_WEIGHTS, LOSS = range(N_CONSTANTS)

AXES: dict[str, tuple[str | int, ...]] = {}  # of every section of memo, in their order
_N_ENTRIES = 4  # that plan has for a section: its place in memo and three lengths, 1 if unused


def _section(name: str, *axes: str | int) -> int:
    """Declare a section of memo and its axes; return where its entries stand in plan."""
    AXES[name] = axes
    return N_COUNTERS + _N_ENTRIES * (len(AXES) - 1)


_CONSTANTS = _section("constants", N_CONSTANTS)
_RIDGES = _section("ridges", "leaders")
_FORGETTING = _section("forgetting", "forgetting", 2)
_CLASSES = _section("classes", "certified")
_RATES = _section("rates", "trackers")
_DECAYING = _section("decaying", "trackers")
_BIASED = _section("biased", "trackers")
_WEIGHTS = _section("weights", "experts")
_LOSSES = _section("losses", "experts")
_CREDIT = _section("credit", "experts")
_W = _section("W", "inputs", "linear", "classes")
_SQUARES = _section("squares", "inputs", "adaptive", "classes")
_S = _section("S", "sums", "pairs", "products")
_G = _section("G", "sums", "classes", "features")
_TOTALS = _section("totals", "sums", N_TOTALS)
_RECENT_X = _section("recent_x", "recent", "features")
_RECENT_Y = _section("recent_y", "recent", "classes")
_RECENT_W = _section("recent_w", "recent")
_RECENT_NORM = _section("recent_norm", "recent")
_KEPT_X = _section("kept_x", "kept", "features")
_KEPT_Y = _section("kept_y", "kept", "classes")
_KEPT_W = _section("kept_w", "kept")
_KEPT_NORM = _section("kept_norm", "kept")
_SEEN = _section("seen", "inputs")
_ROUND_LOSSES = _section("round_losses", "experts")
_LOGITS = _section("logits", "linear", "classes")
_PREDICTED = _section("predicted", "predictions", "classes")
_STEPS = _section("steps", "trackers", "classes")
_POWERS = _section("powers", "linear", "classes")
SCRATCH = ("seen", "round_losses", "logits", "predicted", "steps", "powers")  # of one round
N_PLAN = N_COUNTERS + _N_ENTRIES * len(AXES)

PERIOD, KEEP = range(2)  # of a leader that forgets: rounds between refreshes, and what remains

FLOOR = 1e-300  # no expert gives a class less, so that every loss is finite
STEPS_OF_NEWTON = 2
_DENSELY, _SPARSELY = 20, 10
_MIN_HUGE_UNKNOWNS = 3000  # from which on a refresh takes as long as thousands of rounds,
_SELDOMLY, _FIRST_STRETCH = 2, 8  # and is made for every half more, or after eight rounds
_STEERING = 2.0  # the most that the ridge of a certificate changes at one refresh
_LEAST_RIDGE, _MOST_RIDGE = 1e-6, 1e6
_IDLE, _SELDOM = 1e-3, 4  # a leader of less weight is refreshed every fourth time
_TINY_STEP = 1e-300


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


@inner_kernel
def cube(memo, plan, section):
    """Return a section with all its axes."""
    shape = (plan[section + 1], plan[section + 2], plan[section + 3])
    return carray(address(memo, plan[section]), shape, np.float64)


@inner_kernel
def rows_of(memo, plan, section, first, stop):
    """Return X, Y, weights and norms of the rows kept from a section on: recent, or kept."""
    X = table(memo, plan, section)[first:stop]
    Y = table(memo, plan, section + _N_ENTRIES)[first:stop]
    weights = vector(memo, plan, section + 2 * _N_ENTRIES)[first:stop]
    return X, Y, weights, vector(memo, plan, section + 3 * _N_ENTRIES)[first:stop]


@inner_kernel
def target(label, soft, i):
    """Return y_i, of a class or, if that is -1, of a soft label."""
    return soft[i] if label < 0 else (1.0 if i == label else 0.0)


@inner_kernel
def n_modes(plan):
    """Return the number of ridges on everything seen, those of certificates included."""
    return plan[RIDGES] + plan[CERTIFIED]


@inner_kernel
def n_expanded(plan):
    """Return the number of sums that rows enter as they come: the leaders', the certificates'."""
    return 1 + plan[CERTIFIED] if n_modes(plan) > 0 else 0


@shared_kernel("void(matrix, vector, f8, vector)", fast=True)
def _all_logits(W, x, unit, z):
    """Write the logits of all linear experts: W'(x, unit)."""
    d = x.shape[0]
    last = W[d]
    width = z.shape[0]
    for c in range(width):
        z[c] = last[c] * unit
    j = 0
    while j + 4 <= d:
        w0, w1, w2, w3 = W[j], W[j + 1], W[j + 2], W[j + 3]
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        for c in range(width):
            z[c] += (w0[c] * x0 + w1[c] * x1) + (w2[c] * x2 + w3[c] * x3)
        j += 4
    while j < d:
        w0, x0 = W[j], x[j]
        for c in range(width):
            z[c] += w0[c] * x0
        j += 1


@inline_kernel
def softmax_each(z, K, p, powers):
    """Shift each expert's logits so that the largest is 0; write their softmax."""
    n = z.shape[0]
    for first in range(0, n, K):
        top = z[first]
        for c in range(first + 1, first + K):
            top = z[c] if z[c] > top else top
        for c in range(first, first + K):
            z[c] -= top
    exp_all(z, p, powers)
    for first in range(0, n, K):
        total = 0.0
        for c in range(first, first + K):
            total += p[c]
        scale = 1.0 / total
        for c in range(first, first + K):
            p[c] *= scale


@shared_kernel("b1(vector, integers, vector, vector)")
def _load_predictions(memo, plan, folklore_p, x):
    """Fill in what every expert predicts for x, unless it is there already.

    Return False, all untouched, if |x| is unusable.
    """
    if not norm(x) <= memo[plan[_CONSTANTS] + MAX_NORM]:
        return False
    d, K = plan[FEATURES], plan[CLASSES]
    seen = vector(memo, plan, _SEEN)
    if seen[d] != 0.0:
        same = True
        for j in range(d):
            same &= seen[j] == x[j]
        if same:
            return True
    logits, predicted = vector(memo, plan, _LOGITS), vector(memo, plan, _PREDICTED)
    n = logits.shape[0]
    _all_logits(table(memo, plan, _W), x, memo[plan[_CONSTANTS] + UNIT], logits)
    powers = carray(address(memo, plan[_POWERS]), (n,), np.int64)
    softmax_each(logits, K, predicted[:n], powers)
    if plan[FOLKLORE]:
        for i in range(K):
            predicted[n + i] = folklore_p[i]
    for j in range(d):
        seen[j] = x[j]
    seen[d] = 1.0
    return True


@inner_kernel
def mix(weights, predicted, out):
    """Write the mixture (K,) of what experts predict (E, K)."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    for e in range(weights.shape[0]):
        weight = weights[e]
        for i in range(out.shape[0]):
            out[i] += weight * max(predicted[e, i], FLOOR)


@kernel
def predict(memo, plan, folklore_p, x, out):
    """Write the prediction for x; return False, all untouched, if |x| is unusable.

    `folklore_p` (K,) is what FOLKLORE predicts; without one it is not read.
    """
    return _predict(memo, plan, folklore_p, x, out)


@shared_kernel("b1(vector, integers, vector, vector, vector)")
def _predict(memo, plan, folklore_p, x, out):
    if not _load_predictions(memo, plan, folklore_p, x):
        return False
    mix(vector(memo, plan, _WEIGHTS), table(memo, plan, _PREDICTED), out)
    return True


@inner_kernel
def loss_of(p, label, soft):
    """Return -<y, ln p>; classes without mass in y cost nothing."""
    if label >= 0:
        return -math.log(max(p[label], FLOOR))
    loss = 0.0
    for i in range(p.shape[0]):
        if soft[i] > 0.0:
            loss -= soft[i] * math.log(max(p[i], FLOOR))
    return loss


@inner_kernel
def _place_of_least(losses, n):
    """Return the place of the least of the first n losses; `argmin` is slow to compile."""
    best = 0
    for e in range(1, n):
        if losses[e] < losses[best]:
            best = e
    return best


@inner_kernel
def share_weights(weights, losses, t):
    """Weigh experts by their losses (E,) in round t, counted from 1: Bayes' rule, fixed share."""
    least = losses[_place_of_least(losses, losses.shape[0])]
    total = 0.0
    for e in range(weights.shape[0]):
        weights[e] *= math.exp(least - losses[e])
        total += weights[e]
    share = 1.0 / (t + 1.0)
    for e in range(weights.shape[0]):
        weights[e] = (1.0 - share) * (weights[e] / total) + share / weights.shape[0]


@inner_kernel
def weigh_by_totals(weights, losses, scale):
    """Weigh experts by Bayes' rule, from their losses (E,) of all rounds."""
    least = losses[_place_of_least(losses, losses.shape[0])]
    total = 0.0
    for e in range(weights.shape[0]):
        weights[e] = math.exp(scale * (least - losses[e]))
        total += weights[e]
    for e in range(weights.shape[0]):
        weights[e] /= total


@kernel
def weigh_rounds(weights, totals, losses, counted, share, t, scale, before):
    """Count rounds with losses (E, T): weights and total losses (E,) after them.

    Those that are `counted` are numbered from t + 1 on. Write the weights before each, (E, T).
    """
    for s in range(losses.shape[1]):
        before[:, s] = weights
        totals += losses[:, s]
        if not counted[s]:
            continue
        t += 1
        if share:
            share_weights(weights, scale * losses[:, s], t)
        else:
            weigh_by_totals(weights, totals, scale)
    return t


@inline_kernel
def _weigh(memo, plan, label, soft, weight):
    """Charge every expert its loss, and weigh the experts anew: fixed share, or Bayes."""
    weights, losses = vector(memo, plan, _WEIGHTS), vector(memo, plan, _LOSSES)
    credit, charged = vector(memo, plan, _CREDIT), vector(memo, plan, _ROUND_LOSSES)
    predicted = table(memo, plan, _PREDICTED)
    scale = 1.0 / memo[plan[_CONSTANTS] + MAX_WEIGHT]
    for e in range(weights.shape[0]):
        loss = weight * loss_of(predicted[e], label, soft)
        losses[e] += loss
        charged[e] = scale * loss
        credit[e] += weights[e]
    if plan[SHARE]:
        share_weights(weights, charged, plan[T] + 1)
    else:
        weigh_by_totals(weights, losses, scale)


@shared_kernel("void(vector, integers, vector, i8, vector, f8)", fast=True)
def _track(memo, plan, x, label, soft, weight):
    """Move the trackers by one gradient."""
    d, K = plan[FEATURES], plan[CLASSES]
    n_plain, n_adaptive = plan[DESCENDING], plan[ADAPTIVE]
    n_trackers = n_plain + n_adaptive
    if n_trackers == 0:
        return
    rates, biased = vector(memo, plan, _RATES), vector(memo, plan, _BIASED)
    decaying = vector(memo, plan, _DECAYING)
    predicted, steps = vector(memo, plan, _PREDICTED), vector(memo, plan, _STEPS)
    W = table(memo, plan, _W)
    constants = vector(memo, plan, _CONSTANTS)
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
    for j in range(d):
        row, factor = W[j], x[j]
        for c in range(width):
            row[at + c] -= factor * steps[c]
    row = W[d]
    for e in range(n_plain):
        for c in range(e * K, (e + 1) * K):
            row[at + c] -= biased[e] * steps[c]
    if n_adaptive == 0:
        return
    squares = table(memo, plan, _SQUARES)
    for j in range(d + 1):
        row, sums = W[j, at + width :], squares[j]
        for e in range(n_adaptive):
            factor = x[j] if j < d else biased[n_plain + e]
            rate = rates[n_plain + e]
            if factor == 0.0:
                continue
            for i in range(e * K, (e + 1) * K):
                slope = factor * steps[width + i]
                sums[i] += slope * slope
                row[i] -= rate * slope / math.sqrt(max(sums[i], _TINY_STEP))


@inner_kernel
def _put_row(memo, plan, section, at, x, length, label, soft, weight):
    """Write a row where `rows_of` finds it."""
    X, Y, weights, norms = rows_of(memo, plan, section, at, at + 1)
    for j in range(x.shape[0]):
        X[0, j] = x[j]
    for i in range(Y.shape[1]):
        Y[0, i] = target(label, soft, i)
    weights[0] = weight
    norms[0] = length


@inline_kernel
def _remember(memo, plan, x, length, label, soft, weight):
    """Put the row among the recent ones, and among the kept ones while there is room."""
    if plan[RECENT] > 0:
        _put_row(memo, plan, _RECENT_X, plan[POSITION], x, length, label, soft, weight)
        plan[POSITION] += 1
    if n_expanded(plan) > 0 and plan[N_KEPT] < plan[KEPT]:
        _put_row(memo, plan, _KEPT_X, plan[N_KEPT], x, length, label, soft, weight)
        plan[N_KEPT] += 1
        plan[FLUSHED] = plan[POSITION]  # rows that are kept do not enter the sums


@kernel
def learn(memo, plan, folklore_p, x, label, soft, weight):
    """Learn one example. Return its loss and whether `settle` is due.

    The loss is NaN, and all is untouched, if |x| is unusable.
    """
    return _learn(memo, plan, folklore_p, x, label, soft, weight)


@shared_kernel("Tuple((f8, b1))(vector, integers, vector, vector, i8, vector, f8)")
def _learn(memo, plan, folklore_p, x, label, soft, weight):
    if not _load_predictions(memo, plan, folklore_p, x):
        return math.nan, False
    mixed = np.empty(plan[CLASSES])
    mix(vector(memo, plan, _WEIGHTS), table(memo, plan, _PREDICTED), mixed)
    loss = loss_of(mixed, label, soft)
    plan[ROUNDS] += 1
    if weight == 0.0:
        return loss, False
    memo[plan[_CONSTANTS] + LOSS] += weight * loss
    _weigh(memo, plan, label, soft, weight)
    _track(memo, plan, x, label, soft, weight)
    _remember(memo, plan, x, norm(x), label, soft, weight)
    vector(memo, plan, _SEEN)[-1] = 0.0
    plan[T] += 1
    return loss, _is_due(memo, plan)


@inline_kernel
def _is_due(memo, plan):
    """Tell whether rows must enter sums, leaders be refreshed, or Python act."""
    t = plan[T]
    if plan[POSITION] - plan[FLUSHED] >= plan[BLOCK] or t >= plan[NEXT]:
        return True
    if plan[POSITION] >= plan[RECENT] > 0 or must_act(plan):
        return True
    forgetting = table(memo, plan, _FORGETTING)
    due = False
    for f in range(plan[FORGETTING]):
        due |= t % int(forgetting[f, PERIOD]) == 0
    return due


@inner_kernel
def must_act(plan):
    """Tell whether the arrays are to change: a review of the experts, more room for rows."""
    t = plan[T]
    if plan[REVIEWS] > 0 and t >= plan[REVIEWS] and t & (t - 1) == 0:
        return True
    full = plan[N_KEPT] >= plan[CAPACITY] and plan[CAPACITY] < plan[KEPT]
    return full and n_modes(plan) > 0


@shared_kernel("void(vector, integers)")
def settle(memo, plan):
    """Do what is due after a round; afterwards plan[ACT] says whether Python has to act."""
    vector(memo, plan, _SEEN)[-1] = 0.0
    t = plan[T]
    due = t >= plan[NEXT] and n_modes(plan) > 0
    full = plan[POSITION] >= plan[RECENT]
    waits = plan[POSITION] > plan[FLUSHED] and n_expanded(plan) > 0
    if waits and (due or full or plan[POSITION] - plan[FLUSHED] >= plan[BLOCK]):
        flush(memo, plan)
    forgetting = table(memo, plan, _FORGETTING)
    for f in range(plan[FORGETTING]):
        if t % int(forgetting[f, PERIOD]) == 0:
            _refresh_forgetting(memo, plan, f)
    if due:
        _refresh(memo, plan)
    if t >= plan[NEXT]:
        plan[NEXT] = next_refresh(plan, t)
    if full:
        plan[POSITION] = 0
        plan[FLUSHED] = 0
    plan[ACT] = must_act(plan)


@inline_kernel
def next_refresh(plan, t):
    """Return the round of the next refresh after one in round t."""
    if (plan[CLASSES] - 1) * plan[FEATURES] >= _MIN_HUGE_UNKNOWNS:
        return t + max(_FIRST_STRETCH, t // _SELDOMLY)
    return t + max(1, t // (_DENSELY if t < plan[DENSE] else _SPARSELY))


@shared_kernel("void(vector, integers)")
def flush(memo, plan):
    """Let the rows that wait enter the sums; since they came the modes have not moved."""
    if plan[POSITION] > plan[FLUSHED]:
        _add_to_sums(memo, plan, _RECENT_X, plan[FLUSHED], plan[POSITION], 0)
        plan[FLUSHED] = plan[POSITION]


@shared_kernel("void(vector, integers, i8, i8, i8, i8)")
def _add_to_sums(memo, plan, section, first, stop, first_sum):
    """Let rows enter the sums from `first_sum` on, each expanded at its mode."""
    X, Y, weights, norms = rows_of(memo, plan, section, first, stop)
    S, G, totals = cube(memo, plan, _S), cube(memo, plan, _G), table(memo, plan, _TOTALS)
    classes = vector(memo, plan, _CLASSES)
    for s in range(first_sum, n_expanded(plan)):
        B = 0.0 if s == 0 else classes[s - 1]
        W = _mode(memo, plan, plan[BEST] if s == 0 else plan[RIDGES] + s - 1)
        add_expanded(S[s], G[s], totals[s], W, X, Y, weights, norms, B)


@inner_kernel
def _mode(memo, plan, e):
    """Return the weights (K, d) of a linear expert."""
    d, K = plan[FEATURES], plan[CLASSES]
    W, mode = table(memo, plan, _W), np.empty((K, d))
    for i in range(K):
        for j in range(d):
            mode[i, j] = W[j, e * K + i]
    return mode


@inline_kernel
def _set_mode(memo, plan, e, mode):
    K, d = mode.shape
    W = table(memo, plan, _W)
    for i in range(K):
        for j in range(d):
            W[j, e * K + i] = mode[i, j]


@shared_kernel("void(matrix, matrix, vector, matrix, matrix, matrix, vector, vector, f8)")
def add_expanded(S, G, totals, W, X, Y, weights, norms, B):
    """Add rows expanded at the model W, in blocks."""
    d = X.shape[1]
    block = block_rows(d)
    labels = np.full(block, -1)
    for start in range(0, X.shape[0], block):
        stop = min(start + block, X.shape[0])
        Z = np.empty((stop - start, W.shape[0]))
        linear_logits(X[start:stop], W, Z)
        add_rows(
            S, G, totals, Z, X[start:stop], labels[: stop - start], Y[start:stop],
            weights[start:stop], norms[start:stop], B,
        )  # fmt: skip


@shared_kernel("void(vector, integers)")
def _refresh(memo, plan):
    """Move the modes of all ridges to where everything seen puts them."""
    K = plan[CLASSES]
    n = (K - 1) * plan[FEATURES]
    shares, modes = vector(memo, plan, _WEIGHTS), n_modes(plan)
    plan[BEST] = _place_of_least(vector(memo, plan, _LOSSES), modes)
    plan[REFRESHES] += 1
    S, G = cube(memo, plan, _S)[0], cube(memo, plan, _G)[0]
    ridges, classes = vector(memo, plan, _RIDGES), vector(memo, plan, _CLASSES)
    X, Y, weights, norms = rows_of(memo, plan, _KEPT_X, 0, plan[N_KEPT])
    curved = _add_curvature(S, _mode(memo, plan, plan[BEST]), X, Y, weights, norms)
    H = np.empty((n, n))
    for e in range(modes):
        if skip_refresh(shares, plan, e) or not factor_ridge(curved, ridges[e], K, H):
            continue
        W = _mode(memo, plan, e)
        walk(S, G, ridges[e], H, X, Y, weights, STEPS_OF_NEWTON, W)
        _set_mode(memo, plan, e, W)
        if e >= plan[RIDGES]:
            ridges[e] = next_certificate_ridge(ridges[e], W, classes[e - plan[RIDGES]])


@inner_kernel
def _add_curvature(S, W, X, Y, weights, norms):
    """Return S with the curvature of rows at W."""
    curved, unused = S.copy(), np.empty(W.shape)
    add_expanded(curved, unused, np.empty(N_TOTALS), W, X, Y, weights, norms, 0.0)
    return curved


@inline_kernel
def skip_refresh(shares, plan, e):
    """Tell whether a mode is left out of a refresh, because it has next to no weight."""
    idle = shares[e] < _IDLE and e != plan[BEST] and e < plan[RIDGES]
    return idle and plan[REFRESHES] % _SELDOM != 0


@inline_kernel
def next_certificate_ridge(ridge, W, B):
    """Return the next ridge of a certificate, so that W comes to lie near the class of B."""
    ratio = inner_product(W, W) / (W.shape[0] * B * B)
    ratio = min(max(ratio, 1.0 / _STEERING), _STEERING)
    return min(max(ridge * ratio, _LEAST_RIDGE), _MOST_RIDGE)


@kernel
def prove_kept(memo, plan):
    """Let the rows that wait enter the sums, and the kept ones those of certified classes.

    The leaders go on with the kept rows as rows. A class that comes later was not there, so a
    proof must not count it; but a model that knows it had better not predict it for them.
    """
    flush(memo, plan)
    _add_to_sums(memo, plan, _KEPT_X, plan[N_PROVEN], plan[N_KEPT], 1)
    plan[N_PROVEN] = plan[N_KEPT]


@shared_kernel("void(vector, integers, i8)")
def _refresh_forgetting(memo, plan, f):
    """Discount the sum of a leader that forgets, and learn the rows of the last period."""
    K = plan[CLASSES]
    n = (K - 1) * plan[FEATURES]
    s, e = n_expanded(plan) + f, n_modes(plan) + f
    forgetting = table(memo, plan, _FORGETTING)[f]
    S, G = cube(memo, plan, _S)[s], cube(memo, plan, _G)[s]
    totals = table(memo, plan, _TOTALS)[s]
    lam = vector(memo, plan, _RIDGES)[e]
    stop = plan[POSITION]
    first = stop - int(forgetting[PERIOD])
    X, Y, weights, norms = rows_of(memo, plan, _RECENT_X, first, stop)
    S *= forgetting[KEEP]
    G *= forgetting[KEEP]
    totals *= forgetting[KEEP]
    W, H = _mode(memo, plan, e), np.empty((n, n))
    if factor_ridge(_add_curvature(S, W, X, Y, weights, norms), lam, K, H):
        walk(S, G, lam, H, X, Y, weights, STEPS_OF_NEWTON, W)
        _set_mode(memo, plan, e, W)
    add_expanded(S, G, totals, W, X, Y, weights, norms, 0.0)


@kernel
def predict_rows(memo, plan, folklore_p, X, out):
    """Write the prediction for every row of X, all from the present state."""
    for t in range(X.shape[0]):
        _predict(memo, plan, folklore_p[t], X[t], out[t])


@kernel
def run(memo, plan, folklore_p, X, labels, soft, weights, out):
    """Predict, then learn, row by row, until `settle` is due; return how many, and if it is."""
    no_label = np.empty(0)
    for t in range(X.shape[0]):
        y = soft[t] if labels[t] < 0 else no_label
        _predict(memo, plan, folklore_p[t], X[t], out[t])
        _, due = _learn(memo, plan, folklore_p[t], X[t], labels[t], y, weights[t])
        if due:
            return t + 1, True
    return X.shape[0], False
