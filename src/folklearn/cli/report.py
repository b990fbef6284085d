"""`folklearn report`: an HTML page about a saved model, rows that are learned, or predictions."""

import os
from collections.abc import Mapping
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from folklearn.cli import options
from folklearn.cli.atomic_files import AtomicOutputs
from folklearn.cli.audit import audit_file
from folklearn.cli.display import new_console, warnings_shown
from folklearn.cli.predictions_file import has_predictions, read_labelled_predictions
from folklearn.errors import FolklearnError
from folklearn.model.display import render_report, report_model, report_run
from folklearn.model.model import Model
from folklearn.model.summary import ModelSummary
from folklearn.report.style import require_matplotlib


def report(
    file: Annotated[
        str | None,
        Argument(
            metavar="FILE",
            show_default=False,
            help="A saved model; or rows, as `folklearn run` takes them, which are learned first; "
            "or, without --target, predictions with their labels, as `folklearn run --predictions` "
            "writes them.",
        ),
    ] = None,
    target: options.Target = None,
    format: options.Format = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    role: options.Roles = None,
    drop: options.Dropped = None,
    predictions: Annotated[
        options.Text,
        Option("-p", "--predictions", metavar="PREDS.csv", help="Predictions, as for audit."),
    ] = None,
    output: Annotated[
        str, Option("-o", "--output", metavar="REPORT.html", help="Where to write it.")
    ] = "report.html",
    B: options.Norm = None,
    quiet: options.Quiet = False,
) -> None:
    """Write one page about a model: how good it is, what is proven, what needs attention.

    The page is one HTML file that needs nothing else, to be sent or printed.
    """
    require_matplotlib()
    console = new_console(quiet)
    source = options.Source(file, target, format, delimiter, encoding, decimal)
    with AtomicOutputs(file, predictions) as outputs, warnings_shown(console):
        path = outputs.reserve("report", output)
        assert path is not None
        roles = options.parse_roles(role, drop)
        if predictions is not None:
            page = _report_predictions(console, source, roles, predictions, B)
        elif file is not None and options.may_be_saved(file):
            if target is not None or roles:
                raise FolklearnError(
                    "--target and --role are about rows, and this is a saved model"
                )
            model = options.load_model(file, "folklearn report")
            page = report_model(model, f"Report on {os.path.basename(file)}")
        elif file is not None and target is None and has_predictions(file):
            page = _report_labelled_predictions(file)
        else:
            reader, target = source.open()
            page = report_run(Model(roles=roles, windows=True).run(reader, target))
        path.write_text(page, encoding="utf-8")
        outputs.commit(console)


def _report_labelled_predictions(path: str) -> str:
    predicted, y = read_labelled_predictions(path)
    notes = list(predicted.notes(y))
    title = f"Audit of {os.path.basename(path)}"
    return render_report(
        title, ModelSummary.of_predictions(predicted.labels, predicted.clipped, y, warnings=notes)
    )


def _report_predictions(
    console: Console,
    source: options.Source,
    roles: Mapping[str, str],
    predictions: str,
    B: float | None,
) -> str:
    audited = audit_file(console, "report", source, predictions, roles, B)
    file, certifier, predicted = audited.file, audited.certifier, audited.predictions
    facts = ModelSummary.of_predictions(
        predicted.labels,
        audited.P,
        audited.y,
        file.describe_certificate(certifier.certificate()),
        leader_loss=certifier.leader_loss,
        hindsight=file.regression(predicted.labels),
        warnings=list(predicted.notes(audited.y)),
    )
    return render_report(f"Audit of {os.path.basename(predictions)}", facts)
