"""Models, runs, explanations and predictions as figures, notebook cards and HTML reports."""

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import plots
from folklearn.model.roles import describe_roles
from folklearn.model.summary import ModelSummary, segment_rows
from folklearn.report.rendering import render, render_card
from folklearn.report.style import svg_uri

if TYPE_CHECKING:
    from folklearn.evidence.certificate import Certificate
    from folklearn.model.explain import Explanation
    from folklearn.model.model import Model
    from folklearn.model.run import Run

_MAX_CARD_NAMES = 10
_MAX_CARD_ROWS = 20


def render_report(title: str, facts: ModelSummary) -> str:
    """Return a summary as one HTML page that needs no other file."""
    labels = [str(label) for label in facts.labels]
    figures: dict[str, tuple[Any, str]] = {}
    if facts.segments:
        bound = facts.bound_label(of_segments=True)
        figures["losses"] = (
            plots.losses(facts.segments, title="Loss", bound=bound),
            f"Average loss of {facts.metrics.n_rows:,} rows, segment by segment",
        )
    confusion = facts.metrics.confusion
    if confusion.any():
        figures["confusion"] = (
            plots.confusion(confusion, labels[: len(confusion)]),
            f"Confusion of classes; {facts.worst_confusion}",
        )
    curves = facts.metrics.calibration_curves()
    if any(len(curve.count) for curve in curves):
        figures["calibration"] = (
            plots.calibration(curves, labels[: len(curves)]),
            "Observed frequency of each class against its predicted probability",
        )
    if facts.explanation is not None and np.size(facts.explanation.weights):
        figures["weights"] = (
            draw_weights(facts.explanation),
            "Weights of the most important columns, for and against every class",
        )
    images = {name: {"uri": svg_uri(one), "alt": alt} for name, (one, alt) in figures.items()}
    return render("report.html", title=title, facts=facts, images=images)


def report_model(model: "Model", title: str) -> str:
    """Return the report on a model."""
    return render_report(title, ModelSummary.of_model(model))


def report_run(run: "Run") -> str:
    """Return the report on a run, and on the model that it made."""
    assert run.model is not None
    rate = run.n_rows / max(run.seconds, 1e-9)
    speed = (
        f"{run.n_rows:,} rows in {run.seconds:.1f} s: {rate:,.0f} rows a second, reading included."
    )
    facts = ModelSummary.of_model(run.model, run.metrics, speed=speed)
    return render_report(f"Report on {run.name}", facts)


def write_text(text: str, path: Any) -> str:
    """Write a text if a path is given, and return it."""
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return text


def save_figure(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    """Write a figure if a path is given, and return it."""
    if path is not None:
        plots.save(figure, path)
    return figure


def draw_run(run: "Run") -> Any:
    """Return a figure of a run on one page."""
    assert run.model is not None
    facts = ModelSummary(run.labels, run.metrics, (), certificate=run.certificate)
    tables: dict[str, Any] = {"windows": segment_rows(run.metrics)} if run.windows else {}
    bounds = [checkpoint.lower_bound for checkpoint in run.checkpoints]
    if any(map(math.isfinite, bounds)):
        rounds, losses = zip(*((one.n_rounds, one.loss) for one in run.checkpoints), strict=True)
        tables["certificate"] = (rounds, losses, bounds)
        tables["bound"] = facts.bound_label()
        tables["bound_of_windows"] = facts.bound_label(of_segments=True)
    labels = [str(label) for label in run.labels]
    if len(labels) > 1 and run.confusion.any():
        tables["confusion"] = (run.confusion, labels)
    if len(labels) > 1 and run.metrics.calibration[0].any():
        tables["calibration"] = (run.metrics.calibration_curves(), labels)
    return plots.overview(title=f"{run.name}: {run.n_rows:,} rows", **tables)


def draw_weights(explanation: "Explanation") -> Any:
    """Return a figure of the weights by column and class."""
    labels = [str(label) for label in explanation.labels]
    return plots.weights(list(explanation.names), labels, explanation.weights.T)


def certificate_card(certificate: "Certificate") -> str:
    """Return a certificate for a notebook."""
    rows = [("rounds", certificate.n_rounds), *_certificate_rows(certificate)]
    return render_card("Certificate", rows)


def model_card(model: "Model") -> str:
    """Return a model for a notebook."""
    labels = ", ".join(map(str, model.labels[:_MAX_CARD_NAMES]))
    rows: list[tuple[str, Any]] = [
        ("learner", model.learner_name),
        ("rows learned", model.n_rounds),
        ("classes", labels + (" …" if len(model.labels) > _MAX_CARD_NAMES else "")),
        ("average log loss", model.metrics.average_loss),
        ("hold-out log loss", model.metrics.holdout_loss),
        ("error", model.metrics.error_rate),
    ]
    rows += [
        (role, ", ".join(names[:_MAX_CARD_NAMES])) for role, names in describe_roles(model.roles)
    ]
    return render_card("Model", [*rows, *_certificate_rows(model.certificate())[-1:]])


def run_card(run: "Run") -> str:
    """Return a run for a notebook."""
    rows = [
        ("rows", run.n_rows),
        ("average log loss", run.loss),
        ("hold-out log loss", run.holdout_loss),
        ("error", run.error),
        *_certificate_rows(run.certificate)[1:2],
    ]
    return render_card(f"Run over {run.name}", rows, draw_run(run) if run.windows else None)


def explanation_card(explanation: "Explanation") -> str:
    """Return an explanation for a notebook."""
    importance = explanation.importance
    order = sorted(importance, key=importance.__getitem__, reverse=True)[:_MAX_CARD_ROWS]
    rows = [(f"importance of {name}", importance[name]) for name in order]
    figure = draw_weights(explanation) if np.size(explanation.weights) else None
    return render_card("Explanation", rows, figure)


def _certificate_rows(certificate: "Certificate | None") -> list[tuple[str, Any]]:
    if certificate is None or not certificate.valid:
        reason = "there is one class so far" if certificate is None else certificate.reason
        return [("proven", f"nothing: {reason}")]
    n = max(1, certificate.n_rounds)
    return [
        ("average log loss", certificate.loss / n),
        (certificate.bound_name, certificate.best_linear_at_least / n),
    ]
