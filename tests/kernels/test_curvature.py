import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.kernels import curvature
from folklearn.kernels.simplex import softmax
from tests.reference import curvature as reference

REACHES = [0.0, 1e-6, 0.05, 0.1, 0.5, 1.0, 2.0, 3.7, 8.0, 16.0, 32.0, 100.0, 600.0]


@pytest.mark.parametrize(
    ("L", "value"),
    [(0.5, 0.49318), (1, 0.47411), (2, 0.41369), (4, 0.28877), (8, 0.15533), (32, 0.03485)],
)
def test_known_values(L, value):
    assert curvature.gamma_star(L)[0] == pytest.approx(value, abs=6e-6)


@pytest.mark.parametrize("L", REACHES)
def test_lookup_is_below_the_truth_and_close_to_it(L):
    truth = reference.gamma_star(L)
    looked_up = curvature.gamma_star_below(L)
    assert looked_up <= truth
    assert looked_up >= truth * (1.0 - 1e-4)


@given(st.floats(0.0, 1e15))
def test_lookup_is_never_above_the_direct_minimum(L):
    looked_up = curvature.gamma_star_below(L)
    direct = curvature.gamma_star(L)[0]
    assert direct * (1.0 - 1e-4) <= looked_up <= direct
    assert looked_up >= (1.0 - 1e-11) / (2.0 + L)


def test_the_inverse_is_convex_with_slope_at_most_one():
    """What makes interpolation safe."""
    nodes, inverses = curvature.NODES, curvature.INVERSES
    slopes = np.diff(inverses) / np.diff(nodes)
    bend = np.diff(slopes)
    resolved = nodes[1:-1] > 0.5  # below, differences of neighbours are rounding
    assert (bend[resolved] > -1e-9).all()
    assert slopes.max() <= 1.0 + 1e-9


def surrogate_above_loss(z, z_t, gamma):
    """How far the surrogate expanded at z_t lies above the loss at z; the label cancels."""
    return -reference.surrogate_gap(z, z_t, np.eye(z.size)[0], gamma)


@given(
    K=st.integers(2, 6),
    B=st.sampled_from([0.1, 1.0, 5.0, 20.0]),
    spread=st.sampled_from([0.1, 1.0, 10.0, 50.0]),
    seed=st.integers(0, 10**6),
)
def test_the_chosen_curvature_is_valid(K, B, spread, seed):
    rng = np.random.default_rng(seed)
    z_t = spread * rng.normal(size=K)
    gamma = curvature.valid_curvature(z_t, 2.0 * B)
    corners = rng.choice([-B, B], size=(40, K))
    inside = rng.uniform(-B, B, size=(40, K))
    for z in np.concatenate([corners, inside]):
        assert surrogate_above_loss(z, z_t, gamma) <= 1e-9 * (1.0 + abs(z_t).max())


@pytest.mark.parametrize("K", [20, 50])
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0, 6.0])
def test_the_chosen_curvature_is_valid_for_many_classes(K, spread):
    """There the self-concordant constant wins, which must know how far apart the logits are."""
    for B in (0.05, 0.3, 1.0, 3.0):
        for high in (1, K // 2, K - 1):  # classes that stand above the others
            z_t = np.zeros(K)
            z_t[:high] = spread
            gamma = curvature.valid_curvature(z_t.copy(), 2.0 * B)
            for up in (1, K // 2, K - 1):
                for z in (np.full(K, -B), np.full(K, B)):
                    z[:up] *= -1.0
                    assert surrogate_above_loss(z, z_t, gamma) <= 1e-12
                    assert surrogate_above_loss(z[::-1], z_t, gamma) <= 1e-12


def extremal_gap(K, B, gamma):
    """The largest violation over expansion points, against z = (-B, B, ..., B).

    The worst z_t gives K - 1 equal classes probability sigmoid(m) together.
    """
    z = np.full(K, B)
    z[0] = -B
    worst = -math.inf
    for m in np.linspace(0.0, 2 * B + math.log(K - 1), 2001):
        z_t = np.zeros(K)
        z_t[0] = math.log(K - 1) - m
        worst = max(worst, surrogate_above_loss(z, z_t, gamma))
    return worst


@pytest.mark.parametrize(("K", "B"), [(2, 1.0), (2, 5.0), (3, 2.0), (5, 4.0)])
def test_gamma_star_is_the_best_constant(K, B):
    reach = 2 * B + math.log(K - 1)
    assert extremal_gap(K, B, curvature.gamma_star(reach)[0]) <= 1e-9
    assert extremal_gap(K, B, curvature.gamma_star_below(reach)) <= 1e-9
    assert extremal_gap(K, B, 1.001 * curvature.gamma_star_below(reach)) > 1e-6


def test_the_papers_constant_is_not_valid():
    K, BR = 2, 10.0
    z, z_t = np.array([10.0, -10.0]), np.array([0.47, -0.47])
    papers = 1.0 / (BR + math.log(K) / 2.0)
    assert surrogate_above_loss(z, z_t, papers) == pytest.approx(2.07, abs=0.01)


@given(st.floats(0.0, 60.0), st.floats(0.01, 60.0))
def test_binary_constant_is_the_minimum_over_the_class(m, L):
    truth = min(reference.gamma_binary(m, L), 0.5)
    ours = curvature.binary_exact(m, L)
    assert ours <= truth * (1.0 + 1e-9)
    assert ours >= truth * (1.0 - 1e-6)
    assert curvature.binary_exact(-m, L) == ours


@pytest.mark.parametrize("m", [0.0, 5.0, 800.0, 1e6])
@pytest.mark.parametrize("L", [0.0, 1e-9, 5.0, 800.0, 1e6, 1e12])
def test_binary_constant_survives_extremes(m, L):
    assert 0.0 < curvature.binary_exact(m, L) < math.inf


@given(st.floats(0.0, 1e12))
def test_self_concordant_constant(D):
    assert curvature.self_concordant(D) == pytest.approx(reference.self_concordant(D), rel=1e-6)


def test_hessian_dominance_fails_for_three_classes():
    """The paper's last section, executed: dominance needs a constant of order exp(BR).

    For any regulariser with equal gradients on equal logits, v = e_1 - e_2 gives 1 on the
    left and sigma_1 + sigma_2 on the right at z = (0, 0, BR).
    """
    for BR in (2.0, 10.0, 20.0):
        sigma = np.empty(3)
        softmax(np.array([0.0, 0.0, BR]), sigma)
        hessian = np.diag(sigma) - np.outer(sigma, sigma)
        v = np.array([1.0, -1.0, 0.0])
        # Any gradient that is equal on equal logits: AIOLI's, a constant, an arbitrary one.
        for symmetric_gradient in (3.0 * sigma - 1.0, np.zeros(3), np.array([0.3, 0.3, -0.6])):
            shifted = sigma - np.array([1.0, 0.0, 0.0]) - symmetric_gradient
            left = np.outer(shifted, shifted) - np.outer(symmetric_gradient, symmetric_gradient)
            needed = (v @ left @ v) / (v @ hessian @ v)
            assert needed == pytest.approx(0.5 * math.exp(BR) + 1.0, rel=1e-6)


def test_the_exact_constant_for_two_classes_is_at_the_far_end(rng):
    """min over |l| <= L is at l = L for m >= 0, and 1/2 is valid when m is outside the reach."""
    m, L = rng.uniform(0, 40, size=400), 10.0 ** rng.uniform(-2, 2, size=400)
    there, back = reference.ratio(m, L), reference.ratio(m, -L)
    outside = m >= L
    assert (np.minimum(there, back)[outside] >= 0.5 - 1e-12).all()
    assert (there[~outside] <= back[~outside] * (1 + 1e-10)).all()


def test_the_curvature_constants_are_below_their_definitions(rng):
    """In 50 digits, with the shrinking that pays for the rounding of the point of expansion."""
    for L in 10.0 ** rng.uniform(-3, 3, size=20):
        with mp.workdps(60 + int(L)):
            far = mp.mpf(float(L))
            least = min(_ratio(far * k / 200, far) for k in range(200))
        assert curvature.gamma_star_below(L) <= least
    for _ in range(300):
        m, L = rng.uniform(0, 60), 10.0 ** rng.uniform(-4, 2)
        with mp.workdps(120):
            truth = min(_ratio(mp.mpf(m), mp.mpf(L)), _ratio(mp.mpf(m), -mp.mpf(L)), mp.mpf("0.5"))
        assert curvature.binary_exact(m, L) <= truth


def _ratio(m, far):
    gap = far - m
    s = 1 / (1 + mp.exp(-m))
    top = mp.log1p(mp.exp(far)) - mp.log1p(mp.exp(m)) - s * gap
    return top / (s * (1 - s) * gap**2)
