"""A few passes give the best model and its proof; each pass is what its definition says."""

import numpy as np
import pytest

from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import refine
from folklearn.evidence.passes import passes_over
from folklearn.synthetic import OBLIVIOUS, separable
from tests.reference import evidence as dense
from tests.reference import hindsight as reference
from tests.reference.streams import soft_labels


def rows_of(X, y, weight=None, d=3, K=3):
    return passes_over(X, y, weight, n_features=d, n_classes=K)


@pytest.mark.parametrize("B", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("name", OBLIVIOUS)
def test_equals_the_reference(name, B, seed, rng):
    X, y = OBLIVIOUS[name](seed, 300, d=3, K=3)
    weight = rng.random(300) * 3 * (rng.random(300) < 0.7)
    for labels in (y, soft_labels(seed, y, 3)):
        _, loss, gap = reference.best_in_class(X, labels, B, 3, weight)
        for at in (None, rng.normal(size=(3, 3))):
            blocks = rows_of(X, labels, weight)
            found = refine(blocks, n_features=3, n_classes=3, B=B, at=at, tol=1e-7)
            assert found.converged
            assert found.n_passes <= 20
            assert np.linalg.norm(found.W, axis=1).max() <= B * (1 + 1e-12)
            assert found.at_least <= loss
            assert loss - gap <= found.loss * (1 + 1e-12)
            assert 0.0 <= found.gap <= 1e-7 * (1 + found.loss)
            assert found.at_least == pytest.approx(found.evidence.lower_bound(), rel=1e-12)


def test_a_pass_is_what_its_definition_says(seed, rng):
    X, y = OBLIVIOUS["stochastic"](seed, 120, d=3, K=3)
    weight, W = rng.random(120), rng.normal(size=(3, 3))
    Y, passes = soft_labels(seed, y, 3), []
    refine(
        rows_of(X, Y, weight), n_features=3, n_classes=3, B=3.0, at=W, tol=1e-12, most_passes=2,
        report=passes.append,
    )  # fmt: skip
    W /= np.maximum(1.0, np.linalg.norm(W, axis=1, keepdims=True) / 3.0)
    first, second = passes
    assert first.loss == pytest.approx(reference.total_loss(W, X, Y, weight), rel=1e-12)
    gamma = dense.curvatures(X, dense.centred(X @ W.T), 3.0)
    proof = dense.quadratic(X, Y, 3, at=W, gamma=gamma, weight=weight)
    # The library's gamma comes from a table that is lower in the seventh digit or so, and with it
    # the quadratic term, which is as large as the loss.
    floor = max(0.0, dense.floor(proof, 3.0)[0])
    assert first.at_least == pytest.approx(floor, abs=1e-5 * first.loss)
    assert first.gap == pytest.approx(first.loss - first.at_least)
    model = dense.quadratic(X, Y, 3, at=W, gamma=0.5, weight=weight)
    grad = reference.gradient(W, X, Y, weight)
    np.testing.assert_allclose(model.gradient(W).reshape(3, 3), grad, atol=1e-9)
    # The second pass is at the minimiser of the model, which the reference knows by its value.
    assert second.loss < first.loss


def test_separable_rows_and_blocks(seed):
    X, y = separable(seed, 200, d=3, K=3)
    whole = refine(rows_of(X, y), n_features=3, n_classes=3, B=1e3, tol=1e-6)
    assert whole.converged
    assert whole.loss < 1e-2
    calls = []

    def blocks():
        calls.append(1)
        return [(X[:50], y[:50]), (X[50:], y[50:])]

    rows, options = (rows_of(blocks, None), rows_of(X, y)), {"n_features": 3, "n_classes": 3}
    parts, once = (refine(one, **options, B=3.0, tol=1e-6) for one in rows)
    assert len(calls) == parts.n_passes
    assert parts.converged
    assert once.converged
    # Each ends anywhere within its own gap; what it proves holds for the other.
    assert parts.at_least <= once.loss
    assert once.at_least <= parts.loss
    # One pass at a given model is a sum, whatever the blocks.
    parts, once = (refine(one, **options, B=3.0, at=whole.W, most_passes=1) for one in rows)
    assert parts.loss == pytest.approx(once.loss, rel=1e-12)


def test_it_ends_where_rounding_begins(seed):
    X, y = OBLIVIOUS["stochastic"](seed, 300, d=3, K=3)
    found = refine(rows_of(X, y), n_features=3, n_classes=3, B=3.0, tol=1e-15)
    assert not found.converged
    assert found.n_passes < 40
    assert found.gap <= 1e-6
    few = refine(rows_of(X, y), n_features=3, n_classes=3, B=3.0, most_passes=2)
    assert (few.n_passes, few.converged) == (2, False)
    assert few.at_least <= found.loss <= few.loss


@pytest.mark.parametrize("at", [24, 34])
def test_a_class_that_hardly_binds_is_no_obstacle(at):
    X = np.random.default_rng(at).normal(size=(40, 3))
    sizes = {"n_features": 3, "n_classes": 5}  # of which one is ever seen
    found = refine(passes_over(X, np.zeros(40, int), None, **sizes), **sizes, B=1.0)
    assert found.converged
    assert found.n_passes < 8


def test_refusals():
    X, y = np.zeros((2, 1)), [0, 1]
    blocks = rows_of(X, y, d=1, K=2)
    for change, sentence in (
        ({"B": 0.0}, "B must be a positive number"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"most_passes": 0}, "most_passes must be at least 1"),
        ({"at": [[1.0]]}, "at has shape"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            refine(blocks, **{"n_features": 1, "n_classes": 2, "B": 1.0} | change)
    with pytest.raises(InvalidInputError, match="row 0 of X has nan"):
        rows_of(X + np.nan, y, d=1, K=2)
    broken = rows_of(lambda: [(X, [0, 5])], None, d=1, K=2)
    with pytest.raises(InvalidInputError, match=r"label y\[1\] is 5"):
        refine(broken, n_features=1, n_classes=2, B=1.0)
