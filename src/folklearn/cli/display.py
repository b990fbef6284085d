"""What commands print: messages, a bar, lines of a table, texts about rows and models."""

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from folklearn.errors import DataWarning
from folklearn.model.dataset import ModelDataset
from folklearn.model.model import Model
from folklearn.model.roles import ID, LEARNED, TARGET, describe_roles
from folklearn.model.run import Score
from folklearn.progress import LOGGER
from folklearn.readers.reader import Reader
from folklearn.utils import count_of, join_names

DEFAULT_LEARNER = "auto"
_MAX_COLUMNS_NAMED = 6  # of one role
_MISSING_VALUES = "a missing number counts as the mean of its column so far, a missing text as none"


def new_console(quiet: bool) -> Console:
    """Return a console on standard error without markup: file and column names hold anything."""
    return Console(
        stderr=True, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


@contextmanager
def open_console(quiet: bool) -> Iterator[Console]:
    """Yield a new console; only it gets DataWarnings and notices of long computations meanwhile."""
    console = new_console(quiet)

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, DataWarning):
            console.print(f"Warning: {message}.")
        else:
            show_others(message, category, *rest)

    def take(record: logging.LogRecord) -> bool:
        console.print(f"{record.getMessage().capitalize()}.")
        return False  # no handler gets it

    LOGGER.addFilter(take)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", DataWarning)
            show_others, warnings.showwarning = warnings.showwarning, show  # type: ignore[assignment]
            yield console
    finally:
        LOGGER.removeFilter(take)


def format_cells(cells: Sequence[str]) -> str:
    return cells[0].rjust(10) + "".join(cell.rjust(12) for cell in cells[1:])


def format_loss(value: float | None) -> str:
    """Return a loss for a table; "-" for an unknown one."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "none"
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3e}"


def format_fields(fields: Mapping[str, str]) -> str:
    return "\n".join(f"{name:<10}{text}" for name, text in fields.items())


def describe_source(reader: Reader, n_rows: int | None) -> str:
    size = ": read as it comes" * reader.is_live
    size = size if n_rows is None else f": {count_of(n_rows, 'row')}"
    return ", ".join([f"{reader.name}{size}", *reader.notes])


def describe_run(dataset: ModelDataset) -> dict[str, str]:
    """Return fields about the source, the classes and the role of every column."""
    model, reader, scan = dataset.model, dataset.reader, dataset.scan
    fields = {"data": describe_source(reader, scan.n_rows if scan else None)}
    if scan and scan.n_bad:
        fields["bad"] = f"{count_of(scan.n_bad, 'row')} cannot be read"
    classes = describe_classes(model.labels)
    if scan is None:
        classes = "classes as they come" + (f"; known are {classes}" if model.labels else "")
    fields["predicted"] = f"{join_names([dataset.target or ''])}, {classes}"
    fields |= describe_columns(dataset.roles, reader.names)
    if reader.head().features is not None:
        n_features = f"{len(scan.features)} of the rows" if scan else ""
        fields["features"] = n_features or "those of the rows, as they come"
    fields |= describe_crosses(model)
    learned = [name for name, role in dataset.roles.items() if role in LEARNED]
    missing = {name: scan.missing[name] for name in learned if name in scan.missing} if scan else {}
    if missing:
        values = count_of(sum(missing.values()), "value")
        fields["missing"] = f"{values} in {join_names([*missing])}; {_MISSING_VALUES}"
    if scan and scan.n_unlabelled:
        rows = count_of(scan.n_unlabelled, "row")
        fields["no label"] = f"{rows} where it is empty: predicted only"
    if model.n_rounds:
        rows = count_of(model.n_rounds, "row")
        fields["goes on"] = f"after {rows}; the table counts the new ones"
    return fields


def describe_classes(labels: Sequence[object]) -> str:
    n = f"{len(labels)} class" if len(labels) == 1 else f"{len(labels)} classes"
    return f"{n}: {join_names(list(map(str, labels)))}" if labels else n


def describe_score(rows: str, score: Score) -> str:
    """Return averages over `rows`, as they are called, and a line for every rare class."""
    cost = "" if math.isnan(score.cost) else f", average cost {score.cost:.4g}"
    unknown = f", {score.n_unknown} of them of classes that the model does not know"
    total = (
        f"Over {rows}{unknown * bool(score.n_unknown)}: error {score.error:.2%}, average log loss "
        f"{score.loss:.4f}, Brier score {score.brier:.4f}{cost}."
    )
    return "\n".join([total, *score.rare_in_words])


def describe_columns(roles: Mapping[str, str], names: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns by role; only those in `names`, if any are given."""
    present = {name: role for name, role in roles.items() if not names or name in names}
    lines = {}
    for role, columns in describe_roles(present):
        if role == TARGET:
            continue
        text, n_more = join_names(columns), len(columns) - _MAX_COLUMNS_NAMED
        if n_more > 1:
            text = f"{join_names(columns[:_MAX_COLUMNS_NAMED])}, and {n_more} more"
        lines[role] = text + "  (carried along, not learned from)" * (role == ID)
    return lines


def describe_crosses(model: Model) -> dict[str, str]:
    pairs = [":".join(pair) for pair in model.crosses]
    return {"crosses": join_names(pairs)} if pairs else {}
