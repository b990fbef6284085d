"""Every printed bound is true of the models that its sentence names, as scikit-learn fits them."""

import re
from typing import NamedTuple

import numpy as np
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


def _into(W: np.ndarray, norm: float) -> np.ndarray:
    lengths = np.linalg.norm(W, axis=1, keepdims=True)
    return W * np.minimum(1.0, norm / np.maximum(lengths, 1e-300)) * (1.0 - 1e-9)


@pytest.fixture(params=[*BUNDLED, *STREAMS], scope="module")
def case(request):
    name = request.param
    data = _bundled(name) if name in BUNDLED else _stream(name)
    model = folklearn.Model(roles=data.kinds, windows=True)
    run = model.run(data.rows(), target="label", exact=True)
    labels = list(model.labels)
    y = np.array([labels.index(label) for label in data.y])
    return data, model, run, y


def test_no_regression_is_below_the_bound_of_its_norm(case):
    data, model, run, y = case
    found, n = run.certificate, len(y)
    X = data.design(256 if model.encoder.sparse else HEAD)
    classes = sorted(set(y))
    models = [_weights(LogisticRegression(C=C, max_iter=3000).fit(X[:, 1:], y)) for C in PENALTIES]
    inside = 0
    for W in models:
        assert len(W) == len(classes)
        for own in (W, _into(W, found.B)):
            if np.linalg.norm(own, axis=1).max() <= found.B:
                inside += 1
                assert _losses(X @ own.T, y) >= found.best_linear_at_least - 1e-9 * n
    assert inside >= len(PENALTIES)
    # The sentence states the class and the number that were just checked, rounded the safe way.
    words = found.in_words()
    stated = float(
        re.search(r"of norm at most ([\d.]+) (?:per standard deviation )?for each class", words)[1]
    )
    assert stated <= found.B
    if found.best_linear_at_least > 0.0:
        bound = float(re.search(r"loss of at least ([\d.e-]+) on these rows", words)[1])
        assert bound <= found.best_linear_at_least / n


def test_no_model_of_any_norm_is_below_hindsight(case):
    data, model, run, y = case
    found, n, K = run.hindsight, len(y), len(model.labels)
    X = data.design(n)
    tau = 2.0 if K == 2 else 1.0
    for C in PENALTIES:
        W = _weights(LogisticRegression(C=C, max_iter=3000).fit(X[:, 1:], y))
        for own in (W, 0.3 * W, 3.0 * W):
            penalty = 0.5 * tau * float((own[:, 1:] ** 2).sum())
            assert _losses(X @ own.T, y) + penalty >= found.at_least
    fit = LogisticRegression(C=1.0, max_iter=10000, tol=1e-8).fit(X[:, 1:], y)
    W = _weights(fit)
    assert found.loss == pytest.approx(_losses(X @ W.T, y), rel=1e-3)
    assert found.penalty == pytest.approx(0.5 * tau * (W[:, 1:] ** 2).sum(), rel=1e-3)
    assert 0.0 <= found.gap <= 1e-4 * (found.loss + found.penalty)


def test_the_saved_model_itself_keeps_to_both(case):
    data, model, run, y = case
    found = run.certificate
    if model.encoder.sparse:
        assert np.isnan(found.norm)
        return
    evidence, core = model.pipeline.evidence, model.pipeline
    scaler = evidence._open_columns(evidence._waiting())
    W = scaler.model(*core.linear()) * scaler.unit
    W -= W.mean(axis=0)
    assert found.norm == pytest.approx(np.linalg.norm(W, axis=1).max())
    if found.norm <= found.B:
        X = data.design(HEAD)
        assert _losses(X @ W.T, y) >= found.best_linear_at_least - 1e-9 * len(y)
    else:
        assert "outside of that class" in found.in_words()


def test_windows_have_bounds_for_the_same_class(case):
    data, model, _, y = case
    X = data.design(256 if model.encoder.sparse else HEAD)
    fit = LogisticRegression(C=1.0, max_iter=3000).fit(X[:, 1:], y)
    windows = model.windows()
    assert windows[-1].start == 0
    for window in windows:
        W = _into(_weights(fit), window.B)
        own = slice(window.start, window.stop)
        assert _losses(X[own] @ W.T, y[own]) >= window.lower_bound - 1e-9 * len(y)
    assert pytest.approx(model.certificate().B) == windows[0].B


def test_report_and_sentence_name_the_class(case):
    _, model, run, _ = case
    sentences = describe_claims(model)
    assert run.hindsight.in_words() in sentences
    page = model.report()
    for sentence in sentences:
        assert sentence.split(":")[0] in page
    assert "no linear model" not in page.lower()
    assert "of norm at most" in page
