"""What commands say about rows, models and certificates, as text for people."""

import math
from collections.abc import Mapping, Sequence

from folklearn.cli.learners import described as described_learner
from folklearn.cli.learners import sizes_of
from folklearn.learners.auto import Auto
from folklearn.model.dataset import Dataset
from folklearn.model.model import Model
from folklearn.model.roles import ID, LEARNED, TARGET, described
from folklearn.readers.reader import Reader
from folklearn.utils import counted, listed

_MOST = 6  # columns of a role that are named


def number(value: float | None) -> str:
    """Return a loss for a table."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "none"
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3e}"


def named(*lines: tuple[str, str]) -> str:
    """Return lines of a name and a text each."""
    return "\n".join(f"{name:<10}{text}" for name, text in lines)


def source(reader: Reader, n_rows: int | None) -> str:
    """Return what was read, how much of it, and what was found out about it."""
    size = ": read as it comes" if reader.is_live else ""
    size = size if n_rows is None else f": {counted(n_rows, 'row')}"
    return ", ".join([f"{reader.name}{size}", *reader.notes])


def first_screen(feed: Dataset, *more: tuple[str, str]) -> str:
    """Return what was read, and what every column is taken for."""
    model, reader, found = feed.model, feed.reader, feed.scan
    lines = [("data", source(reader, found.n_rows if found else None))]
    if found and found.n_bad:
        lines.append(("bad", f"{counted(found.n_bad, 'row')} cannot be read"))
    known = classes(model.labels)
    if found is None:
        known = "classes as they come" + (f"; known are {known}" if model.labels else "")
    lines.append(("predicted", f"{listed([feed.target or ''])}, {known}"))
    lines += columns_of(feed.roles, reader.names)
    if reader.head().features is not None:
        features = f"{found.n_features} of the rows" if found else "those of the rows, as they come"
        lines.append(("features", features))
    if model.crosses:
        lines.append(("crosses", listed([":".join(pair) for pair in model.crosses])))
    if found:
        lines += missing(found.missing, feed.roles)
    if found and found.n_unlabelled:
        rows = counted(found.n_unlabelled, "row")
        what = "empty, or NA, N/A, nan or null: predicted only; a class must be called otherwise"
        lines.append(("no label", f"{rows} where it is {what}"))
    if model.n_rounds:
        rows = counted(model.n_rounds, "row")
        lines.append(("goes on", f"after {rows}; the table counts the new ones"))
    return named(*lines, *more)


def classes(labels: Sequence[object]) -> str:
    """Return how many classes there are, and which."""
    n = f"{len(labels)} class" if len(labels) == 1 else f"{len(labels)} classes"
    return f"{n}: {listed(list(map(str, labels)))}" if labels else n


def columns_of(roles: Mapping[str, str], names: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the columns by role, those of names if there are any."""
    present = {name: role for name, role in roles.items() if not names or name in names}
    lines = []
    for role, columns in described(present):
        note = "  (carried along, not learned from)" if role == ID else ""
        if role != TARGET:
            rest = f", and {len(columns) - _MOST} more" if len(columns) > _MOST + 1 else ""
            shown = columns[:_MOST] if rest else columns
            lines.append((role, f"{listed(shown)}{rest}{note}"))
    return lines


def missing(gaps: Mapping[str, int], roles: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return how many values are missing, and what becomes of them."""
    own = {name: count for name, count in gaps.items() if roles.get(name) in LEARNED}
    if not own:
        return []
    what = "a missing number counts as the mean of its column so far, a missing text as none"
    return [("missing", f"{counted(sum(own.values()), 'value')} in {listed([*own])}; {what}")]


def expert_words(model: Model) -> list[str]:
    """Return what is inside a learner that is made of several, for those who want to know."""
    lines, learner, certificate = [], model.learner, model.certificate()
    if learner is not None:
        lines.append(f"Learner: {described_learner(model)}, of {sizes_of(model)}.")
    if isinstance(learner, Auto):
        best = max(learner.experts, key=lambda expert: expert.weight)
        names = "; ".join(expert.name for expert in learner.experts)
        lines.append(
            f"Leading expert: {best.name} ({best.weight:.0%} of the weight). "
            f"{len(learner.experts)} experts are left: {names}."
        )
    if learner is not None and certificate is not None:
        unit = "round" if model.total_weight == model.n_rounds else "unit of weight"
        lines.append(certificate.in_full(model.total_weight, unit))
        if learner.n_unsolved and certificate.valid:
            lines.append(
                f"In {counted(learner.n_unsolved, 'round')} the prediction was not solved to full "
                "precision; the certificate holds all the same."
            )
    return lines
