"""`folklearn report`: a page about a saved model, rows that are learned, or predictions."""

import os

from rich.console import Console

from folklearn.cli.audit import certified
from folklearn.cli.display import new_console, warnings_shown
from folklearn.cli.given import are_predictions, read_alone
from folklearn.cli.inputs import load_model, may_be_saved
from folklearn.cli.options import Columns, Source, explained
from folklearn.cli.outputs import Outputs
from folklearn.errors import FolklearnError
from folklearn.model.document import Proof, model_page, predictions_page, run_page
from folklearn.model.model import Model
from folklearn.report.canvas import require_matplotlib


@explained(
    """
FILE  A saved model; or rows, as `folklearn run` takes them, which are learned first; or, without
    --target, predictions with their labels, as `folklearn run --predictions` writes them.
--predictions -p PREDS.csv  Report on what somebody predicted for the rows, a file as `folklearn
    audit` takes it.
--output -o REPORT.html  Where to write it. Default: report.html.
--B  Of predictions: largest norm of weights, per standard deviation, of the linear models to
    compare with.
"""
)
def report(
    source: Source,
    columns: Columns,
    predictions: str | None = None,
    output: str = "report.html",
    B: float | None = None,
    quiet: bool = False,
) -> None:
    """Write one page about a model: how good it is, what is proven, what needs attention.

    The page is one HTML file that needs nothing else, to be sent or printed.
    """
    require_matplotlib()
    console = new_console(quiet)
    with Outputs(source.file, predictions) as outputs, warnings_shown(console):
        path = outputs.promise("report", output)
        assert path is not None
        if predictions is not None:
            page = _of_predictions(console, source, columns, predictions, B)
        elif source.file is not None and may_be_saved(source.file):
            page = _of_model(source, columns)
        elif source.file is not None and source.target is None and are_predictions(source.file):
            page = _of_predictions_alone(source.file)
        else:
            page = _of_rows(source, columns)
        path.write_text(page, encoding="utf-8")
        outputs.commit(console)


def _of_model(source: Source, columns: Columns) -> str:
    if source.target is not None or columns.roles():
        raise FolklearnError("--target and --role are about rows, and this is a saved model")
    assert source.file is not None
    name = os.path.basename(source.file)
    return model_page(load_model(source.file, "folklearn report"), f"Report on {name}")


def _of_rows(source: Source, columns: Columns) -> str:
    reader, target = source.open()
    model = Model(roles=columns.roles(), windows=True)
    return run_page(model.run(reader, target))


def _of_predictions_alone(path: str) -> str:
    given, y = read_alone(path)
    notes = list(given.notes(y))
    return predictions_page(_title(path), given.labels, given.clipped, y, notes=notes)


def _title(path: str) -> str:
    return f"Audit of {os.path.basename(path)}"


def _of_predictions(
    console: Console, source: Source, columns: Columns, predictions: str, B: float | None
) -> str:
    audited = certified(console, "report", source, columns, predictions, B)
    whole, certifier = audited.whole, audited.certifier
    hindsight = whole.regression(audited.given.labels)
    proof = Proof(whole.named(certifier.certificate()), certifier.leader_loss, hindsight)
    notes = list(audited.given.notes(audited.y))
    return predictions_page(
        _title(predictions), audited.given.labels, audited.P, audited.y, proof, notes=notes
    )
