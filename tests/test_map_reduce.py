"""Sums over rows are the same to the last bit, whoever makes them and in whatever blocks."""

import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from folklearn import Certifier, Evidence, FolkloreClassifier, LinearEvidence, Model, best_in_class
from folklearn.batch.penalised import N_FOLDS, assign_folds, fit_penalised
from folklearn.errors import InvalidInputError
from folklearn.evaluate.best_linear import WideLoss, refine
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
from folklearn.kernels.evidence import DEPTH
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


def of_evidence(one):
    return content(*one.to_record().arrays.values())


def of_sums(sums):
    return content(sums.loss, *sums.sums[0], *sums.sums[1])


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


@pytest.mark.parametrize(
    "T", [0, 1, CHUNK_ROWS, CHUNK_ROWS + 1, 2 * CHUNK_ROWS, 3 * CHUNK_ROWS + 7]
)
def test_evidence_has_the_bits_of_the_tree(T, rng):
    X, y, weight = stream(rng, T)
    W = rng.normal(size=(K, D))
    cuts = twin.cut(T, CHUNK_ROWS)

    def of_chunk(rows):
        own = Evidence(**SIZES)
        own.add(X[rows.start : rows.stop], y[rows.start : rows.stop], at=W,
                weight=weight[rows.start : rows.stop])  # fmt: skip
        return own

    before = of_chunk(range(min(T, 5)))
    whole = twin.tree([of_chunk(rows) for rows in cuts])
    for n_jobs in JOBS:
        alone, onto = Evidence(**SIZES), of_chunk(range(min(T, 5)))
        for one in (alone, onto):
            one.add(X, y, at=W, weight=weight, n_jobs=n_jobs)
        if len(cuts) > 1:
            assert of_evidence(onto) == of_evidence(before + whole)
            assert alone._totals[DEPTH] == twin.depth(cuts) + 1
        else:
            assert alone._totals[DEPTH] == T
        assert alone.n_rounds == T


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
    np.testing.assert_allclose(sums.sums[0].S, expected, atol=1e-12 * size)
    gradient = (P - np.eye(K)[y]).T @ (X * weight[:, None])
    np.testing.assert_allclose(sums.gradient(), gradient, atol=1e-12 * np.abs(gradient).sum())


@pytest.mark.parametrize("kind", ["classes", "soft", "sparse", "function"])
def test_a_pass_has_the_same_bits_on_any_number_of_threads(kind, seed, rng):
    T = 2 * chunk_rows(D, K, 2) + 100
    X, y, weight = stream(rng, T)
    W = rng.normal(size=(K, D))
    given = {
        "classes": (X, y, weight),
        "soft": (X, soft_labels(seed, y, K), weight),
        "sparse": (sp.csr_array(np.where(np.abs(X) < 0.3, 0.0, X)), y, weight),
        "function": (lambda: ((X[i::7], y[i::7], weight[i::7]) for i in range(7)), None, None),
    }[kind]
    one, *others = (passes_over(*given, **SIZES, n_jobs=n_jobs) for n_jobs in JOBS)
    expected = of_sums(one.expand(W, (10.0,)))
    for other in others:
        assert of_sums(other.expand(W, (10.0,))) == expected


def test_sums_of_a_pass_count_every_merge(rng):
    size = chunk_rows(D, K, 2)
    X, y, weight = stream(rng, 2 * size + 100)
    sums = passes_over(X, y, weight, **SIZES).expand(np.zeros((K, D)), (10.0,))
    for place in range(2):
        assert sums.sums[place].totals[DEPTH] == twin.depth(twin.cut(len(X), size))


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

    one, other = (passes_over(f, None, None, **SIZES).expand(W, (1.0,)) for f in (refilled, apart))
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


class Interrupted(Evidence):
    """Evidence of which the third chunk never ends well."""

    def _sum_chunk(self, chunk, W):
        if chunk.first == 2 * CHUNK_ROWS:
            raise KeyboardInterrupt
        return super()._sum_chunk(chunk, W)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_leaves_evidence_as_it_was(n_jobs, rng):
    X, y, _ = stream(rng, 4 * CHUNK_ROWS)
    evidence = Interrupted(**SIZES)
    evidence.add(X[:100], y[:100])
    before, floor, threads = (
        of_evidence(evidence),
        evidence.lower_bound(),
        set(threading.enumerate()),
    )
    with pytest.raises(KeyboardInterrupt):
        evidence.add(X, y, n_jobs=n_jobs)
    assert of_evidence(evidence) == before
    assert evidence.lower_bound() == floor
    # Others may run in this process, and begin or end meanwhile: the engine's are named.
    begun = set(threading.enumerate()) - threads
    assert not [one.name for one in begun if one.name.startswith("folklearn_")]


def test_an_interrupt_leaves_planes_as_they_were(rng):
    class Stopped(LinearEvidence):
        def _add_planes(self, rows, P):
            super()._add_planes(rows, P)
            if len(rows.X) < 100 < self.n_rounds:  # behind the first block
                raise KeyboardInterrupt

    n_classes = 2**14
    X, y = rng.normal(size=(70, 2)), rng.integers(n_classes, size=70)
    tangents, whole = (
        kind(n_features=2, n_classes=n_classes) for kind in (Stopped, LinearEvidence)
    )
    tangents.add(X[:40], y[:40])
    before = of_evidence(tangents)
    with pytest.raises(KeyboardInterrupt):
        tangents.add(np.tile(X, (2, 1)), np.tile(y, 2))
    assert of_evidence(tangents) == before
    whole.add(np.tile(X, (2, 1)), np.tile(y, 2))
    assert whole.n_rounds == 140


def test_what_a_source_raises_ends_the_pass(rng):
    X, y, _ = stream(rng, 100)

    def source():
        yield X, y
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        passes_over(source, None, None, **SIZES, n_jobs=2).expand(np.zeros((K, D)))


def test_sums_of_other_models_or_classes_are_not_added_up(rng):
    W = rng.normal(size=(K, D))
    for other in (Expansion(W, (2.0,)), Expansion(W + 1.0, (2.0, 10.0))):
        with pytest.raises(InvalidInputError, match="only for the same model and classes"):
            Expansion(W, (2.0, 10.0)) + other


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
    one, other = (refine(passes, **SIZES, B=3.0) for passes in (here, parts))
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
        loss = WideLoss(passes_over(X, y, None, **sizes, n_jobs=n_jobs), **sizes)
        touched = loss.at(loss.narrow(W))
        assert touched.totals[DEPTH] == twin.depth(twin.cut(70_000, loss._chunk_rows)) < 70_000
        found.append(content(touched.loss, touched.G, touched.totals, loss.columns))
    assert found[1:] == found[:-1]
    tangents = LinearEvidence(**sizes)
    tangents.add(X, y, at=W, n_jobs=2)
    assert loss.evidence(touched, 1.0).lower_bound() == pytest.approx(
        tangents.lower_bound(B=1.0), rel=1e-9
    )


def test_what_is_made_of_sums_does_not_depend_on_threads(rng):
    X, y, weight = stream(rng, CHUNK_ROWS + 500)
    best = [best_in_class(X, y, B=5.0, n_classes=K, weight=weight, n_jobs=j) for j in (1, 2)]
    assert content(best[0].W, best[0].loss, best[0].gap) == content(
        best[1].W, best[1].loss, best[1].gap
    )
    certifier = Certifier(**SIZES)
    certifier.observe_many(X, y, np.full((len(y), K), 1 / K))
    one, other = (certifier.exact(X, y, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one == other


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
    evidence = Evidence(**SIZES)
    for n_jobs, sentence in (
        (0, "n_jobs must be a number of threads, or -1 for as many as there are cores, got 0"),
        (-2, "n_jobs must be at least -1, got -2"),
        (True, "n_jobs must be an integer, got True"),
        (1.5, "n_jobs must be an integer, got 1.5"),
        ("all", "n_jobs must be an integer, got 'all'"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            evidence.add(X, y, n_jobs=n_jobs)
        with pytest.raises(InvalidInputError, match=sentence):
            FolkloreClassifier(n_jobs=n_jobs).fit(X, y)
    for device in ("tpu", 1):
        with pytest.raises(InvalidInputError, match="device"):
            best_in_class(X, y, B=1.0, n_classes=K, device=device)
        with pytest.raises(InvalidInputError, match="device"):
            Certifier(**SIZES, device=device)
    assert MapReduce.from_options(-1).n_jobs >= 1
    assert MapReduce.from_options(2, "cpu") == MapReduce(2)
    assert evidence.n_rounds == 0


def test_large_problems_are_not_cut():
    assert chunk_rows(400, 10) is None
    assert chunk_rows(399, 10) == 2048
