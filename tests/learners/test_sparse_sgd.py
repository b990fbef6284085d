"""`SparseSgd` is its definition, whatever the rows are made of, and what it proves is true."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

import folklearn
from folklearn import LinearEvidence, SparseSgd
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate import logistic_regression
from folklearn.learners import sparse_sgd as module
from folklearn.learners.sparse_sgd import StackedSgd
from folklearn.serialization import Record
from folklearn.sparse import SparseRows, StackedRows
from folklearn.validation import Rows
from tests.reference import wide as reference
from tests.reference.loss import linear_losses


def words(seed, T, d=60, K=4, n=5):
    """Rows of a few words, some labels soft, weights from 0 to 1."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((T, d), density=n / d, format="csr", rng=rng)
    X.data[:] = rng.normal(size=X.nnz) / np.sqrt(n)
    W = 4.0 * rng.normal(size=(K, d))
    y = np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)
    return X, y, rng


@pytest.mark.parametrize(("R", "max_weight"), [(1.0, 1.0), (3.0, 7.0)])
@pytest.mark.parametrize("soft", [False, True])
def test_it_is_its_definition(R, max_weight, soft, monkeypatch):
    monkeypatch.setattr(module, "_FIRST_REVIEW", 64)
    X, y, rng = words(0, 300)
    X = R * X
    Y = rng.dirichlet(np.full(4, 0.3), size=300) if soft else np.eye(4)[y]
    w = max_weight * rng.integers(3, size=300) / 2.0
    slow = reference.SparseSgd(60, 4, R=R, max_weight=max_weight, first_review=64)
    fast = SparseSgd(n_features=60, n_classes=4, R=R, max_weight=max_weight)
    P = fast.run(X, Y if soft else y, weight=w)
    for t in range(300):
        x = X[[t]].toarray()[0]
        assert P[t] == pytest.approx(slow.predict(x), abs=1e-9)
        slow.learn(x, Y[t], w[t])
    assert fast.loss == pytest.approx(slow.loss, rel=1e-10)
    assert len(fast._experts) == len(slow.experts) < len(reference.EXPERTS)
    proven = fast.certificate().best_linear_at_least
    assert proven == pytest.approx(slow.floor(), rel=1e-8, abs=1e-8)


def test_words_on_top_of_another_model_are_their_definition(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_REVIEW", 64)
    X, y, rng = words(3, 300)
    rows, w = SparseRows.of(X), rng.integers(3, size=300) / 2.0
    of_words = np.where(rows.indices % 3 == 0, 0.0, 2.0 * rows.values)  # a third are no words
    bases = np.log(rng.dirichlet(np.ones(4), size=300) + 2.0 * np.eye(4)[y])
    stacked = StackedRows(rows, of_words, bases)
    slow = reference.SparseSgd(60, 4, first_review=64, experts=reference.STACKED, kept=3)
    fast = StackedSgd(n_features=60, n_classes=4)
    P = fast._run(Rows(stacked, y, np.empty((0, 0)), w), None)
    V = SparseRows(rows.indptr, rows.indices, of_words, 60).dense()
    for t in range(300):
        x, view = X[[t]].toarray()[0], (V[t], bases[t])
        assert P[t] == pytest.approx(slow.predict(x, *view), abs=1e-9)
        slow.learn(x, np.eye(4)[y[t]], w[t], *view)
    assert len(fast._experts) == len(slow.experts) < len(reference.STACKED)
    proven = fast.certificate().best_linear_at_least  # of all columns, whatever the base
    assert proven == pytest.approx(slow.floor(), rel=1e-8, abs=1e-8)
    which = np.arange(5, 300, 3)
    whole = fast._predict_batch(stacked)
    assert (fast._predict_batch(stacked[5:][which - 5]) == whole[which]).all()


def test_rows_dense_sparse_and_one_by_one_are_the_same_bytes():
    X, y, _ = words(1, 1500)
    X = X.copy()
    X.data[::7] = 0.0  # named, and 0 all the same
    whole, dense, loop = (SparseSgd(n_features=60, n_classes=4) for _ in range(3))
    P = whole.run(sp.csr_matrix(X), y)
    assert (dense.run(X.toarray(), y) == P).all()
    for t in range(len(y)):
        own = slice(X.indptr[t], X.indptr[t + 1])
        order = np.argsort(-X.indices[own], kind="stable")
        row = X.indices[own][order].tolist(), X.data[own][order].tolist()
        assert (loop.predict(row) == P[t]).all()
        loop.update(row, int(y[t]))
    assert (loop.predict(X[:9]) == whole.predict(X[:9].toarray())).all()
    assert loop.certificate() == whole.certificate() == dense.certificate()


def test_what_is_proven_is_true():
    for seed in range(25):
        rng = np.random.default_rng(seed)
        d, K, T = int(rng.integers(2, 30)), int(rng.integers(2, 6)), int(rng.integers(1, 80))
        X, _, rng = words(seed, T, d=d, K=K, n=min(d, 4))
        Y = rng.dirichlet(np.full(K, 0.5), size=T)
        w = rng.choice([0.0, 0.3, 1.0, 1000.0], size=T)
        model = SparseSgd(n_features=d, n_classes=K, max_weight=1000.0)
        model.run(X, Y, weight=w)
        best = logistic_regression(X, Y, n_classes=K, weight=w)
        proven = model.certificate()
        assert proven.valid
        assert proven.best_linear_at_least <= (best.loss + best.penalty) * (1 + 1e-12) + 1e-12
        one = model.certificate(best.W)
        assert one.best_linear_at_least <= best.loss * (1 + 1e-12) + 1e-12


def test_the_certificate_needs_the_entropy_and_the_pull_of_every_class():
    X, y, _ = words(2, 400)
    model = SparseSgd(n_features=60, n_classes=4)
    model.run(X, y)
    best = logistic_regression(X, y, n_classes=4)
    least = best.loss + best.penalty
    assert 0.3 * least < model.evidence().lower_bound() < least


def test_it_learns_what_is_wide():
    rng = np.random.default_rng(0)
    d = 2**40
    topics = rng.integers(d, size=(3, 50))
    right = 0
    model = SparseSgd(n_features=d, n_classes=3)
    for t in range(400):
        y = t % 3
        own = np.unique(rng.choice(topics[y], size=6))
        row = own, np.full(len(own), 1.0 / np.sqrt(len(own)))
        right += t >= 200 and int(model.predict(row).argmax()) == y
        model.update(row, y)
    assert right > 190
    assert model.n_columns <= 150
    assert model.n_bytes < 1e6


def test_resume_and_state_files_hold_what_occurred(tmp_path):
    X, y, _ = words(3, 1200)
    wide = sp.csr_array((X.data, X.indices.astype(np.int64) * 10**6, X.indptr), (1200, 10**8))
    model = SparseSgd(n_features=10**8, n_classes=4)
    model.run(wide[:700], y[:700])
    model.save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_size < 60 * 8 * 5 * 8 + 10_000
    resumed = folklearn.load(tmp_path / "m")
    assert (model.run(wide[700:], y[700:]) == resumed.run(wide[700:], y[700:])).all()
    assert model.certificate() == resumed.certificate()


def test_damaged_states():
    X, y, _ = words(4, 50)
    model = SparseSgd(n_features=60, n_classes=4)
    model.run(X, y)
    record = model.to_record()
    for part, damage in {
        "columns": record.arrays["columns"][:-1],
        "table": record.arrays["table"][:, :, 1:],
        "experts": record.arrays["experts"] * 2.0,
        "standing": record.arrays["standing"][:, 1:],
    }.items():
        with pytest.raises(StateFileError):
            SparseSgd.from_record(
                Record("SparseSgd", record.config, record.arrays | {part: damage})
            )
    twice = record.arrays["columns"].copy()
    twice[0] = twice[1]
    with pytest.raises(StateFileError, match="twice"):
        SparseSgd.from_record(
            Record("SparseSgd", record.config, record.arrays | {"columns": twice})
        )


def test_growth_is_as_if_it_had_been_there():
    X, y, _ = words(5, 300)
    small, large = SparseSgd(n_features=60, n_classes=4), SparseSgd(n_features=90, n_classes=4)
    small.run(X, y)
    large.run(sp.csr_array((X.data, X.indices, X.indptr), (300, 90)), y)
    grown = small.grown(n_features=90)
    assert grown.certificate() == large.certificate()
    more = grown.grown(n_classes=6)
    assert more.predict(([3], [1.0]))[4:] == pytest.approx(
        more.predict(([3], [1.0]))[5] * np.ones(2)
    )
    more.update(([3, 80], [1.0, 1.0]), 5)
    assert more.certificate().valid


@pytest.mark.parametrize(
    ("x", "complaint"),
    [
        (([0, 0], [1.0, 2.0]), "names feature 0 twice"),
        (([60], [1.0]), "names feature 60; expected 0 to 59"),
        (([-1], [1.0]), "names feature -1"),
        (([1.5], [1.0]), "read as \\(indices, values\\)"),
        (([1, 2], [1.0]), "one value for each index"),
        (([1], [np.nan]), "nan at feature 1"),
        (([1], ["a"]), "real numbers"),
    ],
)
def test_bad_rows_change_nothing(x, complaint):
    model = SparseSgd(n_features=60, n_classes=4)
    model.update(([1], [1.0]), 1)
    before = model.to_record()
    for call in (lambda: model.update(x, 0), lambda: model.predict(x)):
        with pytest.raises(InvalidInputError, match=complaint):
            call()
    after = model.to_record()
    assert all((after.arrays[part] == before.arrays[part]).all() for part in before.arrays)


def test_evidence_is_added_up():
    X, y, rng = words(6, 200)
    W = rng.normal(size=(4, 60))
    whole, a, b = (LinearEvidence(n_features=60, n_classes=4, C=0.01) for _ in range(3))
    whole.add(X, y, at=W)
    a.add(X[:70], y[:70], at=W)
    b.add(X[70:].toarray(), y[70:], at=W)
    both = a + b
    assert whole.value(W) == pytest.approx(linear_losses(X, y, W).sum(), rel=1e-9)
    assert both.lower_bound() == pytest.approx(whole.lower_bound(), rel=1e-9)
    W = 0.1 * W
    assert (0.5 * both).value(W) == pytest.approx(0.5 * whole.value(W), rel=1e-9)


def test_evidence_of_first_order_by_hand():
    tangents = LinearEvidence(n_features=3, n_classes=2, C=0.02)
    tangents.add([[3.0, 0.0, 4.0]], [0], at=np.zeros((2, 3)), weight=[2.0])
    # p = (1/2, 1/2); G has rows -/+ 2 * 1/2 * x, each of norm 5; the penalty is 2 / C = 100
    assert tangents.lower_bound() == pytest.approx(2 * np.log(2) - 0.5 * 50.0 / 100.0)


@pytest.mark.parametrize("verb", ["run", "update"])
def test_an_interrupt_leaves_a_state_that_is_whole(verb, monkeypatch):
    """A signal is heard when a kernel returns: what it learned must count."""
    X, y, _ = words(7, 40)
    model, twin = SparseSgd(n_features=60, n_classes=4), SparseSgd(n_features=60, n_classes=4)

    def interrupted(kernel):
        def call(*arguments):
            kernel(*arguments)
            raise KeyboardInterrupt

        return call

    row = X.indices[: X.indptr[1]], X.data[: X.indptr[1]]
    name = {"run": "run", "update": "learn"}[verb]
    with monkeypatch.context() as patch:
        patch.setattr(module.sparse_sgd, name, interrupted(getattr(module.sparse_sgd, name)))
        with pytest.raises(KeyboardInterrupt):
            model.run(X, y) if verb == "run" else model.update(row, y[0])
    twin.run(X, y) if verb == "run" else twin.update(row, y[0])
    assert model.n_rounds == twin.n_rounds
    assert (model.run(X, y) == twin.run(X, y)).all()
    assert model.certificate() == twin.certificate()


def test_rounds_of_weight_0_count_as_rounds():
    X, y, _ = words(8, 60)
    weight = np.ones(60)
    weight[::3] = 0.0
    model = SparseSgd(n_features=60, n_classes=4)
    model.run(X, y, weight=weight)
    assert model.n_rounds == model.evidence().n_rounds == model.certificate().n_rounds == 60


@pytest.mark.parametrize("learner", [SparseSgd, folklearn.ClassGaussians])
def test_nonsense_about_models(learner):
    model = learner(n_features=3, n_classes=2)
    model.update([1.0, 0.0, 0.0], 1)
    with pytest.raises(InvalidInputError, match="W has shape"):
        model.certificate([1.0, 2.0, 3.0])


def test_a_copy_is_the_same_and_leaves_empty_room_behind():
    model = SparseSgd(n_features=2**40, n_classes=3)
    for t in range(600):  # 512 fit at first, then there is room for eight times as many
        model.update(([t, 2**39 + t // 9], [0.8, 0.6]), t % 3)
    other = copy.deepcopy(model)
    assert other.to_record().digest == model.to_record().digest
    assert other._table.shape[0] <= 2 * other.n_columns < model._table.shape[0]
    for one in (model, other):
        one.update(([7, 2**38], [0.5, 0.5]), 1)
    assert other.to_record().digest == model.to_record().digest
    other.update(([8], [1.0]), 2)
    assert other.to_record().digest != model.to_record().digest
