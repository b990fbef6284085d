"""One round in k = K - 1 coordinates: its prediction, its surrogate, and what it adds to totals.

Seen through a context, the state says that a model's reduced logits have mean -q/2 and inverse
curvature C. From there

- the *explicit* rule (FOLKLORE, AIOLI) solves u = h - pull C Q'softmax(Qu) with
  h = -q/2 + Q'diag(QCQ')/4, predicts softmax(Qu) and expands the loss at that u;
- the *implicit* rules (GAF, Laplace) predict (1 - mu) E softmax(Qv) + mu/K over
  v ~ N(-q/2, C/2), by the given nodes (a single one at 0 gives softmax(Q E v)), and expand at
  the minimiser of the state plus the observed loss, which solves the same equation with
  h = -q/2 + (w/2) C Q'y, pull = w/2.

At the expansion point u (p = softmax(Q u), M = Q'(diag p - pp')Q = rho rho') the loss is
replaced by its quadratic lower bound with curvature gamma:

    e = w Q'(p - y)                     gradient of the loss
    r = e - 2 gamma w M u               gradient of the surrogate at the origin
    Gamma = V V' = rho (I/(gamma w) + rho'C rho)^-1 rho'
    a = r - Gamma (q + C r)

and the n-sized state follows by theta += P a, S -= (P V)(P V)'.
The paper's Algorithm 1 prints r = e; without the second term regret is linear.

All work on two small arrays, which a caller fills with C and q: squares (N_SQUARES, k, k)
and vectors (N_VECTORS, K), whose entries are named below. Vectors of k leave the last entry.
"""

import math

import numpy as np

from folklearn.kernels import simplex
from folklearn.kernels.compile import inner_kernel, shared_kernel
from folklearn.kernels.curvature import valid_curvature
from folklearn.kernels.experts import FLOOR, loss_of, target

# What the rounds add up to, by position in the totals array. The last three count rounds:
# with a curvature that was not valid, with an unsolved fixed point, that cost the state its
# digits.
N_TOTALS = 6
LOSS, BRACKET, ROUNDS, OVERCURVED, UNSOLVED, IMPRECISE = range(N_TOTALS)

# What a learner fixes, by position in the constants array. GAMMA 0 means the largest valid.
N_CONSTANTS = 7
B_AT, GAMMA, PULL, MU, MAX_NORM, LAM, RULE = range(N_CONSTANTS)

# The rules, as RULE has them.
EXPLICIT, IMPLICIT = 0.0, 1.0

N_SQUARES = 3
C_AT, V_AT, _SCRATCH = range(N_SQUARES)

# A_AT holds h before the fixed point is solved. _WORK and the rows behind it are scratch.
N_VECTORS = 16
Q_AT, A_AT, PREDICTED, U_AT, Z_AT, P_AT, G_AT, SCALE, TAIL, INFO, _WORK = range(11)
LOG_TOTAL, STEPS = 0, 1  # within INFO: logsumexp(z), and the steps of Newton's method

MAX_STEPS = 500  # as many mean that u is not the solution
_SMALL_STEP = 1e-6  # logits; Newton squares the error, so after such a step it is near 1e-12
_SAFE_STEP = 0.2  # squared length; the Hessian changes by less than a factor 2 along it
_NOISE = 16.0 * 2.2e-16  # S is known to this times 1/lam, theta to this times its norm
_SUM_ROUNDING = 2e-15  # of a sum of k products, relative to the sum of their sizes
_MAX_SHRINKAGE = 1e9  # of S along x in one round; digits beyond that are cancelled
_MAX_NOISE = 1e-3  # of gamma w C; more would be visible in the pivots


@inner_kernel
def small_arrays(k):
    """Return squares and vectors for one round."""
    return np.zeros((N_SQUARES, k, k)), np.zeros((N_VECTORS, k + 1))


@inner_kernel
def log_loss(z, log_total, label, soft):
    """Return logsumexp(z) - <y, z>; label < 0 means that soft (K,) holds y."""
    if label >= 0:
        return log_total - z[label]
    score = 0.0
    for i in range(z.shape[0]):
        score += soft[i] * z[i]
    return log_total - score


@shared_kernel("void(vector, matrix, cube, matrix)", fast=True)
def predict_from_state(constants, nodes, squares, vectors):
    """Write the prediction into its row, from C and q."""
    q, h, predicted, p = vectors[Q_AT], vectors[A_AT], vectors[PREDICTED], vectors[P_AT]
    if constants[RULE] == IMPLICIT:
        _predict_integral(constants[MU], nodes, squares, vectors)
        return
    simplex.expanded_diagonal(squares[C_AT], p)
    simplex.reduce_classes(p, h)
    for i in range(squares.shape[1]):
        h[i] = 0.25 * h[i] - 0.5 * q[i]
    solve_fixed_point(constants[PULL], squares, vectors)
    for i in range(predicted.shape[0]):
        predicted[i] = p[i]


@shared_kernel("f8(vector, cube, matrix, i8, vector, f8, f8, f8, vector)", fast=True)
def learn(constants, squares, vectors, label, soft, weight, length, mean, totals):
    """Expand the loss of the predicted round; leave V and a for the state; return the loss.

    From |x|, length, and |theta|, mean, follows how well C and q are known.
    """
    z, info = vectors[Z_AT], vectors[INFO]
    loss = 0.0
    if constants[RULE] != EXPLICIT:
        loss = loss_of(vectors[PREDICTED], label, soft)
        _solve_implicit_point(label, soft, weight, squares, vectors)
    at_point = log_loss(z, info[LOG_TOTAL], label, soft)
    if constants[RULE] == EXPLICIT:
        loss = at_point

    reach = 2.0 * constants[B_AT] * length
    gamma = valid_curvature(z, reach)
    if constants[GAMMA] > 0.0:
        # Without reach or weight the round says nothing about any model.
        if constants[GAMMA] > gamma and reach > 0.0 and weight > 0.0:
            totals[OVERCURVED] += 1.0
        gamma = constants[GAMMA]
    noise_C, noise_q = _NOISE * length * length / constants[LAM], _NOISE * length * mean
    bracket, n_lost = expand_surrogate(
        label, soft, weight, gamma, noise_C, noise_q, squares, vectors
    )
    totals[LOSS] += weight * loss
    totals[BRACKET] += weight * (loss - at_point) + bracket
    totals[ROUNDS] += 1.0
    totals[UNSOLVED] += info[STEPS] == MAX_STEPS
    totals[IMPRECISE] += n_lost > 0
    return loss


@shared_kernel("i8(matrix, vector, f8, f8)", fast=True)
def cholesky(A, inverse, floor, tolerance):
    """Factor A = LL' in place, surviving rounding; write 1/diagonal of L into inverse.

    Reads the lower triangle; leaves L below and L' above the diagonal. Pivots below `floor` are
    raised to it, return how many by more than rounding; columns whose pivot is at most `tolerance`
    times the diagonal are set to zero.
    """
    n_raised = 0
    for i in range(A.shape[0]):
        row = A[i]
        diagonal = row[i]
        for j in range(i):
            entry = row[j] * inverse[j]
            above = A[j]
            row[j] = entry
            above[i] = entry
            for m in range(j + 1, i + 1):
                row[m] -= entry * above[m]
        pivot = row[i]
        if pivot < floor:
            n_raised += pivot < floor - 1e-6
            pivot = floor
        row[i] = math.sqrt(pivot) if pivot > tolerance * diagonal else 0.0
        inverse[i] = 1.0 / row[i] if row[i] > 0.0 else 0.0
    return n_raised


@shared_kernel("void(f8, cube, matrix)", fast=True)
def solve_fixed_point(pull, squares, vectors):
    """Solve u = h - pull C Q'softmax(Q u); leave u, z = Q u, p = softmax(z), the factor of M.

    With pull C = J J', u = h - J v, the strongly convex |v|^2/2 + logsumexp(Q(h - J v)) is least.
    """
    k = squares.shape[1]
    C, J, h, info = squares[C_AT], squares[V_AT], vectors[A_AT], vectors[INFO]
    u, z, p, inverse = vectors[U_AT], vectors[Z_AT], vectors[P_AT], vectors[_WORK + 5]
    v, dv, du = vectors[_WORK], vectors[_WORK + 1], vectors[_WORK + 2]
    for i in range(k):
        for j in range(i + 1):
            J[i, j] = pull * C[i, j]
        u[i] = h[i]
        v[i] = 0.0
    cholesky(J, inverse, 0.0, 1e-14 * k)
    info[STEPS] = 0.0
    converged = False
    while True:
        simplex.expand_classes(u, z)
        info[LOG_TOTAL] = simplex.softmax(z, p)
        simplex.multinomial_factor(p, vectors[G_AT], vectors[SCALE], vectors[TAIL])
        if converged or info[STEPS] == MAX_STEPS:
            return
        decrement, size, length = _find_newton_step(squares, vectors)
        if not size < math.inf:  # lost to rounding; this iterate is as good as any
            info[STEPS] = MAX_STEPS
            return
        info[STEPS] += 1.0
        converged = size <= _SMALL_STEP**2 or decrement <= 1e-20 * (1.0 + length)
        t = 1.0
        if not converged and size > _SAFE_STEP:
            t = _search_line(k, decrement, vectors)
        for i in range(k):
            u[i] += t * du[i]
            v[i] += t * dv[i]


@shared_kernel("Tuple((f8, f8, f8))(cube, matrix)", fast=True)
def _find_newton_step(squares, vectors):
    """Write Newton's steps of v and u; return gradient' Hessian^-1 gradient, |du|^2 and |v|^2.

    The Hessian of f is I + (rho'J)'(rho'J): rho from `simplex` is upper and J lower triangular, so
    rho'J is lower triangular and costs O(k^2) to form.
    """
    k = squares.shape[1]
    J, H = squares[V_AT], squares[_SCRATCH]
    g, scale, tail = vectors[G_AT], vectors[SCALE], vectors[TAIL]
    v, dv, du = vectors[_WORK], vectors[_WORK + 1], vectors[_WORK + 2]
    row, prefix, inverse = vectors[_WORK + 3], vectors[_WORK + 4], vectors[_WORK + 5]
    for i in range(k):
        for j in range(i):
            H[i, j] = 0.0
        H[i, i] = 1.0
        prefix[i] = 0.0
    for m in range(k):
        for j in range(m + 1):
            row[j] = scale[m] * J[m, j] + tail[m] * prefix[j]
            prefix[j] += g[m] * J[m, j]
        for i in range(m + 1):
            factor = row[i]
            for j in range(i + 1):
                H[i, j] += factor * row[j]
    cholesky(H, inverse, 1.0, 0.0)

    decrement = 0.0
    for i in range(k):
        gradient = v[i]
        for j in range(i, k):
            gradient -= J[i, j] * g[j]
        for j in range(i):
            gradient += H[i, j] * dv[j]
        dv[i] = -gradient * inverse[i]
        decrement += dv[i] * dv[i]
    for i in range(k - 1, -1, -1):
        total = dv[i]
        for j in range(i + 1, k):
            total -= H[i, j] * dv[j]
        dv[i] = total * inverse[i]
    size, length = 0.0, 0.0
    for i in range(k):
        total = 0.0
        for j in range(i + 1):
            total -= J[i, j] * dv[j]
        du[i] = total
        size += total * total
        length += v[i] * v[i]
    return decrement, size, length


@shared_kernel("f8(i8, f8, matrix)", fast=True)
def _search_line(k, decrement, vectors):
    """Return a step length in (0, 1] along which f of `solve_fixed_point` decreases.

    f is convex: it decreases where its slope is negative. f itself cancels when logits are huge.
    """
    u, z, p = vectors[U_AT], vectors[Z_AT], vectors[P_AT]
    v, dv, du, trial = (
        vectors[_WORK], vectors[_WORK + 1], vectors[_WORK + 2], vectors[_WORK + 3],
    )  # fmt: skip
    low, high, t = 0.0, 1.0, 1.0
    for _ in range(100):
        for i in range(k):
            trial[i] = u[i] + t * du[i]
        simplex.expand_classes(trial, z)
        simplex.softmax(z, p)
        simplex.reduce_classes(p, trial)
        slope = 0.0
        for i in range(k):
            slope += (v[i] + t * dv[i]) * dv[i] + trial[i] * du[i]
        if slope > 0.0:
            high = t
        elif t == 1.0 or slope >= -0.5 * decrement:
            return t
        else:
            low = t
        t = 0.5 * (low + high)
    return t


@shared_kernel("Tuple((f8, i8))(i8, vector, f8, f8, f8, f8, cube, matrix)", fast=True)
def expand_surrogate(label, soft, weight, gamma, noise_C, noise_q, squares, vectors):
    """Write V (by columns, so as V' in C order) and a for one round with its label.

    Return the bracket, w l(u, y) minus the growth of the surrogate minimum plus an allowance for
    rounding, noise_C and noise_q to first order, which holds for any u; and n_lost, 0 unless
    rounding destroys the state. Where nothing finite could be learned V and a are 0.
    """
    k = squares.shape[1]
    C, V, curvature = squares[C_AT], squares[V_AT], gamma * weight
    q, a, u = vectors[Q_AT], vectors[A_AT], vectors[U_AT]
    e, r, away, b = (
        vectors[_WORK + 1], vectors[_WORK + 2], vectors[_WORK + 3], vectors[_WORK + 4],
    )  # fmt: skip
    _write_gradients(label, soft, weight, curvature, vectors)
    largest, n_negative = _write_factor(curvature, squares, vectors)
    n_lost = 1 if curvature * noise_C > _MAX_NOISE else 0
    n_lost += largest > _MAX_SHRINKAGE
    bracket, size = 0.0, 0.0
    for i in range(k):
        total_e = 0.0
        total_r = 0.0
        for j in range(k):
            total_e += C[i, j] * e[j]
            total_r += C[i, j] * r[j]
        b[i] = q[i] + total_r
        a[i] = r[i]
        beta = -2.0 * u[i] - q[i]
        bracket += e[i] * (total_e - 2.0 * beta)
        size += abs(e[i]) * (abs(total_e) + 2.0 * abs(beta))
        away[i] = beta - total_e
    for c in range(k):
        along_b = 0.0
        along_away = 0.0
        blur = 0.0
        for j in range(c + 1):
            along_b += V[c, j] * b[j]
            along_away += V[c, j] * away[j]
            blur += abs(V[c, j] * away[j])
        certain = max(0.0, abs(along_away) - _SUM_ROUNDING * (k + 8) * blur)
        bracket -= certain * certain
        size += certain * certain
        for j in range(c + 1):
            a[j] -= along_b * V[c, j]
            e[j] += along_away * V[c, j]  # the derivative of the bracket in C and q
    slope = 0.0
    total = 0.0
    for i in range(k):
        slope += abs(e[i])
        total += abs(a[i])
    allowance = _SUM_ROUNDING * (k + 8) * largest * size + slope * (slope * noise_C + 2.0 * noise_q)
    if n_negative > 0 or not math.isfinite(bracket + allowance + total):
        for i in range(k):  # lost to rounding: learn nothing, and say so
            a[i] = 0.0
            for j in range(k):
                V[i, j] = 0.0
        return 0.0, 1
    return 0.25 * (bracket + allowance), n_lost


@shared_kernel("void(i8, vector, f8, f8, matrix)", fast=True)
def _write_gradients(label, soft, weight, curvature, vectors):
    """Write e and r."""
    u, p, g, scale, tail = (
        vectors[U_AT], vectors[P_AT], vectors[G_AT], vectors[SCALE], vectors[TAIL],
    )  # fmt: skip
    difference, e, r, b = vectors[_WORK], vectors[_WORK + 1], vectors[_WORK + 2], vectors[_WORK + 4]
    k = p.shape[0] - 1
    for i in range(k + 1):
        difference[i] = p[i] - target(label, soft, i)
    simplex.reduce_classes(difference, e)
    simplex.factor_transpose_times(k, g, scale, tail, u, b)
    simplex.factor_times(k, g, scale, tail, b, b)
    for i in range(k):
        e[i] *= weight
        r[i] = e[i] - 2.0 * curvature * b[i]


@shared_kernel("Tuple((f8, i8))(f8, cube, matrix)", fast=True)
def _write_factor(curvature, squares, vectors):
    """Write V; return the largest pivot and how many were negative."""
    k = squares.shape[1]
    C, V, N = squares[C_AT], squares[V_AT], squares[_SCRATCH]
    g, scale, tail = vectors[G_AT], vectors[SCALE], vectors[TAIL]
    prefix, inverse = vectors[_WORK], vectors[_WORK + 5]
    # N = I + curvature rho'C rho in O(k^2), through V = C rho.
    for i in range(k):
        simplex.factor_transpose_times(k, g, scale, tail, C[i], V[i])
        prefix[i] = 0.0
    largest = 1.0
    for i in range(k):
        for j in range(k):
            N[i, j] = curvature * (scale[i] * V[i, j] + tail[i] * prefix[j])
            prefix[j] += g[i] * V[i, j]
        N[i, i] += 1.0
        largest = max(largest, N[i, i])
    n_negative = cholesky(N, inverse, 1.0, 0.0)
    # The rows of V' are those of L^-1 for N = LL', times sqrt(curvature) rho.
    root = math.sqrt(curvature)
    for i in range(k):
        row = V[i]
        for j in range(i):
            row[j] = 0.0
        for m in range(i):
            factor = N[i, m]
            for j in range(m + 1):
                row[j] -= factor * V[m, j]
        for j in range(i):
            row[j] *= inverse[i]
        row[i] = inverse[i]
    for c in range(k):
        row = V[c]
        simplex.factor_times(c + 1, g, scale, tail, row, row)
        for j in range(c + 1):
            row[j] *= root
    return largest, n_negative


@shared_kernel("void(i8, vector, f8, cube, matrix)")
def _solve_implicit_point(label, soft, weight, squares, vectors):
    """Solve for the minimiser of the state plus the weighted loss of the observed label."""
    k = squares.shape[1]
    q, h = vectors[Q_AT], vectors[A_AT]
    full, reduced = vectors[_WORK], vectors[_WORK + 1]
    for i in range(k + 1):
        full[i] = target(label, soft, i)
    simplex.reduce_classes(full, reduced)
    for i in range(k):
        total = 0.0
        for j in range(k):
            total += squares[C_AT, i, j] * reduced[j]
        h[i] = 0.5 * (weight * total - q[i])
    solve_fixed_point(0.5 * weight, squares, vectors)


@shared_kernel("void(f8, matrix, cube, matrix)", fast=True)
def _predict_integral(mu, nodes, squares, vectors):
    """Predict (1 - mu) mean softmax(Q v) + mu/K over v = -q/2 + J node, JJ' = C/2."""
    n_nodes, k = nodes.shape
    C, J, q, out = squares[C_AT], squares[V_AT], vectors[Q_AT], vectors[PREDICTED]
    v, z, p, inverse = vectors[_WORK], vectors[Z_AT], vectors[P_AT], vectors[_WORK + 1]
    for i in range(k):
        for j in range(i + 1):
            J[i, j] = 0.5 * C[i, j]
    cholesky(J, inverse, 0.0, 1e-14 * k)
    out[:] = 0.0
    for m in range(n_nodes):
        for i in range(k):
            total = -0.5 * q[i]
            for j in range(i + 1):
                total += J[i, j] * nodes[m, j]
            v[i] = total
        simplex.expand_classes(v, z)
        simplex.softmax(z, p)
        for i in range(k + 1):
            out[i] += p[i]
    for i in range(k + 1):
        out[i] = max((1.0 - mu) * out[i] / n_nodes + mu / (k + 1.0), FLOOR)
