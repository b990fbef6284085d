"""Why one row is predicted as it is: what each column adds to the log odds of two classes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from folklearn.arrays import Array, Labels, softmax
from folklearn.batch.sparse_fit import ColumnModel
from folklearn.errors import InvalidInputError
from folklearn.learners.base import LeadingModel
from folklearn.learners.sparse_sgd import WITHOUT_WORDS
from folklearn.model.batch import Key
from folklearn.model.encoder import FEATURES, TableEncoder
from folklearn.model.explain import find_owners, find_words
from folklearn.model.pipeline import OnlinePipeline
from folklearn.model.roles import DATES, NUMBER, WORDS
from folklearn.model.terms import TermScaler
from folklearn.readers.convert import is_gap
from folklearn.readers.open import as_table
from folklearn.readers.table import (
    Column,
    Table,
    TextColumn,
    as_text_column,
    is_missing,
    table_from_records,
)
from folklearn.report.rendering import format_about, format_value
from folklearn.report.style import truncate_label
from folklearn.scaler import SPACE
from folklearn.sparse import SparseRows
from folklearn.utils import count_of

if TYPE_CHECKING:
    from folklearn.model.table_classifier import TableClassifier

_Line = tuple[tuple[str, ...], str]  # the columns that it belongs to, and its name
_WAVES: _Line = (), "waves of all columns"
_CONSTANT: _Line = (), "constant"
_FIT_OF_LINES = "the fit of lines to all rows"
_FIT_OF_TERMS = "the fit of lines and terms to all rows"
_FIT_OF_WORDS = "words on top"
_MAX_LINES, _MAX_WORDS, _MAX_LETTERS = 10, 5, 60  # of a text; of one column; of a line


class Contribution(NamedTuple):
    """What a column, a pair of columns, or a word of one adds to the log odds, in nats."""

    name: str  #: of the column, or the pair; ``column: word`` of a word
    value: Any  #: in this row, None if it is missing; "" of what has no value of its own
    nats: float
    columns: tuple[str, ...]  #: what it belongs to; none of the constant and of waves

    def __str__(self) -> str:
        value = format_value(self.value).removesuffix(" 00:00:00")  # of a day
        text = f"{self.name} = {value}" if self.value != "" else self.name
        text = f"{self.name} (missing)" if self.value is None else text
        return truncate_label(text, _MAX_LETTERS)


@dataclass(frozen=True, repr=False)
class RowExplanation:
    """Why a row is predicted as it is: the log odds of its class against the next, by column.

    A mixture has no contributions of columns. They are those of its linear model with the largest
    weight, or of the fit, and add up to the log odds that this model gives: of every column with
    all terms of it alone, pairs of columns, words, waves of all columns, the constant. What a
    number adds is measured from its mean, and so is a missing one, which adds nothing; of a
    category that is missing it is what none of the categories adds.
    """

    label: Any  #: the most probable class
    against: Any  #: the next
    probabilities: tuple[float, float]  #: of both, those of `Model.predict_proba`
    contributions: tuple[Contribution, ...]  #: what adds up to the log odds, largest first
    explained_by: str  #: the linear model
    share: float  #: its weight in the mixture
    model_probabilities: tuple[float, float]  #: of both classes, by this model alone

    @property
    def log_odds(self) -> float:
        """The log odds of `label` against `against` by the linear model: the sum of all."""
        return sum(line.nats for line in self.contributions)

    @property
    def table(self) -> list[tuple[str, Any, float]]:
        """All contributions as (name, value, nats)."""
        return [line[:3] for line in self.contributions]

    def top(self, n: int = 10) -> list[Contribution]:
        """Return the n largest contributions, and the sum of the others."""
        return _with_rest(self.contributions, n, "other")

    def by_column(self) -> dict[str, float]:
        """Return the sums by column, half of a pair to each; they add up to the same."""
        sums: dict[str, float] = {}
        for line in self.contributions:
            for column in line.columns or (line.name,):
                sums[column] = sums.get(column, 0.0) + line.nats / max(1, len(line.columns))
        return dict(sorted(sums.items(), key=lambda item: -abs(item[1])))

    def __repr__(self) -> str:
        p, q = map(format_about, self.probabilities)
        lines = [f"{self.label} ({p}) rather than {self.against} ({q})"]
        groups: dict[Any, list[Contribution]] = {}
        for line in self.contributions:
            groups.setdefault(line.columns or line.name, []).append(line)
        sums = []
        for columns, each in groups.items():
            total = Contribution(f"{columns[0]}:", "", sum(line.nats for line in each), columns)
            sums.append(each[0] if len(each) == 1 else total)
        for line in _with_rest(sums, _MAX_LINES, "other"):
            lines.append(f"{line.nats:+.2f}  {line}")
            if len(words := groups.get(line.columns, ())) > 1:  # below their sum
                for word in _with_rest(words, _MAX_WORDS, "other word"):
                    lines.append(f"         {word.nats:+.2f}  {str(word).removeprefix(f'{line} ')}")
        lines.append(f"{self.log_odds:+.2f}  in all, the log odds by {self.in_words}")
        return "\n".join(lines)

    @property
    def in_words(self) -> str:
        """Of which model the contributions are, and what it says alone."""
        gives = f"gives {self.label} {format_about(self.model_probabilities[0])}"
        if self.share == 1.0:
            return f"{self.explained_by}, which {gives}"
        share = f"{format_about(self.share)} of the weight"
        return f'the expert "{self.explained_by}", which has {share}, and alone {gives}'


def _with_rest(lines: Sequence[Contribution], n: int, noun: str) -> list[Contribution]:
    ranked = sorted(lines, key=lambda line: -abs(line.nats))
    if len(ranked) <= n + 1:
        return ranked
    rest = ranked[n:]
    return [*ranked[:n], Contribution(count_of(len(rest), noun), "", sum(r.nats for r in rest), ())]


def make_table(model: "TableClassifier", row: Any) -> Table:
    """Return a row, a mapping or a table of one, as a table; columns of no role are left out."""
    if isinstance(row, Mapping):
        roles = model.roles
        return table_from_records([{name: row[name] for name in row if str(name) in roles}], [1])
    table = as_table(row)
    if len(table) != 1:
        raise InvalidInputError(f"one row is explained at a time, got {len(table)} rows")
    return table


def explain_rows(
    model: "TableClassifier",
    table: Table,
    *,
    decided: Labels | None = None,
    by_holdout: bool = True,
) -> Iterator[RowExplanation]:
    """Yield why the rows of a table are predicted as they are, see `RowExplanation`.

    `decided` (T,) are classes in place of the most probable ones, as costs may ask for. Experts are
    weighed as `Model.predict` does, or as `Model.predict_one`.
    """
    pipeline, encoder = model._check_learned()
    if pipeline.learner is None:
        raise InvalidInputError("there is nothing to explain before two classes were learned")
    table = encoder.gaps.mask(table)
    X = encoder.encode_known(table)
    Z = pipeline.scale(X, by_holdout=by_holdout)
    P = pipeline._predict_scaled(Z, by_holdout=by_holdout)
    pairs = np.argsort(-P, axis=1, kind="stable")[:, :2]
    if decided is not None:
        others = np.where(pairs[:, 0] == decided, pairs[:, 1], pairs[:, 0])
        pairs = np.column_stack([decided, others])
    explained = _explain_scores(pipeline, encoder, X, table, pairs, by_holdout)
    for t, (name, share, logits, sums) in enumerate(explained):
        values = _find_values(encoder, table.take(slice(t, t + 1)))
        contributions = [
            Contribution(name, values.get(name) if of == (name,) else "", nats, of)
            for (of, name), nats in sums.items()
            if nats != 0.0 or name in (*of, _CONSTANT[1])
        ]
        contributions.sort(key=lambda line: -abs(line.nats))
        pair, alone = pairs[t], softmax(logits)
        first, second = pair.tolist()
        yield RowExplanation(
            model.labels[first], model.labels[second], tuple(P[t, pair].tolist()),
            tuple(contributions), name, share, tuple(alone[pair].tolist()),
        )  # fmt: skip


def _explain_scores(
    pipeline: OnlinePipeline,
    encoder: TableEncoder,
    X: Any,
    table: Table,
    pairs: Labels,
    by_holdout: bool,
) -> Iterator[tuple[str, float, Array, dict[_Line, float]]]:
    """Yield the leading model, its weight, logits, and what lines add to log odds of `pairs`."""
    assert pipeline.learner is not None
    Z, dense = pipeline.scale(X, by_holdout=by_holdout), pipeline.dense
    weights = pipeline.holdout.weights(pipeline.learner) if by_holdout else None
    dense_lines = [] if pipeline.sparse else _find_dense_lines(pipeline, encoder)
    below: Any = [None] * len(pairs)
    if dense is not None:
        assert encoder.dense is not None
        below = _explain_scores(dense, encoder.dense, X.dense, table, pairs, by_holdout)
    for t, base in enumerate(below):
        z = Z[t] if isinstance(Z, np.ndarray) else Z.row(t) if dense is None else Z[t : t + 1]
        name, share, columns, values, W, bias, is_on_top = _find_leading_model(pipeline, z, weights)
        lines: Any = dense_lines
        if pipeline.sparse:
            lines = _find_wide_lines(encoder, table.take(slice(t, t + 1)), columns.tolist())
        first, second = pairs[t].tolist()
        logits, sums = W @ values + bias, {_CONSTANT: float(bias[first] - bias[second])}
        added = (values * (W[first] - W[second])).tolist()
        for column, nats in zip(columns.tolist(), added, strict=True):
            sums[lines[column]] = sums.get(lines[column], 0.0) + nats
        if is_on_top:
            base_name, base_share, base_logits, base_sums = base
            name = base_name if name == WITHOUT_WORDS else f"{base_name}; {name}"
            share, logits = share * base_share, logits + base_logits
            for line, nats in base_sums.items():
                sums[line] = sums.get(line, 0.0) + nats
        yield name, share, logits, sums


def _find_leading_model(pipeline: OnlinePipeline, z: Any, weights: Array | None) -> LeadingModel:
    fit, no_bias = pipeline.batch_fit, np.zeros(pipeline.n_classes)
    if fit is None:
        assert pipeline.learner is not None
        return pipeline.learner._leading_model(z, weights)
    if isinstance(fit, ColumnModel):
        is_on_top, name = pipeline.dense is not None, _FIT_OF_LINES
        if is_on_top:
            z, name = z.on_top().row(0), _FIT_OF_WORDS
        columns, values = z if pipeline.sparse else (fit.columns, z[fit.columns])
        W = fit.weights_at(columns).T
        return LeadingModel(name, 1.0, columns, values, W, no_bias, is_on_top)
    first = len(z) - fit.shape[1]
    name = _FIT_OF_LINES if fit.shape[1] == pipeline.scaler.n_columns else _FIT_OF_TERMS
    return LeadingModel(name, 1.0, np.arange(first, len(z)), z[first:], fit, no_bias)


def _name_columns(encoder: TableEncoder, owner: Iterable[Key]) -> _Line:
    names = {encoder.name_of(*key) if key[0] == FEATURES else key[0]: None for key in owner}
    return tuple(names), " × ".join(names)


def _find_dense_lines(pipeline: OnlinePipeline, encoder: TableEncoder) -> list[_Line]:
    scaler = pipeline.scaler
    terms = scaler.terms if isinstance(scaler, TermScaler) else None
    lines: list[_Line] = [_WAVES] * scaler.n_terms + [_CONSTANT] * scaler.n_columns
    for owner, columns in find_owners(pipeline, encoder, terms).items():
        line = _name_columns(encoder, owner)
        for column in columns:
            lines[column] = line
    return lines


def _find_wide_lines(encoder: TableEncoder, row: Table, columns: Iterable[int]) -> dict[int, _Line]:
    """Return the lines of wide columns that a row has: words, numbered features, or columns."""
    lines, crosses = {}, {f"{a}:{b}": [(a, ""), (b, "")] for a, b in encoder.crosses}
    words: dict[str, dict[int, str]] = {}
    for column in columns:
        slot, index = divmod(column, SPACE)
        if not slot:
            lines[column] = _CONSTANT
            continue
        source, _ = key = encoder.keys[slot - 1]
        if source == FEATURES:
            lines[column] = _name_columns(encoder, [(FEATURES, str(index))])
        elif encoder.roles.get(source) == WORDS:
            if source not in words:
                words[source] = find_words([_first_value(as_text_column(row.columns[source]))])
            lines[column] = (source,), f"{source}: {words[source][index]}"
        else:
            lines[column] = _name_columns(encoder, crosses.get(source, [key]))
    return lines


def _find_values(encoder: TableEncoder, row: Table) -> dict[str, Any]:
    """Return the values of the row of a table by column, without those that are missing."""
    numbers: dict[int, float] = {}
    if isinstance(row.features, SparseRows):  # what it does not name is 0
        numbers = {int(part): 0.0 for source, part in encoder.keys if source == FEATURES and part}
        numbers |= zip(*(part.tolist() for part in row.features.row(0)), strict=True)
    elif row.features is not None:
        numbers = dict(enumerate(row.features[0].tolist()))
    values: dict[str, Any] = {
        encoder.name_of(FEATURES, str(n)): x for n, x in numbers.items() if x == x
    }
    for name, column in row.columns.items():
        if not is_missing(column)[0]:
            value, role = _first_value(column), encoder.roles.get(name)
            if not (isinstance(value, str) and role in (NUMBER, *DATES) and is_gap(value)):
                values[name] = value
    return values


def _first_value(column: Column) -> Any:
    return column.values[column.codes[0]] if isinstance(column, TextColumn) else column.tolist()[0]
