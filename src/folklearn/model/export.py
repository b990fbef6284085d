"""What a model predicts as an ONNX graph: standard operators, in double precision.

The graph repeats `OnlinePipeline.predict` of a model that goes on no further: places of columns,
scaling, terms, and the experts as the hold-out weighs them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import __version__
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels import scaling
from folklearn.kernels.simplex import helmert
from folklearn.learners.folklore import SecondOrderLearner
from folklearn.model import roles as known_roles
from folklearn.model.batch import shared_part
from folklearn.model.encoder import FEATURES, TableEncoder
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.roles import CATEGORY, DATE_PARTS, DATES, DAY_SECONDS, NUMBER, WORDS
from folklearn.model.terms import TermScaler, TermSet
from folklearn.readers.convert import format_role
from folklearn.scaler import OnlineScaler
from folklearn.utils import import_optional, join_names

if TYPE_CHECKING:
    from folklearn.model.table_classifier import TableClassifier

_OPSETS, _IR_VERSION = {"": 21, "ai.onnx.ml": 3}, 10
_OUTPUTS = _LABEL, _PROBABILITIES = "label", "probabilities"
_MATRIX = "X"  # the input, where columns have no names
_MIN_SHARE = 1e-9  # of an expert that is not left out
_SINE_ERROR = 1e-12  # at most, between runtimes
_MAX_STEPS, _LAST_STEP = 10_000, 1e-11  # of a fixed point; logits


def _op(op: str, *operands: Any, **attributes: Any) -> "_Value":
    """Append an operation, on values and on what arrays can be made of; return its result."""
    graph = next(operand.graph for operand in operands if isinstance(operand, _Value))
    names = [x.name if isinstance(x, _Value) else graph.add_constant(x) for x in operands]
    return graph.add(op, names, **attributes)


def _operator(op: str) -> Any:
    return lambda value, other: _op(op, value, other)


class _Value:
    """An input or the result of an operation; operators append further ones to its graph."""

    def __init__(self, graph: "_Graph", name: str) -> None:
        self.graph, self.name = graph, name

    def to_numbers(self) -> "_Value":
        return _op("Cast", self, to=self.graph.onnx.TensorProto.DOUBLE)

    __add__, __sub__ = _operator("Add"), _operator("Sub")
    __mul__, __truediv__, __matmul__ = _operator("Mul"), _operator("Div"), _operator("MatMul")
    __lt__, __gt__ = _operator("Less"), _operator("Greater")
    __and__, __or__ = _operator("And"), _operator("Or")


class _Graph:
    """Operations, each with the name of its result, and constants, which are arrays."""

    def __init__(self) -> None:
        self.onnx = import_optional("onnx", "ONNX files need", "onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._n_results = 0

    def _name(self, kind: str) -> str:
        self._n_results += 1
        return f"{kind}/{self._n_results}"

    def add(self, op: str, names: list[str], **attributes: Any) -> _Value:
        result = self._name(op)
        self._nodes.append(self.onnx.helper.make_node(op, names, [result], **attributes))
        return _Value(self, result)

    def add_constant(self, value: Any) -> str:
        name, array = self._name("constant"), np.array(value, order="C")
        self._constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def _describe(self, name: str, kind: str, shape: Sequence[int | str] | None) -> Any:
        number = getattr(self.onnx.TensorProto, kind)
        return self.onnx.helper.make_tensor_value_info(name, number, shape)

    def add_input(self, name: str, kind: str, *shape: int | str) -> _Value:
        self._inputs.append(self._describe(name, kind, ("rows", *shape)))
        return _Value(self, name)

    def repeat(self, start: _Value, step: Callable[[_Value], tuple[_Value, _Value]]) -> _Value:
        """Repeat a step, from a value to the next one and whether to go on; return the last."""
        outer, self._nodes = self._nodes, []
        n, goes_on, value = map(self._name, ("n", "goes_on", "value"))
        following, goes_on_then = step(_Value(self, value))
        body = self.onnx.helper.make_graph(
            self._nodes, "step",
            [self._describe(n, "INT64", ()), self._describe(goes_on, "BOOL", ()),
             self._describe(value, "DOUBLE", None)],
            [self._describe(goes_on_then.name, "BOOL", ()),
             self._describe(following.name, "DOUBLE", None)],
        )  # fmt: skip
        self._nodes = outer
        return _op("Loop", np.int64(_MAX_STEPS), np.True_, start, body=body)

    def as_bytes(
        self, label: _Value, label_kind: str, probabilities: _Value, n_classes: int
    ) -> bytes:
        for result, name in zip((label, probabilities), _OUTPUTS, strict=True):
            self._nodes.append(self.onnx.helper.make_node("Identity", [result.name], [name]))
        outputs = [
            self._describe(_LABEL, label_kind, ("rows",)),
            self._describe(_PROBABILITIES, "DOUBLE", ("rows", n_classes)),
        ]
        helper = self.onnx.helper
        model = helper.make_model(
            helper.make_graph(self._nodes, "folklearn", self._inputs, outputs, self._constants),
            opset_imports=[helper.make_opsetid(*version) for version in _OPSETS.items()],
            ir_version=_IR_VERSION, producer_name="folklearn", producer_version=__version__,
        )  # fmt: skip
        self.onnx.checker.check_model(model)
        return model.SerializeToString(deterministic=True)


def make_onnx(
    model: "TableClassifier", categories: Mapping[str, Iterable[str]] | None = None
) -> bytes:
    """Return the ONNX file of what a model predicts; see `Model.export`."""
    pipeline, encoder = model._check_learned()
    if pipeline.learner is None:
        raise InvalidInputError("there is nothing to export before two classes were learned")
    _check_exportable(encoder, categories or {})
    graph = _Graph()
    X = _add_columns(graph, encoder, categories or {})
    are_cycles = np.array([part in known_roles.CYCLES for _, part in encoder.keys])
    Z = _add_contexts(X, pipeline, _SINE_ERROR * are_cycles)
    P = _add_mixture(Z, _list_models(pipeline), pipeline.n_classes)
    labels: list[Any] = list(model.labels)
    are_integers = all(type(label) is int for label in labels)
    names = np.array(labels, np.int64) if are_integers else np.array([*map(str, labels)], object)
    label = _op("Gather", names, _op("ArgMax", P, axis=1, keepdims=0))
    return graph.as_bytes(label, "INT64" if are_integers else "STRING", P, len(labels))


def _check_exportable(encoder: TableEncoder, categories: Mapping[str, Iterable[str]]) -> None:
    words = [name for name, role in encoder.roles.items() if role == WORDS]
    if words:
        raise InvalidInputError(
            f"words are hashed ({join_names(words)}), for which ONNX has no operator; to leave "
            f"them out: {format_role(words[0], 'ignored')}"
        )
    if encoder.sparse or encoder.feature_names:
        raise InvalidInputError("sparse rows, and features by name, have no ONNX form")
    if not encoder.keys:
        raise InvalidInputError("no column had a value yet: there is nothing to export")
    shared = {source for source, part in encoder.keys if part.startswith("#")}
    if unlisted := sorted(shared - categories.keys()):
        raise InvalidInputError(
            f"further categories of {join_names(unlisted)} share places by a hash that ONNX does "
            "not have: list those that the file is to know, in Python "
            f"model.export(path, categories={{{unlisted[0]!r}: [...]}}); others count as missing"
        )
    if unknown := sorted(categories.keys() - {source for source, _ in encoder.keys}):
        raise InvalidInputError(f"categories names {unknown[0]!r}, which is no column with places")
    if taken := {source for source, _ in encoder.keys} & set(_OUTPUTS):
        raise InvalidInputError(
            f"a column is called {min(taken)!r}, like an output of the file: rename it, and learn "
            "again"
        )


def _add_columns(
    graph: _Graph, encoder: TableEncoder, categories: Mapping[str, Iterable[str]]
) -> _Value:
    """Add the inputs; return the raw features (rows, d) as the encoder has them."""
    parts_of: dict[str, list[str]] = {}
    for source, part in encoder.keys:
        parts_of.setdefault(source, []).append(part)
    crosses = {f"{a}:{b}": (a, b) for a, b in encoder.crosses}
    columns: dict[str, _Value] = {}  # (rows, 1), once they are inputs
    blocks = []
    for source, parts in parts_of.items():
        if source == FEATURES:
            indices = np.array(parts, np.int64)
            X = graph.add_input(_MATRIX, "DOUBLE", int(indices.max()) + 1)
            blocks.append(_op("Gather", _add_gaps(X, encoder), indices, axis=1))
            continue
        texts, numbers = list[_Value](), list[_Value]()
        for name in crosses.get(source, (source,)):
            role = encoder.roles[name]
            is_text = role == CATEGORY
            if name not in columns:
                values = graph.add_input(name, "STRING" if is_text else "DOUBLE")
                column = _op("Unsqueeze", values, np.array([1]))
                columns[name] = _add_gaps(column, encoder) if role == NUMBER else column
            (texts if is_text else numbers).append(columns[name])
        if texts:
            further = categories.get(source, ())
            blocks.append(_add_indicators(texts, numbers, parts, further))
        elif encoder.roles.get(source) in DATES:
            blocks.append(_add_date(numbers[0], parts))
        else:
            blocks.append(math.prod(numbers[1:], start=numbers[0]))
    by_source = [encoder.places[source, part] for source in parts_of for part in parts_of[source]]
    X = _op("Concat", *blocks, axis=1)
    return _op("Gather", X, np.argsort(by_source), axis=1)


def _add_gaps(X: _Value, encoder: TableEncoder) -> _Value:
    """Make missing what stands for a missing value in the model."""
    for value in sorted(value for value in encoder.gaps.values if isinstance(value, float)):
        X = _op("Where", _op("Equal", X, value), np.nan, X)
    return X


def _add_indicators(
    texts: list[_Value],
    numbers: list[_Value],
    parts: list[str],
    further: Iterable[str],
) -> _Value:
    """Return a column for each part: 1 (next to a number, that) where it is the category."""
    own_codes = {category: code for code, category in enumerate(parts)}
    shared = ((category, own_codes.get(shared_part(category))) for category in further)
    codes = {category: code for category, code in shared if code is not None} | own_codes
    text = texts[0]
    for second in texts[1:]:
        first = _op("StringConcat", text, np.array(known_roles.PAIR_MARK, object))
        text = _op("StringConcat", first, second)
    code = _op(
        "LabelEncoder", text, domain="ai.onnx.ml", keys_strings=[*codes],
        values_int64s=[*codes.values()], default_int64=-1,
    )  # fmt: skip
    values = _op("Equal", code, np.arange(len(parts))[None]).to_numbers()
    for number in numbers:
        values *= _op("Where", _op("IsNaN", number), 0.0, number)
    return values


def _add_date(seconds: _Value, parts: list[str]) -> _Value:
    """Return the parts of dates (rows, 1), given in seconds since 1970, as `encode_column`."""
    cycles = []
    for period in (DAY_SECONDS, known_roles.YEAR_SECONDS):
        phase = seconds - _op("Floor", seconds / period) * period
        angle = phase * (2.0 * np.pi / period)
        cycles += [_op("Sin", angle), _add_cosine(angle)]
    day = _op("Floor", seconds / DAY_SECONDS) + float(known_roles.FIRST_WEEKDAY)
    weekday = day - _op("Floor", day / 7.0) * 7.0
    is_day = _op("Equal", weekday, np.arange(7.0)).to_numbers()
    days = _op("Where", _op("IsNaN", seconds), np.nan, is_day)
    everything = _op("Concat", seconds, *cycles, days, axis=1)
    order = np.array([DATE_PARTS.index(part) for part in parts])
    return _op("Gather", everything, order, axis=1)


def _add_cosine(angles: _Value) -> _Value:
    # Older runtimes have the cosine in single precision alone.
    return _op("Sin", angles + np.pi / 2.0)


def _add_contexts(X: _Value, pipeline: OnlinePipeline, errors: Array) -> _Value:
    """Return terms, columns and the constant; features may be above a knot by `errors` (d,)."""
    scaler = pipeline.scaler
    assert isinstance(scaler, OnlineScaler)
    features = _add_scaled(X, scaler)
    places = np.zeros(scaler.n_features + scaler.intercept, np.int64)
    places[scaler.feature_columns] = np.arange(scaler.n_features)
    Z = _op("Gather", features, places, axis=1)
    if scaler.intercept:
        is_constant = np.arange(len(places)) == scaler.place
        Z = _op("Where", is_constant, scaler.constant, Z)
    if isinstance(scaler, TermScaler) and scaler.terms is not None:
        terms = _add_terms(X, features / scaler.unit, scaler.terms, errors)
        Z = _op("Concat", _add_scaled_terms(terms, scaler), Z, axis=1)
    return Z


def _add_scaled(X: _Value, scaler: OnlineScaler) -> _Value:
    """Return features scaled as `kernels.scaling.scale_rows` does the row that comes next."""
    is_missing, score = _op("IsNaN", X), X
    if scaler.scale:
        count, mean, squares, half_mean, half_squares = scaler._moments
        n = count + 1.0
        means, sums = _add_moments(X, n, mean, squares)
        fraction, exponent = np.frexp(n)
        doubles = (fraction == 0.5) & (n > scaling._FIRST_SCALE_REVIEW_VALUES // 2)
        if doubles.any():
            n_half = np.where(doubles, n - np.ldexp(1.0, exponent - 2), 1.0)
            of_half = _add_moments(X, n_half, half_mean, half_squares)
            is_less = of_half[1] / n_half < sums / (n * scaling._FURTHEST**2)
            is_other = (of_half[1] > 0.0) & doubles & is_less
            means = _op("Where", is_other, of_half[0], means)
            sums = _op("Where", is_other, of_half[1] * (n / n_half), sums)
        largest = np.minimum(scaling._LARGEST_SCORE, np.sqrt(n - 1.0))
        score = _add_score(X - means, sums / n, largest) * scaler.unit
    return _op("Where", is_missing, 0.0, score)


def _add_moments(X: _Value, n: Array, mean: Array, squares: Array) -> tuple[_Value, _Value]:
    """Return mean and squared deviations with one value more, the n-th."""
    deviations = np.sqrt(squares / np.maximum(n - 1.0, 1.0))
    limit = np.where(squares > 0.0, scaling._FURTHEST * deviations, np.inf)
    step = _op("Max", _op("Min", X - mean, limit), -limit)
    return step / n + mean, step * step * ((n - 1.0) / n) + squares


def _add_score(away: _Value, variance: _Value, largest: Any) -> _Value:
    """Return deviations divided by their root mean square, within limits; 0 without any."""
    varies = variance > 0.0
    divisor = _op("Sqrt", _op("Where", varies, variance, 1.0))
    score = _op("Where", varies, away / divisor, 0.0)
    return _op("Max", _op("Min", score, largest), np.negative(largest))


def _add_terms(X: _Value, scores: _Value, terms: TermSet, errors: Array) -> _Value:
    """Return the terms (rows, n) of raw and standardised features, as `expand_terms`."""
    blocks = []
    edges = [0, *(np.flatnonzero(np.diff(terms.kinds)) + 1), len(terms.kinds)]
    for start, stop in pairwise(edges):
        if start == stop:
            continue
        i, j = terms.columns[start:stop].T
        q, r = terms.numbers[start:stop].T
        x, y = _op("Gather", X, i, axis=1), _op("Gather", X, j, axis=1)
        kind = terms.kinds[start]
        if kind == scaling.PRODUCT:
            factors = [_op("Gather", scores, places, axis=1) for places in (i, j)]
            value = factors[0] * factors[1]
        elif kind == scaling.HINGE:
            value = _op("Min", _op("Max", (x - q) * r, 0.0), scaling._HIGHEST_HINGE)
        else:
            is_above = x > q + errors[i]
            if kind == scaling.CROSS:
                is_above &= y > r + errors[j]
            value = is_above.to_numbers()
        is_missing = _op("IsNaN", x) | _op("IsNaN", y)
        blocks.append(_op("Where", is_missing, np.nan, value))
    if len(terms.phases):
        Z = _op("Gather", scores, np.arange(terms.n_columns), axis=1)
        angles = Z @ terms.frequencies.T + terms.phases
        blocks.append(_add_cosine(angles) * np.sqrt(2.0))
    return _op("Concat", *blocks, axis=1)


def _add_scaled_terms(values: _Value, scaler: TermScaler) -> _Value:
    """Return terms scaled as `kernels.scaling.scale_terms` does those of the next row."""
    count, mean, squares = scaler._term_moments
    n = count + 1.0
    away = values - mean
    left = values - (away / n + mean)
    score = _add_score(left, (away * left + squares) / n, scaling._LARGEST_SCORE)
    return _op("Where", _op("IsNaN", values), 0.0, score * scaler._factors)


def _list_models(pipeline: OnlinePipeline) -> list[tuple[float, Any]]:
    """Return what `predict` mixes, see `Learner._mixed_models`, but for what has no share."""
    learner, fit = pipeline.learner, pipeline.batch_fit
    assert learner is not None
    if fit is not None:
        W = fit if isinstance(fit, np.ndarray) else pipeline.coef()
        return [(1.0, np.pad(W, ((0, 0), (0, 1))))]
    models = learner._mixed_models(pipeline.holdout.weights(learner))
    return [(share, model) for share, model in models if share > _MIN_SHARE]


def _add_mixture(Z: _Value, models: list[tuple[float, Any]], n_classes: int) -> _Value:
    """Return the probabilities (rows, K) of models of the last columns of contexts (rows, n)."""
    parts, linear = [], dict[int, list[tuple[float, Array]]]()
    for share, model in models:
        if isinstance(model, np.ndarray):
            linear.setdefault(model.shape[1] - 1, []).append((share, model))
        else:
            P = _add_second_order(_add_last(Z, model.n_features), model)
            parts.append(P * share)
    for n_columns, group in linear.items():
        W = np.concatenate([W for _, W in group])  # (E K, n + 1)
        shares = np.array([[share] for share, _ in group])
        logits = _add_last(Z, n_columns) @ W[:, :-1].T + W[:, -1]
        logits = _op("Reshape", logits, np.array([-1, len(group), n_classes]))
        P = _op("Softmax", logits, axis=-1) * shares
        parts.append(_op("ReduceSum", P, np.array([1]), keepdims=0))
    total = parts[0] if len(parts) == 1 else _op("Sum", *parts)
    return total / sum(share for share, _ in models)


def _add_last(Z: _Value, n: int) -> _Value:
    return _op("Slice", Z, np.array([-n]), np.array([np.iinfo(np.int64).max]), np.array([1]))


def _add_second_order(x: _Value, learner: Any) -> _Value:
    """Return the probabilities (rows, K) of the explicit rule of `kernels.prediction_rules`.

    In logits z = Qu it is z = g - pull D softmax(z) with D = QCQ', a descent in which converges:
    its steps are those of gradient descent on a function with curvatures from 1 to 1 + pull |D|/2.
    """
    if not isinstance(learner, SecondOrderLearner) or (rule := learner._explicit_rule()) is None:
        raise InvalidInputError(
            f"{type(learner).__name__} predicts by a rule that has no ONNX form: use another "
            "learner, such as the default"
        )
    S, pull = rule
    (k, d), K = S.shape[:2], learner.n_classes
    by_class = x @ S.transpose(1, 0, 2, 3).reshape(d, k * k * d)
    products = _op("Reshape", by_class, np.array([-1, k * k, d]))
    column = _op("Unsqueeze", x, np.array([2]))
    C = _op("Reshape", products @ column, np.array([-1, k, k]))
    Q = helmert(K)
    D = _op("MatMul", Q, C) @ Q.T
    diagonal = _op("ReduceSum", D * np.eye(K), np.array([2]), keepdims=0)
    g = x @ learner.coef().T + diagonal * 0.25
    lengths = _op("ReduceSum", _op("Abs", D), np.array([2]), keepdims=0)
    norm = _op("ReduceMax", lengths, np.array([1]), keepdims=1)
    rate = _op("Reciprocal", norm * (0.25 * pull) + 1.0)

    def take_step(z: _Value) -> tuple[_Value, _Value]:
        p = _op("Unsqueeze", _op("Softmax", z, axis=-1), np.array([2]))
        pulled = _op("Squeeze", D @ p, np.array([2]))
        step = (g - pulled * pull - z) * rate
        largest = _op("ReduceMax", _op("Abs", step), keepdims=0)
        return z + step, largest > _LAST_STEP

    return _op("Softmax", g.graph.repeat(g, take_step), axis=-1)
