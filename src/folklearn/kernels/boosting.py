"""Kernels of boosting: N regressions of two weights, costs, prefixes, and naive Bayes.

A boosting regression is binary logistic regression of "the label l is right" on two numbers.
In the coordinates of the margin, v = W_1 - W_2 (2,), the state of FOLKLORE is the quadratic
v'A v + g'v with A = ridge I + sum kappa xx', and a round is

    o = s_l - logsumexp_{k != l} s_k             the margin that s gives to l
    x, base = (clip(o/2), 1), 0                  or (0, 1), o for the offset variant
    mean = -x'A^-1 g / 2,   c = x'A^-1 x
    m = base + mean - pull c tanh(m/2)           the margin that is played, p = sigmoid(m)
    e = w (p - 1{y = l}),   kappa = w gamma p (1 - p)
    A += kappa xx',   g += (e - 2 kappa (m - base)) x

A and g are plain sums and are kept as they are; S = A^-1 would be made by subtraction, and
a solve with a 2 x 2 matrix costs nothing. docs/theory/boosting.md has the algebra.
"""

import math

import numpy as np

from folklearn.kernels.compile import kernel
from folklearn.kernels.curvature import gamma_star_below
from folklearn.kernels.simplex import sigmoid, softmax, softplus

FOLKLORE, AIOLI, OFFSET = range(3)
RIDGE = (0.5, 0.5, 0.25)  # on v: lam/2 with the paper's lam = 1, and alpha^2/4 for the offset
REACH = 2.0  # alpha lies in [-2, 2]
_PULL = (0.25, 0.5, 0.25)

# One row of the state of N regressions.
N_NUMBERS = 10
A00, A01, A11, G0, G1, LOSS, BRACKET, CLIPPED, GAINED, TRIED = range(N_NUMBERS)

_BRACKET_ROUNDING = 1e-14  # of a bracket's terms, relative
_MARGIN_ROUNDING = 2e-15  # of a margin, relative to the numbers that it is made of
_MAX_EXPONENT = 750.0  # exp of a difference loses as many roundings as it has e-folds
_MAX_MARGIN_STEPS = 100
FLOOR = 1e-300  # no class is ever given less, so that every loss is finite


@kernel
def _rest(s, label):
    """Return the largest score but that of the label, and logsumexp of them all beyond it."""
    best = 1 if label == 0 else 0
    for k in range(s.shape[0]):
        if k != label and s[k] > s[best]:
            best = k
    total = 0.0
    for k in range(s.shape[0]):
        if k != label and k != best:
            total += math.exp(s[k] - s[best])
    return s[best], math.log1p(total)


@kernel
def _solve(centre, pull):
    """Return the root of m = centre - pull tanh(m/2).

    On the side of the centre the equation is concave: Newton's method climbs from any point below.
    """
    b = abs(centre)
    m = max(b - pull, b / (1.0 + 0.5 * pull))
    for _ in range(_MAX_MARGIN_STEPS):
        t = math.tanh(0.5 * m)
        step = (b - m - pull * t) / (1.0 + 0.5 * pull * (1.0 - t * t))
        m += step
        if step <= 1e-16 * (1.0 + m):
            break
    return math.copysign(m, centre)


@kernel
def _predict_margin(row, kind, clip, o):
    """Return x_0, base, mean, c, the margin m, and how many digits A^-1 x may have lost."""
    base = o if kind == OFFSET else 0.0
    x = 0.0 if kind == OFFSET else min(clip, max(-clip, 0.5 * o))
    # Cholesky; A is at least its ridge, and so is the Schur complement.
    ratio = row[A01] / row[A00]
    schur = max(row[A11] - ratio * row[A01], RIDGE[kind])
    along = 1.0 - ratio * x
    c = x * x / row[A00] + along * along / schur
    mean = -0.5 * (x * row[G0] / row[A00] + along * (row[G1] - ratio * row[G0]) / schur)
    return x, base, mean, c, _solve(base + mean, _PULL[kind] * c), row[A11] / schur


@kernel
def regress(row, kind, clip, s, label, out):
    """Write the regressed scores of s and a label into out; modulo constants s + alpha e_l."""
    top, rest = _rest(s, label)
    o = s[label] - top - rest
    m = _predict_margin(row, kind, clip, o)[4]
    if kind == OFFSET:
        for k in range(s.shape[0]):
            out[k] = s[k]
        out[label] += m - o
        return
    for k in range(s.shape[0]):
        out[k] = s[k] - top - rest - 0.5 * m
    out[label] = 0.5 * m


@kernel
def learn_regression(row, kind, clip, s, label, y, weight):
    """Move one regression; return the log loss of the class y under the regressed scores."""
    top, rest = _rest(s, label)
    o = s[label] - top - rest
    x, base, mean, c, m, spread = _predict_margin(row, kind, clip, o)
    sign = 1.0 if y == label else -1.0
    loss = softplus(-sign * m)
    p = sigmoid(m)
    e = -weight * sign * sigmoid(-sign * m)
    gamma = gamma_star_below((abs(o) if kind == OFFSET else 2.0 * abs(x)) + REACH)
    kappa = weight * gamma * p * sigmoid(-m)

    # w loss - (min of the surrogates after - before): delta_t/4, plus an allowance for rounding.
    d = base + mean - m
    away = 2.0 * d - c * e
    gain = kappa / (1.0 + kappa * c) * away * away
    size = c * e * e + 4.0 * abs(e * d) + gain
    bracket = 0.25 * (c * e * e - 4.0 * e * d - gain + _BRACKET_ROUNDING * (1.0 + spread) * size)
    # Margins are rounded too: what that may do to the surrogate and to the loss of an alpha.
    scale = abs(s[label] - top) + rest + (1.0 + spread) * abs(mean) + abs(m) + REACH
    slope = abs(e) + kappa * (abs(away) + 2.0 * abs(m - base))
    slope += weight * sigmoid(REACH - sign * o)
    bracket += _MARGIN_ROUNDING * scale * slope
    if kind != OFFSET and 2.0 * abs(x) < abs(o):
        # What clipping costs the alpha that it costs most, with this label; it may be a gain.
        far = math.copysign(REACH, o)
        clipped, whole = softplus(sign * (far - 2.0 * x)), softplus(sign * (far - o))
        row[CLIPPED] += weight * (clipped - whole)
        bracket += _MARGIN_ROUNDING * weight * (clipped + whole)

    r = e - 2.0 * kappa * (m - base)
    lost = REACH * REACH * (_add(row, A00, kappa * x * x) + 2.0 * _add(row, A01, kappa * x))
    lost += REACH * REACH * _add(row, A11, kappa)
    lost += REACH * (_add(row, G0, r * x) + _add(row, G1, r))
    if y != label:  # the share of y among the classes that are not l
        loss += rest - (s[y] - top)
        lost += _MARGIN_ROUNDING * weight * _MAX_EXPONENT * rest
    lost += _MARGIN_ROUNDING * weight * loss
    lost += _add(row, LOSS, weight * loss)
    _add(row, BRACKET, bracket + lost + _MARGIN_ROUNDING * abs(row[BRACKET]))
    return loss


@kernel
def _add(row, at, term):
    """Add a term to a number of the row; return what rounding has left out of the sum."""
    before = row[at]
    row[at] = before + term
    added = row[at] - before
    return abs((before - (row[at] - added)) + (term - added))


@kernel
def learn_regressions(rows, kind, clip, scores, labels, y, weight):
    """Move all N regressions, with scores (N+1, K): row i is what regression i was given."""
    sigma = np.empty(scores.shape[1])
    for i in range(rows.shape[0]):
        softmax(scores[i].copy(), sigma)
        wrong = _others(sigma, y)
        rows[i, GAINED] += weight * (wrong if labels[i] == y else -sigma[labels[i]])
        rows[i, TRIED] += weight * wrong
        learn_regression(rows[i], kind, clip, scores[i], labels[i], y, weight)


@kernel
def _others(sigma, y):
    """Return 1 - sigma_y without cancellation."""
    return sigma[:y].sum() + sigma[y + 1 :].sum()


@kernel
def logistic_costs(s):
    """Return the cost matrix (K, K) of AdaBoost.OLM++; row y has the L1 norm 1 - sigma_y."""
    K = s.shape[0]
    C = np.empty((K, K))
    sigma = np.empty(K)
    softmax(s.copy(), sigma)
    for y in range(K):
        wrong = _others(sigma, y)
        for k in range(K):
            C[y, k] = (sigma[k] + wrong) / K
        C[y, y] = 0.0
    return C


@kernel
def softmin(losses):
    """Return weights proportional to exp(-losses)."""
    weights = np.exp(losses.min() - losses)
    return weights / weights.sum()


@kernel
def mix_prefixes(scores, losses):
    """Return the Bayes mixture (K,) of softmax(scores[i]), i = 1..N."""
    weights, sigma = softmin(losses), np.empty(scores.shape[1])
    p = np.full(scores.shape[1], FLOOR)
    for i in range(losses.shape[0]):
        softmax(scores[i + 1].copy(), sigma)
        p += weights[i] * sigma
    return p


@kernel
def score_prefixes(scores, y, weight, losses, mistakes):
    """Add the round to the losses and mistakes (N,) of the prefixes; return the mixture's loss."""
    loss = -math.log(mix_prefixes(scores, losses)[y])
    sigma = np.empty(scores.shape[1])
    for i in range(losses.shape[0]):
        z = scores[i + 1].copy()
        log_total = softmax(z, sigma)
        losses[i] += weight * (log_total - z[y])
        if np.argmax(z) != y:  # ties go to the lowest class
            mistakes[i] += weight
    return loss


# Of the variance of a feature: a class in which the feature has not varied yet would else be
# the more certain of it the more examples it has, and every constant feature would vote for
# the most frequent class.
_MIN_VARIANCE_SHARE = 0.1


@kernel
def add_moments(mass, mean, spread, x, y, weight):
    """Add one example to the mass (K,), mean (K, d) and sum of squares around it (K, d)."""
    mass[y] += weight
    away = x - mean[y]
    mean[y] += weight / mass[y] * away
    spread[y] += weight * away * (x - mean[y])


@kernel
def class_probabilities(mass, mean, spread, x, p):
    """Write the posterior into p (K,), with the imagined examples of `NaiveBayes`."""
    K, d = mean.shape
    n = mass.sum()
    for k in range(K):
        p[k] = math.log((mass[k] + 1.0) / (n + K))
    for j in range(d):
        centre = 0.0
        for k in range(K):
            centre += mass[k] * mean[k, j]
        centre /= n + 1.0
        variance = 1.0 + centre * centre
        for k in range(K):
            variance += spread[k, j] + mass[k] * (mean[k, j] - centre) ** 2
        variance /= n + 1.0
        for k in range(K):
            share = mass[k] / (mass[k] + 1.0)
            away = mean[k, j] - centre
            of_class = (variance + spread[k, j]) / (mass[k] + 1.0)
            of_class += share * away * away / (mass[k] + 1.0)
            of_class = max(of_class, _MIN_VARIANCE_SHARE * variance)
            gap = x[j] - centre - share * away
            p[k] -= 0.5 * (math.log(of_class) + gap * gap / of_class)
    softmax(p, p)
