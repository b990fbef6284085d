"""What a model looks like on its page: made from a copy, in a thread of its own, and kept."""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, NamedTuple

from folklearn import plots
from folklearn.evaluate.windows import Window
from folklearn.model.explain import Explanation
from folklearn.model.model import Model
from folklearn.report import canvas
from folklearn.service.hosted import Hosted
from folklearn.service.pages import words
from folklearn.service.service import Service
from folklearn.service.states import Classifier

_PATIENCE = 5.0  # seconds that a look is good for, at least,
_SHARE = 5.0  # and times what it cost
_MOST = 16  # looks that are kept
_FEW = 64  # rows that say little
_LATELY = 256  # rows
_SURE = 2.0  # standard deviations, for a difference to be told
_NARROW = 4.0  # inches


class Look:
    """What one version of a classifier looks like.

    Everything is worked out when it is first asked for, which must be in one thread.
    """

    def __init__(self, version: int, model: Model) -> None:
        self.version, self.model = version, model
        self._drawn: dict[tuple[str, bool], str] = {}

    def work_out(self) -> "Look":
        """Do all that the page needs; return the same."""
        _ = self.sentence, self.proof, self.pictures
        return self

    @cached_property
    def windows(self) -> list[Window]:
        """The last rows, in windows that double, the shortest first."""
        return [one for one in self.model.windows() if one.weight > 0.0]

    @property
    def lately(self) -> Window | None:
        """The rows that are meant by lately."""
        long = (one for one in self.windows if one.n_rounds >= _LATELY)
        return next(long, None)

    @cached_property
    def sentence(self) -> str:
        """How the model does, in a sentence that changes only if that does."""
        model, n = self.model, self.model.n_rounds
        if n < _FEW:
            return "It has learned too few rows to say how it does."
        wrong = model.n_mistakes / n
        whole = f"It was right about {words.about(1.0 - wrong)} of all rows"
        if self.lately is None or self.lately.n_rounds == n:
            return f"{whole}."
        wrong_lately = self.lately.n_errors / self.lately.n_rounds
        far = _SURE * math.sqrt(wrong * (1.0 - wrong) / self.lately.n_rounds)
        change = "about as well as ever"
        if abs(wrong_lately - wrong) > far:
            change = "better than before" if wrong_lately < wrong else "worse than before"
        return f"{whole}. Lately it does {change}: {words.about(1.0 - wrong_lately)} are right."

    @cached_property
    def proof(self) -> str:
        """What is proven, in words."""
        found = self.model.certificate()
        if found is None:
            return "Nothing is proven before there is a second class."
        return found.in_words(self.model.total_weight, of_new=self.model.loss_of_new)

    @property
    def guessing(self) -> float:
        """The loss of who gives all classes the same chance."""
        return math.log(max(1, len(self.model.labels)))

    @cached_property
    def explanation(self) -> Explanation | None:
        """The weights, None before there are two classes."""
        return None if self.model.learner is None else self.model.explain(importance=False)

    @cached_property
    def pictures(self) -> list["Picture"]:
        """The pictures that there is something for."""
        return [one for one in PICTURES.values() if one.is_there(self)]

    def draw(self, name: str, is_narrow: bool) -> str:
        """Return a picture as SVG, without a background: the page has one."""
        if (name, is_narrow) not in self._drawn:
            figure = PICTURES[name].draw(self, is_narrow)
            for patch in (figure.patch, *(ax.patch for ax in figure.axes)):
                patch.set_visible(False)
            self._drawn[name, is_narrow] = canvas.svg(figure)
        return self._drawn[name, is_narrow]


class Looks:
    """The looks of models, each kept for a while: who watches must not keep the writer waiting."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(1, "folklearn-pages")
        self._one_at_a_time = asyncio.Lock()
        self._kept: dict[int, tuple[Look, float]] = {}  # with the time from which it is too old

    async def of(self, hosted: Hosted) -> Look:
        """Return what a classifier looks like, or looked like a moment ago."""
        async with self._one_at_a_time:
            kept, until = self._kept.get(hosted.number, (None, 0.0))
            began = time.monotonic()
            if kept is not None and (kept.version == hosted.version or began < until):
                return kept
            version, state = await self._service.copy_of(hosted)
            assert isinstance(state, Classifier)
            look: Look = await self._in_thread(Look(version, state.model).work_out)
            ended = time.monotonic()
            until = ended + max(_PATIENCE, _SHARE * (ended - began))
            self._kept.pop(hosted.number, None)
            if len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[hosted.number] = look, until
            return look

    async def picture(self, hosted: Hosted, name: str, *, is_narrow: bool) -> str:
        """Return a picture of a classifier as SVG."""
        look = await self.of(hosted)
        drawn: str = await self._in_thread(partial(look.draw, name, is_narrow))
        return drawn

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


# The pictures.


class Picture(NamedTuple):
    """A picture: what it is called, what it says, and how it is drawn."""

    name: str
    title: str
    says: str
    is_there: Callable[[Look], bool]
    draw: Callable[[Look, bool], Any]


def _axes(width: float, height: float, is_narrow: bool) -> Any:
    return canvas.figure(_NARROW if is_narrow else width, height).subplots()


def _has_weights(look: Look) -> bool:
    return look.explanation is not None and bool(look.explanation.weights.size)


def _draw_drift(look: Look, is_narrow: bool) -> Any:
    at = [one.n_rounds for one in look.windows]
    lines = {"loss": [one.loss / one.weight for one in look.windows]}
    floors = [max(0.0, one.floor / one.weight) for one in look.windows]
    if any(floors):
        lines["floor"] = floors
    ax = _axes(7.5, 3.2, is_narrow)
    return plots.curves(at, lines, x="the last … rows", y="nats a row", ax=ax)


def _draw_weights(look: Look, is_narrow: bool) -> Any:
    found = look.explanation
    assert found is not None
    labels = [str(label) for label in found.labels]
    size = {"most": 10, "ax": _axes(_NARROW, 4.4, True)} if is_narrow else {"most": 20}
    return plots.weights(list(found.names), labels, found.weights.T, title="", **size)


PICTURES = {
    picture.name: picture
    for picture in (
        Picture(
            "drift",
            "Lately, and in the long run",
            "Loss of the last rows on the left, of ever more rows to the right. If it rises to the "
            "left, the world has changed and the model has not caught up yet.",
            lambda look: len(look.windows) > 1,
            _draw_drift,
        ),
        Picture(
            "weights",
            "What speaks for what",
            "How much each column says for a class, or against it.",
            _has_weights,
            _draw_weights,
        ),
    )
}
