"""The laws that every learner obeys, generated over every registered learner.

A new learner joins by one line in LEARNERS.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

import folklearn
from folklearn import (
    Aggregating,
    Aioli,
    ClassGaussians,
    Folklore,
    Gaf,
    Laplace,
    Leader,
    Learner,
    Mixture,
    Ogd,
    Ons,
    SharedGaussian,
    SparseSgd,
    auto,
)
from folklearn.errors import InvalidInputError
from folklearn.learners import StackedSgd


@dataclass(frozen=True)
class Case:
    """A learner to test; `symmetry` is how far numerical integration may break symmetry.

    `intercept` predicts at x = 0 too, `coordinates` have a meaning of their own, and `bytes` are
    the same one by one and many at once.
    """

    make: Callable[[int, int], Learner]
    symmetry: float = 1e-12
    two_classes: bool = False
    certified: bool = False
    intercept: bool = False
    coordinates: bool = False
    bytes: bool = False

    def __call__(self, d: int, K: int) -> Learner:
        if self.two_classes and K != 2:
            reject()
        return self.make(d, K)


def sizes(make, **parameters):
    return lambda d, K: make(n_features=d, n_classes=K, **parameters)


def shared(d, K):
    experts = [Folklore(n_features=d, n_classes=K, B=B) for B in (1.0, 10.0)]
    rates = [Ogd(n_features=d, n_classes=K, rate=rate) for rate in (0.5, 2.0)]
    return Mixture([*experts, *rates], share=True, max_weight=50.0)


# The integral of GAF has 512 points here, whose error is a few percent in the worst case;
# tests/baselines/test_gaf.py shows that it shrinks.
LEARNERS = {
    "folklore": Case(sizes(Folklore, B=6.0), certified=True),
    "folklore, large B": Case(sizes(Folklore, B=300.0), certified=True),
    "folklore, fixed gamma": Case(sizes(Folklore, gamma=0.5, lam=0.1)),
    "aioli": Case(sizes(Aioli, B=6.0, improved=True), two_classes=True, certified=True),
    "gaf": Case(sizes(Gaf, B=6.0, improved=True, n_points=512), symmetry=0.05, certified=True),
    "gaf-at-mean": Case(sizes(Gaf, B=6.0, improved=True, n_points=None), certified=True),
    "laplace": Case(sizes(Laplace, B=6.0)),
    "ogd": Case(sizes(Ogd, B=6.0)),
    "ons": Case(sizes(Ons, B=0.1, R=20.0), certified=True),
    "auto": Case(
        sizes(auto, max_weight=50.0), certified=True, intercept=True, coordinates=True, bytes=True
    ),
    "auto in blocks": Case(
        sizes(auto, backend="blocks", max_weight=50.0), certified=True, coordinates=True
    ),
    "class blocks": Case(sizes(ClassGaussians, ridge=0.03), certified=True, bytes=True),
    "shared blocks": Case(sizes(SharedGaussian, ridge=0.03, leak=1e-3)),
    "leader": Case(sizes(Leader, max_weight=50.0), certified=True, bytes=True),
    "leader that forgets": Case(sizes(Leader, memory=40, max_weight=50.0), bytes=True),
    "mixture with shares": Case(shared),
    "wide": Case(sizes(SparseSgd, max_weight=50.0), certified=True, coordinates=True, bytes=True),
    "stacked": Case(
        sizes(StackedSgd, max_weight=50.0), certified=True, coordinates=True, bytes=True
    ),
    "aggregating": Case(sizes(Aggregating, B=6.0, n_particles=128, max_weight=50.0), symmetry=0.2),
}
ROTATING = {name: case for name, case in LEARNERS.items() if not case.coordinates}
CERTIFIED = {name: case for name, case in LEARNERS.items() if case.certified}

every_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)
# The last three learn in blocks of 24, 12 and 4 rounds.
shapes = st.sampled_from([(1, 2), (3, 2), (2, 3), (7, 4), (110, 2), (60, 3), (25, 6)])


def random_stream(seed, T, d, K):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, d)) / math.sqrt(d) * rng.choice([0.2, 1.0, 2.0], size=(T, 1))
    if seed % 3 == 0:  # sparse contexts are predicted in another way
        X *= rng.random(size=(T, d)) < 0.15
    W = 3.0 * rng.normal(size=(K, d))
    return X, np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1), rng


def loop(model, X, y, weight=None):
    P = np.empty((len(X), model.n_classes))
    for t, x in enumerate(X):
        P[t] = model.predict(x)
        model.update(x, y[t], weight=1.0 if weight is None else weight[t])
    return P


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6))
def test_probabilities_lie_on_the_simplex(make, shape, seed):
    X, y, _ = random_stream(seed, 30, *shape)
    P = make(*shape).run(X, y)
    assert (P >= 0.0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6))
def test_zero_context_and_first_round_are_uniform(make, shape, seed):
    d, K = shape
    X, y, _ = random_stream(seed, 20, d, K)
    model = make(d, K)
    np.testing.assert_allclose(model.predict(X[0]), 1.0 / K, atol=make.symmetry)
    model.run(X, y)
    if not make.intercept:
        np.testing.assert_allclose(model.predict(np.zeros(d)), 1.0 / K, atol=1e-12)


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6))
def test_renaming_classes_renames_predictions(make, shape, seed):
    d, K = shape
    X, y, rng = random_stream(seed, 30, d, K)
    rename = rng.permutation(K)
    P = make(d, K).run(X, y)
    renamed = make(d, K).run(X, rename[y])
    np.testing.assert_allclose(renamed[:, rename], P, atol=max(1e-8, make.symmetry))


@pytest.mark.parametrize("make", ROTATING.values(), ids=ROTATING)
@given(shape=shapes, seed=st.integers(0, 10**6))
def test_rotating_contexts_changes_nothing(make, shape, seed):
    d, K = shape
    X, y, rng = random_stream(seed, 30, d, K)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    np.testing.assert_allclose(
        make(d, K).run(X @ rotation, y), make(d, K).run(X, y), atol=max(1e-8, make.symmetry)
    )


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6))
def test_a_soft_corner_is_a_hard_label(make, shape, seed):
    d, K = shape
    X, y, _ = random_stream(seed, 30, d, K)
    hard, soft = make(d, K), make(d, K)
    np.testing.assert_allclose(hard.run(X, y), soft.run(X, np.eye(K)[y]), atol=1e-12)
    for x, label in zip(X, y, strict=True):
        assert hard.update(x, label) == pytest.approx(soft.update(x, np.eye(K)[label]), abs=1e-9)


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6), weighted=st.booleans(), T=st.integers(0, 80))
def test_run_equals_the_loop(make, shape, seed, weighted, T):
    d, K = shape
    X, y, rng = random_stream(seed, T, d, K)
    weight = rng.exponential(size=T) if weighted else None
    together, alone = make(d, K), make(d, K)
    P = together.run(X, y, weight=weight)
    one_by_one = loop(alone, X, y, weight)
    np.testing.assert_allclose(P, one_by_one, atol=1e-9)
    assert P.tobytes() == one_by_one.tobytes() or not make.bytes
    ours, theirs = together.certificate(), alone.certificate()
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-9, nan_ok=True)
    assert ours.regret_bound == pytest.approx(theirs.regret_bound, rel=1e-9)
    assert together.n_rounds == alone.n_rounds == T


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6), cut=st.integers(0, 40))
def test_resuming_equals_never_stopping(make, shape, seed, cut, tmp_path_factory):
    d, K = shape
    X, y, _ = random_stream(seed, 40, d, K)
    path = tmp_path_factory.mktemp("state") / "model.safetensors"
    straight, stopped = make(d, K), make(d, K)
    expected = loop(straight, X, y)
    loop(stopped, X[:cut], y[:cut])
    if cut:
        stopped.predict(X[cut - 1])  # a pending prediction is not part of the state
    stopped.save(path)
    resumed = folklearn.load(path)
    np.testing.assert_array_equal(loop(resumed, X[cut:], y[cut:]), expected[cut:])
    straight.save(path)
    first = path.read_bytes()
    resumed.save(path)
    assert path.read_bytes() == first


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6))
def test_predict_changes_nothing(make, shape, seed):
    d, K = shape
    X, y, rng = random_stream(seed, 20, d, K)
    quiet, chatty = make(d, K), make(d, K)
    for x, label in zip(X, y, strict=True):
        before = x.copy()
        chatty.predict(x)
        chatty.predict(rng.normal(size=(3, d)))
        chatty.predict(rng.normal(size=d))
        np.testing.assert_array_equal(x, before)
        assert quiet.update(x, label) == chatty.update(x, label)


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6))
def test_a_copy_is_equal_and_independent(make, shape, seed):
    d, K = shape
    X, y, _ = random_stream(seed, 40, d, K)
    model = make(d, K)
    model.run(X[:20], y[:20])
    other = copy.deepcopy(model)
    before = model.predict(X)
    P = other.run(X[20:], y[20:])
    np.testing.assert_array_equal(model.predict(X), before)
    np.testing.assert_array_equal(model.run(X[20:], y[20:]), P)
    np.testing.assert_equal(asdict(model.certificate()), asdict(other.certificate()))
    np.testing.assert_array_equal(model.predict(X), other.predict(X))


@every_learner
def test_the_contract_is_whole(make):
    d, K = 3, 2
    X, y, _ = random_stream(2, 30, d, K)
    model = make(d, K)
    assert isinstance(model, Learner)
    assert (model.n_features, model.n_classes, model.n_rounds) == (d, K, 0)
    assert model.n_bytes > 0
    assert 0 < model.expected_bytes(d, K) <= model.expected_bytes(2 * d, 2 * K)
    assert model.max_weight > 0.0
    model.run(X, y)
    assert model.n_rounds == 30
    certificate = model.certificate()
    assert certificate.n_rounds == 30
    assert certificate.valid == math.isfinite(certificate.regret_bound)
    assert certificate.valid == (certificate.best_linear_at_least > -math.inf)
    assert certificate.valid != bool(certificate.reason)
    assert model.regret_bound(10) > 0.0
    if certificate.valid:
        with pytest.raises(InvalidInputError, match="W has shape"):
            model.certificate(np.zeros((K, d + 1)))


@every_learner
@given(shape=shapes, seed=st.integers(0, 10**6))
def test_growing_changes_nothing_but_the_one_that_grew(make, shape, seed):
    d, K = shape
    X, y, _ = random_stream(seed, 20, d, K)
    model = make(d, K)
    model.run(X, y)
    before = model.to_record()
    if model.can_grow:
        larger = model.grown(n_features=d + 2, n_classes=K + 1)
        assert (larger.n_features, larger.n_classes, larger.n_rounds) == (d + 2, K + 1, 20)
        assert type(larger) is type(model)
        wide = np.hstack([X, np.zeros((20, 2))])
        seen = larger.predict(wide)[:, :K]
        np.testing.assert_allclose(seen.sum(axis=1), 1.0 - larger.predict(wide)[:, K], atol=1e-9)
        larger.run(wide, np.full(20, K))
        with pytest.raises(InvalidInputError, match="n_features must be at least"):
            larger.grown(n_features=d)
    else:
        with pytest.raises(InvalidInputError):
            model.grown(n_features=d + 2, n_classes=K + 1)
    after = model.to_record()
    assert after.config == before.config
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(after.arrays[name], array)


@every_learner
def test_a_weight_above_the_largest_is_refused_and_changes_nothing(make):
    X, y, _ = random_stream(3, 20, 3, 2)
    model = make(3, 2)
    if model.max_weight == math.inf:
        model.max_weight = 50.0
    for call in (
        lambda: model.update(X[0], y[0], weight=51.0),
        lambda: model.run(X, y, weight=[1.0] * 19 + [51.0]),
    ):
        with pytest.raises(InvalidInputError, match="is 51, above max_weight=50"):
            call()
    assert model.n_rounds == 0


@every_learner
def test_a_record_is_a_copy(make):
    X, y, _ = random_stream(1, 30, 3, 2)
    model = make(3, 2)
    model.run(X, y)
    before = model.predict(X)
    for array in model.to_record().arrays.values():
        array[...] = 0
    np.testing.assert_array_equal(model.predict(X), before)


@every_learner
def test_a_ragged_context_is_refused_in_a_sentence(make):
    with pytest.raises(InvalidInputError, match="x must hold real numbers"):
        make(3, 2).predict([[1.0, 2.0, 3.0], [1.0]])


@every_learner
def test_the_same_input_gives_the_same_bytes(make):
    d, K = 30, 2 if make.two_classes else 6
    X, y, _ = random_stream(5, 50, d, K)
    assert make(d, K).run(X, y).tobytes() == make(d, K).run(X, y).tobytes()


@pytest.mark.parametrize("make", CERTIFIED.values(), ids=CERTIFIED)
@given(
    shape=shapes,
    seed=st.integers(0, 10**6),
    T=st.integers(1, 60),
    labels=st.sampled_from(["model", "one class", "noise", "soft", "against"]),
)
def test_no_model_beats_the_certificate(make, shape, seed, T, labels):
    """Checked against W = 0, random members of the class, and the learner's own mean."""
    d, K = shape
    X, y, rng = random_stream(seed, T, d, K)
    model = make(d, K)
    if labels == "one class":
        y = np.zeros(T, dtype=int)
    elif labels == "noise":
        y = rng.integers(0, K, T)
    elif labels == "soft":
        y = rng.dirichlet(np.ones(K), size=T)
    if labels == "against":
        for t, x in enumerate(X):
            y[t] = np.argmin(model.predict(x))
            model.update(x, y[t])
    else:
        model.run(X, y)
    targets = y if labels == "soft" else np.eye(K)[y]
    members = [np.zeros((K, d)), model.coef(), *(rng.normal(size=(K, d)) for _ in range(5))]
    for W in members:
        norm = np.linalg.norm(W, axis=1).max()
        member = W * min(1.0, model.B / norm) if norm > 0 else W
        Z = X @ member.T
        top = Z.max(axis=1)
        log_totals = top + np.log(np.exp(Z - top[:, None]).sum(axis=1))
        loss = (log_totals - (targets * Z).sum(axis=1)).sum()
        certificate = model.certificate(member)
        assert certificate.valid
        assert loss >= certificate.best_linear_at_least - 1e-9 * (1.0 + abs(loss))


@every_learner
@given(shape=shapes, seed=st.integers(0, 100))
def test_sparse_rows_are_the_same_rows(make, shape, seed):
    d, K = shape
    X, y, rng = random_stream(seed, 20, d, K)
    X *= rng.random(X.shape) < 0.5
    dense, sparse, loop_ = make(d, K), make(d, K), make(d, K)
    P = dense.run(X, y)  # norms are added up in another order: last digits may differ, and grow
    assert sparse.run(csr_array(X), y) == pytest.approx(P, rel=1e-6, abs=1e-7)
    assert sparse.predict(csr_matrix(X)) == pytest.approx(dense.predict(X), rel=1e-6, abs=1e-7)
    one_by_one = make(d, K)
    for x, label in zip(X, y, strict=True):
        row = np.flatnonzero(x)[::-1], x[np.flatnonzero(x)[::-1]]
        assert (loop_.predict(row) == one_by_one.predict(x)).all()
        assert loop_.update(row, label) == one_by_one.update(x, label)
