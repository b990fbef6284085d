"""`folklearn inspect`: what is in a file that was saved."""

import shlex

import typer

from folklearn import serialization
from folklearn.cli import learners, report
from folklearn.cli.display import new_console, warnings_shown
from folklearn.cli.inputs import may_be_saved
from folklearn.cli.options import Source, explained
from folklearn.model import document
from folklearn.model.model import Model
from folklearn.model.roles import inferred
from folklearn.utils import counted, listed

_MOST = 8  # columns, and weights


@explained("FILE  A saved model; or rows, as `folklearn run` takes them.")
def inspect(source: Source) -> None:
    """Show what a saved model has learned, or what the columns of rows are taken for.

    For other things that were saved, such as learners: what they are, and
    how large their state is.
    """
    if source.file is None or not may_be_saved(source.file):
        typer.echo("\n".join(_of_rows(source)))
        return
    saved = serialization.load(source.file)
    typer.echo("\n".join(_of_model(saved) if isinstance(saved, Model) else _of_other(saved)))


def _of_rows(source: Source) -> list[str]:
    reader, target = source.open()
    data = "data", report.source(reader, reader.n_rows)
    with warnings_shown(new_console(quiet=False)):
        roles = inferred(reader.head())
    file = [] if source.file is None else [source.file]
    learn = shlex.join(["folklearn", "run", *file, "--target", target or "COLUMN"])
    columns = report.columns_of({name: role for name, role in roles.items() if name != target})
    return [report.named(data, *columns), f"To learn from these rows: {learn}"]


def _of_model(model: Model) -> list[str]:
    lines = [("model", f"learned {counted(model.n_rounds, 'row')}")]
    if model.learner_name != learners.DEFAULT:
        lines.append(("learner", learners.described(model)))
    lines.append(("classes", report.classes(model.labels)))
    target = [name for name, role in model.roles.items() if role == "target"]
    if target:
        lines.append(("predicted", listed(target)))
    lines += report.columns_of(model.roles)
    if model.encoder is not None and model.encoder.feature_names:
        lines.append(("features", listed(list(model.encoder.feature_names.values()))))
    if model.crosses:
        lines.append(("crosses", listed([":".join(pair) for pair in model.crosses])))
    if model.waiting:
        lines.append(("waiting", f"{counted(len(model.waiting), 'row')} for their labels"))
    if not model.n_rounds:
        return [report.named(*lines)]
    error = model.n_mistakes / model.n_rounds
    lines += [
        ("loss", f"{report.number(model.average_loss)}, each row predicted before it was learned"),
        (
            "frozen",
            f"{report.number(model.holdout_loss)}, of rows ahead by the model as saved",
        ),
        ("error", f"{error:.2%}"),
        ("proven", " ".join(document.proven(model))),
    ]
    return [report.named(*lines), *_explained(model)]


def _explained(model: Model) -> list[str]:
    """Return what matters most to a model, if it has learned enough to tell."""
    if model.learner is None:
        return []
    explanation = model.explain()
    lines = []
    worth = explanation.importance
    if worth:
        rows = counted(explanation.n_recent, "row")
        lines.append(f"Most important columns (what the loss of {rows} rises by without each):")
        best = sorted(worth, key=worth.__getitem__, reverse=True)[:_MOST]
        lines += [f"  {worth[name]:>8.4f}  {name}" for name in best]
    lines.append("Largest weights (what speaks for a class, +, or against it, -):")
    lines += [
        f"  {weight:>+8.3f}  {name} -> {label}" for name, label, weight in explanation.top(_MOST)
    ]
    return lines


def _of_other(saved: serialization.Serializable) -> list[str]:
    arrays = saved.to_record().arrays
    size = sum(array.nbytes for array in arrays.values())
    lines = [("holds", repr(saved)), ("state", f"{len(arrays)} arrays, {size:,} bytes")]
    lines += [(name, " × ".join(map(str, array.shape))) for name, array in arrays.items()]
    return [report.named(*((f"{name} ", text) for name, text in lines))]
