"""Columns that change, give the class away or never change; and those that do not."""

import math

import numpy as np
import pytest

from folklearn import Model
from folklearn.metrics.columns import ColumnCounts, ColumnPlaces
from folklearn.serialization import revive
from tests.reference.columns import log_evidence

NUMBERS = np.array([True, True, False, False, False])
COLUMNS = [
    ColumnPlaces("x", "number", [0]),
    ColumnPlaces("gaps", "number", [1]),
    ColumnPlaces("code", "category", [2, 3, 4], ("a", "b", "late")),
]


def rows_of(rng, n, missing=0.2, codes=(0.7, 0.3, 0.0)):
    """Rows with a number, a number with gaps, and three codes, of which the last one comes late."""
    X = rng.standard_t(3, size=(n, 5))
    X[rng.random(n) < missing, 1] = math.nan
    X[:, 2:] = rng.multinomial(1, codes, size=n)
    return X


def counted(*parts, portions=10**6):
    counts = ColumnCounts()
    for X in parts:
        for start in range(0, len(X), portions):
            rows = X[start : start + portions]
            counts.add(rows, NUMBERS, np.zeros(len(rows), np.int64))
    return counts


def evidence(counts, column):
    return [(counts._weigh(test.spans[None])[0][0], test) for test in counts._tests(column)]


@pytest.mark.parametrize("n", [200, 448, 1100])
def test_evidence_is_that_of_the_definition(n, rng):
    """At the looks that the ladder of spans keeps, of a gap and of the bins of values."""
    X = rows_of(rng, 256 + n, missing=0.5)
    counts = counted(X)
    looks = (np.cumsum(counts._lengths)[:-1] // 64).tolist()
    assert looks[-1] == n // 64
    is_gap = np.isnan(X[256:, 1])
    (of_gaps, _), (_, test) = evidence(counts, COLUMNS[1])
    assert of_gaps == pytest.approx(log_evidence(is_gap.astype(int).tolist(), 2, looks, 64))
    assert test.spans.sum() == (~is_gap).sum()
    (of_values, _) = evidence(counts, COLUMNS[0])[1]
    edges = np.quantile(X[:256, 0], np.linspace(0.0, 1.0, 7))
    bins = np.searchsorted(edges, X[256:, 0]).tolist()
    assert of_values == pytest.approx(log_evidence(bins, 8, looks, 64))


def test_it_does_not_matter_how_rows_are_portioned(rng):
    X = rows_of(rng, 1500, codes=(0.6, 0.4, 0.0))
    X[700:, 2:] = rng.multinomial(1, (0.3, 0.3, 0.4), size=800)
    whole = counted(X).to_record()
    for portions in (1, 100, 333):
        assert counted(X, portions=portions).to_record().digest == whole.digest
    half = revive(counted(X[:900]).to_record())
    for start in range(900, 1500, 50):  # the late code has no place before it comes
        half.add(X[start : start + 50], NUMBERS, np.zeros(50, np.int64))
    assert half.to_record().digest == whole.digest


def test_a_place_that_comes_late_was_empty_before(rng):
    X = rows_of(rng, 900, codes=(0.6, 0.4, 0.0))
    X[700:, 2:] = rng.multinomial(1, (0.3, 0.3, 0.4), size=200)
    late = ColumnCounts()
    for rows, d in ((X[:100], 4), (X[100:700], 4), (X[700:], 5)):
        late.add(rows[:, :d].copy(), NUMBERS[:d], np.zeros(len(rows), np.int64))
    assert late.to_record().digest == counted(X).to_record().digest


def test_five_hundred_streams_that_do_not_change():
    """An alarm at any of 8 looks in at most 1 % of them, as promised."""
    rng, n_alarms = np.random.default_rng(5), 0
    for _ in range(500):
        counts, missing = ColumnCounts(), rng.random()
        codes = rng.dirichlet([1.0, 1.0, 0.05])
        for _ in range(8):
            counts.add(rows_of(rng, 160, missing, codes), NUMBERS, np.zeros(160, np.int64))
            if counts.find_shifts(COLUMNS):
                n_alarms += 1
                break
    assert n_alarms <= 5


@pytest.mark.parametrize(
    ("change", "column", "what"),
    [
        (lambda X: X[:, 0].__imul__(10.0), "x", "is above"),
        (lambda X: X.__setitem__((slice(None, None, 2), slice(2, 5)), [0, 0, 1]), "code", "late"),
        (lambda X: X.__setitem__((slice(None, None, 4), 1), math.nan), "gaps", "has no value"),
    ],
)
@pytest.mark.parametrize("n_before", [1000, 10_000])
def test_what_changes_is_found_within_500_rows(change, column, what, n_before, rng):
    """A number times ten, a new code in half of the rows, twice as many gaps (20 %, 40 %)."""
    before, after = rows_of(rng, n_before), rows_of(rng, 500)
    change(after)
    assert counted(before).find_shifts(COLUMNS) == {}
    ((name, shift),) = counted(before, after).find_shifts(COLUMNS).items()
    assert name == column
    assert what in shift.what
    assert abs(shift.since - n_before) <= 300
    assert f"since about row {shift.since:,}" in shift.in_words()


def test_what_explains_the_classes(rng):
    X, y = rows_of(rng, 4000), np.zeros(4000, np.int64)
    y[rng.random(4000) < 0.01] = 1  # a rare class, given away by a code and by half of a number
    X[:, 2:4] = np.c_[y == 0, y == 1]
    X[y == 1, 0] = np.where(rng.random((y == 1).sum()) < 0.5, 1e6, 0.0)
    counts = ColumnCounts()
    counts.add(X, NUMBERS, y)
    by_number, by_nothing, by_code = map(counts.explained_share, COLUMNS)
    assert by_code > 0.97
    assert 0.1 < by_number < 0.8
    assert abs(by_nothing) < 0.05
    assert math.isnan(counted(X).explained_share(COLUMNS[0]))  # one class


def test_a_model_says_what_is_wrong_with_its_columns(rng):
    n = 1600
    rows = [
        {"x": x, "same": 3.0, "order": float(t), "leak": "yes" if x + v > 0 else "no", "unit": u}
        for t, (x, u, v) in enumerate(rng.normal(size=(n, 3)).tolist())
    ]
    for row in rows[1200:]:
        row["unit"] *= 10.0
    said = []
    model = Model(learner="ogd", roles={"order": "number"})
    model.monitor(said.append)
    run = model.run([{**row, "y": row["leak"]} for row in rows], "y")
    assert run.notes[:3] == [
        "Column order grows from row to row: a running number tells the order, nothing else.",
        "Column leak alone explains 99.9 % of the classes: will it be known when you predict?",
        "The same value in all rows: same.",
    ]
    assert [note.split()[1] for note in run.notes[3:]] == ["unit"]
    assert [alarm.column for alarm in said] == ["unit"]
    assert "column unit is above" in said[0].in_words()
    assert all(note.replace("'", "&#39;") in model.report() for note in run.notes)


@pytest.mark.parametrize("beside", [{}, {"same": 3.0}])
def test_texts_that_differ_are_no_constant(beside):
    rows = [{"note": f"this is text {t}", "y": "ab"[t % 2]} | beside for t in range(80)]
    run = Model(roles={"note": "words"}).run(rows, "y")
    assert run.notes == ["The same value in all rows: same."] * len(beside)


def test_a_model_says_what_is_wrong_with_its_labels():
    rows = [{"x": t % 7.0, "y": ("Yes", "yes", "no", 3)[t % 4]} for t in range(80)]
    run = Model(learner="ogd").run(rows, "y")
    assert run.notes == ["Labels that differ in upper and lower case only: Yes, yes."]
    run = Model(learner="ogd").run([{"key": f"K{t}", "y": "ab"[t % 2]} for t in range(80)], "y")
    assert run.notes == [
        "There is no column to learn from: only how often each class comes is known."
    ]
