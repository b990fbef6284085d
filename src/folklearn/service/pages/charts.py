"""The charts of a model's page: titles, captions, and how each is drawn."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from folklearn import plots
from folklearn.model.summary import calibration_tables
from folklearn.report import style

if TYPE_CHECKING:
    from folklearn.service.pages.view_model import ModelPage

_NARROW = 4.0  # inches, of a telephone


class Chart(NamedTuple):
    """A chart: its title and caption, whether there is anything to draw, and how.

    `draw` takes a page and whether the screen is narrow.
    """

    name: str
    title: str
    caption: str
    has_data: Callable[["ModelPage"], bool]
    draw: Callable[["ModelPage", bool], Any]


def draw_chart(page: "ModelPage", name: str, is_narrow: bool) -> str:
    """Return a chart as SVG."""
    with style.style():
        return style.svg(CHARTS[name].draw(page, is_narrow))


def _axes(width: float, height: float, is_narrow: bool) -> Any:
    return style.new_axes(_NARROW if is_narrow else width, height + 0.8 * is_narrow)


def _losses(page: "ModelPage", is_narrow: bool) -> Any:
    bound, ax = page.facts.bound_label(of_segments=True), _axes(7.5, 3.2, is_narrow)
    return plots.losses(page.facts.segments, title="", bound=bound, ax=ax)


def _errors(page: "ModelPage", is_narrow: bool) -> Any:
    return plots.errors(page.facts.segments, title="", ax=_axes(7.5, 2.4, is_narrow))


def _drift(page: "ModelPage", is_narrow: bool) -> Any:
    lines = {"loss": [one.loss / one.weight for one in page.windows]}
    bounds = [max(0.0, one.floor / one.weight) for one in page.windows]
    if any(bounds):
        lines[page.facts.bound_label()] = bounds
    at, ax = [one.n_rounds for one in page.windows], _axes(7.5, 2.8, is_narrow)
    return plots.curves(at, lines, x="the last … rows", y="nats per row", ax=ax)


def _calibration(page: "ModelPage", is_narrow: bool) -> Any:
    tables, ax = calibration_tables(page.facts.metrics), _axes(6.8, 4.8, is_narrow)
    return plots.calibration(tables, page.labels, title="", ax=ax)


def _confusion(page: "ModelPage", is_narrow: bool) -> Any:
    size: Any = {"most": 8, "ax": style.new_axes(_NARROW, 3.8)} if is_narrow else {"most": 14}
    return plots.confusion(page.facts.metrics.confusion, page.labels, title="", **size)


def _weights(page: "ModelPage", is_narrow: bool) -> Any:
    explanation = page.facts.explanation
    assert explanation is not None
    size: Any = {"most": 10, "ax": style.new_axes(_NARROW, 4.4)} if is_narrow else {"most": 16}
    weights = explanation.weights.T
    return plots.weights(list(explanation.names), page.labels, weights, title="", **size)


def _has_rows(page: "ModelPage") -> bool:
    return page.facts.metrics.n_rows > 0


def _has_tables(page: "ModelPage") -> bool:
    return len(page.labels) > 1 and bool(page.facts.metrics.confusion.any())


def _has_weights(page: "ModelPage") -> bool:
    explanation = page.facts.explanation
    return explanation is not None and bool(explanation.weights.size)


CHARTS = {
    chart.name: chart
    for chart in (
        Chart(
            "losses",
            "Loss and lower bound, from the first row to the last",
            "The lower the blue line, the better the predictions. Hatched is a lower bound for the "
            "linear models named above; a model that goes on learning may be below it. The dashed "
            "line is the hold-out loss: that of the model as it would be saved, learning no more.",
            _has_rows,
            _losses,
        ),
        Chart(
            "errors",
            "Error rate",
            "Of the rows at each time, the share that was predicted wrong.",
            _has_rows,
            _errors,
        ),
        Chart(
            "drift",
            "Lately, and in the long run",
            "The last rows are on the left, and more of them to the right. If the loss rises to "
            "the left, the data have changed and the model has not caught up yet.",
            lambda page: len(page.windows) > 1,
            _drift,
        ),
        Chart(
            "calibration",
            "Calibration",
            "Of all rows with a predicted probability of 70 %, 70 in 100 should be of the class: "
            "then a line lies on the diagonal. The bars below count the predictions.",
            _has_tables,
            _calibration,
        ),
        Chart(
            "confusion",
            "Confusion",
            "Each line is a class, each column the class predicted. Everything off the diagonal "
            "was wrong.",
            _has_tables,
            _confusion,
        ),
        Chart(
            "weights",
            "Weights",
            "How much each column speaks for a class, or against it.",
            _has_weights,
            _weights,
        ),
    )
}
