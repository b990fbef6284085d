"""Texts about rows, models and certificates that commands print."""

import math
from collections.abc import Mapping, Sequence

from folklearn.kernels.blas import device_named
from folklearn.learners import backends, catalogue
from folklearn.learners.auto import Auto, lane_taken
from folklearn.learners.base import Learner
from folklearn.learners.mixture import Mixture
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.model.dataset import Dataset
from folklearn.model.model import Model
from folklearn.model.roles import ID, LEARNED, TARGET, describe_roles
from folklearn.readers.reader import Reader
from folklearn.utils import count_of, join_names

DEFAULT_LEARNER = "auto"
SETTINGS = ("R", "lam", "gamma", "memory")  # of learners, as options
_MAX_COLUMNS_NAMED = 6  # of one role


def format_loss(value: float | None) -> str:
    """Return a loss for a table; "-" for an unknown one."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "none"
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3e}"


def format_fields(*lines: tuple[str, str]) -> str:
    """Return one line for each name and text."""
    return "\n".join(f"{name:<10}{text}" for name, text in lines)


def describe_source(reader: Reader, n_rows: int | None) -> str:
    """Return name and size of a source, and what the reader detected."""
    size = ": read as it comes" if reader.is_live else ""
    size = size if n_rows is None else f": {count_of(n_rows, 'row')}"
    return ", ".join([f"{reader.name}{size}", *reader.notes])


def describe_run(feed: Dataset, *lines: tuple[str, str]) -> str:
    """Return the source, the classes and the role of every column, then further lines."""
    model, reader, scan = feed.model, feed.reader, feed.scan
    fields = [("data", describe_source(reader, scan.n_rows if scan else None))]
    if scan and scan.n_bad:
        fields.append(("bad", f"{count_of(scan.n_bad, 'row')} cannot be read"))
    classes = describe_classes(model.labels)
    if scan is None:
        classes = "classes as they come" + (f"; known are {classes}" if model.labels else "")
    fields.append(("predicted", f"{join_names([feed.target or ''])}, {classes}"))
    fields += describe_columns(feed.roles, reader.names)
    if reader.head().features is not None:
        features = f"{scan.n_features} of the rows" if scan else "those of the rows, as they come"
        fields.append(("features", features))
    if model.crosses:
        fields.append(("crosses", join_names([":".join(pair) for pair in model.crosses])))
    if scan:
        fields += describe_missing(scan.missing, feed.roles)
    if scan and scan.n_unlabelled:
        rows = count_of(scan.n_unlabelled, "row")
        what = "empty, or NA, N/A, nan or null: predicted only; a class must be called otherwise"
        fields.append(("no label", f"{rows} where it is {what}"))
    if model.n_rounds:
        rows = count_of(model.n_rounds, "row")
        fields.append(("goes on", f"after {rows}; the table counts the new ones"))
    return format_fields(*fields, *lines)


def describe_classes(labels: Sequence[object]) -> str:
    """Return the number of classes, and their labels."""
    n = f"{len(labels)} class" if len(labels) == 1 else f"{len(labels)} classes"
    return f"{n}: {join_names(list(map(str, labels)))}" if labels else n


def describe_columns(roles: Mapping[str, str], names: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the columns by role; only those in `names`, if any are given."""
    present = {name: role for name, role in roles.items() if not names or name in names}
    lines = []
    for role, columns in describe_roles(present):
        note = "  (carried along, not learned from)" if role == ID else ""
        if role != TARGET:
            n_left = len(columns) - _MAX_COLUMNS_NAMED
            rest = f", and {n_left} more" if n_left > 1 else ""
            shown = columns[:_MAX_COLUMNS_NAMED] if rest else columns
            lines.append((role, f"{join_names(shown)}{rest}{note}"))
    return lines


def describe_missing(gaps: Mapping[str, int], roles: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the number of missing values, and how they are treated."""
    learned = {name: count for name, count in gaps.items() if roles.get(name) in LEARNED}
    if not learned:
        return []
    what = "a missing number counts as the mean of its column so far, a missing text as none"
    values = count_of(sum(learned.values()), "value")
    return [("missing", f"{values} in {join_names([*learned])}; {what}")]


def describe_learner(model: Model) -> str:
    """Return the learner of a model with all of its settings, before the first row too."""
    begun = None if model.pipeline is None else model.pipeline.learner
    learner = begun or catalogue.make(model.learner_name, 1, 2, model.settings)
    if model.learner_name != DEFAULT_LEARNER:
        return _describe_settings(learner)
    scaled = learner.experts[0] if isinstance(learner, Mixture) else learner
    backend = _expected_lane(model) if begun is None else lane_taken(learner)
    what = "chosen by the size of the first rows" if backend is None else backends.WORDS[backend]
    return f"auto, R={scaled.R:g}: {what}"


def _expected_lane(model: Model) -> str | None:
    columns = model.encoder
    if columns is not None and columns.sparse:
        return backends.WIDE
    if columns is None or not columns.keys or not model.labels:
        return None  # the size is not known yet
    size = len(columns.keys) + model.intercept, len(model.labels)
    return backends.select_backend(*size, device_named(model.device))


def _describe_settings(learner: Learner) -> str:
    names = [name for name in ("B", *SETTINGS) if name in learner.PARAMS]
    values = {name: getattr(learner, name) for name in names}
    words = [f"{name}={value:g}" for name, value in values.items() if value is not None]
    if "gamma" in values and values["gamma"] is None:
        words.append("gamma=the largest valid in each round")
    return ", ".join([type(learner).__name__, *words])


def describe_details(model: Model) -> list[str]:
    """Return lines about the learner, its experts and the whole certificate."""
    certificate = model.certificate()
    learner = None if model.pipeline is None else model.pipeline.learner
    if learner is None:
        return []
    n_columns = learner.n_columns if isinstance(learner, SparseSgd) else learner.n_features
    inputs = count_of(max(1, n_columns - model.intercept), "scaled feature")
    classes = f"{len(model.labels)} classes"
    lines = [f"Learner: {describe_learner(model)}, of {inputs} and a constant, {classes}."]
    if isinstance(learner, Auto):
        best = max(learner.experts, key=lambda expert: expert.weight)
        names = "; ".join(expert.name for expert in learner.experts)
        lines.append(
            f"Leading expert: {best.name} ({best.weight:.0%} of the weight). "
            f"{len(learner.experts)} experts are left: {names}."
        )
    if certificate is not None:
        unit = "round" if model.metrics.weight == model.n_rounds else "unit of weight"
        lines.append(certificate.in_full(model.metrics.weight, unit))
        if learner.n_unsolved and certificate.valid:
            lines.append(
                f"In {count_of(learner.n_unsolved, 'round')} the prediction was not solved to full "
                "precision; the certificate holds all the same."
            )
    return lines
