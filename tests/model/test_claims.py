"""Every printed bound is true of the models that its sentence names, as scikit-learn fits them."""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import folklearn
from folklearn.model.summary import describe_claims

HEAD = 2048  # rows that set the coordinates of a stream
PENALTIES = (0.01, 0.1, 1.0, 10.0, 1000.0)


class Data(NamedTuple):
    """Columns by name, labels, and how each column enters a linear model."""

    columns: dict
    y: list
    kinds: dict  # "number", "category" or "words"

    def rows(self):
        cells = zip(*self.columns.values(), strict=True)
        named = [dict(zip(self.columns, row, strict=True)) for row in cells]
        return [
            {name: value for name, value in row.items() if not _missing(value)} | {"label": label}
            for row, label in zip(named, self.y, strict=True)
        ]

    def design(self, n_head: int) -> np.ndarray:
        """Return (T, d) as the sentence says: a constant, numbers standardised by a head."""
        parts = [np.ones((len(self.y), 1))]
        for name, values in self.columns.items():
            if self.kinds[name] == "number":
                X = np.array([np.nan if _missing(v) else v for v in values], float)[:, None]
                scaler = StandardScaler().fit(X[:n_head])
                parts.append(np.nan_to_num(scaler.transform(X)))
            elif self.kinds[name] == "category":
                parts.append(_indicators(values))
            else:
                words = HashingVectorizer(ngram_range=(1, 2), n_features=2**30, norm="l2",
                                          alternate_sign=False)  # fmt: skip
                counts = words.transform(values).tocsc()
                parts.append(counts[:, np.unique(counts.indices if counts.format == "csr" else
                                                 counts.nonzero()[1])].toarray())  # fmt: skip
        return np.hstack(parts)


def _missing(value) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _indicators(values) -> np.ndarray:
    """Return a column for each of the first hundred categories, and 28 that others share."""
    from folklearn.model.roles import place_of

    names: dict = {}
    for value in values:
        if value not in names and len(names) < 100:
            names[value] = len(names)
    X = np.zeros((len(values), len(names) + 28))
    for t, value in enumerate(values):
        X[t, names.get(value, len(names) + place_of(value) % 28)] = 1.0
    return X[:, X.any(axis=0)]


def _numbers(X, y) -> Data:
    columns = {f"x{j}": X[:, j].tolist() for j in range(X.shape[1])}
    return Data(columns, [f"c{k}" for k in y], dict.fromkeys(columns, "number"))


def _bundled(name: str) -> Data:
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    if name == "diabetes":
        y = (y > np.median(y)).astype(int)
    order = np.random.default_rng(0).permutation(len(y))[:500]
    return _numbers(X[order], y[order])


def _stream(kind: str) -> Data:
    rng = np.random.default_rng(1)
    T = 2700
    X = rng.normal(size=(T, 4))
    z = X @ np.array([2.0, -1.0, 0.5, 0.0])
    y = (z + rng.logistic(size=T) > 0).astype(int)
    if kind == "separable":
        return _numbers(X[:900], (z[:900] > 0.05).astype(int))
    if kind == "drifting scale":
        X *= np.exp(np.linspace(0.0, 4.0, T))[:, None]
    if kind == "heavy tails":
        X = rng.standard_t(1.2, size=(T, 4))
        y = (np.clip(X[:, 0], -3, 3) + rng.logistic(size=T) > 0).astype(int)
    data = _numbers(X, y)
    if kind == "many categories":
        codes = rng.integers(0, 400, T)
        columns = {"place": [f"k{code}" for code in codes], "x0": data.columns["x0"]}
        labels = [f"c{int(code % 3 > 0)}" for code in codes]
        return Data(columns, labels, {"place": "category", "x0": "number"})
    if kind == "words":
        T = 600
        texts = [" ".join(f"w{w}" for w in rng.integers(0, 40, 6)) for _ in range(T)]
        labels = [f"c{int('w1 ' in text + ' ' or 'w2 ' in text + ' ')}" for text in texts]
        return Data({"text": texts}, labels, {"text": "words"})
    if kind == "late columns":  # one within the head, none behind it
        data.columns["x3"][:700] = [None] * 700
    if kind == "missing values":
        for values in data.columns.values():
            for t in rng.choice(T, T // 5, replace=False):
                values[t] = None
    return data


BUNDLED = "iris", "wine", "breast_cancer", "digits", "diabetes"
STREAMS = (
    "separable", "many categories", "words", "drifting scale", "heavy tails", "late columns",
    "missing values",
)  # fmt: skip


def _losses(Z, y) -> float:
    Z = Z - Z.max(axis=1, keepdims=True)
    return float((np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(len(y)), y]).sum())


def _weights(fit: LogisticRegression) -> np.ndarray:
    """Return (K, 1 + d), the constant first, centred over the classes."""
    W = np.hstack([fit.intercept_[:, None], fit.coef_])
    if len(W) == 1:
        W = np.vstack([-0.5 * W, 0.5 * W])
    return W - W.mean(axis=0)


def _cost(X, y, W) -> float:
    """Return the loss of W (K, 1 + d) and its penalty at C = 1, as scikit-learn has it."""
    tau = np.full(X.shape[1], 2.0 if len(W) == 2 else 1.0)
    tau[0] *= 1e-4  # the constant is hardly penalised
    return _losses(X @ W.T, y) + 0.5 * float((tau * W**2).sum())


@pytest.fixture(params=[*BUNDLED, *STREAMS], scope="module")
def case(request):
    name = request.param
    data = _bundled(name) if name in BUNDLED else _stream(name)
    model = folklearn.Model(roles=data.kinds, windows=True)
    run = model.run(data.rows(), target="label", exact=True)
    labels = list(model.labels)
    y = np.array([labels.index(label) for label in data.y])
    X = data.design(256 if model.encoder.sparse else HEAD)
    return data, model, run, X, y, _regressions(X, y)


def _regressions(X, y) -> list[np.ndarray]:
    fits = (LogisticRegression(C=C, max_iter=3000).fit(X[:, 1:], y) for C in PENALTIES)
    return [scale * _weights(fit) for fit in fits for scale in (0.3, 1.0, 3.0)]


def test_no_regression_is_below_the_certificate(case):
    _, _, run, X, y, regressions = case
    found, n = run.certificate, len(y)
    least = min(_cost(X, y, W) for W in regressions)
    assert found.C == 1.0
    assert 0.0 < found.best_linear_at_least <= least * (1.0 + 1e-9)
    for W in regressions:
        assert _losses(X @ W.T, y) >= found.at_norm(np.linalg.norm(W)) - 1e-9 * n
    # The sentence states the models and the number that were just checked, rounded the safe way.
    words = found.in_words()
    assert "whatever its weights" in words
    assert "its penalty (C = 1) counted" in words
    bound = float(re.search(r"loss of at least ([\d.e-]+) on these rows", words)[1])
    assert bound <= found.best_linear_at_least / n


def test_no_regression_is_below_hindsight(case):
    data, model, run, _, y, _ = case
    found, K = run.hindsight, len(model.labels)
    X = data.design(len(y))
    for W in _regressions(X, y):
        assert _cost(X, y, W) >= found.at_least * (1.0 - 1e-9)
    W = _weights(LogisticRegression(C=1.0, max_iter=10000, tol=1e-8).fit(X[:, 1:], y))
    assert found.loss == pytest.approx(_losses(X @ W.T, y), rel=1e-3)
    tau = 2.0 if K == 2 else 1.0
    assert found.penalty == pytest.approx(0.5 * tau * (W[:, 1:] ** 2).sum(), rel=1e-3)
    assert 0.0 <= found.gap <= 1e-4 * (found.loss + found.penalty)


def test_the_certificate_is_near_hindsight_where_coordinates_are_the_same(case):
    """Of a short stream all rows set the coordinates and wait: the bound is what can be had."""
    _, model, run, _, y, _ = case
    found, hindsight = run.certificate.best_linear_at_least, run.hindsight
    if not model.encoder.sparse and len(y) < HEAD:
        assert found == pytest.approx(hindsight.loss + hindsight.penalty, rel=1e-3)


def test_the_saved_model_says_the_same_and_keeps_to_it(case):
    _, model, run, X, y, _ = case
    assert folklearn.load(model.to_bytes()).certificate() == run.certificate
    if model.encoder.sparse:
        return
    evidence = model.pipeline.evidence
    scaler = evidence._open_columns(evidence.rows.batch(evidence.numeric))
    W = scaler.model(*model.pipeline.linear())
    W -= W.mean(axis=0)
    assert _cost(X, y, W) >= run.certificate.best_linear_at_least


def test_windows_have_bounds_for_the_same_models(case):
    _, model, run, X, y, regressions = case
    windows = model.windows()
    assert windows[-1].start == 0
    whole = 0.0 if model.encoder.sparse else 0.999 * run.certificate.best_linear_at_least
    assert windows[-1].lower_bound >= whole
    for window in windows:
        own = slice(window.start, window.stop)
        for W in [*regressions, *_regressions_of_some(X[own], y[own], len(model.labels))]:
            assert _cost(X[own], y[own], W) >= window.lower_bound - 1e-9 * len(y)


def _regressions_of_some(X, y, K) -> list[np.ndarray]:
    """Return regressions of rows that may have all classes or not."""
    return _regressions(X, y)[:9] if len(set(y.tolist())) == K else []


def test_report_and_sentence_name_the_models(case):
    _, model, run, *_ = case
    sentences = describe_claims(model)
    assert run.hindsight.in_words() in sentences
    assert run.certificate.in_words() in sentences
    page = model.report()
    for sentence in sentences:
        assert sentence.split(":")[0] in page
    assert "no linear model" not in page.lower()
    assert "whatever its weights" in page
    assert "its penalty (C = 1) counted" in page


def test_rows_of_a_long_stream_are_kept_for_hindsight_only_if_asked():
    """A stream takes no more memory the longer it is; a run says that there is no hindsight."""
    X = np.random.default_rng(0).normal(size=(2**17, 33))  # 34.6 million bytes
    rows = pd.DataFrame(X).add_prefix("x").assign(y=X[:, 0] > 0.0)
    for some, exact, known in ((rows[:1000], None, True), (rows, None, False), (rows, True, True)):
        run = folklearn.Model(terms="none").run(some, target="y", exact=exact)
        assert (run.hindsight is not None) == known
