"""Sparse rows are the same rows: in certifiers, evidence, scores and hindsight."""

import numpy as np
import pytest
import scipy.sparse as sp

from folklearn import Certifier, Evidence, LinearEvidence, best_in_class, load, progressive
from folklearn.errors import InvalidInputError
from folklearn.evaluate import logistic_regression, regress
from folklearn.evidence.lower_bound import CONSTANT_PENALTY
from folklearn.evidence.passes import passes_over
from folklearn.learners import catalogue
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.sparse import SparseRows
from tests.reference.loss import linear_losses


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 12), density=0.3, format="csr", rng=rng)
    W = 4.0 * rng.normal(size=(3, 12))
    y = np.argmax(X @ W.T + rng.gumbel(size=(300, 3)), axis=1)
    return X, y, rng.dirichlet(np.ones(3), size=300)


@pytest.fixture
def always_wide(monkeypatch):
    """No problem is small enough for pairs of classes."""
    monkeypatch.setattr(catalogue, "_MAX_PAIR_PRODUCTS", 0)
    monkeypatch.setattr(catalogue, "_MAX_BLOCK_ENTRIES", 0)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_rows_of_scipy(kind, rows):
    X = rows[0]
    own = SparseRows.of(kind(X))
    assert own.dense() == pytest.approx(X.toarray())
    assert own.norms() == pytest.approx(np.sqrt((X.toarray() ** 2).sum(axis=1)))
    assert own[5:17].dense() == pytest.approx(X.toarray()[5:17])
    assert own[5:17].norms() == pytest.approx(own.norms()[5:17])
    assert own[np.array([7, 3])].dense() == pytest.approx(X.toarray()[[7, 3]])
    assert (own[5:17] @ np.ones((12, 2)))[:, 0] == pytest.approx(X.toarray()[5:17].sum(axis=1))
    assert len(own[4:4]) == len(own[4:4].norms()) == 0


def test_rows_of_nothing_and_places_named_twice():
    X = sp.csr_array(([1.0, 2.0, 0.0, 3.0], [2, 2, 0, 1], [0, 2, 3, 3, 4]), shape=(4, 3))
    own = SparseRows.of(X)
    assert own.dense().tolist() == [[0, 0, 3], [0, 0, 0], [0, 0, 0], [0, 3, 0]]
    assert own.nnz == 2
    assert own.norms().tolist() == [3, 0, 0, 3]
    assert X.nnz == 4  # not changed


def test_evidence_certifier_windows_and_scores(rows):
    X, y, P = rows
    dense = X.toarray()
    sizes = {"n_features": 12, "n_classes": 3}
    found, solved = [], []
    for given in (X, dense):
        evidence = Evidence(**sizes)
        evidence.add(given, y)
        certifier = Certifier(**sizes)
        certifier.observe_many(given, y, P)
        scores = progressive(SparseSgd(**sizes), given, y)
        hindsight = best_in_class(given, y, B=5.0, n_classes=3)
        solved.append(hindsight)
        found.append(
            [
                evidence.lower_bound(),
                certifier.certificate().regret_bound,
                scores.loss,
            ]
        )
        assert hindsight.loss == pytest.approx(linear_losses(given, y, hindsight.W).sum())
        fit = logistic_regression(X, y, n_classes=3, tol=1e-8)
        assert certifier.exact(given, y, tol=1e-8).regret_bound == pytest.approx(
            certifier.loss - (fit.loss + fit.penalty), abs=1e-5
        )
    # Two searches for a floor may each end 1e-10 nats a row from it; there are 300 rows.
    assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-9 * 300)
    # And a solver anywhere within its gap: what it proves holds for the other.
    for one, other in (solved, solved[::-1]):
        assert one.at_least <= other.loss
    one = Certifier(**sizes)
    many = Certifier(**sizes)
    many.observe_many(X[:40], y[:40], P[:40])
    for t in range(40):
        own = slice(X.indptr[t], X.indptr[t + 1])
        one.observe((X.indices[own], X.data[own]), y[t], P[t])
    assert one.certificate().regret_bound == pytest.approx(many.certificate().regret_bound)


def test_what_is_wide_is_certified_by_first_order(rows, always_wide, tmp_path):
    X, y, P = rows
    sizes = {"n_features": 12, "n_classes": 3}
    certifier = Certifier(**sizes, C=0.1)
    certifier.observe_many(X, y, P)
    assert isinstance(certifier.evidence, LinearEvidence)
    fit = logistic_regression(X, y, n_classes=3, C=0.1)
    least = fit.loss + fit.penalty
    assert 0.5 * least < certifier.certificate().best_linear_at_least < least
    exact = certifier.exact(X, y, tol=1e-6)
    assert exact.best_linear_at_least == pytest.approx(least, abs=2e-6 * (1 + least))
    certifier.save(tmp_path / "c")
    for again in (Certifier.from_record(certifier.to_record()), load(tmp_path / "c")):
        assert again.certificate() == certifier.certificate()
    with pytest.raises(InvalidInputError, match="299 rows"):
        certifier.exact(X[1:], y[1:])


@pytest.mark.parametrize("constant", [None, 11])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_wide_regressions_find_what_narrow_ones_find(C, constant, rows, monkeypatch):
    X, y, _ = rows
    if constant is not None:
        X = sp.csr_array(sp.hstack([X[:, :11], np.ones((300, 1))]))
    weight = np.random.default_rng(1).integers(3, size=300).astype(float)
    sizes = {"n_features": 12, "n_classes": 3}
    narrow = logistic_regression(X, y, n_classes=3, weight=weight, C=C, constant=constant)
    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "_MAX_PAIR_PRODUCTS", 0)
        patch.setattr(catalogue, "_MAX_BLOCK_ENTRIES", 0)
        passes = []
        found = regress(
            passes_over(X, y, weight, **sizes),
            **sizes,
            C=C,
            constant=constant,
            report=passes.append,
        )
    tau = np.full(12, 1.0 / C)
    if constant is not None:
        tau[constant] *= CONSTANT_PENALTY
    loss = weight @ linear_losses(X, y, found.W)
    assert found.loss == pytest.approx(loss)
    assert found.penalty == pytest.approx(0.5 * (tau * found.W**2).sum())
    assert found.loss + found.penalty == pytest.approx(narrow.loss + narrow.penalty, rel=2e-6)
    assert found.gap <= 1e-6 * (1 + loss + found.penalty)
    assert found.at_least <= narrow.loss + narrow.penalty
    assert narrow.at_least <= found.loss + found.penalty
    assert passes[-1].gap == pytest.approx(found.gap)


def test_soft_labels_of_wide_rows(rows, always_wide):
    X, _, P = rows
    fit = logistic_regression(X, P, n_classes=3)
    assert fit.gap <= 1e-6 * (1 + fit.loss + fit.penalty)
    model = SparseSgd(n_features=12, n_classes=3)
    model.run(X, P)
    certificate = model.certificate()
    assert 0.0 < certificate.best_linear_at_least <= fit.loss + fit.penalty
    assert best_in_class(X, P, B=1.0, n_classes=3, tol=1e-6).converged


def test_complaints(rows):
    X, y, _ = rows
    model = SparseSgd(n_features=13, n_classes=3)
    with pytest.raises(InvalidInputError, match=r"X has shape \(300, 12\); expected"):
        model.run(X, y)
    with pytest.raises(InvalidInputError, match="real numbers, got dtype complex128"):
        SparseSgd(n_features=12, n_classes=3).run(X.astype(complex), y)
    bad = X.copy()
    bad.data[3] = np.nan
    with pytest.raises(InvalidInputError, match="row 1 of X has nan at feature"):
        SparseSgd(n_features=12, n_classes=3).predict(bad)


def test_indices_that_were_assigned_are_checked(rows):
    X, y, _ = rows
    for wrong in (-1, 12):
        bad = X.copy()
        bad.indices[4] = wrong
        with pytest.raises(InvalidInputError, match=f"names feature {wrong}; expected 0 to 11"):
            SparseSgd(n_features=12, n_classes=3).run(bad, y)


def test_steps_and_rows_that_are_too_long(rows):
    own = SparseRows.of(rows[0])
    assert own[::2].dense() == pytest.approx(rows[0].toarray()[::2])
    assert own[10:3].shape == (0, 12)
    large = sp.csr_array(([1e200], [3], [0, 1]), shape=(1, 12))
    with pytest.raises(InvalidInputError, match="too large for the arithmetic"):
        SparseSgd(n_features=12, n_classes=3).predict(large)


def test_passes_are_counted(rows, always_wide):
    X, y, _ = rows
    sizes = {"n_features": 12, "n_classes": 3}
    for most in (2, 5, 9):
        n_read = 0

        def source():
            nonlocal n_read
            n_read += 1
            yield X, y

        passes = []
        regress(
            passes_over(source, None, None, **sizes),
            **sizes,
            tol=1e-12,
            most_passes=most,
            report=passes.append,
        )
        assert passes[-1].number == n_read - 1  # one more for the sizes of the columns
        # Columns, and the two models of a first step, are always read.
        assert passes[-1].number <= max(most, 3)


def test_evidence_of_first_order_costs_what_occurs(rows):
    X, y, _ = rows
    wide = sp.csr_array((X.data, X.indices.astype(np.int64) * 2**35, X.indptr), (300, 2**40))
    tangents = LinearEvidence(n_features=2**40, n_classes=3, C=0.01)
    tangents.add(wide, y)
    assert tangents.lower_bound() > 0.0
    assert tangents.n_bytes < 10_000


def test_certifier_takes_rounds_without_weight(rows, always_wide):
    X, y, P = rows
    weight = np.ones(300)
    weight[5:20] = 0.0
    certifier = Certifier(n_features=12, n_classes=3)
    certifier.observe_many(X, y, P, weight)
    exact = certifier.exact(X, y, weight, tol=1e-4)
    assert exact.n_rounds == 300
    counted = weight > 0.0
    fit = logistic_regression(X[counted], y[counted], n_classes=3)
    assert exact.best_linear_at_least == pytest.approx(fit.at_least, rel=2e-4)
