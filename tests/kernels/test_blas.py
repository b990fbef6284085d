import copy
import pickle

import numpy as np
from numba import njit
from threadpoolctl import threadpool_info, threadpool_limits

from folklearn import Folklore
from folklearn.kernels import blas
from folklearn.learners import folklore


@njit
def syrk(n, k, alpha, A, C):
    blas.syrk(blas.PLAIN, n, k, alpha, A, 0, n, C, 0, n)


@njit
def symm(m, n, A, B, C):
    blas.symm(m, n, A, 0, m, B, 0, m, C, 0, m)


@njit
def potrf(n, A):
    return blas.potrf(n, A, 0, n)


@njit
def potrs(n, nrhs, A, B):
    return blas.potrs(n, nrhs, A, 0, n, B, 0, n)


def threads():
    return [library.get_num_threads() for library in blas._blas_libraries(False)]


def test_small_problems_use_one_thread_and_the_setting_comes_back():
    with threadpool_limits(2):
        context = blas.one_thread(300, 10)
        assert context is not None
        with context:
            assert set(threads()) == {1}
        assert set(threads()) == {2}


def test_tiny_problems_are_left_alone():
    assert blas.one_thread(10, 1) is None


def test_numpys_own_blas_is_not_touched():
    names = [str(library.filepath) for library in blas._blas_libraries(False)]
    assert names
    assert not any("numpy.libs" in name for name in names)


def test_the_last_to_leave_restores_the_setting():
    one, other = blas.OneThread(everywhere=True), blas.OneThread()
    with threadpool_limits(2):
        before = threadpool_info()
        one.__enter__()
        other.__enter__()  # as in another thread of Python
        one.__exit__()
        assert set(threads()) == {1}
        other.__exit__()
        assert threadpool_info() == before


def test_an_update_runs_on_one_thread_and_restores_the_setting(monkeypatch, rng):
    model = Folklore(n_features=60, n_classes=6)
    seen = []
    kernel = folklore.update_round

    def spy(*arguments):
        seen.extend(threads())
        return kernel(*arguments)

    monkeypatch.setattr(folklore, "update_round", spy)
    with threadpool_limits(2):
        model.update(rng.normal(size=60), 1)
        assert set(seen) == {1}
        assert set(threads()) == {2}


def test_symmetric_product_and_update_use_one_triangle(rng):
    n, m = 7, 3
    half = rng.normal(size=(n, n))
    S = half @ half.T
    lower = np.tril(S)
    lower[np.triu_indices(n, 1)] = np.nan
    Y = rng.normal(size=(m, n))
    syrk(n, m, -1.0, Y, lower)
    np.testing.assert_allclose(np.tril(lower), np.tril(S - Y.T @ Y), atol=1e-12)

    lower = np.tril(S)
    lower[np.triu_indices(n, 1)] = np.nan
    out = np.empty((m, n))
    symm(n, m, lower, Y, out)
    np.testing.assert_allclose(out, Y @ S, atol=1e-11)


def test_square_sums_are_factored_and_solved_in_one_triangle(rng):
    n, m = 7, 12
    Y = rng.normal(size=(m, n))
    lower = np.eye(n)
    lower[np.triu_indices(n, 1)] = np.nan
    syrk(n, m, 1.0, Y, lower)
    A = np.eye(n) + Y.T @ Y
    np.testing.assert_allclose(np.tril(lower), np.tril(A), atol=1e-12)

    assert potrf(n, lower) == 0
    np.testing.assert_allclose(np.tril(lower), np.linalg.cholesky(A), atol=1e-12)
    B = rng.normal(size=(2, n))
    solved = B.copy()
    assert potrs(n, 2, lower, solved) == 0
    np.testing.assert_allclose(solved @ A, B, atol=1e-12)


def test_a_factor_says_where_a_matrix_stops_being_positive():
    A = np.diag([1.0, 1.0, -1.0])
    assert potrf(3, A) == 3


def test_a_learner_that_held_blas_to_one_thread_can_be_copied_and_pickled(rng):
    model = Folklore(n_features=100, n_classes=6)
    assert model._one_thread is not None
    X = rng.normal(size=(3, 100)) / 10
    with threadpool_limits(2):
        for label, x in enumerate(X):
            model.update(x, label)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(X[0]), model.predict(X[0]))
