"""Sums over rows are the same to the last bit, whoever makes them and in whatever blocks."""

import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from folklearn import Certifier, FolkloreClassifier, LinearEvidence, Model, best_in_class
from folklearn.batch.penalised import N_FOLDS, assign_folds, fit_penalised
from folklearn.errors import InvalidInputError
from folklearn.evaluate import logistic_regression
from folklearn.evaluate.best_linear import TotalLoss
from folklearn.evaluate.regression import regress
from folklearn.evidence.passes import (
    ONE_THREAD,
    Expansion,
    LocalPasses,
    MapReduce,
    Passes,
    add_in_tree,
    chunk_rows,
    passes_over,
    split_into_chunks,
)
from folklearn.kernels.evidence import DEPTH, penalised_lower_bound
from folklearn.validation import Rows
from tests.reference import tree as twin
from tests.reference.streams import soft_labels

D, K = 3, 3
SIZES = {"n_features": D, "n_classes": K}
CHUNK_ROWS = chunk_rows(D, K)
JOBS = (1, 2, 3, -1)


def stream(rng, T, d=D, k=K):
    X = rng.normal(size=(T, d)) / np.sqrt(d)
    y = np.argmax(X @ rng.normal(size=(d, k)) + rng.gumbel(size=(T, k)), axis=1)
    return X, y, rng.random(T)


def content(*parts):
    return [np.asarray(part).tobytes() for part in parts]


def of_sums(sums):
    return content(sums.loss, *sums.quadratic)


class Added:
    """A sum that tells how it came about."""

    def __init__(self, how):
        self.how = how

    def __add__(self, other):
        return Added(f"({self.how} {other.how})")


@pytest.mark.parametrize("n", [*range(1, 18), 31, 33, 100])
def test_the_tree_is_that_of_its_definition(n):
    parts = [Added(str(i)) for i in range(n)]
    assert add_in_tree(iter(parts)).how == twin.tree(parts).how


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 7))
def test_chunks_do_not_depend_on_blocks(lengths, size):
    X = np.arange(sum(lengths), dtype=float)[:, None]
    whole = Rows.checked(X, np.zeros(len(X), int), None, n_features=1, n_classes=2)
    ends = np.cumsum([0, *lengths])
    blocks = [whole.part(*ends[i : i + 2]) for i in range(len(lengths))]
    found = [
        (chunk.first, [x for part in chunk.batches for x in part.X[:, 0]])
        for chunk in split_into_chunks(blocks, size)
    ]
    assert found == [(rows.start, list(rows)) for rows in twin.cut(len(X), size)]


def test_the_tree_is_the_plain_sum(rng):
    T = 2 * CHUNK_ROWS + 100
    X, y, weight = stream(rng, T)
    W = rng.normal(size=(K, D))
    sums = passes_over(X, y, weight, **SIZES, n_jobs=2).expand(W)
    Z = X @ W.T
    P = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    losses = np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(T), y]
    assert sums.loss == pytest.approx(weight @ losses, rel=1e-12)
    products = (X[:, :, None] * X[:, None, :])[:, *np.tril_indices(D)]
    pairs = [(i, j) for i in range(K) for j in range(i + 1, K)]
    expected = [(0.5 * weight * P[:, i] * P[:, j]) @ products for i, j in pairs]
    size = np.abs(expected).max()
    np.testing.assert_allclose(sums.quadratic.S, expected, atol=1e-12 * size)
    gradient = (P - np.eye(K)[y]).T @ (X * weight[:, None])
    np.testing.assert_allclose(sums.gradient(), gradient, atol=1e-12 * np.abs(gradient).sum())


@pytest.mark.parametrize("kind", ["classes", "soft", "sparse", "function"])
def test_a_pass_has_the_same_bits_on_any_number_of_threads(kind, seed, rng):
    T = 2 * CHUNK_ROWS + 100
    X, y, weight = stream(rng, T)
    W = rng.normal(size=(K, D))
    given = {
        "classes": (X, y, weight),
        "soft": (X, soft_labels(seed, y, K), weight),
        "sparse": (sp.csr_array(np.where(np.abs(X) < 0.3, 0.0, X)), y, weight),
        "function": (lambda: ((X[i::7], y[i::7], weight[i::7]) for i in range(7)), None, None),
    }[kind]
    one, *others = (passes_over(*given, **SIZES, n_jobs=n_jobs) for n_jobs in JOBS)
    expected = of_sums(one.expand(W))
    for other in others:
        assert of_sums(other.expand(W)) == expected


def test_sums_of_a_pass_count_every_merge(rng):
    X, y, weight = stream(rng, 2 * CHUNK_ROWS + 100)
    loss = TotalLoss(passes_over(X, y, weight, **SIZES), **SIZES)
    loss.chunk_rows = CHUNK_ROWS
    batch = max(64, 2**16 // K)  # rows that are summed at once
    cuts = [len(rows) for rows in twin.cut(len(X), CHUNK_ROWS)]
    deepest = max(min(n, batch) + -(-n // batch) - 1 for n in cuts)
    depth = loss.at(np.zeros((K, D))).totals[DEPTH]
    assert deepest + 1 <= depth <= deepest + len(cuts)


def test_a_source_may_fill_its_arrays_anew(rng):
    X, y, weight = stream(rng, 90)
    W = rng.normal(size=(K, D))

    def refilled():
        block = np.empty((30, D)), np.empty(30, int), np.empty(30)
        for start in range(0, 90, 30):
            for own, whole in zip(block, (X, y, weight), strict=True):
                own[:] = whole[start : start + 30]
            yield block

    def apart():
        for start in range(0, 90, 30):
            yield tuple(whole[start : start + 30] for whole in (X, y, weight))

    one, other = (passes_over(f, None, None, **SIZES).expand(W) for f in (refilled, apart))
    assert of_sums(one) == of_sums(other)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_rows_are_read_hardly_ahead(n_jobs):
    row = Rows.checked([[0.0]], [0], None, n_features=1, n_classes=2)
    n_read, n_summed, ahead = 0, 0, []
    lock = threading.Lock()

    def blocks():
        nonlocal n_read
        for _ in range(50):
            with lock:
                n_read += 1
                ahead.append(n_read - n_summed)
            yield row

    def sum_chunk(chunk):
        nonlocal n_summed
        with lock:
            n_summed += 1
        return 1

    assert MapReduce(n_jobs).total(blocks(), 1, sum_chunk) == 50
    assert max(ahead) <= n_jobs + 2


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_the_threads_of_a_pass(n_jobs, rng):
    X, y, _ = stream(rng, 4 * CHUNK_ROWS)
    threads = set(threading.enumerate())

    def sum_chunk(chunk):
        if chunk.first == 2 * CHUNK_ROWS:
            raise KeyboardInterrupt
        return 1

    with pytest.raises(KeyboardInterrupt):
        passes_over(X, y, None, **SIZES, n_jobs=n_jobs).total(CHUNK_ROWS, sum_chunk)
    # Others may run in this process, and begin or end meanwhile: the engine's are named.
    begun = set(threading.enumerate()) - threads
    assert not [one.name for one in begun if one.name.startswith("folklearn_")]


def test_what_a_source_raises_ends_the_pass(rng):
    X, y, _ = stream(rng, 100)

    def source():
        yield X, y
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        passes_over(source, None, None, **SIZES, n_jobs=2).expand(np.zeros((K, D)))


def test_sums_of_other_models_are_not_added_up(rng):
    W = rng.normal(size=(K, D))
    with pytest.raises(InvalidInputError, match="only for the same model"):
        Expansion(W) + Expansion(W + 1.0)


class Elsewhere(Passes):
    """Rows of several machines, each of which sends what it found, pickled."""

    def __init__(self, parts):
        self.parts = parts

    def total(self, size, sum_chunk):
        first, found = 0, []
        for rows in self.parts:
            own = ONE_THREAD.total([rows], size, sum_chunk, first)
            found.append(pickle.loads(pickle.dumps(own)))
            first += len(rows.X)
        return add_in_tree(found)


def test_another_engine_is_a_method(rng):
    X, y, weight = stream(rng, 600)
    whole = Rows.checked(X, y, weight, **SIZES)
    parts = Elsewhere([whole.part(0, 100), whole.part(100, 350), whole.part(350, 600)])
    here = LocalPasses(lambda: [whole])
    assert parts.n_rows == here.n_rows == 600
    one, other = (regress(passes, **SIZES, tol=1e-9) for passes in (here, parts))
    assert other.at_least == pytest.approx(one.at_least, rel=1e-9)
    assert other.loss == pytest.approx(one.loss, rel=1e-9)
    one, other = (fit_penalised(passes, np.zeros((K, D)), seed=1) for passes in (here, parts))
    assert other.ridge == one.ridge
    np.testing.assert_allclose(other.W, one.W, atol=1e-9)


@given(st.integers(0, 50), st.integers(0, 200), st.integers(0, 60))
def test_a_row_knows_its_fold_without_the_others(seed, first, n):
    whole = assign_folds(seed, 0, 300)
    np.testing.assert_array_equal(assign_folds(seed, first, n), whole[first : first + n])
    assert (np.sort(whole.reshape(-1, N_FOLDS), axis=1) == np.arange(N_FOLDS)).all()
    assert (whole != assign_folds(seed + 1, 0, 300)).any()


def test_the_orders_of_folds_are_equally_frequent(seed):
    orders = assign_folds(seed, 0, 60_000).reshape(-1, N_FOLDS)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts / 20_000 - 1 / 6).max() < 0.02


def test_planes_have_the_same_bits_on_any_number_of_threads(rng):
    n_columns, n_classes = 60, 40
    X = sp.random_array((70_000, n_columns), density=0.05, format="csr", rng=rng)
    y = rng.integers(n_classes, size=70_000)
    sizes = {"n_features": n_columns, "n_classes": n_classes}
    W = rng.normal(size=(n_classes, n_columns))
    found = []
    for n_jobs in JOBS:
        loss = TotalLoss(passes_over(X, y, None, **sizes, n_jobs=n_jobs), **sizes)
        assert loss.is_wide
        touched = loss.at(loss.narrow(W))
        assert touched.totals[DEPTH] < 70_000
        found.append(content(touched.loss, touched.G, touched.totals, loss.columns))
    assert found[1:] == found[:-1]
    evidence = LinearEvidence(**sizes)
    evidence.add(X, y, at=W)
    proven = penalised_lower_bound(touched.totals, touched.G.T, evidence.penalties[loss.columns])
    assert proven == pytest.approx(evidence.lower_bound(), rel=1e-6)


def test_what_is_made_of_sums_does_not_depend_on_threads(rng):
    X, y, weight = stream(rng, CHUNK_ROWS + 500)
    best = [best_in_class(X, y, B=5.0, n_classes=K, weight=weight, n_jobs=j) for j in (1, 2)]
    assert content(best[0].W, best[0].loss, best[0].gap) == content(
        best[1].W, best[1].loss, best[1].gap
    )
    fits = [logistic_regression(X, y, n_classes=K, weight=weight, n_jobs=j) for j in (1, 2)]
    assert content(fits[0].W, fits[0].at_least) == content(fits[1].W, fits[1].at_least)


def test_a_fit_does_not_depend_on_threads(rng):
    X, y, _ = stream(rng, CHUNK_ROWS + 500)
    rows = [{"a": a, "b": b, "y": str(label)} for (a, b, _), label in zip(X, y, strict=True)]
    one, other = (Model().fit(rows, "y", passes=4, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one.to_record().digest == other.to_record().digest
    models = (FolkloreClassifier(passes=4, n_jobs=n_jobs).fit(X, y) for n_jobs in (None, 2))
    one, other = (model.predict_proba(X[:50]) for model in models)
    assert content(one) == content(other)


def test_what_cannot_be_an_engine_is_refused(rng):
    X, y, _ = stream(rng, 20)
    for n_jobs, sentence in (
        (0, "n_jobs must be a number of threads, or -1 for as many as there are cores, got 0"),
        (-2, "n_jobs must be at least -1, got -2"),
        (True, "n_jobs must be an integer, got True"),
        (1.5, "n_jobs must be an integer, got 1.5"),
        ("all", "n_jobs must be an integer, got 'all'"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            best_in_class(X, y, B=1.0, n_classes=K, n_jobs=n_jobs)
        with pytest.raises(InvalidInputError, match=sentence):
            FolkloreClassifier(n_jobs=n_jobs).fit(X, y)
    for device in ("tpu", 1):
        with pytest.raises(InvalidInputError, match="device"):
            best_in_class(X, y, B=1.0, n_classes=K, device=device)
        with pytest.raises(InvalidInputError, match="device"):
            Certifier(**SIZES, device=device)
    assert MapReduce.from_options(-1).n_jobs >= 1
    assert MapReduce.from_options(2, "cpu") == MapReduce(2)


def test_large_problems_are_not_cut():
    assert chunk_rows(400, 10) is None
    assert chunk_rows(399, 10) == 2048
