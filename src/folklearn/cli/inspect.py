"""`folklearn inspect`, `report` and `export`: a saved model for people and for other runtimes."""

import os

import typer
from typer import Option

from folklearn.cli import display, options
from folklearn.cli.audit import FileAudit
from folklearn.cli.display import format_loss, new_console, open_console
from folklearn.cli.endings import AtomicOutputs
from folklearn.errors import FolklearnError
from folklearn.model.export import make_onnx
from folklearn.model.model import Model
from folklearn.model.roles import TARGET
from folklearn.model.run import Score
from folklearn.model.summary import ModelSummary, describe_claims, render_report
from folklearn.report.style import require_matplotlib
from folklearn.utils import count_of, join_names

_MAX_LINES = 8  # of columns, and of weights


def inspect(model: options.ModelFile) -> None:
    typer.echo("\n".join(_describe_model(options.load_model(model, "folklearn inspect"))))


def _describe_model(model: Model) -> list[str]:
    fields = {"model": f"learned {count_of(model.n_rounds, 'row')}"}
    if model.learner_name != display.DEFAULT_LEARNER:
        settings = (f"{name}={value}" for name, value in model.settings.items())
        fields["learner"] = ", ".join([model.learner_name, *settings])
    fields["classes"] = display.describe_classes(model.labels)
    if target := [name for name, role in model.roles.items() if role == TARGET]:
        fields["predicted"] = join_names(target)
    fields |= display.describe_columns(model.roles)
    if model.encoder is not None and model.encoder.feature_names:
        fields["features"] = join_names(list(model.encoder.feature_names.values()))
    fields |= display.describe_crosses(model)
    if model.pending:
        fields["waiting"] = f"{count_of(len(model.pending), 'row')} for their labels"
    if not model.n_rounds:
        return [display.format_fields(fields)]
    loss, holdout = map(format_loss, (model.metrics.average_loss, model.metrics.holdout_loss))
    fields["loss"] = f"{loss}, each row predicted before it was learned"
    fields["hold-out"] = f"{holdout}, of rows ahead by the model as saved"
    fields["error"] = f"{model.metrics.n_errors / model.n_rounds:.2%}"
    if rare := Score(model, model.metrics).rare_in_words:
        fields["rare"] = " ".join(rare)
    if sentence := model.sets.in_words():
        fields["sets"] = sentence
    fields["proven"] = " ".join(describe_claims(model))
    return [display.format_fields(fields), *_describe_weights(model)]


def _describe_weights(model: Model) -> list[str]:
    if model.pipeline is None or model.pipeline.learner is None:
        return []
    explanation, lines = model.explain(), []
    if explanation.importance:
        rows = count_of(explanation.n_recent, "row")
        lines.append(f"Most important columns (what the loss of {rows} rises by without each):")
        columns = explanation.top_columns(_MAX_LINES)
        lines += [f"  {importance:>8.4f}  {name}" for name, importance in columns]
    lines.append("Largest weights (what speaks for a class, +, or against it, -):")
    weights = explanation.top(_MAX_LINES)
    return lines + [f"  {weight:>+8.3f}  {name} -> {label}" for name, label, weight in weights]


def report(
    source: options.LearnedSource,
    predictions: options.Text = Option(
        None, "-p", "--predictions", metavar="PREDS.csv", help="Predictions, as for audit."
    ),
    output: str = Option("report.html", "-o", "--output", metavar="REPORT.html", help="The page."),
    quiet: options.Quiet = False,
) -> None:
    """FILE is a saved model, or rows, which are learned first. The page is one
    HTML file that needs nothing else, to be sent or printed.
    """
    require_matplotlib()
    file = source.file
    with AtomicOutputs(file, predictions) as outputs, open_console(quiet) as console:
        path = outputs.reserve("report", output)
        roles = source.roles
        if predictions is not None:
            audited = FileAudit(console, source, predictions)
            facts = ModelSummary.of_predictions(
                audited.labels, audited.P, audited.y, audited.certificate(),
                hindsight=audited.regression(), warnings=audited.notes,
            )  # fmt: skip
            render_report(f"Audit of {os.path.basename(predictions)}", facts, path)
        elif file is not None and options.may_be_saved(file):
            if source.target is not None or roles:
                raise FolklearnError("--target and --role are not for a saved model")
            model = options.load_model(file, "folklearn report")
            model.report(path, title=f"Report on {os.path.basename(file)}")
        else:
            reader, target = source.open()
            Model(roles=roles, windows=True).run(reader, target).report(path)
        outputs.commit(console)


def export(
    model: options.ModelFile,
    output: str = Option("model.onnx", "-o", "--output", metavar="MODEL.onnx", help="The file."),
    quiet: options.Quiet = False,
) -> None:
    """Its inputs are the columns by name, its outputs `label` and `probabilities`."""
    with AtomicOutputs(model) as outputs:
        path = outputs.reserve("model", output)
        assert path is not None
        path.write_bytes(make_onnx(options.load_model(model, "folklearn export")))
        outputs.commit(new_console(quiet))
