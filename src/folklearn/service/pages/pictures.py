"""The pictures of a model's page: what each is called, what it says, and how it is drawn."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from folklearn import plots
from folklearn.model.pictures import bound_label, calibration_tables, window_rows
from folklearn.report import canvas, html

if TYPE_CHECKING:
    from folklearn.service.pages.looks import Look

_NARROW = 4.0  # inches, of a telephone


class Picture(NamedTuple):
    """A picture: its title, what it says, whether there is anything to draw, and how."""

    name: str
    title: str
    says: str
    is_there: Callable[["Look"], bool]
    draw: Callable[["Look", bool], Any]  # of a look, and whether it is for a narrow screen


def drawn(look: "Look", name: str, is_narrow: bool) -> str:
    """Return a picture as SVG, light or dark as the reader likes it."""
    with plots.style():
        figure = PICTURES[name].draw(look, is_narrow)
    opening, end, rest = canvas.svg(figure).partition(">")
    return f"{opening}{end}<style>{html.THEME}</style>{rest}"


def _axes(width: float, height: float, is_narrow: bool) -> Any:
    return canvas.figure(_NARROW if is_narrow else width, height).subplots()


def _losses(look: "Look", is_narrow: bool) -> Any:
    ax = _axes(7.5, 3.2, is_narrow)
    bound = bound_label(look.certificate, of_pieces=True)
    return plots.losses(window_rows(look.metrics), title="", bound=bound, ax=ax)


def _errors(look: "Look", is_narrow: bool) -> Any:
    return plots.errors(window_rows(look.metrics), title="", ax=_axes(7.5, 2.4, is_narrow))


def _drift(look: "Look", is_narrow: bool) -> Any:
    lines = {"loss": [one.loss / one.weight for one in look.windows]}
    floors = [max(0.0, one.floor / one.weight) for one in look.windows]
    if any(floors):
        lines[" ".join(bound_label(look.certificate).split())] = floors
    at, ax = [one.n_rounds for one in look.windows], _axes(7.5, 2.8, is_narrow)
    return plots.curves(at, lines, x="the last … rows", y="nats per row", ax=ax)


def _calibration(look: "Look", is_narrow: bool) -> Any:
    tables = calibration_tables(look.metrics)
    return plots.calibration(tables, look.labels, title="", ax=_axes(5.8, 4.8, is_narrow))


def _confusion(look: "Look", is_narrow: bool) -> Any:
    size: Any = {"most": 8, "ax": _axes(_NARROW, 3.8, True)} if is_narrow else {"most": 14}
    return plots.confusion(look.metrics.confusion, look.labels, title="", **size)


def _weights(look: "Look", is_narrow: bool) -> Any:
    found = look.explanation
    assert found is not None
    size: Any = {"most": 10, "ax": _axes(_NARROW, 4.4, True)} if is_narrow else {"most": 16}
    return plots.weights(list(found.names), look.labels, found.weights.T, title="", **size)


def _has_rows(look: "Look") -> bool:
    return look.metrics.n_rows > 0


def _has_tables(look: "Look") -> bool:
    return len(look.labels) > 1 and bool(look.metrics.confusion.any())


PICTURES = {
    picture.name: picture
    for picture in (
        Picture(
            "losses",
            "Loss and lower bound, from the first row to the last",
            "The lower the blue line, the better it guessed. Hatched is what the linear models "
            "named above have at least; a model that goes on learning may be below it. The dashed "
            "line is what the model would lose if it had been saved and learned no more.",
            _has_rows,
            _losses,
        ),
        Picture(
            "errors",
            "How often it is wrong",
            "Of the rows at each time, the share that it took for something else.",
            _has_rows,
            _errors,
        ),
        Picture(
            "drift",
            "Lately, and in the long run",
            "The last rows are on the left, and ever more of them to the right. If the loss rises "
            "to the left, the world has changed and the model has not caught up yet.",
            lambda look: len(look.windows) > 1,
            _drift,
        ),
        Picture(
            "calibration",
            "Can its probabilities be trusted?",
            "If it says 70 %, it should be so in 70 of 100 cases: then a line lies on the "
            "diagonal. The bars below count the predictions.",
            _has_tables,
            _calibration,
        ),
        Picture(
            "confusion",
            "What it takes for what",
            "Each line is what rows were, each column what it took them for. All that is not on "
            "the diagonal was wrong.",
            _has_tables,
            _confusion,
        ),
        Picture(
            "weights",
            "What speaks for what",
            "How much each column says for a class, or against it.",
            lambda look: look.explanation is not None and bool(look.explanation.weights.size),
            _weights,
        ),
    )
}
