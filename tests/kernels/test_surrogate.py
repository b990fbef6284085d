"""The bracket of a round lies above its exact value, by each allowance alone."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from folklearn.kernels import prediction_rules as rules
from folklearn.kernels.simplex import helmert, multinomial_factor, softmax


def expand(soft, weight, gamma, u, p, C, q, noise_C=0.0, noise_q=0.0):
    k = len(u)
    squares, vectors = rules.small_arrays(k)
    squares[rules.C_AT], vectors[rules.P_AT] = C, p
    vectors[rules.U_AT, :k], vectors[rules.Q_AT, :k] = u, q
    multinomial_factor(p, vectors[rules.G_AT], vectors[rules.SCALE], vectors[rules.TAIL])
    bracket, n_lost = rules.expand_surrogate(
        -1, soft, weight, gamma, noise_C, noise_q, squares, vectors
    )
    return bracket, n_lost, squares[rules.V_AT], vectors[rules.A_AT, :k]


def exact_bracket(soft, weight, gamma, u, p, C, q):
    """The formula of docs/theory/folklore.md, section 4, in 50 digits."""
    K = len(p)
    with localcontext() as context:
        context.prec = 50
        Q = decimals(np.zeros((K, K - 1)))
        for j in range(1, K):
            root = Decimal(j * (j + 1)).sqrt()
            Q[:j, j - 1] = 1 / root
            Q[j, j - 1] = -j / root
        p, soft, u, C, q = (decimals(part) for part in (p, soft, u, C, q))
        weight, gamma = Decimal(float(weight)), Decimal(float(gamma))
        p = p / p.sum()
        M = Q.T @ (np.diag(p) - np.outer(p, p)) @ Q
        e = weight * (Q.T @ (p - soft))
        beta = -2 * u - q
        away = beta - C @ e
        # Gamma = gamma w M (I + gamma w C M)^-1, which needs no inverse of M.
        inner = solve(decimals(np.eye(K - 1)) + gamma * weight * (C @ M), away)
        return (e @ C @ e - 2 * (e @ beta) - gamma * weight * (away @ M @ inner)) / 4


def decimals(array):
    array = np.asarray(array, dtype=float)
    return np.array([Decimal(x) for x in array.ravel()], dtype=object).reshape(array.shape)


def solve(A, b):
    A, b = A.copy(), b.copy()
    n = len(b)
    for i in range(n):
        pivot = i + int(np.argmax([abs(x) for x in A[i:, i]]))
        A[[i, pivot]], b[[i, pivot]] = A[[pivot, i]], b[[pivot, i]]
        for r in range(i + 1, n):
            factor = A[r, i] / A[i, i]
            A[r], b[r] = A[r] - factor * A[i], b[r] - factor * b[i]
    for i in range(n - 1, -1, -1):
        b[i] = (b[i] - A[i, i + 1 :] @ b[i + 1 :]) / A[i, i]
    return b


def round_of(rng, k, size=1.0):
    half = rng.normal(size=(k, k))
    u, q = size * rng.normal(size=k), size * rng.normal(size=k)
    p = np.empty(k + 1)
    softmax(helmert(k + 1) @ u / size, p)
    return rng.dirichlet(np.ones(k + 1)), 1.0, 0.3, u, p, half @ half.T, q


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_bracket_is_the_exact_one(k, rng):
    for _ in range(10):
        given = round_of(rng, k)
        bracket, n_lost, _, _ = expand(*given)
        assert n_lost == 0
        assert bracket == pytest.approx(float(exact_bracket(*given)), abs=1e-10)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("size", [1.0, 1e3])
@pytest.mark.parametrize("gamma", [0.3, 1e-15])
def test_rounding_never_takes_it_below(k, size, gamma, rng):
    """Sums of k products round up or down; half of the brackets would lie below."""
    for _ in range(15):
        soft, weight, _, *rest = round_of(rng, k, size)
        given = soft, weight, gamma, *rest
        assert Decimal(float(expand(*given)[0])) >= exact_bracket(*given)


def test_rounding_of_what_cancels_along_v_never_takes_it_below(rng):
    """A label that says what was predicted, seen where the columns of V nearly cancel."""
    p = np.array([2.0**-46, 0.5, 0.5 - 2.0**-46])
    u, C = np.zeros(2), np.eye(2)
    V = expand(p, 1.0, 0.5, u, p, C, np.zeros(2))[2]
    for _ in range(40):
        q = np.array([-V[1, 1], V[1, 0]]) * 10.0 ** rng.uniform(3.0, 6.0) / V[1, 0]
        q *= 1.0 + 1e-9 * rng.normal(size=2)
        given = p, 1.0, 0.5, u, p, C, q
        assert Decimal(float(expand(*given)[0])) >= exact_bracket(*given)


@pytest.mark.parametrize("k", [1, 3])
def test_it_covers_what_is_not_known_of_c(k, rng):
    noise = 1e-6
    for _ in range(20):
        soft, weight, gamma, u, p, C, q = round_of(rng, k)
        covered = expand(soft, weight, gamma, u, p, C, q, noise)[0]
        for _ in range(20):
            off = noise * rng.choice([-1.0, 1.0], size=(k, k))
            off = np.tril(off) + np.tril(off, -1).T
            assert covered >= expand(soft, weight, gamma, u, p, C + off, q)[0] - 1e-10


@pytest.mark.parametrize("k", [1, 3])
def test_it_covers_what_is_not_known_of_q(k, rng):
    noise = 1e-6
    for _ in range(20):
        soft, weight, gamma, u, p, C, q = round_of(rng, k)
        covered = expand(soft, weight, gamma, u, p, C, q, 0.0, noise)[0]
        for _ in range(20):
            off = noise * rng.choice([-1.0, 1.0], size=k)
            assert covered >= expand(soft, weight, gamma, u, p, C, q + off)[0] - 1e-10


def test_a_round_is_lost_if_c_is_noise_at_its_curvature(rng):
    given = round_of(rng, 2)
    assert expand(*given, noise_C=1e-4)[1] == 0
    assert expand(*given, noise_C=1e-2)[1] == 1


def test_a_round_is_lost_if_it_costs_s_its_digits(rng):
    soft, weight, gamma, u, p, _, q = round_of(rng, 2)
    assert expand(soft, weight, gamma, u, p, 1e8 * np.eye(2), q)[1] == 0
    assert expand(soft, weight, gamma, u, p, 1e12 * np.eye(2), q)[1] == 1


def test_nothing_is_learned_from_a_negative_c(rng):
    soft, weight, gamma, u, p, C, q = round_of(rng, 2)
    bracket, n_lost, V, a = expand(soft, weight, gamma, u, p, -C, q)
    assert (bracket, n_lost) == (0.0, 1)
    np.testing.assert_array_equal(V, 0.0)
    np.testing.assert_array_equal(a, 0.0)
