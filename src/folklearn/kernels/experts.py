"""Many linear experts and at most one FOLKLORE in one mixture, in one compiled call.

Experts, in this order: the modes of ridges on everything seen (`leaders`), the modes from
which certificates are expanded, the modes of leaders that forget, trackers by gradient
descent, trackers by AdaGrad, and FOLKLORE. All but the last are linear, softmax(W x), and
their weights stand side by side in one matrix (d + 1, experts K), whose last row is for a
constant input that only some trackers use. FOLKLORE learns beside the panel, which is told what
it predicts: it is compiled for itself, and its rounds do not depend on the others.

What happens on a schedule depends on the number of the round alone: rows enter the sums of
evidence in blocks, leaders are refreshed when a twentieth or a tenth more has been seen, those
that forget after a fixed number of rounds. So one by one and many at once are the same.

Everything lives in one array of floats, `memo`, and one of integers, `plan`, because a
compiled function pays for every array it is called with. `plan` holds sizes, counters and the
place of every section of memo.
"""

import math

import numpy as np
from numba import carray

from folklearn.kernels.blas import address
from folklearn.kernels.compile import inline_kernel, inner_kernel, kernel, shared_kernel
from folklearn.kernels.evidence import (
    N_TOTALS,
    add_products,
    add_residuals,
    add_rows,
    block_rows,
    expand_rows,
    scratch_size,
)
from folklearn.kernels.newton import factor_ridge, jump, linear_logits, walk
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


def _section(name: str, *axes: str | int) -> int:
    """Declare a section of memo and its axes; return where plan holds its place."""
    AXES[name] = axes
    return N_COUNTERS + len(AXES) - 1


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
_RECENT_Z = _section("recent_z", "expanded", "recent", "classes")
_KEPT_X = _section("kept_x", "kept", "features")
_KEPT_Y = _section("kept_y", "kept", "classes")
_KEPT_W = _section("kept_w", "kept")
_KEPT_NORM = _section("kept_norm", "kept")
_SEEN = _section("seen", "inputs")
_LOGITS = _section("logits", "linear", "classes")
_PREDICTED = _section("predicted", "predictions", "classes")
_STEPS = _section("steps", "trackers", "classes")
_POWERS = _section("powers", "linear", "classes")
SCRATCH = ("seen", "logits", "predicted", "steps", "powers")  # hold nothing between rounds
N_PLAN = N_COUNTERS + len(AXES)

PERIOD, KEEP = range(2)  # of a leader that forgets: rounds between refreshes, and what remains

FLOOR = 1e-300  # no expert gives a class less, so that every loss is finite
STEPS_OF_NEWTON = 2
_DENSELY, _SPARSELY = 20, 10
_HUGE = 3000  # unknowns from which on a refresh takes as long as thousands of rounds,
_SELDOMLY, _FIRST_STRETCH = 2, 8  # and is made for every half more, or after so many rounds
_STEERING = 2.0  # the most that the ridge of a certificate changes at one refresh
_LEAST_RIDGE, _MOST_RIDGE = 1e-6, 1e6
_IDLE, _SELDOM = 1e-3, 4  # a leader of so little weight is refreshed every fourth time
_TINY_STEP = 1e-300


@inner_kernel
def vector(memo, plan, section, n):
    """Return a section as (n,)."""
    return carray(address(memo, plan[section]), (n,), np.float64)


@inner_kernel
def table(memo, plan, section, n, m):
    """Return a section as (n, m)."""
    return carray(address(memo, plan[section]), (n, m), np.float64)


@inner_kernel
def cube(memo, plan, section, n, m, r):
    """Return a section as (n, m, r)."""
    return carray(address(memo, plan[section]), (n, m, r), np.float64)


@inner_kernel
def n_modes(plan):
    """Return the number of ridges on everything seen, those of certificates included."""
    return plan[RIDGES] + plan[CERTIFIED]


@inner_kernel
def n_linear(plan):
    """Return the number of linear experts."""
    return n_modes(plan) + plan[FORGETTING] + plan[DESCENDING] + plan[ADAPTIVE]


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
def _softmax_each(z, K, p, powers):
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
    seen = vector(memo, plan, _SEEN, d + 1)
    if seen[d] != 0.0:
        same = True
        for j in range(d):
            same &= seen[j] == x[j]
        if same:
            return True
    n = n_linear(plan)
    logits = vector(memo, plan, _LOGITS, n * K)
    predicted = vector(memo, plan, _PREDICTED, (n + 1) * K)
    unit = memo[plan[_CONSTANTS] + UNIT]
    _all_logits(table(memo, plan, _W, d + 1, n * K), x, unit, logits)
    powers = carray(address(memo, plan[_POWERS]), (n * K,), np.int64)
    _softmax_each(logits, K, predicted[: n * K], powers)
    if plan[FOLKLORE]:
        for i in range(K):
            predicted[n * K + i] = folklore_p[i]
    for j in range(d):
        seen[j] = x[j]
    seen[d] = 1.0
    return True


@inner_kernel
def _mix(memo, plan, out):
    """Write the mixture of what the experts predict."""
    K = plan[CLASSES]
    n = n_linear(plan) + plan[FOLKLORE]
    weights = vector(memo, plan, _WEIGHTS, n)
    predicted = table(memo, plan, _PREDICTED, n, K)
    for i in range(K):
        out[i] = 0.0
    for e in range(n):
        weight = weights[e]
        for i in range(K):
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
    _mix(memo, plan, out)
    return True


@inner_kernel
def _loss_of(p, label, soft):
    """Return -<y, ln p>; classes without mass in y cost nothing."""
    if label >= 0:
        return -math.log(max(p[label], FLOOR))
    loss = 0.0
    for i in range(p.shape[0]):
        if soft[i] > 0.0:
            loss -= soft[i] * math.log(max(p[i], FLOOR))
    return loss


@inline_kernel
def _weigh(memo, plan, label, soft, weight):
    """Charge every expert its loss, and weigh the experts anew: fixed share, or Bayes."""
    K = plan[CLASSES]
    n = n_linear(plan) + plan[FOLKLORE]
    weights = vector(memo, plan, _WEIGHTS, n)
    losses = vector(memo, plan, _LOSSES, n)
    credit = vector(memo, plan, _CREDIT, n)
    predicted = table(memo, plan, _PREDICTED, n, K)
    scale = 1.0 / memo[plan[_CONSTANTS] + MAX_WEIGHT]
    least = math.inf
    total = 0.0
    for e in range(n):
        loss = weight * _loss_of(predicted[e], label, soft)
        losses[e] += loss
        least = min(least, losses[e])
        credit[e] += weights[e]
        if plan[SHARE]:
            weights[e] *= math.exp(-scale * loss)
            total += weights[e]
    if plan[SHARE]:
        share = 1.0 / (plan[T] + 2.0)  # rounds are counted from 1
        for e in range(n):
            weights[e] = (1.0 - share) * (weights[e] / total) + share / n
        return
    for e in range(n):
        weights[e] = math.exp(scale * (least - losses[e]))
        total += weights[e]
    for e in range(n):
        weights[e] /= total


@shared_kernel("void(vector, integers, vector, i8, vector, f8)", fast=True)
def _track(memo, plan, x, label, soft, weight):
    """Move the trackers by one gradient."""
    d, K = plan[FEATURES], plan[CLASSES]
    n, n_plain, n_adaptive = n_linear(plan), plan[DESCENDING], plan[ADAPTIVE]
    n_trackers = n_plain + n_adaptive
    if n_trackers == 0:
        return
    first = n - n_trackers
    rates = vector(memo, plan, _RATES, n_trackers)
    decaying = vector(memo, plan, _DECAYING, n_trackers)
    biased = vector(memo, plan, _BIASED, n_trackers)
    predicted = vector(memo, plan, _PREDICTED, n * K)
    steps = vector(memo, plan, _STEPS, n_trackers * K)
    W = table(memo, plan, _W, d + 1, n * K)
    constants = vector(memo, plan, _CONSTANTS, N_CONSTANTS)
    constants[SQUARED_WEIGHTS] += weight * weight
    slowly = weight / math.sqrt(max(constants[SQUARED_WEIGHTS], _TINY_STEP))
    for e in range(n_trackers):
        rate = rates[e] * (slowly if decaying[e] > 0.0 else weight)
        if e >= n_plain:
            rate = weight  # the rate of AdaGrad comes in below
        for i in range(K):
            given = soft[i] if label < 0 else (1.0 if i == label else 0.0)
            steps[e * K + i] = rate * (predicted[(first + e) * K + i] - given)
    width = n_plain * K
    at = first * K
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
    squares = table(memo, plan, _SQUARES, d + 1, n_adaptive * K)
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


@inline_kernel
def _remember(memo, plan, x, length, label, soft, weight):
    """Put the row among the recent ones, and among the kept ones while there is room."""
    d, K, L = plan[FEATURES], plan[CLASSES], plan[RECENT]
    at = plan[POSITION]
    n_sums = n_expanded(plan)
    if L > 0:
        row = table(memo, plan, _RECENT_X, L, d)[at]
        y = table(memo, plan, _RECENT_Y, L, K)[at]
        for j in range(d):
            row[j] = x[j]
        for i in range(K):
            y[i] = soft[i] if label < 0 else (1.0 if i == label else 0.0)
        vector(memo, plan, _RECENT_W, L)[at] = weight
        vector(memo, plan, _RECENT_NORM, L)[at] = length
        logits = vector(memo, plan, _LOGITS, n_linear(plan) * K)
        Z = cube(memo, plan, _RECENT_Z, n_sums, L, K)
        for s in range(n_sums):
            mode = plan[BEST] if s == 0 else plan[RIDGES] + s - 1
            for i in range(K):
                Z[s, at, i] = logits[mode * K + i]
        plan[POSITION] += 1
    if n_sums > 0 and plan[N_KEPT] < plan[KEPT]:
        place = plan[N_KEPT]
        row = table(memo, plan, _KEPT_X, plan[CAPACITY], d)[place]
        y = table(memo, plan, _KEPT_Y, plan[CAPACITY], K)[place]
        for j in range(d):
            row[j] = x[j]
        for i in range(K):
            y[i] = soft[i] if label < 0 else (1.0 if i == label else 0.0)
        vector(memo, plan, _KEPT_W, plan[CAPACITY])[place] = weight
        vector(memo, plan, _KEPT_NORM, plan[CAPACITY])[place] = length
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
    d, K = plan[FEATURES], plan[CLASSES]
    constants = vector(memo, plan, _CONSTANTS, N_CONSTANTS)
    mixed = np.empty(K)
    _mix(memo, plan, mixed)
    loss = _loss_of(mixed, label, soft)
    plan[ROUNDS] += 1
    if weight == 0.0:
        return loss, False
    constants[LOSS] += weight * loss
    _weigh(memo, plan, label, soft, weight)
    _track(memo, plan, x, label, soft, weight)
    _remember(memo, plan, x, norm(x), label, soft, weight)
    vector(memo, plan, _SEEN, d + 1)[d] = 0.0
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
    forgetting = table(memo, plan, _FORGETTING, plan[FORGETTING], 2)
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


@kernel
def settle(memo, plan):
    """Do what is due after a round; afterwards plan[ACT] says whether Python has to act."""
    _settle(memo, plan)


@shared_kernel("void(vector, integers)")
def _settle(memo, plan):
    d = plan[FEATURES]
    vector(memo, plan, _SEEN, d + 1)[d] = 0.0
    t = plan[T]
    due = t >= plan[NEXT] and n_modes(plan) > 0
    full = plan[POSITION] >= plan[RECENT]
    waits = plan[POSITION] > plan[FLUSHED] and n_expanded(plan) > 0
    if waits and (due or full or plan[POSITION] - plan[FLUSHED] >= plan[BLOCK]):
        flush(memo, plan)
    forgetting = table(memo, plan, _FORGETTING, plan[FORGETTING], 2)
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
    if (plan[CLASSES] - 1) * plan[FEATURES] >= _HUGE:
        return t + max(_FIRST_STRETCH, t // _SELDOMLY)
    return t + max(1, t // (_DENSELY if t < plan[DENSE] else _SPARSELY))


@shared_kernel("void(vector, integers)")
def flush(memo, plan):
    """Let the rows that wait enter the sums."""
    d, K, L = plan[FEATURES], plan[CLASSES], plan[RECENT]
    first, stop = plan[FLUSHED], plan[POSITION]
    m = stop - first
    if m == 0:
        return
    P, D = K * (K - 1) // 2, d * (d + 1) // 2
    n_sums = n_expanded(plan)
    X = table(memo, plan, _RECENT_X, L, d)[first:stop]
    Y = table(memo, plan, _RECENT_Y, L, K)[first:stop]
    weights = vector(memo, plan, _RECENT_W, L)[first:stop]
    norms = vector(memo, plan, _RECENT_NORM, L)[first:stop]
    Z = cube(memo, plan, _RECENT_Z, n_sums, L, K)
    G = cube(memo, plan, _G, n_sums, K, d)
    totals = table(memo, plan, _TOTALS, n_sums, N_TOTALS)
    classes = vector(memo, plan, _CLASSES, plan[CERTIFIED])
    labels = np.full(m, -1)
    coefficients = np.empty((m, n_sums * P))
    one = np.empty((m, P))
    residuals = np.empty((m, K))
    for s in range(n_sums):
        B = 0.0 if s == 0 else classes[s - 1]
        expand_rows(Z[s, first:stop], labels, Y, weights, norms, B, one, residuals, totals[s])
        for t in range(m):  # one by one: the copy of a slice is slow to compile
            for pair in range(P):
                coefficients[t, s * P + pair] = one[t, pair]
        add_residuals(G[s], residuals, X)
    S = table(memo, plan, _S, n_sums * P, D)
    add_products(S, coefficients, X, np.empty(scratch_size(d, m)))
    plan[FLUSHED] = stop


@inner_kernel
def _mode(memo, plan, e):
    """Return the weights (K, d) of a linear expert."""
    d, K = plan[FEATURES], plan[CLASSES]
    W = table(memo, plan, _W, d + 1, n_linear(plan) * K)
    own = np.empty((K, d))
    for i in range(K):
        for j in range(d):
            own[i, j] = W[j, e * K + i]
    return own


@inline_kernel
def _set_mode(memo, plan, e, own):
    d, K = plan[FEATURES], plan[CLASSES]
    W = table(memo, plan, _W, d + 1, n_linear(plan) * K)
    for i in range(K):
        for j in range(d):
            W[j, e * K + i] = own[i, j]


@shared_kernel("void(matrix, matrix, vector, matrix, matrix, matrix, vector, vector, f8)")
def add_expanded(S, G, totals, W, X, Y, weights, norms, B):
    """Add rows expanded at the model W, in blocks."""
    d = X.shape[1]
    block = block_rows(d)
    labels = np.full(block, -1)
    scratch = np.empty(scratch_size(d, min(block, max(X.shape[0], 1))))
    for start in range(0, X.shape[0], block):
        stop = min(start + block, X.shape[0])
        Z = np.empty((stop - start, W.shape[0]))
        linear_logits(X[start:stop], W, Z)
        add_rows(
            S, G, totals, Z, X[start:stop], labels[: stop - start], Y[start:stop],
            weights[start:stop], norms[start:stop], B, scratch,
        )  # fmt: skip


@shared_kernel("void(vector, integers)")
def _refresh(memo, plan):
    """Move the modes of all ridges to where everything seen puts them."""
    d, K = plan[FEATURES], plan[CLASSES]
    P, D = K * (K - 1) // 2, d * (d + 1) // 2
    n = (K - 1) * d
    modes = n_modes(plan)
    losses = vector(memo, plan, _LOSSES, modes)
    best = 0
    for e in range(1, modes):
        if losses[e] < losses[best]:
            best = e
    plan[BEST] = best
    S, G = table(memo, plan, _S, P, D), table(memo, plan, _G, K, d)
    ridges = vector(memo, plan, _RIDGES, modes)
    classes = vector(memo, plan, _CLASSES, plan[CERTIFIED])
    n_kept = plan[N_KEPT]
    X = table(memo, plan, _KEPT_X, plan[CAPACITY], d)[:n_kept]
    Y = table(memo, plan, _KEPT_Y, plan[CAPACITY], K)[:n_kept]
    weights = vector(memo, plan, _KEPT_W, plan[CAPACITY])[:n_kept]
    norms = vector(memo, plan, _KEPT_NORM, plan[CAPACITY])[:n_kept]
    curved = S
    if n_kept > 0:
        curved = S.copy()
        unused, sums = np.empty((K, d)), np.empty(N_TOTALS)
        W = _mode(memo, plan, best)
        add_expanded(curved, unused, sums, W, X, Y, weights, norms, 0.0)
    H = np.empty((n, n))
    shares = vector(memo, plan, _WEIGHTS, modes)
    plan[REFRESHES] += 1
    for e in range(modes):
        if skip_refresh(shares, plan, e):
            continue
        if factor_ridge(curved, ridges[e], K, H):
            W = _mode(memo, plan, e)
            if n_kept > 0:
                walk(S, G, ridges[e], H, X, Y, weights, STEPS_OF_NEWTON, W)
            else:
                jump(G, H, W)
            _set_mode(memo, plan, e, W)
            if e >= plan[RIDGES]:
                ridges[e] = next_certificate_ridge(ridges[e], W, classes[e - plan[RIDGES]])


@inline_kernel
def skip_refresh(shares, plan, e):
    """Tell whether a mode is left out of a refresh, because it has next to no weight."""
    idle = shares[e] < _IDLE and e != plan[BEST] and e < plan[RIDGES]
    return idle and plan[REFRESHES] % _SELDOM != 0


@inline_kernel
def next_certificate_ridge(ridge, W, B):
    """Return the next ridge of a certificate, so that W comes to lie near the class of B."""
    square = 0.0
    for i in range(W.shape[0]):
        for j in range(W.shape[1]):
            square += W[i, j] * W[i, j]
    ratio = square / (W.shape[0] * B * B)
    ratio = min(max(ratio, 1.0 / _STEERING), _STEERING)
    return min(max(ridge * ratio, _LEAST_RIDGE), _MOST_RIDGE)


@kernel
def prove_kept(memo, plan):
    """Let the rows that wait enter the sums, and the kept ones those of certified classes.

    The leaders go on with the kept rows as rows. A class that comes later was not there, so a
    proof must not count it; but a model that knows it had better not predict it for them.
    """
    if n_expanded(plan) == 0:
        return
    flush(memo, plan)
    d, K = plan[FEATURES], plan[CLASSES]
    P, D = K * (K - 1) // 2, d * (d + 1) // 2
    n_sums = n_expanded(plan)
    rows = slice(plan[N_PROVEN], plan[N_KEPT])
    X = table(memo, plan, _KEPT_X, plan[CAPACITY], d)[rows]
    Y = table(memo, plan, _KEPT_Y, plan[CAPACITY], K)[rows]
    weights = vector(memo, plan, _KEPT_W, plan[CAPACITY])[rows]
    norms = vector(memo, plan, _KEPT_NORM, plan[CAPACITY])[rows]
    S, G = cube(memo, plan, _S, n_sums, P, D), cube(memo, plan, _G, n_sums, K, d)
    totals = table(memo, plan, _TOTALS, n_sums, N_TOTALS)
    classes = vector(memo, plan, _CLASSES, plan[CERTIFIED])
    for s in range(1, n_sums):
        W = _mode(memo, plan, plan[RIDGES] + s - 1)
        add_expanded(S[s], G[s], totals[s], W, X, Y, weights, norms, classes[s - 1])
    plan[N_PROVEN] = plan[N_KEPT]


@shared_kernel("void(vector, integers, i8)")
def _refresh_forgetting(memo, plan, f):
    """Discount the sum of a leader that forgets, and learn the rows of the last period."""
    d, K, L = plan[FEATURES], plan[CLASSES], plan[RECENT]
    P, D = K * (K - 1) // 2, d * (d + 1) // 2
    n = (K - 1) * d
    n_sums = n_expanded(plan) + plan[FORGETTING]
    s = n_expanded(plan) + f
    e = n_modes(plan) + f
    forgetting = table(memo, plan, _FORGETTING, plan[FORGETTING], 2)[f]
    S, G = cube(memo, plan, _S, n_sums, P, D)[s], cube(memo, plan, _G, n_sums, K, d)[s]
    totals = table(memo, plan, _TOTALS, n_sums, N_TOTALS)[s]
    lam = vector(memo, plan, _RIDGES, n_modes(plan) + plan[FORGETTING])[e]
    stop = plan[POSITION]
    rows = slice(stop - int(forgetting[PERIOD]), stop)
    X = table(memo, plan, _RECENT_X, L, d)[rows]
    Y = table(memo, plan, _RECENT_Y, L, K)[rows]
    weights = vector(memo, plan, _RECENT_W, L)[rows]
    norms = vector(memo, plan, _RECENT_NORM, L)[rows]
    S *= forgetting[KEEP]
    G *= forgetting[KEEP]
    totals *= forgetting[KEEP]
    W = _mode(memo, plan, e)
    curved = S.copy()
    unused, sums = np.empty((K, d)), np.empty(N_TOTALS)
    add_expanded(curved, unused, sums, W, X, Y, weights, norms, 0.0)
    H = np.empty((n, n))
    if factor_ridge(curved, lam, K, H):
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
