"""Reports: what a model, a run or a file of predictions tells, as one page."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from folklearn.arrays import Array
from folklearn.arrays import Labels as Numbers
from folklearn.errors import InvalidInputError
from folklearn.evaluate.regression import Regression
from folklearn.evidence.certificate import Certificate
from folklearn.metrics.accumulator import Metrics, PredictionBatch
from folklearn.model.holdout import has_parted, parted
from folklearn.model.pictures import bound_label, calibration_tables, window_rows
from folklearn.report import document, html
from folklearn.report.html import Markup
from folklearn.utils import counted

if TYPE_CHECKING:
    from folklearn.model.model import Model
    from folklearn.model.run import Run

_UNPROVEN = (
    "What could be gained cannot be said from predictions alone: it takes the rows that they are "
    "about."
)
_BEFORE = "Every row was predicted before its label was known."
_NO_FLOOR = "What is proven piece by piece was not kept: a model made with windows=True keeps it."


def proven(model: "Model", certificate: Certificate | None = None) -> list[str]:
    """Return what is proven about linear models of the rows of a model, in sentences."""
    certificate = certificate or model.certificate()
    if certificate is None:
        return ["Nothing is proven before there is a second class."]
    lines = [certificate.in_words(model.total_weight)]
    return lines if model.hindsight is None else [model.hindsight.in_words(), *lines]


def model_page(model: "Model", title: str) -> str:
    """Return the life of a model."""
    return html.page(title, _of_model(model, model.metrics))


def run_page(run: "Run") -> str:
    """Return a run, and the model that came of it."""
    model = run.model
    assert model is not None
    speed = document.speed(run.n_rows, run.seconds)
    return html.page(f"Report on {run.name}", [*_of_model(model, run.metrics), speed])


class Proof(NamedTuple):
    """What is known of predictions beside them: a certificate, and a linear model's total loss.

    That model learned the same rows beside them; and a regression of all of them, if it was made.
    """

    certificate: Certificate
    leader_loss: float
    hindsight: Regression | None = None

    def words(self) -> list[str]:
        """Return what could have been gained, at most and at least."""
        n = self.certificate.n_rounds
        loss, beside = self.certificate.loss / n, self.leader_loss / n
        gained = "A linear model that learned the same rows beside them, on line, was no better."
        if beside < loss:
            gained = (
                f"A linear model that learned the same rows beside them lost "
                f"{document.number(beside)} a row: at least {document.number(loss - beside)} could "
                "have been gained."
            )
        exact = [] if self.hindsight is None else [self.hindsight.in_words()]
        return [*exact, self.certificate.in_words(), gained]

    def facts(self) -> list[tuple[str, object]]:
        """Return the losses by name, a row."""
        one, n = self.certificate, self.certificate.n_rounds
        found: list[tuple[str, object]] = [
            ("these predictions", one.loss / n),
            ("a linear model beside them", self.leader_loss / n),
        ]
        floor = document.down(max(0.0, one.best_linear_at_least / n))
        return [*found, (one.bound_name, floor)] if one.valid else found


def predictions_page(
    title: str,
    labels: Sequence[object],
    P: Array,
    y: Numbers,
    proof: Proof | None = None,
    *,
    notes: Sequence[str] = (),
) -> str:
    """Return what somebody's predictions P (T, K) of labels y (T,) were worth."""
    n = len(y)
    nothing = np.zeros(n)
    metrics = Metrics()
    metrics.add(
        PredictionBatch.of(P, nothing, y, np.full(n, P.shape[1]), nothing + 1.0, nothing * math.nan,
                   np.zeros((n, 0)), np.zeros(0))
    )  # fmt: skip
    words, facts, in_full = [_UNPROVEN], [], []
    if proof is not None:
        words, facts = proof.words(), proof.facts()
        in_full = [proof.certificate.in_full()]
    needs = document.attention(labels, metrics.by_class(), more=notes)
    segments = window_rows(metrics)
    parts = [
        document.summary([_how_good(metrics), *words, document.drift(segments)], needs),
        document.course(segments),
        document.proven([*words, *in_full], facts),
        document.changed(segments),
        *_by_class(labels, metrics),
    ]
    return html.page(title, parts)


def put(text: str, path: Any) -> str:
    """Write a page if a path is given, and return it."""
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return text


def _of_model(model: "Model", metrics: Metrics) -> Iterator[Markup]:
    if not model.n_rounds:
        raise InvalidInputError("there is nothing to report: the model has learned nothing yet")
    labels, segments = model.labels, window_rows(metrics)
    columns = [] if model.encoder is None else metrics.by_column(model.encoder)
    loss, frozen = model.average_loss, model.holdout_loss
    certificate = model.certificate()
    claims = proven(model, certificate)
    lines = [
        _how_good(metrics, ", before their label was known"),
        *claims,
        document.drift(segments),
    ]
    if metrics.n_rows < model.n_rounds:
        n_before = model.n_rounds - metrics.n_rows
        lines.append(f"Of {counted(n_before, 'row')} learned before there is no record here.")
    more = [f"Warning: {parted(loss, frozen)}."] if has_parted(loss, frozen) else []
    needs = document.attention(labels, metrics.by_class(), columns, metrics.n_rows, more)
    yield document.summary(lines, needs)
    yield document.course(
        segments, when=_BEFORE, without_floor=_NO_FLOOR,
        bound=bound_label(certificate, of_pieces=True),
        models="" if certificate is None else certificate.models,
    )  # fmt: skip
    yield document.proven(claims, _gains(model, certificate))
    yield document.changed(segments)
    yield from _by_class(labels, metrics)
    if model.learner is not None:
        own = model.explain()
        yield document.weights(own.names, labels, own.weights, own.importance, own.n_recent)
    yield document.quality(columns, metrics.n_rows)


def _by_class(labels: Sequence[object], metrics: Metrics) -> Iterator[Markup]:
    yield document.classes(labels, metrics.by_class())
    yield document.confusion(labels, metrics.confusion)
    yield document.calibration(labels, calibration_tables(metrics))


def _how_good(metrics: Metrics, when: str = "") -> str:
    n = metrics.n_rows
    if not n:
        return "Its rows were learned before there was a record of them."
    counts = [one.n_rows for one in metrics.by_class()]
    loss = metrics.loss / metrics.weight if metrics.weight > 0.0 else math.nan
    return document.how_good(n, counts, loss, metrics.n_errors / n, when=when)


def _gains(model: "Model", certificate: Certificate | None) -> list[tuple[str, object]]:
    """Return losses and what is proven below them, over the whole life and of late."""
    facts: list[tuple[str, object]] = [("average loss", model.average_loss)]
    if certificate is not None and certificate.valid and model.total_weight > 0.0:
        floor = certificate.best_linear_at_least / model.total_weight
        facts.append((certificate.bound_name, document.down(max(0.0, floor))))
    if not math.isnan(model.holdout_loss):
        facts.append(("of late, rows ahead, by the model as saved", model.holdout_loss))
    if model.has_floors:
        facts += [
            (
                f"could be gained by such models in the last {one.n_rounds:,} rows, at most",
                document.up(one.could_gain),
            )
            for one in model.windows()
            if one.start and one.floor > 0.0  # the whole life has a certificate, which says more
        ]
    return facts
