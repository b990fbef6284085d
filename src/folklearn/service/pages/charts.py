"""The charts of a model's page."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from folklearn import plots
from folklearn.report import style

if TYPE_CHECKING:
    from folklearn.service.pages.view_model import ModelPage

_NARROW = 4.0  # inches, of a telephone


def draw_chart(page: "ModelPage", name: str, is_narrow: bool) -> str:
    """Return a chart as SVG."""
    with style.use_style():
        return style.svg(CHARTS[name][1](page, is_narrow))


def _axes(width: float, height: float, is_narrow: bool) -> Any:
    return style.new_axes(_NARROW if is_narrow else width, height + 0.8 * is_narrow)


def _losses(page: "ModelPage", is_narrow: bool) -> Any:
    bound, ax = page.facts.bound_label(of_segments=True), _axes(7.5, 3.2, is_narrow)
    return plots.losses(page.facts.segments, title="", bound=bound, ax=ax)


def _errors(page: "ModelPage", is_narrow: bool) -> Any:
    return plots.errors(page.facts.segments, title="", ax=_axes(7.5, 2.4, is_narrow))


def _drift(page: "ModelPage", is_narrow: bool) -> Any:
    lines = {"loss": [one.loss / one.weight for one in page.windows]}
    bounds = [max(0.0, one.lower_bound / one.weight) for one in page.windows]
    if any(bounds):
        lines[page.facts.bound_label()] = bounds
    at, ax = [one.n_rounds for one in page.windows], _axes(7.5, 2.8, is_narrow)
    return plots.curves(at, lines, x="the last … rows", y="nats per row", ax=ax)


def _calibration(page: "ModelPage", is_narrow: bool) -> Any:
    curves, ax = page.facts.metrics.calibration_curves(), _axes(6.8, 4.8, is_narrow)
    return plots.calibration(curves, page.labels, title="", ax=ax)


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


# By name: whether there is anything to draw, and how, for a wide or a narrow screen. Titles and
# captions stand in the template.
CHARTS: dict[str, tuple[Callable[["ModelPage"], bool], Callable[["ModelPage", bool], Any]]] = {
    "losses": (_has_rows, _losses),
    "errors": (_has_rows, _errors),
    "drift": (lambda page: len(page.windows) > 1, _drift),
    "calibration": (_has_tables, _calibration),
    "confusion": (_has_tables, _confusion),
    "weights": (_has_weights, _weights),
}
