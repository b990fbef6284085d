"""`folklearn audit` of several files: one line for each, and one proof for all."""

import csv

import numpy as np
import pytest

from folklearn import scale
from folklearn.evaluate.regression import logistic_regression

LABELS = ("cat", "dog")
COLUMNS = ("size", "colour", "kind")


@pytest.fixture
def write(tmp_path):
    def write(name, header, rows):
        path = tmp_path / name
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        return str(path)

    return write


@pytest.fixture
def days(rng):
    """Rows of two days; the second brings a colour of its own, before those of the first."""
    size = rng.normal(size=400)
    colour = np.where(rng.random(400) < 0.5, "red", "blue").astype(object)
    colour[200:210] = "green"
    dog = size + (colour == "red") + rng.logistic(size=400) > 0.5
    kinds = np.where(dog, "dog", "cat")
    rows = list(zip(map(repr, size.tolist()), colour.tolist(), kinds.tolist(), strict=True))
    return rows[:200], rows[200:]


@pytest.fixture
def pairs(days, write, rng):
    found = []
    for number, rows in enumerate(days):
        p = rng.uniform(0.05, 0.95, size=len(rows))
        lines = np.column_stack([p, 1 - p]).tolist()
        found.append(
            (write(f"day{number}.csv", COLUMNS, rows), write(f"p{number}.csv", LABELS, lines))
        )
    return found


def command(pairs, *more):
    files, predictions = zip(*pairs, strict=True)
    options = [word for path in predictions for word in ("-p", path)]
    return ["audit", *files, "--target", "kind", *options, *more]


def as_blocks(rows, predictions):
    """The rows of a day by hand, with a column for every colour of both days."""
    colours = "red", "blue", "green"
    X = [[float(size), *(float(colour == one) for one in colours)] for size, colour, _ in rows]
    y = np.array([LABELS.index(kind) for *_, kind in rows])
    with open(predictions, encoding="utf-8", newline="") as file:
        P = np.array([[float(cell) for cell in row] for row in list(csv.reader(file))[1:]])
    return np.array(X), y, P


def standardise_together(blocks):
    """A constant, sizes standardised over both days, colours as they are."""
    X = np.concatenate([block[0] for block in blocks])
    Z = [np.hstack([np.ones((len(one), 1)), one]) for one, *_ in blocks]
    for one in Z:
        one[:, 1] = (one[:, 1] - X[:, 0].mean()) / X[:, 0].std()
    return [(one, *rest) for one, (_, *rest) in zip(Z, blocks, strict=True)]


def test_it_proves_what_the_library_proves(folklearn, days, pairs):
    """Places of categories may differ; what is proven does not depend on their order."""
    outcome = folklearn(*command(pairs))
    assert (outcome.code, outcome.stdout) == (0, "")
    blocks = [as_blocks(rows, p) for rows, (_, p) in zip(days, pairs, strict=True)]
    blocks = standardise_together(blocks)
    sizes = {"n_features": 5, "n_classes": 2, "constant": 0}
    found = scale.audit_files(range(2), lambda day: [blocks[day]], **sizes)
    total = found.certificate
    assert "Audited 400 predictions in " in outcome.stderr
    assert "2 files, 400 rows with a label" in outcome.stderr
    table = {row[0]: row[1:] for row in map(str.split, outcome.stderr.splitlines()) if row}
    assert [float(cell) for cell in table["all"]] == pytest.approx(
        [400, total.loss / 400, total.best_linear_at_least / 400, total.regret_bound / 400],
        abs=2e-4,
    )
    (first,) = [row for name, row in table.items() if name.endswith("day0.csv")]
    assert float(first[1]) == pytest.approx(found.files[0].certificate.loss / 200, abs=2e-4)
    X, y, _ = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    best = logistic_regression(X, y, n_classes=2, constant=0)
    assert float(table["all"][2]) == pytest.approx((best.loss + best.penalty) / 400, abs=1e-4)
    assert "whatever its weights, has an average log loss of at least" in outcome.stderr


def test_files_at_once_give_the_same(folklearn, pairs):
    one, two = (folklearn(*command(pairs, "--jobs", jobs)).stderr for jobs in (1, 2))
    (one, _, proof), (two, _, same) = (text.rpartition("Audited") for text in (one, two))
    assert one == two
    assert proof.partition("\n")[2] == same.partition("\n")[2]


def test_refusals(refusal, days, pairs, write):
    def refused(*more, pairs=pairs):
        return refusal(*command(pairs, *more))

    (first, p), (second, q) = pairs
    assert "are for one file of rows" in refused("--exact")
    words = refusal("audit", first, second, "--target", "kind", "-p", p)
    assert words.startswith("2 files of rows, and 1 file of predictions; expected --predictions")
    assert "are for one file of rows" in refused(pairs=[(first, p), ("-", q)])
    rows = [[colour, size, kind] for size, colour, kind in days[1]]
    swapped = write("swapped.csv", COLUMNS, rows)
    assert "column 'size' is number in" in refused(pairs=[(first, p), (swapped, q)])
    lines = [[0.5, 0.25, 0.25]] * 200
    wider = write("wider.csv", ["p:cat", "p:dog", "p:eel"], lines)
    assert "is about the classes cat, dog, and" in refused(pairs=[(first, p), (second, wider)])
    colours = [[size, f"shade{i}", kind] for i, (size, _, kind) in enumerate(days[1])]
    shades = write("shades.csv", COLUMNS, colours)
    role = "--role", "colour=category"
    assert "has too many categories" in refused(*role, pairs=[(first, p), (shades, q)])
