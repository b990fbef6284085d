"""What models, runs and explanations look like: their tables handed to `folklearn.plots`."""

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from folklearn import plots
from folklearn.evidence.certificate import round_down
from folklearn.metrics.accumulator import MIN_BOUNDED_ROWS
from folklearn.report import html

if TYPE_CHECKING:
    from folklearn.evidence.certificate import Certificate
    from folklearn.metrics.accumulator import Metrics
    from folklearn.model.explain import Explanation
    from folklearn.model.model import Model
    from folklearn.model.run import Run


def saved(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    """Write a figure if a path is given, and return it."""
    if path is not None:
        plots.save(figure, path)
    return figure


def window_rows(metrics: "Metrics") -> list[dict[str, float]]:
    """Return the segments of a life as `plots.losses` takes them."""
    return [
        {
            "start": one.start,
            "stop": one.stop,
            "loss": one.loss / one.weight if one.weight > 0.0 else math.nan,
            "floor": one.lower_bound if math.isfinite(one.lower_bound) else math.nan,
            "error_rate": one.n_errors / max(1, one.stop - one.start),
            "frozen": one.holdout_loss,
        }
        for one in metrics.segments
    ]


def calibration_tables(metrics: "Metrics") -> list[dict[str, Any]]:
    """Return predicted probability, frequency and counts of every class, in bins."""
    counts, given, hits = metrics.calibration
    tables = []
    for k in range(counts.shape[0]):
        there = counts[k] > 0.0
        tables.append(
            {
                "predicted": given[k][there] / counts[k][there],
                "observed": hits[k][there] / counts[k][there],
                "count": counts[k][there],
            }
        )
    return tables


def run_figure(run: "Run") -> Any:
    """Return a run on one page."""
    parts: dict[str, Any] = {"windows": window_rows(run.metrics)} if run.windows else {}
    floors = [moment.lower_bound for moment in run.moments]
    if any(map(math.isfinite, floors)):
        rounds, losses = zip(*((m.n_rounds, m.loss) for m in run.moments), strict=True)
        parts["certificate"] = (rounds, losses, floors)
        parts["bound"] = bound_label(run.certificate)
        parts["bound_of_windows"] = bound_label(run.certificate, of_pieces=True)
    labels = [str(label) for label in run.labels]
    if len(labels) > 1 and run.confusion.any():
        parts["confusion"] = (run.confusion, labels)
    if len(labels) > 1 and run.metrics.calibration[0].any():
        parts["calibration"] = (calibration_tables(run.metrics), labels)
    return plots.overview(title=f"{run.name}: {run.n_rows:,} rows", **parts)


def bound_label(certificate: "Certificate | None", *, of_pieces: bool = False) -> str:
    """Return what a lower bound is called in a picture; that of a piece is of more rows."""
    over = f",\nover {MIN_BOUNDED_ROWS}+ rows" * of_pieces
    if certificate is None or not certificate.valid:
        return plots.BOUND + over
    return f"lower bound,\nlinear models of\nnorm up to {round_down(certificate.B)}{over}"


def weights_figure(explanation: "Explanation") -> Any:
    """Return the weights by column and class."""
    labels = [str(label) for label in explanation.labels]
    return plots.weights(list(explanation.names), labels, explanation.weights.T)


def certificate_rows(certificate: "Certificate | None") -> list[tuple[str, Any]]:
    """Return what a certificate says, for people to read."""
    if certificate is None or not certificate.valid:
        reason = "there is one class so far" if certificate is None else certificate.reason
        return [("proven", f"nothing: {reason}")]
    n = max(1, certificate.n_rounds)
    return [
        ("average log loss", certificate.loss / n),
        (certificate.bound_name, certificate.best_linear_at_least / n),
    ]


def certificate_card(certificate: "Certificate") -> str:
    """Return a certificate for a notebook."""
    return html.card(
        "Certificate", [("rounds", certificate.n_rounds), *certificate_rows(certificate)]
    )


def model_card(model: "Model") -> str:
    """Return a model for a notebook."""
    rows: list[tuple[str, Any]] = [
        ("learner", model.learner_name),
        ("rows learned", model.n_rounds),
        (
            "classes",
            ", ".join(map(str, model.labels[:10])) + (" …" if len(model.labels) > 10 else ""),
        ),
        ("average log loss", model.average_loss),
        ("frozen log loss", model.holdout_loss),
        ("error", model.n_mistakes / model.n_rounds if model.n_rounds else math.nan),
    ]
    from folklearn.model.roles import described

    rows += [(role, ", ".join(names[:10])) for role, names in described(model.roles)]
    return html.card("Model", [*rows, *certificate_rows(model.certificate())[-1:]])


def run_card(run: "Run") -> str:
    """Return a run for a notebook."""
    rows = [
        ("rows", run.n_rows),
        ("average log loss", run.loss),
        ("frozen log loss", run.holdout_loss),
        ("error", run.error),
        *certificate_rows(run.certificate)[1:2],
    ]
    return html.card(f"Run over {run.name}", rows, run_figure(run) if run.windows else None)


def explanation_card(explanation: "Explanation") -> str:
    """Return an explanation for a notebook."""
    worth = explanation.importance
    order = sorted(worth, key=worth.__getitem__, reverse=True)[:20]
    rows = [(f"importance of {name}", worth[name]) for name in order]
    figure = weights_figure(explanation) if np.size(explanation.weights) else None
    return html.card("Explanation", rows, figure)
