"""How a round is predicted, and where its loss is expanded: one state, three rules.

Seen through a context, the state says that a model's reduced logits have mean -q/2 and
inverse curvature C. From there

- the *explicit* rule (FOLKLORE, AIOLI) solves u = h - pull C Q'softmax(Qu) with
  h = -q/2 + Q'diag(QCQ')/4, predicts softmax(Qu) and expands the loss at that u;
- the *implicit* rules (GAF, Laplace) predict (1 - mu) E softmax(Qv) + mu/K over
  v ~ N(-q/2, C/2), by the given nodes, or (1 - mu) softmax(Q E v) + mu/K, and expand at the
  minimiser of the state plus the observed loss, which solves the same equation with
  h = -q/2 + (w/2) C Q'y, pull = w/2.

All work on two small arrays, which a caller fills with C and q: squares (N_SQUARES, k, k)
and vectors (N_VECTORS, K), whose entries are named below.
"""

import math

import numpy as np

from folklearn.kernels.compile import inline_kernel, inner_kernel, shared_kernel
from folklearn.kernels.curvature import valid_curvature
from folklearn.kernels.fixed_point import MAX_STEPS, cholesky, solve_fixed_point
from folklearn.kernels.simplex import expand_classes, expanded_diagonal, reduce_classes, softmax
from folklearn.kernels.surrogate import expand_surrogate, log_loss

# What the rounds add up to, by position in the totals array. The last three count rounds:
# with a curvature that was not valid, with an unsolved fixed point, that cost the state its
# digits.
N_TOTALS = 6
LOSS, BRACKET, ROUNDS, OVERCURVED, UNSOLVED, IMPRECISE = range(N_TOTALS)

# What a learner fixes, by position in the constants array. GAMMA 0 means the largest valid.
N_CONSTANTS = 7
B_AT, GAMMA, PULL, MU, MAX_NORM, LAM, RULE = range(N_CONSTANTS)

# The rules, as RULE has them.
EXPLICIT, AT_THE_MEAN, INTEGRAL = 0.0, 1.0, 2.0

_FLOOR = 1e-300  # no class gets less from an integral, so that every loss is finite
_NOISE = 16.0 * 2.2e-16  # S is known to this times 1/lam, theta to this times its norm

N_SQUARES = 3
C_AT, V_AT, _SCRATCH = range(N_SQUARES)

N_VECTORS = 16
Q_AT, A_AT, PREDICTED = 0, 1, 2
_U_AT, _Z_AT, _P_AT, _G_AT, _SCALE, _TAIL, _INFO, _WORK = range(3, 11)
_LOG_TOTAL, _STEPS = 0, 1  # within _INFO


@shared_kernel("void(vector, matrix, cube, matrix)")
def predict_from_state(constants, nodes, squares, vectors):
    """Write the prediction into its row, from C and q."""
    k = squares.shape[1]
    q, predicted, work = vectors[Q_AT, :k], vectors[PREDICTED], vectors[_WORK:]
    centre = vectors[A_AT, :k]
    if constants[RULE] == AT_THE_MEAN:
        _at_the_mean(q, constants[MU], predicted, work)
        return
    if constants[RULE] == INTEGRAL:
        _gaussian_mean(squares[C_AT], q, constants[MU], nodes, squares[V_AT], predicted, work)
        return
    expanded_diagonal(squares[C_AT], work[0])
    reduce_classes(work[0], centre)
    for i in range(k):
        centre[i] = 0.25 * centre[i] - 0.5 * q[i]
    _solve(centre, constants[PULL], squares, vectors)
    for i in range(k + 1):
        predicted[i] = vectors[_P_AT, i]


@shared_kernel("f8(vector, cube, matrix, i8, vector, f8, f8, f8, vector)")
def learn(constants, squares, vectors, label, soft, weight, length, mean, totals):
    """Expand the loss of the predicted round; leave V and a for the state; return the loss.

    length is |x| and mean is |theta|, from which follows how well C and q are known: S is
    made by subtraction from I/lam and cannot be better than its rounding. The bracket of
    the certificate is weight * loss minus the growth of the surrogate minimum, whatever was
    predicted and wherever the loss is expanded.
    """
    k = squares.shape[1]
    z, info = vectors[_Z_AT], vectors[_INFO]
    if constants[RULE] != EXPLICIT:
        loss = _implicit_loss(vectors[Q_AT, :k], vectors[PREDICTED], label, soft, vectors[_WORK:])
        _implicit_point(label, soft, weight, squares, vectors)
        surplus = weight * (loss - log_loss(z, info[_LOG_TOTAL], label, soft))
    else:
        loss = log_loss(z, info[_LOG_TOTAL], label, soft)
        surplus = 0.0

    reach = 2.0 * constants[B_AT] * length
    gamma = valid_curvature(z, reach)
    if constants[GAMMA] > 0.0:
        # Without reach or weight the round says nothing about any model.
        if constants[GAMMA] > gamma and reach > 0.0 and weight > 0.0:
            totals[OVERCURVED] += 1.0
        gamma = constants[GAMMA]
    bracket, n_lost = expand_surrogate(
        label, soft, weight, gamma, vectors[_U_AT, :k], vectors[_P_AT],
        vectors[_G_AT, :k], vectors[_SCALE, :k], vectors[_TAIL, :k],
        squares[C_AT], vectors[Q_AT, :k],
        _NOISE * length * length / constants[LAM], _NOISE * length * mean,
        squares[V_AT], vectors[A_AT, :k], squares[_SCRATCH], vectors[_WORK:],
    )  # fmt: skip
    totals[LOSS] += weight * loss
    totals[BRACKET] += surplus + bracket
    totals[ROUNDS] += 1.0
    totals[UNSOLVED] += info[_STEPS] == MAX_STEPS
    totals[IMPRECISE] += n_lost > 0
    return loss


@inline_kernel
def _solve(centre, pull, squares, vectors):
    k = squares.shape[1]
    log_total, steps = solve_fixed_point(
        centre, pull, squares[C_AT], vectors[_U_AT, :k], vectors[_Z_AT], vectors[_P_AT],
        vectors[_G_AT, :k], vectors[_SCALE, :k], vectors[_TAIL, :k],
        squares[V_AT], squares[_SCRATCH], vectors[_WORK:],
    )  # fmt: skip
    vectors[_INFO, _LOG_TOTAL] = log_total
    vectors[_INFO, _STEPS] = steps


@shared_kernel("void(i8, vector, f8, cube, matrix)")
def _implicit_point(label, soft, weight, squares, vectors):
    """Solve for the minimiser of the state plus the weighted loss of the observed label."""
    k = squares.shape[1]
    full, reduced = vectors[_WORK], vectors[_WORK + 1, :k]
    for i in range(k + 1):
        full[i] = soft[i] if label < 0 else 0.0
    if label >= 0:
        full[label] = 1.0
    reduce_classes(full, reduced)
    centre = vectors[A_AT, :k]
    for i in range(k):
        total = 0.0
        for j in range(k):
            total += squares[C_AT, i, j] * reduced[j]
        centre[i] = 0.5 * (weight * total - vectors[Q_AT, i])
    _solve(centre, 0.5 * weight, squares, vectors)


@shared_kernel("void(matrix, vector, f8, matrix, matrix, vector, matrix)", fast=True)
def _gaussian_mean(C, q, mu, nodes, J, out, work):
    """Write (1 - mu) mean softmax(Q v) + mu/K over v = -q/2 + J node, JJ' = C/2."""
    n_nodes, k = nodes.shape
    v, z, p, inverse = work[0, :k], work[1], work[2], work[3, :k]
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
        expand_classes(v, z)
        softmax(z, p)
        for i in range(k + 1):
            out[i] += p[i]
    for i in range(k + 1):
        out[i] = max((1.0 - mu) * out[i] / n_nodes + mu / (k + 1.0), _FLOOR)


@inner_kernel
def _logits_at_the_mean(q, z, work):
    """Write -Q q/2 into z."""
    k = q.shape[0]
    v = work[0, :k]
    for i in range(k):
        v[i] = -0.5 * q[i]
    expand_classes(v, z)


@shared_kernel("void(vector, f8, vector, matrix)")
def _at_the_mean(q, mu, out, work):
    """Write (1 - mu) softmax(-Q q/2) + mu/K."""
    K = out.shape[0]
    _logits_at_the_mean(q, work[1], work)
    softmax(work[1], out)
    for i in range(K):
        out[i] = (1.0 - mu) * out[i] + mu / K


@shared_kernel("f8(vector, vector, i8, vector, matrix)")
def _implicit_loss(q, p, label, soft, work):
    """Return -<y, ln p>; classes without mass in y cost nothing.

    Only the softmax at the mean gives a class less than the floor. Its logarithm is then taken
    from the logits, where it is finite, and the share of mu, if any, is not counted.
    """
    z, log_total = work[1], 0.0
    lowest = p[0]
    for i in range(1, p.shape[0]):
        lowest = min(lowest, p[i])
    if lowest < _FLOOR:
        _logits_at_the_mean(q, z, work)
        log_total = softmax(z, work[2])
    loss = 0.0
    for i in range(p.shape[0]):
        share = soft[i] if label < 0 else (1.0 if i == label else 0.0)
        if share > 0.0:
            loss += share * (log_total - z[i] if p[i] < _FLOOR else -math.log(p[i]))
    return loss


@inner_kernel
def small_arrays(k):
    """Return squares and vectors for one round."""
    return np.zeros((N_SQUARES, k, k)), np.zeros((N_VECTORS, k + 1))
