"""`folklearn inspect`: describe a saved model, another saved object, or the columns of rows."""

import shlex
from typing import Annotated

import typer
from typer import Argument

from folklearn import serialization
from folklearn.cli import options, text
from folklearn.cli.display import new_console, warnings_shown
from folklearn.model.model import Model
from folklearn.model.roles import infer_roles
from folklearn.model.summary import describe_claims
from folklearn.utils import count_of, join_names

_MAX_LINES = 8  # of columns, and of weights


def inspect(
    file: Annotated[
        str | None,
        Argument(
            metavar="FILE",
            show_default=False,
            help="A saved model; or rows, as `folklearn run` takes them.",
        ),
    ] = None,
    target: options.Target = None,
    format: options.Format = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
) -> None:
    """Show what a saved model has learned, or the inferred roles of the columns of rows.

    For other saved objects, such as learners: their type, and the size of
    their state.
    """
    if file is None or not options.may_be_saved(file):
        source = options.Source(file, target, format, delimiter, encoding, decimal)
        lines = _describe_rows(source)
    else:
        saved = serialization.load(file)
        lines = _describe_model(saved) if isinstance(saved, Model) else _describe_state(saved)
    typer.echo("\n".join(lines))


def _describe_rows(source: options.Source) -> list[str]:
    reader, target = source.open()
    data = "data", text.describe_source(reader, reader.n_rows)
    with warnings_shown(new_console(quiet=False)):
        roles = infer_roles(reader.head())
    file = [] if source.file is None else [source.file]
    learn = shlex.join(["folklearn", "run", *file, "--target", target or "COLUMN"])
    columns = text.describe_columns({name: role for name, role in roles.items() if name != target})
    return [text.format_fields(data, *columns), f"To learn from these rows: {learn}"]


def _describe_model(model: Model) -> list[str]:
    lines = [("model", f"learned {count_of(model.n_rounds, 'row')}")]
    if model.learner_name != text.DEFAULT_LEARNER:
        lines.append(("learner", text.describe_learner(model)))
    lines.append(("classes", text.describe_classes(model.labels)))
    target = [name for name, role in model.roles.items() if role == "target"]
    if target:
        lines.append(("predicted", join_names(target)))
    lines += text.describe_columns(model.roles)
    if model.encoder is not None and model.encoder.feature_names:
        lines.append(("features", join_names(list(model.encoder.feature_names.values()))))
    if model.crosses:
        lines.append(("crosses", join_names([":".join(pair) for pair in model.crosses])))
    if model.pending.numbers:
        lines.append(("waiting", f"{count_of(len(model.pending.numbers), 'row')} for their labels"))
    if not model.n_rounds:
        return [text.format_fields(*lines)]
    loss, frozen = (
        text.format_loss(model.metrics.average_loss),
        text.format_loss(model.metrics.holdout_loss),
    )
    lines += [
        ("loss", f"{loss}, each row predicted before it was learned"),
        ("frozen", f"{frozen}, of rows ahead by the model as saved"),
        ("error", f"{model.metrics.n_errors / model.n_rounds:.2%}"),
        ("proven", " ".join(describe_claims(model))),
    ]
    return [text.format_fields(*lines), *_describe_weights(model)]


def _describe_weights(model: Model) -> list[str]:
    """Return the most important columns and the largest weights, if there are any yet."""
    if model.pipeline is None or model.pipeline.learner is None:
        return []
    explanation = model.explain()
    lines = []
    importance = explanation.importance
    if importance:
        rows = count_of(explanation.n_recent, "row")
        lines.append(f"Most important columns (what the loss of {rows} rises by without each):")
        best = sorted(importance, key=importance.__getitem__, reverse=True)[:_MAX_LINES]
        lines += [f"  {importance[name]:>8.4f}  {name}" for name in best]
    lines.append("Largest weights (what speaks for a class, +, or against it, -):")
    lines += [
        f"  {weight:>+8.3f}  {name} -> {label}"
        for name, label, weight in explanation.top(_MAX_LINES)
    ]
    return lines


def _describe_state(saved: serialization.Serializable) -> list[str]:
    arrays = saved.to_record().arrays
    size = sum(array.nbytes for array in arrays.values())
    lines = [("holds", repr(saved)), ("state", f"{len(arrays)} arrays, {size:,} bytes")]
    lines += [(name, " × ".join(map(str, array.shape))) for name, array in arrays.items()]
    return [text.format_fields(*((f"{name} ", value) for name, value in lines))]
