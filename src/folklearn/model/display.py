"""Models, runs, explanations and certificates as figures, notebook cards and HTML reports."""

import math
from typing import TYPE_CHECKING, Any

from folklearn import plots
from folklearn.errors import InvalidInputError
from folklearn.model.roles import describe_roles
from folklearn.model.summary import ModelSummary
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
    names = [name for name in facts.plot_data if name not in ("errors", "drift")]
    images = {name: svg_uri(facts.draw(name)) for name in names}
    return render("report.html", title=title, facts=facts, images=images)


def report_model(model: "Model", title: str, path: Any = None) -> str:
    if not model.n_rounds:
        raise InvalidInputError("there is nothing to report: the model has learned nothing yet")
    return _write(render_report(title, ModelSummary.of_model(model)), path)


def report_run(run: "Run", path: Any = None) -> str:
    rate = run.n_rows / max(run.seconds, 1e-9)
    speed = (
        f"{run.n_rows:,} rows in {run.seconds:.1f} s: {rate:,.0f} rows a second, reading included."
    )
    facts = ModelSummary.of_model(run.model, run.metrics, speed=speed)
    return _write(render_report(f"Report on {run.name}", facts), path)


def _write(text: str, path: Any) -> str:
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return text


def draw_run(run: "Run", path: Any = None) -> Any:
    facts = ModelSummary(run.labels, run.metrics, certificate=run.certificate)
    data = facts.plot_data
    tables: dict[str, Any] = {"windows": data["losses"][0]} if "losses" in data else {}
    bounds = [checkpoint.lower_bound for checkpoint in run.checkpoints]
    if any(map(math.isfinite, bounds)):
        rounds = [checkpoint.n_rounds for checkpoint in run.checkpoints]
        losses = [checkpoint.loss for checkpoint in run.checkpoints]
        tables["certificate"] = (rounds, losses, bounds)
        tables["bound_of_windows"] = facts.bound_label(of_segments=True)
    tables |= {name: data[name] for name in ("calibration", "confusion") if name in data}
    return _save(plots.overview(title=f"{run.name}: {run.n_rows:,} rows", **tables), path)


def draw_weights(explanation: "Explanation", path: Any = None) -> Any:
    labels = list(map(str, explanation.labels))
    return _save(plots.weights(explanation.names, labels, explanation.weights.T), path)


def _save(figure: Any, path: Any) -> Any:
    if path is not None:
        plots.save(figure, path)
    return figure


def certificate_card(certificate: "Certificate") -> str:
    rows = [("rounds", certificate.n_rounds), *_certificate_rows(certificate)]
    return render_card("Certificate", rows)


def model_card(model: "Model") -> str:
    labels = ", ".join(map(str, model.labels[:_MAX_CARD_NAMES]))
    rows: list[tuple[str, Any]] = [
        ("learner", model.learner_name),
        ("rows learned", model.n_rounds),
        ("classes", labels + (" …" if len(model.labels) > _MAX_CARD_NAMES else "")),
        ("average log loss", model.metrics.average_loss),
        ("hold-out log loss", model.metrics.holdout_loss),
        ("error", model.metrics.error_rate),
    ]
    for role, names in describe_roles(model.roles):
        rows.append((role, ", ".join(names[:_MAX_CARD_NAMES])))
    return render_card("Model", [*rows, *_certificate_rows(model.certificate())[-1:]])


def run_card(run: "Run") -> str:
    rows = [
        ("rows", run.n_rows),
        ("average log loss", run.loss),
        ("hold-out log loss", run.holdout_loss),
        ("error", run.error),
        *_certificate_rows(run.certificate)[1:2],
    ]
    return render_card(f"Run over {run.name}", rows, draw_run(run) if run.windows else None)


def explanation_card(explanation: "Explanation") -> str:
    columns = explanation.top_columns(_MAX_CARD_ROWS)
    rows = [(f"importance of {name}", importance) for name, importance in columns]
    figure = draw_weights(explanation) if explanation.weights.size else None
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
