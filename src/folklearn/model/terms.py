"""Terms of the columns: which functions of them, and their values in front of the columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import TINY, Array, Labels
from folklearn.errors import StateFileError
from folklearn.kernels import scaling
from folklearn.kernels.scaling import CROSS, HINGE, PRODUCT, STEP
from folklearn.learners.base import Learner, rows_to_review
from folklearn.learners.term_mixture import TermMixture, affordable_terms
from folklearn.model.batch import RawBatch
from folklearn.scaler import OnlineScaler
from folklearn.serialization import Record, Serializable
from folklearn.validation import Rows

# Rounds after which terms are chosen, and chosen again.
FIRST_OPENING, _SECOND_OPENING, _LAST_OPENING = 64, 256, 1024
MIN_KNOTS, MAX_KNOTS, N_CROSS_KNOTS = 4, 16, 3  # of a column
_MAX_CURVED, _MAX_MULTIPLIED, _MAX_CROSSED = 40, 40, 7  # columns
_MAX_WAVES = 400
_WAVE_SCALES = (0.5, 1.0, 2.0)
_SHARE_OF_CURVES, _SHARE_OF_PRODUCTS = 1 / 3, 0.55  # of the terms, these with the curves
_SHARE_OF_INDICATORS = 5 / 6  # of the terms, for products where columns have two values each
_RIDGE_TO_RANK = 0.1  # of the rows
_MIN_SHARE_NEW = 0.01  # of the squares of a product: what columns do not say
_MOSTLY = 0.75  # of the rows that have one value
_WAVE_SEED = 0
_MIN_ROWS, _MIN_TERMS = 32, 16  # below which none are opened
_ALL_TERMS = 2000
_LEAST_SPREAD = 1e-90  # of a column with curves: what it is divided by must fit in a state


@dataclass(eq=False, repr=False)
class TermSet(Serializable):
    r"""Functions of the columns of a row, chosen once: hinges, steps, products, crosses, waves.

    A model that is linear in them is a logistic regression like any other, and may be curved in
    the columns. With q a knot of column j, :math:`s_j` its spread, z standardised values:

    .. math:: \max(x_j - q, 0) / s_j, \quad 1\{x_j > q\}, \quad z_i z_j, \quad
        1\{x_i > q\} 1\{x_j > r\}, \quad \sqrt 2 \cos(\langle \omega, z \rangle + b),

    :math:`\omega \sim N(0, \sigma^2 I / d)`, :math:`\sigma` = 1/2, 1, 2, b uniform. A term of a
    missing value is missing. Time a few ns for a term of a row, 2 d for a wave. What `kinds` (n,),
    `columns` and `numbers` (n, 2) mean stands in `folklearn.kernels.scaling`.
    """

    n_columns: int
    kinds: NDArray[np.int64]
    columns: NDArray[np.int64]
    numbers: Array
    frequencies: Array
    phases: Array

    def __len__(self) -> int:
        return len(self.kinds) + len(self.phases)

    @property
    def blocks(self) -> NDArray[np.int64]:
        """The kind of every term (n + m,), waves last: each kind has a prior of its own."""
        return np.concatenate([self.kinds, np.full(len(self.phases), CROSS + 1)])

    @property
    def factors(self) -> Array:
        """What terms of deviation 1 are multiplied by, so that a row of them has a norm of about 1.

        (n + m,): every kind of terms has the same length.
        """
        blocks = self.blocks
        counts = np.bincount(blocks)
        return 1.0 / np.sqrt(np.count_nonzero(counts) * counts[blocks])

    def expand(self, X: Array, Z: Array) -> Array:
        """Return the terms (T, n + m) of raw rows X (T, d), standardised Z (T, d)."""
        out = np.empty((len(X), len(self)))
        waves = self.frequencies, self.phases
        scaling.expand_terms(X, Z, self.kinds, self.columns, self.numbers, *waves, out)
        return out

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return what the terms are, in terms of the names of the columns."""
        names = []
        for kind, (i, j), (q, r) in zip(self.kinds, self.columns, self.numbers, strict=True):
            a, b = columns[i], columns[j]
            names.append(
                {
                    HINGE: f"max({a} - {q:g}, 0)",
                    STEP: f"[{a} > {q:g}]",
                    PRODUCT: f"{a} * {b}",
                    CROSS: f"[{a} > {q:g}] * [{b} > {r:g}]",
                }[int(kind)]
            )
        return names + [f"wave {n}" for n in range(len(self.phases))]

    ARRAYS = ("kinds", "columns", "numbers", "frequencies", "phases")
    PARAMS = ("n_columns",)

    def _parts(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in self.ARRAYS}

    @classmethod
    def from_record(cls, record: Record) -> "TermSet":
        d = record.count("n_columns", 1)
        kinds = record.part("kinds", (None,), np.int64, least=HINGE, most=CROSS)
        columns = record.part("columns", (len(kinds), 2), np.int64, least=0, most=d - 1)
        phases = record.part("phases", (None,))
        return cls(
            d, kinds, columns, record.part("numbers", (len(kinds), 2)),
            record.part("frequencies", (len(phases), d)), phases,
        )  # fmt: skip


def choose_terms(X: Array, labels: Labels, n_most: int, *, crosses: bool = False) -> TermSet:
    """Return at most about `n_most` terms for rows like X (T, d), which may have gaps.

    Columns that tell the classes (T,) apart come first, by their F statistic: curves of up to 40,
    crosses of up to 7. Half of the products are of as few columns as can be, half those of up to 40
    that tell more than the columns do; waves are the rest.
    """
    d = X.shape[1]
    present = [column[~np.isnan(column)] for column in X.T]
    values = [np.unique(column) for column in present]
    spreads = [float(column.std()) if len(column) else 0.0 for column in present]
    statistics = [_f_statistic(column, labels) for column in X.T]
    order = sorted((j for j in range(d) if len(values[j]) > 1), key=lambda j: -statistics[j])
    terms: list[tuple[int, tuple[int, int], tuple[float, float]]] = []
    curved = [j for j in order if len(values[j]) > 2 and spreads[j] > _LEAST_SPREAD]
    curved = curved[:_MAX_CURVED]
    n_curves = int(_SHARE_OF_CURVES * n_most)
    n_knots = _share_knots(n_curves // 2, [_is_mostly_one(X[:, j]) for j in curved])
    for j, n in zip(curved, n_knots, strict=True):
        knots = find_knots(present[j], values[j], n)
        if len(terms) + 2 * len(knots) > n_curves:
            break
        terms += [(HINGE, (j, j), (q, 1.0 / spreads[j])) for q in knots]
        terms += [(STEP, (j, j), (q, 0.0)) for q in knots]
    usable = [j for j in order if spreads[j] > _LEAST_SPREAD]
    are_indicators = all(len(values[j]) == 2 for j in usable)
    share = _SHARE_OF_INDICATORS if are_indicators else _SHARE_OF_PRODUCTS
    pairs = [
        (m, n)
        for m, n in combinations_with_replacement(range(len(usable[:_MAX_MULTIPLIED])), 2)
        if m != n or len(values[usable[m]]) > 2
    ]
    n_products = max(0, int(share * n_most) - len(terms))
    if pairs:
        scores = [(X[:, j] - present[j].mean()) / spreads[j] for j in usable]
        Z = np.clip(np.nan_to_num(np.column_stack(scores)), -5.0, 5.0)
        ranked, n_top = _rank_products(Z, labels, np.array(pairs)), int(math.sqrt(n_products))
        # Half of them are of the first columns, whatever 256 rows say of the products.
        for m, n in sorted(ranked, key=lambda pair: pair[1] >= n_top)[:n_products]:
            terms.append((PRODUCT, (usable[m], usable[n]), (0.0, 0.0)))
    if crosses:
        knots_of = {j: find_knots(present[j], values[j], N_CROSS_KNOTS) for j in order}
        for i, j in combinations(order[:_MAX_CROSSED], 2):
            terms += [(CROSS, (i, j), (q, r)) for q in knots_of[i] for r in knots_of[j]]
    n_waves = min(_MAX_WAVES, max(0, n_most - len(terms)))
    terms.sort(key=lambda term: term[0])
    return TermSet(
        d,
        np.array([kind for kind, _, _ in terms], np.int64),
        np.array([columns for _, columns, _ in terms], np.int64).reshape(-1, 2),
        np.array([numbers for _, _, numbers in terms], np.float64).reshape(-1, 2),
        *draw_waves(n_waves, d, np.resize(_WAVE_SCALES, n_waves), _WAVE_SEED),
    )


def _rank_products(Z: Array, labels: Labels, pairs: Labels) -> list[list[int]]:
    """Return the pairs (n, 2) of columns Z (T, d) whose products tell most beyond Z, best first."""
    products = Z[:, pairs[:, 0]] * Z[:, pairs[:, 1]]
    classes = (labels[:, None] == np.unique(labels)).astype(float)
    products, classes = products - products.mean(axis=0), classes - classes.mean(axis=0)
    ridge = _RIDGE_TO_RANK * len(Z) * np.eye(Z.shape[1])
    fit = np.linalg.solve(Z.T @ Z + ridge, Z.T)
    residuals, classes = products - Z @ (fit @ products), classes - Z @ (fit @ classes)
    squares = (residuals**2).sum(axis=0)
    is_new = squares > np.maximum(_MIN_SHARE_NEW * (products**2).sum(axis=0), TINY)
    shares = (residuals.T @ classes) ** 2 / np.maximum((classes**2).sum(axis=0), TINY)
    order = np.argsort(-shares.sum(axis=1) / np.maximum(squares, TINY), kind="stable")
    return pairs[order[is_new[order]]].tolist()


def draw_waves(n: int, d: int, sigmas: Array, seed: int) -> tuple[Array, Array]:
    """Return frequencies (n, d), normal of variance sigma^2 / d, and uniform phases (n,)."""
    rng = np.random.default_rng(seed)
    frequencies = rng.normal(size=(n, d)) * (sigmas / math.sqrt(d))[:, None]
    return frequencies, rng.uniform(0.0, 2.0 * math.pi, n)


def find_knots(present: Array, values: Array, n: int) -> list[float]:
    """Return up to n knots of a column: between its values if they are few, else quantiles.

    Half of them are quantiles of the rows, half of the distinct values: a column that is 0 on
    most rows has no other useful ones.
    """
    if len(values) <= n + 1:
        return ((values[1:] + values[:-1]) / 2.0).tolist()
    n_distinct = n // 2
    of_rows = np.quantile(present, np.arange(1, n - n_distinct + 1) / (n - n_distinct + 1))
    of_values = np.quantile(values, np.arange(1, n_distinct + 1) / (n_distinct + 1))
    knots = np.unique(np.concatenate([of_rows, of_values]))
    return knots[knots < values[-1]].tolist()


def _share_knots(n_all: int, are_rare: Sequence[bool]) -> list[int]:
    """Return how many knots columns have: what the least leaves goes to those of rare values."""
    n_left = n_all - MIN_KNOTS * len(are_rare)
    knots = [MIN_KNOTS] * len(are_rare)
    for rare in (True, False):
        wanted = [i for i, is_rare in enumerate(are_rare) if is_rare == rare]
        n_more = min(max(0, n_left) // max(1, len(wanted)), MAX_KNOTS - MIN_KNOTS)
        n_left -= n_more * len(wanted)
        for i in wanted:
            knots[i] += n_more
    return knots


def _is_mostly_one(column: Array) -> bool:
    """Tell whether most values are alike, but there are more than two: knots take more rows."""
    values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
    return len(values) > 2 and bool(counts.max() > _MOSTLY * counts.sum())


def _f_statistic(column: Array, labels: Labels) -> float:
    is_present = ~np.isnan(column)
    x, y = column[is_present], labels[is_present]
    counts = np.bincount(y)
    n_classes = np.count_nonzero(counts)
    if n_classes < 2 or len(x) <= n_classes:
        return 0.0
    means = np.bincount(y, x) / np.maximum(counts, 1)
    between = float(counts @ (means - x.mean()) ** 2) / (n_classes - 1)
    within = float(((x - means[y]) ** 2).sum()) / (len(x) - n_classes)
    return between / within if within > 0.0 else math.inf if between > 0.0 else 0.0


class TermScaler(OnlineScaler):
    """An `OnlineScaler` that puts terms in front of the columns, once they are open.

    Terms are centred by their mean and divided by their deviation over the rows so far, clipped to
    5. Then every kind of them has the same length, and all together that of the columns, about 1:
    with one scale for all terms short streams suffer.
    """

    STATE: ClassVar = {"terms": TermSet}

    terms: TermSet | None = None

    @property
    def n_terms(self) -> int:
        return 0 if self.terms is None else len(self.terms)

    @classmethod
    def of(cls, scaler: OnlineScaler, terms: TermSet) -> Self:
        """Return a scaler that goes on as another one did, with terms that saw no row yet."""
        opened = object.__new__(cls)
        opened.__dict__.update(scaler.__dict__)
        opened._set_terms(terms)
        return opened

    def without_terms(self) -> OnlineScaler:
        """Return a scaler of the columns alone, which goes on as this one did."""
        closed = object.__new__(OnlineScaler)
        closed.__dict__.update(self.__dict__)
        for name in ("terms", "_factors", "_term_moments"):
            del closed.__dict__[name]
        return closed

    def learn_terms(self, X: Array) -> Array:
        """Take the terms of rows X (T, d) in, whose columns were; return both, scaled."""
        return self._with_terms(X, super().scale_rows(X, learn=False), True)

    def _set_terms(self, terms: TermSet) -> None:
        self.terms, self._factors = terms, terms.factors
        self._term_moments: Array = np.zeros((scaling.N_TERM_MOMENTS, len(terms)))

    def scale_rows(self, X: Array, *, learn: bool) -> Array:
        return self._with_terms(X, super().scale_rows(X, learn=learn), learn)

    def scale_row(self, x: Array, learn: bool) -> Array:
        return self._with_terms(x[None], super().scale_row(x, learn)[None], learn)[0]

    def _with_terms(self, X: Array, Z: Array, learn: bool) -> Array:
        terms = self.terms
        if terms is None:
            return Z
        columns = self.feature_columns[: terms.n_columns]
        raw = np.ascontiguousarray(X[:, : terms.n_columns])
        values = terms.expand(raw, Z[:, columns] / self.unit)
        both = np.empty((len(X), len(terms) + Z.shape[1]))
        scaling.scale_terms(values, self._term_moments, learn, self._factors, both)
        both[:, len(terms) :] = Z
        return both

    def _parts(self) -> dict[str, NDArray[Any]]:
        terms = {} if self.terms is None else {"term_moments": self._term_moments}
        return super()._parts() | terms

    def _restore(self, record: Record) -> None:
        if "terms" in record.config:
            self._set_terms(record.inner("terms", TermSet))
        super()._restore(record)
        if self.terms is not None and self.terms.n_columns > self.n_features:
            raise StateFileError("a TermScaler state has terms of columns that it does not have")


def _are_lines_enough(X: Array) -> bool:
    """Tell whether a line can take any value at every kind of row X (T, d)."""
    kinds = np.nan_to_num(np.unique(X, axis=0))
    with_constant = np.c_[np.ones(len(kinds)), kinds]
    return len(kinds) <= X.shape[1] + 1 and np.linalg.matrix_rank(with_constant) == len(kinds)


def open_terms(
    scaler: OnlineScaler, learner: Learner, rows: RawBatch, *, every: bool
) -> tuple[TermScaler, TermMixture] | None:
    """Choose terms by rows that a learner of lines has learned; return both with them.

    Its Gaussians have learned the rows too. As many terms as the budget allows, or `every` one, of
    columns that some row had: those that come later in a batch make no difference to the choice.
    None if the rows are too few, of one class, or of so few kinds that lines say all there is.
    """
    K = rows.Y.shape[1]
    rows = rows.take(rows.weights > 0.0)
    labels = rows.Y.argmax(axis=1)
    X = rows.X[:, : scaler.n_seen]
    n_most = _ALL_TERMS if every else affordable_terms(X.shape[1] + int(scaler.intercept), K)
    if (
        n_most < _MIN_TERMS
        or len(labels) < _MIN_ROWS
        or labels.min() == labels.max()
        or _are_lines_enough(X)
    ):
        return None
    terms = choose_terms(X, labels, n_most, crosses=every)
    lines = learner.lines
    if lines is None or not len(terms):
        return None
    opened = TermScaler.of(scaler, terms)
    Z = opened.learn_terms(rows.X)
    mixture = TermMixture.of_lines(lines, len(terms))
    learned = Rows(Z, np.full(len(Z), -1), rows.Y, rows.weights)
    for gaussian in mixture.gaussians:
        gaussian._run(learned, None)
    return opened, mixture


def review_terms(
    scaler: OnlineScaler, learner: Learner | None, rows: RawBatch | None, n: int, *, every: bool
) -> tuple[OnlineScaler, Learner | None, int]:
    """Choose terms by the last rows after round n, or drop them if nothing learns them.

    Returns what goes on, and the round of the next review, 0 for none. If rows do not do for a
    choice there is another one later.
    """
    if learner is None or learner.lines is None:  # terms go on without lines, as they are
        return scaler, learner, 0 if learner is not None else _next_choice(n)
    is_rare = n == _LAST_OPENING and rows is not None and any(map(_is_mostly_one, rows.X.T))
    if isinstance(learner, TermMixture) and n > _SECOND_OPENING and not is_rare:
        if learner.gaussians:
            return scaler, learner, n + rows_to_review(n, _LAST_OPENING)
        assert isinstance(scaler, TermScaler)
        return scaler.without_terms(), learner.lines, 0
    opened = None if rows is None else open_terms(scaler, learner, rows, every=every)
    if opened is None:
        return scaler, learner, _next_choice(n)
    later = _next_choice(n) if n < _SECOND_OPENING else n + rows_to_review(n, _LAST_OPENING)
    return *opened, later


def _next_choice(n: int) -> int:
    return _SECOND_OPENING if n == FIRST_OPENING else n + _SECOND_OPENING
