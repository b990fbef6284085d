"""What a model predicts as an ONNX graph: standard operators, in double precision.

The graph repeats `OnlinePipeline.predict` of a model that goes on no further: places of columns,
scaling, terms, and the experts as the hold-out weighs them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import __version__
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.kernels import scaling
from folklearn.kernels import terms as kinds
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

Operand = Any  # the name of a result, or what an array can be made of

_OPSETS, _IR_VERSION = {"": 21, "ai.onnx.ml": 3}, 10
_OUTPUTS = _LABEL, _PROBABILITIES = "label", "probabilities"
_MATRIX = "X"  # the input, where columns have no names
_MIN_SHARE = 1e-9  # of an expert that is not left out
_SINE_ERROR = 1e-12  # at most, between runtimes
_MAX_STEPS, _LAST_STEP = 10_000, 1e-11  # of a fixed point; logits


class _Graph:
    """Operations, each with the name of its result, and constants, which are arrays."""

    def __init__(self) -> None:
        self._onnx = import_optional("onnx", "ONNX files need", "onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._n_results = 0

    def _name(self, kind: str) -> str:
        self._n_results += 1
        return f"{kind}/{self._n_results}"

    def add(self, op: str, *operands: Operand, **attributes: Any) -> str:
        """Append an operation; return the name of its result."""
        names = [x if isinstance(x, str) else self._add_constant(x) for x in operands]
        result = self._name(op)
        self._nodes.append(self._onnx.helper.make_node(op, names, [result], **attributes))
        return result

    def to_numbers(self, truths: str) -> str:
        return self.add("Cast", truths, to=self._onnx.TensorProto.DOUBLE)

    def _add_constant(self, value: Any) -> str:
        name, array = self._name("constant"), np.array(value, order="C")
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def _describe(self, name: str, kind: str, shape: Sequence[int | str] | None) -> Any:
        number = getattr(self._onnx.TensorProto, kind)
        return self._onnx.helper.make_tensor_value_info(name, number, shape)

    def add_input(self, name: str, kind: str, *shape: int | str) -> str:
        self._inputs.append(self._describe(name, kind, ("rows", *shape)))
        return name

    def repeat(self, start: str, step: Callable[[str], tuple[str, str]]) -> str:
        """Repeat a step, from a value to the next one and whether to go on; return the last."""
        outer, self._nodes = self._nodes, []
        n, goes_on, value = map(self._name, ("n", "goes_on", "value"))
        following, goes_on_then = step(value)
        body = self._onnx.helper.make_graph(
            self._nodes, "step",
            [self._describe(n, "INT64", ()), self._describe(goes_on, "BOOL", ()),
             self._describe(value, "DOUBLE", None)],
            [self._describe(goes_on_then, "BOOL", ()), self._describe(following, "DOUBLE", None)],
        )  # fmt: skip
        self._nodes = outer
        return self.add("Loop", np.int64(_MAX_STEPS), np.True_, start, body=body)

    def as_bytes(self, label: str, label_kind: str, probabilities: str, n_classes: int) -> bytes:
        """Return the file of the graph with these outputs."""
        for result, name in zip((label, probabilities), _OUTPUTS, strict=True):
            self._nodes.append(self._onnx.helper.make_node("Identity", [result], [name]))
        outputs = [
            self._describe(_LABEL, label_kind, ("rows",)),
            self._describe(_PROBABILITIES, "DOUBLE", ("rows", n_classes)),
        ]
        helper = self._onnx.helper
        model = helper.make_model(
            helper.make_graph(self._nodes, "folklearn", self._inputs, outputs, self._constants),
            opset_imports=[helper.make_opsetid(*version) for version in _OPSETS.items()],
            ir_version=_IR_VERSION, producer_name="folklearn", producer_version=__version__,
        )  # fmt: skip
        self._onnx.checker.check_model(model)
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
    Z = _add_contexts(graph, X, pipeline, _SINE_ERROR * are_cycles)
    P = _add_mixture(graph, Z, _list_models(pipeline), pipeline.n_classes)
    labels: list[Any] = list(model.labels)
    are_integers = all(type(label) is int for label in labels)
    names = np.array(labels, np.int64) if are_integers else np.array([*map(str, labels)], object)
    label = graph.add("Gather", names, graph.add("ArgMax", P, axis=1, keepdims=0))
    return graph.as_bytes(label, "INT64" if are_integers else "STRING", P, len(labels))


def _check_exportable(encoder: TableEncoder, categories: Mapping[str, Iterable[str]]) -> None:
    words = [name for name, role in encoder.roles.items() if role == WORDS]
    if words:
        raise InvalidInputError(
            f"words are hashed ({join_names(words)}), for which ONNX has no operator; to leave "
            f"them out: {format_role(words[0], 'ignored')}"
        )
    if encoder.sparse or encoder.feature_names:
        raise InvalidInputError(
            "sparse rows, and features by name, have no ONNX form: learn from columns, or from a "
            "matrix"
        )
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
) -> str:
    """Add the inputs; return the raw features (rows, d) as the encoder has them."""
    parts_of: dict[str, list[str]] = {}
    for source, part in encoder.keys:
        parts_of.setdefault(source, []).append(part)
    crosses = {f"{a}:{b}": (a, b) for a, b in encoder.crosses}
    columns: dict[str, str] = {}  # (rows, 1), once they are inputs
    blocks = []
    for source, parts in parts_of.items():
        if source == FEATURES:
            indices = np.array(parts, np.int64)
            X = graph.add_input(_MATRIX, "DOUBLE", int(indices.max()) + 1)
            blocks.append(graph.add("Gather", _add_gaps(graph, X, encoder), indices, axis=1))
            continue
        texts, numbers = list[str](), list[str]()
        for name in crosses.get(source, (source,)):
            role = encoder.roles[name]
            is_text = role == CATEGORY
            if name not in columns:
                given = graph.add_input(name, "STRING" if is_text else "DOUBLE")
                column = graph.add("Unsqueeze", given, np.array([1]))
                columns[name] = _add_gaps(graph, column, encoder) if role == NUMBER else column
            (texts if is_text else numbers).append(columns[name])
        if texts:
            further = categories.get(source, ())
            blocks.append(_add_indicators(graph, texts, numbers, parts, further))
        elif encoder.roles.get(source) in DATES:
            blocks.append(_add_date(graph, numbers[0], parts))
        else:
            blocks.append(numbers[0] if len(numbers) == 1 else graph.add("Mul", *numbers))
    by_source = [encoder.places[source, part] for source in parts_of for part in parts_of[source]]
    X = graph.add("Concat", *blocks, axis=1)
    return graph.add("Gather", X, np.argsort(by_source), axis=1)


def _add_gaps(graph: _Graph, X: str, encoder: TableEncoder) -> str:
    """Make missing what stands for a missing value in the model."""
    for value in sorted(value for value in encoder.gaps.values if isinstance(value, float)):
        X = graph.add("Where", graph.add("Equal", X, value), np.nan, X)
    return X


def _add_indicators(
    graph: _Graph, texts: list[str], numbers: list[str], parts: list[str], further: Iterable[str]
) -> str:
    """Return a column for each part, 1 where it is the category; an unknown one has none.

    Of two texts the category is the pair; next to a number 1 becomes the number.
    """
    places = {part: place for place, part in enumerate(parts)}
    shares = ((category, places.get(shared_part(category))) for category in further)
    codes = {category: place for category, place in shares if place is not None} | places
    text = texts[0]
    for other in texts[1:]:
        before = graph.add("StringConcat", text, np.array(known_roles.PAIR_MARK, object))
        text = graph.add("StringConcat", before, other)
    code = graph.add(
        "LabelEncoder", text, domain="ai.onnx.ml", keys_strings=[*codes],
        values_int64s=[*codes.values()], default_int64=-1,
    )  # fmt: skip
    values = graph.to_numbers(graph.add("Equal", code, np.arange(len(parts))[None]))
    for number in numbers:
        present = graph.add("Where", graph.add("IsNaN", number), 0.0, number)
        values = graph.add("Mul", values, present)
    return values


def _add_date(graph: _Graph, seconds: str, parts: list[str]) -> str:
    """Return the parts of dates (rows, 1), given in seconds since 1970, as `encode_column`."""
    cycles = []
    for period in (DAY_SECONDS, known_roles.YEAR_SECONDS):
        turns = graph.add("Floor", graph.add("Div", seconds, period))
        phase = graph.add("Sub", seconds, graph.add("Mul", turns, period))
        angle = graph.add("Mul", phase, 2.0 * np.pi / period)
        cycles += [graph.add("Sin", angle), _add_cosine(graph, angle)]
    day = graph.add("Floor", graph.add("Div", seconds, DAY_SECONDS))
    shifted = graph.add("Add", day, float(known_roles.FIRST_WEEKDAY))
    weeks = graph.add("Floor", graph.add("Div", shifted, 7.0))
    weekday = graph.add("Sub", shifted, graph.add("Mul", weeks, 7.0))
    is_day = graph.to_numbers(graph.add("Equal", weekday, np.arange(7.0)))
    days = graph.add("Where", graph.add("IsNaN", seconds), np.nan, is_day)
    everything = graph.add("Concat", seconds, *cycles, days, axis=1)
    order = np.array([DATE_PARTS.index(part) for part in parts])
    return graph.add("Gather", everything, order, axis=1)


def _add_cosine(graph: _Graph, angles: str) -> str:
    # Older runtimes have the cosine in single precision alone.
    return graph.add("Sin", graph.add("Add", angles, np.pi / 2.0))


def _add_contexts(graph: _Graph, X: str, pipeline: OnlinePipeline, errors: Array) -> str:
    """Return the contexts of raw features (rows, d): terms, columns and the constant.

    Features may be more by `errors` (d,) than in the model, and are not above a knot for that.
    """
    scaler = pipeline.scaler
    assert isinstance(scaler, OnlineScaler)
    features = _add_scaled(graph, X, scaler)
    places = np.zeros(scaler.n_features + scaler.intercept, np.int64)
    places[scaler.feature_columns] = np.arange(scaler.n_features)
    Z = graph.add("Gather", features, places, axis=1)
    if scaler.intercept:
        is_constant = np.arange(len(places)) == scaler.place
        Z = graph.add("Where", is_constant, scaler.constant, Z)
    if isinstance(scaler, TermScaler) and scaler.terms is not None:
        scores = graph.add("Div", features, scaler.unit)
        terms = _add_terms(graph, X, scores, scaler.terms, errors)
        Z = graph.add("Concat", _add_scaled_terms(graph, terms, scaler), Z, axis=1)
    return Z


def _add_scaled(graph: _Graph, X: str, scaler: OnlineScaler) -> str:
    """Return features scaled as `kernels.scaling.scale_rows` does the row that comes next."""
    is_missing, score = graph.add("IsNaN", X), X
    if scaler.scale:
        count, mean, squares, half_mean, half_squares = scaler._moments
        n = count + 1.0
        means, sums = _add_moments(graph, X, n, mean, squares)
        fraction, exponent = np.frexp(n)
        doubles = (fraction == 0.5) & (n > scaling._FIRST_SCALE_REVIEW_VALUES // 2)
        if doubles.any():
            n_half = np.where(doubles, n - np.ldexp(1.0, exponent - 2), 1.0)
            of_half = _add_moments(graph, X, n_half, half_mean, half_squares)
            less = graph.add(
                "Less", graph.add("Div", of_half[1], n_half),
                graph.add("Div", sums, n * scaling._FURTHEST**2),
            )  # fmt: skip
            varies = graph.add("And", doubles, graph.add("Greater", of_half[1], 0.0))
            is_other = graph.add("And", varies, less)
            means = graph.add("Where", is_other, of_half[0], means)
            sums = graph.add("Where", is_other, graph.add("Mul", of_half[1], n / n_half), sums)
        largest = np.minimum(scaling._LARGEST_SCORE, np.sqrt(n - 1.0))
        score = _add_score(graph, graph.add("Sub", X, means), graph.add("Div", sums, n), largest)
        score = graph.add("Mul", score, scaler.unit)
    return graph.add("Where", is_missing, 0.0, score)


def _add_moments(graph: _Graph, X: str, n: Array, mean: Array, squares: Array) -> tuple[str, str]:
    """Return mean and squared deviations with one value more, the n-th."""
    deviations = np.sqrt(squares / np.maximum(n - 1.0, 1.0))
    limit = np.where(squares > 0.0, scaling._FURTHEST * deviations, np.inf)
    step = graph.add("Max", graph.add("Min", graph.add("Sub", X, mean), limit), -limit)
    square = graph.add("Mul", graph.add("Mul", step, step), (n - 1.0) / n)
    return graph.add("Add", graph.add("Div", step, n), mean), graph.add("Add", square, squares)


def _add_score(graph: _Graph, away: str, variance: str, largest: Operand) -> str:
    """Return deviations divided by their root mean square, within limits; 0 without any."""
    varies = graph.add("Greater", variance, 0.0)
    divisor = graph.add("Sqrt", graph.add("Where", varies, variance, 1.0))
    score = graph.add("Where", varies, graph.add("Div", away, divisor), 0.0)
    return graph.add("Max", graph.add("Min", score, largest), np.negative(largest))


def _add_terms(graph: _Graph, X: str, scores: str, terms: TermSet, errors: Array) -> str:
    """Return the terms (rows, n) of raw and standardised features, as `expand_terms`."""
    blocks = []
    edges = [0, *(np.flatnonzero(np.diff(terms.kinds)) + 1), len(terms.kinds)]
    for start, stop in pairwise(edges):
        if start == stop:
            continue
        i, j = terms.columns[start:stop].T
        q, r = terms.numbers[start:stop].T
        x, y = graph.add("Gather", X, i, axis=1), graph.add("Gather", X, j, axis=1)
        kind = terms.kinds[start]
        if kind == kinds.PRODUCT:
            factors = (graph.add("Gather", scores, places, axis=1) for places in (i, j))
            value = graph.add("Mul", *factors)
        elif kind == kinds.HINGE:
            slope = graph.add("Mul", graph.add("Sub", x, q), r)
            value = graph.add("Min", graph.add("Max", slope, 0.0), kinds._HIGHEST_HINGE)
        else:
            is_above = graph.add("Greater", x, q + errors[i])
            if kind == kinds.CROSS:
                is_above = graph.add("And", is_above, graph.add("Greater", y, r + errors[j]))
            value = graph.to_numbers(is_above)
        is_missing = graph.add("Or", graph.add("IsNaN", x), graph.add("IsNaN", y))
        blocks.append(graph.add("Where", is_missing, np.nan, value))
    if len(terms.phases):
        Z = graph.add("Gather", scores, np.arange(terms.n_columns), axis=1)
        angles = graph.add("Add", graph.add("MatMul", Z, terms.frequencies.T), terms.phases)
        blocks.append(graph.add("Mul", _add_cosine(graph, angles), np.sqrt(2.0)))
    return graph.add("Concat", *blocks, axis=1)


def _add_scaled_terms(graph: _Graph, values: str, scaler: TermScaler) -> str:
    """Return terms scaled as `kernels.terms.scale_terms` does those of the row that comes next."""
    count, mean, squares = scaler._term_moments
    n = count + 1.0
    away = graph.add("Sub", values, mean)
    left = graph.add("Sub", values, graph.add("Add", graph.add("Div", away, n), mean))
    sums = graph.add("Add", graph.add("Mul", away, left), squares)
    score = _add_score(graph, left, graph.add("Div", sums, n), kinds._LARGEST_SCORE)
    scaled = graph.add("Mul", score, scaler._factors)
    return graph.add("Where", graph.add("IsNaN", values), 0.0, scaled)


def _list_models(pipeline: OnlinePipeline) -> list[tuple[float, Any]]:
    """Return what `predict` mixes, see `Learner._mixed_models`, but for what has no share."""
    learner, fit = pipeline.learner, pipeline.batch_fit
    assert learner is not None
    if fit is not None:
        W = fit if isinstance(fit, np.ndarray) else pipeline.coef()
        return [(1.0, np.pad(W, ((0, 0), (0, 1))))]
    models = learner._mixed_models(pipeline.holdout.weights(learner))
    return [(share, model) for share, model in models if share > _MIN_SHARE]


def _add_mixture(graph: _Graph, Z: str, models: list[tuple[float, Any]], n_classes: int) -> str:
    """Return the probabilities (rows, K) of models of the last columns of contexts (rows, n)."""
    parts, linear = [], dict[int, list[tuple[float, Array]]]()
    for share, model in models:
        if isinstance(model, np.ndarray):
            linear.setdefault(model.shape[1] - 1, []).append((share, model))
        else:
            P = _add_second_order(graph, _add_last(graph, Z, model.n_features), model)
            parts.append(graph.add("Mul", P, share))
    for n_columns, group in linear.items():
        W = np.concatenate([W for _, W in group])  # (E K, n + 1)
        shares = np.array([[share] for share, _ in group])
        logits = graph.add("MatMul", _add_last(graph, Z, n_columns), W[:, :-1].T)
        logits = graph.add("Add", logits, W[:, -1])
        logits = graph.add("Reshape", logits, np.array([-1, len(group), n_classes]))
        P = graph.add("Mul", graph.add("Softmax", logits, axis=-1), shares)
        parts.append(graph.add("ReduceSum", P, np.array([1]), keepdims=0))
    total = parts[0] if len(parts) == 1 else graph.add("Sum", *parts)
    return graph.add("Div", total, sum(share for share, _ in models))


def _add_last(graph: _Graph, Z: str, n: int) -> str:
    return graph.add("Slice", Z, np.array([-n]), np.array([np.iinfo(np.int64).max]), np.array([1]))


def _add_second_order(graph: _Graph, x: str, learner: Any) -> str:
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
    by_class = graph.add("MatMul", x, S.transpose(1, 0, 2, 3).reshape(d, k * k * d))
    products = graph.add("Reshape", by_class, np.array([-1, k * k, d]))
    column = graph.add("Unsqueeze", x, np.array([2]))
    C = graph.add("Reshape", graph.add("MatMul", products, column), np.array([-1, k, k]))
    Q = helmert(K)
    D = graph.add("MatMul", graph.add("MatMul", Q, C), Q.T)
    diagonal = graph.add("ReduceSum", graph.add("Mul", D, np.eye(K)), np.array([2]), keepdims=0)
    mean = graph.add("MatMul", x, learner.coef().T)
    g = graph.add("Add", mean, graph.add("Mul", diagonal, 0.25))
    lengths = graph.add("ReduceSum", graph.add("Abs", D), np.array([2]), keepdims=0)
    norm = graph.add("ReduceMax", lengths, np.array([1]), keepdims=1)
    rate = graph.add("Reciprocal", graph.add("Add", graph.add("Mul", norm, 0.25 * pull), 1.0))

    def take_step(z: str) -> tuple[str, str]:
        p = graph.add("Unsqueeze", graph.add("Softmax", z, axis=-1), np.array([2]))
        pulled = graph.add("Squeeze", graph.add("MatMul", D, p), np.array([2]))
        target = graph.add("Sub", g, graph.add("Mul", pulled, pull))
        step = graph.add("Mul", graph.add("Sub", target, z), rate)
        largest = graph.add("ReduceMax", graph.add("Abs", step), keepdims=0)
        return graph.add("Add", z, step), graph.add("Greater", largest, _LAST_STEP)

    return graph.add("Softmax", graph.repeat(g, take_step), axis=-1)
