"""What a run says about itself, as text for people."""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from folklearn.certificate import Certificate
from folklearn.cli import learners
from folklearn.cli.moments import Moment
from folklearn.learners.auto import Auto
from folklearn.streams.live import Live
from folklearn.streams.model import StreamModel
from folklearn.streams.table import Table
from folklearn.words import counted, listed

_WIDTHS = (10, 12, 12, 11, 14, 12)
_TITLES = (
    ("", "loss since", "average", "error", "regret bound", ""),
    ("rounds", "last row", "log loss", "rate", "per round", "examples/s"),
)


def line(cells: Iterable[str], widths: Sequence[int]) -> str:
    """Return the cells of one line of a table, each flush right in its width."""
    return "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


HEADER = "\n".join(line(titles, _WIDTHS) for titles in _TITLES)


def row(last_shown: Moment, now: Moment, speed: float) -> str:
    """Return one line of the table; losses are in nats."""
    since = _ratio(now.loss - last_shown.loss, now.weight - last_shown.weight)
    cells = (
        f"{now.n_rounds}",
        _number(since),
        _number(_ratio(now.loss, now.weight)),
        f"{now.n_mistakes / now.n_rounds:.2%}",
        _number(None if now.regret_bound is None else _ratio(now.regret_bound, now.weight)),
        f"{speed:.0f}",
    )
    return line(cells, _WIDTHS)


def _ratio(loss: float, weight: float) -> float | None:
    """Return an average, or None if all weights so far are 0."""
    return loss / weight if weight > 0.0 else None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isinf(value):
        return "none"
    return f"{value:.4f}" if value < 1e5 else f"{value:.3e}"


def described(table: Table | Live) -> str:
    """Return the name and the size of a table, and what was found out about its file."""
    size = "learned as it comes" if isinstance(table, Live) else f"{table.n_rows} examples"
    return ", ".join(filter(None, (table.name, size, table.note)))


def about(table: Table, labels: Sequence[str], *lines: tuple[str, str], where: str = "") -> str:
    """Return what the examples are, then further lines of a name and a text each."""
    return named(
        ("data", described(table) + where),
        *_features(table),
        ("classes", f"{len(labels)} in column {listed([table.target])}: {listed(labels)}"),
        *lines,
    )


def named(*lines: tuple[str, str]) -> str:
    """Return lines of a name and a text each."""
    return "\n".join(f"{name:<10}{text}" for name, text in lines)


def _features(table: Table | Live) -> list[tuple[str, str]]:
    columns = counted(len(table.columns), "column")
    if isinstance(table, Live) and table.sparse:
        columns = f"{columns} at first, more as they come"
    lines = [("features", f"{columns}, scaled on line, and a constant")]
    if table.text:
        n_buckets = table.n_inputs - (len(table.columns) - len(table.text))
        text = f"{counted(len(table.text), 'column')}, hashed into {n_buckets}"
        lines.append(("text", f"{text}: {listed(table.text)}"))
    if table.missing:
        lines.append(("missing", missing(table.missing)))
    return lines


def missing(gaps: Mapping[str, int]) -> str:
    """Return how many values are missing, and what becomes of them."""
    return (
        f"{counted(sum(gaps.values()), 'value')} in {counted(len(gaps), 'column')}; each becomes "
        "the mean of its column so far, in text nothing"
    )


def options(model: StreamModel, table: Table | Live, why: str = "") -> str:
    """Return what is going to be learned, and with which settings; `why` this learner."""
    lines = [("learner", learners.described(model) + (f" ({why})" if why else ""))]
    if not isinstance(table, Live) and table.weights is not None:
        text = f"{table.weights.total:g} in total; losses are weighted averages, errors are counted"
        lines.append(("weights", text))
    if model.n_rounds:
        lines.append(("goes on", f"after {model.n_rounds} rounds; the table counts all of them"))
    if not model.open and not isinstance(table, Live):
        return about(table, model.labels, *lines)
    where = f"in column {listed([table.target])}"
    classes = f"{where}, as they come" if model.open else f"{where}: {listed(model.labels)}"
    if model.open and model.labels:
        classes += f"; known: {listed(model.labels)}"
    return named(("data", described(table)), *_features(table), ("classes", classes), *lines)


def summary(model: StreamModel, n_learned: int, seconds: float) -> str:
    """Return the result and what is proven about it; some example must have weighed something."""
    learner, certificate, n_rounds = model.learner, model.certificate(), model.n_rounds
    weight = model.total_weight
    average, of_new = _ratio(model.loss, weight), _ratio(model.loss_of_new, weight)
    paid = f", {_number(of_new)} of them for classes that were new" if model.open else ""
    lines = [
        f"Learned {counted(n_learned, 'example')} in {seconds:.2f} s: average log loss "
        f"{_number(average)} nats{paid}, error rate {model.n_mistakes / n_rounds:.2%}"
        + (f" over all {n_rounds} rounds." if n_rounds != n_learned else ".")
    ]
    if model.open:
        lines.append(f"Classes in order of appearance: {listed(model.labels)}.")
    if learner is None or certificate is None:
        lines.append("Learning begins with the second class: nothing is certified.")
        return "\n".join(lines)
    if isinstance(learner, Auto):
        lines.append(_experts(learner))
    # The learner begins with the second class. The rounds before it count all the same, here
    # and in the table: with one class, the loss of every model is 0.
    unit = "round" if weight == n_rounds else "unit of weight"
    words = certificate_in_words(certificate, model.n_inputs, weight, unit)
    if certificate.scope and certificate.valid:
        words += f" Scope: {certificate.scope}; the price of not knowing a class is not in it."
    lines.append(words)
    if learner.n_unsolved and certificate.valid:
        lines.append(
            f"In {counted(learner.n_unsolved, 'round')} the prediction was not solved to full "
            "precision; the certificate holds all the same."
        )
    return "\n".join(lines)


def _experts(learner: Auto) -> str:
    best = max(learner.experts, key=lambda expert: expert.weight)
    names = "; ".join(expert.name for expert in learner.experts)
    return (
        f"Leading expert: {best.name} ({best.weight:.0%} of the weight). "
        f"{len(learner.experts)} experts are left: {names}."
    )


def certificate_in_words(
    certificate: Certificate, n_inputs: int, weight: float | None = None, unit: str = "round"
) -> str:
    """Return what a certificate proves, and no more, in one sentence.

    Averages are over the total weight in this unit, its own number of rounds if None.
    """
    if not certificate.valid:
        return f"Nothing is certified: {certificate.reason}."
    n = certificate.n_rounds if weight is None else weight
    models = (
        f"linear model of these {counted(n_inputs, 'scaled feature')} and a constant with row "
        f"norms at most {certificate.B:g}"
    )
    bound = (
        f"regret bound {_up(certificate.regret_bound / n)} per {unit}, "
        f"{_up(certificate.regret_bound)} in total"
    )
    if certificate.best_linear_at_least <= 0.0:
        return (
            f"The certificate does not yet exclude a perfect {models}: its {bound}, is not "
            "below the loss so far. It tightens with more rounds."
        )
    return (
        f"Certificate: no {models} could have had an average log loss below "
        f"{_down(certificate.best_linear_at_least / n)} in hindsight ({bound})."
    )


def _down(value: float) -> str:
    return _rounded(value, ROUND_FLOOR)


def _up(value: float) -> str:
    return _rounded(value, ROUND_CEILING)


def _rounded(value: float, direction: str) -> str:
    """Round to four digits in the direction that keeps a claim true."""
    rounded = float(Context(prec=4, rounding=direction).create_decimal(value))
    return f"{rounded:.10g}" if abs(rounded) < 1e6 else f"{rounded:.3e}"
